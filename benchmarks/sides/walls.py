"""The wall side of prefill.py: a small random Llama in float32 on the CPU, asked in three ways in one process.

One by one with transformers' own `generate`, then mode `exact` and mode `bins` as `hf/FOLDER` asks them, with
one KV cache. Every answer is compared with that of `generate` to the same prompt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import numpy as np
from tinymodel import write_model

from needlemap.configure import configure
from needlemap.models.base import Decoding
from needlemap.models.hf import HuggingFaceModel
from needlemap.plan.order import ordered
from needlemap.trials import Trial, prepare

ANSWER_TOKENS = 8
POSITIONS = 4096
FULL = {"layers": 2, "hidden": 192, "lengths": "400:4k:10", "depths": "0:100:10"}
SMOKE = {"layers": 2, "hidden": 64, "lengths": "400:700:3", "depths": "0:100:3"}


@dataclass(frozen=True, slots=True)
class Wall:
    """One way of asking. mode: 'single' for one by one. computed: prompt tokens. equal: how many answers are
    those of `generate`; None for itself."""

    mode: str
    name: str
    prompts: int
    wall_s: float
    cpu_s: float
    computed: int
    equal: int | None


def measure(smoke: bool) -> tuple[str, list[Wall]]:
    """What was asked, in words, and the three ways, one by one first."""
    size = SMOKE if smoke else FULL
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        parameters = write_model(folder, layers=size["layers"], hidden=size["hidden"], positions=POSITIONS)
        trials = {mode: trials_of(folder, mode, size) for mode in ("exact", "bins")}
        walls = _walls(folder, trials)
    about = (
        f"Llama of {size['layers']} layers and {parameters / 1e6:.1f} M parameters, float32, CPU; "
        f"{size['lengths']} tokens x {size['depths']} percent, answers of {ANSWER_TOKENS} tokens"
    )
    return about, walls


def trials_of(folder: Path, mode: str, size: dict[str, Any]) -> list[Trial]:
    """A run's trials in the order of its plan."""
    grid = {"lengths": size["lengths"], "depths": size["depths"], "mode": mode}
    given = {"model": f"hf/{folder}", "max_answer_tokens": ANSWER_TOKENS, **grid}
    return ordered(prepare(configure(None, given)).trials, mode)


def _walls(folder: Path, trials: dict[str, list[Trial]]) -> list[Wall]:
    reference, model = Reference(folder), HuggingFaceModel(str(folder), dtype="float32", device="cpu")
    asyncio.run(_walk(model, "", trials["exact"][:1], ()))  # what a first call alone does is nobody's cost
    alone, said = reference.ask(trials["exact"])
    walls = [alone]
    for mode, asked in trials.items():
        expected = said if mode == "exact" else reference.ask(asked)[1]
        walls.append(asyncio.run(_walk(model, mode, asked, expected)))
    asyncio.run(model.close())
    return walls


async def _walk(model: HuggingFaceModel, mode: str, trials: Sequence[Trial], expected: Sequence[str]) -> Wall:
    start, cpu, computed, answers = perf_counter(), process_time(), 0, []
    for trial in trials:
        answer = await model.answer(trial.prompt, Decoding(ANSWER_TOKENS))
        answers.append(answer.text)
        computed += (answer.prompt_tokens or 0) - (answer.cached_tokens or 0)
    wall_s, cpu_s = perf_counter() - start, process_time() - cpu
    equal = sum(map(str.__eq__, answers, expected))
    return Wall(mode, f"{mode} (one cache)", len(trials), wall_s, cpu_s, computed, equal)


class Reference:
    """The same model, asked by transformers alone."""

    def __init__(self, folder: Path) -> None:
        import torch
        import transformers
        from tokenizers import Tokenizer

        torch.set_num_threads(1)  # for both sides: on a shared machine two threads wait for one another
        self._torch = torch
        self._model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._answer(np.arange(8))

    def ask(self, trials: Sequence[Trial]) -> tuple[Wall, list[str]]:
        """Each prompt from nothing, and the answers."""
        start, cpu = perf_counter(), process_time()
        answers = [self._answer(trial.prompt.ids) for trial in trials]
        wall_s, cpu_s = perf_counter() - start, process_time() - cpu
        tokens = sum(len(trial.prompt.ids) for trial in trials)
        name = "one by one (generate)"
        return Wall("single", name, len(trials), wall_s, cpu_s, tokens, None), answers

    def _answer(self, prompt: Any) -> str:
        ids = self._torch.from_numpy(prompt.astype(np.int64))[None]
        mask = self._torch.ones_like(ids)
        with self._torch.inference_mode():
            said = self._model.generate(
                ids, attention_mask=mask, max_new_tokens=ANSWER_TOKENS, do_sample=False, pad_token_id=0
            )
        text: str = self._vocabulary.decode(said[0, ids.shape[1] :].tolist(), skip_special_tokens=True)
        return text
