"""Log runs to an experiment tracker: settings, scalars, the figure, and the table of cells.

`wandb:PROJECT` needs wandb (extra), which sends to where its user is logged in, or keeps the
run for later (WANDB_MODE=offline). `tensorboard:FOLDER` writes an event file and needs the
tensorboard package (extra), but neither torch nor TensorFlow. Both get the content of `Logged`: no
host, no program, no code, no Git state.
"""

from __future__ import annotations

import io
import os
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
from needlemap.reports.seek_report import seek_result_of, seeks
from needlemap.reports.summary import effective_lengths_of
from needlemap.reports.table import DataTable, cells_table, escape_markdown, markdown_table
from needlemap.stats.effective import RULES
from needlemap.text import printable


@dataclass(frozen=True, slots=True)
class Logged:
    """What is logged of a run.

    Attributes:
        name: The run's name, which comes from its model and folder.
        config: Settings and versions, without secrets.
        scalars: Scores in percent, lengths in tokens.
        figure: The map as PNG.
        cells: The table of cells.
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
    """Return what is logged of a run.

    rules: of effective length. Raises SettingsError for an unknown palette or rule.
    """
    figure = Figure((Shown(run.map, title or run.about.title),), palette=palette)
    return Logged(
        name=name,
        config=dict(_config(run.about)),
        scalars={tag: float(value) for tag, value in _scalars(run, rules) if value is not None},
        figure=draw(figure).png,
        cells=cells_table([run]),
    )


def _config(about: RunFile) -> Iterator[tuple[str, str | int | float | bool]]:
    """Yield versions and hashes, then settings.

    Numbers stay numbers, so that trackers can sort by them. Everything else becomes a text.
    """
    for name, text in fact_rows(about):
        yield f"about/{name}", text
    for name, value in about.settings.items():
        if isinstance(value, bool | int | float):
            yield name, value
        else:
            yield name, value_text(name, value)


def _scalars(run: Loaded, rules: tuple[str, ...]) -> Iterator[tuple[str, float | None]]:
    """Yield scalars by name.

    A length is named by its tokens, so the name does not depend on a run's other lengths.
    """
    yield from _sought(run) if seeks(run) else _scores(run, rules)
    yield "trials/scored", sum(record.scored for record in run.records)
    yield "trials/missing", run.map.missing
    costs = costs_of(run.records)
    for name in ("prompt", "cached", "completion"):
        yield f"tokens/{name}", costs[f"{name}_tokens"]
    yield "usd", costs["usd"]
    yield "usd_judge", costs["judge_usd"]


def _scores(run: Loaded, rules: tuple[str, ...]) -> Iterator[tuple[str, float | None]]:
    """Yield the scores of a run, and how far they hold."""
    mean = run.map.total
    if mean is not None:
        yield "score/overall", percent(mean.score)
        yield "score/n", mean.n
        yield "score/low", percent_of(mean.low)
        yield "score/high", percent_of(mean.high)
    for length, score in run.map.by_length.items():
        yield f"score_at_length/{length}", percent_of(score)
    yield from _effective_lengths(run, rules)


def _sought(run: Loaded) -> Iterator[tuple[str, float | None]]:
    """Yield the length that a run sought, with its interval, within the lengths tested.

    It samples lengths unevenly, so it has no scores.
    """
    sought = seek_result_of(run)
    if sought is None:
        return
    longest = sought.axis.lengths[-1]
    for name, end in (("length", sought.point), ("low", sought.low), ("high", sought.high)):
        yield f"sought/{name}", None if end is None else min(end, longest)


def _effective_lengths(run: Loaded, rules: tuple[str, ...]) -> Iterator[tuple[str, float | None]]:
    """Yield how far the score holds, by rule.

    If the score holds at all tested lengths, yield the longest; if it never did, yield 0.
    """
    for effective in effective_lengths_of(run, rules):
        if effective.value is None:
            continue
        name = f"effective_length/{effective.rule.name.replace(':', '_')}"
        if effective.rule.kind == "auc":
            yield name, percent(effective.value)
        else:
            yield name, min(effective.value, effective.longest)


# wandb reads these when it is imported.
_ENVIRONMENT = {
    "WANDB_SILENT": "true",
    "WANDB_ERROR_REPORTING": "false",
}
# Without these settings wandb would send more than it is given.
_QUIET_SETTINGS: dict[str, Any] = {
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
    """Log each run as a new one of a project, and return their addresses.

    If wandb works offline, return what to type to send them. project: PROJECT or ENTITY/PROJECT.
    Raises NeedlemapError if wandb is not installed, nobody is logged in, or the project is refused.
    """
    for variable, value in _ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    try:
        import PIL.Image
        import wandb
    except ImportError:
        raise NeedlemapError(f"--log wandb needs wandb. Run: {install_line('wandb')}") from None
    try:
        return [_log(wandb, PIL.Image, run=run, project=project, step=step) for run in runs]
    except wandb.Error as error:
        reason = " ".join(str(error).split())
        raise NeedlemapError(
            f"Weights & Biases: {reason} To keep runs on this machine instead, set "
            f"WANDB_MODE=offline."
        ) from None


def _log(wandb: Any, image: Any, *, run: Logged, project: str, step: int) -> str:
    """Log a run, and return its address, or what to type to send it."""
    entity, _, name = project.rpartition("/")
    session = wandb.init(
        project=name,
        entity=entity or None,
        name=run.name,
        job_type="needlemap",
        config={**run.config, "step": step},
        settings=wandb.Settings(**_QUIET_SETTINGS),
        # Otherwise wandb would put all runs of one command into one.
        reinit="create_new",
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
    """Add an event file to a folder, and return what to type to see it.

    Several runs get a folder each inside. Raises NeedlemapError if tensorboard is not installed.
    """
    names = [""]
    if len(runs) > 1:
        names = folder_names([run.name for run in runs], keep="@")
    for run, name in zip(runs, names, strict=True):
        _write(run, Path(folder, name), step=step)
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
    writer = EventFileWriter(str(folder))
    now = time.time()
    for value in _summary_values(run):
        writer.add_event(Event(wall_time=now, step=step, summary=Summary(value=[value])))
    writer.close()


def _summary_values(run: Logged) -> Iterator[Any]:
    from tensorboard.compat.proto.summary_pb2 import Summary

    for name, number in run.scalars.items():
        yield Summary.Value(tag=name, simple_value=number)
    image = Summary.Image(
        # The header of a PNG holds its size in these bytes.
        width=int.from_bytes(run.figure[16:20], "big"),
        height=int.from_bytes(run.figure[20:24], "big"),
        # RGBA.
        colorspace=4,
        encoded_image_string=run.figure,
    )
    yield Summary.Value(tag="map", image=image)
    yield _text_value("cells", _cells_text(run.cells))
    settings = [(name, str(value)) for name, value in run.config.items()]
    yield _text_value("settings", markdown(("setting", "value"), settings))


def _cells_text(table: DataTable) -> str:
    rows = [["" if value is None else str(value) for value in row] for row in table.rows]
    return markdown([column.name for column in table.columns], rows)


def _text_value(tag: str, text: str) -> Any:
    """Return a text as the text dashboard reads it: a tensor of one string."""
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
    """Return a Markdown table whose values are plain text."""
    plain_head = [escape_markdown(text) for text in head]
    plain_rows = [[escape_markdown(text) for text in row] for row in rows]
    return markdown_table(plain_head, plain_rows)


TRACKERS: dict[str, Callable[[Sequence[Logged], str, int], list[str]]] = {
    "tensorboard": log_tensorboard,
    "wandb": log_wandb,
}
WRITTEN = "--log wandb:PROJECT or --log tensorboard:FOLDER"


@dataclass(frozen=True, slots=True)
class Tracker:
    """An experiment tracker, as it was typed.

    Attributes:
        kind: A name of TRACKERS.
        place: The project, or the folder.
    """

    kind: str
    place: str


def parse_tracker(text: str) -> Tracker:
    """Return the tracker of KIND:PLACE.

    Raises SettingsError if the kind is unknown or the place is missing.

    >>> parse_tracker("wandb:team/needles")
    Tracker(kind='wandb', place='team/needles')
    """
    kind, _, place = text.partition(":")
    if kind not in TRACKERS:
        raise SettingsError(
            f"Cannot log to '{kind}'. {did_you_mean(kind, TRACKERS)} Write {WRITTEN}."
        )
    if not place:
        noun = "folder" if kind == "tensorboard" else "project"
        raise SettingsError(f"Log to which {noun}? Write {WRITTEN}.")
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
    """Log runs by the names of their models, and return where they are or how to see them."""
    names = unique_names([run.map.model for run in runs], [Path(run.path) for run in runs])
    contents = [
        logged(run, printable(name, line=True), title=title, palette=palette, rules=rules)
        for run, name in zip(runs, names, strict=True)
    ]
    return TRACKERS[tracker.kind](contents, tracker.place, step)
