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
# What a text must hold, in small letters, to be searched for a key; the pattern of the key; and
# what replaces it. Each pattern takes time in proportion to the text: two attempts to match never
# read the same stretch of it.
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
_KEY_WORDS = "api[_-]?key|secret|passw(?:or)?d|authorization|access[_-]?token|bearer"
# Names whose values are refused as keys.
_KEY_NAMES = re.compile(rf"(?i)(^|[_-])({_KEY_WORDS})$")
# Names whose values are not shown. More than are refused: a run that is read, not made, may be of
# any version or tool, and here a wrong guess costs one value in a table.
_PRIVATE_NAMES = re.compile(rf"(?i){_KEY_WORDS}|passw|credential|(^|[_-])token$")
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
    for required, pattern, replacement in _SECRETS:
        if required in lowered:
            text = pattern.sub(replacement, text)
    return _IN_ADDRESS.sub(_hidden_value, text)


def _hidden_value(match: re.Match[str]) -> str:
    """Return a value in an address, hidden if it looks like a key."""
    name, value = match.groups()
    has_digits, has_small, has_capitals = (bool(letters.search(value)) for letters in _MIXED)
    if has_digits and ((has_small and has_capitals) or _LONG.match(value)):
        return f"{name}{HIDDEN}"
    return match[0]


def raised_by(error: BaseException) -> str:
    """Return an exception of a user's own code as one line, with its file and line.

    The whole traceback is logged, which `--debug` shows.
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
    remaining = [(name, value)]
    while remaining:
        name, value = remaining.pop()
        yield name, value
        if isinstance(value, Mapping):
            remaining += [(str(key), part) for key, part in value.items()]
        elif isinstance(value, (list, tuple)):
            remaining += [(name, part) for part in value]


def mask_keys(value: Any, name: str = "") -> Any:
    """Return a setting with HIDDEN in place of the values that are keys by their name or look.

    name: of the setting. Secrets inside other texts remain: `hidden` hides them.

    >>> mask_keys({"api_key": "abc", "headers": {"x-auth": "4f9aQ27cd01e88ba"}, "n": 1})
    {'api_key': '[hidden]', 'headers': {'x-auth': '[hidden]'}, 'n': 1}
    """
    if value and (_PRIVATE_NAMES.search(name) or _maybe_key(name, value)):
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: mask_keys(part, str(key)) for key, part in value.items()}
    return [mask_keys(part, name) for part in value] if isinstance(value, list) else value


def _is_key(name: str, value: Any) -> bool:
    """Return True if a value is a key, by its name, by its own look, or by both."""
    if not isinstance(value, str) or not value:
        return False
    if _KEY_NAMES.search(name) or hidden(value) != value:
        return True
    return _maybe_key(name, value)


def _maybe_key(name: str, value: Any) -> bool:
    """Return True if a name may be that of a key, and the value looks like one."""
    is_text = isinstance(value, str)
    return bool(is_text and _MAYBE_KEY.search(name) and _RANDOM.fullmatch(value))


class Secrets:
    """Secrets to hide in what a server returns.

    Args:
        secrets: Texts that were sent. One with spaces, e.g. 'Bearer KEY', is searched for whole
            and word by word.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # A part of a long word gives it away. A shorter one or a sentence is searched for whole,
        # because ordinary texts may hold a part of it.
        long_words, whole_texts = set[str](), set[str]()
        for secret in secrets:
            for text in {secret, *secret.split()}:
                # A short word of a longer secret may be an ordinary word.
                shortest = SHORTEST if text == secret else RUN
                if len(text) < shortest:
                    continue

                if len(text) >= RUN and " " not in text:
                    long_words.add(text)
                else:
                    whole_texts.add(text)

        self._spellings: Spellings | None = None
        if long_words or whole_texts:
            self._spellings = Spellings(long_words, whole_texts)

    def hide(self, text: str) -> str:
        """Return a text with HIDDEN in place of the secrets.

        Any RUN characters in a row of a long secret are hidden too.
        """
        if self._spellings is None or len(text) < SHORTEST:
            return text
        spans = self._spellings.spans(text)
        return _replace_spans(text, spans) if spans else text

    def hide_in(self, value: Any) -> Any:
        """Return a JSON value with HIDDEN in place of the secrets in its texts and names.

        A part that is nested deeper than DEEPEST levels becomes None.
        """
        texts = _Texts(value)
        texts.hide(self._spellings)
        return texts.replace_in(value) if texts.changed else value


class _Texts:
    """The texts and names of a JSON value.

    They are searched as one text, because a reply has a hundred thousand of them.

    Attributes:
        changed: Whether the value holds secrets, or parts that are nested too deep.
    """

    def __init__(self, value: Any) -> None:
        # The names and texts are found level by level.
        names, texts = set[str](), list[str]()
        containers: list[Any] = [[value]]
        for _ in range(DEEPEST + 1):
            inner_containers: list[Any] = []
            for container in containers:
                parts: Iterable[Any] = container
                if isinstance(container, dict):
                    names.update(container)
                    parts = container.values()
                for part in parts:
                    if type(part) is str:
                        texts.append(part)
                    elif type(part) is dict or type(part) is list:
                        inner_containers.append(part)
            containers = inner_containers

        # The containers that are left are nested too deep: they become None.
        self.changed = bool(containers)
        self._texts = {text: text for text in (*names, *texts)}

    def hide(self, spellings: Spellings | None) -> None:
        """Replace the secrets in each text."""
        texts = [text for text in self._texts if len(text) >= SHORTEST]
        joined_texts = _BETWEEN.join(texts)
        spans = spellings.spans(joined_texts) if spellings and texts else []

        # Spans come in order, so that each is behind the last one's text, or in it. A last span
        # behind all texts finishes the text before it.
        remaining_texts = iter(texts)
        text, start, stop = "", 0, -len(_BETWEEN)
        text_spans: list[tuple[int, int]] = []
        for span_start, span_stop in (*spans, (len(joined_texts), 0)):
            if span_start >= stop and text_spans:
                self._texts[text] = _replace_spans(text, text_spans)
                self.changed = True
                text_spans = []
            while span_start >= stop and (text := next(remaining_texts, "")):
                start = stop + len(_BETWEEN)
                stop = start + len(text)
            text_spans.append((span_start - start, span_stop - start))

    def replace_in(self, value: Any, levels: int = DEEPEST) -> Any:
        """Return a value in which all texts and names are without secrets."""
        if type(value) is str:
            return self._texts[value]
        if type(value) is dict:
            parts = value.items() if levels else ()
            return {self._texts[name]: self.replace_in(part, levels - 1) for name, part in parts}
        if type(value) is list:
            return [self.replace_in(part, levels - 1) for part in value] if levels else None
        return value


def _replace_spans(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return a text with HIDDEN in place of spans, which are in order."""
    parts: list[str] = []
    position = 0
    for start, stop in spans:
        parts += [text[position:start], HIDDEN]
        position = stop
    return "".join([*parts, text[position:]])
