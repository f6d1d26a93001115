"""Models that find too little: each request of a storm beside the same prompt sent alone."""

from __future__ import annotations

import asyncio
import re
from random import Random
from typing import Any

import pytest
from boxed_reader import Reader, Unable

from needlemap.errors import Failure, Unmeasured
from needlemap.models import Answer, Decoding
from needlemap.prompts import Message, Prompt
from needlemap.records.folder import RunFolder
from needlemap.servers.storm.file import STORM
from needlemap.servers.storm.report import storm_report
from needlemap.servers.storm.uncached import Uncached
from needlemap.servers.ways import TOLERANCE
from needlemap.text.tokens import TokenText

CALM = {"max_length": 1_000, "kv_tokens": None}


def off() -> float:
    return 2.0


def line(found: Any, start: str) -> str:
    (told,) = [each for each in found.said if each.startswith(start)]
    return told


def test_a_sound_server_of_a_model_that_finds_nothing_passes(storming):
    asking, found = storming(Unable(), wanted=0.3, **CALM)
    assert found.verdict.word == "PASS"
    assert set(found.tally.counts) <= {"equal", "uncompared"}
    assert "the model found 0 of 4 facts, so equal ways of asking alone" in found.verdict.evidence
    assert found.verdict.next.startswith("if it should find them, look at --template")
    assert line(found, "beside the same prompts alone: 0 of ")
    document = STORM.read(asking.storm.folder.path)
    assert (document.little, document.limit_nats) == ((0, 4), TOLERANCE["bfloat16"])


def test_log_probabilities_that_move_behind_a_hit_are_a_fault_of_state(storming):
    asking, found = storming(Unable(off), rounds=12, **CALM)
    assert found.verdict.word == "FAIL"
    assert found.tally.counts["moved"] > 0
    assert re.search(r" and in 0 of \d+ cold askings: faults of state", line(found, "replayed: "))
    seen = next(each for each in asking.evidence.storm if each.outcome.word == "moved")
    assert seen.nats == pytest.approx(2.0)


def test_a_model_that_finds_its_facts_is_judged_by_them(storming):
    server = Reader()
    asking, found = storming(server, rounds=2, **CALM)
    assert STORM.read(asking.storm.folder.path).little is None
    assert set(found.tally.counts) == {"right"}
    folder = asking.storm.folder.folder("alone")
    assert not list(RunFolder(folder).records())


def test_a_model_that_finds_its_facts_is_judged_by_equal_ways_where_that_is_typed(storming):
    _, found = storming(Reader(), rounds=3, ways=True, **CALM)
    assert set(found.tally.counts) <= {"equal", "uncompared"}
    assert "the model found 4 of 4 facts" in found.verdict.evidence


def test_without_log_probabilities_a_model_that_finds_nothing_is_not_asked_on(storming):
    server = Unable(logprobs=False)
    asking, found = storming(server, **CALM)
    assert asking.missed.startswith("the first 4 prompts were all missed")
    assert asking.missed.endswith("To judge the server by equal ways of asking alone, type --ways")
    assert (found.verdict.word, server.asked) == ("SUSPECT", 9)


def test_texts_alone_judge_where_that_is_typed_and_it_is_said(storming):
    silent = {"ways": True, **CALM}
    _, sound = storming(Unable(logprobs=False), rounds=3, folder="sound", **silent)
    assert set(sound.tally.counts) <= {"equal", "uncompared"}
    assert any("by texts alone: no log-probabilities" in each for each in sound.said)
    _, found = storming(Unable(off, logprobs=False), rounds=12, **silent)
    assert found.verdict.word == "FAIL"


def test_fewer_than_20_compared_requests_are_not_enough(storming):
    """A fault in all of them is only suspect, and a rate that is excluded no pass."""
    asking, found = storming(Unable(off), rounds=1, seed=4, **CALM)
    compared = [each for each in asking.evidence.storm if each.outcome.word in ("equal", "moved")]
    assert len(compared) < 20
    assert found.verdict.word in ("SUSPECT", "NOT ENOUGH DATA")
    _, sound = storming(Unable(), rounds=1, seed=4, wanted=0.99, folder="sound", **CALM)
    assert sound.verdict.word == "NOT ENOUGH DATA"


def test_prompts_alone_that_a_cache_held_are_not_compared(storming):
    _, found = storming(Unable(off, heeds=False), rounds=4, **CALM)
    assert found.verdict.word == "NOT ENOUGH DATA"
    assert set(found.tally.counts) == {"uncompared"}
    assert any("as a cache held them: give the server a smaller cache" in s for s in found.said)


def test_what_all_prompts_start_with_is_no_hit(storming):
    """A twin's tokens are characters: what stands before the text is a third of a short prompt."""
    _, found = storming(Unable(off, starts=150), rounds=4, **CALM)
    counts = found.tally.counts
    assert counts["moved"] + counts["equal"] > counts.get("uncompared", 0)


def test_a_server_that_reports_no_hits_is_compared_and_it_is_said(storming):
    _, found = storming(Unable(tells=False), rounds=3, **CALM)
    assert set(found.tally.counts) <= {"equal", "uncompared"}
    assert any(each.startswith("hits not reported") for each in found.said)


def test_log_probabilities_that_move_whatever_stood_before_are_no_fault_of_state(storming):
    """Cold askings move as often as replays do."""
    random = Random(1)

    class Moody(Unable):
        async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
            self.known |= {each.content[:400] for each in prompt.messages if each.role == "user"}
            return await super().answer(prompt, decoding)

    moody = Moody(lambda: random.choice((0.0, 0.0, 0.8)), heeds=False, tells=False)
    _, found = storming(moody, rounds=6, **CALM)
    assert found.verdict.word != "FAIL"


def test_one_letter_over_and_over_is_no_fault_of_a_model_that_means_nothing(storming):
    _, found = storming(Unable(says="a" * 40), rounds=3, **CALM)
    assert set(found.tally.counts) <= {"equal", "uncompared"}
    assert not found.tally.certain


def test_it_goes_on_where_it_ended(storming):
    _, first = storming(Unable(off), rounds=12, **CALM)
    again = Unable(off)
    _, found = storming(again, rounds=12, **CALM)
    assert (found.verdict.word, found.said, again.asked) == ("FAIL", first.said, 0)


def test_its_report_counts_equal_answers_as_sound(storming):
    asking, _ = storming(Unable(), rounds=3, **CALM)
    path = asking.storm.folder.path
    report = storm_report(path, STORM.read(path))
    rows = report.tables[0].rows
    assert sum(row.values["right"] for row in rows) > 0


def ask(model: Any) -> Answer:
    said = TokenText.opaque(b"What is it?").span()
    return asyncio.run(model.answer(Prompt((Message("user", (said,)),)), Decoding()))


def test_what_is_sent_alone_says_that_no_cache_is_to_be_used():
    inner = Unable()
    model = Uncached("m", model=inner, salt="s")
    ask(model)
    first = inner.fields["cache_salt"]
    ask(model)
    assert inner.fields["cache_prompt"] is False
    assert first != inner.fields["cache_salt"]


def test_a_server_that_refuses_these_fields_is_asked_without_them():
    class Strict(Unable):
        async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
            if decoding.request:
                raise Unmeasured(Failure.REJECTED, "unknown field")
            return await super().answer(prompt, decoding)

    inner = Strict()
    model = Uncached("m", model=inner, salt="s")
    ask(model)
    ask(model)
    assert inner.asked == 2


def test_a_server_of_others_is_sent_no_such_fields():
    inner = Unable()
    ask(Uncached("m", model=inner, salt=""))
    assert inner.fields == {}
