"""Windows of one text that overlap, put together again, so that each piece of the text is kept once.

What stands around the needles of neighbouring depths, and of other repeats with the same documents, is mostly
the same few passages: kept as windows they would be most of the page.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

ANCHOR = 16  # letters before a needle by which its place is found in another window
Window = tuple[str, str]  # the text before a needle, and behind it
Following = dict[int, tuple[int, int]]  # by window the next one, and its step in letters


@dataclass(frozen=True, slots=True)
class View:
    """A window as a part of a passage: `before` letters up to `at`, and `after` letters from there.

    Letters are counted as JavaScript does, in UTF-16 units.
    """

    passage: int
    at: int
    before: int
    after: int


def joined(windows: Sequence[Window]) -> tuple[list[str], dict[Window, View]]:
    """Passages, and where in them each window that is not empty is found again, letter for letter."""
    distinct = [window for window in dict.fromkeys(windows) if any(window)]
    following = _following(distinct)
    passages: list[str] = []
    views: dict[Window, View] = {}
    for chain in _chains(following, len(distinct)):
        text, places = _text([(distinct[at], step) for at, step in chain])
        units = _units(text)
        for (at, _), place in zip(chain, places, strict=True):
            before, after = distinct[at]
            start, middle, stop = (units[each] for each in (place - len(before), place, place + len(after)))
            views[distinct[at]] = View(len(passages), middle, middle - start, stop - middle)
        passages.append(text)
    return passages, views


def _text(chain: Sequence[tuple[Window, int]]) -> tuple[str, list[int]]:
    """The passage of a chain of windows, each so many letters behind the last one; their places in it."""
    (before, after), _ = chain[0]
    pieces, places, end = [before, after], [len(before)], len(before) + len(after)
    for (_, after), step in chain[1:]:
        places.append(places[-1] + step)
        pieces.append(after[end - places[-1] :])
        end = places[-1] + len(after)
    return "".join(pieces), places


def _following(windows: Sequence[Window]) -> Following:
    """By window the next one of the same text, if its needle stands inside it, and how many letters on."""
    anchors: dict[str, list[int]] = defaultdict(list)
    for at, (before, _) in enumerate(windows):
        anchors[_anchor(before)].append(at)
    following: Following = {}
    taken: set[int] = set()
    for at in range(len(windows)):
        found = next(_candidates(at, windows, anchors, taken), None)
        if found is not None:
            following[at] = found
            taken.add(found[0])
    return following


def _candidates(
    at: int, windows: Sequence[Window], anchors: Mapping[str, Sequence[int]], taken: Container[int]
) -> Iterator[tuple[int, int]]:
    """Windows that go on where one is, and by how many letters; the nearest first."""
    before, after = windows[at]
    text = _anchor(before) + after
    for step in range(len(after) + 1):
        for other in anchors.get(text[step : step + ANCHOR], ()):
            new = other not in taken and (step > 0 or other > at)
            if new and _goes_on(windows[at], windows[other], step):
                yield other, step


def _anchor(before: str) -> str:
    return before[-ANCHOR:].rjust(ANCHOR, "\0")


def _goes_on(first: Window, second: Window, step: int) -> bool:
    """Whether the second window is the first one's text, so many letters on, and reaches at least as far."""
    return second[1].startswith(first[1][step:]) and (first[0] + first[1][:step]).endswith(second[0])


def _chains(following: Following, count: int) -> Iterator[list[tuple[int, int]]]:
    """Each window once, with its step from the one before it in its chain; round texts are cut somewhere."""
    taken, seen = {other for other, _ in following.values()}, set[int]()
    for start in sorted(range(count), key=taken.__contains__):
        chain, at, step = [], start, 0
        while at not in seen:
            seen.add(at)
            chain.append((at, step))
            at, step = following.get(at, (at, 0))
        if chain:
            yield chain


def _units(text: str) -> Sequence[int]:
    """By letter, how many UTF-16 units come before it; one more for the end."""
    if not text or max(text) <= "\uffff":
        return range(len(text) + 1)
    return list(accumulate((1 + (letter > "\uffff") for letter in text), initial=0))
