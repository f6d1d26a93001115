"""`needlemap compare`: two runs that were asked. Is B no worse than A, and where to look."""

from __future__ import annotations

from pathlib import Path

from needlemap.commands.announce import show_finding
from needlemap.commands.arguments import CompareFlags, is_address
from needlemap.errors import SettingsError
from needlemap.records.families import families_of
from needlemap.reports.comparison import answers_text, comparison_report
from needlemap.reports.judgement import margin_label
from needlemap.reports.pairing import MARGIN, compare_runs, load_any
from needlemap.reports.report import Claim, Fact
from needlemap.stats.comparison import Comparison
from needlemap.stats.judging import Scope
from needlemap.stats.verdicts import NO_WORSE, WORSE, softened, worst_code
from needlemap.text import printable, tell


def scope_of(typed: str) -> Scope:
    """The scope that was typed."""
    return "new" if typed == "new" else "these"


def points_of(typed: CompareFlags) -> float:
    """The margin in points, from either flag. Raises SettingsError for what means nothing."""
    margin, fail_if_worse, percent = typed.margin, typed.fail_if_worse, typed.fail_if_answers_differ
    if None not in (margin, fail_if_worse) and margin != fail_if_worse:
        raise SettingsError(
            "--fail-if-worse sets the margin. Give the same --margin, or leave it out."
        )
    if percent is not None and not 0 <= percent <= 100:
        raise SettingsError(
            f"--fail-if-answers-differ is in percent, from 0 to 100, got {percent:g}."
        )
    return next((value for value in (margin, fail_if_worse) if value is not None), MARGIN)


def compare_command(first: Path, second: Path, typed: CompareFlags) -> int:
    """Compare and print; 0, or of a verdict that was asked for its code, the worst of
    several."""
    points = points_of(typed)
    if is_address(first) or is_address(second):
        raise SettingsError(
            "compare reads two runs' folders. Two servers: needlemap ab --arm a=http://... --arm "
            "b=http://..."
        )
    both = families_of(first), families_of(second)
    read = load_any(*both, tuple(typed.label or ()), typed.metric)
    for run in (run for two in read.values() for run in two):
        for note in run.notes:
            tell(f"note: {printable(run.path)}: {printable(note)}")
    comparison, names = compare_runs(
        *both, read, points, wanted=scope_of(typed.scope), sequential=typed.sequential
    )
    verdict, gates = comparison.verdict, typed.fail_if_worse is not None
    own = softened(verdict.code, typed.on_undecided)
    codes, more = [own if gates else 0], list[tuple[Fact, Claim]]()
    if typed.fail_if_answers_differ is not None:
        claim = same_answers(comparison, typed.fail_if_answers_differ)
        state = "fail" if claim.code else "pass"
        more = [(Fact("answers_verdict", state, claim.said), claim)]
        codes.append(claim.code)
    code = worst_code(codes)
    gated = "" if gates else f" (--fail-if-worse {margin_label(verdict.margin)} makes it {own})"
    report = comparison_report(comparison, names, typed.answers, code, gated, more)
    show_finding(report, typed, exit_code=code)
    return code


def same_answers(comparison: Comparison, most: float) -> Claim:
    """Whether at most so many percent of the answers differ. Raises SettingsError where there
    is none."""
    n = sum(each.n for each in comparison.answers)
    if not n:
        raise SettingsError("--fail-if-answers-differ needs answers, and the first run has none.")
    share = 100 * sum(each.differing for each in comparison.answers) / n
    state, code = ("pass", NO_WORSE) if share <= most + 1e-9 else ("fail", WORSE)
    said = f"verdict on answers: {state} ({share:.1f} % differ, {most:g} % may)"
    text = "\n".join([*answers_text(comparison, whole=True), said])
    return Claim(f"at most {most:g} % of the answers differ", code, said, text)
