"""Which of some lettered choices an answer takes: LongBench v2's letters.

An answer says its letter as it was asked to ("The correct answer is (B)"), or in other words of that kind, or
puts one alone into brackets, or stands it alone at its beginning or end. What is said last holds. A letter
that is called wrong, only possible ("could be A"), asked ("B?") or others' ("some say B") is not taken; who
takes two in one breath takes none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from unicodedata import normalize

from needlemap.errors import SettingsError
from needlemap.scorers.base import Reference, Score
from needlemap.settings.registry import Checked

_MARKS = re.compile(r"[*`\"“”$#|<>]|\\(?:text|math)\w*")
_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_LETTER_FIRST = re.compile(r"\s*\(?[A-Za-z](?![A-Za-z])")
_LONE = re.compile(r"(?<![A-Za-z])[a-z](?![A-Za-z])")
_ONLY = re.compile(r"[(\[]?[a-z][)\]]?\.?")
_LOWER = re.compile(r"((?i:\banswer)\s*(?:is|:)\s*)\(?([a-z])\)?(?=\s*(?:[.,;:!]|$))")
_REASON = r"(?:because|since|as|for|given|based|which|but|not|rather|according)\b"
_ARTICLE = re.compile(rf"(?<![\w'])[AI](?=\s+(?!{_REASON}|is\b|and\b|or\b)[a-z])")  # 'A dog'
_BARE = re.compile(r"(?<![A-Za-z0-9_'(\[])([A-Z])(?![A-Za-z0-9_'\])])|(?<![A-Za-z0-9_'(\[])([A-Z])(?=\))")
_BRACKETED = re.compile(r"[(\[]\s*([A-Z])\s*[)\]]")

# From here on texts as `_marked` leaves them: (B) was in brackets, <B> was not.
_ONE = r"[(<][A-Z][)>]"
_SEVERAL = rf"{_ONE}(?:(?:\s*(?:,|/|&|\b(?:and|or|nor)\b|和|或|、)){{1,2}}\s*{_ONE}){{0,8}}"
_NOUN = r"(?i:\b(?:answer|choice|option|solution)\b)"
_DENIED = re.compile(
    rf"(?:(?i:\b(?:not|cannot|neither|nor|than|except)\b)|n't|不是|并非|排除|不(?:应该?|能|会|要)?选(?!项)择?)\s*"
    rf"(?:(?:the|be|is|either|with|choose|pick|select|选?项|{_NOUN})\s*)*{_SEVERAL}"
    # No word of 'the incorrect option is (B)': that may be what was asked for.
    rf"|(?:(?i:\b(?:wrong|incorrect|worst|second[\s-]best|least(?:\s+\w+)?)\s+answer)(?:,?\s+[a-z']+){{0,6}}?\s*"
    rf"(?:\bis|\bbe|'s|:|=)|错误的?答案\s*[是为:]+)\s*(?:选项\s*)?{_SEVERAL}"
    rf"|{_SEVERAL}\s*are\s*(?:n't|(?:\w+\s+)?(?:not|wrong|incorrect|false|ruled)\b)"
    rf"|(?:{_NOUN}\s*)?{_ONE}\s*(?:(?:is|was|seems)\s+(?:\w+\s+)?(?:not|wrong|incorrect|false|ruled)\b"
    rf"|(?:is|was|ca|does)n't\b|cannot\b|不|是?错)"
)
_WEIGHED = re.compile(
    rf"(?:(?i:\b(?:could|might|may|can))\s+(?:(?!only\b)\w+\s+)?be\b:?\s*(?:(?:either|the|{_NOUN})\s*)*"
    rf"|可能[是为选]\s*){_SEVERAL}"
    rf"|{_SEVERAL}\s*(?:(?:could|might|may)\s+(?:\w+\s+)?be\s+(?:the\s+)?(?:correct|right|best|{_NOUN})|可能)"
)
_ASKED = re.compile(
    r"(?:\A|(?<=[.!?。\n]))[^\S\n]*"
    r"(?i:is|are|was|could|can|may|might|would|should|do|does|what|why|how)\b[^.!?。\n]*\?"
    rf"|{_SEVERAL}\s*(?:[吗呢吧]\s*)?\?"
)
_REPORTED = re.compile(
    r"(?i:\b(?:some|others|many|people))(?:\s+\w+){0,2}?\s+(?:say|think|claim|believe|argue|suggest)\b"
    rf"(?:\s+\w+){{0,6}}?\s*{_SEVERAL}"
)
_UNMEANT = (_ASKED, _REPORTED, _DENIED, _WEIGHED)
_ENDED = rf"(?=\s*(?:[.):,;!。—-]|\n|\Z|{_REASON}))"
_SURELY = r"(?:(?:the|clearly|indeed|most|probably|likely|thus|therefore|definitely)\s+){0,2}"
_ADVERBS = r"(?:(?:clearly|therefore|thus|likely|most|probably|indeed|but|rather|the|option|choice)\b,?\s*)*"
_STATED = re.compile(
    rf"(?:{_NOUN}(?:,?\s+[a-z']+){{0,6}}?\s*(?:\bis\b|\bbe\b|'s|:|=)\s*{_ADVERBS}"
    rf"|答案\s*(?:应该|应当|应|就)?\s*[是为选:]+\s*(?:选项)?\s*)({_ONE})"
)
_CHOSEN = re.compile(
    rf"(?:(?i:\b(?:choose|chose|pick|select|go\s+with|opt\s+for))\s+(?:the\s+)?(?:{_NOUN}\s*)?"
    rf"|选(?!项)择?\s*(?:选项|项)?\s*)({_ONE})|(?i:\banswer)\s*({_ONE}){_ENDED}"
    rf"|({_ONE})\s*(?:is\s+{_SURELY}(?:correct|right|best)\b(?!\s+(?:about|that|known|if|when)\b)"
    r"|(?:选项|项)?是?(?:正确|对)的)"
)
_CORRECTED = re.compile(
    r"(?:(?i:\b(?:wait|actually|no(?=\s*[,.:;!—-])))\b|不(?:是|对)?(?=\s*[,.:;!。]))"
    rf"(?:[\s,.:;!。—-]*(?:\b(?i:no|actually|it|is|it's|should|be|the|I|mean)\b|{_NOUN}|应该|是|选)){{0,5}}"
    rf"[\s,.:;!。—-]*({_ONE}){_ENDED}"
)
_ALONE = re.compile(rf"\A\s*(?:{_NOUN}\s*|选项\s*)?(<[A-Z]>){_ENDED}|\n[ \t]*(<[A-Z]>)[.)!]?\s*\Z")
_LISTED = re.compile(rf"(?:^[^\S\n]*|{_NOUN}\s*)<([A-Z])>[.):]", re.MULTILINE)
_OTHER = re.compile(
    r"(?:(?:\s*(?:,|/|&|\b(?:and|or)\b|和|或者?|还是|、)){1,2}|[^.!?。\n]{0,80}?\b(?:else|otherwise)\b,?)"
    rf"\s*(?:(?:maybe|perhaps|possibly|also|the|{_NOUN})\s+)*({_ONE})"
    rf"(?!\s*(?:is|was|says|does)\b)|\s*;\s*({_ONE})(?=\s*(?:[.,;]|\n|\Z))"
    r"|(?<=\))[^\S\n]*(\([A-Z]\))|(?<=>)[^\S\n]*(<[A-Z]>)"
)


class Choice(metaclass=Checked):
    """The right letter is the reference answer. why: the letter that was taken, '' for none."""

    name = "choice"
    rule = 2
    scale = (0.0, 1.0)

    def __init__(self) -> None:
        self.options: Mapping[str, Any] = {}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if the task's answer is no letter."""
        if not re.fullmatch("[A-Z]", reference.answer):
            raise SettingsError("Scorer 'choice' needs a task with lettered choices. Type: --scorer exact")
        said = letter(answer)
        right = float(said == reference.answer)
        return Score(right, right, {"said": said})


def letter(answer: str) -> str:
    """The letter that an answer takes.

    >>> letter("The correct answer is (B)."), letter("C. Because"), letter("(A) or (D)"), letter("A dog")
    ('B', 'C', '', '')
    """
    said = _marked(answer)
    for unmeant in _UNMEANT:
        said = unmeant.sub(" ", said)
    stated = [found for way in (_STATED, _CHOSEN, _CORRECTED) for found in way.finditer(said)]
    if stated:
        return _taken(said, max(stated, key=re.Match.start))
    bracketed = set(re.findall(r"\(([A-Z])\)", said))
    if bracketed:
        return str(bracketed.pop()) if len(bracketed) == 1 else ""
    alone = _ALONE.search(said)
    return _taken(said, alone) if alone and len(set(_LISTED.findall(said))) < 2 else ""


def _marked(answer: str) -> str:
    """An answer in which letters that may be choices are marked, and words that look like one are not.

    >>> _marked("A dog: B, or (C)?"), _marked("**Answer: c**")
    ('a dog: <B>, or (C)?', 'Answer: <C>')
    """
    text = _MARKS.sub("", normalize("NFKC", answer).replace("\u2019", "'"))
    text = text.upper() if _ONLY.fullmatch(text.strip()) else _BOXED.sub(_opened, text)
    text = _LOWER.sub(lambda said: said[1] + said[2].upper(), text)
    text = _ARTICLE.sub(lambda article: article[0].lower(), text)
    return _BARE.sub(lambda bare: f"<{bare[1] or bare[2]}>", _BRACKETED.sub(r"(\1)", text))


def _opened(box: re.Match[str]) -> str:
    """What stands in a box, said as an answer if it begins with a letter."""
    inside = re.sub(r"[{}]", "", box[1])
    if not _LETTER_FIRST.match(inside):
        return box[0]
    return f" answer: {_LONE.sub(lambda lone: lone[0].upper(), inside)}. "


def _taken(said: str, found: re.Match[str]) -> str:
    """The letter of a way to say it; '' where another stands beside it."""
    which = next(number for number, group in enumerate(found.groups(), 1) if group)
    other = _OTHER.match(said, found.end(which))
    return found[which][1] if not other or other[other.lastindex or 0][1] == found[which][1] else ""
