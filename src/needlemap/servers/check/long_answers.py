"""Probe answers of thousands of tokens, which the gauge of shape qwen3 copies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

from needlemap.servers.check.ask import LONG, Answers, Ask
from needlemap.servers.check.finding import AtSize, Finding
from needlemap.servers.check.haystack import CheckHaystack, Geometry
from needlemap.servers.check.probe import NOTHING, Probe, smallest
from needlemap.servers.gauge.copies import Copy, in_words, number_of
from needlemap.stats.verdicts import NOT_ENOUGH_DATA, row_word

ANSWERS = 2
DEPTH = 0.5
# Tokens of a prompt and its answer, without the fact and its copy.
AROUND = 256
# Tokens of an answer behind its digits: a full stop, the end, and what a fault inserts.
MORE = 24


class LongAnswers(Probe):
    """Does an answer of thousands of tokens stay right?

    The gauge copies a number from the haystack, and was never measured to miss a digit: one error
    is a fault.
    """

    name = "decode"
    order = 37
    asked = "the gauge of shape qwen3 alone: a fact of up to 4,000 digits in two longest prompts"
    sees = "tokens that go wrong after hundreds or thousands of others"
    cannot = "faults beyond 4,000 tokens, and of answers in a batch"
    share = 0.0
    # It counts answers, of which two say little: the tokens in them carry the bound.
    shows_pass = True

    def needs(self, layout: Geometry) -> str:
        """Return what the probe lacks: a gauge that copies, or '' if it is there."""
        if layout.options.copies:
            return ""
        return "needs the gauge of shape qwen3"

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Return a prompt with one fact, in the first haystacks of the longest size."""
        is_longest = haystack.size == haystack.layout.sizes[-1]
        if not is_longest or haystack.repeat >= ANSWERS:
            return ()
        # So that the prompt has the size, even if the haystack's length is drawn.
        shortfall = haystack.longest - haystack.size
        ask = haystack.ask(LONG, 0, shortfall, state="cold", depth=DEPTH, salt=LONG)
        return (replace(ask, facts=1),)

    def helps(self, row: AtSize) -> bool:
        """Return False, because further haystacks have none of its prompts."""
        return False

    def judge(self, layout: Geometry, answers: Answers, look: int) -> Finding:
        """Return one row: the errors at the longest size."""
        size = layout.sizes[-1]
        replies = [reply for reply in answers.of(size, LONG) if reply.measured]
        if not replies:
            return self.whole([AtSize(size, NOT_ENOUGH_DATA, said=NOTHING)])
        copies = [
            Copy.of(f"{digits_of(layout, reply.ask)}.", reply.answer.strip()) for reply in replies
        ]
        wrong = [reply for reply, copy in zip(replies, copies, strict=True) if copy.errors]
        row = AtSize(
            size=size,
            state=row_word(fails=bool(wrong), passes=len(replies) >= ANSWERS, points=False),
            n=len(replies),
            lost=len(wrong),
            said=in_words(copies),
            worst=smallest(wrong) if wrong else None,
        )
        return self.whole([row])


def digits_of(layout: Geometry, ask: Ask) -> str:
    """Return the number that a prompt hides: the same in all prompts of its size.

    Half of the prompt's tokens have room for the number, the other half for its copy.
    """
    digits = min(layout.options.copies, (ask.length - AROUND) // 2)
    return number_of(digits, Random(f"{LONG}:{ask.seed}:{ask.size}"))


def long_item(layout: Geometry, ask: Ask) -> dict[str, Any]:
    """Return the settings of a prompt with one long number."""
    number = digits_of(layout, ask)
    return {
        "needle": "The locker code for Turin is {number}.",
        "question": "What is the locker code for Turin?",
        "keywords": ["{number}"],
        "draw": {"number": [number]},
        "max_answer_tokens": len(number) + MORE,
    }
