"""A check when a model is loaded: does one cache give what the model gives without any?

Two short prompts that part in the middle are walked: long, short, long again in three pieces, with
single tokens behind the first two, and compared with passes without a cache. Those passes beside
one another, below float32 also beside one of a few tokens, tell what rounding does and whether the
model looks ahead. The first of `WAYS` that is as good is taken. A longer text, where it is cheap,
ends the walk and shows what begins only there. A model without a good way is asked through its own
`generate`, where it prepares that itself, or refused: an encoder, one that draws random numbers,
code that remembers what it was asked before.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from needlemap.errors import SettingsError, Unmeasured
from needlemap.models.hf_engine import GENERATED, WAYS, HuggingFaceEngine
from needlemap.models.model_files import position_limit
from needlemap.models.walk import Ids, Logits

_TOKENS, _MOST = 48, 640  # of the longer prompt: as a rule, and to cross a window or a switch
_CHEAP = {"cpu": 2e10, "cuda": 2e13}  # weights times tokens that such a longer prompt may take
_STEPS = 2  # single tokens behind a prompt
_FEW = 8  # tokens; products of so few are computed otherwise than those of dozens
_TIMES = 3.0  # a difference is more than so many times what rounding does
_UNLIKE = 0.1  # of the logits' spread: more than rounding ever does
_ENCODER = (
    "it is an encoder: what it computes for a token changes with the tokens behind it. needlemap "
    "asks causal "
    "(decoder-only) language models."
)
_MEMORY = (
    "the same tokens, computed twice without a cache, come out differently: no answer of it could "
    "be trusted."
)
_FINE, _COARSE = 1e-3, 1e-2  # of the spread: what rounding may do at least, in float32 and below


@dataclass(frozen=True, slots=True)
class Text:
    """Tokens, and the logits behind each of them from a pass without a cache, (tokens,
    vocabulary)."""

    ids: Ids
    rows: Logits


@dataclass(frozen=True, slots=True)
class CacheCheck:
    """Two texts that share their first `parting` tokens, and one that goes on behind the long one
    where that is cheap. most: the largest difference that rounding explains; spread: of the
    logits."""

    long: Text
    short: Text
    far: Text | None
    parting: int
    most: float
    spread: float


def settle(engine: HuggingFaceEngine, sample: Ids | None = None) -> tuple[str, ...]:
    """Let an engine compute in the first way that gives what passes without a cache give; what
    a user should know of that. sample: tokens of any text. Raises SettingsError for a model
    that has no such way."""
    try:
        _settle(engine, sample)
    except Unmeasured as error:
        raise SettingsError(str(error)) from None
    engine.prepare(0, ())
    engine.crop(0)
    return _notes(engine)


def _settle(engine: HuggingFaceEngine, sample: Ids | None) -> None:
    """Let an engine compute in the first good way. Raises SettingsError or Unmeasured."""
    one, other = _drawn(engine, sample)
    rows, parting = engine.alone(one, len(one)), len(one) // 2
    spread = _spread(rows)
    least = (_FINE if _is_fine(engine) else _COARSE) * spread
    short = _short(engine, other)
    # The same tokens with others behind them: alike, but where weights are quantised by what all
    # tokens are.
    rounding = difference(rows[:parting], _beside(engine, short, other)[:parting])
    if engine.way.cached and not _is_fine(engine) and _is_one_side(engine, one, _FEW):
        rounding = max(rounding, difference(rows[:_FEW], engine.alone(one[:_FEW], _FEW)))
    far = _far(engine, one, other)
    beyond = 0.0 if far is None else difference(rows, far.rows[: len(one)])
    if not max(rounding, beyond) <= (_UNLIKE * spread if engine.way.cached else least):
        _refuse_unless_generated(engine, one, rows, least)
        return
    check = CacheCheck(Text(one, rows), short, far, parting, max(_TIMES * rounding, least), spread)
    ways, chunk = WAYS[WAYS.index(engine.way) :], engine.chunk
    # Some models count positions from elsewhere than 0, and some count them wrong behind a cache.
    given = (True, False) if engine.positions else (False,)
    for engine.way, engine.positions in product(ways, given):
        if not engine.way.cached or _is_good(engine, check):
            break
    engine.chunk = chunk


def _drawn(engine: HuggingFaceEngine, sample: Ids | None) -> tuple[Ids, Ids]:
    """Two texts of one length whose first halves are the same."""
    size = _size(engine)
    draw = np.random.default_rng(0)
    known = (
        np.arange(engine.vocabulary, dtype=np.int32)
        if sample is None or not len(sample)
        else sample
    )
    one, other = (
        draw.choice(known, size).astype(np.int32),
        draw.choice(known, size).astype(np.int32),
    )
    other[: size // 2] = one[: size // 2]
    other[size // 2] = next((token for token in known if token != one[size // 2]), other[size // 2])
    return one, other


def _short(engine: HuggingFaceEngine, other: Ids) -> Text:
    """The shorter text, on this side of a switch; as long as the other where no cache is
    walked."""
    size = len(other) // 2 + len(other) // 4 if engine.way.cached else len(other)
    ids = other[: size if engine.switch is None else min(size, engine.switch.at)]
    return Text(ids, engine.alone(ids, len(ids)))


def _is_fine(engine: HuggingFaceEngine) -> bool:
    """Whether weights are in float32."""
    return "float32" in str(engine.model.dtype)


def _beside(engine: HuggingFaceEngine, short: Text, other: Ids) -> Logits:
    """Logits of a text that begins as the long one, and lies on the same side of a switch."""
    return (
        short.rows
        if _is_one_side(engine, other, len(short.ids))
        else engine.alone(other, len(other))
    )


def _is_one_side(engine: HuggingFaceEngine, text: Ids, tokens: int) -> bool:
    """Whether no switch lies between a text's first tokens and the whole of it."""
    return engine.switch is None or not tokens <= engine.switch.at < len(text)


def _far(engine: HuggingFaceEngine, one: Ids, other: Ids) -> Text | None:
    """A longer text with the same beginning, as long as is cheap and the model has positions
    for."""
    tokens = min(_cheap(engine), position_limit(engine.model.config) or _MOST)
    if engine.switch is not None or tokens <= len(one):
        return None
    ids = np.concatenate([one, np.resize(other, tokens - len(one))])
    try:
        return Text(ids, engine.alone(ids, len(ids)))
    except Unmeasured:
        raise
    except Exception:  # it takes no such text, whatever its configuration says
        return None


def _refuse_unless_generated(
    engine: HuggingFaceEngine, ids: Ids, rows: Logits, least: float
) -> None:
    """Ask a model that looks ahead through its own `generate`, where its code prepares what
    that computes. Raises SettingsError for others: encoders, and those that come out
    differently each time."""
    if not difference(rows, engine.alone(ids, len(ids))) <= least:
        raise SettingsError(_MEMORY)
    if not engine.prepares_itself() or getattr(engine.model.config, "is_decoder", None) is False:
        raise SettingsError(_ENCODER)
    engine.way = GENERATED
    once, again = (_generated(engine, ids) for _ in range(2))
    if not difference(once, again) <= least:
        raise SettingsError(_MEMORY)


def _generated(engine: HuggingFaceEngine, ids: Ids) -> Logits:
    """Logits of single tokens behind a text."""
    start = len(ids) - _STEPS
    engine.crop(0)
    engine.prepare(start, ())
    engine.extend(ids[:start])
    return np.stack([engine.extend(ids[place : place + 1]) for place in range(start, len(ids))])


def _size(engine: HuggingFaceEngine) -> int:
    """Tokens of the longer prompt: across the window and the switch where that is cheap."""
    most, size = _cheap(engine), _TOKENS
    if engine.sliding is not None and 2 * engine.sliding + 16 <= most:
        size = max(size, 2 * engine.sliding + 16)
    if engine.switch is None:
        return size
    if not engine.switch.steady:  # beyond it, each length has positions of its own
        return min(size, engine.switch.at)
    return engine.switch.at + 24 if engine.switch.at + 24 <= most else min(size, engine.switch.at)


def _cheap(engine: HuggingFaceEngine) -> int:
    """Tokens that a longer pass may have."""
    weights = sum(each.numel() for each in engine.model.parameters())
    return min(_MOST, int(_CHEAP.get(engine.device.type, _CHEAP["cpu"]) / max(weights, 1)))


def _is_good(engine: HuggingFaceEngine, check: CacheCheck) -> bool:
    """Whether the engine's way gives what passes without a cache give."""
    try:
        pairs = _walk(engine, check)
    except Unmeasured:
        raise
    except Exception:  # a model's own code may raise anything
        return False
    # Single tokens behind a fresh prompt: some models scan a prompt otherwise than they step.
    alone = pairs[0][1]
    steps = check.most
    if alone <= max(check.most, _UNLIKE * check.spread):
        steps = max(check.most, _TIMES * alone)
    return all(prompt <= check.most and step <= steps for prompt, step in pairs)


def _walk(engine: HuggingFaceEngine, check: CacheCheck) -> list[tuple[float, float]]:
    """For each text the differences of its prompt's logits, and of single tokens' behind
    it."""
    size, way = len(check.long.ids), engine.way
    engine.crop(0)
    engine.chunk = size
    pairs = [_logit_differences(engine, check, check.long, 0, _STEPS)]
    pairs.append(_logit_differences(engine, check, check.short, check.parting, _STEPS))
    engine.chunk = -(-(size - check.parting if way.share else size) // 3)
    pairs.append(_logit_differences(engine, check, check.long, check.parting, 0))
    if check.far is not None and way.pieces:
        engine.chunk = -(-(len(check.far.ids) - size) // 2)
        pairs.append(_logit_differences(engine, check, check.far, size, 0))
    return pairs


def _logit_differences(
    engine: HuggingFaceEngine, check: CacheCheck, text: Text, shared: int, steps: int
) -> tuple[float, float]:
    """The differences of a prompt's logits behind what it shares with the one before, and of
    so many single tokens' behind it."""
    stop = len(text.ids) - steps
    engine.prepare(stop, (check.parting,))
    kept = engine.crop(shared)
    prompt = difference(engine.extend_all(text.ids[kept:stop]), text.rows[kept:stop])
    if not steps:
        return prompt, 0.0
    rows = [engine.extend(text.ids[place : place + 1]) for place in range(stop, len(text.ids))]
    engine.crop(stop)
    return prompt, difference(np.stack(rows), text.rows[stop:])


def difference(left: Logits, right: Logits) -> float:
    """The median over positions of the root mean square difference of two (tokens, vocabulary)
    logits. What is added to all of a position does not count."""
    both = np.nan_to_num(left - right, posinf=0.0, neginf=0.0)
    both -= both.mean(axis=-1, keepdims=True)
    return float(np.median(np.sqrt((both * both).mean(axis=-1))))


def _spread(rows: Logits) -> float:
    """The logits' standard deviation at a position in the middle of them all."""
    return float(np.median(np.nan_to_num(rows, posinf=0.0, neginf=0.0).std(axis=-1)))


def _notes(engine: HuggingFaceEngine) -> tuple[str, ...]:
    """What a user should know of how an engine computes."""
    way, notes = engine.way, []
    if way == GENERATED:
        notes.append(
            "what it computes for a token changes with the tokens behind it: each answer token is "
            "asked anew of its own `generate`, from the whole prompt on"
        )
    elif not way.cached:
        notes.append(
            "it keeps no cache that serves the next token: each answer token computes the whole "
            "prompt"
        )
    elif engine.share and not way.share:
        in_one = "" if way.pieces else ", in one piece"
        notes.append(
            "what its cache holds of one prompt does not serve another: every prompt is computed "
            f"in full{in_one}"
        )
    if engine.switch is not None:
        notes.append(
            f"positions are turned otherwise beyond {engine.switch.at:,} tokens: prompts on one "
            f"side of that "
            f"share nothing with those on the other"
        )
    return tuple(notes)
