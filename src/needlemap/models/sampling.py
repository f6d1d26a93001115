"""How an answer is drawn: its next token, the same for the same seed, and the texts that end it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer as Vocabulary

from needlemap.errors import SettingsError
from needlemap.models.base import Logprobs, Way
from needlemap.models.walk import Logits, Seen

STOP_FIELDS = ("stop", "stop_strings")  # as OpenAI and as transformers call them
_LEAD = 4  # tokens decoded before those that a stop string can have: the first one may lose its blank


class Sampler:
    """temperature: above 0. seed: fixes all draws of one answer. No top-k, no top-p."""

    def __init__(self, temperature: float, seed: int) -> None:
        self._temperature, self._random = temperature, np.random.default_rng(seed)

    def draw(self, logits: Logits) -> int:
        """A token with probability softmax(logits / temperature): the Gumbel-max trick (Gumbel 1954)."""
        noise = self._random.gumbel(size=len(logits))
        return int(np.argmax(logits.astype(np.float64) / self._temperature + noise))


@dataclass(frozen=True, slots=True)
class Stops:
    """Texts that end an answer, which is cut before them. Special tokens are looked at as they are spelt.

    An answer ends with the first token that completes one, as transformers' `stop_strings` do it.
    """

    strings: tuple[str, ...]
    vocabulary: Vocabulary

    def reached(self, answer: Sequence[int], new: int = 1) -> bool:
        """Whether one of the last `new` tokens completes a stop string."""
        if not self.strings:
            return False
        most = max(len(string.encode()) for string in self.strings) + new + _LEAD
        text = self.vocabulary.decode(list(answer[-most:]), skip_special_tokens=False)
        return any(string in text for string in self.strings)

    def text(self, answer: Sequence[int]) -> str:
        """The answer up to the first stop string, without special tokens; all of it where there is none."""
        whole = self.vocabulary.decode(list(answer), skip_special_tokens=False)
        ends = [whole.find(string) for string in self.strings if string in whole]
        if not ends:
            return str(self.vocabulary.decode(list(answer), skip_special_tokens=True))
        end = min(ends)
        for size in range(len(answer), -1, -1):
            before = self.vocabulary.decode(list(answer[:size]), skip_special_tokens=False)
            if len(before) <= end and whole.startswith(before):
                break
        kept = self.vocabulary.decode(list(answer[:size]), skip_special_tokens=True)
        return str(kept + whole[len(before) : end])


def spelt(vocabulary: Vocabulary, token: int) -> str:
    """A token's text as it stands inside an answer, with its blank; special tokens as they are spelt."""
    once, twice = (vocabulary.decode([token] * times, skip_special_tokens=False) for times in (1, 2))
    return str(twice[len(once) :])


def spelt_out(seen: Sequence[Seen], vocabulary: Vocabulary, way: Way, start: int) -> Logprobs | None:
    """What a walk saw, in texts."""
    texts = {token: spelt(vocabulary, token) for row in seen for token in (row[0], row[2])}
    return Logprobs.of(
        [(texts[own], nats, texts[other], rest) for own, nats, other, rest in seen], way, start
    )


def stop_strings(request: Mapping[str, Any]) -> tuple[str, ...]:
    """The stop strings among request fields. Raises SettingsError for anything but texts.

    >>> stop_strings({"stop": "END"}), stop_strings({"stop": ["<eoa>", "\\n\\n"], "top_p": 1})
    (('END',), ('<eoa>', '\\n\\n'))
    """
    found: list[str] = []
    for name in STOP_FIELDS:
        given = request.get(name)
        for string in [given] if isinstance(given, str) else given if isinstance(given, list) else [given]:
            if given is not None and (not isinstance(string, str) or not string):
                raise SettingsError(
                    f"--request {name} takes a text or a list of texts, got {given!r}. For example: "
                    f"--request 'stop=[\"<eoa>\"]'"
                )
            found += [string] if string else []
    return tuple(found)
