"""What computing a plan's tokens takes: floating-point operations of the prefill, by the model's shape."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from needlemap.errors import SettingsError

_MOST = 10**9  # of any size in a model's configuration


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder's size. weights: parameters of all layers, without embeddings. width: query heads times head
    size, what attention multiplies with each token of the context."""

    layers: int
    width: int
    weights: int

    @classmethod
    def of_config(cls, path: Path) -> Shape:
        """From a Hugging Face config.json. Raises SettingsError."""
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
            hidden, layers = _size(config["hidden_size"]), _size(config["num_hidden_layers"])
            heads = _size(config["num_attention_heads"])
            size = _size(config.get("head_dim") or max(1, hidden // heads))
            pairs = _size(config.get("num_key_value_heads") or heads)
            inner = _size(config.get("intermediate_size") or 4 * hidden)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise SettingsError(
                f"'{path}' is no model configuration that can be read: {str(error)[:200] or error!r}."
            ) from error
        gates = 3 if str(config.get("hidden_act", "silu")) in ("silu", "swish", "gelu_pytorch_tanh") else 2
        return cls(
            layers, heads * size, layers * hidden * (2 * heads * size + 2 * pairs * size + gates * inner)
        )


def _size(value: object) -> int:
    """A size that a model can have. Raises ValueError."""
    if not isinstance(value, int) or not 0 < value < _MOST:
        raise ValueError(f"a size of {str(value)[:40]}")
    return value


def prefill_flops(shape: Shape, pieces: Iterable[tuple[int, int]]) -> float:
    """Operations to compute tokens start..stop of prompts, for each (start, stop).

    2 per weight and token, and 4 * layers * width per token and token before it (Kaplan et al. 2020, arXiv
    2001.08361, table 1).
    """
    tokens, pairs = 0, 0
    for start, stop in pieces:
        tokens += stop - start
        pairs += (stop * (stop + 1) - start * (start + 1)) // 2
    return 2.0 * shape.weights * tokens + 4.0 * shape.layers * shape.width * pairs
