"""needlemap speaks OpenCompass' needle test byte for byte: checked against vectors made by its own
code.

The original's wording is in the vectors, not in this repository: templates are read from there.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from needlemap.errors import HaystackError, SettingsError
from needlemap.grid import Depths, Lengths, make_grid
from needlemap.haystacks import shuffled
from needlemap.interop.formulas import chained_positions
from needlemap.interop.opencompass import depth_percents, load, script_depth_percents
from needlemap.interop.opencompass.prompts import read
from needlemap.tokenizers import load as load_tokenizer

MARKERS = {"Chinese": "请按照", "English": "Please answer in the format"}
PLAIN = {"prompt": "<{context}> {question}"}
CELL: dict[str, Any] = {
    "length": 60,
    "depth": 50,
    "tokenizer_model": "gpt-4",
    "file_list": ["a.jsonl"],
    "num_repeats_per_file": 1,
    "length_buffer": 10,
    "guide": False,
    "language": "English",
    "needle": " Needle. ",
    "retrieval_question": "Where?",
}


@pytest.fixture(scope="module")
def vectors(shared: Path) -> Path:
    return shared / "vectors" / "opencompass"


@pytest.fixture(scope="module")
def templates(vectors: Path) -> dict[str, dict[str, str]]:
    """Per language the original's template, its guide read off a guided prompt."""
    texts = json.loads((vectors / "templates.json").read_text(encoding="utf-8"))
    found = {language: {"prompt": texts[f"cdme|{language}"]} for language in MARKERS}
    for row in rows(vectors / "cdme_v1_single.jsonl"):
        params = row["params"]
        template, marker = found[params["language"]], MARKERS[params["language"]]
        if params["guide"] and "prompt" in row and "guide" not in template:
            before, _, after = params["retrieval_question"].partition(marker)
            opening = template["prompt"].split("{context}")[1].replace("{question}", before)
            asked = row["prompt"].rpartition(opening)[2]
            template |= {"guide": asked.removesuffix(marker + after), "guide_marker": marker}
    return found


def rows(file: Path) -> list[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def cells(file: Path) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    for params, group in groupby(rows(file), key=lambda row: json.dumps(row["params"])):
        yield json.loads(params), list(group)


def same(made: dict[str, Any], row: dict[str, Any]) -> bool:
    whole = row.get("prompt", made["prompt"])
    digest = sha256(made["prompt"].encode()).hexdigest()
    return (digest, made["prompt"], made["answer"]) == (row["sha256"], whole, row["answer"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [{"text": f"Line {number} is about the sea and the land. "} for number in range(30)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("variant", ["cdme_v1_single", "cdme_v1_multi"])
def test_prompts_and_answers_equal_the_dynamic_data_sets(
    vectors: Path, templates: dict[str, Any], variant: str
) -> None:
    wrong = checked = 0
    for params, wanted in cells(vectors / f"{variant}.jsonl"):
        made = load(vectors / "input", **params, template=templates[params["language"]])
        checked += len(wanted)
        wrong += sum(not same(made[row["index"]], row) for row in wanted)
    assert checked >= 90
    assert wrong == 0


def test_depth_lists_equal_the_originals(vectors: Path) -> None:
    for row in json.loads((vectors / "depth_percents.json").read_text(encoding="utf-8")):
        linear, curved = (
            depth_percents(row["intervals"]),
            depth_percents(row["intervals"], "sigmoid"),
        )
        assert (linear, curved) == (row["linear"], row["sigmoid"])
        assert [int(depth) for depth in linear] == row["linear_int"]
        assert [int(depth) for depth in curved] == row["sigmoid_int"]
        scripted = script_depth_percents(row["intervals"])
        assert scripted == row["script_np_linear"]
        assert [int(depth) for depth in scripted] == row["script_np_linear_int"]
        assert script_depth_percents(row["intervals"], "sigmoid") == row["script_np_sigmoid"]


def test_our_own_grid_makes_the_same_whole_depths(vectors: Path) -> None:
    for row in json.loads((vectors / "depth_percents.json").read_text(encoding="utf-8")):
        for scale in ("linear", "sigmoid"):
            spec = {"min": 0, "max": 100, "count": row["intervals"], "scale": scale}
            depths = Depths.parse(spec)
            whole = make_grid(Lengths.of([1000]), depths, ends="squash", depth_digits=-1)
            asked = sorted(set(row[f"{scale}_int"]))
            assert [round(depth * 100) for depth in whole.depths] == asked
            fine = make_grid(Lengths.of([1000]), depths, ends="squash")
            assert list(fine.depths) == [depth / 100 for depth in row[scale]]


def test_line_orders_are_those_of_the_seeded_generator(vectors: Path) -> None:
    known = json.loads((vectors / "python_rng.json").read_text(encoding="utf-8"))
    for count, wanted in known["cumulative_shuffles"].items():
        lines = list(range(int(count)))
        assert [
            shuffled(lines[:], "cumulative", 0, repeat) for repeat in range(len(wanted))
        ] == wanted


def test_the_global_generator_is_left_alone(folder: Path) -> None:
    random.seed(7)
    state = random.getstate()
    load(folder, **CELL, template=PLAIN)
    assert random.getstate() == state


def test_a_position_divides_first_as_the_original_does() -> None:
    """int(100 * (29 / 100)) is 28: multiplying first would give 29."""
    assert [chained_positions(depth / 100, [5], 100, 0)[0] for depth in (29, 57, 58)] == [
        28,
        56,
        57,
    ]


def test_needle_lengths_count_twice_between_needles() -> None:
    """The original's own habit: wanted at 0, 10 and 20 %, found at 0, 17.8 and 32.5 %."""
    points = chained_positions(0, [53, 32, 48], 667, 0.1)
    assert [round(point / 667 * 100, 1) for point in points] == [0, 17.8, 32.5]
    assert chained_positions(0.9, [5, 5, 5], 100, 0.25) == [90, 100, 100]


def test_files_are_read_in_the_order_of_the_list(folder: Path) -> None:
    (folder / "b.jsonl").write_text('{"text": "Bees."}', encoding="utf-8")
    both = CELL | {"file_list": ["b.jsonl", "a.jsonl"], "num_repeats_per_file": 2, "depth": 0}
    made = load(folder, **both, template=PLAIN)
    assert ["Bees" in row["prompt"] for row in made] == [True, True, False, False]


def test_a_changed_file_is_read_again(folder: Path) -> None:
    load(folder, **CELL, template=PLAIN)
    (folder / "a.jsonl").write_text('{"text": "Something else."}', encoding="utf-8")
    assert "Something" in load(folder, **CELL, template=PLAIN)[0]["prompt"]


def test_lines_are_tokenised_once(folder: Path) -> None:
    tokenizer = load_tokenizer("gpt-4")
    assert read(folder / "a.jsonl", tokenizer) is read(folder / "a.jsonl", tokenizer)


def test_text_of_special_tokens_is_plain_text(folder: Path) -> None:
    """The original's tokenizer raises."""
    (folder / "a.jsonl").write_text('{"text": "One <|endoftext|> two \\ud83d."}', encoding="utf-8")
    prompt = load(folder, **CELL, template=PLAIN)[0]["prompt"]
    assert "<|endoftext|>" in prompt.replace(" Needle. ", "")
    assert "�" in prompt


def test_placeholders_inside_a_haystack_are_text(folder: Path) -> None:
    (folder / "a.jsonl").write_text('{"text": "{question} and {context}."}', encoding="utf-8")
    prompt = load(folder, **CELL | {"depth": 0}, template=PLAIN)[0]["prompt"]
    assert prompt == "< Needle. {question} and {context}.> Where?"


def test_without_a_template_the_words_are_our_own(folder: Path) -> None:
    for language in MARKERS:
        cell = CELL | {"language": language, "guide": True}
        (row,) = load(folder, **cell)
        assert " Needle. " in row["prompt"]
        assert "Where?" in row["prompt"]
        assert "{" not in row["prompt"]
        assert row["prompt"] != load(folder, **cell | {"guide": False})[0]["prompt"]


def test_a_second_marker_and_what_follows_fall_away(folder: Path) -> None:
    template = PLAIN | {"guide": "Think. ", "guide_marker": "Please"}
    cell = CELL | {"guide": True, "retrieval_question": "Where? Please say. Please hurry."}
    assert load(folder, **cell, template=template)[0]["prompt"].endswith(
        "> Where? Think. Please say. "
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"file_list": ["b.jsonl"]}, "b.jsonl"),
        ({"depth": 101}, "0..100"),
        ({"language": "German"}, "Known: Chinese, English"),
        ({"needles": ["x"]}, "one of the two"),
        ({"needle": None, "needles": ["x", "y"]}, "diff"),
        ({"needle": None}, "one of the two"),
        ({"retrieval_question": None}, "retrieval_question"),
        ({"guide": True}, "no 'guide'"),
        (
            {"guide": True, "template": PLAIN | {"guide": "Think. ", "guide_marker": "Please"}},
            "Please",
        ),
        ({"template": {"prompt": "{context}"}}, "{question} once"),
        ({"template": PLAIN | {"gide": "x"}}, "Did you mean 'guide'"),
    ],
)
def test_what_cannot_work_is_said(folder: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises((HaystackError, SettingsError)) as error:
        load(folder, **{"template": PLAIN} | CELL | change)
    assert words in str(error.value)


@pytest.mark.parametrize("line", ["", "{", '{"body": 1}', '{"text": 1}', "[1]"])
def test_a_broken_line_is_named(folder: Path, line: str) -> None:
    (folder / "a.jsonl").write_text('{"text": "Fine."}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(HaystackError, match=r"a\.jsonl, line 2"):
        load(folder, **CELL, template=PLAIN)


def test_files_that_are_not_a_haystack_are_named(folder: Path) -> None:
    (folder / "a.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(HaystackError, match="UTF-8"):
        load(folder, **CELL, template=PLAIN)
    (folder / "a.jsonl").write_bytes(b"")
    with pytest.raises(HaystackError, match="empty"):
        load(folder, **CELL, template=PLAIN)
