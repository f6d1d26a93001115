"""In what two runs differ."""

from __future__ import annotations

from typing import Any

from needlemap.records import RunFile, contrast, phrase, prompt_contrast

PARTS: dict[str, Any] = {
    "settings": {
        "model": "a",
        "task": "t",
        "mode": "exact",
        "needle": "",
        "seed": 0,
        "concurrency": 4,
    },
    "tokenizer": {"name": "cl100k_base", "fingerprint": "quicktok:0123456789abcdef"},
    "haystacks": [{"name": "generated", "sha256": "f" * 64}],
    "scorer": {"name": "exact", "options": {}},
    "cells": [],
}


def changed(**parts: Any) -> RunFile:
    settings = PARTS["settings"] | parts.get("settings", {})
    return RunFile.model_validate({**PARTS, **parts, "settings": settings})


ABOUT = changed()


def test_equal_runs_differ_in_nothing_and_speed_is_no_difference():
    assert contrast(ABOUT, ABOUT) == {}
    assert contrast(ABOUT, changed(settings={"concurrency": 1})) == {}


def test_a_setting_that_one_run_does_not_know_is_not_set():
    assert contrast(ABOUT, changed(settings={"guide": True})) == {"guide": ("not set", True)}


def test_the_model_changes_no_prompt():
    found = contrast(ABOUT, changed(settings={"model": "b", "needle": "A fact."}))
    assert found == {"model": ("a", "b"), "needle": ("", "A fact.")}
    assert phrase(prompt_contrast(found)) == "needle ('', 'A fact.')"


def test_tokenizer_haystack_and_scorer_are_named_with_what_tells_them_apart():
    other = changed(
        tokenizer={"name": "cl100k_base", "fingerprint": "quicktok:fedcba9876543210"},
        haystacks=[{"name": "generated", "sha256": "e" * 64}] * 3,
        scorer={"name": "exact", "options": {"case": True}},
    )
    found = contrast(ABOUT, other)
    assert found["tokenizer"] == ("cl100k_base 01234567", "cl100k_base fedcba98")
    assert found["haystacks"] == ("generated ffffffff", "generated eeeeeeee ...")
    assert found["scorer"] == ("exact", "exact case=True")


def test_long_values_are_cut():
    assert len(phrase({"needle": ("x" * 500, "")})) < 90


def test_scorers_are_told_apart_by_name_and_by_the_options_they_were_given():
    ours = {"name": "substring", "options": {"words": ["a"], "any": False}}
    found = contrast(changed(scorer=ours), changed(scorer={"name": "judge", "options": {}}))
    assert found["scorer"] == ("substring words=['a']", "judge")
