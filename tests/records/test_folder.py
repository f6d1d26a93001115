"""A run's folder on a disk that fails, and records that others wrote."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import os
import re
from pathlib import Path

import pytest

from needlemap import files
from needlemap.errors import NeedlemapError
from needlemap.records import RunFile
from needlemap.records import folder as store
from needlemap.records.document import write_json
from needlemap.records.folder import RunFolder, Writer
from needlemap.records.record import Record


def record(key: str, **changed) -> Record:
    fields = {"task": "t", "model": "m", "length_tokens": 1, "depth": 0.5, "repeat": 0, "seed": 0}
    return Record(key=key, **fields | changed)


def test_records_come_back_as_written_in_the_order_of_their_files(tmp_path):
    folder = RunFolder(tmp_path)
    written = [
        record("1", score=1.0, depth=1 / 3, answer="\u2028 é 中\n"),
        record("2"),
        record("3"),
    ]
    for one in written:
        writer = Writer(folder)
        asyncio.run(writer.append(one))
        writer.close()
    assert list(folder.records()) == written
    assert len(list(tmp_path.glob("records-*.jsonl"))) == 3


def test_a_full_disk_is_no_news_to_callers_that_were_cancelled(tmp_path, monkeypatch):
    told: list[dict] = []

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def cancelled(writer: Writer) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        tasks = [asyncio.create_task(writer.append(record(str(number)))) for number in range(5)]
        await asyncio.sleep(0)
        for task in tasks[1:]:
            task.cancel()
        assert isinstance((await asyncio.gather(*tasks, return_exceptions=True))[0], OSError)
        await asyncio.get_running_loop().run_in_executor(writer._thread, int)  # behind all writing
        await asyncio.sleep(0.01)
        del tasks
        gc.collect()

    monkeypatch.setattr(store, "_write", full)
    writer = Writer(RunFolder(tmp_path))
    asyncio.run(cancelled(writer))
    writer.close()
    assert told == []


def test_a_record_reaches_the_disk_though_its_writer_is_cancelled(tmp_path):
    async def cancelled(writer: Writer) -> None:
        tasks = [asyncio.create_task(writer.append(record(str(number)))) for number in range(5)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    writer = Writer(RunFolder(tmp_path))
    asyncio.run(cancelled(writer))
    writer.close()
    assert [one.key for one in RunFolder(tmp_path).records()] == list("01234")


def test_a_full_disk_leaves_no_half_line(tmp_path, monkeypatch):
    writer = Writer(RunFolder(tmp_path))
    asyncio.run(writer.append(record("1")))
    whole = store._write

    def half(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store, "_write", half)
    with pytest.raises(OSError, match="No space left"):
        asyncio.run(writer.append(record("2")))
    monkeypatch.setattr(store, "_write", whole)
    asyncio.run(writer.append(record("3")))
    writer.close()
    assert [one.key for one in RunFolder(tmp_path).records()] == ["1", "3"]


def test_a_second_writer_is_refused_and_a_third_is_not_once_the_first_is_gone(tmp_path):
    first = Writer(RunFolder(tmp_path))
    with pytest.raises(NeedlemapError, match="Another needlemap is writing to"):
        Writer(RunFolder(tmp_path))
    first.close()
    Writer(RunFolder(tmp_path)).close()


def test_what_is_no_record_is_passed_over(tmp_path):
    good = record("1").line()
    lines = [b"\xff\xfe\n", b"{}\n", b"[1]\n", b"\n", good[:-10], b"\n", good, good.rstrip(b"\n")]
    (tmp_path / "records-1.jsonl").write_bytes(b"".join(lines))
    assert [one.key for one in RunFolder(tmp_path).records()] == ["1", "1"]


def test_a_record_of_a_later_version_keeps_what_is_known_of_it(tmp_path):
    later = record("1").line().replace(b'{"schema":2', b'{"mood":"fine","schema":2')
    (tmp_path / "records-1.jsonl").write_bytes(later)
    assert [one.key for one in RunFolder(tmp_path).records()] == ["1"]


ABOUT = {
    "schema": 2,
    "settings": {"model": "m", "task": "t", "mode": "exact", "seed": 0},
    "tokenizer": {"name": "n", "fingerprint": ""},
    "scorer": {"name": "s", "options": {}},
    "cells": [[1, 0.5, [0]]],
}


def folder_of(path: Path, *lines: bytes, **about) -> RunFolder:
    (path / "run.json").write_text(json.dumps(ABOUT | about))
    (path / "records-1.jsonl").write_bytes(b"".join(lines))
    return RunFolder(path)


def test_records_of_another_run_are_left_out_and_counted(tmp_path):
    """Lines of a run with another seed, pasted in, once turned 100 % into 50 % without a word."""
    others = [record("1"), record("2", run="abc")]
    lines = [each.line() for each in (*others, record("3", run="def"))]
    folder = folder_of(tmp_path, *lines, identity="def")
    assert [one.key for one in folder.records()] == ["3"]
    assert folder.left_out.notes() == ["2 records of another run, left out"]


def test_lines_that_are_no_record_are_counted_and_a_torn_end_is_told_apart(tmp_path):
    good = record("1").line()
    folder = folder_of(tmp_path, good, b"{}\n", b"\0\0\0\n", b"\n", good, good[:-9])
    assert len(list(folder.records())) == 2
    notes = ["2 lines unreadable, left out", "1 line cut off by a kill or a full disk, left out"]
    assert folder.left_out.notes() == notes


def test_pipes_devices_and_links_to_them_are_no_records_files_and_no_run(tmp_path):
    """Reading them never ended."""
    folder = folder_of(tmp_path, record("1").line())
    os.mkfifo(tmp_path / "records-2.jsonl")
    (tmp_path / "records-3.jsonl").symlink_to("/dev/zero")
    assert [one.key for one in folder.records()] == ["1"]
    assert folder.left_out.notes() == [f"'records-{n}.jsonl' is no file, left out" for n in (2, 3)]
    (tmp_path / "run.json").unlink()
    os.mkfifo(tmp_path / "run.json")
    with pytest.raises(NeedlemapError, match=r"No run at"):
        folder.about()


def test_a_line_longer_than_any_record_ends_its_file(tmp_path, monkeypatch):
    long = b"x" * 2000
    folder = folder_of(tmp_path, record("1").line(), long + b"\n", record("2").line())
    monkeypatch.setattr(files, "MOST_LINE", 1000)
    assert [one.key for one in folder.records()] == ["1"]
    assert folder.left_out.notes() == ["1 line unreadable, left out"]


ABSURD = [
    "1e999",
    "-1e999",
    "NaN",
    "-5",
    "9" * 400,
    '"x"',
    "[]",
    "{}",
    "null",
    "true",
    "1.5",
    "1e30",
]
OPTIONAL = [
    "prompt_tokens",
    "cached_tokens",
    "shared_tokens",
    "completion_tokens",
    "thinking_tokens",
]


@pytest.mark.parametrize("name", [*OPTIONAL, "usd", "latency_s"])
def test_a_side_note_that_is_no_number_is_missing_and_the_score_stays(tmp_path, name):
    lines = [record(str(at), score=1.0).line() for at in range(len(ABSURD))]
    broken = [
        line.replace(f'"{name}":null'.encode(), f'"{name}":{value}'.encode())
        for line, value in zip(lines, ABSURD, strict=True)
    ]
    found = list(folder_of(tmp_path, *broken).records())
    assert len(found) == len(ABSURD)
    values = {getattr(each, name) for each in found}
    assert values - {None} <= ({1.5, 1.0} if name in ("usd", "latency_s") else {1})


@pytest.mark.parametrize("name", ["length_tokens", "depth", "repeat", "seed", "score", "attempts"])
def test_a_record_whose_numbers_are_none_is_left_out(tmp_path, name):
    written = '"score":1.0' if name == "score" else f'"{name}":{record("1").model_dump()[name]}'
    line = record("1", score=1.0).line()
    assert written.encode() in line
    absurd = ["1e999", "NaN", "-1e400", "9" * 400, "[]", "1e30"]
    broken = [line.replace(written.encode(), f'"{name}":{value}'.encode()) for value in absurd]
    folder = folder_of(tmp_path, line, *broken)
    assert len(list(folder.records())) == 1
    assert folder.left_out.unreadable == len(absurd)


def test_what_a_provider_said_is_kept_without_numbers_that_no_program_reads():
    deep: list = []
    for _ in range(200):
        deep = [deep]
    usage = {"a": float("inf"), "b": 10**400, "c": {"d": [1, float("nan")]}, "deep": deep}
    kept = record("1", usage=usage).usage
    assert (kept["a"], kept["b"], kept["c"]) == (None, None, {"d": [1, None]})
    assert len(json.dumps(kept, allow_nan=False)) < 500


def test_nothing_is_written_through_a_link_in_the_folder(tmp_path):
    """run.tmp, contexts and .lock were opened by name: a link there led to a file of the user's."""
    mine, folder = tmp_path / "mine", tmp_path / "r"
    mine.write_text("mine")
    folder.mkdir()
    for name in ("run.tmp", "run.json", ".lock"):
        (folder / name).symlink_to(mine)
    write_json(folder / "run.json", {"a": 1})
    assert (folder / "run.json").read_text() == '{\n "a": 1\n}'
    with pytest.raises(NeedlemapError, match="is a link, or no file"):
        Writer(RunFolder(folder))
    assert mine.read_text() == "mine"
    assert not [
        file for file in folder.iterdir() if file.suffix == ".tmp" and file.name != "run.tmp"
    ]


def test_a_run_is_its_owners_alone(tmp_path):
    writer = Writer(RunFolder(tmp_path / "runs" / "r"))
    writer.describe(RunFile.model_validate(ABOUT))
    asyncio.run(writer.append(record("1")))
    writer.close()
    folder = tmp_path / "runs" / "r"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    assert (tmp_path / "runs").stat().st_mode & 0o777 != 0o700


@pytest.mark.parametrize(
    "cells",
    [
        [[10**30, 0.5, [0]]],
        [[1, 0.5, [10**30]]],
        [[at + 1, at / 20_000, [0]] for at in range(20_000)],
        [[1, 0.5, list(range(1_000_001))]],
        [[1, 1.5, [0]]],
    ],
    ids=["length", "repeat", "places", "trials", "depth"],
)
def test_a_run_file_of_more_than_any_run_has_is_refused_in_words(tmp_path, cells):
    """Maps are arrays: twenty thousand lengths at a depth each took all memory."""
    with pytest.raises(NeedlemapError, match=r"run.json' is not a run's: cells"):
        folder_of(tmp_path, cells=cells).about()


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({}, "'model' is missing, or no text"),
        ({"label": 1}, "'label' is no text"),
        ({"seek": "85"}, "'seek' is no number"),
        ({"until": None}, "'until' is no text"),
    ],
)
def test_what_is_wrong_with_a_run_json_is_said_in_our_words(tmp_path, settings, wrong):
    """A `seek` of a text ended a report in a traceback."""
    whole = {**ABOUT["settings"], **settings} if settings else {}
    with pytest.raises(NeedlemapError, match=re.escape(f"is not a run's: settings: {wrong}.")):
        folder_of(tmp_path, settings=whole).about()


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ({"imported": "x"}, "imported: Input should be an object"),
        ({"imported": {"files": [1]}}, "imported.files.0: Input should be an object"),
        ({"packages": []}, "packages: Input should be an object"),
        ({"signed": 5}, "signed: Input should be a valid string"),
        ({"tokenizer": {}}, "tokenizer.name: Field required"),
    ],
)
def test_a_part_of_another_shape_is_refused_in_words(tmp_path, part, wrong):
    with pytest.raises(NeedlemapError, match=re.escape(f"is not a run's: {wrong}.")):
        folder_of(tmp_path, **part).about()


def test_fields_of_a_later_version_are_read_over_and_kept(tmp_path):
    later = {"compaction": {"folds": 3}, "imported": {"files": [], "by": "hand"}}
    about = folder_of(tmp_path, **later).about()
    assert about.document() == {**ABOUT, **later}
    changed = about.with_settings({"label": "x"})
    assert changed.document()["compaction"] == {"folds": 3}
    assert changed.settings == {**ABOUT["settings"], "label": "x"}
