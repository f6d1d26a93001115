"""RULER's results as rows: predictions and summaries of NVIDIA/RULER, and the output of NeMo
Skills, which asks RULER's prompts.

A file of either is of one test at one length, which its folder names: MODEL/synthetic/LENGTH/pred/
TEST.jsonl, and eval-results/ruler.SETUP_LENGTH.TEST/output.jsonl. Elsewhere each prompt has the
length that its line says. Predictions hold no score: they are scored by RULER's own rule, the
share of the right texts that the answer holds, of tests named `qa` whether it holds one.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.grid import MOST_TOKENS
from needlemap.interop.logs import (
    BY_LENGTH,
    Log,
    hash_of,
    number_of,
    samples_in,
    score_of,
    shown,
    text_of,
)
from needlemap.interop.result_row import UNIT, Fields, ResultRow
from needlemap.scorers import Scale
from needlemap.untrusted import clean_count

RULER, NEMO = "RULER", "NeMo Skills"
OUTPUT = re.compile(r"output(-rs(?P<seed>\d{1,6}))?\.jsonl")
_PERCENT: Scale = (0.0, 100.0)
_CHUNK = re.compile(r"-\d+$")
_CONTROL = re.compile(r"[\x00-\x1f]")
_ENDING = re.compile(r"[-_](\d{3,8}|\d{1,4}[km])$", re.IGNORECASE)
_NEMO_METRICS = ("is_correct", "symbolic_correct", "judge_correct", "seq_match_ratio")


def is_predictions(said: Mapping[str, Any]) -> bool:
    """Whether a line is one of RULER's predictions."""
    return {"pred", "outputs"} <= said.keys()


def is_nemo(said: Mapping[str, Any]) -> bool:
    """Whether a line is an output of NeMo Skills."""
    return {"generation", "expected_answer"} <= said.keys()


def read_predictions(file: Path) -> Log:
    """The predictions of one test. Raises NeedlemapError."""
    test = _CHUNK.sub("", file.stem)
    folder = _length_folder(file)
    rows, notes = samples_in(file, lambda said, place: _prediction(said, place, test, folder))
    return Log(RULER, _model(folder), test, rows, (*notes, *_own_lengths(file, folder)))


def _own_lengths(file: Path, folder: Path | None) -> list[str]:
    if folder is not None:
        return []
    return [
        f"{file.name}: lengths are each prompt's own: in RULER's folders, LENGTH/pred, they are "
        f"those of the tests"
    ]


def _length_folder(file: Path) -> Path | None:
    """RULER's folder LENGTH that a file lies in; None elsewhere."""
    folder = file.absolute().parent.parent
    is_length = folder.name.isascii() and folder.name.isdecimal()
    return folder if is_length and 0 < int(folder.name[:20]) <= MOST_TOKENS else None


def _model(folder: Path | None) -> str:
    """The model of a folder MODEL/BENCHMARK/LENGTH; '' where it is not known."""
    return "" if folder is None else folder.parent.parent.name


def _prediction(
    said: Mapping[str, Any], place: str, test: str, folder: Path | None
) -> Iterator[ResultRow]:
    fields = Fields(said, place)
    right, answer = _right_texts(said, "outputs", place), said.get("pred")
    if not isinstance(answer, str):
        raise NeedlemapError(f"{place}: field 'pred' must be a text, got {answer!r:.80}.")
    length = int(folder.name) if folder else _length(said)
    yield ResultRow(
        place,
        length,
        0.0,
        None,
        scale=UNIT,
        repeat=fields.whole("index", 0),
        asked=hash_of([test, length, said.get("index"), right]),
        reference=shown(", ".join(right)),
        answer=text_of(answer),
        realised=_depth(said),
        scores={BY_LENGTH: _share(answer, right, any_of=test.startswith("qa"))},
    )


def _right_texts(said: Mapping[str, Any], name: str, place: str) -> list[str]:
    """The right texts of a line. Raises NeedlemapError."""
    value = said.get(name)
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise NeedlemapError(f"{place}: field '{name}' must list texts, got {value!r:.80}.")
    return texts


def _share(answer: str, right: Sequence[str], *, any_of: bool) -> float:
    """RULER's score of an answer.

    >>> _share("It is 42.", ["42", "43"], any_of=False), _share("42", ["42", "43"], any_of=True)
    (0.5, 1.0)
    """
    said = _CONTROL.sub("\n", answer.strip()).strip().lower()
    found = [text.lower() in said for text in right]
    return float(any(found)) if any_of else sum(found) / len(found)


def _length(said: Mapping[str, Any]) -> int:
    """A prompt's own length; 0 where its line does not say it."""
    length = clean_count(said.get("length")) or 0
    return length if length <= MOST_TOKENS else 0


def _depth(said: Mapping[str, Any]) -> float | None:
    """Where the needle stands in percent; None where the line does not say it."""
    place, length = clean_count(said.get("token_position_answer")), _length(said)
    return None if place is None or not 0 <= place <= length or not length else 100 * place / length


def summary_rows(text: str, file: Path) -> list[ResultRow]:
    """Rows of the table that RULER's evaluation writes: tests, their scores in percent, and how
    many answers were empty. Raises NeedlemapError."""
    lines = {row[0]: row[1:] for row in csv.reader(StringIO(text)) if row}
    tests, scores, nulls = (lines.get(name, []) for name in ("Tasks", "Score", "Nulls"))
    folder = _length_folder(file)
    if len(tests) != len(scores):
        raise NeedlemapError(
            f"{file.name}: no summary of RULER: {len(tests)} tests and {len(scores)} scores."
        )
    rows = []
    for column, (test, score) in enumerate(zip(tests, scores, strict=True), 1):
        place = f"{file.name}, column {column + 1}"
        told = nulls[column - 1] if column <= len(nulls) else ""
        asked = told.rpartition("/")[2]
        rows.append(
            ResultRow(
                place,
                int(folder.name) if folder else 0,
                0.0,
                Fields({test: score}, place).number(test),
                model=_model(folder),
                task=test or "single",
                scorer=BY_LENGTH,
                scale=_PERCENT,
                mean=asked != "1",
            )
        )
    return rows


def is_summary(text: str) -> bool:
    """Whether a table is a summary of RULER."""
    lines = text[:100_000].splitlines()[:3]
    return any(line.replace('"', "").startswith("Tasks,") for line in lines)


def read_nemo(file: Path) -> Log:
    """The output of one benchmark. Raises NeedlemapError."""
    benchmark = file.absolute().parent.name
    setup, _, test = benchmark.rpartition(".")
    named = OUTPUT.fullmatch(file.name)
    seed = int(named["seed"] or 0) if named else 0
    rows, notes = samples_in(file, lambda said, place: _nemo_sample(said, place, seed))
    size = _size(setup, [row.length for row in rows])
    if size:
        rows = [replace(row, length=size) for row in rows]
    folder = file.absolute().parent.parent
    above = folder.parent if folder.name in ("eval-results", "tmp-eval-results") else folder
    return Log(NEMO, above.name, test or benchmark or file.stem, rows, tuple(notes))


def _size(setup: str, lengths: Sequence[int]) -> int:
    """The length that a setup is named after (`llama_128k`), if it can be that of these prompts;
    0 if not.

    >>> _size("ruler.llama_4096", [3_900, 4_090]), _size("ruler.llama_4k", [4_090]), _size("x", [9])
    (4096, 4096, 0)
    """
    named = _ENDING.search(setup)
    if named is None or not lengths:
        return 0
    words = named[1].lower()
    number = int(words.rstrip("km"))
    by = {"k": (1_000, 1_024), "m": (1_000_000, 1 << 20)}.get(words[-1], (1,))
    fits = [number * each for each in by if number * each / 2 < max(lengths) <= number * each]
    return fits[-1] if fits else 0


def _nemo_sample(said: Mapping[str, Any], place: str, seed: int) -> Iterator[ResultRow]:
    wanted, answer = said.get("expected_answer"), said.get("generation")
    texts = wanted if isinstance(wanted, list) else [wanted]
    names = [name for name in said if name in _NEMO_METRICS and score_of(said[name]) is not None]
    index = said.get("index", said.get("id"))
    yield ResultRow(
        place,
        _length(said),
        0.0,
        None,
        scale=UNIT,
        version=seed + 1,
        repeat=number_of(index, place),
        asked=hash_of([index, wanted]),
        question="" if "length" in said else shown(said.get("question") or said.get("problem")),
        reference=shown(", ".join(map(str, texts))),
        answer=text_of(answer),
        realised=_depth(said),
        completion_tokens=clean_count(said.get("num_generated_tokens")),
        scores={name: score_of(said[name]) for name in names},
        error="" if names else "not evaluated: no is_correct in the file",
    )
