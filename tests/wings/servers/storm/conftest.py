"""Storms against models in this process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from needlemap.asking.campaign import MakeModel
from needlemap.asking.session import make_model
from needlemap.servers.storm.judge import StormResult
from needlemap.servers.storm.storm import Storm, StormOptions
from needlemap.servers.storm.storming import StormInRounds

sys.path.insert(0, str(Path(__file__).parent))

Storming = Callable[..., tuple[StormInRounds, StormResult]]
FLAGS = {
    "model": "openai/reader",
    "base_url": "http://127.0.0.1:1/v1",
    "tokenizer": "cl100k_base",
    "max_answer_tokens": 60,
}


def stormed(
    folder: Path,
    model: Any,
    *,
    rounds: int | None = None,
    seed: int = 1,
    wanted: float = 0.005,
    make_reference: MakeModel = make_model,
    **options: Any,
) -> tuple[StormInRounds, StormResult]:
    """A storm of a seed against a model of this process."""
    own = {"max_length": 2_000, "load": 4, "kv_tokens": 6_000, **options}
    flags = {**FLAGS, **own.pop("flags", {})}
    storm = Storm.of(StormOptions(flags, wanted=wanted, **own), folder, seed)
    asking = StormInRounds(
        storm, make=lambda _: model, rounds=rounds, make_reference=make_reference
    )
    return asking, asyncio.run(asking.run())


@pytest.fixture
def storming(tmp_path: Path) -> Storming:
    """`storming(model, rounds=..., folder=...)`."""

    def run(model: Any, *, folder: str = "storm", **more: Any) -> Any:
        return stormed(tmp_path / folder, model, **more)

    return run
