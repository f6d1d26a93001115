"""Prompts that exist already, at their places in a grid: nothing is hidden, moved or cut to make them fit.

A prompt stands at the asked length that is nearest to its own, by ratio, and at the depth nearest to that of its
answer; where the set does not tell depths, all stand at depth 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log, sqrt

from needlemap.errors import SettingsError
from needlemap.framing import Remembering
from needlemap.grid import Cell, Grid
from needlemap.models.base import MARK, Traits
from needlemap.prompts import TEXT, Message, Prompt
from needlemap.resolve import Resolved
from needlemap.settings import Settings
from needlemap.tasks.base import Whole

_REACH = sqrt(2)  # times beyond the shortest and longest asked length that a prompt may be
_MODES = ("exact", "single")
_VOID = (
    *("haystack", "haystack_path", "file_list", "order", "joined", "template", "question_position", "guide"),
    *("placement", "counts", "repeats", "first_repeat", "bin_tolerance", "sigmoid_ends"),
)


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
        whole_prompt(whole, resolved.traits, known, prefix)
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
        sizes = [prompt.tokens + settings.reserve for prompt in prompts]
        raise SettingsError(
            f"No prompt of the set is near an asked length: they have {min(sizes):,} to {max(sizes):,} tokens, "
            f"answers included. Type: --lengths {min(sizes)}:{max(sizes)}:8:log"
        )
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


def whole_prompt(whole: Whole, traits: Traits, known: Remembering, prefix: str = "") -> Prompt:
    """A prompt as it is asked. Raises SettingsError for a conversation and a model that takes one text."""
    rows = list(whole.messages)
    if not traits.chat:
        if len(rows) > 1:
            raise SettingsError(
                "The set's prompts are conversations, and the model takes one text. Use a chat model, or another "
                "set."
            )
        rows = [(TEXT, rows[0][1] + prefix)]
    elif prefix:
        rows.append(("assistant", prefix))
    longest = max(range(len(rows)), key=lambda place: len(rows[place][1]))
    if traits.render is not None:
        role, text = rows[-1]
        spans = tuple(each.span() for each in traits.render([*rows[:-1], (role, text + MARK)]))
        messages: tuple[Message, ...] = (Message(TEXT, spans),)
        longest = 0
    else:
        messages = tuple(Message(role, (known.index(text.encode()).span(),)) for role, text in rows)
    tokens = sum(len(span) for message in messages for span in message.spans)
    context = (longest, 0, len(messages[longest].spans))
    return replace(
        Prompt(messages, context=context, tokens=tokens), question=whole.item.question, answer_prefix=prefix
    )


def _refuse(settings: Settings) -> None:
    if settings.mode not in _MODES:
        raise SettingsError(
            f"Task '{settings.task}' asks prompts as they are, and mode '{settings.mode}' would change them. "
            f"Give --mode exact or single."
        )
    for name in _VOID:
        if getattr(settings, name) != Settings.model_fields[name].default:
            more = (
                ": all its prompts are asked once; --task-options limit=N asks fewer" if "rep" in name else ""
            )
            raise SettingsError(
                f"Task '{settings.task}' asks prompts as they are: leave --{name.replace('_', '-')} out{more}."
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
