"""The published maps come in with their own numbers: cell means, overall means, n, repeats that
differ."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from pathlib import Path

import pytest

import needlemap
from needlemap.grid import percent
from needlemap.interop.import_command import import_command
from needlemap.interop.imported import ImportOptions

MAPS = {"gpt4_128k": 9.4089, "claude_2_1": 6.0163, "claude_2_1_responses": 6.0163}
NOISE = {
    "gpt4_128k": (105, 25),
    "claude_2_1": (151, 0),
}  # repeated cells; those whose repeats differ


class Published:
    """Published maps as runs, each imported once."""

    def __init__(self, source: Path, folder: Path) -> None:
        self.source, self.folder = source, folder

    def __call__(self, name: str) -> needlemap.Run:
        """The run of a published map."""
        if not (self.folder / name).exists():
            import_command([self.source / f"{name}.csv"], self.folder / name, ImportOptions())
        return needlemap.load(self.folder / name)


@pytest.fixture(scope="module")
def published(shared, tmp_path_factory) -> Published:
    """published(name): a published map as a run."""
    return Published(shared / "data" / "published_maps", tmp_path_factory.mktemp("published"))


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def native(share: float) -> float:
    """A mean share on a judge's scale 1..10."""
    return 1 + 9 * share


@pytest.mark.parametrize("name", ["gpt4_128k", "claude_2_1"])
def test_every_cell_has_its_published_mean_and_n(published, shared, name):
    cells = {
        (cell.length_tokens, percent(cell.depth)): cell for cell in published(name).map().cells
    }
    grid = rows(shared / "data" / "published_maps" / f"{name}_grid.csv")
    assert len(cells) == len(grid)
    for row in grid:
        cell = cells[int(row["context_length"]), float(row["depth_percent"])]
        assert cell.n == int(row["n_runs"])
        assert native(cell.score) == pytest.approx(float(row["score_mean"]), abs=1e-9)
        assert cell.missing == 0


@pytest.mark.parametrize(("name", "mean"), MAPS.items())
def test_the_overall_mean_is_the_published_one(published, name, mean):
    map = published(name).map()
    assert round(native(map.mean_of_means), 4) == mean
    assert map.overall == pytest.approx(
        map.mean_of_means
    )  # every prompt counts once, asked twice or not


@pytest.mark.parametrize(("name", "noise"), NOISE.items())
def test_repeats_are_numbered_and_differ_as_often_as_published(published, name, noise):
    scores = defaultdict(dict)
    for record in published(name).records():
        scores[record.length_tokens, record.depth][record.repeat] = record.scorer.native
    twice = [cell for cell in scores.values() if len(cell) == 2]
    assert (len(twice), sum(len(set(cell.values())) == 2 for cell in twice)) == noise
    assert {tuple(cell) for cell in scores.values()} == {(0,), (0, 1)}


@pytest.mark.parametrize(("name", "noise"), NOISE.items())
def test_the_report_prints_the_noise_floor_of_prompts_asked_again(published, typed, name, noise):
    n, differing = noise
    shown = typed("report", published(name).path).stdout
    assert f"asked again: {differing} of {n} prompts scored otherwise the second time" in shown
    assert ("noise floor: " in shown) == bool(differing)


def test_repeats_are_no_haystacks(published, typed):
    shown = typed("report", published("gpt4_128k").path).stdout
    assert "all prompts: 93.4 [" in shown
    assert "(n=225, 1 haystack: " in shown  # 330 results in 225 cells
    pairs = json.loads(
        typed(
            "compare",
            published("claude_2_1").path,
            published("claude_2_1_responses").path,
            "--json",
        ).stdout
    )
    assert pairs["overall"]["haystacks"] == 1


def test_native_scores_and_answers_are_kept_as_they_were(published, shared):
    file = shared / "data" / "published_maps" / "claude_2_1_responses.csv"
    given = {
        (int(row["context_length"]), float(row["depth_percent"]), int(row["version"])): row
        for row in rows(file)
    }
    records = published("claude_2_1_responses").records()
    assert len(records) == len(given)
    for record in records:
        row = given[record.length_tokens, percent(record.depth), record.repeat + 1]
        assert record.scorer.native == float(row["score"])
        assert record.answer == row["model_response"]
        assert record.scorer.scale == (1, 10)


def test_scores_of_0_and_1_are_shares_already(published):
    run = published("gemini_pro_fork_binary")
    assert run.map().scorer == "substring"
    assert round(run.map().mean_of_means, 4) == 0.8946
    assert run.records()[0].latency_s == 1.384
    assert run.records()[0].finished_at == "2023-12-20 14:05:39+0000"


def test_opencompass_columns_have_the_means_that_their_tool_prints(shared, typed):
    folder = shared / "vectors" / "opencompass" / "summary_example"
    expected = json.loads((folder / "viz_expected_cdme8k.json").read_bytes())
    typed("import", folder / "viz_input_cdme8k.csv", "-o", "oc")
    for model, numbers in expected.items():
        found = needlemap.load(typed.folder / "oc" / model).map()
        assert list(found.lengths) == numbers["context_lengths"]
        assert [percent(depth) for depth in found.depths] == numbers["depths"]
        means = [100 * mean for mean in found.by_length.values()]
        assert means == pytest.approx(numbers["average_depth_score"], abs=1e-9)
        assert f"{100 * found.mean_of_means:.2f}" == numbers["printed"]


@pytest.mark.parametrize("suffix", ["csv", "txt"])
def test_an_opencompass_summary_goes_there_and_back(shared, typed, suffix):
    name = "summary_20231216_161457"
    folder = shared / "vectors" / "opencompass" / "summary_example"
    typed("import", folder / f"{name}.{suffix}", "-o", "oc")
    runs = ("oc/internlm-chat-20b-hf", "oc/other-7b")
    typed("report", *runs, "-o", "back.csv", "--format", "opencompass")
    back = [line.split(",") for line in (typed.folder / "back.csv").read_text().splitlines()]
    given = [line.split(",") for line in (folder / f"{name}.csv").read_text().splitlines()]
    for line in [*back, *given]:
        del line[1]  # the version, a hash of a configuration that the summary does not hold
    assert back == given


def test_a_dash_is_missing_and_never_zero(shared, typed):
    folder = shared / "vectors" / "opencompass" / "summary_example"
    ended = typed("import", folder / "summary_20231216_161457.csv", "-o", "oc")
    last = needlemap.load(typed.folder / "oc" / "other-7b").map().cells[-1]
    assert (last.length_tokens, last.depth, last.score, last.n, last.missing) == (
        3000,
        1.0,
        None,
        0,
        1,
    )
    assert last.failures == {"no result": 1}
    assert "8 results in 9 cells, 1 missing · overall 100.0 (100.0000 on 0..100)" in ended.stderr


def test_means_of_nobody_knows_how_many_answers_are_compared_without_a_verdict(shared, typed):
    folder = shared / "vectors" / "opencompass" / "summary_example"
    typed("import", folder / "viz_input_cdme8k.csv", "-o", "oc")
    shown = typed("compare", "oc/other-7b", "oc/internlm-chat-20b-hf", "--margin", "2").stdout
    assert "A 74.3, B 59.8: difference -14.6 points\n" in shown
    assert "verdict: undecided" in shown.splitlines()[-1]
    assert "the files do not say of how many answers" in shown.splitlines()[-1]
    assert "p=" not in shown
    assert "[" not in shown


def test_dataset_length_sets_the_title_as_their_tool_did(shared, typed):
    folder = shared / "vectors" / "opencompass" / "summary_example"
    typed("import", folder / "viz_input_cdme8k.csv", "-o", "oc", "--dataset-length", "200K")
    drawn = needlemap.load(typed.folder / "oc" / "other-7b").plot().svg
    assert ">other-7b 200K Context Performance<" in drawn
    assert '>Fact Retrieval Across Context Lengths ("Needle In A Haystack")<' in drawn


@pytest.mark.parametrize("name", ["gpt4_128k", "claude_2_1"])
def test_published_maps_are_drawn_under_the_title_of_their_tool(published, typed, name):
    run = published(name)
    assert f">{run.map().model} " in run.plot().svg
    typed("report", run.path, "-o", f"{name}.png")
    assert (typed.folder / f"{name}.png").stat().st_size > 20_000
