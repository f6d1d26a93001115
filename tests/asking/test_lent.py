"""--prompts-of RUN: another model is asked exactly a run's prompts, and its folder is data."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

GRID = ("--lengths", "500,900", "--depths", "0,50", "--repeats", "2")
ANOTHER = ("--model", "baseline/bm25", "--model-options", "window=300")


def by_place(records: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    return {(row["repeat"], row["length_tokens"], row["depth"]): row for row in records}


@pytest.fixture
def lent(typed: Any) -> Any:
    """A run whose prompts have many a setting of their own."""
    (typed.folder / "asked.yaml").write_text(
        'messages: [{role: user, text: "{question} {haystack}"}]'
    )
    flags = ("--template", "asked.yaml", "--mode", "bins", "--seed", "5", "--framing-tokens", "7")
    typed("run", "bm25", *GRID, *flags, "--max-answer-tokens", "50", "-o", "lent")
    return typed


def records(typed: Any, run: str) -> list[dict[str, Any]]:
    files = sorted((typed.folder / run).glob("records-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def about(typed: Any, run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((typed.folder / run / "run.json").read_text())
    return found


def test_another_model_is_asked_the_same_bytes_at_the_same_places(lent: Any, wire: Any) -> None:
    lent(
        "run", "--prompts-of", "lent", "--model", "openai/m", "--base-url", wire.base_url, "-o", "r"
    )
    theirs, ours = by_place(records(lent, "lent")), by_place(records(lent, "r"))
    assert theirs.keys() == ours.keys()
    assert len(ours) == 8
    for place, row in ours.items():
        assert row["prompt"]["sha256"] == theirs[place]["prompt"]["sha256"]
        assert row["needles"] == theirs[place]["needles"]
        assert row["key"] != theirs[place]["key"]
    assert set(wire.prompt_counts()) == {row["prompt"]["sha256"] for row in ours.values()}
    assert "pairs" in lent("compare", "lent", "r").stdout


def test_a_run_of_lent_prompts_goes_on_is_replayed_and_scored_without_the_other(lent: Any) -> None:
    asked = ("run", "--prompts-of", "lent", *ANOTHER, "-o", "r")
    lent(*asked)
    assert "8 already scored, 0 to ask" in lent(*asked).stderr
    shutil.rmtree(lent.folder / "lent")
    again = lent("replay", "r", "--length", "900", "--depth", "50", "--repeat", "1")
    assert "the same bytes as recorded" in again.stderr
    lent("score", "r", "--scorer", "substring")


def test_prompts_that_were_lent_are_lent_on(lent: Any) -> None:
    lent("run", "--prompts-of", "lent", *ANOTHER, "-o", "r")
    lent("run", "--prompts-of", "r", "--model", "baseline/bm25", "-o", "third")
    hashes = [
        {place: row["prompt"]["sha256"] for place, row in by_place(records(lent, run)).items()}
        for run in ("lent", "third")
    ]
    assert hashes[0] == hashes[1]


REFUSED = {
    ("--lengths", "700"): "their run has lengths '500,900'. Leave --lengths out.",
    ("--max-answer-tokens", "9"): "run has max_answer_tokens 50. Leave --max-answer-tokens out.",
    ("--tokenizer", "o200k_base"): "Leave --tokenizer out.",
    ("--needle", "Else."): "Leave --needle out.",
}


def test_settings_that_would_make_other_prompts_are_refused(lent: Any) -> None:
    for flags, said in REFUSED.items():
        ended = lent("run", "--prompts-of", "lent", *ANOTHER, *flags, "-o", "r", code=2)
        assert said in ended.stderr, flags


def test_messages_are_not_asked_of_a_model_that_takes_one_text(lent: Any) -> None:
    ended = lent("run", "--prompts-of", "lent", "--model", "demo/retriever", "-o", "r", code=2)
    assert "These prompts are chat messages, and 'demo/retriever' takes one text." in ended.stderr


def test_a_run_of_another_machine_wants_a_flag_and_names_what_is_followed(
    lent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(lent.folder / "another"))
    asked = ("run", "--prompts-of", "lent", *ANOTHER, "-o", "r")
    ended = lent(*asked, code=2)
    assert "'lent' was not begun by you on this machine" in ended.stderr
    assert "template asked.yaml" in ended.stderr
    assert not (lent.folder / "r").exists()
    lent(*asked, "--trust-run")


def test_no_code_that_a_strangers_run_names_is_imported(lent: Any) -> None:
    (lent.folder / "evil.py").write_text("from pathlib import Path\nPath('ran').write_text('')\n")
    file, made = lent.folder / "lent" / "run.json", about(lent, "lent")
    made["settings"] |= {"model": "python/evil.py:answer", "model_options": {}}
    file.write_text(json.dumps(made))
    lent("run", "--prompts-of", "lent", *ANOTHER, "-o", "r", "--trust-run", code=None)
    assert not (lent.folder / "ran").exists()


def test_a_lender_of_any_shape_is_told_in_words(lent: Any) -> None:
    file, made = lent.folder / "lent" / "run.json", about(lent, "lent")
    lenders: list[Any] = [{"run": "x"}, {"run": "x", "model": 7}, {"odd": 1}, 7, ["x"], {}]
    for lender in lenders:
        made["settings"]["prompts_of"] = lender
        file.write_text(json.dumps(made))
        ended = lent("run", "--prompts-of", "lent", *ANOTHER, "-o", "r", "--trust-run", code=2)
        assert "prompts_of" in ended.stderr, lender


def test_prompts_that_come_out_otherwise_than_recorded_are_refused(lent: Any) -> None:
    (lent.folder / "asked.yaml").write_text(
        'messages: [{role: user, text: "{question}\\n{haystack}"}]'
    )
    ended = lent("run", "--prompts-of", "lent", *ANOTHER, "-o", "r", code=2)
    assert "The prompts of 'lent' cannot be built again (first: length" in ended.stderr
    assert not (lent.folder / "r").exists()


def test_what_is_no_run_is_told(lent: Any) -> None:
    assert "No run at 'none'" in lent("run", "--prompts-of", "none", *ANOTHER, code=2).stderr
    suite = lent("run", "suite:smoke", "--prompts-of", "lent", *ANOTHER, "-o", "s", code=2)
    assert "--prompts-of" in suite.stderr


def test_some_of_its_lengths_may_be_asked_where_no_prompt_hangs_on_the_others(typed: Any) -> None:
    typed("run", "bm25", *GRID, "-o", "whole")
    some = ("run", "--prompts-of", "whole", "--lengths", "900", *ANOTHER)
    typed(*some, "-o", "part")
    assert {row["length_tokens"] for row in records(typed, "part")} == {900}
    assert "4 pairs" in typed("compare", "whole", "part").stdout
    assert "4 already scored, 0 to ask" in typed(*some, "-o", "part").stderr
    refused = typed(*some[:3], "--lengths", "900,901", *ANOTHER, code=2).stderr
    assert "lengths '500,900'. Leave --lengths out, or give some of these." in refused


def test_a_whole_grid_that_places_needles_is_asked_whole(lent: Any) -> None:
    """`lent` is in bins: with one length alone needles would stand elsewhere."""
    refused = lent("run", "--prompts-of", "lent", "--lengths", "900", *ANOTHER, code=2).stderr
    assert "lengths '500,900'. Leave --lengths out." in refused
