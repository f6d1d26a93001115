"""How much of what a needle alone adds to the likelihood of its value is left in a long prompt.

For models that do not yet say the answer. The model is given the reference answer behind three
prompts: the whole one; one of the same length without the needle; the needle and the question alone
(the oracle). *Gain* is by how many nats a token the needle makes the value likelier; *recovery* is
the gain of the whole prompt as a share of the oracle's. Means are ratios of summed gains. That the
answer's wording and the question make a value likely does not count, since all three share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import fsum
from typing import TYPE_CHECKING

from needlemap.errors import Failure, SettingsError, Unmeasured
from needlemap.scorers.scorer import Pass, Score, Scorer

if TYPE_CHECKING:
    from needlemap.models import Answer, Logprobs
    from needlemap.tasks import Reference

LEAST_NATS = -100.0  # of a token: what is less likely counts as this
LEAST_GAIN = 0.01  # nats a token: an oracle that gains less shows no more than rounding


class Recovery(Scorer):
    """How far a needle makes its value likelier, as a share of what it does without a haystack.

    native: the gain, in nats a token of the value. ratio: the gain, and the oracle's. why: both,
    how many tokens the value has, and first_choice: whether each of them is the model's first.
    """

    name = "recovery"
    passes: tuple[Pass, ...] = ("whole", "bare", "oracle")
    scale = (LEAST_NATS, -LEAST_NATS)

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError: a text has no probabilities."""
        raise SettingsError(
            "Scorer 'recovery' reads probabilities, not answers: use it in a run, with --model "
            "hf/PATH or a server's."
        )

    def weigh(self, answer: Answer, reference: Reference) -> Score:
        """Raises Unmeasured where the needle adds nothing even without a haystack."""
        gain, most = gains(answer, reference)
        if most < LEAST_GAIN:
            raise Unmeasured(
                Failure.ORACLE,
                f"The needle and the question alone change the value's likelihood by {most:+.3f} "
                f"nats a token: there is nothing to recover.",
            )
        places = value_places(answer.logprobs, reference)
        why = {"gain": gain, "oracle_gain": most, "first_choice": first_choice(answer, places)}
        count = len(places) or len(answer.forced.logprobs if answer.forced else ())
        return Score(
            min(1.0, max(0.0, gain / most)), gain, {**why, "tokens": count}, ratio=(gain, most)
        )


def gains(answer: Answer, reference: Reference) -> tuple[float, float]:
    """By how many nats a token a value is likelier behind the whole prompt, and behind the needle
    alone, than without the needle."""
    places = value_places(answer.logprobs, reference)
    passes = (answer, *map(answer.beside.get, Recovery.passes[1:]))
    whole, bare, oracle = (_mean(each, places) for each in passes)
    return round(whole - bare, 6), round(oracle - bare, 6)


def value_places(logprobs: Logprobs | None, reference: Reference) -> list[int]:
    """Which of a given answer's tokens hold its value, by its key words; none where that is
    unknown: all count then."""
    tokens = logprobs.tokens if logprobs else ()
    return places_of_words(tokens, reference.keywords)


def places_of_words(tokens: Sequence[str], words: Sequence[str]) -> list[int]:
    """The tokens that some words touch.

    >>> places_of_words(["The", " code", " is", " 47", "11", "."], ["4711"])
    [3, 4]
    """
    text, ends = "".join(tokens).casefold(), [*accumulate(map(len, tokens))]
    if len(text) != sum(map(len, tokens)):
        return []
    found = set[int]()
    for word in words:
        start = text.find(word.casefold())
        stop = start + len(word)
        if start >= 0:
            found |= {
                at for at, end in enumerate(ends) if start < end and end - len(tokens[at]) < stop
            }
    return sorted(found)


def first_choice(answer: Answer, places: Sequence[int]) -> bool:
    """Whether each of the value's tokens is the model's first choice behind those before it, as far
    as the model tells; of all tokens where the value's are unknown."""
    told = answer.logprobs
    if told is None or not places:
        return bool(answer.forced and answer.forced.greedy)
    rest = [told.other_nats[at] for at in places]
    return all(
        other is None or told.nats[at] >= other for at, other in zip(places, rest, strict=True)
    )


def _mean(answer: Answer | None, places: Sequence[int]) -> float:
    """Mean log-probability of the value's tokens."""
    assert answer is not None  # all passes were asked
    assert answer.forced is not None  # it was given
    nats = [max(LEAST_NATS, each) for each in answer.forced.logprobs]
    chosen = [nats[at] for at in places] or nats
    return fsum(chosen) / len(chosen)
