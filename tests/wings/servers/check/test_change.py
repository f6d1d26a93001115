"""A check beside an earlier one of the same prompts, replayed without a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from needlemap.errors import Failure
from needlemap.servers.check import Answers, Ask, Checked, Options, Reply, Schedule, judge
from needlemap.servers.check.ask import secret_of
from needlemap.servers.check.change import judge_change

LOST = "I do not know."


def replied(reply: Callable[[Ask], Reply], options: Options | None = None) -> Answers:
    """The answers of a whole check."""
    schedule, answers = Schedule(options or Options(), 7), Answers()
    while (batch := schedule.next_batch(answers)) is not None:
        for ask in batch.asks:
            answers.add(reply(ask))
    return answers


def beside(now: Answers, before: Answers, options: Options | None = None) -> Checked:
    """What some answers come to beside those of an earlier check."""
    schedule = Schedule(options or Options(), 7)
    return judge_change(schedule, judge(schedule, now), now, before, "old")


def sound(ask: Ask) -> Reply:
    return Reply.of(ask, f"It is {ask.secret}.")


def chance(ask: Ask) -> float:
    """A number from 0 to 1, the same for each way of asking a prompt."""
    return Random(str(ask.prompt)).random()


def asked(is_lost: Callable[[Ask], bool]) -> tuple[Schedule, Answers]:
    """A check of a server that loses some prompts."""
    answers = replied(lambda ask: Reply.of(ask, LOST) if is_lost(ask) else sound(ask))
    return Schedule(Options(), 7), answers


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


def test_a_new_leak_fails_although_hardly_an_answer_was_lost():
    """One answer in 150 held another prompt's secret, and 3 rows "stayed as before"."""

    def leaking(ask: Ask) -> Reply:
        other = secret_of(ask.seed, (ask.size, ask.repeat + 1), ask.fact)
        return Reply.of(ask, f"It is {other}.") if chance(ask) < 0.01 else sound(ask)

    found = beside(replied(leaking), replied(sound))
    assert found.verdict.word == "FAIL"
    assert "mates" in failing(found)


def test_a_leak_that_was_there_before_is_still_a_leak():
    leaks = replied(sound)
    first, second = (reply for reply in leaks.of(8_000, "cold")[:2])
    leaks.add(replace(first, answer=f"It is {second.secret}."))
    assert failing(beside(leaks, leaks)) == {"mates"}


def test_moved_log_probabilities_of_cache_hits_fail_although_answers_are_right():
    """A cache that moved each hit by 5.9 nats passed beside a check of the sound server."""
    options = Options(logprobs=True)

    def likely(ask: Ask, nats: float = -0.1) -> Reply:
        return replace(sound(ask), steps=(("It", {"It": nats, "x": -3.0}),))

    def moved(ask: Ask) -> Reply:
        return likely(ask, -6.0) if ask.state == "warm" else likely(ask)

    found = beside(replied(moved, options), replied(likely, options), options)
    assert failing(found) == {"ways"}


def test_prompts_that_were_answered_before_and_are_not_now_keep_it_from_passing():
    """60 % of prompts got a server error, and the last line did not say so."""

    def refusing(ask: Ask) -> Reply:
        return Reply.of(ask, "", failure=Failure.SERVER) if chance(ask) < 0.6 else sound(ask)

    found = beside(replied(refusing), replied(sound))
    assert found.verdict.word == "SUSPECT"
    assert "server error" in found.verdict.evidence


def test_unanswered_prompts_of_a_size_that_was_lost_before_are_not_unchanged():
    def worse(ask: Ask) -> Reply:
        if ask.length > 100_000 and chance(ask) < 0.3:
            return Reply.of(ask, "", failure=Failure.SERVER)
        return sound(ask)

    def bad(ask: Ask) -> Reply:
        if ask.length > 100_000 and chance(ask) < 0.15:
            return Reply.of(ask, "", failure=Failure.SERVER)
        return sound(ask)

    found = beside(replied(worse), replied(bad))
    assert found.verdict.word == "SUSPECT"


def test_a_model_that_found_facts_before_and_finds_nothing_now_is_not_a_weak_model():
    options = Options(logprobs=True)

    def likely(ask: Ask, text: str = "") -> Reply:
        reply = Reply.of(ask, text or f"It is {ask.secret}.")
        return replace(reply, steps=(("It", {"It": -0.1, "x": -3.0}),))

    now = replied(lambda ask: likely(ask, LOST), options)
    found = beside(now, replied(likely, options), options)
    assert found.verdict.word == "FAIL"
    assert "length" in failing(found)


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


def test_a_leak_is_a_fault_of_a_server_whose_model_finds_nothing():
    """The model found 34 of 96 facts, so `mates` did not apply and 10 leaks passed."""
    options = Options(logprobs=True)

    def weak(ask: Ask) -> Reply:
        reply = Reply.of(ask, LOST)
        return replace(reply, steps=(("I", {"I": -0.1, "x": -3.0}),))

    answers = replied(weak, options)
    assert "mates" not in failing(judge(Schedule(options, 7), answers))

    first, second = answers.of(8_000, "cold")[:2]
    answers.add(replace(first, answer=f"It is {second.secret}."))
    assert failing(judge(Schedule(options, 7), answers)) == {"mates"}

    # A model may say another prompt's word without a leak.
    words = Answers(
        replace(reply, secret=f"Dolores Park {reply.secret}") for reply in answers.by_key.values()
    )
    words.add(replace(words.by_key[first.ask.key], answer=f"Dolores Park {second.secret}"))
    assert failing(judge(Schedule(options, 7), words)) == set()


def with_short_secrets(
    leaks: int, wrong: int, shorten: Callable[[str], str] = lambda secret: secret[:4]
) -> Answers:
    """Of a sound server whose secrets are short; some wrong answers give another's."""
    sound_answers = replied(sound).by_key.values()
    short = [
        replace(
            reply,
            secret=shorten(reply.secret),
            other_secrets=tuple(map(shorten, reply.other_secrets)),
            answer=f"It is {shorten(reply.secret)}.",
        )
        for reply in sound_answers
    ]
    cold = [
        number
        for number, reply in enumerate(short)
        if (reply.ask.way, reply.ask.size) == ("cold", 8_000)
    ]
    for place, number in enumerate(cold[:wrong]):
        foreign = short[cold[-1]].secret
        answer = f"It is {foreign}." if place < leaks else LOST
        short[number] = replace(short[number], answer=answer, right=False)
    return Answers(short)


@pytest.mark.parametrize(("leaks", "word"), [(0, "PASS"), (1, "PASS"), (8, "FAIL")])
def test_a_short_secret_of_another_prompt_is_a_leak_if_chance_does_not_explain_it(leaks, word):
    """One wrong answer of four digits in so many is some other prompt's, and made it SUSPECT."""
    answers = with_short_secrets(leaks, wrong=8)
    checked = judge(Schedule(Options(), 7), answers)
    (found,) = [finding for finding in checked.findings if finding.probe == "mates"]
    assert found.state == word
    chance = "which has 4 characters: chance explains that"
    assert any(chance in row.said for row in found.sizes) == (leaks == 1)


def test_short_words_of_another_prompt_point_to_a_leak_and_prove_none():
    """Their chance was computed as that of digits, so a model's own words were a FAIL."""

    def as_word(secret: str) -> str:
        return "".join(chr(ord("a") + int(digit)) for digit in secret[:8])

    answers = with_short_secrets(leaks=8, wrong=8, shorten=as_word)
    checked = judge(Schedule(Options(), 7), answers)
    (found,) = [finding for finding in checked.findings if finding.probe == "mates"]
    assert found.state == "SUSPECT"
    assert any(
        "a short word, which a model may say without a leak" in row.said for row in found.sizes
    )


@pytest.mark.parametrize(
    ("failure", "word"),
    [
        (Failure.SERVER, "SUSPECT"),
        (Failure.TIMED_OUT, "SUSPECT"),
        # Neither was left out by the server's fault.
        (Failure.TOO_LONG, "PASS"),
        (Failure.SKIPPED, "PASS"),
    ],
)
def test_a_length_that_never_brings_an_answer_keeps_a_check_from_passing(failure, word):
    """One length in 16 got a server error each time, and the check passed."""

    def failing_at_lengths(ask: Ask) -> Reply:
        return Reply.of(ask, "", failure=failure) if ask.length % 16 == 5 else sound(ask)

    answers = replied(failing_at_lengths)
    verdict = judge(Schedule(Options(), 7), answers).verdict
    assert verdict.word == word
    if word == "SUSPECT":
        assert f"not answered: {sum(not reply.measured for reply in answers.by_key.values())} " in (
            verdict.evidence
        )


def test_unanswered_prompts_do_not_count_beyond_what_is_required():
    def failing_when_long(ask: Ask) -> Reply:
        if 100_000 < ask.length < 122_000:
            return Reply.of(ask, "", failure=Failure.SERVER)
        return sound(ask)

    answers = replied(failing_when_long)
    assert judge(Schedule(Options(), 7), answers).verdict.word == "SUSPECT"
    required = Options(require=("32k",))
    assert judge(Schedule(required, 7), answers).verdict.word == "PASS"
