"""Answers are kept, so another scorer reads them without asking; a judge's failure costs no second
answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from needlemap.scorers import FIRST_RULE, Score
from needlemap.scorers.words import Substring

GRID = ("--lengths", "200,300", "--depths", "0,50,100")
PICKY = """
from needlemap.plugins import Score, Scorer
class Picky(Scorer):
    name = "picky"
    async def score(self, answer, reference):
        if not any(letter.isdigit() for letter in answer):
            raise ValueError(f"no code in {answer!r}")
        return Score(1.0, 1.0, {})
"""
FIXTURES = Path(__file__).parent.parent / "fixtures"


def judged(judge) -> tuple[str, ...]:
    options = f"judge_options={{base_url: '{judge.base_url}'}}"
    return (
        "--scorer",
        "judge",
        "--scorer-options",
        "model=openai/judge",
        "--scorer-options",
        options,
    )


def test_another_scorer_gives_the_run_another_map_and_asks_nothing(needlemap, wire):
    wire.schedule("ok", "say:Ask the locker.")
    needlemap.run(wire, *GRID)
    before = (needlemap.folder / "r" / "run.json").read_text()
    ended = needlemap("score", "r", "--scorer", "exact")
    assert "6 answers scored anew, scorer exact; nothing was asked" in ended.stderr
    assert "scorer exact" in ended.stdout
    assert "(n=6, 0 missing)" in ended.stdout
    assert len(wire.log()) == 6
    assert len(needlemap.records()) == 12  # history stays
    new = needlemap.records()[6:]
    assert all(record["rescored"] and record["scorer"]["name"] == "exact" for record in new)
    old = {record["asked"]: record for record in needlemap.records()[:6]}
    for record in new:
        same = ("answer", "usage", "prompt_tokens", "latency_s", "attempts", "prompt", "finish")
        assert all(record[name] == old[record["asked"]][name] for name in same)
        assert record["key"] != old[record["asked"]]["key"]
    assert "nothing is left to score" in needlemap("score", "r", "--scorer", "exact").stderr
    assert (
        json.loads(before)["created"]
        == json.loads((needlemap.folder / "r" / "run.json").read_text())["created"]
    )


def test_the_runs_own_scorer_keeps_the_runs_options(needlemap, wire):
    """RULER's rule finds a number at the end of a word, so `score` without it gave 0."""
    wire.schedule(*["say:No12345."] * 6)
    options = ("--scorer", "recall", "--scorer-options", "rule=ruler")
    needle = ("--needle", "The code is 12345.", "--question", "Which?", "--keywords", "12345")
    needlemap.run(wire, *GRID, *needle, *options)
    assert {record["score"] for record in needlemap.records()} == {1.0}

    ended = needlemap("score", "r", "--scorer", "recall")
    assert "nothing is left to score, scorer recall with the run's options rule=ruler" in (
        ended.stderr
    )
    assert len(needlemap.records()) == 6

    typed = needlemap("score", "r", "--scorer", "recall", "--scorer-options", "rule=words")
    assert "6 answers scored anew, scorer recall; nothing was asked" in typed.stderr
    back = "needlemap score r --scorer recall --scorer-options rule=ruler"
    assert f"To go back: {back}" in typed.stderr
    assert {record["score"] for record in needlemap.records()[6:]} == {0.0}
    there = needlemap(*back.split()[1:]).stderr
    assert "To go back: needlemap score r --scorer recall --scorer-options rule=words" in there

    needlemap("score", "r", "--scorer", "exact")
    other = needlemap("score", "r", "--scorer", "recall", "-o", "other")
    assert "scorer recall; nothing was asked" in other.stderr


def test_depths_that_no_decimals_spell_are_found_again(needlemap, typed, wire):
    needlemap.run(wire, "--lengths", "200,300", "--depths", "0:100:35")
    ended = typed("score", "r", "--scorer", "exact")
    assert "17 answers scored anew, scorer exact; nothing was asked" in ended.stderr
    replayed = typed("replay", "r", "--length", "300", "--depth", "35.294118")
    assert "the same bytes as recorded" in replayed.stderr


def test_a_plug_in_that_raises_costs_a_score_and_not_the_run(needlemap, wire):
    plugin = needlemap.folder / "plug_in-1.dist-info"
    plugin.mkdir()
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: plug-in\nVersion: 1\n")
    (plugin / "entry_points.txt").write_text("[needlemap.scorers]\npicky = picky:Picky\n")
    (needlemap.folder / "picky.py").write_text(PICKY)
    needlemap.environment["PYTHONPATH"] = str(needlemap.folder)
    wire.schedule("ok", "say:Two, words.")
    needlemap.run(wire, *GRID)
    ended = needlemap.process("score", "r", "--scorer", "picky", code=3)
    assert "(n=5, 1 missing)" in ended.stdout
    (failed,) = [record for record in needlemap.records()[6:] if record["failure"]]
    assert (failed["failure"], failed["error"]) == (
        "scorer raised",
        "ValueError: no code in 'Two, words.' (picky.py, line 7)",
    )
    wire.schedule("ok", "say:Two, words.")
    needlemap.process(
        "run", *needlemap.asking(wire)[:-1], "other", *GRID, "--scorer", "picky", code=3
    )


def test_back_to_the_first_scorer_is_back_to_the_first_map(needlemap, wire):
    shown = needlemap.run(wire, *GRID).stdout
    needlemap("score", "r", "--scorer", "levenshtein")
    again = needlemap("score", "r", "--scorer", "substring")
    assert again.stdout == shown


def test_a_scorer_is_told_by_what_it_comes_to_and_not_by_how_it_was_typed(needlemap, wire):
    needlemap.run(wire, *GRID)  # scorer auto: substring
    asked = len(wire.log())
    needlemap("score", "r", "--scorer", "levenshtein")
    needlemap("score", "r", "--scorer", "substring")
    needlemap.run(wire, *GRID)
    needlemap.run(wire, *GRID, "--scorer", "substring")
    assert len(wire.log()) == asked
    other = needlemap.run(wire, *GRID, "--scorer", "exact", code=2)
    assert (
        "holds a run with other settings: scorer (scorer was {'name': 'substring'" in other.stderr
    )
    assert "To score its answers anew: needlemap score r --scorer exact" in other.stderr


def test_a_rescored_run_goes_on_with_its_new_scorer_and_its_budget_counts_answers_once(
    needlemap, wire
):
    needlemap.run(wire, *GRID)
    used = sum(
        record["prompt_tokens"] + record["completion_tokens"] for record in needlemap.records()
    )
    needlemap("score", "r", "--scorer", "levenshtein")
    more = ("--lengths", "200,300,400", "--depths", "0,50,100", "--scorer", "levenshtein")
    stopped = needlemap.run(wire, *more, "--limit-tokens", str(used + 10), code=3)
    assert f"used {used:,} of" in stopped.stderr
    ended = needlemap.run(wire, *more)
    assert "6 already scored, 3 to ask" in ended.stderr
    assert len(wire.log()) == 9
    refused = needlemap.run(wire, *GRID, code=2)
    assert "holds a run with other settings: scorer" in refused.stderr
    assert "To score its answers anew: needlemap score r --scorer substring" in refused.stderr


def test_a_new_folder_takes_the_new_scores_and_the_old_run_stays(needlemap, wire):
    wire.schedule("ok", "500")
    needlemap.run(wire, *GRID, "--retries", "0", code=3)
    before = sorted((file.name, file.read_bytes()) for file in (needlemap.folder / "r").iterdir())
    ended = needlemap("score", "r", "--scorer", "levenshtein", "-o", "new", code=3)
    assert "(n=5, 1 missing)" in ended.stdout
    assert "1 server error" in ended.stdout
    assert (
        sorted((file.name, file.read_bytes()) for file in (needlemap.folder / "r").iterdir())
        == before
    )
    assert len(needlemap.records("new")) == 6


def test_cells_of_all_starts_are_scored(needlemap, wire):
    needlemap.run(wire, "--lengths", "200", "--depths", "0,100")
    needlemap.run(wire, "--lengths", "300", "--depths", "0,50,100", "--first-repeat", "2")
    ended = needlemap("score", "r", "--scorer", "exact")
    assert "5 answers scored anew" in ended.stderr


def test_a_judge_reads_kept_answers_too(needlemap, wire, wires):
    judge = wires("--answer", "Score: 10")
    needlemap.run(wire, *GRID)
    ended = needlemap("score", "r", *judged(judge))
    assert "overall 100.0" in ended.stdout
    assert (len(wire.log()), len(judge.log())) == (6, 6)


def test_after_a_judges_failure_a_resume_asks_the_judge_and_not_the_model(needlemap, wire, wires):
    judge = wires("--answer", "Score: 10", "--schedule", json.dumps(["say:Hm."] * 18))
    needlemap.run(wire, *GRID, *judged(judge), code=3)
    assert len(wire.log()) == 6
    ended = needlemap.run(wire, *GRID, *judged(judge))
    assert "overall 100.0 (n=6, 0 missing)" in ended.stdout
    assert len(wire.log()) == 6
    assert [record["rescored"] for record in needlemap.records()] == [False] * 6 + [True] * 6


def test_a_scorer_that_needs_the_model_says_so(needlemap):
    needlemap("run", "--lengths", "128", "--depths", "0,100", "-o", "d")
    ended = needlemap("score", "d", "--scorer", "logprob", code=2)
    assert (
        "Scorer 'logprob' asks the model anew. Type: needlemap run --scorer logprob" in ended.stderr
    )


def test_answers_to_a_haystack_that_changed_are_not_scored(needlemap, wire):
    text = needlemap.folder / "texts" / "a.txt"
    text.parent.mkdir()
    text.write_text("The sea is grey today. The land is green. " * 100, encoding="utf-8")
    needlemap.run(
        wire, *GRID, "--haystack", "folder", "--haystack-path", "texts", "--haystack-repeat"
    )
    text.write_text("The sea is blue today. The land is green. " * 100, encoding="utf-8")
    ended = needlemap("score", "r", "--scorer", "exact", code=2)
    assert "cannot be rebuilt as it was asked" in ended.stderr


@pytest.fixture
def new_rule(monkeypatch):
    """Makes the next needlemap's: substring has another rule, by which everything is half right."""

    async def half(*_):
        return Score(0.5, 0.5)

    def change():
        monkeypatch.setattr(Substring, "rule", Substring.rule + 1)
        monkeypatch.setattr(Substring, "score", half)

    return change


def test_a_resume_by_another_rule_scores_all_kept_answers_anew_and_asks_nothing(
    typed, wires, needlemap, new_rule
):
    wire = wires()
    typed("run", *needlemap.asking(wire), *GRID, "--closed-book")
    asked, rule = len(wire.log()), Substring.rule
    about = typed.folder / "r" / "run.json"
    assert json.loads(about.read_text())["scorer"]["rule"] == rule
    assert {record["scorer"]["rule"] for record in needlemap.records()} == {rule}
    new_rule()
    old = typed("report", "r").stdout
    assert f"scored by rule {rule} of scorer 'substring', which has rule {rule + 1} now" in old
    assert "which asks nothing: needlemap score r --scorer substring" in old
    wire.stop()  # nobody is there to be asked
    ended = typed("run", *needlemap.asking(wire), *GRID, "--closed-book")
    assert (
        f"0 to ask\n6 answers are kept and scored anew: scorer substring, rule {rule + 1}"
        in ended.stderr
    )
    assert "overall 50.0 (n=6, 0 missing)" in ended.stdout
    assert "closed book: 1/1 right" in ended.stderr  # by the new rule too
    assert "scored by rule" not in typed("report", "r").stdout
    new = needlemap.records()[6:]
    assert {(record["rescored"], record["scorer"]["rule"]) for record in new} == {(True, rule + 1)}
    assert not {record["key"] for record in new} & {
        record["key"] for record in needlemap.records()[:6]
    }
    assert asked == 7


def test_a_grid_that_grows_under_another_rule_has_one_rule_in_all_its_cells(
    typed, wire, needlemap, new_rule
):
    typed("run", *needlemap.asking(wire), *GRID)
    new_rule()
    ended = typed(
        "run", *needlemap.asking(wire), "--lengths", "200,300,400", "--depths", "0,50,100"
    )
    assert "0 already scored, 3 to ask" in ended.stderr
    assert "overall 50.0 (n=9, 0 missing)" in ended.stdout
    assert len(wire.log()) == 9


def test_runs_by_two_rules_are_not_compared_until_both_are_scored_by_one(
    typed, needlemap, wire, new_rule
):
    typed("run", *needlemap.asking(wire), *GRID)
    new_rule()
    typed("run", *needlemap.asking(wire)[:-1], "s", *GRID)
    refused = typed("compare", "r", "s", code=2).stderr
    assert (
        f"scored differently: scorer ('substring, rule {Substring.rule - 1}', 'substring, rule"
        in refused
    )
    assert "Score both alike, which asks nothing: needlemap score r --scorer substring" in refused
    # The rule of before is gone, so that no command goes back to it.
    assert "go back" not in typed("score", "r", "--scorer", "substring").stderr
    assert " loses 0.0 points (" in typed("compare", "r", "s").stdout
    assert len(wire.log()) == 12


def test_two_runs_by_one_rule_of_before_are_compared_and_told(typed, needlemap, wire, new_rule):
    typed("run", *needlemap.asking(wire), *GRID)
    typed("run", *needlemap.asking(wire)[:-1], "s", *GRID)
    new_rule()
    compared = typed("compare", "r", "s").stdout
    note = f"scored by rule {Substring.rule - 1} of scorer 'substring'"
    assert f"note: {note}" in compared
    assert json.loads(typed("compare", "r", "s", "--json").stdout)["notes"][0].startswith(note)


def test_a_run_of_before_rules_had_numbers_is_by_the_first(typed, wire, needlemap, monkeypatch):
    monkeypatch.setattr(Substring, "rule", FIRST_RULE)
    typed("run", *needlemap.asking(wire), *GRID)
    for file in (typed.folder / "r").iterdir():
        file.write_text(file.read_text().replace(',"rule":1', "").replace(',\n  "rule": 1', ""))
    assert "rule" not in needlemap.records()[0]["scorer"]
    assert "6 already scored, 0 to ask" in typed("run", *needlemap.asking(wire), *GRID).stderr
    assert len(needlemap.records()) == 6
