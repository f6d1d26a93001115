"""What every scorer gives."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import time
from contextlib import suppress
from itertools import cycle
from math import nan
from pathlib import Path
from typing import Any

import pytest

from needlemap.asking.retry import Scoring, bounded
from needlemap.errors import SettingsError
from needlemap.registry import find_kind, installed
from needlemap.scorers import FIRST_RULE, Score, Scorer, rule_of
from needlemap.scorers.words import Exact
from needlemap.tasks import Reference

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("share", [-0.01, 1.01, nan])
def test_a_share_outside_0_to_1_is_a_slip_of_the_scorer_and_no_score(share):
    with pytest.raises(ValueError, match=r"lies in \[0, 1\]"):
        Score(share, 1.0)


def test_an_unreadable_answer_scores_nothing():
    with pytest.raises(ValueError, match="unreadable answer the share is 0"):
        Score(0.5, 0.5, unreadable=True)


def test_a_scorer_that_is_no_subclass_is_told_what_to_be(monkeypatch):
    monkeypatch.setattr("needlemap.registry.find", lambda *_: Reference)
    with pytest.raises(SettingsError, match=r"'odd' is no subclass of `needlemap.plugins.Scorer`"):
        find_kind("scorers", "odd", Scorer)


SLOW = (  # repeated; each took time by the square, or eighteen times its length, in some scorer
    *(
        "it is ->",
        "not the hall ",
        "(A)\t12",
        "? ",
        "7 - ",
        "B\n",
        "\ufdfa",
        "\n\u200b,",
        "\\boxed{",
        "1,234",
    ),
    *("A, B or ", "none, but if the text does not ", "不在大厅"),
)


@pytest.mark.parametrize("name", sorted({*installed("scorers")} - {"judge", "logprob", "recovery"}))
def test_a_megabyte_of_anything_is_scored_within_a_second(name):
    """Of processor time, with room for a slow machine: by the square it would be minutes."""
    made = tool()
    scorer = installed("scorers")[name].load()()
    for piece, other in zip(SLOW, cycle(("none", "label", "letter")), strict=False):
        text = f"x7Kq{piece * (1_000_000 // len(piece.encode()))}"
        for reference in map(made.REFERENCES.get, ("names", other)):
            began = time.process_time()
            with suppress(SettingsError):
                asyncio.run(Scoring(scorer, text, reference).score(0))
            assert time.process_time() - began < 2, (reference.answer, piece)


def test_what_is_scored_of_a_long_answer_are_its_ends_and_never_less_than_the_right_one():
    said = Scoring(Told(), "a" * 100_000 + "b" * 100_000, Reference("right"))
    asyncio.run(said.score(0))
    assert said.scorer.said == "a" * 19_999 + "\n" + "b" * 20_000
    long = "The sea is grey. " * 5_000
    assert asyncio.run(Scoring(Exact(), long, Reference(long)).score(0)).share == 1
    assert len(bounded("\ufdfa" * 100_000)) < 3_000  # each is eighteen letters to a scorer


class Told(Scorer):
    """A scorer that keeps what it was given."""

    name = "told"

    async def score(self, answer: str, reference: Reference) -> Score:
        self.said = answer
        return Score(1.0, 1.0)


def tool() -> Any:
    """tools/scorer_corpus.py."""
    spec = importlib.util.spec_from_file_location(
        "scorer_corpus", ROOT / "tools" / "scorer_corpus.py"
    )
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_score_moves_without_its_rules_number():
    made = tool()
    frozen = json.loads(made.FILE.read_text("utf-8"))
    assert made.moved(frozen) == {}, (
        "raise the `rule` of these scorers, then python tools/scorer_corpus.py"
    )
    assert made.text_of(made.corpus()) == made.FILE.read_text("utf-8"), (
        "python tools/scorer_corpus.py"
    )


def test_the_frozen_answers_are_many_and_of_all_scorers():
    made = tool()
    frozen = json.loads(made.FILE.read_text("utf-8"))
    ours = {
        name for name, point in installed("scorers").items() if point.value.startswith("needlemap.")
    }
    assert set(frozen["rules"]) == ours
    assert len(frozen["answers"]) > 1000
    shares = zip(*(row[2].split() for row in frozen["answers"]), strict=True)
    for variant, column in zip(frozen["variants"], shares, strict=True):
        assert len(set(column) - {"-"}) > 1, (
            variant
        )  # a scorer that says one thing of all is not watched


def test_a_score_that_moves_is_seen(monkeypatch):
    made = tool()
    frozen = json.loads(made.FILE.read_text("utf-8"))
    exact = installed("scorers")["exact"].load()
    monkeypatch.setattr("needlemap.scorers.words.normal", lambda text, **_: text[:1])
    assert list(made.moved(frozen)) == ["exact"]
    monkeypatch.setattr(exact, "rule", exact.rule + 1)
    assert made.moved(frozen) == {}


def test_a_number_that_is_none_is_said():
    with pytest.raises(SettingsError, match="'odd', `rule`, is no whole number: 'v2'"):
        rule_of(type("Odd", (), {"name": "odd", "rule": "v2"}))


def test_a_scorer_that_numbers_nothing_has_the_first_rule():
    assert rule_of(type("Plain", (), {})) == FIRST_RULE
