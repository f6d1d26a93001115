"""No setting is ever ignored: given where nothing reads it, it is refused with what to type."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from needlemap.errors import SettingsError
from needlemap.settings import KNOWN, Settings
from needlemap.settings.reading import configure
from needlemap.settings.suites import load_suite
from needlemap.settings.unused_settings import RULES
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
    """A setting's value, settings that read it, and settings that do not, with words of the
    refusal."""

    value: Any
    read: dict[str, Any]
    unread: list[tuple[dict[str, Any], str]]


AS_IT_IS = "asks each prompt once and as it is: leave"
OWN = "brings its own haystack, 'json': leave --"
ROWS: dict[str, Row] = {
    "base_url": Row(
        "http://127.0.0.1:1/v1",
        SERVER,
        [
            (
                BM25,
                "'baseline/bm25' has no address: leave --base-url out, or name a server's model",
            ),
            ({"model": "python/os:getcwd"}, "has no address"),
            ({"model": "hf/x"}, "has no address"),
        ],
    ),
    "trust_remote_code": Row(
        True,
        {"model": "hf/x"},
        [(SERVER, "runs no code that comes with a model"), (BM25, "runs no code")],
    ),
    "thinking_tokens": Row(
        100, {"model": "hf/x"}, [(BM25, "'baseline/bm25' takes no --thinking-tokens: leave it out")]
    ),
    "stream": Row(
        True,
        SERVER,
        [
            (BM25, "'baseline/bm25' takes no --stream: leave it out"),
            ({"model": "hf/x"}, "takes no --stream: leave it out"),
            ({"model": "python/os:getcwd"}, "takes no --stream: leave it out"),
        ],
    ),
    "logprobs": Row(
        True,
        SERVER,
        [
            (BM25, "'baseline/bm25' takes no --logprobs: leave it out"),
            ({"model": "anthropic/claude"}, "takes no --logprobs: leave it out"),
            ({"model": "lmdeploy/x"}, "takes no --logprobs: leave it out"),
        ],
    ),
    "temperature": Row(
        0.7,
        {"model": "lmdeploy/x"},
        [
            (BM25, "'baseline/bm25' takes no --temperature: leave it out"),
            ({"model": "demo/retriever"}, "takes no --temperature"),
            ({"model": "python/os:getcwd"}, "takes no --temperature"),
            ({"model": "hf/x", "scorer": "logprob"}, "weighs a given answer"),
        ],
    ),
    "request": Row(
        {"top_p": 1},
        SERVER,
        [(BM25, "takes no --request"), ({"model": "demo/retriever"}, "takes no --request")],
    ),
    "concurrency": Row(
        8,
        {"model": "hf/x", "scorer": "judge"},
        [
            ({"model": "hf/x"}, "answers one prompt after another"),
            ({"model": "demo/retriever"}, "leave"),
        ],
    ),
    "needle": Row(
        "A fact.",
        {"question": "?"},
        [(KV, "Task 'kv' takes no --needle: leave it out. Its options: key,")],
    ),
    "needles": Row(
        ["A.", "B."],
        {**MULTI, "needles": None},
        [({"question": "?"}, "'single' takes no --needles")],
    ),
    "question": Row("?", {"needle": "A."}, [(READY, "Task 'published' takes no --question")]),
    "answer": Row("A", {"needle": "A.", "question": "?"}, [(KV, "takes no --answer")]),
    "keywords": Row(["A"], {"needle": "A.", "question": "?"}, [(KV, "takes no --keywords")]),
    "spread": Row(
        "even",
        MULTI,
        [
            ({**MULTI, "needles": ["A."]}, "One needle is not spread"),
            (CODE, "'single' takes no --spread"),
        ],
    ),
    "diff": Row(
        25,
        MULTI,
        [
            ({**MULTI, "spread": "even"}, "--spread even is given by depth"),
            (
                {**MULTI, "needles": ["A."]},
                "One needle is not spread: leave --diff out, or repeat --needles",
            ),
            ({}, "'single' takes no --diff"),
        ],
    ),
    "distractors": Row(
        2,
        {},
        [(KV, "Task 'kv' has words of its own, and --distractors is of a needle of yours: leave")],
    ),
    "shuffle": Row("sentences", {}, [(KV, f"{OWN}shuffle out")]),
    "draw": Row(
        {"n": "1:9"},
        CODE,
        [({**CODE, "needle": "It is 4."}, "holds {n}: leave --draw out"), (KV, "takes no --draw")],
    ),
    "language": Row(
        "chinese",
        {"needle": "A.", "question": "?"},
        [
            ({**CODE, "needle": "A.", "template": "chat-en", **FOLDER}, "have their own language"),
            (READY, AS_IT_IS),
        ],
    ),
    "haystack": Row("folder", {"haystack_path": "texts"}, [(KV, OWN), (READY, AS_IT_IS)]),
    "haystack_path": Row(
        "texts",
        {"haystack": "folder"},
        [
            (
                {"haystack": "generated"},
                "'generated' is made up and reads no path: leave --haystack-path out, or "
                "--haystack",
            ),
            (KV, OWN + "haystack-path out"),
            (READY, AS_IT_IS + " --haystack-path out"),
        ],
    ),
    "file_list": Row(
        ["a.jsonl"],
        HUB,
        [
            ({}, "reads no path"),
            (FOLDER, "'folder' chooses no files by name: leave --file-list out"),
        ],
    ),
    "order": Row("cumulative", FOLDER, [({}, "never ends"), (KV, OWN), (READY, AS_IT_IS)]),
    "joined": Row("text", {}, [(KV, OWN), (READY, AS_IT_IS)]),
    "haystack_repeat": Row(
        True,
        FOLDER,
        [({}, "'generated' never ends"), (KV, OWN + "haystack-repeat out"), (READY, AS_IT_IS)],
    ),
    "collisions": Row("warn", KV, [(READY, AS_IT_IS)]),
    "repeats": Row(
        2,
        KV,
        [
            (READY, "leave --repeats out. Fewer prompts: --task-options limit=N"),
            ({"seek": 85}, "--seek asks as many haystacks as it takes: leave --repeats out"),
        ],
    ),
    "first_repeat": Row(2, KV, [(READY, AS_IT_IS)]),
    "sigmoid_ends": Row(
        "squash",
        {"depths": "0:100:5:sigmoid"},
        [({}, "on no sigmoid curve"), ({"depths": [0, 50]}, "on no sigmoid"), (READY, AS_IT_IS)],
    ),
    "placement": Row(
        "token", {}, [(KV, "places its needles between two lines"), (READY, AS_IT_IS)]
    ),
    "counts": Row("context", KV, [(READY, AS_IT_IS)]),
    "framing_tokens": Row(9, SERVER, [({"counts": "context"}, "leaves the chat template out")]),
    "template": Row("chat-zh", KV, [(READY, AS_IT_IS)]),
    "question_position": Row("start", KV, [(READY, AS_IT_IS)]),
    "guide": Row(True, KV, [(READY, AS_IT_IS)]),
    "within": Row(
        10, {"seek": 85}, [({}, "Nothing is sought: leave --within out, or give --seek 85")]
    ),
    "scope": Row(
        "new",
        {"until": "no-worse-than reference:2"},
        [({}, "No verdict is asked for: leave --scope out, or give --until")],
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
    assert set(ROWS) == {name for name in Settings.model_fields if KNOWN[name].read}
    assert set(ALWAYS) == set(Settings.model_fields) - set(ROWS)
    behind = {rule.behind for rule in RULES.values() if rule.behind}
    assert {KNOWN[name].read for name in ROWS} | behind == set(RULES)


@pytest.mark.parametrize("name", ROWS)
def test_a_setting_reaches_those_that_read_it(name):
    row = ROWS[name]
    assert getattr(configure(None, given(row.read, {name: row.value})), name) == row.value


@pytest.mark.parametrize(
    ("name", "others", "words"),
    [(name, *case) for name, row in ROWS.items() for case in row.unread],
)
def test_given_where_nothing_reads_it_a_setting_is_refused(name, others, words):
    """--haystack-path without --haystack was ignored: generated prose was measured, in silence."""
    value = {**others, name: ROWS[name].value}
    with pytest.raises(SettingsError) as caught:
        configure(None, value)
    assert words in str(caught.value)


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
    with pytest.raises(SettingsError, match="Task 'kv' takes no --needle"):
        configure("kv-json", {"needle": "A."})
    with pytest.raises(
        SettingsError, match="brings its own haystack, 'repeat': leave --haystack-repeat out"
    ):
        configure("passkey", {"haystack_repeat": True})


def test_a_file_is_held_to_its_own_words_but_not_to_what_is_typed_over_them(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("model: openai/m\nbase_url: http://x/v1\ntemperature: 0.7\n")
    assert configure(str(file)).temperature == 0.7
    other = configure(str(file), {"model": "baseline/bm25"})
    assert (other.base_url, other.temperature) == (None, 0)
    file.write_text("model: baseline/bm25\nbase_url: http://x/v1\n")
    with pytest.raises(SettingsError, match="has no address"):
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
        SettingsError, match=r"No family of suite 'mine' reads 'within'\. Nothing is sought"
    ):
        suite(tmp_path, settings).settle(flags)


def test_what_a_family_gives_itself_it_reads(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("families: {a: {task: kv, joined: text}, b: {task: magic}}")
    with pytest.raises(SettingsError, match="Family 'a': Task 'kv' brings its own haystack"):
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
