"""What a page of more than one experiment opens with: sheets of curves, a table and words.

A sheet is a report (runs side by side, a suite's families, a check's probes). A run's own map
is no sheet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.grid import MOST_TOKENS, short_size
from needlemap.records.families import Families
from needlemap.records.loaded import Loaded
from needlemap.reports.kept import finding_report
from needlemap.reports.labels import (
    effective_label,
    interval_behind,
    n_label,
    score_label,
    unique_names,
)
from needlemap.reports.page.payload import comparison_payload
from needlemap.reports.pairing import compare_runs
from needlemap.reports.renderers.page import to_sheet
from needlemap.reports.report import FIGURES, Column, Fact, Line, Report, Row, Table
from needlemap.reports.seek_report import effective_of, seek_result_of
from needlemap.reports.suite_report import family_lines, suite_report
from needlemap.reports.summary import overall_of, score_name, scores_of
from needlemap.secrets import hidden
from needlemap.stats.effective import effective_length, parse_rule

Sheet = dict[str, Any]
# A title with more models says only how many there are.
MOST_MODELS = 3


@dataclass(frozen=True, slots=True)
class Subject:
    """A run that the page is about, with its families.

    runs_by_family: by the family's name, None for a family that was not started.
    """

    families: Families
    runs_by_family: Mapping[str, Loaded | None]

    @classmethod
    def of(cls, run: Loaded | Subject) -> Subject:
        """Return a run as a subject with one family, or a subject as it is."""
        return run if isinstance(run, Subject) else cls(Families(Path(run.path)), {"": run})

    @property
    def runs(self) -> list[Loaded]:
        """Return the families that were started."""
        return [run for run in self.runs_by_family.values() if run is not None]

    @property
    def model(self) -> str:
        """Return the model's name, or several names if families had several models."""
        models = list(dict.fromkeys(run.map.model for run in self.runs))
        if len(models) > MOST_MODELS:
            return f"{len(models)} models"
        return ", ".join(models) or "no model yet"


def size_in(family: str) -> str:
    """Return the size that the name of a check's family ends with, or '' if it has none."""
    size = family.rpartition("-")[2]
    is_size = size.isascii() and size.isdecimal() and len(size) <= len(str(MOST_TOKENS))
    return f"{short_size(int(size))} tokens" if is_size else ""


@dataclass(frozen=True, slots=True)
class PageRuns:
    """All subjects of a page with their names.

    first_runs: the position of each subject's first run among all runs.
    """

    subjects: tuple[Subject, ...]
    names: tuple[str, ...]
    first_runs: tuple[int, ...]

    @classmethod
    def of(cls, runs: Sequence[Loaded | Subject]) -> PageRuns:
        """Name the subjects, and keep them apart by folder if models repeat."""
        subjects = tuple(map(Subject.of, runs))
        names = unique_names(
            [subject.model for subject in subjects], [subject.families.path for subject in subjects]
        )
        first_runs = (
            sum(len(subject.runs) for subject in subjects[:index]) for index in range(len(subjects))
        )
        return cls(subjects, tuple(names), tuple(first_runs))

    @property
    def runs(self) -> list[Loaded]:
        """Return all families of all subjects, in their order."""
        return [run for subject in self.subjects for run in subject.runs]

    def run_names(self) -> list[str]:
        """Return the name of each family, with its model if there are several subjects."""
        names = []
        for subject, name in zip(self.subjects, self.names, strict=True):
            for family, run in subject.runs_by_family.items():
                if run is None:
                    continue
                if not family:
                    names.append(name)
                elif len(self.subjects) == 1:
                    names.append(family)
                else:
                    names.append(f"{family} · {name}")
        return names

    def groups(self) -> list[str]:
        """Return the heading over each run in a list: its size if it is a check's, else ''."""
        groups = []
        for subject in self.subjects:
            is_check = subject.families.kind == "check"
            for family, run in subject.runs_by_family.items():
                if run is not None:
                    groups.append(size_in(family) if is_check else "")
        return groups

    def places(self, number: int) -> dict[str, int]:
        """Return the position among all runs of each started family of a subject."""
        names = [
            family
            for family, run in self.subjects[number].runs_by_family.items()
            if run is not None
        ]
        return {family: self.first_runs[number] + index for index, family in enumerate(names)}

    def suites(self) -> list[int]:
        """Return the numbers of the subjects that have several families."""
        return [
            number for number, subject in enumerate(self.subjects) if not subject.families.is_plain
        ]

    def pairs(self) -> Iterator[tuple[int, int, str]]:
        """Yield pairs of runs that can be compared, and a name for each pair.

        Each family of the first subject is paired with the family of the same name of every other
        subject. A run is not paired with a suite.
        """
        for number in range(1, len(self.subjects)):
            if self.subjects[number].families.is_plain != self.subjects[0].families.is_plain:
                continue

            first_places, places = self.places(0), self.places(number)
            change = f"{self.names[0]} \N{MINUS SIGN} {self.names[number]}"
            for family in first_places:
                if family in places:
                    name = f"{family}: {change}" if family else change
                    yield first_places[family], places[family], name


def make_sheets(
    page_runs: PageRuns, differences: Sequence[Mapping[str, Any]], rules: tuple[str, ...]
) -> list[Sheet]:
    """Return a sheet of all subjects, then one of each subject with several families."""
    sheets = [_suite_sheet(page_runs, number, rules) for number in page_runs.suites()]
    if len(page_runs.subjects) > 1:
        return [_sheet_of_all(page_runs, differences, rules), *sheets]
    return sheets


def order_views(
    page_runs: PageRuns, sheets: Sequence[Sheet], differences: Sequence[Mapping[str, Any]]
) -> list[list[Any]]:
    """Return (kind, index) of each view, the default view first.

    For exactly two runs the default is the difference. Else it is the first sheet or, without
    sheets, the first run.
    """
    changes = [
        ["difference", number]
        for number, difference in enumerate(differences)
        if not difference["refused"]
    ]
    sheet_views = [["sheet", number] for number in range(len(sheets))]
    run_views = [["run", number] for number in range(len(page_runs.runs))]

    are_two_runs = len(page_runs.subjects) == 2 and all(
        subject.families.is_plain for subject in page_runs.subjects
    )
    if are_two_runs:
        return [*changes, *sheet_views, *run_views]
    return [*sheet_views, *run_views, *changes]


def _sheet_of_all(
    page_runs: PageRuns, differences: Sequence[Mapping[str, Any]], rules: tuple[str, ...]
) -> Sheet:
    """Return a sheet with a curve and a row for each subject, and for two suites the verdict."""
    comparison, suites = _suite_comparison(page_runs), page_runs.suites()
    lines = tuple(
        _subject_line(page_runs, number, rules) for number in range(len(page_runs.subjects))
    )
    heads = ("run", "mean, %", "95 %, n", f"effective length ({rules[0]})", "missing")
    rows = tuple(
        Row(dict(zip(heads, _subject_row(subject, line), strict=True)), to=line.name)
        for subject, line in zip(page_runs.subjects, lines, strict=True)
    )
    columns = tuple(Column(head, head, FIGURES) for head in heads)
    views = {
        name: ["sheet", 1 + suites.index(number)]
        if number in suites
        else ["run", page_runs.first_runs[number]]
        for number, name in enumerate(page_runs.names)
    }
    refusals = [Fact(said=line) for line in _refusals(page_runs, differences)]
    report = Report(
        "runs",
        _title(page_runs, comparison),
        parts=(Table("", columns, rows), *refusals),
        chart=lines,
        brief=f"{len(lines)} runs",
    )
    name = "Verdict" if comparison and not comparison["refused"] else "Curves"
    return to_sheet(
        report, views, key="all", name=name, rule=rules[0], first="curves", comparison=comparison
    )


def _title(page_runs: PageRuns, comparison: dict[str, Any] | None) -> str:
    if comparison and not comparison["refused"]:
        return f"{page_runs.names[1]} against {page_runs.names[0]}"
    return (
        " · ".join(page_runs.names) if len(page_runs.names) < 4 else f"{len(page_runs.names)} runs"
    )


def _subject_line(page_runs: PageRuns, number: int, rules: tuple[str, ...]) -> Line:
    subject, rule = page_runs.subjects[number], parse_rule(rules[0])
    if not subject.families.is_plain:
        scores = scores_of(subject.families, subject.runs_by_family)
        return Line(page_runs.names[number], scores.means(), scores.effective(rule))
    (line,) = family_lines(subject.runs_by_family)
    run = subject.runs[0]
    sought = seek_result_of(run)
    effective = effective_of(sought, rule) if sought else effective_length(run.cube, rule)
    return replace(line, name=page_runs.names[number], effective=effective)


def _subject_row(subject: Subject, line: Line) -> list[str]:
    """Return a subject's name, mean, interval, effective length, and number of missing trials."""
    mean = overall_of(subject.families, subject.runs_by_family)
    if subject.families.is_plain:
        map = subject.runs[0].map
        interval = "" if mean is None else interval_behind(map.total)
        certainty = f"{interval} {n_label(map.n, counted=map.counted)}".strip()
    elif report := finding_report(subject.families, subject.runs_by_family):
        certainty = report.verdict.word if report.verdict else "-"
    else:
        certainty = f"{score_name(subject.families)} of {len(subject.runs)} families"
    score = score_label(None if mean is None else mean.score)
    effective = "-" if line.effective is None else effective_label(line.effective)
    missing = sum(run.map.missing for run in subject.runs)
    return [line.name, score, certainty, effective, f"{missing:,}"]


def _suite_comparison(page_runs: PageRuns) -> dict[str, Any] | None:
    """Return the comparison of two suites on the mean of their families, or None for other runs.

    The comparison of two plain runs is in the difference.
    """
    if len(page_runs.subjects) != 2 or any(
        subject.families.is_plain for subject in page_runs.subjects
    ):
        return None
    first, second = page_runs.subjects
    pairs = {}
    for name, run in first.runs_by_family.items():
        other_run = second.runs_by_family.get(name)
        if run is not None and other_run is not None:
            pairs[name] = run, other_run
    try:
        comparison, names = compare_runs(first.families, second.families, pairs)
    except NeedlemapError as error:
        return {"refused": hidden(str(error))}
    return comparison_payload(comparison, names)


def _refusals(page_runs: PageRuns, differences: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line that names the runs that could not be compared, if there are any.

    The reasons are at the end of the page.
    """
    names = page_runs.run_names()
    refused_names = [names[difference["b"]] for difference in differences if difference["refused"]]
    if not refused_names:
        return []
    others = ", ".join(refused_names) if len(refused_names) < 4 else f"{len(refused_names)} runs"
    return [f"Not compared with {names[0]}, as they asked or scored something else: {others}."]


def _suite_sheet(page_runs: PageRuns, number: int, rules: tuple[str, ...]) -> Sheet:
    """Return the sheet of a suite, or of a seek, a check or an ab, which have no mean."""
    subject, subject_name = page_runs.subjects[number], page_runs.names[number]
    families, read = subject.families, subject.runs_by_family
    report = finding_report(families, read) or suite_report(families, read, glance=rules[0])
    kind = f"suite {families.suite}" if families.kind == "suite" else families.kind
    title = f"{kind} · {subject_name}"
    report = replace(report, title=title)
    views = {name: ["run", place] for name, place in page_runs.places(number).items()}
    name = kind if len(page_runs.subjects) == 1 else title
    if report.verdict:
        # A family may be called as its kind is: two tabs said "storm".
        name = "Verdict" if len(page_runs.subjects) == 1 else f"Verdict: {title}"
    return to_sheet(report, views, key=f"suite {families.path}", name=name, rule=rules[0])
