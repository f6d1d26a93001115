"""From records to an array: prompts count once, and what shares a haystack is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from needlemap.records.record import PromptRecord, Record, ScorerRecord
from needlemap.stats import Cube, prompts_of
from needlemap.stats import make_cube as cube_of_prompts
from needlemap.stats.intervals import noise_floor
from needlemap.stats.means import depth_scores, total_score


def record(
    depth: float, repeat: int, score: float | None, sha256: str = "", **fields: Any
) -> Record:
    prompt = PromptRecord(sha256=sha256 or f"{depth} {repeat}", tokens=9, haystack_tokens=5)
    length = fields.pop("length_tokens", 1_000)
    given = {"key": f"{length} {depth} {repeat}", "prompt": prompt, "model": "m", "task": "t"}

    return Record(
        length_tokens=length, depth=depth, repeat=repeat, seed=0, score=score, **(given | fields)
    )


def imported(depth: float, repeat: int, score: float, **fields: Any) -> Record:
    """A result of another tool: its prompt is not known."""
    return record(depth, repeat, score, prompt=None, **fields)


def make_cube(records: list[Record], cells: Any = (), shared: Any = None, **more: Any) -> Cube:
    return cube_of_prompts(prompts_of(records, cells, shared), **more)


def test_records_stand_at_repeat_length_and_depth():
    found = make_cube(
        [record(0.5, 1, 0.25), record(0.0, 0, 1.0)], [[1_000, 0.0, [0, 1]], [1_000, 0.5, [1]]]
    )
    assert (found.repeats, found.lengths, found.depths) == ((0, 1), (1_000,), (0.0, 0.5))
    assert found.scores[:, 0] == pytest.approx(
        np.array([[1.0, np.nan], [np.nan, 0.25]]), nan_ok=True
    )
    assert (found.n, found.missing) == (2, 1)


def test_a_prompt_that_depths_share_counts_once_with_the_mean_of_its_answers():
    found = make_cube([record(0.0, 0, 1.0, "x"), record(0.5, 0, 0.0, "x"), record(1.0, 0, 1.0)], ())
    assert (found.n, found.missing) == (2, 0)
    assert found.scores[0, 0, 0] == 0.5
    assert found.again == ((1.0, 0.0),)
    assert found.scores[0, 0].tolist() == pytest.approx([0.5, np.nan, 1.0], nan_ok=True)
    assert found.spread[0, 0].tolist() == [0.5, 0.5, 1.0]


def test_a_shared_prompt_counts_at_each_depth_it_stands_at():
    """Short, easy lengths have few sentence ends. Given to the first depth alone, they would make a
    bias."""
    short = [record(depth, 0, 1.0, "x", length_tokens=100) for depth in (0.0, 0.5)]
    far = [record(depth, 0, 0.0, length_tokens=9_000, key=f"far {depth}") for depth in (0.0, 0.5)]
    found = make_cube([*short, *far], ())
    assert [each.mean.score for each in depth_scores(found)] == [0.5, 0.5]
    assert total_score(found).n == 3


def test_a_shared_prompt_of_which_one_trial_failed_is_not_missing():
    failed = record(0.0, 0, None, "x", failure="timed out")
    found = make_cube([failed, record(0.5, 0, 1.0, "x")], [[1_000, 0.0, [0]], [1_000, 0.5, [0]]])
    assert (found.n, found.missing, found.again) == (1, 0, ())


def test_a_trial_that_serves_several_cells_is_one_prompt_in_each_of_them():
    cells = [[1_000, 0.0, [0, 1]], [1_000, 0.5, [0, 1]], [1_000, 1.0, [0]]]
    shared = {
        "a": [[1_000, 0.0, 0], [1_000, 0.5, 0], [1_000, 0.0, 1]],
        "b": [[1_000, 0.5, 1], [1_000, 1.0, 0]],
    }
    found = make_cube([record(0.5, 0, 1.0, asked="a")], cells, shared)
    assert (found.n, found.missing) == (1, 1)  # "b" was not asked yet, and is one prompt
    assert found.scores[0, 0].tolist() == pytest.approx([1.0, np.nan, np.nan], nan_ok=True)
    assert found.spread[0, 0].tolist() == pytest.approx([1.0, 1.0, np.nan], nan_ok=True)
    assert found.repeats == (0,)  # another repeat of the very same prompt is no further evidence


def test_what_a_strangers_run_json_shares_beyond_its_cells_is_not_believed():
    shared = {"a": [[1_000, 0.0, 0], [10**9, 1.0, 10**9]]}
    found = make_cube([record(0.0, 0, 1.0, asked="a")], [[1_000, 0.0, [0]]], shared)
    assert found.spread.shape == (1, 1, 1)


def test_a_second_answer_to_a_prompt_counts_with_the_first():
    found = make_cube(
        [
            record(0.0, 0, 1.0, asked="a"),
            record(0.0, 0, 0.0, asked="b", second=True),
            record(0.5, 0, 0.0),
        ],
        [[1_000, 0.0, [0]], [1_000, 0.5, [0]]],
    )
    assert (found.n, found.missing, found.again) == (2, 0, ((1.0, 0.0),))
    assert found.scores[0, 0].tolist() == [0.5, 0.0]


def test_imported_repeats_are_the_same_prompt_asked_again_and_no_new_haystack():
    found = make_cube([imported(0.0, 0, 1.0), imported(0.0, 1, 0.0), imported(0.5, 0, 1.0)], ())
    assert (found.n, found.one_haystack) == (2, True)
    assert found.clustered(found.scores).shape == (1, 2)
    assert noise_floor(found.again).differing == 1
    assert [(each.mean.score, each.mean.n) for each in depth_scores(found)] == [(0.5, 1), (1.0, 1)]


def test_imported_repeats_that_asked_something_else_are_further_prompts_of_that_haystack():
    found = make_cube(
        [imported(0.0, repeat, 1.0, question=f"{repeat}?") for repeat in range(6)], ()
    )
    assert (found.n, found.one_haystack, found.again) == (6, True, ())


def test_our_own_repeats_have_haystacks_of_their_own_unless_told_otherwise():
    records = [record(0.0, repeat, 1.0) for repeat in range(6)]
    assert make_cube(records, ()).clustered(make_cube(records, ()).scores).shape == (6, 1)
    assert make_cube(records, (), one_haystack=True).one_haystack


def test_means_of_nobody_knows_how_many_answers_are_told():
    mean = ScorerRecord(name="OpenCompass", mean=True)
    assert not make_cube([imported(0.0, 0, 0.7, scorer=mean)], ()).counted
    assert make_cube([imported(0.0, 0, 0.7)], ()).counted


def test_nothing_asked_is_an_empty_array():
    found = make_cube([], ())
    assert (found.n, found.clustered(found.scores).shape) == (0, (1, 0))
