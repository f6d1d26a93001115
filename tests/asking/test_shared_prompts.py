"""Cells that come to the same prompt share one trial; asking twice is done on purpose and tells the
noise."""

from __future__ import annotations

import csv
import json
from collections import Counter
from typing import Any

DENSE = (
    "--lengths",
    "200",
    "--depths",
    "0:100:8",
)  # at 200 tokens a haystack has few sentence ends
SAMPLED = ("--lengths", "200,300", "--depths", "0,50")


def about(needlemap: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((needlemap.folder / "r" / "run.json").read_text("utf-8"))
    return found


def cells(needlemap: Any) -> list[dict[str, str]]:
    needlemap("report", "r", "--format", "cells", "-o", "cells.csv")
    with (needlemap.folder / "cells.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_each_prompt_is_asked_once_and_serves_all_its_cells(needlemap, wire):
    ended = needlemap.run(wire, *DENSE)
    assert "1 length x 8 depths x 1 in 5 trials" in ended.stderr
    assert "overall 100.0 (n=5, 0 missing)" in ended.stdout
    assert set(wire.prompt_counts().values()) == {1}
    assert len(wire.log()) == len(needlemap.records()) == 5
    assert [(row["n"], row["score"], row["missing"]) for row in cells(needlemap)] == [
        ("1", "100.0", "0")
    ] * 8
    shared = about(needlemap)["shared"]
    assert sum(len(places) for places in shared.values()) - len(shared) == 8 - 5
    assert set(shared) < {record["asked"] for record in needlemap.records()}
    assert "0 to ask" in needlemap.run(wire, *DENSE).stderr


def test_a_prompt_that_fails_is_missing_in_each_of_its_cells_and_once_in_all(needlemap, wire):
    wire.schedule(*["ok"], "500", cycle=True)
    ended = needlemap.run(wire, *DENSE, "--retries", "0", "--concurrency", "1", code=3)
    failed = sum(record["failure"] is not None for record in needlemap.records())
    assert f"(n={5 - failed}, {failed} missing)" in ended.stdout
    assert sum(int(row["missing"]) for row in cells(needlemap)) > failed > 0


def test_a_finer_grid_finds_its_answers_wherever_they_were_asked_first(needlemap, wire):
    needlemap.run(wire, *DENSE)
    asked = wire.prompt_counts()
    ended = needlemap.run(wire, *DENSE[:3], "0:100:50")
    assert set(wire.prompt_counts().values()) == {1}
    assert wire.prompt_counts() >= asked
    n = len(needlemap.records())
    assert f"(n={n}, 0 missing)" in ended.stdout
    assert f"(n={n}, 0 missing)" in needlemap("report", "r").stdout
    assert {row["missing"] for row in cells(needlemap)} == {"0"}
    rescored = needlemap("score", "r", "--scorer", "exact")
    assert f"{n} answers scored anew" in rescored.stderr
    assert f"(n={n}, 0 missing)" in rescored.stdout
    replayed = needlemap("replay", "r", "--length", "200", "--depth", "51.020408")
    assert "the same bytes as recorded" in replayed.stderr


def test_repeats_of_one_prompt_are_one_trial_unless_answers_are_drawn(needlemap, wire):
    text = " ".join(f"On day {day} the baker sold {day * 7} loaves." for day in range(200))
    (needlemap.folder / "texts").mkdir()
    (needlemap.folder / "texts" / "one.txt").write_text(text, encoding="utf-8")
    source = (
        "--haystack",
        "folder",
        "--haystack-path",
        "texts",
        "--order",
        "listed",
        "--repeats",
        "3",
    )
    fixed = (*source, "--needle", "The code is 48213.", "--question", "What is the code?")
    assert "(n=4, 0 missing)" in needlemap.run(wire, *SAMPLED, *fixed).stdout
    assert len(wire.log()) == 4
    wire.reset()
    drawn = (*needlemap.asking(wire)[:-2], *SAMPLED, *fixed, "--temperature", "1", "-o", "drawn")
    assert (
        "(n=4, 0 missing)" in needlemap("run", *drawn).stdout
    )  # the mean of three answers to each
    assert set(wire.prompt_counts().values()) == {3}


def test_some_prompts_are_asked_twice_on_purpose_and_count_once(needlemap, wire):
    ended = needlemap.run(wire, *DENSE, "--ask-twice", "2")
    assert "in 5 trials, 2 of them asked twice" in ended.stderr
    assert sorted(wire.prompt_counts().values()) == [1, 1, 1, 2, 2]
    assert "(n=5, 0 missing)" in ended.stdout
    assert "asked again: 0 of 2 prompts scored otherwise" in needlemap("report", "r").stdout
    twice = {record["prompt"]["sha256"] for record in needlemap.records() if record["second"]}
    assert "7 already scored, 2 to ask" in needlemap.run(wire, *DENSE, "--ask-twice", "4").stderr
    more = {record["prompt"]["sha256"] for record in needlemap.records() if record["second"]}
    assert twice < more
    assert Counter(record["second"] for record in needlemap.records()) == {False: 5, True: 4}
    assert "0 to ask" in needlemap.run(wire, *DENSE).stderr  # nothing is lost without the flag
    assert "asked again: 0 of 4 prompts" in needlemap("report", "r").stdout
    assert "9 answers scored anew" in needlemap("score", "r", "--scorer", "exact").stderr


def test_another_scorer_asks_the_same_of_the_model_in_the_box(needlemap):
    flags = ("demo", "--lengths", "128", "--depths", "0,100", "--repeats", "1")
    needlemap("run", *flags, "-o", "one")
    needlemap("run", *flags, "-o", "two", "--scorer", "exact")
    one, two = (
        {row["asked"]: row["answer"] for row in needlemap.records(name)} for name in ("one", "two")
    )
    assert one == two
    keys = [{row["key"] for row in needlemap.records(name)} for name in ("one", "two")]
    assert keys[0].isdisjoint(keys[1])
