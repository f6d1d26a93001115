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
from needlemap.servers.check.families import make_asker
from needlemap.servers.check.finding import Finding
from needlemap.servers.check.probe import copy_of
from needlemap.servers.check.report import check_report
from needlemap.servers.check.ways import BY_THEMSELVES
from needlemap.servers.gauge.checkpoint import DATA
from needlemap.servers.ways import AGAIN, CACHED, COMPANY, EXTENDED, FLOODED, PREFILLED, REWOUND

COLD = ("cold", "crowded", "crowd", "later", "later-ask", "short", "half")
Moved = Callable[[Ask], float]
TOKENS = 12  # of an answer


def stem(ask: Ask) -> str:
    """A way of asking, without the number of a copy or a replay."""
    return re.sub(r"-(again|replay)\d+$", "", ask.way)


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
    few: bool = False,
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
        few=few,
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


def test_an_accepted_size_keeps_the_ways_of_asking_and_what_was_not_tested():
    """With --accept ways@500 the table of ways was gone."""
    options = Options(
        max_length=8_000, answer_tokens=24, around=107, logprobs=True, prefills=True, few=True
    )
    found, answers = checked(held=True, few=True)
    schedule = Schedule(replace(options, accept=("ways@500",)), seed=5)
    accepted = judge(schedule, answers)
    assert finding(accepted).accepted == (500,)
    assert "not tested: " in finding(found).said
    assert finding(accepted).said == finding(found).said
    assert finding(accepted).ways == finding(found).ways != ()


FAULTS = {
    COMPANY: lambda ask: 2.0 * (ask.state == "loaded"),
    CACHED: lambda ask: 2.0 * (stem(ask) == "warm"),
    EXTENDED: lambda ask: 2.0 * (stem(ask) == "ask"),
    REWOUND: lambda ask: 2.0 * (stem(ask) == "rewind"),
    PREFILLED: lambda ask: 2.0 * (ask.position == TOKENS),
}


@pytest.mark.parametrize("finds", [0.0, 1.0])
@pytest.mark.parametrize("way", FAULTS)
def test_a_way_that_computes_something_else_fails(way, finds):
    """No answer is lost: the model says the same, and is less sure of it."""
    found, _ = checked(FAULTS[way], finds=finds)
    assert (found.verdict.word, word(found, way)[0]) == ("FAIL", "FAIL")
    assert finding(found).worst is not None


def test_what_a_batch_left_in_the_cache_is_wrong_again_in_a_copy():
    """mlx-lm 0.31.0 kept the last prompt's cache for each prompt of a batch."""
    spoilt = set[object]()

    def moved(ask):
        if ask.state == "loaded":
            spoilt.add(ask.haystack)
        return 2.0 * (stem(ask) == "warm" and ask.haystack in spoilt)

    found, _ = checked(moved, finds=0.0)
    assert (word(found, CACHED)[0], word(found, COMPANY)[0]) == ("FAIL", "PASS")


def test_an_answer_that_moved_as_a_prompt_is_copied_without_others():
    _, answers = checked(FAULTS[PREFILLED], finds=0.0)
    ways = {reply.ask.way for reply in answers.by_key.values()}
    copies = {way for way in ways if re.search(r"-again\d$", way)}
    assert copies == {f"cold-again{number}" for number in BY_THEMSELVES}


def test_the_shortest_of_a_batch_are_compared_too():
    """They are padded: mlx-lm 0.31.3 let pads update a recurrent state."""
    found, answers = checked(lambda ask: 2.0 * (stem(ask) == "crowd"), finds=0.0)
    assert (found.verdict.word, word(found, COMPANY)[0]) == ("FAIL", "FAIL")
    assert "among others" in finding(found).sizes[0].said
    copies = [reply.ask for reply in answers.by_key.values() if reply.ask.way == "later-again1"]
    assert copies
    assert {ask.key for ask in copies} <= answers.tried


def test_a_beginning_that_was_kept_wrong_for_a_while_fails():
    """No way differs from another one that was sent in the same minutes."""
    sent: list[Ask] = []

    def moved(ask):
        sent.append(ask)
        return 1.5 * (len(sent) < 300)

    found, answers = checked(moved, finds=0.0)
    assert (found.verdict.word, word(found, AGAIN)[0]) == ("FAIL", "FAIL")
    assert "cold again" in finding(found).sizes[0].said
    assert any(reply.ask.way == "later-replay1" for reply in answers.by_key.values())


GAUGE = {"model": "gauge/numpy", "tokenizer": str(DATA), "max_answer_tokens": 24}


def texts_of(asker, ask):
    trial = asker.conversation(ask) if ask.source else asker.experiment([ask])[ask.key]
    return [(message.role, message.content) for message in trial.prompt.messages]


@pytest.mark.parametrize("copies", [0, 1])
def test_a_conversation_goes_on_behind_a_first_prompt(tmp_path, copies):
    """A copy goes on behind a copy: then no cache holds anything of either."""
    asker = make_asker(GAUGE, Options(max_length=8_000, few=True, holds=8_000), 7, tmp_path)
    haystack = next(each for each in asker.schedule.first_round if each.conversation)
    asks = [haystack.cold, *haystack.conversation]
    for number in range(1, copies + 1):
        asks = [copy_of(ask, number) for ask in asks]
    first, longer, rewound = (texts_of(asker, ask) for ask in asks)
    answer, *further = longer[len(first) :]
    assert longer[: len(first)] == first == rewound
    assert answer[0] == "assistant"
    assert asker.secrets(haystack.cold)[haystack.cold.fact] in answer[1]
    assert "system" not in dict(further)
    assert len(further[-1][1]) >= len(first[-1][1])


def test_without_room_no_conversation_goes_on():
    schedule = Schedule(Options(max_length=300, answer_tokens=24, around=107, logprobs=True))
    assert not any(haystack.conversation for haystack in schedule.first_round)


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


def test_enough_conversations_begin_alone_if_a_cache_drops_nothing():
    """A first prompt that was sent among others is never cold and alone then, so that 16 of 32
    conversations were compared, and 20 are needed."""
    found, _ = checked(held=True)
    assert word(found, REWOUND) == ("PASS", 24)


def test_few_conversations_keep_nothing_from_passing():
    """A check of few prompts has twelve haystacks of the smallest size that begin alone."""
    found, _ = checked(held=True, few=True)
    assert word(found, REWOUND) == ("NOT ENOUGH DATA", 12)
    assert (word(found, CACHED)[0], found.verdict.word) == ("PASS", "PASS")


def test_a_hit_is_confirmed_by_copies_with_another_prompt_between():
    """A cache of one prompt holds all of a prompt that comes twice in a row, and only a part if
    another question stands between: then its first hit was of a part as well."""
    sent: list[Ask] = []

    def moved(ask):
        is_twice = bool(sent) and sent[-1].prompt == ask.prompt
        sent.append(ask)
        begins_alone = ask.repeat % 2 == 0
        return 1.5 * (stem(ask) == "warm" and begins_alone and not is_twice)

    found, _ = checked(moved, finds=0.0)
    assert (found.verdict.word, word(found, CACHED)[0]) == ("FAIL", "FAIL")


def test_its_report_shows_each_way_and_says_one_reason_once():
    found, _ = checked(finds=0.0)
    shown = to_text(check_report(Path("c"), "m", found, ""), 200)
    assert re.search(r"^among others +PASS +\d+ +0 +0 +0 +0$", shown, re.MULTILINE), shown
    assert shown.count("need a model that finds facts") == 1


def test_with_log_probabilities_a_check_to_128k_stays_within_its_tokens():
    """They add 1.1 million: what is asked when all else was, and conversations that go on."""
    options = Options(max_length=128_000, promised=True, logprobs=True, prefills=True)
    assert Schedule(options, seed=0).first_round_cost.computed < 6_200_000


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
