"""`needlemap report`, `import`: runs drawn, other tools' results as runs.

A report is a terminal map, a figure, a page, a table, or goes to a tracker. Results of other
tools become runs on disk, or are read for one report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from needlemap.commands.announce import show_json
from needlemap.commands.arguments import MoreReportFlags, ReportFlags
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.files import is_run_folder
from needlemap.records.families import Families, families_of
from needlemap.records.loaded import GOLDEN, Loaded, freeze, load_run
from needlemap.records.results import ResultsReader, reader_of
from needlemap.reports import points_wide
from needlemap.reports.figures import FIGURES, KINDS
from needlemap.reports.figures.figure import check_style, draw, figure_of
from needlemap.reports.goldens import check_size, size_label
from needlemap.reports.kept import kept_report
from needlemap.reports.page.summary import uncollected, write_page
from needlemap.reports.pairing import margin_share
from needlemap.reports.renderers import markdown as reported
from needlemap.reports.renderers.json import to_json
from needlemap.reports.renderers.text import show_report
from needlemap.reports.report import Heat, Report
from needlemap.reports.run_notes import cache_lines
from needlemap.reports.run_report import run_report, runs_below
from needlemap.reports.seek_report import seeks
from needlemap.reports.suite_report import fields_of, models_report, suite_report, suites_in
from needlemap.reports.summary import FAMILY_RULES, read_families
from needlemap.reports.table import MARKDOWN, is_table, write_markdown, write_table
from needlemap.stats.effective import RULES, parse_rules
from needlemap.text import printable, show, tell

_SHOWN = 3  # reasons for files left out


def _rules(typed: ReportFlags, otherwise: tuple[str, ...] = RULES) -> tuple[str, ...]:
    """The rules that were typed, or others. Raises SettingsError for an unknown one."""
    return parse_rules(typed.rules) if typed.rules else otherwise


def _refuse_of_figures(typed: ReportFlags) -> None:
    """Raises SettingsError for what only figures or goldens have, where none is made."""
    if typed.margin is not None:
        raise SettingsError("--margin is of a golden: give --format golden too.")
    check_style(typed.style or None)
    suffix = "" if typed.out is None else typed.out.suffix.lower()
    given = {"--width": points_wide(typed.width), "--style": typed.style, "--curves": typed.curves}
    for flag in (flag for flag, value in given.items() if value and suffix not in FIGURES):
        if typed.out is None:
            raise SettingsError(f"{flag} is a figure's. Say where to: -o map.pdf, or .png, .svg.")
        raise SettingsError(
            f"{flag} is a figure's, and {typed.out.name} is none. Give {', '.join(FIGURES)}."
        )


@uncollected()
def report_command(
    runs: list[Path], typed: ReportFlags, added: Sequence[MoreReportFlags] = ()
) -> None:
    """Draw each run on the terminal, or write one file, or send runs elsewhere, or both of these.

    runs: folders of runs and suites, and other tools' results as `import` reads them. added: the
    flags of other packages.
    """
    out = typed.out
    if typed.format == GOLDEN:
        _freeze(runs, typed)
        return
    runs = [run for path in runs for run in _inside(path)]
    if _prints_alone(runs, typed, added):
        return
    elsewhere, rules = [flags for flags in added if flags.elsewhere], _rules(typed)
    _refuse_of_figures(typed)
    if out is None and not elsewhere:
        if len(runs) > 1 and all(map(is_run_folder, runs)):
            show_report(models_report(runs))
            show("")
        _show(_whole_runs(runs, typed), typed, added)
        return
    if out is not None and out.suffix.lower() == MARKDOWN and (kept := _kept(runs)):
        tell(str(reported.write_markdown(kept, out)))
        return
    page = out is not None and out.suffix.lower() == ".html"  # says it where a run is given twice
    unread = page and not elsewhere
    loaded = [] if unread else _opened(list(dict.fromkeys(folders_of(runs))), typed)
    loaded = list(_titled(loaded, added))
    if out is not None:
        new = "" if out.parent.is_dir() else f" (in a new folder, {out.parent})"
        given = _whole_runs(runs, typed) if page else loaded
        curves = typed.curves and not any(map(seeks, loaded))
        written = _curves(runs, loaded, out, typed) if curves else _written(given, out, typed)
        tell(f"{written}{new}")
    for flags in elsewhere:
        for line in flags.send(loaded, typed, rules):
            tell(line)


def _show(
    whole: Sequence[Loaded | Path], typed: ReportFlags, added: Sequence[MoreReportFlags]
) -> None:
    """Print tables of runs with several families, and maps of all others."""
    rules = _rules(typed, FAMILY_RULES)
    for path in (each for each in whole if isinstance(each, Path)):
        show_families(families_of(path), rules)
    suites, loaded = suites_in([run for run in whole if isinstance(run, Loaded)])
    for families, read in suites:
        show_report(suite_report(families, read, rules))
    _draw(_titled(loaded, added), typed)


def _prints_alone(
    runs: Sequence[Path], typed: ReportFlags, added: Sequence[MoreReportFlags]
) -> bool:
    """Print what no other output goes with, if that was typed. Raises SettingsError."""
    if alone := next((flags for flags in added if flags.alone), None):
        _refuse_elsewhere(added, f"{alone.alone} prints a table or draws a figure")
        alone.report(runs, typed)
        return True
    if typed.json:
        _refuse_elsewhere(added, "--json prints alone")
        _print_json(runs, typed)
        return True
    return False


def _refuse_elsewhere(added: Sequence[MoreReportFlags], why: str) -> None:
    """Raises SettingsError if runs are to be sent elsewhere too."""
    given = [flags.elsewhere for flags in added if flags.elsewhere]
    if given:
        raise SettingsError(f"{why}: leave {' and '.join(given)} out.")


def _titled(runs: Sequence[Loaded], added: Sequence[MoreReportFlags]) -> Sequence[Loaded]:
    for flags in added:
        runs = flags.titled(runs)
    return runs


def _kept(runs: Sequence[Path]) -> Report | None:
    """The report of a check or an ab; None of anything else."""
    families = families_of(runs[0])
    if len(runs) != 1 or families.is_plain:
        return None
    return kept_report(families, read_families(families))


def _freeze(runs: Sequence[Path], typed: ReportFlags) -> None:
    """Write one run's golden, and say how large it is. Raises SettingsError if it has too few
    prompts for the margin that was typed."""
    out = typed.out
    if len(runs) != 1 or out is None or out.suffix in KINDS:
        raise SettingsError(
            "--format golden is of one run, into a folder: needlemap report RUN -o golden/NAME."
        )
    families = families_of(runs[0])
    read = read_families(families)
    if typed.margin is not None:
        check_size(read, margin_share(typed.margin))
    size = freeze(families, out)
    tell(f"{out}: {size:,} bytes; {size_label(read)}")


def _inside(path: Path) -> list[Path]:
    """The runs in a folder that is none itself, as several models' are; else the path as it
    was typed."""
    if is_run_folder(path) or not path.is_dir():
        return [path]
    return list(runs_below(path)) or [path]


def _curves(paths: Sequence[Path], loaded: Sequence[Loaded], out: Path, typed: ReportFlags) -> Path:
    """A figure of scores by length. loaded: the runs and families that lie at these paths."""
    from needlemap.reports.figures.curves import draw_curves, groups_of

    suites = [families for families in map(families_of, paths) if not families.is_plain]
    groups = groups_of(loaded, suites)
    return draw_curves(
        groups, title=typed.title, rules=_rules(typed), width=points_wide(typed.width)
    ).save(out)


def _print_json(runs: Sequence[Path], typed: ReportFlags) -> None:
    """Print what runs came to."""
    rules = _rules(typed, ()) or None
    if typed.out:
        raise SettingsError("--json prints to standard output: leave -o out, or --json.")
    fields = []
    for path in runs:
        reader = reader_of(path) if families_of(path).is_plain else None
        theirs = () if reader is None else _results(reader, path, typed)
        fields += [to_json(run_report(run, rules or RULES)) for run in theirs] or [
            _fields(path, rules)
        ]
    show_json({"runs": fields})


def _fields(path: Path, rules: tuple[str, ...] | None) -> dict[str, Any]:
    """What a run came to, and under `report` what a check or an ab found in it."""
    report = _kept([path])
    fields = fields_of(path, rules)
    return fields if report is None else {**fields, "report": to_json(report)}


def show_families(families: Families, rules: tuple[str, ...] = FAMILY_RULES) -> None:
    """Print the table of a run with several families, or what each of them sought, or what an
    ab or a check came to."""
    read = read_families(families)
    show_report(kept_report(families, read) or suite_report(families, read, rules))


def folders_of(paths: Sequence[Path]) -> list[Path]:
    """The folders of all families of some runs. Raises NeedlemapError where there is none."""
    found = [folder for path in paths for folder in families_of(path).folders]
    if paths and not found:
        raise NeedlemapError(
            f"Suite '{paths[0]}' has no run yet. Type: needlemap run suite:NAME -o {paths[0]}"
        )
    return found


def _whole_runs(paths: Sequence[Path], typed: ReportFlags) -> list[Loaded | Path]:
    """Runs with one family, read; those with several are left to what shows their families
    together."""
    plain = {path: families_of(path).is_plain for path in paths}
    return [run for path in paths for run in (_opened([path], typed) if plain[path] else [path])]


def _opened(paths: Sequence[Path], typed: ReportFlags) -> list[Loaded]:
    """Runs in the order given; of another tool's file each that it holds."""
    found: list[Loaded] = []
    for path in paths:
        reader = reader_of(path)
        found += [load_run(path)] if reader is None else _results(reader, path, typed)
    return found


def _draw(runs: Sequence[Loaded], typed: ReportFlags) -> None:
    for run in runs:
        show_report(run_report(run, _rules(typed), Heat(run.map, typed.palette, typed.map)))
        for line in () if seeks(run) else cache_lines(run.records):
            tell(line)


def _written(given: Sequence[Loaded | Path], out: Path, typed: ReportFlags) -> Path:
    """One file, in the format that its suffix names. given: read, but for runs with families
    in a page."""
    if typed.format != "cells" and not is_table(out):
        raise SettingsError(
            f"--format is a table's, and {out.name} is none. Give .csv or .parquet."
        )
    if out.suffix.lower() == ".html":
        rules = _rules(typed)
        return write_page(given, out, title=typed.title, palette=typed.palette, rules=rules)
    runs = [run for run in given if isinstance(run, Loaded)]
    for note in (note for run in runs for note in run.notes):
        tell(f"note: {printable(note)}")
    if is_table(out):
        return write_table(runs, out, typed.format)
    figure = figure_of(
        runs,
        title=typed.title,
        palette=typed.palette,
        style=typed.style or None,
    )
    if figure.why_not:
        tell(f"no map of the difference: {figure.why_not}")
    drawing, told = (
        draw(figure, points_wide(typed.width)),
        out.suffix.lower() == MARKDOWN and figure.runs,
    )
    return write_markdown(figure, drawing, out) if told else drawing.save(out)


def _results(reader: ResultsReader, path: Path, typed: ReportFlags) -> list[Loaded]:
    """Return the runs in another tool's file or folder. Prints their notes."""
    runs = reader.load(path, typed.metric)
    tell_notes([note for run in runs for note in run.notes])
    return [replace(run, notes=()) for run in runs]


def tell_notes(notes: Sequence[str]) -> None:
    """Print notes on files that hold no result or could not be read."""
    for note in notes[:_SHOWN]:
        tell(printable(note))
    if len(notes) > _SHOWN:
        tell(f"and {len(notes) - _SHOWN} more such notes")
