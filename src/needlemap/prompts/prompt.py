"""A prompt and its messages: spans, from which text, ids and length are derived."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from needlemap.text.tokens import Span, TokenText

if TYPE_CHECKING:
    from needlemap.tasks import Needle


TEXT = "text"  # the role of a prompt that is one plain text, for base models


@dataclass(frozen=True, slots=True)
class Message:
    """What one role says. role: 'system', 'user', 'assistant', or TEXT for a plain text."""

    role: str
    spans: tuple[Span, ...]

    @property
    def data(self) -> bytes:
        """Its UTF-8 bytes: one join of slices."""
        return b"".join([span.data for span in self.spans])

    @property
    def content(self) -> str:
        """Its text. Bytes of a split character (older tools' habit, in their presets only)
        become U+FFFD."""
        return self.data.decode("utf-8", errors="replace")


@dataclass(frozen=True, slots=True)
class PlacedNeedle:
    """Where a needle was meant to be and where it is.

    Depths are shares in [0, 1]; byte is its first byte's offset in the context.
    """

    meant: float
    realised: float
    byte: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt.

    question: its text, for extractive baselines. answer_prefix: the answer's beginning, if it
    is given to the model, so that what the model says goes on from there. context: the
    message, and the range of its spans, that hold haystack and needles. breakpoints: spans of
    that message AFTER which a prefix shared with other prompts ends, for providers that want
    to be told. partings: lengths in tokens at which prompts asked later part from it, for
    caches that need them. tokens: length by the tokenizer, without the reserve.

    fed: what the model is fed, in its own vocabulary and with its chat template, where it is
    fed the ids of whole texts. ids_sha256: hash of the ids that the model sees, '' where
    unknown.

    stops: texts that end its answer, as its template says.

    What rebuilds it: positions (haystack tokens before each needle), haystack_tokens, pad
    (added at the haystack's end for the exact length). off_by: tokens by which the asked
    length was missed.
    """

    messages: tuple[Message, ...]
    question: str = ""
    context: tuple[int, int, int] = (0, 0, 0)
    breakpoints: tuple[int, ...] = ()
    needles: tuple[PlacedNeedle, ...] = ()
    tokens: int = 0
    haystack_tokens: int = 0
    positions: tuple[int, ...] = ()
    pad: str = ""
    off_by: int = 0
    answer_prefix: str = ""
    fed: tuple[Span, ...] = ()
    ids_sha256: str = ""
    partings: tuple[int, ...] = ()
    stops: tuple[str, ...] = ()

    @classmethod
    def plain(cls, messages: Iterable[tuple[str, str]]) -> Prompt:
        """A prompt from (role, text) pairs, not tokenised."""
        return cls(
            tuple(
                Message(role, (TokenText.opaque(text.encode("utf-8", "replace")).span(),))
                for role, text in messages
            )
        )

    @property
    def chat(self) -> bool:
        """Whether it is chat messages (True) or one plain text (False)."""
        return self.messages[0].role != TEXT

    @property
    def context_spans(self) -> Sequence[Span]:
        """The spans of haystack and needles, in order."""
        message, start, stop = self.context
        return self.messages[message].spans[start:stop]

    @property
    def context_text(self) -> str:
        """Haystack with needles, without template and question."""
        return b"".join([span.data for span in self.context_spans]).decode(
            "utf-8", errors="replace"
        )

    @property
    def spans(self) -> tuple[Span, ...]:
        """All that is asked, in order: what the model is fed, or the messages' own spans."""
        return self.fed or tuple(span for message in self.messages for span in message.spans)

    @property
    def ids(self) -> NDArray[np.int32]:
        """Token ids of all spans, in order; where the model is fed text, without its chat
        template."""
        return np.concatenate([span.ids for span in self.spans])

    @property
    def asked_tokens(self) -> int:
        """How many tokens are asked: of the model's own vocabulary where another one counts
        lengths."""
        return sum(map(len, self.fed)) if self.fed else self.tokens

    @property
    def sha256(self) -> str:
        """Hash of roles and bytes."""
        digest = hashlib.sha256()
        for message in self.messages:
            digest.update(message.role.encode() + b"\0")
            for span in message.spans:
                digest.update(span.data)
            digest.update(b"\0")
        return digest.hexdigest()


def restored(prompt: Prompt, order: Sequence[int]) -> Prompt:
    """A prompt built with needles in this order, listing them in the order they came."""
    if list(order) == sorted(order):
        return prompt
    places = sorted(range(len(order)), key=order.__getitem__)
    return replace(
        prompt,
        needles=tuple(prompt.needles[place] for place in places),
        positions=tuple(prompt.positions[place] for place in places),
    )


def placed(
    needles: Sequence[Needle],
    positions: tuple[int, ...],
    stop: int,
    context: list[Span],
    besides: Sequence[TokenText],
) -> tuple[PlacedNeedle, ...]:
    """Each needle's meant and realised depth and its byte in the context, behind a space put
    before it.

    Its bytes are not looked for: the tokenizer may have normalised them. besides: texts of
    other spans.
    """
    spans, offset = [], 0
    for span in context:
        if not any(span.text is text for text in besides):
            spans.append((offset, bytes(span.data[:1])))
        offset += len(span.data)
    return tuple(
        PlacedNeedle(
            needle.depth, position / stop, start + (first == b" " and needle.text[0] != " ")
        )
        for needle, position, (start, first) in zip(needles, positions, spans, strict=False)
    )
