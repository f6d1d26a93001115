"""Settings and facts, without secrets."""

from __future__ import annotations

import json

from needlemap.records import RunFile
from needlemap.reports.page.payload import fact_rows, setting_rows, value_text
from needlemap.settings import Settings


def test_settings_are_texts_that_say_where_they_differ_from_the_default():
    rows = {
        name: (text, differs)
        for name, text, differs in setting_rows(Settings(seed=7).model_dump(mode="json"))
    }
    assert rows["seed"] == ("7", True)
    assert rows["repeats"] == ("1", False)
    assert rows["base_url"] == ("none", False)
    assert rows["quiet"] == ("false", False)
    assert set(rows) == set(Settings.model_fields)
    assert setting_rows({"of_another_version": 1}) == [["of_another_version", "1", True]]


def test_no_secret_is_shown():
    settings = {
        "base_url": "https://me:hunter2@host.example/v1?api_key=hunter2",
        "model_options": {"api_key": "hunter2", "base_url": "http://u:hunter2@h/v1", "window": 5},
        "request": {
            "extra_headers": {"Authorization": "Bearer hunter2"},
            "more": [{"client_secret": "hunter2"}],
        },
        "scorer_options": {"password": "hunter2", "tokens": 5},
        "haystack_path": "s3://key:hunter2@bucket/x",
    }
    shown = json.dumps(setting_rows(settings))
    assert "hunter2" not in shown
    assert '\\"window\\": 5' in shown
    assert '\\"tokens\\": 5' in shown
    assert "host.example" in shown


def test_the_users_own_words_are_shown_as_they_are():
    needle = "The api-key: 0123456789abcdef01 opens http://a:b@c."
    assert value_text("needle", needle) == needle


def test_facts_are_versions_and_hashes():
    about = {
        "needlemap": "0.1.0",
        "packages": {"numpy": "2.0"},
        "tokenizer": {"name": "qwen3", "fingerprint": "quicktok:qwen3:0123456789abcdef"},
        "scorer": {"name": "keyword", "options": {"words": ["a"]}},
        "haystacks": [{"name": "folder", "sha256": "ab" * 32}],
        "imported": {"files": [{"tool": "x", "name": "results.csv", "sha256": "cd" * 32}]},
    }
    about |= {"settings": {"model": "m", "task": "t", "mode": "exact"}, "cells": []}
    assert fact_rows(RunFile.model_validate(about)) == [
        ["needlemap", "0.1.0"],
        ["numpy", "2.0"],
        ["tokenizer", "qwen3 quicktok:qwen3:0123456789ab"],
        ["scorer", 'keyword {"words": ["a"]}'],
        ["haystack 0", f"folder · sha256 {'ab' * 6}"],
        ["file 0", f"results.csv · sha256 {'cd' * 6}"],
    ]
