"""`OpenAIEvaluator` and `AnthropicEvaluator`: the needlehaystack family's calls, on needlemap's back ends.

Keyword arguments, file names and JSON keys are the originals'. The messages around haystack and question, and
the judge's, are needlemap's own words, so answers may differ from theirs. For new work use `needlemap run`:
these files do not say which question, prompt and scorer an answer belongs to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar
from uuid import uuid4

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.interop.needlehaystack import results
from needlemap.interop.needlehaystack.contexts import context
from needlemap.interop.needlehaystack.parameters import Parameters
from needlemap.interop.needlehaystack.results import Cell, Row
from needlemap.interop.needlehaystack.session import Session, run_to_end
from needlemap.models.base import Decoding, Model
from needlemap.prompts import Prompt
from needlemap.registry import find
from needlemap.scorers.base import Reference, Scorer
from needlemap.scorers.judge import Judge
from needlemap.scorers.substring import Substring
from needlemap.templates import Part, load_template


class Evaluator(Parameters):
    """A tester of one model. testing_results: the rows of all cells that have one, resumed ones included."""

    BACKEND: ClassVar[str] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.testing_results: list[Row] = []
        self._back_ends()  # what they lack is said now, not after the first cell

    def start_test(self) -> None:
        """Ask every cell that has no result yet; works inside a running event loop too, as in Jupyter.

        Raises NeedlemapError at the end if cells could not be measured; started again, it asks only those.
        """
        found = self._found()
        self.testing_results = list(found.values())
        cells = [cell for cell in self.cells if cell not in found]
        self._say(
            f"{self.model_name}: {len(self.lengths)} lengths by {len(self.depths)} depths, "
            f"{len(found)} cells done before, {len(cells)} to ask; tokens of {self.tokenizer_name}."
        )
        run_to_end(self._test(cells))

    def get_results(self) -> list[Row]:
        """The results so far, as they are in the files."""
        return self.testing_results

    async def _test(self, cells: list[Cell]) -> None:
        model, scorer = self._back_ends()
        decoding = Decoding(temperature=self.temperature)
        reference = Reference(self.needle.strip(), needle=self.needle, question=self.retrieval_question)
        pause_s = self.seconds_to_sleep_between_completions or 0.0
        session = Session(model, scorer, decoding, reference, self._prompt, self._keep, pause_s)
        try:
            await session.ask(cells, self.num_concurrent_requests)
        finally:
            await model.close()
            if isinstance(scorer, Judge):
                await scorer.close()
        if session.failures:
            first, reason = next(iter(session.failures.items()))
            raise NeedlemapError(
                f"{len(session.failures)} of {len(cells)} cells could not be measured. The first, "
                f"{first[0]} tokens at {first[1]:g} %: {reason} Call start_test() again for what is missing."
            )

    def _found(self) -> dict[Cell, Row]:
        """Earlier results of these cells. Raises SettingsError if they belong to another needle."""
        if not self.save_results:
            return {}
        earlier = results.earlier(self.model_name, self.results_version)
        found = {cell: earlier[cell] for cell in self.cells if cell in earlier}
        for cell, row in found.items():
            if row["needle"] != self.needle:
                raise SettingsError(
                    f"'{results.RESULTS}' holds {cell[0]} tokens at {cell[1]:g} % with another needle. "
                    "Move that folder away, or raise results_version."
                )
        return found

    def _prompt(self, cell: Cell) -> tuple[str, Prompt]:
        length, depth = cell
        buffer = self.final_context_length_buffer
        text = context(self.haystack_dir, length, depth, self.needle, None, buffer, self.tokenizer_name)
        values = {"\0haystack": text, "\0question": self.retrieval_question}
        parts = load_template(self.template).parts
        return text, Prompt.plain(_filled(part, values) for part in parts)

    def _keep(self, cell: Cell, said: Row, text: str) -> None:
        length, depth = cell
        name = results.stem(self.model_name, length, depth)
        row: Row = {
            "model": self.model_name,
            "context_length": length,
            "depth_percent": depth,
            "version": self.results_version,
            "needle": self.needle,
            **said,
        }
        if self.save_contexts:
            row["file_name"] = name
            results.write(results.context_file(name), text)
        if self.save_results:
            results.write(results.result_file(name, self.results_version), json.dumps(row))
        self.testing_results.append(row)
        self._say(f"{length} tokens at {depth:g} %: {row['score']}  {row['model_response'].strip()[:100]}")

    def _back_ends(self) -> tuple[Model, Scorer]:
        """Model and scorer, not yet connected. Raises SettingsError if one cannot work (no key, say)."""
        model = self._built(self.BACKEND, self.base_url)
        if not self.judged:
            return model, Substring(words=tuple(self.substr_validation_words), anywhere=True)
        backend = self.judge_model.partition("/")[0]
        url = self.judge_base_url or (self.base_url if backend == self.BACKEND else None)
        with lent(self._key(backend)) as key:
            return model, Judge(model=self.judge_model, judge_options=_address(url) | key)

    def _built(self, backend: str, url: str | None) -> Model:
        with lent(self._key(backend)) as key:
            model: Model = find("models", backend)(self.model_name, **_address(url), **key)
        return model

    def _key(self, backend: str) -> str | None:
        return {"openai": self.openai_api_key, "anthropic": self.anthropic_api_key}.get(backend)

    def _say(self, line: str) -> None:
        if self.print_ongoing_status:
            print(line, flush=True)


class OpenAIEvaluator(Evaluator):
    """Tests a model at OpenAI or at any server that speaks its format (base_url; so is the judge).

    openai_api_key, default $OPENAI_API_KEY, is sent to the model's server and to the judge's.
    """

    BACKEND: ClassVar[str] = "openai"


class AnthropicEvaluator(Evaluator):
    """Tests a model of Anthropic; its tokenizers are not public, so lengths count gpt-4's tokens by default.

    anthropic_api_key, default $ANTHROPIC_API_KEY. The judge is OpenAI's: openai_api_key, judge_base_url.
    """

    BACKEND: ClassVar[str] = "anthropic"


@contextmanager
def lent(key: str | None) -> Iterator[dict[str, str]]:
    """Options by which a back end reads a key when it is built: a variable that is gone afterwards."""
    if not key:
        yield {}
        return
    name = f"NEEDLEMAP_KEY_{uuid4().hex.upper()}"
    os.environ[name] = key
    try:
        yield {"key_env": name}
    finally:
        del os.environ[name]


def _address(url: str | None) -> dict[str, str]:
    return {"base_url": url} if url else {}


def _filled(part: Part, values: Mapping[str, str]) -> tuple[str, str]:
    return part.role, "".join(values.get(piece, piece) for piece in part.pieces)
