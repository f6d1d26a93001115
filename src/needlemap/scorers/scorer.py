"""What a scorer is: (answer, reference) -> score, by a rule with a number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from needlemap.errors import SettingsError
from needlemap.registry import Checked

if TYPE_CHECKING:
    from needlemap.models import Forced
    from needlemap.tasks import Reference


@dataclass(frozen=True, slots=True)
class Score:
    """share: in [0, 1], else ValueError. native: on the scorer's own scale. why: what decided it
    (distance, words, ...). usd: what it cost to be told; None when no price is known. unreadable:
    nothing could be taken from the answer to be compared; its share is 0 then, and reports show it
    apart."""

    share: float
    native: float
    why: Mapping[str, Any] = field(default_factory=dict)
    usd: float | None = 0.0
    unreadable: bool = False

    def __post_init__(self) -> None:
        """A plug-in's slip here would make a false map."""
        if not 0 <= self.share <= 1:
            raise ValueError(f"a score's share lies in [0, 1], got {self.share}")
        if self.unreadable and self.share:
            raise ValueError(f"of an unreadable answer the share is 0, got {self.share}")


FIRST_RULE = (
    1  # of a scorer that does not number its rule, and of records from before rules had numbers
)


class Scorer(metaclass=Checked):
    """Built as `Scorer(**options)`; unknown options raise SettingsError. Override `score`, and what
    differs.

    name: its registered name. rule: its number, raised by whatever moves a score. scale: lowest and
    highest native score. options: as resolved, for the record. asks: whether it needs a connection,
    as a judge does. attempts: how often it is asked for a verdict that can be read (it raises
    Failure.JUDGE for others). weighs: whether it reads how likely the model finds the reference
    answer, and is asked for no other.
    """

    name: str
    rule: int = FIRST_RULE
    scale: tuple[float, float] = (0.0, 1.0)
    options: Mapping[str, Any] = {}
    asks: bool = False
    attempts: int = 1
    weighs: bool = False

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises Unmeasured if no verdict can be had (a judge's unreadable answer)."""
        raise NotImplementedError

    def weigh(self, forced: Forced) -> Score:
        """The score of a reference answer that was given to the model."""
        raise NotImplementedError

    def most_usd(self, reference: Reference, answer_tokens: int) -> float | None:
        """US dollars for one score of an answer of so many tokens, at most; None when no price
        is known."""
        return 0.0

    def open(self) -> None:
        """Before the first score. Raises SettingsError when it cannot work (a missing key)."""

    async def close(self) -> None:
        """Release connections, at the end."""


def rule_of(scorer: Any) -> int:
    """The number of a scorer's rule. Scores by two rules are never mixed. Raises
    SettingsError."""
    rule = getattr(scorer, "rule", FIRST_RULE)
    if not isinstance(rule, int):
        raise SettingsError(
            f"The number of scorer '{scorer.name}', `rule`, is no whole number: {rule!r}."
        )
    return rule


MARK = "python/"
