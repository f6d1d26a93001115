"""A prompt whose cache hit ends within the asked number: positions that are off behind a hit move
no answer elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from needlemap.servers.check import Answers, Ask, Options, Reply, Schedule, probes
from needlemap.servers.check.families import make_asker
from needlemap.servers.gauge.checkpoint import DATA

GAUGE = {"model": "gauge/numpy", "tokenizer": str(DATA), "max_answer_tokens": 24}
NUMBER, KEPT = 12, 9  # digits; of them in both prompts


@pytest.fixture
def asker(tmp_path):
    return make_asker(GAUGE, Options(max_length=8_000, few=True, holds=8_000), 7, tmp_path)


def text_of(asker, ask):
    messages = asker.experiment([ask])[ask.key].prompt.messages
    return "".join(message.content for message in messages)


def test_a_hit_ends_within_the_number_that_is_asked(asker):
    haystack = next(each for each in asker.schedule.first_round if each.within_ask)
    first, parted = text_of(asker, haystack.cold), text_of(asker, haystack.within_ask)
    old, new = (asker.secrets(ask)[ask.fact] for ask in (haystack.cold, haystack.within_ask))
    assert (len(first), old[:KEPT], len(new)) == (len(parted), new[:KEPT], NUMBER)
    pairs = enumerate(zip(first, parted, strict=True))
    at = next(number for number, (one, other) in pairs if one != other)
    assert first[:at].endswith(old[:KEPT])
    assert parted[at:].startswith(new[KEPT:])


def test_its_right_answer_is_the_number_that_it_holds_and_no_foreign_secret(asker):
    haystack = next(each for each in asker.schedule.first_round if each.within_ask)
    secrets = asker.secrets(haystack.within_ask)
    assert secrets[:-1] == asker.secrets(haystack.cold)[:-1]
    assert secrets[-1] in text_of(asker, haystack.within_ask)


def test_words_have_no_twin(tmp_path):
    own = {"needle": "{who} likes {what}.", "question": "What does {who} like?"}
    words = {"who": ["Ann", "Bo"], "what": ["tea", "jam"]}
    flags = {"model": "baseline/bm25", **own, "keywords": ["{what}"], "draw": words}
    schedule = make_asker(flags, Options(max_length=2_000), 7, tmp_path).schedule
    assert not any(each.within_ask for each in schedule.first_round)


def row_of(is_wrong: Callable[[Ask], bool], holds: int = 0) -> tuple[str, str]:
    """State of `cache` at the longest size, and what it says, where some answers are wrong."""
    known = Options(8_000, promised=True, few=True, twins=True, holds=holds)
    options = replace(known, probes=("cache",))
    schedule, answers = Schedule(options, seed=7), Answers()
    while (batch := schedule.next_batch(answers)) is not None:
        for ask in batch.asks:
            answers.add(Reply.of(ask, "Not said." if is_wrong(ask) else ask.secret))
    finding = probes()["cache"].judge(schedule, answers, 1)
    row = finding.sizes[-1]
    return row.state, row.said


def test_a_sound_server_passes_with_them():
    assert row_of(lambda _: False) == ("PASS", "0 of 36 lost from the cache, hits not reported")


def test_of_a_known_model_half_the_haystacks_are_enough_to_fail():
    """Twelve lost of twelve: one in a hundred may be."""
    lost = row_of(lambda ask: ask.way.startswith("within"), holds=8_000)
    assert lost[0] == "FAIL"
    assert "12 of 12 lost from the cache" in lost[1]
    assert lost[1].endswith("where a hit ends within the fact")


def test_one_that_is_lost_once_and_found_again_is_noise():
    state, said = row_of(lambda ask: ask.way == "within" and ask.repeat == 0, holds=8_000)
    assert state == "PASS"
    assert "1 of them noise" in said


def test_of_another_model_half_the_haystacks_point_and_more_are_asked():
    state, said = row_of(lambda ask: ask.way.startswith("within") and ask.size == 8_000)
    assert state == "FAIL"
    assert "21 of 21 lost from the cache" in said


def test_half_of_a_prompt_has_room_for_all_its_facts(asker):
    """Reached in two steps, the shortest size of 8k ended the check: half of it was too short."""
    size = asker.schedule.sizes[0]
    haystack = next(each for each in asker.schedule.first_round if each.size == size)
    half, stepped = haystack.stepped_asks
    texts = [text_of(asker, ask) for ask in (half, stepped)]
    assert half.length < stepped.length
    assert all(secret in text for text in texts for secret in asker.secrets(half))
