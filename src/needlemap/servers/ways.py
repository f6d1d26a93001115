"""Judge whether the same prompt gets the same log-probabilities in whatever way it is sent.

It needs no right answer, so any model will do, a random one too. The module is pure: it takes
replies and returns what each way came to.

A way is compared with the prompt sent alone and cold. A reply was cold if the server says so in
`cached_tokens`, not if it was meant to be. Noise is learnt from cold repeats alone: a repeat that
a cache answered may be as wrong as what is judged. A move beyond the noise and beyond what data
types explain counts once it is confirmed, that is, if it comes again when both are sent again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, inf
from statistics import median_low
from typing import Literal, NamedTuple

from needlemap.stats.verdicts import FAIL, NOT_ENOUGH_DATA, PASS, SUSPECT, Word

# A written token, and the log-probabilities that the server listed for its place.
Step = tuple[str, Mapping[str, float]]
State = Word | Literal["not tested"]
DataType = Literal["bfloat16", "float16", "float32"]
# The number of a prompt, and that of its copy.
PromptCopy = tuple[int, int]

# Both are cold. The first is what other ways are compared with, the second shows the noise.
ALONE, AGAIN = "alone", "again"
# Cold, among shorter and longer prompts.
COMPANY = "company"
CACHED, EXTENDED, REWOUND = "cached", "extended", "rewound"
# Sent again behind a flood of others, from what cache there may be.
FLOODED = "flooded"
# An answer that was generated, sent as a prompt.
PREFILLED = "prefilled"
# Ways that show nothing if no cache held a token.
HELD = frozenset({CACHED, EXTENDED, REWOUND})
# Share of a prompt that a cache may hold by chance while the prompt counts as cold.
COLD_SHARE = 1 / 8
# Compared prompts without which no way passes.
LEAST = 20
# Prompts whose moves are confirmed, from which on a way fails.
LEAST_CONFIRMED = 2
# Copies of a prompt that move, by which its move is confirmed.
LEAST_COPIES = 2
# No move counts that is smaller than so many times the largest move of a cold repeat.
TIMES_NOISE = 3
# Times what the data type explains, at which the noise that is learnt ends.
TIMES_TOLERANCE = 10
# Moves of cold repeats are even if there are so many, and the largest is at most so many times the
# median. Of SmolLM2-135M with 4-bit weights on llama.cpp 13 moved by .55 nats at most, median .17.
LEAST_EVEN = 10
TIMES_MEDIAN = 6
# Nats at which even noise ends. Quantised weights move a small model by more than data types do.
MOST_EVEN = 1.0
# Nats that a log-probability moves by at most, by the data type that a server computes in.
TOLERANCE: Mapping[DataType, float] = {"float32": 0.005, "float16": 0.05, "bfloat16": 0.5}
COARSEST: DataType = "bfloat16"
PERCENTILES = (50, 90, 99)
# Tokens of an answer, from 1 on, at which it is compared with its prefill, besides its last one.
POSITIONS = (1, 64, 256, 1_000, 4_000)
# Tokens of a prompt at which a band of the map starts.
BANDS = (0, 256, 1_024, 4_096)


@dataclass(frozen=True, slots=True)
class WayReply:
    """A server's reply to a prompt that was sent in one way.

    Attributes:
        prompt: The number of the prompt.
        way: The way in which it was sent.
        text: The answer.
        steps: Its tokens with their log-probabilities; empty if the server gave none.
        prompt_tokens: The length of the prompt.
        cached_tokens: Tokens of the prompt that a cache held; None if the server does not say.
        replay: How often the prompt was sent in this way before.
        copy: 0, or the number of a copy of the prompt behind another first line, of which no
            cache held anything.
        generated: Of an answer that was sent as a prompt, the steps that the server gave when it
            wrote it, at the positions of `steps`. They are compared with `steps` in place of the
            prompt alone.
        positions: The positions of `steps` in that answer, from 1 on.
        left_out: Positions of it that could not be compared.
    """

    prompt: int
    way: str
    text: str
    steps: tuple[Step, ...] = ()
    prompt_tokens: int = 0
    cached_tokens: int | None = None
    replay: int = 0
    copy: int = 0
    generated: tuple[Step, ...] = ()
    positions: tuple[int, ...] = ()
    left_out: int = 0

    @property
    def cold(self) -> bool:
        """Return True if no token of the prompt was held, as far as the server says."""
        return not self.cached_tokens


@dataclass(frozen=True, slots=True)
class Move:
    """How far two replies to one prompt lie apart.

    Attributes:
        nats: The most by which a log-probability moved while both had written the same; infinite
            for texts that differ without log-probabilities.
        at: The token of the answer at which it moved so far, from 0.
        alike: Whether the first choices were equal.
    """

    nats: float
    at: int
    alike: bool


class MoveBand(NamedTuple):
    """The moves of a band of the map.

    start: the first token of the prompt in the band; of what was generated, of the answer.
    n: compared prompts, or tokens of answers.
    beyond: those that moved beyond the limit.
    most_nats: the largest move.
    """

    start: int
    n: int
    beyond: int
    most_nats: float


@dataclass(frozen=True, slots=True)
class Way:
    """What a way came to.

    Attributes:
        n: Compared prompts.
        beyond: Those with a move that noise and data type do not explain.
        confirmed: Those whose move came again.
        limit: The nats beyond which a move is neither noise nor the data type's.
        percentiles: Of all moves the nats, by percent, and the largest at 100.
        alike: The share of equal first choices.
        bands: The map of the moves.
        left_out: Replies that could not be compared.
        said: The same in words.
        moves: The nats by prompt.
    """

    way: str
    state: State
    n: int
    beyond: int = 0
    confirmed: int = 0
    limit: float = 0.0
    percentiles: Mapping[int, float] | None = None
    alike: float | None = None
    bands: tuple[MoveBand, ...] = ()
    left_out: int = 0
    said: str = ""
    moves: Mapping[int, float] = field(default_factory=dict)


def move_between(first: WayReply, second: WayReply) -> Move | None:
    """Return how far two replies lie apart, or None if there is nothing to compare.

    A token that only one side lists is at most as likely on the other as the last it lists there.

    >>> alone = WayReply(0, "alone", "ab", (("a", {"a": -0.1, "b": -3.0}), ("b", {"b": -0.5})))
    >>> cached = WayReply(0, "cached", "ac", (("a", {"a": -0.1, "b": -3.5}), ("c", {"c": -0.4})))
    >>> move_between(alone, cached)
    Move(nats=0.5, at=0, alike=True)
    """
    if not first.steps or not second.steps:
        if not first.text and not second.text:
            return None
        is_same = first.text == second.text
        return Move(nats=0.0 if is_same else inf, at=0, alike=is_same)

    most_nats = 0.0
    at = 0
    pairs = zip(first.steps, second.steps, strict=False)
    for number, (first_step, second_step) in enumerate(pairs):
        first_token, first_listing = first_step
        second_token, second_listing = second_step
        nats = step_move(first_listing, second_listing)
        if nats > most_nats:
            most_nats = nats
            at = number
        # Behind another token the two are different prompts.
        if first_token != second_token:
            break
    return Move(nats=most_nats, at=at, alike=first.steps[0][0] == second.steps[0][0])


def step_move(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Return the least nats by which some token's log-probability differs between two listings."""
    if not first or not second:
        return 0.0
    moves = [abs(first[token] - second[token]) for token in first.keys() & second.keys()]
    for listing, other in ((first, second), (second, first)):
        floor = min(other.values())
        moves += [listing[token] - floor for token in listing.keys() - other.keys()]
    return max(0.0, *moves)


def first_choice(step: Step) -> str:
    """Return the likeliest token of a listing, or the written one if nothing is listed."""
    token, listing = step
    return max(listing, key=listing.__getitem__, default=token)


def common_start(cached_tokens: Sequence[int]) -> int:
    """Return the tokens that all prompts start with, as a server counts them.

    cached_tokens: of each prompt that was sent alone for the first time.

    >>> common_start([0, 128, 128, 131]), common_start([])
    (128, 0)
    """
    return median_low(cached_tokens) if cached_tokens else 0


def is_cold(cached_tokens: int | None, prompt_tokens: int, shared_tokens: int) -> bool:
    """Return True if a cache held about as much of a prompt as all prompts have in common.

    shared_tokens: the tokens at the start of all prompts.

    >>> is_cold(130, 409, 128), is_cold(408, 409, 408), is_cold(None, 409, 0)
    (True, False, True)
    """
    # If all prompts were sent before, a cache holds all of each. That is not a common start, so at
    # most half of a prompt counts as one.
    start_tokens = min(shared_tokens, prompt_tokens // 2)
    # Texts start alike by chance, above all if a token is a character.
    return (cached_tokens or 0) <= start_tokens + COLD_SHARE * prompt_tokens


def judge_ways(
    replies: Iterable[WayReply],
    tolerance: float = TOLERANCE[COARSEST],
    ways: Sequence[str] = (),
) -> list[Way]:
    """Judge each way by comparing its replies with those to the same prompts alone and cold.

    The first row is that of the cold repeats.

    Args:
        replies: Those to all prompts, in all ways.
        tolerance: The nats by which the data type that a server computes in moves a
            log-probability.
        ways: Ways that have a row although no reply to them came.
    """
    alone: dict[PromptCopy, WayReply] = {}
    repeats = defaultdict[int, list[WayReply]](list)
    by_way = defaultdict[str, dict[int, list[WayReply]]](lambda: defaultdict(list))
    left_out = 0
    for reply in replies:
        if reply.way not in (ALONE, AGAIN):
            by_way[reply.way][reply.prompt].append(reply)
        elif not reply.cold:
            # It was meant to be cold.
            left_out += 1
        elif reply.way == ALONE and not reply.replay:
            alone[reply.prompt, reply.copy] = reply
        elif not reply.copy:
            # A copy is another text, so that it shows no noise.
            repeats[reply.prompt].append(reply)

    noise = noise_of(alone, repeats)
    limit = limit_of(list(noise.values()), tolerance)
    cached = by_way.get(CACHED, {})
    changed = sum(
        is_changed(alone[prompt, 0], cached.get(prompt, ()), repeats[prompt], limit=limit)
        for prompt in noise
    )
    rows = [noise_row(noise, limit=limit, left_out=left_out, changed=changed)]
    for way in dict.fromkeys((*ways, *by_way)):
        row = judge_way(way, by_way[way], alone=alone, repeats=repeats, limit=limit)
        rows.append(row)
    return rows


def noise_of(
    alone: Mapping[PromptCopy, WayReply], repeats: Mapping[int, Sequence[WayReply]]
) -> dict[int, Move]:
    """Return by prompt the move between the first cold reply and the first cold repeat."""
    moves = {}
    for prompt, replies in repeats.items():
        first = alone.get((prompt, 0))
        move = move_between(first, min(replies, key=lambda reply: reply.replay)) if first else None
        if move:
            moves[prompt] = move
    return moves


def is_changed(
    first: WayReply, cached: Sequence[WayReply], repeats: Sequence[WayReply], *, limit: float
) -> bool:
    """Return True if a prompt was steady twice, and the two lie further apart than data types do.

    It was sent at first, then from the cache, and twice after others had passed. Noise would show
    between the first two replies, or between the last two. If neither moves, what changed is what a
    cache held of the beginning that all prompts share.
    """
    early = [first, *(reply for reply in cached if not reply.copy)]
    if len(early) < 2 or len(repeats) < 2:
        return False
    pairs = (*pairwise(early), *pairwise(repeats))
    is_steady = all(_nats_between(reply, next_reply) <= limit for reply, next_reply in pairs)
    explained = max(limit, TOLERANCE[COARSEST])
    return is_steady and all(_nats_between(first, repeat) > explained for repeat in repeats)


def limit_of(noise: Sequence[Move], tolerance: float) -> float:
    """Return the nats beyond which a move is neither noise nor the data type's.

    The noise that is learnt ends at TIMES_TOLERANCE times what the data type explains, and at what
    the coarsest one does: a server that is spoilt already would excuse itself. If the server may
    compute in the coarsest one, and the moves are even, it ends at MOST_EVEN.

    >>> limit_of([Move(0.01, 0, True)], 0.005), limit_of([Move(9.0, 0, True)], 0.005)
    (0.03, 0.05)
    >>> limit_of([Move(9.0, 0, True)], 0.5), limit_of([Move(0.25, 0, True)] * 10, 0.5)
    (0.5, 0.75)
    """
    coarsest = TOLERANCE[COARSEST]
    most_nats = max((move.nats for move in noise), default=0.0)
    most_learnt = min(TIMES_TOLERANCE * tolerance, coarsest)
    if tolerance >= coarsest and is_even([move.nats for move in noise]):
        most_learnt = MOST_EVEN
    return max(tolerance, min(TIMES_NOISE * most_nats, most_learnt))


def is_even(nats: Sequence[float]) -> bool:
    """Return True if the moves of cold repeats are of one kind, as rounding makes them.

    A fault moves some repeats far and others not at all, or most of them by more than data types
    explain.

    >>> is_even([0.1, 0.2] * 5), is_even([0.0] * 9 + [0.4]), is_even([0.7] * 10), is_even([0.1])
    (True, False, False, False)
    """
    if len(nats) < LEAST_EVEN:
        return False
    median = median_low(nats)
    return median <= TOLERANCE[COARSEST] and max(nats) <= TIMES_MEDIAN * median


def noise_row(noise: Mapping[int, Move], *, limit: float, left_out: int, changed: int) -> Way:
    """Return the row of the cold repeats.

    Moves that no data type explains are suspect. They fail if prompts were steady both times.

    changed: prompts that were steady both times, and moved between.
    """
    moves = list(noise.values())
    explained = max(limit, TOLERANCE[COARSEST])
    beyond = sum(move.nats > explained for move in moves)
    state: Word = PASS
    if changed >= LEAST_CONFIRMED and len(moves) >= LEAST:
        state = FAIL
    elif beyond:
        state = SUSPECT
    elif len(moves) < LEAST:
        state = NOT_ENOUGH_DATA
    return replace(
        row_of_moves(AGAIN, state, moves=moves, limit=limit),
        beyond=beyond,
        confirmed=changed,
        left_out=left_out,
        said=f"{beyond} of {len(moves)} cold repeats moved by over {explained:g} nats",
        moves={prompt: move.nats for prompt, move in noise.items()},
    )


def yardstick_of(reply: WayReply, alone: Mapping[PromptCopy, WayReply]) -> WayReply | None:
    """Return the reply that a reply is compared with, or None if there is none.

    An answer that was sent as a prompt is compared with the steps at which it was generated, any
    other reply with that to the same prompt alone and cold.
    """
    if reply.way == PREFILLED:
        return replace(reply, steps=reply.generated) if reply.generated else None
    return alone.get((reply.prompt, reply.copy))


@dataclass
class Comparison:
    """The prompts of a way that were compared with their yardsticks.

    Attributes:
        moves: The move of each prompt, by its number.
        prompt_tokens: The length of each prompt, in the same order.
        confirmed: Prompts that moved again.
        held: Prompts of which a cache held a part, or of which the server does not say.
        left_out: Replies that could not be compared.
    """

    moves: dict[int, Move] = field(default_factory=dict)
    prompt_tokens: list[int] = field(default_factory=list)
    confirmed: int = 0
    held: int = 0
    left_out: int = 0


def compare_way(
    way: str,
    by_prompt: Mapping[int, Sequence[WayReply]],
    *,
    alone: Mapping[PromptCopy, WayReply],
    repeats: Mapping[int, Sequence[WayReply]],
    limit: float,
) -> Comparison:
    """Compare the prompts of a way with their yardsticks.

    by_prompt: the replies of the way, with replays and copies.
    """
    comparison = Comparison()
    for prompt, replies in by_prompt.items():
        comparison.left_out += sum(reply.left_out for reply in replies)
        originals = [reply for reply in replies if not reply.copy]
        originals.sort(key=lambda reply: reply.replay)
        if not originals:
            continue

        first, *replays = originals
        yardstick = yardstick_of(first, alone)
        move = None
        if yardstick is not None and shows_its_way(first):
            move = move_between(yardstick, first)
        if yardstick is None or move is None:
            # Positions that were left out count already.
            comparison.left_out += not first.left_out
            continue

        if way == PREFILLED:
            # Both list the token that was generated, whatever they prefer.
            choices = first_choice(yardstick.steps[0]), first_choice(first.steps[0])
            move = replace(move, alike=choices[0] == choices[1])
        comparison.moves[prompt] = move
        comparison.prompt_tokens.append(yardstick.prompt_tokens)
        comparison.held += first.cached_tokens != 0
        if move.nats > limit:
            copies = [
                (copy_yardstick, reply)
                for reply in replies
                if reply.copy and (copy_yardstick := yardstick_of(reply, alone))
            ]
            is_repeated = is_confirmed(replays, repeats.get(prompt, ()), limit)
            comparison.confirmed += is_repeated or is_copied(copies, limit)
    return comparison


def shows_its_way(reply: WayReply) -> bool:
    """Return True unless a cache held a part of a prompt that was to be cold among others."""
    return reply.way != COMPANY or reply.cold


def judge_way(
    way: str,
    by_prompt: Mapping[int, Sequence[WayReply]],
    *,
    alone: Mapping[PromptCopy, WayReply],
    repeats: Mapping[int, Sequence[WayReply]],
    limit: float,
) -> Way:
    """Judge one way by comparing its replies with those to the prompts alone.

    by_prompt: the replies of the way, with replays and copies.
    """
    replies = [reply for rows in by_prompt.values() for reply in rows]
    if not replies:
        return Way(way, "not tested", n=0, said="nothing was asked")
    if way in HELD and all(reply.cached_tokens == 0 for reply in replies):
        return Way(way, "not tested", n=0, said="the server held nothing of any prompt")

    comparison = compare_way(way, by_prompt, alone=alone, repeats=repeats, limit=limit)
    if not comparison.moves:
        return Way(
            way,
            "not tested",
            n=0,
            left_out=comparison.left_out,
            said=why_untested(way, replies),
        )

    moves = list(comparison.moves.values())
    n = len(moves)
    beyond = sum(move.nats > limit for move in moves)
    confirmed = comparison.confirmed
    if way == PREFILLED:
        bands = position_bands(
            [reply for reply in replies if not reply.copy and not reply.replay], limit
        )
    else:
        bands = length_bands(comparison.prompt_tokens, moves, limit=limit)
    state: State = word_of(n, beyond=beyond, confirmed=confirmed)
    said = in_words(way, replies, n=n, beyond=beyond, confirmed=confirmed, limit=limit)
    if way in HELD and comparison.held < n:
        said += f"; a cache held a part of {comparison.held}"
        # Prompts that were computed anew show a fault, but not that hits are right.
        if state == PASS and comparison.held < LEAST:
            state = "not tested"
    return replace(
        row_of_moves(way, state, moves=moves, limit=limit),
        beyond=beyond,
        confirmed=confirmed,
        bands=bands,
        left_out=comparison.left_out,
        said=said,
        moves={prompt: move.nats for prompt, move in comparison.moves.items()},
    )


def in_words(
    way: str,
    replies: Sequence[WayReply],
    *,
    n: int,
    beyond: int,
    confirmed: int,
    limit: float,
) -> str:
    """Return in words how many prompts of a way moved, and how many of these moved again."""
    has_steps = any(reply.steps for reply in replies)
    kinds = "moved" if has_steps else "texts differ"
    words = f"{beyond} of {n} {kinds} beyond {limit:.2g} nats, {confirmed} of them again"
    if not has_steps:
        words += "; texts alone: no log-probabilities"
    if way in HELD and all(reply.cached_tokens is None for reply in replies):
        words += "; hits not reported"
    if way == PREFILLED and not all(reply.cold for reply in replies):
        words += "; a cache held a part of some"
    return words


def why_untested(way: str, replies: Sequence[WayReply]) -> str:
    """Return why nothing of a way could be compared."""
    if way != PREFILLED:
        return "no prompt of it was alone and cold: a cache held them"
    if any(reply.generated for reply in replies) or not replies:
        return "no token of an answer stood where the prompt has it"
    return "needs /v1/completions with token ids and their log-probabilities"


def word_of(n: int, *, beyond: int, confirmed: int) -> Word:
    """Return the word of a way. beyond: prompts that moved. confirmed: those that moved again."""
    if confirmed >= LEAST_CONFIRMED and n >= LEAST:
        return FAIL
    if confirmed or beyond > n / LEAST:
        return SUSPECT
    return PASS if n >= LEAST else NOT_ENOUGH_DATA


def is_copied(copies: Sequence[tuple[WayReply, WayReply]], limit: float) -> bool:
    """Return True if at least half of a prompt's copies, and at least two, move beyond the limit.

    If there is only one copy, it is enough. Not every copy has to move, because a fault may depend
    on where a cache's blocks end.

    copies: the yardstick of each copy, and the reply to it.
    """
    moved = sum(_nats_between(yardstick, reply) > limit for yardstick, reply in copies)
    least = max(min(LEAST_COPIES, len(copies)), len(copies) / 2)
    return bool(copies) and moved >= least


def is_confirmed(replays: Sequence[WayReply], repeats: Sequence[WayReply], limit: float) -> bool:
    """Return True if each replay of a way lies beyond the limit from each cold repeat.

    If the cold repeats lie as far apart themselves, that is the server's noise, and the move is not
    confirmed. Without replays or without cold repeats it is not confirmed either.
    """
    if not replays or not repeats:
        return False
    is_steady = all(_nats_between(first, second) <= limit for first, second in pairwise(repeats))
    return is_steady and all(
        _nats_between(repeat, replay) > limit for repeat in repeats for replay in replays
    )


def _nats_between(first: WayReply, second: WayReply) -> float:
    move = move_between(first, second)
    return move.nats if move else 0.0


def row_of_moves(way: str, state: State, *, moves: Sequence[Move], limit: float) -> Way:
    """Return a row with the percentiles of its moves and their share of equal first choices."""
    if not moves:
        return Way(way, state, n=0, limit=limit)
    nats = sorted(move.nats for move in moves)
    return Way(
        way,
        state,
        n=len(moves),
        limit=limit,
        percentiles={percent: percentile(nats, percent) for percent in (*PERCENTILES, 100)},
        alike=sum(move.alike for move in moves) / len(moves),
    )


def percentile(ordered: Sequence[float], percent: int) -> float:
    """Return the smallest of ascending values that so many per cent do not exceed.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 50), percentile([1.0, 2.0, 3.0, 4.0], 99)
    (2.0, 4.0)
    """
    return ordered[max(0, ceil(percent / 100 * len(ordered)) - 1)]


def length_bands(
    prompt_tokens: Sequence[int], moves: Sequence[Move], *, limit: float
) -> tuple[MoveBand, ...]:
    """Return the moves by the length of the prompt, in bands."""
    bands = []
    for start, stop in pairwise((*BANDS, inf)):
        nats = [
            move.nats
            for tokens, move in zip(prompt_tokens, moves, strict=True)
            if start <= tokens < stop
        ]
        if nats:
            bands.append(band_of(int(start), nats, limit=limit))
    return tuple(bands)


def position_bands(replies: Iterable[WayReply], limit: float) -> tuple[MoveBand, ...]:
    """Return the moves in answers that were sent as a prompt, by the position of the token."""
    nats_from = defaultdict[int, list[float]](list)
    for reply in replies:
        rows = zip(reply.positions, reply.generated, reply.steps, strict=True)
        for position, (_, generated), (_, prefilled) in rows:
            start = max(band for band in POSITIONS if band <= position)
            nats_from[start].append(step_move(generated, prefilled))
    return tuple(band_of(start, nats, limit=limit) for start, nats in sorted(nats_from.items()))


def band_of(start: int, nats: Sequence[float], *, limit: float) -> MoveBand:
    """Return the band of some moves."""
    return MoveBand(
        start=start,
        n=len(nats),
        beyond=sum(move > limit for move in nats),
        most_nats=max(nats),
    )


def positions_of(tokens: int) -> tuple[int, ...]:
    """Return the positions at which an answer of so many tokens is compared with its prefill.

    >>> positions_of(0), positions_of(1), positions_of(24), positions_of(300)
    ((), (1,), (1, 24), (1, 64, 256, 300))
    """
    if not tokens:
        return ()
    return (*(position for position in POSITIONS if position < tokens), tokens)


def pair_steps(
    generated: Sequence[tuple[int, Step]], prefilled: Mapping[int, tuple[int, Step]]
) -> tuple[dict[int, tuple[Step, Step]], int]:
    """Pair the steps of an answer with those of the same tokens in a prompt.

    Args:
        generated: Of each token of an answer a number that differs if the ids do, and its step.
        prefilled: The same of the answer sent as a prompt, by position from 1 on.

    Returns:
        Both steps by position, and how many positions were left out because their ids differ.
    """
    pairs: dict[int, tuple[Step, Step]] = {}
    left_out = 0
    for position, (prefilled_id, prefilled_step) in sorted(prefilled.items()):
        if position > len(generated) or generated[position - 1][0] != prefilled_id:
            left_out += 1
            continue
        generated_step = generated[position - 1][1]
        token = generated_step[0]
        pairs[position] = generated_step, (token, prefilled_step[1])
    return pairs, left_out
