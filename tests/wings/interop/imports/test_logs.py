"""Logs of Inspect and samples of lm-evaluation-harness, of any benchmark: read, reported and
compared."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from needlemap import compare
from needlemap.errors import NeedlemapError
from needlemap.files import MOST_BYTES
from needlemap.interop.imported import OtherTools
from needlemap.interop.sources import is_other_tools, read
from needlemap.stats.exact import mcnemar

HEAD = {"version": 2, "status": "success", "eval": {"model": "mockllm/model", "task": "sums"}}


def sample(id: int | str, value: object = "C", **said: object) -> dict[str, Any]:
    """A sample as Inspect writes one."""
    return {
        "id": id,
        "epoch": 1,
        "input": f"What is {id}?",
        "target": "4",
        "output": {"completion": "four"},
        "scores": {"match": {"value": value}},
        "metadata": {},
        **said,
    }


def inspect(file: Path, samples: list[Any], head: dict[str, Any] = HEAD) -> Path:
    """A log as a zip, packed so that every zipfile reads it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("header.json", json.dumps(head))
        for number, each in enumerate(samples):
            packed.writestr(f"samples/{number}_epoch_1.json", json.dumps(each))
    return file


def harness(file: Path, rows: list[dict[str, Any]]) -> Path:
    """A sample file as `lm_eval --log_samples` writes one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    usual = {
        "doc": {"question": "?"},
        "target": "4",
        "filter": "none",
        "metrics": ["acc", "acc_norm"],
    }
    lines = [
        json.dumps({"doc_id": n, **usual, "acc": 1.0, "acc_norm": 0.0, **row})
        for n, row in enumerate(rows)
    ]
    file.write_text("\n".join(lines) + "\n")
    return file


def scores(path: Path, metric: str = "") -> list[float | None]:
    (run,) = OtherTools().load(path, metric)
    return [record.score for record in run.records]


def test_a_zip_and_json_of_inspect_read_alike(tmp_path):
    samples = [sample("a"), sample("b", "I"), sample(3, "P")]
    packed = inspect(tmp_path / "x.eval", samples)
    plain = tmp_path / "y.json"
    plain.write_text(json.dumps({**HEAD, "samples": samples}))
    (one,), (other,) = (OtherTools().load(path) for path in (packed, plain))
    same = [[each.model_copy(update={"key": ""}) for each in run.records] for run in (one, other)]
    assert same[0] == same[1]
    assert [record.score for record in one.records] == [1.0, 0.0, 0.5]
    assert one.records[0].answer == "four"
    assert (one.map.model, one.map.task, one.map.scorer) == ("mockllm/model", "sums", "match")


def test_samples_pair_by_id_in_whatever_order_and_those_of_one_log_alone_are_counted(tmp_path):
    first = inspect(tmp_path / "a.eval", [sample(f"s{n}", "C") for n in range(20)])
    second = inspect(
        tmp_path / "b.eval", [sample(f"s{n}", "I" if n < 8 else "C") for n in range(24)][::-1]
    )
    found = compare(first, second)
    assert (found.n, found.p) == (20, mcnemar(8, 0))
    assert found.to_json()["only_b"] == 4
    assert "20 pairs; 4 trials of B alone" in found.text
    assert "haystack" not in found.text


def test_samples_whose_answers_differ_are_named_by_their_input_and_a_gate_speaks_of_samples(
    tmp_path, needlemap
):
    first = inspect(tmp_path / "a.eval", [sample(f"s{n}") for n in range(20)])
    other = [sample(f"s{n}", "I", output={"completion": "five"}) for n in range(20)]
    second = inspect(tmp_path / "b.eval", other)
    said = needlemap("compare", str(first), str(second), "--answers").stdout
    assert "answers: 0 of 20 pairs identical, 20 differ (100.0 %)" in said
    assert "sample 'What is s" in said
    assert "length 0" not in said
    assert "differ by" not in said
    gated = needlemap(
        "compare", str(first), str(second), "--sequential", "--margin", "2", code=1
    ).stdout
    assert "FAIL compare: " in gated
    assert "length -" not in gated


def test_another_input_under_the_same_id_is_refused(tmp_path):
    first = inspect(tmp_path / "a.eval", [sample(1), sample(2)])
    second = inspect(tmp_path / "b.eval", [sample(1), sample(2, input="What is two?")])
    with pytest.raises(NeedlemapError, match="ask different prompts in 1 trials"):
        compare(first, second)


def test_messages_are_the_same_whatever_their_own_ids_are(tmp_path):
    asked = [[{"role": "user", "content": "Why?", "id": id}] for id in ("one", "two")]
    first, second = (
        inspect(tmp_path / f"{n}.eval", [sample(1, input=each)]) for n, each in enumerate(asked)
    )
    assert compare(first, second).n == 1


def test_epochs_are_one_sample_asked_again_and_count_as_its_mean(tmp_path):
    twice = [sample(1, "C"), sample(1, "I", epoch=2), sample(2, "C"), sample(2, "C", epoch=2)]
    found = compare(
        inspect(tmp_path / "a.eval", twice), inspect(tmp_path / "b.eval", [sample(1), sample(2)])
    )
    assert (found.n, found.to_json()["overall"]["score_a"]) == (2, 75.0)


def test_a_sample_that_failed_is_missing_with_its_reason_and_counts_against_the_candidate(tmp_path):
    failed = sample(2, error={"message": "no such tool"}, scores=None)
    second = inspect(tmp_path / "b.eval", [sample(1), failed, sample(3, float("nan"))])
    (run,) = OtherTools().load(second)
    assert [(record.score, record.error) for record in run.records] == [
        (1.0, None),
        (None, "no such tool"),
        (None, "no match in the file"),
    ]
    found = compare(inspect(tmp_path / "a.eval", [sample(1), sample(2), sample(3)]), second)
    assert (found.verdict, found.to_json()["missing"]["b"]) == (None, 2)


def test_a_sample_whose_answer_was_broken_off_is_missing_and_one_that_was_filtered_is_not(
    tmp_path,
):
    said = [
        ("stop", "C"),
        ("content_filter", "I"),
        ("error", "I"),
        ("model_length", "I"),
        ("max_tokens", "I"),
    ]
    samples = [
        sample(number, value, output={"completion": "fo", "choices": [{"stop_reason": reason}]})
        for number, (reason, value) in enumerate(said)
    ]
    assert scores(inspect(tmp_path / "a.json", samples)) == [1.0, 0.0, None, None, 0.0]
    (run,) = OtherTools().load(tmp_path / "a.json")
    assert [record.outcome for record in run.records] == [
        "scored",
        "filtered by the provider",
        "no result",
        "no result",
        "answer budget spent",
    ]
    assert "broke the answer off (finish reason 'error')" in (run.records[2].error or "")


def test_of_several_scores_the_first_counts_and_a_flag_names_another(tmp_path, needlemap):
    both = {"match": {"value": "C"}, "judge": {"value": {"style": 0.25, "facts": 1}}}
    log = inspect(tmp_path / "a.eval", [sample(1, scores=both)])
    assert scores(log) == [1.0]
    assert scores(log, "judge/style") == [0.25]
    other = inspect(
        tmp_path / "b.eval", [sample(1, scores={**both, "judge": {"value": {"style": 0.75}}})]
    )
    assert compare(log, other, metric="judge/style").loss == -50.0
    shown = needlemap("report", str(log))
    assert "sums: scored by match; --metric takes judge/style, judge/facts too" in shown.stderr
    refused = needlemap("report", str(log), "--metric", "mach", code=2)
    assert "Did you mean 'match'?" in refused.stderr


def test_samples_of_the_harness_pair_by_document_each_filter_with_metrics_of_its_own(tmp_path):
    rows = [
        {"doc_id": id, "filter": filter, "acc": float(filter == "loose" or id == 7)}
        for filter in ("strict", "loose")
        for id in (7, 9)
    ]
    log = harness(tmp_path / "out" / "my-model" / "samples_gsm_2026-01-01.jsonl", rows)
    assert scores(log) == [1.0, 0.0]
    assert scores(log, "acc,loose") == [1.0, 1.0]
    (run,) = OtherTools().load(tmp_path / "out")
    assert (run.map.model, run.map.task) == ("my-model", "gsm")


def test_what_lies_beside_samples_names_the_model_and_the_metrics_of_which_less_is_better(tmp_path):
    log = harness(tmp_path / "out" / "org__m" / "samples_quiz_T1.jsonl", [{}, {"acc": 0.0}])
    beside = {"model_name": "org/m", "higher_is_better": {"quiz": {"acc": False, "acc_norm": True}}}
    (log.parent / "results_T1.json").write_text(json.dumps(beside))
    (run,) = OtherTools().load(log, "acc_norm")
    assert run.map.model == "org/m"
    with pytest.raises(NeedlemapError, match="quiz: of acc less is better"):
        OtherTools().load(log)


@pytest.mark.parametrize(
    "beside", ["[1]", "{", '{"higher_is_better": 3}', '{"higher_is_better": {"quiz": 7}}']
)
def test_whatever_lies_beside_samples_they_are_read(tmp_path, beside):
    log = harness(tmp_path / "samples_quiz_T1.jsonl", [{}])
    (tmp_path / "results_T1.json").write_text(beside)
    assert scores(log) == [1.0]


def test_a_score_that_is_no_share_says_how_to_import_it(tmp_path, needlemap):
    log = harness(tmp_path / "samples_bleu_T1.jsonl", [{"acc": 31.5}, {"acc": 40.0}])
    refused = needlemap("report", str(log), code=2)
    assert (
        "score 31.5 is outside 0..1. Say the scale: needlemap import FILE --scale" in refused.stderr
    )
    needlemap("import", str(log), "--scale", "0:100", "-o", str(tmp_path / "run"))
    assert "overall 35.8" in needlemap("report", str(tmp_path / "run")).stdout


def test_a_folder_with_several_tasks_is_compared_task_by_task(tmp_path, needlemap):
    for arm, acc in (("a", 1.0), ("b", 0.0)):
        for task in ("easy", "hard"):
            rows = [{"acc": acc if task == "hard" else 1.0}] * 30
            harness(tmp_path / arm / f"samples_{task}_2026-01-01.jsonl", rows)
        (tmp_path / arm / "results_2026-01-01.json").write_text("{}")
    harness(tmp_path / "b" / "samples_more_2026-01-01.jsonl", [{}])
    done = needlemap(
        "compare", str(tmp_path / "a"), str(tmp_path / "b"), "--fail-if-worse", "2", code=1
    )
    assert "by family" in done.stdout
    assert "A 100.0, B 50.0\n" in done.stdout
    assert "left out, as only one of the two has it: more" in done.stderr


def test_of_two_logs_of_one_task_in_a_folder_the_later_counts_and_the_other_is_named(tmp_path):
    inspect(tmp_path / "2026-01-01_sums.eval", [sample(1, "I")])
    inspect(tmp_path / "2026-02-01_sums.eval", [sample(1, "C")])
    (run,) = OtherTools().load(tmp_path)
    assert run.records[0].score == 1.0
    assert run.notes == (
        "left out: 2026-01-01_sums.eval: a later log is of the same task; name this file to read "
        "it",
    )


def test_what_our_own_tasks_say_of_a_sample_makes_a_map(tmp_path):
    place = {"length_tokens": 4000, "depth": 0.5, "repeat": 1}
    (run,) = OtherTools().load(
        inspect(tmp_path / "a.eval", [sample(1, metadata={"needlemap": place}), sample(2)])
    )
    assert [(each.length_tokens, each.depth, each.repeat) for each in run.records] == [
        (4000, 0.5, 1),
        (0, 0.0, 2),
    ]


def test_an_unfinished_log_says_so_and_one_is_imported_like_any_result(tmp_path, needlemap):
    log = inspect(tmp_path / "a.eval", [sample(1), sample(2)], {**HEAD, "status": "cancelled"})
    done = needlemap("import", str(log), "-o", str(tmp_path / "run"))
    assert "the evaluation did not finish (cancelled)" in done.stderr
    assert "mockllm/model · sums · 2 results" in done.stderr
    assert "overall 100.0 (n=2, 0 missing)" in needlemap("report", str(tmp_path / "run")).stdout


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"PK\x03\x04 and no more", "not readable as a log of Inspect"),
        (b'{"version": 2, "status": "success", "eval": 3}', "does not say what was evaluated"),
        (
            b'{"version": 2, "status": "success", "eval": {}, "samples": [7]}',
            "sample 1: no sample of Inspect",
        ),
        (
            b'{"version": 2, "status": "success", "eval": {}, "samples": [{"id": []}]}',
            "without an id",
        ),
        (b'{"doc_id": 1, "doc": {}, "acc": [1, 2]}', "no sample has a score that is a number"),
        (b'{"doc_id": true, "doc": {}, "acc": 1}', "without an id"),
        (b'{"doc_id": 1, "doc": ' + b"[" * 100_000, "not readable as JSON"),
    ],
)
def test_what_is_no_log_is_refused_in_words(tmp_path, content, words):
    file = tmp_path / ("x.jsonl" if b"doc_id" in content else "x.eval")
    file.write_bytes(content)
    with pytest.raises(NeedlemapError, match=words):
        read([file])


def test_a_zip_that_unpacks_to_more_than_any_sample_holds_is_refused_early(tmp_path):
    file = tmp_path / "bomb.eval"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("header.json", json.dumps(HEAD))
        with packed.open("samples/1_epoch_1.json", "w") as inside:
            for _ in range((MOST_BYTES >> 20) + 1):
                inside.write(b" " * (1 << 20))
    with pytest.raises(NeedlemapError, match="larger than 64 MB"):
        read([file])


def test_a_log_packed_by_zstd_says_what_to_install(tmp_path, monkeypatch):
    file = inspect(tmp_path / "x.eval", [sample(1)])

    def unpack(*_: object) -> None:
        raise NotImplementedError("That compression method is not supported")

    monkeypatch.setattr(zipfile.ZipFile, "open", unpack)
    with pytest.raises(NeedlemapError, match=r"Run: python3 -m pip install 'inspect-ai<0\.4"):
        read([file])


def test_a_folder_of_logs_is_told_from_a_run(tmp_path):
    harness(tmp_path / "out" / "m" / "samples_x_2026.jsonl", [{}])
    (tmp_path / "empty").mkdir()
    assert is_other_tools(tmp_path / "out")
    assert not is_other_tools(tmp_path / "empty")
