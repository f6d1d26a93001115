"""The cells and trials of a run as columns: what the map is drawn from, and what a click on a
cell shows.

Texts stand once in a table; columns hold places in it. What stands around the needles of
neighbouring depths, and of other repeats with the same documents, is mostly the same few
passages: overlapping windows of one text are put together again, since kept as windows they
would be most of the page.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import attrgetter
from typing import Any, NamedTuple

from needlemap.records.record import NeedleRecord, Record
from needlemap.reports.labels import (
    amount_label,
    cached_label,
    depth_words,
    moment_label,
    score_label,
    seconds_label,
    typeset,
    usd_label,
)
from needlemap.reports.renderers.page import share
from needlemap.stats import AskedPrompt
from needlemap.stats.means import Map
from needlemap.stats.table_schema import TRIALS

Place = tuple[int, float]  # length in tokens, depth


def by_cell(map: Map, prompts: Sequence[AskedPrompt]) -> list[list[Record]]:
    """The records of each cell, by repeat, in the order of the map's cells."""
    found: dict[Place, list[Record]] = defaultdict(list)
    for prompt in prompts:
        for cell in prompt.cells:
            found[cell].extend(prompt.records)
    return [sorted(found[cell.length_tokens, cell.depth], key=_repeat) for cell in map.cells]


def _repeat(record: Record) -> tuple[int, str]:
    return record.repeat, record.key


_JSON = json.JSONEncoder(ensure_ascii=False, default=str)


class Strings:
    """Texts in the order in which they were first asked for."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def __call__(self, text: str | None) -> int | None:
        """The place of a text; None for none."""
        return None if text is None else self._places.setdefault(text, len(self._places))

    def all(self, texts: Sequence[str]) -> list[int] | None:
        """The places of several texts; None where there are none."""
        return (
            [self._places.setdefault(text, len(self._places)) for text in texts] if texts else None
        )

    @property
    def table(self) -> list[str]:
        """All texts."""
        return list(self._places)


ANCHOR = 16  # letters before a needle by which its place is found in another window
Window = tuple[str, str]  # the text before a needle, and behind it
Following = dict[int, tuple[int, int]]  # by window the next one, and its step in letters


class View(NamedTuple):
    """A window as a part of a passage: `before` letters up to `at`, and `after` letters from
    there.

    Letters are counted as JavaScript does, in UTF-16 units.
    """

    passage: int
    at: int
    before: int
    after: int


_NOWHERE = (None, 0, 0, 0)  # of what stands around no needle


def joined(windows: Sequence[Window]) -> tuple[list[str], dict[Window, View]]:
    """Passages, and where in them each window that is not empty is found again, letter for
    letter."""
    distinct = [window for window in dict.fromkeys(windows) if any(window)]
    following = _following(distinct) if distinct else {}
    passages: list[str] = []
    views: dict[Window, View] = {}
    for chain in _chains(following, len(distinct)):
        text, places = _text([(distinct[at], step) for at, step in chain])
        units = _units(text)
        for (at, _), place in zip(chain, places, strict=True):
            before, after = distinct[at]
            start, middle, stop = (
                units[each] for each in (place - len(before), place, place + len(after))
            )
            views[distinct[at]] = View(len(passages), middle, middle - start, stop - middle)
        passages.append(text)
    return passages, views


def _text(chain: Sequence[tuple[Window, int]]) -> tuple[str, list[int]]:
    """The passage of a chain of windows, each so many letters behind the last one; their
    places in it."""
    (before, after), _ = chain[0]
    pieces, places, end = [before, after], [len(before)], len(before) + len(after)
    for (_, after), step in chain[1:]:
        places.append(places[-1] + step)
        pieces.append(after[end - places[-1] :])
        end = places[-1] + len(after)
    return "".join(pieces), places


def _following(windows: Sequence[Window]) -> Following:
    """By window the next one of the same text, if its needle stands inside it, and how many
    letters on."""
    anchors: dict[str, list[int]] = defaultdict(list)
    for at, (before, _) in enumerate(windows):
        anchors[_anchor(before)].append(at)
    ends = re.compile(f"[{re.escape(''.join({anchor[-1] for anchor in anchors}))}]")
    following: Following = {}
    taken: set[int] = set()
    for at in range(len(windows)):
        found = next(_candidates(at, windows, anchors, ends, taken), None)
        if found is not None:
            following[at] = found
            taken.add(found[0])
    return following


def _candidates(
    at: int,
    windows: Sequence[Window],
    anchors: Mapping[str, Sequence[int]],
    ends: re.Pattern[str],
    taken: Container[int],
) -> Iterator[tuple[int, int]]:
    """Windows that go on where one is, and by how many letters; the nearest first. ends: the
    last letters of anchors, mostly those that end a sentence."""
    before, after = windows[at]
    text = _anchor(before) + after
    for step in (end.end() - ANCHOR for end in ends.finditer(text, ANCHOR - 1)):
        for other in anchors.get(text[step : step + ANCHOR], ()):
            new = other not in taken and (step > 0 or other > at)
            if new and _goes_on(windows[at], windows[other], step):
                yield other, step


def _anchor(before: str) -> str:
    return before[-ANCHOR:].rjust(ANCHOR, "\0")


def _goes_on(first: Window, second: Window, step: int) -> bool:
    """Whether the second window is the first one's text, so many letters on, and reaches at
    least as far."""
    return second[1].startswith(first[1][step:]) and (first[0] + first[1][:step]).endswith(
        second[0]
    )


def _chains(following: Following, count: int) -> Iterator[list[tuple[int, int]]]:
    """Each window once, with its step from the one before it in its chain; round texts are cut
    somewhere."""
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


ANSWER = 20_000  # characters kept of an answer
SHA = 12  # letters kept of a prompt's hash


@dataclass(frozen=True, slots=True)
class Detail:
    """How much is shown: characters of an answer and of thinking; of which trials what is
    around needles."""

    answer: int = ANSWER
    around_right: bool = True
    around_wrong: bool = True

    def around(self, record: Record) -> bool:
        """Whether the needles of a record are shown in their surroundings."""
        return self.around_right if record.score == 1 else self.around_wrong


FULL = Detail()


def trial_columns(
    map: Map, prompts: Sequence[AskedPrompt], detail: Detail = FULL
) -> dict[str, Any]:
    """Columns of equal length, rows by the map's cells, then by repeat. Texts are places in
    "strings"."""
    rows = [(at, record) for at, found in enumerate(by_cell(map, prompts)) for record in found]
    every = [record for _, record in rows]
    scorer = next((record.scorer for record in every if record.scorer), None)
    text = Strings()
    columns = {
        "cell": [at for at, _ in rows],
        "says": _says(every, scorer.scale if scorer else (0.0, 1.0), text),
        **{name: _column(every, of, text, detail) for name, of in _SHOWN.items()},
        **_needles(every, text, detail),
        "facts": [[name, _column(every, of, text, detail)] for name, of in _FACTS.items()],
    }
    return {"strings": text.table, **columns}


def _column(records: Sequence[Record], of: Shown, text: Strings, detail: Detail) -> list[Any]:
    """A value that every record has, as the page shows it. Equal values are made once."""
    value, shown = of
    values = list(map(value, records))
    found = {each: shown(each, text, detail) for each in dict.fromkeys(values)}
    return [found[each] for each in values]


_COLUMNS = {column.name: column for column in TRIALS}


def _as_in_tables(name: str) -> Shown:
    """What tables have in a column: texts by their places, numbers rounded."""
    column = _COLUMNS[name]
    if column.kind == "text":
        return column.value, lambda each, text, _: text(str(each or "") or None)
    return column.value, (lambda each, *_: share(each)) if column.kind == "number" else _itself


def _prompt(name: str, shown: Callable[[Any, Strings, Detail], Any], absent: Any = None) -> Shown:
    """A record's prompt as the page shows it, if it is known."""
    return lambda record: getattr(record.prompt, name, absent), shown


def _fact(name: str, label: Callable[[Any], str]) -> Shown:
    """A record's own field in words, if it is known."""
    return attrgetter(name), lambda value, text, _: text(
        None if value is None or value == "" else label(value)
    )


def _itself(value: Any, *_: object) -> Any:
    return value


def _why(record: Record) -> str | None:
    return _JSON.encode(record.scorer.why) if record.scorer and record.scorer.why else None


Shown = tuple[
    Callable[[Record], Any], Callable[[Any, Strings, Detail], Any]
]  # a value, and what of it
_SHOWN: dict[str, Shown] = {
    "repeat": _as_in_tables("repeat"),
    "score": _as_in_tables("score"),
    "question": _as_in_tables("question"),
    "reference": _as_in_tables("reference"),
    "keywords": (attrgetter("keywords"), lambda words, text, _: text.all(words)),
    "why": (_why, lambda why, text, _: text(why)),
    **{name: _as_in_tables(name) for name in ("outcome", "failure", "error")},
    "answer": (
        attrgetter("answer"),
        lambda answer, text, detail: text(answer and answer[: detail.answer]),
    ),
    "cut": (
        attrgetter("answer"),
        lambda answer, _, detail: max(0, len(answer or "") - detail.answer),
    ),
    "thinking": (
        attrgetter("thinking"),
        lambda said, text, detail: text(said and said[: detail.answer]),
    ),
    "thought": _fact("thinking_tokens", lambda tokens: amount_label(tokens, "token")),
}
# What was measured, in words: names on the page, in this order.
_FACTS: dict[str, Shown] = {
    "finish reason": _as_in_tables("finish"),
    "latency": _fact("latency_s", seconds_label),
    "prompt": _fact("sent_tokens", lambda tokens: amount_label(tokens, "token")),
    "cached": (
        attrgetter("cached_tokens", "shared_tokens"),
        lambda both, text, _: text(cached_label(*both)),
    ),
    "answer": _fact("completion_tokens", lambda tokens: amount_label(tokens, "token")),
    "thinking": _fact("thinking_tokens", lambda tokens: amount_label(tokens, "token")),
    "mean log-probability": (
        lambda record: record.logprobs and record.logprobs.mean,
        lambda nats, text, _: text(None if nats is None else typeset(f"{nats:.4f}")),
    ),
    "cost": _fact("usd", usd_label),
    "attempts": _fact("attempts", str),
    "answered by": _as_in_tables("answered_by"),
    "finished": _fact("finished_at", moment_label),
    "prompt sha256": _prompt("sha256", lambda sha, text, _: text(sha and sha[:SHA])),
    "off the length by": _prompt(
        "off_by", lambda off, text, _: text(amount_label(off, "token") if off else None), 0
    ),
    "already in the haystack": _prompt(
        "collisions", lambda found, text, _: text(", ".join(found) or None), ()
    ),
}


def _says(records: Sequence[Record], scale: tuple[float, float], text: Strings) -> list[int | None]:
    """Each trial's score in words: in percent, and on its scorer's own scale where that is
    another one."""
    low, high = scale
    own = (low, high) != (0.0, 1.0)
    native = _COLUMNS["native_score"].value
    found: dict[tuple[Any, Any], int | None] = {}
    for record in records:
        key = (record.score, native(record) if own else None)
        if key not in found:
            found[key] = text(_score_words(*key, low, high))
    return [found[record.score, native(record) if own else None] for record in records]


def _score_words(score: float | None, native: Any, low: float, high: float) -> str:
    if score is None:
        return "not measured"
    own = "" if native is None else f" ({round(native, 2):g} on a scale of {low:g} to {high:g})"
    return f"{score_label(score)} %{own}"


def _needles(records: Sequence[Record], text: Strings, detail: Detail) -> dict[str, list[Any]]:
    """Passages, and per trial its needles: where, text, and what is around it in a
    passage."""
    seen = [
        [_seen(needle, detail.around(record)) for needle in record.needles] for record in records
    ]
    passages, views = joined([window for row in seen for _, window in row])
    rows = [
        [
            [
                text(f"{depth_words(needle.realised)} (meant for {depth_words(needle.meant)})"),
                text(shown or None),
                *views.get(window, _NOWHERE),
            ]
            for needle, (shown, window) in zip(record.needles, row, strict=True)
        ]
        for record, row in zip(records, seen, strict=True)
    ]
    return {"passages": passages, "needles": rows}


def _seen(needle: NeedleRecord, around: bool) -> tuple[str, Window]:
    """A needle's text, and the window that it stands in: all letters of its record, but cut
    otherwise.

    A blank put in to keep two words apart goes with the needle, so that the window is the
    haystack's own text as other windows have it.
    """
    before, text, after = (
        (needle.before, needle.text, needle.after) if around else ("", needle.text, "")
    )
    if before.endswith(" "):
        return f" {text}", (before[:-1], after)
    if after.startswith(" ") and (not before or before[-1].isspace()):
        return f"{text} ", (before, after[1:])
    return text, (before, after)
