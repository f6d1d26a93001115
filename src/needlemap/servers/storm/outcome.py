"""Judge one request of a storm.

Without a reference an answer is right, foreign, text, salad, lost, endless, empty, refused or
cancelled. With a reference it may also be moved: the text is right, its margins are not. If the
model finds too little, it is equal to the same prompt alone, moved from it, or uncompared.

A secret has twelve characters or more and stands in one text alone. So an answer that holds a
secret which is not in its prompt was computed from somebody else's: no model guesses it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from needlemap.records.record import FILTERED, Record
from needlemap.servers.check.ask import did_end
from needlemap.servers.check.owners import Owners
from needlemap.servers.ways import Move

Word = Literal[
    "right",
    "foreign",
    "text",
    "salad",
    "lost",
    "endless",
    "empty",
    "moved",
    "equal",
    "uncompared",
    "refused",
    "cancelled",
]
# Faults each by themselves.
CERTAIN = ("foreign", "text", "salad")
# A weak model's answers may be so too.
LOST = ("lost", "endless", "empty")
# A coarse cache's margins may be so too.
MOVED: Final = "moved"
# The same log-probabilities as alone.
EQUAL: Final = "equal"
UNCOMPARED: Final = "uncompared"
# Characters of another session's text that an answer must hold: shorter runs recur in any text.
LONG_RUN = 100
_STEP = 25
# '!!!!!!!!!!!!!!!!': no prose has it.
_REPEATED_LETTER = re.compile(r"([^\s\d.\-_=*])\1{15,}")
_BROKEN_CHARACTER = re.compile("\ufffd")
_FEW_BROKEN = 3


@dataclass(frozen=True, slots=True)
class Hider:
    """The request that was the first to send a secret.

    Attributes:
        key: The number of its record.
        place: Its place in the order of all requests.
    """

    key: int
    place: int


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """What came of a request.

    Attributes:
        word: The outcome in a word.
        foreign: Another prompt's secret that its answer holds; '' for none.
        whose: The number of the record of the request that was the first to send that secret.
        ago: How many requests before; 0 if it was sent at the same time or later.
    """

    word: Word
    foreign: str = ""
    whose: int | None = None
    ago: int = 0

    @property
    def is_certain(self) -> bool:
        """Return True if it is a fault by itself."""
        return self.word in CERTAIN

    @property
    def is_lost(self) -> bool:
        """Return True if the answer is lost, endless or empty, which a weak model's may be too."""
        return self.word in LOST

    @property
    def is_doubtful(self) -> bool:
        """Return True if the answer is in doubt: a sound server may give it too."""
        return self.is_lost or self.word == MOVED

    @property
    def has_right_text(self) -> bool:
        """Return True if its text is right, whatever its margins are."""
        return self.word in ("right", MOVED, EQUAL)

    @property
    def is_sound(self) -> bool:
        """Return True if a replay with this outcome shows no fault."""
        return self.word in ("right", EQUAL)

    @property
    def without_text(self) -> RequestOutcome:
        """Return the outcome for a model whose answers mean nothing.

        Then only a foreign secret and a refusal mean something.
        """
        if self.word in ("foreign", "refused"):
            return self
        return RequestOutcome(UNCOMPARED)


def outcome_of_move(move: Move | None, limit: float) -> RequestOutcome | None:
    """Return the outcome of a comparison, or None if nothing was compared.

    limit: nats beyond which a move is in doubt.
    """
    if move is None:
        return None
    return RequestOutcome(MOVED if move.nats > limit else EQUAL)


def judge_answer(
    record: Record,
    *,
    right_secrets: Iterable[str],
    prompt_secrets: Iterable[str],
    owners: Owners[Hider],
    place: int,
    budget: int,
    texts: Mapping[str, str] | None = None,
) -> RequestOutcome:
    """Return the outcome of one request.

    Args:
        record: The record of the request.
        right_secrets: The secrets that a right answer holds.
        prompt_secrets: All secrets in its prompt.
        owners: Which request was the first to send each secret.
        place: Its place in the order of all requests.
        budget: The tokens that its answer may have.
        texts: 'own', its prompt, and 'all', the text from which all prompts are cut. Given only for
            long answers, because making them takes time.
    """
    if record.answer is None or record.failure is not None or record.outcome == FILTERED:
        return RequestOutcome("refused")
    answer = record.answer
    if not answer.strip():
        return RequestOutcome("empty")

    foreign = owners.foreign_secret(answer, prompt_secrets)
    if foreign:
        owner = owners.by_secret[foreign]
        return RequestOutcome(
            "foreign",
            foreign=foreign,
            whose=owner.key,
            ago=max(0, place - owner.place),
        )
    if texts and holds_text(answer, texts["own"], texts["all"]):
        return RequestOutcome("text")
    if is_salad(answer):
        return RequestOutcome("salad")
    if not did_end(record.finish, record.completion_tokens, budget):
        return RequestOutcome("endless")
    is_right = all(secret in answer for secret in right_secrets)
    return RequestOutcome("right" if is_right else "lost")


def holds_text(answer: str, prompt: str, pool: str) -> bool:
    """Return True if an answer holds a long stretch of the pool that its prompt does not hold.

    pool: the text from which all prompts are cut.

    >>> pool = "".join(f"{number} " for number in range(400))
    >>> holds_text(pool[300:450], pool[:200], pool), holds_text(pool[:150], pool, pool)
    (True, False)
    """
    starts = range(0, len(answer) - LONG_RUN + 1, _STEP)
    stretches = (answer[start : start + LONG_RUN] for start in starts)
    return any(stretch in pool and stretch not in prompt for stretch in stretches)


def is_salad(answer: str) -> bool:
    """Return True if an answer is one letter over and over, or has broken characters.

    No model writes either.

    >>> is_salad("!" * 40), is_salad("It is 123456789012."), is_salad("a\\ufffdb\\ufffdc\\ufffd")
    (True, False, True)
    """
    return (
        bool(_REPEATED_LETTER.search(answer))
        or len(_BROKEN_CHARACTER.findall(answer)) >= _FEW_BROKEN
    )
