"""TensorBoard: what its own reader finds in the event files."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

from needlemap.errors import NeedlemapError
from needlemap.interop.trackers import Logged, log_tensorboard, markdown
from needlemap.reports.table import cells_table

accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
)


PNG = bytes.fromhex(  # 2 x 1 pixels
    "89504e470d0a1a0a0000000d494844520000000200000001080200000007bd1b0f0000000b49444154789c63606060000200"
    "0500010d5a41e10000000049454e44ae426082"
)


@pytest.fixture
def told(loaded) -> Logged:
    scalars = {"score/overall": 91.3, "score/n": 23.0}
    return Logged(
        "back/end@r", {"repeats": 6, "model": "a-model"}, scalars, PNG, cells_table([loaded])
    )


def read(folder: Path) -> Any:
    """A folder's events, by TensorBoard's own reader."""
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return events


def text(events: Any, tag: str) -> str:
    (event,) = events.Tensors(tag)
    return str(event.tensor_proto.string_val[0].decode())


def test_scalars_figure_and_tables_are_read_back(told, tmp_path):
    folder = tmp_path / "my logs"
    assert log_tensorboard([told], str(folder), 1000) == [f"tensorboard --logdir '{folder}'"]
    events = read(folder)
    scalars = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
    assert {
        tag: [(event.step, event.value) for event in found] for tag, found in scalars.items()
    } == {tag: [(1000, pytest.approx(value, rel=1e-6))] for tag, value in told.scalars.items()}
    (image,) = events.Images("map")
    assert image.encoded_image_string == told.figure
    assert (image.width, image.height) == (2, 1)
    assert "| a\\-model |" in text(events, "cells")
    assert text(events, "cells").count("\n") == 1 + len(told.cells.rows)
    assert "| repeats | 6 |" in text(events, "settings")


def test_checkpoints_of_one_model_make_one_curve(told, tmp_path):
    for step in (1000, 2000):
        log_tensorboard([told], str(tmp_path), step)
    assert [event.step for event in read(tmp_path).Scalars("score/overall")] == [1000, 2000]


def test_several_runs_get_a_folder_each(told, tmp_path):
    log_tensorboard([told, dataclasses.replace(told, name="other")], str(tmp_path), 0)
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["back-end@r", "other"]
    assert read(tmp_path / "other").Scalars("score/n")[0].value == 23


@pytest.mark.parametrize("name", ["..", ".", "", "/", "a/../b", "../../x", "a\0b", "x" * 400])
def test_no_name_leads_out_of_the_typed_folder(name, told, tmp_path):
    """A run.json's model '..' wrote its events above it."""
    logs = tmp_path / "up" / "logs"
    runs = [dataclasses.replace(told, name=each) for each in (name, "other")]
    log_tensorboard(runs, str(logs), 0)
    assert [path.name for path in tmp_path.rglob("*") if path.is_dir()][:2] == ["up", "logs"]
    assert len([path for path in logs.iterdir() if path.is_dir()]) == 2
    assert all(path.parent.parent == logs for path in tmp_path.rglob("events.*"))


def test_two_names_that_are_one_folders_stay_apart(told, tmp_path):
    runs = [dataclasses.replace(told, name=each) for each in ("a/b", "a-b")]
    log_tensorboard(runs, str(tmp_path), 0)
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["a-b", "a-b-2"]


def test_a_name_is_no_markup():
    assert markdown(["a"], [["<b>[x](http://y)|\n![z]"]]).splitlines()[-1] == (
        r"| \<b\>\[x\]\(http\://y\)\| \!\[z\] |"
    )


def test_without_tensorboard_it_says_what_to_install(told, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.event_file_writer", None)
    with pytest.raises(NeedlemapError, match=r"Run: python3 \-m pip install 'tensorboard>=2\.18'"):
        log_tensorboard([told], str(tmp_path), 0)
    assert list(tmp_path.iterdir()) == []
