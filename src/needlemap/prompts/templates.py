"""How haystack and question become messages, or one text; and the frame, their tokenised
surroundings.

Wording is data (`templates/*.yaml`).
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

Index = Callable[[bytes], TokenText]  # tokenises a whole text
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
    """A message. text: as it is written, with {haystack} and {question}."""

    role: str
    text: str

    def filled(self, haystack: str, question: str) -> str:
        """The text with both."""
        return fill(self.text, {"haystack": haystack, "question": question}, "A template")

    def around(self, question: str) -> tuple[str, str | None]:
        """The texts before and after the haystack; None as the second where it holds no
        haystack."""
        sides = [""]
        for literal, name in _parse(self.text, "A template"):
            sides[-1] += literal + (question if name == "question" else "")
            sides += [""] if name == "haystack" else []
        return sides[0], sides[1] if len(sides) > 1 else None


@dataclass(frozen=True, slots=True)
class Template:
    """Messages with the question at the end, and (where the template has them) with the
    question first.

    guide: a sentence that asks to think of the relevant part first; it goes before
    guide_marker in the question, or after the question where the marker does not occur.
    answer_prefix: the answer's beginning. stop: texts that end it, behind which a base model
    goes on with a question of its own.
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
        """Chat messages (True) or one plain text (False)."""
        return self.parts[0].role != TEXT


def load_template(name: str) -> Template:
    """A template by name (see `needlemap list templates`) or from a YAML file.

    Raises SettingsError for unknown names, keys and placeholders.
    """
    data = TEMPLATES.read(name)
    if not isinstance(data, dict):
        raise SettingsError(f"Template '{name}' must be a mapping with 'messages' or 'text'.")
    return parse_template(data, name)


def parse_template(data: dict[str, Any], name: str) -> Template:
    """A template from its data: `messages` (role and text each) or `text`, and the optional
    keys."""
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
        name,
        _parts(data["messages" if chat else "text"], name),
        _parts(first, name) if first else (),
        str(data.get("guide", "")),
        str(data.get("guide_marker", "")),
        str(data.get("answer_prefix", "")),
        _stop(data.get("stop"), name),
    )


def _stop(data: Any, name: str) -> tuple[str, ...]:
    given = [data] if isinstance(data, str) else data or []
    if not isinstance(given, list) or not all(isinstance(each, str) and each for each in given):
        raise SettingsError(
            f"Template '{name}': 'stop' is a text or a list of texts, got {data!r}."
        )
    return tuple(given)


def guided(question: str, guide: str, marker: str = "") -> str:
    """A question with a guide sentence before its marker, or behind it where it has no such
    marker.

    A second marker and what follows it fall away, as in OpenCompass.

    >>> guided("Who? Please answer in one word.", "Think first. ", "Please answer")
    'Who? Think first. Please answer in one word.'
    """
    before, found, after = question.partition(marker) if marker else (question, "", "")
    if not found:
        gap = "" if not guide or question.endswith((" ", "\n")) or ord(guide[0]) >= 0x2E80 else " "
        return question + gap + guide.rstrip()
    return before + guide + marker + after.split(marker)[0]


def fill(text: str, values: dict[str, str], what: str) -> str:
    """A text with its {placeholders} replaced; unknown ones are errors, {{ and }} are
    braces."""
    filled = []
    for literal, name in _parse(text, what):
        filled.append(literal)
        if name is not None:
            if name not in values:
                known = (
                    did_you_mean(name, values) if values else "It has none; write {{ }} for braces."
                )
                raise SettingsError(f"{what}: unknown placeholder {{{name}}}. {known}")
            filled.append(values[name])
    return "".join(filled)


def placeholders(text: str, what: str) -> list[str]:
    """The names in braces in a text, in their order. Raises SettingsError for broken
    braces."""
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
    pieces = (piece for part in parts for piece in _parse(part.text, f"Template '{name}'"))
    found = [placeholder for _, placeholder in pieces if placeholder is not None]
    for placeholder in found:
        if placeholder not in _PLACEHOLDERS:
            hint = did_you_mean(placeholder, _PLACEHOLDERS)
            raise SettingsError(f"Template '{name}': unknown placeholder {{{placeholder}}}. {hint}")
    for placeholder in _PLACEHOLDERS:
        if (times := found.count(placeholder)) != 1:
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
    braces = "Write {{ and }} for braces that are meant as text."
    try:
        found = list(Formatter().parse(text))
    except ValueError as error:
        raise SettingsError(f"{what}: {error}. {braces}") from error
    for _, name, layout, conversion in found:
        if layout or conversion:
            raise SettingsError(
                f"{what}: placeholder {{{name}}} takes no ':' or '!' inside. {braces}"
            )
    return [(literal, name) for literal, name, _, _ in found]


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
    """The frame of a question. answer_prefix (else the template's own) begins the answer for
    the model.

    index: tokenises a text. prologue, epilogue: texts right before and behind the haystack.
    salt: a first line that makes the prompt unlike all others, so that no cache knows it.
    render: for models fed with ids: makes the token texts around the context, chat template
    included. Raises SettingsError for a guide, or a question at the start, that the template
    has no words for.
    """
    _check(template, guide, question_first)
    parts = template.question_first if question_first else template.parts
    asked = guided(question, template.guide, template.guide_marker) if guide else question
    texts = [part.around(asked) for part in parts]
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
        Message(part.role, _spans(text, index))
        for part, (text, _) in zip(parts, texts, strict=True)
    ]
    if prefix and parts[context].role != TEXT:
        messages.append(Message("assistant", _spans(prefix, index)))
    outside = sum(
        len(span)
        for place, message in enumerate(messages)
        if place != context
        for span in message.spans
    )
    return Frame(tuple(messages), context, _spans(before, index), _spans(after, index), outside)


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
    """A frame whose messages are already one run of token ids."""
    head, tail = render(rows)
    return Frame((Message(TEXT, ()),), 0, (head.span(),), (tail.span(),), 0)


def _spans(text: str, index: Index) -> tuple[Span, ...]:
    return (index(text.encode()).span(),) if text else ()
