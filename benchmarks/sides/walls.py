"""The wall side of prefill.py: a small random Llama in float32 on the CPU, asked in two ways by turns.

Each prompt of a walk is asked of transformers' own `generate`, from nothing, and then as `hf/FOLDER` asks it,
with one KV cache for all. So both meet the same load of the machine, and every answer is compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import numpy as np

from needlemap.models.base import Decoding
from needlemap.models.hf import HuggingFaceModel
from needlemap.models.walk import Ids
from needlemap.plan.order import ordered
from needlemap.settings.reading import configure
from needlemap.trials.build import Trial, prepare
from tinymodel import write_model

ANSWER_TOKENS = 4
POSITIONS = 4096
FULL: dict[str, Any] = {"layers": 3, "hidden": 256, "lengths": "400:4k:10", "depths": "0:100:10"}
SMOKE: dict[str, Any] = {"layers": 2, "hidden": 64, "lengths": "400:700:3", "depths": "0:100:3"}


@dataclass(slots=True)
class Cost:
    """What asking took. computed: prompt tokens."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    computed: int = 0


@dataclass(frozen=True, slots=True)
class Wall:
    """A mode's walk beside one by one. equal: how many of the answers are the same."""

    mode: str
    prompts: int
    alone: Cost
    walked: Cost
    equal: int


def measure(smoke: bool) -> tuple[str, list[Wall]]:
    """What was asked, in words, and modes `exact` and `bins`."""
    size = SMOKE if smoke else FULL
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        parameters = write_model(folder, layers=size["layers"], hidden=size["hidden"], positions=POSITIONS)
        walls = asyncio.run(_walls(folder, size))
    about = (
        f"Llama of {size['layers']} layers and {parameters / 1e6:.1f} M parameters, float32, CPU, one "
        f"thread; {size['lengths']} tokens x {size['depths']} percent, answers of {ANSWER_TOKENS} tokens"
    )
    return about, walls


def trials_of(folder: Path, mode: str, size: dict[str, Any]) -> list[Trial]:
    """A run's trials in the order of its plan."""
    grid = {"lengths": size["lengths"], "depths": size["depths"], "mode": mode}
    given = {"model": f"hf/{folder}", "max_answer_tokens": ANSWER_TOKENS, **grid}
    return ordered(prepare(configure(None, given)).trials, mode)


async def _walls(folder: Path, size: dict[str, Any]) -> list[Wall]:
    reference, model = Reference(folder), HuggingFaceModel(str(folder), dtype="float32", device="cpu")
    walls = []
    for mode in ("exact", "bins"):
        trials = trials_of(folder, mode, size)
        await model.answer(trials[0].prompt, Decoding(1))  # what a first call alone does is nobody's cost
        walls.append(await _by_turns(mode, reference, model, trials))
    await model.close()
    return walls


async def _by_turns(
    mode: str, reference: Reference, model: HuggingFaceModel, trials: Sequence[Trial]
) -> Wall:
    wall = Wall(mode, len(trials), Cost(), Cost(), 0)
    equal = 0
    for trial in trials:
        with timed(wall.alone):
            expected = reference.answer(trial.prompt.ids)
        with timed(wall.walked):
            answer = await model.answer(trial.prompt, Decoding(ANSWER_TOKENS))
        equal += answer.text == expected
        wall.alone.computed += len(trial.prompt.ids)
        wall.walked.computed += len(trial.prompt.ids) - (answer.cached_tokens or 0)
    return replace(wall, equal=equal)


@contextmanager
def timed(cost: Cost) -> Iterator[None]:
    """Add what the block takes."""
    wall, cpu = perf_counter(), process_time()
    yield
    cost.wall_s += perf_counter() - wall
    cost.cpu_s += process_time() - cpu


class Reference:
    """The same model, asked by transformers alone."""

    def __init__(self, folder: Path) -> None:
        import torch
        import transformers
        from tokenizers import Tokenizer

        torch.set_num_threads(1)  # for both sides: on a shared machine two threads wait for one another
        self._torch = torch
        self._model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32
        ).eval()
        self._vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.answer(np.arange(8, dtype=np.int32))

    def answer(self, prompt: Ids) -> str:
        """What it says to a prompt, from nothing."""
        ids = self._torch.from_numpy(prompt.astype(np.int64))[None]
        mask = self._torch.ones_like(ids)
        with self._torch.inference_mode():
            said = self._model.generate(
                ids, attention_mask=mask, max_new_tokens=ANSWER_TOKENS, do_sample=False, pad_token_id=0
            )
        text: str = self._vocabulary.decode(said[0, ids.shape[1] :].tolist(), skip_special_tokens=True)
        return text
