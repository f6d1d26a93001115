"""OpenCompass's summary CSV, to the letter."""

from __future__ import annotations

import csv
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from needlemap.errors import SettingsError
from needlemap.records.run_file import RunSettings
from needlemap.reports.table import column_names, summary_csv, summary_txt
from needlemap.stats.means import Map


def named(model: str, label: str = "") -> RunSettings:
    return RunSettings(model=model, label=label, task="single", mode="exact")


def read_columns(path: Path, make_map: Any, make_cell: Any) -> dict[str, Map]:
    """One map per model column of a summary."""
    header, *rows = list(csv.reader(path.read_text().splitlines()))
    places = [tuple(map(int, re.findall(r"Length(\d+)Depth(\d+)", row[0])[0])) for row in rows]
    return {
        model: make_map(
            [
                make_cell(
                    length, depth / 100, None if row[place] == "-" else float(row[place]) / 100
                )
                for (length, depth), row in zip(places, rows, strict=True)
            ]
        )
        for place, model in enumerate(header[4:], start=4)
    }


@pytest.mark.parametrize("name", ["summary_20231216_161457.csv", "viz_input_cdme8k.csv"])
def test_equals_what_opencompass_wrote(
    shared: Path, make_map: Any, make_cell: Any, name: str
) -> None:
    path = shared / "vectors" / "opencompass" / "summary_example" / name
    columns = read_columns(path, make_map, make_cell)
    assert summary_csv(columns, version="fd5822") == path.read_text()


def test_rows_are_the_cells_and_missing_is_a_dash(mixed: Map) -> None:
    header, first, *rows = summary_csv({"a-model": mixed}).splitlines()
    assert header == "dataset,version,metric,mode,a-model"
    assert re.fullmatch(r"CDME_Length1000Depth0,[0-9a-f]{6},score,gen,100\.00", first)
    assert rows[3].startswith("CDME_Length4000Depth50,")
    assert rows[3].endswith(",0.00")
    assert rows[4].endswith(",-")


def test_a_cell_that_only_one_model_has_is_missing_for_the_other(
    make_map: Any, make_cell: Any
) -> None:
    one = make_map([make_cell(1000, 0.0, 1.0), make_cell(2000, 0.0, 1.0)])
    two = make_map([make_cell(1000, 0.0, 0.5)])
    lines = summary_csv({"one": one, "two": two}, version="000000").splitlines()
    assert [line.split(",")[4:] for line in lines[1:]] == [["100.00", "50.00"], ["100.00", "-"]]


@pytest.mark.parametrize(
    ("depth", "name"), [(0.29, "29"), (0.57, "57"), (0.58, "58"), (0.0294, "2")]
)
def test_depths_are_cut_to_whole_percents_without_binary_noise(
    make_map: Any, make_cell: Any, depth: float, name: str
) -> None:
    assert f"Depth{name}," in summary_csv({"m": make_map([make_cell(1000, depth, 1.0)])})


def test_depths_that_would_share_a_name_keep_their_decimals(make_map: Any, make_cell: Any) -> None:
    """A sigmoid grid cut to whole percents gives two rows one name, and the plot averages them."""
    table = summary_csv(
        {"m": make_map([make_cell(1000, 0.01273, 1.0), make_cell(1000, 0.01604, 0.0)])}
    )
    assert "Depth1.273," in table
    assert "Depth1.604," in table


def test_the_version_names_the_test_not_the_model(make_map: Any, make_cell: Any) -> None:
    cells = [make_cell(1000, 0.0, 1.0)]
    same, other = make_map(cells, model="b"), make_map(cells, task="multi")
    versions = [
        summary_csv({"m": each}).splitlines()[1].split(",")[1]
        for each in (make_map(cells), same, other)
    ]
    assert versions[0] == versions[1] != versions[2]


def test_maps_of_different_tests_do_not_share_a_table(make_map: Any, make_cell: Any) -> None:
    cells = [make_cell(1000, 0.0, 1.0)]
    with pytest.raises(SettingsError, match="one test, got 2"):
        summary_csv({"a": make_map(cells), "b": make_map(cells, task="multi")})


def test_the_text_equals_what_opencompass_wrote(
    shared: Path, make_map: Any, make_cell: Any
) -> None:
    """All three tables of its summary .txt, to the byte."""
    folder = shared / "vectors" / "opencompass" / "summary_example"
    text = (folder / "summary_20231216_161457.txt").read_text()
    maps: dict[str, Map] = {}
    for model, lines in re.findall(r"Model: (\S+)\n((?:CDME.*\n)+)", text):
        rows = re.findall(r"Length(\d+)Depth(\d+): \{(?:'score': (.*))?\}", lines)
        cells = [
            make_cell(int(n), int(d) / 100, float(score) / 100 if score else None)
            for n, d, score in rows
        ]
        maps[model] = make_map(cells)
    made = datetime(2023, 12, 16, 16, 14, 57)
    assert summary_txt(maps, made, version="fd5822") == text


@pytest.mark.parametrize(
    ("model", "label", "name"),
    [
        ("openai/my-model", "", "my-model"),
        ("openai/org/my-model", "", "my-model"),
        ("hf/./tiny", "", "tiny"),
        ("hf/C:\\models\\tiny", "", "C__models_tiny"),
        ("python/module:answer", "", "module_answer"),
        ("openai/my-model", "internlm-chat-20b-hf", "internlm-chat-20b-hf"),
        ("openai/my-model", "a/b,c", "a_b_c"),
    ],
)
def test_a_models_name_may_be_part_of_a_files_name(model: str, label: str, name: str) -> None:
    """OpenCompass's plotting script ended with FileNotFoundError: a slash stood in the column's
    name."""
    assert column_names([named(model, label)], ["runs/r"]) == [name]


def test_no_two_columns_have_one_name() -> None:
    same = [named("openai/m"), named("hf/x/m"), named("hf/x/m")]
    assert column_names(same, ["a/r", "b/r", "c"]) == ["m@a_r", "m@b_r", "m@c"]
    assert column_names([named("a", "x:y"), named("b", "x|y")], ["r", "r"]) == [
        "x_y@r",
        "x_y@r-2",
    ]


@pytest.mark.parametrize("name", ["=1+1", "@x", "a\u2028=1", "a\x0b=1", "-2"])
def test_no_name_is_a_formula_or_a_line(mixed: Map, name: str) -> None:
    header = summary_csv({name: mixed}).splitlines()[0].split(",")
    assert len(header) == 5
    assert header[-1][0] in "_a"


def test_a_comma_in_a_name_cannot_add_a_column(mixed: Map) -> None:
    assert summary_csv({"a,b": mixed}).splitlines()[0].endswith(",mode,a_b")
