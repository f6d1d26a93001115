"""Questions about one passage, or two that lead from one to the other, among others of their kind.

    Amber Crow: Its keel was laid at Brevik. Ada Marwood commanded it for many years. ...
    Ada Marwood: Her grave lies at Quillby. She came into the world at Dorvane. ...
    "Say in which town the captain of the ship Amber Crow was born."  ->  Dorvane

After RULER's two question answering tests (Hsieh et al. 2024, arXiv 2404.06654), which hide
passages of SQuAD and HotpotQA: these are asked from a file of the user's; by default all passages
are our own, drawn afresh. No short cut answers: every town and year stands in many entries, each
entry has several, in any order and in other words than the question's, and the entry that has most
of the question's words is another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal

from needlemap.suites.lexicon import lexicon
from needlemap.suites.passages import (
    KINDS,
    Entries,
    PassageFile,
    PassageQuestion,
    PassageStream,
    Shape,
    clause,
    facts_of,
    fresh_name,
    read_passages,
    write_with_bridge,
)
from needlemap.tasks import Background, Draw, Item, Needle, Reference, Scope, Task


@dataclass(kw_only=True, eq=False)
class Questions(Task):
    """A question about passages, one a line, among others of the same kind.

    hops: how many passages the answer takes, 1 or 2; of a HotpotQA file always those that the file
    names. path: a file of SQuAD's or HotpotQA's; '': passages of our own. shape: of which; auto: by
    its fields. fresh: how often the asked one is drawn, as for `magic`.
    """

    name = "questions"
    scorer = "alternatives"

    hops: Literal[1, 2] = 1
    path: str = ""
    shape: Shape = "auto"
    fresh: Scope = "trial"

    def __post_init__(self) -> None:
        self._file: PassageFile | None = read_passages(self.path, self.shape) if self.path else None
        self._of_repeat = dict[tuple[int, int], tuple[tuple[PassageQuestion, ...], PassageStream]]()

    def background(self, repeat: int, seed: int) -> Background:
        """The other passages."""
        if self._file is not None:
            return Background(self._chosen(self._file, repeat, seed)[1])
        return Background(Entries(f"{seed}:{repeat}"))

    def source(self) -> tuple[str, str]:
        """The file's name and sha256; '' without one."""
        if self._file is None:
            return "", ""
        return f"passages:{self._file.path.name}", self._file.sha256

    def item(self, draw: Draw) -> Item:
        """The passage that is asked about at the cell's depth, what else belongs to it
        anywhere."""
        random = draw.random("questions", self.fresh)
        if self._file is not None:
            return self._read(self._file, draw, random)
        return self._invented(draw, random)

    def _read(self, file: PassageFile, draw: Draw, random: Random) -> Item:
        asked = random.choice(self._chosen(file, draw.repeat, draw.seed)[0])
        beside = random.sample(asked.beside, min(2, len(asked.beside)))
        reference = Reference(
            asked.answers[0], asked.answers, asked.passages[0].strip(), asked.question
        )
        needles = self._placed(draw, [*asked.passages, *beside])
        begun = lexicon("passages", "english")["begun"]
        return Item(needles, asked.question, reference, answer_prefix=begun, unique=())

    def _chosen(
        self, file: PassageFile, repeat: int, seed: int
    ) -> tuple[tuple[PassageQuestion, ...], PassageStream]:
        """A repeat's questions and other passages, chosen once."""
        if (repeat, seed) not in self._of_repeat:
            self._of_repeat[repeat, seed] = file.of_repeat(repeat, seed)
        return self._of_repeat[repeat, seed]

    def _invented(self, draw: Draw, random: Random) -> Item:
        """The entry, the person it leads to, one of nearly the same name, and one that has the
        question's words."""
        known, taken = lexicon("passages", "english"), set[str]()
        kind = random.choice(KINDS[1:] if self.hops == 2 else KINDS)
        name = fresh_name(random, kind, taken, draw.holds)
        entries = write_with_bridge(random, name, taken, draw.holds)
        told = entries[self.hops - 1]
        bridge = known[kind].get("bridge") if self.hops == 2 else None
        who = bridge["ask"].format(who=name.who) if bridge else name.who
        fact = random.choice(list(facts_of(told.name.kind)))
        answer, kinds = told.values[fact], facts_of(told.name.kind)[fact]["type"]
        said = clause(who, told.name.kind, fact)
        for like, mention in ((name.title, ""), ("", said)):
            near = fresh_name(random, kind, taken, draw.holds, like)
            entries += write_with_bridge(random, near, taken, draw.holds, mention)
        question = known["question"].format(clause=said, type=known["types"][kinds])
        wrong = dict.fromkeys(value for entry in entries for value in entry.of_type(kinds))
        reference = Reference(
            answer,
            (answer,),
            told.line.strip(),
            question,
            decoys=tuple(value for value in wrong if value != answer),
        )
        needles = self._placed(draw, [entry.line for entry in entries])
        titles = tuple(entry.name.title for entry in entries)
        return Item(needles, question, reference, answer_prefix=known["begun"], unique=titles)

    def _placed(self, draw: Draw, lines: list[str]) -> tuple[Needle, ...]:
        """The first line at the cell's depth, the others anywhere: where, is drawn for each
        length at most, so that neighbouring depths share what comes before."""
        beside = draw.beside("questions beside", self.fresh)
        depths = [beside.random() for _ in lines[1:]]
        others = [Needle(line, at, still=True) for line, at in zip(lines[1:], depths, strict=True)]
        return (Needle(lines[0], draw.cell.depth), *others)
