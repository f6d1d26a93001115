"""Which trials of two runs make a pair."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from needlemap.records.record import PromptRecord, Record, ScorerRecord
from needlemap.stats import prompts_of
from needlemap.stats.comparison import compare_pairs
from needlemap.stats.pairs import Pairs, scores_of
from needlemap.stats.pairs import pair_up as pair_prompts

CELLS = [[1_000, 0.0, [0, 1]], [1_000, 0.5, [0, 1]]]


def record(depth: float, repeat: int, score: float | None, **fields: Any) -> Record:
    prompt = PromptRecord(sha256=f"{depth}-{repeat}", tokens=9, haystack_tokens=5)
    given = {"key": f"{depth}-{repeat}", "prompt": prompt, "model": "m", "task": "t"} | fields
    return Record(length_tokens=1_000, depth=depth, repeat=repeat, seed=0, score=score, **given)


def everything(score: float = 1.0, **fields: Any) -> list[Record]:
    return [record(depth, repeat, score, **fields) for depth in (0.0, 0.5) for repeat in (0, 1)]


def pair_up(first: list[Record], second: list[Record], cells: Any) -> Pairs:
    return pair_prompts(prompts_of(first, cells[0]), prompts_of(second, cells[1]))


def paired(first: list[Record], second: list[Record]) -> Pairs:
    return pair_up(first, second, (CELLS, CELLS))


def test_trials_pair_by_place_and_prompt_whatever_the_model():
    other = [
        each.model_copy(update={"key": f"other-{each.key}", "model": "n"})
        for each in everything(0.0)
    ]
    pairs = paired(everything(), other)
    assert (pairs.n, pairs.dropped, pairs.unlike) == (4, 0, ())
    assert np.array_equal(pairs.differences, np.full((2, 1, 2), -1.0))


@pytest.mark.parametrize(
    ("finishes", "scores"),
    [
        (("stop", "length"), (1.0, 0.0)),
        (("length", "stop"), (0.0, 1.0)),
        (("length", "length"), (1.0, 1.0)),
        (("stop", None), (1.0, 1.0)),
    ],
)
def test_an_answer_that_alone_ran_on_is_wrong_to_compare_and_to_a_run_that_stops_early(
    finishes, scores
):
    first, second = (everything(finish=finish) for finish in finishes)
    assert scores_of(first[0], second[0]) == scores
    pairs = paired(first, second)
    assert (pairs.first.scores[0, 0, 0], pairs.second.scores[0, 0, 0]) == scores
    assert pairs.ran_on == tuple(4 * (score == 0) for score in scores)


def test_another_prompt_at_the_same_place_is_told():
    prompt = PromptRecord(sha256="else", tokens=9, haystack_tokens=5)
    second = [*everything()[:3], record(0.5, 1, 1.0, prompt=prompt)]
    assert paired(everything(), second).unlike == ((1, 1_000, 0.5),)


def test_the_same_prompt_with_another_right_answer_is_told():
    other = [each.model_copy(update={"reference_sha256": "figs"}) for each in everything()]
    wrong = [each.model_copy(update={"reference_sha256": "plums"}) for each in everything()]
    assert len(paired(other, wrong).unlike) == 4
    assert (
        paired(other, everything()).unlike == ()
    )  # a record of before does not say what was right


def test_other_bytes_that_both_models_see_as_the_same_tokens_are_the_same_prompt():
    def seen(text: str, ids: str | None) -> list[Record]:
        prompt = PromptRecord(sha256=text, ids_sha256=ids, tokens=9, haystack_tokens=5)
        return everything(prompt=prompt)

    assert paired(seen("rendered", "x"), seen("messages", "x")).unlike == ()
    assert len(paired(seen("rendered", "x"), seen("messages", "y")).unlike) == 4
    assert len(paired(seen("rendered", None), seen("messages", None)).unlike) == 4
    assert paired(seen("the same", "x"), seen("the same", "y")).unlike == ()
    other = [each.model_copy(update={"task": "another"}) for each in seen("rendered", "x")]
    assert len(paired(seen("rendered", "x"), other).unlike) == 4


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
    assert (found.overall.value, found.paired.missing.second, found.paired.unsent) == (0.0, 1, 0)


def test_a_later_score_replaces_a_failure():
    tries = [record(0.0, 0, None, failure="timed out"), record(0.0, 0, 1.0), *everything()[1:]]
    assert paired(tries, everything()).n == 4


def test_prompts_that_were_not_sent_to_the_second_run_are_not_lost():
    """A run that stopped after one failure had lost all four prompts, with a p of it."""
    pairs = paired(everything(), [record(0.0, 0, None, failure="timed out")])
    assert (pairs.unanswered, pairs.dropped) == (1, 1)
    found = compare_pairs(pairs, 0.02)
    assert found is not None
    assert (found.overall.n, found.overall.lost, found.p) == (0, 0, None)
    assert (found.paired.n, found.paired.loss, found.paired.unsent) == (0, None, 3)


def test_no_pair_is_no_comparison():
    assert compare_pairs(paired([], everything()), 0.02) is None


def test_a_prompt_that_depths_share_makes_one_pair():
    """Sentences are longer than the steps in depth: two cells, one prompt, which McNemar counts
    once."""
    same = PromptRecord(sha256="x", tokens=9, haystack_tokens=5)
    first = [record(0.0, 0, 1.0, prompt=same), record(0.5, 0, 1.0, prompt=same), *everything()[1:2]]
    second = [each.model_copy(update={"score": 0.0}) for each in first]
    pairs = pair_up(first, second, ([[1_000, 0.0, [0, 1]], [1_000, 0.5, [0]]],) * 2)
    found = compare_pairs(pairs, 0.02)
    assert found is not None
    assert (pairs.n, pairs.dropped, found.overall.lost) == (2, 0, 2)
    assert [(cell.depth, cell.n) for cell in found.cells] == [
        (0.0, 2),
        (0.5, 1),
    ]  # each cell shows its own


def test_a_prompt_that_one_run_asked_for_two_cells_and_another_for_each_makes_one_pair():
    """A folder of before has a record for each cell, one of today a record for both."""
    same = PromptRecord(sha256="x", tokens=9, haystack_tokens=5)
    cells = [[1_000, 0.0, [0]], [1_000, 0.5, [0]]]
    before = [record(0.0, 0, 1.0, prompt=same), record(0.5, 0, 1.0, prompt=same)]
    now = [record(0.0, 0, 0.0, prompt=same, asked="a")]
    prompts = prompts_of(now, cells, {"a": [[1_000, 0.0, 0], [1_000, 0.5, 0]]})
    pairs = pair_prompts(prompts_of(before, cells), prompts)
    assert (pairs.n, pairs.dropped, pairs.unlike, np.nansum(pairs.differences)) == (1, 0, (), -1.0)
    assert pairs.spread[0, 0].tolist() == [-1.0, -1.0]


def test_a_shared_prompt_that_one_run_failed_keeps_its_place_in_all_its_cells():
    same = PromptRecord(sha256="x", tokens=9, haystack_tokens=5)
    cells, shared = (
        [[1_000, 0.0, [0]], [1_000, 0.5, [0]]],
        {"a": [[1_000, 0.0, 0], [1_000, 0.5, 0]]},
    )
    first, second = (
        prompts_of([record(0.0, 0, score, prompt=same, asked="a")], cells, shared)
        for score in (1.0, None)
    )
    pairs = pair_prompts(first, second)
    assert pairs.first.depths == pairs.second.depths == (0.0, 0.5)
    assert (pairs.unanswered, pairs.dropped) == (1, 1)


def test_answers_of_one_prompt_that_differ_do_not_make_a_run_graded():
    same = PromptRecord(sha256="x", tokens=9, haystack_tokens=5)
    first = [record(0.0, 0, 1.0, prompt=same), record(0.5, 0, 0.0, prompt=same)]
    pairs = pair_up(first, first, ([[1_000, 0.0, [0]], [1_000, 0.5, [0]]],) * 2)
    assert not pairs.graded
    assert paired(everything(0.5), everything()).graded


def test_imported_repeats_are_one_prompt_of_one_haystack():
    found = compare_pairs(paired(everything(prompt=None), everything(0.0, prompt=None)), 0.02)
    assert found is not None
    assert (found.overall.n, found.overall.clusters) == (2, 1)


def test_means_of_nobody_knows_how_many_answers_give_no_verdict():
    means = {"prompt": None, "scorer": ScorerRecord(name="OpenCompass", mean=True)}
    found = compare_pairs(paired(everything(0.9, **means), everything(0.1, **means)), 0.02)
    assert found is not None
    assert found.paired.word == "NOT ENOUGH DATA"
    assert (found.overall.value, found.paired.loss) == (pytest.approx(-0.8), None)
    assert {row.difference.p for row in found.lengths} == {1.0}
    assert {cell.p for cell in found.cells} == {1.0}
