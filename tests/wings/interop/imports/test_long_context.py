"""Results of RULER, of lm-evaluation-harness's RULER, of NeMo Skills and of EvalScope.

Lengths, depths and scores of each thing that was asked, as far as their files have them."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from needlemap import compare
from needlemap.errors import NeedlemapError
from needlemap.interop.imported import OtherTools
from needlemap.interop.sources import is_other_tools, read
from needlemap.records.record import Record
from needlemap.scorers.words import Recall
from needlemap.tasks import Reference


def written(file: Path, rows: list[Any], end: str = "\n") -> Path:
    """A file of JSON lines."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(json.dumps(row) for row in rows) + end)
    return file


def records(path: Path, metric: str = "") -> list[Record]:
    """The records of the one run at a path."""
    (run,) = OtherTools().load(path, metric)
    return list(run.records)


def cells(path: Path, metric: str = "") -> list[tuple[int, float, int, float | None]]:
    """Length, depth in percent, repeat and score of each record."""
    return [(r.length_tokens, 100 * r.depth, r.repeat, r.score) for r in records(path, metric)]


# lm-evaluation-harness


def places(path: Path) -> list[tuple[int, float, float | None]]:
    """Return length, depth and score of each record. A repeat is only a number of its prompt."""
    return [(length, depth, score) for length, depth, _, score in cells(path)]


def harness(
    folder: Path, length_scores: dict[int, list[float]], task: str = "niah_single_1"
) -> Path:
    """Samples as `lm_eval --tasks niah_single_1` logs them: 4,096 is in each, -1 if not its own."""
    rows = []
    for length, scores in length_scores.items():
        for score in scores:
            metrics = {"4096": -1.0, str(length): score}
            doc = {"index": 0, "input": "x", "outputs": ["7"], "length": length - 50}
            rows.append(
                {
                    "doc_id": len(rows),
                    "doc": {**doc, "max_length": length, "gen_prefix": "The"},
                    "target": ["7"],
                    "resps": [["7"]],
                    "filtered_resps": ["7"],
                    "filter": "none",
                    "metrics": list(metrics),
                    **metrics,
                }
            )
    return written(folder / "m" / f"samples_{task}_2026-01-01.jsonl", rows)


def test_each_sample_of_the_harness_is_scored_at_its_own_length(tmp_path):
    """4,096 had -1 for all longer samples: a refusal, and by its advice means of 0 and 50."""
    file = harness(tmp_path, {4096: [1.0, 0.5], 8192: [0.0, 1.0], 131072: [0.25]})
    assert cells(file) == [
        (4096, 0, 0, 1.0),
        (4096, 0, 1, 0.5),
        (8192, 0, 2, 0.0),
        (8192, 0, 3, 1.0),
        (131072, 0, 4, 0.25),
    ]
    (run,) = OtherTools().load(file)
    assert (run.map.task, run.map.model, run.map.scorer) == ("niah-single-1", "m", "string_match")
    assert run.notes == ()


def test_two_results_of_the_harness_differ_where_they_do(tmp_path):
    one = harness(tmp_path / "a", {4096: [1.0] * 40, 8192: [1.0] * 40})
    other = harness(tmp_path / "b", {4096: [1.0] * 40, 8192: [0.0] * 40})
    found = compare(str(one), str(other))
    assert found.loss == pytest.approx(50)


def test_a_metric_that_is_a_length_names_the_samples_of_that_length(tmp_path):
    file = harness(tmp_path, {4096: [1.0], 8192: [0.0, 1.0]})
    assert [row[0] for row in cells(file, "8192")] == [8192, 8192]
    with pytest.raises(NeedlemapError, match="no metric '16384'"):
        records(file, "16384")


def test_minus_one_is_missing_and_no_score(tmp_path):
    file = harness(tmp_path, {4096: [1.0, -1.0], 8192: [-1.0]})
    assert cells(file) == [(4096, 0, 0, 1.0), (4096, 0, 1, None), (8192, 0, 2, None)]
    assert {row.failure for row in records(file)[1:]} == {"no result"}


def test_samples_without_a_length_of_their_own_go_by_the_metrics_that_are_not_minus_one(tmp_path):
    rows = [
        {"doc_id": 0, "doc": {"q": "?"}, "target": "4", "4096": -1.0, "8192": 0.5},
        {"doc_id": 1, "doc": {"q": "!"}, "target": "4", "4096": 1.0, "8192": -1.0},
        {"doc_id": 2, "doc": {"q": "."}, "target": "4", "4096": -1.0, "8192": -1.0},
    ]
    file = written(tmp_path / "m" / "samples_x_2026.jsonl", rows)
    assert [(row[0], row[3]) for row in cells(file)] == [(8192, 0.5), (4096, 1.0), (0, None)]


def test_a_torn_last_sample_is_left_out_with_a_word(tmp_path):
    file = harness(tmp_path, {4096: [1.0, 1.0]})
    file.write_text(file.read_text() + '{"doc_id": 2, "do')
    (run,) = OtherTools().load(file)
    assert len(run.records) == 2
    assert run.notes == (f"{file.name}, line 3: not written to its end, left out",)


# RULER


def prediction(index: int, pred: str, right: list[str], **more: Any) -> dict[str, Any]:
    row = {"index": index, "pred": pred, "input": "Some text. " * 9_000, "outputs": right}
    return {**row, "others": {}, "truncation": -1, "length": 3_990 + index, **more}


def ruler(folder: Path, length: int, answers: list[str], test: str = "niah_single_1") -> Path:
    rows = [prediction(n, answer, ["42"]) for n, answer in enumerate(answers)]
    place = folder / "llama" / "synthetic" / str(length) / "pred"
    return written(place / f"{test}.jsonl", rows)


def test_predictions_are_scored_by_rulers_rule_at_the_length_of_their_folder(tmp_path):
    file = ruler(tmp_path, 4096, ["It is 42.", "43", ""])
    assert places(file) == [(4096, 0, 1.0), (4096, 0, 0.0), (4096, 0, 0.0)]
    (run,) = OtherTools().load(file)
    assert (run.map.model, run.map.task, run.map.scorer) == (
        "llama",
        "niah-single-1",
        "string_match",
    )
    assert (run.records[0].answer, run.records[0].reference) == ("It is 42.", "42")


@pytest.mark.parametrize(
    ("test", "right", "answer", "score"),
    [
        ("niah_multivalue", ["1111", "2222"], "2222 \x00and more", 0.5),
        ("vt", ["ABC", "DEF"], "abc, def", 1.0),
        ("qa_1", ["Denver", "Denver Broncos"], "denver", 1.0),
        ("qa_2", ["yes"], "No.", 0.0),
        ("cwe", ["a", "b", "c", "z"], "a b c", 0.75),
    ],
)
def test_the_rules_are_those_of_rulers_tests(tmp_path, test, right, answer, score):
    file = written(tmp_path / "pred" / f"{test}.jsonl", [prediction(0, answer, right)])
    assert [row.score for row in records(file)] == [score]


@pytest.mark.parametrize("answer", ["It is 4\t2.", "4\n2", "\x004\t2 "])
def test_control_characters_count_as_in_a_measured_answer(tmp_path, answer):
    """RULER itself replaces them in the answer, never in what it looks for."""
    file = written(tmp_path / "pred" / "vt.jsonl", [prediction(0, answer, ["4\t2"])])
    reference = Reference("4\t2", ("4\t2",))
    measured = asyncio.run(Recall(rule="ruler").score(answer, reference)).share
    assert [row.score for row in records(file)] == [measured]


def test_outside_of_rulers_folders_each_prompt_has_its_own_length(tmp_path):
    file = written(tmp_path / "vt.jsonl", [prediction(n, "42", ["42"]) for n in range(2)])
    assert [row[0] for row in cells(file)] == [3_990, 3_991]
    (run,) = OtherTools().load(file)
    assert "in RULER's folders, LENGTH/pred, they are those of the tests" in run.notes[0]
    unknown = written(tmp_path / "x" / "vt.jsonl", [prediction(0, "42", ["42"], length=-1)])
    assert places(unknown) == [(0, 0, 1.0)]


def test_a_depth_that_a_line_says_is_kept(tmp_path):
    row = prediction(0, "42", ["42"], length=4_000, token_position_answer=1_000)
    (record,) = records(written(tmp_path / "pred" / "niah_single_1.jsonl", [row]))
    assert record.needles[0].realised == 0.25


@pytest.mark.parametrize("place", [".", "llama", "llama/synthetic", "llama/synthetic/4096/pred"])
def test_a_folder_of_rulers_is_opened_wherever_it_is_named(tmp_path, place):
    ruler(tmp_path, 4096, ["42", "42"])
    ruler(tmp_path, 8192, ["42", "no"])
    ruler(tmp_path, 4096, ["no", "no"], "vt")
    summary(tmp_path / "llama" / "synthetic" / "4096" / "pred")
    assert is_other_tools(tmp_path / place)
    runs = {run.map.task: run for run in OtherTools().load(tmp_path / place)}
    assert set(runs) == {"niah-single-1", "vt"}
    lengths = {row.length_tokens for row in runs["niah-single-1"].records}
    assert lengths == ({4096} if place.endswith("pred") else {4096, 8192})


def test_chunks_of_a_test_are_one_test(tmp_path):
    for chunk in (0, 1):
        rows = [prediction(chunk, "42", ["42"])]
        written(tmp_path / "4096" / "pred" / f"niah_single_1-{chunk}.jsonl", rows)
    (run,) = OtherTools().load(tmp_path)
    assert [row.length_tokens for row in run.records] == [4096, 4096]
    assert len({row.repeat for row in run.records}) == 2


def test_two_models_are_compared_by_what_was_asked(tmp_path, needlemap):
    ruler(tmp_path / "a", 4096, ["42"] * 40)
    ruler(tmp_path / "b", 4096, ["no"] * 40)
    done = needlemap("compare", tmp_path / "a", tmp_path / "b", "--fail-if-worse", "2", code=1)
    assert "b loses 100.0 points" in done.stdout


def shared_index(count: int, wrong: range = range(0)) -> list[dict[str, Any]]:
    """Return predictions of which each index has two, with other answers."""
    return [
        prediction(
            n % (count // 2) - 1,
            "no" if n in wrong else f"It is {1_000_000 + n}.",
            right=[str(1_000_000 + n)],
        )
        for n in range(count)
    ]


def test_prompts_with_one_index_all_count(tmp_path, needlemap):
    """RULER's index is where the answer stands in the prompt, or -1. Once, the last prompt with an
    index was the only one that counted.
    """
    folder = tmp_path / "llama" / "synthetic" / "4096" / "pred"
    file = written(folder / "niah_single_2.jsonl", shared_index(100, wrong=range(50)))
    needlemap("import", file, "-o", tmp_path / "run")
    lines = needlemap("report", tmp_path / "run").stdout.splitlines()
    assert ["niah-single-2", "50.0", "50.0", "100"] in [line.split() for line in lines]


def test_a_loss_on_prompts_with_one_index_is_found(tmp_path, needlemap):
    for model, wrong in (("a", range(0)), ("b", range(50))):
        folder = tmp_path / model / "synthetic" / "4096" / "pred"
        written(folder / "niah_single_2.jsonl", shared_index(100, wrong))
    done = needlemap("compare", tmp_path / "a", tmp_path / "b", "--fail-if-worse", "2", code=1)
    assert "b loses 50.0 points" in done.stdout


def test_rulers_prompts_with_one_index_of_nemo_skills_all_count(tmp_path, needlemap):
    bench = tmp_path / "eval-results" / "ruler.llama_4096.niah_single_1"
    file = nemo(bench, [1.0], index=7, expected_answer=["41"])
    more = nemo(tmp_path, [0.0], index=7, expected_answer=["42"])
    file.write_text(file.read_text() + more.read_text())
    assert "n=2" in needlemap("report", file).stdout


def summary(folder: Path, name: str = "summary.csv", **lines: list[Any]) -> Path:
    rows = {
        "Tasks": ["niah_single_1", "niah_multikey_1", "vt"],
        "Score": [100.0, 97.4, 33.25],
        "Nulls": ["0/500", "1/500", "0/1"],
    } | lines
    folder.mkdir(parents=True, exist_ok=True)
    head = ",".join(map(str, range(len(rows["Tasks"]) + 1)))
    text = "\n".join([head, *(",".join(map(str, [n, *row])) for n, row in rows.items())])
    (folder / name).write_text(text + "\n")
    return folder / name


def test_a_summary_is_a_mean_a_test_at_the_length_of_its_folder(tmp_path):
    file = summary(tmp_path / "llama" / "synthetic" / "8192" / "pred")
    runs = {run.map.task: run for run in OtherTools().load(file)}
    scores = {task: run.records[0].score for task, run in runs.items()}
    assert scores == pytest.approx({"niah-single-1": 1, "niah-multikey-1": 0.974, "vt": 0.3325})
    assert {run.records[0].length_tokens for run in runs.values()} == {8192}
    assert {run.map.model for run in runs.values()} == {"llama"}
    means = {task: run.records[0].scorer.mean for task, run in runs.items()}
    assert means == {"niah-single-1": True, "niah-multikey-1": True, "vt": False}


def test_a_summary_with_quotation_marks_and_of_one_test_is_read_too(tmp_path):
    file = tmp_path / "4096" / "pred" / "summary-vt.csv"
    file.parent.mkdir(parents=True)
    file.write_text('"Tasks","vt"\n"Score","50.0"\n"Nulls","0/500"\n')
    assert cells(file) == [(4096, 0, 0, 0.5)]


def test_summaries_are_read_where_the_predictions_are_gone(tmp_path):
    for length in (4096, 8192):
        summary(tmp_path / "llama" / "synthetic" / str(length) / "pred")
    runs = OtherTools().load(tmp_path)
    assert {row.length_tokens for run in runs for row in run.records} == {4096, 8192}


# NeMo Skills


def nemo(folder: Path, scores: list[Any], name: str = "output.jsonl", **more: Any) -> Path:
    rows = [
        {
            "index": n,
            "question": "Some text. " * 9_000,
            "expected_answer": ["42"],
            "length": 4_000 + n,
            "generation": "It is 42.",
            "num_generated_tokens": 5,
            "predicted_answer": "It is 42.",
            **({} if score is None else {"is_correct": score}),
            **more,
        }
        for n, score in enumerate(scores)
    ]
    return written(folder / name, rows)


def test_the_output_of_nemo_skills_is_a_sample_a_line(tmp_path):
    bench = tmp_path / "test-eval" / "eval-results" / "ruler.llama_4096.niah_single_1"
    file = nemo(bench, [1.0, 0.5, True, None])
    assert places(file) == [(4096, 0, 1.0), (4096, 0, 0.5), (4096, 0, 1.0), (4096, 0, None)]
    (run,) = OtherTools().load(file)
    assert (run.map.model, run.map.task, run.map.scorer) == (
        "test-eval",
        "niah-single-1",
        "is_correct",
    )
    assert run.records[0].completion_tokens == 5
    assert run.records[3].error == "not evaluated: no is_correct in the file"


def test_a_setup_that_names_no_length_leaves_each_prompt_its_own(tmp_path):
    assert [row[0] for row in cells(nemo(tmp_path / "ruler.llama.vt", [1.0]))] == [4_000]
    assert [row[0] for row in cells(nemo(tmp_path / "ruler.llama_128k.vt", [1.0]))] == [4_000]
    assert [row[0] for row in cells(nemo(tmp_path / "ruler.llama_4k.vt", [1.0] * 9))] == [4096] * 9


def test_seeds_of_nemo_skills_are_the_same_prompts_asked_again(tmp_path):
    bench = tmp_path / "out" / "eval-results" / "ruler.x_4096.vt"
    for seed in (0, 1):
        nemo(bench, [1.0, 0.0], f"output-rs{seed}.jsonl")
    (run,) = OtherTools().load(tmp_path / "out")
    first, second, *others = [row.repeat for row in run.records]
    assert first != second
    assert others == [first, second]
    assert len({row.key for row in run.records}) == 4


def test_another_tools_output_is_not_taken_for_theirs(tmp_path):
    row = {
        "context_length": 2000,
        "target_depth_percent": 50,
        "model_id": "m",
        "score": {"value": 0.5},
    }
    for name in ("output.jsonl", "more.jsonl"):
        written(tmp_path / name, [row])
    (run,) = OtherTools().load(tmp_path)
    assert len(run.records) == 2


# EvalScope


def review(index: int, length: int, depth: float, score: Any) -> dict[str, Any]:
    """A line of reviews/MODEL/needle_haystack_english.jsonl."""
    metric = f"Context#{length} Depth#{depth:g}"
    value = {} if score is None else {metric: score}
    told = {"value": value, "prediction": "Eat a sandwich.", "main_score_name": metric}
    place = {"context": "x" * 90_000, "context_length": length, "depth_percent": depth}
    return {
        "index": index,
        "messages": [{"role": "user", "content": "What?"}],
        "target": "Eat a sandwich.",
        "sample_score": {"score": told, "sample_id": index, "sample_metadata": place},
    }


def report(
    folder: Path, cells: dict[tuple[int, int], dict[str, tuple[float, int]]], **more: Any
) -> Path:
    """reports/MODEL/needle_haystack.json."""
    metrics = [
        {
            "name": f"Context#{length} Depth#{depth}",
            "num": 1,
            "score": 0.5,
            "categories": [
                {
                    "name": ["default"],
                    "subsets": [
                        {"name": name, "score": score, "num": num}
                        for name, (score, num) in subsets.items()
                    ],
                }
            ],
        }
        for (length, depth), subsets in cells.items()
    ]
    whole = {
        "name": "qwen@needle_haystack",
        "dataset_name": "needle_haystack",
        "model_name": "qwen-plus",
        "score": 0.5,
        "metrics": metrics,
        **more,
    }
    file = folder / "reports" / "qwen-plus" / "needle_haystack.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(whole, indent=4))
    return file


def reviews(folder: Path, rows: list[dict[str, Any]], subset: str = "english") -> Path:
    return written(folder / "reviews" / "qwen-plus" / f"needle_haystack_{subset}.jsonl", rows)


def test_reviews_have_the_cell_and_the_score_of_each_sample(tmp_path):
    rows = [review(0, 1000, 0, 1.0), review(1, 1000, 50, 0.1), review(2, 32000, 100, None)]
    file = reviews(tmp_path, [*rows, review(3, 1000, 0, 0.4)])
    assert cells(file) == [
        (1000, 0, 0, 1.0),
        (1000, 50, 0, 0.1),
        (32000, 100, 0, None),
        (1000, 0, 1, 0.4),
    ]
    (run,) = OtherTools().load(file)
    assert (run.map.model, run.map.task) == ("qwen-plus", "needle_haystack")
    assert run.records[0].answer == "Eat a sandwich."


def test_a_review_without_metadata_is_placed_by_its_metric(tmp_path):
    row = review(0, 1000, 11, 1.0)
    del row["sample_score"]["sample_metadata"]
    (cell,) = cells(reviews(tmp_path, [row]))
    assert cell == (1000, pytest.approx(11), 0, 1.0)


def test_a_report_has_a_number_a_cell_and_subset(tmp_path):
    cell = {"english": (0.9, 1), "chinese": (0.5, 2), "spanish": (0.0, 0)}
    file = report(tmp_path, {(1000, 0): cell, (32000, 89): cell})
    runs = {run.about.imported.series: run for run in OtherTools().load(file)}
    english, chinese, none = runs["english"], runs["chinese"], runs["spanish"]
    assert [(row.length_tokens, row.score) for row in english.records] == [
        (1000, 0.9),
        (32000, 0.9),
    ]
    assert english.records[1].depth == 0.89
    assert [run.records[0].scorer.mean for run in (english, chinese)] == [False, True]
    assert none.records[0].score is None
    assert english.map.model == "qwen-plus"


def test_a_report_of_todays_form_names_its_metrics_otherwise(tmp_path):
    file = report(tmp_path, {(1000, 0): {"english": (1.0, 1)}}, schema_version=2)
    whole = json.loads(file.read_text())
    (metric,) = whole["metrics"]
    metric["identity"] = {"name": "acc", "aggregation": "mean", "dimensions": {}}
    metric["legacy_name"] = metric.pop("name")
    file.write_text(json.dumps(whole))
    assert cells(file) == [(1000, 0, 0, 1.0)]


@pytest.mark.parametrize("place", [".", "reviews", "reviews/qwen-plus"])
def test_of_a_folder_of_evalscope_the_reviews_are_read(tmp_path, place):
    reviews(tmp_path, [review(0, 1000, 0, 1.0)])
    reviews(tmp_path, [review(0, 1000, 0, 0.0)], "chinese")
    report(tmp_path, {(1000, 0): {"english": (1.0, 1), "chinese": (0.0, 1)}})
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "task_config.json").write_text("{}")
    runs = OtherTools().load(tmp_path / place)
    assert sorted(run.about.imported.series for run in runs) == ["chinese", "english"]
    assert sorted(run.records[0].score for run in runs) == [0.0, 1.0]


def test_the_reports_alone_will_do(tmp_path):
    report(tmp_path, {(1000, 0): {"english": (1.0, 1)}})
    assert cells(tmp_path) == [(1000, 0, 0, 1.0)]


def test_reviews_of_other_benchmarks_are_samples_like_any(tmp_path):
    score = {"score": {"value": {"acc": 1.0}, "prediction": "4"}, "sample_id": 0}
    rows = [{"index": 0, "target": "4", "sample_score": score}]
    file = written(tmp_path / "reviews" / "m" / "gsm8k_main.jsonl", rows)
    assert cells(file) == [(0, 0, 0, 1.0)]


def test_reviews_with_one_index_all_count(tmp_path, needlemap):
    rows = [
        {"index": 0, "target": target, "sample_score": {"score": {"value": {"acc": score}}}}
        for target, score in (("4", 0.0), ("5", 1.0))
    ]
    file = written(tmp_path / "reviews" / "m" / "gsm8k_main.jsonl", rows)
    assert "n=2" in needlemap("report", file).stdout


# What is none


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "x.jsonl",
            '{"index": 0, "pred": 7, "outputs": ["a"]}\n',
            "line 1: field 'pred' must be a text",
        ),
        (
            "x.jsonl",
            '{"index": 0, "pred": "a", "outputs": []}\n',
            "line 1: field 'outputs' must list",
        ),
        ("x.jsonl", '{"index": 0, "pred": "a", "outputs": [1]}\n', "line 1: field 'outputs' must"),
        ("x.jsonl", '{"index": -2, "pred": "a", "outputs": ["a"]}\n', "line 1: field 'index' must"),
        ("x.jsonl", '{"pred": "a", "outputs": ["a"]}\n', "line 1: no field 'index'"),
        ("x.jsonl", '{"index": 0, "pred": "a", "outputs": ["a"]}\n7\n', "line 2: no JSON object"),
        (
            "x.jsonl",
            '{"index": 0, "pred": "a", "outputs": ["a"]}\n{\n',
            "line 2: not readable as JSON",
        ),
        ("x.jsonl", '{"generation": "a", "expected_answer": "a", "index": []}\n', "without an id"),
        (
            "x.jsonl",
            '{"generation": "a", "expected_answer": "a", "index": 0, "is_correct": 7}\n',
            "outside",
        ),
        ("x.jsonl", '{"sample_score": 7}\n', "line 1: no review of EvalScope: 'sample_score'"),
        (
            "x.jsonl",
            '{"sample_score": {"score": null}}\n',
            "line 1: no review of EvalScope: 'score'",
        ),
        (
            "x.jsonl",
            '{"index": 0, "sample_score": {"score": {"value": {}}, "sample_metadata": '
            '{"context_length": "1e999", "depth_percent": 0}}}\n',
            "line 1: field 'context_length' must be a number",
        ),
        (
            "x.jsonl",
            '{"index": 0, "sample_score": {"score": {"value": {}}, "sample_metadata": '
            '{"context_length": 10, "depth_percent": 101}}}\n',
            "line 1: field 'depth_percent' must lie in 0..100",
        ),
        (
            "x.json",
            '{"dataset_name": "x", "model_name": "m", "metrics": 7}',
            "x.json: no report of EvalScope: it lists no metrics",
        ),
        (
            "x.json",
            '{"dataset_name": "gsm8k", "model_name": "m", "metrics": [{"name": "acc"}, 7]}',
            "x.json: a report without the cells of a needle test",
        ),
        ("x.csv", "0,1,2\nTasks,a,b\nScore,1\nNulls,0/1\n", "x.csv: no summary of RULER"),
        ("x.csv", "0,1\nTasks,a\nScore,high\n", "x.csv, column 2: field 'a' must be a number"),
        ("x.csv", "0,1\nTasks,a\nScore,101\n", "x.csv, column 2: score 101 is outside 0..100"),
    ],
)
def test_a_wrong_file_is_an_error_in_words_with_its_line(tmp_path, name, text, words):
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(NeedlemapError) as caught:
        OtherTools().load(file)
    assert words in str(caught.value)
    assert str(caught.value).startswith(name)


def test_hostile_values_are_read_as_nothing(tmp_path):
    odd = {"length": 10**30, "token_position_answer": True, "num_generated_tokens": -1}
    row = {"generation": "\ud800", "expected_answer": {"a": 1}, "index": "x" * 10_000}
    (record,) = records(written(tmp_path / "o.jsonl", [{**row, **odd, "is_correct": "yes"}]))
    assert (record.length_tokens, record.answer, record.score) == (0, "?", 1.0)
    assert record.completion_tokens is None


def test_links_in_a_folder_are_not_followed_and_it_is_not_searched_for_ever(tmp_path):
    ruler(tmp_path / "elsewhere", 4096, ["42"])
    (tmp_path / "here").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "here" / "loop")
    assert not is_other_tools(tmp_path / "here")
    deep = tmp_path / "deep" / "/".join("abcdefgh")
    ruler(deep, 4096, ["42"])
    assert not is_other_tools(tmp_path / "deep")


def test_import_and_report_take_them(tmp_path, needlemap):
    ruler(tmp_path / "ruler", 4096, ["42", "no"])
    ruler(tmp_path / "ruler", 8192, ["no", "no"])
    shown = needlemap("report", tmp_path / "ruler").stdout
    assert "llama · niah-single-1 · tokenizer unknown · scorer string_match" in shown
    made = needlemap("import", tmp_path / "ruler", "-o", "kept").stderr
    assert "4 results in 2 cells, 0 missing · overall 25.0" in made
    assert "niah-single-1" in needlemap("report", "kept").stdout


TESTS = (
    *("niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multikey_2"),
    *("niah_multikey_3", "niah_multivalue", "niah_multiquery", "vt", "cwe", "fwe", "qa_1", "qa_2"),
)
FAMILIES = [name.replace("_", "-") for name in TESTS]


def rows_of(text: str) -> list[str]:
    """The first words of a table's rows, from its head on."""
    lines = text.partition("\nfamily ")[2].splitlines()[1:]
    return [line.split()[0] for line in lines[: lines.index("")]]


def test_the_tests_of_ruler_are_the_families_of_one_run(tmp_path, needlemap):
    """They came in as thirteen runs, each reported and compared by itself."""
    for folder, answer in (("a", "42"), ("b", "no")):
        for test in (*sorted(TESTS), "own_test"):
            right = answer if test == "vt" else "42"
            ruler(tmp_path / folder, 4096, [right, "42"] * 10, test)
        needlemap("import", tmp_path / folder, "-o", f"kept-{folder}")
    shown = needlemap("report", "kept-a").stdout
    assert shown == needlemap("report", tmp_path / "a").stdout
    assert shown.startswith("suite ruler · llama\n")
    assert rows_of(shown) == [*FAMILIES, "own-test", "mean"]
    for one in ("kept-a", tmp_path / "a"):
        for other in ("kept-b", tmp_path / "b"):
            found = needlemap("compare", one, other).stdout
            assert sorted(rows_of(found)) == sorted([*FAMILIES, "own-test"])
            (vt,) = (line.split() for line in found.splitlines() if line.startswith("vt "))
            assert vt[1:4] == ["100.0", "50.0", "50.0"]


def test_a_summary_and_other_tools_have_the_same_families(tmp_path):
    summary(tmp_path / "s" / "llama" / "synthetic" / "8192" / "pred")
    nemo(tmp_path / "n" / "eval-results" / "ruler.llama_4096.qa_1", [1.0])
    harness(tmp_path / "h", {4096: [1.0]}, "ruler_qa_squad")
    harness(tmp_path / "h", {4096: [1.0]}, "niah_multiquery")
    found = {
        place: [run.about.named.task for run in OtherTools().load(tmp_path / place)]
        for place in ("s", "n", "h")
    }
    assert found == {
        "s": ["niah-single-1", "niah-multikey-1", "vt"],
        "n": ["qa-1"],
        "h": ["niah-multiquery", "qa-1"],
    }


def test_a_hostile_name_of_a_test_stays_in_its_folder(tmp_path, needlemap):
    tests = ["../../up", "vt", "/etc"]
    file = summary(tmp_path / "8192" / "pred", Tasks=tests)
    needlemap("import", file, "-o", "kept")
    assert "suite ruler" in needlemap("report", "kept").stdout
    folders = {path.parent.name for path in needlemap.folder.rglob("run.json")}
    assert folders == {"vt", "up", "etc"}


def test_what_can_be_read_is_told_where_nothing_can(tmp_path):
    (tmp_path / "x.jsonl").write_text("{}\n")
    with pytest.raises(NeedlemapError, match=r"output\.jsonl of NeMo Skills"):
        read([tmp_path])


NAMES = (
    *("pred", "outputs", "index", "length", "token_position_answer", "generation", "metrics"),
    *("expected_answer", "is_correct", "num_generated_tokens", "sample_score", "score", "value"),
    *("sample_metadata", "context_length", "depth_percent", "target", "doc_id", "doc", "4096"),
    *("max_length", "filter", "filtered_resps", "Context#10 Depth#5", "categories", "subsets"),
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([0, -1, 4096, 10**30, 0.5, -1.0, 1e308, float("nan")])
    | st.sampled_from(["", "a", "4096", "1e999", "Context#10 Depth#5", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=8,
)
LINES = st.sampled_from(
    [
        {"index": 0, "pred": "a", "outputs": ["a"]},
        {"index": 0, "generation": "a", "expected_answer": ["a"], "is_correct": 1.0},
        {"index": 0, "sample_score": {"score": {"value": {"Context#10 Depth#5": 1.0}}}},
        {"doc_id": 0, "doc": {"max_length": 8192}, "target": "a", "4096": -1.0, "8192": 1.0},
        {"dataset_name": "x", "model_name": "m", "metrics": []},
    ]
)


@given(LINES, st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4))
def test_whatever_a_file_holds_is_records_or_an_error_in_words(tmp_path_factory, line, more):
    folder = tmp_path_factory.mktemp("odd")
    file = folder / ("x.json" if "dataset_name" in line else "x.jsonl")
    file.write_text(json.dumps({**line, **more}))
    with suppress(NeedlemapError):
        for run in OtherTools().load(file):
            assert all(record.line() for record in run.records)
