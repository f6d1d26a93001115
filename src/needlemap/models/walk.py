"""One KV cache walks a run's prefix tree: it is cropped back to what two prompts share, and
extended.

In the plan's order each distinct token is computed once. The walk knows no framework: an `Engine`
computes. A `WalkingModel` is a model whose prompts are walked, in this process. The contract,
tested in tests/contract: answers equal those from an empty cache, token for token, and a question
leaves the cache as it found it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from needlemap.errors import Failure, SettingsError, Unmeasured
from needlemap.http import faults
from needlemap.models import Answer, Decoding, Forced, LogprobSource, Model
from needlemap.models.decoding import Seen, Stops, stop_strings, token_logprobs
from needlemap.models.thinking import ends_in_thought, split_thinking
from needlemap.secrets import scrub

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Vocabulary

    from needlemap.prompts import Prompt

Ids = NDArray[np.int32]
# Of one position, (vocabulary,), or of several, (tokens, vocabulary).
Logits = NDArray[np.float32]
T = TypeVar("T")


class Engine:
    """A causal model with one KV cache, of one sequence.

    check: called between any two computations; what it raises ends them.
    """

    check: Callable[[], None] = staticmethod(lambda: None)

    def extend(self, ids: Ids) -> Logits:
        """Compute ids, at least one, behind the cache, and return the last position's logits.

        The logits are (vocabulary,). Memory beyond the cache must not grow with len(ids). Raise
        Unmeasured(MEMORY) if no memory is left.
        """
        raise NotImplementedError

    def extend_all(self, ids: Ids) -> Logits:
        """Compute ids as `extend` does; return all their logits, (tokens, vocabulary)."""
        return np.stack([self.extend(ids[index : index + 1]) for index in range(len(ids))])

    def crop(self, length_tokens: int) -> int:
        """Keep the first length_tokens tokens of the cache exactly, or fewer; return how many.

        0 always works, and frees the memory.
        """
        raise NotImplementedError

    def prepare(self, prompt_tokens: int, partings: Sequence[int]) -> None:
        """Take the next prompt's length, before the cache is cropped and extended to it.

        partings: the lengths at which prompts that are asked later part from it.
        """


@dataclass(frozen=True, slots=True)
class Walked:
    """One question's outcome.

    Attributes:
        answer: Token ids without the stop token.
        computed, cached: Prompt tokens that were computed for it and that the cache already held.
        finish: 'stop' or 'length'.
        seen: On request its tokens as `likelihoods` has them, the stop token too.
    """

    answer: tuple[int, ...]
    computed: int
    cached: int
    finish: str
    seen: tuple[Seen, ...] = ()


@dataclass(frozen=True, slots=True)
class Weighed:
    """A given answer's outcome.

    Attributes:
        logprobs: The natural log-probability of each of its tokens, given the prompt and the tokens
            before it.
        greedy: Whether each was the likeliest.
        computed, cached, seen: As for `Walked`.
    """

    logprobs: tuple[float, ...]
    greedy: bool
    computed: int
    cached: int
    seen: tuple[Seen, ...] = ()


def greedy(logits: Logits) -> int:
    """Return the likeliest token; of several the first."""
    return int(np.argmax(logits))


class Sampler:
    """Draws tokens without top-k and top-p.

    temperature: above 0. seed: fixes all draws of one answer.
    """

    def __init__(self, temperature: float, seed: int) -> None:
        self._temperature = temperature
        self._random = np.random.default_rng(seed)

    def draw(self, logits: Logits) -> int:
        """Return a token with probability softmax(logits / temperature).

        By the Gumbel-max trick (Gumbel 1954).
        """
        noise = self._random.gumbel(size=len(logits))
        return int(np.argmax(logits.astype(np.float64) / self._temperature + noise))


class Walk:
    """Asks prompts of one engine, one after another."""

    def __init__(self, engine: Engine, stops: Sequence[int]) -> None:
        self._engine = engine
        self._stops = frozenset(stops)
        self._cached_ids: Ids = np.empty(0, np.int32)
        # The logits behind what is held.
        self._next_logits: Logits | None = None

    def ask(
        self,
        ids: Ids,
        max_answer_tokens: int,
        choose: Callable[[Logits], int] = greedy,
        partings: Sequence[int] = (),
        ended: Callable[[Sequence[int]], bool] | None = None,
        seen: bool = False,
    ) -> Walked:
        """Return the answer to a prompt. The cache then holds the prompt, and nothing of the
        answer.

        partings: lengths in tokens at which prompts that are asked later part from this one. ended:
        whether the answer so far is complete, besides by a stop token. seen: whether to keep what
        was thought of each token. If memory runs out while the cache holds other prompts, they are
        dropped and it is asked again.
        """
        question = partial(self._ask, ids, max_answer_tokens, choose, ended, seen)
        return self._with_room(question, partings)

    def weigh(self, ids: Ids, answer: Ids, partings: Sequence[int] = ()) -> Weighed:
        """Return how likely a given answer (at least one token) to a prompt is.

        It takes one pass behind the prompt.
        """
        return self._with_room(partial(self._weigh, ids, answer), partings)

    def drop(self) -> None:
        """Forget everything, and free it."""
        self._cached_ids, self._next_logits = np.empty(0, np.int32), None
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
        shared, logits = self._compute_prompt(ids, partings)
        answer: list[int] = []
        seen_tokens: list[Seen] = []
        finish = "length"
        while len(answer) < max_answer_tokens:
            token = choose(logits)
            if seen:
                seen_tokens += likelihoods(logits[None], np.array([token], np.int32))
            if token in self._stops:
                finish = "stop"
                break
            answer.append(token)
            if ended is not None and ended(answer):
                finish = "stop"
                break
            if len(answer) < max_answer_tokens:
                logits = self._engine.extend(np.array([token], np.int32))
        self._drop_answer(ids)
        return Walked(
            answer=tuple(answer),
            computed=len(ids) - shared,
            cached=shared,
            finish=finish,
            seen=tuple(seen_tokens),
        )

    def _weigh(self, ids: Ids, answer: Ids, partings: Sequence[int]) -> Weighed:
        shared, prompt_logits = self._compute_prompt(ids, partings)
        rows = prompt_logits[None]
        if len(answer) > 1:
            rows = np.concatenate([rows, self._engine.extend_all(answer[:-1])])
        self._drop_answer(ids)
        likeliest = bool((rows.argmax(axis=-1) == answer).all())
        seen_tokens = tuple(likelihoods(rows, answer))
        return Weighed(
            logprobs=tuple(nats for _, nats, _, _ in seen_tokens),
            greedy=likeliest,
            computed=len(ids) - shared,
            cached=shared,
            seen=seen_tokens,
        )

    def _compute_prompt(self, ids: Ids, partings: Sequence[int]) -> tuple[int, Logits]:
        """Fill the cache with a prompt, and return the logits behind it.

        The first value is the number of its tokens that the cache held before.
        """
        if self._next_logits is not None and np.array_equal(self._cached_ids, ids):
            return len(ids), self._next_logits
        self._engine.prepare(len(ids), partings)
        # One token at least is computed, for its logits.
        cached_tokens = self._engine.crop(min(shared_prefix(self._cached_ids, ids), len(ids) - 1))
        self._cached_ids, self._next_logits = self._cached_ids[:cached_tokens], None
        logits = self._engine.extend(ids[cached_tokens:])
        self._cached_ids, self._next_logits = ids, logits
        return cached_tokens, logits

    def _drop_answer(self, ids: Ids) -> None:
        """Take the answer off the cache again."""
        cached_tokens = self._engine.crop(len(ids))
        if cached_tokens < len(ids):
            self._cached_ids, self._next_logits = ids[:cached_tokens], None

    def _with_room(self, question: Callable[[Sequence[int]], T], partings: Sequence[int]) -> T:
        """Return the question's result. If it raises, drop the cache, which may be half-made.

        If memory ran out while the cache held other prompts, or with partings to keep, ask again
        without them.
        """
        while True:
            is_smallest = not len(self._cached_ids) and not len(partings)
            try:
                return question(partings)
            except BaseException as error:
                self.drop()
                if is_smallest or not (
                    isinstance(error, Unmeasured) and error.failure is Failure.MEMORY
                ):
                    raise
            partings = ()


class WalkingModel(Model):
    """A model in this process, in a thread of its own.

    Answers come one after another, in the order asked. Subclasses say what prompts and answers are
    in ids (`prompt_ids`, `answer_ids`), and what is refused (`refuse`).
    """

    backend = ""

    def __init__(
        self, name: str, engine: Engine, stops: Sequence[int], vocabulary: Vocabulary
    ) -> None:
        self.name = name
        self._vocabulary = vocabulary
        self._answered_by = ""
        self._walk = Walk(engine, stops)
        engine.check = self._check
        self._until = float("inf")
        self._timeout_s = float("inf")
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"needlemap-{self.backend}")

    def prompt_ids(self, prompt: Prompt) -> Ids:
        """Return a prompt as the model takes it."""
        return prompt.ids

    def answer_ids(self, prompt: Prompt, answer: str) -> Ids:
        """Return an answer as it follows the prompt."""
        raise NotImplementedError

    def refuse(self, ids: Ids, answer_tokens: int, decoding: Decoding) -> None:
        """Raise Unmeasured for what will not be computed."""

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        """Return the answer to a prompt.

        Raises Unmeasured if the prompt is refused, if memory or time runs out, or if the model
        raises an error.
        """
        return await self._in_turn(partial(self._answer, prompt, decoding))

    async def force(self, prompt: Prompt, answer: str, decoding: Decoding) -> Answer:
        """Return how likely it finds a given answer.

        Raises Unmeasured if the answer cannot be weighed.
        """
        return await self._in_turn(partial(self._force, prompt, answer, decoding))

    async def close(self) -> None:
        """Stop at the next token, and release the thread."""
        self._closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _in_turn(self, ask: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, ask)
        except (Unmeasured, SettingsError):
            raise
        except Exception as error:
            reason = scrub(f"{self.backend}/{self.name}: {type(error).__name__}: {error}")
            raise Unmeasured(Failure.MODEL, reason) from None

    def _answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        start, ids = self._start_request(prompt, decoding, decoding.most_tokens)
        stops = Stops((*stop_strings(decoding.request), *prompt.stops), self._vocabulary)
        temperature = decoding.temperature
        walked = self._walk.ask(
            ids,
            decoding.most_tokens,
            choose=Sampler(temperature, decoding.seed).draw if temperature else greedy,
            partings=prompt.partings,
            ended=stops.is_reached,
            seen=decoding.logprobs,
        )
        answer = self._make_answer(
            walked,
            start,
            source="generated",
            text=stops.text(walked.answer),
            finish=walked.finish,
            completion_tokens=len(walked.answer),
        )
        return split_thinking(answer, decoding, opened=ends_in_thought(prompt))

    def _force(self, prompt: Prompt, answer: str, decoding: Decoding) -> Answer:
        ids_of_answer = self.answer_ids(prompt, answer)
        if not len(ids_of_answer):
            raise Unmeasured(
                Failure.MODEL, "The reference answer is empty: there is nothing to weigh."
            )
        start, ids = self._start_request(prompt, decoding, len(ids_of_answer))
        weighed = self._walk.weigh(ids, ids_of_answer, prompt.partings)
        forced = Forced(weighed.logprobs, weighed.greedy)
        return self._make_answer(
            weighed, start, "walk", text="", forced=forced, completion_tokens=0
        )

    def _start_request(
        self, prompt: Prompt, decoding: Decoding, answer_tokens: int
    ) -> tuple[float, Ids]:
        """Check a request and start its time limit. Return the time of its start, and its ids."""
        start = perf_counter()
        ids = self.prompt_ids(prompt)
        self.refuse(ids, answer_tokens, decoding)
        self._timeout_s = decoding.timeout_s
        self._until = start + decoding.timeout_s
        return start, ids

    def _make_answer(
        self, outcome: Walked | Weighed, start: float, source: LogprobSource, **fields: Any
    ) -> Answer:
        """Return an answer with what it took."""
        prompt_tokens = outcome.cached + outcome.computed
        return Answer(
            **fields,
            prompt_tokens=prompt_tokens,
            cached_tokens=outcome.cached,
            model=self._answered_by or None,
            latency_s=perf_counter() - start,
            logprobs=token_logprobs(outcome.seen, self._vocabulary, source, prompt_tokens),
        )

    def _check(self) -> None:
        """Raise Unmeasured between two computations if the run ended or the time is up."""
        if self._closed:
            raise Unmeasured(Failure.MODEL, "The run ended before the answer.")
        if perf_counter() > self._until:
            failure = faults.timeout_failure(self._timeout_s)
            # Not transient: it would be as late again.
            raise Unmeasured(Failure.TIMED_OUT, str(failure))


def shared_prefix(left: Ids, right: Ids) -> int:
    """Return how many tokens two prompts share at their start.

    >>> shared_prefix(np.array([1, 2, 3], np.int32), np.array([1, 2, 4, 5], np.int32))
    2
    """
    size = min(len(left), len(right))
    differing = np.flatnonzero(left[:size] != right[:size])
    return int(differing[0]) if len(differing) else size


def logprobs(rows: Logits, tokens: Ids) -> NDArray[np.float64]:
    """Return the natural log-probability of each token under its row of logits: log softmax.

    rows: (tokens, vocabulary).

    >>> logprobs(np.zeros((2, 4), np.float32), np.array([0, 3], np.int32)).round(4).tolist()
    [-1.3863, -1.3863]
    """
    return np.asarray(_logprobs(rows, tokens[None])[0], np.float64)


def _logprobs(rows: Logits, tokens: Ids) -> NDArray[np.float64]:
    """Return the log-probabilities of several tokens for each row. tokens: (kinds, tokens)."""
    shifted = rows.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    picked = shifted[np.arange(len(rows)), tokens]
    return np.asarray(picked - np.log(np.exp(shifted).sum(axis=-1)), np.float64)


def likelihoods(rows: Logits, tokens: Ids) -> list[Seen]:
    """Return each token and the likeliest other one under its row of logits, in nats.

    rows: (tokens, vocabulary).

    >>> seen = likelihoods(np.eye(3, dtype=np.float32)[:2], np.array([0, 2]))
    >>> [(token, other) for token, _, other, _ in seen]
    [(0, 1), (2, 1)]
    """
    other_rows = rows.copy()
    other_rows[np.arange(len(tokens)), tokens] = -np.inf
    others = other_rows.argmax(axis=-1)
    nats, other_nats = _logprobs(rows, np.stack([tokens, others])).tolist()
    return list(zip(tokens.tolist(), nats, others.tolist(), other_nats, strict=True))
