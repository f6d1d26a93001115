"""Prompts that exist already, at their places in a grid: nothing is hidden, moved or cut to make them fit.

A prompt stands at the asked length that is nearest to its own, by ratio, and at the depth nearest to that of
its answer; where the set does not tell depths, all stand at depth 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import log, log2, sqrt

import numpy as np

from needlemap.errors import SettingsError
from needlemap.models.base import MARK, Traits
from needlemap.prompts.feeding import Feed, Feeder
from needlemap.prompts.prompt import TEXT, Message, Prompt
from needlemap.prompts.templates import Remembering
from needlemap.settings.grid import Cell, Grid
from needlemap.settings.settings import Settings
from needlemap.tasks import Whole
from needlemap.text.tokens import Span, TokenText
from needlemap.trials.resolve import Resolved

_REACH = sqrt(2)  # times beyond the shortest and longest asked length that a prompt may be
_MODES = ("exact", "single")


@dataclass(frozen=True, slots=True)
class Placed:
    """A prompt of a set: its cell, its number in the file, and as it is asked."""

    cell: Cell
    number: int
    whole: Whole
    prompt: Prompt


@dataclass(frozen=True, slots=True)
class Set:
    """Those of a set's prompts that are near an asked length. notes: what a user should know of them."""

    placed: tuple[Placed, ...]
    grid: Grid
    notes: tuple[str, ...]


def place_wholes(resolved: Resolved, wholes: Sequence[Whole], prefixes: Sequence[str]) -> Set:
    """A set in the settings' grid. prefixes: the beginning of each answer that is given to the model.

    Raises SettingsError for settings that it would not heed, and when no prompt is near an asked length.
    """
    settings = resolved.settings
    _refuse(settings)
    known = Remembering(resolved.tokenizer)
    prompts = [
        whole_prompt(whole, resolved.traits, known, prefix, resolved.feeder or resolved.reader)
        for whole, prefix in zip(wholes, prefixes, strict=True)
    ]
    depths_told = all(whole.depth is not None for whole in wholes)
    placed = []
    for number, (whole, prompt) in enumerate(zip(wholes, prompts, strict=True)):
        length = near_length(prompt.tokens + settings.reserve, resolved.grid.lengths)
        if length is not None:
            depth = _nearest(whole.depth or 0.0, resolved.grid.depths) if depths_told else 0.0
            placed.append(Placed(Cell(length, depth), number, whole, prompt))
    if not placed:
        raise _far(sorted(prompt.tokens + settings.reserve for prompt in prompts))
    notes = _notes(len(wholes) - len(placed), depths_told)
    return Set(tuple(placed), _grid(placed), notes)


def near_length(tokens: int, lengths: Sequence[int]) -> int | None:
    """The asked length nearest to a number of tokens, by ratio; None half an octave beyond both ends.

    >>> near_length(4000, [4096, 8192]), near_length(6000, [4096, 8192]), near_length(20_000, [4096, 8192])
    (4096, 8192, None)
    """
    if not min(lengths) / _REACH <= tokens <= max(lengths) * _REACH:
        return None
    return min(lengths, key=lambda length: abs(log(tokens / length)))


def _far(sizes: Sequence[int]) -> SettingsError:
    """What to say when no prompt, of these many tokens, is near an asked length."""
    count = 1 + round(log2(sizes[-1] / sizes[0]))
    lengths = f"{sizes[0]}:{sizes[-1]}:{count}:log" if count > 1 else str(sizes[-1])
    return SettingsError(
        f"No prompt of the set is near an asked length: they have {sizes[0]:,} to {sizes[-1]:,} tokens, "
        f"answers included. Type: --lengths {lengths}"
    )


def whole_prompt(
    whole: Whole, traits: Traits, known: Remembering, prefix: str = "", feeder: Feeder | None = None
) -> Prompt:
    """A prompt as it is asked. Raises SettingsError for a conversation and a model that takes one text."""
    rows = list(whole.messages)
    if not traits.chat:
        if len(rows) > 1:
            raise SettingsError(
                "The set's prompts are conversations, and the model takes one text. Use a chat model."
            )
        rows = [(TEXT, rows[0][1] + prefix)]
    elif prefix:
        rows.append(("assistant", prefix))
    question = whole.item.question
    if traits.render is not None and not feeder:
        role, text = rows[-1]
        head, tail = traits.render([*rows[:-1], (role, text + MARK)])
        messages: tuple[Message, ...] = (Message(TEXT, (*_parted(head, question), tail.span())),)
    else:
        texts = [(role, known.index(text.encode())) for role, text in rows]
        messages = tuple(Message(role, _parted(text, question)) for role, text in texts)
    sizes = [sum(map(len, message.spans)) for message in messages]
    longest = sizes.index(max(sizes))
    made = Prompt(messages, context=(longest, 0, 1), tokens=sum(sizes))
    made = replace(made, question=question, answer_prefix=prefix)
    return feeder.seen(made) if feeder else made


def lent_prompts(resolved: Resolved, prompts: Iterable[Prompt], *, ready: bool) -> Iterator[Prompt]:
    """Another run's prompts, the same bytes, with the ids that the settings' model is fed.

    ready: whether each is a text of its own. Raises SettingsError for messages and a model that takes one
    text.
    """
    feeder, feed, haystack = resolved.feeder, None, None
    for lent in prompts:
        prompt = replace(lent, fed=(), ids_sha256="")
        if prompt.chat and not resolved.traits.chat:
            raise SettingsError(
                f"These prompts are chat messages, and '{resolved.settings.model}' takes one text. Use a "
                f"chat model, or the prompts of a run whose model takes one text."
            )
        longest = max(prompt.context_spans, key=len, default=prompt.spans[0]).text
        if feeder is not None and not ready and longest is not haystack:
            haystack, feed = longest, Feed(feeder, longest)
        yield feed.fed(prompt) if feed else feeder.seen(prompt) if feeder else prompt


def _parted(text: TokenText, question: str) -> tuple[Span, ...]:
    """A text as two spans, of which the second begins with the question; one where it holds none.

    So a reader of the context, as the baselines are, does not find the question there.
    """
    at = text.data.rfind(question.encode()) if question else -1
    cut = int(np.searchsorted(text.offsets, at, side="right")) - 1
    return (text.span(0, cut), text.span(cut)) if at > 0 and cut > 0 else (text.span(),)


def _refuse(settings: Settings) -> None:
    if settings.mode not in _MODES:
        raise SettingsError(
            f"Task '{settings.task}' asks prompts as they are, and mode '{settings.mode}' would change them. "
            f"Give --mode exact or single."
        )


def _nearest(depth: float, depths: Sequence[float]) -> float:
    return min(depths, key=lambda each: abs(each - depth))


def _grid(placed: Sequence[Placed]) -> Grid:
    """The lengths and depths that occur."""
    lengths = {each.cell.length_tokens for each in placed}
    return Grid(tuple(sorted(lengths)), tuple(sorted({each.cell.depth for each in placed})))


def _notes(left_out: int, depths_told: bool) -> tuple[str, ...]:
    notes = []
    if left_out:
        notes.append(f"{left_out:,} prompts are near no asked length and are left out")
    if not depths_told:
        notes.append("the set does not tell where answers stand: all its prompts are shown at depth 0")
    return tuple(notes)
