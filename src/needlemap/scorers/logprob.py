"""How likely the model finds the reference answer: a signal for models that do not yet say it.

The model is given the answer behind the prompt and is asked for nothing but how likely each of its tokens is.
It measures wording as much as retrieval, and models only against themselves: another tokenizer cuts the same
answer into other tokens.
"""

from __future__ import annotations

from math import exp, fsum

from needlemap.errors import SettingsError
from needlemap.models.base import Forced
from needlemap.scorers.base import Reference, Score, Scorer

LOWEST = -100.0  # a mean below it is as good as this; exp of it is 0 on any map


class Logprob(Scorer):
    """native: mean natural log-probability of the answer's tokens. share: its exp, their geometric mean.

    why: tokens, and greedy_match: whether the model, asked, would have said just this.
    """

    name = "logprob"
    weighs = True
    scale = (LOWEST, 0.0)

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError: a text has no probabilities."""
        raise SettingsError(
            "Scorer 'logprob' reads probabilities, not answers: use it in a run, with --model hf/PATH or a "
            "server's."
        )

    def weigh(self, forced: Forced) -> Score:
        """The score of a reference answer that was given to the model."""
        mean = max(LOWEST, fsum(forced.logprobs) / len(forced.logprobs))
        why = {"greedy_match": forced.greedy, "tokens": len(forced.logprobs)}
        return Score(min(1.0, exp(mean)), mean, why)  # rounding may take a mean above 0
