"""What is worth saying of a run besides its scores: false answers, refusals, cut-off answers, failures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from needlemap.asking.closed_book import closed_book_lines
from needlemap.asking.resume import outdated
from needlemap.maps.balance import Rate, balance
from needlemap.maps.cube import latest_records
from needlemap.records.folder import RunFolder
from needlemap.records.record import Record, outcome_counts, outcome_lines
from needlemap.reports.labels import interval_label, score_label


def ended_lines(folder: RunFolder) -> list[str]:
    """What is worth saying of a run's outcomes; nothing where every trial was simply scored at its depth."""
    about, records = folder.about(), latest_records(folder.records())
    unasked = sum(len(repeats) for _, _, repeats in about["cells"]) - len(records)
    skipped = max(0, unasked) if about.get("stopped") else 0
    return [
        *(f"note: {note}" for note in folder.left_out.notes()),
        *outdated(str(folder.path), about),
        *placeless_lines(about, records),
        *balance_lines(records),
        *closed_book_lines(folder),
        *outcome_lines(outcome_counts(records), skipped),
    ]


def balance_lines(records: Iterable[Record]) -> list[str]:
    """Balanced accuracy and false answers; nothing for a run whose questions always have an answer."""
    found = balance(records)
    if found is None:
        return []
    share, low, high = found.accuracy
    return [
        f"balanced accuracy: {score_label(share)} {interval_label(low, high)}, the mean of two rates: found "
        f"where it was there {_rate(found.found)}, denied where it was not {_rate(found.rejected)}",
        f"false answers: {_rate(found.false)}; {found.named} of them took what the text holds instead, "
        f"{found.invented} made a value up",
    ]


def _rate(rate: Rate) -> str:
    return f"{rate.hits:g}/{rate.n} = {score_label(rate.share)} {interval_label(rate.low, rate.high)}"


def placeless_lines(about: Mapping[str, Any], records: Iterable[Record]) -> list[str]:
    """One line where all prompts of a set stand at depth 0, as `trials/published.py` does it."""
    if about["settings"].get("task") != "published" or {record.depth for record in records} != {0.0}:
        return []
    return ["depth is unknown: the set does not tell where answers stand, so all its prompts are at depth 0"]
