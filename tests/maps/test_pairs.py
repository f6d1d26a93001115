"""Which trials of two runs make a pair."""

from __future__ import annotations

from typing import Any

import numpy as np

from needlemap.maps.comparison import compare_pairs
from needlemap.maps.pairs import Pairs, pair_up
from needlemap.runs.record import PromptRecord, Record

CELLS = [[1_000, 0.0, [0, 1]], [1_000, 0.5, [0, 1]]]


def record(depth: float, repeat: int, score: float | None, **fields: Any) -> Record:
    prompt = PromptRecord(sha256=f"{depth}-{repeat}", tokens=9, haystack_tokens=5)
    given = {"key": f"{depth}-{repeat}", "prompt": prompt, "model": "m", "task": "t"} | fields
    return Record(length_tokens=1_000, depth=depth, repeat=repeat, seed=0, score=score, **given)


def everything(score: float = 1.0, **fields: Any) -> list[Record]:
    return [record(depth, repeat, score, **fields) for depth in (0.0, 0.5) for repeat in (0, 1)]


def paired(first: list[Record], second: list[Record]) -> Pairs:
    return pair_up(first, second, (CELLS, CELLS))


def test_trials_pair_by_place_and_prompt_whatever_the_model():
    other = [each.model_copy(update={"key": f"other-{each.key}", "model": "n"}) for each in everything(0.0)]
    pairs = paired(everything(), other)
    assert (pairs.n, pairs.dropped, pairs.unlike, pairs.same) == (4, 0, (), False)
    assert np.array_equal(pairs.differences, np.full((2, 1, 2), -1.0))


def test_equal_keys_are_the_same_experiment():
    assert paired(everything(), everything(0.0)).same


def test_another_prompt_at_the_same_place_is_told():
    prompt = PromptRecord(sha256="else", tokens=9, haystack_tokens=5)
    second = [*everything()[:3], record(0.5, 1, 1.0, prompt=prompt)]
    assert paired(everything(), second).unlike == ((1, 1_000, 0.5),)


def test_without_prompts_question_and_answer_must_agree():
    first, second = everything(prompt=None, question="a"), everything(prompt=None, question="b")
    assert len(paired(first, second).unlike) == 4
    assert paired(first, first).unlike == ()


def test_what_was_not_scored_is_dropped_and_what_was_not_asked_is_counted():
    second = [record(0.0, 0, None, failure="timed out"), record(0.0, 1, 1.0)]
    pairs = pair_up(everything(), second, (CELLS, [[1_000, 0.0, [0, 1]], [2_000, 0.0, [0]]]))
    assert (pairs.n, pairs.dropped, pairs.only_first, pairs.only_second) == (1, 1, 2, 1)
    found = compare_pairs(pairs, 0.02)
    assert found is not None
    assert (found.overall.value, found.bounds) == (0.0, (-0.5, 0.0))


def test_a_later_score_replaces_a_failure():
    tries = [record(0.0, 0, None, failure="timed out"), record(0.0, 0, 1.0), *everything()[1:]]
    assert paired(tries, everything()).n == 4


def test_no_pair_is_no_comparison():
    assert compare_pairs(paired([], everything()), 0.02) is None
