"""The wall side of prefill.py: small random models in float32 on the CPU, asked in two ways by
turns.

Each prompt of a walk is asked of transformers' own `generate`, from nothing, and then as
`hf/FOLDER` asks it, with one cache for all. So both meet the same load of the machine, and every
answer is compared. In mode `single` that cache is asked in the order of the grid, as a server with
prefix caching would be.
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

from needlemap.models import Decoding
from needlemap.models.hf import HuggingFaceModel
from needlemap.models.walk import Ids
from needlemap.plan import ordered, with_partings
from needlemap.prompts import Prompt
from needlemap.settings.reading import configure
from needlemap.trials.build import prepare
from sides.tiny import made
from tinymodel import write_model, write_tokenizer

ANSWER_TOKENS = 4
POSITIONS = 4096
MODES = ("single", "exact", "bins")


@dataclass(frozen=True, slots=True)
class Size:
    """A model and what it is asked. kind: transformers' name; a Llama is made as large as it says,
    the others as sides/tiny.py makes them."""

    about: str
    kind: str
    lengths: str
    depths: str
    layers: int = 0
    hidden: int = 0


FULL = (
    Size("Llama, 3 layers", "llama", "400:4k:10", "0:100:10", 3, 256),
    Size("sliding windows of 48 tokens (Gemma 3), tiny", "gemma3_text", "400:1800:6", "0:100:6"),
    Size(
        "recurrent and attention layers (Granite 4), tiny",
        "granitemoehybrid",
        "400:1800:6",
        "0:100:6",
    ),
)
SMOKE = (
    Size("Llama, 2 layers", "llama", "400:700:3", "0:100:3", 2, 64),
    *(replace(size, lengths="400:600:2", depths="0:100:3") for size in FULL[1:]),
)


@dataclass(slots=True)
class Cost:
    """What asking took. computed: prompt tokens."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    computed: int = 0


@dataclass(frozen=True, slots=True)
class Wall:
    """A mode's walk beside one by one. equal: how many of the answers are the same."""

    about: str
    mode: str
    prompts: int
    alone: Cost
    walked: Cost
    equal: int

    @property
    def fewer(self) -> float:
        """Times fewer prompt tokens."""
        return self.alone.computed / self.walked.computed


def measure(smoke: bool) -> list[Wall]:
    """Every model in every mode."""
    return [wall for size in (SMOKE if smoke else FULL) for wall in _measured(size)]


def _measured(size: Size) -> list[Wall]:
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if size.layers:
            write_model(folder, layers=size.layers, hidden=size.hidden, positions=POSITIONS)
        else:
            _write_tiny(folder, size.kind)
        return asyncio.run(_walls(folder, size))


def _write_tiny(folder: Path, kind: str) -> None:
    """A tiny model of another kind, as a folder."""
    import torch
    import transformers

    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(made(kind), dtype=torch.float32)
    model.generation_config = transformers.GenerationConfig(pad_token_id=0)
    model.save_pretrained(folder)
    write_tokenizer(folder)


def prompts_of(folder: Path, mode: str, lengths: str, depths: str) -> list[Prompt]:
    """A run's prompts in the order of its plan, as a run asks them."""
    grid = {"lengths": lengths, "depths": depths, "mode": mode}
    given = {"model": f"hf/{folder}", "max_answer_tokens": ANSWER_TOKENS, **grid}
    walk = ordered(prepare(configure(None, given)).trials, mode)
    return with_partings([trial.prompt for trial in walk])


async def _walls(folder: Path, size: Size) -> list[Wall]:
    reference, model = (
        Reference(folder),
        HuggingFaceModel(str(folder), dtype="float32", device="cpu"),
    )
    walls = []
    for mode in MODES:
        prompts = prompts_of(folder, mode, size.lengths, size.depths)
        await model.answer(prompts[0], Decoding(1))  # what a first call alone does is nobody's cost
        walls.append(
            await _by_turns(
                Wall(size.about, mode, len(prompts), Cost(), Cost(), 0), reference, model, prompts
            )
        )
    await model.close()
    return walls


async def _by_turns(
    wall: Wall, reference: Reference, model: HuggingFaceModel, prompts: Sequence[Prompt]
) -> Wall:
    equal = 0
    for prompt in prompts:
        with timed(wall.alone):
            expected = reference.answer(prompt.ids)
        with timed(wall.walked):
            answer = await model.answer(prompt, Decoding(ANSWER_TOKENS))
        equal += answer.text == expected
        wall.alone.computed += len(prompt.ids)
        wall.walked.computed += len(prompt.ids) - (answer.cached_tokens or 0)
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

        torch.set_num_threads(
            1
        )  # for both sides: on a shared machine two threads wait for one another
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
                ids,
                attention_mask=mask,
                max_new_tokens=ANSWER_TOKENS,
                do_sample=False,
                pad_token_id=0,
            )
        text: str = self._vocabulary.decode(
            said[0, ids.shape[1] :].tolist(), skip_special_tokens=True
        )
        return text
