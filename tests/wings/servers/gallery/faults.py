"""Public faults of inference engines in a few lines each, put into the model in the box.

Each begins at a number of prompt tokens: shorter prompts are answered right. `mutants.py` names
each after its report; the lines are ours.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import numpy as np

from needlemap.models import demo
from needlemap.models.demo import DATA, Array, DemoModel, NumpyEngine, Weights, load_engine
from needlemap.models.walk import Ids, Walk, Walked, shared_prefix
from needlemap.servers.gauge.checkpoint import load_weights
from needlemap.servers.gauge.model import NAME, GaugeModel

Attend = Callable[[Array, Array, Array], Array]
REAL: Attend = demo.attention
HEAD = 16  # tokens: what prompts share beside their haystack is less
CUT = 36
GAUGE_HEAD = 43  # tokens that the gauge's chat template and its task take before the haystack
GAUGE_SHARED = 64  # the same, and the first fact's words: what its prompts may share by chance
WINDOW, LAST, WRAP, CHUNK = 64, 48, 64, 32  # tokens: the shortest faulty prompts have 118
BLOCK = 16


class Engine(NumpyEngine):
    """The sound engine, with places to put a fault. begins: prompt tokens from which on the fault
    acts; prompt: tokens of the prompt that is held; head: tokens that a hit must have to count;
    layer: the number of the layer that attends. weights: of the model in the box, or others."""

    def __init__(self, begins: int = 0, weights: Weights | None = None) -> None:
        super().__init__(weights or load_engine(DATA)._weights)
        self.begins, self.prompt, self.random = begins, 0, Random("gallery")
        self.head, self.layer = HEAD, 0

    @property
    def is_faulty(self) -> bool:
        """Whether the prompt is long enough for the fault."""
        return self.prompt >= self.begins

    def prepare(self, prompt_tokens: int, partings: Sequence[int]) -> None:
        self.prompt = prompt_tokens
        super().prepare(prompt_tokens, partings)

    def crop(self, length_tokens: int) -> int:
        kept = super().crop(length_tokens)
        if self.is_faulty and self.head <= kept < self.prompt:
            self.reread(kept)
        return kept

    def reread(self, kept: int) -> None:
        """A prefix of so many tokens is used again."""

    def attend(self, queries: Array, keys: Array, values: Array) -> Array:
        """Attention of the last tokens: see `demo.attention`."""
        return REAL(queries, keys, values)

    def _chunk(self, ids: Ids, *, is_whole: bool = True) -> Array:
        self.layer = -1
        with _patched(self._attend_each if self.is_faulty else REAL):
            return super()._chunk(ids, is_whole=is_whole)

    def _attend_each(self, queries: Array, keys: Array, values: Array) -> Array:
        """The same with keys and values of its own for each head of queries."""
        shared = len(queries) // len(keys)
        self.layer += 1
        if shared == 1:
            return self.attend(queries, keys, values)
        return self.attend(queries, keys.repeat(shared, 0), values.repeat(shared, 0))


@contextmanager
def _patched(attend: Attend) -> Iterator[None]:
    demo.attention = attend  # the reference in the box is asked in turn, never at the same time
    try:
        yield
    finally:
        demo.attention = REAL


def masked(queries: Array, keys: Array, values: Array, seen: Callable[[Any, Any], Any]) -> Array:
    """Causal attention in which position i sees position j only where `seen(i, j)` holds, or i is
    j."""
    tokens, whole = queries.shape[1], keys.shape[1]
    at, place = np.arange(whole - tokens, whole)[:, None], np.arange(whole)[None]
    allowed = (place <= at) & (seen(at, place) | (place == at))
    scores = queries @ keys.transpose(0, 2, 1) / np.sqrt(np.float32(queries.shape[-1]))
    scores = np.where(allowed, scores, -np.inf)
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed: Array = (scores @ values / scores.sum(axis=-1, keepdims=True)).astype(np.float32)
    return mixed


class OneLengthInFour(Engine):
    def attend(self, queries: Array, keys: Array, values: Array) -> Array:
        wrong = queries.shape[1] == 1 and self.prompt % 4 == 3
        return REAL(queries, keys, np.roll(values, 2, axis=1) if wrong else values)


class LastBlockOfAHit(Engine):
    def reread(self, kept: int) -> None:
        start = kept - kept % 16 - 16
        if start >= 32:
            self._cache[:, :, :, start : start + 16] = self._cache[
                :, :, :, start - 32 : start - 16
            ].copy()


class OffByOneAfterAHit(Engine):
    off = 0

    def prepare(self, prompt_tokens: int, partings: Sequence[int]) -> None:
        self.off = 0
        super().prepare(prompt_tokens, partings)

    def reread(self, kept: int) -> None:
        self.off = 1

    def _turns(self, start: int, stop: int) -> tuple[Array, Array]:
        return super()._turns(start + self.off, stop + self.off)


class ReadBackInAnotherLayout(Engine):
    def reread(self, kept: int) -> None:
        held = self._cache[:, 1, :, self.head : kept]
        held[:] = np.roll(held, 8, axis=2)


class RaceOverRows(Engine):
    before: Array | None = None

    def extend(self, ids: Ids) -> Array:
        logits = super().extend(ids)
        if len(ids) > 1 and self.is_faulty and self.random.random() < 0.5:
            self.before = self.cache.copy()
            rows = self.random.sample(range(self._length), self._length // 2)
            self._cache[:, :, :, rows] = self._cache[:, :, :, :1]
        return logits

    def crop(self, length_tokens: int) -> int:
        if self.before is not None:  # the next prompt may find them as they were
            self._cache[:, :, :, : self.before.shape[3]] = self.before
            self.before = None
        return super().crop(length_tokens)


class OffsetsThatWrap(Engine):
    def attend(self, queries: Array, keys: Array, values: Array) -> Array:
        rows = np.arange(keys.shape[1])
        rows[: max(0, len(rows) - WRAP)] += WRAP
        return REAL(queries, keys[:, rows], values[:, rows])


class LastTokensOnly(Engine):
    def attend(self, queries: Array, keys: Array, values: Array) -> Array:
        return masked(queries, keys, values, lambda at, place: at - place < LAST)


class WindowOnAllLayers(Engine):
    def attend(self, queries: Array, keys: Array, values: Array) -> Array:
        return masked(queries, keys, values, lambda at, place: at - place < WINDOW)


class LocalLayer(Engine):
    """A sound engine of another model, whose first layer has a window."""

    def attend(self, queries: Array, keys: Array, values: Array) -> Array:
        if self.layer:
            return REAL(queries, keys, values)
        return masked(queries, keys, values, lambda at, place: at - place < WINDOW)


class WindowNeverLeft(LocalLayer):
    @property
    def is_faulty(self) -> bool:
        """Whether the layer has its window: of shorter prompts it does."""
        return not super().is_faulty


class OneLongExtend(Engine):
    """One extend of too many tokens attends to nothing: its output is as it was before."""

    long = False

    def extend(self, ids: Ids) -> Array:
        self.long = len(ids) + self.head >= self.begins
        try:
            return super().extend(ids)
        finally:
            self.long = False

    def attend(self, queries: Array, keys: Array, values: Array) -> Array:
        return np.zeros_like(queries) if self.long else REAL(queries, keys, values)


class OneBandOfLengths(Engine):
    """From so many tokens to twice as many, rows are read from the block before."""

    @property
    def is_faulty(self) -> bool:
        """Whether the prompt is within the band."""
        return self.begins <= self.prompt < 2 * self.begins

    def attend(self, queries: Array, keys: Array, values: Array) -> Array:
        return REAL(queries, keys, np.roll(values, BLOCK, axis=1))


class ScaledPositions(Engine):
    def _turns(self, start: int, stop: int) -> tuple[Array, Array]:
        width, scale = self._weights.head_width, 0.9 if self.is_faulty else 1.0
        angles = (
            scale
            * np.arange(start, stop)[:, None]
            * self._weights.theta ** (-np.arange(0, width, 2) / width)
        )
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


class TwoChunksOnly(Engine):
    def attend(self, queries: Array, keys: Array, values: Array) -> Array:
        return masked(queries, keys, values, lambda at, place: place // CHUNK >= at // CHUNK - 1)


class FirstRowOfAChunk(Engine):
    def attend(self, queries: Array, keys: Array, values: Array) -> Array:
        return masked(queries, keys, values, lambda _, place: place % CHUNK != 0)


class FourBitCache(Engine):
    def attend(self, queries: Array, keys: Array, values: Array) -> Array:
        for rows in (keys, values):  # of the cache: those before were rounded when they came
            new = rows[:, -queries.shape[1] :]
            new[:] = self._rounded(new)
        return REAL(queries, keys, values)

    @staticmethod
    def _rounded(rows: Array) -> Array:
        step = np.abs(rows).max(axis=-1, keepdims=True) / 7
        return np.round(rows / step).astype(np.float32) * step


class BestSixteenKeys(Engine):
    kept = 16

    def attend(self, queries: Array, keys: Array, values: Array) -> Array:
        scores = queries @ keys.transpose(0, 2, 1)
        tokens, whole = scores.shape[1:]
        scores[:, :, -tokens:] += np.triu(np.full((tokens, tokens), -np.inf, np.float32), 1)
        at = whole - min(self.kept, whole)
        least = np.partition(scores, at, axis=-1)[..., at][..., None]
        kept = np.where(scores >= least, scores / np.sqrt(np.float32(queries.shape[-1])), -np.inf)
        kept = np.exp(kept - kept.max(axis=-1, keepdims=True))
        mixed: Array = (kept @ values / kept.sum(axis=-1, keepdims=True)).astype(np.float32)
        return mixed


class ShardsMergedInAnotherBase(Engine):
    def attend(self, queries: Array, keys: Array, values: Array) -> Array:
        if queries.shape[1] > 1:
            return REAL(queries, keys, values)
        scores = queries @ keys.transpose(0, 2, 1) / np.sqrt(np.float32(queries.shape[-1]))
        half = keys.shape[1] // 2
        parts = []
        for part, held in (
            (scores[..., :half], values[:, :half]),
            (scores[..., half:], values[:, half:]),
        ):
            peak = part.max(axis=-1, keepdims=True)
            weights = np.exp(part - peak)
            total = weights.sum(axis=-1, keepdims=True)
            parts.append((weights @ held / total, peak + np.log(total)))
        most = np.maximum(parts[0][1], parts[1][1])
        merged = [2.0 ** (length - most) for _, length in parts]  # e was meant
        mixed: Array = sum(
            part * weight for (part, _), weight in zip(parts, merged, strict=True)
        ) / sum(merged)
        return mixed.astype(np.float32)


class FaultyWalk(Walk):
    """A walk with a fault. begins: prompt tokens from which on it acts."""

    begins = 0


class CutWalk(FaultyWalk):
    """Prompts lose more of their beginning than templates differ by."""

    cut = CUT

    def ask(self, ids: Ids, max_answer_tokens: int, **more: Any) -> Walked:
        start = self.cut if len(ids) >= self.begins else 0
        return super().ask(ids[start:], max_answer_tokens, **more)


class SilentCutWalk(CutWalk):
    """The same, and what was left out is counted."""

    def ask(self, ids: Ids, max_answer_tokens: int, **more: Any) -> Walked:
        walked = super().ask(ids, max_answer_tokens, **more)
        cached, computed, answer = 0, len(ids), walked.answer
        return Walked(answer, computed, cached, walked.finish, walked.seen)


class EndlessWalk(FaultyWalk):
    """Behind long prompts an answer does not stop."""

    def ask(self, ids: Ids, max_answer_tokens: int, **more: Any) -> Walked:
        stops, self._stops = self._stops, frozenset() if len(ids) >= self.begins else self._stops
        try:
            return super().ask(ids, max_answer_tokens, **more)
        finally:
            self._stops = stops


class OthersWalk(FaultyWalk):
    """One prompt in twelve is answered from somebody else's: the last one with another text."""

    other: Ids | None = None
    last: Ids | None = None
    count = 0

    def ask(self, ids: Ids, max_answer_tokens: int, **more: Any) -> Walked:
        if self.last is not None and 2 * shared_prefix(self.last, ids) < len(ids):
            self.other = self.last
        self.last = ids
        self.count += len(ids) >= self.begins
        taken = len(ids) >= self.begins and self.count % 12 == 0 and self.other is not None
        return super().ask(self.other if taken else ids, max_answer_tokens, **more)


class ForgetfulWalk(Walk):
    """No fault: a server that caches nothing."""

    def ask(self, ids: Ids, max_answer_tokens: int, **more: Any) -> Walked:
        self.drop()
        return super().ask(ids, max_answer_tokens, **more)


class Faulty(DemoModel):
    """The model in the box with another engine, or another walk, from so many prompt tokens on."""

    def __init__(
        self, engine: type[Engine] = Engine, walk: type[Walk] = Walk, begins: int = 0
    ) -> None:
        super().__init__("retriever")
        self._walk = walk(engine(begins), self._walk._stops)
        self._walk.begins = begins


class FaultyGauge(GaugeModel):
    """The same of the gauge, which holds to thousands of tokens."""

    def __init__(
        self, engine: type[Engine] = Engine, walk: type[Walk] = Walk, begins: int = 0
    ) -> None:
        made = engine(begins, load_weights())
        made.head = GAUGE_SHARED
        super().__init__(NAME, made)
        self._walk = walk(made, self._walk._stops)
        self._walk.begins = begins
        self._walk.cut = GAUGE_HEAD + CUT


class UnderLoad:
    """Several prompts at a time: while others wait, nearly all get rows of another place."""

    def __init__(self, begins: int = 0) -> None:
        self.model, self.begins, self.waiting, self.random = Faulty(), begins, 0, Random("load")

    async def answer(self, text: str) -> str:
        """What a server would say."""
        self.waiting += 1
        try:
            await asyncio.sleep(0.01)
            vocabulary = self.model._vocabulary
            ids = np.array(vocabulary.encode(text, add_special_tokens=False).ids, np.int32)
            if len(ids) >= self.begins and self.waiting > 1 and self.random.random() < 0.9:
                quarter = len(ids) // 4
                ids[quarter:-quarter] = ids[4]
            walked = await self.model._in_turn(lambda: self.model._walk.ask(ids, 24))
            return vocabulary.decode(list(walked.answer))
        finally:
            self.waiting -= 1


NOISE = Random("noise")
NEEDLE = re.compile(r"The locker code for (\w+) is (\d+)\.")


async def noisy(text: str) -> str:
    """A sound server whose answers differ, now and then, when it is asked again: one in forty is
    wrong."""
    asked = text.rpartition("locker code for ")[2].partition("?")[0]
    code = dict(NEEDLE.findall(text))[asked]
    return f"{asked}: {code if NOISE.random() > 1 / 40 else NOISE.randrange(10**6, 10**7)}"
