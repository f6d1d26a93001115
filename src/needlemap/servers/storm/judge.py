"""What a storm comes to: a rate with its bound, what was confirmed, a line, an exit code.

A foreign secret, another session's text and salad are faults each by themselves. Lost, endless and
empty answers are a model's own too: they are faults of state where replays of their sequence lose
them more often than the same prompts cold, where the storm loses more than the prompts asked cold
beside it in the same minutes, or where prompts that share nothing lose more from some round on, or
since the first client went away: the server is spoilt for all. What the gauge loses is never its
own fault: where much is lost when asked alone too, the server computes wrong, or is spoilt until it
is started anew. Each is a bet, valid however often it is looked at. Margins that moved under a
right text are faults of state where replays move them more often than cold askings, and no coarse
cache explains how. An operation that the model cannot do, alone either, is not tested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf, log

from needlemap.servers.check.probe import HELD
from needlemap.servers.storm.act import Act
from needlemap.servers.storm.moves import Moves
from needlemap.servers.storm.operations.fresh import Fresh
from needlemap.servers.storm.outcome import CERTAIN, MOVED, RequestOutcome
from needlemap.stats.bets import (
    Block,
    highest_rate,
    log_blocks,
    log_grown,
    log_mixture,
    log_pairs,
    mean_of_logs,
    shown_rate,
)
from needlemap.stats.verdicts import Verdict, row_word
from needlemap.text import counted

GOAL = log(1_000)  # of either bet, until faults of state are confirmed
POINTS = log(200)  # from which on a bet points to them: of sound servers one in 200 at most
OF_GAUGE = 1e-4  # share of prompts that the gauge may miss itself
SPOILT = 0.25  # share of lost answers on which is bet, against the share that the gauge may lose
# Share of an operation's answers that the model must get right, in the storm or alone, for it to
# show a fault; and requests from which that is known.
WEAK = 0.5
FEWEST_SENT = 20
_SPLITS = 20  # rounds at which it is asked whether more is lost since


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


@dataclass(frozen=True, slots=True)
class Operated:
    """Answers of one operation. able: those that could show a fault: the model gets their prompt
    right, in the storm or alone."""

    sent: int
    able: int


@dataclass(frozen=True, slots=True)
class Growth:
    """Prompts that share nothing: how many were lost, of how many, before a round and since then.

    wealth: log of the bet that more are since. event: what happened then, '' if nothing did.
    """

    start: int
    before: tuple[int, int]
    since: tuple[int, int]
    wealth: float
    event: str = ""


def growth_at(alone: Sequence[tuple[int, bool]], start: int, event: str = "") -> Growth:
    """Return what was lost before a round and since then. alone: rounds, and whether lost."""
    before = [lost for number, lost in alone if number < start]
    since = [lost for number, lost in alone if number >= start]
    counts = (sum(before), len(before)), (sum(since), len(since))
    return Growth(start, *counts, log_grown(*counts), event)


def growth_over_time(alone: Sequence[tuple[int, bool]]) -> Growth | None:
    """Return the split after which most is lost; its bet is the mean over all splits, so that
    having tried several costs what it must. None for a single round."""
    rounds = sorted({number for number, _ in alone})[1:]
    step = max(1, len(rounds) // _SPLITS)
    splits = [growth_at(alone, start) for start in rounds[::step]]
    if not splits:
        return None
    best = max(splits, key=lambda each: each.wealth)
    return replace(best, wealth=mean_of_logs([each.wealth for each in splits]))


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

    @property
    def alone(self) -> list[tuple[int, bool]]:
        """The round of each prompt that shares nothing with others, and whether it was lost."""
        rows = [
            (each.round, each.outcome) for each in self.storm if each.act.operation == Fresh.name
        ]
        rows += [(each.round, cold) for each, cold in self.pairs]
        return [(number, out.is_lost) for number, out in rows if out.has_right_text or out.is_lost]

    def operations(self) -> dict[str, Operated]:
        """By operation: requests that were answered, and how many of them the model gets right, in
        the storm or alone. Lost ones that were not sent again yet do not count."""
        found: dict[str, list[bool]] = {}
        for each in self.storm:
            suspect = self.suspects.get(each.key)
            if each.outcome.is_lost and (suspect is None or suspect.again is None):
                continue
            if each.outcome.word in ("cancelled", "refused"):
                continue
            able = not each.outcome.is_lost or (suspect is not None and suspect.is_doubtful)
            found.setdefault(each.act.operation, []).append(able)
        return {name: Operated(len(rows), sum(rows)) for name, rows in sorted(found.items())}

    def untested(self) -> dict[str, Operated]:
        """The operations of which the model gets under half right, so that they show no fault."""
        return {
            name: each
            for name, each in self.operations().items()
            if each.sent >= FEWEST_SENT and each.able < WEAK * each.sent
        }


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
    operations: Mapping[str, Operated] = field(default_factory=dict)


def judge_storm(
    seens: Seens, wanted: float, *, gauge: bool = False, left_out: Sequence[str] = ()
) -> Stormed:
    """The verdict at this look. wanted: the rate that is to be excluded, a share. gauge:
    whether the model is the gauge, which misses nothing itself. left_out: operations that the
    user does not ask about."""
    rows = [each for each in seens.storm if each.outcome.word != "cancelled"]
    counts = Counter[str](each.outcome.word for each in rows)
    certain = [each for each in (*rows, *seens.elsewhere) if each.outcome.is_certain]
    bad = {each.key for each in rows if each.outcome.is_certain or each.outcome.word == "refused"}
    doubtful = {each.key for each in rows if each.outcome.is_lost or seens.is_moved(each)}
    bad |= doubtful - {
        key for key, each in seens.suspects.items() if each.again and not each.is_doubtful
    }
    growth = _growth(seens)
    grown = growth.wealth if growth else -inf
    if growth and grown >= POINTS:  # then what was lost cold too is no fault of the model's
        bad |= {each.seen.key for each in seens.lost if each.seen.round >= growth.start}
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
    operations = seens.operations()
    untested = {} if gauge else seens.untested()
    untested = {name: each for name, each in untested.items() if name not in left_out}
    right = sum(each.outcome.has_right_text for each in rows) / len(rows) if rows else 0.0
    word = row_word(
        fails=leaks or (confirmed and highest >= wanted),
        passes=highest < wanted and right >= WEAK and not untested,
        points=best >= POINTS,
    )
    return Stormed(
        Verdict(
            word,
            f"faulty families: {bound_words(f'{hit:,}', families, highest)}",
            f"allowed {100 * wanted:g} %, {counted(len(rows), 'request')}",
            _scope(operations, untested),
            _next(untested),
        ),
        (
            *_certain_lines(certain),
            *_state_lines(seens, replays, beside),
            *_grown_lines(growth),
            *_gauge_lines(missed, len(rows), known),
            *_spoilt_lines(len(alone), len(rows), spoilt),
            *_moved_lines(seens, moved),
            *_shown_lines(seens, families, 1.0 if spoilt >= POINTS else right),
            *_operation_lines(operations),
        ),
        dict(counts),
        len(rows),
        families,
        faulty,
        highest,
        confirmed,
        tuple(certain),
        operations,
    )


def _growth(seens: Seens) -> Growth | None:
    """Return since when prompts that share nothing are lost more often: since the first client
    went away, or from some round on, whichever is clearer."""
    alone, known = seens.alone, list[Growth]()
    if (first := seens.first_cancel) is not None:
        known.append(growth_at(alone, first, "the first client went away"))
    if (growth := growth_over_time(alone)) is not None:
        known.append(growth)
    return max(known, key=lambda each: each.wealth, default=None)


def _scope(operations: Mapping[str, Operated], untested: Mapping[str, Operated]) -> str:
    """Return the operations that could show a fault, and first those that could not."""
    tested = [name for name in operations if name not in untested]
    parts = [f"not tested: {', '.join(map(_named, untested, untested.values()))}"] * bool(untested)
    return "; ".join([*parts, *([f"tested: {', '.join(tested)}"] if tested else [])])


def _named(name: str, each: Operated) -> str:
    return f"{name} ({each.able} of {each.sent} right, in the storm or alone)"


def _next(untested: Mapping[str, Operated]) -> str:
    """Return how to get a verdict in spite of what the model cannot do."""
    if not untested:
        return ""
    flags = " ".join(f"--without {name}" for name in untested)
    return f"serve a model that can, e.g. the gauge, or leave it out: {flags}"


def _operation_lines(operations: Mapping[str, Operated]) -> list[str]:
    """Return how many answers of each operation could show a fault."""
    if not operations:
        return []
    counts = ", ".join(f"{name} {each.able} of {each.sent}" for name, each in operations.items())
    return [f"answers that could show a fault: {counts}"]


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


def _grown_lines(growth: Growth | None) -> list[str]:
    """What prompts that share nothing say of the server from some time on."""
    if growth is None or growth.wealth < POINTS:
        return []
    (one, n), (two, m) = growth.before, growth.since
    return [
        f"prompts that share nothing: {one} of {n} lost before "
        f"{growth.event or f'round {growth.start}'}, {two} of {m} since: "
        f"{_strength(growth.wealth)}"
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
        "would have caught with 95 % probability: foreign text or salad in "
        f"{rounded_up(alone)} % of families"
    ]
    if seens.pairs:
        rate = shown_rate(len(seens.pairs), seens.discordant[1], GOAL)
        lines.append(
            "would have caught with 50 % probability: answers that are lost, endless or empty "
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


def bound_words(faulty: str, n: int, high: float) -> str:
    """The bound as it is printed, rounded up.

    >>> bound_words("0", 2_310, highest_rate(0, 2_310))
    '0 of 2,310: under 0.21 % at any time looked, of requests mixed as here'
    """
    under = f"under {rounded_up(high)} % at any time looked"
    return f"{faulty} of {n:,}: {under}, of requests mixed as here"


def rounded_up(share: float) -> str:
    """A share in percent with two digits, never less than it is.

    >>> rounded_up(0.00204), rounded_up(0.0125), rounded_up(1.0), rounded_up(0.12345)
    ('0.21', '1.3', '100', '13')
    """
    percent = 100 * share
    if percent >= 99:
        return "100"
    digits = 0 if percent >= 10 else 1 if percent >= 1 else 2
    return f"{ceil(percent * 10**digits - 1e-9) / 10**digits:.{digits}f}"
