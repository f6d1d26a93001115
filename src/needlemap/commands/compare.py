"""`needlemap compare`: two runs on the same trials, as text, JSON and JUnit, and an exit code."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from needlemap.errors import SettingsError
from needlemap.interop.imported import load_any
from needlemap.maps.comparison import Comparison
from needlemap.records.families import families_of
from needlemap.reports.comparison import answers_text, comparison_json, comparison_text, names_text
from needlemap.reports.paired import MARGIN, Both, Names, compare_runs
from needlemap.reports.verdict import OF_CODE, Case, State, judge_runs, margin_label, write_junit
from needlemap.text import printable, show, show_data

_RANKS = (0, 4, 1)  # exit codes of verdicts, the worst last


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of a comparison is wanted, as typed. margin, fail_if_worse: in points. fail_if_differ: in percent,
    how many answers may differ. labels: of both runs. sequential: by a gate, which may be looked at again.
    metric: of logs with several."""

    margin: float | None = None
    fail_if_worse: float | None = None
    on_undecided: str = "fail"
    answers: bool = False
    fail_if_differ: float | None = None
    labels: tuple[str, ...] = ()
    sequential: bool = False
    as_json: bool = False
    junit: Path | None = None
    metric: str = ""

    def __post_init__(self) -> None:
        """Raises SettingsError for what means nothing."""
        if None not in (self.margin, self.fail_if_worse) and self.margin != self.fail_if_worse:
            raise SettingsError("--fail-if-worse sets the margin. Give the same --margin, or leave it out.")
        if self.on_undecided not in ("fail", "pass"):
            raise SettingsError(f"--on-undecided takes fail or pass, got '{self.on_undecided}'.")
        if self.fail_if_differ is not None and not 0 <= self.fail_if_differ <= 100:
            raise SettingsError(
                f"--fail-if-answers-differ is in percent, from 0 to 100, got {self.fail_if_differ:g}."
            )

    @property
    def points(self) -> float:
        """The margin, from either flag."""
        return next((value for value in (self.margin, self.fail_if_worse) if value is not None), MARGIN)


@dataclass(frozen=True, slots=True)
class _Told:
    """A comparison as it is printed. case: its verdict; code: the exit code of that."""

    text: str
    plain: dict[str, Any]
    case: Case
    code: int


def compare_command(first: Path, second: Path, wanted: Wanted) -> int:
    """Compare and print; 0, or of a verdict that was asked for its code, the worst of several."""
    both = families_of(first), families_of(second)
    read = load_any(*both, wanted.labels, wanted.metric)
    for run in (run for two in read.values() for run in two):
        for note in run.notes:
            show(f"note: {printable(run.path)}: {printable(note)}", file=sys.stderr)
    comparison, names = compare_runs(*both, read, wanted.points)
    told = _gate(read, comparison, names, wanted) if wanted.sequential else _once(comparison, names, wanted)
    cases, codes = [told.case], [0 if wanted.fail_if_worse is None else told.code]
    if wanted.fail_if_differ is not None:
        case = same_answers(comparison, wanted.fail_if_differ)
        cases.append(case)
        codes.append(int(case.state == "fail"))
        told = replace(
            told, text=f"{told.text}{case.said}\n", plain=told.plain | {"answers_verdict": case.state}
        )
    show_data(f"{json.dumps(told.plain, indent=1, ensure_ascii=False)}\n" if wanted.as_json else told.text)
    if wanted.junit is not None:
        write_junit(wanted.junit, "compare", cases)
    return max(codes, key=_RANKS.index)


def _once(comparison: Comparison, names: Names, wanted: Wanted) -> _Told:
    """The verdict of one look."""
    text = comparison_text(comparison, names, wanted.answers)
    code = comparison.verdict.code(undecided_passes=wanted.on_undecided == "pass")
    plain = comparison_json(comparison, names, wanted.answers)
    return _Told(text, plain, _case(comparison.verdict.code(), text, wanted), code)


def _gate(read: Both, comparison: Comparison, names: Names, wanted: Wanted) -> _Told:
    """The verdict that may be looked at any time."""
    found = judge_runs(list(read.values()), comparison.margin)
    plain = {"a": names.first, "b": names.second, "differ": names.differ, **found.plain()}
    whole = comparison_json(comparison, names, wanted.answers)
    lines = [names_text(names), *answers_text(comparison, wanted.answers), found.text]
    text = printable("\n".join(lines)) + "\n"
    code = 0 if found.code == 4 and wanted.on_undecided == "pass" else found.code
    return _Told(text, plain | {"answers": whole["answers"]}, _case(found.code, text, wanted), code)


def _case(code: int, text: str, wanted: Wanted) -> Case:
    """A verdict for JUnit; text ends with it."""
    state = OF_CODE[code]
    name = f"no worse than {margin_label(wanted.points / 100)} points"
    state = "skipped" if state == "undecided" and wanted.on_undecided == "pass" else state
    return Case(name, state, text.splitlines()[-1], text)


def same_answers(comparison: Comparison, most: float) -> Case:
    """Whether at most so many percent of the answers differ. Raises SettingsError where there is none."""
    n = sum(each.n for each in comparison.answers)
    if not n:
        raise SettingsError("--fail-if-answers-differ needs answers, and the first run has none.")
    share = 100 * sum(each.differing for each in comparison.answers) / n
    state: State = "pass" if share <= most + 1e-9 else "fail"
    said = f"verdict on answers: {state} ({share:.1f} % differ, {most:g} % may)"
    text = "\n".join([*answers_text(comparison, whole=True), said])
    return Case(f"at most {most:g} % of the answers differ", state, said, text)
