"""Builds one document out of a grammar: a kind, a town, two people, two topics, paragraphs.

The order is title, opening, a section on the first topic, a section on the second with the two people's
parts exchanged, closing. All wording is in `data/*.txt`; see `grammar.py` for its notation.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from random import Random

from needlemap.haystacks.grammar import Rule, Scene, grammar

PARAGRAPHS = (3, 6)  # of a section, least and most
UNITS = (2, 4)  # of a paragraph; a unit is one to three sentences that belong together
TOPICAL = 0.62  # share of the units after a paragraph's first that keep to the topic


@cache
def rules_of(language: str) -> Mapping[str, Rule]:
    """The grammar of a language ('english' or 'chinese'), parsed once per process."""
    return grammar(files("needlemap.haystacks").joinpath("data", f"{language}.txt").read_text("utf-8"))


def document(language: str, seed: int, index: int) -> str:
    """Document `index` of a seed: paragraphs separated by a blank line. Needs no other document."""
    rules = rules_of(language)
    scene = Scene(Random(f"needlemap/{language}/{seed}/{index}").random)
    rules["document"].write(scene)
    kind = rules["kinds"].write(scene)
    first, second = (
        rules["topics"].lines[k].write(scene) for k in shuffled(scene, len(rules["topics"].lines))[:2]
    )
    rules[f"{first}.subject"].write(scene)
    asides = shuffled(scene, len(rules["common"].lines))
    opening = [rules[f"{kind}.{part}"].write(scene) for part in ("title", "open")]
    body = section(rules, scene, first, asides)
    rules["swap"].write(scene)
    body += section(rules, scene, second, asides)
    heads = [heading(rules, scene, kind, k, len(body)) for k in range(len(body))]
    closing = rules[f"{kind}.close"].write(scene)
    return "\n\n".join([*opening, *map("".join, zip(heads, body, strict=True)), closing])


def section(rules: Mapping[str, Rule], scene: Scene, topic: str, asides: list[int]) -> list[str]:
    """Paragraphs on one topic, the first of which introduces it. Takes from `asides` those it uses."""
    topical = shuffled(scene, len(rules[topic].lines))
    opener = [rules[f"{topic}.open"].write(scene)]
    paragraphs = []
    for _ in range(between(scene, *PARAGRAPHS)):
        paragraphs.append(
            rules["joint"].write(scene).join(opener + paragraph(rules, scene, topic, topical, asides))
        )
        opener = []
    return paragraphs


def paragraph(
    rules: Mapping[str, Rule], scene: Scene, topic: str, topical: list[int], asides: list[int]
) -> list[str]:
    """The units of one paragraph, taken off the two lists of lines not yet used."""
    units = []
    for k in range(between(scene, *UNITS)):
        on_topic = topical and (k == 0 or scene.random() < TOPICAL)
        units.append(
            rules[topic if on_topic else "common"].lines[(topical if on_topic else asides).pop()].write(scene)
        )
    return units


def heading(rules: Mapping[str, Rule], scene: Scene, kind: str, k: int, n: int) -> str:
    """What stands before paragraph k of n: a date in a diary, a month in a chronicle, else nothing."""
    if f"{kind}.head" not in rules:
        return ""
    months = rules["months"].lines
    scene.kept["number"] = str(k + 1)
    scene.kept["day"] = str(2 + 26 * k // n)
    scene.kept["next"] = months[len(months) * k // n].write(scene)
    return rules[f"{kind}.head"].write(scene) + rules["joint"].write(scene)


def between(scene: Scene, low: int, high: int) -> int:
    """A whole number in low..high."""
    return low + scene.below(high - low + 1)


def shuffled(scene: Scene, n: int) -> list[int]:
    """0..n-1 in an order drawn from the scene."""
    keys = [scene.random() for _ in range(n)]
    return sorted(range(n), key=keys.__getitem__)
