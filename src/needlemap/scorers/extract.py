"""The first step of a score: what an answer says. A letter, a label, what a box holds, or that
there is none.

What depends on a language are few patterns in `data/`, each with examples that are tests; all
languages are read at once. An answer that nothing is taken from scores 0 and is called unreadable:
a rule that guessed more would be wrong more often, and nobody could say when. Every pattern takes
time in proportion to the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any
from unicodedata import normalize

from needlemap.files import read_yaml
from needlemap.text import any_of, named, plain

LANGUAGES = ("english", "chinese")
_LETTER = (  # 'a' and 'i' are words too
    r"(?:\(\s*([a-z])\s*\)|(?<![a-z0-9_'’])([b-hj-z])(?![a-z0-9_'’])"
    r"|(?<![a-z0-9_'’])([ai])(?=\s*(?:[.,:;!?)。]|$|(?:because|since|and|or)\b)))"
)
_MARKS = re.compile(r"[*`\"“”‘’「」『』$#|]")
_LATEX = re.compile(r"\\(?:text|math|operatorname)[a-z]*|\\[ ,;:!]|(?<!~)~(?!~)")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_HAN_GAP = re.compile("(?<=[\u2e80-\u9fff]) (?=[\u2e80-\u9fff])")
_BRACKETS = str.maketrans("[]", "()", "{}")
_LISTED = re.compile(r"(?:^[^\S\n]*|\boption )\(?([a-z])[.):]", re.MULTILINE | re.IGNORECASE)
_FIRST = re.compile(rf"\A\s*(?:(?:option|choice|选项)\s*)?{_LETTER}(?:[.):,。]|\s*$)", re.M | re.I)
_BRACKETED = re.compile(r"\A\s*\(([a-z])\)\s*([^\n]+)", re.IGNORECASE)
_LAST = re.compile(rf"\n[^\S\n]*{_LETTER}[.)!。]?\s*\Z", re.IGNORECASE)
_LONGEST = 60  # characters of a number with what it counts
_END = re.compile(r"[.!](?=[\s*_\"'”’)\]]|$)|(?<=\?)(?=[\s*_\"'”’)\]])|[。！]|(?<=？)|\n")
_HEADING, _ASKS = (":", "："), ("?", "？")
_STATED = ("stated", "chosen", "confirmed", "corrected")
_REACH = 40  # characters from a denial to what it denies


@cache
def patterns(language: str) -> Mapping[str, Any]:
    """What `data/` has on a language: by name {pattern, right, wrong}, and the small numbers
    in words."""
    read: dict[str, Any] = read_yaml(
        files("needlemap.scorers").joinpath("data", f"{language}.yaml").read_text("utf-8")
    )
    return read


@cache
def source(name: str, language: str) -> str:
    """A language's pattern, with what it holds in braces filled in."""
    told = patterns(language)
    number = rf"([0-9]{{1,9}}(?:\.0+)?|{'|'.join(told['numbers'])})"
    return str(told[name]["pattern"]).replace("{letter}", _LETTER).replace("{number}", number)


@cache
def pattern(name: str) -> re.Pattern[str]:
    """A pattern of all languages."""
    return re.compile("|".join(f"(?:{source(name, each)})" for each in LANGUAGES), re.M | re.I)


def letter(answer: str, question: str = "") -> str | None:
    """The letter of a choice that an answer takes: the last that it states, else one that
    stands alone.

    Two in one breath are none. question: with the choices, whose text may stand behind a
    letter in brackets.

    >>> (
    ...     letter("The correct answer is (B)."),
    ...     letter("C. Because"),
    ...     letter("(A) or (D)"),
    ...     letter("A dog"),
    ... )
    ('B', 'C', None, None)
    """
    text = _bare(boxed(answer) or answer).translate(_BRACKETS)
    stated = [one for name in _STATED for one in pattern(name).finditer(text)]
    if stated:
        return _taken(text, max(stated, key=re.Match.end))
    if len(set(_LISTED.findall(text))) < 2 and (first := _FIRST.match(text)):
        return _taken(text, first)
    lettered = _BRACKETED.match(text)
    if lettered and plain(lettered[0]).strip(" .") in plain(_bare(question)):
        return lettered[1].upper()
    last = _LAST.search(text)
    return _taken(text, last) if last else None


def boxed(answer: str) -> str | None:
    """What the last box holds that is closed and not empty; None without one.

    >>> boxed(r"So \\boxed{5}, or rather \\boxed{\\text{Ada}} (in a \\boxed{})."), boxed("Ada")
    ('\\\\text{Ada}', None)
    """
    text = normalize("NFKC", answer)
    boxes, opened = {match.end() for match in _BOX.finditer(text)}, list[int]()
    found = list[tuple[int, str]]()
    for place, sign in enumerate(text, 1) if boxes else ():
        if sign == "{":
            opened.append(place)
        elif sign == "}" and opened and (start := opened.pop()) in boxes:
            found.append((start, text[start : place - 1]))
    return next((held for _, held in sorted(found, reverse=True) if contents(held)), None)


def contents(held: str) -> str:
    """What a box holds as it is compared: without marks, quotes, LaTeX's words for type, a
    full stop.

    >>> contents(r"\\text{Ada}\\ **Ashford**."), contents("...")
    ('ada ashford', '')
    """
    words = " ".join(re.sub("[{}]", " ", _bare(held, " ")).casefold().split())
    return _HAN_GAP.sub("", words).strip(". 。")


def counted(held: str) -> int | None:
    """The number that a box holds, in digits or words, with what it counts or without; None
    for more.

    >>> (
    ...     counted("4 generations"),
    ...     counted("四代"),
    ...     counted("four"),
    ...     counted("3 or 4"),
    ...     counted("almost 4"),
    ... )
    (4, 4, 4, None, None)
    """
    for language in LANGUAGES if len(held) <= _LONGEST else ():
        if found := re.fullmatch(source("counted", language), held):
            words = [each.split("|") for each in patterns(language)["numbers"]]
            told = [number for number, names in enumerate(words) if found[1] in names]
            return told[0] if told else int(float(found[1]))
    return None


def labels_said(answer: str, labels: Sequence[str]) -> tuple[str, list[str]]:
    """The sentence of an answer that holds, and the labels that it names and does not deny.

    Of the sentences that name labels that is the last that concludes, else the first that is
    no question.

    >>> labels_said("First to the barn. So: the hall.", ["hall", "barn"])
    ('so: the hall', ['hall'])
    """
    denied = _denied(labels)
    told = [(each, _claimed(each, labels, denied)) for each in map(plain, sentences(answer))]
    naming = [one for one in told if one[1]]
    last = [one for one in naming if pattern("concludes").match(one[0])]
    firm = [one for one in naming if not one[0].endswith(_ASKS)]
    return next(iter(last[-1:] or firm or naming or told), ("", []))


def sentences(text: str) -> list[str]:
    """The sentences and lines of a text that are not blank; a line that ends with a colon is a
    heading.

    >>> sentences(" In the hall. Or the barn?"), sentences("答案：\\n大厅。谷仓。")
    (['In the hall', 'Or the barn?'], ['大厅', '谷仓'])
    """
    pieces = (piece.strip() for piece in _END.split(text))
    return [piece for piece in pieces if piece and not piece.endswith(_HEADING)]


def says_none(answered: str, none: str, *, known: bool) -> bool:
    """Whether a plain answer says that the text has nothing: in the word that the question
    gave for it.

    The word begins a sentence, or stands behind a colon or 'is', and ends the line. known:
    whether it is known what a made-up answer would look like; then more may follow, and a
    sentence about the text says it.

    >>> says_none("**none**", "none", known=False), says_none("none, but ann", "none", known=False)
    (True, False)
    >>> says_none("the text does not say.", "none", known=True)
    True
    """
    word, gap, end = re.escape(none), r"(?:[^\w\n]|_){0,9}", r"[^\w\n]{0,99}$"
    tail = r"(?![\w-])" if known else end
    says = rf"(?:^|[:.!?。]|\bis\b|[是为]){gap}{word}{tail}|,{gap}{word}{end}"
    told = re.search(says, _LATEX.sub("", answered).replace("\\boxed", ":"), re.MULTILINE)
    return bool(told) or (known and bool(pattern("silence").search(answered)))


def _bare(text: str, gap: str = "") -> str:
    """A text in plain signs, without markdown and LaTeX's words for type."""
    return _MARKS.sub(gap, _LATEX.sub(" ", normalize("NFKC", text)))


def _taken(text: str, found: re.Match[str]) -> str | None:
    """The letter of a way to say it; None where another is joined to it."""
    which = next(number for number, group in enumerate(found.groups(), 1) if group)
    end = found.end(which) + (text[found.end(which) : found.end(which) + 1] == ")")
    other = _second().match(text, end)
    others = {group.lower() for group in other.groups() if group} if other else set()
    return None if others - {found[which].lower()} else found[which].upper()


@cache
def _second() -> re.Pattern[str]:
    """Another letter, joined to one."""
    joint = pattern("joint").pattern
    gap = r"[^\S\n]{0,3}"
    between = rf"{gap}(?:(?:[,/;&]|{joint}){gap}){{0,2}}"
    return re.compile(rf"{between}{_LETTER}(?={gap}(?:[.,;!?。)]|$|{joint}))", re.I | re.M)


def _denied(labels: Sequence[str]) -> re.Pattern[str]:
    """What denies a label: the first behind a 'not' or the like in its clause, with what is
    joined to it."""
    denies, clause, joint = (pattern(name).pattern for name in ("denies", "clause", "joint"))
    label, between = any_of(labels), r"\W{0,3}(?:in )?(?:the )?在?"
    stop = rf"[,;:()]|{clause}"
    return re.compile(
        rf"({denies})(?:(?!{stop}).){{0,{_REACH}}}?{label}(?:\W{{0,3}}(?:{joint}|nor\b){between}{label})*"
    )


def _claimed(sentence: str, labels: Sequence[str], denied: re.Pattern[str]) -> list[str]:
    """The labels that a plain sentence names and does not deny; a denial may be a label itself
    ("no")."""
    left = denied.sub(r"\1 ", sentence)
    return [label for label in labels if named(left, label)]
