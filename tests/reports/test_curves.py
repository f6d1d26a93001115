"""Scores by length of several runs in one plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

import pytest

from needlemap.errors import NeedlemapError
from needlemap.records import RunFile
from needlemap.records.loaded import Loaded
from needlemap.records.record import PromptRecord, Record
from needlemap.reports.figures.curves import draw_curves, move_apart, plots_of
from needlemap.stats.effective import RULES, parse_rule

LENGTHS, DEPTHS, REPEATS = (1_000, 2_000, 4_000, 8_000), (0.0, 0.5, 1.0), 6
RULE = parse_rule("absolute:85")


def run(name: str, right: Sequence[int]) -> Loaded:
    """A run of which so many of 18 prompts of each length are right."""
    records = []
    for length, good in zip(LENGTHS, right, strict=True):
        for at in range(REPEATS * len(DEPTHS)):
            repeat, depth = at % REPEATS, DEPTHS[at // REPEATS]
            key = f"{length} {depth} {repeat}"
            prompt = PromptRecord(sha256=key, tokens=9, haystack_tokens=5)
            asked = {
                "length_tokens": length,
                "depth": depth,
                "repeat": repeat,
                "seed": 0,
                "prompt": prompt,
            }
            records.append(Record(key=key, task="t", model=name, score=float(at < good), **asked))  # type: ignore[arg-type]
    about = {
        "settings": {"model": name, "task": "t", "mode": "exact"},
        "tokenizer": {"name": "cl100k_base", "fingerprint": ""},
        "scorer": {"name": "substring", "options": {}},
        "haystacks": [{"name": "h", "sha256": str(at)} for at in range(REPEATS)],
        "cells": [[length, depth, list(range(REPEATS))] for length in LENGTHS for depth in DEPTHS],
    }
    return Loaded(f"runs/{name}", RunFile.model_validate(about), tuple(records))


GOOD, WEAK, NONE = (18, 18, 18, 18), (18, 18, 9, 0), (0, 0, 0, 0)


def plain(**right: Sequence[int]) -> list[tuple[str, Mapping[str, Loaded]]]:
    return [(name, {"": run(name, each)}) for name, each in right.items()]


def shown(groups: Any, width: float | None = None) -> tuple[str, list[str]]:
    svg = draw_curves(groups, title=None, rules=RULES, width=width).svg
    texts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return svg, [text.text or "" for text in texts]


def test_each_run_is_a_line_with_its_band_and_its_name_and_effective_length_at_its_end() -> None:
    svg, texts = shown(plain(good=GOOD, weak=WEAK), 396.0)
    assert "good · ≥8k" in texts
    assert "weak · 2.5k" in texts
    assert svg.count('fill-opacity="0.15"') == 2
    assert 'width="396pt"' in svg


def test_lines_are_told_apart_without_colours() -> None:
    (plot,) = plots_of(plain(**{f"m{at}": GOOD for at in range(12)}), RULE)
    assert len({(curve.stroke.shape, curve.stroke.dash) for curve in plot.curves[:4]}) == 4
    assert len({curve.stroke for curve in plot.curves}) == 12


def test_no_name_lies_on_another() -> None:
    _, texts = shown(plain(**{f"m{at}": GOOD for at in range(8)}))
    assert len([text for text in texts if text.endswith("≥8k")]) == 8
    assert move_apart([5, 5, 5], 8, 0, 100) == [5, 13, 21]
    assert move_apart([99, 99], 8, 0, 100) == [92, 100]


def test_an_effective_length_is_marked_where_the_line_falls_below_the_threshold() -> None:
    marked, unmarked = shown(plain(weak=WEAK))[0], shown(plain(good=GOOD))[0]
    assert marked.count('stroke-dasharray="1 1.5"') == 1
    assert 'stroke-dasharray="1 1.5"' not in unmarked


def test_a_suite_has_a_line_a_family_and_one_for_their_mean() -> None:
    families = {"one": run("one", GOOD), "two": run("two", WEAK)}
    (plot,) = plots_of([("s", families)], RULE)
    assert [curve.name for curve in plot.curves] == ["one", "two", "mean"]
    assert [mean.score for mean in plot.curves[2].means.values()] == [1.0, 1.0, 0.75, 0.5]


def test_several_suites_have_a_plot_a_family_they_share_after_one_of_the_mean_with_one_legend() -> (
    None
):
    first = {"one": run("one", GOOD), "two": run("two", WEAK), "own": run("own", GOOD)}
    second = {"one": run("one", WEAK), "two": run("two", NONE)}
    plots = plots_of([("A", first), ("B", second)], RULE)
    assert [plot.title for plot in plots] == ["mean over 2 families", "one", "two"]
    assert [[curve.name for curve in plot.curves] for plot in plots] == [["A", "B"]] * 3
    assert [mean.score for mean in plots[0].curves[0].means.values()] == [1.0, 1.0, 0.75, 0.5]
    _, texts = shown([("A", first), ("B", second)], 486.0)
    assert (texts.count("A"), texts.count("B"), texts.count("Score")) == (1, 1, 1)


def test_runs_and_suites_are_not_drawn_together_and_nothing_scored_is_said() -> None:
    with pytest.raises(NeedlemapError, match="Draw one kind"):
        plots_of([*plain(a=GOOD), ("s", {"one": run("one", GOOD)})], RULE)
    empty = run("a", GOOD)
    with pytest.raises(NeedlemapError, match="no curve"):
        shown([("a", {"": Loaded(empty.path, empty.about, ())})])
