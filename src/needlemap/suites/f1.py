"""Score how well an answer's list agrees with the right one: F1, with recall and precision.

What the question already holds earns nothing, because any answer can repeat it. The items of a list
are recognised by what joins them (and, or, 和) and by a few English words that introduce a list, in
no other language. So a made-up item in the middle of a sentence stays unseen. Every pattern takes
time in proportion to the text, as an answer may be a million blanks.
"""

from __future__ import annotations

import re

from rapidfuzz.distance import LCSseq

from needlemap.errors import SettingsError
from needlemap.scorers import Score, Scorer
from needlemap.tasks import Reference
from needlemap.text import index_of, named, plain, ungrouped

# Digits of numbers that a list without spaces cannot be told from thousands: 123,456.
_SHORT_DIGITS = 3
_BETWEEN = re.compile(r"[\n,;、，]|\band\b|和")
_HEADING = (":", "：")
_WORD = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
_BULLET = re.compile(r"^[\s\-*•]*(\d+[.)])?[\s\"'`*\[]*")
_END = re.compile(r"(?<![\s\"'`*\].:。])[\s\"'`*\].:。]+$")

_PARTS = re.compile(r"[,;、/]|->|\b(?:and|or)\b|[和或与及]")
# A heading, or what leads to a list.
_INTRODUCTION = re.compile(r"^\s*#.*|^.*:[\s*_]*(?=[^\s*_0-9]|$)")
# A count behind an item: fig (30 times), fig - 30, fig: 30.
_COUNT = re.compile(r"(?<=[^\W_])(?:[*_`\"\s]*+\(|_*+[^\w-][\W_]*+[0-9]).*$")
# Words of five letters or more that stand alone in front of a list.
_TALK = frozenset(
    {
        "answer",
        "answers",
        "clearly",
        "finally",
        "first",
        "indeed",
        "lastly",
        "output",
        "overall",
        "please",
        "result",
        "results",
        "second",
        "surely",
        "thanks",
        "third",
    }
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
    rule = 5

    def __init__(self, *, item: str = "") -> None:
        try:
            re.compile(item)
        except re.error as error:
            raise SettingsError(f"Option 'item' of F1: '{item}' is no pattern ({error}).") from None
        self.options = {"item": item}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Return the F1 of the answer's list. Raises SettingsError if the task gives no list."""
        if not reference.keywords:
            raise SettingsError(
                "Scorer 'f1' needs a task whose answer is a list. Type: --scorer recall"
            )
        text = plain(answer)
        question = plain(reference.question)
        keywords = [
            keyword
            for keyword in dict.fromkeys(map(plain, reference.keywords))
            if not named(question, keyword)
        ]
        if any(keyword.isdecimal() and len(keyword) > _SHORT_DIGITS for keyword in keywords):
            text = ungrouped(text)

        hits = [keyword for keyword in keywords if named(text, keyword)]
        missing = [keyword for keyword in keywords if keyword not in hits]
        wrong = []
        for item in dict.fromkeys(self._listed_items(text, keywords, reference=reference)):
            if item not in keywords and not named(question, item):
                wrong.append(item)

        recall = precision = share = 0.0
        if hits:
            recall = len(hits) / len(keywords)
            precision = len(hits) / (len(hits) + len(wrong))
            share = 2 * recall * precision / (recall + precision)
        why = {
            "recall": recall,
            "precision": precision,
            "found": hits,
            "missing": missing,
            "wrong": wrong,
            "ordered": in_order(text, hits) / max(1, len(keywords)),
        }
        return Score(share, share, why=why, unreadable=not hits and not wrong)

    def _listed_items(self, text: str, keywords: list[str], reference: Reference) -> list[str]:
        """Return the items that a plain answer lists, without those that name a keyword."""
        pattern = self.options["item"]
        decoys = [decoy for decoy in map(plain, reference.decoys) if named(text, decoy)]
        if not pattern and (reference.decoys or reference.like):
            spaced = any(named(text, keyword) and keyword not in text for keyword in keywords)
            return [
                *decoys,
                *matching_items(text, reference.like, spaced=spaced),
                *separate_items(text, keywords, like=reference.like),
            ]

        pieces = items(text, pattern)
        listed = [*decoys, *(piece for piece in pieces if not _names_any(piece, keywords))]
        if not pattern:
            for piece in pieces:
                listed += unknown_words(piece, keywords)
        return listed


def in_order(answer: str, texts: list[str]) -> int:
    """Return the most texts that an answer names in their order. The answer holds all of them.

    >>> in_order("fig, plum, pear", ["fig", "pear", "plum"])
    2
    """
    by_place = sorted(texts, key=lambda text: index_of(answer, text))
    return LCSseq.similarity(texts, by_place)


def items(answer: str, pattern: str = "") -> list[str]:
    """Return what a pattern matches, each once.

    Without a pattern, return all pieces of an answer except those that end with a colon.

    >>> items("1. fig\\n2. plum, and pear")
    ['fig', 'plum', 'pear']
    """
    if pattern:
        matches = re.finditer(pattern, answer, re.IGNORECASE)
        return list(dict.fromkeys(match.group() for match in matches))
    pieces = (piece for piece in _BETWEEN.split(answer) if not piece.rstrip().endswith(_HEADING))
    return list(dict.fromkeys(filter(None, map(_without_marks, pieces))))


def unknown_words(item: str, keywords: list[str]) -> list[str]:
    """Return the words of an item that look like keywords and are not.

    The item names some keywords: a list may have only spaces between its words.

    >>> (
    ...     unknown_words("red-fox (30) sad-dog shy-cat", ["red-fox", "shy-cat"]),
    ...     unknown_words("1) 6713 2) 1392", ["6713"]),
    ... )
    (['sad-dog'], ['1392'])
    >>> unknown_words("red fox sad dog", ["red-fox"])
    ['sad-dog']
    """
    spaced = [
        keyword
        for keyword in keywords
        if "-" in keyword and keyword not in item and named(item, keyword)
    ]
    parts = {part for keyword in spaced for part in keyword.split("-")}
    other_words = [word for word in _words(item) if word not in parts]
    if parts and len(other_words) > 1:
        return ["-".join(other_words)]
    return [
        word for word in _WORD.findall(item) if word not in keywords and _is_of_kind(word, keywords)
    ]


def matching_items(answer: str, like: str, *, spaced: bool) -> list[str]:
    """Return what matches a pattern of items, anywhere in an answer.

    spaced: also return items with a space instead of a hyphen, as prose may have them. Raises
    SettingsError for an invalid pattern.
    """
    if not like:
        return []
    try:
        matches = [match.group() for match in re.finditer(like, answer)]
    except re.error as error:
        raise SettingsError(f"like: '{like}' is no pattern ({error}).") from None
    parts = [text.replace("_", " ").split() for text in matches]
    return ["-".join(words) for words in parts if spaced or len(words) == 1]


def separate_items(answer: str, keywords: list[str], like: str = "") -> list[str]:
    """Return words that stand alone as items do.

    Between two keywords any word is returned, elsewhere only those that look like keywords. like: a
    pattern of items, for those that are written with a space where they have a hyphen.

    >>> separate_items("Sure, these are the words: pear, plum (30), of course", ["pear"])
    ['pear', 'plum']
    """
    pieces = [piece for line in answer.split("\n") for piece in _listed_pieces(line, keywords)]
    places = [place for place, piece in enumerate(pieces) if _name(piece) in keywords]
    words: list[str] = []
    for place, piece in enumerate(pieces):
        is_inside = bool(places) and places[0] < place < places[-1]
        words += _piece_items(piece, keywords, like=like, is_inside=is_inside)
    return words


def _listed_pieces(line: str, keywords: list[str]) -> list[str]:
    """Return the pieces of a line, without their introduction.

    The introduction is a heading, or the sentence that names the first keyword.
    """
    pieces = [_without_marks(piece) for piece in _PARTS.split(_INTRODUCTION.sub("", line))]
    naming = (place for place, piece in enumerate(pieces) if _names_any(piece, keywords))
    # 0 if no piece names a keyword.
    first_place = next(naming, 0)
    return pieces if _name(pieces[first_place]) in keywords else pieces[first_place:]


def _piece_items(piece: str, keywords: list[str], like: str, *, is_inside: bool) -> list[str]:
    """Return the items of one piece: itself, or its words if only spaces are between them."""
    words = _words(piece)
    if len(words) == 1:
        return words if _is_item(words[0], piece, keywords=keywords, is_inside=is_inside) else []
    if sum(word in keywords for word in words) > 1:
        return words if all(_is_of_kind(word, keywords) for word in words) else []
    name = _name(piece)
    return [name] if like and re.fullmatch(like, name) else []


def _is_item(word: str, piece: str, keywords: list[str], *, is_inside: bool) -> bool:
    """Return True if the only word of a piece is an item of the list."""
    # For example the 1 of '| 1 | fig |'.
    is_number_of_item = word not in keywords and _names_any(piece, keywords)
    # For example the 30 of 'fig -> 30'.
    is_count = word.isdecimal() and not any(keyword.isdecimal() for keyword in keywords)
    if word in _TALK or is_count or is_number_of_item:
        return False
    return is_inside or _is_of_kind(word, keywords, near=True)


def _names_any(text: str, keywords: list[str]) -> bool:
    return any(named(text, keyword) for keyword in keywords)


def _name(piece: str) -> str:
    return "-".join(_words(piece))


def _words(piece: str) -> list[str]:
    """Return the words of a piece, without a count behind them."""
    return list(_WORD.findall(_COUNT.sub("", piece)))


def _without_marks(piece: str) -> str:
    """Return a piece without bullets and marks. They are removed twice: one may enclose another."""
    inner_piece = _END.sub("", _BULLET.sub("", piece))
    return _END.sub("", _BULLET.sub("", inner_piece))


def _is_of_kind(word: str, keywords: list[str], *, near: bool = False) -> bool:
    """Return True if a word looks like one of the keywords.

    That is: it has the same kinds of signs, script and hyphens, and without hyphens the same
    length. near: it may be a quarter longer or shorter, and a number of any length; but a word that
    is not ASCII is a sentence.
    """
    if near and not word.isascii():
        return False
    for keyword in keywords:
        difference = abs(len(keyword) - len(word))
        tolerance = 0
        if near:
            tolerance = difference if keyword.isdecimal() else len(keyword) // 4
        if _signs(word) == _signs(keyword) and ("-" in keyword or difference <= tolerance):
            return True
    return False


def _signs(text: str) -> tuple[bool, bool, bool, int]:
    """Return whether a text has digits, has letters and is ASCII, and how many hyphens it has."""
    return (
        any(sign.isdecimal() for sign in text),
        any(sign.isalpha() for sign in text),
        text.isascii(),
        text.count("-"),
    )
