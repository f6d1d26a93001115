"""`needlemap compare`: two runs on the same trials, paired; what it says, refuses and exits
with."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import needlemap

GRID = ("--model", "baseline/bm25", "--lengths", "500,900,2000", "--depths", "0,50,100", "--quiet")


@pytest.fixture(scope="module")
def runs(tmp_path_factory, command_in):
    """A folder with a run, one that loses a third of the longest length, and some that ask
    otherwise."""
    command = command_in(tmp_path_factory.mktemp("compared"))
    command("run", *GRID, "--repeats", "6", "-o", "whole")
    command("run", *GRID, "--repeats", "6", "--model-options", "window=1200", "-o", "short")
    command("run", *GRID, "--seed", "3", "-o", "seeded")
    command("run", *GRID, "--scorer", "exact", "-o", "exact")
    command("run", *GRID[:3], "700", *GRID[4:], "-o", "elsewhere")
    return command


@pytest.fixture
def compare(runs, typed) -> Callable[..., Any]:
    """`needlemap compare` in that folder."""
    return lambda *arguments, code=0: typed("compare", *arguments, code=code, folder=runs.folder)


def changed(runs: Any, name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Path:
    """A copy of the run `whole` with changed records."""
    folder = Path(shutil.copytree(runs.folder / "whole", runs.folder / name, dirs_exist_ok=True))
    for file in folder.glob("records-*.jsonl"):
        lines = [
            json.dumps(change(json.loads(line))) for line in file.read_text("utf-8").splitlines()
        ]
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def unmeasured(record: dict[str, Any]) -> dict[str, Any]:
    """A record whose trial failed, if it is of repeat 2 at 900 tokens."""
    hit = (record["repeat"], record["length_tokens"]) == (2, 900)
    return record | ({"score": None, "failure": "timed out"} if hit else {})


def half_lost(record: dict[str, Any]) -> dict[str, Any]:
    """Every record of the first depth and the second is wrong."""
    return record | ({"score": 0.0} if record["depth"] < 1 else {})


def test_it_shows_difference_interval_lengths_and_verdict(compare):
    lines = compare("whole", "short").stdout.splitlines()
    assert lines[:4] == [
        "A  baseline/bm25 (whole)",
        "B  baseline/bm25 (short)",
        "differ in model_options ({}, {'window': 1200})",
        "54 pairs, 6 haystacks",
    ]
    assert "A 100.0, B 88.9" in lines
    assert (
        "B lost 6, gained 0; p=0.031 (exact McNemar, which takes prompts as independent)" in lines
    )
    assert (
        "    2k  100.0   66.7  33.3    2.5 to 56.3     18  0.094" in lines
    )  # 3 x 0.031, after Holm
    assert (
        "loss of the cells that changed most (exploration, not corrected): "
        "2k at 0% 100.0 (n=6, p=0.031)" in lines
    )
    assert any(line.startswith("warning: the reference is hardly ever wrong") for line in lines)
    assert lines[-1].startswith("compare: short loses 11.1 points (-1.0 to 22.2), 54 pairs at ")
    judged = compare("whole", "short", "--margin", "2", code=5).stdout.splitlines()
    assert judged[-1].startswith("SUSPECT compare: short loses 11.1 points (-1.0 to 22.2), allowed")
    assert judged[:-1] == lines[:-1]


def test_the_exit_code_is_that_of_the_verdict_where_a_margin_is_typed(runs, compare):
    changed(runs, "copy", dict)
    compare("whole", "short", code=0)
    changed(runs, "lost", half_lost)
    compare("whole", "lost", "--margin", "2", code=1)
    compare("whole", "lost", "--fail-if-worse", "2", code=1)
    shown = compare("whole", "lost", "--margin", "2", "--exit-zero", code=0).stdout
    assert shown.splitlines()[-1].startswith("FAIL compare: lost loses ")
    compare("short", "whole", "--fail-if-worse", "2", code=0)  # better
    compare("whole", "short", "--fail-if-worse", "25", code=0)  # the loss is less than 25
    compare("whole", "copy", "--fail-if-worse", "2", code=4)  # too few
    compare("whole", "copy", "--fail-if-worse", "2", "--on-undecided", "pass", code=0)
    compare("whole", "lost", "--fail-if-worse", "2", "--on-undecided", "pass", code=1)
    few = compare("whole", "copy", "--fail-if-worse", "2", "--scope", "new", code=4).stdout
    assert "; new haystacks, measured " in few
    assert "6 haystacks, and new ones take 72 at least" in few
    refused = compare("whole", "copy", "--fail-if-worse", "2", "--on-undecided", "maybe", code=2)
    assert "'maybe' is not one of 'fail', 'pass'" in refused.stderr


def test_too_few_pairs_are_told_that_they_can_never_reach_it(runs, compare):
    """54 equal answers are 'cannot tell', as are 88 and 188, and that was nowhere said."""
    changed(runs, "copy", dict)
    text = compare("whole", "copy", "--margin", "2", code=4).stdout
    (line,) = [line for line in text.splitlines() if line.startswith("pairs: ")]
    assert line.startswith(
        "pairs: you have 54; a PASS at 2 points takes 189 equal pairs at least; "
    )
    assert re.search(
        r"; a FAIL, if 4 points are lost, about [\d,]+; that a loss of 2 is sure, about [\d,]+$",
        line,
    )
    assert "about 136 more pairs decide if it stays so" in text


def test_a_candidate_that_crashes_on_long_prompts_does_not_pass(runs, compare):
    """Its 18 failures were left out, and the rest is right: it was 'no worse than 5 points', exit
    code 0."""
    changed(
        runs,
        "crashes",
        lambda record: crashed(record, lambda asked: asked["length_tokens"] == 2000),
    )
    ended = compare("whole", "crashes", "--fail-if-worse", "10", code=5)
    assert "length 2k: 18 of 18 lost, 18 of them not answered" in ended.stdout
    assert (
        "crashes did not answer 18 prompts that whole answered (length 2k; the first: length 2000, "
        "depth 0, repeat 0), which may add 33.3 to the loss; these prompts"
    ) in ended.stdout.splitlines()[-1]
    found = json.loads(
        compare("crashes", "whole", "--margin", "2", "--json", code=4).stdout
    )  # what the reference failed and B got right is no loss
    assert (found["missing"]["a"], found["missing"]["may_add"]) == (18, 0.0)


def test_a_few_missing_answers_keep_it_from_no_worse(runs, compare):
    """Two of 54, which is below the margin of 10 points: but lost, they would lie beyond it."""
    hit = lambda asked: (asked["repeat"], asked["length_tokens"]) == (1, 900)  # noqa: E731
    changed(runs, "flaky", lambda record: crashed(record, hit))
    ended = compare("whole", "flaky", "--fail-if-worse", "10", code=5)
    assert "flaky did not answer 3 prompts that whole answered (length 900; " in ended.stdout
    compare("whole", "flaky", "--fail-if-worse", "40", code=0)


def test_a_candidate_that_answers_nothing_does_not_pass(runs, compare):
    """It was refused with exit code 2: no trial had both scores."""
    changed(runs, "gone", lambda record: crashed(record, lambda _: True))
    ended = compare("whole", "gone", "--fail-if-worse", "5", code=5)
    assert "0 pairs; 54 without both scores\nA -, B -\nB lost 0, gained 0\n" in ended.stdout
    assert "which may add 100.0 to the loss" in ended.stdout
    assert "by length" not in ended.stdout
    runs("report", "whole", "gone", "-o", "gone.html")
    runs("report", "whole", "gone", "-o", "gone.svg")
    assert "no pair with both scores was judged" in (runs.folder / "gone.svg").read_text("utf-8")


def crashed(record: dict[str, Any], hit: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """A record whose trial failed, if it is one of those."""
    return record | ({"score": None, "failure": "server error"} if hit(record) else {})


def test_the_margin_is_part_of_the_verdict(runs, compare):
    changed(runs, "copy", dict)
    last = compare("whole", "short", "--margin", "25").stdout.splitlines()[-1]
    assert last.startswith(
        "PASS compare: short loses less than 25 points: 11.1 (-1.0 to 22.2), 54 "
    )
    assert "copy loses 0.0 points (" in compare("whole", "copy").stdout.splitlines()[-1]


def test_a_run_is_not_compared_with_itself(compare):
    """It would be called the same experiment made twice, without any noise."""
    refused = compare("whole", "short/../whole", code=2)
    assert "is given twice" in refused.stderr


def test_json_holds_the_same(compare):
    assert "result" not in json.loads(compare("whole", "short", "--json").stdout)
    found = json.loads(compare("whole", "short", "--margin", "2", "--json", code=5).stdout)
    assert (found["result"]["word"], found["margin"], found["noise"]) == ("SUSPECT", 2.0, None)
    assert (found["exit_code"], found["scope"]) == (5, "these prompts")
    assert found["loss"]["value"] == pytest.approx(100 / 9, abs=1e-5)
    assert [(row["length_tokens"], row["n"], row["lost"]) for row in found["lengths"]] == [
        (500, 18, 0),
        (900, 18, 0),
        (2000, 18, 6),
    ]
    assert len(found["cells"]) == 9


def test_a_gain_is_a_loss_below_zero(runs, compare):
    """A gain of 11 points was 'no worse than 2 points'."""
    last = compare("short", "whole", "--margin", "2").stdout.splitlines()[-1]
    assert last.startswith("PASS compare: whole loses less than 2 points: -11.1 (-26.6 to -3.7), ")
    found = needlemap.compare(runs.folder / "short", runs.folder / "whole", margin=2)
    assert (found.verdict.word, found.loss) == ("PASS", pytest.approx(-100 / 9))


def test_runs_scored_alike_compare_whoever_named_the_scorer(runs, compare, typed):
    """'auto' and what it comes to were two scorers, and a run that was scored otherwise and back a
    third."""
    typed(
        "run", *GRID, "--repeats", "6", "--scorer", "substring", "-o", "named", folder=runs.folder
    )
    assert "54 pairs" in compare("whole", "named").stdout
    shutil.copytree(runs.folder / "whole", runs.folder / "back", dirs_exist_ok=True)
    said = typed("score", "back", "--scorer", "levenshtein", folder=runs.folder).stderr
    assert "report, compare and a resume of back go by these scores from now on" in said
    assert "To go back: needlemap score back --scorer substring" in said
    refused = compare("whole", "back", code=2).stderr
    assert (
        "Score both alike, which asks nothing: needlemap score back --scorer substring" in refused
    )
    typed("score", "back", "--scorer", "substring", folder=runs.folder)
    assert "54 pairs" in compare("whole", "back").stdout
    assert (
        "to go back"
        not in typed("score", "back", "--scorer", "exact", "-o", "e", folder=runs.folder).stderr
    )


def test_of_an_imported_run_nothing_impossible_is_asked(runs, compare, typed):
    table = "dataset,version,metric,mode,m\nCDME_Length500Depth0,a,score,gen,50\n"
    (runs.folder / "summary.csv").write_text(table)
    typed("import", "summary.csv", "-o", "imported", folder=runs.folder)
    refused = compare("whole", "imported", code=2).stderr
    assert (
        "'imported' was imported with its scores, and none of its answers can be scored anew"
        in refused
    )


def test_missing_trials_are_left_out_counted_and_widen_the_interval(runs, compare):
    changed(runs, "holed", unmeasured)
    text = compare("whole", "holed").stdout
    assert "51 pairs, 6 haystacks; 3 without both scores\n" in text
    assert "A 100.0, B 100.0\n" in text
    found = json.loads(compare("whole", "holed", "--json").stdout)
    assert (found["dropped"], found["loss"]["value"], found["not_sent"]) == (3, 0.0, 0)
    assert found["loss"]["high"] > 100 / 18


def test_prompts_that_were_not_sent_yet_are_neither_lost_nor_unanswered(runs, compare, typed):
    """A run that a limit stopped had 'lost' the long prompts, '18 of them not answered'."""
    limited = ("--limit-tokens", "30000", "-o", "stopped")
    typed("run", *GRID, "--repeats", "6", *limited, folder=runs.folder, code=3)
    text = compare("whole", "stopped", "--margin", "20", code=4).stdout
    assert " prompts not sent to both; these prompts" in text.splitlines()[-1]
    assert text.splitlines()[-1].endswith("; resume both runs until all is sent.")
    assert "lost" not in text.splitlines()[-1]
    assert "did not answer" not in text


def test_a_run_that_failed_its_first_prompts_and_stopped_lost_only_these(runs, compare):
    """Of 54 prompts it had lost 54 with a p below 0.001, and the verdict knew of no pair. Then it
    had lost four, with a score of 0.0 that report of it does not know."""
    changed(runs, "failed", lambda record: record | {"score": None, "failure": "timed out"})
    for file in (runs.folder / "failed").glob("records-*.jsonl"):
        file.write_text("".join(file.read_text("utf-8").splitlines(keepends=True)[:4]), "utf-8")
    lines = compare("whole", "failed", "--margin", "2", code=5).stdout.splitlines()
    assert lines[2] == "0 pairs; 4 without both scores"
    assert lines[3:5] == ["A -, B -", "B lost 0, gained 0"]
    assert lines[-1].startswith(
        "SUSPECT compare: no pair with both scores was judged, allowed 2, 0 pairs at 500, "
    )
    assert "50 prompts not sent to both" in lines[-1]
    found = json.loads(compare("whole", "failed", "--json").stdout)
    assert [found[name] for name in ("pairs", "lost", "dropped", "loss")] == [0, 0, 4, None]
    assert [found["overall"][name] for name in ("score_a", "score_b", "p")] == [None] * 3


def test_further_runs_of_one_model_give_the_noise_floor(runs, compare):
    changed(
        runs,
        "again",
        lambda record: record | {"score": float(record["repeat"] != record["depth"] * 2)},
    )
    assert json.loads(compare("whole", "again", "--json").stdout)["noise"] is None
    noise = ("whole", "short", "--noise", "again")
    found = json.loads(compare(*noise, "--json").stdout)["noise"]
    assert (found["runs"], found["n"], found["differing"]) == (1, 54, 9)
    said = (
        "noise: 1 further run of A's model scored 9 of 54 prompts otherwise; two such runs differ "
        f"by up to {found['largest']:.1f} points 95 times in 100"
    )
    assert compare(*noise).stdout.count(said) == 1


def test_graded_scores_are_bootstrapped(runs, compare):
    changed(runs, "graded", lambda record: record | {"score": 0.9 + 0.01 * record["repeat"]})
    text = compare("whole", "graded").stdout
    assert "(sign flips of whole haystacks; least possible 0.031)" in text
    assert "compare: graded loses 7.5 points (" in text


def test_trials_of_one_run_alone_are_left_out_and_counted(runs, compare, typed):
    typed("run", *GRID, "--repeats", "8", "-o", "longer", folder=runs.folder)
    assert "54 pairs, 6 haystacks; 18 trials of B alone\n" in compare("whole", "longer").stdout


def test_graded_scores_of_one_haystack_flip_prompts(runs, compare, typed):
    """A single haystack has one sign to flip: p would be 1 whatever the scores are."""
    for name, window in (("listed", 6000), ("listed-short", 1200)):
        options = (
            "--scorer",
            "levenshtein",
            "--order",
            "listed",
            "--model-options",
            f"window={window}",
        )
        typed("run", *GRID, *options, "-o", name, folder=runs.folder)
    text = compare("listed", "listed-short").stdout
    assert "9 pairs, 1 haystack: too few to see how losses cluster, 5 show it\n" in text
    assert "(sign flips of prompts, which takes them as independent; least possible 1)" in text


def test_prompts_that_neighbouring_depths_share_make_one_pair(compare, runs, typed):
    """At 380 tokens a haystack has few sentence ends: many depths, few prompts."""
    grid = ("--model", "baseline/bm25", "--lengths", "380", "--depths", "0:100:11", "--quiet")
    for name in ("dense", "dense-again"):
        typed("run", *grid, "--repeats", "5", "-o", name, folder=runs.folder)
    found = json.loads(compare("dense", "dense-again", "--json").stdout)
    shown = typed("report", "dense", folder=runs.folder).stdout
    assert found["pairs"] < 55
    assert f"(n={found['pairs']}, " in shown  # as many as the report counts
    assert found["dropped"] == 0


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("seeded", "ask different prompts in 9 trials (first: length 500, depth 0, repeat 0)"),
        ("seeded", "They differ in: seed (0, 3); haystacks ('generated/english "),
        ("exact", "are scored differently: scorer ('substring"),
        ("elsewhere", "have no trial (length, depth, repeat) in common."),
        ("elsewhere", "'whole' has lengths 500, 900, 2000, 'elsewhere' "),
        ("nowhere", "No run at 'nowhere'"),
    ],
)
def test_runs_that_ask_something_else_are_refused_with_what_differs(compare, other, said):
    ended = compare("whole", other, "--fail-if-worse", "2", code=2)
    assert said in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--margin", "-1"], "A margin is in points from 0 to 100, got -1."),
        (
            ["--margin", "1", "--fail-if-worse", "2"],
            "--fail-if-worse is the older name of",
        ),
    ],
)
def test_a_margin_that_means_nothing_is_refused(compare, flags, said):
    assert said in compare("whole", "short", *flags, code=2).stderr
