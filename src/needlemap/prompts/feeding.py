"""Prompts as the token ids that a model sees: those of the whole text, its chat template
included.

A server is sent text, so a model in this process is fed what a server of the same weights
would make of it. Another vocabulary may count lengths: OpenCompass counts gpt-4's tokens
whatever the model. A haystack is tokenised once: of a prompt only the windows around its seams
are, from a safe cut before each to one behind it, as lengths are counted too. Where that
cannot be trusted, whole prompts are tokenised.
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

_SAMPLE = 64  # tokens of a haystack that stand for it
_ENDS = 4  # tokens at either end of a window that must be the haystack's own
Rows = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Feeder:
    """The vocabulary and the chat template of a model.

    counts: whether lengths are counted in this vocabulary, what the template adds included.
    fed: whether the model is fed the ids; else a server makes them of the text. marks:
    spellings of special tokens, which a server takes for those.
    """

    tokenizer: Tokenizer
    render: Render
    counts: bool = False
    fed: bool = True
    marks: tuple[bytes, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Hash of what it makes of any text: vocabulary, template, first token."""
        around = [bytes(part.data) for part in self.render([(TEXT, f"a{MARK}b")])]
        return f"{self.tokenizer.fingerprint}:{hashlib.sha256(b'|'.join(around)).hexdigest()[:16]}"

    def whole(self, rows: Rows) -> tuple[Span, ...]:
        """A text without a haystack of ours, tokenised as a whole."""
        return tuple(part.span() for part in self.render(rows) if len(part))

    def seen(
        self,
        prompt: Prompt,
        make: Callable[[Prompt], tuple[Span, ...]] | None = None,
        haystack: TokenText | None = None,
    ) -> Prompt:
        """A prompt with what the model sees of it, if that is known. make: makes its spans;
        else its text is tokenised as a whole. haystack: a text in it that spells no special
        token."""
        if not self.fed and self.is_open(prompt, haystack):
            return prompt
        try:
            spans = make(prompt) if make else self.whole(rows_of(prompt))
        except SettingsError:  # its template refuses these messages
            if self.fed:
                raise
            return prompt
        known = replace(prompt, ids_sha256=ids_sha256(spans))
        if not self.fed:
            return known
        return replace(
            known, fed=spans, tokens=sum(map(len, spans)) if self.counts else prompt.tokens
        )

    def is_open(self, prompt: Prompt, haystack: TokenText | None = None) -> bool:
        """Whether a server may make other ids of a prompt: where it spells special tokens, or
        begins the answer, which servers take in different ways."""
        spans = (
            span
            for message in prompt.messages
            for span in message.spans
            if span.text is not haystack
        )
        return prompt.messages[-1].role == "assistant" or any(
            self.spelt(bytes(span.data)) for span in spans
        )

    def spelt(self, data: bytes) -> bool:
        """Whether a text spells a special token."""
        return any(mark in data for mark in self.marks)


def ids_sha256(spans: Iterable[Span]) -> str:
    """Hash of token ids, as whole numbers of 32 bits, the lowest byte first."""
    digest = hashlib.sha256()
    for span in spans:
        digest.update(np.ascontiguousarray(span.ids, "<i4").data)
    return digest.hexdigest()


class Feed:
    """Feeds a model the prompts of one haystack; remembers what it has tokenised.

    haystack: as the counting vocabulary tokenised it. cuts: its own, where that is the model's
    vocabulary and the text was tokenised as a whole. known: whether its counts add up there; None:
    that is tried.
    """

    def __init__(
        self,
        feeder: Feeder,
        haystack: TokenText,
        cuts: Cuts | None = None,
        known: bool | None = None,
    ) -> None:
        self._feeder, self._counted = feeder, haystack
        self._own = feeder.tokenizer.index(haystack.data) if cuts is None else haystack
        self._cuts = cuts or Cuts.of(self._own)
        self._plain = None if feeder.spelt(haystack.data) else haystack
        same = self._own.data == haystack.data
        if known is None:
            known = same and adds_up(feeder.tokenizer, self._own, self._cuts)
        self.windowed = same and known
        self._rendered, self._window = cache(feeder.render), cache(self._tokenised)

    def fed(self, prompt: Prompt) -> Prompt:
        """The prompt with what the model sees of it, if that is known."""
        made = self._feeder.seen(prompt, self._spans, self._plain)
        return replace(made, off_by=prompt.off_by + made.tokens - prompt.tokens)

    def _spans(self, prompt: Prompt) -> tuple[Span, ...]:
        return (self._pieced(prompt) if self.windowed else None) or self._feeder.whole(
            rows_of(prompt)
        )

    def framed(self, frame: Frame) -> Frame:
        """A frame whose tokens include what the template adds, where lengths count that.

        Measured on the haystack's beginning, as a server's count minus ours would be.
        """
        if not (self._feeder.fed and self._feeder.counts):
            return frame
        sample = self._own.span(0, int(self._cuts.character[min(_SAMPLE, len(self._own))]))
        text = replace(frame.messages[frame.context], spans=(*frame.before, sample, *frame.after))
        around = frame.messages[: frame.context], frame.messages[frame.context + 1 :]
        whole = self._feeder.whole(rows_of(Prompt((*around[0], text, *around[1]))))
        counted = self._feeder.tokenizer.count(text.content.encode())
        return replace(frame, outside_tokens=sum(map(len, whole)) - counted)

    def _pieced(self, prompt: Prompt) -> tuple[Span, ...] | None:
        """Pieces of the haystack's own tokens, and windows between; None where there is no
        such piece."""
        number = prompt.context[0]
        windows, inner = self._parts(prompt.messages[number].spans)
        if not inner:
            return None
        between = [self._window(window) for window in windows[1:-1]]
        around = windows[0].decode(errors="replace") + MARK + windows[-1].decode(errors="replace")
        rows = (
            (message.role, around if place == number else message.content)
            for place, message in enumerate(prompt.messages)
        )
        head, tail = self._rendered(tuple(rows))
        spans = [head.span(), inner[0]]
        for window, piece in zip(between, inner[1:], strict=True):
            if window is None:
                return None
            spans += [window.span(), piece]
        return (*spans, tail.span()) if self._agree([*spans, tail.span()]) else None

    def _agree(self, spans: Sequence[Span]) -> bool:
        """Whether windows begin and end with the haystack's own tokens: so nothing merges
        beyond them."""
        own = self._own.ids
        for before, piece, behind in zip(spans[:-2:2], spans[1:-1:2], spans[2::2], strict=True):
            left, right = before.ids[-_ENDS:], behind.ids[:_ENDS]
            if not np.array_equal(left, own[piece.start - len(left) : piece.start]):
                return False
            if not np.array_equal(right, own[piece.stop : piece.stop + len(right)]):
                return False
        return True

    def _parts(self, spans: Sequence[Span]) -> tuple[list[bytes], list[Span]]:
        """A message as windows of text, and between them pieces of the haystack's own
        tokens."""
        windows, inner, data = [], list[Span](), b""
        for span in spans:
            piece = self._inner(span)
            if piece is None:
                data += bytes(span.data)
                continue
            own, start = self._own.offsets, int(span.text.offsets[span.start])
            windows.append(data + self._own.data[start : own[piece.start]])
            data = self._own.data[own[piece.stop] : int(span.text.offsets[span.stop])]
            inner.append(piece)
        return [*windows, data], inner

    def _inner(self, span: Span) -> Span | None:
        """The part of a haystack span, between safe cuts, that no seam can touch, in the
        model's tokens."""
        if span.text is not self._counted:
            return None
        ends = span.text.offsets[[span.start, span.stop]]
        first = int(np.searchsorted(self._own.offsets, ends[0])) + MARGIN
        last = int(np.searchsorted(self._own.offsets, ends[1], side="right")) - 1 - MARGIN
        if not 0 <= first < last:
            return None
        start, stop = int(self._cuts.safe_after[first]), int(self._cuts.safe_before[last])
        return Span(self._own, start, stop) if start < stop else None

    def _tokenised(self, data: bytes) -> TokenText | None:
        return self._feeder.tokenizer.index_inside(data.decode(errors="replace").encode())


def rows_of(prompt: Prompt) -> Rows:
    """A prompt's roles and texts."""
    return tuple((message.role, message.content) for message in prompt.messages)
