"""The most common words of a list: how often each comes, where, and what an example shows."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from itertools import islice
from math import sqrt
from typing import Any

import pytest

from needlemap.errors import SettingsError
from needlemap.grid import Cell
from needlemap.settings.reading import configure
from needlemap.suites.count_words import CommonWords, Words
from needlemap.tasks import Draw, Item
from needlemap.tasks.values import Values
from needlemap.trials.build import Experiment, prepare

SMALL = {
    "task": "count-common",
    "max_answer_tokens": 64,
    "tokenizer": "cl100k_base",
    "depths": [50],
}


def made(**given: Any) -> Experiment:
    return prepare(configure(None, SMALL | {"lengths": [4000]} | given))


def item(depth: float = 0.5, repeat: int = 0, **options: Any) -> Item:
    return CommonWords(**options).item(Draw(Cell(4000, depth), repeat, 1))


@pytest.mark.parametrize("length", [4096, 8192, 16384])
def test_ten_words_come_thirty_times_and_all_others_three_times_at_any_length(length):
    """But those that the end of the list cuts off, which come less."""
    (trial,) = made(lengths=[length]).trials
    counts = Counter(trial.prompt.context_text.split())
    often = counts.most_common(10)
    assert {word for word, _ in often} == set(trial.item.reference.keywords)
    assert {times for _, times in often} == {30}
    rest = Counter(
        times for word, times in counts.items() if word not in trial.item.reference.keywords
    )
    assert set(rest) <= {1, 2, 3}
    assert length == 4096 or rest[3] > rest[1] + rest[2] - 400
    assert length - 64 - 12 <= trial.prompt.tokens <= length - 64


def test_words_and_their_order_are_the_trials_own_while_the_rest_of_the_list_is_the_repeats():
    first, second = made(repeats=2).trials
    orders = [
        [
            line
            for line in trial.prompt.context_text.split()
            if line in trial.item.reference.keywords
        ]
        for trial in (first, second)
    ]
    places = [
        [trial.item.reference.keywords.index(word) for word in order]
        for trial, order in zip((first, second), orders, strict=True)
    ]
    assert places[0] != places[1]
    assert not set(first.item.reference.keywords) & set(second.item.reference.keywords)
    shorter, longer = made(lengths=[4000, 5000]).trials
    rest = [
        [
            line
            for line in trial.prompt.context_text.split()
            if line not in trial.item.reference.keywords
        ]
        for trial in (shorter, longer)
    ]
    assert rest[0] == rest[1][: len(rest[0])]


def test_the_asked_words_stand_all_over_the_list():
    """Kolmogorov and Smirnov: 300 places, no larger gap to the uniform distribution than 1 in 100
    has."""
    (trial,) = made(lengths=[16_000]).trials
    realised = sorted(needle.realised for needle in trial.prompt.needles)
    n = len(realised)
    assert n == 300
    gap = max(max((place + 1) / n - one, one - place / n) for place, one in enumerate(realised))
    assert gap < 1.63 / sqrt(n)


def test_depths_mean_nothing_to_it_unless_its_words_keep_together():
    with pytest.raises(SettingsError, match=r"whole text, .* --depths 50 --repeats 6$"):
        made(depths=[0, 50, 100], repeats=2)
    trials = made(depths=[0, 30, 100], task_options={"within": 0.2}).trials
    spans = [
        (
            min(needle.meant for needle in trial.prompt.needles),
            max(needle.meant for needle in trial.prompt.needles),
        )
        for trial in trials
    ]
    for (low, high), start in zip(spans, (0.0, 0.2, 0.8), strict=True):
        assert start <= low <= start + 0.02
        assert start + 0.18 <= high <= start + 0.2


def test_an_example_is_solved_right_is_the_repeats_and_shares_no_word_with_the_list():
    (trial, other) = made(lengths=[4000, 5000], task_options={"shots": 1}).trials
    text = trial.prompt.messages[-1].content
    shown, _, rest = text.partition("Now the list that is asked about:\n")
    listed, _, solved = shown.partition("Which 3 words")
    answer = re.findall("Answer: (.+)", solved)[0].split(", ")
    assert dict(
        Counter(re.findall("^[a-z]+-[a-z]+$", listed, re.MULTILINE)).most_common(3)
    ) == dict.fromkeys(answer, 5)
    assert not [word for word in re.findall("[a-z]+-[a-z]+", shown) if f"\n{word}\n" in rest]
    assert "Which 10 words" in rest
    assert other.prompt.messages[-1].content.startswith(shown)


def test_what_is_missing_and_what_is_wrong_both_cost():
    experiment = made()
    (trial,) = experiment.trials
    asked, other = trial.item.reference.keywords, "green-elbow"
    score = asyncio.run(
        experiment.scorer.score(", ".join([*asked[:5], other]), trial.item.reference)
    )
    assert (score.why["recall"], score.why["precision"]) == (0.5, pytest.approx(5 / 6))
    assert score.why["missing"] == list(asked[5:])


def test_who_lists_every_word_gets_next_to_nothing_however_the_words_are_written():
    experiment = made()
    (trial,) = experiment.trials
    words = dict.fromkeys(trial.prompt.context_text.split())
    for answer in (", ".join(words), " ".join(words), " ".join(words).replace("-", " ")):
        score = asyncio.run(experiment.scorer.score(answer, trial.item.reference))
        assert score.why["recall"] == 1
        assert score.why["precision"] == pytest.approx(10 / len(words), abs=0.001)


def test_a_record_keeps_the_places_of_all_needles_and_the_surroundings_of_the_first_few(tmp_path):
    """300 passages made a record of a quarter of a megabyte, and a second's work."""
    from needlemap import run

    given = {"lengths": [4000], "depths": [50], "max_answer_tokens": 64, "quiet": True}
    (record,) = run(
        out=tmp_path / "r", model="baseline/bm25", task="count-common", **given
    ).records()
    assert len(record.needles) == 300
    assert [bool(needle.text) for needle in record.needles] == [True] * 32 + [False] * 268
    assert all(needle.before and needle.after for needle in record.needles[:32])
    assert sum(path.stat().st_size for path in (tmp_path / "r").glob("records-*")) < 80_000


def test_every_line_of_the_background_comes_its_times_not_far_apart():
    source = Words(Values("word", 0), 3, "0:0")
    lines = [
        line for document in islice(source.documents(), 100) for line in document.text.splitlines()
    ]
    assert set(Counter(lines[:3000]).values()) <= {1, 2, 3}
    early = Counter(lines[:1000])
    assert all(lines.count(word) == 3 for word in list(early)[:50])
    assert list(islice(source.documents(), 3))[2] == next(source.documents(2))


def test_in_chinese():
    (trial,) = made(language="chinese", lengths=[6000], task_options={"shots": 1}).trials
    listed = trial.prompt.context_text.split()
    assert {word for word, _ in Counter(listed).most_common(10)} == set(
        trial.item.reference.keywords
    )
    assert trial.item.question.startswith("词表中出现次数最多的10个词")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"words": 0}, "'words' of CommonWords must be at least 1, got 0"),
        ({"times": 3}, "times are more than others, got 3 and 3"),
        ({"others": 0}, "'others' of CommonWords must be at least 1"),
        ({"within": 0}, "'within' of CommonWords must be above 0 and at most 1, got 0"),
        ({"within": 1.1}, "above 0 and at most 1, got 1.1"),
        ({"shots": -1}, "'shots' of CommonWords must be at least 0"),
    ],
)
def test_wrong_options_are_refused(options, words):
    with pytest.raises(SettingsError, match=words):
        CommonWords(**options)
