"""Runs made by hand, for all page tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from needlemap.records import RunFile
from needlemap.records.loaded import Loaded
from needlemap.records.record import NeedleRecord, PromptRecord, Record, ScorerRecord
from needlemap.version import SCHEMA

MakeRecord = Callable[..., Record]
MakeRun = Callable[..., Loaded]


def record(
    length: int = 1000, depth: float = 0.5, repeat: int = 0, score: float | None = 1.0, **more: Any
) -> Record:
    """One record; `more` are its other fields."""
    name = f"{length}-{depth}-{repeat}"
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "key": name,
        "task": "single",
        "model": "openai/m",
        "seed": 0,
        "length_tokens": length,
        "depth": depth,
        "repeat": repeat,
        "score": score,
        "question": "Which code?",
        "reference": "51328",
        "keywords": ("51328",),
        "answer": "51328",
        "finish": "stop",
        "latency_s": 0.5,
        "attempts": 1,
        "finished_at": "2026-11-20T12:00:00.123+00:00",
        "needles": (needle(depth),),
        "prompt": PromptRecord(
            sha256=f"{name:0<64}", tokens=length - 300, haystack_tokens=length - 350
        ),
        "scorer": ScorerRecord(
            name="substring", native=score, why={"found": ["51328"], "missing": []}
        ),
    }
    return Record(**fields | more)


def needle(
    depth: float, before: str = "All went well. ", after: str = " Then it rained."
) -> NeedleRecord:
    """A needle in its surroundings."""
    return NeedleRecord(
        meant=depth, realised=depth, byte=0, text="The code is 51328.", before=before, after=after
    )


def run(records: Sequence[Record], path: str = "runs/a", **about: Any) -> Loaded:
    """A run of these records; `about` are further settings, or other parts of run.json."""
    parts = {
        name: about.pop(name)
        for name in ("title", "imported", "cells", "shared", "haystacks")
        if name in about
    }
    cells: dict[tuple[int, float], set[int]] = {}
    for each in records:
        cells.setdefault((each.length_tokens, each.depth), set()).add(each.repeat)
    described = {
        "schema": SCHEMA,
        "needlemap": "0.1.0",
        "settings": {"model": "openai/m", "task": "single", "mode": "exact", **about},
        "tokenizer": {"name": "cl100k_base", "fingerprint": "quicktok:cl100k_base:abc"},
        "scorer": {"name": "substring", "options": {}},
        "haystacks": [{"name": "generated", "sha256": "ab" * 32}],
        "cells": [
            [length, depth, sorted(repeats)] for (length, depth), repeats in sorted(cells.items())
        ],
    }
    return Loaded(path, RunFile.model_validate(described | parts), tuple(records))


@pytest.fixture
def make_record() -> MakeRecord:
    """make_record(length, depth, repeat, score, **fields)."""
    return record


@pytest.fixture
def make_run() -> MakeRun:
    """make_run(records, path, **settings)."""
    return run


@pytest.fixture
def falling() -> Loaded:
    """3 lengths x 3 depths x 6 repeats: right up to 4k, half right at 16k, one time-out, one not
    asked."""
    records = [
        record(
            length, depth, repeat, float(length < 16_000 or (repeat + round(2 * depth)) % 2 == 0)
        )
        for length in (1000, 4000, 16_000)
        for depth in (0.0, 0.5, 1.0)
        for repeat in range(6)
    ]
    lost = records[-1].model_copy(
        update={
            "score": None,
            "failure": "timed out",
            "error": "No answer within 600 s.",
            "answer": None,
        }
    )
    cells = [
        [length, depth, list(range(6))]
        for length in (1000, 4000, 16_000)
        for depth in (0.0, 0.5, 1.0)
    ]
    return run([*records[1:-1], lost], cells=cells)
