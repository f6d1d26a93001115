"""Patterns of what looks like an answer of a kind, for texts as `matching.plain` leaves them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from needlemap.scorers.matching import plain

_HEXADECIMAL = re.compile(r"(?=[a-f-]*[0-9])[0-9a-f]+(-[0-9a-f]+)*")
_AROUND = "(?<![0-9a-z])", "(?![0-9a-z])"  # Chinese may stand right beside a value
_ALONE = f"{_AROUND[0]}(?<![0-9]-)", f"{_AROUND[1]}(?!-[0-9])"  # no part of a date
_COUNT = 3  # digits that a count, a year's day or a list's number may have


def shape(wanted: str) -> str:
    """A pattern for what looks like a text: a number, hexadecimal groups, or words joined as its are.

    A number that is much shorter, as counts and the numbers of lists are, does not look like another. Nothing
    looks like a word of a script without spaces but the word itself.

    >>> re.findall(shape("48213"), "1. the 5-digit key is 48213"), shape("red-fox")
    (['48213'], '(?<![^\\\\W_])[^\\\\W_]+-[^\\\\W_]+')
    """
    if wanted.isdecimal():
        least = _near(len(wanted))[0] if len(wanted) > _COUNT else 1
        return f"{_ALONE[0]}[0-9]{{{least},}}{_ALONE[1]}"
    if _HEXADECIMAL.fullmatch(wanted):
        return hexadecimal(len(wanted.replace("-", "")), hyphens="-" in wanted)
    if not wanted.isascii():
        return re.escape(wanted)
    words = re.sub(r"[^\W_]+", lambda _: r"[^\W_]+", re.escape(wanted).replace(r"\-", "-"))
    begins = r"(?<![^\W_])" if wanted[0].isalnum() else ""  # within a long word nothing is tried
    return f"{begins}{words}"


def number(digits: int) -> str:
    """Numbers of so many digits, give or take a quarter, not grouped. Dates are none.

    >>> re.findall(number(7), "none of the 300 of 2024-01-05, or 7394821")
    ['7394821']
    """
    least, most = _near(digits)
    return f"{_ALONE[0]}[0-9]{{{least},{most}}}{_ALONE[1]}"


def hexadecimal(digits: int, *, hyphens: bool) -> str:
    """As many hexadecimal digits, give or take a quarter, however hyphens group them, if they may.

    One of them at least is decimal, and where there are groups, one has five digits or more: neither words
    such as dead-beef nor dates such as 2024-01-05 look like it, and a slip of the pen still does.

    >>> re.findall(hexadecimal(12, hyphens=True), "a dead-beef of 2024-01-05 is 50aea17b-4dd")
    ['50aea17b-4dd']
    """
    least, most = _near(digits)
    far = 2 * most  # characters, hyphens among them: how far it is worth looking
    hyphen, group = ("-?", f"(?=[0-9a-f-]{{0,{far}}}[0-9a-f]{{5}})") if hyphens else ("", "")
    behind = "(?<![0-9a-f]{4}-)"  # no part of a longer one
    found = f"[0-9a-f](?:{hyphen}[0-9a-f]){{{least - 1},{most - 1}}}"
    return f"{_ALONE[0]}{behind}(?=[a-f-]{{0,{far}}}[0-9]){group}{found}{_ALONE[1]}"


def any_of(*lists: Iterable[str], joint: str = "") -> str:
    """One word of each list, one behind the other with a joint between. A hyphen may be a space.

    >>> re.findall(any_of(["Red", "sad"], ["fox"], joint="-"), "red-fox, red-foxes, sad fox")
    ['red-fox', 'sad fox']
    """
    words = _escaped(joint).join(f"(?:{'|'.join(map(_escaped, each))})" for each in lists)
    return f"{_AROUND[0]}{words}{_AROUND[1]}"


def but(pattern: str, texts: Iterable[str]) -> str:
    """What a pattern finds, but for some texts.

    >>> re.findall(but(number(4), ["4711"]), "4711, 47110, 4712")
    ['47110', '4712']
    """
    return f"(?!{any_of(texts)}){pattern}"


def _escaped(text: str) -> str:
    return re.escape(plain(text)).replace(r"\-", "[-_ ]")


def _near(digits: int) -> tuple[int, int]:
    """A quarter less and more: a digit left out or doubled looks like it still."""
    return digits - digits // 4, digits + digits // 4
