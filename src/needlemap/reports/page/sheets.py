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
from needlemap.reports.kept import kept_report
from needlemap.reports.labels import (
    effective_label,
    interval_behind,
    n_label,
    score_label,
    unique_names,
)
from needlemap.reports.page.payload import told_comparison
from needlemap.reports.pairing import compare_runs
from needlemap.reports.renderers.page import to_sheet
from needlemap.reports.report import FIGURES, Column, Fact, Line, Report, Row, Table
from needlemap.reports.suite_report import family_lines, suite_report
from needlemap.reports.summary import overall_of, score_name, scores_of
from needlemap.secrets import hidden
from needlemap.stats.effective import effective_length, parse_rule

Sheet = dict[str, Any]
# Named in a title.
MOST_MODELS = 3


@dataclass(frozen=True, slots=True)
class Subject:
    """A run that the page is about, with its families.

    read: by name, None for one that was not started.
    """

    families: Families
    read: Mapping[str, Loaded | None]

    @classmethod
    def of(cls, run: Loaded | Subject) -> Subject:
        """Return a subject; a run with one family is the base case."""
        return run if isinstance(run, Subject) else cls(Families(Path(run.path)), {"": run})

    @property
    def runs(self) -> list[Loaded]:
        """Return the families that were started."""
        return [run for run in self.read.values() if run is not None]

    @property
    def model(self) -> str:
        """Return what answered; several names if families had several models."""
        models = list(dict.fromkeys(run.map.model for run in self.runs))
        if len(models) > MOST_MODELS:
            return f"{len(models)} models"
        return ", ".join(models) or "no model yet"


def size_in(family: str) -> str:
    """Return the size that the name of a check's family ends with; '' if it has none."""
    size = family.rpartition("-")[2]
    is_size = size.isascii() and size.isdecimal() and len(size) <= len(str(MOST_TOKENS))
    return f"{short_size(int(size))} tokens" if is_size else ""


@dataclass(frozen=True, slots=True)
class PageRuns:
    """All subjects of a page with their names.

    first: where each one's runs start among all runs.
    """

    subjects: tuple[Subject, ...]
    names: tuple[str, ...]
    first: tuple[int, ...]

    @classmethod
    def of(cls, runs: Sequence[Loaded | Subject]) -> PageRuns:
        """Name the subjects, and keep them apart by folder if models repeat."""
        subjects = tuple(map(Subject.of, runs))
        names = unique_names(
            [subject.model for subject in subjects], [subject.families.path for subject in subjects]
        )
        first = (
            sum(len(subject.runs) for subject in subjects[:index]) for index in range(len(subjects))
        )
        return cls(subjects, tuple(names), tuple(first))

    @property
    def runs(self) -> list[Loaded]:
        """Return all families of all subjects, in their order."""
        return [run for subject in self.subjects for run in subject.runs]

    def run_names(self) -> list[str]:
        """Return a family's own name, with its model if there are several subjects."""
        names = []
        for subject, name in zip(self.subjects, self.names, strict=True):
            for family, run in subject.read.items():
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
        """Return the heading under which a list has each run: a check's ways by their size."""
        groups = []
        for subject in self.subjects:
            is_check = subject.families.kind == "check"
            for family, run in subject.read.items():
                if run is not None:
                    groups.append(size_in(family) if is_check else "")
        return groups

    def places(self, number: int) -> dict[str, int]:
        """Return where among all runs each started family of a subject is."""
        started = [family for family, run in self.subjects[number].read.items() if run is not None]
        return {family: self.first[number] + index for index, family in enumerate(started)}

    def suites(self) -> list[int]:
        """Return which subjects have several families."""
        return [
            number for number, subject in enumerate(self.subjects) if not subject.families.is_plain
        ]

    def pairs(self) -> Iterator[tuple[int, int, str]]:
        """Yield pairs of runs that may be alike, and a name for each pair.

        They are families of one name, of the first subject and another.
        """
        for number in range(1, len(self.subjects)):
            if self.subjects[number].families.is_plain == self.subjects[0].families.is_plain:
                first_places, other_places = self.places(0), self.places(number)
                change = f"{self.names[0]} \N{MINUS SIGN} {self.names[number]}"
                for family in [family for family in first_places if family in other_places]:
                    name = f"{family}: {change}" if family else change
                    yield first_places[family], other_places[family], name


def make_sheets(
    cast: PageRuns, differences: Sequence[Mapping[str, Any]], rules: tuple[str, ...]
) -> list[Sheet]:
    """Return a sheet of all subjects, then one of each subject with several families."""
    sheets = [_several(cast, number, rules) for number in cast.suites()]
    if len(cast.subjects) > 1:
        return [_together(cast, differences, rules), *sheets]
    return sheets


def order_views(
    cast: PageRuns, sheets: Sequence[Sheet], differences: Sequence[Mapping[str, Any]]
) -> list[list[Any]]:
    """Return kind and number of what the page shows, first what was asked for.

    Of one run it is its map, of two the difference, of several all of them.
    """
    changes = [
        ["difference", number]
        for number, difference in enumerate(differences)
        if not difference["refused"]
    ]
    sheet_views = [["sheet", number] for number in range(len(sheets))]
    run_views = [["run", number] for number in range(len(cast.runs))]
    are_two_runs = len(cast.subjects) == 2 and all(
        subject.families.is_plain for subject in cast.subjects
    )
    return (
        [*changes, *sheet_views, *run_views]
        if are_two_runs
        else [*sheet_views, *run_views, *changes]
    )


def _together(
    cast: PageRuns, differences: Sequence[Mapping[str, Any]], rules: tuple[str, ...]
) -> Sheet:
    """Return all subjects, a curve and a row each; of two suites also which is better."""
    comparison, suites = _compared(cast), cast.suites()
    lines = tuple(_subject_line(cast, number, rules) for number in range(len(cast.subjects)))
    heads = ("run", "mean, %", "95 %, n", f"effective length ({rules[0]})", "missing")
    rows = tuple(
        Row(dict(zip(heads, _subject_row(subject, line), strict=True)), to=line.name)
        for subject, line in zip(cast.subjects, lines, strict=True)
    )
    columns = tuple(Column(head, head, FIGURES) for head in heads)
    views = {
        name: ["sheet", 1 + suites.index(number)]
        if number in suites
        else ["run", cast.first[number]]
        for number, name in enumerate(cast.names)
    }
    refusals = [Fact(said=line) for line in _refusals(cast, differences)]
    report = Report(
        "runs",
        _title(cast, comparison),
        parts=(Table("", columns, rows), *refusals),
        chart=lines,
        brief=f"{len(lines)} runs",
    )
    name = "Verdict" if comparison and not comparison["refused"] else "Curves"
    return to_sheet(
        report, views, key="all", name=name, rule=rules[0], first="curves", comparison=comparison
    )


def _title(cast: PageRuns, compared: dict[str, Any] | None) -> str:
    if compared and not compared["refused"]:
        return f"{cast.names[1]} against {cast.names[0]}"
    return " · ".join(cast.names) if len(cast.names) < 4 else f"{len(cast.names)} runs"


def _subject_line(cast: PageRuns, number: int, rules: tuple[str, ...]) -> Line:
    subject, rule = cast.subjects[number], parse_rule(rules[0])
    if not subject.families.is_plain:
        scores = scores_of(subject.families, subject.read)
        return Line(cast.names[number], scores.means(), scores.effective(rule))
    (line,) = family_lines(subject.read)
    return replace(
        line, name=cast.names[number], effective=effective_length(subject.runs[0].cube, rule)
    )


def _subject_row(subject: Subject, line: Line) -> list[str]:
    """Return name, mean, how sure, how far, and what is missing."""
    if subject.families.is_plain:
        map = subject.runs[0].map
        certainty = f"{interval_behind(map.total)} {n_label(map.n, counted=map.counted)}".strip()
    else:
        certainty = f"{score_name(subject.families)} of {len(subject.runs)} families"
    mean = overall_of(subject.families, subject.read)
    score = score_label(None if mean is None else mean.score)
    effective = "-" if line.effective is None else effective_label(line.effective)
    missing = sum(run.map.missing for run in subject.runs)
    return [line.name, score, certainty, effective, f"{missing:,}"]


def _compared(cast: PageRuns) -> dict[str, Any] | None:
    """Return the verdict of two suites on the mean of their families.

    That of two plain runs is the difference's.
    """
    if len(cast.subjects) != 2 or any(subject.families.is_plain for subject in cast.subjects):
        return None
    first, second = cast.subjects
    pairs = {}
    for name, run in first.read.items():
        other = second.read.get(name)
        if run is not None and other is not None:
            pairs[name] = run, other
    try:
        comparison, names = compare_runs(first.families, second.families, pairs)
    except NeedlemapError as error:
        return {"refused": hidden(str(error))}
    return told_comparison(comparison, names)


def _refusals(cast: PageRuns, differences: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the runs that could not be compared, in one line.

    The reasons stand at the end of the page.
    """
    names = cast.run_names()
    refused = [names[difference["b"]] for difference in differences if difference["refused"]]
    if not refused:
        return []
    others = ", ".join(refused) if len(refused) < 4 else f"{len(refused)} runs"
    return [f"Not compared with {names[0]}, as they asked or scored something else: {others}."]


def _several(cast: PageRuns, number: int, rules: tuple[str, ...]) -> Sheet:
    """Return a suite; or what a seek, a check or an ab asked, which has no mean."""
    subject, subject_name = cast.subjects[number], cast.names[number]
    families, read = subject.families, subject.read
    report = kept_report(families, read) or suite_report(families, read, glance=rules[0])
    kind = f"suite {families.suite}" if families.kind == "suite" else families.kind
    title = f"{kind} · {subject_name}"
    report = replace(report, title=title)
    views = {name: ["run", place] for name, place in cast.places(number).items()}
    name = kind if len(cast.subjects) == 1 else title
    if report.verdict:
        # A family may be called as its kind is: two tabs said "storm".
        name = "Verdict" if len(cast.subjects) == 1 else f"Verdict: {title}"
    return to_sheet(report, views, key=f"suite {families.path}", name=name, rule=rules[0])
