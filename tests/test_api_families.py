"""The Python interface to runs with several families: `run`, `load`, `compare`, and what they
show."""

from __future__ import annotations

import asyncio
from math import inf
from pathlib import Path

import pytest

import needlemap
from needlemap.errors import NeedlemapError, SettingsError

MINE = (
    "settings: {lengths: [900, 1200], depths: [0, 50, 100], max_answer_tokens: 40}\n"
    "families: {key: {task: passkey}, one: {task: magic}, all: {task: multivalue}}\n"
)
FAMILIES = ["key", "one", "all"]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite of three families."""
    made = tmp_path_factory.mktemp("suites") / "mine.yaml"
    made.write_text(MINE)
    return made


@pytest.fixture(scope="module")
def made(file: Path) -> needlemap.Run:
    """That suite, asked of the baseline."""
    return needlemap.run(f"suite:{file}", out=file.parent / "s", repeats=5, quiet=True)


@pytest.fixture(scope="module")
def lossy(file: Path) -> needlemap.Run:
    """The same trials with so small a window that needles are lost."""
    options = {"window": 700}
    return needlemap.run(
        f"suite:{file}", out=file.parent / "l", repeats=5, quiet=True, model_options=options
    )


def test_a_suite_asks_its_families_and_keeps_each_as_a_run(made):
    assert {family: outcome.scored for family, outcome in made.outcomes.items()} == dict.fromkeys(
        FAMILIES, 30
    )
    assert (made.outcome.scored, made.outcome.stopped) == (90, None)
    assert list(made.families) == FAMILIES
    assert made.families["one"].map().overall == 1.0
    assert len(made.families["all"].records()) == 30


def test_its_figures_are_those_of_the_table(made):
    assert made.scores()["all"] == {900: 0.25, 1200: 0.25}
    assert {length: mean.score for length, mean in made.means().items()} == {900: 0.75, 1200: 0.75}
    assert made.means()[900].low < 0.75 < made.means()[900].high
    assert (made.effective("absolute:70").value, made.effective("absolute:85").value) == (inf, 0)
    assert made.effective().rule.name == "absolute:85"
    assert made.published_length() == 0
    with pytest.raises(SettingsError, match="Unknown rule 'absolut:85'"):
        made.effective("absolut:85")


def test_it_is_printed_as_the_command_prints_it(made, typed):
    assert repr(made) == made.text == typed("report", made.path).stdout
    assert made.text.startswith("suite mine · baseline/bm25\n")


def test_the_same_call_again_asks_nothing(file, made):
    again = needlemap.run(f"suite:{file}", out=made.path, repeats=5, quiet=True)
    assert (again.outcomes, again.text) == ({}, made.text)


def test_what_is_on_the_disk_is_loaded(made):
    loaded = needlemap.load(str(made.path))
    assert (loaded.text, loaded.outcomes, loaded.outcome) == (made.text, None, None)
    with pytest.raises(NeedlemapError, match="nowhere"):
        needlemap.load("nowhere")


def test_what_only_one_family_has_is_taken_of_one(made):
    for asked in (made.map, made.about):
        with pytest.raises(
            NeedlemapError, match=r"several families\. Take one of them: \.families\['key'\]"
        ):
            asked()
    assert len(made.records()) == 90
    assert made.families["one"].families[""].records() == made.families["one"].records()


def test_a_table_has_a_row_a_family_and_length(made):
    pytest.importorskip("pandas")
    frame = made.to_pandas()
    assert frame["family"].tolist() == ["key", "key", "one", "one", "all", "all"]
    assert frame["length_tokens"].tolist() == [900, 1200] * 3
    assert frame["n"].tolist() == [15] * 6
    assert frame["score"].tolist() == [100.0] * 4 + [25.0] * 2


def test_cells_of_all_families_are_one_frame(made):
    pytest.importorskip("pandas")
    frame = made.cells()
    assert frame.groupby("task", sort=False)["n"].sum().to_dict() == {
        "passkey": 30,
        "magic": 30,
        "multivalue": 30,
    }


def test_it_is_drawn_and_saved_with_all_families_side_by_side(made, tmp_path):
    drawn = (
        made.plot().svg
    )  # what all have in common is said once, and no name of a family is broken
    assert [f">{name}<" in drawn or f">{name} ·" in drawn for name in FAMILIES] == [True] * 3
    assert drawn.count("baseline/bm25") == 1
    assert made.save(tmp_path / "maps.svg").read_text().startswith("<svg")
    assert len(made.save(tmp_path / "cells.csv").read_text().splitlines()) == 1 + 3 * 6
    assert (
        "<title>suite mine · baseline/bm25</title>" in made.save(tmp_path / "page.html").read_text()
    )
    bundle, _ = made._repr_mimebundle_()
    assert bundle["image/png"].startswith(b"\x89PNG")
    assert bundle["text/plain"] == made.text


def test_it_works_where_a_loop_runs_already(file, tmp_path):
    async def cell() -> needlemap.Run:
        return needlemap.run(f"suite:{file}", out=tmp_path / "s", quiet=True)

    assert list(asyncio.run(cell()).outcomes) == FAMILIES


def test_a_suite_that_cannot_succeed_says_so_after_its_first_family(file, tmp_path, wire):
    wire.schedule("401", cycle=True)
    asked = {
        "model": "openai/m",
        "base_url": wire.base_url,
        "tokenizer": "cl100k_base",
        "quiet": True,
    }
    with pytest.raises(NeedlemapError, match="every request would fail"):
        needlemap.run(f"suite:{file}", out=tmp_path / "s", canary=False, **asked)
    assert list(needlemap.load(tmp_path / "s").families) == ["key"]


def test_wrong_settings_are_named_and_nothing_is_written(file, tmp_path):
    for settings, said in [
        ({"modle": "baseline/bm25"}, "Unknown setting 'modle'"),
        ({"task": "kv"}, "has its own task"),
        ({"save": False}, "save=False keeps no folder"),
    ]:
        with pytest.raises(SettingsError, match=said):
            needlemap.run(f"suite:{file}", out=tmp_path / "s", **settings)
    with pytest.raises(SettingsError, match="Unknown suite 'smok'"):
        needlemap.run("suite:smok")
    assert not (tmp_path / "s").exists()


def test_a_limit_stops_the_suite_and_the_families_after_it_are_not_begun(file, tmp_path):
    run = needlemap.run(
        f"suite:{file}", out=tmp_path / "s", quiet=True, limit_tokens=9000, concurrency=1
    )
    assert list(run.outcomes) == ["key", "one"]
    assert run.outcomes["one"].stopped == run.outcome.stopped
    assert run.outcome.scored == sum(outcome.scored for outcome in run.outcomes.values())
    assert run.scores().keys() == {"key", "one"}
    assert (run.means(), run.effective(), run.published_length()) == ({}, None, None)


def test_two_suites_are_compared(made, lossy, typed):
    found = needlemap.compare(made, lossy, margin=5)
    # A third family was mostly wrong before: it is not tested, and does not make it 22.
    assert (found.verdict.word, found.loss) == ("FAIL", pytest.approx(100 / 3))
    assert 0 < found.interval[0] < found.loss < found.interval[1]
    assert [row["family"] for row in found.families] == FAMILIES
    assert repr(found) == typed("compare", made.path, lossy.path, "--margin", 5, code=1).stdout
    assert found.text == needlemap.compare(str(made.path), lossy.path, margin=5).text
    pytest.importorskip("pandas")
    assert found.to_pandas()["word"].tolist() == ["FAIL", "FAIL", "NOT ENOUGH DATA"]


def test_a_run_with_one_family_is_not_compared_with_one_of_several(made):
    with pytest.raises(
        NeedlemapError, match=r"is a suite and .* is not\. Compare two suites, or one of its"
    ):
        needlemap.compare(made, made.families["key"])
