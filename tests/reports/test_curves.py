"""Scores by length of several runs in one plot."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from needlemap.errors import NeedlemapError
from needlemap.records import RunFile
from needlemap.records.families import Families
from needlemap.records.loaded import Loaded
from needlemap.records.record import PromptRecord, Record, ScorerRecord
from needlemap.reports.figures.curves import (
    SHEET,
    Group,
    draw_curves,
    draw_lines,
    move_apart,
    plots_of,
)
from needlemap.reports.figures.shapes import text_width
from needlemap.reports.report import Line
from needlemap.reports.summary import means_of
from needlemap.stats.effective import RULES, effective_length, parse_rule

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


def plain(**right: Sequence[int]) -> list[Group]:
    return [
        Group(name, Families(Path(name)), {"": run(name, each)}) for name, each in right.items()
    ]


def suite(
    name: str,
    runs: Mapping[str, Loaded | None],
    scores: Mapping[str, Mapping[str, float]] | None = None,
) -> Group:
    """A suite, whose families without a run were not started."""
    started_runs = {family: run for family, run in runs.items() if run is not None}
    return Group(name, Families(Path(name), "s", tuple(runs), scores or {}), started_runs)


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
    (plot,) = plots_of([suite("s", families)], RULE)
    assert [curve.name for curve in plot.curves] == ["one", "two", "mean"]
    assert [mean.score for mean in plot.curves[2].means.values()] == [1.0, 1.0, 0.75, 0.5]


def test_the_line_of_a_suite_that_weighs_its_families_is_its_score_as_on_the_terminal() -> None:
    """It was the plain mean of families, 18.2 where the terminal had 36.4."""
    runs = {"one": run("one", GOOD), "two": run("two", WEAK), "three": run("three", NONE)}
    weights = {"total": {"one": 3.0, "two": 1.0}}
    group = suite("s", runs, weights)
    (plot,) = plots_of([group], RULE)
    assert plot.curves[3].name == "total"
    assert [mean.score for mean in plot.curves[3].means.values()] == [1.0, 1.0, 0.875, 0.75]
    assert plot.curves[3].means == means_of(group.families, runs)
    plots = plots_of([group, suite("t", runs, weights)], RULE)
    assert plots[0].title == "total over 3 families"
    assert [curve.means for curve in plots[0].curves] == [plot.curves[3].means] * 2


def test_there_is_no_mean_until_all_families_were_started_and_none_of_what_a_command_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arms of an ab repeat a run."""
    half = {"one": run("one", GOOD), "two": None}
    (plot,) = plots_of([suite("s", half)], RULE)
    assert [curve.name for curve in plot.curves] == ["one"]
    assert [plot.title for plot in plots_of([suite("s", half), suite("t", half)], RULE)] == ["one"]
    monkeypatch.setattr(Families, "has_findings", True)
    arms = {"ref-single": run("one", GOOD), "new-single": run("two", WEAK)}
    families = Families(tmp_path, "ab", tuple(arms))
    (plot,) = plots_of([Group("ab", families, arms)], RULE)
    assert [curve.name for curve in plot.curves] == list(arms)


def test_several_suites_have_a_plot_a_family_they_share_after_one_of_the_mean_with_one_legend() -> (
    None
):
    first = {"one": run("one", GOOD), "two": run("two", WEAK), "own": run("own", GOOD)}
    second = {"one": run("one", WEAK), "two": run("two", NONE)}
    groups = [suite("A", first), suite("B", second)]
    plots = plots_of(groups, RULE)
    assert [plot.title for plot in plots] == ["mean over 2 families", "one", "two"]
    assert [[curve.name for curve in plot.curves] for plot in plots] == [["A", "B"]] * 3
    assert [mean.score for mean in plots[0].curves[0].means.values()] == [1.0, 1.0, 0.75, 0.5]
    _, texts = shown(groups, 486.0)
    assert (texts.count("A"), texts.count("B"), texts.count("Score")) == (1, 1, 1)


def test_the_curves_of_a_suite_name_its_model_and_those_of_runs_have_it_at_their_lines() -> None:
    """A figure of one suite named no model at all."""
    families = {"one": run("m", GOOD), "two": run("m", WEAK)}
    _, texts = shown([suite("s", families)])
    assert texts[0].startswith("m, t, 1k–8k tokens, ")
    _, texts = shown(plain(m=GOOD))
    assert texts[0].startswith("t, 1k–8k tokens, ")


def test_a_label_on_a_page_has_room_for_the_letters_of_a_phone() -> None:
    """A phone cut '<500' to '<50'."""
    lines = [Line("python/my_model:answer", run("m", GOOD).map.margins)]
    svg = draw_lines(lines, "Score", None).inline("")
    (label,) = (
        each for each in ElementTree.fromstring(svg).iter() if each.text == "python/my_model:answer"
    )
    width = text_width(label.text or "", bold=True)
    assert float(label.attrib["x"]) + 1.15 * width <= SHEET


def test_a_long_name_has_no_part_of_its_effective_length() -> None:
    """'openai/a-long-name@one · <1k' was cut to '... · <…'."""
    name = "openai/a-very-long-name-of-a-model@and-a-folder"
    effective = effective_length(run("m", NONE).cube, RULE)
    lines = [Line(name, run("m", NONE).map.margins, effective)]
    svg = draw_lines(lines, "Score", RULE).inline("")
    (label,) = re.findall(r">(openai/[^<]*)<", svg)
    assert re.fullmatch(r"openai/a-very[^·]*…", label)


def test_curves_of_means_have_no_number_of_prompts() -> None:
    """The caption of an OpenCompass summary had 'n = 9 prompts a line': nine means."""
    loaded = run("m", GOOD)
    means = replace(
        loaded,
        records=tuple(
            record.model_copy(update={"scorer": ScorerRecord(name="s", native=1.0, mean=True)})
            for record in loaded.records
        ),
    )
    _, texts = shown([Group("m", Families(Path("m")), {"": means})])
    assert "n unknown, 72 means a line" in " ".join(texts)


def test_runs_and_suites_are_not_drawn_together_and_nothing_scored_is_said() -> None:
    with pytest.raises(NeedlemapError, match="Draw one kind"):
        plots_of([*plain(a=GOOD), suite("s", {"one": run("one", GOOD)})], RULE)
    empty = run("a", GOOD)
    with pytest.raises(NeedlemapError, match="no curve"):
        shown([Group("a", Families(Path("a")), {"": Loaded(empty.path, empty.about, ())})])
