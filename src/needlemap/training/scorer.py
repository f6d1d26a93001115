"""Score how much of a needle's effect on the likelihood of its value is left in a long prompt.

It is for models that do not yet say the answer. The model is given the reference answer after three
prompts: the whole prompt, a prompt of the same length without the needle, and the needle with the
question alone (the oracle). *Gain* is by how many nats for each token the needle makes the value
likelier. *Recovery* is the gain of the whole prompt as a share of the oracle's. Means are ratios of
summed gains. The answer's wording and the question make a value likely too, but that does not
count, because all three prompts share them.
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

# A token's log-probability counts as this if it is lower.
LEAST_NATS = -100.0
# In nats for each token. A lower gain of the oracle may be rounding alone.
LEAST_GAIN = 0.01


class Recovery(Scorer):
    """How far a needle makes its value likelier, as a share of what it does without a haystack.

    native: the gain, in nats a token of the value. ratio: the gain, and the oracle's. why: both,
    how many tokens the value has, and first_choice: whether each of them is the model's first.
    """

    name = "recovery"
    passes: tuple[Pass, ...] = ("whole", "bare", "oracle")
    scale = (LEAST_NATS, -LEAST_NATS)

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raise SettingsError, because a text has no probabilities."""
        raise SettingsError(
            "Scorer 'recovery' reads probabilities, not answers: use it in a run, with --model "
            "hf/PATH or a server's."
        )

    def weigh(self, answer: Answer, reference: Reference) -> Score:
        """Return the score of a given answer.

        Raises Unmeasured if the needle adds nothing even without a haystack.
        """
        gain, oracle_gain = gains(answer, reference)
        if oracle_gain < LEAST_GAIN:
            raise Unmeasured(
                Failure.ORACLE,
                f"The needle and the question alone change the value's likelihood by "
                f"{oracle_gain:+.3f} nats a token: there is nothing to recover.",
            )
        places = value_places(answer.logprobs, reference)
        tokens = len(places)
        if not places and answer.forced:
            tokens = len(answer.forced.logprobs)
        return Score(
            min(1.0, max(0.0, gain / oracle_gain)),
            gain,
            {
                "gain": gain,
                "oracle_gain": oracle_gain,
                "first_choice": first_choice(answer, places),
                "tokens": tokens,
            },
            ratio=(gain, oracle_gain),
        )


def gains(answer: Answer, reference: Reference) -> tuple[float, float]:
    """Return the gain of the whole prompt and the oracle's gain, in nats for each token."""
    places = value_places(answer.logprobs, reference)
    whole = _mean_nats(answer, places)
    bare = _mean_nats(answer.beside.get("bare"), places)
    oracle = _mean_nats(answer.beside.get("oracle"), places)
    return round(whole - bare, 6), round(oracle - bare, 6)


def value_places(logprobs: Logprobs | None, reference: Reference) -> list[int]:
    """Return which tokens of a given answer hold its value, by its keywords.

    If that is unknown, return an empty list. All tokens count then.
    """
    tokens = logprobs.tokens if logprobs else ()
    return places_of_words(tokens, reference.keywords)


def places_of_words(tokens: Sequence[str], words: Sequence[str]) -> list[int]:
    """Return the indices of the tokens that hold a part of some words.

    >>> places_of_words(["The", " code", " is", " 47", "11", "."], ["4711"])
    [3, 4]
    """
    text = "".join(tokens).casefold()
    ends = list(accumulate(map(len, tokens)))
    # Casefolding can change the length, and then no place is known.
    if len(text) != sum(map(len, tokens)):
        return []

    places = set[int]()
    for word in words:
        start = text.find(word.casefold())
        if start < 0:
            continue
        stop = start + len(word)
        for index, end in enumerate(ends):
            token_start = end - len(tokens[index])
            if start < end and token_start < stop:
                places.add(index)
    return sorted(places)


def first_choice(answer: Answer, places: Sequence[int]) -> bool:
    """Return True if each token of the value is the model's first choice after those before it.

    A tie is no first choice: otherwise a model that finds all tokens equally likely would say each
    value. A token whose alternatives are unknown counts as first choice. places: the value's
    tokens; if there are none, all tokens count.
    """
    logprobs = answer.logprobs
    if logprobs is None or not places:
        return bool(answer.forced and answer.forced.greedy)
    for place in places:
        other_nats = logprobs.other_nats[place]
        # Not `<=`, because a comparison with NaN is False.
        if other_nats is not None and not logprobs.nats[place] > other_nats:
            return False
    return True


def _mean_nats(answer: Answer | None, places: Sequence[int]) -> float:
    """Return the mean log-probability of the value's tokens."""
    # All passes were answered, each with the given answer.
    assert answer is not None
    assert answer.forced is not None
    nats = [max(LEAST_NATS, token_nats) for token_nats in answer.forced.logprobs]
    value_nats = [nats[place] for place in places] or nats
    return fsum(value_nats) / len(value_nats)
