"""What retrieval without a language model finds: the floor, and a check of the instrument itself.

`baseline/bm25` answers with the sentence of the context that best matches the question, `baseline/random`
with a sentence drawn by the prompt's hash. How sentences are ranked is in `bm25.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

from needlemap.errors import Failure, SettingsError, Unmeasured, did_you_mean
from needlemap.models.base import Answer, Decoding, Traits
from needlemap.models.bm25 import B, Sentences, best
from needlemap.prompts.prompt import Prompt
from needlemap.settings.registry import Checked
from needlemap.text.tokens import Span

NAMES = ("bm25", "random")


class Baseline(metaclass=Checked):
    """window: it sees only the context's last `window` tokens, like a model whose memory ends there.

    b: how much BM25 favours short sentences, in [0, 1]. At its usual 0.75 a two-word fragment that shares two
    rare words with the question beats a needle that shares all of them; at 0 length does not count.
    """

    unread = ("temperature", "thinking_tokens", "request", "logprobs")

    def __init__(self, name: str, *, window: int | None = None, b: float = B) -> None:
        if name not in NAMES:
            raise SettingsError(f"Unknown baseline '{name}'. {did_you_mean(name, NAMES)}")
        if window is not None and window < 1:
            raise SettingsError(f"Option 'window' of Baseline must be at least 1 token, got {window}.")
        if not 0 <= b <= 1:
            raise SettingsError(f"Option 'b' of Baseline must lie in 0..1, got {b}.")
        self.name, self.window, self.b = name, window, b

    @classmethod
    def traits(cls, name: str, options: Mapping[str, Any]) -> Traits:
        """Chat messages; lengths count cl100k_base tokens unless told otherwise."""
        return Traits(tokenizer="cl100k_base")

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        """The chosen sentence. Raises Unmeasured for a prompt without a context or a question."""
        if not prompt.context_spans or not prompt.question:
            raise Unmeasured(Failure.MODEL, "A baseline needs a prompt with a context and a question.")
        start = perf_counter()
        text = await asyncio.to_thread(self._choose, prompt)
        return Answer(text, "stop", prompt.tokens, latency_s=perf_counter() - start)

    async def close(self) -> None:
        """Nothing to release."""

    def _choose(self, prompt: Prompt) -> str:
        spans = prompt.context_spans if self.window is None else last(prompt.context_spans, self.window)
        text = b"".join([span.data for span in spans]).decode("utf-8", errors="replace")
        if self.name == "bm25":
            return best(text, prompt.question, self.b)
        return Sentences.of(text).pick(int(prompt.sha256, 16))


def last(spans: Sequence[Span], tokens: int) -> list[Span]:
    """The last `tokens` tokens of some spans."""
    kept: list[Span] = []
    for span in reversed(spans):
        if tokens <= 0:
            break
        kept.append(Span(span.text, max(span.start, span.stop - tokens), span.stop))
        tokens -= len(span)
    return kept[::-1]
