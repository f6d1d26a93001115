"""Whatever stands in a file that a user gives us, no exception but our own gets out: its text is
for people.

NEEDLEMAP_FUZZ: how many files each test draws (20; in CI 200; with --long 600), by a fixed
seed: the same each time. NEEDLEMAP_FUZZ_SEED=random draws others. `benchmarks/fuzz.py` lets a
coverage-guided fuzzer look on.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from needlemap.allowance import read_allowance, retry_after_s
from needlemap.errors import NeedlemapError
from needlemap.grid import Depths, Lengths, make_grid
from needlemap.http import HttpReply, JsonClient
from needlemap.http.faults import from_status
from needlemap.interop.imported import ImportOptions, imported
from needlemap.interop.sources import read
from needlemap.models import anthropic, openai
from needlemap.models.servers import understood
from needlemap.prompts.templates import fill, load_template
from needlemap.records.loaded import load_run
from needlemap.records.origin import check_origin
from needlemap.records.record import NeedleRecord, PromptRecord, Record, ScorerRecord
from needlemap.reports.page.summary import make_page
from needlemap.reports.renderers.heat import plain_summary, terminal_map
from needlemap.reports.run_notes import cache_lines, ended_lines
from needlemap.reports.summary import summary_lines
from needlemap.reports.table import csv_text, trials_table
from needlemap.secrets import Secrets
from needlemap.settings import Settings
from needlemap.settings.older_names import BY_NAME
from needlemap.settings.reading import configure

MADE = datetime(2026, 1, 1, tzinfo=UTC)
READERS = settings(
    max_examples=int(os.environ.get("NEEDLEMAP_FUZZ", "20")),
    derandomize=os.environ.get("NEEDLEMAP_FUZZ_SEED") != "random",
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
TEXTS = st.text(max_size=20) | st.sampled_from(
    ["1k", "0:100:3", "{city}", "{}", "{", "\x1b[2J", "\ud800", "1e999"]
)
NUMBERS = st.integers() | st.floats() | st.sampled_from([0, -1, 10**400, 1e308])
PLAIN = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    PLAIN, lambda each: st.lists(each, max_size=3) | st.dictionaries(TEXTS, each, max_size=3)
)
RECORD = Record(
    schema=2,
    key="k",
    asked="a",
    task="single",
    model="openai/m",
    length_tokens=1000,
    depth=0.5,
    repeat=0,
    seed=0,
    needles=(NeedleRecord(meant=0.5, realised=0.5, byte=7, text="x", before="y", after="z"),),
    prompt=PromptRecord(sha256="0" * 64, tokens=900, haystack_tokens=800, positions=(400,)),
    answer="42",
    finish="stop",
    score=1.0,
    scorer=ScorerRecord(name="substring"),
    usage={"prompt_tokens": 900},
)
ABOUT = {
    "schema": 2,
    "settings": {"model": "openai/m", "task": "single", "mode": "exact", "order": "shuffled"},
    "tokenizer": {"name": "cl100k_base", "fingerprint": "f"},
    "scorer": {"name": "substring", "options": {}},
    "haystacks": [{"name": "generated", "sha256": "0"}],
    "cells": [[1000, 0.5, [0]]],
    "earlier_scorers": [],
}
NIAH_1 = {
    "model": "m",
    "context_length": 1000,
    "depth_percent": 50.0,
    "version": 1,
    "needle": "n",
    "model_response": "a",
    "score": 10,
    "test_duration_seconds": 1.5,
    "test_timestamp_utc": "2024-01-01",
}
NIAH_2 = {
    "schema_version": 2,
    "run_name": "r",
    "task_type": "single",
    "model_id": "m",
    "context_length": 1000,
    "target_depth_percent": 50.0,
    "seed": 1,
    "score": {"value": 1.0},
    "usage": {"input_tokens": 10, "output_tokens": 3},
    "recipe": {"needle_placements": [{"text": "n", "actual_depth_percent": 49.0}]},
}
SUMMARY = "dataset,version,metric,mode,m\nLength1000Depth50_en,abc,score,gen,87.5\n"


@st.composite
def altered(draw: st.DrawFn, value: Any, times: int = 2) -> Any:
    """A copy of some JSON data in which a few parts are replaced, or missing."""
    whole = json.loads(json.dumps(value))
    for _ in range(draw(st.integers(0, times))):
        part = whole
        while isinstance(part, dict | list) and part:
            names: list[Any] = (
                sorted(part, key=str) if isinstance(part, dict) else list(range(len(part)))
            )
            name = draw(st.sampled_from(names))
            inner = part[name]
            if not isinstance(inner, dict | list) or not inner or draw(st.booleans()):
                if draw(st.booleans()):
                    part[name] = draw(VALUES)
                else:
                    del part[name]
                break
            part = inner
    return whole


def written(value: Any) -> bytes:
    """As JSON, numbers beyond JSON and half characters included."""
    return json.dumps(value).encode()


def torn(data: bytes) -> st.SearchStrategy[bytes]:
    """The data up to any byte, and with any one replaced."""
    cut = st.integers(0, len(data)).map(lambda end: data[:end])
    spot = st.tuples(st.integers(0, max(0, len(data) - 1)), st.binary(max_size=3))
    return (
        cut
        | spot.map(lambda at: data[: at[0]] + at[1] + data[at[0] + 1 :])
        | st.binary(max_size=60)
    )


def only_ours(call: Callable[[], object]) -> None:
    """Call it. An error of ours is one line that says something."""
    try:
        call()
    except NeedlemapError as error:
        said = str(error)
    else:
        said = "nothing"
    assert said.strip()


@READERS
@given(
    st.dictionaries(
        st.sampled_from(sorted({*Settings.model_fields, *BY_NAME})) | TEXTS, VALUES, max_size=4
    )
)
def test_settings_of_any_names_and_values(given_settings):
    def settle() -> None:
        settled = configure(None, given_settings)
        make_grid(settled.lengths, settled.depths)

    only_ours(settle)


@READERS
@given(
    st.binary(max_size=80)
    | VALUES.map(lambda value: yaml.dump(value).encode("utf-8", "replace"))
    | TEXTS.map(lambda text: text.encode("utf-8", "replace"))
)
def test_settings_and_template_files_of_any_bytes(tmp_path, data):
    file = tmp_path / "any.yaml"
    file.write_bytes(data)
    only_ours(lambda: configure(str(file), {}))
    only_ours(lambda: load_template(str(file)))


@pytest.mark.parametrize("text", ["[" * 1000, "a: &a [*a]\nb: *a", "a: !!float 1:", "? {}\n: 1"])
def test_settings_files_that_were_made_to_hurt(tmp_path, text):
    file = tmp_path / "any.yaml"
    file.write_text(text)
    only_ours(lambda: configure(str(file), {}))
    only_ours(lambda: load_template(str(file)))


SPECS = (
    st.builds(
        "{}:{}:{}{}".format,
        NUMBERS | TEXTS,
        NUMBERS | TEXTS,
        NUMBERS | TEXTS,
        st.sampled_from(["", ":log", ":sigmoid", ":x"]),
    )
    | st.fixed_dictionaries(
        {}, optional={"min": PLAIN, "max": PLAIN, "count": PLAIN, "scale": PLAIN}
    )
    | VALUES
)


@READERS
@given(SPECS, SPECS)
def test_grids_of_any_spec(lengths, depths):
    only_ours(lambda: make_grid(Lengths.parse(lengths), Depths.parse(depths)))


@READERS
@given(
    altered(
        {
            "messages": [
                {"role": "system", "text": "s"},
                {"role": "user", "text": "{haystack} {question}"},
            ],
            "guide": "g",
        }
    ),
    TEXTS,
)
def test_templates_of_any_shape(tmp_path, template, text):
    file = tmp_path / "t.yaml"
    file.write_bytes(written(template))  # JSON is YAML
    only_ours(lambda: load_template(str(file)))
    only_ours(lambda: fill(text, {"city": "Oslo"}, "Setting 'needle'"))


@READERS
@given(altered(json.loads(RECORD.line())).map(written).flatmap(torn), altered(ABOUT).map(written))
def test_run_folders_of_any_contents(tmp_path, record, about):
    (tmp_path / "run.json").write_bytes(about)
    (tmp_path / "records-1.jsonl").write_bytes(record + b"\n" + RECORD.line())

    def look() -> None:
        run = load_run(tmp_path)
        summary_lines(run.cube)
        Console(width=80, file=io.StringIO()).print(terminal_map(run.map))
        plain_summary(run.map)
        ended_lines(run)
        cache_lines(run.records)
        csv_text(trials_table([run]))
        make_page([run], made=MADE)

    only_ours(look)


@READERS
@given(altered(ABOUT).map(written).flatmap(torn))
def test_run_files_of_any_bytes(tmp_path, about):
    (tmp_path / "run.json").write_bytes(about)
    only_ours(lambda: load_run(tmp_path).map)


INSPECT = {
    "version": 2,
    "status": "success",
    "eval": {"model": "m", "task": "t"},
    "samples": [
        {"id": "a", "epoch": 1, "input": [{"role": "user", "content": "?"}], "target": ["x"]},
        {
            "id": 2,
            "output": {"completion": "x"},
            "scores": {"s": {"value": "C"}},
            "error": {"message": "no"},
        },
    ],
}
HARNESS = {
    "doc_id": 1,
    "doc": {"needlemap": {"length_tokens": 9}},
    "filter": "f",
    "metrics": ["acc"],
    "acc": 1.0,
}
IMPORTS = {
    ".eval": altered(INSPECT).map(written).flatmap(torn) | altered(INSPECT).map(written),
    ".JSONL": altered(HARNESS).map(written).flatmap(torn) | altered(HARNESS).map(written),
    ".json": altered([NIAH_1, NIAH_1]).map(written).flatmap(torn)
    | altered([NIAH_1, NIAH_1]).map(written),
    ".jsonl": altered(NIAH_2).map(written).flatmap(torn) | altered(NIAH_2).map(written),
    ".csv": torn(SUMMARY.encode()) | torn(b"context_length,depth_percent,score\n1000,50,7\n"),
    ".txt": torn(f"csv format\n^^^^\n{SUMMARY}$$$$\n".encode()),
}


@pytest.mark.parametrize("suffix", IMPORTS)
@READERS
@given(st.data())
def test_other_tools_files_of_any_bytes(tmp_path, suffix, data):
    file = tmp_path / f"results{suffix}"
    file.write_bytes(data.draw(IMPORTS[suffix]))
    only_ours(lambda: imported(read([file]).sources, ImportOptions()))


ANSWER = {
    "id": "x",
    "model": "m",
    "choices": [
        {
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "42", "reasoning_content": "so"},
            "logprobs": {
                "content": [
                    {
                        "token": "4",
                        "logprob": -0.1,
                        "bytes": [52],
                        "top_logprobs": [{"token": "5", "logprob": -2.0}],
                    }
                ]
            },
        }
    ],
    "content": [{"type": "text", "text": "42"}, {"type": "thinking", "thinking": "so"}],
    "stop_reason": "end_turn",
    "usage": {"prompt_tokens": 900, "prompt_tokens_details": {"cached_tokens": 9}},
}
ERROR = {"error": {"message": "no", "code": 400, "type": "x"}, "detail": ["no"]}
DOOR = JsonClient("http://127.0.0.1:9/v1", {"authorization": "Bearer sk-planted-0123456789"})


@READERS
@given(
    st.sampled_from([openai.read, anthropic.read]),
    st.integers(100, 599) | st.just(200),
    altered(ANSWER, times=3).map(json.dumps)
    | altered(ERROR).map(json.dumps)
    | altered(ANSWER).map(written).flatmap(torn).map(lambda data: data.decode("utf-8", "replace")),
)
def test_replies_of_any_status_and_contents(read_reply, status, text):
    only_ours(
        lambda: understood(
            read_reply, DOOR.object_in(HttpReply(status, {}, text), "The server"), 0.1
        )
    )


LIMITS = [
    f"{vendor}{what}"
    for vendor in ("x-ratelimit-", "anthropic-ratelimit-")
    for what in ("limit-tokens", "remaining-tokens", "reset-tokens", "tokens-reset", "tokens-limit")
]
TIMES = st.sampled_from(
    ["1", "1h2m", "9" * 400, "-1", "nan", "inf", "Thu, 01 Jan 1970 00:01:40 GMT"]
)


@READERS
@given(
    st.dictionaries(
        st.sampled_from([*LIMITS, "retry-after", "retry-after-ms", "location"]) | TEXTS,
        TIMES | TEXTS | NUMBERS.map(str),
        max_size=6,
    ),
    st.integers(100, 599),
)
def test_headers_of_any_names_and_values(headers, status):
    def look() -> None:
        allowed = read_allowance(headers, 0.0)
        for quota in (allowed.requests, allowed.tokens) if allowed else ():
            assert quota is None or quota.limit > 0
        assert (retry_after_s(headers, 0.0) or 1) > 0
        raise from_status(status, "no", headers)

    only_ours(look)


@READERS
@given(st.text(max_size=60), VALUES)
def test_secrets_are_hidden_in_any_text_and_value(text, value):
    key = "sk-planted/0123456789+ABCdef"
    secrets = Secrets([key])
    assert key not in secrets.hide(text + key + text)
    kept = json.loads(json.dumps(value, default=str))
    assert key not in json.dumps(secrets.hide_in([kept, f"{text}{key}"]), ensure_ascii=False)


@READERS
@given(
    st.dictionaries(
        st.sampled_from(
            ["run.json", "suite.json", "ab.json", "records-1.jsonl", "closed-book.jsonl"]
        ),
        st.binary(max_size=60)
        | altered(ABOUT).map(written)
        | altered(json.loads(RECORD.line())).map(written),
        min_size=1,
    )
)
def test_folders_of_any_files(tmp_path_factory, files):
    folder = tmp_path_factory.mktemp("any")
    for name, data in files.items():
        (folder / name).write_bytes(data)
    only_ours(lambda: load_run(folder).map)
    only_ours(lambda: check_origin(folder))
