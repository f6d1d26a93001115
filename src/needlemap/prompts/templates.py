"""Make messages, or one text, of a haystack and a question, by templates.

A frame is the tokenised text around the haystack. Wording is data (`templates/*.yaml`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any

from needlemap.errors import SettingsError, did_you_mean
from needlemap.models import MARK, Render
from needlemap.prompts import TEXT, Message
from needlemap.prompts.placement import Frame
from needlemap.shelves import TEMPLATES
from needlemap.text.tokens import Span, TokenText

# Tokenises a whole text.
Index = Callable[[bytes], TokenText]
_PLACEHOLDERS = ("haystack", "question")
_KEYS = (
    "messages",
    "question_first",
    "text",
    "text_question_first",
    "guide",
    "guide_marker",
    "answer_prefix",
    "stop",
)
_ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Part:
    """A message of a template.

    Attributes:
        role: Its role.
        text: Its text as it is written, with {haystack} and {question}.
    """

    role: str
    text: str

    def filled(self, haystack: str, question: str) -> str:
        """Return the text with haystack and question."""
        return fill(self.text, {"haystack": haystack, "question": question}, "A template")

    def around(self, question: str) -> tuple[str, str | None]:
        """Return the texts before and after the haystack; the second is None without a haystack."""
        before = ""
        after: str | None = None
        for literal, name in _parse(self.text, "A template"):
            text = literal + question if name == "question" else literal
            if after is None:
                before += text
            else:
                after += text
            if name == "haystack":
                after = ""
        return before, after


@dataclass(frozen=True, slots=True)
class Template:
    """Messages with the question at the end, and messages with the question first.

    Attributes:
        name: Its name.
        parts: The messages with the question at the end.
        question_first: The messages with the question first; empty if the template has none.
        guide: A sentence that asks to think of the relevant part first.
        guide_marker: The text of the question that the guide is put before. If it does not occur,
            the guide is put after the question.
        answer_prefix: The start of the answer.
        stop: Texts that end the answer. After them, a base model continues with a question of its
            own.
    """

    name: str
    parts: tuple[Part, ...]
    question_first: tuple[Part, ...]
    guide: str
    guide_marker: str
    answer_prefix: str
    stop: tuple[str, ...] = ()

    @property
    def chat(self) -> bool:
        """Return True for chat messages, and False for one plain text."""
        return self.parts[0].role != TEXT


def load_template(name: str) -> Template:
    """Read a template by its name (see `needlemap list templates`) or from a YAML file.

    Raises SettingsError for unknown names, keys and placeholders.
    """
    data = TEMPLATES.read(name)
    if not isinstance(data, dict):
        raise SettingsError(f"Template '{name}' must be a mapping with 'messages' or 'text'.")
    return parse_template(data, name)


def parse_template(data: dict[str, Any], name: str) -> Template:
    """Return a template from its data.

    Raises SettingsError if a key or a placeholder is unknown, or if a key is missing.

    data: `messages` (role and text each) or `text`, and the optional keys.
    """
    for key in data:
        if key not in _KEYS:
            raise SettingsError(
                f"Template '{name}': unknown key '{key}'. {did_you_mean(str(key), _KEYS)}"
            )
    if ("messages" in data) == ("text" in data):
        raise SettingsError(
            f"Template '{name}' needs either 'messages' (chat) or 'text' (base models)."
        )
    chat = "messages" in data
    first = data.get("question_first" if chat else "text_question_first")
    return Template(
        name=name,
        parts=_parts(data["messages" if chat else "text"], name),
        question_first=_parts(first, name) if first else (),
        guide=str(data.get("guide", "")),
        guide_marker=str(data.get("guide_marker", "")),
        answer_prefix=str(data.get("answer_prefix", "")),
        stop=_stop(data.get("stop"), name),
    )


def _stop(data: Any, name: str) -> tuple[str, ...]:
    """Return the texts that end an answer. data: a text, a list of texts, or nothing."""
    texts = [data] if isinstance(data, str) else data or []
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise SettingsError(
            f"Template '{name}': 'stop' is a text or a list of texts, got {data!r}."
        )
    return tuple(texts)


def guided(question: str, guide: str, marker: str = "") -> str:
    """Return a question with a guide sentence before its marker, or after it without a marker.

    A second marker and what follows it are dropped, as in OpenCompass.

    >>> guided("Who? Please answer in one word.", "Think first. ", "Please answer")
    'Who? Think first. Please answer in one word.'
    """
    before, occurrence, after = question, "", ""
    if marker:
        before, occurrence, after = question.partition(marker)
    if not occurrence:
        gap = " "
        # Chinese needs no space.
        if not guide or question.endswith((" ", "\n")) or ord(guide[0]) >= 0x2E80:
            gap = ""
        return question + gap + guide.rstrip()
    return before + guide + marker + after.split(marker)[0]


def fill(text: str, values: dict[str, str], what: str) -> str:
    """Return a text with its {placeholders} replaced. {{ and }} are braces.

    what: names the text in errors. Raises SettingsError for unknown placeholders.
    """
    pieces = []
    for literal, name in _parse(text, what):
        pieces.append(literal)
        if name is None:
            continue
        if name not in values:
            hint = "It has none; write {{ }} for braces."
            if values:
                hint = did_you_mean(name, values)
            raise SettingsError(f"{what}: unknown placeholder {{{name}}}. {hint}")
        pieces.append(values[name])
    return "".join(pieces)


def placeholders(text: str, what: str) -> list[str]:
    """Return the names in braces in a text, in their order.

    Raises SettingsError for broken braces.
    """
    return [name for _, name in _parse(text, what) if name is not None]


def _parts(data: Any, name: str) -> tuple[Part, ...]:
    if isinstance(data, str):
        parts: tuple[Part, ...] = (Part(TEXT, data),)
    elif isinstance(data, list):
        parts = tuple(_part(row, name) for row in data)
    else:
        raise SettingsError(
            f"Template '{name}': 'messages' must be a list, 'text' a text, got {data!r}."
        )
    names: list[str] = []
    for part in parts:
        names += placeholders(part.text, f"Template '{name}'")
    for placeholder in names:
        if placeholder not in _PLACEHOLDERS:
            hint = did_you_mean(placeholder, _PLACEHOLDERS)
            raise SettingsError(f"Template '{name}': unknown placeholder {{{placeholder}}}. {hint}")
    for placeholder in _PLACEHOLDERS:
        times = names.count(placeholder)
        if times != 1:
            raise SettingsError(
                f"Template '{name}' must hold {{{placeholder}}} exactly once, it holds it {times} "
                f"times."
            )
    return parts


def _part(row: Any, name: str) -> Part:
    if not isinstance(row, dict) or set(row) != {"role", "text"}:
        raise SettingsError(
            f"Template '{name}': each message needs 'role' and 'text', nothing else."
        )
    role = row["role"]
    if role not in _ROLES:
        raise SettingsError(
            f"Template '{name}': unknown role '{role}'. {did_you_mean(str(role), _ROLES)}"
        )
    return Part(role, str(row["text"]))


def _parse(text: str, what: str) -> list[tuple[str, str | None]]:
    """Return a text's literals, each with the name in braces after it, or None at the end.

    what: names the text in errors. Raises SettingsError for broken braces.
    """
    advice = "Write {{ and }} for braces that are meant as text."
    try:
        fields = list(Formatter().parse(text))
    except ValueError as error:
        raise SettingsError(f"{what}: {error}. {advice}") from error
    for _, name, layout, conversion in fields:
        if layout or conversion:
            raise SettingsError(
                f"{what}: placeholder {{{name}}} takes no ':' or '!' inside. {advice}"
            )
    return [(literal, name) for literal, name, _, _ in fields]


def make_frame(
    template: Template,
    question: str,
    index: Index,
    *,
    guide: bool = False,
    question_first: bool = False,
    answer_prefix: str = "",
    prologue: str = "",
    epilogue: str = "",
    salt: str = "",
    render: Render | None = None,
) -> Frame:
    """Return the frame of a question.

    Args:
        template: The wording.
        question: The question.
        index: Tokenises a text.
        guide: Whether the template's guide is added to the question.
        question_first: Whether the question stands before the haystack.
        answer_prefix: The start of the answer; '' for the template's own.
        prologue: Text right before the haystack.
        epilogue: Text right after it.
        salt: A first line that no other prompt has, so that no cache knows the prompt.
        render: For models that are fed ids: makes the token texts around the context, with the chat
            template.

    Raises SettingsError for a guide, or a question at the start, if the template has no words for
    it.
    """
    _check(template, guide, question_first)
    parts = template.question_first if question_first else template.parts
    if guide:
        question = guided(question, template.guide, template.guide_marker)
    texts = [part.around(question) for part in parts]
    texts[0] = (salt + texts[0][0], texts[0][1])
    context = next(place for place, (_, after) in enumerate(texts) if after is not None)
    before = texts[context][0] + prologue
    after = epilogue + (texts[context][1] or "")
    texts[context] = (before, after)
    prefix = answer_prefix or template.answer_prefix

    if render is not None:
        rows = [
            (part.role, text if rest is None else text + MARK + rest)
            for part, (text, rest) in zip(parts, texts, strict=True)
        ]
        if prefix:
            rows.append(("assistant", prefix))
        return _rendered(render, rows)

    if prefix and parts[context].role == TEXT:
        after += prefix
    messages = [
        Message(part.role, _spans(text, index))
        for part, (text, _) in zip(parts, texts, strict=True)
    ]
    if prefix and parts[context].role != TEXT:
        messages.append(Message("assistant", _spans(prefix, index)))
    outside_tokens = sum(
        len(span)
        for place, message in enumerate(messages)
        if place != context
        for span in message.spans
    )
    return Frame(
        messages=tuple(messages),
        context=context,
        before=_spans(before, index),
        after=_spans(after, index),
        outside_tokens=outside_tokens,
    )


def _check(template: Template, guide: bool, question_first: bool) -> None:
    if guide and not template.guide:
        raise SettingsError(
            f"Template '{template.name}' has no 'guide'. Add one, or leave out --guide."
        )
    if question_first and not template.question_first:
        key = "question_first" if template.chat else "text_question_first"
        raise SettingsError(
            f"Template '{template.name}' has no '{key}' for --question-position start."
        )


def _rendered(render: Render, rows: Sequence[tuple[str, str]]) -> Frame:
    """Return a frame whose messages are one run of token ids already."""
    head, tail = render(rows)
    return Frame(
        messages=(Message(TEXT, ()),),
        context=0,
        before=(head.span(),),
        after=(tail.span(),),
        outside_tokens=0,
    )


def _spans(text: str, index: Index) -> tuple[Span, ...]:
    if not text:
        return ()
    return (index(text.encode()).span(),)
