"""Parquet: what pyarrow and pandas read back."""

from __future__ import annotations

import io
import sys

import pytest

from needlemap.errors import NeedlemapError
from needlemap.reports.table import DataTable, parquet_bytes
from needlemap.stats.table_schema import CELLS, TRIALS, DataColumn

COLUMNS = (
    DataColumn("a", "text", "a word"),
    DataColumn("b", "whole number", "a count"),
    DataColumn("c", "number", "a share"),
)
KINDS = {"text": "string", "whole number": "int64", "number": "double"}


@pytest.fixture
def parquet():
    return pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")


def test_values_and_unknown_ones_come_back_as_they_were(parquet):
    rows = (("=1+1", 3, 0.25), (None, None, None), ("\u0000 é\n", 2**62, 1.0))
    read = parquet.read_table(io.BytesIO(parquet_bytes(DataTable(COLUMNS, rows))))
    assert [tuple(row.values()) for row in read.to_pylist()] == list(rows)


@pytest.mark.parametrize("columns", [CELLS, TRIALS])
def test_each_column_has_its_kind_and_says_what_it_means_even_without_rows(parquet, columns):
    schema = parquet.read_schema(io.BytesIO(parquet_bytes(DataTable(columns, ()))))
    assert schema.names == [column.name for column in columns]
    assert [str(kind) for kind in schema.types] == [KINDS[column.kind] for column in columns]
    assert [schema.field(column.name).metadata[b"description"].decode() for column in columns] == [
        column.meaning for column in columns
    ]


@pytest.mark.usefixtures("parquet")
def test_pandas_reads_it():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.read_parquet(
        io.BytesIO(parquet_bytes(DataTable(COLUMNS, (("x", 1, 0.5), ("y", None, None)))))
    )
    assert list(frame.columns) == ["a", "b", "c"]
    assert frame["c"].isna().tolist() == [False, True]


@pytest.mark.usefixtures("parquet")
def test_a_seed_beyond_64_bits_is_said():
    with pytest.raises(
        NeedlemapError, match=r"too large for Parquet\. Give a name that ends in \.csv"
    ):
        parquet_bytes(DataTable(COLUMNS, (("x", 2**64, 0.5),)))


def test_without_pyarrow_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(NeedlemapError, match=r"Run: python3 \-m pip install 'pyarrow>=17'"):
        parquet_bytes(DataTable(COLUMNS, ()))
