"""`needlemap plan` and `prompts`: what a run would ask and cost.

Nothing is asked here. Prompts are JSON Lines, for people who ask their models themselves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from needlemap.asking.seek import rehearsed
from needlemap.commands.announce import show_json, tell_notes, tell_rules
from needlemap.commands.arguments import PlanFlags
from needlemap.files import refuse_link
from needlemap.grid import make_grid, percent
from needlemap.maps.seek import PLACES
from needlemap.plan import ordered
from needlemap.plan.estimate import PlanEstimate, estimate_plan, plans_fields, sum_of
from needlemap.plan.summary import Shape, Summary, Terms
from needlemap.reports.labels import tokens_label
from needlemap.settings import Settings
from needlemap.settings.prices import Prices
from needlemap.settings.suites import Chosen, only_model
from needlemap.text import counted, dollars, short, show, show_data, tell
from needlemap.text.printing import in_columns
from needlemap.trials import Trial
from needlemap.trials.build import prepare

_SOMETIMES = ("decoys", "choices", "none", "like", "owners")  # what only some references have


def plan_command(each: Mapping[str, Chosen], typed: PlanFlags) -> None:
    """Print the plan of each model, and of several their sum."""
    shape = Shape.of_config(typed.model_config) if typed.model_config else None
    terms = Terms(
        typed.workers, typed.tokens_per_second, shape, typed.cache_tokens, typed.cache_block
    )
    if any(chosen.first.seek is not None for chosen in each.values()):
        _show_seek(each.values(), typed.json)
        return
    plans = {
        chosen.first.label or chosen.first.model: estimate_plan(chosen, terms)
        for chosen in each.values()
    }
    if typed.json:
        show_json(plans_fields(list(plans.values())))
        return
    for at, plan in enumerate(plans.values()):
        show("\n" * bool(at), end="")
        _show_plan(plan)
    if len(plans) > 1:
        rows = {name: plan.own for name, plan in plans.items()}
        show(
            "\n".join(
                ["", *table_lines({**rows, "total": sum_of(list(rows.values()))}, first="model")]
            )
        )


def _show_seek(each: Collection[Chosen], as_json: bool) -> None:
    """Print what seeking would ask, of a suite for each of its families."""
    if as_json:
        plans = [
            {
                "model": chosen.first.model,
                "families": len(chosen.families),
                **seek_plan(chosen.first),
            }
            for chosen in each
        ]
        show_json(plans[0] if len(plans) == 1 else {"models": plans})
        return
    for at, chosen in enumerate(each):
        families = len(chosen.families)
        ahead = f"each of {families} families, one after the other:\n" if families > 1 else ""
        show("\n" * bool(at) + ahead + seek_plan_text(chosen.first))


def seek_plan(settings: Settings) -> dict[str, Any]:
    """What a seek would ask: by kind of model the prompt tokens, in all a range, and a grid beside
    it."""
    lengths = make_grid(settings.lengths, settings.depths).lengths
    kinds = rehearsed(settings)
    ends = [each[0] for each in kinds.values()], [each[2] for each in kinds.values()]
    return {
        "seek": settings.seek,
        "within": settings.within,
        "lengths": [lengths[0], lengths[-1]],
        "tokens": {name: [round(each) for each in three] for name, three in kinds.items()},
        "least": round(min(ends[0])),
        "most": round(max(ends[1])),
        "grid": round(15 * np.geomspace(lengths[0], lengths[-1], 15).sum()),
        "notes": list(_NOTES),
    }


_NOTES = (
    "No better than plain repeats (--repeats) for a model that holds to the end, or falls at the "
    "longest "
    "lengths: the tokens are there anyway. With a prefix cache repeats cost a quarter, seeking two "
    "thirds.",
    "Where hits and misses repeat cell by cell (salt and pepper) it says so and gives no point: "
    "ask a grid.",
)


def seek_plan_text(settings: Settings) -> str:
    """The plan as lines."""
    plan = seek_plan(settings)
    names = list(plan["tokens"])
    wide = max(map(len, names))
    least, most = (_cost(settings, plan[end]) for end in ("least", "most"))
    rows = [
        f"  {name:<{wide}}  {_cost(settings, middle)} [{short(low)}, {short(high)}]"
        for name, (low, middle, high) in plan["tokens"].items()
    ]
    first, last = map(tokens_label, plan["lengths"])
    return "\n".join(
        [
            f"{settings.model} · seek {settings.seek:g} % within {settings.within:g} %, {first} to "
            f"{last}, "
            f"{PLACES} prompts a haystack",
            f"prompt tokens asked: {least} to {most}, by what the model is like (median [10 %, 90 "
            f"%]):",
            *rows,
            f"  {'beside it a 15 x 15 grid, once':<{wide}}  {_cost(settings, plan['grid'])}",
            *plan["notes"],
        ]
    )


def _cost(settings: Settings, tokens: float) -> str:
    usd = Prices.of(settings).usd(round(tokens), 0, 0)
    return short(round(tokens)) + (f" (${dollars(usd)})" if usd else "")


def _show_plan(plan: PlanEstimate) -> None:
    chosen = plan.chosen
    for note in () if chosen.first.quiet else plan.told:
        tell(f"note: {note}")
    show(_title(plan))
    if plan.total is None:
        show("".join(f"{note}\n\n" for note in plan.fed_notes()), end="")
        mode = chosen.first.mode
        show("\n".join(table_lines(plan.rows, mode)), end="\n\n")
        show("* this run's mode. " if mode in plan.rows else "", end="")
    else:
        show("\n".join(table_lines({**plan.rows, "total": plan.total}, first="family")), end="\n\n")
    show("\n".join(plan.notes()))


def _title(plan: PlanEstimate) -> str:
    settings = plan.chosen.first
    if plan.total is not None:
        return f"suite {plan.chosen.suite} · {settings.model} · mode {settings.mode}\n"
    first, grid = plan.first, plan.first.grid
    axes = counted(len(grid.lengths), "length"), counted(len(grid.depths), "depth")
    return (
        f"{settings.model} · {first.task.name} · {' x '.join(axes)} x {settings.repeats} · "
        f"tokenizer {first.tokenizer.name} · lanes: {plan.rows['single'].lanes}\n"
    )


def table_lines(named: Mapping[str, Summary], chosen: str = "", first: str = "mode") -> list[str]:
    """Summaries as a table. chosen: the one to mark. first: what the first column is called."""
    priced = any(row.usd_plain for row in named.values())
    rows = {name: _columns(row, priced) for name, row in named.items()}
    cells = [[f"{name} *" if name == chosen else name, *row.values()] for name, row in rows.items()]
    return in_columns([[first, *next(iter(rows.values()))], *cells], numbers=True)


def _columns(row: Summary, priced: bool) -> dict[str, str]:
    """What a table says of a summary, by the columns' headings."""
    found = {
        "cells": f"{row.cells:,}",
        "calls": f"{row.prompts:,}",
        "asked": short(row.asked),
        "computed": short(row.computed),
        "cached": short(row.cached),
        "times fewer": f"{row.factor:.1f}",
        "beside caching": f"{row.gain:.1f}",
    }
    if priced:
        found |= {"dollars": dollars(row.usd_plain), "if cached": dollars(row.usd_cached)}
    found |= {"PFLOP": f"{row.flops / 1e15:,.2f}"} if row.flops is not None else {}
    found |= {"time": _long(row.seconds)} if row.seconds is not None else {}
    found |= {"server cache": short(row.held_tokens)} if row.held_tokens is not None else {}
    return found


def _long(seconds: float) -> str:
    """A time in minutes, from two hours on in hours, from three days on in days.

    >>> _long(1_560), _long(46_974), _long(525_252)
    ('26.0 min', '13.0 h', '6.1 days')
    """
    if seconds < 2 * 3600:
        return f"{seconds / 60:,.1f} min"
    return f"{seconds / 3600:,.1f} h" if seconds < 72 * 3600 else f"{seconds / 86_400:,.1f} days"


def prompts_command(each: Mapping[str, Chosen], out: Path | None) -> None:
    """Write all prompts, family by family in the order a run would ask them."""
    chosen = only_model(each)
    tell_rules(chosen)
    if out is None:
        _write(show_data, chosen)
        return
    refuse_link(out)
    with out.open("w", encoding="utf-8") as file:
        count, tokens = _write(file.write, chosen)
    families = f" of {len(chosen.families)} families" if chosen.suite else ""
    tell(f"{count:,} prompts{families}, {tokens:,} tokens: {out}")


def _write(write: Callable[[str], object], chosen: Chosen) -> tuple[int, int]:
    """How many prompts and tokens were written; of several families each line says which."""
    count, tokens, told = 0, 0, set[str]()
    for name, settings in chosen.families.items():
        experiment, family = prepare(settings), {"family": name} if name else {}
        tell_notes(experiment, told)
        for trial in ordered(experiment.trials, settings.mode):
            write(json.dumps({**family, **prompt_line(trial)}, ensure_ascii=False) + "\n")
        count, tokens = count + len(experiment.trials), tokens + experiment.tokens_asked
    return count, tokens


def prompt_line(trial: Trial) -> dict[str, Any]:
    """One prompt with what scoring its answer needs. Depths in percent."""
    prompt, reference = trial.prompt, trial.item.reference
    messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
    also = [{"depth": percent(cell.depth), "repeat": repeat} for repeat, cell in trial.also]
    return {
        "key": trial.key,
        "length": trial.cell.length_tokens,
        "depth": percent(trial.cell.depth),
        "repeat": trial.repeat,
        **({"also": also} if also else {}),
        "tokens": prompt.tokens,
        "needles": [
            {"meant": percent(n.meant), "realised": percent(n.realised)} for n in prompt.needles
        ],
        **({"messages": messages} if prompt.chat else {"prompt": prompt.messages[0].content}),
        "question": reference.question,
        "reference": reference.answer,
        "keywords": list(reference.keywords),
        **{name: value for name in _SOMETIMES if (value := getattr(reference, name))},
        "sha256": prompt.sha256,
    }
