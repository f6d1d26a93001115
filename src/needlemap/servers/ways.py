"""Equal ways: the same prompt asked in several ways must get the same log-probabilities.

It needs no right answer, so any model will do, a random one too. Pure: what the replies come to.

A way is compared with the prompt asked alone and cold. A reply was cold if the server says so in
`cached_tokens`, not if it was meant to be. Noise is learnt from cold repeats alone: a repeat that
a cache answered may be as wrong as what is judged. A move beyond the noise and beyond what data
types explain counts once it is confirmed, that is, if it comes again when both are asked again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, inf
from typing import Literal

from needlemap.stats.verdicts import FAIL, NOT_ENOUGH_DATA, PASS, SUSPECT, Word

Step = tuple[str, Mapping[str, float]]  # a written token; the log-probabilities that were given
State = Word | Literal["not tested"]

ALONE, AGAIN = "alone", "again"  # both cold: what others are compared with, and the noise
COMPANY = "company"  # cold, among shorter and longer prompts
CACHED, EXTENDED, REWOUND = "cached", "extended", "rewound"
FLOODED = "flooded"  # asked again behind a flood of others, from what cache there may be
PREFILLED = "prefilled"  # what was generated, sent as a prompt
HELD = frozenset({CACHED, EXTENDED, REWOUND})  # ways that show nothing if no cache held a token
LEAST = 20  # compared prompts without which no way passes
LEAST_CONFIRMED = 2  # prompts whose moves are confirmed, from which on a way fails
TIMES_NOISE = 3  # the largest move of a cold repeat, below so many times which none counts
# Nats that a log-probability moves by at most, by the data type that a server computes in.
TOLERANCE: Mapping[str, float] = {"float32": 0.005, "float16": 0.05, "bfloat16": 0.5}
COARSEST = "bfloat16"
PERCENTILES = (50, 90, 99)
POSITIONS = (1, 64, 256, 1_000)  # of an answer, at which it is compared with its prefill
BANDS = (0, 256, 1_024, 4_096)  # tokens of a prompt, from which on a band of the map is


@dataclass(frozen=True, slots=True)
class Said:
    """A server's reply to a prompt. steps: empty where it gave no log-probabilities.
    cached_tokens: of the prompt, that a cache held; None where the server does not say."""

    prompt: int
    way: str
    text: str
    steps: tuple[Step, ...] = ()
    prompt_tokens: int = 0
    cached_tokens: int | None = None
    replay: int = 0

    @property
    def cold(self) -> bool:
        """Whether nothing of the prompt was held, as far as the server says."""
        return not self.cached_tokens


@dataclass(frozen=True, slots=True)
class Move:
    """Two replies to one prompt. nats: by how much a log-probability moved at most, while both had
    said the same; infinite for texts that differ without log-probabilities. at: the token of the
    answer where. alike: whether the first choices were equal."""

    nats: float
    at: int
    alike: bool


@dataclass(frozen=True, slots=True)
class Way:
    """What a way came to. n: compared prompts; beyond: those with a move that noise and data type
    do not explain; confirmed: those whose move came again. percentiles: of all moves, nats, by
    percent, and the largest at 100. alike: share of equal first choices. bands: the map: the first
    prompt token of a band, prompts compared in it, moves beyond the limit, the largest move.
    left_out: replies that were no comparison."""

    way: str
    state: State
    n: int
    beyond: int = 0
    confirmed: int = 0
    limit: float = 0.0
    percentiles: Mapping[int, float] | None = None
    alike: float | None = None
    bands: tuple[tuple[int, int, int, float], ...] = ()
    left_out: int = 0
    said: str = ""


def moved(one: Said, other: Said) -> Move | None:
    """How two replies differ; None if there is nothing to compare.

    A token that only one side lists is at most as likely on the other as the last it lists there.

    >>> alone = Said(0, "alone", "ab", (("a", {"a": -0.1, "b": -3.0}), ("b", {"b": -0.5})))
    >>> moved(alone, Said(0, "cached", "ac", (("a", {"a": -0.1, "b": -3.5}), ("c", {"c": -0.4}))))
    Move(nats=0.5, at=0, alike=True)
    """
    if not one.steps or not other.steps:
        alike = one.text == other.text
        return Move(0.0 if alike else inf, 0, alike) if one.text or other.text else None
    most, at = 0.0, 0
    for number, ((token, left), (written, right)) in enumerate(
        zip(one.steps, other.steps, strict=False)
    ):
        nats = step_move(left, right)
        if nats > most:
            most, at = nats, number
        if token != written:
            break
    return Move(most, at, one.steps[0][0] == other.steps[0][0])


def step_move(left: Mapping[str, float], right: Mapping[str, float]) -> float:
    """By how many nats at least some token's log-probability differs between two listings."""
    if not left or not right:
        return 0.0
    moves = [abs(left[token] - right[token]) for token in left.keys() & right.keys()]
    for listed, other in ((left, right), (right, left)):
        floor = min(other.values())
        moves += [listed[token] - floor for token in listed.keys() - other.keys()]
    return max(0.0, *moves) if moves else 0.0


def judge_ways(
    replies: Iterable[Said], data_type: str = COARSEST, asked: Sequence[str] = ()
) -> list[Way]:
    """What each way came to beside the same prompts alone and cold. data_type: what the server
    computes in. asked: ways that have a row although nothing of them came back."""
    first, again = dict[int, Said](), dict[tuple[str, int], list[Said]]()
    alone_again, left_out = defaultdict[int, list[Said]](list), defaultdict[str, int](int)
    for reply in replies:
        if reply.way not in (ALONE, AGAIN):
            again.setdefault((reply.way, reply.prompt), []).append(reply)
        elif not reply.cold:  # meant to be cold, and was not
            left_out[reply.way] += 1
        elif reply.way == ALONE and not reply.replay:
            first[reply.prompt] = reply
        else:
            alone_again[reply.prompt].append(reply)
    noise = noise_of(first, alone_again)
    limit = limit_of(noise, data_type)
    rows = [noise_row(noise, limit, left_out[AGAIN] + left_out[ALONE])]
    ways = dict.fromkeys((*asked, *(way for way, _ in again)))
    for way in ways:
        pairs = {
            prompt: sorted(found, key=lambda reply: reply.replay)
            for (name, prompt), found in again.items()
            if name == way
        }
        rows.append(judge_way(way, first, pairs, alone_again, limit))
    return rows


def noise_of(first: Mapping[int, Said], again: Mapping[int, Sequence[Said]]) -> list[Move]:
    """Moves between the first cold askings and the cold repeats."""
    pairs = (
        (first[prompt], reply) for prompt in again if prompt in first for reply in again[prompt]
    )
    return [move for one, other in pairs if (move := moved(one, other))]


def limit_of(noise: Sequence[Move], data_type: str) -> float:
    """Nats beyond which a move is no noise. It is never learnt above what the coarsest data type
    does: a server that is spoilt already would excuse itself.

    >>> limit_of([Move(0.02, 0, True)], "float32"), limit_of([Move(9.0, 0, True)], "float32")
    (0.06, 0.5)
    """
    least = TOLERANCE[data_type]
    most = max((move.nats for move in noise), default=0.0)
    return max(least, min(TIMES_NOISE * most, TOLERANCE[COARSEST]))


def noise_row(noise: Sequence[Move], limit: float, left_out: int) -> Way:
    """The cold repeats: they fail nothing, but more than data types explain is suspect."""
    beyond = sum(move.nats > TOLERANCE[COARSEST] for move in noise)
    few = len(noise) < LEAST
    state: Word = SUSPECT if beyond else NOT_ENOUGH_DATA if few else PASS
    said = f"{beyond} of {len(noise)} cold repeats moved by over {TOLERANCE[COARSEST]:g} nats"
    return described(AGAIN, state, noise, limit, beyond, 0, left_out, said)


def judge_way(
    way: str,
    first: Mapping[int, Said],
    pairs: Mapping[int, Sequence[Said]],
    alone_again: Mapping[int, Sequence[Said]],
    limit: float,
) -> Way:
    """One way beside the prompts alone. pairs: its replies by prompt, the first asking first."""
    moves, confirmed, beyond, left_out = list[Move](), 0, 0, 0
    lengths = list[int]()
    replies = [reply for found in pairs.values() for reply in found]
    if not replies:
        return Way(way, "not tested", 0, said="nothing was asked")
    if way in HELD and all(reply.cached_tokens == 0 for reply in replies):
        return Way(way, "not tested", 0, said="the server held nothing of any prompt")
    for prompt, found in pairs.items():
        one, other = first.get(prompt), found[0]
        wrong_state = other.cached_tokens == 0 if way in HELD else way == COMPANY and not other.cold
        move = None if one is None or wrong_state else moved(one, other)
        if one is None or move is None:
            left_out += 1
            continue
        moves.append(move)
        lengths.append(one.prompt_tokens)
        if move.nats > limit:
            beyond += 1
            confirmed += is_confirmed(found[1:], alone_again.get(prompt, ()), limit)
    few = len(moves) < LEAST
    state: Word
    if confirmed >= LEAST_CONFIRMED and not few:
        state = FAIL
    elif confirmed or beyond > len(moves) / LEAST:
        state = SUSPECT
    else:
        state = NOT_ENOUGH_DATA if few else PASS
    kinds = "texts differ" if moves and not any(r.steps for r in replies) else "moved"
    said = f"{beyond} of {len(moves)} {kinds} beyond {limit:.2g} nats, {confirmed} of them again"
    if not any(reply.steps for reply in replies):
        said += "; texts alone: no log-probabilities"
    if way in HELD and all(reply.cached_tokens is None for reply in replies):
        said += "; hits not reported"
    row = described(way, state, moves, limit, beyond, confirmed, left_out, said)
    return with_bands(row, lengths, moves)


def is_confirmed(replays: Sequence[Said], alone: Sequence[Said], limit: float) -> bool:
    """Whether each replay of a way moves beside each cold asking again. Without both it is not.

    A prompt whose own cold askings differ as much is the server's noise.
    """
    if not replays or not alone:
        return False
    steady = all(_nats(one, other) <= limit for one, other in pairwise(alone))
    return steady and all(_nats(one, other) > limit for one in alone for other in replays)


def _nats(one: Said, other: Said) -> float:
    move = moved(one, other)
    return move.nats if move else 0.0


def described(
    way: str,
    state: State,
    moves: Sequence[Move],
    limit: float,
    beyond: int,
    confirmed: int,
    left_out: int,
    said: str,
) -> Way:
    """A row with its percentiles and its share of equal first choices."""
    nats = sorted(move.nats for move in moves)
    found = (
        {percent: percentile(nats, percent) for percent in (*PERCENTILES, 100)} if nats else None
    )
    alike = sum(move.alike for move in moves) / len(moves) if moves else None
    return Way(
        way=way,
        state=state,
        n=len(moves),
        beyond=beyond,
        confirmed=confirmed,
        limit=limit,
        percentiles=found,
        alike=alike,
        left_out=left_out,
        said=said,
    )


def percentile(ordered: Sequence[float], percent: int) -> float:
    """The smallest value that so many per cent do not exceed.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 50), percentile([1.0, 2.0, 3.0, 4.0], 99)
    (2.0, 4.0)
    """
    return ordered[max(0, ceil(percent / 100 * len(ordered)) - 1)]


def with_bands(row: Way, lengths: Sequence[int], moves: Sequence[Move]) -> Way:
    """A row with its map: how much moved in prompts of which length."""
    bands = []
    for start, stop in pairwise((*BANDS, inf)):
        nats = [m.nats for n, m in zip(lengths, moves, strict=True) if start <= n < stop]
        if nats:
            beyond = sum(each > row.limit for each in nats)
            bands.append((int(start), len(nats), beyond, max(nats)))
    return replace(row, bands=tuple(bands))


def prefilled(
    generated: Sequence[tuple[int, Step]], sent: Mapping[int, tuple[int, Step]]
) -> tuple[tuple[Step, ...], tuple[Step, ...], int]:
    """What a server said of its own tokens at some positions, beside what it says of them in a
    prompt, and how many positions were left out, as their ids differ.

    generated: id and step of each token of an answer. sent: the same by position, from 1 on, of
    prompt and answer sent as a prompt.
    """
    left, right, left_out = list[Step](), list[Step](), 0
    for position in POSITIONS:
        if position > len(generated) or position not in sent:
            continue
        (number, step), (other, told) = generated[position - 1], sent[position]
        if number != other:
            left_out += 1
            continue
        left.append(step)
        right.append((step[0], told[1]))
    return tuple(left), tuple(right), left_out
