"""`needlemap import`: folders and files of other tools become runs that report like our own."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest

from needlemap.records.folder import RunFolder


def result(**changed: object) -> str:
    fields = {
        "model": "m/1",
        "context_length": 1000,
        "depth_percent": 50.0,
        "version": 1,
        "needle": "N",
    }
    return json.dumps(fields | {"model_response": "A", "score": 7} | changed)


@pytest.fixture
def folder(tmp_path):
    """A folder as needlehaystack leaves it: results beside contexts, one test made twice."""
    results = tmp_path / "results"
    results.mkdir()
    (results / "a_results.json").write_text(result())
    (results / "a_results_2.json").write_text(result(version=2, score=10))
    (results / "b_results.json").write_text(result(depth_percent=0.0, score=1))
    return results


def test_a_folder_of_results_is_a_run(typed, folder):
    ended = typed("import", folder, "-o", "r", "--dataset-length", "200K")
    assert (
        ended.stderr
        == "r: m/1 · single · 3 results in 2 cells, 0 missing · overall 41.7 (4.7500 on 1..10)\n"
    )
    run = RunFolder(typed.folder / "r")
    assert run.about().cells == [(1000, 0.0, [0]), (1000, 0.5, [0, 1])]
    files = run.about().imported.files
    assert [file.name for file in files] == [
        "a_results.json",
        "a_results_2.json",
        "b_results.json",
    ]
    assert files[0].sha256 == sha256((folder / "a_results.json").read_bytes()).hexdigest()
    assert run.about().title.startswith("m/1 200K Context Performance\n")
    assert [(record.repeat, record.scorer.native) for record in run.records()] == [
        (0, 7),
        (1, 10),
        (0, 1),
    ]
    assert typed("report", "r").stdout.startswith(
        "m/1 · single · tokenizer unknown · scorer judge · mode imported"
    )


def test_the_overall_score_of_an_uneven_grid_is_that_of_its_report(typed, folder):
    (folder / "c_results.json").write_text(result(context_length=2000, score=10))
    ended = typed("import", folder, "-o", "r")
    assert ended.stderr.endswith(" · overall 61.1 (6.5000 on 1..10)\n")
    assert "overall 61.1 (n=3, 0 missing)" in typed("report", "r").stdout


def test_the_folder_above_the_results_will_do(typed, folder):
    assert "3 results" in typed("import", folder.parent, "-o", "r").stderr


def test_what_is_no_result_in_a_folder_is_left_out_with_a_word(typed, folder):
    (folder / "torn.json").write_text(result()[:30])
    (folder / "other.json").write_text("{}")
    lines = typed("import", folder, "-o", "r").stderr.splitlines()
    assert lines[0].startswith("left out: other.json: no needlehaystack result.")
    assert lines[1].startswith("left out: torn.json: not readable as JSON")
    assert "3 results" in lines[2]


def test_a_result_that_comes_twice_is_a_repeat_and_is_said(typed, folder):
    lines = typed("import", folder, folder / "a_results.json", "-o", "r").stderr.splitlines()
    assert "4 results in 2 cells" in lines[0]
    assert lines[1] == "  1 results came again for the same cell and version: counted as repeats"


def test_two_models_are_two_runs_with_names_that_are_folders(typed, folder):
    (folder / "c_results.json").write_text(result(model="m-1"))
    (folder / "d_results.json").write_text(result(model="../x"))
    typed("import", folder, "-o", "both")
    assert sorted(path.name for path in (typed.folder / "both").iterdir()) == ["m-1", "m-1-2", "x"]


def test_files_that_name_no_model_can_be_given_one(typed, tmp_path):
    data = json.dumps([{"token_limit": 1000, "depth_percent": 0, "score": 10}])
    for name in ("OpenAI.json", "OpenAI_2.json"):
        (tmp_path / name).write_text(data)
    ended = typed(
        "import", "OpenAI.json", "OpenAI_2.json", "-o", "r", "--model", "gpt-4-1106-preview"
    )
    assert ended.stderr.endswith(
        "2 results in 1 cells, 0 missing · overall 100.0 (10.0000 on 1..10)\n"
    )
    assert "--model NAME" in typed("import", "OpenAI.json", "-o", "s").stderr


def test_version_2_lines_come_with_their_realised_depth_and_failures(typed, tmp_path):
    row = {
        "context_length": 2000,
        "target_depth_percent": 50,
        "model_id": "m",
        "score": {"value": 0.5},
    }
    placed = {"recipe": {"needle_placements": [{"text": "N", "actual_depth_percent": 48}]}}
    failed = {"target_depth_percent": 90, "score": None, "error": "timeout"}
    (tmp_path / "r.jsonl").write_text(
        "".join(json.dumps(row | more) + "\n" for more in (placed, failed))
    )
    typed("import", "r.jsonl", "-o", "r")
    typed("report", "r", "-o", "cells.csv")
    lines = (tmp_path / "cells.csv").read_text().splitlines()
    assert lines[1].startswith("r,m,single,2000,50.0,48.0,50.0,1,")
    assert lines[2] == "r,m,single,2000,90.0,90.0,,0,,,1,no result: 1"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.csv", "a,b\n1,2\n", "x.csv: unknown columns a,b."),
        ("x.csv", "context_length,depth_percent,score\n", "x.csv: no results in it."),
        ("x.csv", b"\xff\xfe", "x.csv: not readable as UTF-8"),
        ("x.pdf", "", "x.pdf: unknown kind of file."),
        ("x.json", "{}", "x.json: no needlehaystack result."),
        ("x.jsonl", "{}\n", "x.jsonl, line 1: no needlehaystack 2 result."),
        ("x.jsonl", "", "x.jsonl: no results in it."),
        ("x.csv", "context_length,depth_percent,score\n1000,0,1\n", "All scores are 1:"),
    ],
)
def test_a_wrong_file_gives_one_clear_line_and_no_run(typed, tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    ended = typed("import", name, "-o", "r", code=2)
    assert ended.stderr.startswith(f"needlemap: {words}")
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "r").exists()


def test_missing_and_empty_places_are_named(typed, tmp_path):
    assert (
        typed("import", "nowhere", "-o", "r", code=2).stderr
        == "needlemap: No file or folder at 'nowhere'.\n"
    )
    (tmp_path / "empty").mkdir()
    assert (
        "No results in folder 'empty'. Import reads"
        in typed("import", "empty", "-o", "r", code=2).stderr
    )


def test_an_import_never_touches_a_run_that_is_there(typed, folder):
    typed("import", folder, "-o", "r")
    before = (typed.folder / "r" / "run.json").read_bytes()
    assert "'r' holds a run already." in typed("import", folder, "-o", "r", code=2).stderr
    assert "other settings" in typed("run", "-o", "r", code=2).stderr
    assert (
        "was imported" in typed("replay", "r", "--length", "1000", "--depth", "50", code=2).stderr
    )
    assert (typed.folder / "r" / "run.json").read_bytes() == before


def test_the_same_files_give_the_same_records(typed, folder):
    for name in ("one", "two"):
        typed("import", folder, "-o", name)
    one, two = (
        (typed.folder / name / "records-imported.jsonl").read_bytes() for name in ("one", "two")
    )
    assert one == two


def test_a_title_of_a_run_is_drawn_unless_another_is_given(typed, folder):
    typed("import", folder, "-o", "r", "--dataset-length", "200K")
    typed("report", "r", "-o", "a.svg")
    typed("report", "r", "-o", "b.svg", "--title", "Mine")
    drawn = [(typed.folder / name).read_text() for name in ("a.svg", "b.svg")]
    assert ["200K Context Performance" in text for text in drawn] == [True, False]


HEAD = "dataset,version,metric,mode,good-7b,new-7b\n"
ROWS = "".join(f"CDME_Length{length}Depth0,fd5822,score,gen,90,80\n" for length in (1000, 2000))


def test_a_row_of_dashes_is_a_missing_cell_of_the_run(typed, tmp_path):
    """It made two more runs, without a result, beside the two that were there."""
    (tmp_path / "oc.csv").write_text(HEAD + ROWS + "CDME_Length3000Depth0,-,-,-,-,-\n")
    typed("import", "oc.csv", "-o", "oc")
    assert sorted(path.name for path in (tmp_path / "oc").iterdir()) == ["good-7b", "new-7b"]
    run = RunFolder(tmp_path / "oc" / "good-7b")
    assert run.about().cells == [(1000, 0.0, [0]), (2000, 0.0, [0]), (3000, 0.0, [0])]
    assert [record.score for record in run.records()] == [0.9, 0.9, None]


def test_tests_of_one_model_have_names_without_its_name_twice(typed, tmp_path):
    other = "CDME_Length1000Depth0,fd5822,accuracy,gen,70,60\n"
    (tmp_path / "oc.csv").write_text(HEAD + ROWS + other)
    typed("import", "oc.csv", "-o", "oc")
    folders = sorted((tmp_path / "oc").glob("good*"))
    assert [path.name for path in folders] == [
        "good-7b-CDME-accuracy-gen",
        "good-7b-CDME-score-gen",
    ]
    typed("report", *folders, "-o", "both.svg")
    drawn = (tmp_path / "both.svg").read_text()
    assert ">A: CDME-accuracy-gen" in drawn
    assert "good-7b@good-7b" not in drawn
    assert drawn.count("good-7b") == 1, "once, for both"
