"""A trial's key changes with everything that can change its answer or score, and with nothing else."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from needlemap.configure import configure
from needlemap.grid import Cell
from needlemap.identity import prefix_hashes
from needlemap.tokenizers.catalogue import load
from needlemap.trials import prepare

BASE: dict[str, Any] = {
    "lengths": [600, 900],
    "depths": [0, 50],
    "needle": "Ann eats figs.",
    "question": "What does Ann eat?",
    "answer": "Figs.",
    "keywords": ["figs"],
    "model": "baseline/bm25",
    "repeats": 2,
}


@cache
def base() -> dict[tuple[int, Cell], str]:
    return keys()


def keys(**changed: Any) -> dict[tuple[int, Cell], str]:
    """Keys by repeat and cell."""
    trials = prepare(configure(None, BASE | changed)).trials
    return {(trial.repeat, trial.cell): trial.key for trial in trials}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("The sea is grey today. The land is green. " * 400, encoding="utf-8")
    return tmp_path


def test_every_trial_has_a_key_of_its_own():
    assert len(set(base().values())) == len(base()) == 8


@pytest.mark.parametrize(
    "changed",
    [
        {"needle": "Ann eats plums."},
        {"question": "What fruit does Ann eat?"},
        {"answer": "Plums."},
        {"keywords": ["fig"]},
        {"template": "text-en"},
        {"language": "chinese"},
        {"question_position": "start"},
        {"guide": True},
        {"answer_prefix": "Ann eats"},
        {"tokenizer": "o200k_base"},
        {"model": "openai/gpt-4"},
        {"model_options": {"window": 500}},
        {"base_url": "http://127.0.0.1:1/v1"},
        {"max_answer_tokens": 299},
        {"reserve_tokens": 290},
        {"temperature": 0.1},
        {"temperature": None},
        {"request": {"top_p": 0.5}},
        {"scorer": "levenshtein"},
        {"scorer": "levenshtein", "scorer_options": {"trim": True}},
        {"mode": "single"},
        {"mode": "cold"},
        {"seed": 1},
    ],
    ids=str,
)
def test_what_can_change_an_answer_or_its_score_changes_every_key(changed):
    assert set(keys(**changed).values()).isdisjoint(base().values())


@pytest.mark.parametrize(
    "changed",
    [
        {"concurrency": 9},
        {"pause_s": 1},
        {"timeout_s": 5},
        {"retries": 0},
        {"limit_usd": 1},
        {"limit_tokens": 10_000},
        {"prices": {"input": 1, "output": 2}},
        {"save": False},
        {"save_contexts": True},
        {"quiet": True},
        {"collisions": "warn"},
        {"scorer": "substring"},  # what 'auto' means here
        {"tokenizer": "gpt-4"},  # the same vocabulary under another name
        {"max_answer_tokens": 300, "reserve_tokens": 300},
    ],
    ids=str,
)
def test_what_cannot_change_an_answer_changes_no_key(changed):
    assert keys(**changed) == base()


@pytest.mark.parametrize(
    "changed",
    [
        {"lengths": [600, 900, 7000]},
        {"depths": [0, 25, 50, 100]},
        {"repeats": 3},
        {"lengths": [900], "depths": [50], "first_repeat": 1, "repeats": 1},
    ],
    ids=str,
)
def test_another_grid_leaves_the_cells_it_shares_as_they_are(changed):
    found = keys(**changed)
    shared = found.keys() & base().keys()
    assert shared
    assert all(found[place] == base()[place] for place in shared)


def test_only_the_haystack_that_a_prompt_holds_is_in_its_key(folder):
    own = {"haystack": "folder", "haystack_path": str(folder), "order": "listed"}
    before = keys(**own)
    text = (folder / "a.txt").read_text(encoding="utf-8")
    (folder / "a.txt").write_text(text[:1600] + text[1600:].replace("grey", "blue"), encoding="utf-8")
    after = keys(**own)
    same = {cell.length_tokens for (_, cell), key in after.items() if key == before[_, cell]}
    assert same == {600}
    (folder / "a.txt").write_text(text.replace("grey", "blue"), encoding="utf-8")
    assert set(keys(**own).values()).isdisjoint(before.values())


def test_the_folders_name_is_not_in_the_key_but_its_text_is(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "b.txt").write_bytes((folder / "a.txt").read_bytes())
    found = [keys(haystack="folder", haystack_path=str(path), order="listed") for path in (folder, other)]
    assert found[0] == found[1]


def test_a_template_file_counts_by_its_words(tmp_path):
    for name, text in (
        ("a", "{haystack} Q: {question}"),
        ("b", "{haystack} Q: {question}"),
        ("c", "{haystack} {question}"),
    ):
        (tmp_path / f"{name}.yaml").write_text(f"text: '{text}'", encoding="utf-8")
    one, same, other = (keys(template=str(tmp_path / f"{name}.yaml")) for name in "abc")
    assert one == same
    assert set(one.values()).isdisjoint(other.values())


def test_hashes_of_beginnings_are_those_of_their_bytes():
    from hashlib import sha256

    text = load("cl100k_base").index(b"one two three four")
    assert prefix_hashes(text, [3, 0, 3]) == {
        0: sha256(b"").hexdigest(),
        3: sha256(b"one two three").hexdigest(),
    }
