"""Wrong answers that stand together: by time, depth, haystack, turn. Whole checks, in memory."""

from __future__ import annotations

import itertools
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "benchmarks"))
import green
from needlemap.servers.check import Options, Schedule
from needlemap.servers.check.partitions import PARTITIONS
from sides.engines import Engine, Machine, Reply, Seen, chance
from sides.replayed import Outcome, check


def lost(reply: Reply) -> Reply:
    return replace(reply, text="The text does not say.")


def checked(is_lost, seed=7, facts=8, **machine) -> Outcome:
    """What a check to 128k comes to of a server that loses some answers."""

    def change(seen: Seen, reply: Reply, engine: Engine) -> Reply:
        return lost(reply) if is_lost(seen, engine) else reply

    options = Options(max_length=128_000, promised=True, facts=facts)
    return check(options, Machine(**machine), [change], "partitions", seed)


def pattern(came: Outcome) -> str:
    """What the probe of all answers says."""
    (said,) = [said for said in came.said if said.startswith("pattern")]
    return said


def place(seen: Seen) -> float:
    return seen.request.asked.start / seen.request.tokens


def test_partitions_share_one_level():
    assert sum(partition.share for partition in PARTITIONS) == pytest.approx(1.0)
    levels = {partition.name: partition.level for partition in PARTITIONS}
    assert levels.pop("residue") == 0.1
    assert sum(levels.values()) == pytest.approx(0.01)
    assert len({partition.name for partition in PARTITIONS}) == len(PARTITIONS)


@pytest.mark.parametrize("first", [1_000, 2_000, 2_300])
def test_a_server_that_dies_meanwhile_fails(first):
    """The last 384 answers in a row were wrong, and the exit code was 0: each size lost less than
    20 points."""
    came = checked(lambda seen, _: seen.count > first)
    assert (came.code, came.failing) == (1, ("pattern",))
    assert f"from request {first + 1:,} to" in pattern(came)


def test_a_server_that_starts_badly_fails():
    came = checked(lambda seen, _: seen.count <= 50)
    assert (came.code, came.failing) == (1, ("pattern",))


def test_twenty_wrong_answers_in_a_row_are_seen():
    came = checked(lambda seen, _: 800 <= seen.count < 820)
    assert came.code in (1, 5)
    assert "in a row, 20 answers from request 800 to 819" in pattern(came)


@pytest.mark.parametrize(("every", "most"), [(500, 20), (100, 5), (200, 4)])
def test_bursts_are_seen(every, most):
    came = checked(lambda seen, _: seen.count % every < most)
    assert came.code in (1, 5)
    assert pattern(came)


@pytest.mark.parametrize("share", [0.1, 0.2])
def test_a_model_that_is_exchanged_in_the_middle_is_seen(share):
    came = checked(lambda seen, _: seen.count > 1_200 and chance(seen.request.name) < share)
    assert came.code in (1, 5)
    assert "of the time" in pattern(came)


@pytest.mark.parametrize(("first", "last"), [(700, 9_999), (0, 2_400)])
def test_a_model_that_loses_one_in_ten_all_but_a_quarter_of_the_time_is_seen(first, last):
    """The widest window held half of the time, and the exit code was 0."""

    def is_lost(seen: Seen, _engine: Engine) -> bool:
        return first < seen.count < last and chance(seen.request.name) < 0.1

    came = checked(is_lost)
    assert came.code in (1, 5)
    assert "% of the time" in pattern(came)


def test_a_loss_that_grows_is_seen():
    came = checked(lambda seen, engine: engine.random.random() < 0.2 * seen.count / 2_400)
    assert "of the time" in pattern(came)


@pytest.mark.parametrize(
    ("start", "stop", "tokens"), [(0.42, 0.58, 110_000), (0.45, 0.55, 0), (0.97, 1.0, 110_000)]
)
def test_a_depth_that_is_lost_is_suspect(start, stop, tokens):
    """Every fact in the middle of the longest prompts was lost: one of eight places is less than
    the fall of 20 points that `length` looks for."""
    came = checked(lambda seen, _: seen.request.tokens > tokens and start < place(seen) < stop)
    assert (came.code, came.failing) == (5, ())
    assert " lost at " in pattern(came)


@pytest.mark.parametrize(("least", "most"), [(9_000, 31_000), (33_000, 100_000), (40_000, 70_000)])
def test_lengths_between_the_sizes_are_sent(least, most):
    """All of 33k to 100k tokens was lost, no answer was touched, and the exit code was 0."""
    came = checked(lambda seen, _: least < seen.request.tokens < most)
    assert came.code == 5
    assert re.search(r" lost between [\d,]+ and [\d,]+ tokens", pattern(came))


def test_a_band_across_parts_of_the_lengths_is_seen():
    """Of 14k to 28k tokens 62 % was lost, in parts of three of four fixed bands of a size, and the
    exit code was 0: the one green of 98 faults that `benchmarks/green.py --seed 51` drew."""
    case = green.fault_case(130, seed=51)
    assert (case.of.kind, round(case.of.strength, 2), case.came.code) == ("band", 0.62, 5)
    assert "25 of 44 lost between 15,972 and 28,670 tokens" in pattern(case.came)


@pytest.mark.parametrize("times", [1.1, 1.4, 1.8])
def test_a_band_that_loses_half_is_seen_wherever_it_starts(times):
    def is_lost(seen: Seen, _engine: Engine) -> bool:
        in_band = 8_200 * times < seen.request.tokens < 16_400 * times
        return in_band and chance(seen.request.name, 0) < 0.5

    assert checked(is_lost).code == 5


@pytest.mark.parametrize("seed", range(12))
def test_lengths_between_the_sizes_leave_no_gap(seed):
    """A band of half of what lies between 585 and 171 tokens was lost, one of six haystacks was
    sent in it, and the exit code was 0."""
    schedule = Schedule(Options(max_length=2_000, answer_tokens=24, around=107), seed=seed)
    for shorter, size in itertools.pairwise(schedule.sizes):
        drawn = [haystack.longest for haystack in schedule.first_round if haystack.size == size]
        between = sorted({length for length in drawn if length < size} | {shorter, size})
        widest = max(upper / lower for lower, upper in itertools.pairwise(between))
        assert widest < (size / shorter) ** 0.25, between


@pytest.mark.parametrize("depth", [0.3, 0.82, 0.9])
def test_depths_between_the_fixed_ones_are_sent(depth):
    came = checked(lambda seen, _: depth - 0.04 < place(seen) < depth + 0.04)
    assert came.changed > 0


def test_a_third_of_the_haystacks_has_a_drawn_length():
    schedule = Schedule(Options(max_length=128_000), seed=3)
    haystacks = [haystack for haystack in schedule.first_round if not haystack.is_short]
    drawn = [haystack for haystack in haystacks if haystack.longest < haystack.size]
    assert len(drawn) / len(haystacks) == pytest.approx(1 / 3, abs=0.05)
    before = dict(zip(schedule.sizes, (664, *schedule.sizes), strict=False))
    for haystack in drawn:
        assert before[haystack.size] < haystack.longest
        assert (haystack.size - haystack.longest) % 64 == 0, "the same residues"


def test_the_middle_is_sent_where_a_haystack_has_room_for_three_facts():
    options = Options(max_length=2_000, answer_tokens=24, around=107, facts=3)
    schedule = Schedule(options, seed=3)
    for size in schedule.sizes:
        asks = [ask for ask in schedule.cells() if ask.way == "ask" and ask.size == size]
        assert sum(0.45 < ask.depth < 0.55 for ask in asks) >= 6


@pytest.mark.parametrize("replicas", [4, 8, 20])
def test_one_bad_replica_by_prompt_head_is_suspect(replicas):
    came = checked(lambda seen, _: seen.replica == 0, replicas=replicas, routed="head")
    assert came.code == 5
    assert "where a haystack is lost whole" in pattern(came)


def test_a_replica_that_loses_half_is_suspect():
    came = checked(
        lambda seen, engine: seen.replica == 0 and engine.random.random() < 0.5,
        replicas=8,
        routed="head",
    )
    assert came.code == 5


def test_one_bad_replica_of_twenty_by_turn_fails():
    came = checked(lambda seen, _: seen.replica == 0, replicas=20, routed="turn")
    assert came.failing == ("pattern",)
    assert "at one request in 20" in pattern(came)


@pytest.mark.parametrize("share", [0.02, 0.05])
@pytest.mark.parametrize("sticky", [True, False])
def test_losses_that_are_spread_are_no_pattern(share, sticky):
    def is_lost(seen: Seen, engine: Engine) -> bool:
        return (chance(seen.request.name) if sticky else engine.random.random()) < share

    came = checked(is_lost)
    assert not [said for said in came.said if said.startswith("pattern")]


@pytest.mark.parametrize(("share", "seed"), [(0.02, 1), (0.05, 2), (0.1, 3)])
def test_a_fact_that_a_model_misses_is_lost_once(share, seed):
    """Questions about the one fact of a haystack are asked one after another."""
    came = checked(lambda seen, _: chance(seen.request.asked.value) < share, seed, facts=1)
    assert not [said for said in came.said if said.startswith("pattern")]


@pytest.mark.parametrize("tokens", [0, 20_000, 60_000])
def test_a_model_that_finds_nothing_has_no_run_and_no_bad_replica(tokens):
    """All answers are wrong in a row, whatever the server does."""
    came = checked(lambda seen, _: seen.request.tokens > tokens)
    assert came.code == 5
    assert "in a row" not in " ".join(came.said)
    assert "pattern" not in came.failing
