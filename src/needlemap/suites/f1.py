"""How well an answer's list agrees with the wanted one: F1, with recall and precision.

What the question already says earns nothing, as anybody can repeat it. A list's items are told from
what is said around them: of languages that takes what joins items (and, or, 和) and a few English
words that lead to a list, no more; a made-up item in the midst of a sentence stays unseen. Every
pattern takes time in proportion to the text, as an answer may be a million blanks.
"""

from __future__ import annotations

import re

from rapidfuzz.distance import LCSseq

from needlemap.errors import SettingsError
from needlemap.scorers import Score, Scorer
from needlemap.tasks import Reference
from needlemap.text import index_of, named, plain, ungrouped

_SHORT = 3  # digits of numbers that a list without spaces cannot tell from thousands
_BETWEEN = re.compile(r"[\n,;、，]|\band\b|和")
_HEADING = (":", "：")
_WORD = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
_BULLET = re.compile(r"^[\s\-*•]*(\d+[.)])?[\s\"'`*\[]*")
_END = re.compile(r"(?<![\s\"'`*\].:。])[\s\"'`*\].:。]+$")

_PARTS = re.compile(r"[,;、/]|->|\b(?:and|or)\b|[和或与及]")
_INTRODUCED = re.compile(r"^\s*#.*|^.*:[\s*_]*(?=[^\s*_0-9]|$)")  # a heading; what leads to a list
_COUNT = re.compile(  # fig (30 times), fig - 30, fig: 30
    r"(?<=[^\W_])(?:[*_`\"\s]*+\(|_*+[^\w-][\W_]*+[0-9]).*$"
)
_TALK = frozenset(  # words of five letters or more that stand alone in front of a list
    (
        *(
            "answer",
            "answers",
            "clearly",
            "finally",
            "first",
            "indeed",
            "lastly",
            "output",
            "overall",
        ),
        *("please", "result", "results", "second", "surely", "thanks", "third"),
    )
)


class F1(Scorer):
    """How well an answer's list agrees with the wanted one: F1, with recall and precision.

    item: what an item looks like, a regular expression. Wanted are the keywords. Wrong is, where
    the task says what else its text holds (the reference's decoys) or what an item looks like (its
    `like`):
    all of that, wherever the answer names it, and what stands alone in its list and is of the
    wanted's kind; prose around the list costs nothing. Of other tasks every item that names nothing
    wanted is wrong, an item being what stands between commas, line breaks and 'and'. With `item`,
    the decoys and whatever it finds. native: F1. why: recall, precision, found, missing, wrong, and
    ordered: the share of the wanted that the answer names in their order, which costs nothing.
    """

    name = "f1"
    rule = 3

    def __init__(self, *, item: str = "") -> None:
        try:
            re.compile(item)
        except re.error as error:
            raise SettingsError(f"Option 'item' of F1: '{item}' is no pattern ({error}).") from None
        self.options = {"item": item}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if the task gives no list."""
        if not reference.keywords:
            raise SettingsError(
                "Scorer 'f1' needs a task whose answer is a list. Type: --scorer recall"
            )
        compared, asked = plain(answer), plain(reference.question)
        wanted = [
            text for text in dict.fromkeys(map(plain, reference.keywords)) if not named(asked, text)
        ]
        if any(text.isdecimal() and len(text) > _SHORT for text in wanted):
            compared = ungrouped(compared)
        found = [text for text in wanted if named(compared, text)]
        listed = dict.fromkeys(self._listed(compared, wanted, reference))
        wrong = [text for text in listed if text not in wanted and not named(asked, text)]
        recall = len(found) / len(wanted) if wanted else 0.0
        precision = len(found) / (len(found) + len(wrong)) if found else 0.0
        share = 2 * recall * precision / (recall + precision) if found else 0.0
        missing = [text for text in wanted if text not in found]
        why = {
            "recall": recall,
            "precision": precision,
            "found": found,
            "missing": missing,
            "wrong": wrong,
        }
        why["ordered"] = in_order(compared, found) / max(1, len(wanted))
        return Score(share, share, why, unreadable=not found and not wrong)

    def _listed(self, compared: str, wanted: list[str], reference: Reference) -> list[str]:
        """The items that the answer lists, without those that name something wanted."""
        pattern = self.options["item"]
        decoys = [text for text in map(plain, reference.decoys) if named(compared, text)]
        if not pattern and (reference.decoys or reference.like):
            spaced = any(named(compared, one) and one not in compared for one in wanted)
            looks = alike(compared, reference.like, spaced=spaced)
            return [*decoys, *looks, *alone(compared, wanted, reference.like)]
        pieces = items(compared, pattern)
        others = [item for item in pieces if not any(named(item, one) for one in wanted)]
        return [
            *decoys,
            *others,
            *(word for item in pieces for word in beside(item, wanted) if not pattern),
        ]


def in_order(answer: str, texts: list[str]) -> int:
    """The most of some texts, all in an answer, that it names in their order.

    >>> in_order("fig, plum, pear", ["fig", "pear", "plum"])
    2
    """
    said = sorted(texts, key=lambda text: index_of(answer, text))
    return LCSseq.similarity(texts, said)


def items(answer: str, pattern: str = "") -> list[str]:
    """What a pattern finds, each once; without one, all pieces of an answer, but what ends
    with a colon.

    >>> items("1. fig\\n2. plum, and pear")
    ['fig', 'plum', 'pear']
    """
    if pattern:
        return list(
            dict.fromkeys(match.group() for match in re.finditer(pattern, answer, re.IGNORECASE))
        )
    pieces = (piece for piece in _BETWEEN.split(answer) if not piece.rstrip().endswith(_HEADING))
    return list(dict.fromkeys(filter(None, map(_bare, pieces))))


def beside(item: str, wanted: list[str]) -> list[str]:
    """What looks like the wanted and is not, in an item that names some: a list may have
    spaces alone.

    >>> (
    ...     beside("red-fox (30) sad-dog shy-cat", ["red-fox", "shy-cat"]),
    ...     beside("1) 6713 2) 1392", ["6713"]),
    ... )
    (['sad-dog'], ['1392'])
    >>> beside("red fox sad dog", ["red-fox"])
    ['sad-dog']
    """
    spaced = [one for one in wanted if "-" in one and one not in item and named(item, one)]
    parts = {part for one in spaced for part in one.split("-")}
    rest = [word for word in _words(item) if word not in parts]
    if parts and len(rest) > 1:
        return ["-".join(rest)]
    return [word for word in _WORD.findall(item) if word not in wanted and _of_kind(word, wanted)]


def alike(answer: str, like: str, *, spaced: bool) -> list[str]:
    """What looks like an item anywhere, by a pattern. spaced: also with a space for a hyphen,
    as prose may.

    Raises SettingsError for an invalid pattern.
    """
    try:
        found = [match.group() for match in re.finditer(like, answer)] if like else []
    except re.error as error:
        raise SettingsError(f"like: '{like}' is no pattern ({error}).") from None
    parts = [text.replace("_", " ").split() for text in found]
    return ["-".join(each) for each in parts if spaced or len(each) == 1]


def alone(answer: str, wanted: list[str], like: str = "") -> list[str]:
    """Words that stand alone as items do: between two wanted ones any, elsewhere those that
    look like them.

    like: a pattern of items, for those that are written with a space where they have a hyphen.

    >>> alone("Sure, these are the words: pear, plum (30), of course", ["pear"])
    ['pear', 'plum']
    """
    pieces = [piece for line in answer.split("\n") for piece in _listed_pieces(line, wanted)]
    clean = [at for at, piece in enumerate(pieces) if _name(piece) in wanted]
    found = list[str]()
    for at, piece in enumerate(pieces):
        found += _listed(piece, wanted, like, inside=bool(clean) and clean[0] < at < clean[-1])
    return found


def _listed_pieces(line: str, wanted: list[str]) -> list[str]:
    """The pieces of a line, without their introduction: a heading, or the sentence that names
    the first."""
    pieces = [_bare(piece) for piece in _PARTS.split(_INTRODUCED.sub("", line))]
    naming = (at for at, piece in enumerate(pieces) if any(named(piece, one) for one in wanted))
    first = next(naming, 0)
    return pieces if _name(pieces[first]) in wanted else pieces[first:]


def _listed(piece: str, wanted: list[str], like: str, *, inside: bool) -> list[str]:
    """The items of one piece: itself, or its words where they are a list with spaces alone."""
    words = _words(piece)
    if len(words) == 1:
        numbering = words[0] not in wanted and any(
            named(piece, one) for one in wanted
        )  # | 1 | fig |
        count = words[0].isdecimal() and not any(one.isdecimal() for one in wanted)  # fig -> 30
        item = (
            words[0] not in _TALK
            and not count
            and (inside or _of_kind(words[0], wanted, near=True))
        )
        return words if item and not numbering else []
    if sum(word in wanted for word in words) > 1:
        return words if all(_of_kind(word, wanted) for word in words) else []
    return [_name(piece)] if like and re.fullmatch(like, _name(piece)) else []


def _name(piece: str) -> str:
    return "-".join(_words(piece))


def _words(piece: str) -> list[str]:
    """The words of a piece, without a count behind them."""
    return list(_WORD.findall(_COUNT.sub("", piece)))


def _bare(piece: str) -> str:
    once = _END.sub("", _BULLET.sub("", piece))
    return _END.sub("", _BULLET.sub("", once))


def _of_kind(word: str, wanted: list[str], *, near: bool = False) -> bool:
    """Whether a word is of some wanted one's kind: signs, script, hyphens; and without
    hyphens, length.

    near: it may be a quarter longer or shorter, a number as it likes; but what is not ASCII is
    a sentence.
    """
    if near and not word.isascii():
        return False
    for one in wanted:
        length, other = len(one), len(word)
        slip = (max(length, other) if one.isdecimal() else length // 4) if near else 0
        if _signs(word) == _signs(one) and ("-" in one or abs(length - other) <= slip):
            return True
    return False


def _signs(text: str) -> tuple[bool, bool, bool, int]:
    digits = any(sign.isdecimal() for sign in text)
    return digits, any(sign.isalpha() for sign in text), text.isascii(), text.count("-")
