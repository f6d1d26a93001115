"""Read what an answer states: a letter, a label, the contents of a box, or that there is nothing.

What depends on a language is a few patterns in `data/`, each with examples that are tests. All
languages are read at once. An answer from which nothing can be taken scores 0 and is reported as
unreadable: a rule that guessed more would be wrong more often, and nobody could tell when. Every
pattern takes time in proportion to the text.
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
# The letters 'a' and 'i' are words too, so they need a sign, a Chinese character or a word that
# follows no article after them.
_LETTER = (
    r"(?:\(\s*([a-z])\s*\)|(?<![a-z0-9_'’])([b-hj-z])(?![a-z0-9_'’])"
    r"|(?<![a-z0-9_'’])([ai])(?=\s*(?:[.,:;!?)。\u2e80-\u9fff]|$|(?:because|since|and|or|is)\b)))"
)
_MARKS = re.compile(r"[*`\"“”‘’「」『』$#|]")
_LATEX = re.compile(r"\\(?:text|math|operatorname|mbox)[a-z]*|\\[ ,;:!]|(?<!~)~(?!~)")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
# Chinese has no spaces between words. One between two characters stands, for example, where a mark
# was removed.
_HAN_GAP = re.compile("(?<=[\u2e80-\u9fff]) (?=[\u2e80-\u9fff])")
_BRACKETS = str.maketrans({"[": "(", "]": ")", "{": "", "}": "", "【": "", "】": ":"})
# Around a letter: LaTeX's signs of a formula, tags, and quotes that are not within a word.
_AROUND = re.compile(r"\\[()\[\]]|</?[a-z]{2,20}>|(?<!\w)'|'(?!\w)", re.IGNORECASE)
_LISTED = re.compile(
    r"(?:^[^\S\n]*\(?|\boption:? \(?|[.;!?][^\S\n]+)([a-z])(?:[.):]|[^\S\n]*$)", re.M | re.I
)
_ALONE = re.compile(r"^[^\S\n]*\(?([a-z])[.):]*[^\S\n]*$", re.M | re.I)
_PARAGRAPH = re.compile(r"\A\s*\(?[a-z][.):]*[^\S\n]*\n[^\S\n]*\n", re.I)
_FIRST = re.compile(
    rf"\A\s*(?:(?:option|choice|选项):?\s*)?{_LETTER}(?:选?项)?(?:[.):,。]|\s*$)", re.M | re.I
)
_CHOICE = re.compile(r"^\(([A-Z])\)(.*\w.*)$", re.MULTILINE)
_LAST = re.compile(rf"\n[^\S\n]*{_LETTER}[.)!。]?\s*\Z", re.IGNORECASE)
# Characters of a number with what it counts.
_LONGEST_NUMBER = 60
_END = re.compile(r"[.!](?=[\s*_\"'”’)\]]|$)|(?<=\?)(?=[\s*_\"'”’)\]])|[。！]|(?<=？)|\n")
_HEADING = (":", "：")
_QUESTION = ("?", "？")
_STATED = ("stated", "chosen", "confirmed", "corrected")
_BEFORE_LABEL = "(?:in )?(?:the )?在?"
# Characters from a denial to what it denies.
_REACH = 40


@cache
def patterns(language: str) -> Mapping[str, Any]:
    """Return what `data/` has on a language.

    These are the patterns by name {pattern, right, wrong}, and the small numbers in words.
    """
    text = files("needlemap.scorers").joinpath("data", f"{language}.yaml").read_text("utf-8")
    entries: dict[str, Any] = read_yaml(text)
    return entries


@cache
def source(name: str, language: str) -> str:
    """Return a language's pattern, with its {letter} and {number} filled in."""
    entries = patterns(language)
    number = rf"([0-9]{{1,9}}(?:\.0+)?|{'|'.join(entries['numbers'])})"
    template = str(entries[name]["pattern"])
    return template.replace("{letter}", _LETTER).replace("{number}", number)


@cache
def pattern(name: str) -> re.Pattern[str]:
    """Return a pattern of all languages."""
    alternatives = (f"(?:{source(name, language)})" for language in LANGUAGES)
    return re.compile("|".join(alternatives), re.M | re.I)


def letter(answer: str, question: str = "") -> str | None:
    """Return the letter of the choice that an answer takes, or None.

    It is the last letter that the answer states, otherwise one that stands alone. Two joined
    letters are no choice. question: with the choices, whose text may stand after their letters.

    >>> (
    ...     letter("The correct answer is (B)."),
    ...     letter("C. Because"),
    ...     letter("(A) or (D)"),
    ...     letter("A dog"),
    ... )
    ('B', 'C', None, None)
    """
    text = _with_choices_as_letters(_letter_text(last_box(answer) or answer), question)
    statements = [
        match
        for name in _STATED
        for match in pattern(name).finditer(text)
        if not _is_denied(match, text)
    ]
    if statements:
        return _letter_of(max(statements, key=re.Match.end), text)

    # An answer that goes through the choices, or repeats them, takes none of them by that.
    listed = set(_LISTED.findall(text.lower()))
    alone = _ALONE.findall(text.lower())
    first = _FIRST.match(text)
    is_apart = _PARAGRAPH.match(text) is not None and len(set(alone)) == 1
    if first and (len(listed) < 2 or is_apart):
        return _letter_of(first, text)
    last = _LAST.search(text)
    if last and (len(set(alone)) == 1 or alone.count(alone[-1]) > 1):
        return _letter_of(last, text)
    return None


def last_box(answer: str) -> str | None:
    """Return what the last box holds that is closed and not empty, or None if there is none.

    >>> last_box(r"So \\boxed{5}, or rather \\boxed{\\text{Ada}} (in a \\boxed{}).")
    '\\\\text{Ada}'
    >>> last_box("Ada") is None
    True
    """
    text = normalize("NFKC", answer)
    box_starts = {match.end() for match in _BOX.finditer(text)}
    if not box_starts:
        return None

    brace_starts: list[int] = []
    boxes: list[tuple[int, str]] = []
    for end, sign in enumerate(text, 1):
        if sign == "{":
            brace_starts.append(end)
        elif sign == "}" and brace_starts:
            start = brace_starts.pop()
            if start in box_starts:
                boxes.append((start, text[start : end - 1]))
    for _, inside in sorted(boxes, reverse=True):
        if box_contents(inside):
            return inside
    return None


def box_contents(inside: str) -> str:
    """Return the contents of a box in the plain form in which they are compared.

    Markdown, quotes, LaTeX's commands for fonts and spaces, and full stops at the ends are removed,
    and letters are in lower case.

    >>> box_contents(r"\\text{Ada}\\ **Ashford**."), box_contents("...")
    ('ada ashford', '')
    """
    text = re.sub("[{}]", " ", _bare(inside, gap=" "))
    words = " ".join(text.casefold().split())
    without_gaps = _HAN_GAP.sub("", words)
    # A full stop, English or Chinese, is not part of the contents.
    return without_gaps.strip(". 。'")


def number_in(contents: str) -> int | None:
    """Return the number that a box holds, or None if it holds more than a number.

    The number is in digits or words, with or without what it counts.

    >>> (
    ...     number_in("4 generations"),
    ...     number_in("四代"),
    ...     number_in("four"),
    ...     number_in("3 or 4"),
    ...     number_in("almost 4"),
    ... )
    (4, 4, 4, None, None)
    """
    if len(contents) > _LONGEST_NUMBER:
        return None
    for language in LANGUAGES:
        match = re.fullmatch(source("counted", language), contents)
        if match:
            for number, names in enumerate(patterns(language)["numbers"]):
                if match[1] in names.split("|"):
                    return number
            return int(float(match[1]))
    return None


def claimed_labels(answer: str, labels: Sequence[str]) -> tuple[str, list[str]]:
    """Return the sentence of an answer that counts, and the labels that it names and does not deny.

    It is the last sentence that names labels and concludes, otherwise the first that names labels
    and is not a question. The last paragraph concludes too if it is a label and nothing else, and
    no other sentence is.

    >>> claimed_labels("First to the barn. So: the hall.", ["hall", "barn"])
    ('so: the hall', ['hall'])
    >>> claimed_labels("Ann went to the barn, then to the hall.\\n\\n**Hall**", ["hall", "barn"])
    ('**hall**', ['hall'])
    """
    denial = _denial(labels)
    claims = []
    for sentence in map(plain, sentences(answer)):
        claims.append((sentence, _not_denied(sentence, labels, denial=denial)))
    alone = re.compile(rf"\W*{_BEFORE_LABEL}{any_of(labels)}[^\w?？]*")
    labels_alone = [claim for claim in claims if alone.fullmatch(claim[0])]
    last_paragraph = plain(answer.strip().rpartition("\n\n")[2])
    if len(labels_alone) == 1 and alone.fullmatch(last_paragraph):
        return labels_alone[0]
    naming = [claim for claim in claims if claim[1]]
    concluding = [claim for claim in naming if pattern("concludes").match(claim[0])]
    if concluding:
        return concluding[-1]
    statements = [claim for claim in naming if not claim[0].endswith(_QUESTION)]
    for candidates in (statements, naming, claims):
        if candidates:
            return candidates[0]
    return "", []


def sentences(text: str) -> list[str]:
    """Return the sentences and lines of a text that are not blank.

    A line that ends with a colon is a heading, and is left out.

    >>> sentences(" In the hall. Or the barn?"), sentences("答案：\\n大厅。谷仓。")
    (['In the hall', 'Or the barn?'], ['大厅', '谷仓'])
    """
    pieces = (piece.strip() for piece in _END.split(text))
    return [piece for piece in pieces if piece and not piece.endswith(_HEADING)]


def says_none(text: str, none: str, *, known: bool) -> bool:
    """Return True if a plain answer reports that the text has no answer.

    It does so in the word that the question gave for it. The word starts a sentence, or stands
    after a colon or 'is', and ends the line. known: whether it is known what a made-up answer would
    look like. If so, more may follow, and a sentence about the text counts too.

    >>> says_none("**none**", "none", known=False), says_none("none, but ann", "none", known=False)
    (True, False)
    >>> says_none("the text does not say.", "none", known=True)
    True
    """
    word = re.escape(none)
    gap = r"(?:[^\w\n]|_){0,9}"
    end = r"[^\w\n]{0,99}$"
    tail = r"(?![\w-])" if known else end
    denial = rf"(?:^|[:.!?。]|\bis\b|[是为]){gap}{word}{tail}|,{gap}{word}{end}"
    unboxed = _LATEX.sub("", text).replace("\\boxed", ":")
    if re.search(denial, unboxed, re.MULTILINE):
        return True
    return known and bool(pattern("silence").search(text))


def _bare(text: str, gap: str = "") -> str:
    """Return a text in plain signs, without markdown and LaTeX's commands for fonts and spaces.

    gap: replaces each sign of markdown.
    """
    return _MARKS.sub(gap, _LATEX.sub(" ", normalize("NFKC", text)))


def _letter_text(text: str) -> str:
    """Return a text as letters are sought in it: in plain signs, with round brackets."""
    # A typographic apostrophe is one of the marks that `_bare` removes.
    words = _AROUND.sub(" ", text.replace("’", "'"))
    return _bare(words).translate(_BRACKETS)


def _with_choices_as_letters(text: str, question: str) -> str:
    """Return a text in which a letter with the words of its choice is the letter alone.

    >>> _with_choices_as_letters("B - green is right", "Which?\\n(A) red\\n(B) green")
    '(B) is right'
    """
    for letter, choice in _CHOICE.findall(_letter_text(question)):
        choice = re.escape(choice.strip(" ."))
        words = rf"\(?(?<![a-z0-9_'])({letter})[\s.,:)–-]{{1,5}}{choice}(?!\w)"
        text = re.sub(words, r"(\1)", text, flags=re.IGNORECASE)
    return text


def _is_denied(match: re.Match[str], text: str) -> bool:
    """Return True if what stands before a statement, in its clause, denies it."""
    return _denied().search(text, max(0, match.start() - _REACH), match.start()) is not None


@cache
def _denied() -> re.Pattern[str]:
    """Return a pattern of a denial and up to three words that end a text."""
    words = rf"(?: (?!{pattern('clause').pattern})\w+){{0,3}} ?\Z"
    return re.compile(f"(?:{pattern('denies').pattern}){words}", re.I)


def _letter_of(match: re.Match[str], text: str) -> str | None:
    """Return the letter of a match, or None if another letter is joined to it."""
    group = next(number for number, part in enumerate(match.groups(), 1) if part)
    end = match.end(group)
    if text[end : end + 1] == ")":
        end += 1
    start = match.start(group)
    if text[max(0, start - 1) : start] == "(":
        start -= 1
    if _letter_before().search(text, max(0, start - _REACH), start):
        return None
    joined = _joined_letter().match(text, end)
    if joined:
        others = {part.lower() for part in joined.groups() if part}
        if others - {match[group].lower()}:
            return None
    return match[group].upper()


@cache
def _letter_before() -> re.Pattern[str]:
    """Return a pattern of another letter, joined to the one that stands behind it."""
    return re.compile(rf"(?:\b[a-z]|\([a-z]\))\s?(?:[/&]|{pattern('joint').pattern})\s?\Z", re.I)


@cache
def _joined_letter() -> re.Pattern[str]:
    """Return a pattern of another letter, joined to the one before."""
    joint = pattern("joint").pattern
    gap = r"[^\S\n]{0,3}"
    between = rf"{gap}(?:(?:[,/;&]|{joint}){gap}){{0,2}}"
    return re.compile(rf"{between}{_LETTER}(?={gap}(?:[.,;!?。)]|$|{joint}))", re.I | re.M)


def _denial(labels: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern of a denied label.

    It is the first label after a 'not' or the like in its clause, with what is joined to it.
    """
    denies = pattern("denies").pattern
    clause = pattern("clause").pattern
    joint = pattern("joint").pattern
    label = any_of(labels)
    between = rf"\W{{0,3}}{_BEFORE_LABEL}"
    stop = rf"[,;:()]|{clause}"
    return re.compile(
        rf"({denies})(?:(?!{stop}).){{0,{_REACH}}}?{label}(?:\W{{0,3}}(?:{joint}|nor\b){between}{label})*"
    )


def _not_denied(sentence: str, labels: Sequence[str], denial: re.Pattern[str]) -> list[str]:
    """Return the labels that a plain sentence names and does not deny.

    What denies may be a label itself ("no"), so it stays.
    """
    rest = denial.sub(r"\1 ", sentence)
    return [label for label in labels if named(rest, label)]
