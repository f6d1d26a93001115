"""A run of the gauge settles its tokenizer and its answer budget."""

from __future__ import annotations

import pytest

import needlemap
from needlemap.asking.discovery import known_settings
from needlemap.errors import NeedlemapError
from needlemap.servers.check.gauge import ANSWER, settings_of_the_gauge
from needlemap.servers.gauge.checkpoint import DATA

GAUGE = "openai/gauge"


def test_the_gauge_has_its_tokenizer_and_short_answers(capsys):
    found = known_settings(None, {"model": GAUGE})
    assert found == {"tokenizer": str(DATA), "max_answer_tokens": ANSWER}
    assert "is taken for needlemap's gauge" in capsys.readouterr().err


def test_what_is_typed_stays():
    typed = {"model": GAUGE, "max_answer_tokens": 60, "quiet": True}
    assert known_settings(None, typed) == {"tokenizer": str(DATA)}
    everything = {**typed, "tokenizer": "qwen3"}
    assert known_settings(None, everything) == {}


@pytest.mark.parametrize(
    ("named", "model"), [(None, "openai/other"), ("passkey", GAUGE), (None, [GAUGE, "openai/b"])]
)
def test_another_model_a_preset_and_several_models_are_left_alone(named, model):
    assert known_settings(named, {"model": model}) == {}
    assert settings_of_the_gauge("openai/other") == ({}, "")


def test_another_runs_prompts_are_asked_as_they_are(typed, wire):
    """The gauge's tokenizer was refused as if somebody had typed it."""
    typed("run", "bm25", "--lengths", "500", "--depths", "0,50", "--repeats", "1", "-o", "p0")
    asked = ("--model", GAUGE, "--base-url", wire.base_url, "--no-canary")
    shown = typed("run", "--prompts-of", "p0", *asked, "-o", "r")
    assert "openai/gauge · single · tokenizer cl100k_base" in shown.stdout
    assert len(wire.log()) == 2


def test_prompts_of_300_tokens_have_room():
    """300 tokens were reserved for an answer of 14."""
    asked = {"base_url": "http://127.0.0.1:1/v1", "lengths": [300]}
    assert needlemap.make_plan(model=GAUGE, **asked)
    with pytest.raises(NeedlemapError, match="leaves no room"):
        needlemap.make_plan(model="openai/other", tokenizer=str(DATA), **asked)
