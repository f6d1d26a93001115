"""Read and write the JSON documents of a run's folder, e.g. run.json, suite.json and check.json.

A folder may come from anywhere, so a document is read within bounds and checked against its
model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from needlemap.errors import NeedlemapError
from needlemap.extras import NEWER
from needlemap.files import is_regular, read_regular, write_whole
from needlemap.untrusted import read_json

M = TypeVar("M", bound=BaseModel)
# Folders that an error message lists.
_MOST_FOLDERS = 3
# Numbers of documents have 64 bits.
_MORE_THAN_64_BITS = 2**63
# Larger whole numbers may not be a float.
_LARGEST_FLOAT = 10**300


@dataclass(frozen=True, slots=True)
class DocumentKind(Generic[M]):
    """One kind of document.

    Attributes:
        file: The name of its file.
        name: What a folder with it holds, e.g. "run".
        model: Its shape.
        schema: The version that is written and read.
        version_field: The field in which a document names its version.
        any_numbers: Whether it holds numbers that a user chose, which may be of any size.
    """

    file: str
    name: str
    model: type[M]
    schema: int
    version_field: str = "schema_version"
    any_numbers: bool = False

    def is_in(self, folder: Path) -> bool:
        """Return True if a folder holds such a document."""
        return is_regular(folder / self.file)

    def read(self, folder: Path) -> M:
        """Return a folder's document.

        Raise NeedlemapError if the folder has none, or if it cannot be read.
        """
        file = folder / self.file
        if not is_regular(file):
            folders = sorted(str(path.parent) for path in folder.glob(f"*/{self.file}"))
            hint = ""
            if folders:
                hint = f" {self.name.title()}s in it: {', '.join(folders[:_MOST_FOLDERS])}."
            raise NeedlemapError(f"No {self.name} at '{folder}': it holds no {self.file}.{hint}")

        text = read_regular(file)
        self._check_content(text, folder)
        try:
            return self.model.model_validate_json(text, strict=True)
        except ValidationError as error:
            raise self._no_document(folder, describe_error(error)) from None

    def write(self, folder: Path, document: M) -> None:
        """Write a folder's document completely or not at all."""
        write_json(folder / self.file, document.model_dump(mode="json"))

    def _check_content(self, text: bytes, folder: Path) -> None:
        """Raise NeedlemapError if a text cannot be read as a document.

        That is if it is not JSON, if it names no version or one that is not read, or if a number
        is out of bounds.
        """
        try:
            content = dict(read_json(text))
            version = int(content[self.version_field])
        except json.JSONDecodeError as error:
            where = f"line {error.lineno}, column {error.colno}"
            raise self._no_document(folder, f"it is no JSON ({where}: {error.msg})") from None
        except (ValueError, KeyError, TypeError, OverflowError):
            raise self._no_document(folder, "it names no schema that can be read") from None

        if version > self.schema:
            raise NeedlemapError(
                f"{self.name.title()} '{folder}' was written by a newer needlemap (schema "
                f"{version}, this one reads up to {self.schema}). {NEWER}"
            )
        if version < self.schema:
            raise NeedlemapError(
                f"{self.name.title()} '{folder}' was written by an earlier needlemap (schema "
                f"{version}, this one reads {self.schema}). Give another folder."
            )

        if self.any_numbers:
            return
        # Code that divides by, formats or draws a number may raise if it is not finite.
        number = first_odd_number(content)
        if number is not None:
            raise self._no_document(
                folder, f"it holds the number {number:.6g}, which nothing counts"
            )

    def _no_document(self, folder: Path, why: str) -> NeedlemapError:
        article = "an" if self.name[0] in "aeiou" else "a"
        return NeedlemapError(f"'{folder / self.file}' is not {article} {self.name}'s: {why}.")


def first_odd_number(value: Any) -> float | None:
    """Return the first number in a JSON value that is not finite or has more than 64 bits.

    The number is returned as a float. If all numbers are in bounds, None is returned.

    >>> first_odd_number({"a": [1, 2.5, {"b": 10**30}]}), first_odd_number({"a": True})
    (1e+30, None)
    """
    values = [value]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            values.extend(value.values())
        elif isinstance(value, list):
            values.extend(value)
        elif (
            isinstance(value, int | float) and not -_MORE_THAN_64_BITS < value < _MORE_THAN_64_BITS
        ):
            return float(value) if isinstance(value, float) or abs(value) < _LARGEST_FLOAT else inf
    return None


def describe_error(error: ValidationError) -> str:
    """Return in words why a text does not have a document's shape."""
    problems = error.errors(include_url=False, include_context=False)
    missing = [
        str(problem["loc"][0])
        for problem in problems
        if problem["type"] == "missing" and len(problem["loc"]) == 1
    ]
    if missing:
        return f"it holds no {', '.join(missing)}"
    first = problems[0]
    where = ".".join(map(str, first["loc"])) or "its JSON"
    return f"{where}: {first['msg'].removeprefix('Value error, ')}"


def write_json(file: Path, content: dict[str, Any]) -> None:
    """Write a file so that it is either the old one or the new one, whatever happens."""
    write_whole(file, json.dumps(content, indent=1, ensure_ascii=False, default=str).encode())
