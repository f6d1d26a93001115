"""Where an answer stops, how its tokens are spelt, and what of it is thinking.

Reasoning models write their thoughts between marks, where a server leaves both in one text; some
chat templates open them in the prompt, so that the text holds the closing mark alone. Thoughts that
are not closed used the budget up: there is no answer then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from needlemap.errors import SettingsError
from needlemap.finishes import Ending, ending_of
from needlemap.models import Answer, Decoding, Logprobs, LogprobSource
from needlemap.prompts import Prompt

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Vocabulary

Seen = tuple[int, float, int, float]  # a token, the likeliest other one, and log-probabilities
STOP_FIELDS = ("stop", "stop_strings")  # as OpenAI and as transformers call them
_LEAD = (
    4  # tokens decoded before those that a stop string can have: the first one may lose its blank
)
_MARK_BYTES = 64  # of a prompt's end: enough to see whether its template opens the thinking
# DeepSeek, Qwen, GLM, MiniMax, Nemotron; Mistral; Kimi; Seed
MARKS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<seed:think>", "</seed:think>"),
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
        """The answer up to the first stop string, without special tokens; all of it where
        there is none."""
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


class Parted(NamedTuple):
    """A text's thinking (None where it has none) and its answer; none behind thinking that never
    ends."""

    thinking: str | None
    answer: str


def parted(text: str) -> Parted:
    """Thinking and answer of a text.

    >>> (
    ...     parted("<think>Hm.</think>\\n\\n42"),
    ...     parted("Hm.</think>42").answer,
    ...     parted("<think>Hm").answer,
    ... )
    (Parted(thinking='Hm.', answer='42'), '42', '')
    >>> parted("42")
    Parted(thinking=None, answer='42')
    """
    for opening, closing in MARKS:
        opened = text.lstrip().startswith(opening)
        thought, mark, answer = text.partition(closing)
        if mark:
            return Parted(thought.lstrip().removeprefix(opening).strip(), answer.lstrip())
        if opened:
            return Parted(text.lstrip().removeprefix(opening).strip(), "")
    return Parted(None, text)


def opened_in(prompt: Prompt) -> bool:
    """Whether a prompt ends with an opened thought, so that the model begins inside it.

    >>> [opened_in(Prompt.plain([("text", end)])) for end in ("<|user|>Hm<think>\\n", "<think></think>\\n")]
    [True, False]
    """  # noqa: E501
    end = b"".join([bytes(span.data[-_MARK_BYTES:]) for span in prompt.spans[-1:]])
    return end.decode("utf-8", "ignore").rstrip().endswith(tuple(opening for opening, _ in MARKS))


def split_thinking(answer: Answer, decoding: Decoding, *, opened: bool = False) -> Answer:
    """An answer without its thinking, which is kept beside it. opened: the prompt had begun
    the thinking.

    A text that was cut off beyond the answer's own budget, with a thinking budget set and no
    mark in it, can only be thinking that the template had opened.
    """
    if answer.thinking is not None:
        return answer
    found = parted(answer.text)
    if found.thinking is None and ending_of(answer.finish) is Ending.CUT and answer.text:
        beyond = (answer.completion_tokens or 0) > decoding.max_answer_tokens
        if opened or (decoding.thinking_tokens and beyond):
            found = Parted(answer.text, "")
    if found.thinking is None:
        return answer
    return replace(answer, text=found.answer, thinking=found.thinking)
