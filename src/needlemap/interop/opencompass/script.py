"""OpenCompass' first needle test: a script that writes all prompts of a grid to files.

Nothing is shuffled: one pass over a file's lines for each cell makes its records. Unlike the
original it deletes nothing: files of the same name are replaced, others stay. Depth lists, in
percent, are those of both versions, which differ only in the last value of some lists.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from needlemap.errors import SettingsError, did_you_mean
from needlemap.grid import DEPTH_SCALES, sigmoid, spaced
from needlemap.interop.formulas import chained_positions
from needlemap.interop.opencompass.prompts import TokenLines, Wording, context, read
from needlemap.text import whole_characters
from needlemap.text.tokens import Span, TokenText, join
from needlemap.tokenizers import load as load_tokenizer

LAYOUTS = ("folders", "processed")
Row = dict[str, Any]


def depth_percents(intervals: int, interval_type: str = "linear") -> list[float]:
    """As the dynamic data sets make them: `0 + step * i`, so that some lists end just below
    100.

    'sigmoid' sends that list through a logistic curve, ends included, rounded to 3 decimals.

    >>> depth_percents(3), depth_percents(98)[-1], depth_percents(3, "sigmoid")
    ([0.0, 50.0, 100.0], 99.99999999999999, [0.669, 50.0, 99.331])
    """
    _check(intervals, interval_type)
    step = 100 / (intervals - 1) if intervals > 1 else 0.0
    return _curved([step * place for place in range(intervals)], interval_type)


def script_depth_percents(intervals: int, interval_type: str = "linear") -> list[float]:
    """As the first version's script makes them: the last value of a linear list is exactly
    100.

    >>> script_depth_percents(98)[-1]
    100.0
    """
    _check(intervals, interval_type)
    return _curved(spaced(0, 100, intervals), interval_type)


def _curved(linear: list[float], interval_type: str) -> list[float]:
    return (
        [sigmoid(value, ends="squash") for value in linear]
        if interval_type == "sigmoid"
        else linear
    )


def _check(intervals: int, interval_type: str) -> None:
    if intervals < 1:
        raise SettingsError(f"intervals must be at least 1, got {intervals}.")
    if interval_type not in DEPTH_SCALES:
        raise SettingsError(
            f"Unknown interval type '{interval_type}'. {did_you_mean(interval_type, DEPTH_SCALES)}"
        )


@dataclass(frozen=True, slots=True)
class _Script:
    """What all cells have in common. room: haystack tokens to leave off each length."""

    needle: TokenText
    answer: str
    question: str
    wording: Wording
    records: int
    room: int

    def rows(self, lines: TokenLines, length: int, depth: float) -> Iterator[Row]:
        """A cell's rows, in file order."""
        for background in backgrounds(lines, length - self.room, self.records):
            points = chained_positions(depth / 100, [len(self.needle)], len(background), 0)
            text = context(background, points, [self.needle])
            yield {"prompt": self.wording.filled(text, self.question), "answer": self.answer}


def generate(
    path: str | Path,
    out: str | Path,
    context_lengths: Sequence[int],
    document_depth_percent_intervals: int,
    needle: str,
    retrieval_question: str,
    guided: bool,
    num_records_per_file: int,
    length_buffer: int,
    tokenizer_model: str,
    file_list: Sequence[str],
    template: Mapping[str, str] | None = None,
    interval_type: str = "linear",
    layout: Literal["folders", "processed"] = "folders",
) -> tuple[Path, ...]:
    """Write the grid's prompts below `out`; returns the files written.

    layout 'folders' (20 December 2023): Length{L}Depth{D}/{stem}_Length{L}_Depth{D}.jsonl,
    rows {"prompt", "answer"}. 'processed' (29 December 2023): {stem}_processed.jsonl, rows
    also {"length", "depth"}. D is the depth cut to a whole number; needles go to the uncut
    depth. template: {"prompt", "guided_suffix"}, the suffix behind the question when guided;
    None: our own words, in Chinese. Raises NeedlemapError.
    """
    if layout not in LAYOUTS:
        raise SettingsError(f"Unknown layout '{layout}'. {did_you_mean(layout, LAYOUTS)}")
    depths = script_depth_percents(document_depth_percent_intervals, interval_type)
    tokenizer = load_tokenizer(tokenizer_model)
    wording = Wording.of(template, "Chinese")
    question = retrieval_question + (_suffix(wording) if guided else "")
    text = tokenizer.index(whole_characters(needle).encode())
    script = _Script(
        text, needle, question, wording, num_records_per_file, length_buffer + len(text)
    )
    write = _write_folders if layout == "folders" else _write_processed
    written: list[Path] = []
    for file in file_list:
        source = Path(path) / file
        cells = [(length, depth) for length in context_lengths for depth in depths]
        written += write(Path(out), source.stem, script, read(source, tokenizer), cells)
    return tuple(written)


def backgrounds(lines: TokenLines, target: int, most: int) -> Iterator[Span]:
    """Haystack pieces in file order: whole lines until there are `target` tokens, what is over
    thrown away.

    The last, unfinished piece is dropped. A negative target takes tokens off the end of every
    line.
    """
    taken: list[TokenText] = []
    total = made = 0
    for line in lines.texts:
        if made == most:
            return
        taken.append(line)
        total += len(line)
        if total >= target:
            yield join(taken).span(0, target if target >= 0 else max(0, total + target))
            taken, total, made = [], 0, made + 1


def _suffix(wording: Wording) -> str:
    if not wording.guided_suffix:
        raise SettingsError(
            "guided is on, but the template has no 'guided_suffix'. Add one, or pass guided=False."
        )
    return wording.guided_suffix


def _write_folders(
    out: Path, stem: str, script: _Script, lines: TokenLines, cells: Sequence[tuple[int, float]]
) -> list[Path]:
    files: dict[Path, float] = {}
    for length, depth in cells:
        name = f"{stem}_Length{length}_Depth{int(depth)}.jsonl"
        file = out / f"Length{length}Depth{int(depth)}" / name
        if file in files:
            warnings.warn(
                f"{file}: depth {depth} replaces {files[file]}, as in the original.", stacklevel=3
            )
        files[file] = depth
        _write(file, script.rows(lines, length, depth))
    return list(files)


def _write_processed(
    out: Path, stem: str, script: _Script, lines: TokenLines, cells: Sequence[tuple[int, float]]
) -> list[Path]:
    file = out / f"{stem}_processed.jsonl"
    _write(
        file,
        (
            row | {"length": length, "depth": int(depth)}
            for length, depth in cells
            for row in script.rows(lines, length, depth)
        ),
    )
    return [file]


def _write(file: Path, rows: Iterator[Row]) -> None:
    """Write rows beside the file, then put them in its place."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    with beside.open("w", encoding="utf-8", newline="\n") as sink:
        sink.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    beside.replace(file)
