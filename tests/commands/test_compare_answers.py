"""`needlemap compare --answers`: which answers differ, where they first do, and the exit code of
that."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import needlemap
from needlemap.records.loaded import load_run
from needlemap.reports.page.payload import SCRIPT_VALUES
from needlemap.reports.page.summary import summary

GRID = (
    "--model",
    "baseline/bm25",
    "--lengths",
    "500,900",
    "--depths",
    "0,100",
    "--repeats",
    "5",
    "--quiet",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory, command_in):
    """A folder with a run, and copies whose answers are changed."""
    command = command_in(tmp_path_factory.mktemp("answers"))
    command("run", *GRID, "-o", "a")
    copied(command.folder, "same", dict)
    copied(command.folder, "ends", lambda record: record | {"answer": changed_end(record)})
    copied(command.folder, "silent", silenced)
    return command


@pytest.fixture
def compare(runs, typed) -> Callable[..., Any]:
    """`needlemap compare` in that folder."""
    return lambda *arguments, code=0: typed("compare", *arguments, code=code, folder=runs.folder)


def copied(folder: Path, name: str, change: Callable[[dict[str, Any]], Any], of: str = "a") -> None:
    """A copy of a run with changed records."""
    for file in Path(shutil.copytree(folder / of, folder / name)).glob("records-*.jsonl"):
        lines = [
            json.dumps(change(json.loads(line))) for line in file.read_text("utf-8").splitlines()
        ]
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def changed_end(record: dict[str, Any]) -> str:
    """The answer, at 900 tokens with another last word."""
    answer: str = record["answer"]
    return f"{answer[:-1]}!" if record["length_tokens"] == 900 else answer


def unlikelier(record: dict[str, Any]) -> dict[str, Any]:
    """A record whose answer's tokens are 0.25 nats less likely each."""
    scorer = record["scorer"] | {"native": record["scorer"]["native"] - 0.25}
    nats = [each - 0.25 for each in record["logprobs"]["nats"]]
    return record | {"scorer": scorer, "logprobs": record["logprobs"] | {"nats": nats}}


def silenced(record: dict[str, Any]) -> dict[str, Any]:
    """A record whose trial failed, if it is of repeat 2."""
    lost = {"answer": None, "score": None, "failure": "timed out"}
    return record | (lost if record["repeat"] == 2 else {})


def test_every_comparison_counts_the_answers_that_are_the_same(compare):
    assert "answers: 20 of 20 pairs identical, 0 differ" in compare("a", "same").stdout
    assert "answers: 10 of 20 pairs identical, 10 differ (50.0 %)" in compare("a", "ends").stdout
    lost = "answers: 16 of 20 pairs identical, 4 differ (20.0 %, 4 of them without an answer of B)"
    assert lost in compare("a", "silent").stdout
    assert "answers: 16 of 16 pairs identical, 0 differ" in compare("silent", "a").stdout


def test_the_same_scores_hide_answers_that_differ_and_this_does_not(compare):
    found = json.loads(compare("a", "ends", "--answers", "--json").stdout)
    assert found["loss"]["value"] == 0
    answers = found["answers"]
    assert [answers[name] for name in ("n", "identical", "differing", "unanswered")] == [
        20,
        10,
        10,
        0,
    ]
    assert [(row["length_tokens"], row["differing"]) for row in answers["lengths"]] == [
        (500, 0),
        (900, 10),
    ]
    assert [(row["depth_percent"], row["differing"]) for row in answers["depths"]] == [
        (0, 5),
        (100, 5),
    ]
    assert len(answers["changed"]) == 10
    first = answers["changed"][0]
    assert first["length_tokens"] == 900
    assert (first["difference"]["first"], first["difference"]["second"]) == (".", "!")


def test_the_first_ones_come_with_the_text_and_the_token_around_the_difference(runs, compare):
    lines = compare("a", "ends", "--answers").stdout.splitlines()
    at = lines.index("first answers that differ, in the order asked (5 shown):")
    asked = [record for record in runs.records("ends") if record["length_tokens"] == 900]
    place = f"length 900, depth {100 * asked[0]['depth']:g}, repeat {asked[0]['repeat']}"
    shared = len(asked[0]["answer"]) - 1
    assert lines[at + 1].startswith(f"  {place}: the same for {shared} characters, at token ")
    before = asked[0]["answer"][:-1][-40:]
    assert lines[at + 2] == f"    A  {before!r} | '.'  token '.'"
    assert lines[at + 3] == f"    B  {before!r} | '!'  token '!'"
    assert "differ by length: 500 0 of 10, 900 10 of 10" in lines
    assert "differ by depth: 0% 5 of 10, 100% 5 of 10" in lines


def test_what_b_did_not_answer_is_said_so(compare):
    said = compare("a", "silent", "--answers").stdout
    assert said.count("repeat 2: B gave no answer") == 4


def test_the_exit_code_is_1_where_more_differ_than_may(compare):
    compare("a", "same", "--fail-if-answers-differ", "0", code=0)
    ended = compare("a", "ends", "--fail-if-answers-differ", "0", code=1)
    assert ended.stdout.splitlines()[-1] == (
        "FAIL compare: 50.0 % of the answers differ, allowed 0, 10 of 20 pairs; these prompts."
    )
    compare("a", "ends", "--fail-if-answers-differ", "50", code=0)
    compare("a", "silent", "--fail-if-answers-differ", "19.9", code=1)
    refused = compare("a", "ends", "--fail-if-answers-differ", "101", code=2)
    assert "is in percent, from 0 to 100, got 101." in refused.stderr


def test_answers_that_are_not_there_yet_are_not_the_same(runs, compare):
    """Of a run that a limit stopped, the few answers were alike: PASS with exit code 0."""
    stopped = shutil.copytree(runs.folder / "a", runs.folder / "stopped")
    for file in stopped.glob("records-*.jsonl"):
        file.write_text("".join(file.read_text("utf-8").splitlines(keepends=True)[:5]), "utf-8")
    for pair in (("a", "stopped"), ("stopped", "a")):
        ended = compare(*pair, "--fail-if-answers-differ", "0", code=4)
        assert ended.stdout.splitlines()[-1] == (
            "NOT ENOUGH DATA compare: 0.0 % of the answers differ, allowed 0, 0 of 5 pairs, "
            "15 prompts not sent to both; these prompts; resume both runs until all is answered."
        )
    compare("a", "stopped", "--fail-if-answers-differ", "75", code=0)
    ended = compare("silent", "a", "--fail-if-answers-differ", "0", code=5)
    assert (
        "SUSPECT compare: 0.0 % of the answers differ, allowed 0, 0 of 16 pairs, 4 prompts that "
        in (ended.stdout)
    )
    compare("silent", "a", "--fail-if-answers-differ", "20", code=0)
    compare("ends", "stopped", "--fail-if-answers-differ", "0", code=1)


def test_of_two_verdicts_the_more_serious_is_the_last_line_and_the_exit_code(compare):
    both = ("--margin", "2", "--fail-if-answers-differ", "0")
    compare("a", "same", *both, code=4)  # 20 pairs cannot tell
    compare("a", "same", *both, "--on-undecided", "pass", code=0)
    compare("a", "ends", *both, code=1)
    compare("a", "ends", *both, "--sequential", code=1)
    found = json.loads(compare("a", "ends", *both, "--sequential", "--json", code=1).stdout)
    assert found["result"]["claim"] == "50.0 % of the answers differ, allowed 0"
    assert found["answers"]["differing"] == 10


def test_labels_name_both_runs(compare):
    """No two runs are 'the same experiment twice': an address may serve another engine."""
    assert "experiment" not in compare("a", "ends").stdout
    named = compare("a", "ends", "--label", "f16", "--label", "q4").stdout
    assert named.startswith("A  f16 (a)\nB  q4 (ends)\n")
    assert named.splitlines()[-1].startswith("compare: q4 loses 0.0 points (")
    for labels in (["f16"], ["f16", "f16"], ["a", "b", "c"]):
        given = [part for label in labels for part in ("--label", label)]
        assert "--label names both runs, differently" in compare("a", "ends", *given, code=2).stderr


def test_log_probabilities_of_answers_that_were_given_are_compared_in_nats(runs, compare):
    """As shares, a random model's 0.7 nats are 0.0 points."""
    asked = (
        "--model",
        "demo/retriever",
        "--scorer",
        "logprob",
        "--lengths",
        "140",
        "--depths",
        "0,100",
    )
    runs("run", *asked, "--max-answer-tokens", "24", "--quiet", "-o", "given")
    copied(runs.folder, "unlikelier", unlikelier, of="given")
    said = compare("given", "unlikelier").stdout
    assert "answers: none, the models were given them" in said
    assert re.search(
        r"log-probability of 2 equal answers, B - A in nats a token: mean -0\.25", said
    )
    found = json.loads(compare("given", "unlikelier", "--json").stdout)["answers"]["nats"]
    assert found["n"] == 2
    assert found["largest"] == pytest.approx(-0.25, abs=1e-6)
    refused = compare("given", "unlikelier", "--fail-if-answers-differ", "0", code=2).stderr
    assert "needs answers, and the first run has none" in refused


def test_the_page_shows_them_too(runs):
    folder = runs.folder
    page = summary([load_run(folder / "a"), load_run(folder / "ends")], made=datetime.now(UTC))
    (found,) = page["differences"]
    assert "first answers that differ, in the order asked (5 shown):" in found["sheet"]["lines"]
    assert set(found["json"]) <= set(SCRIPT_VALUES)  # what is drawn: the rest is in words


def test_python_says_the_same(runs):
    found = needlemap.compare(runs.folder / "a", runs.folder / "ends")
    assert found.answers == {"n": 20, "identical": 10, "differing": 10, "unanswered": 0}
    assert "first answers that differ" in found.answers_text
    assert found.verdict is None
    assert found.text.splitlines()[-1] == found.sentence
    assert len(found.to_json()["answers"]["changed"]) == 10
