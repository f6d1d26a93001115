"""The most frequent coded words: that they lead at any length, and how often each word comes."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import islice
from math import pi, sqrt
from random import Random
from typing import Any

import pytest

from needlemap.errors import SettingsError
from needlemap.grid import Cell
from needlemap.plan import reused, walk_order
from needlemap.settings.reading import configure
from needlemap.suites.count_words import Coded, FrequentWords
from needlemap.tasks import Draw
from needlemap.trials.build import Experiment, prepare

SMALL = {
    "task": "count-frequent",
    "max_answer_tokens": 64,
    "tokenizer": "cl100k_base",
    "depths": [50],
}


def made(**given: Any) -> Experiment:
    return prepare(configure(None, SMALL | {"lengths": [1000]} | given))


def words(source: Coded, many: int) -> list[str]:
    documents = source.documents()
    found: list[str] = []
    while len(found) < many:
        found += next(documents).text.split()
    return found[:many]


def leaders(text: str, many: int) -> list[tuple[str, int]]:
    return Counter(word for word in text.split() if word != "...").most_common(many)


def test_an_oracle_that_counts_is_right_silence_and_the_question_are_not():
    experiment = made(lengths=[800, 1000, 4000, 20_000], repeats=10)
    for trial in experiment.trials:
        counted = leaders(trial.prompt.context_text, 4)
        assert counted[2][1] > counted[3][1]
        said = ", ".join(word for word, _ in counted[:3])
        shares = [
            asyncio.run(experiment.scorer.score(answer, trial.item.reference)).share
            for answer in (said, "", trial.item.question, trial.item.answer_prefix, "...")
        ]
        assert shares == [1, 0, 0, 0, 0]
        assert trial.prompt.tokens <= trial.cell.length_tokens - 64


@pytest.mark.parametrize(("asked", "alpha"), [(1, 2.0), (3, 2.0), (3, 3.5), (5, 1.5), (10, 1.2)])
def test_those_that_are_asked_for_lead_at_every_length_from_where_they_are_settled(asked, alpha):
    for repeat in range(25):
        source = Coded(asked, alpha, 6, f"0:{repeat}")
        counts: Counter[str] = Counter()
        for number, word in enumerate(words(source, 6 * source.settling_words), 1):
            counts[word] += 1
            if number >= source.settling_words and (
                number < source.settling_words + 50 or number % 97 == 0
            ):
                least = min(counts[one] for one in source.leading_words)
                del counts["..."]
                others = [often for one, often in counts.items() if one not in source.leading_words]
                assert least > max(others, default=0)


def test_frequencies_are_zetas():
    """Rank k comes 6 / (pi * k) ** 2 of the time, the dots being rank 1."""
    source = Coded(3, 2.0, 6, "0:0")
    counts = Counter(words(source, 50_000))
    ranked = [often for _, often in counts.most_common(40)]
    assert counts.most_common(1)[0][0] == "..."
    for rank, often in enumerate(ranked, 1):
        assert often == pytest.approx(50_000 * 6 / (pi * rank) ** 2, rel=0.02, abs=3)


def test_all_lengths_of_a_repeat_are_one_text_and_have_one_answer():
    prompts = [
        trial.prompt for trial in made(lengths=[1000, 2000, 4000, 8000], mode="exact").trials
    ]
    walk = [prompts[place] for place in walk_order(prompts)]
    asked, shared = sum(prompt.tokens for prompt in walk), sum(reused(walk))
    assert asked - shared < 1.1 * 8000
    assert len({trial.item.reference for trial in made(lengths=[1000, 2000]).trials}) == 1
    assert len({trial.item.reference for trial in made(repeats=5).trials}) == 5


def test_a_guess_is_right_as_often_as_its_chance_says():
    """Three of n coded words, guessed, name 3 / n of the asked ones."""
    experiment, random = made(lengths=[1000, 4000], repeats=60), Random(4)
    expected = variance = got = 0.0
    for trial in experiment.trials:
        choices = sorted(set(trial.prompt.context_text.split()) - {"..."})
        guess = ", ".join(random.sample(choices, 3))
        expected += 3 / len(choices)
        variance += 3 / len(choices)  # at most
        got += asyncio.run(experiment.scorer.score(guess, trial.item.reference)).share
    assert abs(got - expected) <= 4 * sqrt(variance)
    assert 4 < expected < 16


def test_the_other_words_of_the_text_are_known_as_wrong_but_for_a_few_that_come_once():
    for trial in made(lengths=[1000, 4000, 20_000]).trials:
        known = {"...", *trial.item.reference.keywords, *trial.item.reference.decoys}
        unknown = [
            often
            for word, often in Counter(trial.prompt.context_text.split()).items()
            if word not in known
        ]
        assert len(unknown) <= 0.1 * len(known)
        assert set(unknown) <= {1}


def test_every_plan_mode_and_a_base_model_get_it():
    for mode in ("exact", "bins", "single", "cold"):
        assert made(mode=mode, lengths=[1000, 2000]).trials
    base = made(model="openai/x", model_options={"api": "completions"}, answer_prefix="{task}")
    (trial,) = base.trials
    assert trial.prompt.messages[0].content.endswith("The coded words that come most often are")


def test_depths_and_texts_that_settle_nothing_are_refused():
    with pytest.raises(SettingsError, match=r"--depths 50 --repeats 2$"):
        made(depths=[0, 100])
    with pytest.raises(
        SettingsError, match="Use lengths of 742 or more, or fewer: --task-options words=1"
    ):
        made(lengths=[700])
    assert made(lengths=[700], task_options={"words": 1}).trials


def test_in_chinese():
    (trial,) = made(language="chinese").trials
    assert trial.item.question.startswith("文中都是编码词")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"words": 0}, "'words' of FrequentWords must be at least 1"),
        ({"alpha": 1.0}, "'alpha' of FrequentWords must be at least 1.2 and at most 4, got 1.0"),
        ({"alpha": 5}, "at most 4, got 5"),
        ({"letters": 3}, "'letters' of FrequentWords must be at least 4"),
    ],
)
def test_wrong_options_are_refused(options, words):
    with pytest.raises(SettingsError, match=words):
        FrequentWords(**options)


def test_documents_do_not_depend_on_where_reading_starts():
    source = Coded(3, 2.0, 6, "1:1")
    assert list(islice(source.documents(), 3))[2] == next(source.documents(2))
    assert (
        FrequentWords().item(Draw(Cell(1000, 0.5), 1, 1)).reference.keywords == source.leading_words
    )
