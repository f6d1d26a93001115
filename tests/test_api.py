"""The Python interface: `run`, `load`, and what a `Run` shows."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import needlemap
from needlemap.errors import NeedlemapError, SettingsError

GRID = {"lengths": [500, 900], "depths": [0, 50, 100], "quiet": True}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of the baseline."""
    out = tmp_path_factory.mktemp("api") / "r"
    return needlemap.run(model="baseline/bm25", out=out, repeats=2, **GRID)


def test_a_run_asks_keeps_and_shows(made):
    assert made.outcome.scored == 12
    assert made.map().overall == 1.0
    assert [cell.n for cell in made.map().cells] == [2] * 6
    assert len(made.records()) == 12
    assert repr(made).endswith(
        ": baseline/bm25, single, 500–900 tokens, overall 100.0 (n=12, 0 missing) [71.4, 100.0])"
    )


def test_cells_are_a_frame_with_n_and_intervals(made):
    pytest.importorskip("pandas")
    frame = made.cells()
    assert frame["length_tokens"].tolist() == [500] * 3 + [900] * 3
    assert frame["depth_percent"].tolist() == [0, 50, 100] * 2
    assert frame["n"].tolist() == [2] * 6
    assert frame["score"].tolist() == [100.0] * 6
    assert (frame["low"] < 100).all()
    assert frame["low"].tolist() == made.map().to_pandas()["low"].tolist()


def test_the_same_call_again_asks_nothing(made):
    again = needlemap.run(model="baseline/bm25", out=made.path, repeats=2, **GRID)
    assert again.outcome.scored == 0
    assert again.map() == made.map()


def test_what_is_on_the_disk_is_loaded(made):
    loaded = needlemap.load(str(made.path))
    assert (loaded.map(), loaded.outcome) == (made.map(), None)
    assert loaded.about()["settings"]["model"] == "baseline/bm25"
    with pytest.raises(NeedlemapError, match="No run at 'nowhere'"):
        needlemap.load("nowhere")


def test_without_a_folder_a_new_one_is_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = needlemap.run(model="baseline/bm25", **GRID)
    assert run.path.parent.name == "runs"
    assert run.path.is_dir()


def test_it_works_where_a_loop_runs_already(tmp_path):
    async def cell() -> needlemap.Run:
        return needlemap.run(model="baseline/bm25", out=tmp_path / "r", **GRID)

    assert asyncio.run(cell()).outcome.scored == 6


def test_presets_files_and_older_names_are_taken(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text("model: baseline/bm25\nlengths: [500]\nquiet: true\n")
    run = needlemap.run(str(file), out=tmp_path / "r", document_depth_percents=[50])
    assert [(cell.length_tokens, cell.depth) for cell in run.map().cells] == [(500, 0.5)]


def test_wrong_settings_are_named_and_nothing_is_written(tmp_path):
    with pytest.raises(SettingsError, match="Unknown setting 'modle'"):
        needlemap.run(modle="baseline/bm25", out=tmp_path / "r")
    with pytest.raises(SettingsError, match="save=False keeps no folder"):
        needlemap.run(model="baseline/bm25", out=tmp_path / "r", save=False)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("contexts", [False, True])
def test_a_run_that_is_not_saved_is_returned_and_leaves_only_the_contexts_that_were_wanted(
    tmp_path, monkeypatch, contexts
):
    """As with the older tool's save_results and save_contexts, which know nothing of each other."""
    monkeypatch.chdir(tmp_path)
    run = needlemap.run(
        model="baseline/bm25",
        lengths=[500],
        depths=[50],
        repeats=1,
        save_results=False,
        save_contexts=contexts,
        quiet=True,
    )
    assert [record.score for record in run.records()] == [1]
    folder = run.path
    assert [file.name for file in tmp_path.iterdir()] == (["contexts"] if contexts else [])
    if contexts:
        assert len(list(Path("contexts").glob("len_500_*.txt"))) == 1
    del run
    gc.collect()
    assert not folder.exists()


def test_a_run_that_cannot_succeed_says_so(tmp_path, wire, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    wire.schedule("401", cycle=True)
    asked = {"model": "openai/m", "base_url": wire.base_url, "tokenizer": "cl100k_base"}
    with pytest.raises(NeedlemapError, match="every request would fail"):
        needlemap.run(**asked, out=tmp_path / "r", **{**GRID, "lengths": [900]})


def test_it_is_drawn_and_saved_by_its_suffix(made, tmp_path):
    assert "<title>500 tokens" in made.plot().svg
    assert ">Mine<" in made.plot(title="Mine").svg
    assert "Average Depth Score" in made.plot(style="opencompass").svg
    assert "Bands: 95 % intervals." in made.save(tmp_path / "c.svg", curves=True).read_text()
    assert made.save(tmp_path / "map.svg").read_text().startswith("<svg")


def test_separate_runs_are_drawn_as_curves_in_one_picture(made, tmp_path):
    other = needlemap.run(
        model="demo/retriever", lengths=[500], depths=[0], out=tmp_path / "o", quiet=True
    )
    drawn = needlemap.curves([made, other.path], title="Both", width="column")
    assert [f">{name}" in drawn.svg for name in ("Both", "baseline/bm25", "demo/retriever")] == [
        True
    ] * 3
    assert drawn.save(tmp_path / "new" / "c.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(SettingsError, match=r"ends in \.png, \.svg, \.pdf"):
        drawn.save(tmp_path / "c.bmp")


def test_a_notebook_shows_the_picture_without_a_network_and_a_line(made):
    bundle, metadata = made._repr_mimebundle_()
    assert bundle["text/plain"] == repr(made)
    assert bundle["image/png"].startswith(b"\x89PNG")
    assert re.findall(r"https?://[^\"]+", bundle["image/svg+xml"]) == ["http://www.w3.org/2000/svg"]
    assert "script" not in bundle["image/svg+xml"]
    assert metadata["image/png"]["width"] > 300


@pytest.fixture(scope="module")
def lossy(tmp_path_factory):
    """The same trials with so small a window that needles are lost."""
    out = tmp_path_factory.mktemp("api") / "lossy"
    options = {"window": 60}
    return needlemap.run(model="baseline/bm25", model_options=options, out=out, repeats=2, **GRID)


def test_two_runs_are_compared(made, lossy):
    found = needlemap.compare(made, lossy, margin=25)
    assert (found.verdict.word, found.code, found.n) == ("SUSPECT", 5, 12)
    assert found.interval[0] < 0 < found.loss < found.interval[1]
    assert found.text == repr(found)
    assert found.text.endswith(f"{found.verdict.line('compare')}\n")
    assert "hardly ever wrong" in found.warning
    assert 0 < found.p < 0.05


def test_runs_are_compared_by_their_folders_too(made, lossy):
    found = needlemap.compare(str(made.path), lossy.path)
    assert found.text == needlemap.compare(made, lossy).text
    with pytest.raises(NeedlemapError, match="No run at 'nowhere'"):
        needlemap.compare(made, "nowhere")
    with pytest.raises(SettingsError, match="A margin is in points from 0 to 100"):
        needlemap.compare(made, lossy, margin=-1)


def test_a_comparison_is_a_table_a_row_a_length(made, lossy):
    pytest.importorskip("pandas")
    found = needlemap.compare(made, lossy)
    frame = found.to_pandas()
    assert frame["length_tokens"].tolist() == [500, 900]
    assert {"score_a", "score_b", "loss", "low", "high", "p", "p_holm", "n"} <= set(frame.columns)
    assert frame["loss"].tolist() == [row["loss"] for row in found.lengths]


def test_a_comparison_is_shown_and_saved_as_maps(made, lossy, tmp_path):
    found = needlemap.compare(made, lossy)
    assert all(f">{title}<" in found.plot().svg for title in ("A: r", "B: lossy", "Loss of B"))
    bundle, _ = found._repr_mimebundle_()
    assert bundle["text/plain"] == found.text
    assert bundle["image/svg+xml"].startswith("<svg")
    saved = found.save(tmp_path / "new" / "both.svg", width="page").read_text()
    assert 'width="486pt"' in saved


def test_a_figure_for_a_paper_is_saved_at_its_width(made, tmp_path):
    assert 'width="234pt"' in made.save(tmp_path / "map.svg", width="column").read_text()
    with pytest.raises(SettingsError, match="is no width"):
        made.save(tmp_path / "map.svg", width="wide")


def test_a_plan_is_what_the_command_prints_as_json(typed):
    grid = {"lengths": "1k,4k", "depths": [0, 50, 100]}
    found = needlemap.make_plan(model="openai/gpt-4o", cache_tokens=100_000, **grid)
    flags = ("--model", "openai/gpt-4o", "--lengths", "1k,4k", "--depths", "0,50,100")
    assert found == json.loads(typed("plan", *flags, "--cache-tokens", "100000", "--json").stdout)
    assert {row["mode"] for row in found["modes"]} == {"single", "exact", "bins"}
    with pytest.raises(SettingsError, match="must be above 0"):
        needlemap.make_plan(model="openai/gpt-4o", workers=0)


def test_a_plan_of_a_seek_is_what_the_command_prints_as_json(typed):
    """It was the plan of a grid that a seek never asks."""
    found = needlemap.make_plan(lengths="1k,8k", seek=85)
    assert found == json.loads(typed("plan", "--lengths", "1k,8k", "--seek", 85, "--json").stdout)
    assert found["least"] < found["most"]


def test_an_unknown_name_is_no_attribute():
    assert {"compare", "load", "make_plan", "run"} <= set(dir(needlemap))
    with pytest.raises(AttributeError, match="no attribute 'runn'"):
        needlemap.runn  # noqa: B018


def test_importing_stays_light_until_a_name_is_used():
    code = "import needlemap, sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = [name for name in json.loads(done.stdout) if name.startswith("needlemap")]
    assert loaded == ["needlemap"]


def test_loading_a_map_draws_nothing_and_reaches_no_provider(made):
    code = f"import needlemap, sys; needlemap.load({str(made.path)!r}).map(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"pandas", "openai", "torch", "resvg_py"}.isdisjoint(done.stdout.split())
