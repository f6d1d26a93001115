"""What every scorer gives."""

from __future__ import annotations

import importlib.util
import json
from math import nan
from pathlib import Path
from typing import Any

import pytest

from needlemap.registry import installed
from needlemap.scorers.base import FIRST_RULE, Score, rule_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("share", [-0.01, 1.01, nan])
def test_a_share_outside_0_to_1_is_a_slip_of_the_scorer_and_no_score(share):
    with pytest.raises(ValueError, match=r"lies in \[0, 1\]"):
        Score(share, 1.0)


def tool() -> Any:
    """tools/scorer_corpus.py."""
    spec = importlib.util.spec_from_file_location("scorer_corpus", ROOT / "tools" / "scorer_corpus.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_score_moves_without_its_rules_number():
    made = tool()
    frozen = json.loads(made.FILE.read_text("utf-8"))
    assert made.moved(frozen) == {}, "raise the `rule` of these scorers, then python tools/scorer_corpus.py"
    assert made.text_of(made.corpus()) == made.FILE.read_text("utf-8"), "python tools/scorer_corpus.py"


def test_the_frozen_answers_are_many_and_of_all_scorers():
    made = tool()
    frozen = json.loads(made.FILE.read_text("utf-8"))
    ours = {name for name, point in installed("scorers").items() if point.value.startswith("needlemap.")}
    assert set(frozen["rules"]) == ours
    assert len(frozen["answers"]) > 1000
    shares = zip(*(row[2].split() for row in frozen["answers"]), strict=True)
    for variant, column in zip(frozen["variants"], shares, strict=True):
        assert len(set(column) - {"-"}) > 1, variant  # a scorer that says one thing of all is not watched


def test_a_score_that_moves_is_seen(monkeypatch):
    made = tool()
    frozen = json.loads(made.FILE.read_text("utf-8"))
    exact = installed("scorers")["exact"].load()
    monkeypatch.setattr("needlemap.scorers.exact.normal", lambda text, **_: text[:1])
    assert list(made.moved(frozen)) == ["exact"]
    monkeypatch.setattr(exact, "rule", exact.rule + 1)
    assert made.moved(frozen) == {}


def test_a_scorer_that_numbers_nothing_has_the_first_rule():
    assert rule_of(type("Plain", (), {})) == FIRST_RULE
