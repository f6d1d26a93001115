"""A lost answer is asked again three times in both ways before anything is said, also at the
longest size, until it is decided."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from needlemap.check import Answers, Ask, Options, Reply, Schedule, probes
from needlemap.check.finding import AtSize

LONGEST = 128_000
Wrong = Callable[[Ask], bool]


def asked(is_wrong: Wrong, reference: bool = False) -> tuple[Schedule, Answers]:
    """A whole check to 128k of a server that answers some asks wrong."""
    options = Options(max_length=LONGEST, promised=True, reference=reference)
    schedule, answers = Schedule(options, seed=7), Answers()
    while (batch := schedule.next(answers)) is not None:
        for ask in batch.asks:
            answers.add(Reply.of(ask, "Not said." if is_wrong(ask) else ask.secret))
    return schedule, answers


def row_of(name: str, is_wrong: Wrong, reference: bool = False) -> AtSize:
    """What a probe comes to at the longest size."""
    _, answers = asked(is_wrong, reference)
    probe = probes()[name]
    return probe.at(answers, LONGEST, probe.level(1, 3))


def once(way: str, every: int = 4) -> Wrong:
    """Lost in one way on every so many haystacks, and found when asked again."""
    return lambda ask: ask.way == way and ask.size == LONGEST and ask.repeat % every == 0


@pytest.mark.parametrize(
    ("probe", "way"),
    [("cache", "warm"), ("onset", "cold"), ("load", "loaded"), ("reference", "cold")],
)
def test_each_lost_answer_at_the_longest_size_is_asked_again(probe, way):
    row = row_of(probe, once(way), reference=probe == "reference")
    assert (row.lost > 2, row.noise, row.left) == (True, row.lost, 0)
    assert row.state == "pass"


def test_a_head_that_is_lost_once_is_no_cut():
    """Both questions stand on one haystack, which the server holds: asking again is cheap."""
    row = row_of("cut", lambda ask: ask.way == "ask" and ask.size == LONGEST and ask.fact == 0)
    assert (row.lost >= 24, row.noise, row.left) == (True, row.lost, 0)


def test_what_is_lost_each_time_is_asked_until_it_decides_and_the_rest_counts_as_lost():
    row = row_of("cache", lambda ask: ask.way.startswith("warm") and ask.size == LONGEST)
    assert (row.lost, len(row.suspects), row.left) == (24, 2, 22)
    assert (row.state, row.noise) == ("fail", 0)
    assert row.said == "24 of 36 lost from the cache, 22 not asked again"


def test_a_prompt_reached_in_two_steps_is_reached_so_again():
    """One long extend without attention: only both steps find what one prefill loses."""

    def is_wrong(ask: Ask) -> bool:
        stepped = ask.way.startswith(("stepped", "half"))
        return ask.size == LONGEST and not stepped

    row = row_of("onset", is_wrong)
    assert (row.state, row.noise) == ("fail", 0)
    assert len(row.suspects) == 1


@pytest.mark.parametrize("way", ["warm", "cold", "loaded", "ask", "none"])
def test_all_that_is_asked_stays_within_ten_million_tokens(way):
    schedule, answers = asked(
        lambda ask: ask.way.startswith(way) and (ask.repeat + ask.fact) % 3 == 0
    )
    computed = schedule.cost(reply.ask for reply in answers.by_key.values()).computed
    assert schedule.whole.computed <= 6_000_000
    assert computed <= 10_000_000
