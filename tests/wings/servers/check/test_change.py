"""A check beside an earlier one of the same prompts, replayed without a server."""

from __future__ import annotations

from collections.abc import Callable

from needlemap.servers.check import Answers, Ask, Checked, Options, Reply, Schedule, judge
from needlemap.servers.check.change import judge_change


def asked(is_lost: Callable[[Ask], bool]) -> tuple[Schedule, Answers]:
    """A check of a server that loses some prompts."""
    schedule, answers = Schedule(Options(), 7), Answers()
    while (batch := schedule.next_batch(answers)) is not None:
        for ask in batch.asks:
            said = "I do not know." if is_lost(ask) else f"It is {ask.secret}."
            answers.add(Reply.of(ask, said))
    return schedule, answers


def changed(before: Callable[[Ask], bool], now: Callable[[Ask], bool]) -> Checked:
    """What the second check comes to beside the first."""
    schedule, answers = asked(now)
    return judge_change(schedule, judge(schedule, answers), answers, asked(before)[1], "old")


def failing(found: Checked) -> set[str]:
    """The probes that fail."""
    return {each.probe for each in found.findings if each.state == "FAIL"}


def never(_ask: Ask) -> bool:
    return False


def at_the_longest(ask: Ask) -> bool:
    return ask.size == 128_000


def test_a_size_that_was_lost_before_is_passed_for_the_change_only():
    found = changed(at_the_longest, at_the_longest)
    assert found.verdict.word == "PASS"
    assert "for the change only, beside old (" in found.verdict.line("check")
    assert "128k 0 of " in found.verdict.line("check")


def test_a_size_that_is_lost_now_and_was_not_before_fails():
    found = changed(never, at_the_longest)
    assert found.verdict.word == "FAIL"
    assert "length" in failing(found)


def test_two_sound_checks_are_the_same():
    assert changed(never, never).verdict.word == "PASS"


def test_a_server_that_is_garbage_beyond_a_size_never_passes():
    for begin in (8_000, 32_000, 128_000):
        schedule, answers = asked(lambda ask, begin=begin: ask.size >= begin)
        assert judge(schedule, answers).verdict.word == "SUSPECT"


def test_each_way_of_asking_is_blamed_by_its_own_probe():
    kinds = {
        "cache": lambda ask: ask.size >= 32_000 and ask.way in ("warm", "tail", "again"),
        "load": lambda ask: ask.size >= 32_000 and ask.way == "loaded",
        "pattern": lambda ask: ask.size >= 32_000 and ask.length % 4 == 1,
    }
    for probe, is_lost in kinds.items():
        found = judge(*asked(is_lost))
        assert found.verdict.word == "FAIL"
        assert probe in failing(found), probe


def test_one_length_in_four_is_blamed_on_lengths_alone():
    """`cache` failed where the prompts behind its hits all had a length that is computed wrong."""
    for rest in range(4):
        found = judge(*asked(lambda ask, rest=rest: ask.size > 8_000 and ask.length % 4 == rest))
        assert failing(found) == {"pattern"}, rest


def test_where_nothing_is_found_only_the_lengths_look_like_a_fault():
    """A server that lost everything was told of a leak between users, with no leak seen."""
    found = judge(*asked(lambda _: True))
    shown = {each.probe: each.known for each in found.findings if each.is_open}
    assert {"mates", "same", "pattern"} <= set(shown)
    assert [probe for probe, known in shown.items() if known] == ["length"]
