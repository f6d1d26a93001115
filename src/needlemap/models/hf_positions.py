"""From which length on a model turns its positions otherwise: longrope, dynamic NTK, code of one's own.

Copies of the rotary modules are asked, on the CPU, whether the first positions are turned otherwise in a
longer text. Keys that were computed before such a switch do not serve a prompt beyond it.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_LONGEST = 2**21  # tokens up to which a switch is looked for
_FEW = 4  # positions that are compared


Turn = tuple[Any, dict[str, Any]]  # a rotary module, and what it wants beside positions


@dataclass(frozen=True, slots=True)
class Switch:
    """at: tokens up to which positions are turned in one way. steady: whether there is one other way beyond;
    else each length has its own. turns: rotary modules."""

    at: int
    steady: bool
    turns: tuple[Turn, ...] = ()

    def side(self, tokens: int) -> int:
        """A number that is equal for two lengths whose keys serve each other."""
        if tokens <= self.at:
            return 0
        return -1 if self.steady else tokens

    def serves(self, tokens: int) -> int | None:
        """The same for a plan; None where what is computed serves no other prompt, not even one as long."""
        side = self.side(tokens)
        return side if side <= 0 else None

    def reset(self) -> None:
        """Let the modules forget the lengths that they have seen."""
        for module, fields in self.turns:
            _turned(module, fields, _FEW + 1)


def switch_of(model: Any) -> Switch | None:
    """Where a model's positions switch; None where they never do. Imports torch."""
    turns = list(_turns(model))
    try:
        found = [_probed(copy.deepcopy(module).to("cpu"), fields) for module, fields in _distinct(turns)]
    except Exception:  # a module's own code may raise anything: its configuration is what is left to ask
        found, turns = [], []
    if not turns:
        return configured_switch(model.config.to_dict())
    switches = [each for each in found if each is not None]
    if not switches:
        return None
    return Switch(min(at for at, _ in switches), all(steady for _, steady in switches), tuple(turns))


def configured_switch(config: Mapping[str, Any]) -> Switch | None:
    """The same by the words of a configuration alone; None where it names no such positions."""
    found = []
    for holder, rope in _ropes(config):
        kind = str(rope.get("rope_type", rope.get("type", "")))
        if kind not in ("longrope", "su", "dynamic") or rope.get("alpha"):
            continue
        names = ("max_position_embeddings",) if kind == "dynamic" else ()
        names = (*names, "original_max_position_embeddings", "max_position_embeddings")
        sizes = [each.get(name) for name in names for each in (rope, holder, config)]
        known = [size for size in sizes if isinstance(size, int) and size > 0]
        found += [Switch(known[0], kind != "dynamic")] if known else []
    return min(found, key=lambda each: each.at, default=None)


def _ropes(config: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Everything in a configuration that names a kind of rotary positions, and what holds it."""
    for value in config.values():
        if isinstance(value, Mapping):
            if "rope_type" in value or "type" in value:
                yield config, value
            yield from _ropes(value)


def _turns(model: Any) -> Iterator[Turn]:
    """Rotary modules: they hold frequencies, some for each kind of layer, and take positions."""
    for module in model.modules():
        takes = inspect.signature(module.forward).parameters
        if "position_ids" not in takes:
            continue
        names = [name for name in {**vars(module), **module._buffers} if name.endswith("inv_freq")]
        plain = {name.removesuffix("inv_freq").rstrip("_") for name in names}
        kinds = sorted(kind for kind in plain if kind and not kind.endswith(("original", "long", "short")))
        if "layer_type" in takes and kinds:
            yield from ((module, {"layer_type": kind}) for kind in kinds)
        elif names:
            yield module, {}


def _distinct(turns: list[Turn]) -> list[Turn]:
    """One of those that are made alike, as each layer has its own in some models."""
    found = {
        (type(module), id(getattr(module, "config", module)), str(fields)): (module, fields)
        for module, fields in turns
    }
    return list(found.values())


def _probed(module: Any, fields: dict[str, Any]) -> tuple[int, bool] | None:
    """(the longest text whose first positions are turned as a short one's, whether all beyond are turned
    alike); None where the length does not matter."""
    short = _turned(module, fields, _FEW + 1)
    low = high = _FEW + 1
    while _alike(_turned(module, fields, high), short):
        low, high = high, 2 * high
        if high > _LONGEST:
            return None
    beyond = [_turned(module, fields, 2 * high), _turned(module, fields, 8 * high)]
    while high - low > 1:
        middle = (low + high) // 2
        if _alike(_turned(module, fields, middle), short):
            low = middle
        else:
            high = middle
    return low, _alike(*beyond)


def _turned(module: Any, fields: dict[str, Any], tokens: int) -> Any:
    """What the first positions of a text of so many tokens are turned by."""
    import torch

    with torch.inference_mode():
        where = next((each.device for each in module.buffers()), "cpu")
        for last in (0, tokens - 1):  # a text of one token first: the module forgets what was before
            places = torch.tensor([[*range(_FEW), last]] if last else [[0]], device=where)
            made = module(torch.zeros(1, 1, 1, device=where), places, **fields)
    first = made[0] if isinstance(made, tuple | list) else made
    size = first.shape.index(_FEW + 1)
    return first.narrow(size, 0, _FEW).clone()


def _alike(left: Any, right: Any) -> bool:
    return bool((left == right).all())
