"""Several facts of one form in each haystack, of which one is asked: the one at the cell's depth.

    needle: The locker code for {city} is {number}.    beside: [0, 37.5, 75, 97]
    question: What is the locker code for {city}?      -> asks for the fact at 37.5 in cell 37.5

All cells of a repeat hide the same facts at the same places, so that prompts part at the question:
a server that caches prefixes computes a haystack once, however many questions there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from random import Random

from needlemap.errors import SettingsError
from needlemap.prompts.templates import fill
from needlemap.tasks import Draw, Item, Needle, Reference
from needlemap.tasks.single import Choices, Worded, drawn

TAIL = 3  # digits in which a number differs from its twin
THIRD = 3  # of so many haystacks one has a drawn length, or a fact in the middle
STEPS = 64, 16  # tokens by which drawn lengths differ: of the same residues as the others
SCARCE = 1_024  # tokens of room below which they differ by the smaller
MOST_DRAWN = 0.95  # depth up to which the facts of a haystack of drawn length stand


@dataclass(kw_only=True, eq=False)
class Apart(Worded):
    """Facts in the user's words, each with values of its own.

    beside: percent at which the facts stand; the cell's depth asks for the nearest, which moves
    there. anchor: haystack tokens that depths are shares of in prompts of every length, so that
    facts keep their places; 0: each prompt's own. exact: whether the last fact, and one that moved,
    start at that very token rather than at a sentence's end. line: the end of a first line before
    the haystack, whose beginning no other haystack has: a cache holds nothing of it. asked: the
    number of the fact that is asked and moves, where not the nearest. series: other numbers draw
    other values of the same haystack. twin: whether the last fact's numbers end otherwise. drawn:
    haystack tokens by which the anchor of a third of the repeats is shorter, at most; 0: all have
    the same.
    """

    name = "apart"
    needle: str
    beside: Sequence[float] = (0.0, 37.5, 75.0, 97.0)
    anchor: int = 0
    exact: bool = False
    line: str = ""
    asked: int | None = None
    series: int = 0
    twin: bool = False
    drawn: int = 0

    def __post_init__(self) -> None:
        if not self.needle.strip() or not self.question.strip():
            raise SettingsError("The apart task needs a --needle and a --question.")
        if not self.beside or any(not 0 <= depth <= 100 for depth in self.beside):
            raise SettingsError("Option 'beside' of apart must list depths from 0 to 100.")
        self.scorer = "substring"
        if not self.keywords:
            raise SettingsError("The apart task needs --keywords: what a right answer must hold.")

    def anchor_tokens(self, repeat: int, seed: int) -> int | None:
        """Return the haystack tokens that depths are shares of; None: each prompt's own."""
        return self.spread_of(repeat, seed).anchor or None

    def spread_of(self, repeat: int, seed: int) -> Spread:
        """Return where the facts of a repeat stand."""
        depths = tuple(each / 100 for each in self.beside)
        return spread_of(f"{seed}:{self.series}", repeat, self.anchor, depths, self.drawn)

    def item(self, draw: Draw) -> Item:
        """All facts, the asked one first."""
        seed = draw.seed + self.series
        rows = drawn_apart(self.draw or {}, draw.repeat, seed, len(self.beside), self.question)
        if self.twin:
            rows[-1] = twin_of(rows[-1], self.keywords)
        depth = draw.cell.depth
        spread = self.spread_of(draw.repeat, draw.seed)
        nearest = min(range(len(spread.depths)), key=lambda at: abs(spread.depths[at] - depth))
        asked = nearest if self.asked is None else self.asked
        texts = [fill(self.needle, values, "needle") for values in rows]
        words = [[fill(word, values, "keywords") for word in self.keywords] for values in rows]
        others, last = [at for at in range(len(rows)) if at != asked], len(rows) - 1
        said = texts[asked]
        if self.exact:
            texts[last] = f"\n{texts[last]}\n"  # it may stand within a sentence
        first = sha256(f"{seed}:{draw.repeat}:{self.line}".encode()).hexdigest()[:8]
        line = f"{first} {self.line}\n" if self.line else ""
        # Haystack tokens make room for the line: places are counted from the prompt's beginning.
        less = draw.tokens(line) / spread.anchor if line and spread.anchor else 0.0
        stands = [max(0.0, at - less) for at in (depth, *spread.depths)]
        needles = [Needle(texts[asked], stands[0], exact=self.exact and asked == last)]
        needles += [
            Needle(texts[at], stands[1 + at], still=True, exact=self.exact and at == last)
            for at in others
        ]
        question = fill(self.question, rows[asked], "question")
        answer = said if self.answer is None else fill(self.answer, rows[asked], "answer")
        decoys = tuple(word for at in others for word in words[at])
        reference = Reference(answer, tuple(words[asked]), said, question, decoys)
        return Item(tuple(needles), question, reference, prologue=line)


@dataclass(frozen=True, slots=True)
class Spread:
    """Where the facts of one haystack stand. anchor: haystack tokens that depths are shares of."""

    anchor: int
    depths: tuple[float, ...]


def spread_of(seed: str, repeat: int, anchor: int, depths: tuple[float, ...], drawn: int) -> Spread:
    """Return where the facts of a repeat stand: of two thirds of the repeats at fixed depths.

    A third has a length of its own, up to `drawn` tokens shorter, and depths of its own, so that
    what lies between the lengths and depths of the others is sent too. Where a haystack has no room
    for a fact in the middle, another third has one there instead of behind it.

    >>> spread_of("1:8000", 0, 7_000, (0.0, 0.75, 0.99), 6_000)
    Spread(anchor=7000, depths=(0.0, 0.75, 0.99))
    >>> spread_of("1:8000", 6, 7_000, (0.0, 0.75, 0.99), 6_000).depths
    (0.0, 0.5, 0.99)
    """
    turn, inner = repeat // THIRD % THIRD, len(depths) - 2
    if turn == 2 and len(depths) in (2, 3):
        return Spread(anchor, (*depths[:-2], 0.5, depths[-1]))
    if turn != 1 or not drawn or not anchor:
        return Spread(anchor, depths)
    random = Random(f"spread:{seed}:{repeat}")
    shares = list(range(THIRD))
    Random(f"shares:{seed}:{repeat // (THIRD * THIRD)}").shuffle(shares)
    share = (shares[repeat % THIRD] + random.random()) / THIRD
    shorter = anchor * (1 - ((anchor - drawn) / anchor) ** share)  # as many by ratio, not by tokens
    step = STEPS[drawn < SCARCE]
    own = anchor - round(shorter) // step * step
    if len(depths) == 1:
        return Spread(own, depths)
    shift = random.random()
    between = (round((at - shift) * MOST_DRAWN / inner, 4) for at in range(1, inner + 1))
    tail = (1 - depths[-1]) * anchor  # as many tokens before the end
    return Spread(own, (depths[0], *between, round(1 - tail / own, 8)))


def drawn_apart(
    draw: Choices, repeat: int, seed: int, count: int, question: str
) -> list[dict[str, str]]:
    """Values for so many facts, from seed and repeat; their questions differ. Raises
    SettingsError where there are too few."""
    if count == 1:
        return [drawn(draw, repeat, seed)]
    random, questions = Random(f"apart:{seed}:{repeat}"), set[str]()
    found = list[dict[str, str]]()
    for _ in range(200 * count):
        values = drawn(draw, random.randrange(2**31), seed)
        asked = fill(question, values, "question")
        if asked not in questions:
            questions.add(asked)
            found.append(values)
        if len(found) == count:
            return found
    raise SettingsError(
        f"--question and --draw make {len(questions)} questions, and {count} facts need one each. "
        "Give --draw more values for the question's placeholder."
    )


def twin_of(values: Mapping[str, str], keywords: Sequence[str]) -> dict[str, str]:
    """The same values, except that numbers of four and more digits in a right answer end in three
    others: two prompts that differ so part within the number.

    >>> twin_of({"city": "Turin", "number": "271828182845"}, ["{number}"])
    {'city': 'Turin', 'number': '271828182345'}
    """
    answered = [name for name in values if any("{" + name + "}" in word for word in keywords)]
    numbers = [name for name in answered if len(values[name]) > TAIL and values[name].isdecimal()]
    found = dict(values)
    for name in numbers:
        kept, end = values[name][:-TAIL], int(values[name][-TAIL:])
        found[name] = f"{kept}{(end + 10**TAIL // 2) % 10**TAIL:0{TAIL}}"
    return found
