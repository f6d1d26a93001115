"""All settings by one set of names, from presets, YAML, the command line and the older tools'
names."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
import yaml
from typer.testing import CliRunner

from needlemap import settings
from needlemap.cli import app
from needlemap.errors import SettingsError
from needlemap.settings import KNOWN, Mark, Role, Settings, marked
from needlemap.settings.older_names import BY_NAME, ELSEWHERE, TABLE
from needlemap.settings.reading import configure, read_settings
from needlemap.settings.suites import Chosen, choose
from needlemap.shelves import PRESETS
from needlemap.trials.resolve import resolve

LENGTHS = {"min": 1000, "max": 200_000, "count": 35}
DEPTHS = {"min": 0, "max": 100, "count": 35}
# Every older name but the keys': a value, and what it means in ours.
CARRIED: dict[str, tuple[Any, dict[str, Any]]] = {
    "haystack_dir": ("essays", {"haystack": "txt", "haystack_path": "essays"}),
    "retrieval_question": ("Who?", {"question": "Who?"}),
    "results_version": (3, {"first_repeat": 2}),
    "context_lengths_min": (2000, {"lengths": LENGTHS | {"min": 2000}}),
    "context_lengths_max": (3000, {"lengths": LENGTHS | {"max": 3000}}),
    "context_lengths_num_intervals": (5, {"lengths": LENGTHS | {"count": 5}}),
    "context_lengths": ([1000, 2000], {"lengths": [1000, 2000]}),
    "document_depth_percent_min": (10, {"depths": DEPTHS | {"min": 10}}),
    "document_depth_percent_max": (90, {"depths": DEPTHS | {"max": 90}}),
    "document_depth_percent_intervals": (5, {"depths": DEPTHS | {"count": 5}}),
    "document_depth_percent_interval_type": ("sigmoid", {"depths": DEPTHS | {"scale": "sigmoid"}}),
    "document_depth_percents": ([0, 50], {"depths": [0, 50]}),
    "model_name": ("gpt-4-1106-preview", {"model": "openai/gpt-4-1106-preview"}),
    "save_results": (False, {"save": False}),
    "num_concurrent_requests": (3, {"concurrency": 3}),
    "final_context_length_buffer": (100, {"reserve_tokens": 100}),
    "seconds_to_sleep_between_completions": (1.5, {"pause_s": 1.5}),
    "print_ongoing_status": (False, {"quiet": True}),
    "evaluation_method": (
        "substring_match",
        {"scorer": "substring", "scorer_options": {"anywhere": True}},
    ),
    "substr_validation_words": (["dolores"], {"keywords": ["dolores"]}),
    "path": ("data/CDME", {"haystack": "jsonl", "haystack_path": "data/CDME"}),
    "length": (4000, {"lengths": 4000}),
    "depth": (12.5, {"depths": 12.5}),
    "tokenizer_model": ("gpt-4", {"tokenizer": "gpt-4"}),
    "num_repeats_per_file": (10, {"repeats": 10}),
    "num_records_per_file": (10, {"repeats": 10}),
    "length_buffer": (200, {"reserve_tokens": 200}),
    "guided": (True, {"guide": True}),
    "keyword": ("Jack", {"keywords": ["Jack"]}),
    "position": ("Start", {"question_position": "start"}),
    "use_trim": (True, {"scorer_options": {"trim": True}}),
    "max_out_len": (50, {"max_answer_tokens": 50}),
}
PRESET = {"needlehaystack": "needlemap run needlehaystack", "OpenCompass": "needlemap run cdme-8k"}
MULTI = {"task": "multi", "needles": ["A.", "B."], "question": "?", "answer": "A"}
OURS: dict[
    str, dict[str, Any]
] = {  # names that the older tools and this one share, with what reads them
    "needle": {"needle": "A fact."},
    "needles": MULTI,
    "diff": {**MULTI, "diff": 25},
    "answer": {"answer": "A"},
    "guide": {"guide": True},
    "language": {"language": "Chinese"},
    "file_list": {"haystack": "hub", "haystack_path": "a/b", "file_list": ["zh_tech.jsonl"]},
    "save_contexts": {"save_contexts": True},
}


def changed(settings: Settings) -> dict[str, Any]:
    """What differs from the defaults, but for the needle that is hidden where none is named."""
    default, made = configure().model_dump(), settings.model_dump()
    return {name: value for name, value in made.items() if value != default[name]}


@pytest.fixture
def flags(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command line; gives the settings that it names."""

    def settings_of(*words: str) -> Settings:
        seen: list[Settings] = []

        def run_command(each: dict[str, Chosen], *_others: object) -> int:
            seen.append(each[""].first)
            return 0

        monkeypatch.setattr("needlemap.commands.run.run_command", run_command)
        ended = CliRunner().invoke(app, ["run", *words])
        if ended.exception is not None and not seen:
            raise ended.exception
        return seen[0]

    return settings_of


def word(value: Any) -> str:
    """A value as it is typed."""
    return (
        value
        if isinstance(value, str)
        else yaml.safe_dump(value, default_flow_style=True).split("\n")[0]
    )


# The older tools' names


def test_every_older_name_is_tried_here():
    assert (
        set(CARRIED) | {"openai_api_key", "anthropic_api_key"}
        == set(BY_NAME)
        == {row.name for row in TABLE}
    )


@pytest.mark.parametrize("name", CARRIED)
def test_every_older_name_works_in_a_file(name, tmp_path):
    value, ours = CARRIED[name]
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({name: value}), encoding="utf-8")
    assert ours.items() <= configure(str(file)).model_dump().items()


@pytest.mark.parametrize("name", CARRIED)
def test_every_older_name_works_on_the_command_line(name, flags):
    value, ours = CARRIED[name]
    for flag in (f"--{name}", f"--{name.replace('_', '-')}"):
        assert ours.items() <= flags(flag, word(value)).model_dump().items()


@pytest.mark.parametrize("name", OURS)
def test_names_that_are_the_same_work_in_a_file(name, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(OURS[name]), encoding="utf-8")
    value = OURS[name][name]
    assert getattr(configure(str(file)), name) == (value.lower() if name == "language" else value)


def test_parts_of_a_range_add_up_and_start_from_the_presets_own(flags):
    settings = flags("--context-lengths-min", "2000", "--context-lengths-max", "8k")
    assert settings.lengths.written == {"min": 2000, "max": "8k", "count": 35}
    assert configure("cdme-8k", {"context_lengths_max": 4000}).lengths.written == {
        "min": 1000,
        "max": 4000,
        "count": 8,
    }


def test_none_under_an_older_name_is_that_tools_not_given():
    given = {"context_lengths": None, "context_lengths_min": 2000, "openai_api_key": None}
    assert configure(None, given).lengths.written == LENGTHS | {"min": 2000}


def test_claude_models_go_to_anthropic():
    assert configure(None, {"model_name": "claude-2.1"}).model == "anthropic/claude-2.1"


@pytest.mark.parametrize("method", ["gpt4", "substring_match", "substring_method"])
def test_evaluation_methods(method):
    scorer = configure(None, {"evaluation_method": method}).scorer
    assert scorer == ("judge" if method == "gpt4" else "substring")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"guided": True, "guide": False},
            "'guided' and 'guide' mean the same setting. Give one of them",
        ),
        ({"length": 1, "lengths": 2}, "'length' and 'lengths' mean the same setting"),
        (
            {"length_buffer": 1, "final_context_length_buffer": 2},
            "'final_context_length_buffer' and 'length_buffer'",
        ),
        (
            {"context_lengths": [1], "context_lengths_min": 2},
            "'context_lengths_min' and 'context_lengths'",
        ),
        (
            {"context_lengths_min": 2, "lengths": {"min": 1, "max": 2, "count": 3}},
            "'lengths' mean the same",
        ),
        ({"use_trim": True, "scorer_options": {"trim": False}}, "'use_trim' and 'scorer_options'"),
        ({"haystack_dir": "x", "path": "y"}, "'path' and 'haystack_dir' mean the same"),
        ({"evaluation_method": "gpt5"}, r"Unknown evaluation_method 'gpt5'. Did you mean 'gpt4'\?"),
        ({"results_version": "one"}, "results_version is a whole number from 1 on, got 'one'"),
        (
            {"openai_api_key": "sk-1"},
            "API keys are read from the environment only: set OPENAI_API_KEY",
        ),
        ({"anthropic_api_key": "sk-1"}, "ANTHROPIC_API_KEY"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_two_names_of_one_setting_and_values_without_meaning_are_refused(given, words):
    with pytest.raises(SettingsError, match=words) as caught:
        configure(None, given)
    assert "sk-1" not in str(caught.value)


def test_another_part_of_the_same_options_is_no_contradiction():
    made = configure(None, {"use_trim": True, "scorer_options": {"other": 1}})
    assert made.scorer_options == {"trim": True, "other": 1}


N_RULES = {
    "counts": "context",
    "reserve_tokens": 200,
    "placement": "period",
    "depth_rounding": "round",
}
O_RULES = {
    "counts": "context",
    "reserve_tokens": 200,
    "placement": "token",
    "depth_rounding": "truncate",
}


@pytest.mark.parametrize(
    ("given", "rules"),
    [
        ({"context_lengths_min": 1000}, N_RULES),
        ({"document_depth_percent_max": 90}, N_RULES),
        ({"final_context_length_buffer": 100}, N_RULES | {"reserve_tokens": 100}),
        (
            {"haystack_dir": "essays"},
            {"order": "listed", "joined": "text", "haystack_repeat": True},
        ),
        (
            {"length": 4000, "depth": 50, "tokenizer_model": "gpt-4"},
            O_RULES | {"tokenizer": "gpt-4"},
        ),
        ({"length_buffer": 200}, O_RULES),
        ({"path": "CDME"}, {"order": "cumulative", "joined": "tokens"}),
        ({"context_lengths_min": 1000, "counts": "prompt"}, N_RULES | {"counts": "prompt"}),
        (
            {"document_depth_percents": [12.5], "context_lengths_max": 2000},
            N_RULES | {"depth_rounding": "none"},
        ),
        (
            {"document_depth_percent_interval_type": "sigmoid", "context_lengths_max": 2000},
            N_RULES | {"depth_rounding": "none"},
        ),
    ],
    ids=str,
)
def test_a_tools_names_bring_its_rules_where_no_preset_is_named(given, rules):
    """1000 of its tokens were a prompt with room for the answer here, 700 of them sent, and 800
    there."""
    assert rules.items() <= configure(None, given).model_dump().items()


@pytest.mark.parametrize(
    "given",
    [
        {"context_lengths": [1000]},  # both tools' name
        {"retrieval_question": "Who?", "needle": "A fact."},
        {"model_name": "gpt-4", "num_concurrent_requests": 2},
        {"lengths": [1000], "context_lengths_min": None},
        {"length": [1000]},  # a letter forgotten
        {"length": [1000], "depth": [50], "needle": "A fact.", "retrieval_question": "Who?"},
    ],
    ids=str,
)
def test_other_names_bring_none(given):
    assert configure(None, given).counts == "prompt"


def test_a_forgotten_letter_is_told():
    told = read_settings(None, {"length": [1000], "depths": [50]}).older.note({})
    assert told == (
        "length (read as lengths): OpenCompass's name. For the rest needlemap's defaults hold: "
        "OpenCompass's rules and defaults come with a preset, as 'needlemap run cdme-8k'"
    )


@pytest.mark.parametrize(
    "row", [row for row in TABLE if row.name in CARRIED], ids=attrgetter("name")
)
def test_every_older_name_says_which_preset_has_the_rest(row):
    """--max_out_len, --keyword, --model_name and twelve more were taken without a word, beside
    lengths, needle and scorer that their users did not know."""
    value = True if row.name == "print_ongoing_status" else CARRIED[row.name][0]
    told = choose(None, {row.name: value}).note
    assert len(told.splitlines()) == 1
    assert told.startswith(row.name)
    assert all(f"{tool}" in told and f"{PRESET[tool]}'" in told for tool in row.tool.split(", "))
    assert "For the rest needlemap's defaults hold" in told


def test_names_of_two_tools_that_bring_no_rules_name_both_presets():
    told = choose(None, {"model_name": "gpt-4", "keyword": "Jack", "retrieval_question": "?"}).note
    assert told.startswith("model_name: needlehaystack's name. For")
    assert ". keyword: OpenCompass's name. For" in told
    assert "retrieval_question" not in told  # it is in either preset
    told = choose(None, {"context_lengths_min": 1000, "keyword": "Jack"}).note
    assert told.startswith("context_lengths_min: needlehaystack's name, so by its rules: counts=")
    assert "keyword: OpenCompass's name. For" in told


def test_settings_of_our_own_say_nothing_of_other_tools():
    assert choose(None, {"lengths": [1000], "needle": "A fact.", "question": "?"}).note == ""


def test_a_preset_keeps_its_own_rules():
    assert configure("bm25", {"context_lengths_max": 4000}).counts == "prompt"
    assert configure("cdme-8k", {"document_depth_percent_max": 90}).placement == "token"


def test_sigmoid_and_own_depths_are_not_rounded_as_the_original_does_not():
    preset = "needlehaystack"
    assert (
        configure(preset, {"document_depth_percent_interval_type": "sigmoid"}).depth_rounding
        == "none"
    )
    assert configure(preset, {"document_depth_percents": [12.5]}).depth_rounding == "none"
    assert configure(preset, {"document_depth_percent_intervals": 5}).depth_rounding == "round"
    assert configure("cdme-8k", {"document_depth_percents": [12.5]}).depth_rounding == "truncate"


def test_names_of_both_tools_bring_neithers_rules_but_an_error():
    words = r"Names of two tools.*length_buffer \(OpenCompass\).*Name a preset"
    with pytest.raises(SettingsError, match=words):
        configure(None, {"context_lengths_min": 1000, "length_buffer": 100})
    assert (
        configure("cdme-8k", {"context_lengths_min": 1000, "length_buffer": 100}).reserve_tokens
        == 100
    )


def test_the_rules_are_said_once(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("context_lengths_min: 1000\nhaystack_dir: essays\n", encoding="utf-8")
    told = choose(str(file), {"document_depth_percent_max": 90}).note
    assert len(told.splitlines()) == 1
    assert told.startswith(
        "context_lengths_min, haystack_dir, document_depth_percent_max: needlehaystack's names, so "
        "by "
        "its rules: counts=context, reserve_tokens=200, placement=period, depth_rounding=round, "
        "order="
    )
    told = choose(str(file), {"document_depth_percents": [5], "order": "shuffled"}).note
    assert "depth_rounding" not in told  # a list is not rounded
    assert "order=" not in told
    assert choose(str(file), {"quiet": True}).note == ""
    assert (
        choose("needlehaystack", {"context_lengths_min": 1000, "haystack_dir": "essays"}).note == ""
    )


@pytest.mark.parametrize("name", ELSEWHERE)
def test_opencompass_config_keys_are_refused_with_where_to_look(name, tmp_path):
    file = tmp_path / "oc.yaml"
    file.write_text(yaml.safe_dump({name: {"x": 1}}), encoding="utf-8")
    with pytest.raises(SettingsError, match=f"'{name}' in .*oc.yaml is OpenCompass's. Here: "):
        configure(str(file))


@pytest.mark.parametrize("name", ELSEWHERE)
@pytest.mark.parametrize("spelt", ["--{}", "--{}=x"])
def test_as_flags_they_are_refused_in_the_same_words(name, spelt, typed):
    """They were unknown options, with guesses at what was meant."""
    flag = spelt.format(name.replace("_", "-") if "=" in spelt else name)
    told = typed("run", "demo", flag, code=2).stderr
    assert told == (
        f"needlemap: '{name}' on the command line is OpenCompass's. Here: {ELSEWHERE[name]}. See "
        f"needlemap help from-opencompass.\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("report", "--path", "a.csv", "b.csv"),
            "Here: the files themselves, as in: needlemap report",
        ),
        (("report", "a.csv", "--abbr", "x"), "Here: a model's short name is 'label'"),
        (
            ("check", "--context_lengths", "4"),
            "Here: lengths, of needlemap run and not of needlemap check",
        ),
        (
            ("compare", "--evaluation-method", "gpt4"),
            "'evaluation_method' on the command line is needle",
        ),
    ],
)
def test_so_is_one_that_another_command_takes(typed, words, said):
    assert said in typed(*words, code=2).stderr


def test_what_stands_behind_a_flag_is_its_value_whatever_it_looks_like(typed):
    told = typed("plan", "demo", "--needle", "--abbr", code=2).stderr
    assert "OpenCompass" not in told


@pytest.mark.parametrize("verb", ["run", "plan", "prompts"])
@pytest.mark.parametrize("name", ["configs/eval_needleinahaystack.py", "x.py"])
def test_a_config_in_python_is_told_from_a_preset(typed, verb, name):
    """It was an unknown preset, with a guess at needlehaystack."""
    told = typed(verb, name, code=2).stderr
    assert told.startswith(f"needlemap: '{name}' is a Python file, as OpenCompass's configs are: ")
    assert "needlemap help from-opencompass" in told


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (["--save_contexts"], {"save_contexts": True}),
        (["--save-contexts"], {"save_contexts": True}),
        (["--save_contexts", "True"], {"save_contexts": True}),
        (["--save_contexts", "False", "cdme-8k"], {"save_contexts": False, "guide": True}),
        (["--guide", "False", "cdme-8k"], {"guide": False}),
        (["--no_save"], {"save": False}),
        (["--max_answer_tokens=7"], {"max_answer_tokens": 7}),
        (
            ["--haystack_path", "a/b", "--haystack", "hub", "--file_list", "a.jsonl"],
            {"file_list": ["a.jsonl"]},
        ),
        (["--substr_validation_words", "a b"], {"keywords": ["a b"]}),
        (["--substr_validation_words", "a", "b"], {"keywords": ["a", "b"]}),
        (
            ["--substr-validation-words", "a", "b", "needlehaystack"],
            {"keywords": ["a", "b"], "order": "listed"},
        ),
        (
            ["needlehaystack", "--substr_validation_words", "a", "--seed", "5"],
            {"keywords": ["a"], "seed": 5},
        ),
        (
            ["--substr_validation_words", "a", "--substr_validation_words", "b"],
            {"keywords": ["a", "b"]},
        ),
        (["--substr_validation_words", "[a, b]"], {"keywords": ["a", "b"]}),
        (["--context_lengths", "1000", "2000"], {"lengths": [1000, 2000]}),
        (["--context_lengths", "1k,2k"], {"lengths": "1k,2k"}),
        (["--document_depth_percents", "0", "12.5", "--seed", "1"], {"depths": [0, 12.5]}),
        (["--save_contexts=False", "cdme-8k"], {"save_contexts": False, "guide": True}),
        (["--guide=True"], {"guide": True}),
        (["--trust_remote_code=False"], {"trust_remote_code": False}),
        (["cdme-8k", "--length", "1000", "2000"], {"lengths": [1000, 2000]}),
        (["--depth", "0", "50", "cdme-8k"], {"depths": [0, 50]}),
        (["--length", "[1000, 2000]", "cdme-8k"], {"lengths": [1000, 2000]}),
        (["cdme-8k", "--keyword", "x", "y"], {"keywords": ["x", "y"]}),
        (["cdme-8k", "--file_list", "a.jsonl", "b.jsonl"], {"file_list": ["a.jsonl", "b.jsonl"]}),
        (
            ["cdme-8k", "--file_list", "['a.jsonl', 'b.jsonl']"],
            {"file_list": ["a.jsonl", "b.jsonl"]},
        ),
        (["cdme-8k", "--file_list", "a.jsonl,b.jsonl"], {"file_list": ["a.jsonl", "b.jsonl"]}),
        (
            ["cdme-multi-3-8k", "--needles", "One [1].", "2024", "Three."],
            {"needles": ["One [1].", "2024", "Three."]},
        ),
        (
            ["--needles", """['\\nOne.', 'Two, three.', "It's."]""", "cdme-multi-3-8k"],
            {"needles": ["\nOne.", "Two, three.", "It's."]},
        ),
        (["--model_name", "gpt-4"], {"model": "openai/gpt-4"}),
        (["--model_name", "openai/gpt-4"], {"model": "openai/gpt-4"}),
        (["--model_name", "anthropic/claude-3"], {"model": "anthropic/claude-3"}),
        (["--model_name", "my-org/llama"], {"model": "openai/my-org/llama"}),
        (["--needle", "--a_b is a fact."], {"needle": "--a_b is a fact."}),
    ],
    ids=" ".join,
)
def test_older_spellings_of_flags(words, ours, flags):
    assert ours.items() <= flags(*words).model_dump().items()


def test_a_flag_that_nobody_has_is_not_made_of_one():
    ended = CliRunner().invoke(app, ["run", "--saev_contexts"])
    assert ended.exit_code == 2
    assert "No such option: --saev_contexts" in ended.output


# Where settings come from


def test_later_sources_win(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("preset: cdme-8k\nrepeats: 3\nseed: 5\n", encoding="utf-8")
    made = configure(str(file), {"seed": 6})
    assert (made.order, made.repeats, made.seed, made.concurrency) == ("cumulative", 3, 6, 4)


def test_option_mappings_are_merged_and_lists_replaced(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("model_options: {window: 5, k: 1}\nkeywords: [A, B]\n", encoding="utf-8")
    made = configure(str(file), {"model_options": {"k": 2}, "keywords": ["C"]})
    assert (made.model_options, made.keywords) == ({"window": 5, "k": 2}, ["C"])


def test_another_scorer_or_task_takes_no_options_of_the_presets():
    preset = "ruler-niah-single-1"
    assert configure(preset).scorer_options
    assert configure(preset).task_options
    assert configure(preset, {"scorer": "exact"}).scorer_options == {}
    assert configure(preset, {"task": "kv", "task_options": {"shots": 1}}).task_options == {
        "shots": 1
    }
    assert configure(preset, {"task": configure(preset).task}).task_options


def test_another_task_takes_no_needles_of_a_file_nor_how_they_are_spread(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "task: multi\nneedles: ['A {n}', B]\nspread: chain\ndiff: 20\ndraw: {n: '1:9'}\n"
    )
    assert configure(str(file)).diff == 20
    made = configure(str(file), {"task": "kv"})
    assert (made.needles, made.draw, made.diff) == ([], {}, 10)


def test_another_back_end_takes_no_options_of_the_presets():
    assert configure("bm25").model_options == {"window": 6000}
    assert configure("bm25", {"model": "openai/m"}).model_options == {}
    assert configure("bm25", {"model": "baseline/random"}).model_options == {"window": 6000}


def test_a_file_may_build_on_a_file(tmp_path):
    (tmp_path / "a.yaml").write_text("preset: demo\nrepeats: 7\n", encoding="utf-8")
    (tmp_path / "b.yaml").write_text(f"preset: {tmp_path / 'a.yaml'}\nseed: 2\n", encoding="utf-8")
    made = configure(str(tmp_path / "b.yaml"))
    assert (made.repeats, made.seed) == (7, 2)


def test_a_file_that_builds_on_itself_is_an_error(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text(f"preset: {file}\n", encoding="utf-8")
    with pytest.raises(SettingsError, match="is its own preset"):
        configure(str(file))


def test_something_is_hidden_where_nobody_says_what():
    english, chinese = configure(), configure(None, {"language": "Chinese"})
    assert english.needle == "The locker code for {city} is {number}."
    assert chinese.needle == "{city}的储物柜密码是{number}。"
    assert configure(None, {"needle": "Mine.", "question": "Whose?"}).draw == {}
    assert configure(None, {"task": "multi"}).needle == ""


def test_an_empty_file_is_the_defaults(tmp_path):
    (tmp_path / "a.yaml").write_text("", encoding="utf-8")
    assert configure(str(tmp_path / "a.yaml")) == configure()


@pytest.mark.parametrize(
    ("given", "meant"), [("zh", "chinese"), ("EN", "english"), ("Chinese", "chinese")]
)
def test_languages_have_short_names(given, meant, flags):
    assert (
        configure(None, {"language": given}).language
        == flags("--language", given).language
        == meant
    )
    assert (
        configure(None, {"language": given}).needle == configure(None, {"language": meant}).needle
    )


def test_flags_are_read_as_their_settings_kind(flags):
    made = flags(
        *(
            "--lengths",
            "1k,2k",
            "--temperature",
            "none",
            "--limit-usd",
            "0.5",
            "--no-save",
            "--guide",
        ),
        *(
            "--task",
            "multi",
            "--needles",
            "A {city}, and more",
            "--needles",
            "B {n}",
            "--model",
            "openai/m",
        ),
        *("--haystack", "hub", "--haystack-path", "a/b", "--file-list", "a.jsonl,b.jsonl"),
        *(
            "--request",
            "top_p=0.5",
            "--request",
            "stop=[x]",
            "--draw",
            "city=Oslo,Lima",
            "--draw",
            "n=1:9",
        ),
    )
    assert (made.lengths.written, made.temperature, made.limit_usd) == ("1k,2k", None, 0.5)
    assert (made.save, made.guide, made.needles) == (False, True, ["A {city}, and more", "B {n}"])
    assert (made.file_list, made.request) == (["a.jsonl", "b.jsonl"], {"top_p": 0.5, "stop": ["x"]})
    assert made.draw == {"city": ["Oslo", "Lima"], "n": "1:9"}


def test_a_setting_says_all_that_is_known_of_it_in_words_that_exist():
    assert {known.role for known in KNOWN.values()} == set(get_args(Role))
    assert {mark for known in KNOWN.values() for mark in known.marks} == set(get_args(Mark))
    assert all(len(set(known.marks)) == len(known.marks) for known in KNOWN.values())


def test_a_new_setting_is_one_definition_in_one_file_and_none_without_its_role(
    tmp_path, monkeypatch
):
    source = Path(settings.__file__).read_text("utf-8")

    def with_setting(name: str, definition: str) -> ModuleType:
        file = tmp_path / f"{name}.py"
        file.write_text(
            source.replace("    # model\n", f"    {definition}\n    # model\n"), encoding="utf-8"
        )
        spec = spec_from_file_location(name, file)
        made = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, made)
        spec.loader.exec_module(made)
        return made

    made = with_setting(
        "lit", 'glow: Annotated[int, _RUN("free", "shared", "ab")] = 3\n    """How bright."""'
    )
    assert made.Settings().glow == 3
    assert made.help_texts()["glow"] == "How bright."
    for names in (
        made.settings_of("Run"),
        made.with_role("free"),
        made.marked("shared"),
        made.marked("ab"),
    ):
        assert "glow" in names
    assert "glow" not in (*made.with_role("asked"), *made.marked("check", "opened"))
    with pytest.raises(TypeError, match="Setting 'glow' has no role: define it as"):
        with_setting("dark", "glow: int = 3")


def test_every_setting_has_a_flag_with_its_help():
    """But for the older tools' ways, whose help is a page."""
    shown = CliRunner().invoke(app, ["run", "--help-all"], terminal_width=200).output
    for name in Settings.model_fields:
        if name in marked("older"):
            continue
        assert f"--{name.replace('_', '-')}" in shown
        assert settings.help_texts()[name].split()[0] in shown


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"lengts": 1}, r"Unknown setting 'lengts' in the command line. Did you mean 'lengths'\?"),
        ({"retreival_question": 1}, r"Did you mean 'retrieval_question'\?"),
        ({"zzz": 1}, "Unknown setting 'zzz' in the command line. See needlemap run --help"),
        (
            {"retries": "many"},
            "Setting 'retries' in the command line: must be an integer, got 'many'",
        ),
        ({"repeats": 0}, "Setting 'repeats' .*greater than or equal to 1, got 0"),
        ({"mode": "fast"}, "Setting 'mode' .*'exact'.*, got 'fast'"),
        ({"lengths": None}, "Setting 'lengths' in .*'None' is not a number"),
        ({"prices": {"input": "x"}}, "Setting 'prices' .*number.*, got 'x'"),
        (
            {"language": "French"},
            "Setting 'language' .*: must be 'english' or 'chinese', got 'french'",
        ),
        ({"limit_time": "soon"}, "command line: 'soon' is no duration. Write 90s, 30m or 1h30m.$"),
        (
            {"repeats": True},
            "Setting 'repeats' in the command line: takes no yes or no, got True.$",
        ),
        (
            {"lengths": True},
            "Setting 'lengths' in the command line: takes no yes or no, got True.$",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_misspelt_or_has_no_meaning_is_said(given, words):
    with pytest.raises(SettingsError, match=words) as caught:
        configure(None, given)
    assert "\n" not in str(caught.value)


def test_all_that_is_wrong_is_said_at_once(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("modle: x\ntemperature: hot\nrepeats: yes\ndepths: 120\nlimit_time: soon\n")
    with pytest.raises(SettingsError) as caught:
        configure(str(file))
    head, *lines = str(caught.value).split("\n")
    assert head == f"5 settings in {file} are wrong:"
    assert sorted(line.strip().split(":")[0] for line in lines) == [
        *("depths", "limit_time", "modle", "repeats", "temperature")
    ]
    assert "Value error" not in str(caught.value)
    assert "Input should" not in str(caught.value)


def test_languages_have_codes():
    assert configure(None, {"language": "zh"}) == configure(None, {"language": "chinese"})
    assert configure(None, {"language": "en"}) == configure(None, {"language": "english"})


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"lengths: [1, 2", r"mine.yaml' is not readable YAML: "),
        (b"needle: \xff", r"mine.yaml' is not readable YAML: "),
        (b"- lengths", r"mine.yaml' must be a mapping of settings to values"),
        (b"lengts: 1", r"Unknown setting 'lengts' in .*mine.yaml"),
        (b"preset: demmo", r"Unknown preset 'demmo'. Did you mean 'demo'\?"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, raw, words):
    (tmp_path / "mine.yaml").write_bytes(raw)
    with pytest.raises(SettingsError, match=words):
        configure(str(tmp_path / "mine.yaml"))


def test_a_missing_file_or_preset_is_an_error():
    with pytest.raises(SettingsError, match=r"No settings file at 'nowhere\.yaml'"):
        configure("nowhere.yaml")
    with pytest.raises(
        SettingsError, match=r"Unknown preset 'cdme8k'. Did you mean 'cdme-8k'\?.*a .yaml file"
    ):
        configure("cdme8k")


# Presets


@pytest.mark.parametrize("name", PRESETS.texts)
def test_every_preset_is_valid_and_says_what_it_is(name):
    configure(name)
    assert len(PRESETS.about(name)) > 30


def test_the_presets_of_the_older_tools_have_their_numbers():
    hay, cdme = configure("needlehaystack"), configure("cdme-8k")
    assert (hay.lengths.written, hay.depths.written) == (
        {"min": 1000, "max": 200_000, "count": 35},
        {"min": 0, "max": 100, "count": 35, "scale": "linear"},
    )
    assert (hay.reserve, hay.scorer, hay.keywords) == (200, "judge", ["dolores", "sandwich"])
    assert configure("needlehaystack-substring").scorer == "substring"
    assert (cdme.repeats, cdme.reserve, cdme.guide, cdme.scorer) == (10, 200, True, "levenshtein")
    assert (cdme.tokenizer, cdme.order, cdme.max_answer_tokens) == ("gpt-4", "cumulative", 100)
    for count, name in ((2, "multi-2-zh-8k"), (3, "cdme-multi-3-8k")):
        multi = configure(name)
        assert (len(multi.needles), multi.diff, multi.scorer) == (count, 25, "keyword")


def test_what_is_derived():
    made = configure(None, {"model": "openai/org/model", "max_answer_tokens": 7})
    assert (made.backend, made.model_name, made.reserve) == ("openai", "org/model", 7)
    assert configure(None, {"reserve_tokens": 0}).reserve == 0


def test_the_address_that_the_environment_names_is_part_of_what_is_asked(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    assert configure(None, {"model": "openai/m"}).base_url == "http://127.0.0.1:1/v1"
    assert (
        configure(None, {"model": "openai/m", "base_url": "http://x/v1"}).base_url == "http://x/v1"
    )
    assert configure(None, {"model": "baseline/bm25"}).base_url is None


@pytest.mark.parametrize(
    ("name", "value", "limit"),
    [
        ("repeats", 10**9, "100000"),
        ("concurrency", 10**9, "10000"),
        ("retries", 10**9, "1000"),
        ("max_answer_tokens", 10**12, "100000000"),
        ("timeout_s", 1e300, "10000000"),
        ("timeout_s", float("nan"), "10000000"),
        ("limit_time", "9" * 400, "10000000"),
        ("seed", 10**5000, "9223372036854775808"),
        ("repeats", "9" * 5000, "integer"),
        ("lengths", [10**12], "100,000,000"),
        ("lengths", [10**5000], "too many digits"),
        ("lengths", "9" * 5000, "is not a number"),
        ("depths", {"min": 0, "max": 100, "count": 10**9}, "100,000"),
    ],
    ids=map(str, range(13)),
)
def test_an_absurd_number_is_refused_at_once_and_the_error_says_the_limit(name, value, limit):
    """A billion repeats kept plan busy for minutes; five thousand digits were a traceback."""
    with pytest.raises(SettingsError) as refused:
        resolve(configure(None, {name: value}))
    assert limit in str(refused.value)
    assert len(str(refused.value)) < 600


def test_a_run_of_more_trials_than_any_is_refused_before_prompts_are_built():
    many = {"lengths": "1k:16k:5000", "depths": "0:100:101", "repeats": 3}
    with pytest.raises(
        SettingsError, match="1,515,000 trials are too many: a run has 1,000,000 at most"
    ):
        resolve(configure(None, many))


def test_a_settings_file_of_absurd_numbers_is_refused_in_words(typed):
    for text in (
        f"lengths: [{'9' * 5000}]",
        f"repeats: {'9' * 5000}",
        "repeats: 2026-99-99",
        "seed: 1e999",
    ):
        (typed.folder / "s.yaml").write_text(text + "\n")
        assert len(typed("plan", "s.yaml", code=2).stderr) < 600
