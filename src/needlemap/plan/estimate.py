"""Estimate what a run would ask and cost, before any call.

An estimate has a row for each mode of a single family. Of several families it has a row for each,
and their sum.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from needlemap.errors import naming_family
from needlemap.extras import install_line
from needlemap.models import backend_or_default
from needlemap.plan.bins import bin_edges, lower_bound, make_bins
from needlemap.plan.summary import Summary, Terms, WalkedTrials, any_order, summarise
from needlemap.settings import Settings
from needlemap.settings.prices import summed
from needlemap.settings.reading import checked
from needlemap.settings.suites import Chosen
from needlemap.trials.build import Experiment, prepare

# Modes with the same prompts.
PLAIN = ("single", "exact")
# Fields of a summary that are added up over families.
_SUMMED = (
    "cells",
    "prompts",
    "asked",
    "computed",
    "cached",
    "cut_loss",
    "usd_plain",
    "usd_cached",
    "usd_judge",
    "flops",
    "seconds",
    "held_tokens",
)


@dataclass(frozen=True, slots=True)
class PlanEstimate:
    """What a run would ask and cost.

    Attributes:
        chosen: The settings of each family.
        terms: What the cost is computed with.
        rows: The cost in each mode, or of each family if there are several.
        total: The cost of several families, one after the other.
        notes: What a user should know of the settings.
        bound: Haystack tokens that no choice of depths can go below; None for prompts that exist
            already, and for several families.
        first: The first family's prompts.
    """

    chosen: Chosen
    terms: Terms
    rows: Mapping[str, Summary]
    total: Summary | None
    notes: tuple[str, ...]
    bound: int | None
    first: Experiment

    @property
    def run_summary(self) -> Summary:
        """Return the cost of the run itself: in its mode, over all families."""
        if self.total is not None:
            return self.total
        mode = self.chosen.first.mode
        return self.rows.get(mode, self.rows["single"])


def estimate_plan(chosen: Chosen, terms: Terms) -> PlanEstimate:
    """Return what a run would ask and cost.

    Raises SettingsError for terms or settings that no cost can be computed with.
    """
    terms.check()
    rows: dict[str, Summary] = {}
    notes = [chosen.note] if chosen.note else []
    first = bound = None
    for name, settings in chosen.families.items():
        with naming_family(name):
            family_settings = settings if chosen.suite else _in_mode(settings, "single")
            experiment = prepare(family_settings, asked=False)
        notes += [note for note in notes_on(experiment) if note not in notes]
        first = first or experiment
        if chosen.suite:
            rows[name] = _summary(experiment, terms, any_order=yardstick(experiment, terms))
        else:
            rows, bound = _by_mode(experiment, settings, terms)

    # A run has at least one family.
    assert first is not None
    return PlanEstimate(
        chosen=chosen,
        terms=terms,
        rows=rows,
        total=sum_of(list(rows.values())) if chosen.suite else None,
        notes=tuple(notes),
        bound=bound,
        first=first,
    )


def _by_mode(
    single: Experiment, settings: Settings, terms: Terms
) -> tuple[dict[str, Summary], int | None]:
    """Return the cost in each mode, and the bound of `PlanEstimate`."""
    share = yardstick(single, terms)
    rows = {mode: _summary(_as_mode(single, mode), terms, any_order=share) for mode in PLAIN}
    if single.ready:
        return rows, None
    experiment = prepare(_in_mode(settings, "bins"), asked=False)
    rows["bins"] = _summary(experiment, terms, any_order=share)
    return rows, _bound(experiment)


def notes_on(experiment: Experiment) -> list[str]:
    """Return what a user should know of the settings before prompts are sent."""
    return [
        *experiment.notes,
        *_missing_packages(experiment),
        *_wrapped_texts(experiment),
        *_tiny_depths(experiment.grid.depths),
    ]


def _tiny_depths(depths: Sequence[float]) -> list[str]:
    """Return a line if depths look like shares: they are percents.

    >>> _tiny_depths([0.0, 0.005]), _tiny_depths([0.0, 0.5])
    (['depths are percents: the deepest is 0.5 %. Half of the haystack is 50'], [])
    """
    deepest = 100 * max(depths, default=0.0)
    if not 0 < deepest <= 1:
        return []
    return [f"depths are percents: the deepest is {deepest:g} %. Half of the haystack is 50"]


def _missing_packages(experiment: Experiment) -> list[str]:
    """Return a line with the packages that the model needs and that are not installed here."""
    missing = [name for name in experiment.traits.needs if find_spec(name) is None]
    if not missing:
        return []
    backend = experiment.settings.backend
    return [
        f"'{experiment.settings.model}' needs {' and '.join(missing)} where it is asked, not "
        f"installed here. There, run: {install_line(backend)}"
    ]


def _wrapped_texts(experiment: Experiment) -> list[str]:
    """Return a line if plain texts of another run go to a server as messages.

    The server puts its chat template around them, so that a base model sees another prompt.
    """
    settings = experiment.settings
    is_wrapped = backend_or_default(settings.backend).renders and experiment.traits.chat
    texts = [trial for trial in experiment.trials[:1] if not trial.prompt.chat]
    if not settings.prompts_of or not is_wrapped or not texts:
        return []
    return [
        f"the prompts are plain texts, and '{settings.model}' gets each as a user's message. If it "
        f"is a base model, add --model-options api=completions"
    ]


def yardstick(experiment: Experiment, terms: Terms) -> float:
    """Return the share of the plain grid's tokens that a server with prefix caching serves."""
    if experiment.settings.mode in PLAIN:
        plain = _as_mode(experiment, "single")
    else:
        plain = prepare(_in_mode(experiment.settings, "single"), asked=False)
    walked = WalkedTrials.of(plain, terms.workers or plain.workers)
    return any_order(walked, terms.cache_tokens, terms.cache_block)


def _summary(experiment: Experiment, terms: Terms, any_order: float) -> Summary:
    walked = WalkedTrials.of(experiment, terms.workers or experiment.workers)
    return summarise(walked, terms, any_order=any_order)


def _as_mode(experiment: Experiment, mode: str) -> Experiment:
    """Return the same prompts in the other mode of `PLAIN`."""
    return replace(experiment, settings=experiment.settings.model_copy(update={"mode": mode}))


def _in_mode(settings: Settings, mode: str) -> Settings:
    return checked({**settings.model_dump(), "mode": mode}, "the plan")


def _bound(experiment: Experiment) -> int:
    """Return the haystack tokens that no choice of positions inside the depth bins can go below.

    The tokens of all repeats are added up.
    """
    grid = experiment.grid
    edges = bin_edges(grid.depths)
    sizes_by_repeat: dict[int, dict[int, int]] = defaultdict(dict)
    for trial in experiment.trials:
        for repeat, cell in trial.places:
            sizes_by_repeat[repeat][cell.length_tokens] = trial.prompt.haystack_tokens

    total = 0
    for sizes in sizes_by_repeat.values():
        total += lower_bound(make_bins([sizes[length] for length in grid.lengths], edges))
        if experiment.settings.order == "listed":
            # All repeats have the same haystack.
            return total
    return total


def sum_of(rows: Sequence[Summary]) -> Summary:
    """Return the cost of families one after the other, each with all lanes.

    `useful` is the number of lanes that each family can use.
    """
    sums: dict[str, Any] = {name: summed(getattr(row, name) for row in rows) for name in _SUMMED}
    lane_tokens = [row.computed / max(1, row.lanes) for row in rows]
    idle_tokens = sum(row.idle * tokens for row, tokens in zip(rows, lane_tokens, strict=True))
    # Tokens of each family in a single lane.
    alone = [row.computed - row.cut_loss for row in rows]
    longest = sum(tokens / row.speed_up for row, tokens in zip(rows, alone, strict=True))
    return replace(
        rows[0],
        lanes=max(row.lanes for row in rows),
        idle=idle_tokens / max(1.0, sum(lane_tokens)),
        speed_up=sum(alone) / longest if longest else 1.0,
        useful=min(row.useful for row in rows),
        any_order=sum(row.any_order * row.asked for row in rows) / max(1, sums["asked"]),
        **sums,
    )
