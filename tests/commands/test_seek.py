"""`needlemap run --seek`: an effective length, asked where it matters."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import pytest

import needlemap
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.records.families import families_of
from needlemap.records.loaded import load_run
from needlemap.records.record import Record
from needlemap.records.run_file import RunFile
from needlemap.reports.colours import LINES
from needlemap.reports.page.sheets import Subject
from needlemap.reports.page.summary import summary
from needlemap.reports.seek_report import length_line
from needlemap.reports.summary import read_families
from needlemap.stats.seek import result_of_run

# Finds the code in prompts of up to a length; the demo's words are 'locker code for CITY is
# NUMBER'.
MODELS = """
import re
from zlib import crc32

def cliff(prompt):
    return _found(prompt) if len(str(prompt)) < 6_000 else "I do not know."

def perfect(prompt):
    return _found(prompt)

def blind(prompt):
    return "I do not know."

def patchy(prompt):
    if crc32(str(prompt).encode()) % 5 == 0:
        raise RuntimeError("no luck")
    return _found(prompt)

def _found(prompt):
    return re.search(r"The locker code for [^.]* is (\\d+)\\.", str(prompt))[1]
"""
RANGE = ("--lengths", "500,4000", "--seek", "85")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, command_in) -> Path:
    """A folder with models, and a run that sought one's cliff."""
    command = command_in(tmp_path_factory.mktemp("sought"))
    folder = Path(command.folder)
    (folder / "sought_models.py").write_text(MODELS, encoding="utf-8")
    return folder


@pytest.fixture
def command(folder, typed, monkeypatch) -> Any:
    """A command in that folder."""
    monkeypatch.syspath_prepend(str(folder))
    return lambda *arguments, code=0: typed(*arguments, code=code, folder=folder)


def records(run: Path) -> list[dict[str, Any]]:
    lines = [
        line
        for file in run.glob("records-*.jsonl")
        for line in file.read_text("utf-8").splitlines()
    ]
    return [json.loads(line) for line in lines]


def seek(command: Any, model: str, out: str, *more: str, code: int = 0) -> Any:
    return command(
        "run", "--model", f"python/sought_models:{model}", *RANGE, "-o", out, *more, code=code
    )


def test_it_holds_a_cliff_and_shows_what_it_asked(folder, command):
    found = seek(command, "cliff", "cliff").stdout.splitlines()
    fields = json.loads(command("report", "cliff", "--json").stdout)["runs"][0]["seek"]
    # The prompt of the cliff: the longest that was answered and the shortest that was not.
    kept = records(folder / "cliff")
    right = max(row["length_tokens"] for row in kept if row["score"] == 1)
    wrong = min(row["length_tokens"] for row in kept if row["score"] == 0)
    assert fields["low"] <= right <= wrong <= fields["high"]
    assert (
        fields["high"] <= 1.3**2 * 2**0.25 * fields["low"] + 1
    )  # as wished, and a spacing either side
    assert found[1].startswith("effective length at 85 %: ")
    assert found[2].startswith("as far as a smooth curve between the lengths asked: 500, ")
    assert fields["assumes"] == found[2]
    assert found[3].startswith(f"{fields['haystacks']} haystacks, {fields['trials']} trials, ")
    assert fields["trials"] == len(kept) == sum(row["n"] for row in fields["lengths"])
    assert len(found) == 5 + len(fields["lengths"])
    assert command("report", "cliff").stdout.splitlines() == found


def test_every_haystack_is_fresh_and_asked_at_eight_depths_one_in_each_part(folder, command):
    seek(command, "cliff", "cliff")
    rows = records(folder / "cliff")
    lengths = {row["repeat"]: row["length_tokens"] for row in rows}
    asked = Counter((row["repeat"], row["length_tokens"]) for row in rows)
    # Depths of one sentence come to one prompt, which is asked once: in short haystacks.
    assert {count for (_, length), count in asked.items() if length > 1_000} == {8}
    assert all(count <= 8 for count in asked.values())
    assert sorted(lengths) == list(range(len(lengths)))
    for repeat in lengths:
        depths = sorted(row["depth"] for row in rows if row["repeat"] == repeat)
        parts = enumerate(depths if len(depths) == 8 else ())
        assert all(at / 8 - 1e-3 <= depth <= (at + 1) / 8 + 1e-3 for at, depth in parts)


def test_a_limit_stops_it_and_the_same_command_goes_on_to_the_same_end(folder, command):
    whole = seek(command, "cliff", "cliff").stdout
    stopped = seek(command, "cliff", "parts", "--limit-tokens", "40000", code=3)
    assert "not reached" in stopped.stdout
    before = [row["key"] for row in records(folder / "parts")]
    assert seek(command, "cliff", "parts").stdout == whole
    after = [row["key"] for row in records(folder / "parts")]
    assert len(set(after)) == len(after) > len(before)
    assert seek(command, "cliff", "parts").stdout == whole  # nothing is left to ask
    assert len(records(folder / "parts")) == len(after)


def test_a_model_that_holds_or_fails_everywhere(command):
    found = seek(command, "perfect", "perfect").stdout
    assert "effective length at 85 %: >=4k" in found
    assert "\n    4k  100.0" in found  # it was asked
    assert "effective length at 85 %: <500\n" in seek(command, "blind", "blind").stdout


def test_it_narrows_on_when_more_is_wished(folder, command):
    wide = seek(command, "cliff", "wished").stdout
    before = len(records(folder / "wished"))
    narrow = seek(command, "cliff", "wished", "--within", "10%").stdout
    assert "sought to 30 %" in wide
    assert "sought to 10 %" in narrow
    assert len(records(folder / "wished")) > before


def test_more_lanes_ask_more_haystacks_at_a_time(folder, command):
    seek(command, "cliff", "lanes", "--concurrency", "32", "--limit-tokens", "200000")
    first = [row["repeat"] for row in records(folder / "lanes")]
    assert len(set(first)) >= 7  # three to begin with, then four


def test_a_plan_tells_a_range_and_where_seeking_is_no_better(command):
    found = command(
        "plan", "--model", "baseline/bm25", "--lengths", "1k,128k", "--seek", "85"
    ).stdout
    assert "prompt tokens asked: " in found
    assert "holds to the end" in found
    assert "No better than plain repeats" in found
    fields = json.loads(command("plan", "bm25", *RANGE, "--json").stdout)
    assert fields["least"] < fields["most"]


def test_each_family_of_a_suite_seeks_and_no_mean_is_made_of_them(folder, command):
    (folder / "two.yaml").write_text(
        "families:\n  one: {task: single}\n  keys: {task: kv}\nsettings: {lengths: [600, 2000]}\n",
        "utf-8",
    )
    found = command(
        "run", "suite:two.yaml", "--model", "baseline/bm25", "--seek", "85", "-o", "two"
    ).stdout
    lines = found.splitlines()
    assert lines[0] == "suite two · baseline/bm25"
    assert lines[1].split("  ")[0] == "family"
    assert [line.split()[0] for line in lines[2:4]] == ["one", "keys"]
    holds = "at 85 %: >=2k, as far as a smooth curve between the lengths asked: "
    assert all(holds in line for line in lines[2:4])
    assert command("report", "two").stdout == found
    fields = json.loads(command("report", "two", "--json").stdout)["runs"][0]
    assert (fields["overall"], fields["lengths"], fields["effective_lengths"]) == (None, [], [])
    assert fields["families"]["one"]["seek"]["haystacks"] > 3
    run = needlemap.load(folder / "two")
    assert str(run) == found
    with pytest.raises(NeedlemapError, match=r"Take one of them: \.families\['one'\]"):
        run.effective()
    assert run.families["one"].sought.high == inf
    families = families_of(folder / "two")
    (sheet,) = summary([Subject(families, read_families(families))], made=datetime.now(UTC))[
        "sheets"
    ]
    for row, line in zip(sheet["table"]["rows"], lines[2:4], strict=True):
        name, *cells = row["cells"]
        assert line.split(maxsplit=1)[0] == name
        assert all(text in line for text, *_ in cells)
    names = re.findall(r'<text[^>]*font-weight="bold"[^>]*>([^<]+)<', sheet["chart"])
    assert (sorted(names), sheet["lines"]) == (["keys", "one"], [])
    plan = command("plan", "suite:two.yaml", "--model", "baseline/bm25", "--seek", "85").stdout
    assert plan.startswith("each of 2 families, one after the other:\n")


def test_a_suite_that_a_limit_stopped_goes_on_to_the_same_end(folder, command):
    (folder / "stopped.yaml").write_text(
        "families:\n  one: {task: single}\n  keys: {task: kv}\nsettings: {lengths: [600, 2000]}\n",
        "utf-8",
    )
    sought = ("run", "suite:stopped.yaml", "--model", "baseline/bm25", "--seek", "85", "-o")
    whole = command(*sought, "at-once").stdout
    command(*sought, "stopped", "--limit-tokens", "30000", code=3)
    before = [row["key"] for row in records(folder / "stopped" / "one")]
    assert command(*sought, "stopped").stdout == whole
    after = [row["key"] for row in records(folder / "stopped" / "one")]
    assert len(set(after)) == len(after) > len(before) > 0


@pytest.mark.parametrize("asks", [needlemap.run, needlemap.make_plan])
def test_several_models_that_seek_are_refused_in_python_too(folder, asks):
    settings = {"lengths": "500,4000", "seek": 85, "model": ["baseline/bm25", "baseline/random"]}
    if asks is needlemap.run:
        settings["out"] = folder / "several"
    with pytest.raises(SettingsError, match=r"^seek is for one model at a time"):
        asks(**settings)
    assert not (folder / "several").exists()


def test_python_has_what_a_seek_found(folder, command):
    seek(command, "cliff", "cliff")
    fields = json.loads(command("report", "cliff", "--json").stdout)["runs"][0]
    found = needlemap.load(folder / "cliff").sought
    assert (round(found.low), round(found.high)) == (fields["seek"]["low"], fields["seek"]["high"])
    assert fields["overall"] is None  # a mean over what was asked unevenly tells nothing
    assert "effective length at 85 %" in str(needlemap.load(folder / "cliff"))


def test_no_place_makes_a_mean_of_what_was_asked_unevenly(folder, command):
    """A table of two runs, a list, a page and Python each had a mean of their own."""
    seek(command, "cliff", "cliff")
    seek(command, "perfect", "perfect")
    table = command("report", "cliff", "perfect").stdout.splitlines()
    assert [line.split()[-1] for line in table[:3]] == ["all", "-", "-"]
    rows = [line.split() for line in command("list", "runs", ".").stdout.splitlines()]
    assert next(row for row in rows if row[0] == "cliff")[3] == "sought"

    runs = [load_run(folder / name) for name in ("cliff", "perfect")]
    sheet, *_ = summary(list(map(Subject.of, runs)), made=datetime.now(UTC))["sheets"]
    for row in sheet["table"]["rows"]:
        _, (mean, _), (certainty, _), *_ = row["cells"]
        assert (mean, certainty.startswith("n=")) == ("-", True)


def test_python_refuses_means_of_a_seek_and_lengths_of_other_rules(folder, command):
    seek(command, "cliff", "cliff")
    run = needlemap.load(folder / "cliff")
    sought, effective = run.sought, run.effective("absolute:85")
    assert (effective.low, effective.high) == (sought.low, sought.high)
    assert (effective.value, effective.longest) == (sought.point, 4000)
    for refused in (run.means, run.published_length, lambda: run.effective("auc")):
        with pytest.raises(NeedlemapError, match=r"Take \.sought"):
            refused()


def test_a_figure_shows_raw_counts_beside_the_curve_and_a_page_has_it_in_place_of_means(
    folder, command
):
    seek(command, "cliff", "cliff")
    command("report", "cliff", "-o", "cliff.svg")
    figure = (folder / "cliff.svg").read_text("utf-8")
    fields = json.loads(command("report", "cliff", "--json").stdout)["runs"][0]["seek"]
    assert figure.count("<circle") == len(fields["lengths"])
    assert "effective length at 85 %: " in figure
    assert "<circle" in needlemap.load(folder / "cliff").plot().svg
    (run,) = summary([load_run(folder / "cliff")], made=datetime.now(UTC))["runs"]
    lines = command("report", "cliff").stdout.splitlines()
    assert run["lines"] == list(map(str.strip, lines))
    assert run["sought"]["name"] == "Effective length at 85 %"
    assert run["effective"] == []
    assert run["beside"].startswith("<svg ")
    command(
        "run", "--model", "baseline/bm25", "--lengths", "500,900", "--depths", "0,50", "-o", "grid"
    )
    assert "Draw them apart" in command("report", "cliff", "grid", "-o", "both.png", code=2).stderr


def test_a_figure_has_the_interval_that_json_has_at_each_length(folder, command):
    """The figure divided trials by the design effect of all lengths, JSON and page did not."""
    seek(command, "cliff", "cliff")
    command("report", "cliff", "-o", "cliff.svg")
    figure = (folder / "cliff.svg").read_text("utf-8")
    top, height = map(
        float,
        re.search(r'y="([\d.]+)" width="[\d.]+" height="([\d.]+)" fill="none"', figure).groups(),
    )
    pattern = rf'M[\d.]+ ([\d.]+)L[\d.]+ ([\d.]+)" fill="none" stroke="{LINES[0]}"'
    drawn = [
        [100 * (1 - (float(y) - top) / height) for y in ends]
        for ends in re.findall(pattern, figure)
    ]
    rows = json.loads(command("report", "cliff", "--json").stdout)["runs"][0]["lengths"]
    assert len(drawn) == len(rows)
    for ends, row in zip(drawn, rows, strict=True):
        assert ends == pytest.approx([row["low"], row["high"]], abs=0.05)


def test_a_report_names_what_could_not_be_measured(command):
    seek(command, "patchy", "patchy", code=3)
    (fields,) = json.loads(command("report", "patchy", "--json").stdout)["runs"]
    assert fields["missing"] > 0
    outcomes = f"outcomes: {fields['seek']['trials']} scored · {fields['missing']} model raised"
    assert outcomes in command("report", "patchy").stdout.splitlines()


def test_markdown_has_what_was_sought_and_each_length(folder, command):
    """It was refused, with .md among the suffixes to take."""
    seek(command, "cliff", "cliff")
    command("report", "cliff", "-o", "cliff.md")
    lines = (folder / "cliff.md").read_text("utf-8").splitlines()
    fields = json.loads(command("report", "cliff", "--json").stdout)["runs"][0]["seek"]
    assert any(line.startswith(r"- effective length at 85 %\: ") for line in lines)
    assert sum(" haystack" in line for line in lines) == len(fields["lengths"]) + 1


def test_what_does_not_go_together_is_refused(folder, command):
    def told(*arguments: str) -> str:
        return str(command("run", "--model", "baseline/bm25", *arguments, "-o", "x", code=2).stderr)

    assert "leave --mode bins out" in told(*RANGE, "--mode", "bins")
    assert "leave --repeats out" in told(*RANGE, "--repeats", "3")
    assert "a shortest and a longest length" in told("--seek", "85", "--lengths", "4000")
    assert "--within" in told("--within", "10%", "--lengths", "500,8000")
    assert "is no percentage" in told("--lengths", "500,8000", "--seek", "much")
    assert "not known before" in str(command("prompts", "bm25", *RANGE, code=2).stderr)
    assert "judges a mean" in told(*RANGE, "--fail-under", "80")
    assert "one model at a time" in told(*RANGE, "--model", "baseline/random")
    assert not (folder / "x").exists()
    seek(command, "blind", "blind")
    model = ("--model", "python/sought_models:blind", "--lengths", "500,4000", "-o", "blind")
    assert "seek" in str(command("run", *model, code=2).stderr)  # a grid would mix two kinds of run


def test_hits_and_misses_that_repeat_cell_by_cell_are_told_in_place_of_a_point():
    """By length and whole percent of depth alone, whatever the haystack: no more than a few are
    hits."""
    random = Random(5)
    settings = {"seek": 85.0, "within": 30.0, "lengths": "1k,128k", "depths": "0:100:11"}
    scorer = {"name": "first", "options": {}}
    parts = {"tokenizer": {"name": "bytes", "fingerprint": ""}, "scorer": scorer, "cells": []}
    named = {"model": "m", "task": "single", "mode": "exact", **settings}
    about = RunFile.model_validate({**parts, "haystacks": [], "settings": named})
    shares = {1_000: 1.0, 11_314: 0.9, 16_000: 0.85, 22_627: 0.8, 38_055: 0.6}
    hit = {
        (length, cell): random.random() < share
        for length, share in shares.items()
        for cell in range(101)
    }
    records = []
    for repeat in range(150):
        length = random.choice(list(shares))
        for cell in {round(12.5 * (at + random.random())) for at in range(8)}:
            place = {"length_tokens": length, "depth": cell / 100, "repeat": repeat, "seed": 0}
            score = float(hit[length, cell])
            records.append(
                Record(key=f"{repeat} {cell}", task="single", model="m", score=score, **place)
            )
    found = result_of_run(about, records)
    assert (found.rough, found.crawls, found.point) == (True, True, None)
    assert "hits and misses repeat cell by cell" in length_line(found)
    chance = [
        each.model_copy(update={"score": float(random.random() < shares[each.length_tokens])})
        for each in records
    ]
    assert not result_of_run(about, chance).rough
