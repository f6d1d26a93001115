"""The probe of a quick check: is all lost at a length, or in one way of asking?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from needlemap.servers.check.ask import Answers, Ask
from needlemap.servers.check.effects import rate
from needlemap.servers.check.finding import AtSize, Finding
from needlemap.servers.check.haystack import CheckHaystack, Geometry
from needlemap.servers.check.partitions import prompts_of
from needlemap.servers.check.probe import LEAST, NOTHING, Probe, smallest
from needlemap.stats.verdicts import row_word

ALONE = 2  # questions on a haystack that are sent alone; the others are sent at a time
LEAST_OF_A_WAY = 4  # answers in one way, of which half may not be lost
LEAST_LOST = 3  # facts that a known model's server must lose before it fails


class Total(Probe):
    """Is everything lost at one of two lengths: cold, from the cache, or at a time?

    A few prompts show a total loss and rule out no small one. A model may lose a length by itself,
    so that a loss is a fail only if the model is known to find it.
    """

    name = "total"
    order = 1
    asked = "with `--quick` alone: a few prompts at two lengths, cold, cached and at a time"
    sees = "a length, or a way of asking, that loses most"
    cannot = "all else: drift, replicas, lengths between, follow-up turns"
    excludes = "a loss of the found share"
    share = 0.0
    must = False
    uses_shortest = True

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """The first prompt twice, some questions alone, and others at a time."""
        alone, together = haystack.questions[:ALONE], haystack.questions[ALONE:]
        wave = [replace(ask, way="loaded", state="loaded") for ask in together]
        serial = haystack.layout.options.serial
        return haystack.cold, haystack.warm, *alone, *(together if serial else wave)

    def helps(self, row: AtSize) -> bool:
        """Never: a quick check has no further haystacks."""
        return False

    def judge(self, layout: Geometry, answers: Answers, look: int) -> Finding:
        """Each size."""
        return self.whole([self._at(layout, answers, size) for size in layout.sizes])

    def _at(self, layout: Geometry, answers: Answers, size: int) -> AtSize:
        prompts = [prompt for prompt in prompts_of(answers) if prompt.ask.size == size]
        n, lost = len(prompts), sum(prompt.wrong for prompt in prompts)
        silent, tried, why = answers.unanswered(size)
        said = f"{n - lost} of {n} found"
        said += f", {silent} of {tried} without an answer: {why}" if silent else ""
        if not n:
            word = row_word(fails=False, passes=False, points=silent > 0)
            return AtSize(size, word, said=said if silent else NOTHING)
        ways = defaultdict[str, list[bool]](list)
        for prompt in prompts:
            for reply in prompt.replies:
                ways[reply.ask.way].append(reply.right)
        dead = [
            way
            for way, rows in ways.items()
            if len(rows) >= LEAST_OF_A_WAY and 2 * sum(rows) <= len(rows)
        ]
        effect = rate(lost, n)
        assert effect is not None  # there are some
        fails = size <= layout.options.holds and lost >= LEAST_LOST
        passes = n >= LEAST and 2 * effect.high < 1 and not dead and not silent
        said += f"; half or more lost {', '.join(dead)}" if dead else ""
        return AtSize(
            size,
            row_word(fails=fails, passes=passes, points=bool(dead) or 2 * lost >= n or silent > 0),
            n,
            lost,
            0,
            effect,
            100 * effect.high,
            None,
            said,
            smallest(reply for prompt in prompts for reply in prompt.replies if not reply.right),
        )
