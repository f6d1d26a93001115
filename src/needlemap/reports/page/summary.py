"""What a page shows of its runs, in as much detail as its size allows, and its file."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.files import write_report
from needlemap.records.families import families_of
from needlemap.records.loaded import Loaded
from needlemap.reports.colours import (
    CHANGES,
    DARK_CHANGES,
    PALETTE,
    PALETTES,
    palette_colours,
    steps,
)
from needlemap.reports.figures.figure import draw, figure_of
from needlemap.reports.page.document import packed, page_html
from needlemap.reports.page.payload import difference, run_payload
from needlemap.reports.page.sheets import PageRuns, Subject, make_sheets, order_views
from needlemap.reports.page.trials import FULL, Detail, trial_columns
from needlemap.reports.seek_report import seek_report, seeks
from needlemap.reports.summary import read_families
from needlemap.stats.effective import RULES
from needlemap.version import __version__

# Bytes of all runs' compressed trials: 20 MB of page.
LIMIT = 15_000_000
# What is left out, step by step, until the limit is kept; the last step stands as it is.
LESS = (
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
    palette: str | None = None,
    rules: tuple[str, ...] = RULES,
) -> Path:
    """Write the page of some runs, read already or not.

    rules: of effective length. Raises NeedlemapError if one cannot be read.
    """
    sources = [source if isinstance(source, Loaded) else Path(source) for source in paths]
    folders = [Path(source.path) if isinstance(source, Loaded) else source for source in sources]
    repeated = next((path for path in folders if folders.count(path) > 1), None)
    if repeated is not None:
        raise SettingsError(f"Run '{repeated}' is given twice. Give each run once.")
    with uncollected():
        runs = [
            source if isinstance(source, Loaded) else _read_subject(source) for source in sources
        ]
        page = make_page(runs, made=datetime.now(UTC), title=title, palette=palette, rules=rules)
    # A name may hold bytes that are no letter.
    return write_report(Path(target), page.encode("utf-8", "replace"))


def _read_subject(path: Path) -> Subject:
    families = families_of(path)
    if not families.started_names:
        raise NeedlemapError(
            f"Suite '{path}' has no run yet. Type: needlemap run suite:NAME -o {path}"
        )
    return Subject(families, read_families(families))


def make_page(
    runs: Sequence[Loaded | Subject],
    *,
    made: datetime,
    title: str | None = None,
    palette: str | None = None,
    rules: tuple[str, ...] = RULES,
    limit: int = LIMIT,
) -> str:
    """Return the page, in as much detail as the limit allows.

    Raises SettingsError for an unknown palette.
    """
    families = [family for run in runs for family in Subject.of(run).runs]
    trials, notes = fitted(families, limit)
    shown = summary(
        runs,
        made=made,
        title=title,
        palette=palette,
        notes=[notes] * len(families),
        rules=rules,
    )
    return page_html(shown, trials)


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector from reading all records again and again.

    That takes a third longer. Freezing and unfreezing makes the records old at once, so that it
    does not read them in the end either.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.unfreeze()
        if enabled:
            gc.enable()


def fitted(runs: Sequence[Loaded], limit: int = LIMIT) -> tuple[list[bytes], list[str]]:
    """Return each run's trials, packed, and notes on what is left out.

    They have the most detail that keeps the limit.
    """
    for detail, left_out in LESS:
        trials = [packed(trial_columns(run.map, detail)) for run in runs]
        notes = [f"To stay small, this page leaves out {left_out}: the run's records hold them."]
        if sum(map(len, trials)) <= limit:
            break
    return trials, notes if left_out else []


FORMAT = 2


def summary(
    runs: Sequence[Loaded | Subject],
    *,
    made: datetime,
    title: str | None = None,
    palette: str | None = None,
    notes: Sequence[Sequence[str]] = (),
    rules: tuple[str, ...] = RULES,
) -> dict[str, Any]:
    """Return all that a page shows.

    These are all runs, the differences from the first of those that may be alike, sheets of several
    of them, and in which order they are shown. notes: of each family of each run, what the page
    leaves out. Raises SettingsError for an unknown palette.
    """
    palette_colours(palette)
    cast = PageRuns.of(runs)
    families, names = cast.runs, cast.run_names()
    notes_of_runs = notes or [()] * len(families)
    differences = [
        {"a": a, "b": b, "name": name, **difference(families[a], families[b])}
        for a, b, name in cast.pairs()
    ]
    sheets = make_sheets(cast, differences, rules)
    return {
        "page": FORMAT,
        "made": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "version": __version__,
        "title": title,
        "palettes": {name: steps(colours) for name, colours in PALETTES.items()},
        "palette": palette or PALETTE,
        "changes": {"light": steps(CHANGES), "dark": steps(DARK_CHANGES)},
        "views": order_views(cast, sheets, differences),
        "sheets": sheets,
        "runs": [
            {
                "name": name,
                "group": group,
                "notes": list(lines),
                **run_payload(run, rules),
                **_beside(run),
            }
            for name, group, lines, run in zip(
                names, cast.groups(), notes_of_runs, families, strict=True
            )
        ],
        "differences": differences,
    }


def _beside(run: Loaded) -> dict[str, Any]:
    """Return what a run sought, as a picture under its map and at a glance.

    Returns {} for a run that did not seek.
    """
    if not seeks(run):
        return {}
    headed = [(fact.head, fact.value) for fact in seek_report(run).facts if fact.head]
    name, value = headed[0] if headed else ("Effective length", "not known yet")
    return {
        "beside": draw(figure_of([run], title="")).inline("What was sought"),
        "sought": {"name": name, "value": value},
    }
