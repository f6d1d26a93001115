"""`needlemap report --log`: what Weights & Biases and TensorBoard keep of a run, read back."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

wandb = pytest.mark.skipif(find_spec("wandb") is None, reason="wandb is not installed")


@pytest.fixture(scope="module")
def reports(tmp_path_factory, command_in):
    """A folder with two runs of the baseline, and a home of its own for wandb."""
    folder = tmp_path_factory.mktemp("log")
    command = command_in(folder)
    private = {
        name: value for name, value in command.environment.items() if not name.startswith("WANDB_")
    }
    command.environment = {**private, "HOME": str(folder / "home"), "WANDB_MODE": "offline"}
    grid = (
        "--model",
        "baseline/bm25",
        "--lengths",
        "500,900",
        "--depths",
        "0,50,100",
        "--repeats",
        "2",
    )
    command("run", *grid, "-o", "r")
    command("run", *grid, "--model-options", "window=60", "-o", "short")
    yield command
    command.end()


def kept(file: Path) -> Iterator[Any]:
    """The records of a .wandb file, which is a log of LevelDB's: pieces in blocks of 32 kB.

    A piece: checksum, size, kind (1 whole, 2 the first, 3 in the middle, 4 the last), bytes.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, whole = file.read_bytes(), 7, b""
    while at + 7 < len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            yield Record.FromString(whole)
            whole = b""


def values(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


@pytest.fixture(scope="module")
def logged(reports) -> list[Path]:
    """The folders that wandb made of both runs, in a process of its own."""
    ended = reports.process("report", "r", "short", "--log", "wandb:team/needles", "--step", "1000")
    assert ended.stdout == ""
    said = ended.stderr.splitlines()
    assert all(
        line.startswith("wandb sync wandb/offline-run-") for line in said
    )  # nothing of wandb's own
    return [reports.folder / line.split()[-1] for line in said]


def records_in(folder: Path) -> list[Any]:
    (file,) = folder.glob("*.wandb")
    return list(kept(file))


@wandb
def test_wandb_keeps_scores_settings_figure_and_cells(logged):
    folder = logged[0]
    records = {record.WhichOneof("record_type"): record for record in records_in(folder)}
    run, history = records["run"].run, values(records["history"].history.item)

    assert (run.entity, run.project, run.display_name) == ("team", "needles", "baseline/bm25@r")
    config = values(run.config.update)
    assert (config["model"], config["repeats"], config["mode"]) == ("baseline/bm25", 2, "exact")
    assert config["about/tokenizer"].startswith("cl100k_base ")
    assert history["_step"] == 1000
    assert (history["score/overall"], history["score/n"], history["score_at_length/900"]) == (
        100,
        12,
        100,
    )
    assert history["effective_length/absolute_85"] == 900
    assert (folder / "files" / history["map/path"]).read_bytes().startswith(b"\x89PNG")
    cells = json.loads((folder / "files" / history["cells/path"]).read_bytes())
    assert cells["columns"][:5] == ["run", "model", "task", "length_tokens", "depth_percent"]
    assert [row[3:5] for row in cells["data"]] == [
        [length, depth] for length in (500, 900) for depth in (0, 50, 100)
    ]


@wandb
def test_wandb_is_told_nothing_of_the_machine(reports, logged):
    records = [record for folder in logged for record in records_in(folder)]
    assert {record.run.host for record in records if record.HasField("run")} == {""}
    told = " ".join(
        str(record) for record in records if record.WhichOneof("record_type") != "artifact"
    )
    for private in (socket.gethostname(), str(reports.folder), os.environ.get("USER", "-no user-")):
        assert not re.search(
            rf"(?<!\w){re.escape(private)}(?!\w)", told
        )  # a random id may hold a short name


@wandb
def test_two_runs_are_two_there(logged):
    records = [record for folder in logged for record in records_in(folder)]
    names = [record.run.display_name for record in records if record.HasField("run")]
    assert names == ["baseline/bm25@r", "baseline/bm25@short"]


@wandb
def test_who_is_not_logged_in_is_told_what_to_type(reports, monkeypatch):
    monkeypatch.setitem(reports.environment, "WANDB_MODE", "online")
    ended = reports.process("report", "r", "--log", "wandb:needles", code=2)
    assert ended.stderr == (
        "needlemap: Weights & Biases: No API key configured. Use `wandb login` to log in. "
        "To keep runs on this machine instead, set WANDB_MODE=offline.\n"
    )


def test_tensorboard_has_a_folder_a_run_and_a_file_may_be_written_too(reports, typed):
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="tensorboard is not installed",
    )
    ended = typed(
        "report", "r", "short", "--log", "tensorboard:tb", "-o", "cells.csv", folder=reports.folder
    )
    assert ended.stderr == "cells.csv\ntensorboard --logdir tb\n"
    scores = {}
    for folder in (reports.folder / "tb").iterdir():
        events = accumulator.EventAccumulator(str(folder))
        events.Reload()
        scores[folder.name] = events.Scalars("score/overall")[0].value
        assert events.Images("map")[0].width > 300
    assert scores["baseline-bm25@r"] == 100 > scores["baseline-bm25@short"]


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (
            "wand:x",
            "Cannot log to 'wand'. Did you mean 'wandb'? Known: tensorboard, wandb. Write --log "
            "wandb:",
        ),
        ("wandb", "Log to which project? Write --log wandb:PROJECT or --log tensorboard:FOLDER."),
        ("tensorboard:", "Log to which folder?"),
    ],
)
def test_where_to_is_said_wholly_or_nothing_is_done(reports, typed, where, said):
    ended = typed("report", "r", "--log", where, "-o", "never.csv", code=2, folder=reports.folder)
    assert said in ended.stderr
    assert not (reports.folder / "never.csv").exists()
