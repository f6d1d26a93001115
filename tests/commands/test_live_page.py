"""`needlemap run --live`: the page fills in while the run goes on, and changes nothing else."""

from __future__ import annotations

import gzip
import json
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from subprocess import Popen
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

import needlemap as package
from needlemap.reports.page import live as live_page

GRID = ("--lengths", "200,300", "--depths", "0,50,100", "--concurrency", "1")
ADDRESS = re.compile(r"live: (http://127\.0\.0\.1:\d+/[\w-]{22}/)")


@dataclass
class Page:
    """A browser's part: asks the run's page for what is new. said: standard error before the
    address."""

    url: str
    said: str

    def document(self) -> str:
        with urlopen(self.url, timeout=10) as reply:
            return str(reply.read().decode())

    def news(self) -> Iterator[dict[str, Any]]:
        """What there is now, then every version until the run ends."""
        version, state = -1, ""
        while state != "ended":
            with urlopen(f"{self.url}data?since={version}", timeout=120) as reply:
                if reply.status == 200:
                    found = json.loads(gzip.decompress(reply.read()))
                    version, state = found["version"], found["summary"]["live"]["state"]
                    yield found


def opened(process: Popen[str]) -> Page:
    """The page of a run that was just started."""
    assert process.stderr is not None
    said = ""
    while (found := ADDRESS.search(line := process.stderr.readline())) is None:
        assert line, said
        said += line
    return Page(found[1], said)


def results(out: str) -> str:
    return out.partition("\n")[2]


@pytest.fixture
def started(needlemap, wire):
    """started(*flags): a run against a slow server."""

    def start(*flags: str, delay_s: float = 0.5) -> Popen[str]:
        wire.schedule(f"slow:{delay_s}", cycle=True)
        process: Popen[str] = needlemap.start(
            "run", *needlemap.asking(wire), *GRID, "--live", *flags
        )
        return process

    return start


def test_it_fills_in_and_hears_of_the_end_while_the_terminal_shows_what_it_always_shows(
    needlemap, wire, started
):
    page = opened(process := started())
    assert "6 trials" in page.said
    document = page.document()
    assert '<meta name="needlemap-live" content="data">' in document
    assert "connect-src 'self'" in document
    versions = list(page.news())
    scored = [found["summary"]["runs"][0]["totals"]["scored"] for found in versions]
    assert scored == sorted(scored)
    assert scored[0] < 6 == scored[-1]
    assert [len(found["trials"][0]["cell"]) for found in versions] == scored
    assert {found["summary"]["live"]["state"] for found in versions[:-1]} == {"running"}
    assert versions[-1]["summary"]["live"]["line"].startswith("run ended · 6/6 scored · ")
    assert versions[-1]["summary"]["runs"][0]["path"] == "r"

    out, err = process.communicate(timeout=120)
    assert process.returncode == 0
    wire.reset()
    plain = needlemap("run", *needlemap.asking(wire)[:-1], "plain", *GRID)
    assert results(out) == results(plain.stdout)
    assert err.replace(": r\n", ": plain\n").replace(" r ", " plain ") in plain.stderr
    with pytest.raises(URLError):
        page.document()


def test_without_a_reader_it_waits_for_nobody(typed, needlemap, wire, monkeypatch):
    monkeypatch.setattr(live_page, "GRACE_S", 200.0)
    start = time.monotonic()
    typed("run", *needlemap.asking(wire), *GRID, "--live")
    assert time.monotonic() - start < 100


@pytest.mark.long
def test_quiet_says_the_address_alone_and_a_closed_page_holds_the_end_up_for_two_seconds_at_most(
    started,
):
    page = opened(process := started("--quiet", delay_s=0.1))
    assert page.said == ""
    page.document()
    start = time.monotonic()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0
    assert time.monotonic() - start < 60
    assert err == ""


@pytest.mark.long
def test_a_page_that_asks_a_moment_late_gets_the_end_too_behind_the_result(started):
    page = opened(process := started(delay_s=0.1))
    page.document()
    assert any(line.startswith("overall 100.0") for line in process.stdout)
    time.sleep(0.1)
    (last,) = page.news()
    assert last["summary"]["live"]["state"] == "ended"
    assert process.wait(timeout=60) == 0


@pytest.mark.long
def test_exit_codes_are_those_of_the_run(needlemap, wire):
    wire.schedule("ok", "400", cycle=True)
    process = needlemap.start("run", *needlemap.asking(wire), *GRID, "--live", "--pause-s", "0.2")
    last = list(opened(process).news())[-1]["summary"]["runs"][0]
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1, err
    assert last["totals"]["missing"] == 3
    assert last["failures"][0]["kind"] == "rejected"
    assert err.endswith("To ask them again: the same command with -o r\n")


@pytest.mark.long
def test_an_interrupt_ends_it_as_without_and_the_page_hears_of_it(started):
    """SIGTERM does what this one does: test_termination.py."""
    page = opened(process := started())
    news = page.news()
    next(news)
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    live = list(news)[-1]["summary"]["live"]
    assert live["state"] == "ended"
    assert not live["line"].endswith(" left")
    _, err = process.communicate(timeout=120)
    assert time.monotonic() - start < 60
    assert process.returncode == 130
    assert (
        err
        == "needlemap: interrupted. What was scored is kept; to go on: the same command with -o r\n"
    )


@pytest.mark.long
def test_a_resumed_run_shows_what_it_had_and_a_finished_one_says_how_to_make_the_page(
    needlemap, wire, started
):
    needlemap.run(wire, *GRID[:2], "--depths", "0")
    page = opened(process := started())
    first = next(page.news())
    assert first["summary"]["runs"][0]["totals"]["scored"] >= 2
    process.communicate(timeout=120)
    ended = needlemap.run(wire, *GRID, "--live")
    assert (
        "live: nothing is left to ask, so no page is served. To make one: needlemap report r -o "
        "report.html\n" in ended.stderr
    )


@pytest.mark.long
def test_of_several_families_it_shows_each_as_its_turn_comes(needlemap, wire):
    wire.schedule("slow:0.4", cycle=True)
    (needlemap.folder / "two.yaml").write_text(
        "settings: {lengths: [300], depths: [0, 50, 100], max_answer_tokens: 40}\n"
        "families: {one: {task: magic}, key: {task: passkey}}\n"
    )
    asking = (
        "--model",
        "openai/m",
        "--base-url",
        wire.base_url,
        "--tokenizer",
        "cl100k_base",
        "-o",
        "s",
    )
    process = needlemap.start("run", "suite:two.yaml", *asking, "--concurrency", "1", "--live")
    versions = list(opened(process).news())
    shown = [[run["name"] for run in found["summary"]["runs"]] for found in versions]
    assert shown[0] == ["one"]
    assert shown[-1] == ["one", "key"]
    assert [run["totals"]["scored"] for run in versions[-1]["summary"]["runs"]] == [3, 3]
    assert {found["summary"]["live"]["state"] for found in versions[:-1]} == {"running"}
    assert versions[0]["summary"]["live"]["line"].startswith("one · ")
    assert versions[-1]["summary"]["live"]["line"].startswith("run ended · key · 3/3 scored")
    process.communicate(timeout=120)
    assert process.returncode == 0
    again = needlemap("run", "suite:two.yaml", *asking, "--live")
    assert "live: nothing is left to ask, so no page is served" in again.stderr


def test_no_page_is_made_unless_it_is_wanted(needlemap, wire):
    assert "live:" not in needlemap.run(wire, *GRID).stderr


def test_python_has_it_too(wire, tmp_path, capfd):
    run = package.run(
        model="openai/m", base_url=wire.base_url, tokenizer="cl100k_base", max_answer_tokens=40, quiet=True,  # noqa: E501
        lengths="200", depths="0,100", out=tmp_path / "r", live=True,
    )  # fmt: skip
    assert run.map().n == 2
    address = ADDRESS.search(capfd.readouterr().err)
    assert address is not None
    with pytest.raises((URLError, HTTPError)):
        urlopen(address[1], timeout=5)
