"""What came of a request, told without a reference: right, foreign, text, salad, lost, endless,
empty, refused, cancelled. With one also moved: the text is right, its margins are not.

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

Word = Literal[
    "right",
    "foreign",
    "text",
    "salad",
    "lost",
    "endless",
    "empty",
    "moved",
    "refused",
    "cancelled",
]
CERTAIN = ("foreign", "text", "salad")  # faults each by themselves
LOST = ("lost", "endless", "empty")  # a weak model's answers may be so too
MOVED: Final = "moved"  # a coarse cache's may
LONG_RUN = 100  # characters of another session's text that an answer holds
_STEP = 25
_SAME = re.compile(r"([^\s\d.\-_=*])\1{15,}")  # '!!!!!!!!!!!!!!!!': no prose has it
_BROKEN = re.compile("\ufffd")
_FEW_BROKEN = 3


@dataclass(frozen=True, slots=True)
class Hider:
    """Whose a secret is. key: the record's number of the request that was sent first with it. at:
    that request's place in the order of all."""

    key: int
    at: int


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """What came of a request. word: in a word. foreign: the secret of somebody else that its answer
    holds. whose: the record's number of who hid it; ago: how many requests before, 0 where it was
    asked at the same time or later."""

    word: Word
    foreign: str = ""
    whose: int | None = None
    ago: int = 0

    @property
    def is_certain(self) -> bool:
        """Whether it is a fault by itself."""
        return self.word in CERTAIN

    @property
    def is_lost(self) -> bool:
        """Whether a weak model's answer may be so too."""
        return self.word in LOST

    @property
    def is_doubtful(self) -> bool:
        """Whether a sound server's answer may be so too."""
        return self.is_lost or self.word == MOVED

    @property
    def has_right_text(self) -> bool:
        """Whether what it says is right, whatever its margins."""
        return self.word in ("right", MOVED)


def judge_answer(
    record: Record,
    wanted: Iterable[str],
    own: Iterable[str],
    owners: Owners[Hider],
    at: int,
    budget: int,
    texts: Mapping[str, str] | None = None,
) -> RequestOutcome:
    """What came of one request. wanted: the secrets that were asked for; own: all of its
    prompt. at: its place among all. budget: tokens that its answer may have. texts: 'own', its
    prompt, and 'all', from which all prompts are cut; looked at where an answer is long."""
    if record.answer is None or record.failure is not None or record.outcome == FILTERED:
        return RequestOutcome("refused")
    answer = record.answer
    if not answer.strip():
        return RequestOutcome("empty")
    if foreign := owners.foreign(answer, own):
        owner = owners.of[foreign]
        return RequestOutcome("foreign", foreign, owner.key, max(0, at - owner.at))
    if texts and holds_text(answer, texts["own"], texts["all"]):
        return RequestOutcome("text")
    if is_salad(answer):
        return RequestOutcome("salad")
    if not did_end(record.finish, record.completion_tokens, budget):
        return RequestOutcome("endless")
    return RequestOutcome("right" if all(secret in answer for secret in wanted) else "lost")


def holds_text(answer: str, own: str, every: str) -> bool:
    """Whether an answer holds a long run of a text that is not its prompt's.

    >>> every = "".join(f"{number} " for number in range(400))
    >>> holds_text(every[300:450], every[:200], every), holds_text(every[:150], every, every)
    (True, False)
    """
    runs = (answer[at : at + LONG_RUN] for at in range(0, len(answer) - LONG_RUN + 1, _STEP))
    return any(run in every and run not in own for run in runs)


def is_salad(answer: str) -> bool:
    """Whether an answer is what no model says: one letter over and over, or broken characters.

    >>> is_salad("!" * 40), is_salad("It is 123456789012."), is_salad("a\\ufffdb\\ufffdc\\ufffd")
    (True, False, True)
    """
    return bool(_SAME.search(answer)) or len(_BROKEN.findall(answer)) >= _FEW_BROKEN
