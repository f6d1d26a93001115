"""What is known of a run before its turn: it is never other than what its turn shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from needlemap.asking.run import Ahead, look_ahead
from needlemap.errors import NeedlemapError
from needlemap.settings.reading import configure
from needlemap.settings.suites import load_suite
from needlemap.trials.build import prepare

SMALL = {"lengths": [500, 700, 900], "depths": [0, 50, 100], "repeats": 2}


@pytest.mark.parametrize("family", load_suite("smoke").families)
def test_every_task_is_counted_without_building_its_prompts(family, tmp_path):
    settings = load_suite("smoke").settle({"repeats": 2})[family]
    assert look_ahead(settings, tmp_path / "r") == Ahead(len(prepare(settings).trials), 0)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("mode", ["exact", "single", "cold", "bins"])
def test_what_is_scored_is_counted_and_taken_for_what_it_is(typed, mode):
    """The few prompts that are looked at are those of the run, to the last bit of their keys."""
    grid = ("--lengths", "500,700,900", "--depths", "3:97:4:sigmoid", "--mode", mode)
    typed("run", "--model", "baseline/bm25", *grid, "-o", "r", "--quiet")
    given = {"lengths": "500,700,900", "depths": "3:97:4:sigmoid", "mode": mode, "repeats": 3}
    assert look_ahead(configure(None, given), typed.folder / "r") == Ahead(36, 12)


def test_prompts_that_exist_already_are_all_read(typed, monkeypatch):
    monkeypatch.chdir(typed.folder)
    rows = [
        {"input": f"{'Nothing. ' * 150}The code is {n}. What is the code?", "outputs": [str(n)]}
        for n in range(7)
    ]
    Path(typed.folder, "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    given = ("--task-options", "path=a.jsonl", "--lengths", "600", "--model", "baseline/bm25")
    typed("run", "--task", "published", *given, "-o", "r", "--quiet")
    task: dict[str, Any] = {
        "task": "published",
        "task_options": {"path": str(typed.folder / "a.jsonl")},
    }
    settings = configure(None, {**task, "lengths": "600"})
    assert look_ahead(settings, typed.folder / "elsewhere") == Ahead(7, 0)
    as_typed = configure(None, {**task, "task_options": {"path": "a.jsonl"}, "lengths": "600"})
    assert look_ahead(as_typed, typed.folder / "r") == Ahead(7, 7)


@pytest.mark.parametrize("mode", ["exact", "bins"])
def test_a_folder_of_other_settings_is_refused(typed, mode):
    grid = ("--lengths", "500,900", "--depths", "0,100", "--mode", mode)
    typed("run", "--model", "baseline/bm25", *grid, "-o", "r", "--quiet")
    given = {"lengths": "500,900", "depths": "0,100", "mode": mode}
    look_ahead(configure(None, given), typed.folder / "r")
    with pytest.raises(NeedlemapError, match="holds a run with other settings: seed"):
        look_ahead(configure(None, given | {"seed": 4}), typed.folder / "r")


def test_records_of_nobody_knows_what_run_are_refused(tmp_path):
    (tmp_path / "records-1.jsonl").touch()
    with pytest.raises(NeedlemapError, match=r"holds records but no run\.json"):
        look_ahead(configure(None, SMALL), tmp_path)
