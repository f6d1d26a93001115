"""A comparison of two runs as a report. Differences are in points, that is percent.

Of runs with several families: a row a family, and the mean of all, which decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from needlemap.grid import percent
from needlemap.reports.answer_diff import (
    SHOWN,
    answers_counts,
    answers_json,
    answers_line,
    answers_lines,
    haystacks_label,
    nats_lines,
    p_text,
)
from needlemap.reports.judgement import (
    judgement_json,
    least_label,
    margin_label,
    verdict_of,
    warnings_of,
)
from needlemap.reports.labels import (
    depth_labels,
    floor_label,
    interval,
    length_labels,
    p_label,
    points,
    score_label,
)
from needlemap.reports.report import (
    COUNT,
    DEPTH,
    ENDS,
    LENGTH,
    PERCENT,
    POINTS,
    Claim,
    Column,
    Fact,
    P,
    Parts,
    Report,
    Row,
    Table,
    keyed,
)
from needlemap.text import counted

if TYPE_CHECKING:
    from needlemap.reports.pairing import Names
    from needlemap.stats.comparison import CellChange, Comparison, FamilyComparison
    from needlemap.stats.difference import Difference
    from needlemap.stats.judging import Judgement

EXPLORED = 5  # cells shown
DIFFERENCE = (
    Column("score_a", "A", PERCENT),
    Column("score_b", "B", PERCENT),
    Column("difference", "points", POINTS),
    Column("low", unit=POINTS),
    Column("high", unit=POINTS),
)
TESTED = (  # what means of unknown numbers of answers have none of
    Column("interval", "95 %", ENDS, of=lambda row: (row["low"], row["high"])),
    Column("n", "pairs", COUNT),
    Column("p_holm", "p", P),
)
CELLS = (Column("depth_percent", unit=DEPTH), Column("difference", unit=POINTS))


def comparison_report(
    comparison: Comparison,
    names: Names,
    answers: bool = False,
    ends: int | None = None,
    gated: str = "",
    more: Sequence[tuple[Fact, Claim]] = (),
) -> Report:
    """The report of a comparison. answers: with every answer that differs, not the first ones
    alone. ends: the exit code of the command; 0 if not given, as where no verdict was asked
    for. gated: as `verdict_of` takes it. more: other verdicts."""
    judged, margin = comparison.verdict, margin_label(comparison.verdict.margin)
    if ends is None:
        ends, gated = 0, f" (--fail-if-worse {margin} makes it {judged.code})"
    own = verdict_of(judged).last
    count = len(comparison.families)
    only = comparison.only
    chances = f"{count} families' verdicts are {count} chances to err: go by the one on their mean"
    return Report(
        "compare",
        f"{names.second} against {names.first}",
        (
            Fact(said=names_text(names)),
            *(_family(only, names, answers) if only else _families(comparison, names, answers)),
            *(Fact(said=line) for line in answers_text(comparison, answers)),
            *(Fact(said=line) for line in (looks_line(judged) if judged.sequential else ())),
            *(Fact(said=line, warns=True) for line in warnings_of(judged)),
            *([Fact(said=chances)] if count > 1 else []),
            *(fact for fact, _ in more),
        ),
        verdict_of(judged, ends=ends, gated=gated),
        (
            Claim(f"no worse than {margin} points", judged.code, own),
            *(claim for _, claim in more),
        ),
    )


def looks_line(found: Judgement) -> list[str]:
    """What a verdict of several looks rests on."""
    seen = found.new.n if found.new else 0
    after = "" if found.after is None else f"; decided after {counted(found.after, 'haystack')}"
    return [
        f"{counted(seen, 'whole haystack')} of {found.planned:,} planned, judged after each{after}"
    ]


def answers_text(comparison: Comparison, whole: bool) -> list[str]:
    """How many answers are the same, and how far they moved in nats; whole: and which differ,
    by family."""
    if not comparison.answers:
        return []
    lines = [answers_line(comparison.answers)]
    for name, each in comparison.families.items():
        if each.answers is not None:
            found = [
                *(answers_lines(each.answers) if whole else ()),
                *nats_lines(each.answers.nats),
            ]
            lines += [f"{name}:", *found] if name and found else found
    return lines


def names_text(names: Names) -> str:
    """Which two runs, in what they differ, and what else is to be said of them."""
    lines = [f"A  {names.first}", f"B  {names.second}"]
    lines += [f"differ in {names.differ}"] if names.differ else []
    return "\n".join(
        [*lines, *(f"note: {note}" for note in names.notes), *_left_out_families(names)]
    )


def _left_out_families(names: Names) -> list[str]:
    """Families that only one run has begun."""
    return [
        f"left out, as only {which} has begun them: {', '.join(families)}"
        for which, families in (("A", names.only_first), ("B", names.only_second))
        if families
    ]


def _families(
    comparison: Comparison, names: Names, answers: bool
) -> Iterator[Fact | Table | Parts]:
    """A row a family, and the mean over them."""
    overall, count = comparison.overall, len(comparison.families)
    unplaced = all(map(_is_unplaced, comparison.families.values()))
    mean = f"mean over {count} families, each counting the same, however many pairs it has:"
    tested = [
        f"{means_label(overall)} {interval(overall)}",
        f"{overall.n} pairs{_of_haystacks(overall, unplaced)}",
        f"B lost {overall.lost}, gained {overall.gained}; {p_text(overall)}",
    ]
    whole = tested if comparison.counted else [means_label(overall)]
    yield _family_table(comparison)
    yield from _verdict_facts(comparison, names, [mean, *whole])
    yield Fact("answers", answers_counts(comparison.answers))
    yield Fact("only_a", list(names.only_first))
    yield Fact("only_b", list(names.only_second))
    reports = {}
    for name, each in comparison.families.items():
        parts = _family(each, names.families[name], answers)
        p_holm = Fact("p_holm", comparison.adjusted_p[name])
        reports[name] = Report("compare", name, (*parts, p_holm), verdict_of(each.verdict))
    yield Parts("families", reports)


def _family_table(comparison: Comparison) -> Table:
    """A row a family, for people and frames: programs have a report of each."""
    rows = []
    for name, each in comparison.families.items():
        found = {"family": name, "verdict": each.verdict.word, **_values(each.overall)}
        rows.append(Row(found | {"p_holm": comparison.adjusted_p[name]}, to=name))
    tested = TESTED if comparison.counted else ()
    named = Column("family", "family"), Column("verdict", "verdict")
    alone = f" (p by Holm's correction over {len(rows)}; intervals and verdicts of one family each)"
    return Table(
        "", (*named, *DIFFERENCE, *tested), tuple(rows), f"by family{alone if tested else ''}:"
    )


def _family(comparison: FamilyComparison, names: Names, answers: bool) -> Iterator[Fact | Table]:
    """One family: how it was judged, and its lengths and cells."""
    overall, unplaced = comparison.overall, _is_unplaced(comparison)
    tested, left = comparison.counted, _left_out(comparison)
    whole = [
        f"{overall.n} pairs{_of_haystacks(overall, unplaced)}{left}",
        f"{means_label(overall)} {interval(overall)}",
        f"B lost {overall.lost}, gained {overall.gained}; {p_text(overall)}",
    ]
    means = [f"{overall.n} means in both{left}", means_label(overall)]
    yield from _verdict_facts(comparison, names, whole if tested else means)
    shown = None if answers else SHOWN
    yield Fact("answers", comparison.answers and answers_json(comparison.answers, shown))
    yield Fact("dropped", comparison.dropped)
    yield Fact("only_a", comparison.only_first)
    yield Fact("only_b", comparison.only_second)
    power = comparison.power
    yield Fact("power", {"sure_loss": power.sure, "worse": power.worse})
    yield Fact("noise", _noise_fields(comparison), "\n".join(_noise(comparison) if tested else []))
    yield _lengths(comparison)
    yield Table("cells", CELLS, tuple(map(_cell, comparison.cells)))
    if tested:
        changed = () if unplaced else _changed(comparison)
        said = (*changed, *_ran_on(comparison.ran_on), _power_line(comparison))
        yield from (Fact(said=line) for line in said)


def _power_line(comparison: FamilyComparison) -> str:
    """How many pairs each verdict takes; one number for each meaning."""
    margin, power = comparison.margin or 0.01, comparison.power
    parts = [least_label(comparison.verdict, graded=comparison.graded)]
    if power.worse is not None:
        parts.append(f"worse, if {margin_label(2 * margin)} points are lost, about {power.worse:,}")
    parts.append(f"that a loss of {margin_label(margin)} is sure, about {power.sure:,}")
    return f"pairs: you have {comparison.overall.n:,}; {'; '.join(filter(None, parts))}"


def _ran_on(counts: tuple[int, int]) -> list[str]:
    """Answers that count as wrong since they did not stop."""
    return [
        f"note: {counted(count, 'answer')} of {one} ran on to the end of the budget where {other} "
        f"stopped: counted as wrong"
        for one, other, count in (("A", "B", counts[0]), ("B", "A", counts[1]))
        if count
    ]


def _is_unplaced(comparison: FamilyComparison) -> bool:
    """Whether no trial has a length: samples of another tool's log, each of which stands for
    itself."""
    return not any(each.length_tokens for each in comparison.lengths)


def _of_haystacks(overall: Difference, unplaced: bool) -> str:
    return "" if unplaced else f", {haystacks_label(overall.clusters)}"


def means_label(overall: Difference) -> str:
    """Both scores and their difference."""
    means = f"A {score_label(overall.first)}, B {score_label(overall.second)}"
    return f"{means}: difference {points(overall.value)} points"


def _lengths(comparison: FamilyComparison) -> Table:
    """A row a length; for people nothing where no trial has a length."""
    lengths, tested = comparison.lengths, comparison.counted
    shown = not (tested and _is_unplaced(comparison))
    rows = []
    for each in lengths:
        values = {"length_tokens": each.length_tokens, **_values(each.difference)}
        rows.append(Row(values | {"p_holm": each.adjusted_p}, shown=shown))
    columns = (Column("length_tokens", "length", LENGTH), *DIFFERENCE, *(TESTED if tested else ()))
    alone = f" (p by Holm's correction over {len(rows)}; intervals of one length each)"
    return Table("lengths", columns, tuple(rows), f"by length{alone if tested else ''}:")


def _cell(cell: CellChange) -> Row:
    """A cell for programs."""
    place = {"length_tokens": cell.length_tokens, "depth_percent": cell.depth}
    counts = {"n": cell.n, "lost": cell.lost, "gained": cell.gained}
    return Row(
        place | {"difference": cell.change} | counts | {"p_uncorrected": cell.p}, shown=False
    )


def _changed(comparison: FamilyComparison) -> list[str]:
    """The cells that changed most; a hint where to look, which proves nothing."""
    changed = [cell for cell in comparison.cells if cell.change]
    if not changed:
        return []
    lengths = length_labels([each.length_tokens for each in comparison.lengths])
    depths = depth_labels(sorted({cell.depth for cell in comparison.cells}))
    most = sorted(changed, key=_by_change)[:EXPLORED]
    places = {depth: f" at {label}" if len(depths) > 1 else "" for depth, label in depths.items()}
    shown = [
        f"{lengths[c.length_tokens]}{places[c.depth]} {points(c.change)} (n={c.n:,}, "
        f"p={p_label(c.p)})"
        for c in most
    ]
    return [f"cells that changed most (exploration, not corrected): {', '.join(shown)}"]


def _by_change(cell: CellChange) -> tuple[float, float]:
    return cell.p, -abs(cell.change)


def bounds_lines(comparison: Comparison | FamilyComparison) -> list[str]:
    """How far missing scores could move the difference; nothing where none is missing."""
    if comparison.bounds is None:
        return []
    low, high = map(points, comparison.bounds)
    return [f"whatever the missing scores were, the difference lies in [{low}, {high}]"]


def _noise(comparison: FamilyComparison) -> list[str]:
    noise = comparison.noise
    if noise is None:
        return []
    line = f"the same experiment twice: {noise.differing} of {noise.n} prompts differ"
    if not noise.differing:
        return [line]
    return [f"{line}; {floor_label(noise, noise.n)}"]


def _left_out(comparison: FamilyComparison) -> str:
    counts = (
        (comparison.dropped, "dropped, without both scores"),
        (comparison.only_first, "trials of A alone"),
        (comparison.only_second, "trials of B alone"),
    )
    return "".join(f"; {count} {what}" for count, what in counts if count)


def _verdict_facts(
    comparison: Comparison | FamilyComparison, names: Names, said: Sequence[str]
) -> Iterator[Fact]:
    """The facts of any comparison: its runs, its rule, and the whole difference. said: the
    lines on this."""
    judged = comparison.verdict
    yield from keyed({"a": names.first, "b": names.second, "differ": names.differ})
    yield from keyed({"notes": list(names.notes), **judgement_json(judged)})
    yield Fact("warnings", warnings_of(judged))
    yield Fact("overall", difference_fields(comparison.overall), "\n".join(said))
    bounds = comparison.bounds and [percent(bound) for bound in comparison.bounds]
    yield Fact("bounds", bounds, "\n".join(bounds_lines(comparison) if comparison.counted else []))
    yield from keyed({"graded": comparison.graded, "counted": comparison.counted})


def difference_fields(difference: Difference) -> dict[str, Any]:
    """A difference as JSON holds it, in points."""
    (fields,) = Table("", DIFFERENCE, (Row(_values(difference)),)).plain()
    return fields


def _values(difference: Difference) -> dict[str, Any]:
    """A difference by the columns of its row."""
    return {
        "score_a": difference.first,
        "score_b": difference.second,
        "difference": difference.value,
        "low": difference.low,
        "high": difference.high,
        "p": difference.p,
        "least_p": difference.least_p,
        "n": difference.n,
        "haystacks": difference.clusters,
        "lost": difference.lost,
        "gained": difference.gained,
    }


def _noise_fields(comparison: FamilyComparison) -> dict[str, Any] | None:
    noise = comparison.noise
    if noise is None:
        return None
    return {
        "n": noise.n,
        "differing": noise.differing,
        "smallest": percent(noise.smallest(noise.n)),
    }
