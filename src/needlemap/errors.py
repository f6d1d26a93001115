"""Errors that reach a user. Each message says what, where, what is allowed, and what to type
next."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from needlemap.allowance import Allowance

_VALUE = 200  # characters of a value that is none


class NeedlemapError(Exception):
    """Something the user can mend. Its text is one clear line; the command line prints it,
    exits with 2."""


@contextmanager
def naming(part: str, remedy: str = "") -> Iterator[None]:
    """Within it an error stays what it is, names the part first, one of several, and ends with
    a remedy; '' for the only one."""
    try:
        yield
    except NeedlemapError as error:
        if part:
            error.args = (f"{part}: {error}{remedy}",)
        raise


def naming_family(name: str) -> AbstractContextManager[None]:
    """Name the family of a suite in an error, and how to leave it out; '' that of a plain run."""
    return naming(name and f"Family '{name}'", f" Or leave it out: --skip {name}")


class SettingsError(NeedlemapError):
    """A setting is unknown, misspelt, or has a value that cannot be used."""


class HaystackError(NeedlemapError):
    """A haystack is missing, empty, unreadable, too short, or already holds the answer."""


class VocabularyMissing(NeedlemapError):
    """A tokenizer's vocabulary is not on this machine."""


class TooShort(NeedlemapError):
    """A length leaves no room for a haystack: template, needle, question and reserve need it
    all."""


class Failure(StrEnum):
    """Why a trial could not be measured. None of these is ever a score."""

    REJECTED = "rejected"  # the server refused the request as malformed (400, 404, 422)
    UNAUTHORISED = "unauthorised"  # 401, 403
    TOO_LONG = "prompt too long"
    RATE_LIMITED = "rate limited"
    TIMED_OUT = "timed out"
    CONNECTION = "connection lost"
    SERVER = "server error"
    MEMORY = "out of memory"
    UNREADABLE = "unreadable answer"
    JUDGE = "judge unreadable"
    MODEL = "model raised"  # an in-process model or a user's function raised
    REPLICA = "replica lost"  # again and again, while it answered this prompt
    SCORER = "scorer raised"  # a plug-in's scorer raised
    ORACLE = "needle adds nothing"  # not even alone, so that nothing can be recovered
    SKIPPED = "skipped by budget"  # never asked: a limit was reached


@dataclass(frozen=True, slots=True)
class Spent:
    """What a request took whose answer could not be read: a provider may bill it. In tokens by
    the server's count; prompt_tokens None: by ours."""

    prompt_tokens: int | None = None
    answer_tokens: int = 0


class Unmeasured(NeedlemapError):
    """A model or a judge gave no answer that could be scored: the trial is recorded as
    missing, never as 0.

    transient: worth asking again; retry_after_s: how long the server asked us to wait, in
    seconds. attempts: how often it was asked before giving up. allowance: what a server's
    headers said of its limits. usd: what a judge cost all the same; None when no price is
    known. hopeless: so would every request fail. status: of the HTTP reply, None without one.
    spent: of a request that was sent and not refused, None else. outage: the server is not
    there, or says that it cannot answer now. unreached: no connection could be made, and none
    was ever made to that address. filtered: a content filter withheld prompt or answer, which is
    no fault of the request. limit_tokens: what a server's words call the limit a minute.
    misplaced: no API stands at the address.
    """

    def __init__(
        self,
        failure: Failure,
        message: str,
        *,
        transient: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.failure = failure
        self.transient = transient
        self.retry_after_s = retry_after_s
        self.attempts = 1
        self.usd: float | None = 0.0
        self.hopeless = False
        self.allowance: Allowance | None = None
        self.status: int | None = None
        self.spent: Spent | None = None
        self.outage = False
        self.unreached = False
        self.filtered = False
        self.limit_tokens: float | None = None
        self.misplaced = False

    def __reduce__(self) -> Any:
        return type(self), (self.failure, str(self)), vars(self)  # as another process raised it


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint that ends an error message: the nearest known name, and all of them.

    >>> did_you_mean("opena", ["hf", "openai"])
    "Did you mean 'openai'? Known: hf, openai."
    """
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"Did you mean '{near[0]}'? " if near else ""
    return f"{hint}Known: {', '.join(names)}."


_REMEDIES = {
    (
        errno.ENOSPC,
        errno.EDQUOT,
    ): "Make room, then type the same command again: what was scored is kept.",
    (
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
    ): "Change its permissions, or give another place (-o).",
    (
        errno.EEXIST,
        errno.ENOTDIR,
    ): "A file stands where a folder is wanted: give another one with -o.",
    (errno.ENOENT,): "Is it spelt right? Where it is to be written: give another place with -o.",
    (errno.EISDIR,): "It is a folder, and a file is wanted: give a file's name.",
    (errno.ENAMETOOLONG,): "Give a shorter name.",
}


def os_error_words(error: OSError) -> str:
    """What the operating system refused, where, and what to type next.

    >>> os_error_words(FileExistsError(errno.EEXIST, "File exists", "a.txt"))
    "'a.txt': File exists. A file stands where a folder is wanted: give another one with -o."
    """
    where = f"'{error.filename}': " if error.filename else ""
    advice = next((words for numbers, words in _REMEDIES.items() if error.errno in numbers), "")
    return f"{where}{error.strerror or error}. {advice}".rstrip()


def validator_words(said: str, got: object) -> str:
    """A validator's message as a sentence of ours."""
    said = re.sub(
        r", unable to (parse|interpret).*", "", said.removeprefix("Value error, ").rstrip(".")
    )
    said = re.sub(r"^Input should be (a )?(valid )?", "must be ", said)
    said = re.sub(r"^must be (?=(number|string|boolean|list|dictionary)\b)", "must be a ", said)
    said = re.sub(r"^must be (?=integer\b)", "must be an ", said)
    shown = _brief(got)
    # Two sentences are ours: the second says what to type.
    complete = shown in said or ". " in said
    return f"{said}." if complete else f"{said}, got {shown}."


def _brief(value: object) -> str:
    """A value as an error shows it: the beginning of a long one."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= _VALUE else f"{text[:_VALUE]}..."


_FLAG = re.compile(r"--(no-)?([a-z][a-z-]*[a-z])")
_PYTHON = {
    "the command line": "the call",
    "the same command with": "the same call with",
    "the same command": "the same call",
    "See needlemap run --help-all.": "All settings: needlemap help run.",
}


def in_python(text: str) -> str:
    """An error's text for callers from Python: it names arguments in place of flags.

    >>> in_python("Unknown setting 'modle' in the command line. Give --base-url, or --no-canary.")
    "Unknown setting 'modle' in the call. Give base_url, or canary=False."
    >>> in_python("To go on: the same command with -o runs/a")
    "To go on: the same call with out='runs/a'"
    """
    for said, better in _PYTHON.items():
        text = text.replace(said, better)
    text = _FLAG.sub(
        lambda found: found[2].replace("-", "_") + ("=False" if found[1] else ""), text
    )
    return re.sub(r"(?<!\S)-o (?=[\w./])(\S*[\w/])", r"out='\1'", text).replace(
        " with -o", " as out"
    )
