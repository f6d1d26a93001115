"""Read RULER's results as rows: predictions and summaries of NVIDIA/RULER, and the output of NeMo
Skills, which sends RULER's prompts.

A file of either tool is of one test at one length, which the file's folder names: MODEL/synthetic/
LENGTH/pred/TEST.jsonl, and eval-results/ruler.SETUP_LENGTH.TEST/output.jsonl. In any other folder
each prompt has the length that its line states. Tests are families of `suite:ruler`. Predictions
hold no score. They are scored as an answer is here by RULER's rule: the share of the right texts
that the answer holds; for tests named `qa`, 1 if the answer holds any of them.
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
    RULER_SUITE,
    Log,
    hash_of,
    number_of,
    ruler_family,
    sample_id,
    samples_in,
    score_of,
    shown,
    text_of,
)
from needlemap.interop.result_row import UNIT, Fields, ResultRow
from needlemap.scorers import Scale
from needlemap.scorers.words import find_texts
from needlemap.untrusted import clean_count

RULER, NEMO = "RULER", "NeMo Skills"
OUTPUT = re.compile(r"output(-rs(?P<seed>\d{1,6}))?\.jsonl")
_PERCENT: Scale = (0.0, 100.0)
_CHUNK = re.compile(r"-\d+$")
_ENDING = re.compile(r"[-_](\d{3,8}|\d{1,4}[km])$", re.IGNORECASE)
_NEMO_METRICS = ("is_correct", "symbolic_correct", "judge_correct", "seq_match_ratio")


def is_predictions(line: Mapping[str, Any]) -> bool:
    """Return True if a line is one of RULER's predictions."""
    return {"pred", "outputs"} <= line.keys()


def is_nemo(line: Mapping[str, Any]) -> bool:
    """Return True if a line is an output of NeMo Skills."""
    return {"generation", "expected_answer"} <= line.keys()


def read_predictions(file: Path) -> Log:
    """Read the predictions of one test.

    Raises NeedlemapError if a line is not a prediction.
    """
    test = _CHUNK.sub("", file.stem)
    length_folder = _length_folder(file)
    rows, notes = samples_in(
        file,
        lambda line, place: _prediction(line, place, test=test, length_folder=length_folder),
    )
    if length_folder is None:
        notes.append(
            f"{file.name}: lengths are each prompt's own: in RULER's folders, LENGTH/pred, they "
            f"are those of the tests"
        )
    return Log(
        RULER,
        _model(length_folder),
        task=ruler_family(test),
        samples=rows,
        notes=tuple(notes),
        suite=RULER_SUITE,
    )


def _length_folder(file: Path) -> Path | None:
    """Return RULER's folder LENGTH that a file lies in, or None if it lies in another."""
    folder = file.absolute().parent.parent
    if not (folder.name.isascii() and folder.name.isdecimal()):
        return None
    # The first digits are enough to see that a number is too large.
    length = int(folder.name[:20])
    if not 0 < length <= MOST_TOKENS:
        return None
    return folder


def _model(length_folder: Path | None) -> str:
    """Return the model of a folder MODEL/BENCHMARK/LENGTH, or '' if it is not known."""
    if length_folder is None:
        return ""
    return length_folder.parent.parent.name


def _prediction(
    line: Mapping[str, Any],
    place: str,
    *,
    test: str,
    length_folder: Path | None,
) -> Iterator[ResultRow]:
    right_texts = _right_texts(line, "outputs", place)
    answer = line.get("pred")
    if not isinstance(answer, str):
        raise NeedlemapError(f"{place}: field 'pred' must be a text, got {answer!r:.80}.")
    length = int(length_folder.name) if length_folder else _length(line)
    # RULER's tests with needles write over the number of the sample with the answer's place in the
    # prompt, which is -1 if they do not find it, so several prompts can have one index.
    index = Fields(line, place).whole_number("index", least=-1)
    asked = hash_of([test, length, index, right_texts])
    yield ResultRow(
        place,
        length,
        depth_percent=0.0,
        native=None,
        scale=UNIT,
        repeat=number_of(asked, place),
        asked=asked,
        reference=shown(", ".join(right_texts)),
        answer=text_of(answer),
        realised=_depth_percent(line),
        scores={BY_LENGTH: _share(answer, right_texts, any_of=test.startswith("qa"))},
    )


def _right_texts(line: Mapping[str, Any], name: str, place: str) -> list[str]:
    """Return the right texts of a line.

    Raises NeedlemapError if the line does not list texts.
    """
    value = line.get(name)
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise NeedlemapError(f"{place}: field '{name}' must list texts, got {value!r:.80}.")
    return texts


def _share(answer: str, right_texts: Sequence[str], *, any_of: bool) -> float:
    """Return RULER's score of an answer, from 0 to 1, as the scorers have it.

    any_of: one right text is enough for a score of 1.

    >>> _share("It is 42.", ["42", "43"], any_of=False), _share("42", ["42", "43"], any_of=True)
    (0.5, 1.0)
    """
    present, missing = find_texts(answer, right_texts, rule="ruler")
    return float(bool(present)) if any_of else 1 - len(missing) / len(right_texts)


def _length(line: Mapping[str, Any]) -> int:
    """Return a prompt's own length in tokens, or 0 if its line does not state it."""
    length = clean_count(line.get("length"))
    if length is None or length > MOST_TOKENS:
        return 0
    return length


def _depth_percent(line: Mapping[str, Any]) -> float | None:
    """Return where the needle stands, or None if the line does not state it."""
    length = _length(line)
    position = clean_count(line.get("token_position_answer"))
    if position is None or length == 0 or position > length:
        return None
    return 100 * position / length


def summary_rows(text: str, file: Path) -> list[ResultRow]:
    """Return the rows of the table that RULER's evaluation writes.

    The table holds tests, their scores in percent, and how many answers were empty. Raises
    NeedlemapError if it is not such a table.
    """
    values_by_name = {row[0]: row[1:] for row in csv.reader(StringIO(text)) if row}
    tests = values_by_name.get("Tasks", [])
    scores = values_by_name.get("Score", [])
    nulls = values_by_name.get("Nulls", [])
    if len(tests) != len(scores):
        raise NeedlemapError(
            f"{file.name}: no summary of RULER: {len(tests)} tests and {len(scores)} scores."
        )

    length_folder = _length_folder(file)
    rows = []
    for index, (test, score) in enumerate(zip(tests, scores, strict=True)):
        # The names of the table's rows are its first column.
        place = f"{file.name}, column {index + 2}"
        # Empty answers of all answers, e.g. 3/500.
        null_count = nulls[index] if index < len(nulls) else ""
        answer_count = null_count.rpartition("/")[2]
        rows.append(
            ResultRow(
                place,
                length=int(length_folder.name) if length_folder else 0,
                depth_percent=0.0,
                native=Fields({test: score}, place).number(test),
                model=_model(length_folder),
                task=ruler_family(test or "single"),
                suite=RULER_SUITE,
                scorer=BY_LENGTH,
                scale=_PERCENT,
                mean=answer_count != "1",
            )
        )
    return rows


def is_summary(text: str) -> bool:
    """Return True if a table is a summary of RULER."""
    lines = text[:100_000].splitlines()[:3]
    return any(line.replace('"', "").startswith("Tasks,") for line in lines)


def read_nemo(file: Path) -> Log:
    """Read the output of one benchmark of NeMo Skills.

    Raises NeedlemapError if a line is not a sample.
    """
    match = OUTPUT.fullmatch(file.name)
    seed = int(match["seed"] or 0) if match else 0
    rows, notes = samples_in(file, lambda line, place: _nemo_sample(line, place, seed=seed))

    benchmark_folder = file.absolute().parent
    setup, _, test = benchmark_folder.name.rpartition(".")
    length = _setup_length(setup, [row.length for row in rows])
    if length:
        rows = [replace(row, length=length) for row in rows]

    model_folder = benchmark_folder.parent
    if model_folder.name in ("eval-results", "tmp-eval-results"):
        model_folder = model_folder.parent
    task = test or benchmark_folder.name or file.stem
    suite = ""
    if setup.startswith("ruler"):
        task = ruler_family(task)
        suite = RULER_SUITE
    return Log(
        NEMO,
        model_folder.name,
        task=task,
        samples=rows,
        notes=tuple(notes),
        suite=suite,
    )


def _setup_length(setup: str, lengths: Sequence[int]) -> int:
    """Return the length that a setup is named after, e.g. `llama_128k`, in tokens.

    Return 0 if there is none, or if it cannot be that of these prompts: the longest of them must
    fill more than half of it, and fit.

    lengths: of the prompts, in tokens.

    >>> _setup_length("ruler.llama_4096", [3_900, 4_090]), _setup_length("ruler.llama_4k", [4_090])
    (4096, 4096)
    >>> _setup_length("x", [9])
    0
    """
    match = _ENDING.search(setup)
    if match is None or not lengths:
        return 0
    ending = match[1].lower()
    number = int(ending.rstrip("km"))
    # RULER's 4k is 4,000 or 4,096 tokens.
    units_by_suffix = {"k": (1_000, 1_024), "m": (1_000_000, 1 << 20)}
    units = units_by_suffix.get(ending[-1], (1,))
    longest = max(lengths)
    fitting = [number * unit for unit in units if number * unit / 2 < longest <= number * unit]
    if not fitting:
        return 0
    return fitting[-1]


def _nemo_sample(line: Mapping[str, Any], place: str, *, seed: int) -> Iterator[ResultRow]:
    """Yield the row of one sample of NeMo-Skills.

    seed: the one in the name of its file, or 0.
    """
    expected = line.get("expected_answer")
    right_texts = expected if isinstance(expected, list) else [expected]
    id = sample_id(line.get("index", line.get("id")), place)
    # For RULER's prompts, NeMo Skills keeps RULER's index, which several prompts can have.
    asked = hash_of([id, expected])
    question = ""
    # Lines that hold RULER's prompt state its length. Their question would be the whole prompt.
    if "length" not in line:
        question = shown(line.get("question") or line.get("problem"))
    scores = {name: score_of(value) for name, value in line.items() if name in _NEMO_METRICS}
    scores = {name: score for name, score in scores.items() if score is not None}
    yield ResultRow(
        place,
        length=_length(line),
        depth_percent=0.0,
        native=None,
        scale=UNIT,
        version=seed + 1,
        repeat=number_of(asked, place),
        asked=asked,
        question=question,
        reference=shown(", ".join(map(str, right_texts))),
        answer=text_of(line.get("generation")),
        realised=_depth_percent(line),
        completion_tokens=clean_count(line.get("num_generated_tokens")),
        scores=scores,
        error="" if scores else "not evaluated: no is_correct in the file",
    )
