"""A page of run folders: read, made, and kept to a size that can still be mailed and opened."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from needlemap.errors import SettingsError
from needlemap.files import write_report
from needlemap.maps.effective import RULES
from needlemap.reports.page.document import packed, page_html
from needlemap.reports.page.payload import summary
from needlemap.reports.page.trials import FULL, Detail, trial_columns
from needlemap.runs.loaded import Loaded, load_run

LIMIT = 15_000_000  # bytes of all runs' compressed trials: 20 MB of page
LESS = (  # what is left out, one after the other, until the limit is kept; the last one stands as it is
    (FULL, ""),
    (Detail(around_right=False), "what stands around needles that were found"),
    (
        Detail(around_right=False, answer=2_000),
        "what stands around needles that were found, and answers beyond 2,000 characters",
    ),
    (
        Detail(around_right=False, around_wrong=False, answer=300),
        "what stands around needles, and answers beyond 300 characters",
    ),
)


def write_page(
    paths: Sequence[str | Path | Loaded],
    target: str | Path,
    *,
    title: str | None = None,
    palette: str = "amber",
    rules: tuple[str, ...] = RULES,
) -> Path:
    """Write the page of some runs, read already or not. Raises NeedlemapError when one cannot be read.

    rules: of effective length.
    """
    out, places = Path(target), [each if isinstance(each, Loaded) else Path(each) for each in paths]
    folders = [Path(each.path) if isinstance(each, Loaded) else each for each in places]
    again = next((path for path in folders if folders.count(path) > 1), None)
    if again is not None:
        raise SettingsError(f"Run '{again}' is given twice. Give each run once.")
    with _uncollected():
        runs = [each if isinstance(each, Loaded) else load_run(each) for each in places]
        page = make_page(runs, made=datetime.now(UTC), title=title, palette=palette, rules=rules)
    write_report(out, page.encode("utf-8", "replace"))  # a name may hold bytes that are no letter
    return out


def make_page(
    runs: Sequence[Loaded],
    *,
    made: datetime,
    title: str | None = None,
    palette: str = "amber",
    rules: tuple[str, ...] = RULES,
    limit: int = LIMIT,
) -> str:
    """The page, in as much detail as the limit allows. Raises SettingsError for an unknown palette."""
    trials, notes = fitted(runs, limit)
    each = [[*notes, *run.notes] for run in runs]
    found = summary(runs, made=made, title=title, palette=palette, notes=each, rules=rules)
    return page_html(found, trials)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the garbage collector from going through all records again and again: it takes a third longer."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def fitted(runs: Sequence[Loaded], limit: int = LIMIT) -> tuple[list[bytes], list[str]]:
    """Each run's trials, packed, in the most detail that keeps the limit; and what is said of the rest."""
    for detail, left_out in LESS:
        trials = [packed(trial_columns(run.map, run.records, detail)) for run in runs]
        notes = [f"To stay small, this page leaves out {left_out}: the run's records hold them."]
        if sum(map(len, trials)) <= limit:
            break
    return trials, notes if left_out else []
