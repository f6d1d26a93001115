"""Run `needlemap compare`: report whether run B is worse than run A, and where they differ."""

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
    """Return the scope of a typed word, which is one of two."""
    return "new" if typed == "new" else "these"


def points_of(typed: CompareFlags) -> float | None:
    """Return the margin in points, from either flag, or None without a margin.

    Raises SettingsError for flags that do not fit together.
    """
    points = typed.margin
    if points is None:
        points = typed.fail_if_worse
    elif typed.fail_if_worse is not None and typed.fail_if_worse != points:
        raise SettingsError("--fail-if-worse is the older name of --margin. Give one of them.")
    percent = typed.fail_if_answers_differ
    if percent is not None and not 0 <= percent <= 100:
        raise SettingsError(
            f"--fail-if-answers-differ is in percent, from 0 to 100, got {percent:g}."
        )
    if points is not None or percent is not None:
        return points

    verdict_flags = {
        "--junit": typed.junit is not None,
        "--on-undecided": typed.on_undecided != "fail",
        "--exit-zero": typed.exit_zero,
    }
    for flag, is_typed in verdict_flags.items():
        if is_typed:
            raise SettingsError(f"{flag} is of a verdict. Ask for one: --margin 2")
    return None


def compare_command(first: Path, second: Path, typed: CompareFlags) -> int:
    """Compare two runs, print the report, and return the exit code of its verdict.

    If the flags ask for no verdict, the code is 0. Raise SettingsError if they do not fit the runs.
    """
    points = points_of(typed)
    if is_address(first) or is_address(second):
        raise SettingsError(
            "compare reads two runs' folders. Two servers: needlemap ab --arm a=http://... --arm "
            "b=http://..."
        )
    families_a = families_of(first)
    families_b = families_of(second)
    runs = load_any(
        families_a,
        families_b,
        labels=tuple(typed.label or ()),
        metric=typed.metric,
    )
    noise = [
        load_any(families_a, families_of(path), metric=typed.metric) for path in typed.noise or ()
    ]
    for pair in runs.values():
        for run in pair:
            for note in run.notes:
                tell(f"note: {printable(run.path)}: {printable(note)}")

    comparison, names = compare_runs(
        families_a,
        families_b,
        run_pairs=runs,
        margin=points,
        wanted=scope_of(typed.scope),
        sequential=typed.sequential,
        noise=noise,
    )
    verdict = None
    if typed.fail_if_answers_differ is not None:
        verdict = same_answers(comparison, typed.fail_if_answers_differ)
    report = comparison_report(comparison, names, answers=typed.answers, same_answers=verdict)
    return show_finding(report, typed)


def same_answers(comparison: Comparison, most_percent: float) -> Verdict:
    """Return PASS if at most `most_percent` of the answers differ, else FAIL.

    Raises SettingsError if there are no answers.
    """
    pairs = sum(cell.n for cell in comparison.answers)
    if not pairs:
        raise SettingsError("--fail-if-answers-differ needs answers, and the first run has none.")
    differing = sum(cell.differing for cell in comparison.answers)
    percent = 100 * differing / pairs
    word: Word = FAIL
    # A share that rounding alone puts above the bound passes.
    if percent <= most_percent + 1e-9:
        word = PASS
    return Verdict(
        word,
        f"{percent:.1f} % of the answers differ, allowed {most_percent:g}",
        evidence=f"{differing:,} of {pairs:,} pairs",
        scope="these prompts",
    )
