"""Suites: several families' settings as data."""

from __future__ import annotations

from pathlib import Path

import pytest

from needlemap.errors import SettingsError
from needlemap.registry import installed
from needlemap.settings.suites import choose, load_suite
from needlemap.shelves import SUITES
from needlemap.trials.resolve import resolve


def test_rulers_eight_needle_tests_are_its_presets():
    settled = load_suite("ruler-niah").settle({"lengths": "4k:128k:6"})
    assert len(settled) == 8
    assert {settings.task for settings in settled.values()} == {
        "magic",
        "multikey",
        "multivalue",
        "multiquery",
    }
    assert all(settings.scorer_options == {"rule": "ruler"} for settings in settled.values())
    assert {settings.lengths.written for settings in settled.values()} == {"4k:128k:6"}


@pytest.mark.parametrize("name", SUITES.texts)
def test_every_suite_says_what_it_is_and_resolves(name):
    suite = load_suite(name)
    assert len(SUITES.about(name).split()) > 3
    for settings in suite.settle({}).values():
        resolve(settings)


def test_the_smoke_suite_has_every_family():
    """But those that ask for texts or a file of the user's, and what `check` asks."""
    asked = {settings.task for settings in load_suite("smoke").settle({}).values()}
    ours = {name for name, point in installed("tasks").items() if point.dist.name == "needlemap"}
    assert ours - asked == {"single", "multi", "published", "apart"}


def test_later_settings_win_and_options_are_merged(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "# Two of mine.\n"
        "settings: {repeats: 2, lengths: [500], max_answer_tokens: 20}\n"
        "families:\n"
        "  easy: {preset: ruler-niah-multikey-1, repeats: 3}\n"
        "  hard: {preset: ruler-niah-multikey-1, task_options: {keys: 8}}\n"
    )
    suite = load_suite(str(file))
    assert suite.name == "mine"
    easy, hard = suite.settle({"seed": "4", "task_options": {"fresh": "repeat"}}).values()
    assert (easy.repeats, hard.repeats, easy.max_answer_tokens, hard.seed) == (3, 2, 20, 4)
    assert (easy.task_options["keys"], hard.task_options["keys"]) == (4, 8)
    assert easy.task_options["fresh"] == hard.task_options["fresh"] == "repeat"


def test_a_familys_own_depths_stay_as_it_may_ask_about_the_whole_text():
    settled = load_suite("smoke").settle({"depths": "10,90"})
    assert settled["count-frequent"].depths.written == [50]
    assert settled["magic"].depths.written == "10,90"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("families: {}", "needs families"),
        ("- a", "needs families"),
        ("families: [a]", "needs families"),
        ("families: {a: {preset: passkey}}\nsetting: {}", "Did you mean 'settings'"),
        ("families: {a: 3}", "'a' must be a mapping"),
        ("families: {../a: {preset: passkey}}", "names a folder"),
        (
            "families: {a: {preset: passky}}",
            "Family 'a': Unknown preset 'passky'. Did you mean 'passkey'",
        ),
        ("families: {a: {lenghts: 3}}", "Unknown setting 'lenghts' in family 'a' of suite 'bad'"),
        (
            "families: {a: {task: kv, model: baseline/random}, b: {task: kv}}",
            "'model' must be the same",
        ),
        ("families: {a: {limit_tokens: 10}, b: {}}", "'limit_tokens' must be the same"),
        ("families: {a: [", "not readable YAML"),
    ],
)
def test_a_suite_that_cannot_be_asked_says_why(tmp_path: Path, text, said):
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as error:
        load_suite(str(file)).settle({})
    assert said in str(error.value)


def test_unknown_names_name_the_nearest():
    with pytest.raises(SettingsError, match="Did you mean 'ruler-niah'"):
        load_suite("rulr-niah")
    with pytest.raises(SettingsError, match=r"No suite file at 'mine\.yaml'"):
        load_suite("mine.yaml")
    with pytest.raises(SettingsError, match="Unknown preset"):
        choose("smoke", {})
    assert list(choose("suite:smoke", {}).families) == list(load_suite("smoke").families)
    assert list(choose("passkey", {}).families) == [""]


@pytest.mark.parametrize("name", ["task", "needle", "question"])
def test_what_makes_a_family_is_no_flag_of_a_suite(name):
    with pytest.raises(SettingsError, match=f"has its own {name}: leave --{name} out"):
        load_suite("smoke").settle({name: "x"})
