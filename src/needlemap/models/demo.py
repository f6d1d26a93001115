"""The model in the box: a small transformer that retrieves, with its weights in the package.

`demo/retriever` was trained on sequences of at most 256 tokens of the generated haystack to answer the
default English question, and on nothing else: it finds that kind of needle within that length and loses it
beyond. It does not chat, and knows no other wording. tools/train_demo_model.py made it; training.json beside
its weights says how, and what it was measured to find.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.resources import files
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
import tokenizers

from needlemap.errors import Failure, SettingsError, Unmeasured, did_you_mean
from needlemap.http import faults
from needlemap.models.base import MARK, Answer, Decoding, Forced, Model, Render, Traits
from needlemap.models.model_files import weights_fingerprint
from needlemap.models.numpy_engine import NumpyEngine, Weights
from needlemap.models.sampling import spelt_out
from needlemap.models.walk import Walk
from needlemap.prompts.prompt import TEXT, Prompt
from needlemap.text.tokens import Tokenizer, TokenText
from needlemap.tokenizers.catalogue import load

NAMES = ("retriever",)
WEIGHTS, TOKENIZER = "retriever.npz", "tokenizer.json"
T = TypeVar("T")
DATA = Path(str(files("needlemap") / "models" / "demo_data"))


class DemoModel(Model):
    """Answers greedily, one prompt after another, with one KV cache that walks from prompt to prompt.

    folder: other weights and tokenizer, as tools/train_demo_model.py writes them, instead of the package's.
    """

    unread = ("temperature", "thinking_tokens", "request", "concurrency")

    def __init__(self, name: str, *, folder: Path = DATA) -> None:
        check_name(name)
        self.name = name
        self._vocabulary = tokenizers.Tokenizer.from_file(tokenizer_in(folder))
        self._walk = Walk(load_engine(folder), stop_tokens(self._vocabulary))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="needlemap-demo")

    @classmethod
    def traits(cls, name: str, options: Mapping[str, Any]) -> Traits:
        """One plain text, in tokens of its own vocabulary, fed as ids."""
        check_name(name)
        folder = Path(options.get("folder", DATA))
        path = tokenizer_in(folder)
        weights = weights_fingerprint(folder)
        return Traits(False, path, render_with(path), teacher=True, serial=True, weights=weights, request=())

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        """Ask once. Raises Unmeasured for decoding that it cannot do, and when time or memory runs out."""
        refuse_unknown(decoding)
        start = perf_counter()
        ask = partial(self._walk.ask, prompt.ids, decoding.max_answer_tokens, seen=decoding.logprobs)
        walked = await self._in_turn(ask, decoding)
        text = self._vocabulary.decode(list(walked.answer)).removeprefix(" ")
        tokens = walked.cached + walked.computed, walked.cached, len(walked.answer)
        told = spelt_out(walked.seen, self._vocabulary, "generated", tokens[0])
        return Answer(text, walked.finish, *tokens, latency_s=perf_counter() - start, logprobs=told)

    async def force(self, prompt: Prompt, answer: str, decoding: Decoding) -> Answer:
        """How likely it finds an answer of one line. Raises Unmeasured."""
        refuse_unknown(decoding)
        start = perf_counter()
        wanted = np.array(self._vocabulary.encode(f" {answer}", add_special_tokens=False).ids, np.int32)
        weighed = await self._in_turn(partial(self._walk.weigh, prompt.ids, wanted), decoding)
        tokens = weighed.cached + weighed.computed, weighed.cached, 0
        forced = Forced(weighed.logprobs, weighed.greedy)
        told = spelt_out(weighed.seen, self._vocabulary, "walk", tokens[0])
        return Answer("", None, *tokens, latency_s=perf_counter() - start, forced=forced, logprobs=told)

    async def close(self) -> None:
        """Let the thread go."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _in_turn(self, question: Callable[[], T], decoding: Decoding) -> T:
        """Ask in the one thread that owns the cache. Raises Unmeasured when time runs out."""
        try:
            async with asyncio.timeout(decoding.timeout_s):
                return await asyncio.get_running_loop().run_in_executor(self._thread, question)
        except TimeoutError:
            raise faults.timed_out(decoding.timeout_s) from None


def check_name(name: str) -> None:
    """Raises SettingsError for a model that is not in the box."""
    if name not in NAMES:
        raise SettingsError(f"Unknown demo model '{name}'. {did_you_mean(name, NAMES)}")


def tokenizer_in(folder: Path) -> str:
    """The path of a folder's tokenizer. Raises SettingsError when a file is missing."""
    for file in (WEIGHTS, TOKENIZER):
        if not (folder / file).is_file():
            raise SettingsError(
                f"No {file} in '{folder}'. Leave the option 'folder' out to ask the model in the package, or "
                f"make one: python tools/train_demo_model.py --out FOLDER"
            )
    return str(folder / TOKENIZER)


def refuse_unknown(decoding: Decoding) -> None:
    """Raises Unmeasured for request fields and temperatures: it has neither."""
    if decoding.temperature:
        raise Unmeasured(Failure.REJECTED, "demo/retriever always answers greedily. Use --temperature 0.")
    if decoding.request:
        fields = ", ".join(sorted(decoding.request))
        raise Unmeasured(Failure.REJECTED, f"demo/retriever takes no request fields, got {fields}.")


def load_engine(folder: Path) -> NumpyEngine:
    """The transformer in a folder, with an empty cache."""
    return NumpyEngine(Weights.load(folder / WEIGHTS))


def stop_tokens(vocabulary: tokenizers.Tokenizer) -> tuple[int, ...]:
    """Every token that holds a line break: an answer is one line."""
    size = vocabulary.get_vocab_size()
    return tuple(number for number in range(size) if "\n" in vocabulary.decode([number]))


def render_with(tokenizer: str) -> Render:
    """The tokens around a context, of one plain text and nothing more: the model has no special token."""
    return partial(_rendered, load(tokenizer))


def _rendered(tokenizer: Tokenizer, rows: Sequence[tuple[str, str]]) -> tuple[TokenText, TokenText]:
    if rows[0][0] != TEXT:
        raise SettingsError("demo/retriever takes one plain text, no chat. Use --template text-en.")
    head, _, tail = "".join(text for _, text in rows).partition(MARK)
    return tokenizer.index(head.encode()), tokenizer.index(tail.encode())
