"""Each benchmark runs, checks its own results, and ends with one JSON object. Speeds are asserted
nowhere.

The one of memory over time, soak.py: tests/reliability/test_soak.py.
NEEDLEMAP_ARCHITECTURES: which architectures are tried (six, one of each sort; with --long
fifteen).
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

import needlemap

FOLDER = Path(__file__).parent.parent / "benchmarks"
SHORT = (
    "beside",
    "decode",
    "gauge",
    "generation",
    "rates",
    "recovery",
    "scoring",
    "time_machine",
    "twins",
)  # at most three seconds each
ARCHITECTURES = os.environ.get("NEEDLEMAP_ARCHITECTURES")
PROMISED = {
    "ab": {"runs", "graded_found", "mcnemar_apart"},
    "architectures": {"architectures", "equal", "in_full", "refused", "shared", "answers"},
    "gate": {"pairs_5_points", "pairs_no_worse_2"},
    "gpu": {"equal_exact", "equal_bins", "exact_measured", "exact_extrapolated", "bins_measured"},
    "gauge": {"params", "holds_tokens", "train_cpu_min", "reference_cpu_s_16k"},
    "green": {"faults", "commands", "clean", "tokens_128k"},
    "decode": {"tokens_numpy"},
    "check": {"mutants", "found", "clean_runs", "mutant_cpu_s_most"},
    "storm": {"faults", "found", "shrunk_to_6", "repro_fails", "clean", "bound_covers"},
    "time_machine": {"reproduced", "engines", "not_seen", "false_red", "quick_checks"},
    "twins": {"architectures", "pairs", "clean", "mutants", "found"},
    "beside": {"tools"},
    "results": {"models", "maps", "answers"},
    "generation": {
        "ruler_items_per_min",
        "built_times_most",
        "floor_times_most",
        "items_per_s_least",
    },
    "prefill": {
        *("exact_35x35_128k", "bins_35x35_128k", "bins_15x15_128k"),
        *(f"caching_{room}_15x15_128k" for room in ("300k", "1M", "all")),
        *("wall_exact", "wall_bins", "equal_answers", "shared_windows", "shared_recurrent"),
        *("hf_cold_over_generate", "hf_cold_memory_over_generate"),
    },
    "prompts": {"times_peer_cold", "times_peer_cold_settings", "times_peer_build", "times_memcpy"},
    "report": {
        "build_s",
        "build_cpu_s",
        "limit_cpu_s",
        "build_over_limit",
        "mb",
        "mb_100",
        "trials",
    },
    "statistics": {
        *(
            "coverage_cell",
            "coverage_margin",
            "coverage_effective",
            "coverage_paired",
            "width_over_oracle",
        ),
        *(
            "coverage_few_mild",
            "coverage_few_strong",
            "coverage_true_length_least",
            "power_two_over_one",
        ),
        *("false_no_worse_most", "false_no_worse_clustered_10", "false_no_worse_clustered_50"),
    },
    "seek": {
        *("coverage_mean", "coverage_least", "asked_share_smooth", "computed_share_smooth"),
        *("plateau_says_crawls", "salt_and_pepper_says_crawls"),
    },
    "rates": {"times_floor"},
    "recovery": {"recipes_learn", "recipes_early", "items_to_tell", "coverage", "times_generation"},
    "memory": {"peak_gb_1m", "peak_gb_1m_one_cell", "peer_gb_1m", "limit_gb_1m"},
    "replicas": {"cpu_128k_over_1k", "kb_128k", "cpu_ms_128k", "cpu_ms_1k"},
    "scoring": {"levenshtein_25_times", "levenshtein_2000_times", "levenshtein_20000_times"},
    "runner": {
        "share_of_limit_1k",
        "share_of_limit_32k",
        "share_of_limit_128k",
        "resume_s",
        "resume_cpu_s",
    },
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in SHORT else pytest.mark.long)
        for name in sorted(PROMISED)
    ],
)
def test_a_benchmark_ends_with_one_json_object_that_holds_what_it_promises(name, tmp_path):
    if name in ("memory", "prompts"):
        pytest.importorskip("tiktoken", reason="pip install '.[bench]'")
    if name in ("architectures", "gpu", "prefill"):
        pytest.importorskip(
            "transformers", reason="needs transformers: python3 -m pip install '.[hf]'"
        )
    whole = name == "architectures" and ARCHITECTURES
    form = ["--brief", "--only", str(ARCHITECTURES)] if whole else ["--smoke"]
    # No shared folder: the generated haystack must do, as on anyone's machine.
    environment = {**os.environ, "NEEDLEMAP_SHARED": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), *form],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["benchmark"] == name
    told = {key: result[key] for key in PROMISED[name]}
    assert all(isinstance(figure, int | float) for figure in told.values()), told
    # How often a verdict was false may be 0; whatever else is 0 was not measured.
    assert all(told[key] > 0 or key.startswith("false_") for key in told), told
    assert all(told[key] == 1 for key in told if key.startswith("equal_")), told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("changed", [None, "weights", "prompts"])
def test_the_gauge_s_haystacks_are_asked_once_unless_weights_or_prompts_change(
    changed, tmp_path, monkeypatch
):
    """Long prompts take hours, and a run may be cut off."""
    monkeypatch.syspath_prepend(FOLDER)
    kept = importlib.import_module("gauge").Kept
    file, haystack = tmp_path / "kept.jsonl", {"weights": "0a", "prompts": "1b", "number": 0}
    assert kept(file).missed(haystack, lambda: 2) == 2
    if changed:
        haystack = haystack | {changed: "2c"}
    assert kept(file).missed(haystack, lambda: 3) == (3 if changed else 2)
    assert len(file.read_text().splitlines()) == (2 if changed else 1)


def test_no_benchmark_names_a_path_of_the_machine_it_was_written_on():
    files = sorted(FOLDER.rglob("*.py"))
    assert len(files) > len(PROMISED)
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert not [word for word in ("/work", "/tmp", "/home") if word in text], file


def test_the_kept_runs_of_real_models_are_small_archives_of_runs_alone():
    kept = sorted((FOLDER / "results").rglob("*.tar.xz"))
    maps = [file for file in kept if file.parent.name == "results"]
    assert len(maps) >= 8
    assert sum(file.stat().st_size for file in kept) <= 10_000_000
    for file in kept:
        with tarfile.open(file) as archive:
            names = archive.getnames()
        assert ("asked.json" in names) is (file.parent.name in ("results", "ab"))
        assert all(name.endswith((".json", ".jsonl")) for name in names), names


def test_the_snapshots_of_recovery_read_what_its_scorer_reads(monkeypatch):
    """They are read in batches, by code of their own: the model in the box gives the same gains."""
    torch = pytest.importorskip("torch", reason="needs torch: python3 -m pip install '.[hf]'")
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.syspath_prepend(str(FOLDER.parent / "tools"))
    made = importlib.import_module("recovery_snapshots")
    model = made.Retriever(made.Shape())
    with torch.no_grad(), np.load(made.DATA / "retriever.npz", allow_pickle=False) as arrays:
        for name, value in model.named_parameters():
            value.copy_(torch.tensor(arrays[name.removeprefix("layers.")].astype(np.float32)))
    asked = {**made.ITEMS, "repeats": 3, "scorer": "recovery", "max_answer_tokens": 16}
    items = made.items_of(
        made.prepare(made.configure("demo", asked)).trials,
        made.load(str(made.DATA / made.TOKENIZER)),
    )
    read = made.read_snapshot(model, items)
    records = needlemap.run("demo", save=False, quiet=True, **asked).records()
    scored = sorted(records, key=lambda record: (record.repeat, record.depth))
    whys = [record.scorer.why for record in scored]
    assert read["gain"] == pytest.approx([why["gain"] for why in whys], abs=0.01)
    assert read["oracle"] == pytest.approx([why["oracle_gain"] for why in whys], abs=0.01)
    assert read["right"] == "".join("01"[why["first_choice"]] for why in whys)
    assert 0 < read["right"].count("1") < 9
    assert max(read["control"]) < min(read["oracle"])
