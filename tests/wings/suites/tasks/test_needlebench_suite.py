"""`suite:needlebench`: who reads everything scores 100 in each of its tests at 4k and 128k tokens,
and its weighted scores are NeedleBench's."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from kinship_reader import kinship_oracle

from needlemap import run
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.records.families import families_of
from needlemap.reports.goals import mean_of
from needlemap.reports.suite_report import fields_of, suite_report
from needlemap.reports.summary import read_families
from needlemap.settings.suites import load_suite, weighted
from needlemap.trials.build import prepare

LENGTHS = {"4k": 4096, "128k": 131_072}
SIZES = ["4k", "128k"]
FAMILIES = tuple(load_suite("needlebench").families)


def answer(text: str, *, kin: bool = True) -> str:
    """What a reader of the whole prompt answers. kin: whether it joins facts about families."""
    question = text.rstrip().rpartition("\n")[2]
    if "boxed" not in question:
        pairs = re.findall(r"assigned to (\S+) is (\d+)\.", text)
        pairs += re.findall(r"请记住，(.+?)对应的数字是(\d+)。", text)
        return ", ".join(value for key, value in pairs if key in question)
    if not kin:
        return "I cannot say."
    (name,) = kinship_oracle(text, question)
    return f"\\boxed{{{name}}}"


def reader(messages: list[dict[str, Any]]) -> str:
    return answer(messages[-1]["content"])


def finder(messages: list[dict[str, Any]]) -> str:
    return answer(messages[-1]["content"], kin=False)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", SIZES)
def test_who_reads_the_whole_prompt_scores_100(family, size):
    given = {"lengths": [LENGTHS[size]], "depths": [0, 40, 100], "repeats": 1}
    experiment = prepare(load_suite("needlebench").settle(given)[family])
    for trial in experiment.trials:
        said = answer(trial.prompt.messages[-1].content)
        assert asyncio.run(experiment.scorer.score(said, trial.item.reference)).share == 1


def test_who_finds_and_does_not_join_has_the_scores_that_needlebenchs_weights_give(tmp_path):
    small = {"lengths": [1200, 2000], "depths": [0, 100], "repeats": 1, "quiet": True}
    done = run("suite:needlebench", model=finder, out=tmp_path / "s", **small)
    scores = {
        each["name"]: each["overall"]["score"] for each in fields_of(tmp_path / "s")["scores"]
    }
    assert {name: round(score, 6) for name, score in scores.items()} == {
        "S-RT": 100,
        "M-RT": 100,
        "M-RS": 0,
        "overall-v1": 70,
        "overall": 66.666667,
    }
    assert re.search(r"^overall +66\.7 +66\.7 +66\.7", done.text, re.MULTILINE)
    families = families_of(tmp_path / "s")
    answer = suite_report(families, read_families(families)).answer
    assert answer.startswith("Overall over 12 families: 66.7 %; effective length <1.2k")
    assert fields_of(tmp_path / "s")["overall"]["score"] == pytest.approx(200 / 3)
    assert done.means()[1200].score == pytest.approx(2 / 3)
    assert mean_of(tmp_path / "s", 60).score == pytest.approx(200 / 3)
    assert re.search(r"^overall-v1 +70\.0 +70\.0 +70\.0", done.text, re.MULTILINE)


def test_weights_of_the_ancestral_trace_are_the_needles():
    suite = load_suite("needlebench-atc")
    sizes = [2**power for power in range(1, 10)]
    assert [*suite.families] == [f"{each}-{size}" for each in ("en", "zh") for size in sizes]
    for family, settings in suite.families.items():
        assert settings["task_options"] == {"facts": int(family.partition("-")[2])}
    assert suite.scores["total"] == {
        family: pytest.approx(int(family.partition("-")[2]) / sum(sizes) / 2)
        for family in suite.families
    }


@pytest.mark.parametrize("family", ["en-2", "en-512", "zh-512"])
def test_the_ancestral_trace_holds_the_needles_and_who_follows_them_scores_100(family):
    experiment = prepare(load_suite("needlebench-atc").settle({"repeats": 1})[family])
    for trial in experiment.trials:
        lines = trial.prompt.context_text.strip().split("\n")
        assert len(lines) == int(family.partition("-")[2])
        said = answer(trial.prompt.messages[-1].content)
        assert asyncio.run(experiment.scorer.score(said, trial.item.reference)).share == 1


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ([], "'scores' must map names"),
        ({"x": {}}, "score 'x' must list families"),
        ({"x": {"a": 0}}, "score 'x' must list families, or map them to weights above 0"),
        ({"x": {"a": True}}, "score 'x' must list families"),
        ({"x": ["c"]}, "score 'x' weighs 'c'"),
        ({"x": ["y"], "y": ["a"]}, "score 'x' weighs 'y'"),
    ],
)
def test_scores_that_make_no_sense_are_refused(scores, words):
    with pytest.raises(SettingsError, match=words):
        weighted("mine", scores or "none", ["a", "b"])


@pytest.mark.parametrize("weights", [{}, {"elsewhere": 1.0}, {"a": -1.0}, {"a": 1e999}])
def test_a_strangers_suite_json_weighs_its_own_families_alone(weights, tmp_path):
    scores = {"x": weights}
    text = {"schema_version": 1, "suite": "s", "families": ["a", "b"], "scores": scores}
    (tmp_path / "suite.json").write_text(json.dumps(text))
    with pytest.raises(
        NeedlemapError,
        match=r"score 'x' gives a weight to a family that the suite lacks|which nothing counts",
    ):
        families_of(tmp_path)
