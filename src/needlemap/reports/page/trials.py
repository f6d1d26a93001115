"""The trials of a run as columns: what the page shows of a cell that is clicked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from needlemap.maps.map import Map
from needlemap.reports.page.cells import by_cell, tokens_of
from needlemap.reports.page.numbers import share
from needlemap.reports.page.passages import View, Window, joined
from needlemap.reports.page.strings import Strings
from needlemap.runs.record import NeedleRecord, Record

ANSWER = 20_000  # characters kept of an answer
SHA = 12  # letters kept of a prompt's hash


@dataclass(frozen=True, slots=True)
class Detail:
    """How much is told: characters of an answer and of thinking; of which trials what is around needles."""

    answer: int = ANSWER
    around_right: bool = True
    around_wrong: bool = True

    def around(self, record: Record) -> bool:
        """Whether the needles of a record are shown in their surroundings."""
        return self.around_right if record.score == 1 else self.around_wrong


FULL = Detail()


def trial_columns(map: Map, records: Sequence[Record], detail: Detail = FULL) -> dict[str, Any]:
    """Columns of equal length, rows by the map's cells, then by repeat. Texts are places in "strings"."""
    rows = [(at, record) for at, found in enumerate(by_cell(map, records)) for record in found]
    every = [record for _, record in rows]
    scorer = next((record.scorer for record in every if record.scorer), None)
    text = Strings()
    columns = {
        "cell": [at for at, _ in rows],
        "scale": list(scorer.scale) if scorer else [0.0, 1.0],
        **_scored(every, text),
        **_answered(every, text, detail),
        **_counted(every, text),
        **_needles(every, text, detail),
    }
    return {"strings": text.table, **columns}


def _scored(records: Sequence[Record], text: Strings) -> dict[str, list[Any]]:
    scorers = [record.scorer for record in records]
    return {
        "repeat": [record.repeat for record in records],
        "score": [share(record.score) for record in records],
        "native": [share(scorer.native) if scorer else None for scorer in scorers],
        "question": [text(record.question or None) for record in records],
        "reference": [text(record.reference or None) for record in records],
        "keywords": [text.all(record.keywords) for record in records],
        "why": [text.json(scorer.why) if scorer else None for scorer in scorers],
        "finish": [text(record.finish) for record in records],
        "outcome": [text(record.outcome) for record in records],
        "failure": [text(record.failure) for record in records],
        "error": [text(record.error) for record in records],
    }


def _answered(records: Sequence[Record], text: Strings, detail: Detail) -> dict[str, list[Any]]:
    answers = [record.answer for record in records]
    return {
        "answer": [text(answer and answer[: detail.answer]) for answer in answers],
        "cut": [max(0, len(answer or "") - detail.answer) for answer in answers],
        "thinking": [text(record.thinking and record.thinking[: detail.answer]) for record in records],
        "by": [text(record.answered_by) for record in records],
    }


def _counted(records: Sequence[Record], text: Strings) -> dict[str, list[Any]]:
    prompts = [record.prompt for record in records]
    return {
        "tokens": [tokens_of(record) for record in records],
        "cached": [record.cached_tokens for record in records],
        "planned": [record.shared_tokens for record in records],
        "completion": [record.completion_tokens for record in records],
        "thought": [record.thinking_tokens for record in records],
        "latency": [share(record.latency_s, 3) for record in records],
        "usd": [share(record.usd) for record in records],
        "attempts": [record.attempts for record in records],
        "at": [text(record.finished_at.partition(".")[0] or None) for record in records],
        "sha": [text(prompt.sha256[:SHA]) if prompt else None for prompt in prompts],
        "collisions": [text.all(prompt.collisions) if prompt else None for prompt in prompts],
        "off_by": [prompt.off_by if prompt else 0 for prompt in prompts],
    }


def _needles(records: Sequence[Record], text: Strings, detail: Detail) -> dict[str, list[Any]]:
    """Passages, and per trial its needles: meant, realised, text, and what is around it in a passage."""
    seen = [[_seen(needle, detail.around(record)) for needle in record.needles] for record in records]
    passages, views = joined([window for row in seen for _, window in row])
    rows = [
        [
            [*_depths(needle), text(shown or None), *_place(views.get(window))]
            for needle, (shown, window) in zip(record.needles, row, strict=True)
        ]
        for record, row in zip(records, seen, strict=True)
    ]
    return {"passages": passages, "needles": rows}


def _depths(needle: NeedleRecord) -> tuple[float | None, float | None]:
    return share(needle.meant, 5), share(needle.realised, 5)


def _place(view: View | None) -> tuple[int | None, int, int, int]:
    return (view.passage, view.at, view.before, view.after) if view else (None, 0, 0, 0)


def _seen(needle: NeedleRecord, around: bool) -> tuple[str, Window]:
    """A needle's text, and the window that it stands in: all letters of its record, but cut otherwise.

    A blank put in to keep two words apart goes with the needle, so that the window is the haystack's own text
    as other windows have it.
    """
    before, text, after = (needle.before, needle.text, needle.after) if around else ("", needle.text, "")
    if before.endswith(" "):
        return f" {text}", (before[:-1], after)
    if after.startswith(" ") and (not before or before[-1].isspace()):
        return f"{text} ", (before, after[1:])
    return text, (before, after)
