"""One needle at each named depth: a reader of the prompt finds all at 4k and 128k tokens, a guess
none, and the report says what was found at each depth."""

from __future__ import annotations

import asyncio
import re
from functools import cache
from random import Random
from typing import Any

import pytest

from needlemap import run
from needlemap.errors import SettingsError
from needlemap.records.loaded import load_run
from needlemap.reports.run_notes import ended_lines
from needlemap.settings.reading import configure
from needlemap.suites.parallel import Parallel
from needlemap.trials import Trial
from needlemap.trials.build import Experiment, prepare

LENGTHS = {"4k": 4096, "128k": 131_072}
SIZES = ["4k", "128k"]
SAYS = {"english": r"assigned to (\S+) is (\d+)\.", "chinese": r"请记住，(.+?)对应的数字是(\d+)。"}
every_prompt = pytest.mark.parametrize(
    ("language", "size"),
    [(each, size) for each in SAYS for size in SIZES],
)


@cache
def made(language: str, size: str) -> Experiment:
    grid = {"lengths": [LENGTHS[size]], "depths": [50], "repeats": 3, "max_answer_tokens": 200}
    return prepare(configure(None, grid | {"task": "parallel", "language": language}))


def read(trial: Trial, language: str) -> dict[str, str]:
    return dict(re.findall(SAYS[language], trial.prompt.context_text))


def score(experiment: Experiment, trial: Trial, values: list[str]) -> float:
    answer = experiment.scorer.score(", ".join(values), trial.item.reference)
    return asyncio.run(answer).share


@every_prompt
def test_who_reads_all_scores_100_and_who_reads_some_their_share(language, size):
    experiment = made(language, size)
    for trial in experiment.trials:
        found = read(trial, language)
        assert all(key in trial.item.question for key in found)
        assert score(experiment, trial, [*found.values()]) == 1
        assert score(experiment, trial, [*found.values()][:3]) == pytest.approx(3 / 11)


@every_prompt
def test_a_guess_at_the_numbers_scores_by_chance(language, size):
    """11 guesses among 9 million numbers of 7 digits: none is right."""
    experiment, random = made(language, size), Random(1)
    for trial in experiment.trials:
        guessed = [str(random.randrange(10**6, 10**7)) for _ in range(11)]
        assert score(experiment, trial, guessed) == score(experiment, trial, []) == 0


@every_prompt
def test_a_needle_stands_at_each_named_depth(language, size):
    for trial in made(language, size).trials:
        assert [needle.meant for needle in trial.prompt.needles] == [at / 10 for at in range(11)]
        for needle in trial.prompt.needles:
            assert needle.realised == pytest.approx(needle.meant, abs=0.03)
        assert trial.prompt.tokens == LENGTHS[size] - 200


@pytest.mark.parametrize("mode", ["bins", "single", "cold"])
@pytest.mark.parametrize("depth", [0, 50])
def test_no_plan_moves_a_needle_from_its_named_depth(mode, depth):
    """`plan` shows all modes; mode `bins` asked for the bin of a depth that no cell has."""
    grid = {"lengths": [1500, 2000], "depths": [depth], "max_answer_tokens": 20, "mode": mode}
    for trial in prepare(configure(None, grid | {"task": "parallel"})).trials:
        for needle in trial.prompt.needles:
            assert needle.realised == pytest.approx(needle.meant, abs=0.06)


def test_keys_stand_in_the_question_in_an_order_of_their_own():
    orders = set()
    for trial in made("english", "4k").trials:
        asked = re.search(r"assigned to (.+)\?", trial.item.question)
        assert asked
        keys = re.split(", | and ", asked[1])
        orders.add(tuple(keys.index(key) for key in read(trial, "english")))
    assert len(orders) == 3


def reads_the_end(messages: list[dict[str, Any]]) -> str:
    """Finds what stands in the second half of a prompt."""
    text = messages[-1]["content"]
    found = re.findall(SAYS["english"], text[len(text) // 2 :])
    return ", ".join(value for _, value in found)


def test_a_report_says_what_was_found_at_each_depth(tmp_path):
    grid = {"lengths": [2000], "depths": [50], "repeats": 2, "max_answer_tokens": 200}
    run(model=reads_the_end, task="parallel", out=tmp_path / "r", quiet=True, **grid)
    said = "\n".join(ended_lines(load_run(tmp_path / "r")))
    assert "found by depth: 0% 0/2 · 10% 0/2 · 20% 0/2 · 30% 0/2 · 40% 0/2" in said
    assert "80% 2/2 · 90% 2/2 · 100% 2/2" in said


@pytest.mark.parametrize("at", [[50], [0, 101], [50, 0], [0, 0]])
def test_depths_that_make_no_sense_are_refused(at):
    with pytest.raises(SettingsError, match="Option 'at' of parallel must list"):
        Parallel(at=at)
