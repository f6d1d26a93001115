"""What must not be seen: keys in settings are refused, what looks like a key in any words is
hidden, and secrets that were sent are found again in what a server says, in any usual spelling.

Keys belong into the environment: a setting that holds one would be kept in run.json, and be shown.
"""

from __future__ import annotations

import logging
import re
import traceback
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from needlemap.errors import SettingsError

if TYPE_CHECKING:
    from needlemap.settings import Settings

HIDDEN = "[hidden]"
SHORTEST = 6  # characters of a secret; shorter ones would be found in plain words
RUN = 12  # characters in a row that give a longer secret away
DEEPEST = 100  # levels of a JSON value that is looked through; nothing below is taken over
_ESCAPE = re.compile("%[0-9A-F]{2}")
LONGEST_MESSAGE = 500
_SCRUBBED = 10_000  # characters of a text that a message is made of
_SECRETS = (
    (re.compile(r"\b(sk|gsk|xai)-[\w*…-]{4,}([/+.=]+[\w*…-]+)*=*"), r"\1-[hidden]"),
    (re.compile(r"(?i)\b(bearer|x-api-key:?|api[-_]key[=:])\s*[^\s'\",]{16,}"), r"\1 [hidden]"),
    (re.compile(r"://[^/\s]+@"), "://[hidden]@"),
    (re.compile(r"(?i)([?&][\w-]*(key|token|secret|sig|signature)=)[^&\s'\"]+"), r"\1[hidden]"),
    # Under any other name in an address: 16 characters of both cases and digits, or 32 with digits.
    (
        re.compile(
            r"([?&#]([\w.-]+=)?)(?=[^&#\s]*\d)(?=[^&#\s]*[a-z])(?=[^&#\s]*[A-Z])[\w+/=%.~-]{16,}"
        ),
        r"\1[hidden]",
    ),
    (re.compile(r"([?&#]([\w.-]+=)?)(?=[^&#\s]*\d)[\w+/=%~]{32,}"), r"\1[hidden]"),
)
_KEY_NAMES = re.compile(
    r"(?i)(^|[_-])(api[_-]?key|secret|password|passwd|authorization|access[_-]?token|bearer)$"
)
_MAYBE_KEY = re.compile(r"(?i)(token|auth|cookie|credentials?|signature|sig|code|session|pat|jwt)$")
_RANDOM = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[\w+/=.~:-]{16,}")  # what no word is
_VARIABLE = re.compile(r"\w*_API_KEY")
_HERE = str(
    PurePath(__file__).parent
)  # frames of needlemap's own are not where a user's code raised
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]|[/\\]lib[/\\]python3")


def scrub(text: str) -> str:
    """A text fit for a record and a terminal: one printable line without keys, at most 500
    characters.

    >>> scrub("Incorrect API key provided: sk-abcdef123456")
    'Incorrect API key provided: sk-[hidden]'
    """
    text = " ".join(
        "".join(letter if letter.isprintable() else " " for letter in text[:_SCRUBBED]).split()
    )
    text = hidden(text)
    return text if len(text) <= LONGEST_MESSAGE else text[: LONGEST_MESSAGE - 1] + "…"


def hidden(text: str) -> str:
    """A text without keys, and without names and passwords in addresses; else as it is.

    >>> hidden("http://me:pass@host/v1?api_key=abc&n=1")
    'http://[hidden]@host/v1?api_key=[hidden]&n=1'
    """
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def raised_by(error: BaseException) -> str:
    """An exception of somebody's own code in one line, with file and line; `--debug` shows all of
    it."""
    logging.getLogger("needlemap").debug("", exc_info=error)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if _HERE not in frame.filename and not frame.filename.startswith("<")
    ]
    own = [frame for frame in frames if not _INSTALLED.search(frame.filename)] or frames
    where = f" ({PurePath(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return scrub(f"{type(error).__name__}: {error}".rstrip(": ")) + where


def refuse_keys(settings: Settings) -> None:
    """Raises SettingsError for the first setting that holds a key."""
    for name, options in settings.options.items():
        for part in (part for part, value in _parts(options) if _is_key(part, value)):
            raise SettingsError(
                f"Setting '{name}' holds a key ({part}), which run.json would keep. Keys are read "
                f"from the "
                f"environment only. Type: export OPENAI_API_KEY=YOUR-KEY (another variable: "
                f"--model-options "
                f"key_env=NAME)"
            )


def check_key_names(settings: Any, instead: str) -> None:
    """Raises SettingsError where a file takes a key from a variable that is not named as keys are.

    A file may come from a stranger, with an address to send the key to. instead: what to type.
    """
    for name in key_names(settings):
        if not _VARIABLE.fullmatch(name):
            raise SettingsError(
                f"${name} would be sent as a key. Variables that a file names must end in "
                f"_API_KEY. {instead}"
            )


def key_names(value: Any) -> Iterator[str]:
    """Every key_env in settings, also inside options."""
    return (str(part) for name, part in _parts(value) if name == "key_env")


def _parts(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """A value and all that is inside it, each with the name under which it stands."""
    yield name, value
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _parts(part, str(key))
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _parts(part, name)


def _is_key(name: str, value: Any) -> bool:
    """Whether a value is a key, by its name, by its own look, or by both."""
    if not isinstance(value, str) or not value:
        return False
    by_both = _MAYBE_KEY.search(name) and _RANDOM.fullmatch(value)
    return bool(_KEY_NAMES.search(name) or hidden(value) != value or by_both)


class Secrets:
    """Some secrets. Those with spaces in them are looked for whole, and word by word."""

    def __init__(self, said: Iterable[str] = ()) -> None:
        self._spellings: dict[str, int] = {}  # to the characters in a row that are hidden
        for secret in said:
            for word in {secret, *secret.split()}:
                if len(word) >= (SHORTEST if word == secret else RUN):
                    self._add(word)

    def _add(self, secret: str) -> None:
        whole = " " in secret
        for spelling, width in _spellings(secret):
            least = len(spelling) if whole else min(len(spelling), RUN * width)
            self._spellings[spelling] = min(least, self._spellings.get(spelling, least))

    def hide(self, text: str) -> str:
        """A text without the secrets, and without RUN characters in a row of one."""
        for spelling in sorted(self._spellings, key=len, reverse=True):
            text = text.replace(spelling, HIDDEN)
        found = sorted(
            cut
            for spelling, least in self._spellings.items()
            for cut in _cuts(text, spelling, least)
        )
        parts, at = [], 0
        for start, stop in found:
            if start >= at:
                parts += [text[at:start], HIDDEN]
            at = max(at, stop)
        return "".join([*parts, text[at:]]) if found else text

    def hide_in(self, value: Any, levels: int = DEEPEST) -> Any:
        """A JSON value without the secrets in its texts and names; None below so many levels."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, dict):
            parts = value.items() if levels else ()
            return {self.hide(name): self.hide_in(part, levels - 1) for name, part in parts}
        if isinstance(value, list):
            return [self.hide_in(part, levels - 1) for part in value] if levels else None
        return value


def _spellings(secret: str) -> Iterator[tuple[str, int]]:
    """A secret as servers spell it, and how many characters stand for one: as it is, in addresses,
    in JSON, in base64 (three ways, by what stands before it)."""
    yield from ((secret, 1), (secret.replace("/", "\\/"), 1))
    for quoted in (quote(secret, safe=""), quote(secret)):
        yield from ((quoted, 1), (_ESCAPE.sub(lambda found: found[0].lower(), quoted), 1))
    for form in ("\\u{:04x}", "\\u{:04X}"):
        yield "".join(form.format(ord(letter)) for letter in secret), 6
    data = secret.encode("utf-8", "replace")
    for encode in (b64encode, urlsafe_b64encode):
        for before in range(3):
            spelt = encode(b"\0" * before + data).decode().rstrip("=")
            yield spelt[(0, 2, 3)[before] : len(spelt) - bool((len(data) + before) % 3)], 1


def _cuts(text: str, spelling: str, least: int) -> Iterator[tuple[int, int]]:
    """Where a text has at least so many characters in a row of a spelling.

    So many in a row hold a whole block of half as many, counted from the spelling's start: only
    blocks are looked for, and what is found is lengthened.
    """
    block = len(spelling) if least == len(spelling) else least // 2
    for place in range(0, len(spelling) - block + 1, block):
        at = text.find(spelling[place : place + block])
        while at >= 0:
            start, stop = _lengthened(text, at, spelling, place, block)
            if stop - start >= least:
                yield start, stop
            at = text.find(spelling[place : place + block], max(stop - block, at) + 1)


def _lengthened(text: str, at: int, spelling: str, place: int, size: int) -> tuple[int, int]:
    """The longest stretch of a text around a block that goes as the spelling goes."""
    start, first, stop, last = at, place, at + size, place + size
    while start and first and text[start - 1] == spelling[first - 1]:
        start, first = start - 1, first - 1
    while stop < len(text) and last < len(spelling) and text[stop] == spelling[last]:
        stop, last = stop + 1, last + 1
    return start, stop
