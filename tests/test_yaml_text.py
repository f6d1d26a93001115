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


def laughs(lists: int, aliases: int) -> str:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * aliases)}]" for n in range(1, lists)]
    return "\n".join(lines)


def merges(mappings: int, aliases: int) -> str:
    lines = ["a0: &a0 {x: 1}"]
    for number in range(1, mappings):
        inner = ", ".join([f"*a{number - 1}"] * aliases)
        lines.append(f"a{number}: &a{number}\n  <<: [{inner}]\n  k{number}: 1")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("needle: &a [*a]", "names what it stands in"),
        ("draw: &a {x: *a}", "names what it stands in"),
        ("a: &a\n  <<: *a", "names what it stands in"),
        ("&a [1, [2, {x: [*a]}]]", "names what it stands in"),
        (laughs(9, 9), "more than 100,000 values"),
        (merges(20, 9), "more than 100,000 values"),
        ("[" + "1, " * 100_000 + "1]", "more than 100,000 values"),
        ("a" * (2 << 20), "larger than 1 MB"),
    ],
)
def test_aliases_and_merges_are_counted(text, why):
    """A list of itself ended in a RecursionError, and nine lists of nine aliases never."""
    with pytest.raises(yaml.YAMLError, match=why):
        read_yaml(text)


def test_a_few_aliases_and_merges_are_what_they_stand_for():
    text = "a: &a {x: 1, y: [2]}\nb: *a\nc: {<<: *a, z: 3}"
    assert read_yaml(text) == yaml.safe_load(text)
    assert read_yaml("") is None
