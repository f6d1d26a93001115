"""How the trials of a run ended, in a few lines: false answers, refusals, cut-off answers, failures."""

from __future__ import annotations

from needlemap.maps.answers import latest_records
from needlemap.reports.balanced import balance_lines
from needlemap.reports.placeless import placeless_lines
from needlemap.runs.closed_book import closed_book_lines
from needlemap.runs.contrast import outdated
from needlemap.runs.outcomes import outcome_counts, outcome_lines
from needlemap.runs.store import RunFolder


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
