"""A table as Parquet, for pandas, Polars, DuckDB and Spark. Needs pyarrow (extra `parquet`)."""

from __future__ import annotations

import io

from needlemap.errors import NeedlemapError
from needlemap.reports.table import Table
from needlemap.version import __version__


def parquet_bytes(table: Table) -> bytes:
    """The file's content: the table's values unchanged, unknown ones null, each column with its meaning.

    Raises NeedlemapError without pyarrow, and for a seed beyond the 64 bits of Parquet's whole numbers.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise NeedlemapError("A .parquet file needs pyarrow. Run: pip install 'needlemap[parquet]'") from None
    kinds = {"text": pyarrow.string(), "whole number": pyarrow.int64(), "number": pyarrow.float64()}
    fields = [
        pyarrow.field(column.name, kinds[column.kind], metadata={"description": column.meaning})
        for column in table.columns
    ]
    schema = pyarrow.schema(fields, metadata={"needlemap": __version__})
    rows = [dict(zip(schema.names, row, strict=True)) for row in table.rows]
    try:
        made = pyarrow.Table.from_pylist(rows, schema=schema)
    except OverflowError:
        raise NeedlemapError("A number is too large for Parquet. Give a name that ends in .csv.") from None
    out = io.BytesIO()
    pyarrow.parquet.write_table(made, out, compression="zstd")
    return out.getvalue()
