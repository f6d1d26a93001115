"""NeedleBench's prompts, byte for byte: checked against vectors made by OpenCompass' own code.

The original's wording is in the vectors, not in this repository: templates are read from there.
"""

from __future__ import annotations

import json
from ast import literal_eval
from functools import cache
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from needlemap.errors import HaystackError, SettingsError
from needlemap.interop.opencompass.ancestry import load_eldest, load_trace
from needlemap.interop.opencompass.needlebench import (
    load_parallel,
    load_reasoning,
    load_single,
)

Row = dict[str, Any]
MARKERS = {"Chinese": "请按照", "English": "Please answer in the format"}
FILES = {  # rows that are compared
    "needlebench_v2_origin": (load_single, 72),
    "needlebench_v2_parallel": (load_parallel, 16),
    "needlebench_v2_reasoning": (load_reasoning, 192),
    "needlebench_v1_origin": (load_single, 193),
    "needlebench_v1_parallel": (load_parallel, 64),
    "needlebench_v1_reasoning": (load_reasoning, 192),
    "needlebench_mar2024_origin": (load_single, 36),
    "needlebench_empty_haystack": (None, 4),
}


@pytest.fixture(scope="module")
def vectors(shared: Path) -> Path:
    return shared / "vectors" / "opencompass"


def rows(file: Path) -> list[Row]:
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@cache
def words(vectors: Path) -> dict[str, Any]:
    return json.loads((vectors / "templates.json").read_text(encoding="utf-8"))


@cache
def learnt(vectors: Path, language: str) -> dict[str, str]:
    """The guides and the demands for a form, read off whole prompts."""
    marker, found = MARKERS[language], dict[str, str]()
    for row in rows(vectors / "needlebench_v1_parallel.jsonl"):
        params, prompt = row["params"], row.get("prompt")
        if params["language"] == language and prompt and params["position"] == "End":
            asked = prompt[prompt.rindex("？" if language == "Chinese" else "?") + 1 :].strip("\n")
            before, _, after = asked.partition(marker)
            lead, tail = after[: after.index("'") + 1], after[after.rindex("'") :]
            found |= {"form": f"{marker}{lead}{{forms}}{tail}"}
            found |= {"guide": before, "guide_marker": marker} if params["guide"] else {}
    for row in rows(vectors / "needlebench_v1_reasoning.jsonl"):
        if row["params"]["language"] == language and "prompt" in row:
            end = row["prompt"].rstrip("\n")
            found["guided_suffix"] = found["guide"].strip()
            assert end.endswith(found["guided_suffix"])
    return found


def template(vectors: Path, row: Row) -> dict[str, Any]:
    """The original's words for a row."""
    params, (version, part) = row["params"], row["variant"].removeprefix("needlebench_").split("_")
    language = params["language"]
    at = params.get("quesiton_position") or params.get("position") or "End"
    kind = (
        "v1_origin_and_reasoning" if version != "v2" and part != "parallel" else f"{version}_{part}"
    )
    prompt = words(vectors)[f"needlebench_{kind}|{language}|{at}"]
    known = learnt(vectors, language)
    if part == "parallel":
        keys = ("form",) if version == "v2" else ("form", "guide", "guide_marker")
    elif version == "v2":
        keys = ()
    else:
        keys = ("guided_suffix",) if part == "reasoning" else ("guide", "guide_marker")
    found = {"prompt": prompt, **{key: known[key] for key in keys}}
    if (version, part) == ("v2", "reasoning"):
        short = "zh" if language == "Chinese" else "en"
        found["sentences"] = words(vectors)[f"atc_v2|templates_{short}"]
        found["terms"] = words(vectors)[f"atc_v2|terms_{short}"]
        found["question"] = question_of(vectors, language)
    return found


@cache
def question_of(vectors: Path, language: str) -> str:
    """Version 2's question about a line of descent, read off a whole prompt."""
    kind = f"needlebench_v2_reasoning|{language}|End"
    lead = words(vectors)[kind].split("{context}")[1].split("{question}")[0]
    for row in rows(vectors / "needlebench_v2_reasoning.jsonl"):
        params = row["params"]
        if (
            params["language"] == language
            and "prompt" in row
            and params["quesiton_position"] == "End"
        ):
            asked = row["prompt"].rpartition(lead)[2].partition("\n")[0]
            person = asked.split("'")[1]
            return asked.replace(person, "{last_person}")
    raise AssertionError(language)


def made(vectors: Path, row: Row, load: Any) -> list[dict[str, str]]:
    params = dict(row["params"])
    found = template(vectors, row)
    for name in ("quesiton_position", "position"):
        params.pop(name, None)
    if "global_seed_before_load" in params:
        params["seed"] = params.pop("global_seed_before_load")
    if "mar2024" in row["variant"]:
        params["seeded"] = False
    return load(vectors / "input", template=found, **params)


def same(mine: dict[str, str], row: Row) -> None:
    """Asserts that both prompts have the same bytes, and both answers.

    Of a list the vector has the JSON, and the model read what Python writes: that is the prompt.
    """
    sent = hashed = mine["prompt"]
    if row.get("prompt_is_list_not_string"):
        parts = literal_eval(sent)
        assert sent == str(parts)
        hashed = json.dumps(parts, ensure_ascii=False)
    assert sent == str(row.get("prompt", sent))
    assert sha256(hashed.encode()).hexdigest() == row["sha256"], row["params"]
    assert mine["answer"] == row["answer"]


@pytest.mark.parametrize("name", FILES)
def test_every_prompt_is_the_originals_byte_for_byte(name, vectors):
    load, expected = FILES[name]
    compared = 0
    table = rows(vectors / f"{name}.jsonl")
    for _, group in groupby(table, key=lambda row: json.dumps([row["variant"], row["params"]])):
        cell = list(group)
        loader = load or (load_parallel if "parallel" in cell[0]["variant"] else load_single)
        found = made(vectors, cell[0], loader)
        for row in cell:
            same(found[row["index"]], row)
            compared += 1
    assert compared == expected


TRACES = {
    "ELDEST_ANCESTOR": "shuffled_story_with_prompt",
    "NTH_ANCESTOR": "nth_ancestor_prompt",
    "NTH_DESCENDANT": "nth_descendant_prompt",
    "RELATIONSHIP_DISTANCE": "relationship_distance_prompt",
}


VARIANTS = {  # the form, whose words, which prompt or end of a prompt, and the rows compared
    "atc_v2": (None, "atc_v2|{0}", "", 80),
    "atc_v2_elder_only": ("ELDER_ONLY", "atc_v2|{0}", "", 30),
    "atc_v1": ("SHUFFLED", "atc_v1|relationship_{0}", "atc_v1|suffix_", 20),
    "atc_v1_ordered": ("ORDERED", "atc_v1|relationship_{0}", "atc_v1|suffix_", 20),
    "atc_v1_choice": ("CHOICE", "atc_v1|relationship_{0}", "atc_v1_choice|suffix_", 80),
}


def traced(vectors: Path, row: Row) -> list[dict[str, str]]:
    """The rows of the ancestral trace that a vector is one of."""
    form, key, suffix, _ = VARIANTS[row["variant"]]
    params, known = dict(row["params"]), words(vectors)
    short, kind = ("zh", "zh_CN") if params["language"] == "Chinese" else ("en", "en")
    asked = TRACES[params.get("question_type", "ELDEST_ANCESTOR")]
    prompt = "{shuffled_story} " + known[suffix + short] if suffix else ""
    own = f"{row['variant']}|templates_{short}"
    found = {
        "prompt": prompt or known[f"atc_v2_format_string|{asked}_{kind}"],
        "sentences": known.get(own) or known[f"{key.format('templates')}_{short}"],
        "terms": known[f"{key.format('terms')}_{short}"],
    }
    if form is None:
        found["generations"] = known[f"atc_v2|generations_{short}"]
        return load_trace(vectors / "input", template=found, **params)
    if "global_seed_before_load" in params:
        params["seed"] = params.pop("global_seed_before_load")
    return load_eldest(vectors / "input", form=form, template=found, **params)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_prompt_of_the_ancestral_trace_is_the_originals(variant, vectors):
    expected, seen = VARIANTS[variant][-1], set()
    for row in rows(vectors / "atc.jsonl"):
        if row["variant"] == variant:
            found = traced(vectors, row)
            same(found[row["index"] % len(found)], row)
            seen.add((json.dumps(row["params"]), row["index"]))
    assert len(seen) == expected


def names_file(folder: Path, text: str) -> Path:
    (folder / "names.json").write_text(text)
    return folder


ASKED = {
    "prompt": "{shuffled_story} Who is {last_person}'s eldest?",
    "sentences": ["{A} is {B}'s {relationship}."],
    "terms": ["mother"],
}


def test_a_choice_turns_four_options_and_names_the_letter_of_the_eldest(tmp_path):
    folder = names_file(tmp_path, '{"English": "Ann,Bea,Cid,Dan"}')
    found = load_eldest(folder, 2, "English", 1, "CHOICE", ASKED)
    eldest = found[0]["prompt"].split(" is ")[0]
    for row in found:
        letter = row["answer"].split("--")[1]
        assert f"\n{letter}. {eldest}\n" in row["prompt"]
    assert [row["answer"][3] for row in found] == ["A", "D", "C", "B"]


def test_ordered_facts_lead_from_the_eldest_down(tmp_path):
    folder = names_file(tmp_path, '{"English": "Ann,Bea,Cid,Dan"}')
    (row,) = load_eldest(folder, 3, "English", 1, "ORDERED", ASKED, seed=4)
    first, second, _ = row["prompt"].split(".")[:3]
    assert first.removesuffix("'s mother").split(" is ")[1] == second.split(" is ")[0]
    assert row["answer"] == "*".join([first.split(" is ")[0]] * 2)


@pytest.mark.parametrize(
    ("text", "settings", "error", "sentence"),
    [
        ('{"English": "Ann,Bea"}', (3, "English", 1, "ORDERED"), SettingsError, "3 people"),
        ('{"English": "Ann,Bea"}', (2, "English", 1, "CHOICE"), SettingsError, "4 people"),
        ('{"English": "Ann,Bea"}', (2, "English", 1, "CHOICES"), SettingsError, "Unknown form"),
        ('{"English": "Ann,Bea"}', (2, "French", 1, "ORDERED"), SettingsError, "Unknown language"),
        ('{"Chinese": "Ann,Bea"}', (2, "English", 1, "ORDERED"), HaystackError, "holds no names"),
        ('{"English": ["Ann"]}', (1, "English", 1, "ORDERED"), HaystackError, "holds no names"),
    ],
)
def test_a_trace_that_cannot_be_made_says_what_is_missing(
    tmp_path, text, settings, error, sentence
):
    with pytest.raises(error, match=sentence):
        load_eldest(names_file(tmp_path, text), *settings, ASKED)


def test_a_trace_without_a_single_person_is_refused(tmp_path):
    folder = names_file(tmp_path, '{"English": "Ann,Bea"}')
    with pytest.raises(SettingsError, match="num_needles must be at least 1"):
        load_eldest(folder, 0, "English", 1, "ORDERED", ASKED)


def test_an_unknown_kind_of_question_is_refused(tmp_path):
    with pytest.raises(SettingsError, match="Unknown question_type 'ELDEST'"):
        load_trace(tmp_path, 2, "English", 1, "ELDEST", {"prompt": ""})


SMALL: dict[str, Any] = {
    "length": 200,
    "tokenizer_model": "gpt-4",
    "file_list": ["a.jsonl"],
    "num_repeats_per_file": 1,
    "length_buffer": 20,
    "language": "English",
    "template": {"prompt": "<{context}> {question}"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    text = "The grass is wet and the door is red. " * 40
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text}) + "\n")
    entry = {
        "needle": "The owl lives in the mill.",
        "retrieval_question": "Where is the owl? Say: 'The owl lives in ________.'",
        "arg1": "owl",
        "arg2": "mill",
        "language": "English",
    }
    (tmp_path / "needles.jsonl").write_text(json.dumps(entry) + "\n")
    return tmp_path


def test_a_needle_stands_in_the_haystack_and_its_question_behind_it(folder):
    (row,) = load_single(folder, depth=50, **SMALL)
    assert "\nThe owl lives in the mill.\n" in row["prompt"]
    assert row["prompt"].endswith("> Where is the owl? Say: 'The owl lives in ________.'")
    assert row["answer"] == "\nThe owl lives in the mill.\n*mill"


def test_a_prompt_of_two_texts_is_the_writing_of_their_list(folder):
    parts = ["Asked: {question}", "<{context}>\n"]
    (row,) = load_single(folder, depth=0, **{**SMALL, "template": {"prompt": parts}})
    asked, told = literal_eval(row["prompt"])
    assert asked == "Asked: Where is the owl? Say: 'The owl lives in ________.'"
    assert told.startswith("<\nThe owl lives in the mill.\nThe grass is wet")


def test_a_list_that_lacks_the_question_is_refused(folder):
    with pytest.raises(SettingsError, match=r"must hold \{context\} once and \{question\} once"):
        load_single(folder, depth=0, **{**SMALL, "template": {"prompt": ["<{context}>", ""]}})


def test_a_base_models_prompt_ends_where_the_answer_begins(folder):
    words = {**SMALL["template"], "guide": "Think. ", "guide_marker": "Say:"}
    (row,) = load_single(folder, depth=50, **{**SMALL, "template": words}, guide=False)
    assert row["prompt"].endswith("Where is the owl? Think. The owl lives in ")


def test_more_depths_than_needles_are_refused(folder):
    with pytest.raises(SettingsError, match="2 depths need as many different needles"):
        load_parallel(folder, depths=[0, 100], seed=1, **SMALL)


def test_a_file_that_is_missing_or_no_needles_is_named(folder):
    with pytest.raises(HaystackError, match=r"No file of needles at .*elsewhere\.jsonl"):
        load_single(folder, depth=50, **SMALL, needle_file_name="elsewhere.jsonl")
    (folder / "needles.jsonl").write_text("[1]\n")
    with pytest.raises(HaystackError, match="is no file of needles"):
        load_single(folder, depth=50, **SMALL)
