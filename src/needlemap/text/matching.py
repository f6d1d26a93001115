"""Whether an answer names a word or a value: one rule for all scorers of these."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from unicodedata import normalize

_HYPHENS = re.compile("[\u2010-\u2013\u2212]")  # longer dashes part words, and stay
_UNSPACED = 0x2E80  # from here on: Han, kana, Hangul
_GROUP = 3  # digits
_GROUPED = re.compile(
    r"(?<![0-9a-z])(?<![0-9][,.'])"  # no part of a longer number
    r"[0-9]{1,3}([,.' ]|\{,\}|\\,)[0-9]{3}(?:\1[0-9]{3})*"
    r"(?![0-9a-z]|[,.'][0-9])"
)
_NUMBERED = re.compile("[a-z]+[0-9]+")  # a name such as x7
_APART = re.compile(r"(?<=[a-z])[ _\\{}-]{1,4}(?=[0-9])")
_JOINTS = str.maketrans("-_", "  ")
_GOES_ON = re.compile(r"\d|\.0*[1-9]")  # 500.00 is 500
_BEGAN = re.compile(r"\d\.?\Z")
_WHOLE_PART = re.compile(r"(?<![\d.])\d{1,20}\.\Z")  # not 12.05.2020's
_ITEM = re.compile(r"^[\s*_-]{0,9}[1-9]\d?\.\Z", re.MULTILINE)  # 1.7884 may be a list's first line
_GAP = re.compile(r"[\s*_`\"“”]+")
_FREE_SCRIPTS = "\u2e80-\u9fff\uf900-\ufaff"  # Han and kana: where white space parts no words
_FREE = re.compile(f"[{_FREE_SCRIPTS}]")
_FREE_GAP = re.compile(f"(?<=[{_FREE_SCRIPTS}]) | (?=[{_FREE_SCRIPTS}])")
_REACH = 32  # characters, more than those two look back

_HEXADECIMAL = re.compile(r"(?=[a-f-]*[0-9])[0-9a-f]+(-[0-9a-f]+)*")
_AROUND = "(?<![0-9a-z])", "(?![0-9a-z])"  # Chinese may stand right beside a value
_ALONE = f"{_AROUND[0]}(?<![0-9]-)", f"{_AROUND[1]}(?!-[0-9])"  # no part of a date
_COUNT = 3  # digits that a count, a year's day or a list's number may have


def plain(text: str) -> str:
    """A text as it is compared.

    >>> plain("Red\u2011Fox \uff11\uff12")
    'red-fox 12'
    """
    return _HYPHENS.sub("-", normalize("NFKC", text)).casefold()


def named(said: str, wanted: str) -> bool:
    """Whether a plain text names another, whole.

    >>> named("it is 12, not 3124", "12"), named("it is 3124", "12"), named("密码是12号", "12")
    (True, False, True)
    """
    return index_of(said, wanted) >= 0


def held(said: str, wanted: str) -> bool:
    """Whether a plain text holds another anywhere, but for numbers in longer ones.

    >>> held("two sandwiches", "sandwich"), held("it is 3124", "12"), held("it is 12.5", "12")
    (True, False, False)
    """
    return index_of(said, wanted, _whole_number) >= 0


def index_of(said: str, wanted: str, whole: Callable[[str, int, int], bool] | None = None) -> int:
    """Where a plain text names another, -1 where it does not. whole: whether a part of a text
    stands apart.

    >>> index_of("a red fox", "red-fox"), index_of("no red foxes", "red-fox")
    (2, -1)
    """
    wanted, closed = _prepared(wanted)
    said = _closed(said) if closed else said
    alike, sought = _alike(said, wanted)
    compound = "-" in wanted  # then the two have the same places, and only the first has hyphens
    stands_apart = whole or (_whole_compound if compound else _whole_word)
    start = alike.find(sought) if sought else -1
    while start >= 0:
        if stands_apart(said if compound else alike, start, start + len(sought)):
            return start
        start = alike.find(sought, start + 1)
    return -1


@lru_cache(maxsize=64)
def ungrouped(text: str) -> str:
    """A plain text without what parts the thousands of its numbers.

    >>> ungrouped("51,328 and 7 000 000, not 12,34 nor 2.500,0")
    '51328 and 7000000, not 12,34 nor 2.500,0'
    """
    return _GROUPED.sub(lambda match: re.sub(r"[^0-9]", "", match[0]), text)


def _alike(said: str, wanted: str) -> tuple[str, str]:
    """Two texts, written alike as far as the wanted one's kind allows."""
    wanted = wanted if "." in wanted else ungrouped(wanted)  # 3.141 is rather a fraction
    if wanted.isdecimal():
        return (ungrouped(said) if len(wanted) > _GROUP else said), wanted
    if "-" in wanted:
        return _spaced(said), _spaced(wanted)
    return (_joined(said), wanted) if _NUMBERED.fullmatch(wanted) else (said, wanted)


@lru_cache(maxsize=4096)
def _prepared(wanted: str) -> tuple[str, bool]:
    """What is looked for, and whether white space in the text is to be closed before."""
    wanted = wanted.strip()
    if not _GAP.search(wanted) and not _FREE.search(wanted):
        return wanted, False
    wanted = _closed(wanted).strip()
    return wanted if ungrouped(wanted).isdecimal() else wanted.replace(" ", "-"), True


@lru_cache(maxsize=64)
def _closed(text: str) -> str:
    """A text with one space for what parts its words, and none beside scripts that have none.

    >>> _closed("a **red**\\n kite, 旧 灯塔"), index_of("a **red**\\n kite", "red kite")
    ('a red kite,旧灯塔', 2)
    """
    return _FREE_GAP.sub("", _GAP.sub(" ", text))


@lru_cache(maxsize=64)
def _spaced(text: str) -> str:
    return text.translate(_JOINTS)


@lru_cache(maxsize=64)
def _joined(text: str) -> str:
    """A text in which numbers stand right behind their names: mab22 for mab 22 and
    mab_{22}."""
    return _APART.sub("", text)


def _whole_word(said: str, start: int, end: int) -> bool:
    """Whether the word or number is no longer than that on either side."""
    before, after = (
        _one_word(said[start - 1 : start], said[start]),
        _one_word(said[end - 1], said[end : end + 1]),
    )
    return not before and not after and not _fraction(said, start, end)


def _whole_compound(said: str, start: int, end: int) -> bool:
    """Whether the word is no longer than that, and has no more hyphens."""
    before = said[start - 1 : start] == "-" and _one_word(said[start - 2 : start - 1], said[start])
    after = said[end : end + 1] == "-" and _one_word(said[end - 1], said[end + 1 : end + 2])
    return not before and not after and _whole_word(said, start, end)


def _fraction(said: str, start: int, end: int) -> bool:
    """Whether a number is a part of a decimal fraction: behind its point, or before it."""
    if said[end - 1].isdecimal() and _GOES_ON.match(said, end):
        return True
    reach = max(0, start - _REACH)
    behind = said[start].isdecimal() and _WHOLE_PART.search(said, reach, start)
    return bool(behind) and not _ITEM.search(said, reach, start)


def _one_word(left: str, right: str) -> bool:
    """Whether two neighbours belong to one word."""
    both = left + right
    return (
        len(both) == 2 and both.isalnum() and all(ord(character) < _UNSPACED for character in both)
    )


def _whole_number(said: str, start: int, end: int) -> bool:
    """Whether no number goes on beyond that on either side."""
    began = said[start].isdecimal() and _BEGAN.search(said[max(0, start - 2) : start])
    return not began and not (said[end - 1].isdecimal() and _GOES_ON.match(said, end))


def shape(wanted: str) -> str:
    """A pattern for what looks like a text: a number, hexadecimal groups, or words joined as
    its are.

    A number that is much shorter, as counts and the numbers of lists are, does not look like
    another. Nothing looks like a word of a script without spaces but the word itself.

    >>> re.findall(shape("48213"), "1. the 5-digit key is 48213"), shape("red-fox")
    (['48213'], '(?<![^\\\\W_])[^\\\\W_]+-[^\\\\W_]+')
    """
    if wanted.isdecimal():
        least = _near(len(wanted))[0] if len(wanted) > _COUNT else 1
        return f"{_ALONE[0]}[0-9]{{{least},}}{_ALONE[1]}(?!\\.0*[1-9])"
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
    """As many hexadecimal digits, give or take a quarter, however hyphens group them, if they
    may.

    One of them at least is decimal, and where there are groups, one has five digits or more:
    neither words such as dead-beef nor dates such as 2024-01-05 look like it, and a slip of
    the pen still does.

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
    """One word of each list, one behind the other with a joint between. A hyphen may be a
    space.

    >>> re.findall(any_of(["Red", "sad"], ["fox"], joint="-"), "red-fox, red-foxes, sad fox")
    ['red-fox', 'sad fox']
    """
    words = _escaped(joint).join(f"(?:{'|'.join(map(_escaped, each))})" for each in lists)
    return f"{_AROUND[0]}{words}{_AROUND[1]}"


# A part of a text as `_escaped` writes it: no sign of a pattern but its hyphens.
_PART = r"(?:[^\\()\[\]{}*+?.^$|]|\\[^0-9A-Za-z]|\[-_ \])*"
_ANY_OF = re.compile(
    rf"{re.escape(_AROUND[0])}(?:\(\?:{_PART}(?:\|{_PART})*\){_PART})+{re.escape(_AROUND[1])}"
)
_MOST_DIGITS = 200


def is_own_pattern(pattern: str) -> bool:
    """Return whether `any_of`, `number` or `hexadecimal` made a pattern: none of theirs takes long
    on any text.

    >>> is_own_pattern(any_of(["red", "sad"], ["fox"], joint="-")), is_own_pattern("(a|a)*$")
    (True, False)
    """
    sizes = range(1, _MOST_DIGITS)
    return (
        bool(_ANY_OF.fullmatch(pattern))
        or any(pattern == number(size) for size in sizes)
        or any(
            pattern == hexadecimal(size, hyphens=hyphens)
            for size in sizes
            for hyphens in (True, False)
        )
    )


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
