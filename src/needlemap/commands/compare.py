"""`needlemap compare`: two runs that were asked. Is B no worse than A, and where to look."""

from __future__ import annotations

from pathlib import Path

from needlemap.commands.announce import show_finding
from needlemap.commands.arguments import CompareFlags, is_address
from needlemap.errors import SettingsError
from needlemap.records.families import families_of
from needlemap.reports.comparison import comparison_report
from needlemap.reports.pairing import compare_runs, load_any
from needlemap.stats.comparison import Comparison
from needlemap.stats.looks import Scope
from needlemap.stats.verdicts import FAIL, PASS, Verdict, Word
from needlemap.text import printable, tell


def scope_of(typed: str) -> Scope:
    """The scope that was typed."""
    return "new" if typed == "new" else "these"


def points_of(typed: CompareFlags) -> float | None:
    """The margin in points, from either flag; None without. Raises SettingsError for what means
    nothing."""
    margin, older, percent = typed.margin, typed.fail_if_worse, typed.fail_if_answers_differ
    if None not in (margin, older) and margin != older:
        raise SettingsError("--fail-if-worse is the older name of --margin. Give one of them.")
    if percent is not None and not 0 <= percent <= 100:
        raise SettingsError(
            f"--fail-if-answers-differ is in percent, from 0 to 100, got {percent:g}."
        )
    points = older if margin is None else margin
    given = {
        "--junit": typed.junit is not None,
        "--on-undecided": typed.on_undecided != "fail",
        "--exit-zero": typed.exit_zero,
    }
    for flag in (flag for flag, is_given in given.items() if is_given):
        if points is None and percent is None:
            raise SettingsError(f"{flag} is of a verdict. Ask for one: --margin 2")
    return points


def compare_command(first: Path, second: Path, typed: CompareFlags) -> int:
    """Compare and print; the exit code of the verdict, 0 where none was asked for."""
    points = points_of(typed)
    if is_address(first) or is_address(second):
        raise SettingsError(
            "compare reads two runs' folders. Two servers: needlemap ab --arm a=http://... --arm "
            "b=http://..."
        )
    both = families_of(first), families_of(second)
    read = load_any(*both, tuple(typed.label or ()), typed.metric)
    noise = [load_any(both[0], families_of(run), (), typed.metric) for run in typed.noise or ()]
    for run in (run for two in read.values() for run in two):
        for note in run.notes:
            tell(f"note: {printable(run.path)}: {printable(note)}")
    comparison, names = compare_runs(
        *both,
        read,
        points,
        wanted=scope_of(typed.scope),
        sequential=typed.sequential,
        noise=noise,
    )
    most = typed.fail_if_answers_differ
    same = None if most is None else same_answers(comparison, most)
    return show_finding(comparison_report(comparison, names, typed.answers, same), typed)


def same_answers(comparison: Comparison, most: float) -> Verdict:
    """Whether at most so many percent of the answers differ. Raises SettingsError where there
    is none."""
    n = sum(each.n for each in comparison.answers)
    if not n:
        raise SettingsError("--fail-if-answers-differ needs answers, and the first run has none.")
    differing = sum(each.differing for each in comparison.answers)
    share = 100 * differing / n
    word: Word = PASS if share <= most + 1e-9 else FAIL
    claim = f"{share:.1f} % of the answers differ, allowed {most:g}"
    return Verdict(word, claim, f"{differing:,} of {n:,} pairs", "these prompts")
