"""Models that are plain code: what retrieval without a language model finds, and a function of
one's own.

Retrieval is the floor, and a check of the instrument itself. `baseline/bm25` answers with the
sentence of the context that best matches the question, `baseline/random` with a sentence drawn by
the prompt's hash.

Okapi BM25 (Robertson et al. 1994, "Okapi at TREC-3", NIST SP 500-225): a sentence is a document.
Terms are lower-cased words, stop words included, and, in scripts without spaces, pairs of
neighbouring characters. The earliest sentence wins a tie. Only the question's terms are looked for,
the rest is counted with numpy: half a megabyte takes some 20 ms.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from needlemap.errors import Failure, SettingsError, Unmeasured, did_you_mean
from needlemap.http import faults
from needlemap.models import Answer, Decoding, Model, Traits
from needlemap.prompts import Prompt
from needlemap.scorers import call_unblocked, load_function, source_hash
from needlemap.secrets import raised_by
from needlemap.text.tokens import Span

NAMES = ("bm25", "random")
K1, B = 1.5, 0.75
ENDS = ".!?。！？\n"
# Kana and Han.
UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_RUNS = re.compile(rf"(?P<unspaced>[{UNSPACED}]+)|(?P<word>[^\W_{UNSPACED}]+)")
# Kinds of characters.
_BETWEEN, _WORD, _UNSPACED, _END = range(4)


class Baseline(Model):
    """Retrieval without a language model.

    Attributes:
        window: It sees only the context's last `window` tokens, like a model whose memory ends
            there.
        b: How much BM25 favours short sentences, in [0, 1]. At its usual 0.75 a two-word fragment
            that shares two rare words with the question beats a needle that shares all of them; at
            0 length does not count.
    """

    unread, free = ("temperature", "thinking_tokens", "request", "logprobs"), True

    def __init__(self, name: str, *, window: int | None = None, b: float = B) -> None:
        if name not in NAMES:
            raise SettingsError(f"Unknown baseline '{name}'. {did_you_mean(name, NAMES)}")
        if window is not None and window < 1:
            raise SettingsError(
                f"Option 'window' of Baseline must be at least 1 token, got {window}."
            )
        if not 0 <= b <= 1:
            raise SettingsError(f"Option 'b' of Baseline must lie in 0..1, got {b}.")
        self.name = name
        self.window = window
        self.b = b

    @classmethod
    def traits(cls, name: str, options: Mapping[str, Any]) -> Traits:
        """Return its traits: chat; lengths count cl100k_base tokens unless settings name others."""
        return Traits(tokenizer="cl100k_base")

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        """Return the chosen sentence.

        Raises Unmeasured for a prompt without a context or a question.
        """
        if not prompt.context_spans or not prompt.question:
            raise Unmeasured(
                Failure.MODEL, "A baseline needs a prompt with a context and a question."
            )
        start = perf_counter()
        text = await asyncio.to_thread(self._choose, prompt)
        return Answer(text, "stop", prompt.tokens, latency_s=perf_counter() - start)

    def _choose(self, prompt: Prompt) -> str:
        spans = prompt.context_spans
        if self.window is not None:
            spans = last_tokens(spans, self.window)
        text = b"".join([span.data for span in spans]).decode("utf-8", errors="replace")
        if self.name == "bm25":
            return best_sentence(text, prompt.question, self.b)
        return Sentences.of(text).pick(int(prompt.sha256, 16))


def last_tokens(spans: Sequence[Span], tokens: int) -> list[Span]:
    """Return the last `tokens` tokens of some spans."""
    last_spans: list[Span] = []
    for span in reversed(spans):
        if tokens <= 0:
            break
        last_spans.append(Span(span.text, max(span.start, span.stop - tokens), span.stop))
        tokens -= len(span)
    return last_spans[::-1]


@dataclass(frozen=True, slots=True)
class Sentences:
    """A text cut after each end of a sentence.

    Attributes:
        codes, kinds: (characters,), code point and kind.
        stops: (n,), where sentence i ends; they tile the text.
    """

    text: str
    codes: NDArray[np.uint32]
    kinds: NDArray[np.uint8]
    stops: NDArray[np.int64]

    @classmethod
    def of(cls, text: str) -> Sentences:
        """Cut a text into sentences."""
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        kinds = _kinds()[codes]
        stops = np.flatnonzero(kinds == _END) + 1
        if text and (not len(stops) or stops[-1] < len(text)):
            stops = np.append(stops, len(text))
        return cls(text, codes, kinds, stops)

    def __len__(self) -> int:
        return len(self.stops)

    def __getitem__(self, index: int) -> str:
        start = self.stops[index - 1] if index else 0
        return self.text[start : self.stops[index]].strip()

    def pick(self, number: int) -> str:
        """Return a sentence that is not blank, chosen by a number, or '' if there is none."""
        sentences = [
            sentence for sentence in map(self.__getitem__, range(len(self))) if sentence.strip(ENDS)
        ]
        return sentences[number % len(sentences)] if sentences else ""


@cache
def _kinds() -> NDArray[np.uint8]:
    """Return the kind of every code point: (0x110000,) uint8."""
    kinds = np.full(0x110000, _BETWEEN, np.uint8)
    # Rare Han; beyond are no letters.
    kinds[0x20000:0x40000] = _UNSPACED
    for run in _RUNS.finditer("".join(map(chr, range(0x20000)))):
        kinds[run.start() : run.end()] = _WORD if run["word"] else _UNSPACED
    kinds[[ord(end) for end in ENDS]] = _END
    return kinds


def best_sentence(text: str, question: str, b: float = B) -> str:
    """Return the sentence of a text that best matches a question, or '' if none has its terms."""
    lowered = Sentences.of(text.lower())
    scores = rank(lowered, terms(question), b)
    if not scores.any():
        return ""
    # Lower-casing may lengthen a text, but makes no sentence.
    same_length = len(text) == len(lowered.text)
    sentences = replace(lowered, text=text) if same_length else Sentences.of(text)
    return sentences[int(np.argmax(scores))]


def terms(text: str) -> list[str]:
    """Return lower-cased words and character pairs, in order, each once.

    >>> terms("The best thing, the 上海市?")
    ['the', 'best', 'thing', '上海', '海市']
    """
    terms_found: list[str] = []
    for run in _RUNS.finditer(text.lower()):
        characters = run.group()
        if run["word"] or len(characters) == 1:
            terms_found.append(characters)
        else:
            terms_found += map("".join, pairwise(characters))
    return list(dict.fromkeys(terms_found))


def rank(sentences: Sentences, query_terms: list[str], b: float = B) -> NDArray[np.float64]:
    """Return the BM25 score of each sentence of a lower-cased text: (n,) float64.

    Sum over the terms of idf * f * (k1 + 1) / (f + k1 * (1 - b + b * length / mean length)), f
    being how often the sentence holds the term, idf = ln(1 + (n - holding + 0.5) / (holding +
    0.5)), which is never negative.
    """
    n = len(sentences)
    scores = np.zeros(n)
    if not n:
        return scores
    lengths = _lengths(sentences)
    length_norms = K1 * (1 - b + b * lengths / max(1e-9, float(lengths.mean())))
    for term in query_terms:
        sentence_of_place = np.searchsorted(sentences.stops, _places(sentences, term), side="right")
        counts = np.bincount(sentence_of_place, minlength=n)
        holding = int(np.count_nonzero(counts))
        idf = np.log1p((n - holding + 0.5) / (holding + 0.5))
        scores += idf * counts * (K1 + 1) / (counts + length_norms)
    return scores


def _lengths(sentences: Sentences) -> NDArray[np.int64]:
    """Return the number of terms in each sentence."""
    kinds = sentences.kinds
    before, after = np.append(np.uint8(_END), kinds[:-1]), np.append(kinds[1:], np.uint8(_END))
    words = (kinds == _WORD) & (before != _WORD)
    unspaced = kinds == _UNSPACED
    # A pair's second character, or a lone one.
    ends_of_pairs = unspaced & ((before == _UNSPACED) | (after != _UNSPACED))
    starts = np.append(0, sentences.stops[:-1])
    return np.add.reduceat((words | ends_of_pairs).astype(np.int64), starts)


def _places(sentences: Sentences, term: str) -> NDArray[np.int64]:
    """Return where a term occurs."""
    codes, kinds, size = sentences.codes, sentences.kinds, len(term)
    if not re.match(f"[{UNSPACED}]", term):
        starts = [match.start() for match in re.finditer(re.escape(term), sentences.text)]
        return _separate_places(np.array(starts, np.int64), kinds, size, _WORD)
    candidates = codes[: len(codes) - size + 1] == ord(term[0])
    if size == 2:
        return np.flatnonzero(candidates & (codes[1:] == ord(term[1])))
    return _separate_places(np.flatnonzero(candidates), kinds, size, _UNSPACED)


def _separate_places(
    places: NDArray[np.int64], kinds: NDArray[np.uint8], size: int, kind: int
) -> NDArray[np.int64]:
    """Return the places with no character of their kind before or after."""
    padded = np.concatenate(([_END], kinds, [_END]))
    isolated: NDArray[np.int64] = places[
        (padded[places] != kind) & (padded[places + size + 1] != kind)
    ]
    return isolated


class PythonModel(Model):
    """The back end of `python/module:function`.

    The function is called with [{"role": ..., "content": ...}, ...], or a plain prompt's text, and
    returns a str or an Answer; it may be async. The current directory can be imported from. A plain
    function that runs out of time is left running in its thread, since Python cannot stop one; the
    program's end does not wait for it.
    """

    unread, free = ("temperature", "thinking_tokens", "request", "logprobs"), True

    def __init__(self, name: str) -> None:
        self.name = name
        self._function = load_function(name)

    @classmethod
    def traits(cls, name: str, options: Mapping[str, Any]) -> Traits:
        """Return its traits: chat; lengths count cl100k_base tokens unless settings name others."""
        return Traits(tokenizer="cl100k_base", weights=source_hash(name))

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        """Call the function once.

        Raises Unmeasured if it raises, runs out of time or returns something else.
        """
        start = perf_counter()
        try:
            async with asyncio.timeout(decoding.timeout_s) as clock:
                value = await call_unblocked(self._function, question(prompt))
        except Unmeasured:
            raise
        except Exception as error:
            if isinstance(error, TimeoutError) and clock.expired():
                raise faults.timeout_failure(decoding.timeout_s) from None
            failure = Failure.MEMORY if isinstance(error, MemoryError) else Failure.MODEL
            raise Unmeasured(failure, f"{self.name}: {raised_by(error)}") from error
        return self._answer(value, perf_counter() - start)

    def _answer(self, value: object, latency_s: float) -> Answer:
        if isinstance(value, str):
            value = Answer(value)
        if isinstance(value, Answer):
            return replace(value, latency_s=value.latency_s or latency_s)
        problem = (
            f"{self.name} must return a str or a needlemap Answer, it returned "
            f"{type(value).__name__}"
        )
        raise faults.unreadable(problem, repr(value))


def question(prompt: Prompt) -> list[dict[str, str]] | str:
    """Return what the function is called with."""
    if not prompt.chat:
        return prompt.messages[0].content
    return [{"role": message.role, "content": message.content} for message in prompt.messages]
