"""Hide several facts of one form in each haystack, and ask for the one at the cell's depth.

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

# Last digits in which a number differs from its twin.
TAIL = 3
# One of so many haystacks has a drawn length, and one a fact in the middle.
THIRD = 3
# Tokens of which the difference of drawn lengths is a multiple, so that their residues are those
# of the other lengths: the first, or the second if there is less room than `SCARCE` tokens.
STEP, SMALL_STEP = 64, 16
SCARCE = 1_024
# Depth up to which the facts of a haystack of drawn length stand.
MOST_DRAWN = 0.95
# Draws per fact after which it is given up that their questions differ.
MOST_TRIES = 200
# The gauge finds its place in a number by the last six digits, and loses it where they stand twice:
# of drawn numbers of twelve digits in one of 50,000. After so many draws one is taken all the same.
DIGITS_SEEN, MOST_DRAWS = 6, 20


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
    large_options = frozenset({"anchor", "drawn", "series"})
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
        """Return the haystack tokens that depths are shares of, or None for each prompt's own."""
        return self.spread_of(repeat, seed).anchor or None

    def spread_of(self, repeat: int, seed: int) -> Spread:
        """Return where the facts of a repeat stand."""
        return spread_of(
            f"{seed}:{self.series}",
            repeat,
            anchor=self.anchor,
            depths=tuple(percent / 100 for percent in self.beside),
            drawn=self.drawn,
        )

    def item(self, draw: Draw) -> Item:
        """Return all facts, the one that is asked for first."""
        seed = draw.seed + self.series
        rows = drawn_apart(
            self.draw or {},
            draw.repeat,
            seed=seed,
            count=len(self.beside),
            question=self.question,
        )
        if self.twin:
            rows[-1] = twin_of(rows[-1], self.keywords)
        spread = self.spread_of(draw.repeat, draw.seed)
        asked_number = self.asked
        if asked_number is None:
            asked_number = nearest_to(draw.cell.depth, spread.depths)
        others = [number for number in range(len(rows)) if number != asked_number]

        texts = [fill(self.needle, values, "needle") for values in rows]
        needle_text = texts[asked_number]
        last = len(rows) - 1
        if self.exact:
            # It may stand within a sentence.
            texts[last] = f"\n{texts[last]}\n"

        line = ""
        if self.line:
            start = sha256(f"{seed}:{draw.repeat}:{self.line}".encode()).hexdigest()[:8]
            line = f"{start} {self.line}\n"
        # Haystack tokens make room for the line: places are counted from the prompt's start.
        line_share = draw.tokens(line) / spread.anchor if line and spread.anchor else 0.0
        asked_depth = max(0.0, draw.cell.depth - line_share)
        needles = [
            Needle(texts[asked_number], asked_depth, exact=self.exact and asked_number == last)
        ]
        for number in others:
            needle = Needle(
                texts[number],
                max(0.0, spread.depths[number] - line_share),
                still=True,
                exact=self.exact and number == last,
            )
            needles.append(needle)

        words = [[fill(word, values, "keywords") for word in self.keywords] for values in rows]
        question = fill(self.question, rows[asked_number], "question")
        answer = needle_text
        if self.answer is not None:
            answer = fill(self.answer, rows[asked_number], "answer")
        reference = Reference(
            answer,
            tuple(words[asked_number]),
            needle_text,
            question,
            tuple(word for number in others for word in words[number]),
        )
        return Item(tuple(needles), question, reference, prologue=line)


def nearest_to(depth: float, depths: Sequence[float]) -> int:
    """Return the number of the depth that lies nearest to a depth."""
    return min(range(len(depths)), key=lambda number: abs(depths[number] - depth))


@dataclass(frozen=True, slots=True)
class Spread:
    """Where the facts of one haystack stand.

    Attributes:
        anchor: Haystack tokens that depths are shares of.
        depths: The depth of each fact.
    """

    anchor: int
    depths: tuple[float, ...]


def spread_of(
    seed: str, repeat: int, *, anchor: int, depths: tuple[float, ...], drawn: int
) -> Spread:
    """Return where the facts of a repeat stand.

    Two thirds of the repeats have them at fixed depths. A third has a length of its own, up to
    `drawn` tokens shorter, and depths of its own, so that prompts between the lengths and depths of
    the others are sent too. Three lengths lie in the three thirds of what lies between, and three
    further ones halfway between these, and so on: lengths that are drawn independently leave gaps
    in which a server may lose all. If a haystack has no room for a fact in the middle, another
    third has one there instead of behind it.

    >>> spread_of("1:8000", 0, anchor=7_000, depths=(0.0, 0.75, 0.99), drawn=6_000)
    Spread(anchor=7000, depths=(0.0, 0.75, 0.99))
    >>> spread_of("1:8000", 6, anchor=7_000, depths=(0.0, 0.75, 0.99), drawn=6_000).depths
    (0.0, 0.5, 0.99)
    """
    turn = repeat // THIRD % THIRD
    if turn == 2 and len(depths) in (2, 3):
        return Spread(anchor, (*depths[:-2], 0.5, depths[-1]))
    if turn != 1 or not drawn or not anchor:
        return Spread(anchor, depths)

    group = repeat // (THIRD * THIRD)
    thirds = list(range(THIRD))
    Random(f"shares:{seed}:{group}").shuffle(thirds)
    third_share = (Random(f"within:{seed}").random() + halved(group)) % 1
    share = (thirds[repeat % THIRD] + third_share) / THIRD
    # Lengths are spread by ratio, not by tokens.
    missing_tokens = anchor * (1 - ((anchor - drawn) / anchor) ** share)
    step = SMALL_STEP if drawn < SCARCE else STEP
    own_anchor = anchor - round(missing_tokens) // step * step
    if len(depths) == 1:
        return Spread(own_anchor, depths)

    middle_facts = len(depths) - 2
    shift = Random(f"spread:{seed}:{repeat}").random()
    middle_depths = (
        round((number - shift) * MOST_DRAWN / middle_facts, 4)
        for number in range(1, middle_facts + 1)
    )
    # The last fact stands as many tokens before the end as in the other haystacks.
    tail_tokens = (1 - depths[-1]) * anchor
    return Spread(own_anchor, (depths[0], *middle_depths, round(1 - tail_tokens / own_anchor, 8)))


def halved(number: int) -> float:
    """Return a number's place in [0, 1). Places of the first numbers lie far apart.

    It is the van der Corput sequence in base 2.

    >>> [halved(number) for number in range(6)]
    [0.0, 0.5, 0.25, 0.75, 0.125, 0.625]
    """
    place, step = 0.0, 0.5
    while number:
        number, digit = divmod(number, 2)
        place += digit * step
        step /= 2
    return place


def drawn_apart(
    draw: Choices, repeat: int, *, seed: int, count: int, question: str
) -> list[dict[str, str]]:
    """Draw values for several facts whose questions differ, by seed and repeat.

    Raises SettingsError if there are too few different questions.
    """
    if count == 1:
        return [clearly_drawn(draw, repeat, seed)]
    random = Random(f"apart:{seed}:{repeat}")
    questions: set[str] = set()
    rows: list[dict[str, str]] = []
    for _ in range(MOST_TRIES * count):
        values = clearly_drawn(draw, random.randrange(2**31), seed)
        question_text = fill(question, values, "question")
        if question_text not in questions:
            questions.add(question_text)
            rows.append(values)
        if len(rows) == count:
            return rows
    raise SettingsError(
        f"--question and --draw make {len(questions)} questions, and {count} facts need one each. "
        "Give --draw more values for the question's placeholder."
    )


def clearly_drawn(draw: Choices, repeat: int, seed: int) -> dict[str, str]:
    """Return values drawn by seed and repeat, and others if six digits stand twice in one."""
    values = drawn(draw, repeat, seed)
    random = Random(f"clear:{seed}:{repeat}")
    for _ in range(MOST_DRAWS):
        if not any(map(holds_digits_twice, values.values())):
            break
        values = drawn(draw, random.randrange(2**31), seed)
    return values


def holds_digits_twice(value: str) -> bool:
    """Return True for a number in which the same six digits stand twice.

    >>> holds_digits_twice("347474747824"), holds_digits_twice("271828182845")
    (True, False)
    """
    if not value.isdecimal():
        return False
    runs = [value[start : start + DIGITS_SEEN] for start in range(len(value) - DIGITS_SEEN + 1)]
    return len(set(runs)) < len(runs)


def twin_of(values: Mapping[str, str], keywords: Sequence[str]) -> dict[str, str]:
    """Return the same values with another end of each number in a right answer.

    Numbers of four and more digits get three other last digits, so that two prompts part within
    the number.

    >>> twin_of({"city": "Turin", "number": "271828182845"}, ["{number}"])
    {'city': 'Turin', 'number': '271828182345'}
    """
    twin = dict(values)
    for name, value in values.items():
        is_answered = any("{" + name + "}" in word for word in keywords)
        if not is_answered or len(value) <= TAIL or not value.isdecimal():
            continue
        end = (int(value[-TAIL:]) + 10**TAIL // 2) % 10**TAIL
        twin[name] = f"{value[:-TAIL]}{end:0{TAIL}}"
    return twin
