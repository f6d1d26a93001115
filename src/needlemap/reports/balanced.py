"""What a report says of questions that the text does not always answer."""

from __future__ import annotations

from collections.abc import Iterable

from needlemap.maps.balance import Rate, balance
from needlemap.reports.labels import interval_label, score_label
from needlemap.runs.record import Record


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
