"""Build contexts of the needlehaystack family: a haystack with its needles, each behind a full
stop.

The haystack is a folder of text files, which are joined and repeated until they are long enough.
They are joined in the order of their names (the originals take the file system's order) and read
as UTF-8. A haystack is read and tokenised once for all its cells.
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
    """A haystack and its needles.

    Attributes:
        spans: Pieces of haystack and needles, in the order of the text.
        insertion_percents: Where each needle is, in percent of the text with it. Empty at depth
            100, as in the original.
    """

    spans: tuple[Span, ...]
    insertion_percents: tuple[float, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.spans))

    @property
    def text(self) -> str:
        """Return the text. Bytes of a character that was cut become U+FFFD."""
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
    """Return a context as the originals build it.

    Give `needle`, or `needles` to spread from depth_percent on. context_length: tokens of haystack
    and needles together, plus the buffer. tokenizer: a name or path (see
    `needlemap.tokenizers.load`), or a Tokenizer.

    A haystack that is too short is repeated. A length below buffer and needles goes wrong as in
    the originals: the missing tokens are cut from the haystack's end. Raises HaystackError,
    SettingsError, VocabularyMissing.
    """
    if (needle is None) == (not needles):
        raise SettingsError("Give either 'needle' or 'needles', one of the two.")
    if needle is not None:
        needles = [needle]
    filled = fill(
        haystack_dir,
        context_length,
        depth_percent=depth_percent,
        needles=needles or (),
        buffer=final_context_length_buffer,
        tokenizer=tokenizer,
    )
    return filled.text


def fill(
    haystack_dir: str | Path,
    context_length: int,
    depth_percent: float,
    needles: Sequence[str],
    buffer: int,
    tokenizer: str | Tokenizer,
) -> Filled:
    """Return the context of `context` as spans of tokens.

    The parameters are those of `context`. Raises HaystackError, SettingsError, VocabularyMissing.
    """
    if context_length < 1:
        raise SettingsError(f"context_length must be at least 1 token, got {context_length}.")
    if not 0 <= depth_percent <= 100:
        raise SettingsError(f"depth_percent must lie in 0..100, got {depth_percent}.")
    if isinstance(tokenizer, str):
        tokenizer = load_tokenizer(tokenizer)
    needle_tokens = [tokenizer.index(needle.encode()) for needle in needles]
    haystack = background(haystack_dir, context_length, tokenizer)
    kept_tokens = room(
        len(haystack),
        context_length - buffer,
        needles=sum(len(tokens) for tokens in needle_tokens),
    )
    return spread(
        haystack.span(0, kept_tokens),
        needle_tokens,
        depth_percent=depth_percent,
        stops=full_stops(tokenizer),
    )


def room(haystack: int, budget: int, needles: int) -> int:
    """Return how many haystack tokens are kept.

    If the needles need more than the budget, the number is that of the original's Python slice.

    haystack, budget, needles: tokens.

    >>> room(1000, 800, 24), room(500, 800, 24), room(210, 10, 24), room(100, -100, 24)
    (776, 500, 196, 0)
    """
    if haystack + needles <= budget:
        return haystack
    rest = budget - needles
    if rest >= 0:
        return min(rest, haystack)
    # A slice that ends at a negative number cuts that many tokens from the end.
    return max(0, haystack + rest)


def spread(
    haystack: Span, needles: Sequence[TokenText], depth_percent: float, stops: frozenset[int]
) -> Filled:
    """Place needles at equal steps from a depth up to 100, which itself is left out.

    At depth 100 all needles are at the end. Each needle is placed in the text that holds those
    before it, so the next one can go behind a needle's own full stop. stops: tokens of a full stop.
    """
    step_percent = (100 - depth_percent) / len(needles)
    needle_percent = depth_percent
    filled = Filled((haystack,))
    for needle in needles:
        # As in the original, needles at the end have no insertion percent.
        if needle_percent == 100:
            filled = Filled((*filled.spans, needle.span()))
            continue

        ids = np.concatenate([span.ids for span in filled.spans])
        wanted_position = int(len(filled) * (needle_percent / 100))
        position = behind_full_stop(ids, wanted_position, stops=stops)
        # Of the text that holds this needle too.
        tokens_with_needle = len(filled) + len(needle)
        insertion_percent = position / tokens_with_needle * 100
        filled = Filled(
            inserted(filled.spans, position, needle=needle),
            insertion_percents=(*filled.insertion_percents, insertion_percent),
        )
        needle_percent += step_percent
    return filled


def inserted(spans: Sequence[Span], position: int, needle: TokenText) -> tuple[Span, ...]:
    """Return the spans with a needle in them. position: how many of all their tokens precede it."""
    before: list[Span] = []
    after: list[Span] = []
    start = 0
    for span in spans:
        tokens_before = min(max(position - start, 0), len(span))
        cut = span.start + tokens_before
        if cut > span.start:
            before.append(Span(span.text, start=span.start, stop=cut))
        if cut < span.stop:
            after.append(Span(span.text, start=cut, stop=span.stop))
        start += len(span)
    return (*before, needle.span(), *after)


# The files of a folder, each with its time of writing in nanoseconds, and its bytes.
_State = tuple[tuple[Path, int, int], ...]


def background(folder: str | Path, tokens: int, tokenizer: Tokenizer) -> TokenText:
    """Return the haystack, cut to `tokens` tokens and tokenised again, as the originals do.

    Raises HaystackError.
    """
    return _background(_state(Path(folder)), tokens, Keyed.of(tokenizer))


def repeated(folder: str | Path, enough: Callable[[str], bool]) -> str:
    """Return the folder's text, repeated until it is enough.

    Raises HaystackError if the folder holds no text.
    """
    state = _state(Path(folder))
    text = _text(state)
    if not text:
        raise HaystackError(f"The .txt files in '{folder}' are empty.")
    repeats = text
    while not enough(repeats):
        repeats += text
    return repeats


def _state(folder: Path) -> _State:
    if folder.is_dir():
        files = files_like(folder, "*.txt")
        fault = "holds no .txt file"
    else:
        files = []
        fault = "is no folder"
    if not files:
        raise HaystackError(f"Haystack '{folder.absolute()}' {fault}. Give a folder of .txt files.")
    return tuple((file, file.stat().st_mtime_ns, file.stat().st_size) for file in files)


@lru_cache(maxsize=64)
def _background(state: _State, tokens: int, keyed: Keyed) -> TokenText:
    whole = _repeated(state, _repeats(state, tokens, keyed), keyed)
    if len(whole) <= tokens:
        return whole
    text = bytes(whole.span(0, tokens).data).decode("utf-8", errors="replace")
    return keyed.tokenizer.index(text.encode())


def _repeats(state: _State, tokens: int, keyed: Keyed) -> int:
    """Return how often the text must be repeated, at least, to hold `tokens` tokens."""
    repeats = max(1, -(-tokens // len(_repeated(state, 1, keyed))))
    # Tokens can merge where the text meets itself, so one more or one less may be right.
    while len(_repeated(state, repeats, keyed)) < tokens:
        repeats += 1
    while repeats > 1 and len(_repeated(state, repeats - 1, keyed)) >= tokens:
        repeats -= 1
    return repeats


@lru_cache(maxsize=4)
def _repeated(state: _State, repeats: int, keyed: Keyed) -> TokenText:
    whole = keyed.tokenizer.index((_text(state) * repeats).encode())
    if not len(whole):
        raise HaystackError(f"The .txt files in '{state[0][0].parent}' are empty.")
    return whole


@lru_cache(maxsize=4)
def _text(state: _State) -> str:
    return "".join([read_text(file, marks=False) for file, _, _ in state])
