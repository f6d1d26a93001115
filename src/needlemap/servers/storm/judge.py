"""What a storm comes to: a rate with its bound, what was confirmed, a line, an exit code.

A foreign secret, another session's text and salad are faults each by themselves. Lost, endless and
empty answers are a model's own too: they are faults of state where replays of their sequence lose
them more often than the same prompts cold, where the storm loses more than the prompts asked cold
beside it in the same minutes, or where these lose more since the first client went away: that may
have spoilt the server for all. What the gauge loses is never its own fault: where much is lost when
asked alone too, the server computes wrong, or is spoilt until it is started anew. Each is a bet,
valid however often it is looked at. Margins that moved under a right text are faults of state where
replays move them more often than cold askings, and no coarse cache explains how.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, log

from needlemap.servers.check.probe import HELD
from needlemap.servers.storm.act import Act
from needlemap.servers.storm.moves import Moves
from needlemap.servers.storm.operations.fresh import Fresh
from needlemap.servers.storm.outcome import CERTAIN, MOVED, RequestOutcome
from needlemap.servers.storm.rare import (
    Block,
    bound_words,
    highest_rate,
    log_blocks,
    log_grown,
    log_mixture,
    log_pairs,
    rounded_up,
    shown_rate,
)
from needlemap.stats.verdicts import Verdict, Word, row_word
from needlemap.text import counted

GOAL = log(1_000)  # of either bet, until faults of state are confirmed
POINTS = log(200)  # from which on a bet points to them: of sound servers one in 200 at most
OF_GAUGE = 1e-4  # share of prompts that the gauge may miss itself
SPOILT = 0.25  # share of lost answers on which is bet, against the share that the gauge may lose
WEAK = 0.5  # share of right answers below which a storm proves nothing


@dataclass(frozen=True, slots=True)
class Seen:
    """A request of the storm and what came of it. key: its record's number. at_s: when it was sent,
    by the server's record; 0 where unknown. nats: by how many nats a token its margins moved from
    the reference's; None where that was not looked at."""

    key: int
    round: int
    act: Act
    outcome: RequestOutcome
    answer: str = ""
    at_s: float = 0.0
    seconds: float = 0.0
    tokens: int = 0
    cached: int | None = None
    nats: float | None = None

    @property
    def unit(self) -> tuple[int, int]:
        """The family that it counts for."""
        return self.round, self.act.family


@dataclass
class Suspect:
    """A request whose answer was lost, endless or empty, or whose margins moved. limit: beyond how
    many nats they did. again: how its prompt, cold and salted, was answered at once. blocks: of
    replays of its sequence, and of cold askings beside them."""

    seen: Seen
    limit: float | None = None
    again: RequestOutcome | None = None
    blocks: list[Block] = field(default_factory=list)

    @property
    def is_doubtful(self) -> bool:
        """Whether the same prompt was answered right when nothing stood before it."""
        return self.again is not None and self.again.word == "right"

    @property
    def askings(self) -> tuple[int, int, int]:
        """Replays, how many of them lost it, and how many cold askings did."""
        lost, cold, each = (sum(row[at] for row in self.blocks) for at in range(3))
        return each, lost, cold


@dataclass
class Seens:
    """All that a storm saw. pairs: requests and their equals, asked cold beside them. elsewhere:
    faults in askings beside the storm. moves: what is known of margins; None without a
    reference."""

    storm: list[Seen] = field(default_factory=list)
    pairs: list[tuple[Seen, RequestOutcome]] = field(default_factory=list)
    suspects: dict[int, Suspect] = field(default_factory=dict)
    elsewhere: list[Seen] = field(default_factory=list)
    moves: Moves | None = None

    @property
    def lost(self) -> list[Suspect]:
        """Suspects that were lost, endless or empty."""
        return [each for each in self.suspects.values() if each.seen.outcome.is_lost]

    def is_moved(self, seen: Seen) -> bool:
        """Whether its margins moved, and no coarse cache explains how."""
        explained = self.moves is not None and self.moves.is_choice
        return seen.outcome.word == MOVED and not explained

    @property
    def moved(self) -> list[Suspect]:
        """Suspects whose margins moved, unless a coarse cache explains how."""
        return [each for each in self.suspects.values() if self.is_moved(each.seen)]

    @property
    def discordant(self) -> tuple[int, int]:
        """Pairs of which the storm's was lost and the cold one right, and the reverse."""
        lost = sum(one.outcome.is_lost and two.has_right_text for one, two in self.pairs)
        gained = sum(one.outcome.has_right_text and two.is_lost for one, two in self.pairs)
        return lost, gained

    @property
    def first_cancel(self) -> int | None:
        """The round in which the first client went away; None where none did."""
        return min((each.round for each in self.storm if each.act.cancel is not None), default=None)

    def lost_around(self, first: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """How many prompts that share nothing were lost, of how many, in the rounds before one
        and since then."""
        rows = [
            (each.round, each.outcome) for each in self.storm if each.act.operation == Fresh.name
        ]
        rows += [(each.round, cold) for each, cold in self.pairs]
        known = [row for row in rows if row[1].has_right_text or row[1].is_lost]
        before = [out.is_lost for number, out in known if number < first]
        since = [out.is_lost for number, out in known if number >= first]
        return (sum(before), len(before)), (sum(since), len(since))


@dataclass(frozen=True, slots=True)
class Stormed:
    """What a storm found. families: units; faulty: the sum of their shares of faulty requests;
    highest: the bound of the rate. said: what else there is to know."""

    verdict: Verdict
    said: tuple[str, ...]
    counts: Mapping[str, int]
    requests: int
    families: int
    faulty: float
    highest: float
    confirmed: bool
    certain: tuple[Seen, ...] = ()


def judge_storm(seens: Seens, wanted: float, *, gauge: bool = False) -> Stormed:
    """The verdict at this look. wanted: the rate that is to be excluded, a share. gauge:
    whether the model is the gauge, which misses nothing itself."""
    rows = [each for each in seens.storm if each.outcome.word != "cancelled"]
    counts = Counter[str](each.outcome.word for each in rows)
    certain = [each for each in (*rows, *seens.elsewhere) if each.outcome.is_certain]
    bad = {each.key for each in rows if each.outcome.is_certain or each.outcome.word == "refused"}
    doubtful = {each.key for each in rows if each.outcome.is_lost or seens.is_moved(each)}
    bad |= doubtful - {
        key for key, each in seens.suspects.items() if each.again and not each.is_doubtful
    }
    first = seens.first_cancel
    around = seens.lost_around(first) if first is not None else None
    grown = log_grown(*around) if around else -inf
    if grown >= POINTS:  # then what was lost cold too is no fault of the model's
        bad |= {each.seen.key for each in seens.lost if each.seen.round >= (first or 0)}
    alone = {each.seen.key for each in seens.lost if each.again and not each.is_doubtful}
    spoilt = log_spoilt(len(alone), len(rows)) if gauge else 0.0
    if spoilt >= POINTS:
        bad |= alone
    families, faulty = shares(rows, bad)
    hit = len({each.unit for each in rows if each.key in bad})
    highest = highest_rate(round(faulty, 6), families)
    replays, moved = (
        log_blocks(block for each in suspects for block in each.blocks)
        for suspects in (seens.lost, seens.moved)
    )
    lost, gained = seens.discordant
    beside = log_pairs(lost, gained)
    missed = sum(each.is_doubtful for each in seens.lost)
    known = log_mixture(missed, len(rows), OF_GAUGE) if gauge and rows else 0.0
    best = max(replays, moved, beside, known, grown, spoilt)
    confirmed = bool(certain) or best >= GOAL
    leaks = any(each.outcome.word == "foreign" for each in certain)
    right = sum(each.outcome.has_right_text for each in rows) / len(rows) if rows else 0.0
    word = _word(best, right, leaks=leaks, confirmed=confirmed, low=highest < wanted)
    return Stormed(
        Verdict(
            word,
            f"faulty families: {bound_words(f'{hit:,}', families, highest)}",
            f"allowed {100 * wanted:g} %, {counted(len(rows), 'request')}",
            _tested(rows),
        ),
        (
            *_certain_lines(certain),
            *_state_lines(seens, replays, beside),
            *_grown_lines(around, grown),
            *_gauge_lines(missed, len(rows), known),
            *_spoilt_lines(len(alone), len(rows), spoilt),
            *_moved_lines(seens, moved),
            *_shown_lines(seens, families, 1.0 if spoilt >= POINTS else right),
        ),
        dict(counts),
        len(rows),
        families,
        faulty,
        highest,
        confirmed,
        tuple(certain),
    )


def _word(best: float, right: float, *, leaks: bool, confirmed: bool, low: bool) -> Word:
    """The word. best: the best bet; right: share of right answers; low: whether the rate is
    surely below the wanted one."""
    return row_word(
        fails=leaks or (confirmed and not low),
        passes=low and right >= WEAK,
        points=best >= POINTS,
    )


def _tested(rows: Iterable[Seen]) -> str:
    """The operations that were sent."""
    operations = sorted({each.act.operation for each in rows})
    return f"sent: {', '.join(operations)}" if operations else ""


def log_spoilt(lost: int, requests: int) -> float:
    """Log of the bet that the gauge's answers are lost more often than `check` allows it: a fair
    one where as many are, and a losing one where fewer."""
    return lost * log(SPOILT / HELD) + (requests - lost) * log((1 - SPOILT) / (1 - HELD))


def shares(rows: Iterable[Seen], bad: Iterable[int]) -> tuple[int, float]:
    """Families, and the sum of their shares of bad requests."""
    known, sizes, found = set(bad), Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for each in rows:
        sizes[each.unit] += 1
        found[each.unit] += each.key in known
    return len(sizes), sum(found[unit] / size for unit, size in sizes.items())


def _certain_lines(certain: Sequence[Seen]) -> list[str]:
    """Faults that are faults by themselves, the first of each kind with what it held."""
    lines = []
    for word in CERTAIN:
        rows = [each for each in certain if each.outcome.word == word]
        if not rows:
            continue
        first = rows[0]
        what = {
            "foreign": f"the secret of request {first.outcome.whose}, "
            f"{counted(first.outcome.ago, 'request')} before",
            "text": "text of another session",
            "salad": "no words at all",
        }[word]
        lines.append(
            f"{word}: {counted(len(rows), 'answer')}; the first is request {first.key} "
            f"({first.act.operation}, round {first.round}), which holds {what}"
        )
    return lines


def _state_lines(seens: Seens, replays: float, beside: float) -> list[str]:
    """What replays and pairs say of answers that were lost, endless or empty."""
    lost, gained = seens.discordant
    lines = []
    if seens.lost:
        own = sum(not each.is_doubtful for each in seens.lost)
        lines.append(
            f"lost, endless or empty: {len(seens.lost)}; {own} of them also when asked alone "
            "behind a first line of their own, which no cache holds"
        )
    lines += _replay_lines(seens.lost, "lost", replays)
    if lost + gained:
        lines.append(
            f"beside cold prompts in the same minutes: {lost} lost in the storm alone, {gained} "
            f"lost cold alone, of {counted(len(seens.pairs), 'pair')}: {_strength(beside)}"
        )
    return lines


def _replay_lines(suspects: Iterable[Suspect], word: str, replays: float) -> list[str]:
    """What replays say of suspects of one kind."""
    tried = [each for each in suspects if each.is_doubtful and each.blocks]
    if not tried:
        return []
    each, again, cold = (sum(row.askings[at] for row in tried) for at in range(3))
    return [
        f"replayed: {counted(len(tried), 'sequence')}, {word} in {again} of {each} replays and "
        f"in {cold} of {each} cold askings: {_strength(replays)}"
    ]


def _moved_lines(seens: Seens, replays: float) -> list[str]:
    """What margins say, beside the reference's."""
    if seens.moves is None:
        return []
    if seens.moves.limit is None:
        return ["margins were not compared: no first prompt came right with log-probabilities"]
    nats = [each.nats for each in seens.storm if each.nats is not None]
    moved = [each for each in seens.storm if each.outcome.word == MOVED]
    if not nats:
        return []
    line = (
        f"margins beside the reference's: {counted(len(nats), 'right answer')}, moved by up to "
        f"{max(nats):.2g} nats a token; {seens.moves.words}"
    )
    if not moved:
        return [line]
    line += f"; {len(moved)} moved too far, the first is request {moved[0].key} "
    line += f"({moved[0].act.operation}, round {moved[0].round})"
    if seens.moves.is_choice:
        return [line, "these moves are those of a cache coarser than the weights: a choice"]
    if seens.moves.cache == "cut off":
        line += ", as by a cache whose mantissas are cut off"
    return [line, *_replay_lines(seens.moved, "moved", replays)]


def _grown_lines(around: tuple[tuple[int, int], tuple[int, int]] | None, grown: float) -> list[str]:
    """What prompts that share nothing say of the server since a client first went away."""
    if around is None or grown < POINTS:
        return []
    (one, n), (two, m) = around
    return [
        f"prompts that share nothing: {one} of {n} lost before the first client went away, "
        f"{two} of {m} since: {_strength(grown)}"
    ]


def _gauge_lines(missed: int, requests: int, known: float) -> list[str]:
    """What the gauge's answers say: it misses under 1 in 10,000 itself."""
    if not missed or not known:
        return []
    return [
        f"the gauge answers all prompts right; here {missed} of {requests:,} were lost and right "
        f"when asked alone: {_strength(known)}"
    ]


def _spoilt_lines(lost: int, requests: int, spoilt: float) -> list[str]:
    """What the gauge's answers say where many are lost when asked alone too."""
    if spoilt < POINTS:
        return []
    return [
        f"the gauge answers all prompts right; here {lost} of {requests:,} were lost, when asked "
        "alone too: the server computes them wrong (needlemap check), or is spoilt until it is "
        "started anew"
    ]


def _strength(wealth: float) -> str:
    if wealth >= GOAL:
        return "faults of state"
    return "points to faults of state" if wealth >= POINTS else "no proof of faults of state"


def _shown_lines(seens: Seens, families: int, right: float) -> list[str]:
    """Which rate of which kind the storm could have shown."""
    if not seens.storm:
        return []
    alone = 1 - 0.05 ** (1 / max(1, families))
    lines = [
        f"95 in 100 such storms find foreign, text or salad that hits {rounded_up(alone)} % of "
        "families"
    ]
    if seens.pairs:
        rate = shown_rate(len(seens.pairs), seens.discordant[1], GOAL)
        lines.append(
            "half of such storms find answers that are lost, endless or empty "
            f"{rounded_up(rate)} points more often than cold ones"
            if rate < 1
            else f"{counted(len(seens.pairs), 'pair')} with cold prompts are too few to show by "
            "themselves what is lost, endless or empty"
        )
    if right < WEAK:
        lines.append(
            f"the model answers {100 * right:.0f} % right: what state loses is hard to see with it"
        )
    return lines
