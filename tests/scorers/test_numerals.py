"""Small numbers as words are read as digits, and nothing else is touched."""

from __future__ import annotations

import pytest

from needlemap.scorers.numerals import in_digits

_LOW = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_SIGNS = "零一二三四五六七八九"


def english(number: int) -> str:
    if number >= 100:
        rest = f" and {english(number % 100)}" if number % 100 else ""
        return f"{_LOW[number // 100]} hundred{rest}"
    if number < 20:
        return _LOW[number]
    return _TENS[number // 10 - 2] + (f"-{_LOW[number % 10]}" if number % 10 else "")


def chinese(number: int) -> str:
    hundreds, tens, ones = number // 100, number // 10 % 10, number % 10
    text = f"{_SIGNS[hundreds]}百" if hundreds else ""
    if tens:
        text += f"{'' if tens == 1 and not hundreds else _SIGNS[tens]}十"
    elif hundreds and ones:
        text += "零"
    return text + (_SIGNS[ones] if ones or not number else "")


def test_every_number_below_a_thousand_is_read_in_both_languages():
    for number in range(1000):
        assert in_digits(english(number)) == in_digits(english(number).replace("-", " ")) == str(number)
        assert in_digits(chinese(number)) == str(number)


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("Four generations", "4 generations"),
        ("one or two", "1 or 2"),
        ("two two", "2 2"),
        ("two hundred five", "205"),
        ("someone is often alone at nineteenth street", "someone is often alone at nineteenth street"),
        ("两代，一百一十代", "2代，110代"),
        ("4", "4"),
        ("", ""),
    ],
)
def test_whole_words_alone_are_numbers(text, digits):
    assert in_digits(text) == digits
