"""A trial's key changes with everything that can change its answer or score, and with nothing
else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from needlemap.grid import Cell
from needlemap.settings import Settings, with_role
from needlemap.settings.reading import configure
from needlemap.tasks import Reference
from needlemap.tasks.values import Values
from needlemap.trials import provider_host, settings_hash
from needlemap.trials.build import prepare

BASE: dict[str, Any] = {
    "lengths": [600, 900],
    "depths": [0, 50],
    "needle": "Ann eats figs.",
    "question": "What does Ann eat?",
    "answer": "Figs.",
    "keywords": ["figs"],
    "model": "baseline/bm25",
    "repeats": 2,
}


@cache
def base() -> dict[tuple[int, Cell], str]:
    return keys()


def made(changed: dict[str, Any]) -> Settings:
    """Settings, also such as would be refused with this model and this text."""
    unread = {
        name: changed[name] for name in ("trust_remote_code", "haystack_repeat") if name in changed
    }
    read = {name: value for name, value in changed.items() if name not in unread}
    return configure(None, BASE | read).model_copy(update=unread)


def keys(**changed: Any) -> dict[tuple[int, Cell], str]:
    """Keys by repeat and cell."""
    trials = prepare(made(changed)).trials
    return {place: trial.key for trial in trials for place in trial.places if not trial.second}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text(
        "The sea is grey today. The land is green. " * 400, encoding="utf-8"
    )
    return tmp_path


@pytest.fixture
def sources(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., dict[str, Any]]:
    """Settings and a change to them, with the paths of real texts where they name a source of
    texts."""
    other, lines = tmp_path_factory.mktemp("other"), tmp_path_factory.mktemp("lines")
    (other / "a.txt").write_text("The sun is low today. The wood is dark. " * 400, encoding="utf-8")
    for name, text in (("a", "The sea is grey today. "), ("b", "The sun is low today. ")):
        row = json.dumps({"text": text * 800})
        (lines / f"{name}.jsonl").write_text(f"{row}\n", encoding="utf-8")

    def placed(besides: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
        whole = besides | changed
        if whole.get("haystack") == "folder":
            whole["haystack_path"] = str(other if whole.get("haystack_path") else folder)
        if whole.get("haystack") == "jsonl":
            whole["haystack_path"] = str(lines)
            whole.setdefault("file_list", ["a.jsonl"])
        return whole

    return placed


def test_every_trial_has_a_key_of_its_own():
    assert len(set(base().values())) == len(base()) == 8


SERVED = {"model": "openai/gpt-4"}
MULTI = {
    "task": "multi",
    "needle": "",
    "needles": ["Ann eats figs.", "Bob eats plums."],
    "keywords": [],
}
TEXTS = {"haystack": "folder", "order": "listed"}  # and a path, which the test gives

# Every setting that can change an answer or its score: what is set besides, and the change.
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "needle": ({}, {"needle": "Ann eats plums."}),
    "needles": (MULTI, {"needles": ["Ann eats figs.", "Bob eats pears."]}),
    "question": ({}, {"question": "What fruit does Ann eat?"}),
    "answer": ({}, {"answer": "Plums."}),
    "keywords": ({}, {"keywords": ["fig"]}),
    "draw": (
        {"needle": "Ann eats {fruit}.", "keywords": [], "draw": {"fruit": ["figs"]}},
        {"draw": {"fruit": ["plums"]}},
    ),
    "spread": (MULTI, {"spread": "even"}),
    "diff": (MULTI, {"diff": 30.0}),
    "task": ({"keywords": []}, MULTI),
    "task_options": (
        {"task": "magic", "needle": "", "question": "", "answer": None, "keywords": []},
        {"task_options": {"digits": 5}},
    ),
    "prompts_of": (
        {},
        {"prompts_of": {"run": "r", "model": "baseline/bm25", "tokenizer": "o200k_base"}},
    ),
    "template": ({}, {"template": "text-en"}),
    "language": ({}, {"language": "chinese"}),
    "question_position": ({}, {"question_position": "start"}),
    "guide": ({}, {"guide": True}),
    "answer_prefix": ({}, {"answer_prefix": "Ann eats"}),
    "tokenizer": ({}, {"tokenizer": "o200k_base"}),
    "model": ({}, SERVED),
    "model_options": ({}, {"model_options": {"window": 500}}),
    "trust_remote_code": ({}, {"trust_remote_code": True}),
    "base_url": (SERVED, {"base_url": "https://elsewhere.example/v1"}),
    "max_answer_tokens": ({"reserve_tokens": 300}, {"max_answer_tokens": 299}),
    "thinking_tokens": (SERVED, {"thinking_tokens": 1000}),
    "reserve_tokens": ({}, {"reserve_tokens": 290}),
    "framing_tokens": ({}, {"framing_tokens": 10}),
    "temperature": ({}, {"temperature": None}),
    "request": (SERVED, {"request": {"top_p": 0.5}}),
    "scorer": ({}, {"scorer": "levenshtein"}),
    "scorer_options": ({"scorer": "levenshtein"}, {"scorer_options": {"trim": True}}),
    "mode": ({}, {"mode": "single"}),
    "seed": ({}, {"seed": 1}),
    "haystack": ({}, TEXTS),
    "haystack_path": (TEXTS, {"haystack_path": "other"}),
    "file_list": ({"haystack": "jsonl", "order": "listed"}, {"file_list": ["b.jsonl"]}),
    "order": ({}, {"order": "listed"}),
    "joined": ({"lengths": [4000, 8000]}, {"joined": "text"}),
    "placement": ({}, {"placement": "token"}),
    "counts": ({}, {"counts": "context"}),
    "distractors": ({}, {"distractors": ["Bob eats pears."]}),
    "shuffle": ({}, {"shuffle": "sentences"}),
}
IN_SOME_CELLS = (
    "order",
    "joined",
    "placement",
)  # the others' prompts have the same bytes with either
# Every setting that cannot: a run may be resumed with another value.
HARMLESS: dict[str, dict[str, Any]] = {
    "lengths": {"lengths": [600, 900, 7000]},
    "depths": {"depths": [0, 25, 50, 100]},
    "repeats": {"repeats": 3},
    "ask_twice": {"ask_twice": 3},
    "first_repeat": {"lengths": [900], "depths": [50], "first_repeat": 1, "repeats": 1},
    "sigmoid_ends": {"depths": "0:50:2:sigmoid", "sigmoid_ends": "squash"},
    "depth_rounding": {"depth_rounding": "round"},
    "haystack_repeat": {"haystack_repeat": True},
    "label": {"label": "mine"},
    "step": {"step": 500},
    "concurrency": {"concurrency": 9},
    "stream": {"stream": True},
    "pause_s": {"pause_s": 1},
    "timeout_s": {"timeout_s": 5},
    "wait": {"wait": "5m"},
    "retries": {"retries": 0},
    "requests_per_minute": {"requests_per_minute": 60},
    "tokens_per_minute": {"tokens_per_minute": "10k"},
    "limit_usd": {"limit_usd": 1},
    "limit_tokens": {"limit_tokens": 10_000},
    "limit_time": {"limit_time": "1h"},
    "prices": {"prices": {"input": 1, "output": 2}},
    "canary": {"canary": False},
    "closed_book": {"closed_book": True},
    "logprobs": {"logprobs": True},
    "save": {"save": False},
    "save_contexts": {"save_contexts": True},
    "until": {"until": "no-worse-than reference:2"},
    "scope": {"until": "no-worse-than reference:2", "scope": "new"},
    "quiet": {"quiet": True},
    "collisions": {"collisions": "warn"},
}
SOUGHT = (
    "seek",
    "within",
)  # their prompts are chosen by the answers: none is known before one asks


def test_every_setting_either_can_change_an_answer_or_cannot():
    """A new setting belongs into one of the tables here, and says its role where it is defined."""
    assert set(CHANGES) | set(HARMLESS) | set(SOUGHT) == set(Settings.model_fields)
    asked, built = with_role("asked"), with_role("built", "scored")
    assert set(CHANGES) == {*asked, *built}
    assert set(HARMLESS) | set(SOUGHT) == set(with_role("grid", "free"))
    assert not set(CHANGES) & set(HARMLESS)
    assert len(asked) + len(built) == len({*asked, *built})


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_what_can_change_an_answer_or_its_score_changes_every_key(name, sources):
    besides, changed = CHANGES[name]
    if name == "trust_remote_code":  # no model in this process is at hand: the hash itself
        one, other = (made(each) for each in (besides, changed))
        assert settings_hash(one, "t", "w") != settings_hash(other, "t", "w")
        return
    before, after = (keys(**sources(BASE | besides, each)) for each in ({}, changed))
    assert before
    assert after
    if name in IN_SOME_CELLS:
        assert after.keys() == before.keys()
        assert any(after[place] != before[place] for place in before)
        return
    assert set(after.values()).isdisjoint(before.values())


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_what_cannot_change_an_answer_leaves_every_key_that_both_have(name):
    besides = SERVED if name in ("logprobs", "stream") else {}  # what no ranking of sentences has
    found, before = keys(**(besides | HARMLESS[name])), keys(**besides) if besides else base()
    shared = found.keys() & before.keys()
    assert shared
    assert all(found[place] == before[place] for place in shared)


@pytest.mark.parametrize(
    "changed",
    [
        {"scorer": "substring"},  # what 'auto' means here
        {"tokenizer": "gpt-4"},  # the same vocabulary under another name
        {"max_answer_tokens": 300, "reserve_tokens": 300},
    ],
    ids=str,
)
def test_other_words_for_the_same_change_no_key(changed):
    assert keys(**changed) == base()


def test_a_server_of_ones_own_is_the_same_on_every_port_and_node_and_a_provider_is_not():
    urls = (
        "http://127.0.0.1:8000/v1",
        "http://localhost:1/v1",
        "http://node7:80/v1",
        "http://10.1.2.3/v1",
    )
    assert len({provider_host("openai", url) for url in urls}) == 1
    providers = ("https://openrouter.ai/api/v1", "https://api.groq.com/openai/v1", None, urls[0])
    assert len({provider_host("openai", url) for url in providers}) == 4
    assert provider_host("openai", "https://api.openai.com/v1") == provider_host("openai", None)


def test_a_run_goes_on_when_its_server_comes_back_on_another_port(needlemap, wires):
    first, second = wires(), wires()
    grid = ("--lengths", "200", "--depths", "0,50")
    needlemap.run(first, *grid)
    ended = needlemap.run(second, "--lengths", "200,300", "--depths", "0,50")
    assert "2 already scored, 2 to ask" in ended.stderr
    assert (len(first.log()), len(second.log())) == (2, 2)
    flags = (
        "--model",
        "openai/m",
        "--base-url",
        "https://elsewhere.example/v1",
        "--tokenizer",
        "cl100k_base",
    )
    refused = needlemap("run", *flags, "--max-answer-tokens", "40", *grid, "-o", "r", code=2)
    assert "holds a run with other settings: base_url" in refused.stderr


def test_what_would_look_like_an_answer_is_in_the_key_where_there_is_none_and_nowhere_else(
    monkeypatch,
):
    """Keys of all other trials are as they were before references held it."""
    magic = {"task": "magic", "needle": "", "question": "", "answer": None, "keywords": []}
    wide = {**magic, "depths": "0:100:9", "task_options": {"absent": 0.5}}
    before = prepare(configure(None, BASE | wide)).trials
    monkeypatch.setattr(Values, "like", "[0-9]+")
    after = prepare(configure(None, BASE | wide)).trials
    changed = [one.key != other.key for one, other in zip(before, after, strict=True)]
    assert changed == [not trial.item.reference.keywords for trial in before]
    assert True in changed
    assert False in changed


def test_a_reference_is_told_by_all_that_it_says():
    plain = Reference("Figs.", ("figs",))
    assert plain.digest() == Reference("Figs.", keywords=("figs",), decoys=()).digest()
    others = [
        Reference("Figs", ("figs",)),
        Reference("Figs.", ("figs", "figs")),
        *(replace(plain, **{name: "x"}) for name in ("needle", "question", "none", "like")),
        *(replace(plain, **{name: ("x",)}) for name in ("decoys", "choices", "owners")),
    ]
    assert len({plain.digest(), *(each.digest() for each in others)}) == 10


def test_another_right_answer_is_another_key_to_the_same_question():
    before, after = (prepare(made({"keywords": words})).trials for words in (["figs"], ["fig"]))
    assert [trial.asked for trial in before] == [trial.asked for trial in after]
    assert {trial.key for trial in before}.isdisjoint(trial.key for trial in after)


def test_only_the_haystack_that_a_prompt_holds_is_in_its_key(folder):
    own = {"haystack": "folder", "haystack_path": str(folder), "order": "listed"}
    before = keys(**own)
    text = (folder / "a.txt").read_text(encoding="utf-8")
    (folder / "a.txt").write_text(
        text[:1600] + text[1600:].replace("grey", "blue"), encoding="utf-8"
    )
    after = keys(**own)
    same = {cell.length_tokens for (_, cell), key in after.items() if key == before[_, cell]}
    assert same == {600}
    (folder / "a.txt").write_text(text.replace("grey", "blue"), encoding="utf-8")
    assert set(keys(**own).values()).isdisjoint(before.values())


def test_the_folders_name_is_not_in_the_key_but_its_text_is(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "b.txt").write_bytes((folder / "a.txt").read_bytes())
    found = [
        keys(haystack="folder", haystack_path=str(path), order="listed") for path in (folder, other)
    ]
    assert found[0] == found[1]


def test_a_template_file_counts_by_its_words(tmp_path):
    for name, text in (
        ("a", "{haystack} Q: {question}"),
        ("b", "{haystack} Q: {question}"),
        ("c", "{haystack} {question}"),
    ):
        (tmp_path / f"{name}.yaml").write_text(f"text: '{text}'", encoding="utf-8")
    one, same, other = (keys(template=str(tmp_path / f"{name}.yaml")) for name in "abc")
    assert one == same
    assert set(one.values()).isdisjoint(other.values())
