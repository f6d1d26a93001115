"""The testers of needlehaystack, and the class from which one derives one's own.

They are no strategy of `asking/campaign.py`: the original prescribes the coroutines that a
derived class overrides (`run_test`, `bound_evaluate_and_log` with its semaphore,
`evaluate_and_log`), a gather of them over all cells, and files instead of a run folder.
Pacing, retries, scoring and the failures that end an asking are those of `asking/`.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import perf_counter
from typing import Any, ClassVar
from uuid import uuid4

from needlemap.asking import Outcome
from needlemap.asking.pacer import Pacer
from needlemap.asking.retry import Attempts, Scoring
from needlemap.errors import Failure, NeedlemapError, SettingsError, Unmeasured
from needlemap.http import LENT
from needlemap.interop.needlehaystack.contexts import context
from needlemap.interop.needlehaystack.methods import PIECES, ContextMethods
from needlemap.interop.needlehaystack.parameters import (
    KEYS,
    RESULTS,
    Cell,
    Row,
    context_file,
    earlier,
    result_file,
    stem,
    write,
)
from needlemap.models import Answer, Decoding, Model, find_backend
from needlemap.models.call import call_model
from needlemap.models.judge import Judge
from needlemap.prompts import Prompt
from needlemap.prompts.templates import load_template
from needlemap.scorers import Scorer, call_beside
from needlemap.scorers.words import Substring
from needlemap.secrets import hidden, scrub
from needlemap.sync import result_at_once, run_coroutine
from needlemap.tasks import Reference
from needlemap.text import printable, show

Messages = Sequence[dict[str, str]] | str
RETRIES = 5


@dataclass(frozen=True, slots=True)
class BackEnds:
    """What a test asks. model: None where the tester asks one in its own way. asking, scoring:
    when their servers take requests. outcome: how the test went so far."""

    model: Model | None
    scorer: Scorer
    asking: Pacer
    scoring: Pacer = field(default_factory=Pacer)
    outcome: Outcome = field(default_factory=Outcome)

    async def close(self) -> None:
        """Release their connections."""
        if self.model is not None:
            await self.model.close()
        await self.scorer.close()


class LLMNeedleHaystackTester(ContextMethods):
    """A tester of one model, to derive one's own from. Override what differs, plain or async:

    `generate_prompt` (or `get_prompt`), `get_response_from_model`, `evaluate_response` (or
    `evaluate_response_gpt4`, `evaluate_response_substring_match`); `get_encoding` with
    `get_decoding` (or `encode_text_to_tokens` with `decode_tokens`) to count by a vocabulary
    of one's own; `read_context_files`, `encode_and_trim`, `insert_needle`, `generate_context`
    and `logistic` (plain ones) for haystack, places and depths; `result_exists`,
    `evaluate_and_log`, `bound_evaluate_and_log`, `run_test` for the course of a test. Another
    method of the originals that would never be called is refused by name. An own
    `__init__(self, **kwargs)` may set attributes before it calls this one: they are kept.
    testing_results: the rows of all cells that have one, resumed ones included.
    """

    BACKEND: ClassVar[str] = ""

    def __init__(self, **options: Any) -> None:
        own = dict(vars(self))
        given = {name: own[name] for name in ("model_name", *KEYS) if name in own} | options
        super().__init__(**self.checked(given, type(self).__name__))
        vars(self).update({name: value for name, value in own.items() if name not in given})
        self.check_methods()
        self.check()
        self.context_lengths, self.document_depth_percents = self.lengths, self.depths
        self.testing_results: list[Row] = []
        self._opened: BackEnds | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._back_ends()  # what they lack is said now, not after the first cell

    def generate_prompt(self, context: str) -> Any:
        """What `get_response_from_model` is given. context: haystack with needle."""
        return self.get_prompt(context)

    def get_prompt(self, context: str) -> Any:
        """The template's messages, each a mapping of role and content."""
        parts = load_template(self.template).parts
        return [
            {"role": part.role, "content": part.filled(context, self.retrieval_question)}
            for part in parts
        ]

    async def get_response_from_model(self, prompt: Any) -> str:
        """The model's answer to messages, or to one text. After a passing failure it is called
        again."""
        return (await self._call_model(prompt)).text

    def evaluate_response(self, response: str) -> Any:
        """The score: 1 to 10 by the judge, or 0 and 1 by words. In an async method it is to be
        awaited."""
        if self.judged:
            return self.evaluate_response_gpt4(response)
        return self.evaluate_response_substring_match(response)

    def evaluate_response_gpt4(self, response: str) -> Any:
        """The judge's score. In an async method it is to be awaited."""
        return self._scored(response)

    def evaluate_response_substring_match(self, response: str) -> Any:
        """1 if all words are in the response, else 0; it may be awaited."""
        scorer = Substring(words=tuple(self.substr_validation_words), anywhere=True)
        return Points(result_at_once(scorer.score(response, self._reference())).native)

    def _scored(self, response: str) -> Any:
        if self._loop is None:
            raise NeedlemapError("evaluate_response works while a test runs. Call start_test().")
        work = self._judged(response)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        return work

    def print_start_test_summary(self) -> None:
        """What is about to be tested."""
        depths = [float(depth) for depth in self.depths]
        show("\nStarting Needle In A Haystack Testing...")
        show(f"- Model: {self.model_name}")
        show(
            f"- Context Lengths: {len(self.lengths)}, Min: {min(self.lengths)}, Max: "
            f"{max(self.lengths)}"
        )
        show(f"- Document Depths: {len(depths)}, Min: {min(depths):g}%, Max: {max(depths):g}%")
        show(f"- Needle: {printable(self.needle.strip())}")

    def start_test(self) -> None:
        """Ask every cell that has no result yet; works inside a running event loop too, as in
        Jupyter.

        Raises NeedlemapError at the end if cells could not be measured; started again, it asks
        only those.
        """
        if self.print_ongoing_status:
            self.print_start_test_summary()
        run_coroutine(self._started())

    async def run_test(self) -> None:
        """What `start_test` does behind its first lines, as a coroutine. Raises
        NeedlemapError."""
        found = self._found()
        self.testing_results = list(found.values())
        cells = [cell for cell in self.cells if not self._is_done(cell, found)]
        if self.print_ongoing_status:
            counted = "own tokens" if self.own_tokens else f"tokens of {self.tokenizer_name}"
            done = len(self.cells) - len(cells)
            show(f"- {done} cells done before, {len(cells)} to ask; {counted}\n", flush=True)
        async with self._back_ends_open():
            await self._test(cells)

    async def bound_evaluate_and_log(self, sem: asyncio.Semaphore, *args: Any) -> None:
        """`evaluate_and_log`, so many at a time as the semaphore lets pass."""
        async with sem:
            await called(self.evaluate_and_log, *args)

    async def evaluate_and_log(self, context_length: int, depth_percent: float) -> None:
        """Measure a cell and keep its result, where there is none yet. Raises Unmeasured."""
        cell = int(context_length), float(depth_percent)
        if self.save_results and self.result_exists(*cell):
            return
        async with self._back_ends_open():
            await self._measure(cell)

    def result_exists(self, context_length: int, depth_percent: float) -> bool:
        """Whether a cell has a result of this needle, model and version."""
        return (int(context_length), float(depth_percent)) in self._found()

    async def generate_context(self, context_length: int, depth_percent: float) -> str:
        """The haystack with the needle."""
        text = await called(self.read_context_files)
        text = await called(self.encode_and_trim, text, context_length)
        made: str = await called(self.insert_needle, text, depth_percent, context_length)
        return made

    def get_results(self) -> list[Row]:
        """The results so far, as they are in the files."""
        return self.testing_results

    async def _started(self) -> None:
        async with self._back_ends_open():
            await called(self.run_test)

    @asynccontextmanager
    async def _back_ends_open(self) -> AsyncIterator[None]:
        """Model and scorer are there until the outermost of these blocks ends."""
        if self._opened is not None:
            yield
            return
        self._opened, self._loop = self._back_ends(), asyncio.get_running_loop()
        try:
            yield
        finally:
            opened, self._opened, self._loop = self._opened, None, None
            await opened.close()

    def _is_done(self, cell: Cell, found: Mapping[Cell, Row]) -> bool:
        if self.save_results and self.defines("result_exists"):
            return self.result_exists(*cell)
        return cell in found

    async def _test(self, cells: list[Cell]) -> None:
        """Ask all cells, so many at a time. A failure ends no other, unless all would fail
        so."""
        gate, failures = asyncio.Semaphore(self.num_concurrent_requests), dict[Cell, Unmeasured]()
        await asyncio.gather(*(self._try(cell, gate, failures) for cell in cells))
        if failures:
            first, reason = next(iter(failures.items()))
            hopeless = self._opened is not None and self._opened.outcome.hopeless is not None
            end = "The others were not asked: they would fail so too. " if hopeless else ""
            raise NeedlemapError(
                f"{len(failures)} of {len(cells)} cells could not be measured. The first, "
                f"{first[0]} tokens at {first[1]:g} %: {reason} {end}Call start_test() again for "
                f"what is missing."
            ) from reason.__cause__

    async def _try(
        self, cell: Cell, gate: asyncio.Semaphore, failures: dict[Cell, Unmeasured]
    ) -> None:
        """Measure a cell, and pause before another takes its place."""
        bound, opened = self.defines("bound_evaluate_and_log"), self._opened
        assert opened is not None
        async with nullcontext() if bound else gate:
            if opened.outcome.over:
                return
            try:
                if bound:
                    await called(self.bound_evaluate_and_log, gate, *cell)
                elif self.defines("evaluate_and_log"):
                    await called(self.evaluate_and_log, *cell)
                else:
                    await self._measure(cell)
            except Unmeasured as failure:
                failures[cell] = failure
                opened.outcome.fail(failure, already=len(self.testing_results))
            if not bound:
                await asyncio.sleep(self.seconds_to_sleep_between_completions or 0.0)

    def _found(self) -> dict[Cell, Row]:
        """Earlier results of these cells. Raises SettingsError if they belong to another
        needle."""
        if not self.save_results:
            return {}
        before = earlier(self.model_name, self.results_version)
        found = {cell: before[cell] for cell in self.cells if cell in before}
        for cell, row in found.items():
            if row["needle"] != self.needle:
                raise SettingsError(
                    f"'{RESULTS}' holds {cell[0]} tokens at {cell[1]:g} % with another needle. "
                    "Move that folder away, or raise results_version."
                )
        return found

    async def _measure(self, cell: Cell) -> None:
        text = await self._context(cell)
        own = self.defines("generate_prompt", "get_prompt")
        prompt = await called(self.generate_prompt, text) if own else self.get_prompt(text)
        assert self._opened is not None
        async for attempt in Attempts(RETRIES, self._opened.asking):
            with attempt:
                response, duration_s = await self._response(prompt, attempt)
        self._keep(cell, text, response, await self._score(response), duration_s)

    async def _context(self, cell: Cell) -> str:
        if self.own_tokens or self.defines(*PIECES):
            text = await called(self.generate_context, *cell)
            if not isinstance(text, str):
                kind = type(text).__name__
                raise Unmeasured(Failure.MODEL, f"A context must be a text, it is {kind}.")
            return text
        length, depth = cell
        buffer = self.final_context_length_buffer
        return context(
            self.haystack_dir, length, depth, self.needle, None, buffer, self.tokenizer_name
        )

    async def _response(self, prompt: Any, attempt: Attempts) -> tuple[str, float]:
        """What the model said, and the seconds of the request alone."""
        if not self.defines("get_response_from_model"):
            answer = await self._call_model(prompt)
            attempt.hear(answer)
            return answer.text, answer.latency_s
        start = perf_counter()
        response = await called(self.get_response_from_model, prompt)
        if not isinstance(response, str):
            kind = type(response).__name__
            raise Unmeasured(
                Failure.MODEL, f"get_response_from_model must return a text, it returned {kind}."
            )
        return response, perf_counter() - start

    async def _call_model(self, prompt: Messages) -> Answer:
        model = self._opened.model if self._opened else None
        if model is None:
            raise NeedlemapError("The model is asked while a test runs. Call start_test().")
        said = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        asked = Prompt.plain((message["role"], message["content"]) for message in said)
        return await call_model(model, asked, Decoding(temperature=self.temperature))

    async def _score(self, response: str) -> float:
        if not self._scores_itself:
            return await self._judged(response)
        score = await called(self.evaluate_response, response)
        if (
            isinstance(score, bool)
            or not isinstance(score, (int, float))
            or not math.isfinite(score)
        ):
            what = hidden(f"{score!r:.80}")
            raise Unmeasured(
                Failure.SCORER, f"evaluate_response must return a number, it returned {what}."
            )
        return score

    async def _judged(self, response: str) -> int:
        assert self._opened is not None
        scoring = Scoring(self._opened.scorer, response, self._reference())
        return int((await scoring.score(RETRIES, self._opened.scoring)).native)

    def _reference(self) -> Reference:
        return Reference(self.needle.strip(), needle=self.needle, question=self.retrieval_question)

    def _keep(self, cell: Cell, text: str, response: str, score: float, duration_s: float) -> None:
        length, depth = cell
        name = stem(self.model_name, length, depth)
        row: Row = {
            "model": self.model_name,
            "context_length": length,
            "depth_percent": depth,
            "version": self.results_version,
            "needle": self.needle,
            "model_response": response,
            "score": score,
            "test_duration_seconds": duration_s,
            "test_timestamp_utc": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S%z"),
        }
        if self.save_contexts:
            row["file_name"] = name
            write(context_file(name), text)
        if self.save_results:
            write(result_file(name, self.results_version), json.dumps(row))
        self.testing_results.append(row)
        if self.print_ongoing_status:
            show(summary(row), flush=True)

    def _back_ends(self) -> BackEnds:
        """Model and scorer. Raises SettingsError if one cannot work (no key)."""
        return BackEnds(self._model(), self._scorer(), Pacer(self.num_concurrent_requests))

    def _model(self) -> Model | None:
        if self.defines("get_response_from_model") and not self.BACKEND:
            return None
        if not self.BACKEND:
            raise SettingsError(
                f"{type(self).__name__} does not say how its model is asked. Define "
                "'async def get_response_from_model(self, prompt)', or derive from OpenAIEvaluator."
            )
        with lent(self._key(self.BACKEND)) as key:
            return find_backend(self.BACKEND)(self.model_name, **_address(self.base_url), **key)

    def _scorer(self) -> Scorer:
        if not self.judged:
            return Substring(words=tuple(self.substr_validation_words), anywhere=True)
        backend = self.judge_model.partition("/")[0]
        url = self.judge_base_url or (self.base_url if backend == self.BACKEND else None)
        with lent(self._key(backend)) as key:
            judge = Judge(model=self.judge_model, judge_options=_address(url) | key)
            if not self._scores_itself:  # its key is read now: it is gone afterwards
                judge.open()
        return judge

    @property
    def _scores_itself(self) -> bool:
        by = "gpt4" if self.judged else "substring_match"
        return self.defines("evaluate_response", f"evaluate_response_{by}")

    def _key(self, backend: str) -> str | None:
        return {"openai": self.openai_api_key, "anthropic": self.anthropic_api_key}.get(backend)


class OpenAIEvaluator(LLMNeedleHaystackTester):
    """Tests a model at OpenAI or at any server that speaks its format (base_url; so is the
    judge).

    openai_api_key, default $OPENAI_API_KEY, is sent to the model's server and to the judge's.
    """

    BACKEND: ClassVar[str] = "openai"


class AnthropicEvaluator(LLMNeedleHaystackTester):
    """Tests a model of Anthropic; its tokenizers are not public, so lengths count gpt-4's
    tokens by default.

    anthropic_api_key, default $ANTHROPIC_API_KEY. The judge is OpenAI's: openai_api_key,
    judge_base_url.
    """

    BACKEND: ClassVar[str] = "anthropic"


class Points(int):
    """A score that is there already, for callers that await it and those that do not."""

    def __await__(self) -> Generator[None, None, int]:
        yield from ()
        return int(self)


def summary(row: Row) -> str:
    """One test as the originals print it, the whole response included."""
    return (
        f"-- Test Summary --\n"
        f"Duration: {row['test_duration_seconds']:.1f} seconds\n"
        f"Context: {row['context_length']} tokens\n"
        f"Depth: {row['depth_percent']:g}%\n"
        f"Score: {row['score']}\n"
        f"Response: {printable(row['model_response'])}\n"
    )


@contextmanager
def lent(key: str | None) -> Iterator[dict[str, str]]:
    """Options by which a back end reads a key when it is built: a variable that is gone
    afterwards."""
    if not key:
        yield {}
        return
    name = f"{LENT}{uuid4().hex.upper()}"
    os.environ[name] = key
    try:
        yield {"key_env": name}
    finally:
        del os.environ[name]


def _address(url: str | None) -> dict[str, str]:
    return {"base_url": url} if url else {}


async def called(method: Callable[..., Any], *arguments: Any) -> Any:
    """What a derived class's own method returns. Raises Unmeasured for whatever it raises, as
    its cause."""
    try:
        return await call_beside(method, *arguments)
    except NeedlemapError:
        raise
    except Exception as error:
        what = scrub(f"{method.__name__} raised {type(error).__name__}: {error}")
        raise Unmeasured(Failure.MODEL, what) from error
