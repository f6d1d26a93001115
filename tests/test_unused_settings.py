"""No setting is ever ignored: given where nothing reads it, it is refused with what to type."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from needlemap.errors import SettingsError
from needlemap.registry import find, installed, option_names
from needlemap.settings import Settings
from needlemap.settings.reading import configure
from needlemap.settings.suites import load_suite
from needlemap.settings.unused_settings import Choice, parts_of
from needlemap.shelves import PRESETS, SUITES

SERVER = {"model": "openai/m"}
BM25 = {"model": "baseline/bm25"}
MULTI = {"task": "multi", "needles": ["A.", "B."], "question": "?", "answer": "A"}
KV = {"task": "kv"}
READY = {"task": "published", "task_options": {"path": "x.jsonl"}}
HUB = {"haystack": "hub", "haystack_path": "a/b"}
FOLDER = {"haystack": "folder", "haystack_path": "texts"}
CODE = {"needle": "It is {n}.", "question": "What is it?"}


class Row(NamedTuple):
    """A setting's value, settings that read it, and settings that do not, with what it needs."""

    value: Any
    read: dict[str, Any]
    unread: list[tuple[dict[str, Any], str]]


BUILT = "a task whose prompts are built here"
OWN = "a task without a haystack of its own"
WORDED = "task apart, multi or single"
SAMPLED = "a model of anthropic, gauge, hf, lmdeploy or openai"
AT_A_TIME = "a model of anthropic, baseline, lmdeploy, openai or python"
CURVE = "--depths min:max:count:sigmoid"
ROWS: dict[str, Row] = {
    "base_url": Row(
        "http://127.0.0.1:1/v1",
        SERVER,
        [
            (
                BM25,
                "a model of anthropic or openai or --tokenizer server",
            ),
            ({"model": "python/os:getcwd"}, "a model of anthropic or openai or --tokenizer server"),
            ({"model": "hf/x"}, "a model of anthropic or openai or --tokenizer server"),
        ],
    ),
    "trust_remote_code": Row(
        True,
        {"model": "hf/x"},
        [(SERVER, "a model of hf or lmdeploy"), (BM25, "a model of hf or lmdeploy")],
    ),
    "thinking_tokens": Row(
        100, {"model": "hf/x"}, [(BM25, "a model of anthropic, hf, lmdeploy or openai")]
    ),
    "stream": Row(
        True,
        SERVER,
        [
            (BM25, "a model of anthropic or openai"),
            ({"model": "hf/x"}, "a model of anthropic or openai"),
            ({"model": "python/os:getcwd"}, "a model of anthropic or openai"),
        ],
    ),
    "logprobs": Row(
        True,
        SERVER,
        [
            (BM25, "a model of demo, gauge, hf or openai"),
            ({"model": "anthropic/claude"}, "a model of demo, gauge, hf or openai"),
            ({"model": "lmdeploy/x"}, "a model of demo, gauge, hf or openai"),
        ],
    ),
    "temperature": Row(
        0.7,
        {"model": "lmdeploy/x"},
        [
            (BM25, SAMPLED),
            ({"model": "demo/retriever"}, SAMPLED),
            ({"model": "python/os:getcwd"}, SAMPLED),
            ({"model": "hf/x", "scorer": "logprob"}, "a scorer that asks for an answer"),
        ],
    ),
    "request": Row(
        {"top_p": 1},
        SERVER,
        [
            (BM25, SAMPLED),
            ({"model": "demo/retriever"}, SAMPLED),
        ],
    ),
    "concurrency": Row(
        8,
        {"model": "hf/x", "scorer": "judge"},
        [
            ({"model": "hf/x"}, AT_A_TIME),
            (
                {"model": "demo/retriever"},
                AT_A_TIME,
            ),
        ],
    ),
    "needle": Row(
        "A fact.",
        {"question": "?"},
        [(KV, "task apart or single")],
    ),
    "needles": Row(
        ["A.", "B."],
        {**MULTI, "needles": None},
        [({"question": "?"}, "task multi")],
    ),
    "question": Row("?", {"needle": "A."}, [(READY, WORDED)]),
    "answer": Row("A", {"needle": "A.", "question": "?"}, [(KV, WORDED)]),
    "keywords": Row(["A"], {"needle": "A.", "question": "?"}, [(KV, WORDED)]),
    "spread": Row(
        "even",
        MULTI,
        [
            ({**MULTI, "needles": ["A."]}, "several --needles"),
            (CODE, "task multi"),
        ],
    ),
    "diff": Row(
        25,
        MULTI,
        [
            ({**MULTI, "spread": "even"}, "--spread chain"),
            (
                {**MULTI, "needles": ["A."]},
                "several --needles",
            ),
            ({}, "task multi"),
        ],
    ),
    "distractors": Row(
        2,
        {},
        [(KV, "task latent, multi or single")],
    ),
    "shuffle": Row("sentences", {}, [(KV, OWN)]),
    "draw": Row(
        {"n": "1:9"},
        CODE,
        [
            ({**CODE, "needle": "It is 4."}, "{n} in what is hidden, asked or wanted"),
            (KV, WORDED),
        ],
    ),
    "language": Row(
        "chinese",
        {"needle": "A.", "question": "?"},
        [
            (
                {**CODE, "needle": "A.", "template": "chat-en", **FOLDER},
                "--template auto or --haystack generated",
            ),
            (READY, BUILT),
        ],
    ),
    "haystack": Row("folder", {"haystack_path": "texts"}, [(KV, OWN), (READY, BUILT)]),
    "haystack_path": Row(
        "texts",
        {"haystack": "folder"},
        [
            (
                {"haystack": "generated"},
                "another --haystack",
            ),
            (KV, OWN),
            (READY, BUILT),
        ],
    ),
    "file_list": Row(
        ["a.jsonl"],
        HUB,
        [
            ({}, "another --haystack"),
            (FOLDER, "--haystack hub or jsonl"),
        ],
    ),
    "order": Row("cumulative", FOLDER, [({}, "a haystack that ends"), (KV, OWN), (READY, BUILT)]),
    "joined": Row("text", {}, [(KV, OWN), (READY, BUILT)]),
    "haystack_repeat": Row(
        True,
        FOLDER,
        [({}, "a haystack that ends"), (KV, OWN), (READY, BUILT)],
    ),
    "collisions": Row("warn", KV, [(READY, BUILT)]),
    "repeats": Row(
        2,
        KV,
        [
            (READY, BUILT),
            ({"seek": 85}, "a run without --seek"),
        ],
    ),
    "first_repeat": Row(2, KV, [(READY, BUILT)]),
    "sigmoid_ends": Row(
        "squash",
        {"depths": "0:100:5:sigmoid"},
        [
            ({}, CURVE),
            ({"depths": [0, 50]}, CURVE),
            (READY, BUILT),
        ],
    ),
    "placement": Row(
        "token", {}, [(KV, "a task whose needles stand between sentences"), (READY, BUILT)]
    ),
    "counts": Row("context", KV, [(READY, BUILT)]),
    "framing_tokens": Row(9, SERVER, [({"counts": "context"}, "--counts prompt")]),
    "template": Row("chat-zh", KV, [(READY, BUILT)]),
    "question_position": Row("start", KV, [(READY, BUILT)]),
    "guide": Row(True, KV, [(READY, BUILT)]),
    "within": Row(10, {"seek": 85}, [({}, "--seek 85")]),
    "scope": Row(
        "new",
        {"until": "no-worse-than reference:2"},
        [({}, "--until no-worse-than RUN:2")],
    ),
}
# Settings that stand everywhere, and why nothing is ignored by it.
ALWAYS = {
    "model": "names who answers",
    "label": "names the model in every figure and table",
    "step": "says which training step the model is of",
    "model_options": "the back end refuses what it does not know",
    "tokenizer": "lengths count somebody's tokens; a model fed ids refuses any but its own",
    "max_answer_tokens": "is taken off each length, even where the answer is given",
    "task": "names what is asked",
    "task_options": "the task refuses what it does not know",
    "prompts_of": "names what is asked; settings that would make other prompts are refused",
    "lengths": "of every grid",
    "depths": "of every grid; a task without depths refuses several",
    "ask_twice": "of all prompts, also of those that exist already",
    "depth_rounding": "of every grid, with nothing to round where depths are whole",
    "reserve_tokens": "is taken off each length",
    "answer_prefix": "begins every answer; {task} is nothing where the task has no beginning",
    "scorer": "names who scores",
    "scorer_options": "the scorer refuses what it does not know",
    "mode": "of every plan; prompts that exist refuse those that would change them",
    "seed": "fixes what is drawn; where nothing is drawn, every seed gives the same",
    "retries": "at most so many, also where nothing fails",
    "wait": "at most so long, also where the server is there",
    "timeout_s": "no attempt takes longer, also where none could",
    "pause_s": "after every answer",
    "limit_usd": "is kept; without a known price it is refused",
    "limit_tokens": "is kept",
    "limit_time": "is kept",
    "requests_per_minute": "is kept, also by models in this process",
    "tokens_per_minute": "is kept, also by models in this process",
    "canary": "--no-canary holds where there is none",
    "closed_book": "every task has questions",
    "prices": "what every record and plan reckons with",
    "save": "of every run; plan and prompts keep nothing anyway",
    "save_contexts": "of every run; refused with --no-save",
    "until": "of every run: when it stops",
    "seek": "of every run: what is asked; prompts that exist refuse it",
    "quiet": "of every run",
}


def given(*parts: dict[str, Any]) -> dict[str, Any]:
    """Settings of several mappings; None leaves one out."""
    merged = {name: value for part in parts for name, value in part.items()}
    return {name: value for name, value in merged.items() if value is not None}


def test_every_setting_is_here():
    parts = parts_of(Choice(Settings(), own_item=False))
    assert set(ROWS) == {name for part in parts for name in part.could}
    assert set(ALWAYS) == set(Settings.model_fields) - set(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_a_setting_reaches_those_that_read_it(name):
    row = ROWS[name]
    assert getattr(configure(None, given(row.read, {name: row.value})), name) == row.value


@pytest.mark.parametrize(
    ("name", "others", "needs"),
    [(name, *case) for name, row in ROWS.items() for case in row.unread],
)
def test_given_where_nothing_reads_it_a_setting_is_refused(name, others, needs):
    """--haystack-path without --haystack was ignored: generated prose was measured, in silence."""
    value = {**others, name: ROWS[name].value}
    with pytest.raises(SettingsError) as caught:
        configure(None, value)
    flag = f"--{name.replace('_', '-')}"
    assert str(caught.value) == (
        f"Nothing reads {flag} here: it needs {needs}. Give that, or leave {flag} out."
    )


@pytest.mark.parametrize("name", ["needle", "needles", "distractors", "spread"])
def test_the_tasks_that_are_named_are_those_whose_constructor_names_the_setting(name):
    """A new task or a plug-in's needs no line anywhere else."""
    tasks = [task for task in installed("tasks") if name in option_names(find("tasks", task))]
    *others, last = tasks
    words = f"{', '.join(others)} or {last}" if others else last
    with pytest.raises(SettingsError, match=rf"it needs task {words}\."):
        configure(None, {**KV, name: ROWS[name].value})


def test_an_unknown_part_may_read_anything_until_it_is_made():
    """What is wrong is the part's name: no second error hides it."""
    configure(None, {"model": "nowhere/m", "stream": True, "request": {"top_p": 1}})
    configure(None, {"task": "nowhere", "needle": "A.", "spread": "even", "draw": {}})


def test_a_task_that_is_typed_takes_the_place_of_what_a_file_says_for_another(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("template: chat-zh\nrepeats: 3\n")
    made = configure(str(file), READY)
    assert (made.template, made.repeats) == ("auto", 1)


@pytest.mark.parametrize(
    ("name", "value", "others"),
    [
        ("temperature", 0, BM25),
        ("temperature", None, BM25),
        ("concurrency", 1, {"model": "hf/x"}),
        ("diff", 10, {}),
        ("order", "shuffled", KV),
        ("canary", False, BM25),
        ("base_url", None, BM25),
    ],
)
def test_what_holds_anyway_is_left_alone(name, value, others):
    assert getattr(configure(None, {**others, name: value}), name) == value


def test_the_servers_own_tokenizer_reads_the_address_whoever_answers():
    wanted = {"model": "python/os:getcwd", "tokenizer": "server", "base_url": "http://127.0.0.1:1"}
    assert configure(None, wanted).base_url == "http://127.0.0.1:1"


# Settings of several places


@pytest.mark.parametrize("name", PRESETS.texts)
@pytest.mark.parametrize("task", ["kv", "passkey", "count-frequent"])
def test_a_presets_settings_never_stop_another_task(name, task):
    made = configure(name, {"task": task, "depths": [50]})
    assert (made.task, made.needle, made.haystack_path) == (task, "", None)


@pytest.mark.parametrize("name", PRESETS.texts)
@pytest.mark.parametrize("model", ["baseline/bm25", "openai/m", "hf/x", "demo/retriever"])
def test_a_presets_settings_never_stop_another_model(name, model):
    assert configure(name, {"model": model}).model == model


def test_what_is_typed_for_a_preset_that_does_not_read_it_is_refused():
    with pytest.raises(SettingsError, match="--needle here: it needs task"):
        configure("kv-json", {"needle": "A."})
    with pytest.raises(SettingsError, match=f"--haystack-repeat here: it needs {OWN}"):
        configure("passkey", {"haystack_repeat": True})


def test_a_file_is_held_to_its_own_words_but_not_to_what_is_typed_over_them(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("model: openai/m\nbase_url: http://x/v1\ntemperature: 0.7\n")
    assert configure(str(file)).temperature == 0.7
    other = configure(str(file), {"model": "baseline/bm25"})
    assert (other.base_url, other.temperature) == (None, 0)
    file.write_text("model: baseline/bm25\nbase_url: http://x/v1\n")
    with pytest.raises(SettingsError, match="Nothing reads --base-url here"):
        configure(str(file))


def test_of_drawn_values_those_in_use_stay(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("needle: '{a} and {b}.'\nquestion: '?'\ndraw: {a: [x], b: [y]}\n")
    assert configure(str(file), {"needle": "{b} alone."}).draw == {"b": ["y"]}


# Suites

SUITE = """
settings: {SETTINGS}
families:
  own: {task: kv}
  prose: {task: magic, task_options: {haystack: prose}}
"""


def suite(folder, settings: str = "") -> Any:
    file = folder / "mine.yaml"
    file.write_text(SUITE.replace("SETTINGS", settings))
    return load_suite(str(file))


def test_what_one_family_of_a_suite_reads_is_no_fault_of_the_others(tmp_path):
    settled = suite(tmp_path, "joined: text").settle({"language": "zh", "haystack_repeat": False})
    assert [each.joined for each in settled.values()] == ["paragraphs", "text"]
    settled = suite(tmp_path).settle({"joined": "text"})
    assert [each.joined for each in settled.values()] == ["paragraphs", "text"]


@pytest.mark.parametrize(("settings", "flags"), [("within: 10", {}), ("", {"within": 10})])
def test_what_no_family_of_a_suite_reads_is_refused(tmp_path, settings, flags):
    with pytest.raises(
        SettingsError, match=r"No family of suite 'mine' reads 'within'\. .*it needs --seek 85\."
    ):
        suite(tmp_path, settings).settle(flags)


def test_what_a_family_gives_itself_it_reads(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("families: {a: {task: kv, joined: text}, b: {task: magic}}")
    with pytest.raises(SettingsError, match=f"Family 'a': Nothing reads --joined.*{OWN}"):
        load_suite(str(file)).settle({})


def test_depths_that_every_family_has_are_no_flag(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("families: {a: {task: kv, depths: [0]}, b: {task: magic, depths: [50]}}")
    with pytest.raises(SettingsError, match="Each family of suite 'mine' has its own depths"):
        load_suite(str(file)).settle({"depths": "10"})


@pytest.mark.parametrize("name", SUITES.texts)
@pytest.mark.parametrize("model", ["baseline/bm25", "openai/m", "hf/x"])
def test_the_suites_of_the_package_fit_any_model(name, model):
    assert load_suite(name).settle({"model": model, "seed": 3})
