"""Checkpoints of one training, asked together: real folders as transformers writes them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from needlemap.cli import app
from needlemap.records.loaded import load_run

Folders = Callable[..., Path]
GRID = ("--lengths", "200,300", "--depths", "0,100", "--repeats", "3", "--max-answer-tokens", "8")


def save(folders: Folders, run: Path, step: int) -> None:
    """A checkpoint of a tiny model, whose weights change from step to step."""
    import torch
    from safetensors.torch import load_file, save_file

    folder = run / f"checkpoint-{step}"
    shutil.copytree(folders("llama", chat=False), folder)
    torch.manual_seed(step)
    weights = load_file(folder / "model.safetensors")
    moved = {name: each + 0.1 * torch.randn_like(each) for name, each in weights.items()}
    save_file(moved, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))


def ask(tmp_path: Path) -> str:
    model = f"hf/{tmp_path}/run/checkpoint-*"
    arguments = ["run", "--model", model, "--scorer", "recovery", *GRID, "-o", str(tmp_path / "s")]
    ended = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert ended.exit_code in (0, 3), ended.output  # 3: an oracle that gains nothing
    return ended.output


def prompts(folder: Path) -> set[str]:
    return {each.prompt.sha256 for each in load_run(folder).records if each.prompt}


def test_each_checkpoint_is_asked_the_same_and_a_new_one_alone_later(
    folders: Folders, tmp_path: Path
) -> None:
    save(folders, tmp_path / "run", 100)
    save(folders, tmp_path / "run", 20)
    output = ask(tmp_path)
    assert output.index("checkpoint-20 ·") < output.index("checkpoint-100 ·")
    save(folders, tmp_path / "run", 1000)
    ask(tmp_path)
    runs = {load_run(each).about.named.step: each for each in (tmp_path / "s").iterdir()}
    assert sorted(runs) == [20, 100, 1000]
    assert prompts(runs[20]) == prompts(runs[100]) == prompts(runs[1000])
    assert len(prompts(runs[20])) == 12
    record = load_run(runs[20]).records[0]
    assert [each.role for each in record.beside] in (["bare", "oracle"], [])
    ended = CliRunner().invoke(
        app, ["report", str(tmp_path / "s"), "--by", "step", "--json"], catch_exceptions=False
    )
    assert ended.exit_code == 0, ended.output
    assert [row["step"] for row in json.loads(ended.stdout)["steps"]] == [20, 100, 1000]


def test_three_passes_equal_those_of_an_empty_cache(folders: Folders, tmp_path: Path) -> None:
    """Prefixes that the plan shares change no probability."""
    arguments = ["run", "--model", f"hf/{folders('llama')}", "--scorer", "recovery", *GRID]
    for name, more in (("shared", ()), ("cold", ("--model-options", "share=false"))):
        ended = CliRunner().invoke(
            app, [*arguments, *more, "-o", str(tmp_path / name)], catch_exceptions=False
        )
        assert ended.exit_code in (0, 3), ended.output
    shared, cold = (load_run(tmp_path / name) for name in ("shared", "cold"))
    told = {each.prompt.sha256: each for each in cold.records if each.prompt}
    assert sum(each.cached_tokens or 0 for each in shared.records) > 0
    for record in shared.records:
        assert record.prompt is not None
        other = told[record.prompt.sha256]
        assert [each.sha256 for each in record.beside] == [each.sha256 for each in other.beside]
        for one, two in zip(record.beside, other.beside, strict=True):
            assert one.nats == pytest.approx(two.nats, abs=1e-3)


def test_an_item_whose_oracle_gains_nothing_is_missing_with_that_reason(
    folders: Folders, tmp_path: Path
) -> None:
    """A model of random weights learns nothing from a needle, not even alone."""
    arguments = ["run", "--model", f"hf/{folders('llama')}", "--scorer", "recovery", *GRID]
    ended = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "run")])
    run = load_run(tmp_path / "run")
    missing = [each for each in run.records if each.failure == "needle adds nothing"]
    assert 0 < len(missing) == run.map.missing
    assert all("there is nothing to recover" in (each.error or "") for each in missing)
    assert f"not measured: {len(missing)} needle adds nothing; with this model" in ended.output
