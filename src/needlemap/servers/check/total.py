"""The probe of a quick check: is all lost at a length, or in one way of asking?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from needlemap.servers.check.ask import Answers, Ask
from needlemap.servers.check.effects import rate
from needlemap.servers.check.finding import AtSize
from needlemap.servers.check.haystack import CheckHaystack, Geometry
from needlemap.servers.check.partitions import prompts_of
from needlemap.servers.check.probe import LEAST, NOTHING, Probe, smallest
from needlemap.stats.verdicts import row_word

# Questions on a haystack that are sent alone. The others are sent at the same time.
ALONE = 2
# Half of the answers in one way may not be lost, if there are so many.
LEAST_OF_A_WAY = 4
# Facts that the server of a known model must lose before it fails.
LEAST_LOST = 3


class Total(Probe):
    """Is everything lost at one of two lengths: cold, from the cache, or at a time?

    A few prompts show a total loss and rule out no small one. A model may lose a length by itself,
    so that a loss is a fail only if the model is known to find it.
    """

    name = "total"
    order = 1
    asked = "`--quick` alone: a few prompts at two lengths"
    sees = "a length, or a way of sending, that loses most"
    cannot = "all else"
    excludes = "a loss of the found share"
    share = 0.0
    must = False
    uses_shortest = True

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Return the first prompt twice, some questions alone, and the others at the same time."""
        alone = haystack.questions[:ALONE]
        together = haystack.questions[ALONE:]
        if not haystack.layout.options.serial:
            together = [replace(ask, way="loaded", state="loaded") for ask in together]
        return haystack.cold, haystack.warm, *alone, *together

    def helps(self, row: AtSize) -> bool:
        """Return False: a quick check has no further haystacks."""
        return False

    def row(self, layout: Geometry, answers: Answers, size: int, level: float) -> AtSize:
        """Return the row of one size. The level is not used: no test decides it."""
        prompts = [prompt for prompt in prompts_of(answers) if prompt.ask.size == size]
        n = len(prompts)
        lost = sum(prompt.is_lost for prompt in prompts)
        silent, tried, reason = answers.unanswered(size)
        said = f"{n - lost} of {n} found"
        if silent:
            said += f", {silent} of {tried} without an answer: {reason}"
        if not n:
            word = row_word(fails=False, passes=False, points=silent > 0)
            return AtSize(size, word, said=said if silent else NOTHING)

        rights_by_way = defaultdict[str, list[bool]](list)
        for prompt in prompts:
            for reply in prompt.replies:
                rights_by_way[reply.ask.way].append(reply.right)
        dead = [
            way
            for way, rights in rights_by_way.items()
            if len(rights) >= LEAST_OF_A_WAY and 2 * sum(rights) <= len(rights)
        ]
        if dead:
            said += f"; half or more lost {', '.join(dead)}"

        effect = rate(lost, n)
        # There are prompts, so there is an effect.
        assert effect is not None
        fails = size <= layout.options.holds and lost >= LEAST_LOST
        passes = n >= LEAST and 2 * effect.high < 1 and not dead and not silent
        points = bool(dead) or 2 * lost >= n or silent > 0
        wrong = [reply for prompt in prompts for reply in prompt.replies if not reply.right]
        return AtSize(
            size=size,
            state=row_word(fails=fails, passes=passes, points=points),
            n=n,
            lost=lost,
            effect=effect,
            upper=100 * effect.high,
            said=said,
            worst=smallest(wrong),
        )
