"""Whether a checkpoint is whole: every weight of the model comes from it, and is a number.

transformers fills what a checkpoint lacks with random numbers and leaves out what the model has no
place for, with a warning; a map of such a model is a map of noise, and each process draws another
one. Weights that are tied, tables that are computed and towers of other senses are no weights that
lack. Nothing is mended here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from needlemap.errors import SettingsError

# Names that an error lists.
_SHOWN = 3
# Tables that a model computes itself, and scales of a quantised cache, by the ends of their names.
_COMPUTED = re.compile(
    r"(inv_freq|masked_bias|position_ids|rotary_emb\.(cos|sin)_cached|[kvq]_scale)$"
)
# Of earlier GPT-2, GPT-Neo, GPT-NeoX.
_CAUSAL_MASK = re.compile(r"(attn|attention)\.bias$")
# The size of numbers that torch has no comparison for.
_BYTE = 1


def refuse_partial(name: str, model: Any, loading_info: Mapping[str, Any]) -> None:
    """Raise SettingsError for a checkpoint that is not the model's own, or is broken.

    loading_info: transformers' report on the loading: `missing_keys`, `unexpected_keys`,
    `mismatched_keys`.
    """
    missing = [key for key in loading_info.get("missing_keys", ()) if not _COMPUTED.search(key)]
    if missing:
        raise SettingsError(
            f"The checkpoint of '{name}' lacks {_names(missing, 'weight')}, which would be random "
            f"numbers, others in each process. Was it converted or saved whole?"
        )
    if wrong := [f"{key[0]}" for key in loading_info.get("mismatched_keys", ())]:
        raise SettingsError(
            f"The checkpoint of '{name}' has another shape than its config.json says for "
            f"{_names(wrong, 'weight')}. They do not belong together."
        )
    if unused := _unused(model, loading_info.get("unexpected_keys", ())):
        raise SettingsError(
            f"The checkpoint of '{name}' holds {_names(unused, 'weight')} that its config.json has "
            f"no place for, so that the model would be computed without them. They do not belong "
            f"together."
        )
    if broken := [key for key, weight in model.named_parameters() if not _is_finite(weight)]:
        raise SettingsError(
            f"The checkpoint of '{name}' holds NaN or infinity in {_names(broken, 'weight')}. Was "
            f"it converted or trained right?"
        )


def _unused(model: Any, keys: Iterable[str]) -> list[str]:
    """Return the weights that the model has no place for, of its layers or of further ones.

    A part of its own next to the layers (an image tower, a draft head) is left out of a text's
    computation rightly, and so are the last layers of DeepSeek and GLM that foretell further tokens
    (`num_nextn_predict_layers`).
    """
    modules = dict(model.named_modules())
    config = model.config.get_text_config()
    layers = getattr(config, "num_hidden_layers", None) or 0
    draft_layers = getattr(config, "num_nextn_predict_layers", None) or 0
    drafts = {str(number) for number in range(layers, layers + draft_layers)}
    return [
        key
        for key in sorted(keys)
        if not _COMPUTED.search(key)
        and not (_CAUSAL_MASK.search(key) and not _has_weight(modules, key))
        and drafts.isdisjoint(key.split("."))
        and _is_inside(modules, key)
    ]


def _is_inside(modules: Mapping[str, Any], key: str) -> bool:
    """Return True if a weight belongs to a part that the model has.

    It does if it is a parameter of that part, or within its layers.
    """
    parts = key.split(".")
    depth = len(parts)
    while ".".join(parts[:depth]) not in modules:
        depth -= 1
    is_in_layers = any(part.isdigit() for part in parts[: depth + 1])
    return is_in_layers or (0 < depth == len(parts) - 1)


def _has_weight(modules: Mapping[str, Any], key: str) -> bool:
    """Return True if the part that a bias belongs to has a weight, and so may have a bias."""
    return hasattr(modules.get(key.rpartition(".")[0]), "weight")


def _is_finite(weight: Any) -> bool:
    """Return True if all numbers of a weight are finite.

    Also for one that is not here, or has none.
    """
    if weight.device.type == "meta" or not weight.is_floating_point() or not weight.numel():
        return True
    numbers = weight.detach()
    low, high = (numbers.float() if numbers.element_size() == _BYTE else numbers).aminmax()
    return bool(low.isfinite() and high.isfinite())


def _names(keys: Iterable[str], noun: str) -> str:
    """Return how many there are, and the first names."""
    names = sorted(keys)
    more = ", ..." if len(names) > _SHOWN else ""
    plural = "" if len(names) == 1 else "s"
    return f"{len(names):,} {noun}{plural} ({', '.join(names[:_SHOWN])}{more})"
