"""One KV cache walks a run's prefix tree: it is cropped back to what two prompts share, and extended.

In the plan's order each distinct token is computed once. The walk knows no framework: an `Engine` computes.
The contract, tested in tests/contract: answers equal those from an empty cache, token for token, and a
question leaves the cache as it found it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]


class Engine(Protocol):
    """A causal model with one KV cache, of one sequence."""

    def extend(self, ids: Ids) -> NDArray[np.float32]:
        """Compute ids (at least one) behind the cache; return the last position's logits, (vocabulary,).

        Memory beyond the cache must not grow with len(ids). Raises Unmeasured(MEMORY) when there is none left.
        """
        ...

    def crop(self, length_tokens: int) -> None:
        """Keep the first length_tokens tokens of the cache, exactly as they were."""
        ...


@dataclass(frozen=True, slots=True)
class Walked:
    """One question's outcome. answer: token ids without the stop token. computed, cached: prompt tokens that
    were computed for it and that the cache already held. finish: 'stop' or 'length'."""

    answer: tuple[int, ...]
    computed: int
    cached: int
    finish: str


class Walk:
    """Asks prompts of one engine, one after another. croppable False: every prompt starts from nothing."""

    def __init__(self, engine: Engine, stops: Sequence[int], *, croppable: bool = True) -> None:
        self._engine, self._stops, self._croppable = engine, frozenset(stops), croppable
        self._held: Ids = np.empty(0, np.int32)

    def ask(self, ids: Ids, max_answer_tokens: int) -> Walked:
        """Greedy answer to a prompt. The cache then holds the prompt, and nothing of the answer."""
        shared, logits = self._to(ids)
        answer: list[int] = []
        finish = "length"
        while len(answer) < max_answer_tokens:
            token = int(np.argmax(logits))
            if token in self._stops:
                finish = "stop"
                break
            answer.append(token)
            if len(answer) < max_answer_tokens:
                logits = self._engine.extend(np.array([token], np.int32))
        self._engine.crop(len(ids))
        return Walked(tuple(answer), len(ids) - shared, shared, finish)

    def _to(self, ids: Ids) -> tuple[int, NDArray[np.float32]]:
        """Bring the cache to a prompt; the tokens it shares with the one before, and the last logits.

        One token at least is computed, for its logits.
        """
        shared = min(shared_prefix(self._held, ids), len(ids) - 1) if self._croppable else 0
        self._engine.crop(shared)
        self._held = self._held[:shared]
        logits = self._engine.extend(ids[shared:])
        self._held = ids
        return shared, logits


def shared_prefix(left: Ids, right: Ids) -> int:
    """How many tokens two prompts begin with in common.

    >>> shared_prefix(np.array([1, 2, 3], np.int32), np.array([1, 2, 4, 5], np.int32))
    2
    """
    size = min(len(left), len(right))
    differing = np.flatnonzero(left[:size] != right[:size])
    return int(differing[0]) if len(differing) else size
