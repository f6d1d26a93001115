"""A run in an experiment tracker: settings, scalars, the figure, the table of cells.

`wandb:PROJECT` needs wandb (extra), which sends to where its user is logged in, or keeps the
run for later (WANDB_MODE=offline). `tensorboard:FOLDER` writes an event file and needs the
tensorboard package (extra), neither torch nor TensorFlow. Both get the content of `Logged`: no
host, no program, no code, no Git state.
"""

from __future__ import annotations

import io
import os
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError, SettingsError, did_you_mean
from needlemap.extras import install_line
from needlemap.files import folder_names
from needlemap.grid import percent
from needlemap.records.loaded import Loaded
from needlemap.records.record import costs_of
from needlemap.records.run_file import RunFile
from needlemap.reports.figures.figure import Figure, Shown, draw
from needlemap.reports.labels import percent_of, unique_names
from needlemap.reports.page.payload import fact_rows, value_text
from needlemap.reports.summary import held_by
from needlemap.reports.table import DataTable, cells_table, markdown_table, plain_markdown
from needlemap.stats.effective import RULES, effective_length
from needlemap.text import printable


@dataclass(frozen=True, slots=True)
class Logged:
    """name: of the run, by its model and folder. config: settings and versions, no secret in
    it.

    scalars: scores in percent; lengths in tokens. figure: the map as PNG.
    """

    name: str
    config: dict[str, str | int | float | bool]
    scalars: dict[str, float]
    figure: bytes
    cells: DataTable


def logged(
    run: Loaded,
    name: str,
    title: str | None = None,
    palette: str | None = None,
    rules: tuple[str, ...] = RULES,
) -> Logged:
    """All of it. rules: of effective length. Raises SettingsError for an unknown palette."""
    figure = Figure((Shown(run.map, title or run.about.title),), palette=palette)
    return Logged(
        name,
        dict(_config(run.about)),
        {name: float(value) for name, value in _scalars(run, rules) if value is not None},
        draw(figure).png,
        cells_table([run]),
    )


def _config(about: RunFile) -> Iterator[tuple[str, str | int | float | bool]]:
    """Versions and hashes, then settings: numbers as they are, to be sorted by; all else as
    text."""
    yield from ((f"about/{name}", text) for name, text in fact_rows(about))
    for name, value in about.settings.items():
        yield name, value if isinstance(value, bool | int | float) else value_text(name, value)


def _scalars(run: Loaded, rules: tuple[str, ...]) -> Iterator[tuple[str, float | None]]:
    """A length's name is its tokens, which stay the same whatever other lengths a run has."""
    mean, records = run.map.total, run.records
    if mean is not None:
        yield from (("score/overall", percent(mean.score)), ("score/n", mean.n))
        yield from (("score/low", percent_of(mean.low)), ("score/high", percent_of(mean.high)))
    for length, score in run.map.by_length.items():
        yield f"score_at_length/{length}", percent_of(score)
    yield from _effective(run, rules)
    yield "trials/scored", sum(record.scored for record in records)
    yield "trials/missing", run.map.missing
    costs = costs_of(records)
    yield from (
        (f"tokens/{name}", costs[f"{name}_tokens"]) for name in ("prompt", "cached", "completion")
    )
    yield from (("usd", costs["usd"]), ("usd_judge", costs["judge_usd"]))


def _effective(run: Loaded, rules: tuple[str, ...]) -> Iterator[tuple[str, float | None]]:
    """Effective lengths, the longest tested where the score holds that far; 0 where it never
    did."""
    for found in held_by(partial(effective_length, run.cube), rules):
        if found.value is not None:
            rule, value = found.rule, min(found.value, found.longest)
            name = f"effective_length/{rule.name.replace(':', '_')}"
            yield name, percent(found.value) if rule.kind == "auc" else value


_ENVIRONMENT = {
    "WANDB_SILENT": "true",
    "WANDB_ERROR_REPORTING": "false",
}  # read when wandb is imported
_NOT_TOLD: dict[str, Any] = {  # what wandb would send beside what it is given
    "console": "off",
    "disable_code": True,
    "disable_git": True,
    "host": "",
    "x_disable_machine_info": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
}


def log_wandb(runs: Sequence[Logged], project: str, step: int) -> list[str]:
    """Log each as a new run of PROJECT or ENTITY/PROJECT; their addresses, or what to type to
    send them.

    Raises NeedlemapError when wandb is not installed, nobody is logged in, or the project is
    refused.
    """
    for variable, value in _ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    try:
        import PIL.Image
        import wandb
    except ImportError:
        raise NeedlemapError(f"--log wandb needs wandb. Run: {install_line('wandb')}") from None
    try:
        return [_log(wandb, PIL.Image, run, project, step) for run in runs]
    except wandb.Error as error:
        said = " ".join(str(error).split())
        raise NeedlemapError(
            f"Weights & Biases: {said} To keep runs on this machine instead, set "
            f"WANDB_MODE=offline."
        ) from None


def _log(wandb: Any, image: Any, run: Logged, project: str, step: int) -> str:
    entity, _, name = project.rpartition("/")
    session = wandb.init(
        project=name,
        entity=entity or None,
        name=run.name,
        job_type="needlemap",
        config={**run.config, "step": step},
        settings=wandb.Settings(**_NOT_TOLD),
        reinit="create_new",  # several runs of one command are runs there too
    )
    figure = wandb.Image(image.open(io.BytesIO(run.figure)))
    columns = [column.name for column in run.cells.columns]
    cells = wandb.Table(
        columns=columns, data=[list(row) for row in run.cells.rows], allow_mixed_types=True
    )
    session.log({**run.scalars, "map": figure, "cells": cells}, step=step)
    session.finish()
    if session.offline:
        return f"wandb sync {shlex.quote(os.path.relpath(Path(session.dir).parent))}"
    return str(session.url)


def log_tensorboard(runs: Sequence[Logged], folder: str, step: int) -> list[str]:
    """Add an event file to a folder, of several runs to a folder each in it; what to type to
    see them.

    Raises NeedlemapError when tensorboard is not installed.
    """
    names = folder_names([run.name for run in runs], keep="@") if len(runs) > 1 else [""]
    for run, name in zip(runs, names, strict=True):
        _write(run, Path(folder, name), step)
    return [f"tensorboard --logdir {shlex.quote(folder)}"]


def _write(run: Logged, folder: Path, step: int) -> None:
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        raise NeedlemapError(
            f"--log tensorboard needs the tensorboard package. Run: {install_line('tensorboard')}"
        ) from None
    writer, now = EventFileWriter(str(folder)), time.time()
    for value in _values(run):
        writer.add_event(Event(wall_time=now, step=step, summary=Summary(value=[value])))
    writer.close()


def _values(run: Logged) -> Iterator[Any]:
    from tensorboard.compat.proto.summary_pb2 import Summary

    for name, number in run.scalars.items():
        yield Summary.Value(tag=name, simple_value=number)
    width, height = (
        int.from_bytes(run.figure[at : at + 4], "big") for at in (16, 20)
    )  # a PNG's header
    image = Summary.Image(width=width, height=height, colorspace=4, encoded_image_string=run.figure)
    yield Summary.Value(tag="map", image=image)
    yield _text("cells", _cells(run.cells))
    yield _text(
        "settings",
        markdown(("setting", "value"), [(name, str(run.config[name])) for name in run.config]),
    )


def _cells(table: DataTable) -> str:
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
    tensor = TensorProto(
        dtype=DT_STRING, string_val=[text.encode("utf-8", "replace")], tensor_shape=shape
    )
    return Summary.Value(tag=tag, metadata=metadata, tensor=tensor)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose values are plain text."""
    first, *others = ([plain_markdown(text) for text in row] for row in (head, *rows))
    return markdown_table(first, others)


TRACKERS: dict[str, Callable[[Sequence[Logged], str, int], list[str]]] = {
    "tensorboard": log_tensorboard,
    "wandb": log_wandb,
}
WRITTEN = "--log wandb:PROJECT or --log tensorboard:FOLDER"


@dataclass(frozen=True, slots=True)
class Tracker:
    """kind: a name of TRACKERS; place: the project, or the folder."""

    kind: str
    place: str


def parse_tracker(text: str) -> Tracker:
    """From KIND:PLACE. Raises SettingsError.

    >>> parse_tracker("wandb:team/needles")
    Tracker(kind='wandb', place='team/needles')
    """
    kind, _, place = text.partition(":")
    if kind not in TRACKERS:
        raise SettingsError(
            f"Cannot log to '{kind}'. {did_you_mean(kind, TRACKERS)} Write {WRITTEN}."
        )
    if not place:
        raise SettingsError(
            f"Log to which {'folder' if kind == 'tensorboard' else 'project'}? Write {WRITTEN}."
        )
    return Tracker(kind, place)


def log_runs(
    runs: Sequence[Loaded],
    tracker: Tracker,
    step: int,
    *,
    title: str | None = None,
    palette: str | None = None,
    rules: tuple[str, ...] = RULES,
) -> list[str]:
    """Log runs, each by its model's name; where they are, or what to type to see them."""
    names = unique_names([run.map.model for run in runs], [Path(run.path) for run in runs])
    names = [printable(name, line=True) for name in names]
    told = [logged(run, name, title, palette, rules) for run, name in zip(runs, names, strict=True)]
    return TRACKERS[tracker.kind](told, tracker.place, step)
