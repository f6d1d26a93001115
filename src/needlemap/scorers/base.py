"""What a scorer is: (answer, reference) -> score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from needlemap.errors import SettingsError
from needlemap.models.base import Forced


@dataclass(frozen=True, slots=True)
class Reference:
    """What a right answer looks like: three different things that older tools mix.

    answer: a full right answer. keywords: words that a right answer holds. needle: the hidden text itself.
    question: as it was asked. decoys: what the prompt holds of the same kind as the keywords, but wrong.
    choices: the right and the wrong ones in the prompt's order, where one of them is asked for by its number.
    none: the answer by which a question lets one say that the text holds none, right where there are no
    keywords; '' where it does not. like: a pattern of what would look like an answer there, for texts as
    `matching.plain` leaves them; '' where nobody knows. owners: whose each decoy is, in their order, where a
    denial may say so ("none; only red-fox has 4711").
    """

    answer: str
    keywords: tuple[str, ...] = ()
    needle: str = ""
    question: str = ""
    decoys: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    none: str = ""
    like: str = ""
    owners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Score:
    """share: in [0, 1], else ValueError. native: on the scorer's own scale. why: what decided it (distance,
    words, ...). usd: what it cost to be told; None when no price is known."""

    share: float
    native: float
    why: Mapping[str, Any] = field(default_factory=dict)
    usd: float | None = 0.0

    def __post_init__(self) -> None:
        """A plug-in's slip here would make a false map."""
        if not 0 <= self.share <= 1:
            raise ValueError(f"a score's share lies in [0, 1], got {self.share}")


FIRST_RULE = 1  # of a scorer that does not number its rule, and of records from before rules had numbers


class Scorer(Protocol):
    """Built as `Scorer(**options)`; unknown options raise SettingsError.

    name: its registered name. scale: lowest and highest native score. options: as resolved, for the record.
    It may have a `rule`, the number of its rule, raised by whatever moves a score: `rule_of` reads it.
    """

    name: str
    scale: tuple[float, float]
    options: Mapping[str, Any]

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises Unmeasured if no verdict can be had (a judge's unreadable answer)."""
        ...


def rule_of(scorer: Any) -> int:
    """The number of a scorer's rule. Scores by two rules are never mixed. Raises SettingsError."""
    rule = getattr(scorer, "rule", FIRST_RULE)
    if not isinstance(rule, int):
        raise SettingsError(f"The number of scorer '{scorer.name}', `rule`, is no whole number: {rule!r}.")
    return rule


@runtime_checkable
class Weigher(Protocol):
    """A scorer that reads how likely the model finds the reference answer; it is asked for no other."""

    def weigh(self, forced: Forced) -> Score:
        """The score of a reference answer that was given to the model."""
        ...


@runtime_checkable
class Paid(Protocol):
    """A scorer whose scores may cost money."""

    def most_usd(self, reference: Reference, answer_tokens: int) -> float | None:
        """US dollars for one score of an answer of so many tokens, at most; None when no price is known."""
        ...


@runtime_checkable
class Connected(Protocol):
    """A scorer that needs a connection, such as a judge: opened before the first score, closed at the end."""

    def open(self) -> None:
        """Raises SettingsError when it cannot work (a missing key)."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
