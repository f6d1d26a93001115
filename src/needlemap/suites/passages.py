"""Passages that questions are asked about: entries of an invented encyclopedia, or a file's.

An entry tells several facts of each type (four towns, three years), in any order, in words that its
question does not have, and calls its subject by name once. Entries are one line each, so that each
stands whole. A file is SQuAD's or HotpotQA's, in the form in which they are published or as rows of
a data set; nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Literal

from needlemap.errors import SettingsError
from needlemap.haystacks import Stream
from needlemap.suites.lexicon import lexicon
from needlemap.suites.published import Row, read_rows
from needlemap.tasks import holds_nothing
from needlemap.tasks.values import fresh, person, words
from needlemap.untrusted import read_json

Kind = Literal["person", "ship", "firm"]
Holds = Callable[[str], bool]
Shape = Literal["auto", "squad", "hotpot"]
KINDS: tuple[Kind, ...] = ("person", "ship", "firm")
YEARS = range(1700, 1900)
_MIXED = 24  # entries that wait in the stream, so that those of a pair stand apart
_MENTIONS = 0.3  # of all entries name another one's question
_PRONOUNS = {
    "woman": {"They": "She", "Their": "Her", "their": "her", "them": "her"},
    "man": {"They": "He", "Their": "His", "their": "his", "them": "him"},
    "thing": {"They": "It", "Their": "Its", "their": "its", "them": "it"},
}
_GONE = "Names of entries are used up. Use shorter lengths."


@dataclass(frozen=True, slots=True)
class Name:
    """What an entry is about. called: its pronouns."""

    kind: Kind
    title: str
    called: str = "thing"

    @property
    def who(self) -> str:
        """As a question calls it."""
        titles = lexicon("passages", "english")["titles"]
        return str(titles[self.kind].format(title=self.title))


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the encyclopedia. values: by fact."""

    name: Name
    values: Mapping[str, str]
    line: str

    def of_type(self, kind: str) -> list[str]:
        """Its values of a type, 'town' or 'year'."""
        facts = facts_of(self.name.kind)
        return [value for fact, value in self.values.items() if facts[fact]["type"] == kind]


def facts_of(kind: Kind) -> Mapping[str, Mapping[str, Any]]:
    """The facts that an entry of a kind tells."""
    found: Mapping[str, Mapping[str, Any]] = lexicon("passages", "english")[kind]["facts"]
    return found


def clause(name: str, kind: Kind, fact: str) -> str:
    """What a question asks of somebody or something.

    >>> clause("the captain of the ship Amber Crow", "person", "born")
    'in which town the captain of the ship Amber Crow was born'
    """
    return str(facts_of(kind)[fact]["ask"].format(who=name))


def fresh_name(random: Random, kind: Kind, taken: set[str], holds: Holds, like: str = "") -> Name:
    """A name that is neither taken, and is from now on, nor held. like: a title of the kind
    that it shares half of. Raises SettingsError where none is left."""
    return fresh(partial(_name, random, kind, like), taken, holds, _GONE, lambda found: found.title)


def _name(random: Random, kind: Kind, like: str) -> Name:
    somebody, half = person(random, "english"), like.split()[-1:]
    family = somebody.name.split()[1]
    if kind == "person":
        called = "woman" if somebody.woman else "man"
        return Name(kind, " ".join([somebody.name.split()[0], *(half or [family])]), called)
    if kind == "firm":
        return Name(
            kind, f"{family} and {(half or [person(random, 'english').name.split()[1]])[0]}"
        )
    adjectives, nouns = words("english")
    first, last = random.choice(adjectives), random.choice(nouns)
    return Name(kind, " ".join([first.title(), *(half or [last.title()])]))


def write(random: Random, name: Name, bridge: str = "", mention: str = "") -> Entry:
    """An entry. bridge: the person whom a ship or a firm leads to. mention: the clause that it
    names besides."""
    facts, known = facts_of(name.kind), lexicon("passages", "english")
    values: dict[str, str] = {}
    for kind, pool in (("town", known["towns"]), ("year", YEARS)):
        named = [fact for fact in facts if facts[fact]["type"] == kind]
        values |= zip(named, map(str, random.sample(pool, len(named))), strict=True)
    told = [
        random.choice(facts[fact]["says"]).format(value=value, **_PRONOUNS[name.called])
        for fact, value in values.items()
    ]
    if bridge:
        told.append(random.choice(known[name.kind]["bridge"]["says"]).format(value=bridge))
    if mention:
        told.append(known["mention"].format(clause=mention))
    random.shuffle(told)
    return Entry(name, values, f"{name.title}: {' '.join(told)}\n")


def write_with_bridge(
    random: Random, name: Name, taken: set[str], holds: Holds, mention: str = ""
) -> list[Entry]:
    """An entry, and where it is a ship's or a firm's that of the person it leads to."""
    if name.kind == "person":
        return [write(random, name, mention=mention)]
    other = fresh_name(random, "person", taken, holds)
    return [write(random, name, other.title, mention), write(random, other)]


@dataclass(frozen=True, slots=True)
class Entries(Stream):
    """Entries without end; a ship's captain and a firm's founder have one too, somewhere near.
    source: what fixes them, one a repeat."""

    source: str
    name: str = "entries"

    def pieces(self) -> Iterator[str]:
        """The lines."""
        random, taken, waiting = Random(f"entries:{self.source}"), set[str](), list[str]()
        before = fresh_name(random, "person", taken, holds_nothing)
        while True:
            while len(waiting) < _MIXED:
                name = fresh_name(random, random.choice(KINDS), taken, holds_nothing)
                mention = ""
                if random.random() < _MENTIONS:
                    fact = random.choice(list(facts_of(before.kind)))
                    mention = clause(before.who, before.kind, fact)
                made = write_with_bridge(random, name, taken, holds_nothing, mention)
                waiting += [entry.line for entry in made]
                before = name
            place = int(random.random() * len(waiting))
            waiting[place], waiting[-1] = waiting[-1], waiting[place]
            yield waiting.pop()


@dataclass(frozen=True, slots=True)
class PassageQuestion:
    """A question of a file. answers: any one is right. passages: the lines that answer it. beside:
    lines that were published with it, and do not."""

    question: str
    answers: tuple[str, ...]
    passages: tuple[str, ...]
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PassageStream(Stream):
    """A file's passages in an order of their own, again and again in other orders."""

    source: str
    lines: tuple[str, ...] = field(compare=False, repr=False)
    name: str = "passages"

    def pieces(self) -> Iterator[str]:
        """The lines."""
        for time in count():
            yield from Random(f"passages:{self.source}:{time}").sample(self.lines, len(self.lines))


_HELD = 64  # questions of a repeat at most, whose passages are kept out of its haystack


@dataclass(frozen=True, slots=True)
class PassageFile:
    """A file's questions, and all its passages, each once. sha256: of the file."""

    path: Path
    sha256: str
    questions: tuple[PassageQuestion, ...]
    passages: tuple[str, ...]

    def of_repeat(
        self, repeat: int, seed: int
    ) -> tuple[tuple[PassageQuestion, ...], PassageStream]:
        """The questions of a repeat, and the other passages. At least half of them stay
        such."""
        source = f"{seed}:{repeat}:{self.sha256}"
        order = Random(f"questions:{source}").sample(self.questions, len(self.questions))
        chosen, held = list[PassageQuestion](), set[str]()
        for each in order:
            more = held | {*each.passages, *each.beside}
            if len(chosen) < _HELD and (not chosen or 2 * len(more) <= len(self.passages)):
                chosen.append(each)
                held = more
        rest = tuple(line for line in self.passages if line not in held)
        return tuple(chosen), PassageStream(source, rest)


@cache
def read_passages(path: str, shape: Shape) -> PassageFile:
    """A file of SQuAD's or HotpotQA's. Raises SettingsError with what is wrong."""
    file = Path(path).expanduser()
    rows = list(_rows(file))
    told = shape if shape != "auto" else "hotpot" if "supporting_facts" in rows[0] else "squad"
    read = {"squad": _squad, "hotpot": _hotpot}[told]
    questions: list[PassageQuestion] = []
    lines: dict[str, None] = {}
    for number, row in enumerate(rows, 1):
        try:
            asked, passages = read(row)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise SettingsError(
                f"'{file}', question {number}: not of the form '{told}' "
                f"({type(error).__name__}: {error}). SQuAD's questions have context, question and "
                f"answers; HotpotQA's have context, question, answer and supporting_facts. Choose "
                f"with --task-options shape=squad or shape=hotpot"
            ) from None
        questions += asked
        lines |= dict.fromkeys(passages)
    if not questions or len(lines) < 4:
        raise SettingsError(
            f"'{file}' has {len(questions)} questions with an answer and {len(lines)} passages: "
            f"give a file with at least one and four."
        )
    return PassageFile(file, sha256(file.read_bytes()).hexdigest(), tuple(questions), tuple(lines))


def _rows(file: Path) -> Iterator[Row]:
    """Questions with their passages. SQuAD's own file nests them; all others are rows."""
    if file.suffix.lower() == ".json" and file.is_file():
        try:
            whole = read_json(file.read_text("utf-8-sig"))
        except ValueError as error:
            raise SettingsError(f"'{file}' cannot be read: {error}.") from None
        if isinstance(whole, dict):
            try:
                found = list(_nested(whole))
            except (KeyError, TypeError, AttributeError) as error:
                raise SettingsError(
                    f"'{file}' is not SQuAD's form, data > paragraphs > qas ({error!r})."
                ) from None
            if not found:
                raise SettingsError(f"'{file}' holds no questions.")
            yield from found
            return
    yield from read_rows(file)


def _nested(whole: Mapping[str, Any]) -> Iterator[Row]:
    for article in whole["data"]:
        for paragraph in article["paragraphs"]:
            shared = {"title": article.get("title", ""), "context": paragraph["context"]}
            for each in paragraph["qas"]:
                yield {**each, **shared}


def _squad(row: Row) -> tuple[list[PassageQuestion], list[str]]:
    """A row's question, none where it has no answer, and its passage."""
    passage = _line(str(row.get("title") or "").replace("_", " "), _text(row["context"]))
    answers = row["answers"]
    texts = answers["text"] if isinstance(answers, dict) else [each["text"] for each in answers]
    kept = tuple(dict.fromkeys(text.strip() for text in map(_text, texts) if text.strip()))
    asked = PassageQuestion(_text(row["question"]).strip(), kept, (passage,))
    return ([asked] if kept else []), [passage]


def _hotpot(row: Row) -> tuple[list[PassageQuestion], list[str]]:
    """A row's question and its passages, those that support the answer and the others."""
    context, facts = row["context"], row["supporting_facts"]
    pairs = (
        list(zip(context["title"], context["sentences"], strict=True))
        if isinstance(context, dict)
        else [(title, sentences) for title, sentences in context]
    )
    named = facts["title"] if isinstance(facts, dict) else [title for title, _ in facts]
    lines = {_text(title): _line(title, "".join(map(_text, said))) for title, said in pairs}
    passages = tuple(lines[title] for title in dict.fromkeys(named))
    answer = _text(row["answer"]).strip()
    if not passages or not answer:
        raise ValueError("no answer, or no supporting fact")
    beside = tuple(line for title, line in lines.items() if title not in named)
    asked = PassageQuestion(_text(row["question"]).strip(), (answer,), passages, beside)
    return [asked], [*lines.values()]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def _line(title: str, text: str) -> str:
    """A passage as one line."""
    said = " ".join(f"{title}: {text}".split()) if title.strip() else " ".join(text.split())
    return f"{said}\n"
