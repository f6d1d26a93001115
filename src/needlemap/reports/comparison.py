"""A comparison of two runs as a report. Losses are in points; positive is worse.

Of runs with several families: a row a family, and the mean of all, which decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
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
from needlemap.reports.labels import (
    depth_labels,
    length_labels,
    loss_label,
    p_label,
    score_label,
)
from needlemap.reports.loss import (
    least_label,
    loss_json,
    loss_line,
    margin_label,
    verdict_of,
    warnings_of,
)
from needlemap.reports.report import (
    COUNT,
    DEPTH,
    ENDS,
    LENGTH,
    LOSS,
    PERCENT,
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
from needlemap.stats.verdicts import Verdict, most_serious
from needlemap.text import counted

if TYPE_CHECKING:
    from needlemap.reports.pairing import Names
    from needlemap.stats.comparison import CellChange, Comparison, FamilyComparison, Noise
    from needlemap.stats.difference import Difference
    from needlemap.stats.judging import Loss, PairedLoss

EXPLORED = 5  # cells shown
LOSSES = (
    Column("score_a", "A", PERCENT),
    Column("score_b", "B", PERCENT),
    Column("loss", "loss", LOSS),
    Column("low", unit=LOSS),
    Column("high", unit=LOSS),
)


def _ends(row: Mapping[str, Any]) -> tuple[float, float] | None:
    """The interval of a row, if it has one."""
    return None if row["low"] is None else (row["low"], row["high"])


TESTED = (  # what means of unknown numbers of answers have none of
    Column("interval", "interval", ENDS, of=_ends),
    Column("n", "pairs", COUNT),
    Column("p_holm", "p", P),
)
CELLS = (Column("depth_percent", unit=DEPTH), Column("loss", unit=LOSS))


def comparison_report(
    comparison: Comparison, names: Names, answers: bool = False, same: Verdict | None = None
) -> Report:
    """The report of a comparison. answers: with every answer that differs, not the first ones
    alone. same: the verdict on how many answers are the same, if one was asked for. Of two
    verdicts the more serious is the report's."""
    paired, count, only = comparison.paired, len(comparison.families), comparison.only
    chances = f"{count} families' verdicts are {count} chances to err: go by the one on their mean"
    verdicts = {}
    if comparison.is_judged:
        name = f"a loss below {margin_label(paired.margin)} points"
        verdicts[name] = verdict_of(paired, names.short)
    if same is not None:
        verdicts["the same answers"] = same
    ordered = most_serious(verdicts.values())
    loss = loss_line(paired, names.short)
    return Report(
        "compare",
        f"{names.second} against {names.first}",
        (
            Fact(said=names_text(names)),
            *(_family(only, names, answers) if only else _families(comparison, names, answers)),
            _noise(comparison.noise),
            *(Fact(said=line) for line in answers_text(comparison, answers)),
            *(Fact(said=line) for line in (looks_line(paired) if paired.sequential else ())),
            *(Fact(said=line, warns=True) for line in warnings_of(paired)),
            *([Fact(said=chances)] if count > 1 and comparison.is_judged else []),
            *([] if comparison.is_judged or same is None else [Fact(said=loss)]),
            *(Fact(said=each.line("compare")) for each in ordered[1:]),
        ),
        ordered[0] if ordered else None,
        tuple(Claim(name, each.word, each.line("compare")) for name, each in verdicts.items()),
        ends="" if verdicts else f"compare: {loss}; for a verdict type --margin 2.",
    )


def looks_line(found: PairedLoss) -> list[str]:
    """What a verdict of several looks rests on."""
    after = "" if found.after is None else f"; decided after {counted(found.after, found.unit)}"
    each = "random piece" if found.unit == "pair" else "haystack"
    return [
        f"{counted(found.seen, found.unit)} of {found.planned:,} planned, judged after each "
        f"{each}{after}"
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
    tested = comparison.paired.families[0] or count
    of_all = "" if tested == count else f" of {count}"
    mean = (
        f"mean over {tested}{of_all} families, each counting the same, however many pairs it has:"
    )
    lines = [
        means_label(overall),
        f"{overall.n} pairs{_of_haystacks(overall, unplaced)}",
        f"B lost {overall.lost}, gained {overall.gained}; {p_text(overall)}",
    ]
    whole = lines if comparison.counted else [means_label(overall)]
    yield _family_table(comparison)
    yield from _whole_facts(comparison, names, [mean, *whole])
    yield Fact("answers", answers_counts(comparison.answers))
    yield Fact("only_a", list(names.only_first))
    yield Fact("only_b", list(names.only_second))
    reports = {}
    for name, each in comparison.families.items():
        parts = _family(each, names.families[name], answers)
        p_holm = Fact("p_holm", comparison.adjusted_p[name])
        verdict = verdict_of(each.paired, names.short) if comparison.is_judged else None
        reports[name] = Report("compare", name, (*parts, p_holm), verdict)
    yield Parts("families", reports)


def _family_table(comparison: Comparison) -> Table:
    """A row a family, for people and frames: programs have a report of each."""
    rows = []
    for name, each in comparison.families.items():
        word = {"word": each.paired.word} if comparison.is_judged else {}
        found = {"family": name, **word, **_values(each.overall, each.paired.loss)}
        rows.append(Row(found | {"p_holm": comparison.adjusted_p[name]}, to=name))
    judged = (Column("word", "verdict"),) if comparison.is_judged else ()
    tested = TESTED if comparison.counted else ()
    alone = f" (p by Holm's correction over {len(rows)}; intervals of one family each)"
    columns = (Column("family", "family"), *judged, *LOSSES, *tested)
    return Table("", columns, tuple(rows), f"by family{alone if tested else ''}:")


def _family(comparison: FamilyComparison, names: Names, answers: bool) -> Iterator[Fact | Table]:
    """One family: how it was judged, and its lengths and cells."""
    overall, unplaced = comparison.overall, _is_unplaced(comparison)
    tested, left = comparison.counted, _left_out(comparison)
    whole = [
        f"{overall.n} pairs{_of_haystacks(overall, unplaced)}{left}",
        means_label(overall),
        f"B lost {overall.lost}, gained {overall.gained}; {p_text(overall)}",
    ]
    means = [f"{overall.n} means in both{left}", means_label(overall)]
    yield from _whole_facts(comparison, names, whole if tested else means)
    shown = None if answers else SHOWN
    yield Fact("answers", comparison.answers and answers_json(comparison.answers, shown))
    yield Fact("dropped", comparison.dropped)
    yield Fact("only_a", comparison.only_first)
    yield Fact("only_b", comparison.only_second)
    power = comparison.power
    yield Fact("power", {"sure_loss": power.sure, "fail": power.fail})
    yield _lengths(comparison)
    yield Table("cells", CELLS, tuple(map(_cell, comparison.cells)))
    if tested:
        changed = () if unplaced else _changed(comparison)
        said = (*changed, *_ran_on(comparison.ran_on), _power_line(comparison))
        yield from (Fact(said=line) for line in said)


def _power_line(comparison: FamilyComparison) -> str:
    """How many pairs each verdict takes; one number for each meaning."""
    margin, power = comparison.paired.margin or 0.01, comparison.power
    parts = [least_label(comparison.paired, graded=comparison.graded)]
    if power.fail is not None:
        parts.append(f"a FAIL, if {margin_label(2 * margin)} points are lost, about {power.fail:,}")
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
    """Both scores."""
    return f"A {score_label(overall.first)}, B {score_label(overall.second)}"


def _lengths(comparison: FamilyComparison) -> Table:
    """A row a length. A single one is for programs alone: its loss is that of the whole."""
    lengths, tested = comparison.lengths, comparison.counted
    shown = len(lengths) > 1 or not tested
    rows = []
    for each in lengths:
        values = {"length_tokens": each.length_tokens, **_values(each.difference, each.loss)}
        rows.append(Row(values | {"p_holm": each.adjusted_p}, shown=shown))
    columns = (Column("length_tokens", "length", LENGTH), *LOSSES, *(TESTED if tested else ()))
    alone = f" (p by Holm's correction over {len(rows)}; intervals of one length each)"
    return Table("lengths", columns, tuple(rows), f"by length{alone if tested else ''}:")


def _cell(cell: CellChange) -> Row:
    """A cell for programs."""
    place = {"length_tokens": cell.length_tokens, "depth_percent": cell.depth}
    counts = {"n": cell.n, "lost": cell.lost, "gained": cell.gained}
    return Row(place | {"loss": cell.loss} | counts | {"p_uncorrected": cell.p}, shown=False)


def _changed(comparison: FamilyComparison) -> list[str]:
    """The cells that changed most; a hint where to look, which proves nothing."""
    changed = [cell for cell in comparison.cells if cell.loss]
    if not changed:
        return []
    lengths = length_labels([each.length_tokens for each in comparison.lengths])
    depths = depth_labels(sorted({cell.depth for cell in comparison.cells}))
    most = sorted(changed, key=_by_change)[:EXPLORED]
    places = {depth: f" at {label}" if len(depths) > 1 else "" for depth, label in depths.items()}
    shown = [
        f"{lengths[c.length_tokens]}{places[c.depth]} {loss_label(c.loss)} (n={c.n:,}, "
        f"p={p_label(c.p)})"
        for c in most
    ]
    return [f"loss of the cells that changed most (exploration, not corrected): {', '.join(shown)}"]


def _by_change(cell: CellChange) -> tuple[float, float]:
    return cell.p, -abs(cell.loss)


def _noise(noise: Noise | None) -> Fact:
    """How far further runs of A's model spread, where some were given."""
    if noise is None:
        return Fact("noise")
    value = asdict(noise) | {"largest": percent(noise.largest)}
    said = (
        f"noise: {counted(noise.runs, 'further run')} of A's model scored {noise.differing} of "
        f"{noise.n} prompts otherwise; two such runs differ by up to {loss_label(noise.largest)} "
        "points 95 times in 100"
    )
    return Fact("noise", value, said)


def _left_out(comparison: FamilyComparison) -> str:
    counts = (
        (comparison.dropped, "without both scores"),
        (comparison.only_first, "trials of A alone"),
        (comparison.only_second, "trials of B alone"),
    )
    return "".join(f"; {count} {what}" for count, what in counts if count)


def _whole_facts(
    comparison: Comparison | FamilyComparison, names: Names, said: Sequence[str]
) -> Iterator[Fact]:
    """The facts of any comparison: its runs, its loss, and both means. said: the lines on
    these."""
    overall, paired = comparison.overall, comparison.paired
    yield from keyed({"a": names.first, "b": names.second, "differ": names.differ})
    yield from keyed({"notes": list(names.notes), **loss_json(paired)})
    yield Fact("warnings", warnings_of(paired))
    means = {"score_a": percent(overall.first), "score_b": percent(overall.second)}
    tests = {"p": overall.p, "least_p": overall.least_p, "haystacks": overall.clusters}
    yield Fact("overall", means | tests, "\n".join(said))
    yield from keyed({"graded": comparison.graded, "counted": comparison.counted})


def _values(difference: Difference, loss: Loss | None) -> dict[str, Any]:
    """A loss and what it is of, by the columns of its row."""
    return {
        "score_a": difference.first,
        "score_b": difference.second,
        "loss": -difference.value if loss is None else loss.value,
        "low": loss and loss.low,
        "high": loss and loss.high,
        "p": difference.p,
        "least_p": difference.least_p,
        "n": difference.n,
        "haystacks": difference.clusters,
        "lost": difference.lost,
        "gained": difference.gained,
    }
