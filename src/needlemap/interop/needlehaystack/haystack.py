"""A folder of text files as the needlehaystack family reads it: all on end, repeated until long enough.

Files are taken in the order of their names (the originals: of the file system), and are read as UTF-8.
A folder is read and tokenised once for all cells that are asked of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from needlemap.errors import HaystackError
from needlemap.interop.keyed import Keyed
from needlemap.tokens import Tokenizer, TokenText

_State = tuple[tuple[Path, int, int], ...]  # each file, when it was written, its bytes


def background(folder: str | Path, tokens: int, tokenizer: Tokenizer) -> TokenText:
    """The haystack cut to `tokens` tokens and tokenised anew, as the originals do. Raises HaystackError."""
    return _background(_state(Path(folder)), tokens, Keyed.of(tokenizer))


def repeated(folder: str | Path, enough: Callable[[str], bool]) -> str:
    """The folder's text, once or as often as is enough. Raises HaystackError."""
    state = _state(Path(folder))
    text = once = _text(state)
    if not once:
        raise HaystackError(f"The .txt files in '{folder}' are empty.")
    while not enough(text):
        text += once
    return text


def _state(folder: Path) -> _State:
    files = sorted(
        (file for file in folder.glob("*.txt") if file.is_file() and not file.name.startswith(".")),
        key=lambda file: file.name,
    )
    if not files:
        why = "holds no .txt file" if folder.is_dir() else "is no folder"
        raise HaystackError(f"Haystack '{folder.absolute()}' {why}. Give a folder of .txt files.")
    return tuple((file, file.stat().st_mtime_ns, file.stat().st_size) for file in files)


@lru_cache(maxsize=64)
def _background(state: _State, tokens: int, by: Keyed) -> TokenText:
    whole = _repeated(state, _enough(state, tokens, by), by)
    if len(whole) <= tokens:
        return whole
    kept = bytes(whole.span(0, tokens).data).decode("utf-8", errors="replace")
    return by.tokenizer.index(kept.encode())


def _enough(state: _State, tokens: int, by: Keyed) -> int:
    """The fewest repeats that hold `tokens` tokens: tokens that merge across files may take one more."""
    times = max(1, -(-tokens // len(_repeated(state, 1, by))))
    while len(_repeated(state, times, by)) < tokens:
        times += 1
    while times > 1 and len(_repeated(state, times - 1, by)) >= tokens:
        times -= 1
    return times


@lru_cache(maxsize=4)
def _repeated(state: _State, times: int, by: Keyed) -> TokenText:
    whole = by.tokenizer.index((_text(state) * times).encode())
    if not len(whole):
        raise HaystackError(f"The .txt files in '{state[0][0].parent}' are empty.")
    return whole


@lru_cache(maxsize=4)
def _text(state: _State) -> str:
    return "".join([_read(file) for file, _, _ in state])


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise HaystackError(f"Haystack file '{file}' cannot be read as UTF-8: {error}") from None
