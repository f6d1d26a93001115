"""What others send is cleaned once, where it enters, by one module: `needlemap.untrusted`."""

from __future__ import annotations

import json
import re
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

import needlemap
from needlemap import untrusted
from needlemap.interop.result_row import Fields
from needlemap.models import Answer, Logprobs
from needlemap.records.folder import parse_record
from needlemap.records.record import Record
from needlemap.untrusted import DEEPEST, MOST_WHOLE, OutOfBounds, clean_json, read_json

SOURCE = Path(needlemap.__file__).parent
DOOR = SOURCE / "untrusted.py"
PLACE: dict[str, Any] = {
    "key": "k",
    "task": "t",
    "model": "m",
    "length_tokens": 1,
    "depth": 0,
    "repeat": 0,
    "seed": 0,
}
# Read what needlemap itself wrote a moment ago, or a file of the package.
TRUSTED = {
    "asking/resume.py",
    "haystacks/readers.py",
    "interop/hosted.py",
    "rendering.py",
    "servers/gauge/checkpoint.py",
    "servers/gauge/gguf.py",
    "servers/gauge/shapes.py",
    "servers/storm/repro.py",
}
NOT_COUNTS = [-1, 2**53 + 1, 10**400, 0.5, nan, inf, True, "7", [7], {}, None]
NOT_AMOUNTS = [-0.5, 2.0**60, 10**400, nan, inf, True, "7", [7], {}, None]


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("rule", "pattern"),
    [
        ("the largest whole number", r"2 ?\*\* ?53|1 ?<< ?53|9_?007_?199"),
        ("half characters", r"encode\(\"utf-8\", \"replace\"\)\.decode"),
        ("the parts of a JSON text", r"\.count\(b?\"\{\"\)"),
        ("JSON that is nested too deeply", r"nested too deeply"),
        (
            "a whole number that is not a bool",
            r"isinstance\(\w+, bool\) or not isinstance\(\w+, int \| float",
        ),
        ("a float that is a whole number", r"\.is_integer\(\)"),
    ],
)
def test_each_rule_stands_in_one_module(rule: str, pattern: str) -> None:
    found = {file for file in SOURCE.rglob("*.py") if re.search(pattern, file.read_text())}
    # YAML, read in files.py, has a limit of its own for what is nested too deeply.
    assert found - {SOURCE / "files.py"} == {DOOR}, rule


def test_json_of_others_is_read_by_one_function() -> None:
    readers = {
        file.relative_to(SOURCE).as_posix()
        for file in SOURCE.rglob("*.py")
        if re.search(r"\bjson\.loads?\(|from json import .*loads", file.read_text())
    }
    # The gate is copied into other projects, so it imports nothing of ours; it bounds by itself.
    assert readers - TRUSTED == {"untrusted.py", "servers/gate/gate_file.py"}


@pytest.mark.parametrize("value", NOT_COUNTS)
def test_what_counts_nothing_is_missing_whoever_sent_it(value: Any) -> None:
    assert Answer("", prompt_tokens=value).prompt_tokens is None
    assert Record(**PLACE, prompt_tokens=value).prompt_tokens is None
    if value == value and value not in (inf, 10**400):
        line = json.dumps({**PLACE, "schema": 1, "prompt_tokens": value}).encode()
        record = parse_record(line)
        assert record is not None
        assert record.prompt_tokens is None


@pytest.mark.parametrize("value", NOT_AMOUNTS)
def test_what_is_no_amount_is_missing_whoever_sent_it(value: Any) -> None:
    assert Answer("", latency_s=value, first_token_s=value).latency_s == 0.0
    assert Answer("", first_token_s=value).first_token_s is None
    record = Record(**PLACE, latency_s=value, usd=value)
    assert (record.latency_s, record.usd) == (None, None)


def test_a_count_that_a_server_writes_as_a_float_counts() -> None:
    assert Answer("", prompt_tokens=7.0).prompt_tokens == 7  # type: ignore[arg-type]
    assert Record(**PLACE, prompt_tokens=7.0).prompt_tokens == 7


def test_half_characters_become_question_marks_whoever_sent_them() -> None:
    usage = {"a\ud800": {"b": "\udfff"}}
    answer = Answer("x\ud800", finish="\ud800", model="\ud800", thinking="\ud800", usage=usage)
    assert (answer.text, answer.finish, answer.model, answer.thinking) == ("x?", "?", "?", "?")
    assert answer.usage == {"a?": {"b": "?"}} == Record(**PLACE, usage=usage).usage
    assert Fields({"a": "x\ud800"}, "f").text("a") == "x?"
    json.dumps(answer.usage, ensure_ascii=False).encode()


def test_usage_of_a_file_has_the_bounds_of_a_servers() -> None:
    deepest = {"a": deep(DEEPEST + 5), "b": [10**400, nan, MOST_WHOLE, "x" * 500]}
    answer, record = Answer("", usage=deepest), Record(**PLACE, usage=deepest)
    assert answer.usage == record.usage
    assert record.usage["b"] == [None, None, MOST_WHOLE, "x" * 500]
    long = {"a": "x" * 20_001}
    assert Answer("", usage=long).usage == Record(**PLACE, usage=long).usage == {}


@pytest.mark.parametrize("levels", [DEEPEST - 1, DEEPEST, DEEPEST + 1, 400])
def test_nesting_ends_at_one_depth(levels: int) -> None:
    kept = clean_json(deep(levels))
    assert json.dumps(kept).count("[") == min(levels, DEEPEST)


@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, "[" + "1," * 2_000_000 + "1]"])
@pytest.mark.parametrize("kind", [str, str.encode])
def test_json_beyond_the_bounds_is_not_read(text: str, kind: Any) -> None:
    with pytest.raises(OutOfBounds):
        read_json(kind(text))


def test_an_answer_is_cleaned_once_on_its_way_to_its_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = list[object]()
    original = untrusted._clean_items

    def counting(value: Any, levels: int) -> dict[str, Any]:
        looks.append(value)
        return original(value, levels)

    monkeypatch.setattr(untrusted, "_clean_items", counting)
    usage = {"prompt_tokens": 3}
    answer = Answer("a", usage=usage, logprobs=Logprobs(("a",), (-0.1,), (None,), (None,), "walk"))
    record = Record(**PLACE, usage=answer.usage, logprobs=answer.logprobs)
    again = Answer("a", usage=record.usage, logprobs=record.logprobs)
    assert looks == [usage]
    assert again.logprobs is record.logprobs is answer.logprobs


@pytest.mark.parametrize(
    "broken",
    [
        {"tokens": 3},
        {"tokens": ()},
        {"tokens": ("a", "b")},
        {"nats": (nan,)},
        {"nats": (3.0,)},
        {"nats": ("-1",)},
        {"way": "guessed"},
        {"way": []},
    ],
)
def test_log_probabilities_are_cleaned_when_they_are_made(broken: Any) -> None:
    fields = {"tokens": ("a",), "nats": (-0.1,), "others": (None,), "other_nats": (None,)}
    with pytest.raises(ValueError, match=r"."):
        Logprobs(**{**fields, "way": "walk", **broken})
    assert Record(**PLACE, logprobs={**fields, "way": "walk", **broken}).logprobs is None
