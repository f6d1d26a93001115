"""Run `needlemap compare`: report whether run B is worse than run A, and where they differ."""

from __future__ import annotations

from pathlib import Path

from needlemap.commands.announce import refuse_verdict_flags, show_finding
from needlemap.commands.arguments import CompareFlags, is_address
from needlemap.errors import SettingsError
from needlemap.records.families import families_of
from needlemap.reports.comparison import comparison_report
from needlemap.reports.pairing import compare_runs, load_any
from needlemap.stats.comparison import Comparison
from needlemap.stats.verdicts import FAIL, PASS, Verdict, row_word
from needlemap.text import counted, printable, tell


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
    if points is None and percent is None:
        refuse_verdict_flags(typed, "--margin 2")
    return points


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
        wanted=typed.scope,
        sequential=typed.sequential,
        noise=noise,
    )
    verdict = None
    if typed.fail_if_answers_differ is not None:
        verdict = same_answers(comparison, typed.fail_if_answers_differ)
    report = comparison_report(comparison, names, answers=typed.answers, same_answers=verdict)
    return show_finding(report, typed)


def same_answers(comparison: Comparison, most_percent: float) -> Verdict:
    """Return PASS if at most `most_percent` of the answers differ, and FAIL if more do.

    Prompts of which the first run has no answer, or that one run was not sent yet, count as they
    may have gone: if they could make it the other word, it is SUSPECT or NOT ENOUGH DATA.

    Raises SettingsError if there are no answers.
    """
    pairs = sum(cell.n for cell in comparison.answers)
    if not pairs:
        raise SettingsError("--fail-if-answers-differ needs answers, and the first run has none.")
    differing = sum(cell.differing for cell in comparison.answers)
    only_second = sum(cell.only_second for cell in comparison.answers)
    unsent = sum(cell.unsent for cell in comparison.answers)
    unknown = only_second + unsent
    # A share that rounding alone puts above the bound passes.
    most_share = most_percent / 100 + 1e-11
    word = row_word(
        fails=differing / (pairs + unknown) > most_share,
        passes=(differing + unknown) / (pairs + unknown) <= most_share,
        points=differing / pairs > most_share or only_second > 0,
    )
    evidence = [f"{differing:,} of {pairs:,} pairs"]
    if only_second:
        evidence.append(f"{counted(only_second, 'prompt')} that B alone answered")
    if unsent:
        evidence.append(f"{counted(unsent, 'prompt')} not sent to both")
    return Verdict(
        word,
        f"{100 * differing / pairs:.1f} % of the answers differ, allowed {most_percent:g}",
        evidence=", ".join(evidence),
        scope="these prompts",
        next="" if word in (PASS, FAIL) else "resume both runs until all is answered",
    )
