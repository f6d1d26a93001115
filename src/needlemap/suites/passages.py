"""Write or read passages that questions are asked about.

They are entries of an invented encyclopedia, or the passages of a file. An entry tells several
facts of each type (four towns, three years), in any order, in words that its question does not
have, and calls its subject by name once. Each entry is one line, so that it is never split. A file
is SQuAD's or HotpotQA's, in the form in which they are published or as rows of a data set. Nothing
is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Literal

from needlemap.errors import SettingsError
from needlemap.files import sha256_of
from needlemap.haystacks import Stream
from needlemap.suites.lexicon import lexicon
from needlemap.suites.published import Row, read_rows, text_of
from needlemap.tasks import holds_nothing
from needlemap.tasks.values import fresh, person, words
from needlemap.untrusted import read_json

Kind = Literal["person", "ship", "firm"]
Holds = Callable[[str], bool]
Shape = Literal["auto", "squad", "hotpot"]
KINDS: tuple[Kind, ...] = ("person", "ship", "firm")
YEARS = range(1700, 1900)
# Entries that wait in the stream, so that the two entries of a pair stand apart.
_WAITING = 24
# Share of the entries that mention the question of another entry.
_MENTIONS = 0.3
# Questions of a repeat at most. Their passages are kept out of its haystack.
_MOST_QUESTIONS = 64
# A file with fewer passages is refused.
_FEWEST_PASSAGES = 4
_PRONOUNS = {
    "woman": {"They": "She", "Their": "Her", "their": "her", "them": "her"},
    "man": {"They": "He", "Their": "His", "their": "his", "them": "him"},
    "thing": {"They": "It", "Their": "Its", "their": "its", "them": "it"},
}
_GONE = "Names of entries are used up. Use shorter lengths."


@dataclass(frozen=True, slots=True)
class Name:
    """The name of what an entry is about.

    Attributes:
        kind: Whether it is a person, a ship or a firm.
        title: The name itself.
        pronouns: 'woman', 'man' or 'thing'.
    """

    kind: Kind
    title: str
    pronouns: str = "thing"

    @property
    def who(self) -> str:
        """Return the name as questions have it, for example 'the captain of the ship ...'."""
        titles = lexicon("passages", "english")["titles"]
        return str(titles[self.kind].format(title=self.title))


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the encyclopedia.

    Attributes:
        name: What it is about.
        values: Its towns and years by the name of their fact.
        line: Its text, with the line break.
    """

    name: Name
    values: Mapping[str, str]
    line: str

    def of_type(self, value_type: str) -> list[str]:
        """Return its values of a type, 'town' or 'year'."""
        facts = facts_of(self.name.kind)
        return [value for fact, value in self.values.items() if facts[fact]["type"] == value_type]


def facts_of(kind: Kind) -> Mapping[str, Mapping[str, Any]]:
    """Return the facts that an entry of a kind tells, by name."""
    facts: Mapping[str, Mapping[str, Any]] = lexicon("passages", "english")[kind]["facts"]
    return facts


def clause(name: str, kind: Kind, fact: str) -> str:
    """Return the clause by which a question asks for a fact of a person or thing.

    >>> clause("the captain of the ship Amber Crow", "person", "born")
    'in which town the captain of the ship Amber Crow was born'
    """
    return str(facts_of(kind)[fact]["ask"].format(who=name))


def fresh_name(random: Random, kind: Kind, taken: set[str], holds: Holds, like: str = "") -> Name:
    """Return a name that is neither taken nor held, and count it as taken.

    like: a title of the kind that shares its last word. Raises SettingsError if no name is left.
    """
    return fresh(
        partial(_draw_name, random, kind, like),
        taken,
        holds=holds,
        gone=_GONE,
        named=lambda name: name.title,
    )


def _draw_name(random: Random, kind: Kind, like: str) -> Name:
    drawn_person = person(random, "english")
    given, family = drawn_person.name.split()
    last = like.split()[-1] if like else ""
    if kind == "person":
        pronouns = "woman" if drawn_person.woman else "man"
        return Name(kind, f"{given} {last or family}", pronouns=pronouns)

    if kind == "firm":
        if not last:
            last = person(random, "english").name.split()[1]
        return Name(kind, f"{family} and {last}")

    adjectives, nouns = words("english")
    adjective = random.choice(adjectives).title()
    noun = random.choice(nouns).title()
    return Name(kind, f"{adjective} {last or noun}")


def write_entry(random: Random, name: Name, bridge: str = "", mention: str = "") -> Entry:
    """Return an entry with drawn values.

    bridge: the person whom a ship or a firm leads to. mention: a clause of another question that
    the entry holds.
    """
    facts = facts_of(name.kind)
    vocabulary = lexicon("passages", "english")

    values: dict[str, str] = {}
    for value_type, pool in (("town", vocabulary["towns"]), ("year", YEARS)):
        names = [fact for fact in facts if facts[fact]["type"] == value_type]
        values |= zip(names, map(str, random.sample(pool, len(names))), strict=True)

    sentences = []
    for fact, value in values.items():
        template = random.choice(facts[fact]["says"])
        sentences.append(template.format(value=value, **_PRONOUNS[name.pronouns]))
    if bridge:
        template = random.choice(vocabulary[name.kind]["bridge"]["says"])
        sentences.append(template.format(value=bridge))
    if mention:
        sentences.append(vocabulary["mention"].format(clause=mention))
    random.shuffle(sentences)
    return Entry(name, values, line=f"{name.title}: {' '.join(sentences)}\n")


def write_with_bridge(
    random: Random, name: Name, taken: set[str], holds: Holds, mention: str = ""
) -> list[Entry]:
    """Return an entry, and after a ship's or a firm's the entry of the person it leads to."""
    if name.kind == "person":
        return [write_entry(random, name, mention=mention)]
    other = fresh_name(random, "person", taken=taken, holds=holds)
    first = write_entry(random, name, bridge=other.title, mention=mention)
    return [first, write_entry(random, other)]


@dataclass(frozen=True, slots=True)
class Entries(Stream):
    """Entries without end; a ship's captain and a firm's founder have one too, somewhere near.

    source: what fixes them, one a repeat.
    """

    source: str
    name: str = "entries"

    def pieces(self) -> Iterator[str]:
        """Yield the lines."""
        random = Random(f"entries:{self.source}")
        taken = set[str]()
        waiting: list[str] = []
        previous = fresh_name(random, "person", taken=taken, holds=holds_nothing)
        while True:
            while len(waiting) < _WAITING:
                kind = random.choice(KINDS)
                name = fresh_name(random, kind, taken=taken, holds=holds_nothing)
                mention = ""
                if random.random() < _MENTIONS:
                    fact = random.choice(list(facts_of(previous.kind)))
                    mention = clause(previous.who, previous.kind, fact=fact)
                entries = write_with_bridge(
                    random, name, taken=taken, holds=holds_nothing, mention=mention
                )
                waiting += [entry.line for entry in entries]
                previous = name

            place = int(random.random() * len(waiting))
            waiting[place], waiting[-1] = waiting[-1], waiting[place]
            yield waiting.pop()


@dataclass(frozen=True, slots=True)
class PassageQuestion:
    """A question of a file.

    Attributes:
        question: The question.
        answers: Right answers, of which any one will do.
        passages: The lines that answer it.
        other_passages: Lines that were published with it and do not answer it.
    """

    question: str
    answers: tuple[str, ...]
    passages: tuple[str, ...]
    other_passages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PassageStream(Stream):
    """A file's passages in a drawn order, again and again in other orders.

    Attributes:
        source: What fixes the orders.
        lines: The passages.
    """

    source: str
    lines: tuple[str, ...] = field(compare=False, repr=False)
    name: str = "passages"

    def pieces(self) -> Iterator[str]:
        """Yield the lines."""
        for number in count():
            random = Random(f"passages:{self.source}:{number}")
            yield from random.sample(self.lines, len(self.lines))


@dataclass(frozen=True, slots=True)
class PassageFile:
    """A file's questions and passages.

    Attributes:
        path: The file.
        sha256: The hash of the file.
        questions: All questions.
        passages: All passages, each once.
    """

    path: Path
    sha256: str
    questions: tuple[PassageQuestion, ...]
    passages: tuple[str, ...]

    def questions_of_repeat(
        self, repeat: int, seed: int
    ) -> tuple[tuple[PassageQuestion, ...], PassageStream]:
        """Return the questions of a repeat, and a haystack of the passages of no such question.

        If a repeat has several questions, at least half of the file's passages are in the haystack.
        """
        source = f"{seed}:{repeat}:{self.sha256}"
        order = Random(f"questions:{source}").sample(self.questions, len(self.questions))
        questions: list[PassageQuestion] = []
        own_passages = set[str]()
        for question in order:
            with_question = own_passages | {*question.passages, *question.other_passages}
            is_half_left = 2 * len(with_question) <= len(self.passages)
            if len(questions) < _MOST_QUESTIONS and (is_half_left or not questions):
                questions.append(question)
                own_passages = with_question

        rest = tuple(line for line in self.passages if line not in own_passages)
        return tuple(questions), PassageStream(source, rest)


@cache
def read_passages(path: str, shape: Shape) -> PassageFile:
    """Return the questions and passages of a SQuAD or HotpotQA file.

    shape: which of the two the file is; 'auto' to decide by its first row.

    Raises SettingsError for a file of another shape, or with too few questions or passages.
    """
    file = Path(path).expanduser()
    rows = _rows(file)
    row_shape = _shape_of(rows[0]) if shape == "auto" else shape
    read_row = {"squad": _squad, "hotpot": _hotpot}[row_shape]

    questions: list[PassageQuestion] = []
    # A dict keeps each passage once, in the order of the file.
    passages: dict[str, None] = {}
    for number, row in enumerate(rows, 1):
        try:
            row_questions, row_passages = read_row(row)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise SettingsError(
                f"'{file}', question {number}: not of the form '{row_shape}' "
                f"({type(error).__name__}: {error}). SQuAD's questions have context, question and "
                f"answers; HotpotQA's have context, question, answer and supporting_facts. Choose "
                f"with --task-options shape=squad or shape=hotpot"
            ) from None
        questions += row_questions
        passages |= dict.fromkeys(row_passages)

    if not questions or len(passages) < _FEWEST_PASSAGES:
        raise SettingsError(
            f"'{file}' has {len(questions)} questions with an answer and {len(passages)} passages: "
            f"give a file with at least one and four."
        )
    return PassageFile(
        file,
        sha256_of(file),
        questions=tuple(questions),
        passages=tuple(passages),
    )


def _shape_of(row: Row) -> Shape:
    """Return the shape of a file by one of its rows. Only HotpotQA's name supporting facts."""
    return "hotpot" if "supporting_facts" in row else "squad"


def _rows(file: Path) -> list[Row]:
    """Return the questions of a file with their passages, each a row.

    SQuAD's own file nests them; all other files have rows.
    """
    if file.suffix.lower() == ".json" and file.is_file():
        try:
            content = read_json(text_of(file))
        except ValueError as error:
            raise SettingsError(f"'{file}' cannot be read: {error}.") from None
        if isinstance(content, dict):
            return _nested_rows(file, content)
    return read_rows(file)


def _nested_rows(file: Path, content: Mapping[str, Any]) -> list[Row]:
    try:
        rows = list(_unnested(content))
    except (KeyError, TypeError, AttributeError) as error:
        raise SettingsError(
            f"'{file}' is not SQuAD's form, data > paragraphs > qas ({error!r})."
        ) from None
    if not rows:
        raise SettingsError(f"'{file}' holds no questions.")
    return rows


def _unnested(content: Mapping[str, Any]) -> Iterator[Row]:
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            shared = {"title": article.get("title", ""), "context": paragraph["context"]}
            for question in paragraph["qas"]:
                yield {**question, **shared}


def _squad(row: Row) -> tuple[list[PassageQuestion], list[str]]:
    """Return a row's question, or none if it has no answer, and its passage."""
    title = str(row.get("title") or "").replace("_", " ")
    passage = _line(title, _text(row["context"]))
    answers = row["answers"]
    texts = answers["text"] if isinstance(answers, dict) else [answer["text"] for answer in answers]
    stripped = [_text(text).strip() for text in texts]
    distinct = tuple(dict.fromkeys(text for text in stripped if text))
    question = PassageQuestion(
        _text(row["question"]).strip(),
        distinct,
        passages=(passage,),
    )
    return ([question] if distinct else []), [passage]


def _hotpot(row: Row) -> tuple[list[PassageQuestion], list[str]]:
    """Return a row's question and its passages: those that support the answer, and the others."""
    context = row["context"]
    facts = row["supporting_facts"]
    if isinstance(context, dict):
        paragraphs = list(zip(context["title"], context["sentences"], strict=True))
    else:
        paragraphs = [(title, sentences) for title, sentences in context]
    supporting = facts["title"] if isinstance(facts, dict) else [title for title, _ in facts]

    lines = {}
    for title, sentences in paragraphs:
        checked_title = _text(title)
        lines[checked_title] = _line(checked_title, "".join(map(_text, sentences)))
    passages = tuple(lines[title] for title in dict.fromkeys(supporting))
    answer = _text(row["answer"]).strip()
    if not passages or not answer:
        raise ValueError("no answer, or no supporting fact")

    question = PassageQuestion(
        _text(row["question"]).strip(),
        (answer,),
        passages=passages,
        other_passages=tuple(line for title, line in lines.items() if title not in supporting),
    )
    return [question], [*lines.values()]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def _line(title: str, text: str) -> str:
    """Return a passage as one line."""
    passage = f"{title}: {text}" if title.strip() else text
    return f"{' '.join(passage.split())}\n"
