"""Describe what a check asks and what came of it: an ask, its reply, and all replies so far."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Literal, TypeAlias

from needlemap.errors import Failure
from needlemap.finishes import Ending, ending_of
from needlemap.servers.ways import PREFILLED, Step

# Ways of a haystack's first prompt: alone, or next to others; and the same of the reference.
FIRST = "cold|crowded"
FIRST_BESIDE = "reference-cold|reference-crowded"
# Ways of a question with several right answers.
TOSS = "toss", "toss-again"
# The way of a question whose answer is thousands of tokens.
LONG = "long"
# The way of a first prompt that its answer and another prompt follow.
CONVERSATION = "conversation"
# Before a way in which the reference is asked.
BESIDE = "reference-"
# Times the answer's budget that an endless answer is given when it is asked for once more.
TIMES_ROOM = 4
# After a way whose answers are given so much.
ROOMY = "-with_larger_budget"
# The way of an answer's last token, sent as a prompt.
LAST_TOKEN = f"{PREFILLED}-last"
# Characters of a text around a fact that no answer needs.
_PARROTED = 60

State = Literal["cold", "warm", "loaded"]
Key: TypeAlias = tuple[str, int, int, float, int]
Haystack: TypeAlias = tuple[int, int, str]


@dataclass(frozen=True)
class Ask:
    """One prompt of a check.

    Attributes:
        way: How it is sent.
        size: The size in tokens that it serves.
        length: The tokens of this very prompt.
        depth: The depth of the asked fact, a share of the haystack.
        repeat: The number of its documents.
        fact: The number of the asked fact among those of the haystack.
        state: What the server is presumed to hold of it, and whether others are sent at the same
            time.
        salt: A first line that makes a further copy of the haystack, of which no cache holds
            anything.
        place: The haystack token at which the asked fact stands; None if its depth says it.
        facts: Facts hidden in the haystack.
        seed: The seed of the check.
        round: 1, or 2 if it is sent because a row was undecided.
        twin: Whether the last fact's number ends otherwise than in the haystack's other prompts.
        position: Of an answer that is sent as a prompt, the token up to which it is.
        source: The way of the prompt that it answers or continues.
    """

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
    position: int = 0
    source: str = ""

    @cached_property
    def key(self) -> Key:
        """Return the ask's key, which no other ask of a check has."""
        return self.way, self.size, self.length, round(self.depth, 8), self.repeat

    @property
    def family(self) -> str:
        """Return the name of the family that keeps its record."""
        return f"{self.way}-{self.size}"

    @property
    def may_go_unanswered(self) -> bool:
        """Return True if a sound server may refuse the prompt: no room for it was promised.

        It is longer than the context, or needlemap itself gave its answer a larger budget.
        """
        return self.way == "beyond" or self.way.endswith(ROOMY)

    @cached_property
    def haystack(self) -> Haystack:
        """Return a value that is equal for asks that start with the same tokens."""
        return self.size, self.repeat, self.salt

    @property
    def begin(self) -> Haystack:
        """Return the key of a cache that is keyed on a prompt's beginning."""
        return self.haystack

    @cached_property
    def prompt(self) -> tuple[Hashable, ...]:
        """Return a value that is equal for asks of the same prompt, byte for byte."""
        return (*self.haystack, self.fact, self.length, self.place, self.twin)

    @cached_property
    def secret(self) -> str:
        """Return a made-up right answer, for replays without prompts: twelve digits."""
        return secret_of(self.seed, self.haystack[:2], self.facts if self.twin else self.fact)

    @cached_property
    def other_secrets(self) -> tuple[str, ...]:
        """Return the made-up secrets of the other facts in the same prompt."""
        other_facts = (fact for fact in range(self.facts) if fact != self.fact)
        return tuple(secret_of(self.seed, self.haystack[:2], fact) for fact in other_facts)


def prefill_of(ask: Ask, position: int, *, is_last: bool) -> Ask:
    """Return the ask that sends a prompt's answer as a prompt, up to one of its tokens."""
    way = LAST_TOKEN if is_last else f"{PREFILLED}{position}"
    # The answer to a copy of a prompt is a copy as well.
    way += "".join(ask.way.partition("-again")[1:])
    return replace(ask, way=way, state="cold", position=position, source=ask.way)


def answered_ask(ask: Ask) -> Ask:
    """Return the ask whose answer another ask sends as a prompt."""
    return replace(ask, way=ask.source, position=0, source="")


def with_larger_budget(ask: Ask) -> Ask:
    """Return the same ask with a budget of TIMES_ROOM times the tokens for its answer."""
    return replace(ask, way=f"{ask.way}{ROOMY}", state="warm")


def secret_of(seed: int, haystack: tuple[int, int], fact: int) -> str:
    """Return twelve digits that no other fact has."""
    digest = sha256(f"{seed}:{haystack}:{fact}".encode()).digest()
    return str(10**11 + int.from_bytes(digest[:8], "big") % (9 * 10**11))


@dataclass(frozen=True)
class Reply:
    """What came of an ask.

    Attributes:
        right: Whether the answer holds the secret, ended by itself and is no copy of the prompt.
        ended: Whether the answer ended by itself.
        failure: Why there is no answer; '' if there is one.
        secret: The right answer.
        other_secrets: The secrets of the other facts in the prompt.
        start: Tokens of the prompt before the fact, without those of a server's template.
        margins: The margin of each token of the answer over the runner-up, in nats.
        steps: Each token of the answer, with the log-probabilities given in its place.
        tokens: Tokens of prompt and answer; 0 if no time is known.
        seconds: How long the answer took.
        tokens_before: Tokens of the prompt, and of the answer that was sent with it, before the
            first of the steps; None if unknown.
    """

    ask: Ask
    answer: str = ""
    right: bool = False
    ended: bool = True
    failure: str = ""
    secret: str = ""
    other_secrets: tuple[str, ...] = ()
    start: int = 0
    prompt_tokens: int | None = None
    own_tokens: int | None = None
    cached_tokens: int | None = None
    margins: tuple[tuple[str, float | None], ...] | None = None
    steps: tuple[Step, ...] = ()
    tokens: int = 0
    seconds: float = 0.0
    attempts: int = 1
    tokens_before: int | None = None

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
        """Return a reply to a replayed ask, whose secrets are made up."""
        ended = ending_of(finish) is not Ending.CUT
        holds_secret = ask.secret in text and not is_parrot(text, ask.other_secrets)
        return cls(
            ask,
            answer=text,
            right=not failure and ended and holds_secret,
            ended=ended,
            failure=failure,
            secret=ask.secret,
            other_secrets=ask.other_secrets,
            start=start,
            prompt_tokens=prompt_tokens,
            own_tokens=ask.length,
            cached_tokens=cached_tokens,
            tokens=ask.length,
        )

    @property
    def measured(self) -> bool:
        """Return True if there is an answer."""
        return not self.failure


def did_end(finish: str | None, answer_tokens: int | None, budget: int) -> bool:
    """Return True if an answer ended by itself, or because the context was full.

    A server's own template takes room in addition to the prompts that we count, so an answer may be
    cut off below its budget.

    answer_tokens: the answer's tokens; None if the server does not count them. budget: the tokens
        that it may have.

    >>> did_end("stop", 3, 24), did_end("length", 24, 24), did_end("length", 12, 24)
    (True, False, True)
    """
    return ending_of(finish) is not Ending.CUT or (
        answer_tokens is not None and answer_tokens < budget
    )


def is_parrot(answer: str, other_secrets: Iterable[str], neighbours: Iterable[str] = ()) -> bool:
    """Return True if an answer copies its prompt: two other secrets, or the text around a fact.

    other_secrets: the secrets that the question does not ask for. neighbours: the texts before and
        after the fact.

    >>> is_parrot("It is 4711.", ["0815", "1234"]), is_parrot("4711 0815 1234", ["0815", "1234"])
    (False, True)
    """
    if sum(secret in answer for secret in other_secrets) >= 2:
        return True
    return any(len(text) >= _PARROTED and text in answer for text in neighbours)


class Answers:
    """All replies so far, the last of each ask.

    Attributes:
        by_key: The replies by the keys of their asks, without those to answers sent as prompts.
        prefills: The replies to answers that were sent as prompts, in the same form.
        tried: The keys of the asks that were sent, or left out for good.
    """

    def __init__(self, replies: Iterable[Reply] = ()) -> None:
        self.by_key: dict[Key, Reply] = {}
        self.prefills: dict[Key, Reply] = {}
        self.tried: set[Key] = set()
        self._ways: dict[tuple[str, int], dict[Hashable, Reply]] = defaultdict(dict)
        self._about: dict[Haystack, dict[Hashable, Ask]] = defaultdict(dict)
        for reply in replies:
            self.add(reply)

    def add(self, reply: Reply) -> None:
        """Add a reply; one without an answer never replaces an answer."""
        key = reply.ask.key
        self.tried.add(key)
        if reply.ask.position:
            self.prefills[key] = reply
            return
        if reply.measured or key not in self.by_key:
            self.by_key[key] = reply
            self._about[reply.ask.haystack][key] = reply.ask
        if reply.measured:
            self._ways[key[0], key[1]][key] = reply

    def __len__(self) -> int:
        return len(self.by_key)

    def about(self, haystack: Haystack) -> list[Ask]:
        """Return the prompts about one haystack that were sent, in their order."""
        asks = self._about.get(haystack, {}).values()
        return [ask for ask in asks if not ask.way.startswith(BESIDE)]

    def of(self, size: int, *ways: str) -> list[Reply]:
        """Return the answers of some ways at one size."""
        return [reply for way in ways for reply in self._ways.get((way, size), {}).values()]

    def every(self, *ways: str) -> list[Reply]:
        """Return the answers of some ways at all sizes.

        If no way is named, these are the answers of all ways that ask the server for one fact of
        one haystack.
        """
        answers: list[Reply] = []
        for (way, _), replies in self._ways.items():
            is_of_another_kind = way in (*TOSS, LONG) or way.startswith((BESIDE, CONVERSATION))
            if way in ways or (not ways and not is_of_another_kind):
                answers += replies.values()
        return answers

    def unanswered(self, size: int) -> Haystack:
        """Return how many prompts of one size got no answer, how many were sent, and why.

        The reason is the most frequent failure, or ''.
        """
        replies = [
            reply
            for reply in self.by_key.values()
            if reply.ask.size == size
            and reply.attempts
            and reply.failure != Failure.SKIPPED
            and not reply.ask.may_go_unanswered
        ]
        failures = Counter(reply.failure for reply in replies if reply.failure)
        reason = failures.most_common(1)[0][0] if failures else ""
        return sum(not reply.measured for reply in replies), len(replies), reason

    def refused(self) -> list[Reply]:
        """Return the replies to prompts that the server refused as too long and may not refuse."""
        return [
            reply
            for reply in self.by_key.values()
            if reply.failure == Failure.TOO_LONG
            and reply.attempts
            and not reply.ask.may_go_unanswered
        ]

    def same_prompt(self, size: int, first: str, second: str) -> list[tuple[Reply, Reply]]:
        """Return the pairs of answers of two ways to the same prompts, byte for byte.

        If several answers of the first ways have the same prompt, the last one is in the pair.

        first, second: a way, or several with | between them.
        """
        first_by_prompt = {reply.ask.prompt: reply for reply in self.of(size, *first.split("|"))}
        return [
            (first_by_prompt[reply.ask.prompt], reply)
            for reply in self.of(size, *second.split("|"))
            if reply.ask.prompt in first_by_prompt
        ]


def framing_of(answers: Answers) -> int | None:
    """Return how many tokens the server counts in addition to ours, or None if the number varies.

    If the server does not count the tokens of all prompts, or there are no answers, the result is
    None too.
    """
    replies = [reply for reply in answers.every("cold", "crowded", "ask") if reply.own_tokens]
    framings = {
        reply.prompt_tokens - (reply.own_tokens or 0) if reply.prompt_tokens else None
        for reply in replies
    }
    return framings.pop() if len(framings) == 1 else None
