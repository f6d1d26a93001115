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
from needlemap.models.decoding import Seen, Stops, spelt_out, stop_strings
from needlemap.models.thinking import opened_in, split_thinking
from needlemap.secrets import scrub

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Vocabulary

    from needlemap.prompts import Prompt

Ids = NDArray[np.int32]
Logits = NDArray[np.float32]  # of one position, (vocabulary,), or of several, (tokens, vocabulary)
T = TypeVar("T")


class Engine:
    """A causal model with one KV cache, of one sequence.

    check: called between any two computations; what it raises ends them.
    """

    check: Callable[[], None] = staticmethod(lambda: None)

    def extend(self, ids: Ids) -> Logits:
        """Compute ids (at least one) behind the cache; return the last position's logits,
        (vocabulary,).

        Memory beyond the cache must not grow with len(ids). Raises Unmeasured(MEMORY) when
        none is left.
        """
        raise NotImplementedError

    def extend_all(self, ids: Ids) -> Logits:
        """As `extend`, but returns the logits of every position of ids, (tokens,
        vocabulary)."""
        return np.stack([self.extend(ids[place : place + 1]) for place in range(len(ids))])

    def crop(self, length_tokens: int) -> int:
        """Keep the first length_tokens tokens of the cache exactly as they were, or fewer of
        them; how many.

        0 always works, and frees the memory.
        """
        raise NotImplementedError

    def prepare(self, prompt_tokens: int, partings: Sequence[int]) -> None:
        """Before the cache is cropped and extended to the next prompt: how long it is, and the
        lengths at which prompts that are asked later part from it."""


@dataclass(frozen=True, slots=True)
class Walked:
    """One question's outcome. answer: token ids without the stop token. computed, cached: prompt
    tokens that were computed for it and that the cache already held. finish: 'stop' or 'length'.
    seen: on request its tokens as `likelihoods` has them, the stop token too."""

    answer: tuple[int, ...]
    computed: int
    cached: int
    finish: str
    seen: tuple[Seen, ...] = ()


@dataclass(frozen=True, slots=True)
class Weighed:
    """A given answer's outcome. logprobs: natural log-probability of each of its tokens, given the
    prompt and the tokens before it. greedy: whether each was the likeliest. computed, cached, seen:
    as for
    `Walked`."""

    logprobs: tuple[float, ...]
    greedy: bool
    computed: int
    cached: int
    seen: tuple[Seen, ...] = ()


def greedy(logits: Logits) -> int:
    """The likeliest token; of several the first."""
    return int(np.argmax(logits))


class Sampler:
    """temperature: above 0. seed: fixes all draws of one answer. No top-k, no top-p."""

    def __init__(self, temperature: float, seed: int) -> None:
        self._temperature, self._random = temperature, np.random.default_rng(seed)

    def draw(self, logits: Logits) -> int:
        """A token with probability softmax(logits / temperature): the Gumbel-max trick (Gumbel
        1954)."""
        noise = self._random.gumbel(size=len(logits))
        return int(np.argmax(logits.astype(np.float64) / self._temperature + noise))


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
        seen: bool = False,
    ) -> Walked:
        """The answer to a prompt. The cache then holds the prompt, and nothing of the answer.

        partings: lengths in tokens at which prompts that are asked later part from this one.
        ended: whether the answer so far is complete, besides by a stop token. seen: keep what
        was thought of each token. Where memory runs out while the cache holds other prompts,
        they are dropped and it is asked again.
        """
        return self._with_room(
            partial(self._ask, ids, max_answer_tokens, choose, ended, seen), partings
        )

    def weigh(self, ids: Ids, answer: Ids, partings: Sequence[int] = ()) -> Weighed:
        """How likely a given answer (at least one token) to a prompt is: one pass behind the
        prompt."""
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
        """Ask; whatever goes wrong, no half-made cache stays behind to serve the next
        prompt."""
        while True:
            least = not len(self._held) and not len(partings)
            try:
                return question(partings)
            except BaseException as error:
                self.drop()
                if least or not (isinstance(error, Unmeasured) and error.failure is Failure.MEMORY):
                    raise
            partings = ()


class WalkingModel(Model):
    """A model in this process, in a thread of its own: answers come one after another, in the order
    asked.

    Subclasses say what prompts and answers are in ids (`prompt_ids`, `answer_ids`), and what is
    `refused`.
    """

    backend = ""

    def __init__(
        self, name: str, engine: Engine, stops: Sequence[int], vocabulary: Vocabulary
    ) -> None:
        self.name, self._vocabulary, self._answered_by = name, vocabulary, ""
        self._walk = Walk(engine, stops)
        engine.check = self._check
        self._until, self._timeout_s, self._closed = float("inf"), float("inf"), False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"needlemap-{self.backend}")

    def prompt_ids(self, prompt: Prompt) -> Ids:
        """A prompt as the model takes it."""
        return prompt.ids

    def answer_ids(self, prompt: Prompt, answer: str) -> Ids:
        """An answer as it goes on behind the prompt."""
        raise NotImplementedError

    def refuse(self, ids: Ids, answer_tokens: int, decoding: Decoding) -> None:
        """Raises Unmeasured for what will not be computed."""

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        """Ask once. Raises Unmeasured: refused, no memory, out of time, or it raised."""
        return await self._in_turn(partial(self._answer, prompt, decoding))

    async def force(self, prompt: Prompt, answer: str, decoding: Decoding) -> Answer:
        """How likely it finds a given answer. Raises Unmeasured."""
        return await self._in_turn(partial(self._force, prompt, answer, decoding))

    async def close(self) -> None:
        """Stop at the next token, and let the thread go."""
        self._closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _in_turn(self, ask: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, ask)
        except (Unmeasured, SettingsError):
            raise
        except Exception as error:
            said = scrub(f"{self.backend}/{self.name}: {type(error).__name__}: {error}")
            raise Unmeasured(Failure.MODEL, said) from None

    def _answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        start, ids = self._begin(prompt, decoding, decoding.most_tokens)
        stops = Stops((*stop_strings(decoding.request), *prompt.stops), self._vocabulary)
        heat = decoding.temperature
        walked = self._walk.ask(
            ids,
            decoding.most_tokens,
            choose=Sampler(heat, decoding.seed).draw if heat else greedy,
            partings=prompt.partings,
            ended=stops.reached,
            seen=decoding.logprobs,
        )
        said: dict[str, Any] = {"text": stops.text(walked.answer), "finish": walked.finish}
        answer = self._make_answer(
            walked, start, "generated", completion_tokens=len(walked.answer), **said
        )
        return split_thinking(answer, decoding, opened=opened_in(prompt))

    def _force(self, prompt: Prompt, answer: str, decoding: Decoding) -> Answer:
        wanted = self.answer_ids(prompt, answer)
        if not len(wanted):
            raise Unmeasured(
                Failure.MODEL, "The reference answer is empty: there is nothing to weigh."
            )
        start, ids = self._begin(prompt, decoding, len(wanted))
        weighed = self._walk.weigh(ids, wanted, prompt.partings)
        forced = Forced(weighed.logprobs, weighed.greedy)
        return self._make_answer(
            weighed, start, "walk", text="", forced=forced, completion_tokens=0
        )

    def _begin(self, prompt: Prompt, decoding: Decoding, answer_tokens: int) -> tuple[float, Ids]:
        """When it began, and the prompt's ids."""
        start, ids = perf_counter(), self.prompt_ids(prompt)
        self.refuse(ids, answer_tokens, decoding)
        self._timeout_s, self._until = decoding.timeout_s, start + decoding.timeout_s
        return start, ids

    def _make_answer(
        self, made: Walked | Weighed, start: float, way: LogprobSource, **said: Any
    ) -> Answer:
        """An answer with what it took."""
        read = made.cached + made.computed
        return Answer(
            **said,
            prompt_tokens=read,
            cached_tokens=made.cached,
            model=self._answered_by or None,
            latency_s=perf_counter() - start,
            logprobs=spelt_out(made.seen, self._vocabulary, way, read),
        )

    def _check(self) -> None:
        """Between any two computations: whether to go on."""
        if self._closed:
            raise Unmeasured(Failure.MODEL, "The run ended before the answer.")
        if perf_counter() > self._until:
            late = faults.timed_out(self._timeout_s)
            raise Unmeasured(
                Failure.TIMED_OUT, str(late)
            )  # not transient: it would be as late again


def shared_prefix(left: Ids, right: Ids) -> int:
    """How many tokens two prompts begin with in common.

    >>> shared_prefix(np.array([1, 2, 3], np.int32), np.array([1, 2, 4, 5], np.int32))
    2
    """
    size = min(len(left), len(right))
    differing = np.flatnonzero(left[:size] != right[:size])
    return int(differing[0]) if len(differing) else size


def logprobs(rows: Logits, tokens: Ids) -> NDArray[np.float64]:
    """Natural log-probability of each token under its row of logits, (tokens, vocabulary): log
    softmax.

    >>> logprobs(np.zeros((2, 4), np.float32), np.array([0, 3], np.int32)).round(4).tolist()
    [-1.3863, -1.3863]
    """
    return np.asarray(_logprobs(rows, tokens[None])[0], np.float64)


def _logprobs(rows: Logits, tokens: Ids) -> NDArray[np.float64]:
    """The same of several tokens a row. tokens: (kinds, tokens)."""
    wide = rows.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    picked = wide[np.arange(len(rows)), tokens]
    return np.asarray(picked - np.log(np.exp(wide).sum(axis=-1)), np.float64)


def likelihoods(rows: Logits, tokens: Ids) -> list[Seen]:
    """Each token and the likeliest other one under its row of logits, (tokens, vocabulary), in
    nats.

    >>> seen = likelihoods(np.eye(3, dtype=np.float32)[:2], np.array([0, 2]))
    >>> [(token, other) for token, _, other, _ in seen]
    [(0, 1), (2, 1)]
    """
    rest = rows.copy()
    rest[np.arange(len(tokens)), tokens] = -np.inf
    others = rest.argmax(axis=-1)
    own, other = _logprobs(rows, np.stack([tokens, others])).tolist()
    return list(zip(tokens.tolist(), own, others.tolist(), other, strict=True))
