"""NeedleBench's prompts, byte for byte: checked against vectors made by OpenCompass' own code.

The original's wording is in the vectors, not in this repository: templates are read from there.
"""

from __future__ import annotations

import json
from functools import cache
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from needlemap.errors import HaystackError, SettingsError
from needlemap.interop.opencompass.needlebench import (
    load_parallel,
    load_reasoning,
    load_single,
    load_trace,
)

Row = dict[str, Any]
MARKERS = {"Chinese": "请按照", "English": "Please answer in the format"}
FILES = {  # rows that are compared, and rows whose prompt was a list
    "needlebench_v2_origin": (load_single, 72),
    "needlebench_v2_parallel": (load_parallel, 16),
    "needlebench_v2_reasoning": (load_reasoning, 192),
    "needlebench_v1_origin": (load_single, 145),
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


def template(vectors: Path, row: Row) -> dict[str, Any] | None:
    """The original's words for a row; None where it sent a list."""
    params, (version, part) = row["params"], row["variant"].removeprefix("needlebench_").split("_")
    language = params["language"]
    at = params.get("quesiton_position") or params.get("position") or "End"
    kind = (
        "v1_origin_and_reasoning" if version != "v2" and part != "parallel" else f"{version}_{part}"
    )
    prompt = words(vectors)[f"needlebench_{kind}|{language}|{at}"]
    if isinstance(prompt, list):
        return None
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


def made(vectors: Path, row: Row, load: Any) -> list[dict[str, str]] | None:
    params = dict(row["params"])
    found = template(vectors, row)
    if found is None:
        return None
    for name in ("quesiton_position", "position"):
        params.pop(name, None)
    if "global_seed_before_load" in params:
        params["seed"] = params.pop("global_seed_before_load")
    if "mar2024" in row["variant"]:
        params["seeded"] = False
    return load(vectors / "input", template=found, **params)


@pytest.mark.parametrize("name", FILES)
def test_every_prompt_is_the_originals_byte_for_byte(name, vectors):
    load, expected = FILES[name]
    compared = 0
    table = rows(vectors / f"{name}.jsonl")
    for _, group in groupby(table, key=lambda row: json.dumps([row["variant"], row["params"]])):
        cell = list(group)
        loader = load or (load_parallel if "parallel" in cell[0]["variant"] else load_single)
        found = made(vectors, cell[0], loader)
        if found is None:
            assert all(row.get("prompt_is_list_not_string") for row in cell)
            continue
        for row in cell:
            mine = found[row["index"]]
            assert mine["prompt"] == row.get("prompt", mine["prompt"])
            assert sha256(mine["prompt"].encode()).hexdigest() == row["sha256"], row["params"]
            assert mine["answer"] == row["answer"]
            compared += 1
    assert compared == expected


TRACES = {
    "ELDEST_ANCESTOR": "shuffled_story_with_prompt",
    "NTH_ANCESTOR": "nth_ancestor_prompt",
    "NTH_DESCENDANT": "nth_descendant_prompt",
    "RELATIONSHIP_DISTANCE": "relationship_distance_prompt",
}


def test_every_prompt_of_the_second_ancestral_trace_is_the_originals(vectors):
    compared = 0
    for row in rows(vectors / "atc.jsonl"):
        if row["variant"] != "atc_v2":
            continue
        params = row["params"]
        short, kind = ("zh", "zh_CN") if params["language"] == "Chinese" else ("en", "en")
        words_of = words(vectors)
        found = {
            "prompt": words_of[f"atc_v2_format_string|{TRACES[params['question_type']]}_{kind}"],
            "sentences": words_of[f"atc_v2|templates_{short}"],
            "terms": words_of[f"atc_v2|terms_{short}"],
            "generations": words_of[f"atc_v2|generations_{short}"],
        }
        made = load_trace(vectors / "input", template=found, **params)
        mine = made[row["index"] % params["repeats"]]
        assert mine["prompt"] == row.get("prompt", mine["prompt"])
        assert sha256(mine["prompt"].encode()).hexdigest() == row["sha256"], params
        assert mine["answer"] == row["answer"]
        compared += 1
    assert compared == 80


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
