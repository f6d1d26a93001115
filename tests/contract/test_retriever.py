"""A small real model, trained to find one kind of needle within 256 tokens: the whole way through a
run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from needlemap.asking.session import Session, make_model
from needlemap.reports.live import LiveView
from needlemap.settings.reading import configure
from needlemap.trials.build import prepare

torch = pytest.importorskip("torch", reason="needs torch: python3 -m pip install '.[hf]'")
pytest.importorskip("transformers", reason="needs transformers: python3 -m pip install '.[hf]'")

TEMPLATE = 'messages:\n  - {role: user, text: "{haystack}\\n\\n{question}"}\n'


@pytest.fixture
def given(shared: Path, tmp_path: Path) -> dict[str, Any]:
    folder = shared / "data" / "tiny_retriever"
    if not folder.is_dir():
        pytest.skip(f"no trained model at {folder}")
    torch.set_num_threads(1)
    (tmp_path / "bare.yaml").write_text(TEMPLATE)
    return {
        "model": f"hf/{folder}",
        "template": str(tmp_path / "bare.yaml"),
        "needle": "The magic number for {city} is {number}.",
        "question": "What is the magic number for {city}?",
        "keywords": ["{number}"],
        "draw": {"city": ["Berlin", "Oslo", "Paris", "Madrid"], "number": "1000:9999"},
        "max_answer_tokens": 16,
        "depths": "0:100:5",
        "haystack": "folder",
        "haystack_path": str(shared / "data" / "PaulGrahamEssays"),
    }


def scores(given: dict[str, Any], path: Path) -> list[float | None]:
    settings = configure(None, given)
    session = Session.open(prepare(settings), path)
    asyncio.run(session.run(make_model(settings), LiveView()))
    return [record.score for record in session.folder.records()]


def test_it_finds_the_needle_within_the_length_it_was_trained_on(
    given: dict[str, Any], tmp_path: Path
) -> None:
    found = scores({**given, "lengths": "160,272", "repeats": 4}, tmp_path / "run")
    assert len(found) >= 35  # of forty cells, some of which come to the same prompt
    assert None not in found
    assert sum(filter(None, found)) >= 0.95 * len(found)


def test_it_loses_it_at_the_far_end_of_four_times_that_length(
    given: dict[str, Any], tmp_path: Path
) -> None:
    found = scores({**given, "lengths": "1100", "depths": "0", "repeats": 8}, tmp_path / "run")
    assert sum(filter(None, found)) <= 2
