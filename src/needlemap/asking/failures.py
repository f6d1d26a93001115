"""What a failed request means for the next ones: one rule for every command, with parameters.

* The key, the address, a day's quota: end at once, since each further request would fail alike.
* The first FIRST of one kind before any answer: end. `run` and the drop-in tester count only kinds
  that prompts of all lengths meet: there long prompts may come first, and be late while shorter
  ones are not.
* A prompt that is too long: `run` and `check` send none as long. A storm ends, because its
  conversations grow to any length.
* Several in a row after answers: `check`, `storm` and `ab` end, because the server is gone. `run`
  sends the rest: lengths that fail may stand together, and a resume sends only what failed.
* Anything else: that prompt is missing, and is sent again on resume.

All attempts of a request (`retry.py`) are included: a failure here is final for this start.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from needlemap.asking.pacer import LONGEST_WAIT_S
from needlemap.deadline import LimitReached
from needlemap.errors import Failure, NeedlemapError, Unmeasured
from needlemap.records.record import Record

FIRST = 3
# Kinds that every prompt meets, whatever its length.
OF_ALL_PROMPTS = (
    *(Failure.REJECTED, Failure.CONNECTION, Failure.SERVER),
    *(Failure.MODEL, Failure.REPLICA, Failure.RATE_LIMITED),
)
# Requests in a row without an answer after which a server is gone.
GONE = 20
# The same for an arm of an `ab`: the other arm's answers would have no partner.
ARM_GONE = 3


class Batch(Protocol):
    """The fields of `Outcome` that say how a batch of requests ended."""

    scored: int
    failures: dict[str, int]
    hopeless: str | None
    refusal: str


def is_hopeless(failure: Unmeasured, count: int, *, answered: bool) -> bool:
    """Return True if every further request would fail as this one.

    count: failures of its kind so far, this one included. answered: whether any request was
    answered before.
    """
    if failure.hopeless or failure.unreached or failure.failure is Failure.UNAUTHORISED:
        return True
    if failure.failure is Failure.RATE_LIMITED and failure.transient:
        # A day's allowance is used up.
        return (failure.retry_after_s or 0.0) > LONGEST_WAIT_S
    meets_all_prompts = failure.failure in OF_ALL_PROMPTS or failure.misplaced
    return meets_all_prompts and not answered and count >= FIRST


@dataclass(slots=True)
class Failures:
    """The failed requests to one server over several batches.

    Attributes:
        gone: Failures in a row that end the asking.
        ended: Why nothing more is sent; '' while more is.
        refused_from: The least length in tokens that was refused as too long.
        refusal: That refusal in the server's words.
    """

    gone: int = GONE
    ended: str = ""
    refused_from: int | None = None
    refusal: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    in_a_row: int = 0

    def take(
        self, record: Record, length_tokens: int, hopeless: str | None, *, answered: bool
    ) -> None:
        """Take a request that ended.

        hopeless: why every further one would fail, if so. answered: whether any was answered
        before.
        """
        if record.answer is not None:
            self.in_a_row = 0
            return
        if record.failure == Failure.TOO_LONG:
            if self.refused_from is None or length_tokens < self.refused_from:
                self.refused_from, self.refusal = length_tokens, record.error or ""
            return
        kind = record.failure or "not measured"
        self.counts[kind] += 1
        self.in_a_row += 1
        if hopeless:
            self.ended = hopeless
        elif not answered and self.counts[kind] >= FIRST:
            self.ended = record.error or kind
        elif self.in_a_row >= self.gone:
            self.ended = (
                f"{self.in_a_row} requests in a row had no answer, the last: {record.error or kind}"
            )

    def take_batch(self, batch: Batch) -> None:
        """Take a batch whose order is unknown: if nothing of it was answered, it is in a row."""
        self.counts.update(batch.failures)
        self.in_a_row = 0 if batch.scored else self.in_a_row + sum(batch.failures.values())
        if batch.hopeless or self.in_a_row >= self.gone:
            reason = batch.hopeless or batch.refusal or ", ".join(sorted(batch.failures))
            self.ended = self.ended or reason


def no_answer(reason: str, *, limited: bool) -> NeedlemapError:
    """Return the error of a server that answered nothing. limited: whether a limit ended it."""
    words = f"No answer ever came: {(reason or 'nothing was sent').rstrip('.')}"
    return LimitReached(words) if limited else NeedlemapError(words)
