"""From a template and a question to a frame: the tokenised surroundings of a context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from needlemap.errors import SettingsError
from needlemap.models.base import MARK, Render
from needlemap.prompts.placement import Frame
from needlemap.prompts.prompt import TEXT, Message
from needlemap.prompts.templates import Part, Template, guided
from needlemap.text.tokens import Span, Tokenizer, TokenText


class Indexer(Protocol):
    """Whatever tokenises a text."""

    def index(self, data: bytes) -> TokenText:
        """Tokenise a whole text."""
        ...


class Remembering:
    """A tokenizer that tokenises a text once: what many frames have in common is one text to all of them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[bytes, TokenText] = {}

    def index(self, data: bytes) -> TokenText:
        """The text as tokenised when it was first met."""
        if data not in self._known:
            self._known[data] = self._tokenizer.index(data)
        return self._known[data]


def make_frame(
    template: Template,
    question: str,
    tokenizer: Indexer,
    *,
    guide: bool = False,
    question_first: bool = False,
    answer_prefix: str = "",
    prologue: str = "",
    epilogue: str = "",
    salt: str = "",
    render: Render | None = None,
) -> Frame:
    """The frame of a question. answer_prefix (else the template's own) begins the answer for the model.

    prologue, epilogue: texts right before and behind the haystack.
    salt: a first line that makes the prompt unlike all others, so that no cache knows it. render: for models
    fed with ids: makes the token texts around the context, chat template included.
    Raises SettingsError for a guide, or a question at the start, that the template has no words for.
    """
    _check(template, guide, question_first)
    parts = template.question_first if question_first else template.parts
    asked = guided(question, template.guide, template.guide_marker) if guide else question
    texts = [_around(part, asked) for part in parts]
    texts[0] = (salt + texts[0][0], texts[0][1])
    context = next(place for place, (_, after) in enumerate(texts) if after is not None)
    before, after = texts[context]
    before, after = texts[context] = before + prologue, epilogue + (after or "")
    prefix = answer_prefix or template.answer_prefix
    if render is not None:
        rows = [
            (part.role, text if rest is None else text + MARK + rest)
            for part, (text, rest) in zip(parts, texts, strict=True)
        ]
        return _rendered(render, [*rows, *([("assistant", prefix)] if prefix else [])])
    if prefix and parts[context].role == TEXT:
        after += prefix
    messages = [
        Message(part.role, _spans(text, tokenizer)) for part, (text, _) in zip(parts, texts, strict=True)
    ]
    if prefix and parts[context].role != TEXT:
        messages.append(Message("assistant", _spans(prefix, tokenizer)))
    outside = sum(
        len(span) for place, message in enumerate(messages) if place != context for span in message.spans
    )
    return Frame(tuple(messages), context, _spans(before, tokenizer), _spans(after, tokenizer), outside)


def _check(template: Template, guide: bool, question_first: bool) -> None:
    if guide and not template.guide:
        raise SettingsError(f"Template '{template.name}' has no 'guide'. Add one, or leave out --guide.")
    if question_first and not template.question_first:
        key = "question_first" if template.chat else "text_question_first"
        raise SettingsError(f"Template '{template.name}' has no '{key}' for --question-position start.")


def _rendered(render: Render, rows: Sequence[tuple[str, str]]) -> Frame:
    """A frame whose messages are already one run of token ids."""
    head, tail = render(rows)
    return Frame((Message(TEXT, ()),), 0, (head.span(),), (tail.span(),), 0)


def _around(part: Part, question: str) -> tuple[str, str | None]:
    """A part's text before and after the haystack; None as the second where it holds no haystack."""
    before, after, found = "", "", False
    for piece in part.pieces:
        if piece == "\0haystack":
            found = True
        elif found:
            after += question if piece == "\0question" else piece
        else:
            before += question if piece == "\0question" else piece
    return before, after if found else None


def _spans(text: str, tokenizer: Indexer) -> tuple[Span, ...]:
    return (tokenizer.index(text.encode()).span(),) if text else ()
