"""The JSON documents of a run's folder: run.json, suite.json, check.json and ab.json.

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
_SHOWN = 3  # folders that an error lists
_BEYOND, _LARGEST = 2**63, 10**300


@dataclass(frozen=True, slots=True)
class DocumentKind(Generic[M]):
    """One kind of document. name: what a folder that has it holds, as "run". model: its shape.
    schema: the version that is written and read. version_field: where a document names its
    version. any_numbers: whether it holds numbers that a user chose, which may be of any size."""

    file: str
    name: str
    model: type[M]
    schema: int
    version_field: str = "schema_version"
    any_numbers: bool = False

    def is_in(self, folder: Path) -> bool:
        """Whether a folder holds such a document."""
        return is_regular(folder / self.file)

    def read(self, folder: Path) -> M:
        """A folder's document. Raises NeedlemapError where there is none, and for one that
        cannot be read."""
        file = folder / self.file
        if not is_regular(file):
            found = sorted(str(file.parent) for file in folder.glob(f"*/{self.file}"))
            inside = f" {self.name.title()}s in it: {', '.join(found[:_SHOWN])}." if found else ""
            raise NeedlemapError(f"No {self.name} at '{folder}': it holds no {self.file}.{inside}")
        text = read_regular(file)
        self._check_content(text, folder)
        try:
            return self.model.model_validate_json(text, strict=True)
        except ValidationError as error:
            raise self._no_document(folder, what_is_wrong(error)) from None

    def write(self, folder: Path, document: M) -> None:
        """Write a folder's document, whole or not at all."""
        write_json(folder / self.file, document.model_dump(mode="json"))

    def _check_content(self, text: bytes, folder: Path) -> None:
        """Raises NeedlemapError for a text without a version, for one that is not read, and for
        numbers that no document holds."""
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
        # Whatever divides by, formats or draws a number may raise on one that is not finite.
        odd = None if self.any_numbers else first_odd_number(content)
        if odd is not None:
            raise self._no_document(folder, f"it holds the number {odd:.6g}, which nothing counts")

    def _no_document(self, folder: Path, why: str) -> NeedlemapError:
        article = "an" if self.name[0] in "aeiou" else "a"
        return NeedlemapError(f"'{folder / self.file}' is not {article} {self.name}'s: {why}.")


def first_odd_number(value: Any) -> float | None:
    """Return the first number in JSON's values that is not finite or is beyond 64 bits, as a
    float; None where there is none.

    >>> first_odd_number({"a": [1, 2.5, {"b": 10**30}]}), first_odd_number({"a": True})
    (1e+30, None)
    """
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, int | float) and not -_BEYOND < value < _BEYOND:
            return float(value) if isinstance(value, float) or abs(value) < _LARGEST else inf
    return None


def what_is_wrong(error: ValidationError) -> str:
    """Why a text does not have a document's shape, in words."""
    problems = error.errors(include_url=False, include_context=False)
    missing = [
        str(each["loc"][0])
        for each in problems
        if each["type"] == "missing" and len(each["loc"]) == 1
    ]
    if missing:
        return f"it holds no {', '.join(missing)}"
    first = problems[0]
    where = ".".join(map(str, first["loc"])) or "its JSON"
    return f"{where}: {first['msg'].removeprefix('Value error, ')}"


def write_json(file: Path, content: dict[str, Any]) -> None:
    """Write a whole file so that it is either the old one or the new one, whatever happens."""
    write_whole(file, json.dumps(content, indent=1, ensure_ascii=False, default=str).encode())
