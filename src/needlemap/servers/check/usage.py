"""The probe of counters: can the token counts of a server be true?"""

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
# The counts of one server may scatter by this share of a prompt, or by so many tokens.
OFF = 0.1
TEMPLATE = 32


class Usage(Probe):
    """Do the tokens that are counted grow with the prompts that are sent?"""

    name = "usage"
    order = 85
    asked = "counted tokens against sent ones"
    sees = "counters that are double, half, constant or random"
    cannot = "a count that a vocabulary could have made. It never decides the exit code"
    share = 0.0
    decides = False
    uses_shortest = True

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Return the first prompt, of which a cache holds nothing."""
        return (haystack.cold,)

    def absent(self, layout: Geometry, answers: Answers) -> str:
        """Return the reason if the server counts no tokens, else ''."""
        rows = answers.every("cold", "crowded", "short", "crowd")
        if rows and all(reply.prompt_tokens is None for reply in rows):
            return "needs a server that counts tokens"
        return ""

    def judge(self, layout: Geometry, answers: Answers, look: int) -> Finding:
        """Return a finding of one row, for all first prompts together."""
        absent = self.absent(layout, answers)
        if absent:
            return Finding.not_applicable(self.name, absent, decides=False)

        counted = [
            reply
            for reply in answers.every("cold", "crowded", "short", "crowd")
            if reply.prompt_tokens is not None and reply.own_tokens
        ]
        fault = untrue(counted)
        wrong = counted if fault else []
        passes = len(counted) >= LEAST and not fault
        row = AtSize(
            size=layout.sizes[-1],
            state=row_word(fails=False, passes=passes, points=bool(fault)),
            n=len(counted),
            lost=len(wrong),
            said=fault or f"{len(counted)} counts fit the prompts that were sent",
            worst=smallest(wrong),
        )
        return self.whole([row])


def untrue(replies: Sequence[Reply]) -> str:
    """Return why some counts cannot be true, or '' if they can."""
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
    longest = sent >= np.quantile(sent, 0.9)
    shortest = sent <= np.quantile(sent, 0.1)
    most = median(sent[longest])
    least = median(sent[shortest])
    if most < 1.2 * least:
        # If all lengths are nearly the same, a wrong count cannot be told from another vocabulary.
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
