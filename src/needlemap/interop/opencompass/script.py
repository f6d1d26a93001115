"""Write all prompts of a grid to files, as the script of OpenCompass' first needle test does.

Nothing is shuffled: one pass over a file's lines makes the records of a cell. Unlike the original
it deletes nothing: files of the same name are replaced, and others stay. The depth lists of both
versions, in percent, are here. They differ only in the last value of some lists.
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
    """Return the depths of the dynamic data sets, `0 + step * i`.

    Because of rounding some lists end just below 100. interval_type: 'linear', or 'sigmoid' for
    that list on a logistic curve, its ends included, rounded to 3 decimals. Raises SettingsError if
    an argument is not valid.

    >>> depth_percents(3), depth_percents(98)[-1], depth_percents(3, "sigmoid")
    ([0.0, 50.0, 100.0], 99.99999999999999, [0.669, 50.0, 99.331])
    """
    _check(intervals, interval_type)
    step = 100 / (intervals - 1) if intervals > 1 else 0.0
    return _curved([step * index for index in range(intervals)], interval_type)


def script_depth_percents(intervals: int, interval_type: str = "linear") -> list[float]:
    """Return the depths of the first version's script.

    The last value of a linear list is exactly 100. Raises SettingsError if an argument is not
    valid.

    >>> script_depth_percents(98)[-1]
    100.0
    """
    _check(intervals, interval_type)
    return _curved(spaced(0, 100, intervals), interval_type)


def _curved(linear: list[float], interval_type: str) -> list[float]:
    if interval_type == "sigmoid":
        return [sigmoid(value, ends="squash") for value in linear]
    return linear


def _check(intervals: int, interval_type: str) -> None:
    if intervals < 1:
        raise SettingsError(f"intervals must be at least 1, got {intervals}.")
    if interval_type not in DEPTH_SCALES:
        raise SettingsError(
            f"Unknown interval type '{interval_type}'. {did_you_mean(interval_type, DEPTH_SCALES)}"
        )


@dataclass(frozen=True, slots=True)
class _Script:
    """The settings that all cells share.

    Attributes:
        needle: The needle's tokens.
        answer: The answer of each row.
        question: The question, with the suffix of the wording if there is one.
        wording: The words around haystack and question.
        records: Rows a cell, at most.
        reserved_tokens: Tokens of each length that are not of the haystack.
    """

    needle: TokenText
    answer: str
    question: str
    wording: Wording
    records: int
    reserved_tokens: int

    def rows(self, lines: TokenLines, length: int, depth: float) -> Iterator[Row]:
        """Yield a cell's rows, in file order. length: tokens. depth: percent."""
        for background in backgrounds(lines, length - self.reserved_tokens, most=self.records):
            points = chained_positions(
                depth / 100, [len(self.needle)], haystack_tokens=len(background), step=0
            )
            text = context(background, points, needles=[self.needle])
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
    """Write the grid's prompts below `out`, and return the files written.

    layout: 'folders' (20 December 2023) for Length{L}Depth{D}/{stem}_Length{L}_Depth{D}.jsonl,
    with rows {"prompt", "answer"}; 'processed' (29 December 2023) for {stem}_processed.jsonl, whose
    rows also have {"length", "depth"}. D is the depth cut to a whole number, but needles go to the
    uncut depth. template: {"prompt", "guided_suffix"}, with a suffix that goes behind the question
    if `guided` is set, or None for our own words, in Chinese. Raises NeedlemapError.
    """
    if layout not in LAYOUTS:
        raise SettingsError(f"Unknown layout '{layout}'. {did_you_mean(layout, LAYOUTS)}")
    depths = script_depth_percents(document_depth_percent_intervals, interval_type)
    tokenizer = load_tokenizer(tokenizer_model)
    wording = Wording.of(template, "Chinese")
    question = retrieval_question
    if guided:
        question += _suffix(wording)
    needle_text = tokenizer.index(whole_characters(needle).encode())
    script = _Script(
        needle=needle_text,
        answer=needle,
        question=question,
        wording=wording,
        records=num_records_per_file,
        reserved_tokens=length_buffer + len(needle_text),
    )
    write = _write_folders if layout == "folders" else _write_processed
    cells = [(length, depth) for length in context_lengths for depth in depths]

    files: list[Path] = []
    for name in file_list:
        source = Path(path) / name
        lines = read(source, tokenizer)
        files += write(Path(out), source.stem, script=script, lines=lines, cells=cells)
    return tuple(files)


def backgrounds(lines: TokenLines, target: int, most: int) -> Iterator[Span]:
    """Yield haystack pieces of `target` tokens in file order, `most` pieces at most.

    A piece consists of whole lines; the tokens above `target` at the end of its last line are
    dropped. So is the last, unfinished piece. A negative target takes tokens off the end of every
    line.
    """
    texts: list[TokenText] = []
    total = 0
    pieces = 0
    for line in lines.texts:
        if pieces == most:
            return
        texts.append(line)
        total += len(line)
        if total >= target:
            stop = target if target >= 0 else max(0, total + target)
            yield join(texts).span(0, stop)
            texts = []
            total = 0
            pieces += 1


def _suffix(wording: Wording) -> str:
    if not wording.guided_suffix:
        raise SettingsError(
            "guided is on, but the template has no 'guided_suffix'. Add one, or pass guided=False."
        )
    return wording.guided_suffix


def _write_folders(
    out: Path,
    stem: str,
    *,
    script: _Script,
    lines: TokenLines,
    cells: Sequence[tuple[int, float]],
) -> list[Path]:
    depths_by_file: dict[Path, float] = {}
    for length, depth in cells:
        name = f"{stem}_Length{length}_Depth{int(depth)}.jsonl"
        file = out / f"Length{length}Depth{int(depth)}" / name
        if file in depths_by_file:
            warnings.warn(
                f"{file}: depth {depth} replaces {depths_by_file[file]}, as in the original.",
                stacklevel=3,
            )
        depths_by_file[file] = depth
        _write(file, script.rows(lines, length, depth=depth))
    return list(depths_by_file)


def _write_processed(
    out: Path,
    stem: str,
    *,
    script: _Script,
    lines: TokenLines,
    cells: Sequence[tuple[int, float]],
) -> list[Path]:
    file = out / f"{stem}_processed.jsonl"
    rows = (
        row | {"length": length, "depth": int(depth)}
        for length, depth in cells
        for row in script.rows(lines, length, depth=depth)
    )
    _write(file, rows)
    return [file]


def _write(file: Path, rows: Iterator[Row]) -> None:
    """Write rows next to the file, then move them to its place."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8", newline="\n") as sink:
        sink.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    temporary.replace(file)
