"""The probe of lengths: is as much found in long prompts as in short ones?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from needlemap.grid import short_size
from needlemap.servers.check.ask import FIRST, FIRST_BESIDE, Answers, Ask, Reply
from needlemap.servers.check.effects import rates_apart
from needlemap.servers.check.finding import AtSize, Finding, issue
from needlemap.servers.check.haystack import BEHIND, CheckHaystack, Geometry
from needlemap.servers.check.probe import HELD, LEAST, NOTHING, Probe, smallest
from needlemap.stats.exact import binomial_tail, lost_by_chance
from needlemap.stats.verdicts import NOT_ENOUGH_DATA, SUSPECT, row_word

FALL = 0.20  # of the found share, which a pass excludes
# Of a known model's facts: it missed none of 600 at each length, so that three, and so large a
# share, are the server's.
LEAST_LOST, LOST_KNOWN = 3, 0.05
SILENT = 0.1  # share of what was tried that may bring no answer
LEAST_FOUND = 0.5  # below it nothing is shown about the server


class Length(Probe):
    """Is as much found at each size as in the shortest prompts?"""

    name = "length"
    order = 0
    asked = "questions about the facts of each haystack, at all depths, behind shared prefixes"
    sees = "a length from which on facts are lost, whatever the cause"
    cannot = "whether the model or the server loses them; only `--reference` tells"
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
        """Other questions about it."""
        return haystack.questions

    def helps(self, row: AtSize) -> bool:
        """Only where the interval holds both a fall that matters and one that does not."""
        return row.n > 0 and row.effect is not None and row.effect.low < FALL

    def judge(self, layout: Geometry, answers: Answers, look: int) -> Finding:
        """Each size beside the shortest prompts; beside a reference too, where one was asked, and
        beside what the model is known to find."""
        level = self.level(look, len(layout.sizes))
        short, holds = answers.of(layout.short, "short"), layout.options.holds
        least = layout.comb + BEHIND  # tokens by which a size's own prompts are shorter at most
        rows = [
            self._beside(answers, size, size - least, short, level, held=size <= holds)
            for size in layout.sizes
        ]
        return self.whole(rows)

    def _beside(
        self,
        answers: Answers,
        size: int,
        least: int,
        short: Sequence[Reply],
        level: float,
        *,
        held: bool,
    ) -> AtSize:
        every = answers.of(size, "ask")
        rows = [reply for reply in every if reply.ask.length >= least]
        between = [reply for reply in every if reply.ask.length < least]
        missed = sum(not reply.right for reply in between)
        found, n = sum(reply.right for reply in rows), len(rows)
        silent, tried, why = answers.unanswered(size)
        is_silent = silent > SILENT * tried
        said = ", ".join(
            [f"{found} of {n}"] * (n > 0)
            + [f"{missed} of {len(between)} between lost"] * (missed > 0)
            + [f"{silent} of {tried} without an answer: {why}"] * (silent > 0)
        )
        if not n:
            return AtSize(
                size, SUSPECT if is_silent else NOT_ENOUGH_DATA, said=said if silent else NOTHING
            )
        base = sum(reply.right for reply in short), len(short)
        if not base[1]:
            base = found, n
        effect = rates_apart(n - found, n, base[1] - base[0], base[1])
        assert effect is not None  # both have trials
        upper, share = 100 * effect.high, found / n
        lost = [reply for reply in (*rows, *between) if not reply.right]
        p = (
            binomial_tail(n - found + missed, n + len(between), HELD)
            if held
            else self._beside_reference(answers, size)
        )
        lost_alone = n - found + missed
        too_many = held and lost_alone >= max(LEAST_LOST, LOST_KNOWN * (n + len(between)))
        fails = too_many or (p is not None and p <= level)
        passes = n >= LEAST and effect.high < FALL and share >= LEAST_FOUND and not is_silent
        points = share < LEAST_FOUND or effect.low > 0 or is_silent
        return AtSize(
            size,
            row_word(fails=fails, passes=passes, points=points),
            n,
            n - found,
            0,
            effect,
            upper,
            p,
            said,
            None if passes else smallest(lost),
        )

    def _beside_reference(self, answers: Answers, size: int) -> float | None:
        pairs = answers.same_prompt(size, FIRST_BESIDE, FIRST)
        lost = sum(there.right and not here.right for there, here in pairs)
        gained = sum(here.right and not there.right for there, here in pairs)
        return lost_by_chance(lost, gained) if pairs else None

    def in_words(self, rows: Sequence[AtSize]) -> str:
        """As the first line has it; where it falls, whose it may be."""
        said = super().in_words(rows)
        open_rows = [row for row in rows if row.state == SUSPECT and row.n]
        fallen = [short_size(row.size) for row in open_rows]
        if fallen:
            said += f"; at {', '.join(fallen)} the model or the server loses facts"
        return said
