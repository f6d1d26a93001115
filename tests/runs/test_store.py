"""A run's folder on a disk that fails, and records that others wrote."""

from __future__ import annotations

import asyncio
import errno
import gc
import os

import pytest

from needlemap.errors import NeedlemapError
from needlemap.runs import store
from needlemap.runs.record import Record
from needlemap.runs.store import RunFolder, Writer


def record(key: str, **changed) -> Record:
    fields = {"task": "t", "model": "m", "length_tokens": 1, "depth": 0.5, "repeat": 0, "seed": 0}
    return Record(key=key, **fields | changed)


def test_records_come_back_as_written_in_the_order_of_their_files(tmp_path):
    folder = RunFolder(tmp_path)
    written = [record("1", score=1.0, depth=1 / 3, answer="\u2028 é 中\n"), record("2"), record("3")]
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
    later = record("1").line().replace(b'{"schema":1', b'{"mood":"fine","schema":1')
    (tmp_path / "records-1.jsonl").write_bytes(later)
    assert [one.key for one in RunFolder(tmp_path).records()] == ["1"]
