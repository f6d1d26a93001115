"""Run `needlemap report`: draw runs and other tools' results.

A report is a terminal map, a figure, a page or a table, or it is sent to a tracker. Results of
other tools are read for one report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from needlemap.commands.arguments import MoreReportFlags, ReportFlags
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.files import is_run_folder, write_report
from needlemap.records.families import Families, families_of
from needlemap.records.loaded import GOLDEN, Loaded, freeze, load_run
from needlemap.records.results import ResultsReader, reader_of
from needlemap.reports import points_wide
from needlemap.reports.figures.drawing import FIGURES, KINDS
from needlemap.reports.figures.figure import check_style, draw, figure_of
from needlemap.reports.goldens import check_size, size_label
from needlemap.reports.kept import finding_report
from needlemap.reports.page.summary import pause_garbage_collector, write_page
from needlemap.reports.pairing import margin_share
from needlemap.reports.renderers import markdown
from needlemap.reports.renderers.json import to_json
from needlemap.reports.report import Heat, Report
from needlemap.reports.run_notes import cache_lines
from needlemap.reports.run_report import run_report, runs_below
from needlemap.reports.seek_report import seeks
from needlemap.reports.suite_report import fields_of, models_report, suite_report, suites_in
from needlemap.reports.summary import FAMILY_RULES, read_families
from needlemap.reports.table import MARKDOWN, is_table, write_markdown, write_table
from needlemap.stats.effective import RULES, parse_rules
from needlemap.text import printable, show, show_json, tell

# How many notes on files that were left out are printed.
_MOST_NOTES = 3


def _rules(typed: ReportFlags, default: tuple[str, ...] = RULES) -> tuple[str, ...]:
    """Return the rules that were typed, or the default. Raises SettingsError for an unknown one."""
    return parse_rules(typed.rules) if typed.rules else default


def _check_flags(typed: ReportFlags) -> None:
    """Raise SettingsError for flags of a golden or a figure if `typed` makes neither."""
    if typed.margin is not None:
        raise SettingsError("--margin is of a golden: give --format golden too.")
    check_style(typed.style or None)
    width = points_wide(typed.width)
    if typed.out is not None and typed.out.suffix.lower() in FIGURES:
        return

    figure_flags = {"--width": width, "--style": typed.style, "--curves": typed.curves}
    for flag, value in figure_flags.items():
        if not value:
            continue
        if typed.out is None:
            raise SettingsError(f"{flag} is a figure's. Say where to: -o map.pdf, or .png, .svg.")
        raise SettingsError(
            f"{flag} is a figure's, and {typed.out.name} is none. Give {', '.join(FIGURES)}."
        )


@pause_garbage_collector()
def report_command(
    runs: list[Path], typed: ReportFlags, added: Sequence[MoreReportFlags] = ()
) -> None:
    """Draw each run on the terminal, write one file, or send runs to another place.

    A file can be written and runs sent by one command. runs: folders of runs and suites, and other
    tools' results as `import` reads them. added: the flags of other packages.
    """
    if typed.format == GOLDEN:
        _freeze(runs, typed)
        return
    paths = [path for folder in runs for path in _runs_inside(folder)]
    if _print_alone(paths, typed, added=added):
        return

    senders = [flags for flags in added if flags.elsewhere]
    rules = _rules(typed)
    _check_flags(typed)
    out = typed.out
    if out is None and not senders:
        _show(paths, typed, added=added)
        return
    if out is not None and out.suffix.lower() == MARKDOWN:
        report = _check_report(paths)
        if report is not None:
            tell(str(markdown.write_markdown(report, out)))
            return

    loaded_runs = list[Loaded]()
    # A page loads its own runs, and reports a run that is typed twice.
    if senders or not _is_page(out):
        folders = list(dict.fromkeys(folders_of(paths)))
        loaded_runs = _load_runs(folders, typed)
    loaded_runs = list(_with_titles(loaded_runs, added))
    if out is not None:
        _write_file(paths, loaded_runs, out=out, typed=typed)
    for flags in senders:
        for line in flags.send(loaded_runs, typed, rules):
            tell(line)


def _show_report(report: Report) -> None:
    """Print a report."""
    # Imported here, because files need no Rich.
    from needlemap.reports.renderers.text import show_report

    show_report(report)


def _is_page(out: Path | None) -> bool:
    return out is not None and out.suffix.lower() == ".html"


def _write_file(
    paths: Sequence[Path], loaded_runs: Sequence[Loaded], out: Path, typed: ReportFlags
) -> None:
    """Write runs to one file, and print its path.

    loaded_runs: the runs at these paths; unused for a page.
    """
    new_folder = "" if out.parent.is_dir() else f" (in a new folder, {out.parent})"
    runs: Sequence[Loaded | Path] = loaded_runs
    if _is_page(out):
        runs = _load_plain_runs(paths, typed)
    if typed.curves and not any(map(seeks, loaded_runs)):
        file = _write_curves(paths, loaded_runs, out=out, typed=typed)
    else:
        file = _write_runs(runs, out, typed=typed)
    tell(f"{file}{new_folder}")


def _show(paths: Sequence[Path], typed: ReportFlags, added: Sequence[MoreReportFlags]) -> None:
    """Print tables of several models and of several families, and maps of all other runs."""
    if len(paths) > 1 and all(map(is_run_folder, paths)):
        _show_report(models_report(paths))
        show("")
    runs = _load_plain_runs(paths, typed)
    rules = _rules(typed, FAMILY_RULES)
    for run in runs:
        if isinstance(run, Path):
            show_families(families_of(run), rules)
    suites, other_runs = suites_in([run for run in runs if isinstance(run, Loaded)])
    for families, suite_runs in suites:
        _show_report(suite_report(families, suite_runs, rules))
    _draw(_with_titles(other_runs, added), typed)


def _print_alone(
    paths: Sequence[Path], typed: ReportFlags, added: Sequence[MoreReportFlags]
) -> bool:
    """Print the output that was typed and that no other goes with. Return False if none was.

    Raise SettingsError if other flags were typed that do not go with it.
    """
    for flags in added:
        if flags.alone:
            _refuse_senders(added, f"{flags.alone} prints a table or draws a figure")
            flags.report(paths, typed)
            return True
    if typed.json:
        _refuse_senders(added, "--json prints alone")
        _print_json(paths, typed)
        return True
    return False


def _refuse_senders(added: Sequence[MoreReportFlags], reason: str) -> None:
    """Raise SettingsError if a typed flag sends runs to another place."""
    typed_flags = [flags.elsewhere for flags in added if flags.elsewhere]
    if typed_flags:
        raise SettingsError(f"{reason}: leave {' and '.join(typed_flags)} out.")


def _with_titles(runs: Sequence[Loaded], added: Sequence[MoreReportFlags]) -> Sequence[Loaded]:
    for flags in added:
        runs = flags.titled(runs)
    return runs


def _check_report(runs: Sequence[Path]) -> Report | None:
    """Return the report of a check or an ab, or None for any other runs."""
    families = families_of(runs[0])
    if len(runs) != 1 or families.is_plain:
        return None
    return finding_report(families, read_families(families))


def _freeze(runs: Sequence[Path], typed: ReportFlags) -> None:
    """Write one run's golden, and print how large it is.

    Raises SettingsError if the run has too few prompts for the margin that was typed.
    """
    out = typed.out
    if len(runs) != 1 or out is None or out.suffix in KINDS:
        raise SettingsError(
            "--format golden is of one run, into a folder: needlemap report RUN -o golden/NAME."
        )
    families = families_of(runs[0])
    family_runs = read_families(families)
    if typed.margin is not None:
        check_size(family_runs, margin_share(typed.margin))
    size_bytes = freeze(families, out)
    tell(f"{out}: {size_bytes:,} bytes; {size_label(family_runs)}")


def _runs_inside(path: Path) -> list[Path]:
    """Return the runs in a folder, for example those of several models.

    Return the path itself if it is a run, a file, or a folder without a run.
    """
    if is_run_folder(path) or not path.is_dir():
        return [path]
    return list(runs_below(path)) or [path]


def _write_curves(
    paths: Sequence[Path], runs: Sequence[Loaded], out: Path, typed: ReportFlags
) -> Path:
    """Write a figure of scores by length, and return its path.

    runs: the loaded runs and families that lie at these paths.
    """
    from needlemap.reports.figures.curves import draw_curves, groups_of

    suites = [families for families in map(families_of, paths) if not families.is_plain]
    drawing = draw_curves(
        groups_of(runs, suites),
        title=typed.title,
        rules=_rules(typed),
        width=points_wide(typed.width),
    )
    return drawing.save(out)


def _print_json(paths: Sequence[Path], typed: ReportFlags) -> None:
    """Print the results of runs as one JSON document."""
    rules = _rules(typed, ()) or None
    if typed.out:
        raise SettingsError("--json prints to standard output: leave -o out, or --json.")
    documents = list[dict[str, Any]]()
    for path in paths:
        reader = reader_of(path) if families_of(path).is_plain else None
        runs = [] if reader is None else _read_results(reader, path, typed=typed)
        if runs:
            documents += [to_json(run_report(run, rules or RULES)) for run in runs]
        else:
            documents.append(_run_fields(path, rules))
    show_json({"runs": documents})


def _run_fields(path: Path, rules: tuple[str, ...] | None) -> dict[str, Any]:
    """Return the result of a run, and under `report` the result of a check or an ab."""
    report = _check_report([path])
    fields = fields_of(path, rules)
    if report is None:
        return fields
    return {**fields, "report": to_json(report)}


def show_families(families: Families, rules: tuple[str, ...] = FAMILY_RULES) -> None:
    """Print the table of a run with several families, or the report of its ab or check."""
    runs = read_families(families)
    _show_report(finding_report(families, runs) or suite_report(families, runs, rules))


def folders_of(paths: Sequence[Path]) -> list[Path]:
    """Return the folders of all families of some runs. Raises NeedlemapError if there is none."""
    folders = [folder for path in paths for folder in families_of(path).folders]
    if paths and not folders:
        raise NeedlemapError(
            f"Suite '{paths[0]}' has no run yet. Type: needlemap run suite:NAME -o {paths[0]}"
        )
    return folders


def _load_plain_runs(paths: Sequence[Path], typed: ReportFlags) -> list[Loaded | Path]:
    """Load runs with one family, and leave the paths of runs with several as they are.

    The families of such a run are shown together.
    """
    # All paths are checked before a run is read, which takes longer.
    is_plain = {path: families_of(path).is_plain for path in paths}
    runs = list[Loaded | Path]()
    for path in paths:
        if is_plain[path]:
            runs += _load_runs([path], typed)
        else:
            runs.append(path)
    return runs


def _load_runs(paths: Sequence[Path], typed: ReportFlags) -> list[Loaded]:
    """Return the runs at some paths, in their order. Another tool's file can hold several."""
    runs = list[Loaded]()
    for path in paths:
        reader = reader_of(path)
        if reader is None:
            runs.append(load_run(path))
        else:
            runs += _read_results(reader, path, typed=typed)
    return runs


def _draw(runs: Sequence[Loaded], typed: ReportFlags) -> None:
    for run in runs:
        heat = Heat(run.map, typed.palette, typed.map)
        _show_report(run_report(run, _rules(typed), heat))
        if not seeks(run):
            for line in cache_lines(run.records):
                tell(line)


def _write_runs(runs: Sequence[Loaded | Path], out: Path, typed: ReportFlags) -> Path:
    """Write one file in the format that its suffix names, and return its path.

    runs: for a page, the folder of each run with several families; all others are loaded.
    """
    if typed.format != "cells" and not is_table(out):
        raise SettingsError(
            f"--format is a table's, and {out.name} is none. Give .csv or .parquet."
        )
    if _is_page(out):
        return write_page(
            runs,
            out,
            title=typed.title,
            palette=typed.palette,
            rules=_rules(typed),
        )

    loaded_runs = [run for run in runs if isinstance(run, Loaded)]
    for run in loaded_runs:
        for note in run.notes:
            tell(f"note: {printable(note)}")
    if is_table(out):
        return write_table(loaded_runs, out, typed.format)

    figure = figure_of(
        loaded_runs,
        title=typed.title,
        palette=typed.palette,
        style=typed.style or None,
    )
    if figure.why_not:
        tell(f"no map of the difference: {figure.why_not}")
    if out.suffix.lower() == MARKDOWN and figure.sought:
        texts = [markdown.to_markdown(run_report(run, _rules(typed))) for run in loaded_runs]
        return write_report(out, "\n".join(texts).encode())
    drawing = draw(figure, points_wide(typed.width))
    if out.suffix.lower() == MARKDOWN and figure.runs:
        return write_markdown(figure, drawing, out)
    return drawing.save(out)


def _read_results(reader: ResultsReader, path: Path, typed: ReportFlags) -> list[Loaded]:
    """Return the runs in another tool's file or folder, and print their notes."""
    runs = reader.load(path, typed.metric)
    tell_notes([note for run in runs for note in run.notes])
    return [replace(run, notes=()) for run in runs]


def tell_notes(notes: Sequence[str]) -> None:
    """Print notes on files that hold no result or could not be read."""
    for note in notes[:_MOST_NOTES]:
        tell(printable(note))
    if len(notes) > _MOST_NOTES:
        tell(f"and {len(notes) - _MOST_NOTES} more such notes")
