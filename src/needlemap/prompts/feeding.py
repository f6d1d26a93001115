"""Make the token ids that a model sees: those of the whole prompt, its chat template included.

A server is sent text, so a model in this process is fed the ids that a server of the same weights
would make of that text. Lengths may be counted in another vocabulary: OpenCompass counts gpt-4's
tokens for every model. A haystack is tokenised once. Of each prompt, only the windows around its
seams are tokenised, from a safe cut before each seam to one after it, as lengths are counted too.
If that is not reliable, whole prompts are tokenised.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from needlemap.errors import SettingsError
from needlemap.models import MARK, Render
from needlemap.prompts import MARGIN, TEXT, Prompt, adds_up
from needlemap.text.tokens import Cuts, Span, Tokenizer, TokenText

if TYPE_CHECKING:
    from needlemap.prompts.placement import Frame

# Tokens of a haystack that stand for all of it.
_SAMPLE = 64
# Tokens at either end of a window that must be the haystack's own.
_ENDS = 4
# Roles and texts.
Rows = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Feeder:
    """The vocabulary and the chat template of a model.

    Attributes:
        tokenizer: The vocabulary.
        render: Applies the chat template.
        counts: Whether lengths are counted in this vocabulary, with what the template adds.
        fed: Whether the model is fed the ids; if not, a server makes them of the text.
        marks: Spellings of special tokens. A server takes them for these tokens.
    """

    tokenizer: Tokenizer
    render: Render
    counts: bool = False
    fed: bool = True
    marks: tuple[bytes, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Return a hash of the vocabulary and the template, which decide the ids of any text."""
        rendered_parts = [bytes(part.data) for part in self.render([(TEXT, f"a{MARK}b")])]
        template_hash = hashlib.sha256(b"|".join(rendered_parts)).hexdigest()[:16]
        return f"{self.tokenizer.fingerprint}:{template_hash}"

    def whole(self, rows: Rows) -> tuple[Span, ...]:
        """Return the spans of texts without a haystack of ours, tokenised as a whole."""
        return tuple(part.span() for part in self.render(rows) if len(part))

    def with_model_ids(
        self,
        prompt: Prompt,
        make: Callable[[Prompt], tuple[Span, ...]] | None = None,
        haystack: TokenText | None = None,
    ) -> Prompt:
        """Return a prompt with the ids that the model sees, or as it is if they are not known.

        make: makes its spans; without it, its text is tokenised as a whole. haystack: a text in it
        that spells no special token.
        """
        if not self.fed and self.is_ambiguous(prompt, haystack):
            return prompt
        try:
            spans = make(prompt) if make else self.whole(rows_of(prompt))
        except SettingsError:
            # The template refuses these messages.
            if self.fed:
                raise
            return prompt

        prompt = replace(prompt, ids_sha256=ids_sha256(spans))
        if not self.fed:
            return prompt
        tokens = sum(map(len, spans)) if self.counts else prompt.tokens
        return replace(prompt, fed=spans, tokens=tokens)

    def is_ambiguous(self, prompt: Prompt, haystack: TokenText | None = None) -> bool:
        """Return True if a server may make other ids of a prompt than we do.

        That is so if the prompt spells special tokens or starts the answer, which servers treat in
        different ways.

        haystack: a text in it that spells no special token.
        """
        if prompt.messages[-1].role == "assistant":
            return True
        return any(
            self.spelt(bytes(span.data))
            for message in prompt.messages
            for span in message.spans
            if span.text is not haystack
        )

    def spelt(self, data: bytes) -> bool:
        """Return True if a text spells a special token."""
        return any(mark in data for mark in self.marks)


def ids_sha256(spans: Iterable[Span]) -> str:
    """Return the hash of token ids, as integers of 32 bits, the lowest byte first."""
    digest = hashlib.sha256()
    for span in spans:
        digest.update(np.ascontiguousarray(span.ids, "<i4").data)
    return digest.hexdigest()


class Feed:
    """Feeds a model the prompts of one haystack, and remembers what it has tokenised.

    Args:
        feeder: The vocabulary and the chat template of the model.
        haystack: The text as the counting vocabulary tokenised it.
        cuts: The cuts of that text, if the vocabulary is the model's and the text was tokenised as
            a whole.
        known: Whether the model's counts add up at these cuts; None to try.
    """

    def __init__(
        self,
        feeder: Feeder,
        haystack: TokenText,
        cuts: Cuts | None = None,
        known: bool | None = None,
    ) -> None:
        self._feeder = feeder
        self._counted = haystack
        self._own = feeder.tokenizer.index(haystack.data) if cuts is None else haystack
        self._cuts = cuts or Cuts.of(self._own)
        self._plain = None if feeder.spelt(haystack.data) else haystack
        is_same = self._own.data == haystack.data
        if known is None:
            known = is_same and adds_up(feeder.tokenizer, self._own, self._cuts)
        self.windowed = is_same and known
        self._rendered = cache(feeder.render)
        self._window = cache(self._window_tokens)

    def fed(self, prompt: Prompt) -> Prompt:
        """Return the prompt with what the model sees of it, if that is known."""
        fed_prompt = self._feeder.with_model_ids(prompt, make=self._spans, haystack=self._plain)
        off_by = prompt.off_by + fed_prompt.tokens - prompt.tokens
        return replace(fed_prompt, off_by=off_by)

    def _spans(self, prompt: Prompt) -> tuple[Span, ...]:
        spans = self._windowed_spans(prompt) if self.windowed else None
        return spans or self._feeder.whole(rows_of(prompt))

    def framed(self, frame: Frame) -> Frame:
        """Return a frame whose tokens include what the template adds, if lengths count that.

        It is measured on the haystack's start: the tokens of the whole minus those of the text.
        """
        if not (self._feeder.fed and self._feeder.counts):
            return frame
        stop = int(self._cuts.character[min(_SAMPLE, len(self._own))])
        spans = (*frame.before, self._own.span(0, stop), *frame.after)
        messages = list(frame.messages)
        messages[frame.context] = replace(messages[frame.context], spans=spans)
        whole = self._feeder.whole(rows_of(Prompt(tuple(messages))))
        text_tokens = self._feeder.tokenizer.count(messages[frame.context].content.encode())
        return replace(frame, outside_tokens=sum(map(len, whole)) - text_tokens)

    def _windowed_spans(self, prompt: Prompt) -> tuple[Span, ...] | None:
        """Return a prompt as pieces of the haystack's own tokens, with windows between.

        Return None if the prompt has no such piece, or if tokens merge beyond a window.
        """
        number = prompt.context[0]
        windows, pieces = self._parts(prompt.messages[number].spans)
        if not pieces:
            return None

        between = [self._window(data) for data in windows[1:-1]]
        # The outer windows are tokenised together with the template around them.
        ends = windows[0].decode(errors="replace") + MARK + windows[-1].decode(errors="replace")
        rows = [
            (message.role, ends if place == number else message.content)
            for place, message in enumerate(prompt.messages)
        ]
        head, tail = self._rendered(tuple(rows))

        spans = [head.span(), pieces[0]]
        for window, piece in zip(between, pieces[1:], strict=True):
            if window is None:
                return None
            spans += [window.span(), piece]
        spans.append(tail.span())
        return tuple(spans) if self._agree(spans) else None

    def _agree(self, spans: Sequence[Span]) -> bool:
        """Return True if windows start and end with the haystack's own tokens.

        Then nothing merges beyond them. spans: a window, a piece of the haystack, a window, and so
        on.
        """
        own = self._own.ids
        for before, piece, after in zip(spans[:-2:2], spans[1:-1:2], spans[2::2], strict=True):
            left = before.ids[-_ENDS:]
            right = after.ids[:_ENDS]
            if not np.array_equal(left, own[piece.start - len(left) : piece.start]):
                return False
            if not np.array_equal(right, own[piece.stop : piece.stop + len(right)]):
                return False
        return True

    def _parts(self, spans: Sequence[Span]) -> tuple[list[bytes], list[Span]]:
        """Return a message as windows of text, and the haystack's own tokens between them."""
        own = self._own
        windows: list[bytes] = []
        pieces: list[Span] = []
        window = b""
        for span in spans:
            piece = self._inner_piece(span)
            if piece is None:
                window += bytes(span.data)
                continue
            start = int(span.text.offsets[span.start])
            stop = int(span.text.offsets[span.stop])
            windows.append(window + own.data[start : own.offsets[piece.start]])
            pieces.append(piece)
            window = own.data[own.offsets[piece.stop] : stop]
        windows.append(window)
        return windows, pieces

    def _inner_piece(self, span: Span) -> Span | None:
        """Return the part of a haystack span that no seam can touch, in the model's tokens.

        The part lies between safe cuts. Return None if the span is of another text or too short.
        """
        if span.text is not self._counted:
            return None
        start_byte, stop_byte = span.text.offsets[[span.start, span.stop]]
        first = int(np.searchsorted(self._own.offsets, start_byte)) + MARGIN
        last = int(np.searchsorted(self._own.offsets, stop_byte, side="right")) - 1 - MARGIN
        if not 0 <= first < last:
            return None
        start = int(self._cuts.safe_after[first])
        stop = int(self._cuts.safe_before[last])
        return Span(self._own, start, stop) if start < stop else None

    def _window_tokens(self, data: bytes) -> TokenText | None:
        return self._feeder.tokenizer.index_inside(data.decode(errors="replace").encode())


def rows_of(prompt: Prompt) -> Rows:
    """Return a prompt's roles and texts."""
    return tuple((message.role, message.content) for message in prompt.messages)
