"""Stop and go on: nothing scored is lost, nothing scored is asked twice. Killed at any moment:
tests/reliability/test_kills.py.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

from needlemap.records import folder as store
from needlemap.records.folder import RunFolder, parse_record, records_files
from needlemap.records.record import Record

FIXTURES = Path(__file__).parent.parent / "fixtures"
BM25 = ("--model", "baseline/bm25", "--lengths", "500,900", "-o", "r")

GRID = ("--lengths", "300:500:5", "--depths", "0:100:8")  # 40 trials
CONCURRENCY = 4


@pytest.mark.parametrize("depths", ["0,50,100", "0,25,50,100"])
def test_what_was_scored_is_read_once_whatever_is_left_to_ask(typed, monkeypatch, depths):
    """Each line, by the run that goes on and by a report of it."""
    typed("run", *BM25, "--depths", "0,50,100")
    (before,) = records_files(typed.folder / "r")
    lines = before.read_bytes().splitlines(keepends=True)
    read: Counter[bytes] = Counter()

    def counted(line: bytes) -> Record | None:
        read[line] += 1
        return parse_record(line)

    monkeypatch.setattr(store, "parse_record", counted)
    typed("run", *BM25, "--depths", depths)
    assert {read[line] for line in lines} == {1}
    read.clear()
    typed("report", "r")
    assert {read[line] for line in lines} == {1}


def test_an_interrupt_keeps_what_was_scored_and_says_how_to_go_on(needlemap, wire, until):
    wire.schedule("slow:0.1", cycle=True)
    process = needlemap.start("run", *needlemap.asking(wire), *GRID)
    until(lambda: len(wire.log()) >= 10)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=250)
    assert process.returncode == 130
    assert err.splitlines()[-1] == (
        "needlemap: interrupted. What was scored is kept; to go on: the same command with -o r"
    )
    assert "Traceback" not in err
    kept = len(needlemap.records())
    assert 4 <= kept < 40
    asked = len(wire.log())
    wire.schedule()
    ended = needlemap.run(wire, *GRID)
    assert f"{kept} already scored, {40 - kept} to ask" in ended.stderr
    assert len(wire.log()) - asked == 40 - kept
    assert asked - kept <= CONCURRENCY


def test_a_line_torn_at_any_byte_is_dropped_and_asked_again(needlemap, wire):
    needlemap.run(wire, "--lengths", "200,300", "--depths", "0,50,100")
    (file,) = (needlemap.folder / "r").glob("records-*.jsonl")
    whole = file.read_bytes()
    start = whole.rstrip(b"\n").rfind(b"\n") + 1
    for size in (*range(start, len(whole) - 1, 7), len(whole) - 2):
        file.write_bytes(whole[:size])
        assert len(list(RunFolder(needlemap.folder / "r").records())) == 5
    file.write_bytes(whole[: start + (len(whole) - start) // 2])
    ended = needlemap.run(wire, "--lengths", "200,300", "--depths", "0,50,100")
    assert "5 already scored, 1 to ask" in ended.stderr
    assert "overall 100.0 (n=6, 0 missing)" in ended.stdout
    assert len(wire.log()) == 7


def test_log_probabilities_wanted_later_leave_what_was_answered_as_it_is(needlemap):
    grid = ("--repeats", 1, "--depths", "0,100", "-o", "r")
    needlemap("run", "demo", "--lengths", "128", *grid)
    needlemap("run", "demo", "--lengths", "128,256", *grid, "--logprobs")
    kept = {(row["length_tokens"], row["logprobs"] is not None) for row in needlemap.records()}
    assert kept == {(128, False), (256, True)}
    assert set(needlemap.scored().values()) == {1}
    table = needlemap("report", "r", "--format", "trials", "-o", "t.csv")
    assert table.returncode == 0


@pytest.mark.long
def test_two_runs_on_one_folder_the_second_refuses(needlemap, wire, until):
    wire.schedule("slow:5", cycle=True)
    first = needlemap.start("run", *needlemap.asking(wire), *GRID, "--concurrency", "1")
    until(wire.log)
    second = needlemap.run(wire, *GRID, code=2)
    assert second.stderr.splitlines()[-1] == (
        "needlemap: Another needlemap is writing to 'r'. Wait until it ends, or give another "
        "folder with -o."
    )
    wire.schedule()
    first.communicate(timeout=120)
    assert first.returncode == 0
    assert len(wire.log()) == 40


def test_a_run_of_which_nothing_was_answered_leaves_its_folder_to_the_next(needlemap, wire):
    """A slip in a model's name, a wrong key: the command is mended, and its -o stays."""
    grid = ("--lengths", "200,300", "--depths", "0,50,100")
    wire.schedule("404", cycle=True)
    slip = needlemap.run(wire, *grid, "--model", "openai/god", code=2)
    assert "Other settings" not in slip.stderr
    wire.schedule()
    ended = needlemap.run(wire, *grid, "--depths", "0,100")
    assert "note: nothing was answered in the run that r held: it is replaced" in ended.stderr
    assert "overall 100.0 (n=4, 0 missing)" in ended.stdout  # nothing of the other's grid is left
    assert {record["model"] for record in needlemap.records()} == {"openai/m"}
    assert "left out" not in needlemap("report", "r").stderr
    other = needlemap.run(wire, *grid, "--model", "openai/god", code=2)
    assert "'r' holds a run with other settings: model" in other.stderr


def test_another_question_into_the_same_folder_is_refused_by_name(needlemap, wire):
    grid = ("--lengths", "200", "--depths", "0")
    needlemap.run(wire, *grid)
    other = needlemap.run(
        wire, *grid, "--needle", "Ann eats figs.", "--question", "What eats Ann?", code=2
    )
    (line,) = other.stderr.splitlines()
    assert line.startswith(
        "needlemap: 'r' holds a run with other settings: needle, question, keywords, draw"
    )
    assert "Give another folder with -o" in line
    warmer = needlemap.run(wire, *grid, "--temperature", "0.5", code=2)
    assert "(temperature was 0.0, is 0.5)" in warmer.stderr
    assert len(wire.log()) == 1


def test_a_haystack_that_changed_since_is_refused(needlemap, wire):
    texts = needlemap.folder / "texts"
    texts.mkdir()
    story = " ".join(f"On day {day} the baker sold {day * 7} loaves." for day in range(200))
    (texts / "a.txt").write_text(story)
    source = (
        "--haystack",
        "folder",
        "--haystack-path",
        "texts",
        "--lengths",
        "200",
        "--depths",
        "0,100",
    )
    needlemap.run(wire, *source)
    (texts / "a.txt").write_text(story.replace("baker", "butcher"))
    changed = needlemap.run(wire, *source, code=2)
    assert "'r' holds answers to other prompts (first: length 200, depth " in changed.stderr
    replayed = needlemap("replay", "r", "--length", "200", "--depth", "100", code=2)
    assert replayed.stderr.startswith("needlemap: The rebuilt prompt differs from the recorded one")
    assert replayed.stdout == ""
    assert len(wire.log()) == 2


def test_a_run_of_a_newer_version_or_a_broken_run_file_is_refused_with_words(
    needlemap, typed, wire
):
    needlemap.run(wire, "--lengths", "200", "--depths", "0")
    about = json.loads((needlemap.folder / "r" / "run.json").read_text())
    newer, partial, torn = (needlemap.folder / name for name in ("newer", "partial", "torn"))
    for folder, text in (
        (newer, json.dumps(about | {"schema": 99})),
        (partial, json.dumps({"schema": 2})),
        (torn, json.dumps(about)[:100]),
    ):
        shutil.copytree(needlemap.folder / "r", folder)
        (folder / "run.json").write_text(text)
    assert "written by a newer needlemap (schema 99" in typed("report", "newer", code=2).stderr
    assert "it holds no settings, tokenizer" in typed("report", "partial", code=2).stderr
    assert "'torn/run.json' is not a run's" in typed("report", "torn", code=2).stderr
    assert "No run at 'nowhere'" in typed("report", "nowhere", code=2).stderr


def test_records_without_their_run_json_are_not_mixed_with_a_new_run(needlemap, wire):
    needlemap.run(wire, "--lengths", "300", "--depths", "0,50")
    (needlemap.folder / "r" / "run.json").unlink()
    ended = needlemap.run(wire, "--lengths", "300", "--depths", "0,50", code=2)
    assert "holds records but no run.json" in ended.stderr
