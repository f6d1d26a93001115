"""A check when a model is loaded: does one cache give what the model gives without any?

Two short prompts that part in the middle are walked, long, short and long again, in one piece and in three,
each with single tokens behind it, and compared with passes without a cache. Passes of other shapes tell what
rounding does. The first of `WAYS` that is as good is taken. A model without one is refused: an encoder, or
code that remembers what it was asked before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from needlemap.errors import SettingsError, Unmeasured
from needlemap.models.hf_engine import WAYS, HuggingFaceEngine, Way
from needlemap.models.walk import Ids, Logits

_TOKENS, _MOST = 48, 640  # of the longer prompt: as a rule, and to cross a window or a switch
_CHEAP = {"cpu": 2e11, "cuda": 2e13}  # weights times tokens that such a longer prompt may take
_STEPS = 2  # single tokens behind a prompt
_TIMES = 3.0  # a difference is more than so many times what rounding does
_UNLIKE = 0.1  # of the logits' spread: more than rounding ever does
_ENCODER = (
    "it is an encoder: what it computes for a token changes with the tokens behind it. needlemap asks causal "
    "(decoder-only) language models."
)
_MEMORY = (
    "the same tokens, computed twice without a cache, come out differently: no answer of it could be trusted."
)
_FINE, _COARSE = 1e-3, 1e-2  # of the spread: what rounding may do at least, in float32 and below


@dataclass(frozen=True, slots=True)
class Text:
    """Tokens, and the logits behind each of them from a pass without a cache, (tokens, vocabulary)."""

    ids: Ids
    rows: Logits


@dataclass(frozen=True, slots=True)
class Check:
    """Two texts that share their first `parting` tokens. most: the largest difference that rounding explains;
    unlike: what it never explains."""

    long: Text
    short: Text
    parting: int
    most: float
    unlike: float


def settle(engine: HuggingFaceEngine, sample: Ids | None = None) -> tuple[str, ...]:
    """Let an engine compute in the first way that gives what passes without a cache give; what a user should
    know of that. sample: tokens of any text. Raises SettingsError for a model that has no such way."""
    check = _prepared(engine, sample)
    ways, chunk = WAYS[WAYS.index(engine.way) :], engine.chunk
    found = next((way for way in ways if not way.cached or _is_good(engine, way, check)), WAYS[-1])
    engine.way, engine.chunk = found, chunk
    engine.prepare(0, ())
    engine.crop(0)
    return _notes(engine)


def _prepared(engine: HuggingFaceEngine, sample: Ids | None) -> Check:
    """Passes without a cache. Raises SettingsError where they do not even agree with each other."""
    size = _size(engine)
    draw = np.random.default_rng(0)
    known = np.arange(engine.vocabulary, dtype=np.int32) if sample is None or not len(sample) else sample
    one, other = draw.choice(known, size).astype(np.int32), draw.choice(known, size).astype(np.int32)
    parting, short = size // 2, size // 2 + size // 4
    other[:parting] = one[:parting]
    other[parting] = next((token for token in known if token != one[parting]), other[parting])
    rows, others = engine.alone(one, size), engine.alone(other, size)
    spread = _spread(rows)
    least = (_FINE if "float32" in str(engine.model.dtype) else _COARSE) * spread
    # The same tokens, with others behind them: alike but where weights are quantised by what all tokens are.
    behind = difference(rows[:parting], others[:parting])
    if not behind <= (_UNLIKE * spread if engine.way.cached else least):
        raise SettingsError(_ENCODER if difference(rows, engine.alone(one, size)) <= least else _MEMORY)
    _settle_positions(engine, one, rows, least)
    cut = engine.alone(one[: size - size // 8], size - size // 8)
    brief = engine.alone(other[:short], short)
    rounding = max(behind, difference(cut, rows[: len(cut)]))
    if engine.switch is None:
        rounding = max(rounding, difference(brief, others[:short]))
    most = max(_TIMES * rounding, least)
    return Check(Text(one, rows), Text(other[:short], brief), parting, most, max(most, _UNLIKE * spread))


def _size(engine: HuggingFaceEngine) -> int:
    """Tokens of the longer prompt: across the window and the switch where that is cheap."""
    weights = sum(each.numel() for each in engine.model.parameters())
    most = min(_MOST, int(_CHEAP.get(engine.device.type, _CHEAP["cpu"]) / max(weights, 1)))
    size = _TOKENS
    if engine.sliding is not None and 2 * engine.sliding + 16 <= most:
        size = max(size, 2 * engine.sliding + 16)
    if engine.switch is None:
        return size
    if not engine.switch.steady:  # beyond it, each length has positions of its own
        return min(size, engine.switch.at)
    return engine.switch.at + 24 if engine.switch.at + 24 <= most else min(size, engine.switch.at)


def _settle_positions(engine: HuggingFaceEngine, ids: Ids, rows: Logits, least: float) -> None:
    """Leave positions to a model that counts its own from elsewhere than 0."""
    if not engine.positions:
        return
    try:
        engine.positions = difference(engine.alone(ids, len(ids), placed=True), rows) <= least
    except Exception:  # it takes none, whatever its signature says
        engine.positions = False


def _is_good(engine: HuggingFaceEngine, way: Way, check: Check) -> bool:
    """Whether a way gives what passes without a cache give."""
    size = len(check.long.ids)
    engine.way = way
    try:
        walks = [_walk(engine, check, (check.long, check.short, check.long), size)]
        if way.pieces:
            walks.append(_walk(engine, check, (check.long, check.short), -(-size // 3)))
    except Unmeasured:
        raise
    except Exception:  # a model's own code may raise anything
        return False
    alone = walks[0][0][1]  # what single tokens do behind a fresh prompt: some scan otherwise than they step
    steps = max(check.most, _TIMES * alone) if alone <= check.unlike else check.most
    pairs = [pair for walk in walks for pair in walk]
    return all(prompt <= check.most and step <= steps for prompt, step in pairs)


def _walk(
    engine: HuggingFaceEngine, check: Check, texts: tuple[Text, ...], chunk: int
) -> list[tuple[float, float]]:
    """For each text the differences of its prompt's logits, and of single tokens' behind it."""
    engine.chunk = chunk
    engine.crop(0)
    return [_asked(engine, text, check.parting if place else 0) for place, text in enumerate(texts)]


def _asked(engine: HuggingFaceEngine, text: Text, shared: int) -> tuple[float, float]:
    stop = len(text.ids) - _STEPS
    engine.prepare(stop, (shared,) if shared else (len(text.ids) // 2,))
    kept = engine.crop(shared)
    prompt = difference(engine.extend_all(text.ids[kept:stop]), text.rows[kept:stop])
    steps = [engine.extend(text.ids[place : place + 1]) for place in range(stop, len(text.ids))]
    engine.crop(stop)
    return prompt, difference(np.stack(steps), text.rows[stop:])


def difference(left: Logits, right: Logits) -> float:
    """The median over positions of the root mean square difference of two (tokens, vocabulary) logits. What
    is added to all of a position does not count."""
    both = np.nan_to_num(left - right, posinf=0.0, neginf=0.0)
    both -= both.mean(axis=-1, keepdims=True)
    return float(np.median(np.sqrt((both * both).mean(axis=-1))))


def _spread(rows: Logits) -> float:
    """The logits' standard deviation at a position in the middle of them all."""
    return float(np.median(np.nan_to_num(rows, posinf=0.0, neginf=0.0).std(axis=-1)))


def _notes(engine: HuggingFaceEngine) -> tuple[str, ...]:
    """What a user should know of how an engine computes."""
    way, notes = engine.way, []
    if not way.cached:
        notes.append(
            "it keeps no cache that serves the next token: each answer token computes the whole prompt"
        )
    elif engine.share and not way.share:
        notes.append(
            "what its cache holds of one prompt does not serve another: every prompt is computed in full"
        )
    if way.cached and not way.pieces:
        notes.append("its result hangs on how a prompt is cut: each prompt is computed in one piece")
    if engine.switch is not None:
        notes.append(
            f"positions are turned otherwise beyond {engine.switch.at:,} tokens: prompts on one side of that "
            f"share nothing with those on the other"
        )
    return tuple(notes)
