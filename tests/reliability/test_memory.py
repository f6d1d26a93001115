"""Memory that a stranger's file takes is bounded by its size before it is read as JSON."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from needlemap.errors import NeedlemapError
from needlemap.files import read_json
from needlemap.interop.imported import ImportOptions, imported
from needlemap.interop.sources import read
from needlemap.records.folder import RunFolder

MANY = b"[" + b"[]," * 1_500_000 + b"[]]"


def test_a_text_of_many_empty_parts_is_refused_before_it_is_read():
    with pytest.raises(ValueError, match="more than 1,"):
        read_json(MANY)
    with pytest.raises(ValueError, match="more than 1,"):
        read_json(MANY.decode())
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json(b"[" * 100_000)
    assert len(read_json(b"[" + b'"a sound text, with commas",' * 200_000 + b"1]")) == 200_001


@pytest.mark.parametrize("data", [MANY, b'{"schema": 2, "cells": ' + MANY + b"}"])
def test_such_a_run_file_is_refused_in_words(tmp_path, data):
    """48 MB of it took 3.9 GB and 94 s."""
    (tmp_path / "run.json").write_bytes(data)
    with pytest.raises(NeedlemapError, match="names no schema that can be read"):
        RunFolder(tmp_path).about()


def test_such_a_record_is_left_out(typed):
    typed("run", "bm25", "--lengths", "500", "--depths", "50", "-o", "r")
    (typed.folder / "r" / "records-9.jsonl").write_bytes(b'{"x": ' + MANY + b"}\n")
    assert "1 line unreadable, left out" in typed("report", "r").stdout


def log_of(folder: Path, answers: list[str], **more: object) -> Path:
    """A log of Inspect, packed."""
    file = folder / "log.eval"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        head = {"version": 2, "status": "success", "eval": {"model": "m", "task": "t"}}
        packed.writestr("header.json", json.dumps(head))
        for number, answer in enumerate(answers):
            sample = {
                "id": number + 1,
                "epoch": 1,
                "input": "?",
                "target": "x",
                "output": {"completion": answer},
                "scores": {"s": {"value": "C"}},
                **more,
            }
            packed.writestr(f"samples/{number}_epoch_1.json", json.dumps(sample))
    return file


def test_a_log_that_unpacks_to_far_more_than_its_size_is_refused(tmp_path):
    """10 MB of such a log were still being read at 2.4 GB."""
    file = log_of(tmp_path, ["a" * 60_000_000] * 5)
    with pytest.raises(NeedlemapError, match="larger than any log that is read"):
        read([file])


def test_a_log_whose_answers_are_far_larger_than_itself_is_refused(tmp_path):
    file = log_of(tmp_path, ["a" * 30_000_000] * 3)
    with pytest.raises(NeedlemapError, match="its answers have more than 64 MB"):
        read([file])


def test_a_sample_of_many_empty_parts_is_refused(tmp_path):
    file = log_of(tmp_path, ["a"], events=[[]] * 1_500_000)
    with pytest.raises(NeedlemapError, match="parts"):
        read([file])


@pytest.mark.parametrize("length", [1e308, -1, 1e13, float("inf")])
def test_a_length_that_is_none_is_words(tmp_path, length):
    """1e308 ended in a traceback."""
    row = {"model": "m", "context_length": length, "depth_percent": 50.0, "score": 10}
    file = tmp_path / "p.json"
    file.write_text(json.dumps([row]))
    with pytest.raises(NeedlemapError, match=r"whole number|must be a number"):
        imported(read([file]).sources, ImportOptions())
