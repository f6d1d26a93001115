"""A perfect answer, as a text states it or as people say it, scores 100 by the scorer that its task
names."""

from __future__ import annotations

import asyncio

import pytest

from needlemap.grid import Cell
from needlemap.models import Traits
from needlemap.registry import find, installed
from needlemap.settings.reading import configure
from needlemap.shelves import PRESETS as SHELF
from needlemap.suites.published import FORMATS
from needlemap.tasks import Draw, Reference, make_task
from needlemap.trials.resolve import make_scorer

KITES = {
    "needles": ["Anna keeps a red kite.", "Bob keeps a blue kite.", "Cleo keeps a green kite."],
    "question": "Which kites do Anna, Bob and Cleo keep?",
}
OWN = {  # settings of the two tasks that take a user's own texts
    "single": {},
    "single, zh": {"language": "chinese"},
    "single, words": {
        "needle": "The best tea is lotus tea.",
        "question": "Which tea?",
        "keywords": ["lotus tea"],
    },
    "single, answer": {
        "needle": "The code is heron-42.",
        "question": "The code?",
        "answer": "heron-42",
    },
    "single, zh words": {
        "needle": "信 藏在 旧灯塔 的 蓝色 盒子里。",
        "question": "信在哪里？",
        "keywords": ["蓝色 盒子"],
    },
    "multi": {"task": "multi", **KITES, "keywords": ["red kite", "blue kite", "green kite"]},
    "multi, answer": {
        "task": "multi",
        **KITES,
        "answer": "a red, a blue and a green one",
        "keywords": ["red", "blue", "green"],
    },
}
READ = ("levenshtein", "judge", "logprob", "recovery", "exact")  # by wording alone, or by a model
FRAMES = (
    "{}",
    "{}.",
    " {}\n",
    "**{}**",
    '"{}"',
    "The answer is {}.",
    "Answer: {}",
    "The answer is: **{}**.",
    "答案是{}。",
)


def perfect_answers(reference: Reference, scorer: str) -> list[str]:
    """Ways to say a perfect answer."""
    answer, words = reference.answer, reference.keywords or (reference.answer,)
    if scorer in READ:
        return [answer]
    if scorer == "boxed":
        return [
            f"\\boxed{{{answer}}}",
            f"So it is \\boxed{{\\text{{{answer}}}}}.",
            f"$$\\boxed{{ {answer} }}$$",
        ]
    if scorer == "set":
        names, quoted = ", ".join(reference.keywords), ", ".join(map(repr, reference.keywords))
        return [
            answer,
            f"Level 1: [x, y].\nFinal Answer: [{names}]",
            f"**Final answer:** [{names}].",
            f"最终答案：[{'、'.join(reference.keywords)}]。",
            f"So the list is:\n```\n[{quoted}]\n```",
        ]
    if scorer == "choice":
        return [f"The correct answer is ({answer}).", f"({answer})", answer]
    if scorer == "verbatim":
        return [answer, f" {answer}\n"]
    if reference.none and not reference.keywords:
        return [frame.format(reference.none) for frame in FRAMES[:6]]
    lists = [", ".join(words), "\n".join(words), "\n".join(f"- {word}" for word in words)]
    lists += [" and ".join(words), " 和 ".join(words), "、".join(words)]
    lists += ["\n".join(f"{at}. {word}" for at, word in enumerate(words, 1))]
    return [answer, *lists, *(frame.format(", ".join(words)) for frame in FRAMES)]


def draws():
    return [
        Draw(Cell(length, depth), repeat, tokens=lambda text: len(text) // 4, room_tokens=length)
        for length, depth, repeat in (
            (2_000, 0.0, 0),
            (2_000, 0.5, 1),
            (4_000, 1.0, 2),
            (8_000, 0.25, 3),
        )
    ]


def check(settings) -> str:
    """That all ways to say the answers to a few draws score 1; the scorer's name."""
    task = make_task(settings)
    scorer = make_scorer(settings, task, Traits(chat=True, tokenizer=None))
    low = [each for draw in draws() for each in low_scores(scorer, task.item(draw).reference)]
    assert low == []
    return scorer.name


def low_scores(scorer, reference: Reference):
    """Ways to say a perfect answer that score less."""
    found = [
        (text, asyncio.run(scorer.score(text, reference)))
        for text in perfect_answers(reference, scorer.name)
    ]
    return [(text, score.share, score.why) for text, score in found if score.share < 1]


ROWS = {  # of the published sets' formats
    "ruler": {"input": "Lamp 7 is 4711. What is lamp 7?", "outputs": ["4711", "red lamp"]},
    "mrcr": {
        "prompt": [
            {"role": "user", "content": "Write a poem."},
            {"role": "assistant", "content": "The sea is grey.\nThe sand is low."},
            {"role": "user", "content": "Prepend x7Kq to the first poem."},
        ],
        "answer": "x7KqThe sea is grey.\nThe sand is low.",
        "random_string_to_prepend": "x7Kq",
    },
    "mrcr2": {
        "queries": "Prepend abcdefghijkl to the poem.",
        "answer": "abcdefghijklThe sea is grey.",
    },
    "babilong": {"input": "Ann went to the hall.", "question": "Where is Ann?", "target": "hall"},
    "graphwalks": {
        "prompt": "a1 -> b2\nWhich are the parents of b2?",
        "answer_nodes": ["a1", "c3"],
        "problem_type": "parents",
    },
    "longbench": {
        "context": "A text.",
        "question": "Which?",
        "answer": "B",
        **{f"choice_{letter}": f"the {letter}" for letter in "ABCD"},
    },
}


@pytest.mark.parametrize("name", FORMATS)
def test_of_each_published_format(name):
    rows = FORMATS[name]
    reference = rows.read(ROWS[name], ["hall", "barn"]).item.reference
    scorer = find("scorers", rows.scorer)(**rows.scorer_options)
    assert low_scores(scorer, reference) == []


PRESETS = [name for name in SHELF.texts if not name.startswith("published")]


@pytest.mark.parametrize("preset", PRESETS)
def test_of_each_preset(preset):
    settings = configure(preset)
    if settings.scorer == "judge":
        settings = settings.model_copy(update={"scorer": "substring", "scorer_options": {}})
    check(settings)


@pytest.mark.parametrize("own", OWN)
def test_of_a_users_own_needles(own):
    assert check(configure(None, OWN[own])) != "levenshtein"


@pytest.mark.parametrize(
    "task", sorted({*installed("tasks")} - {"single", "multi", "published", "apart"})
)
def test_of_each_task_as_it_is_by_default(task):
    check(configure(None, {"task": task}))


@pytest.mark.parametrize(
    "answer",
    [
        "Anna keeps a red kite, Bob keeps a blue kite and Cleo keeps a green kite.",
        "A **red kite**, a blue\nkite and a green kite.",
        "Red kites, blue kites and green kites.",
        "1. red-kite\n2. Blue Kite\n3. green  kite",
    ],
)
@pytest.mark.parametrize("scorer", ["auto", "substring", "keyword"])
def test_of_three_needles_in_a_users_own_words(answer, scorer):
    """By the older tool's rule a key word with a space was never found: 5.5 %."""
    settings = configure(None, {**OWN["multi"], "scorer": scorer})
    task = make_task(settings)
    made = make_scorer(settings, task, Traits(chat=True, tokenizer=None))
    assert asyncio.run(made.score(answer, task.item(draws()[0]).reference)).share == 1


def test_the_older_tools_presets_keep_their_rule():
    settings = configure("cdme-multi-3-8k", {"keywords": ["Jack Ma"], "answer": "Jack Ma"})
    task = make_task(settings)
    made = make_scorer(settings, task, Traits(chat=True, tokenizer=None))
    assert asyncio.run(made.score("It is Jack Ma.", task.item(draws()[0]).reference)).share < 0.2
