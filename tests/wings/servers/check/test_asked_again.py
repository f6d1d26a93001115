"""A lost answer is asked again three times in both ways before anything is said, also at the
longest size, until it is decided."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from needlemap.errors import Failure
from needlemap.servers.check import Answers, Ask, Options, Reply, Schedule, judge, probes
from needlemap.servers.check.ask import ROOMY
from needlemap.servers.check.effects import net_loss
from needlemap.servers.check.finding import AtSize

LONGEST = 128_000
Wrong = Callable[[Ask], bool]


def asked(is_wrong: Wrong, reference: bool = False) -> tuple[Schedule, Answers]:
    """A whole check to 128k of a server that answers some asks wrong."""
    options = Options(max_length=LONGEST, promised=True, reference=reference)
    schedule, answers = Schedule(options, seed=7), Answers()
    while (batch := schedule.next_batch(answers)) is not None:
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
    assert row.state == "PASS"


@pytest.mark.parametrize(("probe", "way"), [("onset", "cold"), ("reference", "cold")])
def test_the_loss_that_is_shown_counts_pairs_that_were_found_when_asked_again(probe, way):
    """They were left out, so that a loss of 15 points passed as below 15 in one row of four."""
    row = row_of(probe, once(way), reference=probe == "reference")
    effect = net_loss(row.lost, 0, row.n)
    assert effect is not None
    assert (row.state, row.noise, row.gained) == ("PASS", row.lost, 0)
    assert row.effect == effect
    assert row.upper == 100 * effect.high > 25


def test_a_head_that_is_lost_once_is_no_cut():
    def is_wrong(ask: Ask) -> bool:
        return once("ask", 6)(ask) and ask.fact == 0

    row = row_of("cut", is_wrong)
    assert (row.lost, row.noise, row.left) == (4, 4, 0)


def test_what_is_lost_each_time_is_asked_until_it_decides_and_the_rest_counts_as_lost():
    row = row_of("cache", lambda ask: ask.way.startswith("warm") and ask.size == LONGEST)
    assert (row.lost, len(row.suspects), row.left) == (24, 3, 21)
    assert (row.state, row.noise) == ("FAIL", 0)
    assert row.said == "24 of 36 lost from the cache, 21 not asked again"


def test_a_prompt_reached_in_two_steps_is_reached_so_again():
    """One long extend without attention: only both steps find what one prefill loses."""

    def is_wrong(ask: Ask) -> bool:
        stepped = ask.way.startswith(("stepped", "half"))
        return ask.size == LONGEST and not stepped

    row = row_of("onset", is_wrong)
    assert (row.state, row.noise) == ("FAIL", 0)
    assert len(row.suspects) == 1


@pytest.mark.parametrize("way", ["warm", "cold", "loaded", "ask", "none"])
def test_all_that_is_asked_stays_within_ten_million_tokens(way):
    schedule, answers = asked(
        lambda ask: ask.way.startswith(way) and (ask.repeat + ask.fact) % 3 == 0
    )
    computed = schedule.cost(reply.ask for reply in answers.by_key.values()).computed
    assert schedule.first_round_cost.computed <= 6_000_000
    assert computed <= 10_000_000


def test_a_haystack_is_asked_again_in_its_order_behind_a_line_that_no_cache_holds():
    """A hit that ended at the last fact was asked again behind the same prompt: it then ended
    elsewhere, and 48 lost pairs of 72 were called noise."""
    _, answers = asked(once("warm", 23))
    for repeat in (0, 23):
        asks = answers.about((LONGEST, repeat, ""))
        at = [ask.way for ask in asks].index("warm")
        again = answers.about((LONGEST, repeat, "again 2"))
        ways = [f"{ask.way}-again2" for ask in (asks[0], asks[at - 1], asks[at])]
        assert [ask.way for ask in again] == list(dict.fromkeys(ways))


def test_what_was_lost_beside_others_is_asked_again_beside_as_many_fresh_ones():
    """The prompts beside it were the same ones, which the server held by then."""
    _, answers = asked(once("crowded", 3))
    asks = [reply.ask for reply in answers.by_key.values()]
    crowds = [ask.haystack for ask in asks if ask.way.startswith("crowd-again")]
    assert len(set(crowds)) == len(crowds) > 0
    assert not {ask.haystack for ask in asks if ask.way == "crowd"} & set(crowds)


def test_a_fault_of_the_first_extend_behind_a_hit_is_no_noise():
    """Prompts that the server holds whole are answered right, also beside others."""
    held = set[object]()

    def is_wrong(ask: Ask) -> bool:
        is_new, _ = ask.prompt not in held, held.add(ask.prompt)
        return is_new and ask.size == LONGEST and ask.way.startswith("loaded")

    row = row_of("load", is_wrong)
    assert (row.state, row.noise) == ("FAIL", 0)
    assert row.suspects


def test_more_than_chance_loses_in_one_way_is_no_pass_though_found_when_asked_again():
    _, answers = asked(lambda ask: ask.way == "warm" and ask.size == 8000 and ask.repeat % 3 == 0)
    probe = probes()["cache"]
    row = probe.at(answers, 8000, probe.level(1, 3))
    assert (row.lost, row.noise, row.left) == (24, 24, 0)
    assert row.state == "SUSPECT"
    assert row.said == "24 of 108 lost from the cache, 24 of them found when asked again"


def test_a_race_that_changes_half_of_all_repeats_is_asked_of_more_haystacks():
    """Twelve of 24 are one short of a fail, and the race was left undecided."""
    options = Options(LONGEST, promised=True, few=True, holds=LONGEST, probes=("same",))
    schedule, answers = Schedule(options, seed=7), Answers()
    while (batch := schedule.next_batch(answers)) is not None:
        for ask in batch.asks:
            races = ask.way == "again" and ask.size == LONGEST and ask.repeat % 2 == 0
            answers.add(Reply.of(ask, "Not said." if races else ask.secret))
    row = probes()["same"].judge(schedule, answers, 1).sizes[-1]
    assert (row.state, row.lost, row.n) == ("FAIL", 21, 42)


def endless_at_length(ask: Ask) -> Reply:
    """A reply of a server with room for the usual budget, and no more, whose template has 150
    tokens: some answers to long prompts never end."""
    if ask.way.endswith(ROOMY):
        return Reply.of(ask, "", failure=Failure.TOO_LONG)
    is_endless = ask.length > 100_000 and Random(str(ask.prompt)).random() < 0.05
    return Reply.of(
        ask,
        ask.secret,
        finish="length" if is_endless else "stop",
        prompt_tokens=ask.length + 150,
    )


def test_a_refused_larger_budget_breaks_no_promise():
    """An honest server failed `window`: needlemap had quadrupled the budget, not the user."""
    options = Options(max_length=LONGEST, promised=True)
    schedule, answers = Schedule(options, seed=7), Answers()
    while (batch := schedule.next_batch(answers)) is not None:
        for ask in batch.asks:
            answers.add(endless_at_length(ask))
    refused = [reply for reply in answers.by_key.values() if reply.failure]
    assert refused

    checked = judge(schedule, answers)
    assert checked.verdict.word == "PASS"
    assert "not answered" not in checked.verdict.evidence
    assert (answers.refused(), answers.unanswered(LONGEST)[0]) == ([], 0)


def test_a_larger_budget_is_only_given_if_the_servers_template_leaves_room_for_it():
    context = LONGEST + 3 * Options().answer_tokens
    for extra, is_given in ((0, False), (150, True)):
        options = Options(max_length=LONGEST, promised=True, context=context + extra)
        schedule = Schedule(options, seed=7)
        answers = Answers(endless_at_length(ask) for ask in schedule.cells())
        assert bool(list(probes()["stop"].again(schedule, answers, LONGEST))) == is_given
