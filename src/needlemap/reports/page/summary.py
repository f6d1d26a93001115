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
from needlemap.reports.page.document import compress_json, page_html
from needlemap.reports.page.payload import difference_payload, run_payload
from needlemap.reports.page.sheets import PageRuns, Subject, make_sheets, order_views
from needlemap.reports.page.trials import FULL, Detail, trial_columns
from needlemap.reports.seek_report import seek_report, seeks
from needlemap.reports.summary import read_families
from needlemap.stats.effective import RULES
from needlemap.version import __version__

# Bytes of all runs' compressed trials: 20 MB of page.
LIMIT = 15_000_000
# What is left out, step by step, until the limit is kept; the last step stands as it is.
DETAIL_STEPS = (
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
    """Write the page of some runs or of their folders.

    rules: of effective length. If a run cannot be read, NeedlemapError is raised; if a run is given
    twice, SettingsError.
    """
    sources = [source if isinstance(source, Loaded) else Path(source) for source in paths]
    folders = [Path(source.path) if isinstance(source, Loaded) else source for source in sources]
    repeated_path = next((path for path in folders if folders.count(path) > 1), None)
    if repeated_path is not None:
        raise SettingsError(f"Run '{repeated_path}' is given twice. Give each run once.")

    with pause_garbage_collector():
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

    If the palette is unknown, SettingsError is raised. limit: bytes of all compressed trials.
    """
    families = [family for run in runs for family in Subject.of(run).runs]
    trials, notes = fit_trials(families, limit)
    page_summary = summary(
        runs,
        made=made,
        title=title,
        palette=palette,
        notes=[notes] * len(families),
        rules=rules,
    )
    return page_html(page_summary, trials)


@contextmanager
def pause_garbage_collector() -> Iterator[None]:
    """Pause the garbage collector, which would read all records again and again.

    With it a page takes a third longer. At the end, freezing and unfreezing makes the records old
    at once, so that the collector does not read them then either.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def fit_trials(runs: Sequence[Loaded], limit: int = LIMIT) -> tuple[list[bytes], list[str]]:
    """Return the compressed trials of each run, and notes on what is left out.

    The trials have the most detail with which all together keep the limit, in bytes.
    """
    for detail, left_out in DETAIL_STEPS:
        trials = [compress_json(trial_columns(run.map, detail)) for run in runs]
        notes = [f"To stay small, this page leaves out {left_out}: the run's records hold them."]
        if sum(map(len, trials)) <= limit:
            break
    return trials, notes if left_out else []


def summary(
    runs: Sequence[Loaded | Subject],
    *,
    made: datetime,
    title: str | None = None,
    palette: str | None = None,
    notes: Sequence[Sequence[str]] = (),
    rules: tuple[str, ...] = RULES,
) -> dict[str, Any]:
    """Return the data of a page: its runs, differences and sheets, and the order of its views.

    Differences are from the first run to each that can be compared with it. notes: for each family
    of each run, what the page leaves out. If the palette is unknown, SettingsError is raised.
    """
    palette_colours(palette)
    page_runs = PageRuns.of(runs)
    families, names = page_runs.runs, page_runs.run_names()
    notes_of_runs = notes or [()] * len(families)
    differences = [
        {"a": a, "b": b, "name": name, **difference_payload(families[a], families[b])}
        for a, b, name in page_runs.pairs()
    ]
    sheets = make_sheets(page_runs, differences, rules)
    return {
        "made": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "version": __version__,
        "title": title,
        "palettes": {name: steps(colours) for name, colours in PALETTES.items()},
        "palette": palette or PALETTE,
        "changes": {"light": steps(CHANGES), "dark": steps(DARK_CHANGES)},
        "views": order_views(page_runs, sheets, differences),
        "sheets": sheets,
        "runs": [
            {
                "name": name,
                "group": group,
                "notes": list(lines),
                **run_payload(run, rules),
                **_seek_payload(run),
            }
            for name, group, lines, run in zip(
                names, page_runs.groups(), notes_of_runs, families, strict=True
            )
        ],
        "differences": differences,
    }


def _seek_payload(run: Loaded) -> dict[str, Any]:
    """Return the picture and the result of a run that seeks, or {} for any other run."""
    if not seeks(run):
        return {}
    facts_with_heads = [(fact.head, fact.value) for fact in seek_report(run).facts if fact.head]
    name, value = facts_with_heads[0] if facts_with_heads else ("Effective length", "not known yet")
    return {
        "beside": draw(figure_of([run], title="")).inline("What was sought"),
        "sought": {"name": name, "value": value},
    }
