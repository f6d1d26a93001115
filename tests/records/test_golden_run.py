"""`report RUN --format golden`: a run frozen small enough for a repository, which tests compare
with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from needlemap.records import loaded

GRID = ("--lengths", "500,900", "--depths", "0,50,100", "--repeats", "2", "--quiet")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: Any, command_in: Any) -> Any:
    """A folder with a run, its golden, and a run that loses something."""
    command = command_in(tmp_path_factory.mktemp("golden"))
    command("run", "bm25", *GRID, "-o", "a")
    command("run", "bm25", *GRID, "--model-options", "window=300", "-o", "less")
    assert "golden/a: " in command("report", "a", "--format", "golden", "-o", "golden/a").stderr
    return command


def test_it_is_a_run_that_compares_as_the_run_does(runs: Any) -> None:
    whole = json.loads(runs("compare", "a", "less", "--answers", "--json").stdout)
    frozen = json.loads(runs("compare", "golden/a", "less", "--answers", "--json").stdout)
    for found in (whole, frozen):
        found.pop("a")
        found.pop("measured")  # a golden keeps no times
    assert frozen == whole
    assert whole["answers"]["differing"] > 0
    assert "overall 100.0 (n=12, 0 missing)" in runs("report", "golden/a").stdout


def test_a_suites_families_are_frozen_together(runs: Any) -> None:
    suite = (
        "settings: {lengths: [900], depths: [0, 100], repeats: 2}\n"
        "families: {one: {task: passkey}, other: {task: magic}}\n"
    )
    (runs.folder / "two.yaml").write_text(suite)
    for name, flags in (("s", ()), ("t", ("--model-options", "window=300"))):
        runs("run", "suite:two.yaml", "--quiet", *flags, "-o", name)
    runs("report", "s", "--format", "golden", "-o", "golden/s")
    whole, frozen = (
        json.loads(runs("compare", each, "t", "--json").stdout) for each in ("s", "golden/s")
    )
    assert frozen["families"].keys() == {"one", "other"}
    assert frozen["overall"] == whole["overall"]


def test_a_golden_too_small_for_its_margin_is_refused_with_the_number_of_prompts(runs: Any):
    """A test with 12 prompts at 2 points can never pass: it is known before it is frozen."""
    frozen = ("report", "a", "--format", "golden", "-o")
    refused = runs(*frozen, "golden/small", "--margin", 2, code=2).stderr
    assert "A margin of 2 points takes 189 prompts" in refused
    assert "and this golden has 12" in refused
    assert "16 times the --repeats, or give a margin of 24.3 points or more" in refused
    assert not (runs.folder / "golden" / "small").exists()
    assert "margins from 24.3 points on" in runs(*frozen, "golden/small", "--margin", 25).stderr
    assert "--margin is of a golden" in runs("report", "a", "--margin", 2, code=2).stderr


def test_a_golden_of_wrong_answers_is_refused_for_any_margin(runs: Any):
    runs("run", "bm25", *GRID, "--model", "baseline/random", "-o", "wrong")
    refused = runs(
        "report", "wrong", "--format", "golden", "-o", "golden/wrong", "--margin", 30, code=2
    ).stderr
    assert "not tested: all prompts (the reference scores 8.3, n=12)" in refused


def test_its_prompts_are_built_again_and_checked_by_their_hashes(runs: Any) -> None:
    asked = ("run", "--prompts-of", "golden/a", "--model", "baseline/bm25", "--quiet")
    assert "was not begun by you on this machine" in runs(*asked, "-o", "b", code=2).stderr
    runs(*asked, "--trust-run", "-o", "b")
    assert "answers: 12 of 12 pairs identical" in runs("compare", "golden/a", "b").stdout
    shown = runs("replay", "golden/a", "--length", "900", "--depth", "50", "--trust-run")
    assert "the same bytes as recorded" in shown.stderr
    moved = Path(shutil.copytree(runs.folder / "golden" / "a", runs.folder / "moved"))
    file = moved / loaded.GOLDEN_RECORDS
    text = file.read_text()
    file.write_text(text.replace('"prompt":{"sha256":"', '"prompt":{"sha256":"0'))
    refused = runs(*asked[:2], "moved", *asked[3:], "--trust-run", "-o", "c", code=2).stderr
    assert "The prompts of 'moved' cannot be built again" in refused


def test_answers_can_be_scored_anew_when_a_rule_changes(runs: Any) -> None:
    runs("score", "golden/a", "--scorer", "exact", "--trust-run", "-o", "exact")
    assert len(runs.records("exact")) == 12


def test_a_trial_takes_less_than_a_kilobyte_and_says_nothing_of_where_it_was_asked(
    runs: Any, wire: Any
) -> None:
    assert (runs.folder / "golden" / "a" / loaded.GOLDEN_RECORDS).stat().st_size < 12 * 1_000
    asked = ("--model", "openai/m", "--base-url", wire.base_url, "--tokenizer", "cl100k_base")
    runs("run", *GRID, *asked, "-o", "served")
    runs("report", "served", "--format", "golden", "-o", "golden/served")
    for file in (runs.folder / "golden" / "served").iterdir():
        assert "127.0.0.1" not in file.read_text()
    assert runs("compare", "golden/served", "served").stdout.startswith(
        "A  openai/m (golden/served)"
    )


def test_what_is_too_large_is_refused_with_what_has_room(
    runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaded, "MOST_GOLDEN", 5_000)
    refused = runs("report", "a", "--format", "golden", "-o", "golden/large", code=2).stderr
    assert "and at most 5,000 belong into a repository: of its 12 trials about " in refused
    assert not (runs.folder / "golden" / "large").exists()


def test_what_is_not_finished_or_no_run_of_ours_is_refused(runs: Any) -> None:
    part = Path(shutil.copytree(runs.folder / "a", runs.folder / "part"))
    for file in part.glob("records-*.jsonl"):
        file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:5]))
    refused = runs("report", "part", "--format", "golden", "-o", "golden/part", code=2).stderr
    assert "'part' lacks 7 scores. Finish it first: needlemap run -o part" in refused
    for wrong in (("a",), ("a", "less", "-o", "g"), ("a", "-o", "g.csv")):
        assert (
            "is of one run, into a folder"
            in runs("report", *wrong, "--format", "golden", code=2).stderr
        )


def test_a_golden_is_written_anew_and_nothing_else_is_written_over(runs: Any) -> None:
    again = ("report", "a", "--format", "golden", "-o")
    runs(*again, "golden/a")
    refused = runs(*again, "less", code=2).stderr
    assert "which no golden has. Give another folder with -o." in refused
