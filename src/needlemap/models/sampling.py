"""Drawing a token from logits, the same one every time for the same seed. No top-k, no top-p."""

from __future__ import annotations

import numpy as np

from needlemap.models.walk import Logits


class Sampler:
    """temperature: above 0. seed: fixes all draws of one answer."""

    def __init__(self, temperature: float, seed: int) -> None:
        self._temperature, self._random = temperature, np.random.default_rng(seed)

    def draw(self, logits: Logits) -> int:
        """A token with probability softmax(logits / temperature): the Gumbel-max trick (Gumbel 1954)."""
        noise = self._random.gumbel(size=len(logits))
        return int(np.argmax(logits.astype(np.float64) / self._temperature + noise))
