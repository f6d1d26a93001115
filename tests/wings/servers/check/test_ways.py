"""Equal ways of asking: whole checks, in memory, of servers that say how sure they are."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from needlemap.reports.renderers.text import to_text
from needlemap.servers.check import Answers, Ask, Checked, Options, Reply, Schedule, judge
from needlemap.servers.check.finding import Finding
from needlemap.servers.check.report import check_report
from needlemap.servers.ways import CACHED, COMPANY, EXTENDED, FLOODED, PREFILLED, REWOUND

COLD = ("cold", "crowded", "crowd", "later", "later-ask", "short", "half")
Moved = Callable[[Ask], float]
TOKENS = 12  # of an answer


def stem(ask: Ask) -> str:
    """A way of asking, without the number of a copy."""
    return ask.way.split("-again")[0] if ask.way[-1].isdigit() else ask.way


def checked(
    moved: Moved = lambda _: 0.0,
    *,
    finds: float = 1.0,
    logprobs: bool = True,
    held: bool = False,
    begins: int = 0,
    probes: tuple[str, ...] = (),
    texts: Moved = lambda _: 0.0,
    prefills: bool = True,
    spelt: Moved = lambda _: 0.0,
) -> tuple[Checked, Answers]:
    """What a check comes to. moved: nats by which an asking is off. finds: share of the facts.
    held: whether the cache holds all that was ever sent. begins: tokens that all prompts begin
    with, which the cache holds of those that are sent alone. texts: whether another text is said.
    prefills: whether the server can tell of an answer that is sent as a prompt. spelt: by how many
    tokens it spells that otherwise."""
    options = Options(
        max_length=8_000,
        answer_tokens=24,
        around=107,
        logprobs=logprobs,
        prefills=True,
        probes=probes,
    )
    schedule, answers = Schedule(options, seed=5), Answers()
    sent = set[object]()
    while (batch := schedule.next_batch(answers)) is not None:
        for ask in batch.asks:
            is_held = stem(ask) not in COLD or (held and ask.prompt in sent)
            sent.add(ask.prompt)
            answers.add(reply_to(ask, moved(ask), is_held=is_held, finds=finds, logprobs=logprobs))
            if begins and not is_held and ask.state != "loaded":
                answers.add(replace(answers.by_key[ask.key], cached_tokens=begins))
            if texts(ask) and not ask.position:
                answers.add(replace(answers.by_key[ask.key], answer="another text"))
            if ask.position:
                prefill = answers.prefills[ask.key]
                failure = "" if prefills else "rejected"
                before = ask.length + ask.position - 1 + int(spelt(ask))
                answers.add(replace(prefill, tokens_before=before, failure=failure))
    return judge(schedule, answers), answers


def reply_to(ask: Ask, moved: float, *, is_held: bool, finds: float, logprobs: bool) -> Reply:
    chance = Random(str(ask.prompt))
    nats = -chance.uniform(0.1, 1.0)
    text = ask.secret if Random(str((ask.haystack, ask.fact))).random() < finds else "Nothing."
    held = ask.length - 30 if is_held else 0
    made = Reply.of(ask, text, prompt_tokens=ask.length, cached_tokens=held)
    step = ("7", {"7": nats - moved, "3": -4.0})
    steps = (step,) * (1 if ask.position else TOKENS) if logprobs else ()
    return replace(made, steps=steps, tokens_before=ask.length)


def finding(found: Checked) -> Finding:
    return next(each for each in found.findings if each.probe == "ways")


def word(found: Checked, way: str) -> tuple[str, int]:
    row = next(row for row in finding(found).ways if row.way == way)
    return row.state, row.n


def test_a_sound_server_passes_in_each_way():
    found, _ = checked()
    assert found.verdict.word == "PASS"
    for way in (COMPANY, CACHED, EXTENDED, REWOUND, PREFILLED):
        state, n = word(found, way)
        assert (state, n >= 20) == ("PASS", True), way
    assert finding(found).sizes[0].said.startswith("moved by more than 0.5 nats: 0 of ")


FAULTS = {
    COMPANY: lambda ask: 2.0 * (ask.state == "loaded"),
    CACHED: lambda ask: 2.0 * (stem(ask) == "warm"),
    EXTENDED: lambda ask: 2.0 * (stem(ask) == "ask"),
    REWOUND: lambda ask: 2.0 * (stem(ask) == "again"),
    PREFILLED: lambda ask: 2.0 * (ask.position == TOKENS),
}


@pytest.mark.parametrize("finds", [0.0, 1.0])
@pytest.mark.parametrize("way", FAULTS)
def test_a_way_that_computes_something_else_fails(way, finds):
    """No answer is lost: the model says the same, and is less sure of it."""
    found, _ = checked(FAULTS[way], finds=finds)
    assert (found.verdict.word, word(found, way)[0]) == ("FAIL", "FAIL")
    assert finding(found).worst is not None


def test_one_asking_in_a_hundred_is_enough():
    found, _ = checked(
        lambda ask: 2.0 * (stem(ask) == "warm" and Random(str(ask.haystack[:2])).random() < 0.1)
    )
    assert word(found, CACHED)[0] == "FAIL"


def test_a_move_that_does_not_come_again_is_no_fail():
    found, _ = checked(lambda ask: 2.0 * (ask.way == "warm" and ask.repeat < 2))
    assert word(found, CACHED)[0] == "SUSPECT" or finding(found).state == "PASS"
    assert found.verdict.word != "FAIL"


def test_rounding_of_half_a_nat_is_no_fault():
    found, _ = checked(lambda ask: Random(ask.way + str(ask.prompt)).uniform(0, 0.4))
    assert found.verdict.word == "PASS"


def test_a_model_that_finds_nothing_is_judged_by_its_ways_alone():
    found, _ = checked(finds=0.0)
    assert (found.verdict.word, found.verdict.evidence) == (
        "PASS",
        "the model found 0 of 96 facts, so equal ways of asking alone are judged",
    )
    assert {each.probe for each in found.findings if each.state == "PASS"} <= {"ways", "usage"}
    assert found.lacking["length"] == "needs a model that finds facts: this one found 0 of 96"
    assert "if it should find them, look at --template" in found.verdict.next


def test_what_needs_a_right_answer_is_not_asked_of_it():
    few, many = checked(finds=0.0)[1], checked()[1]
    assert len(few) < 0.75 * len(many)


def test_a_model_that_finds_most_of_the_shortest_is_judged_as_ever():
    found, _ = checked(finds=0.7)
    assert "the model found" not in found.verdict.evidence
    assert "length" not in found.lacking


def test_without_log_probabilities_texts_tell_where_that_is_asked_for():
    sound, _ = checked(finds=0.0, logprobs=False, probes=("ways",))
    assert sound.verdict.word == "PASS"
    assert "texts alone: no log-probabilities" in finding(sound).ways[1].said
    found, _ = checked(
        finds=0.0, logprobs=False, probes=("ways",), texts=lambda ask: stem(ask) == "warm"
    )
    assert (found.verdict.word, word(found, CACHED)[0]) == ("FAIL", "FAIL")


def test_without_log_probabilities_an_able_model_is_not_asked():
    found, answers = checked(logprobs=False)
    assert found.lacking["ways"].startswith("log-probabilities, which this back end lacks")
    assert not answers.every("later")


def test_what_all_prompts_begin_with_is_no_hit():
    """A twin's tokens are characters: what stands before the text is half of a short prompt."""
    found, _ = checked(FAULTS[COMPANY], finds=0.0, begins=120)
    assert word(found, COMPANY)[0] == "FAIL"
    assert word(found, CACHED)[0] == "PASS"


def test_a_prompt_that_the_cache_still_holds_is_behind_a_flood_and_not_alone():
    found, _ = checked(held=True)
    assert word(found, FLOODED)[0] == "PASS"
    assert word(found, COMPANY) == ("not tested", 0)
    assert finding(found).said.endswith("; not tested: among others, behind a cached beginning")


def test_its_report_shows_each_way_and_says_one_reason_once():
    found, _ = checked(finds=0.0)
    shown = to_text(check_report(Path("c"), "m", found, ""), 200)
    assert re.search(r"^among others +PASS +\d+ +0 +0 +0 +0$", shown, re.MULTILINE), shown
    assert shown.count("need a model that finds facts") == 1


def test_with_log_probabilities_a_check_to_128k_stays_within_its_tokens():
    """What is asked when all else was made it 6.24 million."""
    options = Options(max_length=128_000, promised=True, logprobs=True, prefills=True)
    assert Schedule(options, seed=0).first_round_cost.computed < 6_000_000


def test_an_answer_is_sent_as_a_prompt_up_to_its_first_token_and_its_last():
    found, answers = checked()
    asks = [reply.ask for reply in answers.prefills.values()]
    assert {(ask.way, ask.position) for ask in asks} == {
        ("prefilled1", 1),
        ("prefilled-last", TOKENS),
    }
    row = next(row for row in finding(found).ways if row.way == PREFILLED)
    assert [(band.tokens, band.n) for band in row.bands] == [(1, 2 * row.n)]


def test_answers_that_were_sent_as_prompts_are_no_answers():
    """They hold no secret: other probes must not count them as lost."""
    found, answers = checked()
    assert found.verdict.word == "PASS"
    assert not any(reply.ask.position for reply in answers.every())


def test_a_server_that_cannot_tell_of_its_answers_is_asked_no_more():
    found, answers = checked(prefills=False)
    assert (found.verdict.word, word(found, PREFILLED)) == ("PASS", ("not tested", 0))
    assert len(answers.prefills) == 2
    assert finding(found).said.endswith("; not tested: generated against prefilled")
    assert "not answered" not in found.verdict.evidence


def test_positions_that_a_server_spells_otherwise_are_left_out():
    found, _ = checked(spelt=lambda ask: ask.position == TOKENS and ask.repeat % 2)
    row = next(row for row in finding(found).ways if row.way == PREFILLED)
    assert (row.state, row.n, row.left_out) == ("PASS", 24, 12)


def test_prompts_beside_a_copy_have_room_for_its_first_line():
    """In a vocabulary of letters its first line took all that the shortest prompts spare."""
    _, answers = checked(FAULTS[COMPANY])
    crowds = [reply.ask for reply in answers.by_key.values() if reply.ask.way.startswith("crowd-")]
    shortest = min(reply.ask.length for reply in answers.every("crowd"))
    assert crowds
    assert all(ask.length == shortest + len("again 1\n") for ask in crowds if ask.salt)
