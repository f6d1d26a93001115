"""`needlemap compare SUITE_A SUITE_B`: family by family, and the mean over families, which
decides."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest

MINE = (
    "settings: {lengths: [900, 1200], depths: [0, 50, 100], max_answer_tokens: 40, repeats: 6}\n"
    "families: {key: {task: passkey}, one: {task: magic}, all: {task: multivalue}}\n"
)


@pytest.fixture(scope="module")
def suites(tmp_path_factory: pytest.TempPathFactory, command_in: Any) -> Any:
    """A folder with a suite, one whose model sees less, one of another seed, and one with a family
    less."""
    command = command_in(tmp_path_factory.mktemp("compared"))
    (command.folder / "mine.yaml").write_text(MINE)
    (command.folder / "less.yaml").write_text(MINE.replace(", all: {task: multivalue}", ""))
    command("run", "suite:mine.yaml", "--quiet", "-o", "whole")
    command("run", "suite:mine.yaml", "--quiet", "-o", "short", "--model-options", "window=700")
    command("run", "suite:mine.yaml", "--quiet", "-o", "seeded", "--seed", 3)
    command("run", "suite:less.yaml", "--quiet", "-o", "less")
    return command


@pytest.fixture
def compare(suites: Any, typed: Any) -> Callable[..., Any]:
    """`needlemap compare` in that folder."""
    return lambda *arguments, code=0: typed("compare", *arguments, code=code, folder=suites.folder)


def test_it_shows_a_row_a_family_and_the_verdict_on_their_mean(compare):
    lines = compare("whole", "short", "--margin", 2, code=1).stdout.splitlines()
    assert lines.pop().startswith(
        "FAIL compare: short loses 33.3 points (21.0 to 44.8), allowed 2, not tested: all (the "
        "reference scores 25.0, n=36), "
    )
    assert lines == [
        "A  suite mine · baseline/bm25 (whole)",
        "B  suite mine · baseline/bm25 (short)",
        "differ in model_options ({}, {'window': 700})",
        "by family (p by Holm's correction over 3; intervals of one family each):",
        "family  verdict              A     B  loss      interval  pairs      p",
        "key     FAIL             100.0  66.7  33.3  12.6 to 49.7     36  0.001",
        "one     FAIL             100.0  66.7  33.3  12.6 to 49.7     36  0.001",
        "all     NOT ENOUGH DATA   25.0  25.0   0.0  -15.6 to 9.6     36      1",
        "",
        "mean over 2 of 3 families, each counting the same, however many pairs it has:",
        "A 100.0, B 66.7",
        "72 pairs, 6 haystacks",
        "B lost 24, gained 0; p=<0.001 (exact McNemar, which takes prompts as independent)",
        "answers: 62 of 108 pairs identical, 46 differ (42.6 %)",
        "3 families' verdicts are 3 chances to err: go by the one on their mean",
    ]


def test_a_familys_row_is_what_is_said_of_its_two_runs(compare):
    whole = json.loads(compare("whole", "short", "--margin", 2, "--json", code=1).stdout)
    alone = json.loads(compare("whole/key", "short/key", "--json").stdout)
    family = {**whole["families"]["key"]}
    assert family.pop("result")["word"] == "FAIL"
    assert family | {"exit_code": 0, "noise": None} == alone | {"p_holm": family["p_holm"]}
    assert alone["overall"]["p"] < whole["families"]["key"]["p_holm"] <= 3 * alone["overall"]["p"]
    losses = [whole["families"][name]["loss"]["value"] for name in ("key", "one")]
    assert whole["loss"]["value"] == pytest.approx(sum(losses) / 2)
    assert [group["family"] for group in whole["not_tested"]] == ["all"]
    assert (whole["result"]["word"], whole["margin"], whole["pairs"]) == ("FAIL", 2.0, 72)


def test_the_exit_code_is_that_of_the_mean(compare):
    compare("whole", "short", code=0)
    compare("whole", "short", "--fail-if-worse", 2, code=1)
    compare("short", "whole", "--fail-if-worse", 2, code=0)
    ended = compare(
        "whole", "short", "--fail-if-worse", 45, code=0
    )  # two families lost 33; the third was mostly wrong before, and made it 22
    assert "PASS compare: short loses less than 45 points: 33.3 (21.0 to 44.8), " in ended.stdout


def test_families_of_one_suite_alone_are_left_out_and_named(compare):
    text = compare("whole", "less").stdout
    assert "left out, as only A has begun them: all\n" in text
    assert "mean over 2 families" in text
    assert json.loads(compare("less", "whole", "--json").stdout)["only_b"] == ["all"]


def test_missing_scores_widen_the_interval(suites, compare):
    holed = shutil.copytree(suites.folder / "whole", suites.folder / "holed", dirs_exist_ok=True)
    for file in (holed / "key").glob("records-*.jsonl"):
        rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        lost = [
            row | {"score": None, "failure": "timed out"} if row["repeat"] == 2 else row
            for row in rows
        ]
        file.write_text("".join(f"{json.dumps(row)}\n" for row in lost), "utf-8")
    text = compare("whole", "holed").stdout
    assert "66 pairs, 6 haystacks\n" in text
    assert "which may add 8.3 to the loss" in text  # 6/36 / 2


def test_a_family_without_a_pair_is_not_in_the_mean(suites, compare):
    """The mean had B at 50.0, where the verdict below it said that it lost 0.0 points."""
    failed = shutil.copytree(suites.folder / "whole", suites.folder / "failed")
    for file in (failed / "one").glob("records-*.jsonl"):
        rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()[:3]]
        failures = [row | {"score": None, "failure": "timed out"} for row in rows]
        file.write_text("".join(f"{json.dumps(row)}\n" for row in failures), "utf-8")
    lines = compare("whole", "failed").stdout.splitlines()
    row = next(line for line in lines if line.startswith("one "))
    # A loss of 100 points stood here.
    assert row.split() == ["one", "-", "-", "0"]
    place = lines.index(
        "mean over 1 of 3 families, each counting the same, however many pairs it has:"
    )
    assert lines[place + 1 : place + 3] == ["A 100.0, B 100.0", "36 pairs, 6 haystacks"]
    found = json.loads(compare("whole", "failed", "--json").stdout)
    assert (found["loss"]["value"], found["pairs"], found["overall"]["p"]) == (0.0, 36, 1.0)
    assert found["families"]["one"]["p_holm"] is None


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ("seeded", "Family 'key': 'whole/key' and 'seeded/key' ask different prompts in 36 trials"),
        (
            "short/key",
            "'whole' is a suite and 'short/key' is not. Compare two suites, or one of its families",
        ),
        ("nowhere", "No run at 'nowhere'"),
        ("short/../whole", "Suite 'whole' is given twice."),
    ],
)
def test_what_cannot_be_compared_says_why(compare, second, said):
    ended = compare("whole", second, "--fail-if-worse", 2, code=2)
    assert said in ended.stderr
    assert ended.stdout == ""


def test_suites_without_a_family_in_common_name_what_they_have(suites, compare):
    (suites.folder / "empty").mkdir(exist_ok=True)
    about = {"schema_version": 1, "suite": "mine", "families": ["key"]}
    (suites.folder / "empty" / "suite.json").write_text(json.dumps(about))
    said = compare("whole", "empty", code=2).stderr
    assert "have begun no family of one name (key, one, all; none)" in said
