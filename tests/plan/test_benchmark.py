"""The benchmarks of sharing run at a tiny size, check themselves, and end with one JSON object."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


def result(name: str, folder: Path) -> tuple[dict[str, float | None], str]:
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--smoke"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == []
    return json.loads(done.stdout.splitlines()[-1]), done.stdout


def test_prefill_counts_tokens_and_compares_answers_where_there_is_torch(tmp_path):
    found, out = result("prefill", tmp_path)
    assert found["benchmark"] == "prefill"
    for key in ("exact_35x35_128k", "bins_35x35_128k", "bins_15x15_128k"):
        assert found[key] > 1
    rooms = [found[f"caching_{room}_15x15_128k"] for room in ("300k", "1M", "all")]
    assert 1 < rooms[0] <= rooms[1] <= rooms[2]
    if find_spec("torch") is None:
        assert found["wall_exact"] is found["wall_bins"] is found["equal_answers"] is None
        assert "Wall time not measured: no torch" in out
    else:
        assert found["wall_exact"] > 0
        assert found["wall_bins"] > 0
        assert found["equal_answers"] == 1
        assert found["shared_windows"] > 1.5  # as a plain model shares
        assert found["shared_recurrent"] > 1.5
        assert found["hf_cold_over_generate"] > 0
        assert found["hf_cold_memory_over_generate"] > 0


def test_gpu_runs_on_the_cpu_and_says_that_its_figures_are_none(tmp_path):
    pytest.importorskip("torch", reason="needs torch: python3 -m pip install '.[hf]'")
    pytest.importorskip("transformers", reason="needs transformers: python3 -m pip install '.[hf]'")
    found, out = result("gpu", tmp_path)
    assert "CPU SMOKE FIGURES" in out
    assert found["cuda"] is False
    assert found["equal_exact"] == found["equal_bins"] == 1
    for mode in ("exact", "bins"):
        assert found[f"{mode}_measured"] > 0
        assert found[f"{mode}_extrapolated"] > 0
