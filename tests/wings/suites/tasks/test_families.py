"""What every family promises, whatever it hides: tested on all of them with readers that know its
format.

A family is a row of FAMILIES: settings, an oracle that reads the prompt alone, what a guesser
chooses from.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from inspect import getsource
from itertools import groupby
from math import sqrt
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinship_reader import PERSON, kinship_oracle, parents
from questions_reader import questions_choices, questions_oracle

from needlemap.plan import reused, walk_order
from needlemap.settings.reading import configure
from needlemap.suites.latent import knowledge
from needlemap.suites.lexicon import lexicon
from needlemap.tokenizers import load
from needlemap.trials import Trial
from needlemap.trials.build import Experiment, prepare

Reader = Callable[[str, str], list[str]]
_LONGEST = 1600


@dataclass(frozen=True)
class Family:
    """One family as it is asked. oracle, choices: from prompt text and question to values."""

    given: dict[str, Any]
    oracle: Reader
    choices: Reader


def assigned(text: str) -> list[tuple[str, str]]:
    return re.findall(r"assigned to (\S+) is (\S+)\.", text) or re.findall(
        r"住，(.+?)对应的.+?是(\S+?)。", text
    )


def asked_keys(question: str) -> set[str]:
    found = re.search(r"assigned to (.+)\?", question) or re.search(r"文中说(.+)对应的", question)
    assert found
    return set(re.split(r", | and |、|和", found[1]))


def magic_oracle(text: str, question: str) -> list[str]:
    return [value for key, value in assigned(text) if key in asked_keys(question)]


def magic_choices(text: str, _question: str) -> list[str]:
    return [value for _, value in assigned(text)]


def json_object(text: str) -> dict[str, str]:
    """The last object in the text, which must be valid JSON without a key that comes twice."""
    pairs = json.loads(text[text.rindex("{\n") : text.rindex("}") + 1], object_pairs_hook=list)
    found = dict(pairs)
    assert len(found) == len(pairs)
    return found


def kv_oracle(text: str, question: str) -> list[str]:
    asked = re.search(r'["“](.+)["”]', question)
    assert asked
    return [json_object(text)[asked[1]]]


def kv_choices(text: str, _question: str) -> list[str]:
    return list(json_object(text).values())


def passkey_oracle(text: str, _question: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"\d+", text)))


def latent_oracle(text: str, question: str) -> list[str]:
    """Whoever stands in a needle of the fact that is asked for."""
    known = [knowledge(language) for language in ("english", "chinese")]
    facts = [each for one in known for each in one.associations]
    people = "|".join(name for one in known for name in one.names)
    needles = [
        re.escape(needle).replace(r"\{name\}", f"({people})")
        for each in facts
        if question.startswith(each.question)
        for needle in each.needles.values()
    ]
    return [name for needle in needles for name in re.findall(needle, text)]


def latent_choices(text: str, _question: str) -> list[str]:
    return [
        name
        for language in ("english", "chinese")
        for name in knowledge(language).names
        if name in text
    ]


def latent(**given: Any) -> Family:
    return Family({"task": "latent", **given}, latent_oracle, latent_choices)


def ordinal_oracle(text: str, question: str) -> list[str]:
    asked = re.search(r"number (\d+) of", question)
    assert asked
    return [ordinal_choices(text, question)[int(asked[1]) - 1]]


def ordinal_choices(text: str, question: str) -> list[str]:
    asked = re.search(r'"(Write .+?)"', question)
    assert asked
    start = f"User: {asked[1]}\nAssistant: "
    return [each.removeprefix(start) for each in text.split("\n\n") if each.startswith(start)]


def common_oracle(text: str, question: str) -> list[str]:
    asked = re.search(r"\d+", question)
    assert asked
    often = Counter(common_words(text)).most_common(int(asked[0]) + 1)
    assert often[-2][1] > often[-1][1]
    return [word for word, _ in often[:-1]]


def common_words(text: str) -> list[str]:
    return re.findall(r"^[a-z]+-[a-z]+$|^[\u4e00-\u9fff]{4,5}$", text, re.MULTILINE)


def scattered_oracle(text: str, _question: str) -> list[str]:
    return re.findall(r"(?:counted|now had) (\d+)(?: gulls)?\.", text)


def scattered_choices(text: str, _question: str) -> list[str]:
    return re.findall(r"(?:counted|now had) (\d+)", text)


def trace_oracle(text: str, question: str) -> list[str]:
    asked = re.search(r"\d{5}", question)
    assert asked
    sources, reached = trace_sources(text), {asked[0]}
    for _ in sources:
        reached |= {name for name, source in sources if source in reached}
    return sorted(reached - {asked[0]})


def trace_choices(text: str, _question: str) -> list[str]:
    return [name for name, _ in trace_sources(text)]


def behind_examples(text: str) -> str:
    """The text that is asked about."""
    return text.partition("Now the text that is asked about:\n")[2]


def trace_sources(text: str) -> list[tuple[str, str]]:
    return re.findall(r"(?:Let|设) (\w+) = (\w+)[.。]", text)


def thread_oracle(text: str, question: str) -> list[str]:
    pairs, found = json_object(text), kv_oracle(text, question)
    while found[-1] in pairs:
        found.append(pairs[found[-1]])
    return found if "List" in question else found[-1:]


def any_of(language: str, *kinds: str) -> str:
    """A pattern for one of a world's words of each kind, one after the other, as one group."""
    between = " " if language == "english" else ""
    return f"({between.join('(?:' + '|'.join(lexicon('world', language)[kind]) + ')' for kind in kinds)})"  # noqa: E501


def said_patterns() -> dict[str, tuple[int, int]]:
    """What a sentence says: which group of whom or what, which says the place, person or box."""
    place, thing, box = (any_of("english", *kinds) for kinds in KINDS)
    ort, ding, kiste = (any_of("chinese", *kinds) for kinds in KINDS)
    what, was = f"[Tt]he (?:{thing}|{box})", f"(?:{ding}|{kiste})"
    return {
        rf"{PERSON} (?:went|walked over|moved on) to the {place}\.": (0, 1),
        rf"{PERSON} is in the {place} now\.": (0, 1),
        rf"{PERSON} carries {what} now\.": (1, 0),
        rf"{PERSON} was given {what} to carry\.": (1, 0),
        rf"{what} was handed to {PERSON}\.": (0, 1),
        rf"{what} is with {PERSON} now\.": (0, 1),
        rf"[Tt]he {thing} (?:was put into|is kept in|is in) the {box}(?: now)?\.": (0, 1),
        rf"Somebody laid the {thing} in the {box}\.": (0, 1),
        rf"(\w{{3}})(?:去了|现在在|转到了){ort}。": (0, 1),
        rf"(\w{{3}})走到{ort}去了。": (0, 1),
        rf"{was}(?:现在由|交到了)(\w{{3}})(?:带着|手里)。": (0, 1),
        rf"{was}现在在(\w{{3}})身上。": (0, 1),
        rf"有人把{was}交给(\w{{3}})带着。": (0, 1),
        rf"{ding}(?:放进了|现在在|收进了){kiste}里?。": (0, 1),
        rf"有人把{ding}装进了{kiste}。": (0, 1),
    }


KINDS = (("places",), ("colours", "things"), ("colours", "boxes"))


def facts_oracle(text: str, question: str) -> list[str]:
    said: list[tuple[int, str, str]] = []
    for pattern, (subject, to) in said_patterns().items():
        for match in re.finditer(pattern, text):
            groups = [group for group in match.groups() if group]
            said.append((match.start(), groups[subject], groups[to]))
    now = {subject: to for _, subject, to in sorted(said)}
    asked = re.search(r"Where is (?:the )?(.+) at the end|最后，(.+)在哪里", question)
    assert asked
    place = asked[1] or asked[2]
    while place in now:
        place = now[place]
    return [place]


def facts_choices(text: str, _question: str) -> list[str]:
    places = [*lexicon("world", "english")["places"], *lexicon("world", "chinese")["places"]]
    return [place for place in places if re.search(rf"(?:the |了|在|到){place}", text)]


def kinship_choices(text: str, _question: str) -> list[str]:
    return sorted({*parents(text), *parents(text).values()})


def graph_edges(text: str) -> list[tuple[str, str]]:
    """All edges of the text, of which none stands there twice."""
    found = re.findall(r"^(\S+) -> (\S+)$", text, re.MULTILINE)
    assert len(found) == len(set(found))
    return found


def graph_oracle(text: str, question: str) -> list[str]:
    """A search, level by level, or all nodes whose edge leads to the asked one."""
    asked = re.search(r"(?:node|节点) ([0-9a-f]+)\b", question)
    depth = re.search(r"(?:depth|深度是) (\d+)", question)
    assert asked
    if depth is None:
        return [start for start, end in graph_edges(text) if end == asked[1]]
    level = reached = {asked[1]}
    for _ in range(int(depth[1])):
        level = {end for start, end in graph_edges(text) if start in level} - reached
        reached = reached | level
    return sorted(level)


def graph_choices(text: str, _question: str) -> list[str]:
    return list(dict.fromkeys(node for edge in graph_edges(text) for node in edge))


def graph(**given: Any) -> Family:
    return Family({"task": "graphwalks", **given}, graph_oracle, graph_choices)


def magic(**given: Any) -> Family:
    return Family(given, magic_oracle, magic_choices)


FAMILIES = {
    "magic": magic(task="magic"),
    "magic-noise": magic(task="magic", task_options={"haystack": "repeat"}),
    "magic-words": magic(task="magic", task_options={"haystack": "needles", "value": "word"}),
    "multikey-1": magic(task="multikey"),
    "multikey-2": magic(task="multikey", task_options={"haystack": "needles", "keys": 1}),
    "multikey-3": magic(
        task="multikey",
        task_options={
            "haystack": "needles",
            "keys": 2,
            "key": "uuid",
            "value": "uuid",
            "uuid_digits": 16,
        },
    ),
    "multivalue": magic(task="multivalue"),
    "multiquery": magic(task="multiquery", task_options={"keys": 6, "values": 2}),
    "chinese": magic(task="multikey", language="chinese", task_options={"haystack": "needles"}),
    "kv": Family({"task": "kv"}, kv_oracle, kv_choices),
    "kv-shots": Family(
        {"task": "kv", "task_options": {"shots": 2, "query_first": True, "uuid_digits": 8}},
        kv_oracle,
        kv_choices,
    ),
    "kv-chinese": Family({"task": "kv", "language": "chinese"}, kv_oracle, kv_choices),
    "passkey": Family({"task": "passkey"}, passkey_oracle, passkey_oracle),
    "number-string": Family(
        {"task": "passkey", "task_options": {"digits": 10, "doubled": 5}},
        passkey_oracle,
        passkey_oracle,
    ),
    "ordinal": Family(
        {"task": "ordinal", "task_options": {"requests": 3, "sentences": 3}},
        ordinal_oracle,
        ordinal_choices,
    ),
    "count-common": Family(
        {
            "task": "count-common",
            "task_options": {"words": 4, "times": 5, "others": 2, "within": 0.3},
        },
        common_oracle,
        lambda text, _: list(dict.fromkeys(common_words(text))),
    ),
    "count-scattered": Family(
        {"task": "count-scattered", "task_options": {"numbers": 6}},
        scattered_oracle,
        scattered_choices,
    ),
    "count-corrected": Family(
        {"task": "count-scattered", "task_options": {"numbers": 5, "corrected": True}},
        scattered_oracle,
        scattered_choices,
    ),
    "trace": Family({"task": "trace"}, trace_oracle, trace_choices),
    "trace-noise": Family(
        {"task": "trace", "task_options": {"haystack": "repeat", "chains": 1, "order": "backward"}},
        trace_oracle,
        trace_choices,
    ),
    "trace-shots": Family(
        {"task": "trace", "task_options": {"haystack": "repeat", "shots": 2}},
        lambda text, question: trace_oracle(behind_examples(text), question),
        lambda text, question: trace_choices(behind_examples(text), question),
    ),
    "trace-chinese": Family(
        {"task": "trace", "language": "chinese", "task_options": {"order": "random", "span": 30}},
        trace_oracle,
        trace_choices,
    ),
    "thread": Family(
        {"task": "thread", "task_options": {"threads": 2, "uuid_digits": 8}},
        thread_oracle,
        kv_choices,
    ),
    "thread-all": Family(
        {"task": "thread", "task_options": {"ask": "all", "order": "random", "uuid_digits": 16}},
        thread_oracle,
        kv_choices,
    ),
    "facts-1": Family(
        {"task": "facts", "task_options": {"support": 1}}, facts_oracle, facts_choices
    ),
    "facts-2": Family({"task": "facts"}, facts_oracle, facts_choices),
    "facts-3": Family(
        {"task": "facts", "task_options": {"support": 3}}, facts_oracle, facts_choices
    ),
    "facts-chinese": Family(
        {"task": "facts", "language": "chinese", "task_options": {"support": 3, "facts": 9}},
        facts_oracle,
        facts_choices,
    ),
    "kinship": Family({"task": "kinship"}, kinship_oracle, kinship_choices),
    "kinship-families": Family(
        {
            "task": "kinship",
            "task_options": {"haystack": "families", "facts": 6, "ask": "descendant"},
        },
        kinship_oracle,
        kinship_choices,
    ),
    "kinship-chinese": Family(
        {"task": "kinship", "language": "chinese", "task_options": {"ask": "ancestor", "facts": 3}},
        kinship_oracle,
        kinship_choices,
    ),
    "questions-1": Family({"task": "questions"}, questions_oracle, questions_choices),
    "questions-2": Family(
        {"task": "questions", "task_options": {"hops": 2}}, questions_oracle, questions_choices
    ),
    "graphwalks": graph(),
    "graphwalks-far": graph(task_options={"steps": 4, "width": 3, "uuid_digits": 4}),
    "graphwalks-parents": graph(task_options={"ask": "parents"}),
    "graphwalks-chinese": graph(language="chinese", task_options={"steps": 1}),
    "graphwalks-parents-chinese": graph(language="chinese", task_options={"ask": "parents"}),
    "latent": latent(),
    "latent-distractors": latent(task_options={"distractors": 2, "hops": 2}),
    "latent-chinese": latent(language="chinese", task_options={"distractors": 1}),
    "absent-magic": magic(task="magic", task_options={"absent": 0.5}),
    "absent-multiquery": magic(
        task="multiquery", task_options={"absent": 0.5, "haystack": "needles"}
    ),
    "absent-latent": latent(language="chinese", task_options={"absent": 0.5, "distractors": 1}),
}
every_family = pytest.mark.parametrize("name", FAMILIES)
_ENDS = tuple('.!?\n")。！？”…')  # of sentences; the last marks one that the haystack's end cuts


def made(name: str, **given: Any) -> Experiment:
    small = {"lengths": [_LONGEST], "depths": "0:100:5", "repeats": 2, "max_answer_tokens": 64}
    return prepare(configure(None, small | FAMILIES[name].given | given))


def text_of(trial: Trial) -> str:
    """What a model gets to read but the question, which stands last."""
    text = trial.prompt.messages[-1].content
    return text[: text.rindex(trial.item.question)]


def answer(trial: Trial, said: list[str]) -> str:
    """What a reader who found this answers: where the question allows it, that there is nothing."""
    if "boxed" in trial.item.question:
        return f"So it is \\boxed{{{', '.join(said)}}}."
    if "[" in trial.item.answer_prefix:
        return f"{trial.item.answer_prefix}{', '.join(said)}]"
    code = re.search(r"with the code (\w+),", trial.item.question)
    return (f"{code[1]}\n" if code else "") + ", ".join(said) or trial.item.reference.none


def score(experiment: Experiment, trial: Trial, answer: str) -> float:
    return asyncio.run(experiment.scorer.score(answer, trial.item.reference)).share


@every_family
def test_an_oracle_that_reads_the_prompt_is_always_right_and_silence_never(name):
    experiment, family = made(name, lengths=[900, _LONGEST]), FAMILIES[name]
    for trial in experiment.trials:
        said = family.oracle(text_of(trial), trial.item.question)
        assert sorted(said) == sorted(trial.item.reference.keywords)
        assert score(experiment, trial, answer(trial, said)) == 1
        assert score(experiment, trial, "") == 0
        assert score(experiment, trial, trial.item.question) == 0
        assert score(experiment, trial, trial.item.answer_prefix) == 0


# a choice of a reply scores its noise rate: test_ordinal.py
@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "ordinal"])
def test_a_guess_is_right_as_often_as_its_chance_says(name):
    """Chance: of n values in the prompt, m are wanted; m of them guessed hit m / n of the wanted
    ones.

    Where none is wanted, a guess names one all the same, and is wrong.
    """
    experiment, family, random = made(name, depths="0:100:10", repeats=4), FAMILIES[name], Random(3)
    expected = variance = got = 0.0
    for trial in experiment.trials:
        choices, wanted = (
            family.choices(text_of(trial), trial.item.question),
            len(trial.item.reference.keywords),
        )
        chance = wanted / len(choices)
        expected += chance
        variance += chance * (1 - chance)  # at most: several guesses of one trial vary less
        got += score(experiment, trial, answer(trial, random.sample(choices, max(1, wanted))))
    assert abs(got - expected) <= 4 * sqrt(variance) + 1e-9


@every_family
@settings(deadline=None, max_examples=8)
@given(
    length=st.integers(900, _LONGEST),
    depth=st.floats(0, 100).map(lambda depth: round(depth, 2)),
    seed=st.integers(0, 99),
    vocabulary=st.sampled_from(["cl100k_base", "llama3", "qwen3"]),
)
def test_needles_stand_where_they_are_said_to_and_no_prompt_is_longer_than_asked(
    name, length, depth, seed, vocabulary
):
    given = {
        "lengths": [length],
        "depths": [depth],
        "repeats": 1,
        "seed": seed,
        "tokenizer": vocabulary,
    }
    (trial,) = made(name, **given).trials
    prompt, item, context = trial.prompt, trial.item, trial.prompt.context_text.encode()
    for needle, placed in zip(item.needles, prompt.needles, strict=True):
        assert context[placed.byte :].startswith(needle.text.encode())
        assert placed.meant == needle.depth
    assert item.needles[0].depth == depth / 100
    hidden = "".join(needle.text for needle in item.needles)
    assert all(word in hidden for word in item.reference.keywords)
    assert item.reference.keywords or item.reference.none
    counted = sum(load(vocabulary).count(message.data) for message in prompt.messages)
    assert counted == prompt.tokens <= length - 64
    longest_unit = 150 if has_lines(name) else 0
    assert length - 64 - counted <= longest_unit


def has_lines(name: str) -> bool:
    given = FAMILIES[name].given
    lines = ("kv", "thread", "ordinal", "count-common", "questions", "graphwalks")
    return given["task"] in lines or given.get("task_options", {}).get("haystack") in (
        "needles",
        "families",
    )


def between(trial: Trial, ends: tuple[str, ...], spaces: str = " ") -> bool:
    """Whether all of a trial's needles begin the text, or stand behind one of these ends."""
    context = trial.prompt.context_text.encode()
    before = [context[: placed.byte].decode().rstrip(spaces) for placed in trial.prompt.needles]
    return bool(before) and all(not text or text.endswith(ends) for text in before)


@every_family
def test_needles_stand_between_two_sentences_or_lines(name):
    for trial in made(name, depths="0:100:11").trials:
        assert between(trial, ("\n",), "") if has_lines(name) else between(trial, _ENDS)
        assert all(needle.text.endswith("\n") == has_lines(name) for needle in trial.item.needles)


# Several needles in places that depend on the depth part the prompts earlier.
PARTED = (
    "questions-1",
    "questions-2",
    "count-common",
    "multivalue",
    "latent-distractors",
    "latent-chinese",
    "absent-latent",
)
TOLD = {  # tasks whose texts are given
    "single": {
        "task": "single",
        "needle": "Ann has 48132 figs.",
        "question": "How many figs has Ann?",
    },
    "multi": {
        "task": "multi",
        "needles": ["Ann has 48132 figs.", "安有73519个无花果。"],
        "question": "How many figs has Ann?",
        "answer": "48132 and 73519",
    },
}


@pytest.mark.parametrize("language", ["english", "chinese"])
@pytest.mark.parametrize("name", [*(name for name in FAMILIES if not has_lines(name)), *TOLD])
def test_in_short_prompts_of_either_language_needles_stand_between_two_sentences_too(
    name, language
):
    """Where no sentence ended for 50 tokens, they once stood inside one; at depth 100 behind half
    of one."""
    given = {**(FAMILIES[name].given if name in FAMILIES else TOLD[name]), "language": language}
    grid = {"lengths": [600, 1000], "depths": "0:100:11", "max_answer_tokens": 20}
    for mode in ("exact", "bins") if name in (*TOLD, *PARTED) else ("exact",):
        chosen = configure(None, {**given, **grid, "tokenizer": "cl100k_base", "mode": mode})
        trials = prepare(chosen).trials
        assert [trial.cell for trial in trials if not between(trial, _ENDS)] == []
        assert sum(len(trial.places) for trial in trials) == 22


@every_family
def test_a_cells_depth_is_the_depth_of_its_first_needle(name):
    """Within one unit: a needle goes to the end of a sentence or line at or before its depth."""
    for trial in made(name, depths="0:100:21", repeats=1).trials:
        prompt = trial.prompt
        off = trial.cell.depth - prompt.needles[0].realised
        assert -80 <= off * prompt.haystack_tokens <= 150
        assert prompt.needles[0].realised == pytest.approx(
            prompt.positions[0] / prompt.haystack_tokens, abs=1e-9
        )


@every_family
def test_keys_and_values_are_fresh_in_every_trial(name):
    trials = made(name, lengths=[1200, _LONGEST], depths="0:100:5", repeats=3).trials
    lead = [trial.item.needles[0].text for trial in trials]
    assert len(lead) == 30
    assert len(set(lead)) >= (
        27 if name.startswith("facts") else 30
    )  # of a small world not much can be said
    assert not [trial for trial in trials if trial.collisions]


@every_family
def test_no_value_of_a_prompt_stands_in_it_twice(name):
    for trial in made(name).trials:
        choices = FAMILIES[name].choices(text_of(trial), trial.item.question)
        assert len(set(choices)) == len(choices)


# The last family of each task. `exact` is above, with all families, and `single` asks what it does.
@pytest.mark.parametrize(
    "name", {family.given["task"]: name for name, family in FAMILIES.items()}.values()
)
@pytest.mark.parametrize("mode", ["bins", "cold"])
def test_every_plan_mode_asks_what_the_oracle_can_answer(name, mode):
    experiment, family = made(name, lengths=[900, _LONGEST], mode=mode, repeats=1), FAMILIES[name]
    assert experiment.trials
    for trial in experiment.trials:
        said = family.oracle(text_of(trial), trial.item.question)
        assert score(experiment, trial, answer(trial, said)) == 1


@pytest.mark.parametrize(
    "name", [name for name in FAMILIES if name != "kv-shots" and not name.startswith("questions")]
)  # the question of one is first; of the other what stands beside is drawn with what is asked
def test_prompts_of_neighbouring_depths_share_their_beginnings(name):
    prompts = [trial.prompt for trial in made(name, depths="0:100:11", repeats=1).trials]
    walk = [prompts[place] for place in walk_order(prompts)]
    asked, shared = sum(prompt.tokens for prompt in walk), sum(reused(walk))
    assert asked / (asked - shared) > (1.1 if name in PARTED else 1.4)


@every_family
def test_a_base_model_gets_one_text_and_any_model_its_answers_beginning(name):
    base = made(
        name, model="openai/x", model_options={"api": "completions"}, tokenizer="cl100k_base"
    )
    assert {len(trial.prompt.messages) for trial in base.trials} == {1}
    begun = made(name, answer_prefix="{task}")
    for trial in begun.trials:
        assert (
            trial.prompt.messages[-1].content
            == trial.item.answer_prefix
            == trial.prompt.answer_prefix
        )
        assert trial.prompt.tokens <= _LONGEST - 64


@every_family
def test_a_longer_grid_leaves_the_trials_of_shorter_lengths_as_they_are(name):
    """A key was once drawn again because it stood in haystack that only longer prompts hold."""
    vocabulary = {"task_options": FAMILIES[name].given.get("task_options", {}) | {"uuid_digits": 4}}
    given = (
        vocabulary
        if "uuid" in str(FAMILIES[name].given) or FAMILIES[name].given["task"] == "kv"
        else {}
    )
    short = made(name, lengths=[900], repeats=3, **given).trials
    longer = made(name, lengths=[900, 12_000], repeats=3, **given).trials
    assert {trial.key for trial in short} < {trial.key for trial in longer}


# What a retriever without any understanding gets, in percent: one sentence, the best match to the
# question.
BM25 = {"multivalue": 25, "multiquery": 100 / 12, "chinese": 100, "kv-shots": None}
BM25 |= {"ordinal": 0, "count-common": 0, "count-scattered": None, "count-corrected": None}
BM25 |= {
    "trace": None,
    "trace-noise": 100 / 3,
    "trace-chinese": 100 / 3,
    "thread": 0,
    "thread-all": 50,
}
BM25 |= {"trace-shots": None}  # it may take a line of an example
BM25 |= {f"facts-{which}": None for which in (1, 2, 3, "chinese")}  # a place by luck
BM25 |= {"kinship": 0, "kinship-families": 0, "kinship-chinese": 0}  # it draws no box
BM25 |= {name: 0 for name in FAMILIES if name.startswith("graphwalks")}  # it ends with no list
BM25 |= {"questions-1": 0, "questions-2": 0}  # it takes the entry that has the question's words
BM25 |= {"latent": 0, "latent-distractors": 0, "latent-chinese": 0}
BM25 |= {"absent-magic": None, "absent-multiquery": None, "absent-latent": 0}  # it denies nothing


@every_family
def test_a_run_of_the_bm25_baseline_measures_all_of_it(name, tmp_path):
    from needlemap import run

    small = {
        "lengths": [900, _LONGEST],
        "depths": [0, 50, 100],
        "max_answer_tokens": 64,
        "quiet": True,
    }
    done = run(out=tmp_path / "r", model="baseline/bm25", **small, **FAMILIES[name].given)
    records = done.records()
    assert len(records) == 6
    assert not [record.failure for record in records if record.failure]
    expected = BM25.get(name, 100)
    mean = 100 * sum(record.score or 0 for record in records) / 6
    assert expected is None or mean == pytest.approx(expected, abs=5)


def hash_of(rows: list[dict[str, Any]]) -> str:
    """Of all keys and prompts."""
    whole = sha256()
    for row in rows:
        for trial in prepare(configure(None, row)).trials:
            whole.update((trial.key + trial.prompt.sha256).encode())
    return whole.hexdigest()


HASHES = f"""
import json, sys
from hashlib import sha256
from typing import Any
from needlemap.settings.reading import configure
from needlemap.trials.build import prepare
{getsource(hash_of)}
print(hash_of(json.load(sys.stdin)))
"""


def test_equal_seeds_give_equal_bytes_in_two_processes_and_others_do_not():
    small = {"lengths": [900], "depths": [0, 70], "repeats": 2, "max_answer_tokens": 64}
    whole = {"task": "count-frequent", "depths": [50]}  # it hides nothing: no row of FAMILIES
    given = [*(family.given for family in FAMILIES.values()), whole]
    here, other = ([small | one | {"seed": seed} for one in given] for seed in (5, 6))
    hashing = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    there = subprocess.run(
        [sys.executable, "-c", HASHES],
        input=json.dumps(here),
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": hashing, "PATH": ""},
    )
    assert there.stdout.strip() == hash_of(here) != hash_of(other)


@pytest.mark.parametrize("name", ["multikey-1", "multivalue", "multiquery", "multikey-3"])
def test_needles_beside_the_first_are_spread_uniformly(name):
    """Kolmogorov and Smirnov: no larger gap to the uniform distribution than one of a hundred draws
    has."""
    trials = made(
        name, lengths=list(range(1200, _LONGEST, 8)), depths=[50], repeats=1, seed=4
    ).trials
    rows = [list(group) for _, group in groupby(trials, key=lambda trial: trial.cell.length_tokens)]
    realised = sorted(needle.realised for row in rows for needle in row[0].prompt.needles[1:])
    n = len(realised)
    unit = 60 / 1000  # a needle moves back to the end of a unit, by as much as this
    gap = max(
        max((place + 1) / n - depth - unit, depth - place / n - 0.01)
        for place, depth in enumerate(realised)
    )
    assert n >= 50
    assert gap < 1.63 / sqrt(n)
    meant = sorted(needle.meant for row in rows for needle in row[0].prompt.needles[1:])
    assert max(
        max((place + 1) / n - depth, depth - place / n) for place, depth in enumerate(meant)
    ) < 1.63 / sqrt(n)
