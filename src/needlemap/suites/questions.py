"""Questions about one passage, or two that lead from one to the other, among others of their kind.

    Amber Crow: Its keel was laid at Brevik. Ada Marwood commanded it for many years. ...
    Ada Marwood: Her grave lies at Quillby. She came into the world at Dorvane. ...
    "Say in which town the captain of the ship Amber Crow was born."  ->  Dorvane

After RULER's two question answering tests (Hsieh et al. 2024, arXiv 2404.06654), which hide
passages of SQuAD and HotpotQA. Here these passages come from a file of the user's; by default all
passages are our own, drawn afresh. No short cut leads to the answer: each town and year stands in
many entries, each entry has several, in any order and in other words than the question's, and
another entry has more of the question's words.
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
        self._file: PassageFile | None = None
        if self.path:
            self._file = read_passages(self.path, self.shape)
        self._of_repeat = dict[tuple[int, int], tuple[tuple[PassageQuestion, ...], PassageStream]]()

    def background(self, repeat: int, seed: int) -> Background:
        """Return the other passages."""
        if self._file is not None:
            _, stream = self._questions_and_stream(self._file, repeat, seed=seed)
            return Background(stream)
        return Background(Entries(f"{seed}:{repeat}"))

    def source(self) -> tuple[str, str]:
        """Return the file's name and sha256, or '' and '' if there is no file."""
        if self._file is None:
            return "", ""
        return f"passages:{self._file.path.name}", self._file.sha256

    def item(self, draw: Draw) -> Item:
        """Return an item whose asked passage is at the cell's depth.

        The other passages that belong to the question stand anywhere.
        """
        random = draw.random("questions", self.fresh)
        if self._file is not None:
            return self._file_item(self._file, draw, random=random)
        return self._invented_item(draw, random)

    def _file_item(self, file: PassageFile, draw: Draw, random: Random) -> Item:
        """Return an item with a question of the file."""
        questions, _ = self._questions_and_stream(file, draw.repeat, seed=draw.seed)
        question = random.choice(questions)
        others = random.sample(question.other_passages, min(2, len(question.other_passages)))
        return Item(
            self._needles(draw, [*question.passages, *others]),
            question.question,
            reference=Reference(
                question.answers[0],
                question.answers,
                needle=question.passages[0].strip(),
                question=question.question,
            ),
            answer_prefix=lexicon("passages", "english")["begun"],
            unique=(),
        )

    def _questions_and_stream(
        self, file: PassageFile, repeat: int, seed: int
    ) -> tuple[tuple[PassageQuestion, ...], PassageStream]:
        """Return a repeat's questions and its other passages, which are drawn once."""
        if (repeat, seed) not in self._of_repeat:
            self._of_repeat[repeat, seed] = file.questions_of_repeat(repeat, seed)
        return self._of_repeat[repeat, seed]

    def _invented_item(self, draw: Draw, random: Random) -> Item:
        """Return an item with an invented question.

        Its passages are the entry, the entry of the person it leads to, one of nearly the same
        name, and one that has the question's words.
        """
        vocabulary = lexicon("passages", "english")
        taken = set[str]()
        kind = random.choice(KINDS[1:] if self.hops == 2 else KINDS)
        name = fresh_name(random, kind, taken=taken, holds=draw.holds)
        entries = write_with_bridge(random, name, taken=taken, holds=draw.holds)
        answering = entries[self.hops - 1]
        who = name.who
        if self.hops == 2:
            who = vocabulary[kind]["bridge"]["ask"].format(who=who)

        facts = facts_of(answering.name.kind)
        fact = random.choice(list(facts))
        answer = answering.values[fact]
        value_type = facts[fact]["type"]
        asking = clause(who, answering.name.kind, fact=fact)
        for like, mention in ((name.title, ""), ("", asking)):
            other = fresh_name(random, kind, taken=taken, holds=draw.holds, like=like)
            entries += write_with_bridge(
                random, other, taken=taken, holds=draw.holds, mention=mention
            )

        question = vocabulary["question"].format(
            clause=asking, type=vocabulary["types"][value_type]
        )
        values = dict.fromkeys(value for entry in entries for value in entry.of_type(value_type))
        return Item(
            self._needles(draw, [entry.line for entry in entries]),
            question,
            reference=Reference(
                answer,
                (answer,),
                needle=answering.line.strip(),
                question=question,
                decoys=tuple(value for value in values if value != answer),
            ),
            answer_prefix=vocabulary["begun"],
            unique=tuple(entry.name.title for entry in entries),
        )

    def _needles(self, draw: Draw, lines: list[str]) -> tuple[Needle, ...]:
        """Return the first line at the cell's depth, and the others anywhere.

        Their depths are drawn for each length at most, so that neighbouring depths share what comes
        before.
        """
        random = draw.beside("questions beside", self.fresh)
        others = [Needle(line, random.random(), still=True) for line in lines[1:]]
        return (Needle(lines[0], draw.cell.depth), *others)
