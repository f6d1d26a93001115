"""A haystack file as OpenCompass reads it: JSON Lines, each tokenised by itself, reshuffled per repeat.

A file is read and tokenised once for all cells that are asked of it: see `read`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random

from needlemap.errors import HaystackError
from needlemap.interop.keyed import Keyed
from needlemap.tokens import Span, Tokenizer, TokenText, join


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """A file's lines in file order, each tokenised by itself."""

    texts: tuple[TokenText, ...]

    def background(self, repeat: int, repeats: int, target: int) -> Span:
        """The first `target` tokens of the lines in the order of a repeat (fewer where the file is short).

        A target of 0 or below takes that many off the end of the first line, as the original's slice does.
        """
        if target <= 0:
            first = self.texts[orders(len(self.texts), repeats)[repeat][0]]
            return first.span(0, max(0, len(first) + target) if target else 0)
        text = _opening(self, repeat, repeats, 1 << (target - 1).bit_length())
        return text.span(0, min(target, len(text)))


def read(path: Path, tokenizer: Tokenizer) -> Lines:
    """The file's lines, from memory if neither file nor tokenizer changed. Raises HaystackError."""
    try:
        status = path.stat()
    except OSError as error:
        raise HaystackError(
            f"No haystack file at '{path}': {error.strerror}. Check path and file_list."
        ) from None
    return _tokenised(path, status.st_mtime_ns, status.st_size, Keyed.of(tokenizer))


@lru_cache(maxsize=64)
def orders(count: int, repeats: int) -> tuple[tuple[int, ...], ...]:
    """The order of `count` lines in each repeat: repeat k shuffles what repeat k - 1 left, with seed k.

    >>> orders(3, 2)
    ((0, 2, 1), (2, 1, 0))
    """
    order = list(range(count))
    found = []
    for seed in range(repeats):
        Random(seed).shuffle(order)
        found.append(tuple(order))
    return tuple(found)


@lru_cache(maxsize=8)
def _tokenised(path: Path, mtime_ns: int, size: int, by: Keyed) -> Lines:  # noqa: ARG001 - the key
    texts = tuple(by.tokenizer.index(utf8(text)) for text in _texts(path))
    if not texts:
        raise HaystackError(f"Haystack file '{path}' is empty.")
    return Lines(texts)


@lru_cache(maxsize=32)
def _opening(lines: Lines, repeat: int, repeats: int, tokens: int) -> TokenText:
    """The lines of a repeat, joined, until there are at least so many tokens (or no more lines).

    Asked for powers of two only, so that neighbouring lengths share one and few are kept.
    """
    taken, total = [], 0
    for number in orders(len(lines.texts), repeats)[repeat]:
        taken.append(lines.texts[number])
        total += len(taken[-1])
        if total >= tokens:
            break
    return join(taken)


def _texts(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                yield _text(line.strip(), f"{path}, line {number}")
    except (OSError, UnicodeDecodeError) as error:
        raise HaystackError(f"Haystack file '{path}' cannot be read as UTF-8: {error}") from None


def _text(line: str, where: str) -> str:
    try:
        text = json.loads(line)["text"]
    except ValueError as error:
        raise HaystackError(
            f"{where} is no JSON: {error}. Each line must be an object with 'text'."
        ) from None
    except (KeyError, TypeError):
        raise HaystackError(f"{where} has no 'text'. Each line must be an object with 'text'.") from None
    if not isinstance(text, str):
        raise HaystackError(f"{where}: 'text' is a {type(text).__name__}, not a string.")
    return text


def utf8(text: str) -> bytes:
    """UTF-8 bytes; a lone surrogate, which JSON allows, becomes U+FFFD as in the original's tokenizer."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
