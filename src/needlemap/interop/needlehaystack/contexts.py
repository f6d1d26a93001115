"""A context of the needlehaystack family: a haystack with its needles, each behind a full
stop.

The haystack is a folder of text files, all on end, repeated until long enough, in the order of
their names (the originals: of the file system) and read as UTF-8. It is read and tokenised
once for all cells asked of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from needlemap.errors import HaystackError, SettingsError
from needlemap.haystacks.folder import files_like
from needlemap.haystacks.readers import read_text
from needlemap.interop.formulas import behind_full_stop, full_stops
from needlemap.text.tokens import Span, Tokenizer, TokenText
from needlemap.tokenizers import Keyed
from needlemap.tokenizers import load as load_tokenizer

Encode = Callable[[str], Sequence[int]]
Decode = Callable[[list[int]], str]


@dataclass(frozen=True, slots=True)
class Filled:
    """Haystack and needles in order, as spans.

    insertion_percents: where each needle went, in percent of the text with it; empty at depth
    100, as in the original.
    """

    spans: tuple[Span, ...]
    insertion_percents: tuple[float, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.spans))

    @property
    def text(self) -> str:
        """Its text. Bytes of a character that was cut become U+FFFD."""
        return b"".join([span.data for span in self.spans]).decode("utf-8", errors="replace")


def context(
    haystack_dir: str | Path,
    context_length: int,
    depth_percent: float,
    needle: str | None = None,
    needles: Sequence[str] | None = None,
    final_context_length_buffer: int = 200,
    tokenizer: str | Tokenizer = "gpt-4",
) -> str:
    """A context as the originals build it. Give `needle`, or `needles` to spread from
    depth_percent on.

    context_length: tokens of haystack and needles together, plus the buffer. tokenizer: a name
    or path (see `needlemap.tokenizers.load`), or a Tokenizer. A haystack that is too short is
    repeated; a length below buffer and needles goes wrong as in the originals: what is left
    over comes off the haystack's end. Raises HaystackError, SettingsError, VocabularyMissing.
    """
    if (needle is None) == (not needles):
        raise SettingsError("Give either 'needle' or 'needles', one of the two.")
    hidden = [needle] if needle is not None else needles or ()
    return fill(
        haystack_dir, context_length, depth_percent, hidden, final_context_length_buffer, tokenizer
    ).text


def fill(
    haystack_dir: str | Path,
    context_length: int,
    depth_percent: float,
    needles: Sequence[str],
    buffer: int,
    tokenizer: str | Tokenizer,
) -> Filled:
    """`context` before it becomes text."""
    if context_length < 1:
        raise SettingsError(f"context_length must be at least 1 token, got {context_length}.")
    if not 0 <= depth_percent <= 100:
        raise SettingsError(f"depth_percent must lie in 0..100, got {depth_percent}.")
    made = load_tokenizer(tokenizer) if isinstance(tokenizer, str) else tokenizer
    hidden = [made.index(needle.encode()) for needle in needles]
    haystack = background(haystack_dir, context_length, made)
    kept = room(len(haystack), context_length - buffer, sum(map(len, hidden)))
    return spread(haystack.span(0, kept), hidden, depth_percent, full_stops(made))


def room(haystack: int, budget: int, needles: int) -> int:
    """Haystack tokens kept, by the rules of Python's slices when the needles need more than
    the budget.

    >>> room(1000, 800, 24), room(500, 800, 24), room(210, 10, 24), room(100, -100, 24)
    (776, 500, 196, 0)
    """
    if haystack + needles <= budget:
        return haystack
    left = budget - needles
    return min(left, haystack) if left >= 0 else max(0, haystack + left)


def spread(
    haystack: Span, needles: Sequence[TokenText], depth: float, stops: frozenset[int]
) -> Filled:
    """The needles at equal steps from `depth` (percent) up to, not including, 100; at 100 all
    at the end.

    Each is placed in the text that holds those before it, so a needle's own full stop may take
    the next one.
    """
    step = (100 - depth) / len(needles)
    filled = Filled((haystack,))
    for needle in needles:
        if depth == 100:
            filled = Filled((*filled.spans, needle.span()))
            continue
        ids = np.concatenate([span.ids for span in filled.spans])
        point = behind_full_stop(ids, int(len(filled) * (depth / 100)), stops)
        percents = (*filled.insertion_percents, point / (len(filled) + len(needle)) * 100)
        filled = Filled(inserted(filled.spans, point, needle), percents)
        depth += step
    return filled


def inserted(spans: Sequence[Span], point: int, needle: TokenText) -> tuple[Span, ...]:
    """The spans with a needle before token `point` of them all."""
    before: list[Span] = []
    after: list[Span] = []
    start = 0
    for span in spans:
        cut = span.start + min(max(point - start, 0), len(span))
        before += [Span(span.text, span.start, cut)] if cut > span.start else []
        after += [Span(span.text, cut, span.stop)] if cut < span.stop else []
        start += len(span)
    return (*before, needle.span(), *after)


_State = tuple[tuple[Path, int, int], ...]  # each file, when it was written, its bytes


def background(folder: str | Path, tokens: int, tokenizer: Tokenizer) -> TokenText:
    """The haystack cut to `tokens` tokens and tokenised anew, as the originals do. Raises
    HaystackError."""
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
    files = files_like(folder, "*.txt") if folder.is_dir() else []
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
    """The fewest repeats that hold `tokens` tokens: tokens that merge across files may take
    one more."""
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
    return "".join([read_text(file, marks=False) for file, _, _ in state])
