"""A check without HTTP: what it asks goes to an engine, in its order, and its own code judges.

Nothing is sampled: each replay is a whole check with its looks, its second rounds and all that is
asked again.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from needlemap.errors import Failure
from needlemap.servers.check import Answers, Ask, Checked, Options, Reply, Schedule, judge
from needlemap.servers.check.ask import ROOMY, TIMES_ROOM
from needlemap.stats.verdicts import FAIL, exit_code
from sides.engines import Change, Engine, Fact, Machine, Request, chance, worded_answer
from sides.engines import Reply as Said

FACT = 15  # tokens of a fact
SENTENCE = 24  # tokens by which a fact that stands at a sentence's end is off, at most
SECRET = re.compile(r"\d{12}")
ATTEMPTS = 4
PASSING = ("server", "late")
FAILURES = {"too long": Failure.TOO_LONG, "server": Failure.SERVER, "late": Failure.TIMED_OUT}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a check came to. failing: probes that fail; open: those that do neither; said: by both.
    changed: answers that an engine without fault would have given otherwise; leaked: values of
    other prompts that were said. found: right answers by size, as (right, n). computed: tokens that
    no cache held."""

    code: int
    failing: tuple[str, ...]
    open: tuple[str, ...]
    line: str
    said: tuple[str, ...]
    changed: int = 0
    leaked: int = 0
    asked: int = 0
    found: tuple[tuple[int, int, int], ...] = ()
    computed: int = 0


def request_of(ask: Ask, schedule: Schedule) -> Request:
    """An ask as a server sees it: a head, a haystack with facts of FACT tokens each, a question."""
    options, spread = schedule.options, schedule.spread(ask.size, ask.repeat)
    anchor = spread.anchor
    before = options.head + FACT * ask.fact
    place = round(ask.depth * anchor) if ask.place is None else ask.place
    if 0 < ask.fact < ask.facts - 1:
        place += int(SENTENCE * chance(*ask.haystack, ask.fact))
    asked = Fact(ask.secret, before + place)
    others = tuple(Fact(value, 0) for value in ask.other_secrets)
    last = asked.start if ask.fact == ask.facts - 1 else None

    def text() -> str:
        told = "".join(f"... one fact is {fact.value}. " for fact in (asked, *others))
        return f"{told}... which one is asked?"

    length = ask.length - options.answer_tokens
    question = max(16, options.around - options.answer_tokens - options.head - FACT * ask.facts)
    usual = spread.depths[-1]  # where the last fact stands in other prompts
    source = last or options.head + FACT * (ask.facts - 1) + round(usual * anchor)
    facts = (asked, *others)
    return Request(
        str(ask.prompt),
        length,
        facts,
        asked,
        str(ask.haystack),
        (source, question),
        text,
        TIMES_ROOM if ask.way.endswith(ROOMY) else 1,
    )


def shared(left: Request, right: Request) -> int:
    """Tokens that two asks about one haystack begin with in common: all up to the fact that stands
    elsewhere, or else up to the question."""
    if left.name == right.name:
        return left.tokens
    (one, question), (other, _) = left.source, right.source
    most = min(left.tokens, right.tokens) - question
    return max(0, min(most, one, other) if one != other else most)


def check(
    options: Options, machine: Machine, changes: Sequence[Change], seed: object, number: int
) -> Outcome:
    """A whole check of a server."""
    schedule, answers, count = Schedule(options, seed=number), Answers(), 0
    engine = Engine(shared, machine, changes, Random(f"replayed {seed}"))
    known, changed, leaked = dict[tuple[str, int], Request](), 0, 0
    found: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    secrets = dict[str, object]()
    while (batch := schedule.next_batch(answers)) is not None:
        requests = [request_of(ask, schedule) for ask in batch.asks]
        requests = [known.setdefault((each.name, each.room), each) for each in requests]
        for ask, request in zip(batch.asks, requests, strict=True):
            for fact in request.facts:
                secrets.setdefault(fact.value, ask.haystack[:2])
            flying = [each for each in requests if each is not request] if batch.together else ()
            said, count = asked_at_last(engine, request, flying), count + 1
            answers.add(
                Reply.of(
                    ask,
                    said.text,
                    finish=said.finish,
                    prompt_tokens=counted(said, options),
                    cached_tokens=said.cached_tokens,
                    failure=FAILURES.get(said.error, ""),
                    start=request.asked.start,
                )
            )
            right = ask.secret in said.text and not said.error
            wrong = said.text != worded_answer(machine.style, ask.secret)
            changed += wrong or bool(said.error)
            found[ask.size][0] += right
            found[ask.size][1] += 1
            owners = {secrets.get(value, ask.haystack[:2]) for value in SECRET.findall(said.text)}
            leaked += bool(owners - {ask.haystack[:2]})
    verdict = judge(schedule, answers)
    made = outcome(verdict, changed, leaked, count, found)
    return replace(made, computed=engine.computed)


def counted(said: Said, options: Options) -> int | None:
    """Tokens that a server counts, the answer's budget added, as an ask's length has them."""
    return None if said.prompt_tokens is None else said.prompt_tokens + options.answer_tokens


def asked_at_last(engine: Engine, request: Request, flying: Sequence[Request]) -> Said:
    """What comes back, what passes by asked again, as the command does."""
    for _ in range(ATTEMPTS):
        said = engine.answer(request, flying)
        if said.error not in PASSING:
            break
    return said


def outcome(
    checked: Checked, changed: int, leaked: int, asked: int, found: Mapping[int, Sequence[int]]
) -> Outcome:
    """A verdict in short."""
    shown = [each for each in checked.findings if each.is_open or each.state == FAIL]
    return Outcome(
        exit_code(checked.verdict.word),
        tuple(each.probe for each in shown if each.state == FAIL),
        tuple(each.probe for each in shown if each.is_open),
        checked.verdict.line("check"),
        tuple(f"{each.probe} ({each.state}): {each.said}" for each in shown),
        changed,
        leaked,
        asked,
        tuple((size, right, n) for size, (right, n) in sorted(found.items())),
    )
