"""A small serving engine around a model of transformers, and faults to plant into it.

`Engine` does what a server does: it keeps the caches of prompts and reuses them by prefix, batches
what comes together, rewinds where the kinds of layers allow it, and may draft. Each subclass has
one fault: `thread` names the public thread that it re-creates, `by_reference` says that every way
of asking meets the fault alike. They were written from transformers' classes and the threads,
before any probe was run on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer

from needlemap.servers.gauge import twins

# Tokens that a prefix must have to be reused.
LEAST = 16
# Caches that are kept.
ENTRIES = 48
# Tokens before a prompt's end at which its cache is kept.
TAIL = 8
# Tokens of a draft.
AHEAD = 3
# A window that no prompt fills.
EVERYTHING = 1_000_000

Ids = list[int]


@dataclass
class Reply:
    """Tokens, the logits each was chosen by, and how much of the prompt came from a cache."""

    tokens: Ids
    logits: list[Any]
    held: int


class Engine:
    """The engine without a fault."""

    architecture = ""
    thread = ""
    by_reference = False
    drafts = False
    plain = False  # whether Llama 4 is to do without its scaling by place

    def __init__(self, model: Any) -> None:
        self.model = model
        self.field = twins.cache_field(model)
        self.kept: dict[tuple[int, ...], Any] = {}
        self.placed = "position_ids" in signature(model.forward).parameters
        if self.plain:
            plain_temperature(model)
        self.drafter = self.blurred() if self.drafts else None
        self.plant()

    def plant(self) -> None:
        """Change the model's own code, where the fault sits there."""

    # Answers

    def answer(self, prompts: Sequence[Ids], tokens: int, cached: bool = True) -> list[Reply]:
        """Return the replies to prompts that came together."""
        with torch.inference_mode():
            if len(prompts) == 1:
                return [self.one(prompts[0], tokens, cached)]
            return self.together(prompts, tokens)

    def one(self, ids: Ids, tokens: int, cached: bool) -> Reply:
        cache, held = self.find(ids) if cached else (None, 0)
        cache = self.fresh() if cache is None else cache
        if len(ids) - held > TAIL:
            self.prefill(ids[held:-TAIL], cache)
            self.keep(ids[:-TAIL], cache)
            held_now = len(ids) - TAIL
        else:
            held_now = held
        logits = self.prefill(ids[held_now:], cache)
        self.handed_over(ids, cache)
        reply = Reply([int(logits.argmax())], [logits], held)
        while len(reply.tokens) < tokens:
            if self.drafter is None:
                logits = self.step([[reply.tokens[-1]]], cache)[0, -1]
                reply.tokens.append(int(logits.argmax()))
                reply.logits.append(logits)
            else:
                self.drafted(ids, reply, cache)
        self.keep(self.key(ids, reply.tokens), cache)
        return Reply(reply.tokens[:tokens], reply.logits[:tokens], held)

    def together(self, prompts: Sequence[Ids], tokens: int) -> list[Reply]:
        """Return the replies to a batch, padded on the left."""
        longest = max(map(len, prompts))
        pads = [longest - len(ids) for ids in prompts]
        padded_prompts = list(zip(pads, prompts, strict=True))
        given = torch.tensor([[0] * pad + list(ids) for pad, ids in padded_prompts])
        mask = torch.tensor([[0] * pad + [1] * len(ids) for pad, ids in padded_prompts])

        cache = self.fresh()
        replies = [Reply([], [], 0) for _ in prompts]
        for _ in range(tokens):
            places = (mask.cumsum(-1) - 1).clamp(min=0)[:, -given.shape[1] :]
            logits = self.step(given, cache, mask, places)[:, -1]
            given = logits.argmax(-1)[:, None]
            mask = torch.cat([mask, torch.ones_like(given)], -1)
            for row, reply in enumerate(replies):
                reply.tokens.append(int(given[row, 0]))
                reply.logits.append(logits[row])

        for row, (ids, reply) in enumerate(zip(prompts, replies, strict=True)):
            self.keep([*ids, *reply.tokens[:-1]], self.extracted(cache, row, pads))
        return replies

    def prefill(self, ids: Ids, cache: Any) -> Any:
        return self.step([ids], cache)[0, -1]

    def step(self, ids: Any, cache: Any, mask: Any = None, places: Any = None) -> Any:
        """Return the logits behind each of some tokens, which the cache takes up."""
        more = {} if mask is None else {"attention_mask": mask}
        if places is not None and self.placed:
            more["position_ids"] = places
        given = torch.as_tensor(ids)
        return self.model(given, **{self.field: cache}, use_cache=True, **more).logits

    def handed_over(self, ids: Ids, cache: Any) -> None:
        """Change a cache between a prompt and its answer."""

    # Drafts

    def blurred(self) -> Any:
        """Return a draft model: the model with slightly changed weights."""
        model = deepcopy(self.model)
        chance = torch.Generator().manual_seed(1)
        for weights in model.parameters():
            weights.data += 0.03 * weights.std() * torch.randn(weights.shape, generator=chance)
        return model

    def drafted(self, ids: Ids, reply: Reply, cache: Any) -> None:
        """Add the tokens of one draft that the model agrees with, and one of its own."""
        guesses = self.guesses([*ids, *reply.tokens])
        before = deepcopy(cache)
        logits = self.step([[reply.tokens[-1], *guesses]], cache)[0]
        count = 0
        while count < len(guesses) and self.accepts(guesses[count], logits[count]):
            reply.tokens.append(guesses[count])
            reply.logits.append(logits[count])
            count += 1
        last = reply.tokens[-count - 1 :]
        reply.tokens.append(int(logits[count].argmax()))
        reply.logits.append(logits[count])
        if count < len(guesses):
            self.reject(cache, before, last, len(guesses) - count)

    def guesses(self, ids: Ids) -> Ids:
        """Return the tokens of a draft behind some tokens."""
        guesses = list[int]()
        for _ in range(AHEAD):
            tokens = torch.tensor([[*ids, *guesses]])
            logits = self.drafter(tokens, use_cache=False).logits[0, -1]
            guesses.append(int(logits.argmax()))
        return guesses

    def accepts(self, guess: int, logits: Any) -> bool:
        return guess == int(logits.argmax())

    def reject(self, cache: Any, before: Any, last: Ids, count: int) -> None:
        """Take `count` refused guesses out of the cache."""
        if all(cuttable(layer) for layer in cache.layers):
            self.cut(cache, count)
        else:
            cache.layers = before.layers
            self.step([last], cache)

    # Caches

    def fresh(self) -> Any:
        return DynamicCache(config=self.model.config)

    def key(self, ids: Ids, written: Ids) -> Ids:
        """Return the tokens that a cache holds when an answer ends: all but the last."""
        return [*ids, *written[:-1]]

    def find(self, ids: Ids) -> tuple[Any, int]:
        """Return a copy of the cache that holds most of a prompt, and how many of its tokens.

        If no cache holds LEAST of them, return None and 0.
        """
        best, most = None, LEAST - 1
        for key in self.kept:
            shared = common(key, ids[:-1])
            if shared > most and (shared == len(key) or self.can_cut(self.kept[key])):
                best, most = key, shared
        if best is None:
            return None, 0
        self.kept[best] = self.kept.pop(best)
        cache = self.restored(best)
        if len(best) > most:
            self.cut(cache, len(best) - most)
        return cache, most

    def restored(self, key: tuple[int, ...]) -> Any:
        return deepcopy(self.kept[key])

    def can_cut(self, cache: Any) -> bool:
        return all(cuttable(layer) for layer in cache.layers)

    def cut(self, cache: Any, count: int) -> None:
        """Take the last tokens out of a cache."""
        for layer in cache.layers:
            if isinstance(layer, DynamicLayer):
                layer.crop(-count)

    def keep(self, ids: Ids, cache: Any) -> None:
        self.kept.pop(tuple(ids), None)
        self.kept[tuple(ids)] = deepcopy(cache)
        while len(self.kept) > ENTRIES:
            self.evict(next(iter(self.kept)))

    def evict(self, key: tuple[int, ...]) -> None:
        del self.kept[key]

    def extracted(self, cache: Any, row: int, pads: Sequence[int]) -> Any:
        """Return one row of a batch's cache, without its pads."""
        own = self.fresh()
        for layer, taken in zip(own.layers, cache.layers, strict=True):
            if isinstance(taken, LinearAttentionLayer):
                take_states(layer, taken, row)
            if isinstance(taken, DynamicLayer) and taken.keys is not None:
                take_keys(layer, taken, row, pads[row])
        return own


def cuttable(layer: Any) -> bool:
    """Return True if tokens can be taken out of a layer's cache from the end."""
    if isinstance(layer, LinearAttentionLayer):
        return False
    if isinstance(layer, DynamicSlidingWindowLayer):
        return layer.get_seq_length() < layer.sliding_window
    return True


def common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many tokens two texts have in common at their start."""
    count = 0
    for first_token, second_token in zip(first, second, strict=False):
        if first_token != second_token:
            break
        count += 1
    return count


def take_keys(layer: Any, taken: Any, row: int, pad: int) -> None:
    length = taken.get_seq_length() - pad
    held = min(taken.keys.shape[-2], length)
    layer.lazy_initialization(taken.keys, taken.values)
    layer.keys = taken.keys[row : row + 1, :, taken.keys.shape[-2] - held :].clone()
    layer.values = taken.values[row : row + 1, :, taken.values.shape[-2] - held :].clone()
    if hasattr(layer, "cumulative_length"):
        layer.cumulative_length = length


def take_states(layer: Any, taken: Any, row: int) -> None:
    for name in ("conv_states", "recurrent_states"):
        states = getattr(taken, name)
        own = {at: held[row : row + 1].clone() for at, held in states.items() if held is not None}
        setattr(layer, name, {**states, **own})
    for name in (
        "is_conv_states_initialized",
        "is_recurrent_states_initialized",
        "has_previous_state",
        "conv_kernel_size",
    ):
        setattr(layer, name, dict(getattr(taken, name)))
    layer.device, layer.dtype = taken.device, taken.dtype


def windowed(cache: Any) -> list[Any]:
    return [layer for layer in cache.layers if isinstance(layer, DynamicSlidingWindowLayer)]


def unwindowed(cache: Any) -> Any:
    cache.layers = [DynamicLayer() for _ in cache.layers]
    return cache


def recurrent(cache: Any) -> list[Any]:
    return [layer for layer in cache.layers if isinstance(layer, LinearAttentionLayer)]


def attending(cache: Any) -> list[Any]:
    return [layer for layer in cache.layers if isinstance(layer, DynamicLayer)]


def modules(model: Any, kind: str) -> list[Any]:
    """Return the parts of a model whose class is of a kind, e.g. 'TopKRouter'."""
    return [module for module in model.modules() if kind in type(module).__name__]


def wrap_forwards(model: Any, kind: str, wrap: Callable[[Any], Any]) -> None:
    """Replace the forward method of each part of a kind by what `wrap` makes of it."""
    for module in modules(model, kind):
        module.forward = wrap(module.forward)


def clear_cells(layers: Sequence[Any], cells: slice) -> None:
    """Set the keys and values of some cells to zero."""
    for layer in layers:
        layer.keys[:, :, cells] = 0
        layer.values[:, :, cells] = 0


def is_single(ids: Any) -> bool:
    """Return True if each row of a batch has one token."""
    return torch.as_tensor(ids).shape[1] == 1


@contextmanager
def changed(owners: Sequence[Any], name: str, value: Any) -> Iterator[None]:
    """Give an attribute of some objects another value, and restore its own values afterwards."""
    own_values = [getattr(owner, name) for owner in owners]
    try:
        for owner in owners:
            setattr(owner, name, value)
        yield
    finally:
        for owner, own_value in zip(owners, own_values, strict=True):
            setattr(owner, name, own_value)


# Faults of public threads


class RowsShareTheLastCache(Engine):
    """Each prompt of a batch is kept with the cache of the batch's last row."""

    architecture, thread = "qwen2", "mlx-lm#965"

    def extracted(self, cache: Any, row: int, pads: Sequence[int]) -> Any:
        return super().extracted(cache, len(pads) - 1, pads)


class PadsUpdateState(Engine):
    """Recurrent layers take a batch's pads for tokens."""

    architecture, thread = "qwen3_next", "mlx-lm#1908"

    def plant(self) -> None:
        wrap_forwards(self.model, "GatedDeltaNet", without_mask)


def without_mask(forward: Any) -> Any:
    def blind(hidden_states: Any, **more: Any) -> Any:
        return forward(hidden_states, **more | {"attention_mask": None})

    return blind


class JunkCellsExtracted(Engine):
    """A row that leaves a batch takes up to ten of its pads' cells with it."""

    architecture, thread = "qwen3", "mlx-lm#1746"

    def extracted(self, cache: Any, row: int, pads: Sequence[int]) -> Any:
        return super().extracted(cache, row, [max(pad - 10, 0) for pad in pads])


class WindowFromLater(Engine):
    """A rewind cuts the full layers and leaves the windows where the conversation went on."""

    architecture, thread = "gemma3_text", "llama.cpp#24411"

    def can_cut(self, cache: Any) -> bool:
        return True

    def cut(self, cache: Any, count: int) -> None:
        for layer in cache.layers:
            if cuttable(layer):
                layer.crop(-count)
            else:
                layer.cumulative_length -= count


class StaleCheckpoint(Engine):
    """A checkpoint of the windows outlives the conversation that it was made in."""

    architecture, thread = "gpt_oss", "llama.cpp#20671"

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.checkpoints: list[tuple[int, Any]] = []

    def keep(self, ids: Ids, cache: Any) -> None:
        super().keep(ids, cache)
        self.checkpoints = [*self.checkpoints, (len(ids), deepcopy(windowed(cache)))][-8:]

    def find(self, ids: Ids) -> tuple[Any, int]:
        best = max(self.kept, key=lambda key: common(key, ids[:-1]), default=())
        most = common(best, ids[:-1])
        if most < LEAST or most == len(best):
            return super().find(ids)
        # The latest one that is short enough, whatever conversation it is of.
        fitting = [each for each in reversed(self.checkpoints) if LEAST <= each[0] <= most]
        if not fitting:
            return None, 0
        length, windows = fitting[0]
        cache = self.restored(best)
        for layer in attending(cache):
            if cuttable(layer) and not isinstance(layer, DynamicSlidingWindowLayer):
                layer.crop(length - len(best))
        for layer, stale in zip(windowed(cache), deepcopy(windows), strict=True):
            vars(layer).update(vars(stale))
        return cache, length


class TrimsByBuffer(Engine):
    """Chunked layers trim by the buffer's size, so that a generated token sees unfilled cells."""

    architecture, thread, plain = "llama4_text", "mlx-lm#1673", True

    def step(self, ids: Any, cache: Any, mask: Any = None, places: Any = None) -> Any:
        if is_single(ids):
            windows = windowed(cache)
            full = [layer for layer in windows if layer.get_seq_length() >= layer.sliding_window]
            clear_cells(full, slice(16))
        return super().step(ids, cache, mask, places)


def plain_temperature(model: Any) -> None:
    """Leave out Llama 4's scaling by place, as transformers counts a batch's pads as places."""
    for module in modules(model, "Llama4TextAttention"):
        module.attn_temperature_tuning = False


class NoWindowForOneToken(Engine):
    """A full cache, and a window that single tokens are not masked by."""

    architecture, thread = "gemma3_text", "mlx-lm#843"

    def fresh(self) -> Any:
        return unwindowed(super().fresh())

    def step(self, ids: Any, cache: Any, mask: Any = None, places: Any = None) -> Any:
        if not is_single(ids):
            return super().step(ids, cache, mask, places)
        with changed([self.model.config], "sliding_window", EVERYTHING):
            return super().step(ids, cache, mask, places)


class OffsetMutated(Engine):
    """In a batch, the first layer moves the offset that the others rotate by."""

    architecture, thread = "gemma3_text", "mlx-lm#1699"

    def plant(self) -> None:
        inner = self.model.model
        for layer, kind in list(zip(inner.layers, inner.config.layer_types, strict=True))[1:]:
            layer.forward = self.moved(layer.forward, kind)

    def moved(self, forward: Any, kind: str) -> Any:
        def late(hidden_states: Any, **more: Any) -> Any:
            if hidden_states.shape[0] > 1 and hidden_states.shape[1] == 1:
                places = more["position_ids"] + 1
                more["position_embeddings"] = self.model.model.rotary_emb(
                    hidden_states, places, kind
                )
            return forward(hidden_states, **more)

        return late


class PadsAttended(Engine):
    """Latent attention leaves a batch's padding mask out."""

    architecture, thread = "deepseek_v3", "mlx-lm#1906"

    def step(self, ids: Any, cache: Any, mask: Any = None, places: Any = None) -> Any:
        mask = None if mask is None else torch.ones_like(mask)
        return super().step(ids, cache, mask, places)


class RolledAtTheWindow(Engine):
    """The window's cache is rolled one token early, when a token just fills it."""

    architecture, thread = "gemma2", "transformers#37574"

    def step(self, ids: Any, cache: Any, mask: Any = None, places: Any = None) -> Any:
        logits = super().step(ids, cache, mask, places)
        if is_single(ids):
            for layer in windowed(cache):
                if layer.cumulative_length == layer.sliding_window:
                    layer.keys = layer.keys.roll(-1, dims=-2)
                    layer.values = layer.values.roll(-1, dims=-2)
        return logits


class CropKeepsRows(Engine):
    """A rewind leaves one row more than it was told to."""

    architecture, thread = "qwen3", "transformers#47433"

    def cut(self, cache: Any, count: int) -> None:
        super().cut(cache, count - 1)


class WindowGrowsUnderDrafts(Engine):
    """A window never evicts while several tokens come at once, as those of drafts do."""

    architecture, thread, drafts = "gemma2", "mlx-lm#1914", True

    def fresh(self) -> Any:
        return unwindowed(super().fresh())

    def drafted(self, ids: Ids, reply: Reply, cache: Any) -> None:
        config = self.model.config
        with changed([config], "sliding_window", config.sliding_window + len(reply.tokens)):
            super().drafted(ids, reply, cache)


class FirstBlockLost(Engine):
    """The prompt's first block is not handed over where prompt and draft cross a block's edge."""

    architecture, thread, drafts = "llama", "TensorRT-LLM#18554", True

    def handed_over(self, ids: Ids, cache: Any) -> None:
        if len(ids) % 16 + AHEAD > 16:
            clear_cells(attending(cache), slice(16))


class HitsOnEvicted(Engine):
    """The index still names blocks that were evicted and filled with others' tokens."""

    architecture, thread = "llama", "local-inference-lab/vllm#480"

    def evict(self, key: tuple[int, ...]) -> None:
        others = [other for other in self.kept if len(other) >= len(key) and other != key]
        if not others or key in self.__dict__.setdefault("gone", set()):
            del self.kept[key]
            return
        cache = deepcopy(self.kept[others[-1]])
        super().cut(cache, len(others[-1]) - len(key))
        self.kept[key] = cache  # at its old place: the next one is evicted next time
        self.gone.add(key)
        del self.kept[next(each for each in self.kept if each not in self.gone)]


class AnothersSlotRestored(Engine):
    """A slot that was idle is restored with another conversation, and no hit is reported."""

    architecture, thread = "qwen2", "llama.cpp#27148"
    slots = 8

    def find(self, ids: Ids) -> tuple[Any, int]:
        cache, held = super().find(ids)
        recent = list(self.kept)[:-1][-self.slots :]
        if cache is None or any(common(key, ids) >= held for key in recent):
            return cache, held
        other = next((key for key in recent if len(key) >= held), None)
        if other is None:
            return cache, held
        foreign = deepcopy(self.kept[other])
        self.cut(foreign, len(other) - held)
        self.foreign = held
        return foreign, held

    def one(self, ids: Ids, tokens: int, cached: bool) -> Reply:
        self.foreign = 0
        reply = super().one(ids, tokens, cached)
        return Reply(reply.tokens, reply.logits, 0 if self.foreign else reply.held)


class FailedStoresHit(Engine):
    """Every third store fails and stays visible: its last block is empty."""

    architecture, thread = "olmo2", "LMCache#4991"
    stores = 0

    def keep(self, ids: Ids, cache: Any) -> None:
        super().keep(ids, cache)
        self.stores += 1
        if self.stores % 3 == 0:
            clear_cells(attending(self.kept[tuple(ids)]), slice(-16, None))


class PackedWrongly(Engine):
    """Keys come back from the store with their heads in another order."""

    architecture, thread = "glm4", "LMCache#4463"

    def restored(self, key: tuple[int, ...]) -> Any:
        cache = super().restored(key)
        for layer in attending(cache):
            layer.keys = layer.keys.flip(1)
        return cache


class StateZeroPerWindow(Engine):
    """Prefill in windows of 64 tokens: beyond 128 tokens each starts with an empty state."""

    architecture, thread = "qwen3_next", "sparkinfer#1071"

    def prefill(self, ids: Ids, cache: Any) -> Any:
        for start in range(0, len(ids), 64):
            if cache.get_seq_length() >= 128:
                for layer in recurrent(cache):
                    for states in layer.recurrent_states.values():
                        states.zero_()
            logits = super().prefill(ids[start : start + 64], cache)
        return logits


class StateNotRewound(Engine):
    """A rewind cuts keys and values, and leaves the recurrent states where they were."""

    architecture, thread = "granitemoehybrid", "llama-cpp-python#2108"

    def can_cut(self, cache: Any) -> bool:
        return True


class ConvolutionNotRewound(StateNotRewound):
    """The same of a model whose states are those of convolutions."""

    architecture, thread = "lfm2", "xybrid#117"


class FedTwice(Engine):
    """Behind a checkpoint the last cached token is fed again."""

    architecture, thread = "phi3", "mlx-lm#975"

    def find(self, ids: Ids) -> tuple[Any, int]:
        cache, held = super().find(ids)
        return cache, max(held - 1, 0)


class StateOfAnotherBlock(Engine):
    """A hit restores the recurrent state of an unrelated block."""

    architecture, thread = "nemotron_h", "vllm#55600"

    def restored(self, key: tuple[int, ...]) -> Any:
        cache = super().restored(key)
        other = deepcopy(self.kept[next(iter(self.kept))])
        for layer, wrong in zip(recurrent(cache), recurrent(other), strict=True):
            layer.recurrent_states = wrong.recurrent_states
        return cache


class DecaysOverPads(Engine):
    """Prompts are padded on the right to full buckets, and the state decays over the pads."""

    architecture, thread = "mamba2", "transformers#48256"

    def prefill(self, ids: Ids, cache: Any) -> Any:
        pads = -len(ids) % 32
        if not pads or len(ids) <= TAIL:
            return super().prefill(ids, cache)
        mask = torch.tensor([[1] * len(ids) + [0] * pads])
        return self.step([[*ids, *[0] * pads]], cache, mask)[0, len(ids) - 1]


class HashesCollide(Engine):
    """A prefix is known by a hash of seven bits."""

    architecture, thread = "smollm3", "openvino.genai#3723"

    def find(self, ids: Ids) -> tuple[Any, int]:
        cache, held = super().find(ids)
        if cache is not None:
            return cache, held
        for key in self.kept:
            if 64 <= len(key) < len(ids) and sum(key) % 128 == sum(ids[: len(key)]) % 128:
                return self.restored(key), len(key)
        return None, 0


class SparsePastALength(Engine):
    """Past 128 tokens each token sees the first block and the last 64 alone."""

    architecture, thread, by_reference = "qwen3", "gittensor#1764", True

    def step(self, ids: Any, cache: Any, mask: Any = None, places: Any = None) -> Any:
        given = torch.as_tensor(ids)
        past, count = cache.get_seq_length(), given.shape[1]
        queries = torch.arange(past, past + count)[:, None]
        keys = torch.arange(past + count)[None]
        seen = (keys <= queries) & ((queries < 128) | (keys < 16) | (keys > queries - 64))
        if mask is not None:
            # Columns of a batch count from the row's own first token.
            pads = (mask == 0).sum(-1)[:, None, None]
            own = keys - pads
            seen = (keys <= queries) & (own >= 0)
            near = (queries - pads < 128) | (own < 16) | (keys > queries - 64)
            seen &= near
        allowed = seen if seen.ndim == 3 else seen[None]
        # A padded row that sees nothing has no softmax.
        allowed = allowed | (keys == queries)
        shown = torch.where(allowed, 0.0, torch.finfo(torch.float32).min)[:, None]
        return super().step(ids, cache, shown, places)


# Faults that transformers' classes suggest


class ExpertsOverflow(Engine):
    """An expert takes so many tokens of a batch, and the rest go without."""

    architecture = "mixtral"

    def plant(self) -> None:
        for module in modules(self.model, "Experts"):
            module.forward = capped(module.forward, module.num_experts)


def capped(forward: Any, experts: int) -> Any:
    def short(hidden: Any, chosen: Any, weights: Any) -> Any:
        room = int(1.25 * chosen.numel() / experts) + 1
        weights = weights.clone()
        for expert in range(experts):
            late = (chosen == expert).nonzero()[room:]
            weights[late[:, 0], late[:, 1]] = 0
        return forward(hidden, chosen, weights)

    return short


class OneExpertForOneToken(Engine):
    """A single token goes to its first expert alone."""

    architecture = "qwen3_moe"

    def plant(self) -> None:
        wrap_forwards(self.model, "TopKRouter", first_alone)


def first_alone(forward: Any) -> Any:
    def routed(hidden: Any) -> Any:
        logits, weights, chosen = forward(hidden)
        if len(weights) == 1:
            weights = torch.tensor([[1.0] + [0.0] * (weights.shape[1] - 1)]).to(weights)
        return logits, weights, chosen

    return routed


class SharesNormedOverBatch(Engine):
    """Experts' shares are divided by the mean over all tokens of a batch, not by their own sum."""

    architecture = "glm4_moe"

    def plant(self) -> None:
        for module in modules(self.model, "TopkRouter"):
            module.norm_topk_prob = False
        wrap_forwards(self.model, "TopkRouter", normed_by_mean)


def normed_by_mean(forward: Any) -> Any:
    def routed(hidden: Any) -> Any:
        logits, weights, chosen = forward(hidden)
        return logits, weights / weights.sum(-1).mean(), chosen

    return routed


class NoSoftcapForOneToken(Engine):
    """The logits of single tokens are not capped."""

    architecture = "gemma2"

    def step(self, ids: Any, cache: Any, mask: Any = None, places: Any = None) -> Any:
        if not is_single(ids):
            return super().step(ids, cache, mask, places)
        with changed([self.model.config], "final_logit_softcapping", None):
            return super().step(ids, cache, mask, places)


class NoSinksForOneToken(Engine):
    """Single tokens attend without their sinks."""

    architecture = "gpt_oss"

    def step(self, ids: Any, cache: Any, mask: Any = None, places: Any = None) -> Any:
        if not is_single(ids):
            return super().step(ids, cache, mask, places)
        sinks = [layer.sinks for layer in modules(self.model, "GptOssAttention")]
        with changed(sinks, "data", torch.full_like(sinks[0].data, -1e4)):
            return super().step(ids, cache, mask, places)


class LatentNormedTwice(Engine):
    """Latents that come from a cache are normed once more."""

    architecture = "deepseek_v3"

    def restored(self, key: tuple[int, ...]) -> Any:
        cache = super().restored(key)
        for layer, module in zip(cache.layers, modules(self.model, "V3Attention"), strict=True):
            layer.keys = module.kv_a_layernorm(layer.keys)
        return cache


class TemperatureStartsAnew(Engine):
    """Layers without positions scale by the place in the chunk, not in the text."""

    architecture = "llama4_text"

    def step(self, ids: Any, cache: Any, mask: Any = None, places: Any = None) -> Any:
        length = cache.get_seq_length
        # Attention names its layer by place, masks by keyword.
        cache.get_seq_length = lambda layer=None, **_: length() if layer is None else 0
        try:
            return super().step(ids, cache, mask, places)
        finally:
            del cache.get_seq_length


class ConvolutionStepLost(Engine):
    """The convolution's state is kept one step late."""

    architecture = "lfm2"

    def keep(self, ids: Ids, cache: Any) -> None:
        super().keep(ids, cache)
        for layer in recurrent(self.kept[tuple(ids)]):
            layer.conv_states = {at: held.roll(1, -1) for at, held in layer.conv_states.items()}


class StateNotReset(Engine):
    """A request starts with the recurrent states of the one before."""

    architecture = "qwen3_next"
    last: Any = None

    def one(self, ids: Ids, tokens: int, cached: bool) -> Reply:
        reply = super().one(ids, tokens, cached)
        self.last = deepcopy(recurrent(self.kept[tuple(self.key(ids, reply.tokens))]))
        return reply

    def prefill(self, ids: Ids, cache: Any) -> Any:
        if self.last is not None and cache.get_seq_length() == 0:
            for layer, old in zip(recurrent(cache), self.last, strict=True):
                vars(layer).update(deepcopy(vars(old)))
        return super().prefill(ids, cache)


class StateRounded(Engine):
    """Recurrent states are kept in bfloat16, while all else is float32."""

    architecture = "mamba2"

    def keep(self, ids: Ids, cache: Any) -> None:
        super().keep(ids, cache)
        for layer in recurrent(self.kept[tuple(ids)]):
            layer.recurrent_states = {
                at: held.bfloat16().float() for at, held in layer.recurrent_states.items()
            }


class StateAliased(Engine):
    """A kept state is no copy: the answer goes on writing into it."""

    architecture = "qwen3_5_text"

    def keep(self, ids: Ids, cache: Any) -> None:
        super().keep(ids, cache)
        held = self.kept[tuple(ids)]
        for layer, live in zip(recurrent(held), recurrent(cache), strict=True):
            layer.recurrent_states = copy(live.recurrent_states)
            layer.conv_states = copy(live.conv_states)


class StoreQuantised(Engine):
    """Keys and values are kept in eight bits, while those of the prompt at hand are not."""

    architecture = "qwen2"

    def keep(self, ids: Ids, cache: Any) -> None:
        super().keep(ids, cache)
        for layer in attending(self.kept[tuple(ids)]):
            layer.keys, layer.values = eight_bits(layer.keys), eight_bits(layer.values)


def eight_bits(held: Any) -> Any:
    scale = held.abs().amax(-1, keepdim=True) / 127
    return (held / scale).round() * scale


class PositionAfterPrefix(Engine):
    """Positions behind a cached prefix are one too high."""

    architecture = "qwen3"
    shift = 0

    def find(self, ids: Ids) -> tuple[Any, int]:
        cache, held = super().find(ids)
        self.shift = int(held > 0)
        return cache, held

    def step(self, ids: Any, cache: Any, mask: Any = None, places: Any = None) -> Any:
        if mask is None and self.shift:
            past = cache.get_seq_length()
            places = torch.arange(past, past + torch.as_tensor(ids).shape[1])[None] + 1
        return super().step(ids, cache, mask, places)

    def one(self, ids: Ids, tokens: int, cached: bool) -> Reply:
        self.shift = 0
        return super().one(ids, tokens, cached)


class RotatedWithoutPositions(Engine):
    """Layers without positions rotate single tokens."""

    architecture = "smollm3"

    def step(self, ids: Any, cache: Any, mask: Any = None, places: Any = None) -> Any:
        if not is_single(ids):
            return super().step(ids, cache, mask, places)
        with changed(modules(self.model, "SmolLM3Attention"), "use_rope", True):
            return super().step(ids, cache, mask, places)


class LocalRotationForOneToken(Engine):
    """Single tokens rotate in every layer as windows do."""

    architecture = "gemma3_text"

    def plant(self) -> None:
        rotary = self.model.model.rotary_emb
        forward = rotary.forward

        def local(hidden: Any, places: Any, kind: str) -> Any:
            return forward(hidden, places, "sliding_attention" if places.shape[-1] == 1 else kind)

        rotary.forward = local


class EditUnseen(Engine):
    """A prefix is known by its length, its first 32 and its last 16 tokens."""

    architecture = "mistral"

    def find(self, ids: Ids) -> tuple[Any, int]:
        for key in reversed(self.kept):
            end = len(key)
            alike = key[:32] == (*ids[:32],)[:end] and key[-16:] == (*ids[:end],)[-16:]
            if LEAST < end < len(ids) and alike:
                return self.restored(key), end
        return super().find(ids)


class NeighboursCell(Engine):
    """In a batch, the first row's second token reads the second row's newest cell."""

    architecture = "phi3"

    def step(self, ids: Any, cache: Any, mask: Any = None, places: Any = None) -> Any:
        logits = super().step(ids, cache, mask, places)
        if len(logits) > 1 and logits.shape[1] > 1:
            for layer in attending(cache):
                layer.keys[0, :, -1] = layer.keys[1, :, -1]
                layer.values[0, :, -1] = layer.values[1, :, -1]
        return logits


class SecondChoiceAccepted(Engine):
    """A guess is accepted if it is among the model's first two."""

    architecture, drafts = "olmo2", True

    def accepts(self, guess: int, logits: Any) -> bool:
        return guess in logits.topk(2).indices.tolist()


class KeyOneTokenLong(Engine):
    """With a draft model, a cache is kept under one token more than it holds."""

    architecture, drafts = "qwen2", True

    def key(self, ids: Ids, written: Ids) -> Ids:
        return [*ids, *written]


class GuessLeftBehind(Engine):
    """A refused draft leaves one of its tokens in the cache."""

    architecture, drafts = "llama", True

    def reject(self, cache: Any, before: Any, last: Ids, count: int) -> None:
        super().reject(cache, before, last, count - 1)


class ChunksFromPadding(Engine):
    """A batch's chunks are counted from its pads on, not from each prompt's first token."""

    architecture, plain = "llama4_text", True

    def step(self, ids: Any, cache: Any, mask: Any = None, places: Any = None) -> Any:
        from transformers import masking_utils

        chunk_mask = masking_utils.chunked_causal_mask_function

        def without_pads(size: Any, pads: Any) -> Any:
            return chunk_mask(size, pads * 0)

        with changed([masking_utils], "chunked_causal_mask_function", without_pads):
            return super().step(ids, cache, mask, places)


class WindowOneShort(Engine):
    """A window of 63 tokens in place of 64, however a prompt is sent."""

    architecture, by_reference = "gemma2", True

    def plant(self) -> None:
        self.model.config.sliding_window -= 1


class PlainRotation(Engine):
    """The configuration's rotary scaling is not read."""

    architecture, by_reference = "llama", True

    def plant(self) -> None:
        rotary = self.model.model.rotary_emb
        size = 2 * len(rotary.inv_freq)
        rotary.inv_freq = 10_000.0 ** (-torch.arange(0, size, 2).float() / size)


class SharesNotNormed(Engine):
    """The shares of a token's experts do not sum to one."""

    architecture, by_reference = "qwen3_moe", True

    def plant(self) -> None:
        for module in modules(self.model, "TopKRouter"):
            module.norm_topk_prob = False


class MantissasCut(Engine):
    """Keys and values are cut off to eight bits of floating point, those at hand as well."""

    architecture, by_reference = "qwen2", True

    def plant(self) -> None:
        for module in modules(self.model, "Attention"):
            for projection in (module.k_proj, module.v_proj):
                projection.register_forward_hook(lambda _module, _given, made: cut_off(made))


def cut_off(made: Any) -> Any:
    mantissa, exponent = torch.frexp(made)
    return torch.ldexp((mantissa * 16).trunc() / 16, exponent)


MUTANTS: tuple[type[Engine], ...] = tuple(
    kind
    for kind in globals().values()
    if isinstance(kind, type) and issubclass(kind, Engine) and kind is not Engine
)
