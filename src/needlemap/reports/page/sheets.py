"""What a page of more than one experiment opens with: sheets of curves, a table and words.

A sheet is texts and curves and knows nothing of how it is drawn, so that whatever comes to a
verdict and a table (runs side by side, a suite's families, a check's probes) looks and works alike.
A run's own map is no sheet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.maps.effective import Effective, Mean, effective_length, parse_rule
from needlemap.maps.intervals import ClusterMean
from needlemap.records.families import Families
from needlemap.records.loaded import Loaded
from needlemap.reports.kept import kept_report
from needlemap.reports.labels import (
    effective_label,
    interval_behind,
    length_labels,
    n_label,
    score_label,
    tokens_label,
    told_apart,
)
from needlemap.reports.page.payload import tokens_of, told_comparison
from needlemap.reports.page.trials import mean_columns, share
from needlemap.reports.paired import compare_runs
from needlemap.reports.renderers.page import to_sheet
from needlemap.reports.results import sought_sheet
from needlemap.reports.summary import (
    FAMILY_RULES,
    NO_MEAN,
    count_label,
    effective_by_rule,
    mean_length_lines,
    mean_of,
    scores_of,
)
from needlemap.secrets import hidden

Sheet = dict[str, Any]


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
        return ", ".join(dict.fromkeys(run.map.model for run in self.runs)) or "no model yet"


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
        names = told_apart(
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

    def places(self, at: int) -> dict[str, int]:
        """Where among all runs each begun family of a subject is."""
        begun = [family for family, run in self.subjects[at].read.items() if run is not None]
        return {family: self.first[at] + place for place, family in enumerate(begun)}

    def suites(self) -> list[int]:
        """Which subjects have several families."""
        return [at for at, subject in enumerate(self.subjects) if not subject.families.is_plain]

    def pairs(self) -> Iterator[tuple[int, int, str]]:
        """Runs that may be alike: families of one name, of the first subject and another; and a
        name."""
        for at in range(1, len(self.subjects)):
            if self.subjects[at].families.is_plain == self.subjects[0].families.is_plain:
                mine, theirs = self.places(0), self.places(at)
                change = f"{self.names[at]} \N{MINUS SIGN} {self.names[0]}"
                for family in [family for family in mine if family in theirs]:
                    name = f"{family}: {change}" if family else change
                    yield mine[family], theirs[family], name


def curve(
    name: str,
    means: Mapping[int, ClusterMean | Mean | None],
    effective: Effective | None,
    place: int | None = None,
) -> dict[str, Any]:
    """Means by length under a name, and how far they hold: in words, and in tokens where that is a
    place on it. place: of the run on its page, None of a mean over families."""
    holds = "-" if effective is None else effective_label(effective)
    tokens = None if effective is None else tokens_of(effective)
    at = {"name": name, "run": place, "at": list(means)}
    return {**at, **mean_columns(means.values()), "holds": holds, "tokens": tokens}


def run_curve(name: str, run: Loaded, place: int, effective: Effective | None) -> dict[str, Any]:
    """The same of a run with one family: all its lengths, scored or not."""
    return curve(
        name, {length: run.map.margins.get(length) for length in run.map.lengths}, effective, place
    )


def make_sheets(
    cast: PageRuns, differences: Sequence[Mapping[str, Any]], rules: tuple[str, ...]
) -> list[Sheet]:
    """Of several subjects one that has them all, then one of each subject with several families."""
    together = [_together(cast, differences, rules)] if len(cast.subjects) > 1 else []
    return [*together, *(_several(cast, at, rules) for at in cast.suites())]


def order_views(
    cast: PageRuns, sheets: Sequence[Sheet], differences: Sequence[Mapping[str, Any]]
) -> list[list[Any]]:
    """Kind and number of what the page shows, the first being what was asked: of one run its map,
    of two the difference, of several all of them."""
    changes = [["difference", at] for at, found in enumerate(differences) if not found["refused"]]
    parts = [["sheet", at] for at in range(len(sheets))]
    runs = [["run", at] for at in range(len(cast.runs))]
    two = len(cast.subjects) == 2 and all(subject.families.is_plain for subject in cast.subjects)
    return [*changes, *parts, *runs] if two else [*parts, *runs, *changes]


def _together(
    cast: PageRuns, differences: Sequence[Mapping[str, Any]], rules: tuple[str, ...]
) -> Sheet:
    """All subjects: a curve and a row each; of two suites also which is better."""
    lines = [_subject_line(cast, at, rules) for at in range(len(cast.subjects))]
    compared = _compared(cast)
    head = ["Run", "Mean, %", "95 %, n", f"Effective length ({rules[0]})", "Missing"]
    return {
        "key": "all",
        "name": "Verdict" if compared and not compared["refused"] else "Curves",
        "title": _title(cast, compared),
        "says": f"{len(lines)} runs",
        "rule": rules[0],
        "lengths": _lengths(lines),
        "first": "curves",
        "readings": [],
        "comparison": compared,
        "curves": lines,
        "table": {
            "head": head,
            "rows": [_subject_row(cast, at, lines[at]) for at in range(len(lines))],
        },
        "lines": _refusals(cast, differences),
    }


def _title(cast: PageRuns, compared: dict[str, Any] | None) -> str:
    if compared and not compared["refused"]:
        return f"{cast.names[1]} against {cast.names[0]}"
    return " · ".join(cast.names) if len(cast.names) < 4 else f"{len(cast.names)} runs"


def _subject_line(cast: PageRuns, at: int, rules: tuple[str, ...]) -> dict[str, Any]:
    subject, rule = cast.subjects[at], parse_rule(rules[0])
    if not subject.families.is_plain:
        scores = scores_of(subject.read)
        return curve(cast.names[at], scores.means(), scores.effective(rule))
    (run,) = subject.runs
    return run_curve(cast.names[at], run, cast.first[at], effective_length(run.cube, rule))


def _lengths(curves: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """All lengths of some curves, with their labels."""
    labels = length_labels(sorted({length for curve in curves for length in curve["at"]}))
    return [[length, label] for length, label in labels.items()]


def _subject_row(cast: PageRuns, at: int, line: Mapping[str, Any]) -> dict[str, Any]:
    """Name, mean, how sure, how far, what is missing."""
    subject, missing = cast.subjects[at], sum(run.map.missing for run in cast.subjects[at].runs)
    if subject.families.is_plain:
        map, to = subject.runs[0].map, ["run", cast.first[at]]
        sure = f"{interval_behind(map.total)} {n_label(map.n, counted=map.counted)}".strip()
        score = map.overall
    else:
        score, to = mean_of(scores_of(subject.read).means()), ["sheet", 1 + cast.suites().index(at)]
        sure = f"mean of {len(subject.runs)} families"
    texts = [score_label(score), sure, line["holds"], f"{missing:,}"]
    return _row(cast.names[at], texts, to, at)


def _row(
    name: str,
    cells: Iterable[str | list[Any]],
    to: list[Any] | None = None,
    line: int | None = None,
) -> dict[str, Any]:
    """A row of a table: a name, then texts, or a text with the share that colours it. to: the view
    that it leads to. line: its curve."""
    shown = [[each, None] if isinstance(each, str) else each for each in cells]
    return {"to": to, "line": line, "cells": [name, *shown]}


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
    """What could not be compared, in one line; the reasons are told below the page."""
    names = cast.run_names()
    refused = [names[each["b"]] for each in differences if each["refused"]]
    if not refused:
        return []
    others = ", ".join(refused) if len(refused) < 4 else f"{len(refused)} runs"
    return [f"Not compared with {names[0]}, as they asked or scored something else: {others}."]


def _several(cast: PageRuns, at: int, rules: tuple[str, ...]) -> Sheet:
    """A suite; what a seek, a check or an ab asked has no mean, and comes after what was found."""
    families, read = cast.subjects[at].families, cast.subjects[at].read
    sheet = _suite(cast, at, rules)
    alone = sheet | {"curves": sheet["curves"][1:]}  # without their mean
    if sought := sought_sheet(read, cast.places(at)):
        return alone | sought
    if report := kept_report(families, read):
        found = alone | to_sheet(report, cast.places(at))
        if report.kind == "check":  # its ways differ by a few tokens, which labels need not tell
            found["lengths"] = [[n, tokens_label(n)] for n, _ in found["lengths"]]
        return found
    return sheet


def _suite(cast: PageRuns, at: int, rules: tuple[str, ...]) -> Sheet:
    """A row and a curve a family, and their mean."""
    subject = cast.subjects[at]
    kind, named = subject.families.kind, subject.families.suite
    suite = f"suite {named}" if kind == "suite" else kind
    scores, places = scores_of(subject.read), cast.places(at)
    means = scores.means()
    effective = scores.effective(parse_rule(rules[0]))
    runs = {name: run for name, run in subject.read.items() if run is not None}
    families = [run_curve(name, run, places[name], None) for name, run in runs.items()]
    title = f"{suite} · {cast.names[at]}"
    curves = [{**curve("mean", means, effective), "main": True}, *families]
    return {
        "key": f"suite {subject.families.path}",
        "name": suite if len(cast.subjects) == 1 else title,
        "title": title,
        "says": f"{len(subject.read)} families, mean {score_label(mean_of(means))}",
        "rule": rules[0],
        "lengths": _lengths(curves),
        "first": "table",
        "readings": _readings(subject, means, effective),
        "comparison": None,
        "curves": curves,
        "table": _family_table(subject, means, places),
        "lines": mean_length_lines(means, effective_by_rule(scores, FAMILY_RULES))
        if means
        else [NO_MEAN],
    }


def _readings(
    subject: Subject, means: Mapping[int, Mean], effective: Effective | None
) -> list[list[str]]:
    """Rows of word, value, note, kind."""
    waiting = len(subject.read) - len(subject.runs)
    score = f"{score_label(mean_of(means))} %" if means else "none yet"
    rows = [["Mean over families", score, "each family counts the same", "main"]]
    if effective is not None:
        note = f"{effective.rule.name}, of the mean"
        rows.append(["Effective length", effective_label(effective), note, ""])
    return [
        *rows,
        ["Families", str(len(subject.read)), f"{waiting} not begun" if waiting else "", ""],
    ]


def _family_table(
    subject: Subject, means: Mapping[int, Mean], places: Mapping[str, int]
) -> dict[str, Any]:
    """Scores by length of each family and of their mean."""
    lengths = sorted({length for run in subject.runs for length in run.map.lengths})
    rows = [_row("mean", [*_scored(means, lengths, mean_of(means)), ""], line=0)]
    for name, run in subject.read.items():
        scored = _scored(run.map.margins if run else {}, lengths, run.map.overall if run else None)
        line = 1 + list(places).index(name) if run else None
        rows.append(
            _row(name, [*scored, count_label(run)], ["run", places[name]] if run else None, line)
        )
    return {"head": ["Family", *length_labels(lengths).values(), "all", "n"], "rows": rows}


def _scored(
    means: Mapping[int, Any], lengths: Sequence[int], overall: float | None
) -> list[str | list[Any]]:
    """The scores at some lengths and of all, each with what colours it."""
    scores = [*(means[length].score if length in means else None for length in lengths), overall]
    return [[score_label(score), share(score)] for score in scores]
