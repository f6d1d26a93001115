"""A run as TensorBoard's event file. Needs the tensorboard package (extra), neither torch nor TensorFlow."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.reports.logged import Logged
from needlemap.reports.table import Table

_MARKUP = frozenset(r"\`*_{}[]<>()#+-.!|&~:")


def log_tensorboard(runs: Sequence[Logged], folder: str, step: int) -> list[str]:
    """Add an event file to a folder, of several runs to a folder each in it; what to type to see them.

    Raises NeedlemapError when tensorboard is not installed.
    """
    for run in runs:
        _write(run, Path(folder, run.name.replace("/", "-")) if len(runs) > 1 else Path(folder), step)
    return [f"tensorboard --logdir {shlex.quote(folder)}"]


def _write(run: Logged, folder: Path, step: int) -> None:
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        raise NeedlemapError(
            "--log tensorboard needs the tensorboard package. Run: pip install 'needlemap[tensorboard]'"
        ) from None
    writer, now = EventFileWriter(str(folder)), time.time()
    for value in _values(run):
        writer.add_event(Event(wall_time=now, step=step, summary=Summary(value=[value])))
    writer.close()


def _values(run: Logged) -> Iterator[Any]:
    from tensorboard.compat.proto.summary_pb2 import Summary

    for name, number in run.scalars.items():
        yield Summary.Value(tag=name, simple_value=number)
    width, height = (int.from_bytes(run.figure[at : at + 4], "big") for at in (16, 20))  # a PNG's header
    image = Summary.Image(width=width, height=height, colorspace=4, encoded_image_string=run.figure)
    yield Summary.Value(tag="map", image=image)
    yield _text("cells", _cells(run.cells))
    yield _text(
        "settings", markdown(("setting", "value"), [(name, str(run.config[name])) for name in run.config])
    )


def _cells(table: Table) -> str:
    rows = [["" if value is None else str(value) for value in row] for row in table.rows]
    return markdown([column.name for column in table.columns], rows)


def _text(tag: str, text: str) -> Any:
    """A text as the text dashboard wants it: a tensor of one string."""
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING

    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    tensor = TensorProto(dtype=DT_STRING, string_val=[text.encode("utf-8", "replace")], tensor_shape=shape)
    return Summary.Value(tag=tag, metadata=metadata, tensor=tensor)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose values are plain text: no link, no picture, no HTML."""
    lines = [map(_plain, head), ["---"] * len(head), *(map(_plain, row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _plain(text: str) -> str:
    flat = " ".join(text.split())
    return "".join(f"\\{letter}" if letter in _MARKUP else letter for letter in flat)
