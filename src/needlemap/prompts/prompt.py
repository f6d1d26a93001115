"""Define a prompt and its messages: spans, from which text, ids and length are derived."""

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


# The role of a prompt that is one plain text, for base models.
TEXT = "text"


@dataclass(frozen=True, slots=True)
class Message:
    """A message of one role.

    Attributes:
        role: 'system', 'user', 'assistant', or TEXT for a plain text.
        spans: Its text.
    """

    role: str
    spans: tuple[Span, ...]

    @property
    def data(self) -> bytes:
        """Return its UTF-8 bytes."""
        return b"".join([span.data for span in self.spans])

    @property
    def content(self) -> str:
        """Return its text.

        Bytes of a split character become U+FFFD. Only the older tools' presets split characters.
        """
        return self.data.decode("utf-8", errors="replace")


@dataclass(frozen=True, slots=True)
class PlacedNeedle:
    """Where a needle was meant to be and where it is.

    Attributes:
        meant: The depth that was asked for, a share in [0, 1].
        realised: The depth that it has, a share in [0, 1].
        byte: The offset of its first byte in the context.
    """

    meant: float
    realised: float
    byte: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt.

    Attributes:
        messages: Its messages.
        question: The text of its question, for extractive baselines.
        context: The message that holds haystack and needles, and the range of its spans that are
            these.
        breakpoints: Spans of that message after which a prefix shared with other prompts ends, for
            providers that expect such marks.
        needles: The needles in the order in which the item has them.
        tokens: Its length by the tokenizer that counts, without the reserve.
        haystack_tokens: Tokens of the haystack that it holds.
        positions: Haystack tokens before each needle.
        pad: Text that was added at the haystack's end for the exact length.
        off_by: Tokens by which the asked length was missed.
        answer_prefix: The start of the answer, if the model is given that and continues it.
        fed: What the model is fed, in its own vocabulary and with its chat template, if it is fed
            the ids of whole texts.
        ids_sha256: Hash of the ids that the model sees; '' if they are not known.
        partings: Lengths in tokens at which later prompts part from it, for caches that need them.
        stops: Texts that end its answer, as its template sets them.
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
        """Return a prompt of (role, text) pairs, without tokens."""
        return cls(
            tuple(
                Message(role, (TokenText.opaque(text.encode("utf-8", "replace")).span(),))
                for role, text in messages
            )
        )

    @property
    def chat(self) -> bool:
        """Return True for chat messages, and False for one plain text."""
        return self.messages[0].role != TEXT

    @property
    def context_spans(self) -> Sequence[Span]:
        """Return the spans of haystack and needles, in order."""
        message, start, stop = self.context
        return self.messages[message].spans[start:stop]

    @property
    def context_text(self) -> str:
        """Return haystack and needles, without template and question."""
        data = b"".join([span.data for span in self.context_spans])
        return data.decode("utf-8", errors="replace")

    @property
    def spans(self) -> tuple[Span, ...]:
        """Return everything that is asked, in order: what the model is fed, or the messages."""
        return self.fed or tuple(span for message in self.messages for span in message.spans)

    @property
    def ids(self) -> NDArray[np.int32]:
        """Return the token ids of all spans, (n,), in order.

        If the model is fed text, they lack its chat template.
        """
        return np.concatenate([span.ids for span in self.spans])

    @property
    def asked_tokens(self) -> int:
        """Return how many tokens are asked, in the model's own vocabulary if another one counts."""
        return sum(map(len, self.fed)) if self.fed else self.tokens

    @property
    def sha256(self) -> str:
        """Return the hash of roles and bytes."""
        digest = hashlib.sha256()
        for message in self.messages:
            digest.update(message.role.encode() + b"\0")
            for span in message.spans:
                digest.update(span.data)
            digest.update(b"\0")
        return digest.hexdigest()


def continued(first: Prompt, answer: TokenText, further: Prompt) -> Prompt:
    """Return a prompt that continues a conversation: the first prompt, its answer, and another one.

    If both are chats, the answer is a message of its own, and system messages of the further prompt
    are left out. The ids that the model is fed are left empty.
    """
    answer_span = answer.span()
    if first.chat:
        further_messages = [message for message in further.messages if message.role != "system"]
        messages = (*first.messages, Message("assistant", (answer_span,)), *further_messages)
    else:
        spans = (*first.messages[0].spans, answer_span, *further.messages[0].spans)
        messages = (Message(TEXT, spans),)
    return Prompt(
        messages,
        question=further.question,
        tokens=first.tokens + len(answer_span) + further.tokens,
        stops=further.stops,
    )


def restored(prompt: Prompt, order: Sequence[int]) -> Prompt:
    """Return a prompt that lists its needles as the item does.

    order: the needles' numbers, in the order in which the prompt was built.
    """
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
    """Return each needle's meant and realised depth, and its byte in the context.

    The byte is after a space that was put before the needle. A needle's text is not searched for:
    the tokenizer may have normalised it.

    positions: haystack tokens before each needle. stop: haystack tokens of the prompt. besides:
    texts of the spans that are not needles.
    """
    starts = []
    offset = 0
    for span in context:
        if not any(span.text is text for text in besides):
            has_space = bytes(span.data[:1]) == b" "
            starts.append((offset, has_space))
        offset += len(span.data)

    placed_needles = []
    for needle, position, (start, has_space) in zip(needles, positions, starts, strict=False):
        is_space_added = has_space and needle.text[0] != " "
        placed_needles.append(
            PlacedNeedle(
                meant=needle.depth,
                realised=position / stop,
                byte=start + 1 if is_space_added else start,
            )
        )
    return tuple(placed_needles)
