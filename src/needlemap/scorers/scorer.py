"""Define what a scorer is: (answer, reference) -> score, by a rule with a number."""

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
    """The score of one answer.

    Attributes:
        share: The score in [0, 1], otherwise ValueError is raised.
        native: The score on the scorer's own scale.
        why: What decided it (distance, words, ...).
        usd: The cost of the judging in US dollars; None if no price is known.
        unreadable: Whether nothing could be taken from the answer to be compared. Its share is 0
            then, and reports show it apart.
        ratio: The two parts of a score that is a ratio. Means of such scores are ratios of the
            parts' sums.
    """

    share: float
    native: float
    why: Mapping[str, Any] = field(default_factory=dict)
    usd: float | None = 0.0
    unreadable: bool = False
    ratio: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for a share that a plug-in got wrong: it would make a wrong map."""
        if not 0 <= self.share <= 1:
            raise ValueError(f"a score's share lies in [0, 1], got {self.share}")
        if self.unreadable and self.share:
            raise ValueError(f"of an unreadable answer the share is 0, got {self.share}")


# The rule of a scorer that does not number its rule, and of records from before rules had numbers.
FIRST_RULE = 1


class Scorer(metaclass=Checked):
    """Scores the answers to a task.

    Override `score`, and what differs. It is built as `Scorer(**options)`; unknown options raise
    SettingsError.

    Attributes:
        name: Its registered name.
        rule: The number of its rule, raised by whatever moves a score.
        scale: The lowest and the highest native score.
        options: Its options as resolved, for the record.
        asks: Whether it needs a connection, as a judge does.
        attempts: How often it is asked for a verdict that can be read. It raises Failure.JUDGE for
            others.
        passes: The prompts after each of which the model is given the reference answer, to measure
            how likely it is, 'whole' first; () for a scorer of answers that the model writes.
    """

    name: str
    rule: int = FIRST_RULE
    scale: tuple[float, float] = (0.0, 1.0)
    options: Mapping[str, Any] = {}
    asks: bool = False
    attempts: int = 1
    passes: tuple[Pass, ...] = ()

    async def score(self, answer: str, reference: Reference) -> Score:
        """Return the score of an answer.

        Raises Unmeasured if there is no verdict, for example because a judge's answer cannot be
        read.
        """
        raise NotImplementedError

    def weigh(self, answer: Answer, reference: Reference) -> Score:
        """Return the score of a reference answer that was given to the model.

        answer: what the model returned after the whole prompt; its `beside` holds what it returned
        after the other prompts. Raises Unmeasured if nothing is to be scored.
        """
        raise NotImplementedError

    def most_usd(self, reference: Reference, answer_tokens: int) -> float | None:
        """Return what one score costs at most, in US dollars, or None if no price is known.

        answer_tokens: the length of the answer.
        """
        return 0.0

    def open(self) -> None:
        """Prepare for the first score. Raises SettingsError if it cannot work (a missing key)."""

    async def close(self) -> None:
        """Release connections after the last score."""


Scale = tuple[float, float]
# The scale of the judge of the first needle tests, which ours keeps.
VERDICTS: Scale = (1.0, 10.0)


def share_of(native: float, scale: Scale) -> float:
    """Return a native score as a share of its scale: the lowest is 0, the highest 1.

    >>> share_of(5.5, VERDICTS)
    0.5
    """
    return (native - scale[0]) / (scale[1] - scale[0])


def rule_of(scorer: Any) -> int:
    """Return the number of a scorer's rule. Raises SettingsError if it is not a whole number.

    Scores by two rules are never mixed.
    """
    rule = getattr(scorer, "rule", FIRST_RULE)
    if not isinstance(rule, int):
        raise SettingsError(
            f"The number of scorer '{scorer.name}', `rule`, is no whole number: {rule!r}."
        )
    return rule


# What the name of a scorer or a model begins with if it is a function of the user's.
MARK = "python/"
