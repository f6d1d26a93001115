"""Prompts of a published set, from a file that the user brings: asked as they are, with nothing
hidden.

RULER, MRCR, BABILong, LongBench v2 and GraphWalks, as JSON Lines, JSON, CSV or Parquet. Where a set
has parts but no prompt, as BABILong and LongBench, the words between them are ours. Nothing is ever
downloaded.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import file_digest
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from needlemap.errors import SettingsError
from needlemap.extras import install_line
from needlemap.files import read_regular
from needlemap.tasks import Draw, Item, ReadyPrompt, Reference, Task
from needlemap.text import whole_characters
from needlemap.untrusted import read_json


class Published(Task):
    """Prompts of a published set, from a file: RULER, MRCR, BABILong, LongBench v2, GraphWalks.

    path: a .jsonl, .json, .csv or .parquet file. format: whose rows they are; auto: by their
    fields. limit:
    the first so many rows.
    """

    name = "published"
    ready = True

    def __init__(
        self,
        *,
        path: str = "",
        format: Literal[
            "auto", "ruler", "mrcr", "mrcr2", "babilong", "longbench", "graphwalks"
        ] = "auto",
        limit: int | None = None,
    ) -> None:
        if not path:
            raise SettingsError("Task 'published' needs a file: --task-options path=FILE.jsonl")
        if limit is not None and limit < 1:
            raise SettingsError(f"Option 'limit' must be at least 1, got {limit}.")
        file = Path(path).expanduser()
        rows = read_rows(file)[:limit]
        self.format = told_format(rows[0]) if format == "auto" else format
        self.scorer, self._file = FORMATS[self.format].scorer, file
        self.scorer_options = FORMATS[self.format].scorer_options
        answers = [str(row.get("target", "")).strip() for row in rows]
        self._prompts = [self._read(number, row, answers) for number, row in enumerate(rows, 1)]

    def prompts(self) -> Sequence[ReadyPrompt]:
        """All prompts, in the file's order."""
        return self._prompts

    def source(self) -> tuple[str, str]:
        """The file's name, and its sha256."""
        with self._file.open("rb") as file:
            return f"{self.format}:{self._file.name}", file_digest(file, "sha256").hexdigest()

    def item(self, draw: Draw) -> Item:
        """The item of the prompt with the repeat's number."""
        return self._prompts[draw.repeat].item

    def _read(self, number: int, row: dict[str, object], answers: Sequence[str]) -> ReadyPrompt:
        try:
            return FORMATS[self.format].read(row, answers)
        except (KeyError, TypeError, ValueError) as error:
            why = f"no field {error}" if isinstance(error, KeyError) else str(error)
            raise SettingsError(
                f"'{self._file}', row {number}: not of the format '{self.format}' ({why}). "
                f"Formats: "
                f"{', '.join(FORMATS)}; choose with --task-options format=NAME"
            ) from None


_LETTERS = ("A", "B", "C", "D")
_CODE = 12  # characters of MRCR v2's code
_BABILONG = (
    "The text below tells, among much else, who went where and who took or gave what. Later events "
    "count.\n\n"
    "{context}\n\n{question} Answer with one word or name."
)
_LONGBENCH = (
    "{context}\n\n{question}\n\n{choices}\n\n"
    "Which of these is right? Answer in the form: The correct answer is (letter)."
)


@dataclass(frozen=True, slots=True)
class Format:
    """One set's rows. fields: those by which it is told. scorer: the name of the one that fits.

    read: a row, and all rows' right answers, to a prompt. Raises KeyError, TypeError, ValueError
    for a row that is none. scorer_options: by which the scorer's rule is the set's own.
    """

    fields: frozenset[str]
    scorer: str
    read: Callable[[Row, Sequence[str]], ReadyPrompt]
    scorer_options: Mapping[str, Any] = field(default_factory=dict)


def ruler(row: Row, _answers: Sequence[str]) -> ReadyPrompt:
    """`input` is the prompt, `outputs` the answers; newer files keep the answer's beginning
    apart."""
    text, outputs = _text(row, "input"), _texts(row["outputs"])
    if not outputs or not all(output.strip() for output in outputs):
        raise ValueError("outputs are empty")
    question = text.rstrip().rpartition("\n")[2].strip()
    reference = Reference(", ".join(outputs), tuple(outputs), question=question)
    item = Item((), question, reference, answer_prefix=str(row.get("answer_prefix") or ""))
    return ReadyPrompt((("user", text),), item, _depth_of(text, outputs[0]))


def mrcr(row: Row, _answers: Sequence[str]) -> ReadyPrompt:
    """`prompt` is a conversation as JSON, `answer` begins with `random_string_to_prepend`."""
    told = row["prompt"]
    messages = read_json(told) if isinstance(told, str) else told
    turns = tuple((_text(message, "role"), _text(message, "content")) for message in messages)
    code, answer = _text(row, "random_string_to_prepend"), _text(row, "answer")
    if not answer.startswith(code) or not turns or turns[-1][0] != "user":
        raise ValueError(
            "the answer does not begin with random_string_to_prepend, or no user speaks last"
        )
    asked = row.get("desired_msg_index")
    if isinstance(asked, int) and not 0 <= asked < len(turns):
        raise ValueError(
            f"desired_msg_index is {asked}, but there are {len(turns)} messages, from 0"
        )
    wanted, question = answer.removeprefix(code), turns[-1][1]
    sizes = [len(said) for _, said in turns]
    place = next((at for at, (_, said) in enumerate(turns) if said.strip() == wanted.strip()), None)
    depth = None if place is None else sum(sizes[:place]) / max(1, sum(sizes[:-1]) - sizes[place])
    choices = _replies(turns, place)
    return ReadyPrompt(
        turns, Item((), question, _verbatim(code, wanted, question, choices)), _share(depth)
    )


def mrcr2(row: Row, _answers: Sequence[str]) -> ReadyPrompt:
    """`queries` is the prompt as one text, `answer` begins with a code of 12 characters."""
    text, answer = _text(row, "queries"), _text(row, "answer").strip()
    code, wanted = answer[:_CODE], answer[_CODE:].strip()
    question = text.rstrip().rpartition("\n")[2].strip()
    if not wanted or code not in text:
        raise ValueError(
            "the prompt does not ask for the 12 characters that the answer begins with"
        )
    item = Item((), question, _verbatim(code, wanted, question))
    return ReadyPrompt((("user", text),), item, _depth_of(text, wanted))


def babilong(row: Row, answers: Sequence[str]) -> ReadyPrompt:
    """`input` is the text, `target` the label; the other labels are the file's other
    targets."""
    context, question, target = (
        _text(row, "input"),
        _text(row, "question").strip(),
        _text(row, "target").strip(),
    )
    others = tuple(sorted({answer for answer in answers if answer != target}))
    if not target or not others:
        raise ValueError("target is empty, or all rows of the file have the same")
    text = _BABILONG.format(context=context.strip(), question=question)
    reference = Reference(target, (target,), question=question, decoys=others)
    return ReadyPrompt((("user", text),), Item((), question, reference), None)


def longbench(row: Row, _answers: Sequence[str]) -> ReadyPrompt:
    """`context`, `question`, `choice_A` to `choice_D`, and `answer`, a letter."""
    right = _text(row, "answer").strip()
    if right not in _LETTERS:
        raise ValueError(f"answer is '{right}', not one of {', '.join(_LETTERS)}")
    choices = "\n".join(
        f"({letter}) {_text(row, f'choice_{letter}').strip()}" for letter in _LETTERS
    )
    question = _text(row, "question").strip()
    asked = f"{question}\n\n{choices}"
    text = _LONGBENCH.format(
        context=_text(row, "context").strip(), question=question, choices=choices
    )
    wrong = tuple(letter for letter in _LETTERS if letter != right)
    reference = Reference(right, question=asked, decoys=wrong, choices=_LETTERS)
    return ReadyPrompt((("user", text),), Item((), asked, reference), None)


def graphwalks(row: Row, _answers: Sequence[str]) -> ReadyPrompt:
    """`prompt` is the prompt, `answer_nodes` (in older files `answer`) the set of nodes, which
    may be empty. The question is its last paragraph."""
    text, nodes = _text(row, "prompt"), row["answer_nodes" if "answer_nodes" in row else "answer"]
    if not isinstance(nodes, (list, tuple)):
        raise TypeError("answer_nodes are no list of nodes")
    wanted, question = tuple(map(str, nodes)), text.rstrip().rpartition("\n\n")[2].strip()
    reference = Reference(f"[{', '.join(wanted)}]", wanted, question=question)
    return ReadyPrompt((("user", text),), Item((), question, reference), None)


FORMATS: Mapping[str, Format] = {
    "ruler": Format(frozenset({"input", "outputs"}), "recall", ruler, {"rule": "ruler"}),
    "mrcr": Format(
        frozenset({"prompt", "answer", "random_string_to_prepend"}),
        "verbatim",
        mrcr,
        {"bare": True},
    ),
    "mrcr2": Format(frozenset({"queries", "answer"}), "verbatim", mrcr2, {"bare": True}),
    "babilong": Format(frozenset({"input", "question", "target"}), "label", babilong),
    "longbench": Format(
        frozenset({"context", "question", "answer", *(f"choice_{letter}" for letter in _LETTERS)}),
        "choice",
        longbench,
    ),
    "graphwalks": Format(frozenset({"prompt", "problem_type"}), "set", graphwalks),
}


def told_format(row: Row) -> str:
    """The format of a row by its fields. Raises SettingsError where it is of none."""
    for name, format in FORMATS.items():
        if format.fields <= set(row):
            return name
    known = "; ".join(f"{name}: {', '.join(sorted(each.fields))}" for name, each in FORMATS.items())
    raise SettingsError(
        f"Fields {', '.join(sorted(map(str, row)))} are of no known set. Known: {known}."
    )


def _text(row: Row, name: str) -> str:
    value = row[name]
    if not isinstance(value, str):
        raise TypeError(f"'{name}' is no text")
    return whole_characters(value)


def _texts(value: object) -> list[str]:
    """Right answers: a list of them, or one that stands alone."""
    if isinstance(value, str) and value.strip().startswith("["):
        raise ValueError(f"outputs are a text, {value[:40]}, not a list")
    if isinstance(value, (str, int, float)):
        return [str(value)]
    if not isinstance(value, (list, tuple)):
        raise TypeError("outputs are no list of texts")
    return [str(each) for each in value]


def _depth_of(text: str, wanted: str) -> float | None:
    """Where a text holds another, as a share of its characters; None where it does not, or
    more than once."""
    at = text.find(wanted)
    if at < 0 or text.find(wanted, at + 1) >= 0:
        return None
    return _share(at / max(1, len(text) - len(wanted)))


def _share(depth: float | None) -> float | None:
    return None if depth is None else min(1.0, max(0.0, depth))


def _verbatim(code: str, wanted: str, question: str, choices: tuple[str, ...] = ()) -> Reference:
    return Reference(f"{code}{wanted}", (wanted,), question=question, choices=choices)


def _replies(turns: Sequence[tuple[str, str]], place: int | None) -> tuple[str, ...]:
    """All replies to the request whose reply is at a place; none where it is not known."""
    if not place:
        return ()
    asked = turns[place - 1][1]
    return tuple(reply for (_, said), (_, reply) in pairwise(turns[:-1]) if said == asked)


Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """All rows, in the file's order. Raises SettingsError for a file that is missing, or is
    none of these."""
    readers: dict[str, Callable[[Path], Iterable[Any]]] = {
        ".jsonl": _json_lines,
        ".json": _json,
        ".csv": _csv,
        ".parquet": _parquet,
    }
    if path.suffix.lower() not in readers:
        raise SettingsError(f"'{path}' must end in {', '.join(readers)}.")
    if not path.is_file():
        raise SettingsError(f"No file at '{path}'.")
    try:
        rows = list(readers[path.suffix.lower()](path))
    except ValueError as error:
        raise SettingsError(f"'{path}' cannot be read: {error}.") from None
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise SettingsError(f"'{path}', row {number}: not a mapping of names to values.")
    if not rows:
        raise SettingsError(f"'{path}' holds no rows.")
    return rows


_MOST = 1 << 30  # bytes of a file of prompts


def _text_of(path: Path) -> str:
    return read_regular(path, _MOST).decode("utf-8-sig")


def _json_lines(path: Path) -> list[Any]:
    found = []
    for number, line in enumerate(_text_of(path).split("\n"), 1):
        if line.strip():
            try:
                found.append(read_json(line))
            except ValueError as error:
                raise SettingsError(f"'{path}', line {number}: not JSON ({error}).") from None
    return found


def _json(path: Path) -> list[Any]:
    data = read_json(_text_of(path))
    if not isinstance(data, list):
        raise SettingsError(f"'{path}' must be a list of rows.")
    return data


def _csv(path: Path) -> list[Any]:
    """A field may hold a whole prompt."""
    before = csv.field_size_limit(sys.maxsize)
    try:
        return list(csv.DictReader(io.StringIO(_text_of(path), newline="")))
    except csv.Error as error:
        raise SettingsError(f"'{path}' cannot be read: {error}.") from None
    finally:
        csv.field_size_limit(before)


def _parquet(path: Path) -> list[Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise SettingsError(
            f"A .parquet file needs pyarrow. Run: {install_line('parquet')}"
        ) from None
    try:
        rows: list[Any] = pyarrow.parquet.read_table(path).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise SettingsError(f"'{path}' cannot be read: {error}.") from None
    return rows
