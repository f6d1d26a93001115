"""What a run would ask and cost, as a report: a plan by mode or by family, or what a seek
asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from needlemap.asking.seek import rehearsed
from needlemap.asking.until import PlannedPairs
from needlemap.plan.estimate import PlanEstimate, estimate_plan, sum_of
from needlemap.plan.summary import WORTH, Summary, Terms
from needlemap.reports.labels import tokens_label
from needlemap.reports.renderers.json import to_json
from needlemap.reports.report import COUNT, Column, Fact, Parts, Report, Row, Table, Unit, keyed
from needlemap.settings import Settings
from needlemap.settings.prices import Prices, price_source
from needlemap.settings.suites import Chosen
from needlemap.stats.seek import GRID, PLACES, plain_grid
from needlemap.text import counted, dollars, short

_SEEK_NOTES = (
    "No better than plain repeats (--repeats) for a model that holds to the end, or falls at the "
    "longest lengths, because most tokens go there in any case. With a prefix cache repeats "
    "compute a quarter of their tokens, seeking two thirds.",
    "If hits and misses repeat cell by cell, a seek usually reports that and gives no length: run "
    "a grid.",
)


def plan_report(chosen_by_model: Mapping[str, Chosen], terms: Terms) -> Report:
    """Return the report of what a run sends to each model and, with several, of their sum.

    If terms or settings do not allow to compute it, SettingsError is raised.
    """
    if any(chosen.first.seek is not None for chosen in chosen_by_model.values()):
        return _combine_reports(
            [_seek_report(chosen, len(chosen_by_model) > 1) for chosen in chosen_by_model.values()]
        )
    plans = [estimate_plan(chosen, terms) for chosen in chosen_by_model.values()]
    reports = [_estimate_report(plan, len(plans) > 1) for plan in plans]
    if len(plans) == 1:
        return reports[0]
    total = sum_of([plan.run_summary for plan in plans])
    names = [plan.chosen.first.label or plan.chosen.first.model for plan in plans]
    rows = {name: plan.run_summary for name, plan in zip(names, plans, strict=True)}
    rows["total"] = total
    totals = Fact("total", _fields(total)), _table("", rows, "model")
    return _combine_reports(reports, *totals)


def _combine_reports(reports: Sequence[Report], *more: Fact | Table) -> Report:
    """Return several models' reports one below the other."""
    if len(reports) == 1:
        return reports[0]
    parts: list[Fact | Table | Parts] = [Fact("models", list(map(to_json, reports)))]
    for report in reports:
        parts += [replace(part, key="") for part in report.parts]
    return Report("plan", counted(len(reports), "model"), (*parts, *more))


def _estimate_report(plan: PlanEstimate, blank: bool) -> Report:
    """Return one model's plan. blank: whether it ends with an empty line."""
    settings, total = plan.chosen.first, plan.total
    head: dict[str, Any] = {"model": settings.model, "mode": settings.mode}
    prices = {"prices": price_source(settings)}
    if total is None:
        head |= {"repeats": settings.repeats, "bins_lower_bound": plan.bound, **prices}
        title, table = _title(plan), _table("modes", plan.rows, "mode", settings.mode)
    else:
        title = f"suite {plan.chosen.suite} · {settings.model} · mode {settings.mode}"
        families = {name: _fields(row) for name, row in plan.rows.items()}
        head = {"suite": plan.chosen.suite, **head, **prices}
        head |= {"total": _fields(total), "families": families}
        table = _table("", {**plan.rows, "total": total}, "family")
    vocabulary_notes, notes = _fed_notes(plan), _notes(plan)
    mark = "* this run's mode. " if total is None and settings.mode in plan.rows else ""
    parts: list[Fact | Table | Parts] = [
        *keyed(head),
        *(Fact(said=f"note: {note}") for note in plan.notes if not settings.quiet),
        Fact(said=f"{title}\n"),
        *(Fact(said=f"{note}\n") for note in vocabulary_notes),
        table,
        *_until_facts(plan),
        Fact(
            "notes",
            [*plan.notes, *vocabulary_notes, *notes],
            mark + "\n".join(notes) + "\n" * blank,
        ),
    ]
    return Report("plan", title, tuple(parts))


def _until_facts(plan: PlanEstimate) -> list[Fact]:
    """Return what `--until` sends until a verdict, and what random pieces cost and save."""
    if not plan.chosen.first.until:
        return []
    experiment = replace(plan.first, settings=plan.chosen.first)
    pairs = PlannedPairs.of(experiment)
    cost = pairs.cost(experiment)
    return [Fact("until", asdict(cost), f"until decided: {pairs.goal.label}: {cost.label}.\n")]


def _title(plan: PlanEstimate) -> str:
    first, grid, settings = plan.first, plan.first.grid, plan.chosen.first
    axes = counted(len(grid.lengths), "length"), counted(len(grid.depths), "depth")
    return (
        f"{settings.model} · {first.task.name} · {' x '.join(axes)} x {settings.repeats} · "
        f"tokenizer {first.tokenizer.name} · lanes: {plan.rows['single'].lanes}"
    )


def _fields(row: Summary) -> dict[str, Any]:
    """Return a summary for programs, without the name of its mode."""
    fields = {name: value for name, value in asdict(row).items() if name != "mode"}
    return fields | {"factor": row.factor, "gain": row.gain}


def _table(
    key: str, rows_by_name: Mapping[str, Summary], first: str, marked_name: str = ""
) -> Table:
    """Return summaries under their names.

    first: the head of the names. marked_name: the name to mark.
    """
    rows = tuple(Row({"mode": name, **_fields(row)}) for name, row in rows_by_name.items())
    has_prices = any(row.usd_plain for row in rows_by_name.values())
    name = Column(
        "name", first, of=lambda row: f"{row['mode']}{' *' * (row['mode'] == marked_name)}"
    )
    columns = [
        column
        for column in _COLUMNS
        if (has_prices if column.unit is _USD else _is_known(column.key, rows))
    ]
    return Table(key, (name, *columns), rows)


def _is_known(key: str, rows: Sequence[Row]) -> bool:
    return any(row.values[key] is not None for row in rows)


def _time(seconds: float) -> str:
    """Return a time in minutes, from two hours on in hours, from three days on in days.

    >>> _time(1_560), _time(46_974), _time(525_252)
    ('26.0 min', '13.0 h', '6.1 days')
    """
    if seconds < 2 * 3600:
        return f"{seconds / 60:,.1f} min"
    if seconds < 72 * 3600:
        return f"{seconds / 3600:,.1f} h"
    return f"{seconds / 86_400:,.1f} days"


_TOKENS = Unit(short)
_TIMES = Unit("{:.1f}".format)
_USD = Unit(dollars, none=dollars(None))
_COLUMNS = (
    Column("cells", "cells", COUNT),
    Column("prompts", "calls", COUNT),
    Column("asked", "asked", _TOKENS),
    Column("computed", "computed", _TOKENS),
    Column("cached", "cached", _TOKENS),
    Column("factor", "times fewer", _TIMES),
    Column("gain", "vs caching", _TIMES),
    Column("usd_plain", "dollars", _USD),
    Column("usd_cached", "if cached", _USD),
    Column("flops", "PFLOP", Unit(lambda flops: f"{flops / 1e15:,.2f}")),
    Column("seconds", "time", Unit(_time)),
    Column("held_tokens", "server cache", _TOKENS),
)


def _fed_notes(plan: PlanEstimate) -> list[str]:
    """Return a note on whose tokens a plan counts, if lengths are of another vocabulary."""
    if plan.first.tokens_fed is None:
        return []
    name = plan.first.tokenizer.name
    return [f"lengths are tokens of {name}; those of the plan are the model's own"]


def _notes(plan: PlanEstimate) -> list[str]:
    """Return notes on what the table does not show."""
    settings, row, is_single = plan.chosen.first, plan.run_summary, plan.total is None
    notes: list[str] = []
    if is_single and settings.mode not in plan.rows:
        notes.append("Mode cold computes all that single asks.")
    # A needle leaves a bin in which no sentence ends, and then the bound does not hold.
    if plan.bound is not None and plan.bound <= plan.rows["bins"].computed:
        notes.append(
            f"Mode bins computes {short(plan.rows['bins'].computed)} tokens. No positions inside "
            f"its depth bins need fewer than {short(plan.bound)} haystack tokens."
        )
    notes.append(_caching_note(row, plan.terms))
    if is_single and row.lanes > 1:
        notes.append(_cut_note(row))
    if row.usd_plain:
        most = f"all {settings.most_tokens} tokens" if is_single else "its whole budget"
        source = price_source(settings)
        notes.append(f"dollars: at most, every answer using {most}; prices: {source}")
    notes += _judge_notes(row)
    if is_single and row.held_tokens is not None and row.held_tokens < 0.9 * row.cached:
        notes.append(
            f"warning: a cache of {short(plan.terms.cache_tokens or 0)} tokens serves "
            f"{short(row.held_tokens)} of the {short(row.cached)} that could be shared. "
            f"Use fewer lanes (--concurrency) or a larger cache."
        )
    return notes


def _cut_note(row: Summary) -> str:
    """Return what cutting into lanes costs."""
    worth = row.speed_up / row.lanes
    note = (
        f"with {row.lanes} requests at a time: {row.speed_up:.1f} times as fast as one, "
        f"{short(row.cut_loss)} more tokens computed, {row.idle:.0%} idle"
    )
    if worth < WORTH:
        note += (
            f" ({worth:.0%} of {row.lanes}; up to {row.useful} keep {WORTH:.0%}, "
            f"see needlemap help scaling)"
        )
    return note


def _caching_note(row: Summary, terms: Terms) -> str:
    """Return what the two factors are compared with."""
    cache = "and room for all prompts"
    if terms.cache_tokens:
        cache = f"in {short(terms.cache_tokens)} tokens, in the grid's order"
    return (
        f"times fewer: compared with no cache. vs caching: compared with a server with prefix "
        f"caching {cache}, which finds {row.any_order:.0%} of the plain grid cached."
    )


def _judge_notes(row: Summary) -> list[str]:
    """Return what a judge costs in addition; nothing if none is needed, or it is free."""
    if row.usd_judge is None:
        return [
            "judge: its price is not known. Give --scorer-options 'prices={input: USD, output: "
            "USD}'"
        ]
    if not row.usd_judge:
        return []
    return [f"judge: {dollars(row.usd_judge)} dollars more, at most, one verdict each"]


def _seek_report(chosen: Chosen, blank: bool) -> Report:
    """Return what seeking asks: prompt tokens by kind of model, their range, and a grid's.

    For a suite it is what each of its families asks. blank: whether it ends with an empty line.
    """
    settings, families = chosen.first, len(chosen.families)
    lengths, kinds = settings.lengths.tokens, rehearsed(settings)
    ends = [min(lengths), max(lengths)]
    fewest_tokens, most_tokens = (
        min(tokens[0] for tokens in kinds.values()),
        max(tokens[2] for tokens in kinds.values()),
    )
    grid = round(plain_grid(ends))
    facts = {
        "model": settings.model,
        "families": families,
        "seek": settings.seek,
        "within": settings.within,
        "lengths": ends,
        "tokens": {
            name: [round(tokens) for tokens in quantiles] for name, quantiles in kinds.items()
        },
        "least": round(fewest_tokens),
        "most": round(most_tokens),
        "grid": grid,
    }
    cost = partial(_cost, settings)
    shortest, longest = map(tokens_label, ends)
    title = (
        f"{settings.model} · seek {settings.seek:g} % within {settings.within:g} %, {shortest} to "
        f"{longest}, {PLACES} prompts a haystack"
    )
    lead = f"each of {families} families, one after the other:\n" if families > 1 else ""
    heading = (
        f"prompt tokens asked: {cost(fewest_tokens)} to {cost(most_tokens)}, by what the model is "
        f"like (median [10 %, 90 %]):"
    )
    width = max(map(len, kinds))
    rows = [
        f"  {name:<{width}}  {cost(middle)} [{short(round(low))}, {short(round(high))}]"
        for name, (low, middle, high) in kinds.items()
    ]
    rows.append(f"  {f'to compare: a {GRID} x {GRID} grid, once':<{width}}  {cost(grid)}")
    fact = Fact(said="\n".join([f"{lead}{title}", heading, *rows]))
    notes = Fact("notes", list(_SEEK_NOTES), "\n".join(_SEEK_NOTES) + "\n" * blank)
    return Report("plan", title, (*keyed(facts), fact, notes))


def _cost(settings: Settings, tokens: float) -> str:
    usd = Prices.of(settings).usd(round(tokens), 0, 0)
    return short(round(tokens)) + (f" (${dollars(usd)})" if usd else "")
