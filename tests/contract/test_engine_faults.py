"""Eight faults of inference engines, each a few lines: a tiny random model's answers tell them in
ten trials.

The model is that of docs/engines.md. Scores tell nothing, as a random model is always wrong. Each
fault is put in behind the check that a model goes through when it is loaded, as a change of the
engine brings it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from needlemap.models import hf
from needlemap.models.hf_engine import HuggingFaceEngine

PAGE = Path(__file__).parents[2] / "docs" / "engines.md"
MODEL = ("--model", "hf/./random")
GRID = ("--lengths", "500,600", "--depths", "0:100:5", "--max-answer-tokens", "16", "--quiet")
TRIALS = 10
BLOCK = 16


class Faulty(HuggingFaceEngine):
    """The sound engine, with places to put a fault."""

    def crop(self, length_tokens: int) -> int:
        hit = BLOCK <= length_tokens < min(self._prompt_tokens, len(self._ids))
        kept = super().crop(self.kept(length_tokens) if hit else length_tokens)
        if hit:
            self.rows(self.reused)
        return kept

    def _compute(self, ids: Any, keep: int) -> Any:
        made = super()._compute(ids, keep)
        self.rows(self.held)
        if len(ids) > 1:
            self.rows(self.read)
        return made

    def rows(self, change: Callable[[Any], Any]) -> None:
        """Change keys and values of every layer, (batch, heads, tokens, size)."""
        with self._torch.inference_mode():
            for layer in self.cache.layers if self.cache is not None else ():
                for held in (layer.keys, layer.values):
                    held.copy_(change(held.clone()))

    def kept(self, length_tokens: int) -> int:
        """How much of a prompt's prefix is taken from the cache."""
        return length_tokens

    def reused(self, held: Any) -> Any:
        """What is cached, when a prefix of it is used again."""
        return held

    def held(self, held: Any) -> Any:
        """What is cached, after any tokens."""
        return held

    def read(self, held: Any) -> Any:
        """What is cached, after a prompt."""
        return held


class BlockDropped(Faulty):
    """A block of 16 tokens is lost when a prefix is used again."""

    def reused(self, held: Any) -> Any:
        held[..., BLOCK : 2 * BLOCK, :] = 0
        return held


class TurnedByOne(Faulty):
    """Positions behind a prefix that was used again are one too large."""

    def _call(self, ids: Any, start: int, *rest: Any) -> Any:
        return super()._call(ids, start + (start > 0 and len(ids) > 1), *rest)


class EightBits(Faulty):
    """Keys and values are kept as float8 e4m3."""

    def held(self, held: Any) -> Any:
        return held.to(self._torch.float8_e4m3fn).to(held.dtype)


class FourBits(Faulty):
    """Keys and values are kept as whole numbers from -7 to 7, with a scale a row."""

    def held(self, held: Any) -> Any:
        scale = held.abs().amax(-1, keepdim=True).clamp_min(1e-9) / 7
        return (held / scale).round() * scale


class StaleBlock(Faulty):
    """The prompt before leaves a block of 16 tokens behind."""

    stale = BLOCK

    def kept(self, length_tokens: int) -> int:
        return min(length_tokens + self.stale, len(self._ids), self._prompt_tokens - 1)


class StaleToken(StaleBlock):
    """The prompt before leaves one token behind."""

    stale = 1


class LastLost(Faulty):
    """The keys and values of a prompt's last token are lost."""

    def read(self, held: Any) -> Any:
        held[..., -1:, :] = 0
        return held


FAULTS = (BlockDropped, TurnedByOne, EightBits, FourBits, StaleBlock, StaleToken, LastLost)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, command_in: Any) -> Any:
    """A folder with the page's model, a run of the sound engine, and one of it again."""
    pytest.importorskip("torch", reason="needs torch: python3 -m pip install '.[hf]'")
    pytest.importorskip("transformers", reason="needs transformers: python3 -m pip install '.[hf]'")
    command = command_in(tmp_path_factory.mktemp("faults"))
    (program,) = re.findall(
        r"^```python\n(# random_model.py\n.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S
    )
    with chdir(command.folder):
        exec(compile(program, "random_model.py", "exec"), {})
    for name in ("sound", "again"):
        command("run", *MODEL, *GRID, "-o", name)
    return command


def first_told(runs: Any, before: str, after: str, code: int) -> int | None:
    """After how many trials a comparison of answers tells a difference; None where there is
    none."""
    pair = (
        "compare",
        before,
        after,
        "--label",
        "before",
        "--label",
        "after",
        "--answers",
        "--json",
    )
    found = json.loads(runs(*pair, "--fail-if-answers-differ", "0", code=code).stdout)
    assert found["answers"]["n"] == TRIALS
    assert found["loss"]["value"] == 0  # scores say nothing
    if not found["answers"]["changed"]:
        return None
    place = [
        found["answers"]["changed"][0][name]
        for name in ("length_tokens", "depth_percent", "repeat")
    ]
    asked = [
        [row["length_tokens"], 100 * row["depth"], row["repeat"]] for row in runs.records(after)
    ]
    return asked.index(place) + 1


def test_the_sound_engine_asked_again_answers_the_same(runs: Any) -> None:
    assert first_told(runs, "sound", "again", code=0) is None


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_told_by_answers(
    fault: type[Faulty], runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = hf.checked_engine

    def broken(*arguments: Any) -> Any:
        engine, notes = sound(*arguments)
        engine.__class__ = fault
        return engine, notes

    monkeypatch.setattr(hf, "checked_engine", broken)
    runs("run", *MODEL, *GRID, "-o", fault.__name__)
    assert first_told(runs, "sound", fault.__name__, code=1) is not None


def test_a_window_that_is_one_token_too_small_is_told_by_answers(runs: Any) -> None:
    """The same weights as a Mistral, which has the same layers, and a window."""
    config = json.loads((runs.folder / "random" / "config.json").read_text())
    for window in (128, 127):
        model = Path(shutil.copytree(runs.folder / "random", runs.folder / f"model-{window}"))
        fields = {
            "model_type": "mistral",
            "architectures": ["MistralForCausalLM"],
            "sliding_window": window,
        }
        (model / "config.json").write_text(json.dumps(config | fields))
        runs("run", "--model", f"hf/./{model.name}", *GRID, "-o", f"window-{window}")
    assert first_told(runs, "window-128", "window-127", code=1) is not None
