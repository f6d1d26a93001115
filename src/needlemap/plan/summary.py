"""Summarise the cost of a run in one mode: tokens, prompts, dollars, operations, time.

No model is asked. Operations are those of the prefill, by the model's shape. A server's prefix
cache is simulated: a prompt reuses the leading blocks that are still cached. The least recently
used block is evicted first. Of one prompt's blocks, the last one is, because it is of no use
without those before it. vLLM, SGLang, LMDeploy and the providers' prompt caches work like that,
except for details.
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
    count_useful_lanes,
    in_common,
    make_lanes,
    ordered,
    shared,
    speed_up,
    walk_order,
)
from needlemap.settings.prices import Prices, summed
from needlemap.trials import Trial, requests
from needlemap.trials.build import Experiment
from needlemap.untrusted import read_json

# Upper limit of each size in a model's configuration.
_MOST = 10**9
# Activations of feed-forward layers that have a gate, so three matrices and not two.
_GATED = ("silu", "swish", "gelu_pytorch_tanh")
# The least share of itself that each of several lanes must be worth (see `plan.useful`).
WORTH = 0.9
# Providers sell tokens as cached from a minimum on, in steps.
_LEAST_CACHED = 1024
_CACHED_STEP = 128


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder's size.

    Attributes:
        layers: How many layers it has.
        width: Query heads times head size: what attention multiplies with each token of the
            context.
        weights: Parameters of all layers, without embeddings.
    """

    layers: int
    width: int
    weights: int

    @classmethod
    def of_config(cls, path: Path) -> Shape:
        """Read a Hugging Face config.json. Raise SettingsError if it gives no shape."""
        try:
            config = read_json(read_regular(path))
            hidden = _size(config["hidden_size"])
            layers = _size(config["num_hidden_layers"])
            heads = _size(config["num_attention_heads"])
            head_size = _size(config.get("head_dim") or max(1, hidden // heads))
            key_value_heads = _size(config.get("num_key_value_heads") or heads)
            inner = _size(config.get("intermediate_size") or 4 * hidden)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SettingsError(
                f"'{path}' is no model configuration that can be read: "
                f"{str(error)[:200] or error!r}."
            ) from error

        matrices = 3 if str(config.get("hidden_act", "silu")) in _GATED else 2
        # Queries and outputs, keys and values, feed-forward.
        outputs = 2 * heads * head_size + 2 * key_value_heads * head_size + matrices * inner
        return cls(layers=layers, width=heads * head_size, weights=layers * hidden * outputs)


def _size(value: object) -> int:
    """Return a size that a model can have. Raises ValueError for anything else."""
    if not isinstance(value, int) or not 0 < value < _MOST:
        raise ValueError(f"a size of {str(value)[:40]}")
    return value


@dataclass(frozen=True, slots=True)
class Terms:
    """What the cost of a run is computed with.

    Attributes:
        workers: How many lanes there are; None for as many as the run has workers.
        tokens_per_second: Prefill speed of one worker. With a shape, that of short prompts: the
            attention of long ones is then added.
        shape: The model's shape.
        cache_tokens: The size of a server's prefix cache.
        cache_block: Tokens of one of its blocks.
    """

    workers: int | None = None
    tokens_per_second: float | None = None
    shape: Shape | None = None
    cache_tokens: int | None = None
    cache_block: int = 16

    def check(self) -> None:
        """Raise SettingsError for a number that is not above 0."""
        for name, value in asdict(self).items():
            if isinstance(value, int | float) and not value > 0:
                raise SettingsError(f"--{name.replace('_', '-')} must be above 0, got {value:g}.")


def prefill_flops(shape: Shape, pieces: Iterable[tuple[int, int]]) -> float:
    """Return the operations that compute tokens start..stop of a prompt, for each (start, stop).

    2 for each weight and token, and 4 * layers * width for each token and token before it (Kaplan
    et al. 2020, arXiv 2001.08361, table 1).
    """
    tokens = 0
    pairs = 0
    for start, stop in pieces:
        tokens += stop - start
        pairs += (stop * (stop + 1) - start * (start + 1)) // 2
    return 2.0 * shape.weights * tokens + 4.0 * shape.layers * shape.width * pairs


def block_keys(sizes: Sequence[int], shared: Sequence[int], block_tokens: int) -> list[list[int]]:
    """Return the keys of each prompt's full blocks: equal keys are equal prefixes.

    sizes: tokens of each prompt, in walk order. shared: tokens that each prompt has in common with
    the one before.
    """
    fresh = count()
    keys = []
    prompt_keys: list[int] = []
    for size, common in zip(sizes, shared, strict=True):
        reused = prompt_keys[: common // block_tokens]
        added = [next(fresh) for _ in range(size // block_tokens - len(reused))]
        prompt_keys = [*reused, *added]
        keys.append(prompt_keys)
    return keys


def interleaved(lanes: Lanes) -> Iterator[int]:
    """Yield places in the order in which lanes of equal speed send them: one of each in turn."""
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
    """Return how many prompt tokens a cache of a given capacity serves.

    keys: those of each prompt's blocks, by the prompt's place. order: the places of prompts as they
    are sent.
    """
    capacity = capacity_tokens // block_tokens
    # The least recently used block comes first.
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for place in order:
        hits += sum(1 for _ in takewhile(cache.__contains__, keys[place]))
        for key in reversed(keys[place]):
            cache[key] = None
            cache.move_to_end(key)
        while len(cache) > capacity:
            cache.popitem(last=False)
    return hits * block_tokens


@dataclass(frozen=True, slots=True)
class WalkedTrials:
    """An experiment's trials in the order they are asked.

    Attributes:
        experiment: The experiment.
        walk: Its requests in that order.
        sizes: Tokens of each prompt.
        shared: Tokens that each prompt shares with the one before.
        lanes: The lanes that the walk is cut into.
    """

    experiment: Experiment
    walk: tuple[Trial, ...]
    sizes: tuple[int, ...]
    shared: tuple[int, ...]
    lanes: Lanes

    @classmethod
    def of(cls, experiment: Experiment, workers: int) -> WalkedTrials:
        """Walk an experiment in as many lanes as there are workers."""
        mode = experiment.settings.mode
        side = experiment.traits.side
        walk = ordered(requests(experiment.trials), mode, side)
        sizes = tuple(trial.prompt.asked_tokens for trial in walk)
        common = tuple(shared(walk, mode, side))
        return cls(
            experiment=experiment,
            walk=tuple(walk),
            sizes=sizes,
            shared=common,
            lanes=make_lanes(sizes, common, count=workers),
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """The cost of a run in one mode.

    Attributes:
        mode: The mode.
        cells: How many cells there are.
        prompts: How many prompts.
        asked: Tokens of all prompts.
        computed: Tokens of these that are computed, with one cache for each lane.
        cached: Tokens of these that the caches serve.
        lanes: How many lanes there are.
        cut_loss: How many more tokens are computed than by a single lane.
        idle: The share of the lanes' time that they wait for the longest one.
        speed_up: How many times faster the lanes are than one, by tokens.
        useful: How many lanes are each worth `WORTH` of themselves.
        usd_plain: Dollars if no token is billed as cached and every answer uses its whole budget;
            None if no price is known.
        usd_cached: The same with the provider's price for cached tokens.
        usd_judge: What a judge costs in addition, at most; 0 without a judge, None if no price is
            known.
        flops: Operations of the prefill; None if no shape is given.
        seconds: Seconds of the longest lane; None if no speed is given.
        held_tokens: Tokens that a server's cache of the given capacity serves; None if none is
            given.
        any_order: The share that a server with prefix caching serves anyway (see `any_order`).
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
        """Return how many times fewer tokens are computed than without any cache."""
        return self.asked / self.computed if self.computed else 1.0

    @property
    def gain(self) -> float:
        """Return how many times fewer tokens are computed than of the plain grid in any order.

        Both are on a server with prefix caching. If the plain grid's cache is bounded, so is this
        mode's.
        """
        computed = self.computed if self.held_tokens is None else self.asked - self.held_tokens
        return self.asked / computed * (1 - self.any_order) if computed else 1.0


def summarise(walked: WalkedTrials, terms: Terms = Terms(), any_order: float = 0.0) -> Summary:
    """Return the cost of a walk.

    any_order: the share that a server with prefix caching serves anyway (see `any_order`).
    """
    experiment = walked.experiment
    lanes = walked.lanes
    # The first prompt of each lane is computed whole.
    starts = {start for start, _ in lanes.bounds}
    shared = [0 if place in starts else common for place, common in enumerate(walked.shared)]

    prices = Prices.of(experiment.settings)
    budget = experiment.settings.most_tokens
    billed = [_billed_as_cached(common) for common in shared]

    flops = seconds = held_tokens = None
    if terms.shape is not None:
        flops = prefill_flops(terms.shape, zip(shared, walked.sizes, strict=True))
    if terms.tokens_per_second:
        seconds = _longest_lane_s(walked, terms.shape, terms.tokens_per_second)
    if terms.cache_tokens:
        held_tokens = _served_by_cache(walked, terms.cache_tokens, terms.cache_block)

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
        useful=count_useful_lanes(
            walked.sizes, walked.shared, count=len(lanes.bounds), share=WORTH
        ),
        usd_plain=_usd(prices, walked.sizes, cached=[0] * len(shared), answer_tokens=budget),
        usd_cached=_usd(prices, walked.sizes, cached=billed, answer_tokens=budget),
        usd_judge=most_judge_usd(experiment, experiment.trials),
        flops=flops,
        seconds=seconds,
        held_tokens=held_tokens,
        any_order=any_order,
    )


def any_order(
    plain: WalkedTrials, capacity_tokens: int | None = None, block_tokens: int = 16
) -> float:
    """Return the share of the plain grid's tokens that a server with prefix caching serves.

    It is what other modes are compared with, in [0, 1]. With a capacity, prompts are sent in the
    order of the grid. Without one there is room for all of them, and the order makes no difference.

    plain: the trials in mode `single`.
    """
    asked = max(1, sum(plain.sizes))
    if capacity_tokens:
        return _served_by_cache(plain, capacity_tokens, block_tokens) / asked
    tree = [plain.walk[place] for place in walk_order([trial.prompt for trial in plain.walk])]
    return sum(in_common(tree)) / asked


def _longest_lane_s(walked: WalkedTrials, shape: Shape | None, tokens_per_second: float) -> float:
    """Return the seconds of the longest lane."""
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
    sizes = [trial.prompt.asked_tokens for trial in tree]
    tree_keys = block_keys(sizes, in_common(tree), block_tokens)
    keys = dict(zip(places, tree_keys, strict=True))
    return cached_tokens(
        keys,
        interleaved(walked.lanes),
        capacity_tokens=capacity_tokens,
        block_tokens=block_tokens,
    )


def _usd(
    prices: Prices, sizes: Sequence[int], cached: Sequence[int], answer_tokens: int
) -> float | None:
    """Return the dollars of prompts whose answers use their whole budget, or None if not known."""
    pairs = zip(sizes, cached, strict=True)
    return summed([prices.usd(size, common, answer_tokens) for size, common in pairs])


def most_judge_usd(experiment: Experiment, trials: Iterable[Trial]) -> float | None:
    """Return the most dollars that a judge's verdicts on all answers may cost.

    If there is no judge, the result is 0. If no price is known, it is None.
    """
    scorer = experiment.scorer
    if not scorer.asks:
        return 0.0
    budget = experiment.settings.max_answer_tokens
    references = Counter(trial.item.reference for trial in trials)
    costs = {reference: scorer.most_usd(reference, budget) for reference in references}
    return summed([costs[reference] for reference in references.elements()])


def _billed_as_cached(shared: int) -> int:
    """Return how many of the shared tokens a provider bills as cached."""
    if shared < _LEAST_CACHED:
        return 0
    return shared // _CACHED_STEP * _CACHED_STEP
