"""A fault of the engine in the box is found, shrunk, and shown by a script of its own."""

from __future__ import annotations

import ast
import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from boxed_engine import FAULTS, Engine
from boxed_reader import Boxed, Reader

from needlemap.errors import NeedlemapError
from needlemap.reports.storm_report import storm_report
from needlemap.storm.act import Round
from needlemap.storm.file import STORM
from needlemap.storm.operation import Limits
from needlemap.storm.plan import make_round
from needlemap.storm.repro import SCRIPT, write_repro
from needlemap.storm.shrink import Shrinking, halved, times
from needlemap.storm.storm import Storm

BOX = {"pages": 300, "host": 400}
ENGINE = Path(__file__).parent / "boxed_engine.py"


def script_code(folder: Path, fault: str) -> int:
    """The exit code of the script against a fresh engine over HTTP."""
    command = [sys.executable, str(ENGINE), "--fault", fault, "--pages", "300"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
            script = [sys.executable, str(folder / SCRIPT), url, "box"]
            return subprocess.run(script, capture_output=True, timeout=120).returncode
        finally:
            server.kill()


def test_the_sound_engine_is_not_blamed(storming):
    _, found = storming(Boxed(Engine(**BOX)), rounds=6)
    assert found.code == 4
    assert found.counts == {"right": found.requests}


@pytest.mark.parametrize("fault", ["edge", "turn", "zero-chunk", "cancelled-slot", "moved-row"])
def test_a_fault_of_state_is_found(storming, fault):
    _, found = storming(Boxed(Engine(fault, **BOX)), rounds=25, kv_tokens=4_800)
    assert found.code == 1, FAULTS[fault].thread


def test_a_found_fault_is_shrunk_to_a_script_that_fails_there_and_nowhere_else(storming):
    asking, found = storming(Boxed(Engine("edge", **BOX)), rounds=25, kv_tokens=4_800)
    assert found.code == 1
    folder = asking.storm.folder.path
    storm = Storm.of(asking.storm.options, folder)
    shrinking = Shrinking(storm, make=lambda _: Boxed(Engine("edge", **BOX)))
    asyncio.run(shrinking.run())
    shrunk = shrinking.shrunk
    assert shrunk is not None
    assert len(shrunk.sequence.acts) <= 6 < shrunk.was
    assert (shrunk.failed, shrunk.cold) == (shrunk.of, 0)
    script, texts, issue = write_repro(storm, shrunk, folder)
    lines = script.read_text("utf-8").splitlines()
    assert len(lines) <= 60
    modules = {
        name.name
        for node in ast.walk(ast.parse("\n".join(lines)))
        for name in getattr(node, "names", [])
        if isinstance(node, ast.Import)
    }
    assert {name.partition(".")[0] for name in modules} <= sys.stdlib_module_names
    assert texts.stat().st_size > 0
    assert "<- this answer is wrong" in issue.read_text("utf-8")
    assert script_code(folder, "edge") == 1
    assert script_code(folder, "") == 0


def test_the_report_draws_the_round_of_the_first_fault_session_by_session(storming):
    asking, _ = storming(Boxed(Engine("turn", **BOX)), rounds=25, kv_tokens=4_800)
    folder = asking.storm.folder.path
    report = storm_report(folder, STORM.read(folder))
    (drawn,) = [table for table in report.tables if table.key == "time_line"]
    marked = [row.values for row in drawn.rows if "the first fault" in row.values["marked"]]
    assert len(marked) == 1
    assert marked[0]["waves"].strip("■· ") in ("L", "F", "0")
    calm, _ = storming(Reader(), rounds=1, folder="calm")
    report = storm_report(folder, STORM.read(calm.storm.folder.path))
    assert "time_line" not in [table.key for table in report.tables]


def test_a_storm_without_a_fault_has_nothing_to_shrink(storming):
    asking, _ = storming(Reader(), rounds=1)
    shrinking = Shrinking(Storm.of(asking.storm.options, asking.storm.folder.path))
    with pytest.raises(NeedlemapError, match="holds no fault"):
        asyncio.run(shrinking.run())


def test_a_fault_that_comes_seldom_is_tried_more_often():
    assert (times(1.0), times(0.5), times(0.05)) == (1, 5, 59)


def test_halved_texts_still_hide_what_is_asked():
    made = make_round(4, 3, Limits(8_000, load=4, answer_tokens=60, kv_tokens=None))
    half = halved(made)
    assert isinstance(half, Round)
    assert sum(act.tokens for act in half.acts) < sum(act.tokens for act in made.acts)
    for act in half.acts:
        held = {(p.stream, fact) for p in act.streams for fact in p.stream.facts_within(p.tokens)}
        assert {(fact.stream, fact.number) for fact in act.asked_facts} <= held
