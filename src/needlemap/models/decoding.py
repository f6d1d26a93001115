"""Where an answer stops, and how its tokens are spelt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from needlemap.errors import SettingsError
from needlemap.models import Logprobs, LogprobSource
from needlemap.models.thinking import without_specials

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Vocabulary

# A token and its log-probability, and the likeliest other one with its own.
Seen = tuple[int, float, int, float]
# As OpenAI and as transformers call them.
STOP_FIELDS = ("stop", "stop_strings")
# Tokens decoded before those that a stop string can have: the first one may lose its blank.
_LEAD = 4


@dataclass(frozen=True, slots=True)
class Stops:
    """Texts that end an answer, which is cut before them.

    Special tokens are looked at as they are spelt. An answer ends with the first token that
    completes one, as transformers' `stop_strings` do it.
    """

    strings: tuple[str, ...]
    vocabulary: Vocabulary

    def is_reached(self, answer: Sequence[int], new: int = 1) -> bool:
        """Return True if one of the last `new` tokens completes a stop string."""
        if not self.strings:
            return False
        last_tokens = max(len(string.encode()) for string in self.strings) + new + _LEAD
        text = self.vocabulary.decode(list(answer[-last_tokens:]), skip_special_tokens=False)
        return any(string in text for string in self.strings)

    def text(self, answer: Sequence[int]) -> str:
        """Return the answer up to the first stop string; all of it if there is none.

        Special tokens are left out, except those that mark its thoughts.
        """
        spelt_text = self.vocabulary.decode(list(answer), skip_special_tokens=False)
        ends = [spelt_text.find(string) for string in self.strings if string in spelt_text]
        added_tokens = self.vocabulary.get_added_tokens_decoder().values()
        specials = [token.content for token in added_tokens if token.special]
        with_thoughts = without_specials(spelt_text[: min(ends, default=len(spelt_text))], specials)
        if with_thoughts is not None:
            return with_thoughts
        if not ends:
            return str(self.vocabulary.decode(list(answer), skip_special_tokens=True))
        end = min(ends)
        for size in range(len(answer), -1, -1):
            before = self.vocabulary.decode(list(answer[:size]), skip_special_tokens=False)
            if len(before) <= end and spelt_text.startswith(before):
                break
        kept_text = self.vocabulary.decode(list(answer[:size]), skip_special_tokens=True)
        return str(kept_text + spelt_text[len(before) : end])


def token_text(vocabulary: Vocabulary, token: int) -> str:
    """Return a token's text as it stands inside an answer, with its blank.

    Special tokens are as they are spelt.
    """
    # The first token of a text may lose its blank, so the second of two is taken.
    one_text = vocabulary.decode([token], skip_special_tokens=False)
    two_texts = vocabulary.decode([token, token], skip_special_tokens=False)
    return str(two_texts[len(one_text) :])


def token_logprobs(
    seen: Sequence[Seen], vocabulary: Vocabulary, source: LogprobSource, start: int
) -> Logprobs | None:
    """Return the log-probabilities that a walk kept, with each token's text, or None if none."""
    texts = {
        token: token_text(vocabulary, token)
        for seen_token in seen
        for token in (seen_token[0], seen_token[2])
    }
    return Logprobs.of(
        [(texts[token], nats, texts[other], other_nats) for token, nats, other, other_nats in seen],
        source,
        start,
    )


def up_to_stop(text: str, stops: Sequence[str]) -> str:
    """Return a text up to the first of some stop strings in it.

    >>> up_to_stop(" 51328.\\nQuestion: Who?", ["\\nQuestion:"])
    ' 51328.'
    """
    return text[: min((text.find(stop) for stop in stops if stop in text), default=len(text))]


def stop_strings(request: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the stop strings among request fields.

    Raises SettingsError for anything but texts.

    >>> stop_strings({"stop": "END"}), stop_strings({"stop": ["<eoa>", "\\n\\n"], "top_p": 1})
    (('END',), ('<eoa>', '\\n\\n'))
    """
    strings: list[str] = []
    for name in STOP_FIELDS:
        value = request.get(name)
        if value is None:
            continue
        for string in value if isinstance(value, list) else [value]:
            if not isinstance(string, str) or not string:
                raise SettingsError(
                    f"--request {name} takes a text or a list of texts, got {value!r}. For "
                    f"example: --request 'stop=[\"<eoa>\"]'"
                )
            strings.append(string)
    return tuple(strings)
