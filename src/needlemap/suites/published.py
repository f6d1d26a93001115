"""Read the prompts of a published set from a file that the user brings.

They are sent as they are, with nothing hidden in them. The sets are RULER, MRCR, BABILong,
LongBench v2 and GraphWalks, as JSON Lines, JSON, CSV or Parquet. BABILong and LongBench have parts
but no prompt, so the words between their parts are ours. Nothing is ever downloaded.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from needlemap.errors import SettingsError
from needlemap.extras import install_line
from needlemap.files import read_regular, sha256_of
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
        self.format = format_of(rows[0]) if format == "auto" else format
        self.scorer = FORMATS[self.format].scorer
        self.scorer_options = FORMATS[self.format].scorer_options
        self._file = file
        answers = [str(row.get("target", "")).strip() for row in rows]
        self._prompts = [
            self._read(number, row, answers=answers) for number, row in enumerate(rows, 1)
        ]

    def prompts(self) -> Sequence[ReadyPrompt]:
        """Return all prompts, in the file's order."""
        return self._prompts

    def source(self) -> tuple[str, str]:
        """Return the format with the file's name, and the file's sha256."""
        return f"{self.format}:{self._file.name}", sha256_of(self._file)

    def item(self, draw: Draw) -> Item:
        """Return the item of the prompt with the repeat's number."""
        return self._prompts[draw.repeat].item

    def _read(self, number: int, row: dict[str, object], answers: Sequence[str]) -> ReadyPrompt:
        try:
            return FORMATS[self.format].read(row, answers)
        except (KeyError, TypeError, ValueError) as error:
            reason = f"no field {error}" if isinstance(error, KeyError) else str(error)
            raise SettingsError(
                f"'{self._file}', row {number}: not of the format '{self.format}' ({reason}). "
                f"Formats: {', '.join(FORMATS)}; choose with --task-options format=NAME"
            ) from None


Row = dict[str, Any]
_LETTERS = ("A", "B", "C", "D")
# Characters of MRCR v2's code.
_CODE_CHARS = 12
# Bytes of a file of prompts at most.
_MOST_BYTES = 1 << 30
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
    """How the rows of one set are read.

    Attributes:
        fields: The fields by which a row of the set is recognised.
        scorer: The name of the scorer that fits.
        read: Makes a prompt of a row and the right answers of all rows. Raises KeyError, TypeError
            or ValueError for a row of another form.
        scorer_options: Options by which the scorer's rule is the set's own.
    """

    fields: frozenset[str]
    scorer: str
    read: Callable[[Row, Sequence[str]], ReadyPrompt]
    scorer_options: Mapping[str, Any] = field(default_factory=dict)


def read_ruler(row: Row, _answers: Sequence[str]) -> ReadyPrompt:
    """Return RULER's prompt: `input` is its text, `outputs` are the answers.

    Newer files keep the answer's beginning apart.
    """
    text = _text(row, "input")
    outputs = _texts(row["outputs"])
    if not outputs or not all(output.strip() for output in outputs):
        raise ValueError("outputs are empty")
    question = _last_line(text)
    reference = Reference(", ".join(outputs), tuple(outputs), question=question)
    prefix = str(row.get("answer_prefix") or "")
    return _user_prompt(
        text,
        Item((), question, reference=reference, answer_prefix=prefix),
        depth=_depth_of(text, outputs[0]),
    )


def read_mrcr(row: Row, _answers: Sequence[str]) -> ReadyPrompt:
    """Return MRCR's prompt.

    `prompt` is a conversation as JSON, and `answer` begins with `random_string_to_prepend`.
    """
    messages = row["prompt"]
    if isinstance(messages, str):
        messages = read_json(messages)
    turns = tuple((_text(message, "role"), _text(message, "content")) for message in messages)
    code = _text(row, "random_string_to_prepend")
    answer = _text(row, "answer")
    if not answer.startswith(code) or not turns or turns[-1][0] != "user":
        raise ValueError(
            "the answer does not begin with random_string_to_prepend, or no user speaks last"
        )
    index = row.get("desired_msg_index")
    if isinstance(index, int) and not 0 <= index < len(turns):
        raise ValueError(
            f"desired_msg_index is {index}, but there are {len(turns)} messages, from 0"
        )

    reply = answer.removeprefix(code)
    question = turns[-1][1]
    places = (place for place, turn in enumerate(turns) if turn[1].strip() == reply.strip())
    place = next(places, None)
    depth = None
    if place is not None:
        sizes = [len(text) for _, text in turns]
        depth = sum(sizes[:place]) / max(1, sum(sizes[:-1]) - sizes[place])
    reference = _verbatim(code, reply, question=question, choices=_replies(turns, place))
    return ReadyPrompt(turns, Item((), question, reference=reference), depth=_share(depth))


def read_mrcr2(row: Row, _answers: Sequence[str]) -> ReadyPrompt:
    """Return MRCR v2's prompt.

    `queries` is the prompt as one text, and `answer` begins with a code of 12 characters.
    """
    text = _text(row, "queries")
    answer = _text(row, "answer").strip()
    code = answer[:_CODE_CHARS]
    reply = answer[_CODE_CHARS:].strip()
    question = _last_line(text)
    if not reply or code not in text:
        raise ValueError(
            "the prompt does not ask for the 12 characters that the answer begins with"
        )
    item = Item((), question, reference=_verbatim(code, reply, question=question))
    return _user_prompt(text, item, depth=_depth_of(text, reply))


def read_babilong(row: Row, answers: Sequence[str]) -> ReadyPrompt:
    """Return BABILong's prompt: `input` is the text, `target` the label.

    The other labels are the other targets of the file.
    """
    context = _text(row, "input")
    question = _text(row, "question").strip()
    target = _text(row, "target").strip()
    others = tuple(sorted({answer for answer in answers if answer != target}))
    if not target or not others:
        raise ValueError("target is empty, or all rows of the file have the same")
    text = _BABILONG.format(context=context.strip(), question=question)
    reference = Reference(target, (target,), question=question, decoys=others)
    return _user_prompt(text, Item((), question, reference=reference), depth=None)


def read_longbench(row: Row, _answers: Sequence[str]) -> ReadyPrompt:
    """Return LongBench v2's prompt.

    The fields are `context`, `question`, `choice_A` to `choice_D`, and `answer`, a letter.
    """
    right = _text(row, "answer").strip()
    if right not in _LETTERS:
        raise ValueError(f"answer is '{right}', not one of {', '.join(_LETTERS)}")
    choices = "\n".join(
        f"({letter}) {_text(row, f'choice_{letter}').strip()}" for letter in _LETTERS
    )
    question = _text(row, "question").strip()
    question_with_choices = f"{question}\n\n{choices}"
    text = _LONGBENCH.format(
        context=_text(row, "context").strip(), question=question, choices=choices
    )
    reference = Reference(
        right,
        question=question_with_choices,
        decoys=tuple(letter for letter in _LETTERS if letter != right),
        choices=_LETTERS,
    )
    return _user_prompt(text, Item((), question_with_choices, reference=reference), depth=None)


def read_graphwalks(row: Row, _answers: Sequence[str]) -> ReadyPrompt:
    """Return GraphWalks' prompt, whose last paragraph is the question.

    `prompt` is the text, and `answer_nodes` (in older files `answer`) the set of nodes, which may
    be empty.
    """
    text = _text(row, "prompt")
    nodes = row["answer_nodes"] if "answer_nodes" in row else row["answer"]
    if not isinstance(nodes, (list, tuple)):
        raise TypeError("answer_nodes are no list of nodes")
    names = tuple(map(str, nodes))
    question = text.rstrip().rpartition("\n\n")[2].strip()
    reference = Reference(f"[{', '.join(names)}]", names, question=question)
    return _user_prompt(text, Item((), question, reference=reference), depth=None)


def _user_prompt(text: str, item: Item, depth: float | None) -> ReadyPrompt:
    return ReadyPrompt((("user", text),), item, depth=depth)


def _last_line(text: str) -> str:
    return text.rstrip().rpartition("\n")[2].strip()


FORMATS: Mapping[str, Format] = {
    "ruler": Format(
        frozenset({"input", "outputs"}),
        "recall",
        read=read_ruler,
        scorer_options={"rule": "ruler"},
    ),
    "mrcr": Format(
        frozenset({"prompt", "answer", "random_string_to_prepend"}),
        "verbatim",
        read=read_mrcr,
        scorer_options={"bare": True},
    ),
    "mrcr2": Format(
        frozenset({"queries", "answer"}),
        "verbatim",
        read=read_mrcr2,
        scorer_options={"bare": True},
    ),
    "babilong": Format(
        frozenset({"input", "question", "target"}),
        "label",
        read=read_babilong,
    ),
    "longbench": Format(
        frozenset({"context", "question", "answer", *(f"choice_{letter}" for letter in _LETTERS)}),
        "choice",
        read=read_longbench,
    ),
    "graphwalks": Format(
        frozenset({"prompt", "problem_type"}),
        "set",
        read=read_graphwalks,
    ),
}


def format_of(row: Row) -> str:
    """Return the name of a row's format, recognised by its fields.

    Raises SettingsError if it has the fields of no format.
    """
    for name, format in FORMATS.items():
        if format.fields <= set(row):
            return name
    formats = "; ".join(
        f"{name}: {', '.join(sorted(format.fields))}" for name, format in FORMATS.items()
    )
    raise SettingsError(
        f"Fields {', '.join(sorted(map(str, row)))} are of no known set. Known: {formats}."
    )


def _text(row: Row, name: str) -> str:
    value = row[name]
    if not isinstance(value, str):
        raise TypeError(f"'{name}' is no text")
    return whole_characters(value)


def _texts(value: object) -> list[str]:
    """Return the right answers: those of a list, or the only one."""
    if isinstance(value, str) and value.strip().startswith("["):
        raise ValueError(f"outputs are a text, {value[:40]}, not a list")
    if isinstance(value, (str, int, float)):
        return [str(value)]
    if not isinstance(value, (list, tuple)):
        raise TypeError("outputs are no list of texts")
    return [str(answer) for answer in value]


def _depth_of(text: str, part: str) -> float | None:
    """Return where a text holds a part, as a share of its characters.

    None if it does not hold the part, or holds it more than once.
    """
    start = text.find(part)
    if start < 0 or text.find(part, start + 1) >= 0:
        return None
    return _share(start / max(1, len(text) - len(part)))


def _share(depth: float | None) -> float | None:
    return None if depth is None else min(1.0, max(0.0, depth))


def _verbatim(code: str, reply: str, question: str, choices: tuple[str, ...] = ()) -> Reference:
    return Reference(f"{code}{reply}", (reply,), question=question, choices=choices)


def _replies(turns: Sequence[tuple[str, str]], place: int | None) -> tuple[str, ...]:
    """Return all replies to the request whose reply is at a place, or none if it is not known."""
    if not place:
        return ()
    request = turns[place - 1][1]
    pairs = pairwise(turns[:-1])
    return tuple(reply for (_, text), (_, reply) in pairs if text == request)


def read_rows(path: Path) -> list[Row]:
    """Return all rows, in the file's order.

    Raises SettingsError for a file that is missing, cannot be read or is of another type.
    """
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


def text_of(path: Path) -> str:
    """Return the text of a published file.

    Raises ValueError if it is not UTF-8, and NeedlemapError if it is too large or not a file.
    """
    return read_regular(path, _MOST_BYTES).decode("utf-8-sig")


def _json_lines(path: Path) -> list[Any]:
    rows = []
    for number, line in enumerate(text_of(path).split("\n"), 1):
        if line.strip():
            try:
                rows.append(read_json(line))
            except ValueError as error:
                raise SettingsError(f"'{path}', line {number}: not JSON ({error}).") from None
    return rows


def _json(path: Path) -> list[Any]:
    data = read_json(text_of(path))
    if not isinstance(data, list):
        raise SettingsError(f"'{path}' must be a list of rows.")
    return data


def _csv(path: Path) -> list[Any]:
    # One field may hold a whole prompt, which is longer than the module's limit.
    previous_limit = csv.field_size_limit(sys.maxsize)
    try:
        return list(csv.DictReader(io.StringIO(text_of(path), newline="")))
    except csv.Error as error:
        raise SettingsError(f"'{path}' cannot be read: {error}.") from None
    finally:
        csv.field_size_limit(previous_limit)


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
