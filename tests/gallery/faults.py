"""Public faults of inference engines in a few lines each, put into the model in the box.

`mutants.py` names each after its report; the lines are ours.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import numpy as np

from needlemap.models import demo
from needlemap.models.demo import DATA, Array, DemoModel, NumpyEngine, load_engine
from needlemap.models.walk import Ids, Walk, Walked

Attend = Callable[[Array, Array, Array], Array]
REAL: Attend = demo.attention


class Engine(NumpyEngine):
    """The sound engine, with places to put a fault. prompt: tokens of the prompt that is held."""

    def __init__(self) -> None:
        super().__init__(load_engine(DATA)._weights)
        self.prompt, self.random = 0, Random("gallery")

    def extend(self, ids: Ids) -> Array:
        if len(ids) > 1:
            self.prompt = self.prompt_after(ids)
        return super().extend(ids)

    def prompt_after(self, ids: Ids) -> int:
        """Tokens of the prompt that these end."""
        return self._length + len(ids)

    def crop(self, length_tokens: int) -> int:
        hit = 16 <= length_tokens < min(self._length, self.prompt)
        kept = super().crop(length_tokens)
        if hit:
            self.reread(kept)
        return kept

    def reread(self, kept: int) -> None:
        """A prefix of so many tokens is used again."""

    def attend(self, queries: Array, keys: Array, values: Array) -> Array:
        """Attention of the last tokens: see `demo.attention`."""
        return REAL(queries, keys, values)

    def _chunk(self, ids: Ids) -> Array:
        with _patched(self.attend):
            return super()._chunk(ids)


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
    def __init__(self) -> None:
        super().__init__()
        self.off, self.start = 0, 0

    def reread(self, kept: int) -> None:
        self.off = 1

    def crop(self, length_tokens: int) -> int:
        if length_tokens < 16:
            self.off = 0
        return super().crop(length_tokens)

    def _turns(self, start: int, stop: int) -> tuple[Array, Array]:
        return super()._turns(start + self.off, stop + self.off)


class ReadBackInAnotherLayout(Engine):
    def reread(self, kept: int) -> None:
        self._cache[:, 1, :, :kept] = np.roll(self._cache[:, 1, :, :kept], 8, axis=2)


class RaceOverRows(Engine):
    def extend(self, ids: Ids) -> Array:
        if len(ids) > 1 and self.prompt_after(ids) > 100 and self.random.random() < 0.35:
            logits = super().extend(ids)
            rows = [self.random.randrange(self._length) for _ in range(60)]
            self._cache[:, :, :, rows] = self._cache[:, :, :, :1]
            return logits
        return super().extend(ids)


class OffsetsThatWrap(Engine):
    def attend(self, queries: Array, keys: Array, values: Array) -> Array:
        rows = np.arange(keys.shape[1])
        rows[: max(0, len(rows) - 128)] += 128
        return REAL(queries, keys[:, rows], values[:, rows])


class LastTokensOnly(Engine):
    def attend(self, queries: Array, keys: Array, values: Array) -> Array:
        return masked(queries, keys, values, lambda at, place: (at < 150) | (at - place < 64))


class WindowOnAllLayers(Engine):
    def attend(self, queries: Array, keys: Array, values: Array) -> Array:
        return masked(queries, keys, values, lambda at, place: at - place < 128)


class ScaledPositions(Engine):
    def _turns(self, start: int, stop: int) -> tuple[Array, Array]:
        width = self._weights.head_width
        angles = (
            0.9
            * np.arange(start, stop)[:, None]
            * self._weights.theta ** (-np.arange(0, width, 2) / width)
        )
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


class TwoChunksOnly(Engine):
    def attend(self, queries: Array, keys: Array, values: Array) -> Array:
        return masked(queries, keys, values, lambda at, place: place // 64 >= at // 64 - 1)


class FirstRowOfAChunk(Engine):
    def attend(self, queries: Array, keys: Array, values: Array) -> Array:
        return masked(queries, keys, values, lambda _, place: place % 64 != 0)


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
        least = np.sort(scores, axis=-1)[..., -min(self.kept, whole)][..., None]
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
            weights = np.exp(part)
            total = weights.sum(axis=-1, keepdims=True)
            parts.append((weights @ held / total, np.log(total)))
        merged = [2.0**length for _, length in parts]  # e was meant
        mixed: Array = sum(
            part * weight for (part, _), weight in zip(parts, merged, strict=True)
        ) / sum(merged)
        return mixed.astype(np.float32)


class CutWalk(Walk):
    """Prompts lose their first eighth."""

    def ask(self, ids: Ids, max_answer_tokens: int, **more: Any) -> Walked:
        return super().ask(
            ids[len(ids) // 8 :] if len(ids) > 120 else ids, max_answer_tokens, **more
        )


class SilentCutWalk(CutWalk):
    """The same, and what was left out is counted."""

    def ask(self, ids: Ids, max_answer_tokens: int, **more: Any) -> Walked:
        walked = super().ask(ids, max_answer_tokens, **more)
        cached, computed, answer = 0, len(ids), walked.answer
        return Walked(answer, computed, cached, walked.finish, walked.seen)


class EndlessWalk(Walk):
    """Behind long prompts an answer does not stop."""

    def ask(self, ids: Ids, max_answer_tokens: int, **more: Any) -> Walked:
        stops, self._stops = self._stops, frozenset() if len(ids) > 150 else self._stops
        try:
            return super().ask(ids, max_answer_tokens, **more)
        finally:
            self._stops = stops


class OthersWalk(Walk):
    """One prompt in twelve is answered from the cache of the one before."""

    before: Ids | None = None
    count = 0

    def ask(self, ids: Ids, max_answer_tokens: int, **more: Any) -> Walked:
        self.count += 1
        asked, self.before = (self.before if self.count % 12 == 0 else ids), ids
        return super().ask(ids if asked is None else asked, max_answer_tokens, **more)


class ForgetfulWalk(Walk):
    """No fault: a server that caches nothing."""

    def ask(self, ids: Ids, max_answer_tokens: int, **more: Any) -> Walked:
        self.drop()
        return super().ask(ids, max_answer_tokens, **more)


class Faulty(DemoModel):
    """The model in the box with another engine, or another walk."""

    def __init__(self, engine: type[NumpyEngine] = Engine, walk: type[Walk] = Walk) -> None:
        super().__init__("retriever")
        self._walk = walk(engine(), self._walk._stops)


class UnderLoad:
    """Several prompts at a time: while others wait, nearly all get rows of another place."""

    def __init__(self) -> None:
        self.model, self.waiting, self.random = Faulty(), 0, Random("load")

    async def answer(self, text: str) -> str:
        """What a server would say."""
        self.waiting += 1
        try:
            await asyncio.sleep(0.01)
            ids = np.array(
                self.model._vocabulary.encode(text, add_special_tokens=False).ids, np.int32
            )
            if self.waiting > 1 and self.random.random() < 0.9:
                middle = len(ids) // 2
                ids[middle - 30 : middle + 30] = ids[4]
            walked = await self.model._in_turn(lambda: self.model._walk.ask(ids, 24))
            return self.model._vocabulary.decode(list(walked.answer))
        finally:
            self.waiting -= 1


LOADED: list[UnderLoad] = []
NOISE = Random("noise")
NEEDLE = re.compile(r"The locker code for (\w+) is (\d+)\.")


async def noisy(text: str) -> str:
    """A sound server whose answers differ, now and then, when it is asked again: one in forty is
    wrong."""
    asked = text.rpartition("locker code for ")[2].partition("?")[0]
    code = dict(NEEDLE.findall(text))[asked]
    return f"{asked}: {code if NOISE.random() > 1 / 40 else NOISE.randrange(10**6, 10**7)}"


async def under_load(text: str) -> str:
    """The function that `python/faults:under_load` names."""
    if not LOADED:
        LOADED.append(UnderLoad())
    return await LOADED[0].answer(text)
