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

# Tokens of the longer prompt: as a rule, and to cross a window or a switch.
_TOKENS, _MOST = 48, 640
# Weights times tokens that such a longer prompt may take.
_CHEAP = {"cpu": 2e10, "cuda": 2e13}
# Single tokens behind a prompt.
_STEPS = 2
# Tokens. Products of so few are computed otherwise than those of dozens.
_FEW = 8
# A difference is more than so many times what rounding does.
_TIMES = 3.0
# Of the logits' spread: more than rounding ever does.
_UNLIKE = 0.1
_ENCODER = (
    "it is an encoder: what it computes for a token changes with the tokens behind it. needlemap "
    "asks causal (decoder-only) language models."
)
_MEMORY = (
    "the same tokens, computed twice without a cache, come out differently: no answer of it could "
    "be trusted."
)
# Of the spread: what rounding may do at least, in float32 and below.
_FINE, _COARSE = 1e-3, 1e-2


@dataclass(frozen=True, slots=True)
class Text:
    """Tokens, and the logits behind each of them from a pass without a cache.

    rows: (tokens, vocabulary).
    """

    ids: Ids
    rows: Logits


@dataclass(frozen=True, slots=True)
class CacheCheck:
    """Two texts with a common start, and one that continues the long one if that is cheap.

    Attributes:
        parting: How many of their first tokens the two share.
        most: The largest difference that rounding explains.
        spread: The logits' own.
    """

    long: Text
    short: Text
    far: Text | None
    parting: int
    most: float
    spread: float


def settle(engine: HuggingFaceEngine, sample: Ids | None = None) -> tuple[str, ...]:
    """Let an engine compute in the first way that gives what passes without a cache give.

    Returns what a user should know of that. sample: tokens of any text. Raises SettingsError for a
    model that has no such way.
    """
    try:
        _settle(engine, sample)
    except Unmeasured as error:
        raise SettingsError(str(error)) from None
    engine.prepare(0, ())
    engine.crop(0)
    return _notes(engine)


def _settle(engine: HuggingFaceEngine, sample: Ids | None) -> None:
    """Let an engine compute in the first good way. Raises SettingsError or Unmeasured."""
    long_ids, short_source = _drawn(engine, sample)
    rows = engine.alone(long_ids, len(long_ids))
    parting = len(long_ids) // 2
    spread = _spread(rows)
    least = (_FINE if _is_fine(engine) else _COARSE) * spread
    short = _short(engine, short_source)
    # The same tokens with others behind them: alike, but where weights are quantised by what all
    # tokens are.
    rounding = difference(rows[:parting], _beside(engine, short, short_source)[:parting])
    if engine.way.cached and not _is_fine(engine) and _is_one_side(engine, long_ids, _FEW):
        rounding = max(rounding, difference(rows[:_FEW], engine.alone(long_ids[:_FEW], _FEW)))
    far = _far(engine, long_ids, short_source)
    beyond = 0.0 if far is None else difference(rows, far.rows[: len(long_ids)])
    most_rounding = _UNLIKE * spread if engine.way.cached else least
    # A comparison with NaN is False.
    if not max(rounding, beyond) <= most_rounding:
        _refuse_unless_generated(engine, long_ids, rows, least)
        return

    check = CacheCheck(
        long=Text(long_ids, rows),
        short=short,
        far=far,
        parting=parting,
        most=max(_TIMES * rounding, least),
        spread=spread,
    )
    ways = WAYS[WAYS.index(engine.way) :]
    chunk = engine.chunk
    # Some models count positions from elsewhere than 0, and some count them wrong behind a cache.
    with_positions = (True, False) if engine.positions else (False,)
    for engine.way, engine.positions in product(ways, with_positions):
        if not engine.way.cached or _is_good(engine, check):
            break
    engine.chunk = chunk


def _drawn(engine: HuggingFaceEngine, sample: Ids | None) -> tuple[Ids, Ids]:
    """Return two texts of one length whose first halves are the same."""
    size = _size(engine)
    random = np.random.default_rng(0)
    tokens = sample
    if tokens is None or not len(tokens):
        tokens = np.arange(engine.vocabulary, dtype=np.int32)
    long_ids = random.choice(tokens, size).astype(np.int32)
    other_ids = random.choice(tokens, size).astype(np.int32)
    half = size // 2
    other_ids[:half] = long_ids[:half]
    others = (token for token in tokens if token != long_ids[half])
    other_ids[half] = next(others, other_ids[half])
    return long_ids, other_ids


def _short(engine: HuggingFaceEngine, other_ids: Ids) -> Text:
    """Return the shorter text, on this side of a switch.

    It is as long as the other if no cache is walked.
    """
    size = len(other_ids)
    if engine.way.cached:
        size = size // 2 + size // 4
    if engine.switch is not None:
        size = min(size, engine.switch.at)
    ids = other_ids[:size]
    return Text(ids, engine.alone(ids, len(ids)))


def _is_fine(engine: HuggingFaceEngine) -> bool:
    """Return True if weights are in float32."""
    return "float32" in str(engine.model.dtype)


def _beside(engine: HuggingFaceEngine, short: Text, other_ids: Ids) -> Logits:
    """Return logits of a text that starts as the long one, on the same side of a switch."""
    if _is_one_side(engine, other_ids, len(short.ids)):
        return short.rows
    return engine.alone(other_ids, len(other_ids))


def _is_one_side(engine: HuggingFaceEngine, text: Ids, tokens: int) -> bool:
    """Return True if no switch lies between a text's first tokens and the whole of it."""
    return engine.switch is None or not tokens <= engine.switch.at < len(text)


def _far(engine: HuggingFaceEngine, long_ids: Ids, other_ids: Ids) -> Text | None:
    """Return a longer text with the same start, or None.

    It is as long as is cheap and as the model has positions for.
    """
    tokens = min(_cheap(engine), position_limit(engine.model.config) or _MOST)
    if engine.switch is not None or tokens <= len(long_ids):
        return None
    ids = np.concatenate([long_ids, np.resize(other_ids, tokens - len(long_ids))])
    try:
        return Text(ids, engine.alone(ids, len(ids)))
    except Unmeasured:
        raise
    # It takes no such text, whatever its configuration says.
    except Exception:
        return None


def _refuse_unless_generated(
    engine: HuggingFaceEngine, ids: Ids, rows: Logits, least: float
) -> None:
    """Let a model that looks ahead compute by its own `generate`, if its code prepares that.

    Raises SettingsError for others: encoders, and those that come out differently each time.
    """
    if not difference(rows, engine.alone(ids, len(ids))) <= least:
        raise SettingsError(_MEMORY)
    if not engine.prepares_itself() or getattr(engine.model.config, "is_decoder", None) is False:
        raise SettingsError(_ENCODER)
    engine.way = GENERATED
    first = _generated(engine, ids)
    second = _generated(engine, ids)
    if not difference(first, second) <= least:
        raise SettingsError(_MEMORY)


def _generated(engine: HuggingFaceEngine, ids: Ids) -> Logits:
    """Return logits of single tokens behind a text."""
    start = len(ids) - _STEPS
    engine.crop(0)
    engine.prepare(start, ())
    engine.extend(ids[:start])
    return np.stack([engine.extend(ids[place : place + 1]) for place in range(start, len(ids))])


def _size(engine: HuggingFaceEngine) -> int:
    """Return the tokens of the longer prompt: across the window and the switch if that is cheap."""
    most = _cheap(engine)
    size = _TOKENS
    if engine.sliding is not None and 2 * engine.sliding + 16 <= most:
        size = max(size, 2 * engine.sliding + 16)
    if engine.switch is None:
        return size
    # Beyond a switch that is not steady, each length has positions of its own.
    if engine.switch.steady and engine.switch.at + 24 <= most:
        return engine.switch.at + 24
    return min(size, engine.switch.at)


def _cheap(engine: HuggingFaceEngine) -> int:
    """Return the tokens that a longer pass may have."""
    weights = sum(parameter.numel() for parameter in engine.model.parameters())
    return min(_MOST, int(_CHEAP.get(engine.device.type, _CHEAP["cpu"]) / max(weights, 1)))


def _is_good(engine: HuggingFaceEngine, check: CacheCheck) -> bool:
    """Return True if the engine's way gives what passes without a cache give."""
    try:
        pairs = _walk(engine, check)
    except Unmeasured:
        raise
    # A model's own code may raise anything.
    except Exception:
        return False
    # Single tokens behind a fresh prompt: some models scan a prompt otherwise than they step.
    fresh_step = pairs[0][1]
    most_step = check.most
    if fresh_step <= max(check.most, _UNLIKE * check.spread):
        most_step = max(check.most, _TIMES * fresh_step)
    return all(prompt <= check.most and step <= most_step for prompt, step in pairs)


def _walk(engine: HuggingFaceEngine, check: CacheCheck) -> list[tuple[float, float]]:
    """Return the differences of each text's logits: its prompt's, and single tokens' behind it."""
    size, mode = len(check.long.ids), engine.way
    engine.crop(0)
    engine.chunk = size
    pairs = [_logit_differences(engine, check, check.long, 0, _STEPS)]
    pairs.append(_logit_differences(engine, check, check.short, check.parting, _STEPS))
    engine.chunk = -(-(size - check.parting if mode.share else size) // 3)
    pairs.append(_logit_differences(engine, check, check.long, check.parting, 0))
    if check.far is not None and mode.pieces:
        engine.chunk = -(-(len(check.far.ids) - size) // 2)
        pairs.append(_logit_differences(engine, check, check.far, size, 0))
    return pairs


def _logit_differences(
    engine: HuggingFaceEngine, check: CacheCheck, text: Text, shared: int, steps: int
) -> tuple[float, float]:
    """Return the differences of a prompt's logits, and of so many single tokens' behind it.

    The prompt's are those behind what it shares with the one before.
    """
    stop = len(text.ids) - steps
    engine.prepare(stop, (check.parting,))
    held = engine.crop(shared)
    prompt = difference(engine.extend_all(text.ids[held:stop]), text.rows[held:stop])
    if not steps:
        return prompt, 0.0
    rows = [engine.extend(text.ids[place : place + 1]) for place in range(stop, len(text.ids))]
    engine.crop(stop)
    return prompt, difference(np.stack(rows), text.rows[stop:])


def difference(left: Logits, right: Logits) -> float:
    """Return the median root mean square difference of two (tokens, vocabulary) logits.

    The median is over positions. What is added to all of a position does not count.
    """
    gap = np.nan_to_num(left - right, posinf=0.0, neginf=0.0)
    gap -= gap.mean(axis=-1, keepdims=True)
    return float(np.median(np.sqrt((gap * gap).mean(axis=-1))))


def _spread(rows: Logits) -> float:
    """Return the logits' standard deviation at a position in the middle of them all."""
    return float(np.median(np.nan_to_num(rows, posinf=0.0, neginf=0.0).std(axis=-1)))


def _notes(engine: HuggingFaceEngine) -> tuple[str, ...]:
    """Return what a user should know of how an engine computes."""
    way = engine.way
    notes = []
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
            f"side of that share nothing with those on the other"
        )
    return tuple(notes)
