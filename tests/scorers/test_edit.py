"""Edit distance, against OpenCompass' own numbers; keywords found, or a fifth of the wording."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from needlemap.errors import SettingsError
from needlemap.scorers import Score
from needlemap.scorers.edit import Keyword, Levenshtein, edit_score, trimmed
from needlemap.tasks import Reference

NEEDLE = "\n小明最喜欢的实习的地点就是上海人工智能实验室。\n"


def rows(shared: Path, name: str, evaluator: str) -> list[dict[str, Any]]:
    lines = (shared / "vectors" / "opencompass" / name).read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["evaluator"] == evaluator]


def test_single_scores_equal_opencompass_to_the_last_digit(shared):
    cases = rows(shared, "scores.jsonl", "cdme_single")
    assert len(cases) == 48
    for case in cases:
        said, wanted, distance, score = edit_score(
            case["prediction"], case["reference"], case["options"]["use_trim"]
        )
        detail = case["detail"]
        assert (said, wanted, distance) == (
            detail["pred"],
            detail["answer"],
            detail["edit_distance"],
        )
        assert score == detail["score"] == case["score"]


def test_batch_means_equal_opencompass_to_the_last_digit(shared):
    cases = rows(shared, "scores_batch.jsonl", "cdme_single")
    paired = [case for case in cases if len(case["predictions"]) == len(case["references"])]
    assert len(paired) == 3, "the fourth is OpenCompass' error for unequal lengths"
    for case in paired:
        trim = case["options"]["use_trim"]
        pairs = zip(case["predictions"], case["references"], strict=True)
        scores = [edit_score(prediction, reference, trim)[3] for prediction, reference in pairs]
        assert (sum(scores) / len(scores) if scores else 0) == case["score"]


def keyword_score(said: str, reference: str, keyword: str) -> Score:
    return asyncio.run(Keyword(rule="opencompass").score(said, Reference(reference, (keyword,))))


def test_keyword_scores_equal_opencompass_to_the_last_digit(shared):
    cases = rows(shared, "scores.jsonl", "cdme_multi")
    assert len(cases) == 30
    for case in cases:
        reference, keyword = case["reference"].split("*")[:2]
        found = keyword_score(case["prediction"], reference, keyword)
        assert found.why["distance"] == case["detail"]["edit_distance"]
        assert found.native == case["detail"]["score"] == case["score"]


def test_keyword_batches_equal_opencompass_to_the_last_digit(shared):
    (case,) = rows(shared, "scores_batch.jsonl", "cdme_multi")
    pairs = zip(case["predictions"], case["references"], strict=True)
    scores = [keyword_score(said, *wanted.split("*")[:2]).native for said, wanted in pairs]
    assert scores == case["scores"]
    assert sum(scores) / len(scores) == case["score"]


@pytest.mark.parametrize(
    ("prediction", "score"),
    [
        ("小明最喜欢的实习的地点就是上海人工智能实验室。", 100.0),
        ("小明最喜欢的实习地点就是上海人工智能实验室。", 95.65217391304348),
        ("小明 最喜欢的\t实习的地点\n就是上海人工智能实验室。　", 100.0),
        ("", 0.0),
    ],
)
def test_known_scores(prediction, score):
    assert edit_score(prediction, NEEDLE)[3] == score


def test_two_empty_texts_are_equal():
    assert edit_score(" \n", "")[3] == 100.0


def test_trim_of_an_empty_reference_is_empty():
    assert trimmed("anything", "") == ""
    assert edit_score("anything", " ", trim=True)[3] == 100.0


def test_a_score_tells_its_share_and_why():
    score = asyncio.run(Levenshtein().score("a sand wich", Reference("sandwich")))
    assert score.native == 88.88888888888889
    assert score.share == score.native / 100
    assert score.why == {"distance": 1, "answer_chars": 9, "reference_chars": 8}


def test_options_are_kept_for_the_record():
    assert Levenshtein(trim=True).options == {"trim": True}


def test_a_misspelt_option_names_the_right_one():
    with pytest.raises(SettingsError, match="Did you mean 'trim'"):
        Levenshtein(trimm=True)  # type: ignore[call-arg]


def keyworded(answer: str, *keywords: str, reference: str = "The chef is Jack.") -> Score:
    return asyncio.run(Keyword().score(answer, Reference(reference, keywords)))


def test_a_keyword_found_is_everything():
    assert keyworded("I think it was Jack", "Jack").native == 100.0


def test_without_it_the_wording_counts_a_fifth():
    found = keyworded("The chef is Tom.", "Jack")
    assert found.native == 0.2 * 100 * (1 - 4 / 14)
    assert found.why == {"found": [], "missing": ["Jack"], "distance": 4}


def test_all_of_several_keywords_must_be_there():
    assert keyworded("Jack and Jill", "Jack", "Jill").share == 1.0
    assert keyworded("Jack alone", "Jack", "Jill").share < 0.2


def test_however_it_is_written_a_keyword_is_found_as_substring_finds_it():
    assert keyworded("it was jack", "Jack").native == 100.0
    assert keyworded("The chef Jack\n**Ma**", "Jack Ma").native == 100.0
    assert keyworded("It is 51328.5", "51328").native < 20


def coded(answer: str, *keywords: str) -> float:
    reference = Reference("The chef is Jack.", keywords)
    return asyncio.run(Keyword(rule="opencompass").score(answer, reference)).native


def test_by_opencompass_rule_case_counts():
    assert coded("it was jack", "Jack") < 20


def test_by_opencompass_rule_whitespace_in_the_answer_is_ignored_but_not_in_the_keyword():
    assert coded("J a c k", "Jack") == 100.0
    assert coded("The chef Jack Ma", "Jack Ma") < 20


@pytest.mark.parametrize("keywords", [(), ("",)])
def test_a_task_without_keywords_is_an_error_not_a_score(keywords):
    with pytest.raises(SettingsError, match="needs a task with keywords"):
        keyworded("anything", *keywords)


def test_options_are_refused():
    with pytest.raises(SettingsError, match="Known: rule"):
        Keyword(words=("a",))  # type: ignore[call-arg]
