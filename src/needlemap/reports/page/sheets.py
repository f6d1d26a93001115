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
MOST_MODELS = 3  # named in a title


@dataclass(frozen=True, slots=True)
class Subject:
    """A run that the page is about, with its families. read: by name, None where one was not
    begun."""

    families: Families
    read: Mapping[str, Loaded | None]

    @classmethod
    def of(cls, run: Loaded | Subject) -> Subject:
        """A run with one family is the base case."""
        return run if isinstance(run, Subject) else cls(Families(Path(run.path)), {"": run})

    @property
    def runs(self) -> list[Loaded]:
        """The families that were begun."""
        return [run for run in self.read.values() if run is not None]

    @property
    def model(self) -> str:
        """What answered; several names where families had several models."""
        models = list(dict.fromkeys(run.map.model for run in self.runs))
        if len(models) > MOST_MODELS:
            return f"{len(models)} models"
        return ", ".join(models) or "no model yet"


def size_in(family: str) -> str:
    """The size that the name of a check's family ends with; '' where a stranger's does not."""
    size = family.rpartition("-")[2]
    is_size = size.isascii() and size.isdecimal() and len(size) <= len(str(MOST_TOKENS))
    return f"{short_size(int(size))} tokens" if is_size else ""


@dataclass(frozen=True, slots=True)
class PageRuns:
    """All subjects of a page with their names. first: where each one's runs begin among all
    runs."""

    subjects: tuple[Subject, ...]
    names: tuple[str, ...]
    first: tuple[int, ...]

    @classmethod
    def of(cls, runs: Sequence[Loaded | Subject]) -> PageRuns:
        """Names are told apart by folder where models repeat."""
        subjects = tuple(map(Subject.of, runs))
        names = unique_names(
            [each.model for each in subjects], [each.families.path for each in subjects]
        )
        first = (sum(len(each.runs) for each in subjects[:at]) for at in range(len(subjects)))
        return cls(subjects, tuple(names), tuple(first))

    @property
    def runs(self) -> list[Loaded]:
        """All families of all subjects, in their order."""
        return [run for subject in self.subjects for run in subject.runs]

    def run_names(self) -> list[str]:
        """A family by its own name, and by its model where that does not go without saying."""
        return [
            name if not family else family if len(self.subjects) == 1 else f"{family} · {name}"
            for subject, name in zip(self.subjects, self.names, strict=True)
            for family, run in subject.read.items()
            if run is not None
        ]

    def groups(self) -> list[str]:
        """Under which words a list has each of them: a check's ways by their size."""
        return [
            size_in(family) if checks else ""
            for subject in self.subjects
            for checks in [subject.families.kind == "check"]
            for family, run in subject.read.items()
            if run is not None
        ]

    def places(self, at: int) -> dict[str, int]:
        """Where among all runs each begun family of a subject is."""
        begun = [family for family, run in self.subjects[at].read.items() if run is not None]
        return {family: self.first[at] + place for place, family in enumerate(begun)}

    def suites(self) -> list[int]:
        """Which subjects have several families."""
        return [at for at, subject in enumerate(self.subjects) if not subject.families.is_plain]

    def pairs(self) -> Iterator[tuple[int, int, str]]:
        """Runs that may be alike: families of one name, of the first subject and another; and
        a name."""
        for at in range(1, len(self.subjects)):
            if self.subjects[at].families.is_plain == self.subjects[0].families.is_plain:
                mine, theirs = self.places(0), self.places(at)
                change = f"{self.names[0]} \N{MINUS SIGN} {self.names[at]}"
                for family in [family for family in mine if family in theirs]:
                    name = f"{family}: {change}" if family else change
                    yield mine[family], theirs[family], name


def make_sheets(
    cast: PageRuns, differences: Sequence[Mapping[str, Any]], rules: tuple[str, ...]
) -> list[Sheet]:
    """Of several subjects one that has them all, then one of each subject with several
    families."""
    together = [_together(cast, differences, rules)] if len(cast.subjects) > 1 else []
    return [*together, *(_several(cast, at, rules) for at in cast.suites())]


def order_views(
    cast: PageRuns, sheets: Sequence[Sheet], differences: Sequence[Mapping[str, Any]]
) -> list[list[Any]]:
    """Kind and number of what the page shows, the first being what was asked: of one run its
    map, of two the difference, of several all of them."""
    changes = [["difference", at] for at, found in enumerate(differences) if not found["refused"]]
    parts = [["sheet", at] for at in range(len(sheets))]
    runs = [["run", at] for at in range(len(cast.runs))]
    two = len(cast.subjects) == 2 and all(subject.families.is_plain for subject in cast.subjects)
    return [*changes, *parts, *runs] if two else [*parts, *runs, *changes]


def _together(
    cast: PageRuns, differences: Sequence[Mapping[str, Any]], rules: tuple[str, ...]
) -> Sheet:
    """All subjects: a curve and a row each; of two suites also which is better."""
    compared, several = _compared(cast), cast.suites()
    lines = tuple(_subject_line(cast, at, rules) for at in range(len(cast.subjects)))
    heads = ("run", "mean, %", "95 %, n", f"effective length ({rules[0]})", "missing")
    rows = tuple(
        Row(dict(zip(heads, _subject_row(subject, line), strict=True)), to=line.name)
        for subject, line in zip(cast.subjects, lines, strict=True)
    )
    columns = tuple(Column(head, head, FIGURES) for head in heads)
    views = {
        name: ["sheet", 1 + several.index(at)] if at in several else ["run", cast.first[at]]
        for at, name in enumerate(cast.names)
    }
    report = Report(
        "runs",
        _title(cast, compared),
        (Table("", columns, rows), *(Fact(said=line) for line in _refusals(cast, differences))),
        chart=lines,
        brief=f"{len(lines)} runs",
    )
    name = "Verdict" if compared and not compared["refused"] else "Curves"
    return to_sheet(
        report, views, key="all", name=name, rule=rules[0], first="curves", comparison=compared
    )


def _title(cast: PageRuns, compared: dict[str, Any] | None) -> str:
    if compared and not compared["refused"]:
        return f"{cast.names[1]} against {cast.names[0]}"
    return " · ".join(cast.names) if len(cast.names) < 4 else f"{len(cast.names)} runs"


def _subject_line(cast: PageRuns, at: int, rules: tuple[str, ...]) -> Line:
    subject, rule = cast.subjects[at], parse_rule(rules[0])
    if not subject.families.is_plain:
        scores = scores_of(subject.families, subject.read)
        return Line(cast.names[at], scores.means(), scores.effective(rule))
    (line,) = family_lines(subject.read)
    return replace(
        line, name=cast.names[at], effective=effective_length(subject.runs[0].cube, rule)
    )


def _subject_row(subject: Subject, line: Line) -> list[str]:
    """Name, mean, how sure, how far, what is missing."""
    if subject.families.is_plain:
        map = subject.runs[0].map
        sure = f"{interval_behind(map.total)} {n_label(map.n, counted=map.counted)}".strip()
    else:
        sure = f"{score_name(subject.families)} of {len(subject.runs)} families"
    mean = overall_of(subject.families, subject.read)
    score = score_label(None if mean is None else mean.score)
    holds = "-" if line.effective is None else effective_label(line.effective)
    missing = sum(run.map.missing for run in subject.runs)
    return [line.name, score, sure, holds, f"{missing:,}"]


def _compared(cast: PageRuns) -> dict[str, Any] | None:
    """The verdict of two suites on the mean of their families; of two plain runs it is the
    difference's."""
    if len(cast.subjects) != 2 or any(subject.families.is_plain for subject in cast.subjects):
        return None
    first, second = cast.subjects
    found = {name: (run, second.read.get(name)) for name, run in first.read.items()}
    both = {name: (a, b) for name, (a, b) in found.items() if a is not None and b is not None}
    try:
        comparison, names = compare_runs(first.families, second.families, both)
    except NeedlemapError as error:
        return {"refused": hidden(str(error))}
    return told_comparison(comparison, names)


def _refusals(cast: PageRuns, differences: Sequence[Mapping[str, Any]]) -> list[str]:
    """The runs that could not be compared, in one line. The reasons stand at the end of the
    page."""
    names = cast.run_names()
    refused = [names[each["b"]] for each in differences if each["refused"]]
    if not refused:
        return []
    others = ", ".join(refused) if len(refused) < 4 else f"{len(refused)} runs"
    return [f"Not compared with {names[0]}, as they asked or scored something else: {others}."]


def _several(cast: PageRuns, at: int, rules: tuple[str, ...]) -> Sheet:
    """A suite; or what a seek, a check or an ab asked, which has no mean."""
    subject, named = cast.subjects[at], cast.names[at]
    families, read = subject.families, subject.read
    report = kept_report(families, read) or suite_report(families, read, glance=rules[0])
    kind = f"suite {families.suite}" if families.kind == "suite" else families.kind
    title = f"{kind} · {named}"
    report = replace(report, title=title)
    views = {name: ["run", place] for name, place in cast.places(at).items()}
    name = kind if len(cast.subjects) == 1 else title
    if report.verdict:
        # A family may be called as its kind is: two tabs said "storm".
        name = "Verdict" if len(cast.subjects) == 1 else f"Verdict: {title}"
    return to_sheet(report, views, key=f"suite {families.path}", name=name, rule=rules[0])
