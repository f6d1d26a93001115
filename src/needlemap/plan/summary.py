"""The cost of a run in one mode: tokens, calls, dollars, operations, time. No model is asked.

Operations are those of the prefill, by the model's shape. A server's prefix cache is
simulated: a prompt reuses the leading blocks that are still there. The least recently used
block goes first, and of one prompt the last, since without those before it it is of no use.
That is how vLLM, SGLang, LMDeploy and the providers' prompt caches work, up to their details.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count, takewhile
from pathlib import Path

from needlemap.errors import SettingsError
from needlemap.files import read_regular
from needlemap.plan import (
    Lanes,
    in_common,
    make_lanes,
    ordered,
    shared,
    speed_up,
    useful,
    walk_order,
)
from needlemap.settings.prices import Prices, summed
from needlemap.trials import Trial, requests
from needlemap.trials.build import Experiment
from needlemap.untrusted import read_json

_MOST = 10**9  # of any size in a model's configuration


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder's size. weights: parameters of all layers, without embeddings. width: query
    heads times head size, what attention multiplies with each token of the context."""

    layers: int
    width: int
    weights: int

    @classmethod
    def of_config(cls, path: Path) -> Shape:
        """From a Hugging Face config.json. Raises SettingsError."""
        try:
            config = read_json(read_regular(path))
            hidden, layers = _size(config["hidden_size"]), _size(config["num_hidden_layers"])
            heads = _size(config["num_attention_heads"])
            size = _size(config.get("head_dim") or max(1, hidden // heads))
            pairs = _size(config.get("num_key_value_heads") or heads)
            inner = _size(config.get("intermediate_size") or 4 * hidden)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SettingsError(
                f"'{path}' is no model configuration that can be read: "
                f"{str(error)[:200] or error!r}."
            ) from error
        gates = (
            3
            if str(config.get("hidden_act", "silu")) in ("silu", "swish", "gelu_pytorch_tanh")
            else 2
        )
        return cls(
            layers,
            heads * size,
            layers * hidden * (2 * heads * size + 2 * pairs * size + gates * inner),
        )


def _size(value: object) -> int:
    """A size that a model can have. Raises ValueError."""
    if not isinstance(value, int) or not 0 < value < _MOST:
        raise ValueError(f"a size of {str(value)[:40]}")
    return value


@dataclass(frozen=True, slots=True)
class Terms:
    """What a plan is reckoned with. workers: lanes. tokens_per_second: prefill speed of one
    worker, of short prompts if there is a shape: what attention adds to long ones is then
    reckoned too. cache_tokens: a server's cache; cache_block: its block size."""

    workers: int | None = None
    tokens_per_second: float | None = None
    shape: Shape | None = None
    cache_tokens: int | None = None
    cache_block: int = 16

    def check(self) -> None:
        """Raises SettingsError for numbers that nothing can be reckoned with."""
        for name, value in asdict(self).items():
            if isinstance(value, int | float) and not value > 0:
                raise SettingsError(f"--{name.replace('_', '-')} must be above 0, got {value:g}.")


def prefill_flops(shape: Shape, pieces: Iterable[tuple[int, int]]) -> float:
    """Operations to compute tokens start..stop of prompts, for each (start, stop).

    2 per weight and token, and 4 * layers * width per token and token before it (Kaplan et al.
    2020, arXiv 2001.08361, table 1).
    """
    tokens, pairs = 0, 0
    for start, stop in pieces:
        tokens += stop - start
        pairs += (stop * (stop + 1) - start * (start + 1)) // 2
    return 2.0 * shape.weights * tokens + 4.0 * shape.layers * shape.width * pairs


def block_keys(sizes: Sequence[int], shared: Sequence[int], block_tokens: int) -> list[list[int]]:
    """For prompts in walk order, the keys of their full blocks: equal keys are equal prefixes.

    shared: tokens each prompt has in common with the one before, in walk order.
    """
    fresh, keys, before = count(), [], list[int]()
    for size, common in zip(sizes, shared, strict=True):
        kept = before[: common // block_tokens]
        before = [*kept, *(next(fresh) for _ in range(size // block_tokens - len(kept)))]
        keys.append(before)
    return keys


def interleaved(lanes: Lanes) -> Iterator[int]:
    """The order in which lanes of equal speed send their prompts: one of each in turn."""
    for step in range(max((stop - start for start, stop in lanes.bounds), default=0)):
        for start, stop in lanes.bounds:
            if start + step < stop:
                yield start + step


def cached_tokens(
    keys: Mapping[int, Sequence[int]] | Sequence[Sequence[int]],
    order: Iterable[int],
    capacity_tokens: int,
    block_tokens: int,
) -> int:
    """Prompt tokens that a cache of that capacity would serve, asked in that order."""
    capacity, held, hits = capacity_tokens // block_tokens, OrderedDict[int, None](), 0
    for place in order:
        hits += sum(1 for _ in takewhile(held.__contains__, keys[place]))
        for key in reversed(keys[place]):
            held[key] = None
            held.move_to_end(key)
        while len(held) > capacity:
            held.popitem(last=False)
    return hits * block_tokens


WORTH = 0.9
_LEAST_CACHED, _CACHED_STEP = (
    1024,
    128,
)  # what providers sell as cached: in steps, from a least length on


@dataclass(frozen=True, slots=True)
class WalkedTrials:
    """An experiment's trials in the order they are asked: their prompts' sizes in tokens, and
    what each shares with the one before; and the lanes that the order is cut into."""

    experiment: Experiment
    walk: tuple[Trial, ...]
    sizes: tuple[int, ...]
    shared: tuple[int, ...]
    lanes: Lanes

    @classmethod
    def of(cls, experiment: Experiment, workers: int) -> WalkedTrials:
        """The walk of an experiment, in as many lanes as there are workers."""
        mode, side = experiment.settings.mode, experiment.traits.side
        walk = ordered(requests(experiment.trials), mode, side)
        sizes = tuple(trial.prompt.asked_tokens for trial in walk)
        common = tuple(shared(walk, mode, side))
        return cls(experiment, tuple(walk), sizes, common, make_lanes(sizes, common, workers))


@dataclass(frozen=True, slots=True)
class Summary:
    """One mode's cost. computed: prompt tokens that one cache per lane computes; cached: that
    it holds.

    usd: dollars without and with the provider's price for cached tokens, every answer using
    its whole budget; None when no price is known. usd_judge: what a judge costs on top, at
    most; 0 without one. flops, seconds: None when the shape or the speed was not given.
    speed_up: how many times faster the lanes are than one, by tokens. useful: how many of them
    would be worth `WORTH` of themselves. held_tokens: what a server's cache of the given
    capacity would serve; None when not given. any_order: the yardstick, what a server with
    prefix caching finds anyway (see `any_order`).
    """

    mode: str
    cells: int
    prompts: int
    asked: int
    computed: int
    cached: int
    lanes: int
    cut_loss: int
    idle: float
    speed_up: float
    useful: int
    usd_plain: float | None
    usd_cached: float | None
    usd_judge: float | None
    flops: float | None
    seconds: float | None
    held_tokens: int | None
    any_order: float

    @property
    def factor(self) -> float:
        """Times fewer tokens than without any cache."""
        return self.asked / self.computed if self.computed else 1.0

    @property
    def gain(self) -> float:
        """Times fewer tokens than a server with prefix caching computes of the plain grid in
        any order; where its cache is bounded, so is this mode's."""
        computed = self.computed if self.held_tokens is None else self.asked - self.held_tokens
        return self.asked / computed * (1 - self.any_order) if computed else 1.0


def summarise(walked: WalkedTrials, terms: Terms = Terms(), any_order: float = 0.0) -> Summary:
    """The cost of a walk, beside what any order finds of the plain grid."""
    experiment, lanes, shape = walked.experiment, walked.lanes, terms.shape
    starts = {start for start, _ in lanes.bounds}
    shared = [0 if place in starts else common for place, common in enumerate(walked.shared)]
    prices = Prices.of(experiment.settings)
    budget = experiment.settings.most_tokens
    return Summary(
        mode=experiment.settings.mode,
        cells=len({cell for trial in experiment.trials for _, cell in trial.places}),
        prompts=len(walked.sizes),
        asked=sum(walked.sizes),
        computed=sum(walked.sizes) - sum(shared),
        cached=sum(shared),
        lanes=len(lanes.bounds),
        cut_loss=lanes.loss,
        idle=lanes.idle,
        speed_up=speed_up(walked.sizes, walked.shared, lanes),
        useful=useful(walked.sizes, walked.shared, len(lanes.bounds), WORTH),
        usd_plain=_usd(prices, walked.sizes, [0] * len(shared), budget),
        usd_cached=_usd(prices, walked.sizes, [_sold(common) for common in shared], budget),
        usd_judge=judged_usd(experiment, experiment.trials),
        flops=prefill_flops(shape, zip(shared, walked.sizes, strict=True)) if shape else None,
        seconds=_lane_s(walked, shape, terms.tokens_per_second)
        if terms.tokens_per_second
        else None,
        held_tokens=_served_by_cache(walked, terms.cache_tokens, terms.cache_block)
        if terms.cache_tokens
        else None,
        any_order=any_order,
    )


def any_order(
    plain: WalkedTrials, capacity_tokens: int | None = None, block_tokens: int = 16
) -> float:
    """The yardstick: the share, in [0, 1], of the plain grid's tokens that a server with
    prefix caching finds cached. With room for all in any order; else asked in the order of the
    grid. plain: in mode `single`."""
    asked = sum(plain.sizes)
    if capacity_tokens:
        return _served_by_cache(plain, capacity_tokens, block_tokens) / max(1, asked)
    tree = [plain.walk[place] for place in walk_order([trial.prompt for trial in plain.walk])]
    return sum(in_common(tree)) / max(1, asked)


def _lane_s(walked: WalkedTrials, shape: Shape | None, tokens_per_second: float) -> float:
    """Seconds of the longest lane."""
    lanes = walked.lanes
    if shape is None:
        return max(lanes.tokens, default=0) / tokens_per_second
    pieces = list(zip(walked.shared, walked.sizes, strict=True))
    flops = [
        prefill_flops(shape, [(0, walked.sizes[start]), *pieces[start + 1 : stop]])
        for start, stop in lanes.bounds
    ]
    return max(flops, default=0.0) / prefill_flops(shape, [(0, 1)]) / tokens_per_second


def _served_by_cache(walked: WalkedTrials, capacity_tokens: int, block_tokens: int) -> int:
    places = walk_order([trial.prompt for trial in walked.walk])
    tree = [walked.walk[place] for place in places]
    found = block_keys([trial.prompt.asked_tokens for trial in tree], in_common(tree), block_tokens)
    keys = dict(zip(places, found, strict=True))
    return cached_tokens(keys, interleaved(walked.lanes), capacity_tokens, block_tokens)


def _usd(
    prices: Prices, sizes: Sequence[int], cached: Sequence[int], answer_tokens: int
) -> float | None:
    return summed(
        [prices.usd(size, held, answer_tokens) for size, held in zip(sizes, cached, strict=True)]
    )


def judged_usd(experiment: Experiment, trials: Iterable[Trial]) -> float | None:
    """Dollars for verdicts on the answers of all trials, at most; None when no price is
    known."""
    scorer, budget = experiment.scorer, experiment.settings.max_answer_tokens
    if not scorer.asks:
        return 0.0
    references = Counter(trial.item.reference for trial in trials)
    costs = {reference: scorer.most_usd(reference, budget) for reference in references}
    return summed([costs[reference] for reference in references.elements()])


def _sold(shared: int) -> int:
    """Tokens that a provider bills as cached, of those that are shared."""
    return shared // _CACHED_STEP * _CACHED_STEP if shared >= _LEAST_CACHED else 0
