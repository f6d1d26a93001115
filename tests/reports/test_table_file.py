"""Tables on disk, by suffix and format."""

from __future__ import annotations

from dataclasses import replace

import pytest

from needlemap.errors import SettingsError
from needlemap.reports.table import is_table, table_bytes, write_table


@pytest.mark.parametrize(
    ("name", "found"), [("x.csv", True), ("x.PARQUET", True), ("x.png", False), ("x", False)]
)
def test_a_table_is_told_by_its_suffix(name, found):
    assert is_table(name) is found


def test_folders_are_made_and_lines_end_alike_everywhere(loaded, tmp_path):
    path = write_table([loaded], tmp_path / "new" / "x.csv", "trials")
    lines = path.read_bytes().split(b"\n")
    assert len(lines) == 1 + 24 + 1
    assert b"\r" not in path.read_bytes()


@pytest.mark.parametrize("format", ["cells", "trials"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_folder_whose_name_is_no_text_is_named_as_far_as_it_is_one(loaded, suffix, format):
    pytest.importorskip("pyarrow")
    odd = replace(loaded, path="r\udcff")
    assert "r\ufffd".encode() in table_bytes([odd], suffix, format)


def test_opencompass_has_a_column_a_run_and_is_a_csv(loaded):
    assert table_bytes([loaded], ".csv", "opencompass").startswith(
        b"dataset,version,metric,mode,a-model\n"
    )
    with pytest.raises(SettingsError, match=r"ends in \.csv"):
        table_bytes([loaded], ".parquet", "opencompass")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_an_unknown_format_is_said_before_anything_is_written(loaded, tmp_path, suffix):
    with pytest.raises(SettingsError, match="Did you mean 'trials'"):
        write_table([loaded], tmp_path / "new" / f"x{suffix}", "trial")
    assert list(tmp_path.iterdir()) == []
