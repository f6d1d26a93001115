"""Whether a golden has enough prompts for the margin of the tests that compare with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil

from needlemap.errors import SettingsError
from needlemap.records.loaded import Loaded
from needlemap.reports.loss import margin_label, untested_label
from needlemap.stats import latest_records, place_of
from needlemap.stats.intervals import Z, least_pairs
from needlemap.stats.rows import JudgedPrompt, Rows
from needlemap.stats.tested import count_tested, drop_untested


def check_size(families: Mapping[str, Loaded | None], margin: float) -> None:
    """Raise SettingsError if not even equal answers to a golden's prompts could pass a margin.

    margin: a share.
    """
    all_rows = Rows.of(_prompts(families))
    rows, untested = drop_untested(all_rows, margin)
    tested_count, count = count_tested(all_rows, untested)
    points = margin_label(margin)
    if 2 * tested_count < count or not tested_count:
        raise SettingsError(
            f"A golden of these answers cannot show a loss of {points} points: "
            f"{untested_label(untested)}."
        )
    pairs, least_count = len(rows.first), least_pairs(margin)
    if pairs < least_count:
        raise SettingsError(
            f"A margin of {points} points takes {least_count:,} prompts that the reference mostly "
            f"gets right, and this golden has {pairs:,}: not even equal answers would pass. Run it "
            f"with {ceil(least_count / max(1, pairs))} times the --repeats, or give a margin of "
            f"{least_margin(pairs):g} points or more."
        )


def size_label(families: Mapping[str, Loaded | None]) -> str:
    """Return a phrase on the least margin for which a golden has enough prompts."""
    rows = Rows.of(_prompts(families))
    least = least_margin(len(rows.first))
    return f"enough prompts for margins from {least:g} points on"


def least_margin(pairs: int) -> float:
    """Return the least margin, in points, at which so many equal pairs pass.

    >>> least_margin(189), least_margin(73)
    (2.0, 5.0)
    """
    share = Z * Z / (pairs + Z * Z)
    tenths = ceil(1_000 * share)
    while tenths < 1_000 and least_pairs(tenths / 1_000) > pairs:
        tenths += 1
    return tenths / 10


def _prompts(families: Mapping[str, Loaded | None]) -> Iterator[JudgedPrompt]:
    """Yield the prompts that were scored, each once."""
    for name, run in families.items():
        for record in latest_records(run.records if run is not None else ()):
            if record.scored:
                yield JudgedPrompt(name, place_of(record), record.repeat, record.score, None)
