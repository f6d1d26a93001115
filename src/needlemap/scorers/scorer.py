"""What a scorer is: (answer, reference) -> score, by a rule with a number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from needlemap.errors import SettingsError
from needlemap.registry import Checked

if TYPE_CHECKING:
    from needlemap.models import Answer
    from needlemap.tasks import Reference


# Prompts of one item: as it is; of the same length without the needle; the needle and the question
# without a haystack.
Pass = Literal["whole", "bare", "oracle"]


@dataclass(frozen=True, slots=True)
class Score:
    """share: in [0, 1], else ValueError. native: on the scorer's own scale. why: what decided
    it (distance, words, ...). usd: the cost of the judging; None when no price is known.
    unreadable: nothing could be taken from the answer to be compared; its share is 0 then, and
    reports show it apart. ratio: of a score that is a ratio, its two parts: means are ratios
    of their sums."""

    share: float
    native: float
    why: Mapping[str, Any] = field(default_factory=dict)
    usd: float | None = 0.0
    unreadable: bool = False
    ratio: tuple[float, float] | None = None

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
    Failure.JUDGE for others). passes: the prompts behind each of which the model is given the
    reference answer, to tell how likely it is, 'whole' first; none for a scorer of answers that the
    model writes.
    """

    name: str
    rule: int = FIRST_RULE
    scale: tuple[float, float] = (0.0, 1.0)
    options: Mapping[str, Any] = {}
    asks: bool = False
    attempts: int = 1
    passes: tuple[Pass, ...] = ()

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises Unmeasured if no verdict can be had (a judge's unreadable answer)."""
        raise NotImplementedError

    def weigh(self, answer: Answer, reference: Reference) -> Score:
        """The score of a reference answer that was given to the model. answer: behind the whole
        prompt; its `beside` has it behind the others. Raises Unmeasured where nothing is to be
        scored."""
        raise NotImplementedError

    def most_usd(self, reference: Reference, answer_tokens: int) -> float | None:
        """US dollars for one score of an answer of so many tokens, at most; None when no price
        is known."""
        return 0.0

    def open(self) -> None:
        """Before the first score. Raises SettingsError when it cannot work (a missing key)."""

    async def close(self) -> None:
        """Release connections, at the end."""


Scale = tuple[float, float]
# Of the judge of the first needle tests, which ours keeps.
VERDICTS: Scale = (1.0, 10.0)


def share_of(native: float, scale: Scale) -> float:
    """Return a native score as a share of its scale: the lowest is 0, the highest 1.

    >>> share_of(5.5, VERDICTS)
    0.5
    """
    return (native - scale[0]) / (scale[1] - scale[0])


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
