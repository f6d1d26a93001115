"""One of several replies to the same request: which one is asked for, and among what it stands."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from itertools import islice
from random import Random
from statistics import mean
from typing import Any

import pytest

from needlemap.errors import SettingsError
from needlemap.grid import Cell
from needlemap.scorers.edit import Verbatim
from needlemap.settings.reading import configure
from needlemap.suites.ordinal import (
    Ordinal,
    Transcript,
    draw_request,
    exchange,
    parts,
    reply,
    request_words,
)
from needlemap.tasks import Draw, Item
from needlemap.trials import Trial
from needlemap.trials.build import prepare


def item(depth: float = 0.4, repeat: int = 0, length: int = 4000, **options: Any) -> Item:
    return Ordinal(**options).item(Draw(Cell(length, depth), repeat, 3))


def replies(trial: Trial) -> list[str]:
    """To the asked request, in the prompt's order."""
    asked = re.search(r'"(Write .+?)"', trial.item.question)
    assert asked
    start = f"User: {asked[1]}\nAssistant: "
    exchanges = trial.prompt.context_text.split("\n\n")
    return [each.removeprefix(start) for each in exchanges if each.startswith(start)]


def test_the_same_request_stands_there_several_times_and_one_reply_is_asked_for_by_number():
    made = item(requests=3)
    number = int(re.findall(r"number (\d+) of", made.question)[0])
    ordered = sorted(made.needles, key=lambda needle: needle.depth)
    assert ordered[number - 1] is made.needles[0]
    asked = re.findall('"(.+?)"', made.question)[0]
    assert [needle.text for needle in ordered] == [
        f"User: {asked}\nAssistant: {text}\n\n" for text in made.reference.choices
    ]
    assert made.reference.keywords == (made.reference.choices[number - 1],)
    assert made.reference.answer == f"{made.answer_prefix}\n{made.reference.keywords[0]}"
    assert f"with the code {made.answer_prefix}, then" in made.question
    assert re.fullmatch("[A-Za-z0-9]{10}", made.answer_prefix)


def test_the_number_follows_from_the_depth_and_at_its_ends_is_the_first_and_the_last():
    numbers = {
        depth: [
            item(depth, repeat, requests=8).reference.choices.index(
                item(depth, repeat, requests=8).reference.keywords[0]
            )
            for repeat in range(60)
        ]
        for depth in (0.0, 0.5, 1.0)
    }
    assert set(numbers[0.0]) == {0}
    assert set(numbers[1.0]) == {7}
    assert mean(numbers[0.5]) == pytest.approx(3.5, abs=0.6)


def test_the_prompts_order_is_the_numbers_order_in_every_mode():
    """Mode bins moves the asked exchange: were it to pass another one, the number would be a
    lie."""
    given = {
        "task": "ordinal",
        "task_options": {"requests": 8, "sentences": 2},
        "max_answer_tokens": 64,
    }
    grid = {
        "lengths": [1500, 2000, 3000],
        "depths": "0:100:9",
        "repeats": 2,
        "tokenizer": "cl100k_base",
    }
    for mode in ("exact", "bins"):
        for trial in prepare(configure(None, given | grid | {"mode": mode})).trials:
            assert tuple(replies(trial)) == trial.item.reference.choices


def test_replies_and_codes_are_fresh_and_what_stands_beside_is_equal_at_all_depths():
    items = [item(depth, repeat) for depth in (0.1, 0.6, 0.9) for repeat in range(5)]
    assert (
        len({made.answer_prefix for made in items})
        == len({made.reference.keywords for made in items})
        == 15
    )
    assert [needle.still for needle in item().needles] == [False, True, True, True]
    assert item(0.1).needles[1:] == item(0.9).needles[1:] != item(0.1, length=8000).needles[1:]
    assert (
        item(0.1, fresh="repeat").needles[0].text
        == item(0.9, length=8000, fresh="repeat").needles[0].text
    )


def test_the_conversation_never_asks_the_asked_request_but_often_one_like_it():
    asked = draw_request(Random("ordinal:3:0"))
    background = Ordinal().background(0, 3)
    text = "".join(document.text for document in islice(background.source.documents(), 40))
    requests = Counter(re.findall("^User: (.+)$", text, re.MULTILINE))
    assert sum(requests.values()) == 640
    assert request_words(asked) not in requests
    same = [sum(part in each for part in asked) for each in requests.elements()]
    assert 0.4 < sum(shared >= 2 for shared in same) / 640 < 0.65
    assert request_words(asked) in item().question


def test_an_exchange_is_one_paragraph_of_so_many_sentences_whatever_is_asked():
    formats, styles, topics = parts()
    for number, wanted in enumerate(
        (kind, style, topic) for kind in formats for style in styles for topic in topics
    ):
        text = reply(wanted, 5, Random(number))
        assert "\n\n" not in text
        assert not re.search(r"[{}\[\]|]| {2}|\b(a|the) (a|the)\b", text), text
        assert exchange(wanted, text).endswith("\n\n")
        assert text.count("\n") == (4 if wanted[0] == "poem" else 0)
    assert len(formats) * len(styles) * len(topics) == 768


def test_documents_do_not_depend_on_where_reading_starts():
    source = Transcript(("poem", "gloomy", "the sea"), 4, "1:2")
    assert list(islice(source.documents(), 3))[2] == next(source.documents(2))


# What a random reply to the asked request, repeated word for word, scores; docs/tasks.md prints the
# same.
@pytest.mark.parametrize(("requests", "noise"), [(2, 54), (4, 31), (8, 20)])
def test_the_noise_rate_is_what_the_docs_say(requests, noise):
    rates = []
    for repeat in range(40):
        made = item(repeat=repeat, requests=requests)
        score = asyncio.run(Verbatim().score("", made.reference))
        rates.append(score.why["noise"])
        chosen = Random(repeat).choice(made.reference.choices)
        told = asyncio.run(Verbatim().score(f"{made.answer_prefix} {chosen}", made.reference))
        assert (told.share == 1) == (chosen in made.reference.keywords)
        assert told.why["picked"] == 1 + made.reference.choices.index(chosen)
    assert 100 * mean(rates) == pytest.approx(noise, abs=1.5)


def test_marks_around_the_code_cost_nothing():
    made, scorer = (
        prepare(configure(None, {"task": "ordinal", "lengths": [3000], "depths": [50]})),
        Verbatim(),
    )
    (trial,) = made.trials
    reference = trial.item.reference
    answer = f"**{trial.item.answer_prefix}**\n\n{reference.keywords[0]}"
    for each in (made.scorer, scorer):
        assert asyncio.run(each.score(answer, reference)).share == 1


@pytest.mark.parametrize(
    "options", [{"requests": 1}, {"sentences": 1}, {"code": 3}, {"language": "chinese"}]
)
def test_wrong_options_are_refused(options):
    with pytest.raises(SettingsError, match="Option"):
        Ordinal(**options)
