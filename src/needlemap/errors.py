"""Define the errors that reach a user.

Each message names what is wrong, where, what is allowed, and what to type next.
"""

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

# Characters of a wrong value in a message.
_VALUE = 200


class NeedlemapError(Exception):
    """An error that the user can correct.

    Its text is one clear line. The command line prints it and exits with 2.
    """


@contextmanager
def naming(part: str, remedy: str = "") -> Iterator[None]:
    """Put the name of a part before the errors raised within, and a remedy after them.

    part: one of several; '' for the only one, whose errors stay as they are.
    """
    try:
        yield
    except NeedlemapError as error:
        if part:
            error.args = (f"{part}: {error}{remedy}",)
        raise


def naming_family(name: str) -> AbstractContextManager[None]:
    """Return a context whose errors name the family of a suite, and how to leave it out.

    name: the family's name, or '' for a plain run.
    """
    return naming(name and f"Family '{name}'", f" Or leave it out: --skip {name}")


class SettingsError(NeedlemapError):
    """A setting is unknown, misspelt, or has a value that cannot be used."""


class HaystackError(NeedlemapError):
    """A haystack is missing, empty, unreadable, too short, or already holds the answer."""


class VocabularyMissing(NeedlemapError):
    """A tokenizer's vocabulary is not on this machine."""


class TooShort(NeedlemapError):
    """A length leaves no room for a haystack: template, needle, question and reserve need it."""


class Failure(StrEnum):
    """Why a trial could not be measured. None of these is ever a score."""

    # The server refused the request as malformed (400, 404, 422).
    REJECTED = "rejected"
    # 401, 403.
    UNAUTHORISED = "unauthorised"
    TOO_LONG = "prompt too long"
    RATE_LIMITED = "rate limited"
    TIMED_OUT = "timed out"
    CONNECTION = "connection lost"
    SERVER = "server error"
    MEMORY = "out of memory"
    UNREADABLE = "unreadable answer"
    JUDGE = "judge unreadable"
    # An in-process model or a user's function raised.
    MODEL = "model raised"
    # It was lost again and again while it answered this prompt.
    REPLICA = "replica lost"
    # A plug-in's scorer raised.
    SCORER = "scorer raised"
    # Not even the needle alone adds anything, so nothing can be recovered.
    ORACLE = "needle adds nothing"
    # It was never asked: a limit was reached.
    SKIPPED = "skipped by budget"


@dataclass(frozen=True, slots=True)
class Spent:
    """The tokens of a request whose answer could not be read. A provider may bill them.

    Attributes:
        prompt_tokens: By the server's count; None for ours.
        answer_tokens: By the server's count.
    """

    prompt_tokens: int | None = None
    answer_tokens: int = 0


class Unmeasured(NeedlemapError):
    """A model or a judge gave no answer that can be scored.

    The trial is recorded as missing, never as 0.

    Attributes:
        failure: The kind of failure.
        transient: Whether it is worth a retry.
        retry_after_s: How many seconds the server asked us to wait.
        attempts: How often it was tried before giving up.
        usd: What a judge cost all the same; None if no price is known.
        hopeless: Whether every request would fail so.
        allowance: The limits that a server's headers report.
        status: Of the HTTP reply; None without one.
        spent: Of a request that was sent and not refused; None for others.
        outage: Whether the server is not there, or reports that it cannot answer now.
        unreached: Whether no connection could be made, and none was ever made to that address.
        filtered: Whether a content filter withheld prompt or answer. That is not the request's
            fault.
        limit_tokens: The limit a minute that a server's words name.
        misplaced: Whether there is no API at the address.
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
        # Another process may have raised it.
        return type(self), (self.failure, str(self)), vars(self)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint that ends an error message: the nearest known name, and all of them.

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
    """Return what the operating system refused, where, and what to type next.

    >>> os_error_words(FileExistsError(errno.EEXIST, "File exists", "a.txt"))
    "'a.txt': File exists. A file stands where a folder is wanted: give another one with -o."
    """
    where = f"'{error.filename}': " if error.filename else ""
    advice = next((words for numbers, words in _REMEDIES.items() if error.errno in numbers), "")
    return f"{where}{error.strerror or error}. {advice}".rstrip()


_NO_ARTICLE = re.compile(r"^must be (?=(number|string|boolean|list|dictionary)\b)")


def validator_words(message: str, value: object) -> str:
    """Return a validator's message as a sentence of ours. value: the wrong value."""
    message = message.removeprefix("Value error, ").rstrip(".")
    message = re.sub(r", unable to (parse|interpret).*", "", message)
    message = re.sub(r"^Input should be (a )?(valid )?", "must be ", message)
    message = _NO_ARTICLE.sub("must be a ", message)
    message = re.sub(r"^must be (?=integer\b)", "must be an ", message)
    shown = _brief(value)
    # Two sentences are ours: the second one has what to type.
    is_complete = shown in message or ". " in message
    return f"{message}." if is_complete else f"{message}, got {shown}."


def _brief(value: object) -> str:
    """Return a value as an error shows it: the start of a long one."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= _VALUE else f"{text[:_VALUE]}..."


_FLAG = re.compile(r"--(no-)?([a-z][a-z-]*[a-z])")
# A command to type in a shell, up to the end of its clause.
_COMMAND = re.compile(r"((?:(?<=: )|(?<= and ))needlemap [a-z]+ (?:(?!\. |, |; | and ).)*)")
_PYTHON = {
    "the command line": "the call",
    "the same command with": "the same call with",
    "the same command": "the same call",
    "See needlemap run --help-all.": "All settings: needlemap help run.",
}


def in_python(text: str) -> str:
    """Return an error's text for callers from Python: with arguments in place of flags.

    Commands stay as they are typed.

    >>> in_python("Unknown setting 'modle' in the command line. Give --base-url, or --no-canary.")
    "Unknown setting 'modle' in the call. Give base_url, or canary=False."
    >>> in_python("To go on: the same command with -o runs/a")
    "To go on: the same call with out='runs/a'"
    >>> in_python("Give --scorer. Score both alike: needlemap score a --scorer exact")
    'Give scorer. Score both alike: needlemap score a --scorer exact'
    """
    for typed, called in _PYTHON.items():
        text = text.replace(typed, called)
    # Every second part is a command.
    parts = _COMMAND.split(text)
    parts[::2] = map(_with_arguments, parts[::2])
    return "".join(parts)


def _with_arguments(text: str) -> str:
    text = _FLAG.sub(_as_argument, text)
    text = re.sub(r"(?<!\S)-o (?=[\w./])(\S*[\w/])", r"out='\1'", text)
    return text.replace(" with -o", " as out")


def _as_argument(flag: re.Match[str]) -> str:
    negation, name = flag.groups()
    argument = name.replace("-", "_")
    return f"{argument}=False" if negation else argument
