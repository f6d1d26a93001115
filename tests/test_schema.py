"""The files of a run folder keep to their published schemas, and files of earlier versions stay
readable."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from needlemap.errors import NeedlemapError
from needlemap.records.folder import parse_record

ROOT = Path(__file__).parent.parent


def tool() -> Any:
    spec = importlib.util.spec_from_file_location("json_schema", ROOT / "tools" / "json_schema.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def validators() -> tuple[Any, Any]:
    """Of records and of run.json, as published."""
    texts = [
        (ROOT / "docs" / "schema" / f"{name}.json").read_text("utf-8") for name in ("record", "run")
    ]
    record, run = (jsonschema.Draft202012Validator(json.loads(text)) for text in texts)
    return record, run


def test_the_published_schemas_are_what_the_code_says():
    made = tool()
    for name, make in made.SCHEMAS.items():
        published = (ROOT / "docs" / "schema" / name).read_text("utf-8")
        assert published == made.text_of(make()), f"{name}: run python tools/json_schema.py"


def test_a_real_run_keeps_to_the_schemas(needlemap, wire):
    wire.schedule("ok", "500", "reasoning", "refusal", "429-large")
    flags = (
        "--lengths",
        "200,300",
        "--depths",
        "0,50,100",
        "--retries",
        "0",
        "--limit-tokens",
        "600",
    )
    needlemap.run(wire, *flags, code=3)
    needlemap("score", "r", "--scorer", "exact", code=None)
    record, run = validators()
    for line in needlemap.records():
        record.validate(line)
    run.validate(json.loads((needlemap.folder / "r" / "run.json").read_text("utf-8")))


def test_a_newer_record_is_refused_in_words_and_a_torn_one_is_dropped(needlemap, wire):
    needlemap.run(wire, "--lengths", "200", "--depths", "0")
    (file,) = (needlemap.folder / "r").glob("records-*.jsonl")
    line = file.read_text("utf-8")
    for newer in (line.replace('"schema":2', '"schema":3'), '{"schema":3,"other":"shape"}\n'):
        file.write_text(line + newer, encoding="utf-8")
        ended = needlemap("report", "r", code=2)
        assert (
            "A record was written by a newer needlemap (schema 3, this one reads up to 2)"
            in ended.stderr
        )
        assert "newer needlemap. In its source, type: python3 -m pip install ." in ended.stderr
    assert parse_record(line.encode()[: len(line) // 2]) is None
    assert parse_record(b'{"schema": true}') is None
    with pytest.raises(NeedlemapError, match="newer"):
        parse_record(b'{"schema": 99}')
