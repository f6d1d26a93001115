"""From records to a map: what counts, what is missing, and how sure it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from needlemap.records.record import SKIPPED, NeedleRecord, PromptRecord, Record
from needlemap.reports.renderers.heat import plain_summary
from needlemap.stats import AskedPrompt, prompts_of
from needlemap.stats.intervals import wilson
from needlemap.stats.means import Map, Unanswered, make_map, with_skipped


def record(
    key: str, length: int, depth: float, score: float | None, failure: str | None = None
) -> Record:
    return Record(
        key=key, task="t", model="m", length_tokens=length, depth=depth, seed=0, score=score,
        repeat=(ord(key[0]) - 1) % 32, failure=failure,
        needles=(NeedleRecord(meant=depth, realised=depth / 2, byte=0),),
        prompt=PromptRecord(sha256=key, tokens=10, haystack_tokens=5),
    )  # fmt: skip


def made(records: list[Record], expected: dict[tuple[int, float], int]) -> Map:
    cells = [[length, depth, list(range(count))] for (length, depth), count in expected.items()]
    return make_map(
        prompts_of(records, cells), model="m", tokenizer="t", task="t", scorer="s", mode="exact"
    )


def test_the_last_scored_record_of_a_trial_counts():
    tries = [
        record("a", 10, 0.0, None, "timed out"),
        record("a", 10, 0.0, 0.25),
        record("a", 10, 0.0, 0.75),
        record("a", 10, 0.0, None, "server error"),
    ]
    (cell,) = made(tries, {(10, 0.0): 1}).cells
    assert (cell.score, cell.n, cell.missing, cell.failures) == (0.75, 1, 0, {})


def test_a_prompt_holds_the_scores_of_its_answers_and_the_outcome_of_its_last_record():
    records = (record("a", 10, 0.0, 0.25), record("a", 10, 0.0, None, "timed out"))
    prompt = AskedPrompt(((0, 10, 0.0),), records)
    assert (prompt.scores, prompt.score, prompt.outcome) == ((0.25,), 0.25, "timed out")
    unsent = AskedPrompt(((0, 10, 0.0),))
    assert (unsent.scores, unsent.score, unsent.outcome) == ((), None, "")


def test_a_cell_holds_its_records_by_repeat_and_those_of_a_prompt_that_it_shares():
    """All that a page shows of a cell is in the map: nothing groups the records again."""
    records = [record("b", 10, 0.0, 1.0), record("a", 10, 0.0, None, "timed out")]
    shared = [record("c", 20, 0.0, 1.0), record("c", 20, 0.5, 1.0).model_copy(update={"key": "d"})]
    map = made([*records, *shared], {(10, 0.0): 2, (20, 0.0): 1, (20, 0.5): 1, (30, 0.0): 1})
    assert [[row.key for row in cell.records] for cell in map.cells] == [
        ["a", "b"],
        ["c", "d"],
        ["c", "d"],
        [],
    ]


def test_what_was_not_measured_is_missing_and_never_zero():
    records = [
        record("a", 10, 0.0, 1.0),
        record("b", 10, 0.0, None, "timed out"),
        record("b", 10, 0.0, None, "server error"),
    ]
    (cell,) = made(records, {(10, 0.0): 4}).cells
    assert (cell.score, cell.n, cell.missing) == (1.0, 1, 3)
    assert cell.failures == {"server error": 1}


def test_a_cell_that_was_never_asked_has_no_score():
    map = made([], {(10, 0.0): 2, (10, 1.0): 2})
    assert [(cell.score, cell.n, cell.low, cell.high, cell.missing) for cell in map.cells] == [
        (None, 0, None, None, 2)
    ] * 2
    assert map.overall is None


def test_cells_beyond_the_expected_ones_are_kept():
    assert [
        cell.length_tokens for cell in made([record("a", 20, 0.0, 1.0)], {(10, 0.0): 1}).cells
    ] == [
        10,
        20,
    ]


def test_each_prompt_counts_once_in_overall_and_each_cell_in_the_mean_of_means():
    records = [
        asked("a", 0.0, 0, "a"),
        asked("b", 0.5, 0, "b", score=0.0),
        asked("c", 0.0, 0, "c", length=20),
    ]
    records += [asked(f"more-{number}", 0.0, number, f"more-{number}") for number in range(1, 10)]
    map = made(records, {(20, 0.5): 1})
    assert map.by_length == {10: pytest.approx(10 / 11), 20: 1.0}
    assert map.overall == pytest.approx(11 / 12)
    assert map.mean_of_means == pytest.approx((0.5 + 1) / 2)  # as OpenCompass's plots print it
    assert (map.lengths, map.depths, map.n, map.missing) == ((10, 20), (0.0, 0.5), 12, 1)


def test_the_realised_depth_is_what_happened():
    assert made([record("a", 10, 0.5, 1.0)], {}).cells[0].realised == 0.25


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    # Newcombe 1998, Statistics in Medicine 17:857, table I, method 3; the last two by its formula
    [(0, 20, 0.0, 0.1611), (29, 29, 0.8830, 1.0), (2.5, 5, 0.1704, 0.8296)],
)
def test_wilson_of_none_of_all_and_of_a_half_hit(hits, n, low, high):
    assert wilson(hits, n) == pytest.approx((low, high), abs=5e-5)


def test_wilson_of_nothing_is_none_and_of_nonsense_an_error():
    assert wilson(0, 0) is None
    with pytest.raises(ValueError, match=r"hits must lie in 0\.\.5"):
        wilson(6, 5)
    assert wilson(sum([0.1] * 10), 1) is not None  # 0.9999999999999999 and its like


def asked(
    key: str, depth: float, repeat: int, sha256: str, score: float = 1.0, length: int = 10
) -> Record:
    prompt = PromptRecord(sha256=sha256, tokens=10, haystack_tokens=5)
    return record(key, length, depth, score).model_copy(update={"repeat": repeat, "prompt": prompt})


def test_a_prompt_that_two_depths_share_counts_once_in_the_sums_and_in_each_of_its_cells():
    records = [
        asked("a", 0.0, 0, "x"),
        asked("b", 0.5, 0, "x"),
        asked("c", 1.0, 0, "y"),
        asked("d", 0.5, 1, "z"),
    ]
    map = made(records, {})
    assert [cell.n for cell in map.cells] == [1, 2, 1]
    assert map.n == 3
    assert [mean.n for mean in map.margins.values()] == [3]


def test_a_missing_prompt_that_two_depths_share_failed_once():
    """'missing 63 (67 skipped by budget)' stood under a map."""
    records = [asked("a", 0.0, 0, "x"), asked("b", 0.5, 0, "x"), asked("c", 1.0, 0, "y")]
    failed = {"score": None, "failure": "timed out"}
    map = made([record.model_copy(update=failed) for record in records], {})
    assert [cell.failures for cell in map.cells] == [{"timed out": 1}] * 3
    assert (map.missing, map.failures) == (2, {"timed out": 2})
    assert map.unanswered == {10: Unanswered(2, {"timed out": 2})}
    lines = plain_summary(map).splitlines()
    assert lines[1] == "10      -  n=0 missing 2 (2 timed out)"
    assert with_skipped(replace(map, failures={}, unanswered={10: Unanswered(2)})).unanswered == {
        10: Unanswered(2, {SKIPPED: 2})
    }


def test_a_thought_that_two_depths_share_spent_its_budget_once():
    records = [asked("a", 0.0, 0, "x", 0.0), asked("b", 0.5, 0, "x", 0.0)]
    spent = {"thinking": "Hm", "answer": "", "finish": "length"}
    map = made([record.model_copy(update=spent) for record in records], {})
    assert [cell.thought for cell in map.cells] == [1, 1]
    assert map.unanswered == {10: Unanswered(thought=1)}


def test_repeats_that_ask_the_very_same_prompt_are_no_further_evidence():
    map = made([asked(str(repeat), 0.0, repeat, "x") for repeat in range(10)], {})
    assert [(cell.n, cell.score) for cell in map.cells] == [(1, 1.0)]
    assert map.n == 1
