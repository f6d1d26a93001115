"""Several models in one command: one budget, a plan and a folder each, one report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

TWO = ("--model", "baseline/bm25", "--model", "baseline/random")
GRID = ("--lengths", "1k,2k", "--depths", "0,100")
TABLE = """\
model               1k     2k    all
baseline/bm25    100.0  100.0  100.0
baseline/random    0.0    0.0    0.0
"""


def models(found: str) -> list[str]:
    """Whose runs a JSON document holds."""
    return [run["model"] for run in json.loads(found)["runs"]]


def test_each_has_a_folder_of_its_own_and_all_have_one_table(needlemap):
    ended = needlemap("run", *TWO, *GRID, "-o", "m")
    assert ended.stdout.endswith(f"\n{TABLE}")
    assert "model 2 of 2: baseline/random" in ended.stderr
    assert ended.stderr.endswith("all: m\nreport: needlemap report m -o report.html\n")
    assert [run.name for run in sorted((needlemap.folder / "m").iterdir())] == [
        "baseline-bm25",
        "baseline-random",
    ]
    assert (
        len(needlemap.records("m/baseline-bm25"))
        == len(needlemap.records("m/baseline-random"))
        == 4
    )


def test_one_report_shows_all(needlemap):
    needlemap("run", *TWO, *GRID, "-o", "m", "--quiet")
    assert needlemap("report", "m").stdout.startswith(TABLE)
    assert models(needlemap("report", "m", "--json").stdout) == ["baseline/bm25", "baseline/random"]
    needlemap("report", "m", "-o", "all.csv")
    needlemap("report", "m", "-o", "all.html")
    assert (needlemap.folder / "all.csv").read_text().count("m/baseline-random,") == 4
    assert "baseline/random" in (needlemap.folder / "all.html").read_text()


def test_the_same_command_goes_on_and_one_more_model_is_a_folder_more(needlemap, wire):
    served = ("--model", "openai/m", "--base-url", wire.base_url, "--tokenizer", "cl100k_base")
    needlemap("run", *served, "--model", "baseline/bm25", *GRID, "-o", "m", "--quiet")
    asked = len(wire.log())
    ended = needlemap("run", *served, *TWO, *GRID, "-o", "m", "--json")
    assert len(wire.log()) == asked
    assert models(ended.stdout) == ["openai/m", "baseline/bm25", "baseline/random"]


def test_a_plan_shows_each_and_their_sum(needlemap):
    named = ("--model", "openai/gpt-4o", "--model", "openai/gpt-4o-mini")
    ended = needlemap("plan", *named, *GRID).stdout
    assert ended.count("mode     cells") == 2
    total = ended.splitlines()[-1].split()
    assert total[:3] == ["total", "8", "8"]
    found = json.loads(needlemap("plan", *named, *GRID, "--json").stdout)
    own = [next(row for row in plan["modes"] if row["mode"] == "exact") for plan in found["models"]]
    assert found["total"]["asked"] == sum(row["asked"] for row in own)
    assert found["total"]["usd_plain"] == pytest.approx(sum(row["usd_plain"] for row in own))


def test_a_limit_holds_over_all_and_no_model_takes_another_s_share(needlemap):
    ended = needlemap("run", *TWO, *GRID, "-o", "m", "--limit-tokens", "7000", code=3)
    rows = [
        records
        for name in ("bm25", "random")
        for records in [needlemap.records(f"m/baseline-{name}")]
    ]
    assert all(len(row) >= 2 for row in rows)
    assert sum(record["prompt"]["tokens"] for row in rows for record in row) <= 7000
    assert "stopped by the budget" in ended.stderr
    assert needlemap("run", *TWO, *GRID, "-o", "m", "--limit-tokens", "20k").stdout.endswith(TABLE)


def test_what_one_model_leaves_of_the_budget_another_may_use(needlemap):
    needlemap(
        "run",
        *TWO[:2],
        "--lengths",
        "1k,2k",
        "--depths",
        "0,100",
        "-o",
        "m/baseline-bm25",
        "--quiet",
    )
    ended = needlemap("run", *TWO, *GRID, "-o", "m", "--limit-tokens", "10k")
    assert ended.stdout.endswith(TABLE)


def test_a_model_that_fails_does_not_keep_the_others_from_being_asked(needlemap, wire):
    wire.schedule(*["401"] * 9)
    served = ("--model", "openai/m", "--base-url", wire.base_url, "--tokenizer", "cl100k_base")
    ended = needlemap("run", *served, "--model", "baseline/bm25", *GRID, "-o", "m", code=2)
    assert "stopped" in ended.stderr
    assert len(needlemap.records("m/baseline-bm25")) == 4


@pytest.mark.parametrize("named", ["two.yaml", "suite:two.yaml"])
def test_in_yaml_they_are_a_list_and_may_have_settings_of_their_own(needlemap, wire, named):
    own = [
        {
            "model": "openai/m",
            "base_url": wire.base_url,
            "label": "mine",
            "tokenizer": "cl100k_base",
        }
    ]
    shared = {"model": [*own, "baseline/bm25"], "lengths": [1000], "depths": [0]}
    suite = {"settings": shared, "families": {"key": {"task": "passkey"}}}
    (needlemap.folder / "two.yaml").write_text(
        yaml.safe_dump(suite if "suite" in named else shared)
    )
    ended = needlemap("run", named, "-o", "m", "--json")
    assert models(ended.stdout) == ["mine", "baseline/bm25"]
    assert {folder.name for folder in (needlemap.folder / "m").iterdir()} == {
        "mine",
        "baseline-bm25",
    }
    assert models(
        needlemap("run", named, "--model", "baseline/random", "-o", "r", "--json").stdout
    ) == ["baseline/random"]


def test_a_suite_asks_its_families_of_each(needlemap):
    grid = ("--lengths", "1k", "--depths", "0", "--quiet")
    ended = needlemap("run", "suite:smoke", *TWO, *grid, "-o", "s")
    assert ended.stdout.count("suite smoke · ") == 2
    assert [line.split()[0] for line in ended.stdout.splitlines()[-3:]] == ["model", *TWO[1::2]]
    assert (needlemap.folder / "s/baseline-random/passkey/run.json").is_file()


def test_each_is_judged_and_the_worst_decides(needlemap):
    ended = needlemap("run", *TWO, *GRID, "--repeats", "3", "-o", "m", "--fail-under", "60", code=1)
    verdicts = ended.stdout.splitlines()[-2:]
    assert verdicts[0].startswith("baseline-bm25: PASS run: mean 100.0")
    assert verdicts[1].startswith("baseline-random: FAIL run: mean 0.0")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("run", *TWO, *TWO),
            "Model 'baseline/bm25' is named twice. Name it once, or give each a label",
        ),
        (("prompts", *TWO), "2 models are named, and this takes one. Give one with --model."),
        (("run", *TWO, "--temperature", "0.5"), "Nothing reads --temperature here"),
        (
            ("run", *TWO, "--model", "openai/x", "--tokenizer", "qwen3", *GRID),
            "No key for api.openai.com. Type: export OPENAI_API_KEY=YOUR-KEY",
        ),
        (
            (
                "run",
                "--model",
                "openai/x",
                "--model",
                "anthropic/y",
                "--base-url",
                "http://127.0.0.1:9/v1",
            ),
            "give each its own: model: [{model: openai/NAME, base_url: URL}, ...]",
        ),
        (("run", "odd.yaml"), "'task' cannot be one model's own. Known: base_url"),
        (("run", "none.yaml"), "One of several models is no model: 7."),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_asked(needlemap, words, said):
    (needlemap.folder / "odd.yaml").write_text(
        "model: [{model: baseline/bm25, task: multi}, baseline/random]"
    )
    (needlemap.folder / "none.yaml").write_text("model: [7, baseline/random]")
    assert said in needlemap(*words, code=2).stderr
    assert not list(Path(needlemap.folder).glob("runs/*/*"))
