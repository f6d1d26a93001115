"""The prompts of a check are built while the ones before them are asked, in their order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from threading import Event

import pytest

from needlemap.deadline import LimitReached, limited_to, seconds_left
from needlemap.servers.check.ahead import BuiltAhead
from needlemap.servers.check.asking import Check, CheckOptions, ProbesOnSchedule
from needlemap.servers.check.gauge import MOVES
from needlemap.servers.check.haystack import Options
from needlemap.servers.check.schedule import Schedule


def test_what_is_begun_is_built_meanwhile_and_once():
    built, done = list[str](), Event()

    def build(batch: Sequence[str]) -> str:
        built.append("".join(batch))
        done.set()
        return built[-1].upper()

    ahead = BuiltAhead(build)
    assert ahead.of("ab") == "AB"
    done.clear()
    ahead.begin("cd")
    assert done.wait(10)
    assert ahead.of("cd") == "CD"
    assert built == ["ab", "cd"]
    ahead.close()


def test_another_batch_than_the_begun_one_is_built_behind_it():
    ahead = BuiltAhead("".join)
    ahead.begin("cd")
    assert ahead.of("ef") == "ef"
    assert ahead.call(lambda: 7) == 7
    ahead.close()


def test_what_building_raises_is_raised_where_it_is_wanted_a_commands_limit_too():
    with limited_to(1e-9):
        ahead = BuiltAhead[str, float](lambda batch: seconds_left(len(batch)))
        ahead.begin("ab")
        with pytest.raises(LimitReached, match="time limit ended while prompts were built"):
            ahead.of("ab")
        ahead.close()


def test_a_schedule_knows_which_batch_of_its_first_round_follows():
    schedule = Schedule(Options(max_length=2_000, few=True, reference=True, moves=MOVES))
    batches = [batch for haystack in schedule.first_round for batch in haystack.batches]
    assert len(batches) > 100
    for before, behind in pairwise(batches):
        assert schedule.batch_after(before) == behind
    assert schedule.batch_after(batches[-1]) is None


def test_a_check_begins_each_batch_of_its_first_round_while_the_one_before_is_asked(
    tmp_path, monkeypatch
):
    begun, wanted = list[Sequence[object]](), list[Sequence[object]]()
    begin, of = BuiltAhead.begin, BuiltAhead.of

    def begins(ahead, batch):
        begun.append(tuple(batch))
        begin(ahead, batch)

    def wants(ahead, batch):
        wanted.append(tuple(batch))
        return of(ahead, batch)

    monkeypatch.setattr(BuiltAhead, "begin", begins)
    monkeypatch.setattr(BuiltAhead, "of", wants)
    options = Options(max_length=300, few=True, probes=("cache",))
    check = Check.of(
        CheckOptions({"model": "gauge/numpy", "max_answer_tokens": 24}, options),
        tmp_path / "c",
        seed=1,
    )
    asyncio.run(ProbesOnSchedule(check).run())
    first = sum(len(haystack.batches) for haystack in check.asker.schedule.first_round)
    assert len(wanted) >= first > 50
    assert begun == wanted[1:first]
