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
    loss_answer,
    loss_json,
    loss_line,
    margin_label,
    overrun_notes,
    verdict_of,
    warnings_of,
)
from needlemap.reports.report import (
    COUNT,
    DEPTH,
    ENDS,
    LENGTH,
    LOSS,
    SCORE,
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

# Cells that are listed as those that changed most.
EXPLORED = 5
LOSSES = (
    Column("score_a", "A", SCORE),
    Column("score_b", "B", SCORE),
    Column("loss", "loss", LOSS),
    Column("low", unit=LOSS),
    Column("high", unit=LOSS),
)


def _row_interval(row: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the interval of a row, or None if it has none."""
    return None if row["low"] is None else (row["low"], row["high"])


# Means of unknown numbers of answers have none of these.
TESTED = (
    Column("interval", "interval", ENDS, of=_row_interval),
    Column("n", "pairs", COUNT),
    Column("p_holm", "p", P),
)
CELLS = (Column("depth_percent", unit=DEPTH), Column("loss", unit=LOSS))


def comparison_report(
    comparison: Comparison, names: Names, answers: bool = False, same_answers: Verdict | None = None
) -> Report:
    """Return the report of a comparison.

    answers: whether to list every answer that differs, not only the first ones. same_answers: the
    verdict on how many answers are the same, if one was asked for. If there are two verdicts, the
    more serious one is the report's.
    """
    paired, family = comparison.paired, comparison.only
    verdicts = {}
    if comparison.is_judged:
        name = f"a loss below {margin_label(paired.margin)} points"
        verdicts[name] = verdict_of(paired, names.short)
    if same_answers is not None:
        verdicts["the same answers"] = same_answers
    verdicts_by_weight = most_serious(verdicts.values())
    loss, answer = loss_line(paired, names.short), loss_answer(paired, names.short)

    parts: list[Fact | Table | Parts] = [Fact(said=names_text(names))]
    parts += (
        _family_parts(family, names, answers)
        if family
        else _suite_parts(comparison, names, answers)
    )
    parts.append(_noise_fact(comparison.noise))
    parts += [Fact(said=line) for line in answers_text(comparison, answers)]
    if paired.sequential:
        parts += [Fact(said=line) for line in looks_line(paired)]
    parts += [Fact(said=line) for line in warnings_of(paired)]
    count = len(comparison.families)
    if count > 1 and comparison.is_judged:
        caution = (
            f"{count} families' verdicts are {count} chances to err: go by the one on their mean"
        )
        parts.append(Fact(said=caution))
    if same_answers is not None and not comparison.is_judged:
        parts.append(Fact(said=loss))
    parts += [Fact(said=verdict.line("compare")) for verdict in verdicts_by_weight[1:]]
    return Report(
        kind="compare",
        title=f"{names.second} against {names.first}",
        parts=tuple(parts),
        verdict=verdicts_by_weight[0] if verdicts_by_weight else None,
        claims=tuple(
            Claim(name, verdict.word, verdict.line("compare")) for name, verdict in verdicts.items()
        ),
        answer="" if verdicts else f"{answer}; for a verdict type --margin 2.",
        ends="" if verdicts else f"compare: {loss}; for a verdict type --margin 2.",
    )


def looks_line(paired: PairedLoss) -> list[str]:
    """Return a line on the units that a verdict of several looks has seen."""
    decision = ""
    if paired.after is not None:
        decision = f"; decided after {counted(paired.after, paired.unit)}"
    piece = "random piece" if paired.unit == "pair" else "haystack"
    return [
        f"{counted(paired.seen, paired.unit)} of {paired.planned:,} planned, judged after each "
        f"{piece}{decision}"
    ]


def answers_text(comparison: Comparison, with_list: bool) -> list[str]:
    """Return lines on how many answers are the same, and how far they moved in nats, by family.

    with_list: whether to list the answers that differ too.
    """
    if not comparison.answers:
        return []
    lines = [answers_line(comparison.answers)]
    for name, family in comparison.families.items():
        if family.answers is None:
            continue
        family_lines = answers_lines(family.answers) if with_list else []
        family_lines += nats_lines(family.answers.nats)
        if name and family_lines:
            lines.append(f"{name}:")
        lines += family_lines
    return lines


def names_text(names: Names) -> str:
    """Return the names of the two runs, the settings in which they differ, and notes on them."""
    lines = [f"A  {names.first}", f"B  {names.second}"]
    if names.differ:
        lines.append(f"differ in {names.differ}")
    lines += [f"note: {note}" for note in names.notes]
    lines += _left_out_families(names)
    return "\n".join(lines)


def _left_out_families(names: Names) -> list[str]:
    """Return a line for each run that alone has started some families."""
    return [
        f"left out, as only {run} has begun them: {', '.join(families)}"
        for run, families in (("A", names.only_first), ("B", names.only_second))
        if families
    ]


def _suite_parts(
    comparison: Comparison, names: Names, answers: bool
) -> Iterator[Fact | Table | Parts]:
    """Yield a table with a row for each family, the mean over them, and each one's report."""
    overall = comparison.overall
    count = len(comparison.families)
    unplaced = all(map(_is_unplaced, comparison.families.values()))
    mean_count = comparison.paired.families[0] or count
    if comparison.paired.loss is not None:
        mean_count -= sum(
            family.paired.loss is None and not family.paired.floored
            for family in comparison.families.values()
        )
    of_all = "" if mean_count == count else f" of {count}"
    heading = (
        f"mean over {mean_count}{of_all} families, each counting the same, however many pairs "
        f"it has:"
    )
    counted_lines = [
        means_label(overall),
        f"{overall.n} pairs{_of_haystacks(overall, unplaced)}",
        _changed_text(comparison),
    ]
    mean_lines = counted_lines if comparison.counted else [means_label(overall)]
    yield _family_table(comparison)
    yield from _shared_facts(comparison, names, [heading, *mean_lines])
    yield Fact("answers", answers_counts(comparison.answers))
    yield Fact("only_a", list(names.only_first))
    yield Fact("only_b", list(names.only_second))
    reports = {}
    for name, family in comparison.families.items():
        parts = _family_parts(family, names.families[name], answers)
        p_holm = Fact("p_holm", comparison.adjusted_p[name])
        verdict = verdict_of(family.paired, names.short) if comparison.is_judged else None
        reports[name] = Report("compare", name, (*parts, p_holm), verdict)
    yield Parts("families", reports)


def _family_table(comparison: Comparison) -> Table:
    """Return a table with a row for each family, without a key: programs get their reports."""
    rows = []
    for name, family in comparison.families.items():
        word = {"word": family.paired.word} if comparison.is_judged else {}
        values = {"family": name, **word, **_loss_values(family.overall, family.paired.loss)}
        rows.append(Row(values | {"p_holm": comparison.adjusted_p[name]}, to=name))
    columns = [Column("family", "family")]
    if comparison.is_judged:
        columns.append(Column("word", "verdict"))
    columns += LOSSES
    note = ""
    if comparison.counted:
        columns += TESTED
        note = f" (p by Holm's correction over {len(rows)}; intervals of one family each)"
    return Table("", tuple(columns), tuple(rows), title=f"by family{note}:")


def _family_parts(
    comparison: FamilyComparison, names: Names, answers: bool
) -> Iterator[Fact | Table]:
    """Yield the loss of one family, and its tables of lengths and cells."""
    overall = comparison.overall
    unplaced = _is_unplaced(comparison)
    left_out = _left_out_text(comparison)
    if comparison.counted:
        lines = [
            f"{overall.n} pairs{_of_haystacks(overall, unplaced)}{left_out}",
            means_label(overall),
            _changed_text(comparison),
        ]
    else:
        lines = [f"{overall.n} means in both{left_out}", means_label(overall)]
    yield from _shared_facts(comparison, names, lines)
    most_answers = None if answers else SHOWN
    yield Fact("answers", comparison.answers and answers_json(comparison.answers, most_answers))
    yield Fact("dropped", comparison.dropped)
    yield Fact("only_a", comparison.only_first)
    yield Fact("only_b", comparison.only_second)
    power = comparison.power
    yield Fact("power", {"sure_loss": power.sure, "fail": power.fail})
    yield _length_table(comparison)
    yield Table("cells", CELLS, tuple(map(_cell, comparison.cells)))
    if comparison.counted:
        change_lines = [] if unplaced else _most_changed_line(comparison)
        for line in [*change_lines, *overrun_notes(comparison.ran_on), _power_line(comparison)]:
            yield Fact(said=line)


def _power_line(comparison: FamilyComparison) -> str:
    """Return a line on the pairs that there are, and those that each verdict takes."""
    margin, power = comparison.paired.margin or 0.01, comparison.power
    parts = [least_label(comparison.paired)]
    if power.fail is not None:
        parts.append(f"a FAIL, if {margin_label(2 * margin)} points are lost, about {power.fail:,}")
    parts.append(f"that a loss of {margin_label(margin)} is sure, about {power.sure:,}")
    return f"pairs: you have {comparison.overall.n:,}; {'; '.join(filter(None, parts))}"


def _is_unplaced(comparison: FamilyComparison) -> bool:
    """Return True if no trial has a length.

    Samples of another tool's log have none, and each stands for itself.
    """
    return not any(row.length_tokens for row in comparison.lengths)


def _of_haystacks(overall: Difference, unplaced: bool) -> str:
    return "" if unplaced else f", {haystacks_label(overall.clusters)}"


def means_label(overall: Difference) -> str:
    """Return both scores."""
    first, second = overall.means
    return f"A {score_label(first)}, B {score_label(second)}"


def _changed_text(comparison: Comparison | FamilyComparison) -> str:
    """Return what B lost and gained, with the p of no difference if there is one."""
    overall = comparison.overall
    counts = f"B lost {overall.lost}, gained {overall.gained}"
    return counts if comparison.p is None else f"{counts}; {p_text(overall)}"


def _length_table(comparison: FamilyComparison) -> Table:
    """Return a table with a row for each length.

    If there is only one, people do not see it, because its loss is that of the whole.
    """
    lengths, has_tests = comparison.lengths, comparison.counted
    is_shown = len(lengths) > 1 or not has_tests
    rows = []
    for row in lengths:
        values = {"length_tokens": row.length_tokens, **_loss_values(row.difference, row.loss)}
        rows.append(Row(values | {"p_holm": row.adjusted_p}, shown=is_shown))
    columns = [Column("length_tokens", "length", LENGTH), *LOSSES]
    note = ""
    if has_tests:
        columns += TESTED
        note = f" (p by Holm's correction over {len(rows)}; intervals of one length each)"
    return Table("lengths", tuple(columns), tuple(rows), title=f"by length{note}:")


def _cell(cell: CellChange) -> Row:
    """Return a cell for programs."""
    place = {"length_tokens": cell.length_tokens, "depth_percent": cell.depth}
    counts = {"n": cell.n, "lost": cell.lost, "gained": cell.gained}
    return Row(place | {"loss": cell.loss} | counts | {"p_uncorrected": cell.p}, shown=False)


def _most_changed_line(comparison: FamilyComparison) -> list[str]:
    """Return the cells that changed most: a hint where to look, which proves nothing."""
    changed_cells = [cell for cell in comparison.cells if cell.loss]
    if not changed_cells:
        return []
    lengths = length_labels([row.length_tokens for row in comparison.lengths])
    depths = depth_labels(sorted({cell.depth for cell in comparison.cells}))
    cells_shown = sorted(changed_cells, key=_by_change)[:EXPLORED]
    places = {depth: f" at {label}" if len(depths) > 1 else "" for depth, label in depths.items()}
    labels = [
        f"{lengths[cell.length_tokens]}{places[cell.depth]} {loss_label(cell.loss)} (n={cell.n:,}, "
        f"p={p_label(cell.p)})"
        for cell in cells_shown
    ]
    cells = ", ".join(labels)
    return [f"loss of the cells that changed most (exploration, not corrected): {cells}"]


def _by_change(cell: CellChange) -> tuple[float, float]:
    return cell.p, -abs(cell.loss)


def _noise_fact(noise: Noise | None) -> Fact:
    """Return the fact on how far further runs of A's model spread, if any were given."""
    if noise is None:
        return Fact("noise")
    value = asdict(noise) | {"largest": percent(noise.largest)}
    sentence = (
        f"noise: {counted(noise.runs, 'further run')} of A's model scored {noise.differing} of "
        f"{noise.n} prompts otherwise; two such runs differ by up to {loss_label(noise.largest)} "
        "points 95 times in 100"
    )
    return Fact("noise", value, sentence)


def _left_out_text(comparison: FamilyComparison) -> str:
    counts = (
        (comparison.dropped, "without both scores"),
        (comparison.only_first, "trials of A alone"),
        (comparison.only_second, "trials of B alone"),
    )
    return "".join(f"; {count} {description}" for count, description in counts if count)


def _shared_facts(
    comparison: Comparison | FamilyComparison, names: Names, lines: Sequence[str]
) -> Iterator[Fact]:
    """Yield the facts of any comparison: its runs, its loss, and both means.

    lines: the words of these facts for people.
    """
    overall, paired = comparison.overall, comparison.paired
    yield from keyed({"a": names.first, "b": names.second, "differ": names.differ})
    yield from keyed({"notes": list(names.notes), **loss_json(paired)})
    yield Fact("warnings", warnings_of(paired))
    score_a, score_b = (None if mean is None else percent(mean) for mean in overall.means)
    means = {"score_a": score_a, "score_b": score_b}
    tests = {"p": comparison.p, "least_p": overall.least_p, "haystacks": overall.clusters}
    yield Fact("overall", means | tests, "\n".join(lines))
    yield from keyed({"graded": comparison.graded, "counted": comparison.counted})


def _loss_values(difference: Difference, loss: Loss | None) -> dict[str, Any]:
    """Return a loss and what it is of, by the columns of its row."""
    first, second = difference.means
    mean_loss = -difference.value if difference.n else None
    return {
        "score_a": first,
        "score_b": second,
        "loss": mean_loss if loss is None else loss.value,
        "low": loss and loss.low,
        "high": loss and loss.high,
        "p": difference.p if difference.n else None,
        "least_p": difference.least_p,
        "n": difference.n,
        "haystacks": difference.clusters,
        "lost": difference.lost,
        "gained": difference.gained,
    }
