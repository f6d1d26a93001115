"""YAML as people mean it: `10:30` is a text, where YAML 1.1 takes it for the number 630 in base sixty."""

from __future__ import annotations

from typing import Any

import yaml

_SHOWN = 100  # characters of what is wrong


class _Loader(yaml.SafeLoader):
    """PyYAML's safe one, without numbers in base sixty."""


def _number(loader: _Loader, node: yaml.ScalarNode) -> object:
    if ":" in node.value:
        return node.value
    whole = node.tag.endswith(":int")
    return loader.construct_yaml_int(node) if whole else loader.construct_yaml_float(node)


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _number)


def read_yaml(text: str) -> Any:
    """The data of a YAML text. Raises yaml.YAMLError."""
    try:
        return yaml.load(text, Loader=_Loader)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None
    except (ValueError, OverflowError) as error:  # a number of thousands of digits, a date that is none
        raise yaml.YAMLError(f"it holds a value that is none: {str(error)[:_SHOWN]}") from None
