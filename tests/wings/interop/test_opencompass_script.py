"""The files of OpenCompass' first needle test, byte for byte: its own code made the vectors."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from needlemap.errors import SettingsError
from needlemap.interop.opencompass import generate

PLAIN = {"prompt": "<{context}> {question}"}


@pytest.fixture(scope="module")
def vectors(shared: Path) -> Path:
    return shared / "vectors" / "opencompass"


def rows(file: Path) -> list[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def same(made: dict[str, Any], row: dict[str, Any]) -> bool:
    whole = row.get("prompt", made["prompt"])
    digest = sha256(made["prompt"].encode()).hexdigest()
    return (digest, made["prompt"], made["answer"]) == (row["sha256"], whole, row["answer"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [{"text": f"Line {number} is about the sea and the land. "} for number in range(30)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return tmp_path


@pytest.fixture(scope="module")
def script_template(vectors: Path) -> dict[str, str]:
    texts = json.loads((vectors / "templates.json").read_text(encoding="utf-8"))
    prompt = texts["cdme_v0_script|guided=False|Chinese"]
    guided = texts["cdme_v0_script|guided=True|Chinese"]
    return {"prompt": prompt, "guided_suffix": guided.removeprefix(prompt)}


def test_files_equal_the_first_script(
    vectors: Path, script_template: dict[str, str], tmp_path: Path
) -> None:
    wanted = rows(vectors / "cdme_v0_script.jsonl")
    for row in wanted:
        params = row["params"]
        run = (params["intervals"], params["interval_type"], params["guided"])
        out = tmp_path / "-".join(map(str, run))
        if not out.exists():
            write_script(vectors, out, script_template, *run)
        found = rows(out / params["output_file"])[row["index"]]
        assert same(found, row), params
        assert set(found) == {"prompt", "answer"}
    assert len(wanted) >= 650


def write_script(
    vectors: Path,
    out: Path,
    template: dict[str, str],
    intervals: int,
    interval_type: str,
    guided: bool,
) -> None:
    lengths = sorted(
        {
            row["params"]["length"]
            for row in rows(vectors / "cdme_v0_script.jsonl")
            if (row["params"]["intervals"], row["params"]["interval_type"])
            == (intervals, interval_type)
        }
    )
    first = rows(vectors / "cdme_v0_script.jsonl")[0]["params"]
    generate(
        vectors / "input",
        out,
        lengths,
        intervals,
        first["needle"],
        first["question"],
        guided,
        10,
        200,
        "gpt-4",
        ["zh_finance.jsonl"],
        template,
        interval_type=interval_type,
    )


def test_one_file_with_length_and_depth_equals_the_second_script(
    vectors: Path, script_template: dict[str, str], tmp_path: Path
) -> None:
    wanted = rows(vectors / "cdme_v0b_dec29.jsonl")
    first = rows(vectors / "cdme_v0_script.jsonl")[0]["params"]
    (file,) = generate(
        vectors / "input",
        tmp_path,
        sorted({row["params"]["length"] for row in wanted}),
        5,
        first["needle"],
        first["question"],
        True,
        10,
        200,
        "gpt-4",
        ["zh_finance.jsonl"],
        script_template,
        layout="processed",
    )
    assert file.name == "zh_finance_processed.jsonl"
    made = rows(file)
    assert len(made) >= len(wanted) >= 85
    for row in wanted:
        found = made[row["index"]]
        assert same(found, row)
        assert (found["length"], found["depth"]) == (
            row["params"]["length"],
            row["params"]["depth"],
        )


def script(folder: Path, out: Path, **change: Any) -> tuple[Path, ...]:
    settings: dict[str, Any] = {
        "context_lengths": [60],
        "document_depth_percent_intervals": 3,
        "needle": " Needle. ",
        "retrieval_question": "Where?",
        "guided": False,
        "num_records_per_file": 2,
        "length_buffer": 10,
        "tokenizer_model": "gpt-4",
        "file_list": ["a.jsonl"],
        "template": PLAIN,
    }
    return generate(folder, out, **settings | change)


def test_the_script_deletes_nothing_that_is_not_its_own(folder: Path, tmp_path: Path) -> None:
    """The original removes its whole output folder first."""
    kept = tmp_path / "out" / "Length60Depth0" / "mine.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("mine", encoding="utf-8")
    files = script(folder, tmp_path / "out")
    assert files == script(folder, tmp_path / "out")
    assert [len(rows(file)) for file in files] == [2, 2, 2]
    assert kept.read_text(encoding="utf-8") == "mine"
    assert sorted(kept.parent.iterdir()) == [files[0], kept]


def test_depths_that_share_a_file_name_are_reported(folder: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="depth .* replaces"):
        script(
            folder, tmp_path / "out", document_depth_percent_intervals=20, interval_type="sigmoid"
        )


def test_an_unfinished_last_record_is_dropped(folder: Path, tmp_path: Path) -> None:
    assert [
        len(rows(file)) for file in script(folder, tmp_path / "out", context_lengths=[4000])
    ] == [0] * 3


def test_script_settings_that_cannot_work_are_said(folder: Path, tmp_path: Path) -> None:
    for change, words in (
        ({"layout": "folder"}, "Did you mean 'folders'"),
        ({"interval_type": "cubic"}, "linear, sigmoid"),
        ({"document_depth_percent_intervals": 0}, "at least 1"),
        ({"guided": True}, "guided_suffix"),
    ):
        with pytest.raises(SettingsError, match=words):
            script(folder, tmp_path, **change)
