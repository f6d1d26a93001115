"""One prompt with nothing cached, as `hf/FOLDER` asks it and as transformers' own `generate` does.

Each side is asked in a process of its own, by turns, with one thread: CPU seconds of the question
alone, and the memory that it took beyond what the process held before. Loading, and the check of a
model that is loaded, are left out of both.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time

from needlemap.models import Decoding
from needlemap.models.hf import HuggingFaceModel
from needlemap.prompts import Prompt

SIDES = ("generate", "needlemap")
LENGTHS, ROUNDS = ("4k", "16k"), 3
_LAYERS, _HIDDEN, _POSITIONS = 4, 256, 16_384


def measure_cold(smoke: bool) -> dict[str, tuple[float, float]]:
    """Times the CPU seconds, and times the memory, of `generate`, by length: medians of rounds.
    Raises ValueError where an answer differs."""
    from tinymodel import write_model

    lengths, rounds = (("400",), 1) if smoke else (LENGTHS, ROUNDS)
    with TemporaryDirectory() as scratch:
        write_model(Path(scratch), layers=_LAYERS, hidden=_HIDDEN, positions=_POSITIONS)
        return {length: _compared(scratch, length, rounds) for length in lengths}


def _compared(folder: str, length: str, rounds: int) -> tuple[float, float]:
    found = [[_in_process(folder, length, side) for side in SIDES] for _ in range(rounds)]
    if len({said for both in found for _, _, said in both}) != 1:
        raise ValueError(f"Answers to one prompt of {length} tokens differ: {found}")
    cpu_s, peak = (median(ours[at] / theirs[at] for theirs, ours in found) for at in (0, 1))
    return cpu_s, peak


def _in_process(folder: str, length: str, side: str) -> tuple[float, float, str]:
    """CPU seconds, bytes and the answer."""
    command = [sys.executable, str(Path(__file__)), folder, length, side]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    cpu_s, peak, said = json.loads(done.stdout.splitlines()[-1])
    return cpu_s, peak, said


def _measure(folder: str, length: str, side: str) -> tuple[float, int, str]:
    """As `_in_process`, in this one."""
    from sides.peak import resident_bytes
    from sides.walls import ANSWER_TOKENS, Reference, prompts_of

    warm, prompt = (prompts_of(Path(folder), "single", each, "50")[0] for each in ("300", length))
    ask: Callable[[Prompt], str]
    if side == "generate":
        reference = Reference(Path(folder))
        ask = lambda each: reference.answer(each.ids)  # noqa: E731
    else:
        model = HuggingFaceModel(folder, dtype="float32", device="cpu", share=False)
        ask = lambda each: asyncio.run(model.answer(each, Decoding(ANSWER_TOKENS))).text  # noqa: E731
    ask(warm)  # what a first call alone does is nobody's cost
    held, start = resident_bytes("VmRSS"), process_time()
    said = ask(prompt)
    return process_time() - start, resident_bytes("VmHWM") - held, said


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import torch

    torch.set_num_threads(1)
    print(json.dumps(_measure(*sys.argv[1:])))
