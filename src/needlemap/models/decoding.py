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

Seen = tuple[int, float, int, float]  # a token, the likeliest other one, and log-probabilities
STOP_FIELDS = ("stop", "stop_strings")  # as OpenAI and as transformers call them
_LEAD = (
    4  # tokens decoded before those that a stop string can have: the first one may lose its blank
)


@dataclass(frozen=True, slots=True)
class Stops:
    """Texts that end an answer, which is cut before them. Special tokens are looked at as they are
    spelt.

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
        """The answer up to the first stop string, without special tokens save those that mark
        its thoughts; all of it where there is none."""
        whole = self.vocabulary.decode(list(answer), skip_special_tokens=False)
        ends = [whole.find(string) for string in self.strings if string in whole]
        added = self.vocabulary.get_added_tokens_decoder().values()
        specials = [token.content for token in added if token.special]
        marked = without_specials(whole[: min(ends, default=len(whole))], specials)
        if marked is not None:
            return marked
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
    """A token's text as it stands inside an answer, with its blank; special tokens as they are
    spelt."""
    once, twice = (
        vocabulary.decode([token] * times, skip_special_tokens=False) for times in (1, 2)
    )
    return str(twice[len(once) :])


def spelt_out(
    seen: Sequence[Seen], vocabulary: Vocabulary, way: LogprobSource, start: int
) -> Logprobs | None:
    """What a walk saw, in texts."""
    texts = {token: spelt(vocabulary, token) for row in seen for token in (row[0], row[2])}
    return Logprobs.of(
        [(texts[own], nats, texts[other], rest) for own, nats, other, rest in seen], way, start
    )


def up_to_stop(text: str, stops: Sequence[str]) -> str:
    """A text up to the first of some stop strings in it.

    >>> up_to_stop(" 51328.\\nQuestion: Who?", ["\\nQuestion:"])
    ' 51328.'
    """
    return text[: min((text.find(stop) for stop in stops if stop in text), default=len(text))]


def stop_strings(request: Mapping[str, Any]) -> tuple[str, ...]:
    """The stop strings among request fields. Raises SettingsError for anything but texts.

    >>> stop_strings({"stop": "END"}), stop_strings({"stop": ["<eoa>", "\\n\\n"], "top_p": 1})
    (('END',), ('<eoa>', '\\n\\n'))
    """
    found: list[str] = []
    for name in STOP_FIELDS:
        given = request.get(name)
        for string in (
            [given] if isinstance(given, str) else given if isinstance(given, list) else [given]
        ):
            if given is not None and (not isinstance(string, str) or not string):
                raise SettingsError(
                    f"--request {name} takes a text or a list of texts, got {given!r}. For "
                    f"example: "
                    f"--request 'stop=[\"<eoa>\"]'"
                )
            found += [string] if string else []
    return tuple(found)
