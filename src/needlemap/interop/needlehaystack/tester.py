"""Provide the testers of needlehaystack, and the class to derive other testers from.

They are not a strategy of `asking/campaign.py`, because the original prescribes the coroutines
that a derived class overrides (`run_test`, `bound_evaluate_and_log` with its semaphore,
`evaluate_and_log`), a gather of them over all cells, and files instead of a run folder.
Pacing, retries, scoring and the failures that stop a run are those of `asking/`.
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
from needlemap.scorers import Scorer, call_unblocked
from needlemap.scorers.words import Substring
from needlemap.secrets import hidden, scrub
from needlemap.sync import result_at_once, run_coroutine
from needlemap.tasks import Reference
from needlemap.text import printable, show

Messages = Sequence[dict[str, str]] | str
RETRIES = 5


@dataclass(frozen=True, slots=True)
class BackEnds:
    """The model and the scorer of a test.

    Attributes:
        model: None if the tester sends its requests itself.
        scorer: Scores the responses.
        asking: Decides when requests to the model's server go out.
        scoring: Decides when requests to the scorer's server go out.
        outcome: What was measured and what failed so far.
    """

    model: Model | None
    scorer: Scorer
    asking: Pacer
    scoring: Pacer = field(default_factory=Pacer)
    outcome: Outcome = field(default_factory=Outcome)

    async def close(self) -> None:
        """Close the connections of the model and the scorer."""
        if self.model is not None:
            await self.model.close()
        await self.scorer.close()


class LLMNeedleHaystackTester(ContextMethods):
    """A tester of one model, to derive other testers from.

    Override the methods that differ, as plain or async methods:

    * for prompts, responses and scores `generate_prompt` (or `get_prompt`),
      `get_response_from_model`, `evaluate_response` (or `evaluate_response_gpt4`,
      `evaluate_response_substring_match`);
    * to count tokens of another vocabulary `get_encoding` with `get_decoding` (or
      `encode_text_to_tokens` with `decode_tokens`);
    * for haystack, positions and depths `read_context_files`, `encode_and_trim`, `insert_needle`,
      `generate_context` and `logistic` (plain ones);
    * for the course of a test `result_exists`, `evaluate_and_log`, `bound_evaluate_and_log`,
      `run_test`.

    Any other method of the originals would never be called, so a class that defines one is
    refused. A derived `__init__(self, **kwargs)` may set attributes before it calls this one: they
    are kept.

    Attributes:
        testing_results: The rows of all cells that have one, those of earlier starts included.
    """

    BACKEND: ClassVar[str] = ""

    def __init__(self, **options: Any) -> None:
        # A derived class may have set these before it called this method.
        preset = dict(vars(self))
        arguments = {name: preset[name] for name in ("model_name", *KEYS) if name in preset}
        arguments |= options
        super().__init__(**self.checked(arguments, type(self).__name__))
        vars(self).update({name: value for name, value in preset.items() if name not in arguments})
        self.check_methods()
        self.check()
        self.context_lengths = self.lengths
        self.document_depth_percents = self.depths
        self.testing_results: list[Row] = []
        self._opened: BackEnds | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Raises now if a key or a method is missing, not after the first cell.
        self._back_ends()

    def generate_prompt(self, context: str) -> Any:
        """Return the argument of `get_response_from_model`. context: haystack with needle."""
        return self.get_prompt(context)

    def get_prompt(self, context: str) -> Any:
        """Return the template's messages, each a mapping of role and content."""
        parts = load_template(self.template).parts
        return [
            {"role": part.role, "content": part.filled(context, self.retrieval_question)}
            for part in parts
        ]

    async def get_response_from_model(self, prompt: Any) -> str:
        """Return the model's answer to messages, or to one text.

        After a failure that may pass, the test calls this method again.
        """
        answer = await self._call_model(prompt)
        return answer.text

    def evaluate_response(self, response: str) -> Any:
        """Return the score: the judge's 1 to 10, or 0 or 1 by words. Await it in async methods."""
        if self.judged:
            return self.evaluate_response_gpt4(response)
        return self.evaluate_response_substring_match(response)

    def evaluate_response_gpt4(self, response: str) -> Any:
        """Return the judge's score. Await it in async methods."""
        return self._judge_score(response)

    def evaluate_response_substring_match(self, response: str) -> Any:
        """Return 1 if all words are in the response, else 0. It may be awaited."""
        scorer = Substring(words=tuple(self.substr_validation_words), anywhere=True)
        score = result_at_once(scorer.score(response, self._reference()))
        return Points(score.native)

    def _judge_score(self, response: str) -> Any:
        """Return a number, or in a running event loop a coroutine that returns one."""
        if self._loop is None:
            raise NeedlemapError("evaluate_response works while a test runs. Call start_test().")
        coroutine = self._score_by_scorer(response)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
        return coroutine

    def print_start_test_summary(self) -> None:
        """Print what will be tested."""
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
        """Measure every cell that has no result yet.

        It also works inside a running event loop, as in Jupyter. Raises NeedlemapError at the end
        if cells could not be measured. The next start measures only those.
        """
        if self.print_ongoing_status:
            self.print_start_test_summary()
        run_coroutine(self._run_with_back_ends())

    async def run_test(self) -> None:
        """Measure as `start_test` does, without its first printed lines.

        Raises NeedlemapError if any cell could not be measured.
        """
        earlier_rows = self._earlier_rows()
        self.testing_results = list(earlier_rows.values())
        cells = [cell for cell in self.cells if not self._is_done(cell, earlier_rows)]
        if self.print_ongoing_status:
            unit = "own tokens" if self.own_tokens else f"tokens of {self.tokenizer_name}"
            done = len(self.cells) - len(cells)
            show(f"- {done} cells done before, {len(cells)} to ask; {unit}\n", flush=True)
        async with self._back_ends_open():
            await self._measure_all(cells)

    async def bound_evaluate_and_log(self, sem: asyncio.Semaphore, *args: Any) -> None:
        """Call `evaluate_and_log` once the semaphore lets it pass."""
        async with sem:
            await call_override(self.evaluate_and_log, *args)

    async def evaluate_and_log(self, context_length: int, depth_percent: float) -> None:
        """Measure a cell and keep its result, unless it has one.

        Raises Unmeasured if the cell cannot be measured.
        """
        cell = int(context_length), float(depth_percent)
        if self.save_results and self.result_exists(*cell):
            return
        async with self._back_ends_open():
            await self._measure(cell)

    def result_exists(self, context_length: int, depth_percent: float) -> bool:
        """Return True if a cell has a result of this needle, model and version."""
        return (int(context_length), float(depth_percent)) in self._earlier_rows()

    async def generate_context(self, context_length: int, depth_percent: float) -> str:
        """Return the haystack with the needle."""
        text = await call_override(self.read_context_files)
        text = await call_override(self.encode_and_trim, text, context_length)
        with_needle: str = await call_override(
            self.insert_needle, text, depth_percent, context_length
        )
        return with_needle

    def get_results(self) -> list[Row]:
        """Return the results so far, as they are in the files."""
        return self.testing_results

    async def _run_with_back_ends(self) -> None:
        async with self._back_ends_open():
            await call_override(self.run_test)

    @asynccontextmanager
    async def _back_ends_open(self) -> AsyncIterator[None]:
        """Keep model and scorer open until the outermost of these blocks ends."""
        if self._opened is not None:
            yield
            return

        opened = self._back_ends()
        self._opened = opened
        self._loop = asyncio.get_running_loop()
        try:
            yield
        finally:
            self._opened = None
            self._loop = None
            await opened.close()

    def _is_done(self, cell: Cell, earlier_rows: Mapping[Cell, Row]) -> bool:
        if self.save_results and self.defines("result_exists"):
            return self.result_exists(*cell)
        return cell in earlier_rows

    async def _measure_all(self, cells: list[Cell]) -> None:
        """Measure cells, `num_concurrent_requests` at a time.

        After a failure the other cells are still measured, unless all would fail in the same way.
        If any cell failed, NeedlemapError is raised at the end.
        """
        gate = asyncio.Semaphore(self.num_concurrent_requests)
        failures: dict[Cell, Unmeasured] = {}
        await asyncio.gather(*(self._try(cell, gate, failures) for cell in cells))
        if not failures:
            return

        (length, depth), reason = next(iter(failures.items()))
        end = ""
        if self._opened is not None and self._opened.outcome.hopeless is not None:
            end = "The others were not asked: they would fail so too. "
        raise NeedlemapError(
            f"{len(failures)} of {len(cells)} cells could not be measured. The first, "
            f"{length} tokens at {depth:g} %: {reason} {end}Call start_test() again for "
            f"what is missing."
        ) from reason.__cause__

    async def _try(
        self, cell: Cell, gate: asyncio.Semaphore, failures: dict[Cell, Unmeasured]
    ) -> None:
        """Measure a cell or add its failure, then pause before another cell takes its place."""
        # A derived class's own method waits at the gate itself.
        waits_itself = self.defines("bound_evaluate_and_log")
        opened = self._opened
        assert opened is not None
        async with nullcontext() if waits_itself else gate:
            if opened.outcome.over:
                return
            try:
                if waits_itself:
                    await call_override(self.bound_evaluate_and_log, gate, *cell)
                elif self.defines("evaluate_and_log"):
                    await call_override(self.evaluate_and_log, *cell)
                else:
                    await self._measure(cell)
            except Unmeasured as failure:
                failures[cell] = failure
                opened.outcome.fail(failure, already=len(self.testing_results))
            if not waits_itself:
                await asyncio.sleep(self.seconds_to_sleep_between_completions or 0.0)

    def _earlier_rows(self) -> dict[Cell, Row]:
        """Return the results that these cells have in files.

        Raises SettingsError if one belongs to another needle.
        """
        if not self.save_results:
            return {}

        all_rows = earlier(self.model_name, self.results_version)
        rows = {cell: all_rows[cell] for cell in self.cells if cell in all_rows}
        for (length, depth), row in rows.items():
            if row["needle"] != self.needle:
                raise SettingsError(
                    f"'{RESULTS}' holds {length} tokens at {depth:g} % with another needle. "
                    "Move that folder away, or raise results_version."
                )
        return rows

    async def _measure(self, cell: Cell) -> None:
        text = await self._context(cell)
        if self.defines("generate_prompt", "get_prompt"):
            prompt = await call_override(self.generate_prompt, text)
        else:
            prompt = self.get_prompt(text)
        assert self._opened is not None
        async for attempt in Attempts(RETRIES, self._opened.asking):
            with attempt:
                response, duration_s = await self._response(prompt, attempt)
        score = await self._score(response)
        self._keep(cell, text, response=response, score=score, duration_s=duration_s)

    async def _context(self, cell: Cell) -> str:
        if self.own_tokens or self.defines(*PIECES):
            text = await call_override(self.generate_context, *cell)
            if not isinstance(text, str):
                kind = type(text).__name__
                raise Unmeasured(Failure.MODEL, f"A context must be a text, it is {kind}.")
            return text

        length, depth = cell
        return context(
            self.haystack_dir,
            length,
            depth_percent=depth,
            needle=self.needle,
            final_context_length_buffer=self.final_context_length_buffer,
            tokenizer=self.tokenizer_name,
        )

    async def _response(self, prompt: Any, attempt: Attempts) -> tuple[str, float]:
        """Return the model's response, and the seconds of the request alone."""
        if not self.defines("get_response_from_model"):
            answer = await self._call_model(prompt)
            attempt.hear(answer)
            return answer.text, answer.latency_s

        start = perf_counter()
        response = await call_override(self.get_response_from_model, prompt)
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
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        plain = Prompt.plain((message["role"], message["content"]) for message in messages)
        return await call_model(model, plain, Decoding(temperature=self.temperature))

    async def _score(self, response: str) -> float:
        if not self._scores_itself:
            return await self._score_by_scorer(response)

        score = await call_override(self.evaluate_response, response)
        if (
            isinstance(score, bool)
            or not isinstance(score, (int, float))
            or not math.isfinite(score)
        ):
            value = hidden(f"{score!r:.80}")
            raise Unmeasured(
                Failure.SCORER, f"evaluate_response must return a number, it returned {value}."
            )
        return score

    async def _score_by_scorer(self, response: str) -> int:
        assert self._opened is not None
        scoring = Scoring(self._opened.scorer, response, reference=self._reference())
        score = await scoring.score(RETRIES, self._opened.scoring)
        return int(score.native)

    def _reference(self) -> Reference:
        return Reference(self.needle.strip(), needle=self.needle, question=self.retrieval_question)

    def _keep(
        self, cell: Cell, text: str, *, response: str, score: float, duration_s: float
    ) -> None:
        """Add a cell's row to the results and write its files. text: the context."""
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
        """Return model and scorer. Raises SettingsError if one cannot work, e.g. without a key."""
        return BackEnds(
            model=self._model(),
            scorer=self._scorer(),
            asking=Pacer(self.num_concurrent_requests),
        )

    def _model(self) -> Model | None:
        if self.defines("get_response_from_model") and not self.BACKEND:
            return None
        if not self.BACKEND:
            raise SettingsError(
                f"{type(self).__name__} does not say how its model is asked. Define "
                "'async def get_response_from_model(self, prompt)', or derive from OpenAIEvaluator."
            )
        backend = find_backend(self.BACKEND)
        with key_option(self._key(self.BACKEND)) as options:
            return backend(self.model_name, **_url_option(self.base_url), **options)

    def _scorer(self) -> Scorer:
        if not self.judged:
            return Substring(words=tuple(self.substr_validation_words), anywhere=True)
        backend = self.judge_model.partition("/")[0]
        url = self.judge_base_url
        if not url and backend == self.BACKEND:
            url = self.base_url
        with key_option(self._key(backend)) as options:
            judge = Judge(model=self.judge_model, judge_options=_url_option(url) | options)
            # The judge reads its key when it is opened, and the key is gone after this block.
            if not self._scores_itself:
                judge.open()
        return judge

    @property
    def _scores_itself(self) -> bool:
        method = "gpt4" if self.judged else "substring_match"
        return self.defines("evaluate_response", f"evaluate_response_{method}")

    def _key(self, backend: str) -> str | None:
        keys = {"openai": self.openai_api_key, "anthropic": self.anthropic_api_key}
        return keys.get(backend)


class OpenAIEvaluator(LLMNeedleHaystackTester):
    """Test a model at OpenAI, or at any server with the same API.

    base_url: the server of the model, and of the judge. openai_api_key: sent to both; default
    $OPENAI_API_KEY.
    """

    BACKEND: ClassVar[str] = "openai"


class AnthropicEvaluator(LLMNeedleHaystackTester):
    """Test a model of Anthropic.

    Its tokenizers are not public, so lengths count gpt-4's tokens by default.

    anthropic_api_key: default $ANTHROPIC_API_KEY. The judge is a model of OpenAI, with
    openai_api_key and judge_base_url.
    """

    BACKEND: ClassVar[str] = "anthropic"


class Points(int):
    """A number that may also be awaited, for callers that do and for those that do not."""

    def __await__(self) -> Generator[None, None, int]:
        yield from ()
        return int(self)


def summary(row: Row) -> str:
    """Return one test as the originals print it, with the whole response."""
    return (
        f"-- Test Summary --\n"
        f"Duration: {row['test_duration_seconds']:.1f} seconds\n"
        f"Context: {row['context_length']} tokens\n"
        f"Depth: {row['depth_percent']:g}%\n"
        f"Score: {row['score']}\n"
        f"Response: {printable(row['model_response'])}\n"
    )


@contextmanager
def key_option(key: str | None) -> Iterator[dict[str, str]]:
    """Yield the option by which a back end reads a key while it is built.

    It names an environment variable, which is gone afterwards.
    """
    if not key:
        yield {}
        return
    name = f"{LENT}{uuid4().hex.upper()}"
    os.environ[name] = key
    try:
        yield {"key_env": name}
    finally:
        del os.environ[name]


def _url_option(url: str | None) -> dict[str, str]:
    return {"base_url": url} if url else {}


async def call_override(method: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a method returns that a derived class may have overridden.

    Raises Unmeasured for any other exception than NeedlemapError, with that as its cause.
    """
    try:
        return await call_unblocked(method, *arguments)
    except NeedlemapError:
        raise
    except Exception as error:
        reason = scrub(f"{method.__name__} raised {type(error).__name__}: {error}")
        raise Unmeasured(Failure.MODEL, reason) from error
