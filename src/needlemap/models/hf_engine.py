"""A transformers model and its KV cache as a `walk.Engine`.

What may be shared is decided by looking at the cache that the model itself makes, and by
`hf_check.py`, which tries it. No model is known by its name here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from needlemap.errors import Failure, Unmeasured
from needlemap.models.hf_attention import split_attention
from needlemap.models.hf_cache import (
    Snapshot,
    configured_switch,
    give_room,
    is_full,
    is_known,
    is_sliding,
)
from needlemap.models.walk import Engine, Ids, Logits

_NO_ROOM = re.compile(r"out of memory|can't allocate memory|not enough memory", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CacheMode:
    """How prompts are computed.

    Attributes:
        share: What two have in common is computed once.
        pieces: They are computed in chunks.
        cached: False if each token computes the whole text anew.
        generated: It does so through the model's own `generate`.
    """

    share: bool = True
    pieces: bool = True
    cached: bool = True
    generated: bool = False


WAYS = (
    CacheMode(),
    CacheMode(share=False),
    CacheMode(share=False, pieces=False),
    CacheMode(share=False, pieces=False, cached=False),
)
GENERATED = CacheMode(share=False, pieces=False, cached=False, generated=True)
_RANDOM = (
    "it draws random numbers where it computes {tokens:,} tokens: asked twice, it answers "
    "differently."
)


class HuggingFaceEngine(Engine):
    """One sequence's cache, and the model that extends it in chunks.

    Attributes:
        share: Whether prompts shall share.
        way: How they are computed; may be changed while the cache is empty.
        positions: Whether they are given to the model behind a cache, or it counts them itself.
        switch: Where positions are turned otherwise.
        sliding: The tokens of the smallest window.
        vocabulary: How many tokens it knows.
        cache: The model's own object; None while it is empty.
    """

    def __init__(self, model: Any, chunk_tokens: int, *, share: bool = True) -> None:
        import torch

        self._torch = torch
        self.model = model
        self.chunk = chunk_tokens
        self.device = torch.device(first_device(model))
        parameters = inspect.signature(model.forward).parameters
        self._takes_any = any(
            parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
        )
        self._takes = set(parameters)
        self._cache_field = "cache_params" if "cache_params" in parameters else "past_key_values"
        names = ("logits_to_keep", "num_logits_to_keep")
        self._keep_field = next((name for name in names if name in parameters), None)
        self.positions = "position_ids" in parameters
        self.switch = configured_switch(model.config.to_dict())
        self.way = CacheMode()
        self._is_known = False
        self._needs_snapshots = False
        self._is_ready = False
        self.cache: Any = None
        self._ids: Ids = np.empty(0, np.int32)
        self._prompt_tokens = 0
        self._partings: frozenset[int] = frozenset()
        self._side = 0
        self._snapshots: dict[int, Snapshot] = {}
        self.sliding: int | None = None
        self._look(share)

    def _look(self, share: bool) -> None:
        """Compute a first token, which shows what cache the model makes."""
        token = np.zeros(1, np.int32)
        self.vocabulary = int(self._compute(token, 1).shape[-1])
        self._is_ready = True
        layers = list(getattr(self.cache, "layers", ()))
        self.sliding = min(
            (layer.sliding_window for layer in layers if is_sliding(layer)), default=None
        )
        self._is_known = is_known(self.cache)
        self._needs_snapshots = self._is_known and not is_full(self.cache)
        self.share = share
        self.way = CacheMode(share=share and self._is_known, pieces=self._is_known)
        if self.cache is None:
            self.way = WAYS[-1]
        self.crop(0)

    def prepare(self, prompt_tokens: int, partings: Sequence[int]) -> None:
        """Take the next prompt's length, and where prompts asked later part from it."""
        self._prompt_tokens = prompt_tokens
        self._partings = frozenset(partings)

    def extend(self, ids: Ids) -> Logits:
        """Compute ids behind the cache, and return the last position's logits.

        Raises Unmeasured(MEMORY).
        """
        last: Logits = self._logits_by_piece(ids, 1)[-1][-1]
        return last

    def extend_all(self, ids: Ids) -> Logits:
        """Compute ids behind the cache, and return all their logits, (tokens, vocabulary)."""
        return np.concatenate(self._logits_by_piece(ids, len(ids)))

    def uncached_logits(self, ids: Ids, keep: int) -> Logits:
        """Return logits of the last `keep` positions of a text, from one pass without a cache."""
        self._forget_lengths()
        with self._torch.inference_mode():
            return self._logits(self._call(ids, 0, keep, {"use_cache": False}), keep)

    def _forget_lengths(self) -> None:
        """Let rotary modules drop the positions of the longest text so far.

        They do so when one token is computed.
        """
        if self.switch is not None and not self.switch.steady:
            with self._torch.inference_mode():
                self._call(np.zeros(1, np.int32), 0, 1, {"use_cache": False})

    def crop(self, length_tokens: int) -> int:
        """Keep the first length_tokens tokens, or as many as serve the coming prompt exactly.

        Return how many tokens are kept. Raise RuntimeError if the cache did not drop the others.
        """
        side = self._side_of(self._prompt_tokens) if self._prompt_tokens else self._side
        # Where each length is turned in its own way, what is added would be turned as a shorter
        # text.
        fits = side == self._side and (side <= 0 or length_tokens == self._prompt_tokens)
        serves = self.way.share and fits
        kept = self._reusable_tokens(length_tokens) if serves else 0
        self._snapshots = {
            length: snapshot
            for length, snapshot in self._snapshots.items()
            if length <= kept and length in self._partings | {kept}
        }
        if kept < len(self._ids):
            self.cache = self._cropped_cache(kept) if kept else None
        self._ids, self._side = self._ids[:kept], side
        self._forget_lengths()
        return kept

    def _reusable_tokens(self, length_tokens: int) -> int:
        """Return how many of the first tokens the cache can be brought back to."""
        if not self._needs_snapshots or len(self._ids) == length_tokens:
            return length_tokens
        return max((length for length in self._snapshots if length <= length_tokens), default=0)

    def _cropped_cache(self, length_tokens: int) -> Any:
        """Return the cache, brought back to a length."""
        if self._needs_snapshots:
            with self._torch.inference_mode():
                self._snapshots[length_tokens].put(self.cache, length_tokens)
            return self.cache
        # The one form of `crop` that means the same in every release: a negative number of tokens
        # to remove.
        self.cache.crop(length_tokens - self.cache.get_seq_length())
        if self.cache.get_seq_length() != length_tokens:
            raise RuntimeError(
                f"the cache holds {self.cache.get_seq_length()} tokens, not {length_tokens}"
            )
        return self.cache

    def _side_of(self, tokens: int) -> int:
        return 0 if self.switch is None else self.switch.side(tokens)

    def _logits_by_piece(self, ids: Ids, keep: int) -> list[Logits]:
        """Compute tokens piece by piece, and return the logits of the last positions of each.

        keep: the most positions of a piece.
        """
        start = len(self._ids)
        if not start and not self._prompt_tokens:
            self._side = self._side_of(len(ids))
        rows: list[Logits] = []
        place = start
        for stop in self._stops(len(ids)):
            part = ids[place - start : stop - start]
            rows.append(self._forward(part, min(keep, len(part))))
            if self._needs_snapshots and self.way.share and stop in self._partings:
                with self._torch.inference_mode():
                    self._snapshots[stop] = Snapshot.of(self.cache)
            place = stop
        return rows

    def _stops(self, count: int) -> list[int]:
        """Return the ends of the pieces in which the next `count` tokens are computed.

        If the text goes beyond a switch of positions, the first piece does too, because positions
        of a piece that ended before it would be turned as those of a short text.
        """
        start, stop = len(self._ids), len(self._ids) + count
        if not (self.way.cached and (self.way.pieces or start)):
            return [stop]

        size = self.chunk if self.way.pieces else 1
        first_end = start + 1
        cuts = {stop}
        if self.switch is not None and stop > self.switch.at:
            if self._side and not start and not self.switch.steady:
                return [stop]
            if not self.switch.steady:
                size = 1
            cuts.add(self.switch.at)
            if self._side:
                first_end = self.switch.at + 1

        if self._needs_snapshots and self.way.share:
            cuts |= self._partings
        cuts_ahead = sorted(cut for cut in cuts if first_end <= cut <= stop)
        return _ends(start, cuts_ahead, size, first_end)

    def _forward(self, ids: Ids, keep: int) -> Logits:
        """Return logits of the last `keep` positions, (keep, vocabulary)."""
        self.check()
        try:
            return self._compute(ids, keep)
        except (MemoryError, RuntimeError) as error:
            if not (isinstance(error, MemoryError) or _NO_ROOM.search(str(error))):
                raise
        # Outside of `except`, whose error would keep the failed computation's tensors alive.
        tokens = len(self._ids) + len(ids)
        self.crop(0)
        if self._torch.cuda.is_available():
            self._torch.cuda.empty_cache()
        raise Unmeasured(Failure.MEMORY, f"Out of memory at {tokens:,} tokens on {self.device}.")

    def _compute(self, ids: Ids, keep: int) -> Logits:
        all_ids = np.concatenate([self._ids, ids])
        if not self.way.cached:
            if self.way.generated:
                rows = self._generated_logits(all_ids, keep)
            else:
                rows = self.uncached_logits(all_ids, keep)
            self._ids = all_ids
            return rows

        with self._torch.inference_mode():
            side = self._side_of(len(all_ids))
            crosses = self.cache is not None and self._side == 0 and side != 0
            if crosses and self._drops_cache(all_ids):
                ids = all_ids
                self.cache = None
                self._side = side
            fields = {self._cache_field: self.cache, "use_cache": True}
            start, is_fresh = len(all_ids) - len(ids), self.cache is None
            output = self._call(ids, start, keep, fields)
            self.cache = getattr(output, self._cache_field, None)
            self._ids = all_ids
            if is_fresh and self._is_known:
                give_room(self.cache)
            return self._logits(output, keep)

    def _drops_cache(self, all_ids: Ids) -> bool:
        """Return True if the model itself computes the whole text anew beyond a switch.

        Called when an answer crosses the switch.
        """
        tokens = self._tokens(all_ids)
        fields = {self._cache_field: self.cache, "attention_mask": self._torch.ones_like(tokens)}
        try:
            inputs = self.model.prepare_inputs_for_generation(tokens, use_cache=True, **fields)
        # A model's own code may raise anything.
        except Exception:
            return False
        return inputs.get(self._cache_field) is None

    def prepares_itself(self) -> bool:
        """Return True if the model's own code decides what its `generate` computes."""
        prepare = getattr(type(self.model), "prepare_inputs_for_generation", None)
        return prepare is not None and not prepare.__module__.startswith("transformers.generation")

    def _generated_logits(self, all_ids: Ids, keep: int) -> Logits:
        """Return logits of the last `keep` positions as the model's own `generate` computes them.

        `generate` is made to pick the tokens that follow the prompt in `all_ids`.
        """
        prompt, start = self._tokens(all_ids[: self._prompt_tokens]), self._prompt_tokens
        # The last pick does not count.
        followers = [*all_ids[start:].tolist(), 0]
        with self._forbid_random_numbers(len(all_ids)):
            output = self.model.generate(
                prompt,
                attention_mask=self._torch.ones_like(prompt),
                max_new_tokens=len(followers),
                do_sample=False,
                num_beams=1,
                eos_token_id=None,
                pad_token_id=0,
                prefix_allowed_tokens_fn=lambda _, ids: [followers[len(ids) - start]],
                return_dict_in_generate=True,
                output_logits=True,
            )
        return finite(np.stack([row[0].float().cpu().numpy() for row in output.logits[-keep:]]))

    def _call(self, ids: Ids, start: int, keep: int, fields: dict[str, Any]) -> Any:
        """Return what the model makes of tokens behind `start` others."""
        arguments = {**fields, "return_dict": True}
        if self._keep_field is not None:
            arguments[self._keep_field] = keep
        arguments = {
            name: value
            for name, value in arguments.items()
            if self._takes_any or name in self._takes
        }
        if self.positions and start:
            positions = self._torch.arange(start, start + len(ids), device=self.device)
            arguments["position_ids"] = positions[None]
        tokens = self._tokens(ids)
        with self._forbid_random_numbers(start + len(ids)), split_attention():
            return self.model(input_ids=tokens, **arguments)

    @contextmanager
    def _forbid_random_numbers(self, tokens: int) -> Iterator[None]:
        """Raise Unmeasured if random numbers were drawn inside."""
        states_before = self._random_states()
        yield
        states_after = self._random_states()
        # A first pass may draw, for modules made only then.
        if self._is_ready and not all(map(self._torch.equal, states_before, states_after)):
            raise Unmeasured(Failure.MODEL, _RANDOM.format(tokens=tokens))

    def _random_states(self) -> list[Any]:
        """Return the states of the generators of random numbers that a model may draw from."""
        states = [self._torch.get_rng_state()]
        if self.device.type == "cuda":
            states.append(self._torch.cuda.get_rng_state(self.device))
        return states

    def _tokens(self, ids: Ids) -> Any:
        return self._torch.from_numpy(ids.astype(np.int64))[None].to(self.device)

    def _logits(self, output: Any, keep: int) -> Logits:
        return finite(output.logits[0, -keep:].float().cpu().numpy())


def finite(logits: Logits) -> Logits:
    """Return logits, (tokens, vocabulary), as they are; -inf rules a token out.

    Raise Unmeasured if they hold NaN or infinity, or if a row rules out all tokens: no token could
    be read off them.
    """
    if not np.isfinite(logits.max(axis=-1)).all():
        raise Unmeasured(
            Failure.MODEL,
            "It computes NaN or infinity: its logits are no numbers. Are its weights sound, and "
            "does its dtype hold what it computes (float16 overflows beyond 65,504)?",
        )
    return logits


def _ends(start: int, cuts: Sequence[int], size: int, first_end: int) -> list[int]:
    """Return the ends of pieces of at most `size` tokens, all cuts among them.

    The first piece may be longer, because no piece ends before `first_end`.

    >>> _ends(0, [5, 12], 4, 1), _ends(0, [12], 4, 7)
    ([4, 5, 9, 12], [7, 11, 12])
    """
    ends, place = [], start
    for cut in cuts:
        while place < cut:
            place = min(cut, max(place + size, first_end))
            ends.append(place)
    return ends


def first_device(model: Any) -> Any:
    """Return the device on which a model takes its tokens."""
    embeddings = model.get_input_embeddings()
    # Offloaded weights report 'meta'. accelerate's hook, which moves them, knows the device.
    hook = getattr(embeddings, "_hf_hook", None)
    device = getattr(hook, "execution_device", None)
    return embeddings.weight.device if device is None else device
