"""The probe of counters: can what a server counts be true?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

import numpy as np

from needlemap.servers.check.ask import Answers, Ask, Reply
from needlemap.servers.check.finding import AtSize, Finding
from needlemap.servers.check.haystack import CheckHaystack, Geometry
from needlemap.servers.check.probe import LEAST, Probe, smallest
from needlemap.stats.verdicts import row_word

# Two vocabularies of one text count by a factor of 0.6 to 1.6 of each other.
LEAST_TIMES, MOST_TIMES = 0.6, 1.6
OFF = 0.1  # share of a prompt by which the counts of one server may scatter
TEMPLATE = 32  # tokens by which they may scatter anyway


class Usage(Probe):
    """Do the tokens that are counted grow with the prompts that are sent?"""

    name = "usage"
    order = 85
    asked = "the tokens that are counted of first prompts, by the tokens that were sent"
    sees = "counters that are double, half, zero, constant or random, or more cached than sent"
    cannot = "a wrong count that a vocabulary could have made; it never decides the exit code"
    share = 0.0
    decides = False
    uses_shortest = True

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """First prompts, of which a cache holds nothing."""
        return (haystack.cold,)

    def absent(self, layout: Geometry, answers: Answers) -> str:
        """Whether the server counts nothing."""
        rows = answers.every("cold", "crowded", "short", "crowd")
        if rows and all(reply.prompt_tokens is None for reply in rows):
            return "needs a server that counts tokens"
        return ""

    def judge(self, layout: Geometry, answers: Answers, look: int) -> Finding:
        """One row: all first prompts together."""
        if why := self.absent(layout, answers):
            return Finding(self.name, "not applicable", 0, why, decides=False)
        rows = answers.every("cold", "crowded", "short", "crowd")
        told = [reply for reply in rows if reply.prompt_tokens is not None and reply.own_tokens]
        why = untrue(told)
        wrong = told if why else []
        said = why or f"{len(told)} counts fit the prompts that were sent"
        return self.whole(
            [
                AtSize(
                    layout.sizes[-1],
                    row_word(fails=False, passes=len(told) >= LEAST and not why, points=bool(why)),
                    len(told),
                    len(wrong),
                    said=said,
                    worst=smallest(wrong),
                )
            ]
        )


def untrue(replies: Sequence[Reply]) -> str:
    """Return why some counts cannot be true, in words; '' where they can."""
    cached = [reply for reply in replies if (reply.cached_tokens or 0) > (reply.prompt_tokens or 0)]
    if cached:
        counts = f"{cached[0].cached_tokens:,} of {cached[0].prompt_tokens:,}"
        return f"{len(cached)} counts have more tokens cached than sent ({counts})"
    if len(replies) < LEAST:
        return ""
    sent = np.array([reply.own_tokens or 0 for reply in replies], dtype=float)
    counted = np.array([reply.prompt_tokens or 0 for reply in replies], dtype=float)
    if not counted.any():
        return "0 tokens are counted of each prompt"
    longest, shortest = sent >= np.quantile(sent, 0.9), sent <= np.quantile(sent, 0.1)
    most, least = median(sent[longest]), median(sent[shortest])
    if most < 1.2 * least:
        # Lengths that are nearly one tell no vocabulary from a wrong count.
        return ""
    times = float((median(counted[longest]) - median(counted[shortest])) / (most - least))
    if not LEAST_TIMES <= times <= MOST_TIMES:
        return f"{times:.2g} tokens are counted for each that is sent"
    framing = median(counted - times * sent)
    off = np.abs(counted - times * sent - framing)
    scattered = int((off > np.maximum(TEMPLATE, OFF * sent)).sum())
    if scattered:
        return f"{scattered} of {len(replies)} counts do not fit the prompts that were sent"
    return ""
