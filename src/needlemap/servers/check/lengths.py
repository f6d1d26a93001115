"""Probe lengths: is as much found in long prompts as in short ones?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from needlemap.grid import short_size
from needlemap.servers.check.ask import FIRST, FIRST_BESIDE, Answers, Ask
from needlemap.servers.check.effects import rates_apart
from needlemap.servers.check.finding import AtSize, issue
from needlemap.servers.check.haystack import BEHIND, CheckHaystack, Geometry
from needlemap.servers.check.probe import KNOWN_MISS_RATE, LEAST, NOTHING, Probe, smallest
from needlemap.stats.exact import binomial_tail, lost_by_chance
from needlemap.stats.verdicts import NOT_ENOUGH_DATA, SUSPECT, row_word

# A fall of the found share that a pass rules out.
FALL = 0.20
# Of a known model's facts: it missed none of 600 at each length, so that three, and so large a
# share, are the server's.
LEAST_LOST = 3
LOST_KNOWN = 0.05
# Share of the prompts that may bring no answer.
SILENT = 0.1
# Share of found facts below which nothing is shown about the server.
LEAST_FOUND = 0.5


class Length(Probe):
    """Compares what is found at each size with what is found in the shortest prompts."""

    name = "length"
    order = 0
    asked = "questions about the facts of each haystack, at all depths"
    sees = "a length from which facts are lost"
    cannot = "whether the model or the server loses them; `--reference` tells"
    excludes = "a fall of the found share, beside the shortest prompts"
    share = 0.02
    must = True
    uses_shortest = True
    known = (
        issue(
            "vllm-project/vllm#2064",
            "answers that are nonsense beyond a length",
            "the same prompts of the same weights elsewhere: --reference hf/PATH or an address",
        ),
    )

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Return other questions about a haystack."""
        return haystack.questions

    def rests_on_right_answers(self, row: AtSize) -> bool:
        """Return True: the share of right answers is compared."""
        return True

    def helps(self, row: AtSize) -> bool:
        """Return True if the interval holds both a fall that matters and one that does not."""
        return row.n > 0 and row.effect is not None and row.effect.low < FALL

    def row(self, layout: Geometry, answers: Answers, size: int, level: float) -> AtSize:
        """Return the row of one size, compared with the shortest prompts.

        If there is a reference, or if the model is known to find all facts, it is compared with
        that too.
        """
        # Shorter prompts are not of this size, but between two.
        shortest = size - (layout.comb + BEHIND)
        replies = answers.of(size, "ask")
        own = [reply for reply in replies if reply.ask.length >= shortest]
        between = [reply for reply in replies if reply.ask.length < shortest]
        n = len(own)
        lost = sum(not reply.right for reply in own)
        lost_between = sum(not reply.right for reply in between)
        silent, sent, reason = answers.unanswered(size)
        is_silent = silent > SILENT * sent

        parts = []
        if n:
            parts.append(f"{n - lost} of {n}")
        if lost_between:
            parts.append(f"{lost_between} of {len(between)} between lost")
        if silent:
            parts.append(f"{silent} of {sent} without an answer: {reason}")
        said = ", ".join(parts)
        if not n:
            return AtSize(
                size,
                SUSPECT if is_silent else NOT_ENOUGH_DATA,
                said=said if silent else NOTHING,
            )

        yardstick = answers.of(layout.short, "short")
        lost_short, n_short = sum(not reply.right for reply in yardstick), len(yardstick)
        if not n_short:
            # Without short prompts a size is compared with itself: no fall, and its own noise.
            lost_short, n_short = lost, n
        effect = rates_apart(lost, n, lost_short, n_short)
        assert effect is not None  # both have trials
        lost_in_all, n_in_all = lost + lost_between, n + len(between)
        p: float | None
        if size <= layout.options.holds:
            p = binomial_tail(lost_in_all, n_in_all, KNOWN_MISS_RATE)
            is_too_many = lost_in_all >= max(LEAST_LOST, LOST_KNOWN * n_in_all)
        else:
            p = self._reference_p(answers, size)
            is_too_many = False
        share = (n - lost) / n
        passes = n >= LEAST and effect.high < FALL and share >= LEAST_FOUND and not is_silent
        word = row_word(
            fails=is_too_many or (p is not None and p <= level),
            passes=passes,
            points=share < LEAST_FOUND or effect.low > 0 or is_silent,
        )
        wrong = [reply for reply in (*own, *between) if not reply.right]
        return AtSize(
            size,
            word,
            n=n,
            lost=lost,
            effect=effect,
            upper=100 * effect.high,
            p=p,
            said=said,
            worst=None if passes else smallest(wrong),
        )

    def _reference_p(self, answers: Answers, size: int) -> float | None:
        """Return the chance that the server loses so much more than the reference."""
        pairs = answers.same_prompt(size, FIRST_BESIDE, FIRST)
        if not pairs:
            return None
        lost = sum(reference.right and not server.right for reference, server in pairs)
        gained = sum(server.right and not reference.right for reference, server in pairs)
        return lost_by_chance(lost, gained)

    def in_words(self, rows: Sequence[AtSize]) -> str:
        """Return the finding in words, with the sizes at which facts are lost."""
        said = super().in_words(rows)
        fallen = [short_size(row.size) for row in rows if row.state == SUSPECT and row.n]
        if fallen:
            said += f"; at {', '.join(fallen)} the model or the server loses facts"
        return said
