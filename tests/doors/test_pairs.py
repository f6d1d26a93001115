"""Logs that the real harnesses wrote, of a benchmark that is not ours, compare as statsmodels
compares."""

from __future__ import annotations

import json
import subprocess
import sys
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


def test_two_logs_of_inspect_compare_as_statsmodels_does_packed_or_as_json(host, tmp_path):
    arms = [
        {"task": "", "answers": answers, "folder": f"{format}-{arm}", "format": format}
        for format in ("eval", "json")
        for arm, answers in (("a", FIRST), ("b", SECOND))
    ]
    logs = [tmp_path / each["log"] for each in host("in_inspect", *arms)]
    questions = [f"What is {n} and {n}?" for n in range(60)]
    wanted = exact([each in FIRST for each in questions], [each in SECOND for each in questions])
    assert 0.0001 < wanted < 0.9
    for first, second in (logs[:2], logs[2:], (logs[0], logs[3])):
        found = compare(first, second)
        assert found.n == 60
        assert found.p == pytest.approx(wanted, abs=1e-12)


def test_two_outputs_of_the_harness_compare_as_statsmodels_does(host, tmp_path):
    questions = [f"Which letter has number {n}?" for n in range(60)]
    docs = [
        {"question": q, "choices": ["a", "b", "c"], "answer": n % 3}
        for n, q in enumerate(questions)
    ]
    data = tmp_path / "quiz.jsonl"
    data.write_text("".join(json.dumps(doc) + "\n" for doc in docs))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "quiz.yaml").write_text(QUIZ.format(data=data))
    right = {q: f" {'abc'[n % 3]}" for n, q in enumerate(questions)}
    arms = {"a": {q: right[q] for q in questions[9:]}, "b": {q: right[q] for q in questions[:31]}}
    shared = {"tasks": ["quiz"], "include": str(tmp_path / "tasks")}
    host(
        "in_lm_eval",
        *({**shared, "answers": each, "out": str(tmp_path / arm)} for arm, each in arms.items()),
    )
    hits = [[answers.get(q, " a") == right[q] for q in questions] for answers in arms.values()]
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.n == 60
    assert found.p == pytest.approx(exact(*hits), abs=1e-12)
    assert Path(found.runs[0].path).name == "a"


BOMB = """
import json, resource, sys, zipfile
import zipfile_zstd
from pathlib import Path
from needlemap.errors import NeedlemapError
from needlemap.interop.sources import read

file = Path(sys.argv[1])
with zipfile.ZipFile(file, "w", compression=93) as packed:
    packed.writestr("header.json", json.dumps({"status": "success", "eval": {"model": "m", "task": "t"}}))
    with packed.open("samples/1_epoch_1.json", "w") as sample:
        for _ in range(1200):
            sample.write(b" " * (1 << 20))
data = bytearray(file.read_bytes())
size = data.rfind(b"PK" + bytes((1, 2))) + 24
data[size : size + 4] = (1000).to_bytes(4, "little")  # the zip says that it is small
file.write_bytes(data)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read([file])
except NeedlemapError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""  # noqa: E501


def test_a_log_of_50_kb_that_unpacks_to_more_than_a_gigabyte_takes_little_memory(tmp_path):
    pytest.importorskip("zipfile_zstd", reason="no inspect_ai here: pip install '.[inspect]'")
    command = [sys.executable, "-c", BOMB, str(tmp_path / "bomb.eval")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    said, grown_mb = done.stdout.splitlines()
    assert "not readable as a log of Inspect" in said
    assert int(grown_mb) < 300
