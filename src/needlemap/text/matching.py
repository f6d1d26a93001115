"""Decide if an answer names a word or a value: one rule for all scorers of these."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from unicodedata import normalize

# Longer dashes separate words, and stay.
_HYPHENS = re.compile("[\u2010-\u2013\u2212]")
# Markdown and LaTeX have a backslash before such a sign: 25\%.
_ESCAPED = re.compile(r"\\(?=[%$&#_-])")
# Typographic apostrophes: O’Brien is O'Brien.
_APOSTROPHES = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc", "'"))
# Code points from here on are Han, kana and Hangul.
_UNSPACED = 0x2E80
# Digits of a group.
_GROUP = 3
_GROUPED = re.compile(
    # It is not a part of a longer number.
    r"(?<![0-9a-z])(?<![0-9][,.'])"
    r"[0-9]{1,3}([,.' ]|\{,\}|\\,)[0-9]{3}(?:\1[0-9]{3})*"
    # 8,540,898.00 is 8540898.
    r"(?![0-9a-z]|[,'][0-9]|\.0*[1-9])"
)
# 12,345 is one number. 884,437,234 may be three, in a list without spaces, and 12 345 two.
_SURELY_GROUPED = re.compile(r"[0-9]{1,2}[,'{\\]")
_LONG_NUMBER = re.compile(rf"[0-9]{{{_GROUP + 1}}}")
# A name such as x7.
_NUMBERED = re.compile("[a-z]+[0-9]+")
_APART = re.compile(r"(?<=[a-z])[ _\\{}-]{1,4}(?=[0-9])")
_JOINTS = str.maketrans("-_", "  ")
# A number continues. It does not in 500.00, which is 500.
_CONTINUES = re.compile(r"\d|\.0*[1-9]")
_BEGAN = re.compile(r"\d\.?\Z")
# The 12. of 12.5, but not of 12.05.2020.
_WHOLE_PART = re.compile(r"(?<![\d.])\d{1,20}\.\Z")
# 1.7884 may be the first line of a list.
_ITEM_NUMBER = r"^[\s*_-]{0,9}([1-9]\d?)\."
_ITEM = re.compile(rf"{_ITEM_NUMBER}\Z", re.MULTILINE)
_ITEM_NUMBERS = re.compile(_ITEM_NUMBER, re.MULTILINE)
_GAP = re.compile(r"[\s*_`\"“”]+")
# Han and kana, in which white space does not separate words.
_FREE_SCRIPTS = "\u2e80-\u9fff\uf900-\ufaff"
_FREE = re.compile(f"[{_FREE_SCRIPTS}]")
_FREE_GAP = re.compile(f"(?<=[{_FREE_SCRIPTS}]) | (?=[{_FREE_SCRIPTS}])")
# Characters. It is more than `_WHOLE_PART` and `_ITEM` look back.
_REACH = 32

_HEXADECIMAL = re.compile(r"(?=[a-f-]*[0-9])[0-9a-f]+(-[0-9a-f]+)*")
# What may not stand before and after a value. Chinese may stand right next to it.
_AROUND = ("(?<![0-9a-z])", "(?![0-9a-z])")
# The same for a number that is not a part of a date.
_ALONE = (f"{_AROUND[0]}(?<![0-9]-)", f"{_AROUND[1]}(?!-[0-9])")
# Digits that a count, a day of the year or a number in a list may have.
_COUNT = 3


def plain(text: str) -> str:
    """Return a text as it is compared.

    >>> plain("Red\u2011Fox \uff11\uff12"), plain("O\u2019Brien"), plain("25\\\\%")
    ('red-fox 12', "o'brien", '25%')
    """
    text = _ESCAPED.sub("", _HYPHENS.sub("-", normalize("NFKC", text)))
    return text.translate(_APOSTROPHES).casefold()


def named(text: str, word: str) -> bool:
    """Return True if a plain text names another one, whole.

    >>> named("it is 12, not 3124", "12"), named("it is 3124", "12"), named("密码是12号", "12")
    (True, False, True)
    """
    return index_of(text, word) >= 0


def contains(text: str, word: str) -> bool:
    """Return True if a plain text holds another one anywhere, but not a number in a longer one.

    >>> contains("two sandwiches", "sandwich")
    True
    >>> contains("it is 3124", "12"), contains("it is 12.5", "12"), contains("1.345\\n2.67", "345")
    (False, False, True)
    >>> contains("it is 12,345", "12"), contains("it is 12,345.00", "12345")
    (False, True)
    """
    return index_of(text, word, _whole_number) >= 0


def index_of(text: str, word: str, whole: Callable[[str, int, int], bool] | None = None) -> int:
    """Return where a plain text names another one, or -1 if it does not.

    whole: decides if the part of a text between two places stands apart.

    >>> index_of("a red fox", "red-fox"), index_of("no red foxes", "red-fox")
    (2, -1)
    """
    word, has_gaps = _search_form(word)
    if has_gaps:
        text = _with_closed_gaps(text)
    text, word = _with_alike_numbers(text, word)
    comparable_text, comparable_word = _comparable(text, word)
    if not comparable_word:
        return -1

    # A compound has the same places in both texts, and only the first one has its hyphens.
    is_compound = "-" in word
    searched = text if is_compound else comparable_text
    if whole is None:
        whole = _is_whole_compound if is_compound else _is_whole_word
    start = comparable_text.find(comparable_word)
    while start >= 0:
        if whole(searched, start, start + len(comparable_word)):
            return start
        start = comparable_text.find(comparable_word, start + 1)
    return -1


@lru_cache(maxsize=64)
def ungrouped(text: str) -> str:
    """Return a plain text without what groups the thousands of its numbers.

    >>> ungrouped("51,328 and 7 000 000, not 12,34 nor 2.500,0")
    '51328 and 7000000, not 12,34 nor 2.500,0'
    """
    return _GROUPED.sub(_digits, text)


@lru_cache(maxsize=64)
def _surely_ungrouped(text: str) -> str:
    """Return a plain text without what groups thousands, if it can be nothing else.

    >>> _surely_ungrouped("12,345 and 884,437,234 and 12 345")
    '12345 and 884,437,234 and 12 345'
    """

    def digits_if_sure(match: re.Match[str]) -> str:
        return _digits(match) if _SURELY_GROUPED.match(match[0]) else match[0]

    return _GROUPED.sub(digits_if_sure, text)


def _digits(match: re.Match[str]) -> str:
    return re.sub("[^0-9]", "", match[0])


def _with_alike_numbers(text: str, word: str) -> tuple[str, str]:
    """Return a text and a word without what groups thousands, if the word may have some.

    >>> _with_alike_numbers("it is $1,250", "$1,250"), _with_alike_numbers("1,250", "3.141")
    (('it is $1250', '$1250'), ('1,250', '3.141'))
    """
    if "." in word:
        # 3.141 is more likely a fraction.
        return text, word
    word = ungrouped(word)
    if _LONG_NUMBER.search(word):
        return ungrouped(text), word
    return _surely_ungrouped(text) if word.isdecimal() else text, word


def _comparable(text: str, word: str) -> tuple[str, str]:
    """Return a text and a word in a common spelling, as far as the word's kind allows."""
    if "-" in word:
        return _with_spaces(text), _with_spaces(word)
    if _NUMBERED.fullmatch(word):
        return _with_joined_numbers(text), word
    return text, word


@lru_cache(maxsize=4096)
def _search_form(word: str) -> tuple[str, bool]:
    """Return a word as it is searched for, and True if white space in the text must be closed."""
    word = word.strip()
    if not _GAP.search(word) and not _FREE.search(word):
        return word, False
    word = _with_closed_gaps(word).strip()
    if not ungrouped(word).isdecimal():
        word = word.replace(" ", "-")
    return word, True


@lru_cache(maxsize=64)
def _with_closed_gaps(text: str) -> str:
    """Return a text with one space between words, and none next to scripts that have none.

    >>> _with_closed_gaps("a **red**\\n kite, 旧 灯塔"), index_of("a **red**\\n kite", "red kite")
    ('a red kite,旧灯塔', 2)
    """
    return _FREE_GAP.sub("", _GAP.sub(" ", text))


@lru_cache(maxsize=64)
def _with_spaces(text: str) -> str:
    return text.translate(_JOINTS)


@lru_cache(maxsize=64)
def _with_joined_numbers(text: str) -> str:
    """Return a text in which numbers follow their names: mab22 for mab 22 and mab_{22}."""
    return _APART.sub("", text)


def _is_whole_word(text: str, start: int, end: int) -> bool:
    """Return True if the word or number does not continue on either side."""
    if _is_one_word(text[start - 1 : start], text[start]):
        return False
    if _is_one_word(text[end - 1], text[end : end + 1]):
        return False
    return not _is_part_of_fraction(text, start, end)


def _is_whole_compound(text: str, start: int, end: int) -> bool:
    """Return True if a word continues on neither side, and is no part of a word with hyphens."""
    if text[start - 1 : start] == "-" and _is_one_word(text[start - 2 : start - 1], text[start]):
        return False
    if text[end : end + 1] == "-" and _is_one_word(text[end - 1], text[end + 1 : end + 2]):
        return False
    return _is_whole_word(text, start, end)


def _is_part_of_fraction(text: str, start: int, end: int) -> bool:
    """Return True if a number is the part of a decimal fraction before or after its point."""
    if text[end - 1].isdecimal() and _CONTINUES.match(text, end):
        return True
    if not text[start].isdecimal():
        return False
    is_after_point = _WHOLE_PART.search(text, max(0, start - _REACH), start) is not None
    return is_after_point and not _is_item(text, start, end)


def _is_item(text: str, start: int, end: int) -> bool:
    """Return True if what stands right before a number is the number of a list's item.

    12. before a long number is. Before a short one, which may be a fraction's, it is if the items
    count up to it from 1.

    >>> _is_item("1.1234567", 2, 9), _is_item("12.5", 3, 4), _is_item("1.345\\n2.67", 8, 10)
    (True, False, True)
    """
    item = _ITEM.search(text, max(0, start - _REACH), start)
    if item is None or end - start > _GROUP:
        return item is not None
    numbers = _item_numbers(text)
    place = int(item[1])
    return {1, 2} <= numbers and (place == 1 or place - 1 in numbers)


@lru_cache(maxsize=64)
def _item_numbers(text: str) -> frozenset[int]:
    """Return the numbers with a point behind them that start lines."""
    return frozenset(map(int, _ITEM_NUMBERS.findall(text)))


def needs_space(before: str, after: str) -> bool:
    """Return True if a text would run into the text before it.

    It would if both are of scripts that have spaces between words, and none stands between.

    >>> needs_space("Answer:", "Jack"), needs_space("Answer: ", "Jack"), needs_space("", "Jack")
    (True, False, False)
    >>> needs_space("答：", "杰克")
    False
    """
    last, first = before[-1:], after[:1]
    if not last.strip() or not first.strip():
        return False
    return max(ord(last), ord(first)) < _UNSPACED


def _is_one_word(left: str, right: str) -> bool:
    """Return True if two neighbours belong to one word."""
    both = left + right
    if len(both) != 2 or not both.isalnum():
        return False
    return all(ord(character) < _UNSPACED for character in both)


def _whole_number(text: str, start: int, end: int) -> bool:
    """Return True if no number continues on either side. The number of a list's item is another."""
    continues = text[start].isdecimal() and _BEGAN.search(text[max(0, start - 2) : start])
    if continues and not _is_item(text, start, end):
        return False
    return not (text[end - 1].isdecimal() and _CONTINUES.match(text, end))


def shape(word: str) -> str:
    """Return a pattern for texts that look like one: a number, hexadecimal groups, or joined words.

    A much shorter number does not look like another one, as counts and the numbers of lists are
    shorter. Nothing looks like a word of a script without spaces, except the word itself.

    >>> re.findall(shape("48213"), "1. the 5-digit key is 48213"), shape("red-fox")
    (['48213'], '(?<![^\\\\W_])[^\\\\W_]+-[^\\\\W_]+')
    """
    if word.isdecimal():
        is_long = len(word) > _COUNT
        fewest_digits = _digit_range(len(word))[0] if is_long else 1
        # 12. before a long number is that of a list's item.
        before = _ALONE[0] if is_long else f"{_ALONE[0]}(?<![0-9]\\.)"
        return f"{before}[0-9]{{{fewest_digits},}}{_ALONE[1]}(?!\\.0*[1-9])"
    if _HEXADECIMAL.fullmatch(word):
        return hexadecimal(len(word.replace("-", "")), hyphens="-" in word)
    if not word.isascii():
        return re.escape(word)
    parts = re.sub(r"[^\W_]+", lambda _: r"[^\W_]+", re.escape(word).replace(r"\-", "-"))
    # Inside a long word nothing is tried.
    start = r"(?<![^\W_])" if word[0].isalnum() else ""
    return f"{start}{parts}"


def number(digits: int) -> str:
    """Return a pattern for numbers of about so many digits: a quarter more or less, not grouped.

    It does not find dates.

    >>> re.findall(number(7), "none of the 300 of 2024-01-05, or 7394821")
    ['7394821']
    """
    fewest_digits, most_digits = _digit_range(digits)
    return f"{_ALONE[0]}[0-9]{{{fewest_digits},{most_digits}}}{_ALONE[1]}"


def hexadecimal(digits: int, *, hyphens: bool) -> str:
    """Return a pattern for about so many hexadecimal digits: a quarter more or less.

    hyphens: whether hyphens may group them, in any way.

    At least one of them is decimal, and with groups, one has five digits or more. So neither words
    such as dead-beef nor dates such as 2024-01-05 look like it, and a value with a wrong digit
    still does.

    >>> re.findall(hexadecimal(12, hyphens=True), "a dead-beef of 2024-01-05 is 50aea17b-4dd")
    ['50aea17b-4dd']
    """
    fewest_digits, most_digits = _digit_range(digits)
    # Characters of the longest value, with a hyphen for each digit.
    reach = 2 * most_digits
    hyphen = "-?" if hyphens else ""
    group = f"(?=[0-9a-f-]{{0,{reach}}}[0-9a-f]{{5}})" if hyphens else ""
    # It is not a part of a longer one.
    before = "(?<![0-9a-f]{4}-)"
    value = f"[0-9a-f](?:{hyphen}[0-9a-f]){{{fewest_digits - 1},{most_digits - 1}}}"
    return f"{_ALONE[0]}{before}(?=[a-f-]{{0,{reach}}}[0-9]){group}{value}{_ALONE[1]}"


def any_of(*lists: Iterable[str], joint: str = "") -> str:
    """Return a pattern for one word of each list, in order, with a joint between.

    A hyphen may be a space.

    >>> re.findall(any_of(["Red", "sad"], ["fox"], joint="-"), "red-fox, red-foxes, sad fox")
    ['red-fox', 'sad fox']
    """
    words = _escaped(joint).join(f"(?:{'|'.join(map(_escaped, words))})" for words in lists)
    return f"{_AROUND[0]}{words}{_AROUND[1]}"


# A part of a text as `_escaped` writes it: without signs of a pattern, except its hyphens.
_PART = r"(?:[^\\()\[\]{}*+?.^$|]|\\[^0-9A-Za-z]|\[-_ \])*"
_ANY_OF = re.compile(
    rf"{re.escape(_AROUND[0])}(?:\(\?:{_PART}(?:\|{_PART})*\){_PART})+{re.escape(_AROUND[1])}"
)
_MOST_DIGITS = 200


def is_own_pattern(pattern: str) -> bool:
    """Return True if `any_of`, `number` or `hexadecimal` made a pattern.

    None of theirs takes long on any text.

    >>> is_own_pattern(any_of(["red", "sad"], ["fox"], joint="-")), is_own_pattern("(a|a)*$")
    (True, False)
    """
    if _ANY_OF.fullmatch(pattern):
        return True
    for digits in range(1, _MOST_DIGITS):
        if pattern == number(digits):
            return True
        if any(pattern == hexadecimal(digits, hyphens=hyphens) for hyphens in (True, False)):
            return True
    return False


def but(pattern: str, texts: Iterable[str]) -> str:
    """Return a pattern that finds what another one finds, except some texts.

    >>> re.findall(but(number(4), ["4711"]), "4711, 47110, 4712")
    ['47110', '4712']
    """
    return f"(?!{any_of(texts)}){pattern}"


def _escaped(text: str) -> str:
    return re.escape(plain(text)).replace(r"\-", "[-_ ]")


def _digit_range(digits: int) -> tuple[int, int]:
    """Return the fewest and the most digits of a number that looks like one of so many.

    They are a quarter fewer or more, so that a number with a digit left out or doubled looks like
    it still.
    """
    return digits - digits // 4, digits + digits // 4
