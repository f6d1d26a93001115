"""`needlemap plan`: what a run would ask and cost, in each mode, before any call."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from needlemap.errors import SettingsError
from needlemap.plan.bins import lower_bound
from needlemap.plan.cost import Shape
from needlemap.plan.places import make_bins_of
from needlemap.plan.summary import WORTH, Summary, Walked, any_order, summarise
from needlemap.settings.prices import price_source
from needlemap.settings.reading import checked
from needlemap.settings.settings import Settings
from needlemap.text.printable import counted, show
from needlemap.trials.build import Experiment, prepare

MODES = ("single", "exact", "bins", "lattice")
PLAIN = ("single", "exact")  # of the same prompts


@dataclass(frozen=True, slots=True)
class Terms:
    """What a plan is reckoned with. workers: lanes. cache_tokens: a server's cache; block: its block size."""

    workers: int | None = None
    tokens_per_second: float | None = None
    model_config: Path | None = None
    cache_tokens: int | None = None
    cache_block: int = 16

    def check(self) -> None:
        """Raises SettingsError for numbers that nothing can be reckoned with."""
        for name, value in asdict(self).items():
            if isinstance(value, int | float) and not value > 0:
                raise SettingsError(f"--{name.replace('_', '-')} must be above 0, got {value:g}.")


@dataclass(frozen=True, slots=True)
class Reckoned:
    """A plan. first: the plain grid's trials. rows: what each mode comes to. told: what a user should know of
    the settings. bound: tokens that no choice of depths can go below; None for prompts that exist already."""

    settings: Settings
    terms: Terms
    first: Experiment
    rows: list[Summary]
    bound: int | None
    told: list[str]


def plan_command(preset: str | None, terms: Terms, as_json: bool, flags: Mapping[str, Any]) -> None:
    """Print the plan."""
    plan = reckon(preset, terms, flags)
    for note in plan.told if not plan.settings.quiet else ():
        show(f"note: {note}", file=sys.stderr)
    if as_json:
        show(json.dumps(plan_summary(plan), indent=1))
    else:
        _show(plan)


def reckon(preset: str | None, terms: Terms, flags: Mapping[str, Any]) -> Reckoned:
    """What a run would ask and cost in each mode. Raises SettingsError."""
    from needlemap.commands.settle import configured, notes_on  # late: it needs what a run needs

    terms.check()
    settings, older = configured(preset, flags)
    single = prepare(_in_mode(settings, "single"))
    experiments = {"single": single, "exact": _as_mode(single, "exact")}
    if not single.ready:
        experiments |= {mode: prepare(_in_mode(settings, mode)) for mode in MODES[2:]}
    found = yardstick(single, terms)
    rows = [summary(experiment, terms, found) for experiment in experiments.values()]
    bound = _bound(experiments["bins"]) if "bins" in experiments else None
    return Reckoned(settings, terms, single, rows, bound, [*older, *notes_on(single)])


def yardstick(experiment: Experiment, terms: Terms) -> float:
    """What a server with prefix caching finds of the plain grid's tokens, asked in any order."""
    own = experiment.settings.mode in PLAIN
    plain = _as_mode(experiment, "single") if own else prepare(_in_mode(experiment.settings, "single"))
    walked = Walked.of(plain, terms.workers or plain.workers)
    return any_order(walked, terms.cache_tokens, terms.cache_block)


def summary(experiment: Experiment, terms: Terms, any_order: float) -> Summary:
    """What an experiment comes to, reckoned with such terms, beside what any order finds."""
    return summarise(
        Walked.of(experiment, terms.workers or experiment.workers),
        any_order=any_order,
        shape=Shape.of_config(terms.model_config) if terms.model_config else None,
        tokens_per_second=terms.tokens_per_second,
        cache_tokens=terms.cache_tokens,
        cache_block=terms.cache_block,
    )


def _as_mode(experiment: Experiment, mode: str) -> Experiment:
    """The same prompts in the other of `PLAIN`."""
    return replace(experiment, settings=experiment.settings.model_copy(update={"mode": mode}))


def _in_mode(settings: Settings, mode: str) -> Settings:
    return checked({**settings.model_dump(), "mode": mode}, "the plan")


def _bound(experiment: Experiment) -> int:
    """Haystack tokens that no choice of positions inside the depth bins can go below, over all repeats."""
    settings, total = experiment.settings, 0
    for repeat in sorted({trial.repeat for trial in experiment.trials}):
        sizes = {
            t.cell.length_tokens: t.prompt.haystack_tokens for t in experiment.trials if t.repeat == repeat
        }
        total += lower_bound(
            make_bins_of(experiment.grid, [sizes[n] for n in experiment.grid.lengths], settings.bin_tolerance)
        )
        if settings.order == "listed":
            return total
    return total


def plan_summary(plan: Reckoned) -> dict[str, Any]:
    """The plan as `--json` prints it."""
    settings = plan.settings
    return {
        "model": settings.model,
        "mode": settings.mode,
        "repeats": settings.repeats,
        "bins_lower_bound": plan.bound,
        "prices": price_source(settings),
        "modes": [{**asdict(row), "factor": row.factor, "gain": row.gain} for row in plan.rows],
        "notes": [*plan.told, *_fed(plan.first), *_notes(plan)],
    }


def _show(plan: Reckoned) -> None:
    first, settings = plan.first, plan.settings
    axes = counted(len(first.grid.lengths), "length"), counted(len(first.grid.depths), "depth")
    show(
        f"{settings.model} · {first.task.name} · {' x '.join(axes)} x {settings.repeats} · "
        f"tokenizer {first.tokenizer.name} · lanes: {plan.rows[0].lanes}\n"
    )
    show("".join(f"{note}\n\n" for note in _fed(first)), end="")
    show("\n".join(table_lines(plan.rows, settings.mode)), end="\n\n")
    mark = "* this run's mode. " if any(row.mode == settings.mode for row in plan.rows) else ""
    show(mark + "\n".join(_notes(plan)))


def _fed(experiment: Experiment) -> list[str]:
    """Whose tokens a plan counts, where that is not who lengths are of."""
    if experiment.tokens_fed is None:
        return []
    return [f"lengths are tokens of {experiment.tokenizer.name}; those of the plan are the model's own"]


def table_lines(rows: list[Summary], chosen: str = "", first: str = "mode") -> list[str]:
    """Summaries as a table. chosen: the one to mark. first: what the first column is called."""
    lines = [_headings(rows, first), *([*_cells(row, chosen), *_extras(row, rows)] for row in rows)]
    wide = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rests = [[text.rjust(width) for text, width in zip(line[1:], wide[1:], strict=True)] for line in lines]
    return ["  ".join([line[0].ljust(wide[0]), *rest]) for line, rest in zip(lines, rests, strict=True)]


def _headings(rows: list[Summary], first: str) -> list[str]:
    found = [first, "cells", "calls", "asked", "computed", "cached", "times fewer", "beside caching"]
    if any(row.usd_plain for row in rows):
        found += ["dollars", "if cached"]
    found += ["PFLOP"] if rows[0].flops is not None else []
    found += ["time"] if rows[0].seconds is not None else []
    found += ["server cache"] if rows[0].held_tokens is not None else []
    return found


def _cells(row: Summary, chosen: str) -> list[str]:
    mark = " *" if row.mode == chosen else ""
    tokens = (_short(number) for number in (row.asked, row.computed, row.cached))
    return [
        row.mode + mark,
        f"{row.cells:,}",
        f"{row.prompts:,}",
        *tokens,
        f"{row.factor:.1f}",
        f"{row.gain:.1f}",
    ]


def _extras(row: Summary, rows: list[Summary]) -> list[str]:
    found = []
    if any(other.usd_plain for other in rows):
        found += [_dollars(row.usd_plain), _dollars(row.usd_cached)]
    if row.flops is not None:
        found.append(f"{row.flops / 1e15:,.2f}")
    if row.seconds is not None:
        found.append(_long(row.seconds))
    if row.held_tokens is not None:
        found.append(_short(row.held_tokens))
    return found


def _short(tokens: int) -> str:
    """A number of tokens in three or four digits.

    >>> _short(4_512_345), _short(78_988_000), _short(950)
    ('4.51M', '79.0M', '950')
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if tokens >= size:
            return f"{tokens / size:.{2 if tokens < 10 * size else 1}f}{unit}"
    return str(tokens)


def _long(seconds: float) -> str:
    """A time in minutes, from two hours on in hours, from three days on in days.

    >>> _long(1_560), _long(46_974), _long(525_252)
    ('26.0 min', '13.0 h', '6.1 days')
    """
    if seconds < 2 * 3600:
        return f"{seconds / 60:,.1f} min"
    return f"{seconds / 3600:,.1f} h" if seconds < 72 * 3600 else f"{seconds / 86_400:,.1f} days"


def _dollars(usd: float | None) -> str:
    return "?" if usd is None else f"{usd:,.2f}"


def _cut_note(row: Summary) -> str:
    """What cutting into lanes costs."""
    worth = row.speed_up / row.lanes
    said = (
        f"cut into {row.lanes} lanes: {_short(row.cut_loss)} tokens computed again, {row.idle:.0%} idle; "
        f"{row.speed_up:.1f} times as fast as one"
    )
    if worth < WORTH:
        said += f" ({worth:.0%} of {row.lanes}; up to {row.useful} keep {WORTH:.0%}, see docs/scaling.md)"
    return said


def caching_note(row: Summary, terms: Terms) -> str:
    """What the two factors are reckoned against."""
    how = "and room for all, in any order"
    if terms.cache_tokens:
        how = f"in {_short(terms.cache_tokens)} tokens, in the grid's order"
    return (
        f"times fewer: than without a cache. beside caching: than a server with prefix caching {how}, which "
        f"finds {row.any_order:.0%} of the plain grid cached."
    )


def judge_notes(row: Summary) -> list[str]:
    """What a judge costs beside the model; nothing where none is asked, or it is free."""
    if row.usd_judge is None:
        return ["judge: its price is not known. Give --scorer-options 'prices={input: USD, output: USD}'"]
    return [f"judge: {_dollars(row.usd_judge)} dollars more, at most, one verdict each"] * bool(row.usd_judge)


def _notes(plan: Reckoned) -> list[str]:
    """What the table does not say of itself."""
    settings, rows, bound, terms = plan.settings, plan.rows, plan.bound, plan.terms
    by_mode = {row.mode: row for row in rows}
    chosen = by_mode.get(settings.mode, by_mode["single"])
    notes = [] if settings.mode in by_mode else ["Mode cold computes all that single asks."]
    if bound is not None:
        notes.append(
            f"However depths are chosen inside their bins, {_short(bound)} haystack tokens must be computed; "
            f"bins comes to {_short(by_mode['bins'].computed)} tokens in all."
        )
    notes.append(caching_note(chosen, terms))
    if chosen.lanes > 1:
        notes.append(_cut_note(chosen))
    if any(row.usd_plain for row in rows):
        budget, source = settings.most_tokens, price_source(settings)
        notes.append(f"dollars: at most, every answer using all {budget} tokens; prices: {source}")
    notes += judge_notes(chosen)
    if chosen.held_tokens is not None and chosen.held_tokens < 0.9 * chosen.cached:
        notes.append(
            f"warning: a cache of {_short(terms.cache_tokens or 0)} tokens serves "
            f"{_short(chosen.held_tokens)} of the {_short(chosen.cached)} that could be shared. "
            f"Use fewer lanes (--concurrency) or a larger cache."
        )
    return notes
