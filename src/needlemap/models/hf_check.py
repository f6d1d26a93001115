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
_TOKENS, _MOST_TOKENS = 48, 640
# Weights times tokens that such a longer prompt may take.
_CHEAP_WEIGHT_TOKENS = {"cpu": 2e10, "cuda": 2e13}
# Single tokens behind a prompt.
_STEPS = 2
# Tokens. Products of so few are computed otherwise than those of dozens.
_FEW_TOKENS = 8
# A difference is more than rounding if it is more than this many times what rounding does.
_ROUNDING_FACTOR = 3.0
# As a share of the logits' spread: more than rounding ever does.
_MOST_ROUNDING_SHARE = 0.1
_ENCODER = (
    "it is an encoder: what it computes for a token changes with the tokens behind it. needlemap "
    "asks causal (decoder-only) language models."
)
_MEMORY = (
    "the same tokens, computed twice without a cache, come out differently: no answer of it could "
    "be trusted."
)
# As a share of the logits' spread: a difference up to this is always rounding.
_LEAST_ROUNDING_FLOAT32, _LEAST_ROUNDING_16_BIT = 1e-3, 1e-2


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
        tolerance: The largest difference that rounding explains.
        spread: The logits' standard deviation.
    """

    long: Text
    short: Text
    longer: Text | None
    parting: int
    tolerance: float
    spread: float


def settle(engine: HuggingFaceEngine, sample: Ids | None = None) -> tuple[str, ...]:
    """Let an engine compute in the first way that gives what passes without a cache give.

    Return what a user should know of that way. sample: tokens of any text. Raise SettingsError if
    the model has no such way.
    """
    try:
        _choose_way(engine, sample)
    except Unmeasured as error:
        raise SettingsError(str(error)) from None
    engine.prepare(0, ())
    engine.crop(0)
    return _notes(engine)


def _choose_way(engine: HuggingFaceEngine, sample: Ids | None) -> None:
    """Let an engine compute in the first good way. Raise SettingsError or Unmeasured if none is."""
    long_ids, short_source = _sample_texts(engine, sample)
    rows = engine.uncached_logits(long_ids, len(long_ids))
    parting = len(long_ids) // 2
    spread = _logit_spread(rows)
    is_float32 = _is_float32(engine)
    tolerance = (_LEAST_ROUNDING_FLOAT32 if is_float32 else _LEAST_ROUNDING_16_BIT) * spread

    short = _shorter_text(engine, short_source)
    # The same tokens with others behind them: alike, but where weights are quantised by what all
    # tokens are.
    rounding = difference(rows[:parting], _other_logits(engine, short, short_source)[:parting])
    if engine.way.cached and not is_float32 and _is_on_one_side(engine, long_ids, _FEW_TOKENS):
        first_rows = engine.uncached_logits(long_ids[:_FEW_TOKENS], _FEW_TOKENS)
        rounding = max(rounding, difference(rows[:_FEW_TOKENS], first_rows))
    longer = _longer_text(engine, long_ids, short_source)
    longer_rounding = 0.0 if longer is None else difference(rows, longer.rows[: len(long_ids)])

    most_rounding = _MOST_ROUNDING_SHARE * spread if engine.way.cached else tolerance
    # `not <=` in place of `>`: a comparison with NaN is False, and NaN must not pass.
    if not max(rounding, longer_rounding) <= most_rounding:
        _use_generate(engine, long_ids, rows, tolerance)
        return

    check = CacheCheck(
        long=Text(long_ids, rows),
        short=short,
        longer=longer,
        parting=parting,
        tolerance=max(_ROUNDING_FACTOR * rounding, tolerance),
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


def _sample_texts(engine: HuggingFaceEngine, sample: Ids | None) -> tuple[Ids, Ids]:
    """Return two texts of one length whose first halves are the same."""
    size = _prompt_tokens(engine)
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


def _shorter_text(engine: HuggingFaceEngine, other_ids: Ids) -> Text:
    """Return the shorter text. It ends before a switch of positions.

    If the engine keeps no cache, it is as long as the other text.
    """
    size = len(other_ids)
    if engine.way.cached:
        size = size // 2 + size // 4
    if engine.switch is not None:
        size = min(size, engine.switch.at)
    ids = other_ids[:size]
    return Text(ids, engine.uncached_logits(ids, len(ids)))


def _is_float32(engine: HuggingFaceEngine) -> bool:
    """Return True if weights are in float32."""
    return "float32" in str(engine.model.dtype)


def _other_logits(engine: HuggingFaceEngine, short: Text, other_ids: Ids) -> Logits:
    """Return logits of a text that starts as the long one does.

    They are the short text's. If a switch of positions lies behind that, they are those of all of
    `other_ids`, which is on the long text's side of it.
    """
    if _is_on_one_side(engine, other_ids, len(short.ids)):
        return short.rows
    return engine.uncached_logits(other_ids, len(other_ids))


def _is_on_one_side(engine: HuggingFaceEngine, text: Ids, tokens: int) -> bool:
    """Return True if no switch lies between a text's first tokens and the whole of it."""
    return engine.switch is None or not tokens <= engine.switch.at < len(text)


def _longer_text(engine: HuggingFaceEngine, long_ids: Ids, other_ids: Ids) -> Text | None:
    """Return a text with the same start, as long as is cheap and as the model has positions for.

    Return None if that is no longer than `long_ids`, if positions switch, or if the model fails.
    """
    tokens = min(_cheap_tokens(engine), position_limit(engine.model.config) or _MOST_TOKENS)
    if engine.switch is not None or tokens <= len(long_ids):
        return None
    ids = np.concatenate([long_ids, np.resize(other_ids, tokens - len(long_ids))])
    try:
        return Text(ids, engine.uncached_logits(ids, len(ids)))
    except Unmeasured:
        raise
    # It takes no such text, whatever its configuration says.
    except Exception:
        return None


def _use_generate(engine: HuggingFaceEngine, ids: Ids, rows: Logits, tolerance: float) -> None:
    """Let a model that looks ahead compute by its own `generate`, if its code prepares that.

    rows: the logits of `ids` from a pass without a cache. tolerance: the largest difference that
    two passes over the same tokens may have. Raise SettingsError if the model is an encoder, or if
    two such passes differ by more.
    """
    # `not <=` in place of `>`: a comparison with NaN is False, and NaN must not pass.
    if not difference(rows, engine.uncached_logits(ids, len(ids))) <= tolerance:
        raise SettingsError(_MEMORY)
    if not engine.prepares_itself() or getattr(engine.model.config, "is_decoder", None) is False:
        raise SettingsError(_ENCODER)

    engine.way = GENERATED
    logits = _step_logits(engine, ids)
    repeated_logits = _step_logits(engine, ids)
    if not difference(logits, repeated_logits) <= tolerance:
        raise SettingsError(_MEMORY)


def _step_logits(engine: HuggingFaceEngine, ids: Ids) -> Logits:
    """Return the logits of a text's last tokens, computed one by one."""
    start = len(ids) - _STEPS
    engine.crop(0)
    engine.prepare(start, ())
    engine.extend(ids[:start])
    return np.stack([engine.extend(ids[place : place + 1]) for place in range(start, len(ids))])


def _prompt_tokens(engine: HuggingFaceEngine) -> int:
    """Return how many tokens the longer prompt has.

    They go beyond the window and the switch of positions, if so many are cheap.
    """
    cheap_tokens = _cheap_tokens(engine)
    size = _TOKENS
    if engine.sliding is not None and 2 * engine.sliding + 16 <= cheap_tokens:
        size = max(size, 2 * engine.sliding + 16)
    if engine.switch is None:
        return size
    # Beyond a switch that is not steady, each length has positions of its own.
    if engine.switch.steady and engine.switch.at + 24 <= cheap_tokens:
        return engine.switch.at + 24
    return min(size, engine.switch.at)


def _cheap_tokens(engine: HuggingFaceEngine) -> int:
    """Return how many tokens a pass of this model may have without taking long."""
    weights = sum(parameter.numel() for parameter in engine.model.parameters())
    return min(
        _MOST_TOKENS,
        int(
            _CHEAP_WEIGHT_TOKENS.get(engine.device.type, _CHEAP_WEIGHT_TOKENS["cpu"])
            / max(weights, 1)
        ),
    )


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
    step_tolerance = check.tolerance
    if fresh_step <= max(check.tolerance, _MOST_ROUNDING_SHARE * check.spread):
        step_tolerance = max(check.tolerance, _ROUNDING_FACTOR * fresh_step)
    return all(prompt <= check.tolerance and step <= step_tolerance for prompt, step in pairs)


def _walk(engine: HuggingFaceEngine, check: CacheCheck) -> list[tuple[float, float]]:
    """Walk the texts, and return two differences of logits for each walk.

    The first is that of the prompt, the second that of the single tokens behind it.
    """
    size, mode = len(check.long.ids), engine.way
    engine.crop(0)
    engine.chunk = size
    pairs = [_logit_differences(engine, check, check.long, 0, _STEPS)]
    pairs.append(_logit_differences(engine, check, check.short, check.parting, _STEPS))

    # The long text again, in three pieces.
    engine.chunk = -(-(size - check.parting if mode.share else size) // 3)
    pairs.append(_logit_differences(engine, check, check.long, check.parting, 0))

    if check.longer is not None and mode.pieces:
        engine.chunk = -(-(len(check.longer.ids) - size) // 2)
        pairs.append(_logit_differences(engine, check, check.longer, size, 0))
    return pairs


def _logit_differences(
    engine: HuggingFaceEngine, check: CacheCheck, text: Text, shared: int, steps: int
) -> tuple[float, float]:
    """Return how far the logits of a text differ from those of a pass without a cache.

    The first difference is that of the prompt: the text without its last `steps` tokens. The second
    is that of these last tokens, which are computed one by one; 0 without steps.

    The cache is first cropped to at most `shared` tokens. The tokens that it then holds are not
    computed or compared again. At the end the last `steps` tokens are dropped from it.
    """
    prompt_tokens = len(text.ids) - steps
    engine.prepare(prompt_tokens, (check.parting,))
    start = engine.crop(shared)
    prompt_logits = engine.extend_all(text.ids[start:prompt_tokens])
    prompt_difference = difference(prompt_logits, text.rows[start:prompt_tokens])
    if not steps:
        return prompt_difference, 0.0

    step_logits = []
    for place in range(prompt_tokens, len(text.ids)):
        step_logits.append(engine.extend(text.ids[place : place + 1]))
    engine.crop(prompt_tokens)
    step_difference = difference(np.stack(step_logits), text.rows[prompt_tokens:])
    return prompt_difference, step_difference


def difference(left: Logits, right: Logits) -> float:
    """Return the median over positions of two (tokens, vocabulary) logits' difference.

    The difference at a position is the root mean square over the vocabulary.
    """
    gap = np.nan_to_num(left - right, posinf=0.0, neginf=0.0)
    # A number added to all logits of a position changes no probability.
    gap -= gap.mean(axis=-1, keepdims=True)
    return float(np.median(np.sqrt((gap * gap).mean(axis=-1))))


def _logit_spread(rows: Logits) -> float:
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
