"""What a check asks, and what came of it: an ask, its reply, and all replies so far."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Literal, TypeAlias

from needlemap.errors import Failure
from needlemap.finishes import Ending, ending_of

FIRST = "cold|crowded"  # ways of a haystack's first prompt: alone, or beside others
FIRST_BESIDE = "reference-cold|reference-crowded"
TOSS = "toss", "toss-again"  # ways of a question with several right answers
BESIDE = "reference-"  # before a way in which the reference is asked
TIMES_ROOM = 4  # times the answer's budget, in which an endless answer is asked for again
ROOMY = "-roomy"  # behind a way whose answers may have so much
_PARROTED = 60  # characters of a text around a fact that no answer needs

State = Literal["cold", "warm", "loaded"]
Key: TypeAlias = tuple[str, int, int, float, int]
Haystack: TypeAlias = tuple[int, int, str]


@dataclass(frozen=True)
class Ask:
    """One prompt to ask. way: how; size: the size in tokens that it serves; length: of this very
    prompt; depth: of the asked fact, a share of the haystack; repeat: the number of its documents;
    fact: the number of the asked fact among those of the haystack. state: what the server is
    presumed to hold of it, and whether others are asked at the same time. salt: a first line that
    makes a further copy of the haystack, of which no cache holds anything. facts: hidden in the
    haystack. round: 1, or 2 of what is asked because a row was undecided. twin: whether the last
    fact's number ends otherwise than in the haystack's other prompts."""

    way: str
    size: int
    length: int
    depth: float
    repeat: int
    fact: int = 0
    state: State = "warm"
    salt: str = ""
    place: int | None = None
    facts: int = 1
    seed: int = 0
    round: int = 1
    twin: bool = False

    @cached_property
    def key(self) -> Key:
        """What no other ask of a check has."""
        return self.way, self.size, self.length, round(self.depth, 8), self.repeat

    @property
    def family(self) -> str:
        """The name of the family that keeps its record."""
        return f"{self.way}-{self.size}"

    @cached_property
    def haystack(self) -> Haystack:
        """Equal for asks that begin with the same tokens."""
        return self.size, self.repeat, self.salt

    @property
    def begin(self) -> Haystack:
        """The same, as a cache that is keyed on a prompt's beginning has it."""
        return self.haystack

    @cached_property
    def prompt(self) -> tuple[Hashable, ...]:
        """Equal for asks of the same prompt, byte for byte."""
        return (*self.haystack, self.fact, self.length, self.place, self.twin)

    @cached_property
    def secret(self) -> str:
        """A made-up right answer, for replays without prompts: twelve digits."""
        return secret_of(self.seed, self.haystack[:2], self.facts if self.twin else self.fact)

    @cached_property
    def beside(self) -> tuple[str, ...]:
        """The made-up secrets of the other facts in the same prompt."""
        others = (fact for fact in range(self.facts) if fact != self.fact)
        return tuple(secret_of(self.seed, self.haystack[:2], fact) for fact in others)


def roomy(ask: Ask) -> Ask:
    """Return the same prompt with a larger budget for its answer."""
    return replace(ask, way=f"{ask.way}{ROOMY}", state="warm")


def secret_of(seed: int, haystack: tuple[int, int], fact: int) -> str:
    """Twelve digits that no other fact has."""
    digest = sha256(f"{seed}:{haystack}:{fact}".encode()).digest()
    return str(10**11 + int.from_bytes(digest[:8], "big") % (9 * 10**11))


@dataclass(frozen=True)
class Reply:
    """What came of an ask. right: whether the answer holds the secret, ended by itself and is no
    copy of the prompt. failure: why there is no answer. secret, beside: what the prompt hides.
    start: tokens of the prompt before the fact, those of a server's template aside.
    margins: of each token of the answer over the runner-up, in nats."""

    ask: Ask
    answer: str = ""
    right: bool = False
    ended: bool = True
    failure: str = ""
    secret: str = ""
    beside: tuple[str, ...] = ()
    start: int = 0
    prompt_tokens: int | None = None
    own_tokens: int | None = None
    cached_tokens: int | None = None
    margins: tuple[tuple[str, float], ...] | None = None
    tokens: int = 0
    seconds: float = 0.0
    attempts: int = 1

    @classmethod
    def of(
        cls,
        ask: Ask,
        text: str,
        *,
        finish: str = "stop",
        prompt_tokens: int | None = None,
        cached_tokens: int | None = None,
        failure: str = "",
        start: int = 0,
    ) -> Reply:
        """A reply to a replayed ask, whose secrets are made up."""
        ended = ending_of(finish) is not Ending.CUT
        right = not failure and ended and ask.secret in text
        right = right and not is_parrot(text, ask.beside)
        hidden = ask.secret, ask.beside, start
        counts = prompt_tokens, ask.length, cached_tokens
        return cls(ask, text, right, ended, failure, *hidden, *counts, tokens=ask.length)

    @property
    def measured(self) -> bool:
        """Whether there is an answer."""
        return not self.failure


def did_end(finish: str | None, written: int | None, budget: int) -> bool:
    """Whether an answer ended by itself, or where the context did: a server's own template
    takes room beside the prompts that we count. written: the answer's tokens. budget: those it
    may have.

    >>> did_end("stop", 3, 24), did_end("length", 24, 24), did_end("length", 12, 24)
    (True, False, True)
    """
    return ending_of(finish) is not Ending.CUT or (written is not None and written < budget)


def is_parrot(answer: str, beside: Iterable[str], around: Iterable[str] = ()) -> bool:
    """Whether an answer is a copy of its prompt: it holds two more of its secrets, or the text
    around a fact.

    >>> is_parrot("It is 4711.", ["0815", "1234"]), is_parrot("4711 0815 1234", ["0815", "1234"])
    (False, True)
    """
    if sum(value in answer for value in beside) >= 2:
        return True
    return any(len(text) >= _PARROTED and text in answer for text in around)


class Answers:
    """All replies so far, the last of each ask. look: which look at them this is, from 1 on."""

    def __init__(self, replies: Iterable[Reply] = ()) -> None:
        self.by_key: dict[Key, Reply] = {}
        self.tried: set[Key] = set()
        self._ways: dict[tuple[str, int], dict[Hashable, Reply]] = defaultdict(dict)
        self._about: dict[Haystack, dict[Hashable, Ask]] = defaultdict(dict)
        for reply in replies:
            self.add(reply)

    def add(self, reply: Reply) -> None:
        """Take one more."""
        key = reply.ask.key
        self.tried.add(key)
        if reply.measured or key not in self.by_key:
            self.by_key[key] = reply
            self._about[reply.ask.haystack][key] = reply.ask
        if reply.measured:
            self._ways[key[0], key[1]][key] = reply

    def __len__(self) -> int:
        return len(self.by_key)

    def about(self, haystack: Haystack) -> list[Ask]:
        """What the server was asked about one haystack, in the order in which it was."""
        asks = self._about.get(haystack, {}).values()
        return [ask for ask in asks if not ask.way.startswith(BESIDE)]

    def of(self, size: int, *ways: str) -> list[Reply]:
        """The answers of some ways at one size."""
        return [reply for way in ways for reply in self._ways.get((way, size), {}).values()]

    def every(self, *ways: str) -> list[Reply]:
        """The answers of some ways at all sizes; of all that ask for one fact where none is
        named."""
        rows = self._ways.items()
        return [
            reply
            for (way, _), found in rows
            if (way in ways if ways else way not in TOSS and not way.startswith(BESIDE))
            for reply in found.values()
        ]

    def unanswered(self, size: int) -> Haystack:
        """Asks at one size that were tried and brought no answer, all that were tried, and why
        most of them did not."""
        rows = [each for each in self.by_key.values() if each.ask.size == size and each.attempts]
        rows = [each for each in rows if each.failure != Failure.SKIPPED]
        why = Counter(each.failure for each in rows if each.failure).most_common(1)
        return sum(not each.measured for each in rows), len(rows), why[0][0] if why else ""

    def refused(self) -> list[Reply]:
        """Asks that the server found too long."""
        return [
            each
            for each in self.by_key.values()
            if each.failure == Failure.TOO_LONG and each.attempts
        ]

    def same_prompt(self, size: int, first: str, second: str) -> list[tuple[Reply, Reply]]:
        """Answers of two ways to the same prompts, byte for byte."""
        at = {reply.ask.prompt: reply for reply in self.of(size, *first.split("|"))}
        rows = self.of(size, *second.split("|"))
        return [(at[each.ask.prompt], each) for each in rows if each.ask.prompt in at]


def framing_of(answers: Answers) -> int | None:
    """Tokens that the server counts beside those of our own count; None if not always as
    many."""
    rows = [reply for reply in answers.every("cold", "crowded", "ask") if reply.own_tokens]
    found = {
        row.prompt_tokens - (row.own_tokens or 0) if row.prompt_tokens else None for row in rows
    }
    return found.pop() if len(found) == 1 else None
