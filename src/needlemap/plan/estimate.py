"""What a run would ask and cost, before any call: of one family each mode, of several each
family and all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from needlemap.errors import naming_family
from needlemap.extras import install_line
from needlemap.plan.bins import bin_edges, lower_bound, make_bins
from needlemap.plan.summary import Summary, Terms, WalkedTrials, any_order, summarise
from needlemap.settings import Settings
from needlemap.settings.prices import summed
from needlemap.settings.reading import checked
from needlemap.settings.suites import Chosen
from needlemap.trials.build import Experiment, prepare

PLAIN = ("single", "exact")  # of the same prompts
_SUMMED = (
    *("cells", "prompts", "asked", "computed", "cached", "cut_loss"),
    *("usd_plain", "usd_cached", "usd_judge", "flops", "seconds", "held_tokens"),
)


@dataclass(frozen=True, slots=True)
class PlanEstimate:
    """A plan. rows: what each mode comes to, or where there are several families each of them.
    total: all families, one behind the other. notes: what a user should know of the settings.
    bound: haystack tokens that no choice of depths can go below; None for prompts that exist
    already, and for several families. first: the first family's prompts.
    """

    chosen: Chosen
    terms: Terms
    rows: Mapping[str, Summary]
    total: Summary | None
    notes: tuple[str, ...]
    bound: int | None
    first: Experiment

    @property
    def own(self) -> Summary:
        """What the run itself comes to: in its mode, over all families."""
        mode = self.chosen.first.mode
        return self.total or self.rows.get(mode, self.rows["single"])


def estimate_plan(chosen: Chosen, terms: Terms) -> PlanEstimate:
    """What a run would ask and cost. Raises SettingsError for terms or settings that nothing
    can be reckoned with."""
    terms.check()
    rows: dict[str, Summary] = {}
    notes = [chosen.note] if chosen.note else []
    first = bound = None
    for name, settings in chosen.families.items():
        with naming_family(name):
            experiment = prepare(
                settings if chosen.suite else _in_mode(settings, "single"), asked=False
            )
        notes += [note for note in notes_on(experiment) if note not in notes]
        first = first or experiment
        if chosen.suite:
            rows[name] = _summary(experiment, terms, yardstick(experiment, terms))
        else:
            rows, bound = _by_mode(experiment, settings, terms)
    assert first is not None  # a run has a family
    total = sum_of(list(rows.values())) if chosen.suite else None
    return PlanEstimate(chosen, terms, rows, total, tuple(notes), bound, first)


def _by_mode(
    single: Experiment, settings: Settings, terms: Terms
) -> tuple[dict[str, Summary], int | None]:
    """A row a mode, and the bound."""
    found, bound = yardstick(single, terms), None
    rows = {mode: _summary(_as_mode(single, mode), terms, found) for mode in PLAIN}
    if not single.ready:
        experiment = prepare(_in_mode(settings, "bins"), asked=False)
        rows["bins"] = _summary(experiment, terms, found)
        bound = _bound(experiment)
    return rows, bound


def notes_on(experiment: Experiment) -> list[str]:
    """What a user should know of the settings before prompts are asked."""
    return [*experiment.notes, *_lacking(experiment), *_tiny_depths(experiment.grid.depths)]


def _tiny_depths(depths: Sequence[float]) -> list[str]:
    """A line where depths look like shares: they are percents.

    >>> _tiny_depths([0.0, 0.005]), _tiny_depths([0.0, 0.5])
    (['depths are percents: the deepest is 0.5 %. Half of the haystack is 50'], [])
    """
    deepest = 100 * max(depths, default=0.0)
    if not 0 < deepest <= 1:
        return []
    return [f"depths are percents: the deepest is {deepest:g} %. Half of the haystack is 50"]


def _lacking(experiment: Experiment) -> list[str]:
    """Which packages the model needs where it is asked, of those that are not installed
    here."""
    missing = [name for name in experiment.traits.needs if find_spec(name) is None]
    if not missing:
        return []
    backend = experiment.settings.backend
    return [
        f"'{experiment.settings.model}' needs {' and '.join(missing)} where it is asked, not "
        f"installed here. "
        f"There, run: {install_line(backend)}"
    ]


def yardstick(experiment: Experiment, terms: Terms) -> float:
    """What a server with prefix caching finds of the plain grid's tokens, asked in any
    order."""
    own = experiment.settings.mode in PLAIN
    plain = (
        _as_mode(experiment, "single")
        if own
        else prepare(_in_mode(experiment.settings, "single"), asked=False)
    )
    walked = WalkedTrials.of(plain, terms.workers or plain.workers)
    return any_order(walked, terms.cache_tokens, terms.cache_block)


def _summary(experiment: Experiment, terms: Terms, any_order: float) -> Summary:
    """What an experiment comes to, beside what any order finds."""
    return summarise(
        WalkedTrials.of(experiment, terms.workers or experiment.workers), terms, any_order
    )


def _as_mode(experiment: Experiment, mode: str) -> Experiment:
    """The same prompts in the other of `PLAIN`."""
    return replace(experiment, settings=experiment.settings.model_copy(update={"mode": mode}))


def _in_mode(settings: Settings, mode: str) -> Settings:
    return checked({**settings.model_dump(), "mode": mode}, "the plan")


def _bound(experiment: Experiment) -> int:
    """Haystack tokens that no choice of positions inside the depth bins can go below, over all
    repeats."""
    grid, total = experiment.grid, 0
    edges = bin_edges(grid.depths)
    sized: dict[int, dict[int, int]] = defaultdict(dict)
    for trial in experiment.trials:
        for repeat, cell in trial.places:
            sized[repeat][cell.length_tokens] = trial.prompt.haystack_tokens
    for sizes in sized.values():
        total += lower_bound(make_bins([sizes[length] for length in grid.lengths], edges))
        if experiment.settings.order == "listed":
            return total
    return total


def sum_of(rows: Sequence[Summary]) -> Summary:
    """Families one behind the other, each with all lanes. useful: what each of them could
    use."""
    sums: dict[str, Any] = {name: summed(getattr(row, name) for row in rows) for name in _SUMMED}
    computed = [row.computed / max(1, row.lanes) for row in rows]
    idle = sum(row.idle * each for row, each in zip(rows, computed, strict=True)) / max(
        1.0, sum(computed)
    )
    alone = [row.computed - row.cut_loss for row in rows]
    longest = sum(each / row.speed_up for row, each in zip(rows, alone, strict=True))
    return replace(
        rows[0],
        lanes=max(row.lanes for row in rows),
        idle=idle,
        speed_up=sum(alone) / longest if longest else 1.0,
        useful=min(row.useful for row in rows),
        any_order=sum(row.any_order * row.asked for row in rows) / max(1, sums["asked"]),
        **sums,
    )
