"""Verdicts of stored replies, for tools/golden.py: what the pure judging functions make of them.

The replies are built here, by seed, without a server: of sound models, weak ones, broken servers,
few answers, missing answers. A row has the verdict in clear and a hash of its numbers. Sentences
are not in it: they are one row a function, among the words.

What is judged is written down by the names below, not by those of the package's fields, so that a
field may be renamed: mend the reader here, and no row moves.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

from needlemap.errors import Failure
from needlemap.models import Logprobs
from needlemap.records.record import Record
from needlemap.servers.ab.arms import ArmTrial, judge_arms, tripwire, worst_of
from needlemap.servers.check.ask import Answers, Ask, Reply, secret_of
from needlemap.servers.check.change import judge_change
from needlemap.servers.check.haystack import Options
from needlemap.servers.check.judge import Checked, judge
from needlemap.servers.check.schedule import Schedule
from needlemap.servers.storm.act import Act, key_of
from needlemap.servers.storm.evidence import Evidence, Observation, Suspect
from needlemap.servers.storm.judge import StormResult, judge_storm
from needlemap.servers.storm.moves import Moves
from needlemap.servers.storm.operation import Limits
from needlemap.servers.storm.outcome import RequestOutcome, Word
from needlemap.servers.storm.plan import make_round
from needlemap.stats.judging import PairedLoss
from needlemap.stats.judging import judge as judge_pairs
from needlemap.stats.looks import endless_looks, planned_looks
from needlemap.stats.rows import JudgedPrompt, Rows

SEEDS = (1, 2, 3)
Made = tuple[str, str, Any, Any]  # a set's name, its verdict in clear, its numbers, its sentences


def verdicts(of: str) -> Iterator[Made]:
    """All sets that one function judges."""
    makers = {"check": of_check, "more checks": of_more_checks, "storm": of_storm}
    yield from (makers | {"pairs": of_pairs, "arms": of_arms})[of]()


def rounded(value: Any) -> Any:
    """JSON's values with floats cut to six digits: the last ones are the machine's."""
    if isinstance(value, Mapping):
        return {str(name): rounded(each) for name, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [rounded(each) for each in value]
    if isinstance(value, float):
        return 0.0 if abs(value) < 1e-9 else float(f"{value:.6g}")
    return value if value is None or isinstance(value, (str, int, bool)) else float(value)


# --- check ---------------------------------------------------------------------------------------

LOST = "The text does not say."
LONG = 5_000  # tokens: more than the second size has, less than the longest
Said = tuple[str, Mapping[str, Any]]  # an answer, and what else the reply has


def right(ask: Ask) -> str:
    return f"It is {ask.secret}."


def losing(when: Callable[[Ask], bool], share: float = 1.0) -> Callable[[Ask, Random], Said]:
    """A server that loses a share of some answers."""
    return lambda ask, draw: (LOST if when(ask) and draw.random() < share else right(ask), {})


def failing(when: Callable[[Ask], bool], why: str, share: float = 1.0) -> Any:
    """A server that does not answer some prompts."""

    def change(ask: Ask, draw: Random) -> Said:
        fails = when(ask) and draw.random() < share
        return ("", {"failure": why}) if fails else (right(ask), {})

    return change


def always(_ask: Ask) -> bool:
    return True


def cut(ask: Ask, _draw: Random) -> Said:
    """The head of long prompts is cut off, and not counted."""
    if ask.length < LONG:
        return right(ask), {}
    return (LOST if ask.depth < 0.5 else right(ask)), {"prompt_tokens": LONG}


def endless(ask: Ask, draw: Random) -> Said:
    return right(ask), {"finish": "length" if draw.random() < 0.2 else "stop"}


def leaking(ask: Ask, draw: Random) -> Said:
    """Now and then the secret of another haystack."""
    other = secret_of(ask.seed, (ask.size, max(0, ask.repeat - 1)), ask.fact)
    return (f"It is {other}." if draw.random() < 0.05 else right(ask)), {}


def replying(ask: Ask, draw: Random) -> Said:
    """Often the answer to another question about the same haystack."""
    other = ask.other_secrets[0] if ask.other_secrets else ask.secret
    return (f"It is {other}." if draw.random() < 0.3 else right(ask)), {}


def parroting(ask: Ask, draw: Random) -> Said:
    copied = " ".join((ask.secret, *ask.other_secrets))
    return (copied if draw.random() < 0.3 else right(ask)), {}


def weak_haystacks(ask: Ask, _draw: Random) -> Said:
    """Loses all of some haystacks."""
    weak = Random(f"haystack {ask.seed} {ask.haystack[:2]}").random() < 0.3
    return (LOST if weak else right(ask)), {}


SERVERS: Mapping[str, Callable[[Ask, Random], Said]] = {
    "sound": losing(always, 0.0),
    "errs at 2 %": losing(always, 0.02),
    "errs at 10 %": losing(always, 0.1),
    "errs at half": losing(always, 0.5),
    "finds nothing": losing(always),
    "loses long prompts": losing(lambda ask: ask.length > LONG),
    "loses some long prompts": losing(lambda ask: ask.length > LONG, 0.3),
    "loses short prompts": losing(lambda ask: ask.length < 2_000, 0.5),
    "loses cold prompts": losing(lambda ask: ask.state == "cold", 0.3),
    "loses warm prompts": losing(lambda ask: ask.state == "warm", 0.3),
    "loses under load": losing(lambda ask: ask.state == "loaded", 0.4),
    "loses what is asked again": losing(lambda ask: "again" in ask.way, 0.5),
    "loses beginnings": losing(lambda ask: ask.depth < 0.3, 0.6),
    "loses one length in 16": losing(lambda ask: ask.length % 16 == 3),
    "loses whole haystacks": weak_haystacks,
    "cuts heads": cut,
    "never ends": endless,
    "leaks": leaking,
    "answers earlier questions": replying,
    "copies": parroting,
    "fails now and then": failing(always, Failure.SERVER, 0.1),
    "fails at length": failing(lambda ask: ask.length > LONG, Failure.SERVER),
    "refuses long prompts": failing(lambda ask: ask.length > LONG, Failure.TOO_LONG),
    "answers nothing": failing(always, Failure.TIMED_OUT),
    "is stopped by a limit": failing(always, Failure.SKIPPED, 0.5),
}
BASE = Options(max_length=8_000, promised=True, few=True)
OTHER: Mapping[str, tuple[Options, str]] = {  # options, and the server that is asked so
    "many haystacks": (replace(BASE, few=False), "errs at 10 %"),
    "one fact": (replace(BASE, facts=1), "errs at 10 %"),
    "holds": (replace(BASE, holds=8_000), "errs at 2 %"),
    "twins": (replace(BASE, twins=True), "answers earlier questions"),
    "serial": (replace(BASE, serial=True), "errs at 2 %"),
    "two probes": (replace(BASE, probes=("length", "cache")), "loses warm prompts"),
    "required size": (replace(BASE, require=("1264",)), "loses long prompts"),
    "required probe": (replace(BASE, require=("stop", "same")), "loses long prompts"),
    "accepted": (replace(BASE, accept=("length@8000", "pattern@8000")), "loses long prompts"),
    "context": (replace(BASE, context=8_000), "sound"),
}
WALKED = ("sound", "errs at 2 %", "errs at 10 %", "loses some long prompts", "loses warm prompts")
MOVES = (("float32", 0.00003), ("float16", 0.03))


def reply(name: str, ask: Ask) -> Reply:
    """What a server says to an ask, whatever stood before it."""
    text, more = SERVERS[name](ask, Random(f"{name} {ask.seed} {ask.key}"))
    held = ask.length // 2 if ask.state == "warm" else 0
    return Reply.of(ask, text, **{"prompt_tokens": ask.length, "cached_tokens": held, **more})


@cache
def first_asks(options: Options, seed: int) -> tuple[Schedule, tuple[Ask, ...]]:
    """The first round of a check."""
    schedule = Schedule(options, seed)
    return schedule, tuple(schedule.cells())


def of_check() -> Iterator[Made]:
    """The first round of each server, by one seed."""
    yield from first_rounds(SEEDS[0])


def first_rounds(seed: int) -> Iterator[Made]:
    for name in SERVERS:
        schedule, asks = first_asks(BASE, seed)
        yield check_row(f"{name}, {seed}", judge(schedule, [reply(name, ask) for ask in asks]))


def of_more_checks() -> Iterator[Made]:
    """By another seed; parts of first rounds; other options; whole checks with second rounds;
    beside a reference; beside an earlier check."""
    yield from first_rounds(SEEDS[1])
    for share in (0.0, 0.01, 0.1, 0.5):
        for name in ("sound", "errs at 10 %", "loses long prompts"):
            schedule, asks = first_asks(BASE, 1)
            some = asks[: round(share * len(asks))]
            made = judge(schedule, [reply(name, ask) for ask in some])
            yield check_row(f"{name}, first {100 * share:g} %", made)
    for title, (options, name) in OTHER.items():
        schedule, asks = first_asks(options, 1)
        yield check_row(f"{name}, {title}", judge(schedule, [reply(name, ask) for ask in asks]))
    for name in WALKED:
        schedule, answers = Schedule(BASE, 1), Answers()
        while (batch := schedule.next_batch(answers)) is not None:
            for ask in batch.asks:
                answers.add(reply(name, ask))
        yield check_row(f"{name}, whole", judge(schedule, answers))
    for moved in (0.0, 0.01, 0.5):
        yield check_row(f"margins moved by {moved:g}", beside_reference(moved))
    for before, name in (("sound", "errs at 10 %"), ("errs at 10 %", "sound"), ("sound", "sound")):
        schedule, asks = first_asks(BASE, 1)
        now, then = (Answers(reply(each, ask) for ask in asks) for each in (name, before))
        made = judge_change(schedule, judge(schedule, now), now, then, "before")
        yield check_row(f"{name}, before: {before}", made)


def beside_reference(moved: float) -> Checked:
    """A server whose margins differ from the reference's by so many nats a token."""
    schedule, asks = first_asks(replace(BASE, reference=True, logprobs=True, moves=MOVES), 1)
    replies = []
    for ask in asks:
        draw = Random(f"margins {ask.seed} {ask.prompt}")
        apart = 0.0 if ask.way.startswith("reference-") else moved
        margins = tuple((digit, 5 + draw.random() - apart) for digit in ask.secret)
        replies.append(replace(reply("sound", ask), margins=margins))
    return judge(schedule, replies)


def check_row(name: str, checked: Checked) -> Made:
    """A check's verdict as a row."""
    found = [
        {
            "probe": each.probe,
            "state": each.state,
            "n": each.n,
            "effect": effect_of(each.effect),
            "p": each.p,
            "worst": worst_row(each.worst),
            "known": [issue.link for issue in each.known],
            "passes to": each.passes_to,
            "decides": each.decides,
            "accepted": each.accepted,
            "sizes": [
                {
                    "size": row.size,
                    "state": row.state,
                    "n": row.n,
                    "lost": row.lost,
                    "gained": row.gained,
                    "effect": effect_of(row.effect),
                    "upper": row.upper,
                    "p": row.p,
                    "worst": worst_row(row.worst),
                    "suspects": [worst_row(suspect) for suspect in row.suspects],
                    "noise": row.noise,
                    "left": row.left,
                }
                for row in each.sizes
            ],
        }
        for each in checked.findings
    ]
    verdict = checked.verdict
    numbers = {"word": verdict.word, "findings": found, "lacking": sorted(checked.lacking)}
    said = [
        (each.said, each.excludes, [row.said for row in each.sizes]) for each in checked.findings
    ]
    return name, verdict.word, numbers, [verdict.line("check"), checked.not_asked, said]


def effect_of(effect: Any) -> Any:
    return None if effect is None else [effect.value, effect.low, effect.high, effect.unit]


def worst_row(worst: Any) -> Any:
    return worst and [worst.way, worst.length_tokens, worst.depth, worst.repeat]


# --- storm ---------------------------------------------------------------------------------------

LIMITS = Limits(2_000, load=4, answer_tokens=60, kv_tokens=6_000)


@dataclass(frozen=True)
class Weather:
    """How a storm goes. words: by operation, or '' for all, what comes of a share of requests.
    cold: how often the same prompt is lost when asked cold. replayed: lost of five replays, and of
    five cold askings, of each suspect. moved: nats by which margins of fresh prompts moved."""

    words: Mapping[str, tuple[Word, float]]
    cold: float = 0.0
    replayed: tuple[int, int] | None = None
    rounds: int = 30
    wanted: float = 0.02
    gauge: bool = False
    pairs: bool = True
    elsewhere: bool = False
    moved: float | None = None
    cache: str | None = None
    since: int = 0  # the round from which on


def all_of(word: Word, share: float) -> dict[str, tuple[Word, float]]:
    return {"": (word, share)}


WEATHER: Mapping[str, Weather] = {
    "sound": Weather({}),
    "sound, one round": Weather({}, rounds=1),
    "nothing asked": Weather({}, rounds=0),
    "sound, low rate": Weather({}, wanted=0.001),
    "sound gauge": Weather({}, gauge=True),
    "errs at 5 %": Weather(all_of("lost", 0.05), cold=0.05),
    "errs at half": Weather(all_of("lost", 0.5), cold=0.5),
    "errs always": Weather(all_of("lost", 1.0), cold=1.0),
    "lost behind turns": Weather({"turn": ("lost", 0.5)}, replayed=(5, 0)),
    "lost behind forks, rarely": Weather({"fork": ("lost", 0.1)}, replayed=(2, 0)),
    "lost, replays prove nothing": Weather(all_of("lost", 0.1), replayed=(1, 1)),
    "lost, a sign": Weather({"turn": ("lost", 0.2)}, replayed=(4, 1), rounds=6),
    "lost beside cold ones": Weather(all_of("lost", 0.3)),
    "lost, no pairs": Weather(all_of("lost", 0.1), pairs=False),
    "lost since cancels": Weather({"fresh": ("lost", 0.6)}, cold=0.6, since=12),
    "gauge loses a few": Weather(all_of("lost", 0.02), gauge=True),
    "gauge is spoilt": Weather(all_of("lost", 0.6), cold=0.9, gauge=True),
    "a leak": Weather(all_of("foreign", 0.01)),
    "a leak elsewhere": Weather({}, elsewhere=True),
    "another's text": Weather({"burst": ("text", 0.3)}),
    "salad": Weather(all_of("salad", 0.02)),
    "salad, rate allowed": Weather(all_of("salad", 0.004), wanted=0.2),
    "endless": Weather({"turn": ("endless", 0.3)}, cold=0.1),
    "empty": Weather({"again": ("empty", 0.4)}),
    "refused": Weather(all_of("refused", 0.1)),
    "margins moved": Weather({"turn": ("moved", 0.3)}, replayed=(5, 0), moved=0.001),
    "margins moved, coarse": Weather({"turn": ("moved", 0.3)}, moved=0.001, cache="coarser"),
    "margins not known": Weather({}, moved=-1.0),
}


@cache
def storm_round(seed: int, number: int) -> tuple[Act, ...]:
    return make_round(seed, number, LIMITS).acts


def of_storm() -> Iterator[Made]:
    """Each weather by three seeds."""
    for name, weather in WEATHER.items():
        for seed in SEEDS:
            seens = seens_of(weather, seed)
            made = judge_storm(seens, weather.wanted, gauge=weather.gauge)
            yield storm_row(f"{name}, {seed}", made)


def seens_of(weather: Weather, seed: int) -> Evidence:
    """All that such a storm saw."""
    random, seens = Random(f"weather {seed}"), Evidence()
    if weather.moved is not None:
        seens.moves = Moves([weather.moved] if weather.moved >= 0 else [], weather.cache)
    for number in range(1, weather.rounds + 1):
        for act in storm_round(seed, number):
            seen = seen_of(weather, random, number, act)
            seens.storm.append(seen)
            cold = RequestOutcome("lost" if random.random() < weather.cold else "right")
            if seen.outcome.is_doubtful:
                suspect = Suspect(seen, repeat_outcome=cold)
                if seen.outcome.word == "moved":
                    suspect.limit = 0.02
                if weather.replayed and cold.word == "right":
                    suspect.blocks.append((*weather.replayed, 5))
                seens.suspects[seen.key] = suspect
            if weather.pairs and act.number % 3 == 0:
                seens.pairs.append((seen, cold))
    if weather.elsewhere:
        first = seens.storm[0]
        seens.other_faults.append(replace(first, outcome=RequestOutcome("foreign", "1", 2001, 3)))
    return seens


def seen_of(weather: Weather, random: Random, number: int, act: Act) -> Observation:
    """A request of such a storm."""
    word, share = weather.words.get(act.operation, weather.words.get("", ("right", 0.0)))
    hit = random.random() < share and number >= weather.since
    word = "cancelled" if act.cancel is not None else word if hit else "right"
    outcome = RequestOutcome(word)
    if word == "foreign":
        outcome = RequestOutcome(word, "123456789012", key_of(number, 0), act.number)
    nats = None if weather.moved is None else 0.5 if word == "moved" else 0.0005
    key = key_of(number, act.number)
    return Observation(key, number, act, outcome, answer=word, tokens=act.tokens, nats=nats)


def storm_row(name: str, stormed: StormResult) -> Made:
    """A storm's verdict as a row."""
    numbers = {
        "word": stormed.verdict.word,
        "counts": dict(sorted(stormed.tally.counts.items())),
        "requests": len(stormed.tally.requests),
        "families": stormed.tally.families,
        "faulty": stormed.tally.faulty,
        "highest": stormed.tally.highest,
        "confirmed": stormed.confirmed,
        "certain": [each.key for each in stormed.tally.certain],
    }
    verdict = stormed.verdict
    return name, verdict.word, numbers, [verdict.line("storm"), stormed.said]


# --- pairs and arms ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Runs:
    """Two runs of the same prompts. first, second: shares of right answers; alike: how often the
    second's answer is the first's; missing: shares of either's that failed; untried: of pairs; at:
    the longest length's share of the second, where it is another."""

    first: float
    second: float
    alike: float = 0.8
    haystacks: int = 40
    lengths: tuple[int, ...] = (1_000, 4_000)
    families: tuple[str, ...] = ("a",)
    missing: tuple[float, float] = (0.0, 0.0)
    untried: float = 0.0
    at: float | None = None
    graded: bool = False
    margin: float = 0.05
    wanted: str = "these"
    looks: bool = False
    planned: bool = False


RUNS: Mapping[str, Runs] = {
    "equal": Runs(0.9, 0.9),
    "the same": Runs(0.9, 0.9, alike=1.0),
    "the same, many": Runs(0.9, 0.9, alike=1.0, haystacks=120),
    "perfect": Runs(1.0, 1.0, haystacks=100),
    "floored": Runs(0.0, 0.0, haystacks=100),
    "worse": Runs(0.95, 0.5, alike=0.3),
    "a little worse": Runs(0.95, 0.9, alike=0.5),
    "better": Runs(0.5, 0.95, alike=0.2),
    "few": Runs(0.9, 0.7, haystacks=3),
    "one": Runs(0.9, 0.9, haystacks=1, lengths=(1_000,)),
    "none": Runs(0.9, 0.9, haystacks=0),
    "one length": Runs(0.9, 0.85, lengths=(1_000,), haystacks=90),
    "a length lost": Runs(0.95, 0.95, lengths=(1_000, 2_000, 4_000, 8_000), at=0.2),
    "a length half lost": Runs(0.95, 0.95, lengths=(1_000, 2_000, 4_000), at=0.5, haystacks=6),
    "families": Runs(0.9, 0.85, families=("a", "b", "c"), haystacks=20),
    "missing in B": Runs(0.9, 0.9, missing=(0.0, 0.1)),
    "missing in A": Runs(0.9, 0.9, missing=(0.1, 0.0)),
    "missing in both": Runs(0.9, 0.9, missing=(0.5, 0.5)),
    "B fails": Runs(0.9, 0.9, missing=(0.0, 1.0)),
    "untried": Runs(0.9, 0.9, untried=0.2),
    "graded": Runs(0.8, 0.75, graded=True),
    "graded, worse": Runs(0.9, 0.5, alike=0.2, graded=True),
    "margin of 0": Runs(0.7, 0.95, alike=0.3, margin=0.0),
    "margin of 20": Runs(0.9, 0.85, margin=0.2),
    "new haystacks": Runs(0.9, 0.9, alike=1.0, wanted="new", haystacks=120, margin=0.1),
    "new haystacks, few": Runs(0.9, 0.9, wanted="new"),
    "looks": Runs(0.9, 0.9, alike=1.0, looks=True, haystacks=120, margin=0.1),
    "looks, worse": Runs(0.95, 0.5, alike=0.2, looks=True, haystacks=80),
    "looks, planned": Runs(0.9, 0.9, alike=1.0, looks=True, planned=True, haystacks=60),
    "looks, untried": Runs(0.95, 0.5, looks=True, untried=0.1),
    "looks, missing": Runs(0.9, 0.9, looks=True, missing=(0.0, 0.1)),
}
ARMS = (
    *("equal", "the same, many", "perfect", "worse", "a little worse", "better", "few", "none"),
    *("a length lost", "families", "missing in B", "missing in both", "untried", "graded"),
    *("new haystacks", "looks", "looks, worse", "looks, missing"),
)
Pair = tuple[str, tuple[int, int, float], tuple[float | None, float | None], bool]


def pairs_of(runs: Runs, seed: int) -> Iterator[Pair]:
    """Family, place, scores and whether both were asked, of each prompt."""
    random = Random(f"runs {seed}")
    for family in runs.families:
        for haystack in range(runs.haystacks):
            for length in runs.lengths:
                for depth in (0.0, 0.5):
                    last = runs.at is not None and length == runs.lengths[-1]
                    share = runs.at if last and runs.at is not None else runs.second
                    first = drawn(random, runs.first, graded=runs.graded)
                    second = drawn(random, share, graded=runs.graded)
                    if not last and random.random() < runs.alike and runs.first == runs.second:
                        second = first
                    lost = [random.random() < share for share in runs.missing]
                    scores = (None if lost[0] else first, None if lost[1] else second)
                    yield family, (haystack, length, depth), scores, random.random() >= runs.untried


def drawn(random: Random, share: float, *, graded: bool) -> float:
    if graded:
        return round(min(1.0, max(0.0, random.gauss(share, 0.2))), 2)
    return float(random.random() < share)


def of_pairs() -> Iterator[Made]:
    """All runs by three seeds."""
    for name, runs in RUNS.items():
        for seed in SEEDS:
            rows = Rows.of(
                JudgedPrompt(family, place, place[0], *scores, tried)
                for family, place, scores, tried in pairs_of(runs, seed)
            )
            order = planned_looks if runs.planned else endless_looks
            looks = order if runs.looks else None
            scope: Any = runs.wanted
            made = judge_pairs(rows, runs.margin, wanted=scope, looks=looks)
            yield f"{name}, {seed}", made.word, judged_row(made), []


def judged_row(made: PairedLoss) -> Any:
    """A loss's numbers."""
    loss, missing, new = made.loss, made.missing, made.new
    return {
        "word": made.word,
        "scope": made.scope,
        "loss": loss and [loss.value, loss.low, loss.high],
        "n": [made.n, made.haystacks, made.lost, made.gained],
        "lengths": [
            [at.lengths, at.family, at.n, at.lost, at.gained, at.missing, at.sure]
            for at in made.lengths
        ],
        "missing": missing
        and [
            *(missing.second, missing.first, missing.lengths),
            *(missing.place, missing.share, missing.reaches),
        ],
        "new": new and [new.word, new.n, new.more],
        "looks": [made.after, made.planned, made.sequential, made.more],
        "reference": [made.floored, made.saturated, made.counted],
    }


def of_arms() -> Iterator[Made]:
    """Some of the runs as arms, by two seeds; and log-probabilities that moved."""
    for name in ARMS:
        for seed in SEEDS[:2]:
            runs = RUNS[name]
            trials = [arm_trial(*row) for row in pairs_of(runs, seed)]
            scope: Any = runs.wanted
            made = judge_arms(trials, runs.margin, wanted=scope, stops=runs.looks)
            drift = made.drift and [made.drift.first_loss, made.drift.last_loss]
            numbers = {
                "judged": judged_row(made.loss),
                "failed": made.failed,
                "prompts": made.prompts,
                "drift": drift,
                "worst": [(each.family, each.place) for each in worst_of(trials, float("inf"))],
            }
            yield f"{name}, {seed}", made.loss.word, numbers, []
    for moved in (0.0, 0.0001, 0.01, 0.5):
        shift = tripwire(moved_trials(moved))
        assert shift is not None
        numbers = [
            *(shift.n, shift.again_n, shift.usual, shift.beyond, shift.again_beyond),
            *(shift.median, shift.again_median, shift.mean, shift.p_share, shift.p_median),
        ]
        yield f"nats moved by {moved:g}", "tripped" if shift.tripped else "quiet", numbers, []


def arm_trial(
    family: str, place: tuple[int, int, float], scores: Sequence[float | None], tried: bool
) -> ArmTrial:
    first, second = (record_of(place, score) for score in scores)
    return ArmTrial(family, place, first, second if tried else None)


def record_of(
    place: tuple[int, int, float], score: float | None, logprobs: Logprobs | None = None
) -> Record:
    """A record of an answer, or of a failure."""
    repeat, length, depth = place
    answer = None if score is None else "right" if score == 1.0 else "wrong"
    failure = Failure.TIMED_OUT if score is None else None
    return Record.model_validate(
        {
            "key": f"{place}",
            "task": "single",
            "model": "m",
            "seed": 0,
            "length_tokens": length,
            "depth": depth,
            "repeat": repeat,
            "score": score,
            "answer": answer,
            "failure": failure,
            "logprobs": logprobs,
        }
    )


def moved_trials(moved: float) -> Iterable[ArmTrial]:
    """Trials of which the other arm moves log-probabilities by so many nats a token."""
    random = Random(f"moved {moved}")
    for number in range(60):
        place = number, 1_000, 0.0
        base = [-0.1 - random.random() for _ in range(6)]
        arms = []
        for apart in (0.0, moved, 0.0):
            noise = [random.gauss(0.0, 0.001) for _ in base]
            rows = [(f"t{at}", nats - apart + noise[at], "x", -9.0) for at, nats in enumerate(base)]
            arms.append(record_of(place, 1.0, Logprobs.of(rows, "generated", 100)))
        yield ArmTrial("single", place, arms[0], arms[1], arms[2])


# --- plans ---------------------------------------------------------------------------------------


def plans(_command: str) -> Iterator[tuple[str, str]]:
    """What checks and storms ask by their seeds alone, whatever comes of it."""
    for title, options in (
        ("few", BASE),
        ("many", replace(BASE, few=False)),
        ("reference", replace(BASE, reference=True, logprobs=True)),
        ("128k", replace(BASE, max_length=128_000)),
    ):
        schedule, asks = first_asks(options, 1)
        costs = [
            [cost.prompts, cost.sent, cost.computed]
            for cost in (schedule.first_round_cost, schedule.highest_cost)
        ]
        text = "".join(as_text(ask_row(ask), indent=None) for ask in asks)
        yield f"check, {title}", text + as_text([schedule.sizes, costs])
    for seed in SEEDS[:2]:
        rounds = [[act_row(act) for act in storm_round(seed, number)] for number in range(1, 61)]
        yield f"storm, 60 rounds, {seed}", "".join(as_text(row, indent=None) for row in rounds)


def ask_row(ask: Ask) -> Any:
    return [
        *(ask.way, ask.size, ask.length, ask.depth, ask.repeat, ask.fact, ask.state, ask.salt),
        *(ask.place, ask.facts, ask.round, ask.twin),
    ]


def act_row(act: Act) -> Any:
    turns = [
        [
            [[piece.stream.number, piece.stream.rank, piece.tokens] for piece in turn.pieces],
            [[fact.stream.number, fact.number] for fact in turn.facts],
            turn.total,
        ]
        for turn in act.path
    ]
    return [
        *(act.number, act.wave, act.family, act.session, act.operation, turns),
        *(act.after, act.cancel, act.salt),
    ]


def as_text(values: Any, indent: int | None = 1) -> str:
    """What is hashed."""
    return json.dumps(rounded(values), ensure_ascii=False, indent=indent, sort_keys=True) + "\n"
