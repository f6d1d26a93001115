"""Hide what must not be seen: keys and secrets.

Keys in settings are refused. What looks like a key in any text is hidden. Secrets that were sent
are found again in what a server returns (`spellings.py`). Keys belong into the environment: a
setting that holds one would be kept in run.json, and be shown.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from needlemap.errors import SettingsError
from needlemap.spellings import RUN, Spellings
from needlemap.untrusted import DEEPEST

HIDDEN = "[hidden]"
# Characters of a secret. Shorter ones would be found in ordinary words.
SHORTEST = 6
# Stands between two texts, so that no secret spans both.
_BETWEEN = "\n\x7f\n"
LONGEST_MESSAGE = 500
# Characters of a text that a message is made of.
_SCRUBBED = 10_000
# What a text must hold, in small letters, to be searched for a key; what the key looks like; and
# what replaces it. Each takes time in proportion to the text: no start reads what another start
# reads again.
_SECRETS = (
    ("-", re.compile(r"\b(sk|gsk|xai)-[\w*…-]{4,}([/+.=]+[\w*…-]+)*=*"), r"\1-[hidden]"),
    ("bearer", re.compile(r"(?i)\b(bearer)\s*[^\s'\",]{16,}"), r"\1 [hidden]"),
    (
        "api",
        re.compile(r"(?i)\b(x-api-key:?|api[-_]key[=:])\s*[^\s'\",]{16,}"),
        r"\1 [hidden]",
    ),
    ("@", re.compile(r"://[^/\s]+@"), "://[hidden]@"),
    (
        "=",
        re.compile(
            r"(?i)([?&][\w-]*(?:key|token|secret|sig|signature|code|auth|passw(?:or)?d|pwd|jwt"
            r"|session|credentials?)=)[^&\s'\"]+"
        ),
        r"\1[hidden]",
    ),
)
# Under any other name in an address: 16 characters of both cases and digits, or 32 with digits.
_IN_ADDRESS = re.compile(r"((?<![?&#])[?&#]++(?:[\w.-]+=)?)([\w+/=%.~-]{16,})")
_MIXED = tuple(map(re.compile, ("[0-9]", "[a-z]", "[A-Z]")))
_LONG = re.compile(r"[\w+/=%~]{32,}")
_KEY_NAMES = re.compile(
    r"(?i)(^|[_-])(api[_-]?key|secret|password|passwd|authorization|access[_-]?token|bearer)$"
)
_MAYBE_KEY = re.compile(r"(?i)(token|auth|cookie|credentials?|signature|sig|code|session|pat|jwt)$")
# No word looks like this.
_RANDOM = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[\w+/=.~:-]{16,}")
_VARIABLE = re.compile(r"\w*_API_KEY")
# Frames of needlemap's own are not where a user's code raised.
_HERE = str(PurePath(__file__).parent)
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]|[/\\]lib[/\\]python3")


def scrub(text: str) -> str:
    """Return a text for a record and a terminal: one printable line without keys.

    It has at most 500 characters.

    >>> scrub("Incorrect API key provided: sk-abcdef123456")
    'Incorrect API key provided: sk-[hidden]'
    """
    letters = [letter if letter.isprintable() else " " for letter in text[:_SCRUBBED]]
    text = hidden(" ".join("".join(letters).split()))
    if len(text) <= LONGEST_MESSAGE:
        return text
    return text[: LONGEST_MESSAGE - 1] + "…"


def hidden(text: str) -> str:
    """Return a text without keys, and without names and passwords in addresses.

    >>> hidden("http://me:pass@host/v1?api_key=abc&n=1")
    'http://[hidden]@host/v1?api_key=[hidden]&n=1'
    """
    lowered = text.lower()
    for needed, pattern, replacement in _SECRETS:
        if needed in lowered:
            text = pattern.sub(replacement, text)
    return _IN_ADDRESS.sub(_hidden_value, text)


def _hidden_value(match: re.Match[str]) -> str:
    """Return a value in an address, hidden if it looks like a key."""
    name, value = match.groups()
    digits, small, capitals = (bool(letters.search(value)) for letters in _MIXED)
    if digits and ((small and capitals) or _LONG.match(value)):
        return f"{name}{HIDDEN}"
    return match[0]


def raised_by(error: BaseException) -> str:
    """Return an exception of somebody's own code as one line, with its file and line.

    `--debug` shows all of it.
    """
    logging.getLogger("needlemap").debug("", exc_info=error)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if _HERE not in frame.filename and not frame.filename.startswith("<")
    ]
    # The user's own frames, or those of installed packages if there are no others.
    frames = [frame for frame in frames if not _INSTALLED.search(frame.filename)] or frames
    place = ""
    if frames:
        place = f" ({PurePath(frames[-1].filename).name}, line {frames[-1].lineno})"
    return scrub(f"{type(error).__name__}: {error}".rstrip(": ")) + place


def refuse_keys(settings: Mapping[str, Any], variable: str) -> None:
    """Raise SettingsError for the first setting that holds a key.

    variable: the environment variable that it belongs into.
    """
    for name, setting in settings.items():
        for part, value in parts_of(setting):
            if not _is_key(part, value):
                continue
            raise SettingsError(
                f"Setting '{name}' holds a key ({part}), which run.json would keep. Keys are read "
                f"from the environment only. Type: export {variable}=YOUR-KEY (another variable: "
                f"--model-options key_env=NAME)"
            )


def check_key_names(settings: Any, instead: str) -> None:
    """Raise SettingsError if a file takes a key from a variable that is not named as keys are.

    A file may come from a stranger, with an address to send the key to. instead: what to type.
    """
    for name in key_names(settings):
        if not _VARIABLE.fullmatch(name):
            raise SettingsError(
                f"${name} would be sent as a key. Variables that a file names must end in "
                f"_API_KEY. {instead}"
            )


def key_names(value: Any) -> Iterator[str]:
    """Return every key_env in settings, also inside options."""
    return (str(part) for name, part in parts_of(value) if name == "key_env")


def parts_of(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield a value and everything inside it, each with the name under which it stands."""
    waiting = [(name, value)]
    while waiting:
        name, value = waiting.pop()
        yield name, value
        if isinstance(value, Mapping):
            waiting += [(str(key), part) for key, part in value.items()]
        elif isinstance(value, (list, tuple)):
            waiting += [(name, part) for part in value]


def _is_key(name: str, value: Any) -> bool:
    """Return True if a value is a key, by its name, by its own look, or by both."""
    if not isinstance(value, str) or not value:
        return False
    if _KEY_NAMES.search(name) or hidden(value) != value:
        return True
    return bool(_MAYBE_KEY.search(name) and _RANDOM.fullmatch(value))


class Secrets:
    """Some secrets. Those with spaces in them are searched for whole, and word by word."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        long, whole = set[str](), set[str]()
        for secret in secrets:
            for word in {secret, *secret.split()}:
                shortest = SHORTEST if word == secret else RUN
                if len(word) < shortest:
                    continue
                if len(word) >= RUN and " " not in word:
                    long.add(word)
                else:
                    whole.add(word)
        self._spellings = Spellings(long, whole) if long or whole else None

    def hide(self, text: str) -> str:
        """Return a text without the secrets, and without any RUN characters in a row of one."""
        if self._spellings is None or len(text) < SHORTEST:
            return text
        spans = self._spellings.spans(text)
        return _without(text, spans) if spans else text

    def hide_in(self, value: Any, levels: int = DEEPEST) -> Any:
        """Return a JSON value without the secrets in its texts and names.

        What is nested deeper than `levels` becomes None.
        """
        texts = _Texts(value, levels)
        texts.hide(self._spellings)
        return texts.instead(value, levels) if texts.changed else value


class _Texts:
    """The texts and names of a JSON value.

    They are searched as one text, because a reply has a hundred thousand of them.

    Attributes:
        changed: Whether the value is not the same without secrets.
    """

    def __init__(self, value: Any, levels: int) -> None:
        self._collect(value, levels)

    def _collect(self, value: Any, levels: int) -> None:
        names, texts = set[str](), list[str]()
        within: list[Any] = [[value]]
        for _ in range(levels + 1):
            deeper: list[Any] = []
            for each in within:
                parts: Iterable[Any] = each
                if isinstance(each, dict):
                    names.update(each)
                    parts = each.values()
                for part in parts:
                    if type(part) is str:
                        texts.append(part)
                    elif type(part) is dict or type(part) is list:
                        deeper.append(part)
            within = deeper
        self.changed = bool(within)
        self._texts = {text: text for text in (*names, *texts)}

    def hide(self, spellings: Spellings | None) -> None:
        """Find what the texts are without secrets."""
        texts = [text for text in self._texts if len(text) >= SHORTEST]
        whole = _BETWEEN.join(texts)
        spans = spellings.spans(whole) if spellings and texts else []
        left = iter(texts)
        start, stop, text, own = 0, -len(_BETWEEN), "", list[tuple[int, int]]()
        for first, last in (*spans, (len(whole), 0)):
            if first >= stop and own:
                self._texts[text], self.changed = _without(text, own), True
                own = []
            while first >= stop and (text := next(left, "")):
                start = stop + len(_BETWEEN)
                stop = start + len(text)
            own.append((first - start, last - start))

    def instead(self, value: Any, levels: int) -> Any:
        """Return a value with the texts without secrets."""
        if type(value) is str:
            return self._texts[value]
        if type(value) is dict:
            parts = value.items() if levels else ()
            return {self._texts[name]: self.instead(part, levels - 1) for name, part in parts}
        if type(value) is list:
            return [self.instead(part, levels - 1) for part in value] if levels else None
        return value


def _without(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return a text with HIDDEN in place of some stretches, which are in order."""
    parts, at = [], 0
    for start, stop in spans:
        parts += [text[at:start], HIDDEN]
        at = stop
    return "".join([*parts, text[at:]])
