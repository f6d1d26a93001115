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
    cached_label,
    depth_words,
    moment_label,
    score_label,
    seconds_label,
    typeset,
    usd_label,
)
from needlemap.reports.renderers.page import share
from needlemap.stats.means import Map
from needlemap.stats.table_schema import TRIALS
from needlemap.text import counted

_JSON = json.JSONEncoder(ensure_ascii=False, default=str)


class Strings:
    """Texts in the order in which they were first used."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def __call__(self, text: str | None) -> int | None:
        """Return the place of a text, or None if there is no text."""
        return None if text is None else self._places.setdefault(text, len(self._places))

    def all(self, texts: Sequence[str]) -> list[int] | None:
        """Return the places of several texts, or None if there are none."""
        if not texts:
            return None
        return [self._places.setdefault(text, len(self._places)) for text in texts]

    @property
    def table(self) -> list[str]:
        """Return all texts."""
        return list(self._places)


# Letters before a needle by which its place is found in another window.
ANCHOR = 16
# The text before a needle, and the text after it.
Window = tuple[str, str]
# By a window's number: the number of the next window, and the letters between their needles.
NextWindows = dict[int, tuple[int, int]]


class View(NamedTuple):
    """A window as a part of a passage: `before` letters up to `at`, `after` letters from there.

    Letters are counted as JavaScript does, in UTF-16 units.
    """

    passage: int
    at: int
    before: int
    after: int


# The view of a window that is empty.
_NO_VIEW = (None, 0, 0, 0)


def join_windows(windows: Sequence[Window]) -> tuple[list[str], dict[Window, View]]:
    """Join overlapping windows to passages, and return the passages and each window's view.

    An empty window has no view.
    """
    distinct = [window for window in dict.fromkeys(windows) if any(window)]
    following = _next_windows(distinct) if distinct else {}
    passages: list[str] = []
    views: dict[Window, View] = {}
    for chain in _window_chains(following, len(distinct)):
        text, places = _passage([(distinct[number], step) for number, step in chain])
        units = _utf16_offsets(text)
        for (number, _), place in zip(chain, places, strict=True):
            before, after = distinct[number]
            start = units[place - len(before)]
            middle = units[place]
            stop = units[place + len(after)]
            views[distinct[number]] = View(
                passage=len(passages),
                at=middle,
                before=middle - start,
                after=stop - middle,
            )
        passages.append(text)
    return passages, views


def _passage(chain: Sequence[tuple[Window, int]]) -> tuple[str, list[int]]:
    """Return the passage of a chain of windows, and the place of each window's needle in it.

    Each window comes with its distance, in letters, from the window before it.
    """
    (before, after), _ = chain[0]
    pieces, places, stop = [before, after], [len(before)], len(before) + len(after)
    for (_, after), step in chain[1:]:
        places.append(places[-1] + step)
        pieces.append(after[stop - places[-1] :])
        stop = places[-1] + len(after)
    return "".join(pieces), places


def _next_windows(windows: Sequence[Window]) -> NextWindows:
    """Return the next window of the same text for each window, and their distance in letters.

    The needle of the next window must be inside the first window.
    """
    anchors: dict[str, list[int]] = defaultdict(list)
    for number, (before, _) in enumerate(windows):
        anchors[_anchor(before)].append(number)
    ends = re.compile(f"[{re.escape(''.join({anchor[-1] for anchor in anchors}))}]")
    following: NextWindows = {}
    followers: set[int] = set()
    for number in range(len(windows)):
        candidate = next(_candidates(number, windows, anchors, ends, followers), None)
        if candidate is not None:
            following[number] = candidate
            followers.add(candidate[0])
    return following


def _candidates(
    number: int,
    windows: Sequence[Window],
    anchors: Mapping[str, Sequence[int]],
    ends: re.Pattern[str],
    followers: Container[int],
) -> Iterator[tuple[int, int]]:
    """Yield windows that continue one, and by how many letters; the nearest first.

    ends: the last letters of anchors, mostly those that end a sentence.
    """
    before, after = windows[number]
    text = _anchor(before) + after
    for step in (match.end() - ANCHOR for match in ends.finditer(text, ANCHOR - 1)):
        for other in anchors.get(text[step : step + ANCHOR], ()):
            is_free = other not in followers and (step > 0 or other > number)
            if is_free and _continues(windows[number], windows[other], step):
                yield other, step


def _anchor(before: str) -> str:
    return before[-ANCHOR:].rjust(ANCHOR, "\0")


def _continues(first: Window, second: Window, step: int) -> bool:
    """Return True if the second window continues the text of the first `step` letters later.

    It must reach at least as far as the first.
    """
    first_before, first_after = first
    second_before, second_after = second
    if not second_after.startswith(first_after[step:]):
        return False
    return (first_before + first_after[:step]).endswith(second_before)


def _window_chains(following: NextWindows, count: int) -> Iterator[list[tuple[int, int]]]:
    """Yield chains of windows that follow each other, as pairs of a window's number and its step.

    Each of `count` windows is in one chain. Its step is its distance in letters from the window
    before it in the chain, and 0 for the first window.
    """
    followers = {number for number, _ in following.values()}
    # Windows that follow no other come first, because a chain starts at one of them. Only circles
    # are left for the others: each is cut at its lowest number.
    starts = sorted(range(count), key=lambda number: number in followers)

    chained: set[int] = set()
    for start in starts:
        chain: list[tuple[int, int]] = []
        number, step = start, 0
        while number not in chained:
            chained.add(number)
            chain.append((number, step))
            # The last window is followed by itself, which ends the loop.
            number, step = following.get(number, (number, 0))

        if chain:
            yield chain


def _utf16_offsets(text: str) -> Sequence[int]:
    """Return the number of UTF-16 units before each letter, and before the end."""
    if not text or max(text) <= "\uffff":
        return range(len(text) + 1)
    return list(accumulate((1 + (letter > "\uffff") for letter in text), initial=0))


# Characters kept of an answer.
ANSWER = 20_000
# Letters kept of a prompt's hash.
SHA = 12


@dataclass(frozen=True, slots=True)
class Detail:
    """How much is shown.

    Attributes:
        answer: Characters of an answer and of thinking.
        around_right, around_wrong: Whether right and wrong trials show what stands around needles.
    """

    answer: int = ANSWER
    around_right: bool = True
    around_wrong: bool = True

    def around(self, record: Record) -> bool:
        """Return True if the page shows the text around the needles of a record."""
        return self.around_right if record.score == 1 else self.around_wrong


FULL = Detail()


def trial_columns(score_map: Map, detail: Detail = FULL) -> dict[str, Any]:
    """Return columns of equal length, their rows in the order of cells, then of repeats.

    A text is given by its place in "strings".
    """
    rows = [
        (cell_number, record)
        for cell_number, cell in enumerate(score_map.cells)
        for record in cell.records
    ]
    records = [record for _, record in rows]
    scorer = next((record.scorer for record in records if record.scorer), None)
    text = Strings()
    columns = {
        "cell": [cell_number for cell_number, _ in rows],
        "says": _score_texts(records, scorer.scale if scorer else (0.0, 1.0), text),
        **_columns(records, _SHOWN_FIELDS, text, detail),
        **_needles(records, text, detail),
        "facts": [list(column) for column in _columns(records, _FACTS, text, detail).items()],
    }
    return {"strings": text.table, **columns}


def _columns(
    records: Sequence[Record], fields: Mapping[str, ShownField], text: Strings, detail: Detail
) -> dict[str, list[Any]]:
    """Return fields of every record as the page shows them. Equal values are made once."""
    # All fields of a record at once, because thousands of records do not fit into a processor's
    # cache, and each further pass would read them from memory again.
    rows = [[value_of(record) for value_of, _ in fields.values()] for record in records]
    columns = {}
    for index, (name, (_, show_value)) in enumerate(fields.items()):
        values = [row[index] for row in rows]
        shown_values = {value: show_value(value, text, detail) for value in dict.fromkeys(values)}
        columns[name] = [shown_values[value] for value in values]
    return columns


_COLUMNS = {column.name: column for column in TRIALS}


def _table_field(name: str) -> ShownField:
    """Return the field of a table's column: its texts by their places, its numbers rounded."""
    # These columns are named as a record's fields are.
    value_of = attrgetter(name)
    kind = _COLUMNS[name].kind
    if kind == "text":
        return value_of, lambda value, text, _: text(str(value or "") or None)
    if kind == "number":
        return value_of, lambda value, *_: share(value)
    return value_of, _itself


def _prompt_field(
    name: str, show_value: Callable[[Any, Strings, Detail], Any], absent: Any = None
) -> ShownField:
    """Return a field of a record's prompt, with the default `absent` if it is not known."""
    return lambda record: getattr(record.prompt, name, absent), show_value


def _record_field(name: str, label: Callable[[Any], str]) -> ShownField:
    """Return a field of a record in words, which is empty if its value is not known."""
    return attrgetter(name), lambda value, text, _: text(
        None if value is None or value == "" else label(value)
    )


def _itself(value: Any, *_: object) -> Any:
    return value


def _why(record: Record) -> str | None:
    return _JSON.encode(record.scorer.why) if record.scorer and record.scorer.why else None


# A function that takes a value from a record, and one that makes what the page shows of it.
ShownField = tuple[Callable[[Record], Any], Callable[[Any, Strings, Detail], Any]]
_SHOWN_FIELDS: dict[str, ShownField] = {
    "repeat": _table_field("repeat"),
    "score": _table_field("score"),
    "question": _table_field("question"),
    "reference": _table_field("reference"),
    "keywords": (attrgetter("keywords"), lambda words, text, _: text.all(words)),
    "why": (_why, lambda why, text, _: text(why)),
    **{name: _table_field(name) for name in ("outcome", "failure", "error")},
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
        lambda thoughts, text, detail: text(thoughts and thoughts[: detail.answer]),
    ),
    "thought": _record_field("thinking_tokens", lambda tokens: counted(tokens, "token")),
}
# What was measured, in words: names on the page, in this order.
_FACTS: dict[str, ShownField] = {
    "finish reason": _table_field("finish"),
    "latency": _record_field("latency_s", seconds_label),
    "prompt": _record_field("sent_tokens", lambda tokens: counted(tokens, "token")),
    "cached": (
        attrgetter("cached_tokens", "shared_tokens"),
        lambda both, text, _: text(cached_label(*both)),
    ),
    "answer": _record_field("completion_tokens", lambda tokens: counted(tokens, "token")),
    "thinking": _record_field("thinking_tokens", lambda tokens: counted(tokens, "token")),
    "mean log-probability": (
        lambda record: record.logprobs and record.logprobs.mean,
        lambda nats, text, _: text(None if nats is None else typeset(f"{nats:.4f}")),
    ),
    "cost": _record_field("usd", usd_label),
    "attempts": _record_field("attempts", str),
    "answered by": _table_field("answered_by"),
    "finished": _record_field("finished_at", moment_label),
    "prompt sha256": _prompt_field("sha256", lambda sha, text, _: text(sha and sha[:SHA])),
    "off the length by": _prompt_field(
        "off_by", lambda off, text, _: text(counted(off, "token") if off else None), 0
    ),
    "already in the haystack": _prompt_field(
        "collisions", lambda collisions, text, _: text(", ".join(collisions) or None), ()
    ),
}


def _score_texts(
    records: Sequence[Record], scale: tuple[float, float], text: Strings
) -> list[int | None]:
    """Return each trial's score in words, as places of texts.

    It is in percent and, if its scorer has a scale other than 0 to 1, on that scale too.
    """
    low, high = scale
    has_own_scale = (low, high) != (0.0, 1.0)
    native = _COLUMNS["native_score"].value
    scores = [(record.score, native(record) if has_own_scale else None) for record in records]
    places = {score: text(_score_words(*score, low, high)) for score in dict.fromkeys(scores)}
    return [places[score] for score in scores]


def _score_words(score: float | None, native: Any, low: float, high: float) -> str:
    if score is None:
        return "not measured"
    on_scale = (
        "" if native is None else f" ({round(native, 2):g} on a scale of {low:g} to {high:g})"
    )
    return f"{score_label(score)} %{on_scale}"


def _needles(records: Sequence[Record], text: Strings, detail: Detail) -> dict[str, list[Any]]:
    """Return the passages, and for each trial its needles: depth, text, and view of a passage."""
    rows = []
    for record in records:
        has_window = detail.around(record)
        row = []
        for needle in record.needles:
            depth_label = f"{depth_words(needle.realised)} (meant for {depth_words(needle.meant)})"
            needle_text, window = _needle_window(needle, has_window)
            row.append((text(depth_label), text(needle_text or None), window))
        rows.append(row)

    passages, views = join_windows([window for row in rows for _, _, window in row])
    needles = [
        [[label, needle_text, *views.get(window, _NO_VIEW)] for label, needle_text, window in row]
        for row in rows
    ]
    return {"passages": passages, "needles": needles}


def _needle_window(needle: NeedleRecord, has_window: bool) -> tuple[str, Window]:
    """Return a needle's text, and the window around it, which is empty without `has_window`.

    A blank that was inserted to separate two words is moved to the needle, so that the window is
    the haystack's own text, which other windows overlap.
    """
    text = needle.text
    before, after = (needle.before, needle.after) if has_window else ("", "")
    if before.endswith(" "):
        return f" {text}", (before[:-1], after)
    if after.startswith(" ") and (not before or before[-1].isspace()):
        return f"{text} ", (before, after[1:])
    return text, (before, after)
