"""A series of checkpoints: a table, a chart and a figure by step, from the runs of its steps."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import needlemap
from needlemap.errors import SettingsError
from needlemap.records.loaded import load_run
from needlemap.reports.renderers.json import to_json
from needlemap.reports.renderers.markdown import to_markdown
from needlemap.reports.renderers.text import to_text
from needlemap.training.figure import draw_series
from needlemap.training.report import series_report, steps_of

GRID = {"lengths": [128, 256], "depths": [0, 100], "repeats": 4, "max_answer_tokens": 16}


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("series") / "run"
    needlemap.run(**GRID, model="demo/retriever", scorer="recovery", step=200, out=folder)
    return folder


@pytest.fixture
def series(asked, tmp_path):
    """Runs of one training, by the share of its gain that each step has: of the model in the box,
    with records that say less."""

    def make(**shares):
        runs = []
        for name, share in shares.items():
            step, folder = int(name.removeprefix("step")), tmp_path / name
            shutil.copytree(asked, folder)
            about = json.loads((folder / "run.json").read_text())
            about["settings"]["step"] = step
            (folder / "run.json").write_text(json.dumps(about))
            for file in folder.glob("records-*.jsonl"):
                rows = [json.loads(line) for line in file.read_text().splitlines()]
                for row in rows:
                    at = share if row["length_tokens"] == 128 else share / 4
                    row["scorer"]["ratio"] = [
                        at * row["scorer"]["ratio"][1],
                        *row["scorer"]["ratio"][1:],
                    ]
                    row["scorer"]["why"]["first_choice"] = share > 0.7
                file.write_text("".join(json.dumps(row) + "\n" for row in rows))
            runs.append(load_run(folder))
        return runs

    return make


def test_steps_ascend_each_with_its_recovery_by_length_and_where_that_crosses_one_half(series):
    report = series_report(series(step1000=0.8, step200=0.3))
    rows = to_json(report)["steps"]
    assert [row["step"] for row in rows] == [200, 1000]
    scores = [[each["score"] for each in row["lengths"]] for row in rows]
    assert scores == [pytest.approx([30, 7.5], abs=0.01), pytest.approx([80, 20], abs=0.01)]
    assert all(each["low"] <= each["score"] <= each["high"] for each in rows[0]["lengths"])
    assert rows[0]["crosses_half"]["value"] == 0
    assert 128 < rows[1]["crosses_half"]["value"] < 256
    assert [step for step, _ in steps_of(report)] == [200, 1000]


def test_accuracy_on_the_same_items_is_a_dotted_line_and_a_table(series):
    report = series_report(series(step1=0.3, step2=0.8))
    assert [(line.name, line.dotted) for line in report.chart] == [
        ("step 1", False),
        ("accuracy at step 1", True),
        ("step 2", False),
        ("accuracy at step 2", True),
    ]
    text = to_text(report)
    assert "accuracy by step: each token of the value is the model's first choice" in text
    by_step = [row["accuracy"][0]["score"] for row in to_json(report)["steps"]]
    assert by_step == [0, 100]
    assert "crosses 50 %" in to_markdown(report)


def test_the_figure_has_a_line_a_step_its_accuracy_dotted_and_the_crossing_beside_it(series):
    report = series_report(series(step1=0.3, step2=0.8, step3=0.9))
    drawn = "".join(draw_series(report, title=None, width=None).parts)
    for words in ("step 1", "step 2", "step 3", "Length at 50 %, by step", "Training step"):
        assert words in drawn
    assert drawn.count('stroke-dasharray="0.8 1.6"') == 3
    assert "Dotted: accuracy on the same items" in drawn


def test_a_score_that_forces_no_answer_has_no_accuracy_of_its_own(tmp_path):
    runs = [
        needlemap.run(**GRID, model="demo/retriever", step=step, out=tmp_path / f"{step}")
        for step in (1, 2)
    ]
    report = series_report([load_run(run.path) for run in runs])
    assert report.title == "Score by step, single, 2 steps"
    assert [line.name for line in report.chart] == ["step 1", "step 2"]


def test_steps_that_have_scores_of_other_prompts_are_said_to(series):
    first, second = series(step1=0.3, step2=0.8)
    file = next(iter(Path(second.path).glob("records-*.jsonl")))
    file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))
    text = to_text(series_report([first, load_run(second.path)]))
    assert "do not have scores of the same prompts: 15 to 16 a step, 15 of them at every" in text


def test_a_run_without_a_step_says_what_to_type(series, tmp_path):
    needlemap.run(**GRID, model="demo/retriever", scorer="recovery", out=tmp_path / "none")
    with pytest.raises(SettingsError, match=r"--model 'hf/run/step-\*', or type its command"):
        series_report([*series(step1=0.5), load_run(tmp_path / "none")])


def test_two_runs_of_one_step_are_no_series(series):
    with pytest.raises(SettingsError, match="are both of step 5"):
        series_report(series(step5=0.5, step05=0.6))


def test_a_finished_run_takes_a_step_and_asks_nothing(tmp_path):
    given = {**GRID, "model": "demo/retriever", "out": tmp_path / "run"}
    needlemap.run(**given)
    needlemap.run(**given, step=30)
    needlemap.run(**given)
    assert load_run(tmp_path / "run").about.named.step == 30
