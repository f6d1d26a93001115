"""needlemap speaks the needlehaystack family's test byte for byte: vectors made by its own code say
so."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from needlemap.errors import HaystackError, SettingsError
from needlemap.interop.needlehaystack import context, depths, lengths
from needlemap.interop.needlehaystack.contexts import fill
from needlemap.tokenizers import load as load_tokenizer

NEEDLE = "\nA needle in a sentence.\n"


@pytest.fixture(scope="module")
def vectors(shared: Path) -> Path:
    return shared / "vectors" / "gkamradt"


@pytest.fixture(scope="module")
def essays(shared: Path) -> Path:
    return shared / "data" / "PaulGrahamEssays"


@pytest.fixture(scope="module")
def claude_tokenizer() -> str:
    path = os.environ.get("NEEDLEMAP_CLAUDE_TOKENIZER", "")
    if not path:
        pytest.skip(
            "NEEDLEMAP_CLAUDE_TOKENIZER is not set: a path to tokenizer.json of PyPI's "
            "anthropic==0.38.0"
        )
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b", "a"):
        text = "".join(f"File {name} says number {number} twice, calmly. " for number in range(20))
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
    return tmp_path


def rows(file: Path) -> list[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def made(row: dict[str, Any], essays: Path, tokenizer: str) -> str:
    return context(
        essays,
        row["context_length"],
        row["depth_percent"],
        row.get("needle"),
        row.get("needles"),
        row["final_context_length_buffer"],
        tokenizer,
    )


def check(text: str, row: dict[str, Any]) -> None:
    assert sha256(text.encode()).hexdigest() == row["sha256"], (
        row["context_length"],
        row["depth_percent"],
    )
    assert text == row.get("context", text)
    assert len(text) == row["chars"]


@pytest.mark.parametrize(
    ("file", "count"), [("single_needle.jsonl", 20), ("multi_needle.jsonl", 10)]
)
def test_contexts_equal_the_originals(vectors: Path, essays: Path, file: str, count: int) -> None:
    wanted = rows(vectors / file)
    assert len(wanted) >= count
    for row in wanted:
        check(made(row, essays, "gpt-4"), row)


def test_insertion_percents_equal_the_originals(vectors: Path, essays: Path) -> None:
    for row in rows(vectors / "multi_needle.jsonl"):
        filled = fill(
            essays, row["context_length"], row["depth_percent"], row["needles"], 200, "gpt-4"
        )
        assert list(filled.insertion_percents) == row["insertion_percentages"]
        offsets = [filled.text.index(needle) for needle in row["needles"]]
        assert offsets == row["needle_char_offsets"]


def test_contexts_with_the_old_claude_tokenizer_equal_the_originals(
    vectors: Path, essays: Path, claude_tokenizer: str
) -> None:
    wanted = rows(vectors / "single_needle_claude_tokenizer.jsonl")
    for row in wanted:
        check(made(row, essays, claude_tokenizer), row)
    assert len(wanted) >= 15


def test_schedules_equal_the_originals(vectors: Path) -> None:
    for row in rows(vectors / "schedules.jsonl"):
        spread = (row["min"], row["max"], row["intervals"])
        if row["kind"] == "context_lengths":
            assert lengths(*spread) == row["values"]
        elif row["kind"] == "depths_linear":
            assert depths(*spread) == row["values"]
        else:
            variant = "seed" if row["variant"].startswith("seed") else "main"
            assert depths(*spread, "sigmoid", variant) == row["values"]  # type: ignore[arg-type]


def test_the_main_branch_has_its_curve_upside_down() -> None:
    assert depths(0, 100, 7, "sigmoid", "main") == [0, 96.555, 84.113, 50, 15.887, 3.445, 100]
    assert depths(0, 50, 6, "sigmoid", "main") == [0, 98.201, 95.257, 88.08, 73.106, 50]
    assert depths(0, 50, 6, "sigmoid") == [0, 1.799, 4.743, 11.92, 26.894, 50]


def test_the_published_claude_grid_begins_so() -> None:
    assert depths(0, 100, 35, "sigmoid")[:5] == [0, 0.896, 1.199, 1.602, 2.138]


@pytest.mark.parametrize(
    ("length", "tokens"),
    [(210, 219), (223, 245), (100, 24), (224, 24)],
    ids=lambda value: str(value),
)
def test_lengths_without_room_go_wrong_as_in_the_originals(
    essays: Path, length: int, tokens: int
) -> None:
    needle = (
        "\nThe best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a "
        "sunny day.\n"
    )
    text = context(essays, length, 100, needle)
    assert abs(load_tokenizer("gpt-4").count(text.encode()) - tokens) <= 1


def test_a_fast_search_for_the_full_stop_equals_a_slow_one(essays: Path) -> None:
    tokenizer = load_tokenizer("gpt-4")
    stop = tokenizer.index(b".").ids
    for depth in (0, 3, 29, 57, 58, 81.5, 99.9):
        filled = fill(essays, 3000, depth, [NEEDLE], 200, tokenizer)
        needle = len(tokenizer.index(NEEDLE.encode()))
        before = 0 if len(filled.spans) == 2 else len(filled.spans[0])
        ids = np.concatenate([span.ids for span in filled.spans])
        hay = np.concatenate([ids[:before], ids[before + needle :]])
        slow = int(len(hay) * (depth / 100))
        while slow and hay[slow - 1] not in stop:
            slow -= 1
        assert before == slow


def test_a_short_haystack_is_repeated(folder: Path) -> None:
    text = context(folder, 3000, 0, NEEDLE)
    assert text.count("File a says number 0 twice") > 2
    assert load_tokenizer("gpt-4").count(text.encode()) == pytest.approx(2800, abs=2)


def test_files_are_taken_in_the_order_of_their_names(folder: Path) -> None:
    (folder / ".hidden.txt").write_text("Hidden.", encoding="utf-8")
    (folder / "notes.md").write_text("Notes.", encoding="utf-8")
    assert context(folder, 400, 0, NEEDLE).startswith(NEEDLE + "File a says number 0")


def test_a_haystack_without_a_full_stop_puts_the_needle_first(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("word " * 500, encoding="utf-8")
    assert context(tmp_path, 400, 50, NEEDLE).startswith(NEEDLE)


def test_a_changed_file_is_read_again(folder: Path) -> None:
    context(folder, 400, 0, NEEDLE)
    (folder / "a.txt").write_text("Something else. " * 50, encoding="utf-8")
    assert context(folder, 400, 0, NEEDLE).startswith(NEEDLE + "Something else.")


def test_needles_spread_to_the_end_and_pile_up_at_a_hundred(folder: Path) -> None:
    needles = [" One. ", " Two. ", " Three. "]
    text = context(folder, 400, 10, needles=needles)
    assert text.index(needles[0]) < text.index(needles[1]) < text.index(needles[2])
    assert context(folder, 400, 100, needles=needles).endswith("".join(needles))


def test_text_of_special_tokens_is_plain_text(folder: Path) -> None:
    """The original's tokenizer raises."""
    (folder / "a.txt").write_text("One <|endoftext|> two. " * 50, encoding="utf-8")
    assert "<|endoftext|>" in context(folder, 400, 0, NEEDLE)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"depth_percent": -1}, "0..100"),
        ({"context_length": 0}, "at least 1"),
        ({"needle": None}, "one of the two"),
        ({"needles": ["x"]}, "one of the two"),
    ],
)
def test_what_cannot_work_is_said(folder: Path, change: dict[str, Any], words: str) -> None:
    cell: dict[str, Any] = {
        "haystack_dir": folder,
        "context_length": 400,
        "depth_percent": 50,
        "needle": NEEDLE,
    }
    with pytest.raises(SettingsError, match=words):
        context(**cell | change)


def test_a_folder_without_text_is_an_error_at_once(tmp_path: Path) -> None:
    """The original loops for ever."""
    with pytest.raises(HaystackError, match=r"holds no \.txt"):
        context(tmp_path, 400, 0, NEEDLE)
    with pytest.raises(HaystackError, match="is no folder"):
        context(tmp_path / "missing", 400, 0, NEEDLE)
    (tmp_path / "a.txt").write_text("", encoding="utf-8")
    with pytest.raises(HaystackError, match="are empty"):
        context(tmp_path, 400, 0, NEEDLE)
    (tmp_path / "a.txt").write_bytes(b"caf\xe9")
    with pytest.raises(HaystackError, match=r"a\.txt"):
        context(tmp_path, 400, 0, NEEDLE)


def test_schedules_that_cannot_work_are_said() -> None:
    with pytest.raises(SettingsError, match="linear, sigmoid"):
        depths(0, 100, 5, "cubic")
    with pytest.raises(SettingsError, match="Known: main, seed"):
        depths(0, 100, 5, "sigmoid", "other")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="at least 1"):
        lengths(1000, 2000, 0)
