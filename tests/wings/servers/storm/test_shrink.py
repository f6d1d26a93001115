"""A fault of the engine in the box is found, shrunk, and shown by a script of its own."""

from __future__ import annotations

import ast
import asyncio
import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from boxed_engine import FAULTS, Engine
from boxed_reader import Boxed, Reader
from reported_faults import make_engine

from needlemap.deadline import TimeUp, limited_to, waits_s
from needlemap.errors import NeedlemapError
from needlemap.models import Answer, Decoding
from needlemap.prompts import Prompt
from needlemap.records.record import Record
from needlemap.servers.flags import StormFlags
from needlemap.servers.storm import command as storm_commands
from needlemap.servers.storm.act import Round
from needlemap.servers.storm.file import STORM, StormFile, StormRequest
from needlemap.servers.storm.operation import Limits
from needlemap.servers.storm.plan import make_round
from needlemap.servers.storm.report import storm_report
from needlemap.servers.storm.repro import SCRIPT, document, write_repro
from needlemap.servers.storm.shrink import (
    LOOPS,
    MOST,
    Shrinking,
    Shrunk,
    halved,
    lost_with_first_cancel,
    needed_failures,
    to_replay,
    tries_of,
)
from needlemap.servers.storm.storm import STORMED, Storm, StormOptions
from needlemap.version import SCHEMA

BOX = {"pages": 300, "host": 400}
LIMITS = Limits(8_000, load=4, answer_tokens=60, kv_tokens=None)
FLAGS = {
    "model": "openai/box",
    "base_url": "http://127.0.0.1:1/v1",
    "tokenizer": "cl100k_base",
    "max_answer_tokens": 60,
}
COMPLETIONS = {**FLAGS, "model_options": {"api": "completions", "key_env": "BOX_KEY"}}
ENGINE = Path(__file__).parent / "boxed_engine.py"


def one_request(folder: Path, flags: dict[str, object] = COMPLETIONS) -> tuple[Storm, Shrunk]:
    """A storm that is shrunk to one request of a conversation."""
    storm = Storm.of(StormOptions(flags, max_length=2_000, load=4), folder, 1)
    made = storm.round(1)
    turn = next(act for act in made.acts if len(act.path) > 1)
    shrunk = Shrunk(
        made.of([turn]), turn.number, failed=3, of=20, cold=0, cold_of=10, got="", was=9
    )
    return storm, shrunk


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
    assert found.verdict.word == "NOT ENOUGH DATA"
    assert found.tally.counts == {"right": len(found.tally.requests)}


@pytest.mark.parametrize(
    "fault",
    [
        *("edge", "turn"),
        *(
            pytest.param(fault, marks=pytest.mark.long)
            for fault in ("zero-chunk", "cancelled-slot", "moved-row")
        ),
    ],
)
def test_a_fault_of_state_is_found(storming, fault):
    _, found = storming(Boxed(Engine(fault, **BOX)), rounds=25, kv_tokens=4_800)
    assert found.verdict.word == "FAIL", FAULTS[fault].thread


def test_a_found_fault_is_shrunk_to_a_script_that_fails_there_and_nowhere_else(storming):
    asking, found = storming(Boxed(Engine("edge", **BOX)), rounds=25, kv_tokens=4_800)
    assert found.verdict.word == "FAIL"
    folder = asking.storm.folder.path
    storm = Storm.of(asking.storm.options, folder)
    shrinking = Shrinking(storm, make=lambda _: Boxed(Engine("edge", **BOX)))
    asyncio.run(shrinking.run())
    shrunk = shrinking.shrunk
    assert shrunk is not None
    assert len(shrunk.sequence.acts) <= 6 < shrunk.was
    assert (shrunk.failed, shrunk.cold, shrunk.cold_of) == (shrunk.of, 0, 10)
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


def test_the_script_asks_completions_with_a_key_of_the_environment_which_no_file_holds(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("BOX_KEY", "sk-not-for-files")
    storm, shrunk = one_request(tmp_path / "storm")
    files = write_repro(storm, shrunk, tmp_path)
    held = b"".join(each.read_bytes() for each in files)
    assert b"sk-not-for-files" not in held + gzip.decompress(files[1].read_bytes())
    assert len(files[0].read_text("utf-8").splitlines()) <= 60
    seen: list[tuple[str, str | None, dict[str, str]]] = []

    class Door(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            seen.append((self.path, self.headers["authorization"], json.loads(body)))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"choices": [{"text": "I do not know."}]}')

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/v1"
        ended = subprocess.run([sys.executable, files[0], url], capture_output=True, text=True)
        server.shutdown()
    assert ended.returncode == 2
    assert "missed alone" in ended.stdout
    path, key, body = seen[0]
    assert (path, key) == ("/v1/completions", "Bearer sk-not-for-files")
    question = storm.texts.question(shrunk.sequence.number, shrunk.act.path[-1])
    assert question in body["prompt"]
    assert "messages" not in body


def test_the_script_follows_no_redirect_so_that_the_key_stays_at_its_address(tmp_path, monkeypatch):
    """urllib follows most of them, with all headers. The script follows none by one rule."""
    monkeypatch.setenv("BOX_KEY", "sk-not-for-others")
    write_repro(*one_request(tmp_path / "storm"), tmp_path)
    elsewhere: list[str] = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            elsewhere.append(self.path)
            self.send_error(404)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    class Door(Other):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(302)
            self.send_header("location", f"http://127.0.0.1:{other.server_port}/v1/completions")
            self.end_headers()

    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Other) as other,
        ThreadingHTTPServer(("127.0.0.1", 0), Door) as server,
    ):
        for each in (other, server):
            Thread(target=each.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/v1"
        script = [sys.executable, tmp_path / SCRIPT, url]
        ended = subprocess.run(script, capture_output=True, text=True)
        for each in (other, server):
            each.shutdown()
    assert elsewhere == []
    assert "HTTP Error 302" in ended.stdout
    assert ended.returncode == 2


WHOLE = {"finish_reason": "stop"}
NOT_ENDED = {
    "error": {"finish_reason": "error"},
    "spelt otherwise": {"finish_reason": "Network-Error"},
    "null": {"finish_reason": None},
    "filtered": {"finish_reason": "content_filter"},
    "error in the choice": {"finish_reason": "stop", "error": {"message": "upstream died"}},
    "no text": {"finish_reason": "stop", "text": None, "error": "upstream died"},
}


def played(storm, shrunk, folder: Path, choose: Callable[[int], tuple[int, Any]]) -> Any:
    """The script's end against a server that answers its requests as chosen by their number."""
    write_repro(storm, shrunk, folder)
    asked: list[None] = []

    class Door(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            asked.append(None)
            status, body = choose(len(asked))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        script = [sys.executable, folder / SCRIPT, f"http://127.0.0.1:{server.server_port}/v1"]
        ended = subprocess.run(script, capture_output=True, text=True)
        server.shutdown()
    return ended


ALONE = 3  # askings before the loops


def test_the_script_takes_no_answer_that_was_broken_off_for_a_wrong_one(tmp_path):
    """Every other loop gets one, of each kind by turn."""
    storm, shrunk = one_request(tmp_path / "storm")
    (secret,) = storm.texts.secrets(shrunk.sequence.number, shrunk.act)
    kinds = [*NOT_ENDED.values()]
    assert shrunk.loops // 2 >= len(kinds)

    def reply(number: int) -> tuple[int, Any]:
        loop = (number - ALONE - 1) // len(shrunk.sequence.acts)
        choice = kinds[loop // 2 % len(kinds)]
        whole = loop < 0 or loop % 2
        text = secret if whole else secret[:3]
        return 200, {"choices": [{"index": 0, "text": text} | (WHOLE if whole else choice)]}

    ended = played(storm, shrunk, tmp_path, reply)
    assert ended.returncode == 0, ended.stdout
    assert f"{shrunk.loops} loops, {shrunk.loops // 2} without an answer" in ended.stdout


def test_the_script_shows_nothing_where_no_answer_comes(tmp_path):
    storm, shrunk = one_request(tmp_path / "storm")
    (secret,) = storm.texts.secrets(shrunk.sequence.number, shrunk.act)
    whole = {"choices": [{"text": secret, **WHOLE}]}
    ended = played(storm, shrunk, tmp_path, lambda at: (200 if at <= ALONE else 500, whole))
    assert ended.returncode == 2


def test_the_script_reads_the_choice_with_index_0(tmp_path):
    storm, shrunk = one_request(tmp_path / "storm")
    (secret,) = storm.texts.secrets(shrunk.sequence.number, shrunk.act)
    rows = [{"index": 1, "text": "no", **WHOLE}, {"index": 0, "text": secret, **WHOLE}]
    assert played(storm, shrunk, tmp_path, lambda _: (200, {"choices": rows})).returncode == 0


def test_the_script_takes_null_as_the_storm_did(tmp_path):
    flags = {**FLAGS, "model_options": {"api": "completions", "null_finish": "whole"}}
    storm, shrunk = one_request(tmp_path / "storm", flags=flags)
    (secret,) = storm.texts.secrets(shrunk.sequence.number, shrunk.act)
    reply = {"choices": [{"index": 0, "text": secret, "finish_reason": None}]}
    assert played(storm, shrunk, tmp_path, lambda _: (200, reply)).returncode == 0


def write_record(storm: Storm, **fields: Any) -> None:
    """A storm's first answer, as its folder keeps it."""
    known = {"schema": SCHEMA, "task": STORMED, "length_tokens": 9, "depth": 0, "seed": 0}
    record = Record(key="k", model="openai/box", repeat=0, answer="Hi", **known, **fields)
    folder = storm.folder.folder(STORMED)
    folder.mkdir(parents=True)
    (folder / "records-1.jsonl").write_bytes(record.line())


def test_the_script_of_a_storm_whose_answers_came_whole_does_not_stream(tmp_path):
    storm, shrunk = one_request(tmp_path / "storm")
    write_record(storm)
    assert "stream" not in document(storm, shrunk)["fields"]


@pytest.mark.parametrize("typed", [True, False], ids=["typed", "as the server wanted"])
@pytest.mark.parametrize("broken", ["", "cut", "error"])
def test_the_script_of_a_streamed_storm_streams(broken, typed, tmp_path):
    flags = {**COMPLETIONS, "stream": True} if typed else COMPLETIONS
    storm, shrunk = one_request(tmp_path / "storm", flags=flags)
    if not typed:
        write_record(storm, first_token_s=0.1)
    (secret,) = storm.texts.secrets(shrunk.sequence.number, shrunk.act)

    def events(pieces: Sequence[str], *last: object) -> bytes:
        rows = [{"choices": [{"index": 0, "text": piece}]} for piece in pieces]
        return b": hi\n\n" + b"".join(
            b"data: %b\n\n" % json.dumps(row).encode() for row in [*rows, *last]
        )

    whole = events(secret, {"choices": [{"text": "", **WHOLE}]}) + b"data: [DONE]\n\n"
    cut = events(secret[:3], *([{"error": {"message": "died"}}] if broken == "error" else []))
    ended = played(
        storm, shrunk, tmp_path, lambda at: (200, cut if broken and at > ALONE else whole)
    )
    assert ended.returncode == (2 if broken else 0), ended.stdout
    held = json.loads(gzip.decompress((tmp_path / "repro.json.gz").read_bytes()))
    assert held["fields"]["stream"] is True


HOSTILE = (
    "![i](http://evil/x.png) [l](http://evil) <img src=x> @octocat Fixes #1 ``` ```` ` \u2028# Head"
)


def test_the_text_for_an_issue_holds_a_servers_words_as_code_alone(tmp_path):
    """It is pasted into somebody's tracker, where words may link, mention and close."""
    flags = {**FLAGS, "model": f"openai/{HOSTILE}"}
    storm, shrunk = one_request(tmp_path / "storm", flags=flags)
    shrunk = replace(shrunk, got=f"{HOSTILE}\n````\n\ud800\x1b[31m{HOSTILE}")
    *_, issue = write_repro(storm, shrunk, tmp_path)
    lines = issue.read_text("utf-8").splitlines()
    start, end = (at for at, line in enumerate(lines) if line.startswith("`````"))
    assert lines[start : start + 2] == ["`````text", lines[start + 1]]
    assert [line.partition(":")[0] for line in lines[start + 1 : end]] == ["Model", "Wanted", "Got"]
    assert lines[end] == "`````"
    outside = "\n".join(lines[:start] + lines[end + 1 :])
    assert not any(word in outside for word in ("octocat", "evil", "Fixes", "Head", "img"))


def test_the_script_loops_as_the_lower_end_of_the_measured_rate_needs():
    def loops(failed: int, of: int) -> int:
        return Shrunk(make_round(4, 3, LIMITS), 0, failed, of, 0, 10, "", 9).loops

    assert (loops(20, 20), loops(3, 20), loops(4, 60), loops(0, 100)) == (2, 92, 161, LOOPS)


class Spoilt(Reader):
    """A server that answers nothing right any more once a conversation has gone on."""

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        said = await super().answer(prompt, decoding)
        gone_on = any(len(messages) > 2 for messages, _ in self.log)
        return Answer("I do not know.", "stop") if gone_on else said


def test_a_replay_that_fails_on_a_spoilt_server_shows_nothing(storming):
    """Each single prompt seemed to be the fault, as none was answered right any more."""
    asking, found = storming(Boxed(Engine("edge", **BOX)), rounds=25, kv_tokens=4_800)
    assert found.verdict.word == "FAIL"
    storm = Storm.of(asking.storm.options, asking.storm.folder.path)
    shrinking = Shrinking(storm, make=lambda _: Spoilt())
    asyncio.run(shrinking.run())
    assert shrinking.shrunk is None
    assert "give --command, which starts it" in shrinking.stopped
    first = STORM.read(asking.storm.folder.path).suspects
    assert any(f"request {each.key} of storm.json" in shrinking.stopped for each in first)


def test_a_server_that_each_replay_spoils_is_shrunk_where_it_can_be_started_anew(storming):
    """A prefill of a long prompt left numbers that are none to all whose prompts begin alike."""

    def poisoned() -> Engine:
        return make_engine("poisoned", **BOX)

    asking, found = storming(Boxed(poisoned()), rounds=25, kv_tokens=4_800)
    assert found.verdict.word == "FAIL"
    engine = Boxed(poisoned())
    storm = Storm.of(asking.storm.options, asking.storm.folder.path)
    shrinking = Shrinking(
        storm, make=lambda _: engine, restart=lambda: setattr(engine, "engine", poisoned())
    )
    asyncio.run(shrinking.run())
    shrunk = shrinking.shrunk
    assert shrunk is not None
    assert len(shrunk.sequence.acts) == 2
    assert (shrunk.failed, shrunk.of, shrunk.cold) == (20, 20, 0)


def test_a_prompt_that_a_server_started_anew_misses_alone_is_no_fault_of_its_sequence(storming):
    asking, _ = storming(Boxed(Engine("edge", **BOX)), rounds=25, kv_tokens=4_800)
    storm = Storm.of(asking.storm.options, asking.storm.folder.path)
    never = Reader(lambda _said, _log: "I do not know.")
    shrinking = Shrinking(storm, make=lambda _: never, restart=list)
    asyncio.run(shrinking.run())
    assert shrinking.shrunk is None


def test_a_request_lost_where_the_first_client_went_away_is_replayed_too():
    """A client spoilt the server for all, and only a later victim was replayed, whose sequence
    holds nobody who goes away: "its sequence failed in no replay"."""

    def row(key: int, wave: int, outcome: str) -> StormRequest:
        where = {"key": key, "round": key // 1_000, "wave": wave, "family": 0, "session": 0}
        return StormRequest(**where, operation="fresh", at_s=0, seconds=0, outcome=outcome)

    rows = [row(6_001, 4, "lost"), row(7_001, 2, "lost"), row(7_002, 3, "right")]
    rows += [row(7_003, 3, "cancelled"), row(7_004, 3, "lost"), row(7_005, 4, "empty")]
    file = StormFile(seed=1, model="openai/box", max_length=2_000, load=4)
    assert lost_with_first_cancel(file) == []
    rows.append(row(8_001, 5, "lost"))
    assert lost_with_first_cancel(file.model_copy(update={"sequence": rows})) == [7_004, 7_005]


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
    assert to_replay(STORM.read(asking.storm.folder.path)) == []


def test_a_server_that_the_storm_has_spoilt_is_not_blamed_on_a_replay(storming):
    asking, _ = storming(Boxed(Engine("edge", **BOX)), rounds=25, kv_tokens=4_800)
    storm = Storm.of(asking.storm.options, asking.storm.folder.path)
    never = Reader(lambda _said, _log: "I do not know.")
    shrinking = Shrinking(storm, make=lambda _: never)
    asyncio.run(shrinking.run())
    assert shrinking.shrunk is None
    assert "misses the prompt alone already, before any replay" in shrinking.stopped
    assert len(never.log) < 10


def test_what_was_shrunk_so_far_is_kept_where_the_time_ends_before_the_server_is_there(storming):
    """It was thrown away, and the command ended as if nothing had been found."""

    def late() -> None:
        raise TimeUp("The time limit ended before http://127.0.0.1:1/v1 answered")

    asking, _ = storming(Boxed(Engine("turn", **BOX)), rounds=25, kv_tokens=4_800)
    storm = Storm.of(asking.storm.options, asking.storm.folder.path)
    engine = Boxed(Engine("turn", **BOX))
    shrinking = Shrinking(storm, make=lambda _: engine, restart=late)
    asyncio.run(shrinking.run())
    assert shrinking.stopped.startswith("The time limit ended")
    assert shrinking.shrunk is not None
    assert (shrinking.shrunk.failed, shrinking.shrunk.cold_of) == (20, 0)


def test_the_first_start_of_the_server_takes_nothing_of_the_minutes(storming, monkeypatch):
    """A server that loads for two minutes left nothing to shrink in."""

    def started(*_: object) -> None:
        raise NeedlemapError(f"seconds left: {waits_s()}")

    monkeypatch.setattr(storm_commands, "started", started)
    asking, _ = storming(Boxed(Engine("turn", **BOX)), rounds=25, kv_tokens=4_800)
    folder = asking.storm.folder.path
    typed = StormFlags(shrink=True, command="engine --port {port}", minutes=1)
    with limited_to(60), pytest.raises(NeedlemapError, match="seconds left: None"):
        storm_commands.shrink_command(folder, typed, {})


def test_a_fault_that_comes_seldom_is_tried_more_often():
    assert (tries_of(1.0), tries_of(0.5), tries_of(0.05)) == (1, 5, 59)


def test_a_candidate_that_fails_once_by_chance_is_not_taken_for_the_whole():
    """A certain fault was shrunk to a sequence that a half spoilt server failed in 3 of 31 replays,
    and a fresh one never: one failure had been enough."""
    assert needed_failures(1.0) == (3, 3)
    assert needed_failures(0.1) == (2, 46)
    assert needed_failures(0.01) == (1, MOST)


def test_halved_texts_still_hide_what_is_asked():
    made = make_round(4, 3, LIMITS)
    half = halved(made)
    assert isinstance(half, Round)
    assert sum(act.tokens for act in half.acts) < sum(act.tokens for act in made.acts)
    for act in half.acts:
        held = {(p.stream, fact) for p in act.pieces for fact in p.stream.facts_within(p.tokens)}
        assert {(fact.stream, fact.number) for fact in act.asked_facts} <= held
