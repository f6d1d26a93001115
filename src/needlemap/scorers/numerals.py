"""Small whole numbers as words, English and Chinese: what an answer may write instead of digits.

Up to 999, more than any text of ours has generations. Knows neither fractions nor ordinals.
"""

from __future__ import annotations

import re

_LOW = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_ENGLISH = {word: number for number, word in enumerate(_LOW)} | {
    word: 10 * number for number, word in enumerate(_TENS, 2)
}
_CHINESE = {sign: number for number, sign in enumerate("零一二三四五六七八九")} | {"两": 2}
_UNIT, _SIGN = "|".join(_LOW[1:10]), "[一二两三四五六七八九]"
_BELOW = rf"(?:(?:{'|'.join(_TENS)})(?:[\s-]+(?:{_UNIT}))?|{'|'.join(_LOW)})"
_NUMBER = re.compile(
    rf"\b(?:(?:{_UNIT})\s+hundred(?:\s+(?:and\s+)?{_BELOW})?|{_BELOW})\b"
    rf"|{_SIGN}百(?:零?{_SIGN}?十)?零?{_SIGN}?|{_SIGN}?十{_SIGN}?|{_SIGN}|零",
    re.IGNORECASE,
)


def in_digits(text: str) -> str:
    """A text whose numbers are digits.

    >>> in_digits("thirty-two generations, or one hundred and five"), in_digits("四代，二十五代，一百零三代")
    ('32 generations, or 105', '4代，25代，103代')
    """
    return _NUMBER.sub(lambda found: str(_value(found[0].casefold())), text)


def _value(number: str) -> int:
    words = re.findall(r"[a-z]+", number)
    if words:
        low = sum(_ENGLISH.get(word, 0) for word in words)
        return low if "hundred" not in words else low + 99 * _ENGLISH[words[0]]
    hundreds, _, rest = number.rpartition("百")
    tens, ten, ones = rest.rpartition("十")
    tens_value = _CHINESE.get(tens.removeprefix("零"), 1) if ten else 0
    return 100 * _CHINESE.get(hundreds, 0) + 10 * tens_value + _CHINESE.get(ones[-1:], 0)
