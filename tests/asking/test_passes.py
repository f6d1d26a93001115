"""A scorer that reads several prompts of an item: each is asked once, in the plan's order."""

from __future__ import annotations

import json

import pytest

from needlemap import run
from needlemap.errors import SettingsError
from needlemap.plan.summary import WalkedTrials
from needlemap.settings.reading import configure
from needlemap.trials import requests
from needlemap.trials.build import prepare

GRID = {"lengths": [128, 256], "depths": [0, 50, 100], "repeats": 3, "max_answer_tokens": 16}
DEMO = {"model": "demo/retriever", **GRID}


def prepared(**more):
    return prepare(configure(None, {**DEMO, "scorer": "recovery", **more}))


def text_of(prompt):
    return b"".join(message.data for message in prompt.messages).decode()


def test_an_items_prompts_are_whole_without_the_needle_and_the_needle_alone():
    for trial in prepared().trials:
        needle, (bare, oracle) = trial.item.needles[0].text, trial.beside
        assert needle in text_of(trial.prompt)
        assert needle not in text_of(bare.prompt)
        assert bare.prompt.tokens == trial.prompt.tokens
        assert text_of(oracle.prompt).startswith(needle)
        assert trial.item.question in text_of(oracle.prompt)
        assert oracle.prompt.haystack_tokens == 0


def test_depths_share_the_prompt_without_a_needle_and_lengths_the_oracle():
    roles = [each.role for each in requests(prepared().trials)]
    assert {role: roles.count(role) for role in set(roles)} == {
        "whole": 18,
        "bare": 2 * 3,
        "oracle": 3,
    }


def test_they_share_prefixes_so_that_an_item_costs_little_more_than_an_answer():
    forced, asked = (
        WalkedTrials.of(each, 1) for each in (prepared(), prepare(configure(None, DEMO)))
    )

    def computed(walked, answer_tokens):
        return sum(walked.sizes) - sum(walked.shared) + answer_tokens * len(walked.sizes)

    answer = 13  # tokens of "The locker code for Turin is 51328."
    assert computed(forced, answer) <= 1.25 * computed(asked, answer)


def test_a_run_records_all_three_and_counts_what_each_took_once(tmp_path):
    result = run(**DEMO, scorer="recovery", out=tmp_path / "run")
    rows = [
        json.loads(line)
        for file in (tmp_path / "run").glob("records-*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert {tuple(each["role"] for each in row["beside"]) for row in rows} == {("bare", "oracle")}
    counted = sum(row["prompt_tokens"] + sum(b["tokens"] for b in row["beside"]) for row in rows)
    assert counted == prepared().tokens_asked
    each = [part for row in rows for part in (row, *row["beside"])]
    shared = sum(part["shared_tokens"] for part in each)
    cached = sum(part["cached_tokens"] for part in each)
    assert shared == cached > 0
    gains = {length: [0.0, 0.0] for length in (128, 256)}
    for row in rows:
        for at, part in enumerate(row["scorer"]["ratio"]):
            gains[row["length_tokens"]][at] += part
    for length, (gain, most) in gains.items():
        assert result.map().by_length[length] == pytest.approx(min(1.0, gain / most))


def test_a_resume_asks_nothing_that_was_scored(tmp_path):
    run(**DEMO, scorer="recovery", out=tmp_path / "run", limit_tokens=1_500)
    before = sum(len(f.read_text().splitlines()) for f in (tmp_path / "run").glob("rec*.jsonl"))
    result = run(**DEMO, scorer="recovery", out=tmp_path / "run")
    after = sum(len(f.read_text().splitlines()) for f in (tmp_path / "run").glob("rec*.jsonl"))
    assert 0 < before < after == 18
    assert result.map().missing == 0


def test_what_has_no_needle_to_leave_out_is_refused():
    with pytest.raises(SettingsError, match="--closed-book asks one"):
        prepared(closed_book=True)
    with pytest.raises(SettingsError, match="does not give"):
        prepared(model="baseline/bm25")
