"""Write what a storm found as lines of text, for the terminal, the page and storm.json."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from needlemap.servers.check.effects import rounded_up
from needlemap.servers.storm.counts import counts_line
from needlemap.servers.storm.evidence import WEAK, Evidence, Suspect
from needlemap.servers.storm.outcome import CERTAIN, MOVED
from needlemap.servers.storm.tally import GOAL, POINTS, Tally
from needlemap.stats.bets import detectable_rate
from needlemap.text import counted


def finding_lines(evidence: Evidence, tally: Tally, *, is_by_ways: bool) -> Iterator[str]:
    """Yield the findings in addition to the verdict, the gravest first.

    is_by_ways: True if equal ways of asking judge, because the model finds too little.
    """
    if is_by_ways:
        yield from _ways_lines(evidence, tally)
    yield from _certain_lines(tally)
    yield from _state_lines(evidence, tally)
    yield from _change_lines(tally)
    yield from _gauge_lines(tally)
    yield from _spoilt_lines(tally)
    yield from _margins_lines(evidence, tally)
    yield from _power_lines(evidence, tally, is_by_ways=is_by_ways)
    yield from counts_line(evidence.counts.over)
    if tally.operations:
        able = ", ".join(
            f"{name} {answers.able} of {answers.sent}" for name, answers in tally.operations.items()
        )
        yield f"answers that could show a fault: {able}"


def _ways_lines(evidence: Evidence, tally: Tally) -> Iterator[str]:
    """Yield how far log-probabilities moved from those of the same prompts alone."""
    equal = evidence.equal
    noise = max((move.nats for move in equal.noise), default=0.0)
    moved = [request for request in tally.compared if request.outcome.word == MOVED]
    line = (
        f"beside the same prompts alone: {len(moved)} of "
        f"{counted(len(tally.compared), 'request')} moved by more than {equal.limit:.2g} nats; "
        f"cold prompts alone by up to {noise:.2g}"
    )
    if moved:
        line += f"; the first is request {moved[0].key} ({moved[0].act.operation})"
    yield line
    if equal.texts:
        yield f"{counted(equal.texts, 'pair')} by texts alone: no log-probabilities"
    if equal.held:
        yield (
            f"{equal.held} of {equal.alone} prompts alone were not compared, as a cache held them: "
            "give the server a smaller cache"
        )
    if equal.unreported:
        yield "hits not reported: whether prompts alone were cold is not known"
    yield from _replay_lines(evidence.moved_suspects, "moved", tally.bets.moved)


def _certain_lines(tally: Tally) -> Iterator[str]:
    """Yield a line for each kind of sure fault, with what the answer of the first one held."""
    for word in CERTAIN:
        requests = [request for request in tally.certain if request.outcome.word == word]
        if not requests:
            continue
        first = requests[0]
        if word == "foreign":
            what = (
                f"the secret of request {first.outcome.whose}, "
                f"{counted(first.outcome.ago, 'request')} before"
            )
        elif word == "text":
            what = "text of another session"
        else:
            what = "no words at all"
        yield (
            f"{word}: {counted(len(requests), 'answer')}; the first is request {first.key} "
            f"({first.act.operation}, round {first.round}), which holds {what}"
        )


def _state_lines(evidence: Evidence, tally: Tally) -> Iterator[str]:
    """Yield what replays and pairs show of answers that were lost, endless or empty."""
    if evidence.lost_suspects:
        count = len(evidence.lost_suspects)
        alone_too = sum(not suspect.is_doubtful for suspect in evidence.lost_suspects)
        yield (
            f"lost, endless or empty: {count}; {alone_too} of them also when asked "
            "alone behind a first line of their own, which no cache holds"
        )
    yield from _replay_lines(evidence.lost_suspects, "lost", tally.bets.replays)
    lost, gained = evidence.discordant
    if lost + gained:
        yield (
            f"beside cold prompts in the same minutes: {lost} lost in the storm alone, {gained} "
            f"lost cold alone, of {counted(len(evidence.pairs), 'pair')}: "
            f"{_strength(tally.bets.pairs)}"
        )


def _replay_lines(suspects: Iterable[Suspect], word: str, wealth: float) -> Iterator[str]:
    """Yield how often replays showed the fault of suspects again, if any were replayed."""
    replayed = [suspect for suspect in suspects if suspect.is_doubtful and suspect.blocks]
    if not replayed:
        return
    lost = sum(suspect.replays[0] for suspect in replayed)
    lost_cold = sum(suspect.replays[1] for suspect in replayed)
    count = sum(suspect.replays[2] for suspect in replayed)
    yield (
        f"replayed: {counted(len(replayed), 'sequence')}, {word} in {lost} of {count} replays and "
        f"in {lost_cold} of {count} cold askings: {_strength(wealth)}"
    )


def _change_lines(tally: Tally) -> Iterator[str]:
    """Yield the change in how often prompts that share nothing are lost, if a bet points to it."""
    change = tally.change
    if change is None or change.wealth < POINTS:
        return
    lost_before, n_before = change.before
    lost_since, n_since = change.since
    event = change.event or f"round {change.start}"
    yield (
        f"prompts that share nothing: {lost_before} of {n_before} lost before {event}, "
        f"{lost_since} of {n_since} since: {_strength(change.wealth)}"
    )


def _gauge_lines(tally: Tally) -> Iterator[str]:
    """Yield how many prompts the gauge lost in the storm that it answers right alone."""
    if tally.missed and tally.bets.gauge:
        yield (
            f"the gauge answers all prompts right; here {tally.missed} of "
            f"{len(tally.compared):,} were lost and right when asked alone: "
            f"{_strength(tally.bets.gauge)}"
        )


def _spoilt_lines(tally: Tally) -> Iterator[str]:
    """Yield how many prompts the gauge lost alone too, if a bet points to a spoilt server."""
    if tally.bets.spoilt >= POINTS:
        yield (
            f"the gauge answers all prompts right; here {tally.missed_alone} of "
            f"{len(tally.compared):,} were lost, when asked alone too: the server computes them "
            "wrong (needlemap check), or is spoilt until it is started anew"
        )


def _margins_lines(evidence: Evidence, tally: Tally) -> Iterator[str]:
    """Yield how far margins moved from the reference's, if there is one."""
    moves = evidence.moves
    if moves is None:
        return
    if moves.limit is None:
        yield (
            "margins were not compared: no first prompt came right with log-probabilities of its "
            "tokens and of their runners-up"
        )
        return
    nats = [request.nats for request in evidence.storm if request.nats is not None]
    if not nats:
        return

    line = (
        f"margins beside the reference's: {counted(len(nats), 'right answer')}, moved by up to "
        f"{max(nats):.2g} nats a token; {moves.words}"
    )
    moved = [request for request in evidence.storm if request.outcome.word == MOVED]
    if not moved:
        yield line
        return
    first = moved[0]
    line += (
        f"; {len(moved)} moved too far, the first is request {first.key} "
        f"({first.act.operation}, round {first.round})"
    )
    if moves.is_choice:
        yield line
        yield "these moves are those of a cache coarser than the weights: a choice"
        return
    if moves.cache == "cut off":
        line += ", as by a cache whose mantissas are cut off"
    yield line
    yield from _replay_lines(evidence.moved_suspects, "moved", tally.bets.moved)


def _power_lines(evidence: Evidence, tally: Tally, *, is_by_ways: bool) -> Iterator[str]:
    """Yield the rates of faults that the storm would have shown."""
    if not evidence.storm:
        return
    rate = 1 - 0.05 ** (1 / max(1, tally.families))
    kind = "moves" if is_by_ways else "leaked or garbled text"
    yield f"would have caught with 95 % probability: {kind} in {rounded_up(rate)} % of families"

    if evidence.pairs:
        _, gained = evidence.discordant
        rate = detectable_rate(len(evidence.pairs), gained, GOAL)
        if rate < 1:
            yield (
                "would have caught with 50 % probability: answers that are lost, endless or empty "
                f"{rounded_up(rate)} points more often than cold ones"
            )
        else:
            yield (
                f"{counted(len(evidence.pairs), 'pair')} with cold prompts are too few to show by "
                "themselves what is lost, endless or empty"
            )
    # What a spoilt gauge loses is the server's, so its share of right answers says nothing.
    if tally.right < WEAK and tally.bets.spoilt < POINTS:
        yield (
            f"the model answers {100 * tally.right:.0f} % right: what state loses is hard to see "
            "with it"
        )


def _strength(wealth: float) -> str:
    """Return how far a bet is won, in words."""
    if wealth >= GOAL:
        return "faults of state"
    if wealth >= POINTS:
        return "points to faults of state"
    return "no proof of faults of state"


def bound_words(faulty: str, n: int, high: float) -> str:
    """Return the bound of a rate in words, rounded up.

    >>> from needlemap.stats.bets import highest_rate
    >>> bound_words("0", 2_310, highest_rate(0, 2_310))
    '0 of 2,310: fault rate below 0.21 %'
    """
    return f"{faulty} of {n:,}: fault rate below {rounded_up(high)} %"
