"""A check beside an earlier one of the same prompts, replayed without a server."""

from __future__ import annotations

from collections.abc import Callable

from needlemap.servers.check import Answers, Ask, Options, Reply, Schedule, Verdict, judge
from needlemap.servers.check.change import judge_change


def asked(is_lost: Callable[[Ask], bool]) -> tuple[Schedule, Answers]:
    """A check of a server that loses some prompts."""
    schedule, answers = Schedule(Options(), 7), Answers()
    while (batch := schedule.next(answers)) is not None:
        for ask in batch.asks:
            said = "I do not know." if is_lost(ask) else f"It is {ask.secret}."
            answers.add(Reply.of(ask, said))
    return schedule, answers


def changed(before: Callable[[Ask], bool], now: Callable[[Ask], bool]) -> Verdict:
    """What the second check comes to beside the first."""
    schedule, answers = asked(now)
    return judge_change(schedule, judge(schedule, answers), answers, asked(before)[1], "old")


def never(_ask: Ask) -> bool:
    return False


def at_the_longest(ask: Ask) -> bool:
    return ask.size == 128_000


def test_a_size_that_was_lost_before_is_passed_for_the_change_only():
    found = changed(at_the_longest, at_the_longest)
    assert found.code == 0
    assert found.line.startswith("for the change only, beside old (")
    assert "128k 0 of " in found.line


def test_a_size_that_is_lost_now_and_was_not_before_fails():
    found = changed(never, at_the_longest)
    assert found.code == 1
    assert "length" in {each.probe for each in found.findings if each.state == "fail"}


def test_two_sound_checks_are_the_same():
    assert changed(never, never).code == 0


def test_a_server_that_is_garbage_beyond_a_size_never_passes():
    for begin in (8_000, 32_000, 128_000):
        schedule, answers = asked(lambda ask, begin=begin: ask.size >= begin)
        assert judge(schedule, answers).code == 5


def test_each_way_of_asking_is_blamed_by_its_own_probe():
    kinds = {
        "cache": lambda ask: ask.size >= 32_000 and ask.way in ("warm", "tail", "again"),
        "load": lambda ask: ask.size >= 32_000 and ask.way == "loaded",
        "comb": lambda ask: ask.size >= 32_000 and ask.length % 4 == 1,
    }
    for probe, is_lost in kinds.items():
        verdict = judge(*asked(is_lost))
        assert verdict.code == 1
        assert probe in {each.probe for each in verdict.findings if each.state == "fail"}, probe


def test_one_length_in_four_is_blamed_on_lengths_alone():
    """`cache` failed where the prompts behind its hits all had a length that is computed wrong."""
    for rest in range(4):
        verdict = judge(*asked(lambda ask, rest=rest: ask.size > 8_000 and ask.length % 4 == rest))
        assert {each.probe for each in verdict.findings if each.state == "fail"} == {"comb"}, rest


def test_where_nothing_is_found_only_the_lengths_look_like_a_fault():
    """A server that lost everything was told of a leak between users, with no leak seen."""
    verdict = judge(*asked(lambda _: True))
    shown = {each.probe: each.known for each in verdict.findings if each.state == "undecided"}
    assert {"mates", "same", "comb", "edges"} <= set(shown)
    assert [probe for probe, known in shown.items() if known] == ["length"]
