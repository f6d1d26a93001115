"""What was added to a run's records since the last look."""

from __future__ import annotations

import asyncio

from needlemap.runs.record import Record
from needlemap.runs.store import RunFolder, Writer
from needlemap.runs.tail import Tail


def record(key: str) -> Record:
    return Record(key=key, task="t", model="m", length_tokens=1, depth=0.5, repeat=0, seed=0)


def keys(tail: Tail) -> list[str]:
    return [one.key for one in tail.new()]


def test_each_record_is_seen_once_whoever_wrote_it(tmp_path):
    first, second = (Writer(RunFolder(tmp_path), shared=True) for _ in range(2))
    tail, others = Tail(tmp_path), Tail(tmp_path, besides=second.name)
    assert keys(tail) == []
    asyncio.run(first.append(record("1")))
    assert keys(tail) == ["1"]
    asyncio.run(second.append(record("2")))
    asyncio.run(first.append(record("3")))
    assert sorted(keys(tail)) == ["2", "3"]
    assert keys(tail) == []
    assert keys(others) == ["1", "3"]
    first.close()
    second.close()


def test_a_line_is_seen_when_it_is_whole_and_a_torn_one_never(tmp_path):
    line, tail = record("1").line(), Tail(tmp_path)
    file = tmp_path / "records-1.jsonl"
    for size in (0, 1, len(line) // 2, len(line) - 1):
        file.write_bytes(line[:size])
        assert keys(tail) == []
    file.write_bytes(line + line[: len(line) // 2] + b"\n" + record("2").line())
    assert keys(tail) == ["1", "2"]
