"""One KV cache walks a run's prefix tree: it is cropped back to what two prompts share, and extended.

In the plan's order each distinct token is computed once. The walk knows no framework: an `Engine` computes.
The contract, tested in tests/contract: answers equal those from an empty cache, token for token, and a
question leaves the cache as it found it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from needlemap.errors import Failure, Unmeasured

Ids = NDArray[np.int32]
Logits = NDArray[np.float32]  # of one position, (vocabulary,), or of several, (tokens, vocabulary)
Seen = tuple[int, float, int, float]  # a token, the likeliest other one, and log-probabilities
T = TypeVar("T")


class Engine(Protocol):
    """A causal model with one KV cache, of one sequence."""

    def extend(self, ids: Ids) -> Logits:
        """Compute ids (at least one) behind the cache; return the last position's logits, (vocabulary,).

        Memory beyond the cache must not grow with len(ids). Raises Unmeasured(MEMORY) when none is left.
        """
        ...

    def crop(self, length_tokens: int) -> int:
        """Keep the first length_tokens tokens of the cache exactly as they were, or fewer of them; how many.

        0 always works, and frees the memory.
        """
        ...


@runtime_checkable
class Preparing(Protocol):
    """An engine that wants to hear of a prompt before it is cropped and extended to it."""

    def prepare(self, prompt_tokens: int, partings: Sequence[int]) -> None:
        """How long the next prompt is, and the lengths at which prompts that are asked later part from it."""
        ...


@runtime_checkable
class Revealing(Protocol):
    """An engine that can also show what it thinks of each of some given tokens."""

    def extend_all(self, ids: Ids) -> Logits:
        """As `extend`, but returns the logits of every position of ids, (tokens, vocabulary)."""
        ...


@dataclass(frozen=True, slots=True)
class Walked:
    """One question's outcome. answer: token ids without the stop token. computed, cached: prompt tokens that
    were computed for it and that the cache already held. finish: 'stop' or 'length'. seen: on request its
    tokens as `likelihoods` has them, the stop token too."""

    answer: tuple[int, ...]
    computed: int
    cached: int
    finish: str
    seen: tuple[Seen, ...] = ()


@dataclass(frozen=True, slots=True)
class Weighed:
    """A given answer's outcome. logprobs: natural log-probability of each of its tokens, given the prompt and
    the tokens before it. greedy: whether each was the likeliest. computed, cached, seen: as for `Walked`."""

    logprobs: tuple[float, ...]
    greedy: bool
    computed: int
    cached: int
    seen: tuple[Seen, ...] = ()


def greedy(logits: Logits) -> int:
    """The likeliest token; of several the first."""
    return int(np.argmax(logits))


class Walk:
    """Asks prompts of one engine, one after another."""

    def __init__(self, engine: Engine, stops: Sequence[int]) -> None:
        self._engine, self._stops = engine, frozenset(stops)
        self._held: Ids = np.empty(0, np.int32)
        self._next: Logits | None = None  # the logits behind what is held

    def ask(
        self,
        ids: Ids,
        max_answer_tokens: int,
        choose: Callable[[Logits], int] = greedy,
        partings: Sequence[int] = (),
        ended: Callable[[Sequence[int]], bool] | None = None,
        *,
        seen: bool = False,
    ) -> Walked:
        """The answer to a prompt. The cache then holds the prompt, and nothing of the answer.

        partings: lengths in tokens at which prompts that are asked later part from this one.
        ended: whether the answer so far is complete, besides by a stop token. seen: keep what was thought of
        each of its tokens.
        Where memory runs out while the cache holds other prompts, they are dropped and it is asked again.
        """
        return self._with_room(partial(self._ask, ids, max_answer_tokens, choose, ended, seen), partings)

    def weigh(self, ids: Ids, answer: Ids, partings: Sequence[int] = ()) -> Weighed:
        """How likely a given answer (at least one token) to a prompt is: one pass behind the prompt.

        Raises TypeError for an engine that is not `Revealing`.
        """
        return self._with_room(partial(self._weigh, ids, answer), partings)

    def drop(self) -> None:
        """Forget everything, and free it."""
        self._held, self._next = np.empty(0, np.int32), None
        self._engine.crop(0)

    def _ask(
        self,
        ids: Ids,
        max_answer_tokens: int,
        choose: Callable[[Logits], int],
        ended: Callable[[Sequence[int]], bool] | None,
        seen: bool,
        partings: Sequence[int],
    ) -> Walked:
        shared, logits = self._to(ids, partings)
        answer, told = list[int](), list[Seen]()
        finish = "length"
        while len(answer) < max_answer_tokens:
            token = choose(logits)
            if seen:
                told += likelihoods(logits[None], np.array([token], np.int32))
            if token in self._stops:
                finish = "stop"
                break
            answer.append(token)
            if ended is not None and ended(answer):
                finish = "stop"
                break
            if len(answer) < max_answer_tokens:
                logits = self._engine.extend(np.array([token], np.int32))
        self._back(ids)
        return Walked(tuple(answer), len(ids) - shared, shared, finish, tuple(told))

    def _weigh(self, ids: Ids, answer: Ids, partings: Sequence[int]) -> Weighed:
        if not isinstance(self._engine, Revealing):
            raise TypeError(
                f"{type(self._engine).__name__} cannot weigh a given answer: it has no extend_all"
            )
        shared, first = self._to(ids, partings)
        rows = first[None]
        if len(answer) > 1:
            rows = np.concatenate([rows, self._engine.extend_all(answer[:-1])])
        self._back(ids)
        likeliest = bool((rows.argmax(axis=-1) == answer).all())
        told = tuple(likelihoods(rows, answer))
        return Weighed(tuple(each[1] for each in told), likeliest, len(ids) - shared, shared, told)

    def _to(self, ids: Ids, partings: Sequence[int]) -> tuple[int, Logits]:
        """Bring the cache to a prompt; the tokens that it held of it, and the last logits."""
        if self._next is not None and np.array_equal(self._held, ids):
            return len(ids), self._next
        if isinstance(self._engine, Preparing):
            self._engine.prepare(len(ids), partings)
        # One token at least is computed, for its logits.
        kept = self._engine.crop(min(shared_prefix(self._held, ids), len(ids) - 1))
        self._held, self._next = self._held[:kept], None
        logits = self._engine.extend(ids[kept:])
        self._held, self._next = ids, logits
        return kept, logits

    def _back(self, ids: Ids) -> None:
        """Take the answer off the cache again."""
        kept = self._engine.crop(len(ids))
        if kept < len(ids):
            self._held, self._next = ids[:kept], None

    def _with_room(self, question: Callable[[Sequence[int]], T], partings: Sequence[int]) -> T:
        """Ask; whatever goes wrong, no half-made cache stays behind to serve the next prompt."""
        while True:
            least = not len(self._held) and not len(partings)
            try:
                return question(partings)
            except BaseException as error:
                self.drop()
                if least or not (isinstance(error, Unmeasured) and error.failure is Failure.MEMORY):
                    raise
            partings = ()


def shared_prefix(left: Ids, right: Ids) -> int:
    """How many tokens two prompts begin with in common.

    >>> shared_prefix(np.array([1, 2, 3], np.int32), np.array([1, 2, 4, 5], np.int32))
    2
    """
    size = min(len(left), len(right))
    differing = np.flatnonzero(left[:size] != right[:size])
    return int(differing[0]) if len(differing) else size


def logprobs(rows: Logits, tokens: Ids) -> NDArray[np.float64]:
    """Natural log-probability of each token under its row of logits, (tokens, vocabulary): log softmax.

    >>> logprobs(np.zeros((2, 4), np.float32), np.array([0, 3], np.int32)).round(4).tolist()
    [-1.3863, -1.3863]
    """
    wide = rows.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    picked = wide[np.arange(len(tokens)), tokens]
    return np.asarray(picked - np.log(np.exp(wide).sum(axis=-1)), np.float64)


def likelihoods(rows: Logits, tokens: Ids) -> list[Seen]:
    """Each token and the likeliest other one under its row of logits, (tokens, vocabulary), in nats.

    >>> seen = likelihoods(np.eye(3, dtype=np.float32)[:2], np.array([0, 2]))
    >>> [(token, other) for token, _, other, _ in seen]
    [(0, 1), (2, 1)]
    """
    rest = rows.copy()
    rest[np.arange(len(tokens)), tokens] = -np.inf
    others = rest.argmax(axis=-1)
    own, other = (logprobs(rows, wanted).tolist() for wanted in (tokens, others))
    return list(zip(tokens.tolist(), own, others.tolist(), other, strict=True))
