"""Logs that the real harnesses wrote, of a benchmark that is not ours, compare as statsmodels compares."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from statsmodels.stats.contingency_tables import mcnemar

from needlemap import compare

FIRST = {f"What is {n} and {n}?": str(2 * n) for n in range(60) if n % 5}
SECOND = {f"What is {n} and {n}?": str(2 * n) for n in range(60) if n % 5 != 1 and n % 7}
QUIZ = """task: quiz
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
"""


def exact(first: list[bool], second: list[bool]) -> float:
    """statsmodels' exact McNemar of two lists of hits."""
    pairs = list(zip(first, second, strict=True))
    table = [[pairs.count((one, other)) for other in (True, False)] for one in (True, False)]
    return float(mcnemar(table, exact=True).pvalue)


@pytest.mark.parametrize("format", ["eval", "json"])
def test_two_logs_of_inspect_compare_as_statsmodels_does(host, tmp_path, format):
    logs = [
        tmp_path / host("in_inspect", task="", answers=answers, folder=folder, format=format)["log"]
        for folder, answers in (("a", FIRST), ("b", SECOND))
    ]
    found = compare(*logs)
    questions = [f"What is {n} and {n}?" for n in range(60)]
    wanted = exact([each in FIRST for each in questions], [each in SECOND for each in questions])
    assert found.n == 60
    assert found.p == pytest.approx(wanted, abs=1e-12)
    assert 0.0001 < found.p < 1


def test_two_outputs_of_the_harness_compare_as_statsmodels_does(host, tmp_path):
    questions = [f"Which letter has number {n}?" for n in range(60)]
    docs = [{"question": q, "choices": ["a", "b", "c"], "answer": n % 3} for n, q in enumerate(questions)]
    data = tmp_path / "quiz.jsonl"
    data.write_text("".join(json.dumps(doc) + "\n" for doc in docs))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "quiz.yaml").write_text(QUIZ.format(data=data))
    right = {q: f" {'abc'[n % 3]}" for n, q in enumerate(questions)}
    arms = {"a": {q: right[q] for q in questions[9:]}, "b": {q: right[q] for q in questions[:31]}}
    for arm, answers in arms.items():
        host(
            "in_lm_eval",
            tasks=["quiz"],
            include=str(tmp_path / "tasks"),
            answers=answers,
            out=str(tmp_path / arm),
        )
    hits = [[answers.get(q, " a") == right[q] for q in questions] for answers in arms.values()]
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.n == 60
    assert found.p == pytest.approx(exact(*hits), abs=1e-12)
    assert Path(found.runs[0].path).name == "a"
