"""The ways in which `check` asks: each is a family of trials, and is kept, resumed and replayed as
one.

All ways of one size share their first prompts' tokens, so that a server that caches prefixes
computes little more than once. Sizes go from a sixteenth of the longest length to the longest, and
repeats fall with them:
what is cheap and telling comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

from needlemap.errors import SettingsError

COMB = 16  # consecutive lengths, and consecutive places of a needle
DEPTHS, HEAD, MIDDLE, LATE = (0.0, 50.0, 90.0), 0.0, 50.0, 90.0  # percent
FRESH = 1000  # first repeat of what is asked under load: prompts that no cache holds
UNMET = 2000  # first repeat of what is met cold, and warm then
_BEFORE = {
    "warm": 2 * COMB,
    "rewarm": COMB,
}  # tokens that the prompt before them is shorter, which warms them
_LAST = 8  # prompts that end with the last tokens of a context
_BEHIND = (
    2  # tokens of haystack behind a needle near the end, at least: a block of a cache covers both
)
_BLOCKS = (8192, 2048, 64, 16)  # tokens of chunks, pages and blocks
_NEAR = 0.2  # share of a prompt that may follow the end of a block
_SIXTEENTH = 16
_SHORT = 24  # prompts that are as short as can be
_SPARE = 64  # tokens that a prompt needs beside its haystack, at the least


@dataclass(frozen=True, slots=True)
class Counts:
    """How much is asked of a size: repeats of the grid, of consecutive lengths, of consecutive
    places, and of lengths without a cache; which lengths these are; prompts under load; those met
    cold and then
    warm."""

    repeats: int
    teeth: int
    edges: int
    cold: int
    every: int
    loaded: int
    warmed: int


_COUNTS = (
    Counts(14, 5, 3, 5, 2, 32, 16),
    Counts(6, 3, 2, 3, 4, 8, 6),
    Counts(2, 1, 1, 1, 4, 4, 2),
)


@dataclass(frozen=True, slots=True)
class Around:
    """What stands around a haystack: so many tokens of a length, and before it in the prompt."""

    tokens: int
    head: int


@dataclass(frozen=True, slots=True)
class Way:
    """One way of asking: its name ('cold-32000'), the size in tokens with which it is asked, the
    probes that it serves (all of them, where none is named), and what it sets over the check's own
    settings."""

    name: str
    length_tokens: int
    probes: tuple[str, ...]
    settings: Mapping[str, Any]


def sizes_of(most: int, answer_tokens: int, around: Around) -> tuple[int, int, int]:
    """The three lengths of a check, in tokens. Raises SettingsError where the longest is too short.

    >>> sizes_of(128_000, 300, Around(400, 20)), sizes_of(256, 24, Around(70, 20))
    ((8000, 32000, 128000), (160, 202, 256))
    """
    short = max(most // _SIXTEENTH, _SPARE + 4 * answer_tokens, _SPARE + around.tokens)
    if short + 2 * COMB > most:
        raise SettingsError(
            f"--max-length {most:,} leaves no room for a check: use {short + 2 * COMB:,} or more, "
            f"or a "
            f"smaller --max-answer-tokens than {answer_tokens}."
        )
    return short, round(sqrt(short * most)), most


def ways(
    sizes: tuple[int, int, int],
    load: int,
    answer_tokens: int,
    around: Around,
    context: int | None = None,
) -> tuple[Way, ...]:
    """All ways of asking, in their order. load: prompts at a time where there is load. context:
    tokens of prompt and answer that the server says it takes."""
    found = _short(sizes[0], answer_tokens, around)
    for length, counts in zip(sizes, _COUNTS, strict=True):
        found += _plain(length, counts)
        found += _combs(length, counts, around)
        found += _warmed(length, counts)
        found += _under_load(length, counts, load)
    return (*found, *_ends(sizes[-1], context, answer_tokens))


def _ends(size: int, context: int | None, answer_tokens: int) -> list[Way]:
    """Prompts that end with the last tokens of the server's context, and one of a token more,
    behind which no answer has room; none where that is beyond what shall be asked, or unknown."""
    if context is None or context > size:
        return []
    last = [context - number for number in reversed(range(_LAST))]
    ends = {"window": last, "beyond": [context + answer_tokens + 1]}
    shared = {"depths": [LATE], "repeats": 1, "concurrency": 1}
    return [
        Way(f"{name}-{context}", size, ("window",), {**shared, "lengths": lengths})
        for name, lengths in ends.items()
    ]


def _plain(length: int, counts: Counts) -> list[Way]:
    """A small grid, and the same twice more."""
    grid = {
        "lengths": [length],
        "depths": list(DEPTHS),
        "repeats": counts.repeats,
        "concurrency": 1,
    }
    again = [Way(f"again-{number}-{length}", length, ("same",), grid) for number in (1, 2)]
    return [Way(f"grid-{length}", length, (), grid), *again]


def _short(size: int, answer_tokens: int, around: Around) -> list[Way]:
    """Prompts as short as can be, three times: how often their answers change is the yardstick for
    others."""
    length = max(_SPARE + 2 * answer_tokens, around.tokens + COMB)
    short = {"lengths": [length], "depths": [MIDDLE], "repeats": _SHORT, "concurrency": 1}
    return [Way(f"short-{number}-{length}", size, ("same", "stop"), short) for number in (1, 2, 3)]


def _combs(length: int, counts: Counts, around: Around) -> list[Way]:
    """Sixteen consecutive lengths with the needle near the end, so that what a cache holds of each
    ends just behind the needle; some of them without a cache; and sixteen consecutive places of a
    needle."""
    lengths, room = [length - number for number in reversed(range(COMB))], length - around.tokens
    near = round(100 - 100 * _BEHIND / room, 6)
    comb = {"lengths": lengths, "depths": [near], "repeats": counts.teeth}
    cold = {
        "lengths": lengths[:: counts.every],
        "depths": [near],
        "repeats": counts.cold,
        "mode": "cold",
    }
    places = [round(100 * (place + 0.5) / room, 6) for place in _places(room, around.head)]
    edges = {"lengths": [length], "depths": places, "placement": "token", "repeats": counts.edges}
    return [
        Way(f"comb-{length}", length, ("comb", "cache"), {**comb, "concurrency": 1}),
        Way(f"cold-{length}", length, ("cache",), {**cold, "concurrency": 1}),
        Way(f"edges-{length}", length, ("edges",), {**edges, "concurrency": 1}),
    ]


def _places(room: int, head: int) -> list[int]:
    """Sixteen consecutive haystack tokens around the end of a block of the prompt: the largest
    block that has one near enough to the haystack's end, so that little is computed behind it.

    >>> _places(7_650, 20)[7:10], _places(127_600, 20)[8] + 20
    ([6123, 6124, 6125], 122880)
    >>> max(_places(57, 20))
    48
    """
    last = room + head - COMB
    ends = [
        last // block * block for block in _BLOCKS if last - last // block * block <= last * _NEAR
    ]
    first = max(0, (ends[0] if ends else last) - head - COMB // 2)  # of a short prompt, none is
    return list(range(first, first + COMB))


def _warmed(length: int, counts: Counts) -> list[Way]:
    """Prompts that begin with a needle of their own, so that no cache holds anything of them; the
    same, each behind a shorter one that begins alike; and so again behind one of another length."""
    met = {"depths": [HEAD], "first_repeat": UNMET, "repeats": counts.warmed, "mode": "single"}
    found = [
        Way(
            f"empty-{length}",
            length,
            ("nats", "reference"),
            {**met, "lengths": [length], "concurrency": 1},
        )
    ]
    for name, less in _BEFORE.items():
        both = {**met, "lengths": [length - less, length], "concurrency": 1}
        found.append(Way(f"{name}-{length}", length, ("nats",), both))
    return found


def _under_load(length: int, counts: Counts, load: int) -> list[Way]:
    """The same fresh prompts, each with a fact of its own: many at a time first, then one by
    one."""
    fresh = {
        "lengths": [length],
        "depths": [MIDDLE],
        "first_repeat": FRESH,
        "repeats": counts.loaded,
    }
    probes = ("load", "mates")
    return [
        Way(f"loaded-{length}", length, probes, {**fresh, "concurrency": load}),
        Way(f"alone-{length}", length, probes, {**fresh, "concurrency": 1}),
    ]
