"""YAML as people mean it."""

from __future__ import annotations

import pytest
import yaml

from needlemap.files import read_yaml


@pytest.mark.parametrize(
    "text", ["10:30", "1:9", "10:50:5", "1:30.5", "1k:128k:35:log", "0:100:11"]
)
def test_numbers_with_colons_are_texts(text):
    """YAML 1.1 reads 10:50:5 as 39005, so that a range of depths became one."""
    assert read_yaml(text) == text
    assert read_yaml(f"depths: {text}") == {"depths": text}


def test_everything_else_is_plain_yaml():
    text = "{a: 1, b: 1.5, c: 0x10, d: -3, e: .inf, f: [x, true, null], g: '1', h: 1_000}"
    assert read_yaml(text) == yaml.safe_load(text)
    with pytest.raises(yaml.YAMLError):
        read_yaml("a: [")
    with pytest.raises(yaml.YAMLError):
        read_yaml("!!python/object/apply:os.system [true]")
