"""Versions of a run under way: when they are made, what they hold, who gets them."""

from __future__ import annotations

import gzip
import json
import time
from threading import Thread
from typing import Any

import pytest

from needlemap.records.record import Record
from needlemap.reports.page import live as module
from needlemap.reports.page.document import packed
from needlemap.reports.page.live import PageFeed, Payload
from needlemap.reports.run_notes import Tally


def a_record(repeat: int = 0) -> Record:
    return Record(
        key=f"k{repeat}",
        task="t",
        model="m",
        length_tokens=1,
        depth=0,
        repeat=repeat,
        seed=0,
        score=1,
    )


class Counting:
    """Makes a payload that says how many records it was made of, in a time of our choice."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.takes_s, self.times = takes_s, 0

    def __call__(self, records: list[Record], live: dict[str, Any]) -> Payload:
        self.times += 1
        time.sleep(self.takes_s)
        return {"n": len(records), "live": live}, [
            packed({"repeat": [each.repeat for each in records]})
        ]


def a_feed(make: Counting, before: int = 0) -> PageFeed:
    return PageFeed(make, Tally(10, before), [a_record(number) for number in range(before)])


def read(feed: PageFeed, since: int = -1, patience_s: float = 0.0) -> dict[str, Any]:
    with feed.reading(since=since, patience_s=patience_s) as version:
        found: dict[str, Any] = json.loads(gzip.decompress(version.data))
    return found


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rest between versions."""
    monkeypatch.setattr(module, "AT_LEAST_S", 0.0)


@pytest.mark.usefixtures("at_once")
def test_a_version_holds_the_records_of_earlier_starts_and_of_this_one():
    feed = a_feed(Counting(), before=2)
    assert read(feed)["summary"]["live"] == {
        "state": "running",
        "line": "2/10 scored",
        "version": 2,
    }
    feed.add(a_record(2))
    found = read(feed, since=2, patience_s=5)
    assert found["version"] == 3
    assert found["trials"] == [{"repeat": [0, 1, 2]}]
    assert found["summary"]["live"]["line"].startswith("3/10 scored")


@pytest.mark.usefixtures("at_once")
def test_nothing_is_built_while_nobody_asks_or_nothing_is_new():
    make = Counting()
    feed = a_feed(make)
    feed.add(a_record())
    assert make.times == 0
    assert [read(feed)["version"] for _ in range(5)] == [1] * 5
    assert make.times == 1


def test_a_second_passes_between_versions(monkeypatch):
    monkeypatch.setattr(module, "AT_LEAST_S", 3600.0)
    feed = a_feed(make := Counting())
    read(feed)
    feed.add(a_record())
    assert read(feed)["version"] == 0  # not yet
    assert make.times == 1
    monkeypatch.setattr(module, "AT_LEAST_S", 0.3)
    start, feed = time.monotonic(), a_feed(Counting())
    read(feed)
    feed.add(a_record())
    assert read(feed, since=0, patience_s=60)["version"] == 1
    assert time.monotonic() - start >= 0.3


@pytest.mark.usefixtures("at_once")
def test_building_takes_a_twentieth_of_the_time_at_most():
    feed = a_feed(make := Counting(takes_s=0.02))
    start, number, version = time.monotonic(), 0, -1
    while make.times < 4:
        feed.add(a_record(number := number + 1))
        version = read(feed, since=version, patience_s=0.2)["version"]
    assert time.monotonic() - start >= 3 * 19 * 0.02  # however busy the machine is


def test_who_waits_gets_the_end_at_once_even_if_no_version_is_due(monkeypatch):
    monkeypatch.setattr(module, "AT_LEAST_S", 60.0)
    feed = a_feed(Counting())
    assert not feed.seen
    assert read(feed)["version"] == 0
    assert feed.seen
    feed.add(a_record())
    found: list[dict[str, Any]] = []
    reader = Thread(target=lambda: found.append(read(feed, since=0, patience_s=30)))
    reader.start()
    time.sleep(0.05)
    assert not feed.delivered
    feed.end()
    reader.join(60)
    assert found[0]["summary"]["live"]["state"] == "ended"
    assert found[0]["summary"]["n"] == 1
    assert feed.delivered


@pytest.mark.usefixtures("at_once")
def test_an_end_that_broke_off_on_its_way_was_not_delivered():
    feed = a_feed(Counting())
    feed.end()
    with pytest.raises(ConnectionError), feed.reading():
        raise ConnectionError
    assert not feed.delivered


@pytest.mark.usefixtures("at_once")
def test_the_end_is_a_version_of_its_own():
    feed = a_feed(Counting())
    assert read(feed)["version"] == 0
    feed.end()
    last = read(feed, since=0, patience_s=5)
    assert (last["version"], last["summary"]["live"]["line"]) == (1, "run ended · 0/10 scored")
    assert read(feed, since=1, patience_s=5)["version"] == 1  # nothing follows, so nobody waits
