"""Documents as one tokenised text: ordered, joined, and only as much as is needed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count
from random import Random
from typing import Any

from needlemap.errors import HaystackError
from needlemap.haystacks.source import Document, Source
from needlemap.text.tokens import Cuts, Tokenizer, TokenText, join

_STOPPED = re.compile(r"""[.!?]["')\]]?$|[。！？…][”’」』）]?$""")
# White space behind a stop; nothing behind a Chinese one; lines. A run of spaces is looked at from
# its start alone: from each of its places it took hours for one of megabytes.
_BETWEEN = re.compile(
    r"""((?<!\s)\s*\n\s*|(?<=[.!?])\s+|(?<=[.!?]["')\]])\s+"""
    r"""|(?<=[。！？…])(?![。！？…”’」』）])\s*|(?<=[。！？…][”’」』）])\s*)"""
)
_SPARE = 64  # tokens beyond what is asked, so that the last ones are not those of a cut text
_APART = 1_000_000  # documents between the repeats of an endless source
_LONGEST_TOKEN = 1000  # bytes of a token, in the mean
_BYTES_A_TOKEN = 4.5  # a first guess; more is read while it is not enough
# Characters of a document that are tokenised at once, however few are needed: all of a book, which
# has words, but little of what has none. One word takes vocabularies 200 times its size in memory,
# and seconds a megabyte.
_AT_ONCE, _AT_ONCE_WORDLESS = 4 << 20, 1 << 20
_PARTING = " \n，。；："  # what parts words, or where tokens may be counted apart
_LONGEST_WORD = 1000  # characters, in the mean


@dataclass(frozen=True, slots=True, eq=False)
class Haystack:
    """Documents as one tokenised text. repeated_from: the token from which documents come again, or
    None. ended: whether its source had fewer tokens than were needed.

    sha256: of its bytes. name: of its source.
    """

    name: str
    text: TokenText
    cuts: Cuts
    sha256: str
    repeated_from: int | None = None
    ended: bool = False

    def broken_off(self, stop: int) -> bool:
        """Whether its first `stop` tokens end inside a sentence or line."""
        rest = bytes(self.text.span(int(self.cuts.sentence[stop]), stop).data).rstrip(b" \t")
        return bool(rest) and not rest.endswith(b"\n")


def assemble(
    source: Source,
    tokenizer: Tokenizer,
    tokens_needed: int,
    *,
    order: str = "listed",
    joined: str = "paragraphs",
    seed: int = 0,
    repeat: int = 0,
    repeat_allowed: bool = False,
    may_end: bool = False,
    unit: str = "sentence",
    bytes_a_token: float = _BYTES_A_TOKEN,
    shuffle: str = "none",
) -> Haystack:
    """At least tokens_needed tokens of a source's documents; fewer where it may end.

    order: 'listed'; 'shuffled' by seed and repeat; 'cumulative', each repeat reshuffling the
    one before (OpenCompass). joined: 'paragraphs' (trimmed, a blank line between), 'text'
    (nothing between), or 'tokens' (nothing between, each document tokenised alone, as
    OpenCompass does). unit: what a needle may not split, a name in `tokens.UNITS`.
    bytes_a_token: a first guess of how much to read. shuffle: 'sentences' puts those of each
    document in any order, by seed and repeat. Raises HaystackError when the source is empty,
    or too short and neither repeat_allowed nor may_end.
    """
    documents = _arranged(source, order, seed, repeat, shuffle)
    first_pass = _text(documents, tokenizer, tokens_needed, joined, bytes_a_token)
    text, repeated_from = first_pass, None
    if len(first_pass) < tokens_needed:
        if not len(first_pass):
            raise HaystackError(f"Haystack '{source.name}' holds no text.{_left_out(source)}")
        if not repeat_allowed and not may_end:
            raise HaystackError(
                f"Haystack '{source.name}' has {len(first_pass):,} tokens of '{tokenizer.name}', "
                f"the longest "
                f"prompt needs {tokens_needed:,}. Add text, use shorter lengths, or allow "
                f"repeating it with "
                f"--haystack-repeat.{_left_out(source)}"
            )
        if repeat_allowed:
            repeated_from, passes = len(first_pass), count()
            again = (
                each for _ in passes for each in _arranged(source, order, seed, repeat, shuffle)
            )
            text = _text(again, tokenizer, tokens_needed, joined, bytes_a_token)
    digest, ended = hashlib.sha256(text.data).hexdigest(), len(text) < tokens_needed
    return Haystack(source.name, text, Cuts.of(text, unit), digest, repeated_from, ended)


def _left_out(source: Source) -> str:
    """What a source of files did not read, for errors."""
    lines = source.notes()[1:]
    return "".join(f" {line[:1].upper()}{line[1:]}." for line in lines)


def _arranged(
    source: Source, order: str, seed: int, repeat: int, shuffle: str
) -> Iterator[Document]:
    """The documents in their order, and each one's sentences in theirs."""
    documents = _ordered(source, order, seed, repeat)
    if shuffle == "none":
        return documents
    random = f"sentences:{seed}:{repeat}"
    return (
        Document(each.name, shuffled_sentences(each.text, Random(f"{random}:{each.name}")))
        for each in documents
    )


def shuffled_sentences(text: str, random: Random) -> str:
    """A text with its sentences in any order. Breaks of lines and paragraphs stay where they
    were, and so does a line without a stop, as a title is.

    >>> shuffled_sentences("A title\\n\\nAnn swims. Bob (7) runs.\\n\\nEve sings!", Random(1))
    'A title\\n\\nAnn swims. Eve sings!\\n\\nBob (7) runs.'
    """
    parts = _BETWEEN.split(text)  # sentence, what parts it from the next, sentence, ...
    places = [at for at in range(0, len(parts), 2) if _STOPPED.search(parts[at])]
    for at, sentence in zip(
        places, random.sample([parts[at] for at in places], len(places)), strict=True
    ):
        parts[at] = sentence
    return "".join(parts)


def _ordered(source: Source, order: str, seed: int, repeat: int) -> Iterator[Document]:
    if order == "listed":
        return source.documents()
    if source.endless:
        return source.documents(repeat * _APART)
    if source.parts is not None:
        return chain.from_iterable(
            map(source.part, shuffled(list(range(source.parts)), order, seed, repeat))
        )
    return iter(shuffled(list(source.documents()), order, seed, repeat))


def shuffled(listed: list[Any], order: str, seed: int, repeat: int) -> list[Any]:
    """Documents, or the numbers of a source's parts, in a repeat's order.

    'cumulative': repeat k shuffles what repeat k - 1 left, with seed k.

    >>> shuffled([0, 1, 2], "cumulative", 0, 0), shuffled([0, 1, 2], "cumulative", 0, 1)
    ([0, 2, 1], [2, 1, 0])
    """
    if order == "shuffled":
        Random(f"{seed}:{repeat}").shuffle(listed)
    else:
        for counter in range(repeat + 1):
            Random(counter).shuffle(listed)
    return listed


def bytes_a_token(source: Source, tokenizer: Tokenizer) -> float:
    """How many bytes a token of a source has, by its first document."""
    data = next(source.documents()).text.encode()
    return len(data) / max(1, tokenizer.count(data))


def _text(
    documents: Iterator[Document],
    tokenizer: Tokenizer,
    tokens_needed: int,
    joined: str,
    guess: float,
) -> TokenText:
    if joined == "tokens":
        return _token_by_token(documents, tokenizer, tokens_needed)
    wanted, read, size = (tokens_needed + _SPARE) * guess, list[bytes](), 0
    parts = (part for document in documents for part in _document_parts(document, joined))
    while True:
        for part in parts:
            read.append(part.encode())
            size += len(read[-1])
            if size >= wanted:
                break
        text = tokenizer.index(b"".join(read))
        if len(text) >= tokens_needed + _SPARE or size < wanted:
            return text
        _refuse_losing(tokenizer, size, len(text))
        wanted *= 1.3


def _refuse_losing(tokenizer: Tokenizer, size: int, tokens: int) -> None:
    """Raises HaystackError for a vocabulary that drops nearly all of a text, which would never
    be enough."""
    if size > _LONGEST_TOKEN * (tokens + 1):
        raise HaystackError(
            f"'{tokenizer.name}' makes {tokens:,} tokens of {size:,} bytes: it has none for most "
            f"of them. "
            f"Give the --tokenizer, or the model's tokenizer.json, that the text is written for."
        )


def _token_by_token(
    documents: Iterator[Document], tokenizer: Tokenizer, tokens_needed: int
) -> TokenText:
    texts, tokens, size = [], 0, 0
    for document in documents:
        text, read = _tokenised(document, tokenizer, tokens_needed - tokens)
        texts.append(text)
        tokens, size = tokens + len(text), size + read
        _refuse_losing(tokenizer, size - read, tokens)
        if tokens >= tokens_needed:
            break
    return join(texts)


def _tokenised(document: Document, tokenizer: Tokenizer, needed: int) -> tuple[TokenText, int]:
    """A document tokenised by itself, and the bytes read; of a long one more and more, until it
    is enough."""
    text, read, size, next_size = join(()), list[bytes](), 0, 0
    for part, is_last in _parts(document.text):
        read.append(part.encode())
        size += len(read[-1])
        if is_last or size >= next_size:
            text, next_size = tokenizer.index(b"".join(read)), 2 * size
            if len(text) >= needed + _SPARE:
                break
    return text, size


def _document_parts(document: Document, joined: str) -> Iterator[str]:
    """A document as it is joined: a paragraph ends with a blank line, unless it is empty."""
    paragraph = joined == "paragraphs"
    for part, is_last in _parts(document.text.strip() if paragraph else document.text):
        yield f"{part}\n\n" if paragraph and is_last and part else part


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """A text in parts that are long enough for most runs, each with whether it is the last."""
    stop = 0
    while not stop or stop < len(text):
        start, stop = stop, stop + _AT_ONCE_WORDLESS
        while stop < min(len(text), start + _AT_ONCE) and _has_words(text, stop):
            stop += _AT_ONCE_WORDLESS
        yield text[start:stop], stop >= len(text)


def _has_words(text: str, start: int) -> bool:
    """Whether a text has words from a place on: no vocabulary need take that for one."""
    stop = min(len(text), start + _AT_ONCE_WORDLESS)
    parted = sum(text.count(sign, start, stop) for sign in _PARTING)
    return parted * _LONGEST_WORD >= stop - start
