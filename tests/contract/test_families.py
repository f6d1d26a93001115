"""Task families asked of a real transformer from one cache: the same answers as from none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from needlemap.models.walk import Walk
from needlemap.plan import ordered, shared
from needlemap.settings.reading import configure
from needlemap.trials.build import prepare

torch = pytest.importorskip("torch", reason="needs torch: python3 -m pip install '.[hf]'")

from needlemap.models.hf_engine import HuggingFaceEngine  # noqa: E402
from needlemap.models.model_files import Loading, load_model  # noqa: E402

FAMILIES: dict[str, dict[str, Any]] = {
    "noise": {"task": "magic", "task_options": {"haystack": "repeat"}},
    "prose": {"task": "multiquery"},
    "needles": {"task": "multikey", "task_options": {"haystack": "needles", "fresh": "repeat"}},
    "json": {"task": "kv", "task_options": {"uuid_digits": 8, "shots": 1}},
    "passkey": {"task": "passkey"},
    "trace": {"task": "trace", "task_options": {"order": "random"}},
    "thread": {"task": "thread", "task_options": {"uuid_digits": 8, "order": "backward"}},
    "facts": {
        "task": "facts",
        "task_options": {"support": 3, "facts": 4, "people": 3, "places": 3},
    },
    "kinship": {"task": "kinship", "task_options": {"haystack": "families"}},
    "dense": {
        "task": "kinship",
        "task_options": {"haystack": "none", "facts": 12, "families": 0, "ask": "ancestor"},
    },
    "latent": {"task": "latent", "task_options": {"distractors": 1, "absent": 0.5}},
}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("mode", ["exact", "bins"])
@pytest.mark.parametrize("chat", [True, False])
def test_one_cache_answers_as_an_empty_one(
    name: str, mode: str, chat: bool, folders: Callable[..., Path]
):
    folder = folders("llama", chat=chat)
    grid = {
        "lengths": "500:900:3",
        "depths": "0:100:4",
        "max_answer_tokens": 6,
        "answer_prefix": "{task}",
    }
    given = {"model": f"hf/{folder}", "mode": mode, **grid, **FAMILIES[name]}
    walk = ordered(prepare(configure(None, given)).trials, mode)
    assert all(
        len(trial.prompt.ids) == trial.prompt.tokens <= trial.cell.length_tokens - 6
        for trial in walk
    )
    assert sum(shared(walk, mode)) > 0
    engine = HuggingFaceEngine(
        load_model(str(folder), Loading(device="cpu", dtype="float32")), 2048
    )
    one, answers = Walk(engine, [4]), []
    for trial in walk:
        answers.append(one.ask(trial.prompt.ids, 6).answer)
    for trial, answer in zip(walk, answers, strict=True):
        engine.crop(0)
        assert Walk(engine, [4]).ask(trial.prompt.ids, 6).answer == answer
