"""Margins of a server of the gauge: what moves behind a cached prefix alone is a fault, what moves
all prompts alike is a choice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import pytest
from boxed_reader import Sure, beginning
from moving_gauge import Served

from needlemap.models import Decoding
from needlemap.prompts import TEXT, Message, Prompt
from needlemap.servers.check.margins import LEAST_NATS, Margins
from needlemap.servers.gauge.cache import CoarseEngine, four_bits, fp8_cut_off, rotated_rounding
from needlemap.servers.gauge.checkpoint import DATA, REFERENCE
from needlemap.servers.gauge.model import GaugeModel, chat
from needlemap.servers.storm.evidence import Evidence, Observation, Suspect
from needlemap.servers.storm.file import STORM
from needlemap.servers.storm.judge import judge_storm
from needlemap.servers.storm.moves import Moves
from needlemap.servers.storm.operation import Limits
from needlemap.servers.storm.outcome import RequestOutcome
from needlemap.servers.storm.plan import make_round
from needlemap.servers.storm.repro import write_repro
from needlemap.servers.storm.shrink import Shrinking
from needlemap.servers.storm.storm import Storm

WEIGHED = {"gauge": True, "reference": REFERENCE, "flags": {"logprobs": True}}
ASKED = {**WEIGHED, "make_reference": lambda _: Sure()}
SMALL = {"tokenizer": str(DATA), "max_answer_tokens": 24, "logprobs": True}
ITSELF = {**WEIGHED, "max_length": 1_000, "kv_tokens": None, "flags": SMALL}


def half_a_nat() -> float:
    return 0.5


@pytest.mark.parametrize(
    ("alone", "limit"),
    [
        ([0.0, 1e-6], LEAST_NATS),
        ([0.002, 0.004], 0.03),
        ([0.05], 0.11),
        ([0.09], 0.18),
        ([2.0], 4.0),
    ],
)
def test_the_limit_is_that_of_the_data_type_or_twice_what_prompts_alone_move(alone, limit):
    assert Moves(alone).limit == pytest.approx(limit)


def test_without_prompts_asked_alone_there_is_no_limit():
    assert Moves().limit is None


def test_a_sound_server_moves_nothing(storming):
    asking, found = storming(Sure(), rounds=4, **ASKED)
    assert found.verdict.word == "NOT ENOUGH DATA"
    assert found.tally.counts == {"right": len(found.tally.requests)}
    nats = [each.nats for each in asking.evidence.storm if each.nats is not None]
    assert len(nats) > 3
    assert not any(nats)
    assert any("moved by up to 0 nats a token" in line for line in found.said)
    assert STORM.read(asking.storm.folder.path).limit_nats == LEAST_NATS


def test_moved_margins_are_shrunk_to_a_text_for_an_issue(storming):
    """A script has no reference beside which margins move."""
    asking, _ = storming(Sure(half_a_nat), rounds=12, **ASKED)
    folder = asking.storm.folder.path
    storm = Storm.of(asking.storm.options, folder)
    shrinking = Shrinking(storm, lambda _: Sure(half_a_nat), make_reference=lambda _: Sure())
    asyncio.run(shrinking.run())
    shrunk = shrinking.shrunk
    assert shrunk is not None
    assert len(shrunk.sequence.acts) == 2
    assert (shrunk.failed, shrunk.of, shrunk.cold) == (20, 20, 0)
    (written,) = write_repro(storm, shrunk, folder)
    said = written.read_text()
    assert "margins of a right answer move in 20 of 20 replays" in said
    assert "by more than 0.02 nats a token from those of gauge/numpy" in said


def test_margins_that_move_behind_a_hit_alone_are_a_fault_of_state(storming):
    """The text of each answer is right."""
    server = Sure(half_a_nat)
    asking, found = storming(server, rounds=12, **ASKED)
    assert server.hits > 5
    assert found.verdict.word == "FAIL"
    assert set(found.tally.counts) == {"right", "moved"}
    (line,) = [line for line in found.said if line.startswith("replayed")]
    assert "moved in 10 of 10 replays and in 0 of 10 cold askings: faults of state" in line
    assert asking.evidence.moves.cache == ""


def test_a_storm_of_moved_margins_goes_on_where_it_ended(storming):
    _, first = storming(Sure(half_a_nat), rounds=12, **ASKED)
    again, there = Sure(half_a_nat), Sure()
    _, found = storming(again, rounds=12, **{**ASKED, "make_reference": lambda _: there})
    assert (found.verdict.word, found.said) == ("FAIL", first.said)
    assert again.asked == there.asked == 0


@pytest.mark.long
def test_margins_that_move_behind_one_hit_in_three_are_found_too(storming):
    random = Random(1)
    server = Sure(lambda: 0.5 if random.random() < 1 / 3 else 0.0)
    _, found = storming(server, rounds=40, **ASKED)
    assert found.verdict.word == "FAIL"


def test_margins_that_move_whatever_stood_before_are_no_fault_of_state(storming):
    """A replay moves them as often as a cold asking does."""
    random = Random(1)

    class Moody(Sure):
        async def answer(self, prompt, decoding):
            self.known.add(beginning(prompt))
            return await super().answer(prompt, decoding)

    asking, found = storming(Moody(lambda: random.choice((0.0, 0.0, 0.5))), rounds=12, **ASKED)
    assert found.verdict.word == "NOT ENOUGH DATA"
    assert asking.evidence.moves.limit >= LEAST_NATS


def test_a_server_without_log_probabilities_is_judged_by_its_text(storming):
    silent = {**ASKED, "flags": {"logprobs": False}}
    _, found = storming(Sure(half_a_nat), rounds=2, **silent)
    assert found.tally.counts == {"right": len(found.tally.requests)}
    assert any(line.startswith("margins were not compared") for line in found.said)


def test_a_server_without_runners_up_is_judged_by_its_text(storming):
    """Its log-probabilities were taken for margins."""

    class WithoutRunnersUp(Sure):
        async def answer(self, prompt, decoding):
            answer = await super().answer(prompt, decoding)
            nothing = (None,) * len(answer.logprobs.tokens)
            logprobs = replace(answer.logprobs, others=nothing, other_nats=nothing)
            return replace(answer, logprobs=logprobs)

    _, found = storming(WithoutRunnersUp(), rounds=2, **ASKED)
    assert found.tally.counts == {"right": len(found.tally.requests)}
    assert any(line.startswith("margins were not compared") for line in found.said)


def margins_from(model: GaugeModel, prompt: Prompt) -> tuple[str, Margins]:
    """What a model answers, and how sure it is of each token."""
    made = asyncio.run(model.answer(prompt, Decoding(max_answer_tokens=24, logprobs=True)))
    told = made.logprobs
    rows = zip(told.tokens, told.nats, told.other_nats, strict=True)
    return made.text, tuple((token, nats - other) for token, nats, other in rows)


@pytest.mark.parametrize(
    ("rounded", "cache"), [(rotated_rounding(four_bits), "coarser"), (fp8_cut_off, "cut off")]
)
def test_moves_of_a_coarse_cache_are_known_by_computing_it(rounded, cache):
    """Engines that compute a prompt before they round its keys move what they find again alone."""
    moves, exact = Moves([0.001]), GaugeModel("numpy")
    coarse = GaugeModel("numpy", CoarseEngine(rounded))
    for code in ("483335563030", "949897662607"):
        said = f"The locker code for Lima is {code}. What is the locker code for Lima? Answer:"
        text = chat().plain.index(said.encode())
        prompt = Prompt((Message(TEXT, (text.span(),)),))
        (answer, there), (_, here) = (margins_from(model, prompt) for model in (exact, coarse))
        moves.add_suspect(prompt, answer, there, here)
    moves.find_cache()
    assert moves.cache == cache
    assert moves.is_choice is (cache == "coarser")


def test_what_a_coarse_cache_moved_is_a_choice():
    act = make_round(1, 1, Limits(2_000)).acts[0]
    right, moved = RequestOutcome("right"), RequestOutcome("moved")
    rows = [Observation(family, family, act, right, nats=0.0) for family in range(1, 100)]
    first = Observation(0, 0, act, moved, nats=0.5)
    suspect = Suspect(first, 0.03, right, [(5, 0, 5)] * 3)
    seens = Evidence([first, *rows], suspects={0: suspect}, moves=Moves([0.001]))
    assert judge_storm(seens, 0.005).verdict.word == "FAIL"
    seens.moves.cache = "coarser"
    found = judge_storm(seens, 0.005)
    assert (found.verdict.word, found.tally.faulty) == ("NOT ENOUGH DATA", 0)
    assert any("a cache coarser than the weights: a choice" in line for line in found.said)
    seens.moves.cache = "cut off"
    found = judge_storm(seens, 0.005)
    assert found.verdict.word == "FAIL"
    assert any("as by a cache whose mantissas are cut off" in line for line in found.said)


@pytest.mark.long
def test_the_gauge_itself_moves_behind_a_hit(storming):
    server = Served(moved=half_a_nat)
    _, found = storming(server, rounds=3, **ITSELF)
    assert server.hits
    assert found.verdict.word == "FAIL"
