"""Thinking told apart from the answer, where a server leaves both in one text.

Reasoning models write their thoughts between marks; some chat templates open them in the prompt, so that the
text holds the closing mark alone. Thoughts that are not closed used the budget up: there is no answer then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from needlemap.models.base import Answer, Decoding
from needlemap.prompts.prompt import Prompt

_MARK_BYTES = 64  # of a prompt's end: enough to see whether its template opens the thinking
# DeepSeek, Qwen, GLM, MiniMax, Nemotron; Mistral; Kimi; Seed
MARKS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<seed:think>", "</seed:think>"),
)


@dataclass(frozen=True, slots=True)
class Parted:
    """A text's thinking (None where it has none) and its answer; closed: whether the thinking ended."""

    thinking: str | None
    answer: str
    closed: bool = True


def parted(text: str) -> Parted:
    """Thinking and answer of a text.

    >>> parted("<think>Hm.</think>\\n\\n42"), parted("Hm.</think>42").answer, parted("<think>Hm").closed
    (Parted(thinking='Hm.', answer='42', closed=True), '42', False)
    >>> parted("42")
    Parted(thinking=None, answer='42', closed=True)
    """
    for opening, closing in MARKS:
        opened = text.lstrip().startswith(opening)
        thought, mark, answer = text.partition(closing)
        if mark:
            return Parted(thought.lstrip().removeprefix(opening).strip(), answer.lstrip())
        if opened:
            return Parted(text.lstrip().removeprefix(opening).strip(), "", closed=False)
    return Parted(None, text)


def opens(prompt_end: str) -> bool:
    """Whether a prompt ends with an opened thought, so that the model begins inside it.

    >>> opens("<|assistant|><think>\\n"), opens("<think>\\n\\n</think>\\n\\n")
    (True, False)
    """
    return prompt_end.rstrip().endswith(tuple(opening for opening, _ in MARKS))


def opened_in(prompt: Prompt) -> bool:
    """Whether a prompt's last message, with what the template puts behind it, ends with an opened thought."""
    end = b"".join([bytes(span.data[-_MARK_BYTES:]) for span in prompt.spans[-1:]])
    return opens(end.decode("utf-8", "ignore"))


def told_apart(answer: Answer, decoding: Decoding, *, opened: bool = False) -> Answer:
    """An answer without its thinking, which is kept beside it. opened: the prompt had begun the thinking.

    A text that was cut off beyond the answer's own budget, with a thinking budget set and no mark in it, can
    only be thinking that the template had opened.
    """
    if answer.thinking is not None:
        return answer
    found = parted(answer.text)
    if found.thinking is None and answer.finish == "length" and answer.text:
        beyond = (answer.completion_tokens or 0) > decoding.max_answer_tokens
        if opened or (decoding.thinking_tokens and beyond):
            found = Parted(answer.text, "", closed=False)
    if found.thinking is None:
        return answer
    return replace(answer, text=found.answer, thinking=found.thinking)
