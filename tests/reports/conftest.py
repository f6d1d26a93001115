"""Maps made by hand, for all report tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from needlemap.records import RunFile
from needlemap.records.loaded import Loaded
from needlemap.records.record import PromptRecord, Record
from needlemap.stats import prompts_of
from needlemap.stats.cell_score import CellScore
from needlemap.stats.intervals import wilson
from needlemap.stats.means import Map
from needlemap.stats.means import make_map as map_of_records

MakeCell = Callable[..., CellScore]
MakeMap = Callable[..., Map]
MakeGrid = Callable[[int, int], Map]


def cell(
    length_tokens: int,
    depth: float,
    score: float | None,
    *,
    n: int = 4,
    missing: int = 0,
    failures: dict[str, int] | None = None,
) -> CellScore:
    """A cell whose numbers agree with each other."""
    scored = 0 if score is None else n
    low, high = wilson((score or 0.0) * scored, scored) or (None, None)
    return CellScore(length_tokens, depth, depth, score, scored, low, high, missing, failures or {})


def a_map(
    cells: Sequence[CellScore], model: str = "a-model", task: str = "single", mode: str = "exact"
) -> Map:
    """A map of records that come to these cells."""
    records = [record for each in cells for record in records_of(each)]
    rows = [
        [each.length_tokens, each.depth, list(range(each.n + each.missing or 1))] for each in cells
    ]
    names = {
        "model": model,
        "task": task,
        "tokenizer": "cl100k_base",
        "scorer": "levenshtein",
        "mode": mode,
    }
    return map_of_records(prompts_of(records, rows), **names)


def records_of(cell: CellScore) -> list[Record]:
    """Every scored trial has the cell's score; failures come behind them."""
    outcomes: list[tuple[float | None, str | None]] = [(cell.score, None)] * cell.n
    outcomes += [(None, kind) for kind, count in cell.failures.items() for _ in range(count)]
    return [
        record(cell.length_tokens, cell.depth, repeat, score, failure)
        for repeat, (score, failure) in enumerate(outcomes)
    ]


def record(
    length_tokens: int, depth: float, repeat: int, score: float | None, failure: str | None
) -> Record:
    """One trial."""
    name = f"{length_tokens} {depth} {repeat}"
    prompt = PromptRecord(sha256=name, tokens=length_tokens, haystack_tokens=length_tokens)
    asked = {
        "length_tokens": length_tokens,
        "depth": depth,
        "repeat": repeat,
        "seed": 0,
        "prompt": prompt,
    }
    return Record(key=name, task="single", model="a-model", score=score, failure=failure, **asked)


def grid_map(columns: int, rows: int) -> Map:
    """A full grid: lengths of 1k, 2k, ...; scores fall with length."""
    return a_map(
        [
            cell(1000 * (column + 1), row / max(1, rows - 1), 1 - 0.5 * column / columns)
            for column in range(columns)
            for row in range(rows)
        ]
    )


@pytest.fixture
def make_cell() -> MakeCell:
    """make_cell(length_tokens, depth, score, n=, missing=, failures=)."""
    return cell


@pytest.fixture
def make_map() -> MakeMap:
    """make_map(cells, model=, task=, mode=)."""
    return a_map


@pytest.fixture
def make_grid() -> MakeGrid:
    """make_grid(columns, rows)."""
    return grid_map


@pytest.fixture
def mixed() -> Map:
    """3 lengths x 3 depths: scored, zero, failed, not asked and partly missing cells."""
    return a_map(
        [
            cell(1000, 0.0, 1.0),
            cell(1000, 0.5, 0.75),
            cell(1000, 1.0, 1.0),
            cell(4000, 0.0, 1.0),
            cell(4000, 0.5, 0.0),
            cell(4000, 1.0, None, missing=4, failures={"timed out": 3}),
            cell(128_000, 0.0, 0.5, n=2, missing=2, failures={"rate limited": 2}),
            cell(128_000, 0.5, None, missing=4),
            cell(128_000, 1.0, 0.25),
        ]
    )


@pytest.fixture
def loaded() -> Loaded:
    """A run of 2 lengths x 2 depths x 6 repeats: right at 1k, 10 of 12 right at 4k, one trial timed
    out."""
    outcomes = [
        (length, depth, repeat, 1.0 if length == 1000 or repeat else 0.0)
        for length in (1000, 4000)
        for depth in (0.0, 1.0)
        for repeat in range(6)
    ]
    records = [
        record(length, depth, repeat, score, None) for length, depth, repeat, score in outcomes
    ]
    used = {
        "answer": "an answer",
        "usd": 0.25,
        "prompt_tokens": 100,
        "cached_tokens": 40,
        "latency_s": 2.0,
    }
    records = [each.model_copy(update=used) for each in records]
    records[5] = record(1000, 0.0, 5, None, "timed out")
    about = {
        "needlemap": "0.1.0",
        "python": "3.11.7",
        "packages": {"numpy": "2.0"},
        "settings": {
            "model": "a-model", "task": "single", "mode": "exact", "repeats": 6, "guide": True,
            "temperature": None, "request": {"api_key": "a-secret"},
            "base_url": "http://me:secret@127.0.0.1/v1",
        },
        "tokenizer": {"name": "cl100k_base", "fingerprint": "abc"},
        "scorer": {"name": "exact", "options": {}},
        "haystacks": [{"name": "prose", "sha256": "0123456789abcdef"}],
        "cells": [[length, depth, list(range(6))] for length in (1000, 4000) for depth in (0.0, 1.0)],  # noqa: E501
    }  # fmt: skip
    return Loaded("runs/r", RunFile.model_validate(about), tuple(records))
