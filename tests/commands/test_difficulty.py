"""`needlemap run --difficulty auto` as a user meets it, with models that get worse step by step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from needlemap.records.folder import RunFolder

# Right as long as few other keys stand in the way: it finds the asked key among its first so many.
MODEL = """
import re
def reads(messages, most):
    text = messages[-1]["content"]
    asked = re.search(r"assigned to (\\S+)\\? ", text)[1]
    found = re.findall(r"assigned to (\\S+) is (\\S+)\\.", text)[:most]
    return dict(found).get(asked, "nothing")
def weak(messages): return reads(messages, 6)
def strong(messages): return reads(messages, 12)
def perfect(messages): return reads(messages, 10_000)
def useless(messages): return "nothing"
def brittle(messages):
    easy = messages[-1]["content"].count("assigned to") < 7
    return perfect(messages) if easy else "nothing"
"""
GRID = (
    "--task",
    "multikey",
    "--lengths",
    "1000,1400",
    "--depths",
    "0:100:11",
    "--max-answer-tokens",
    "40",
)


@pytest.fixture
def asking(typed, monkeypatch):
    """asking(function, *flags): a run of such a model in folder r."""
    (typed.folder / "reader.py").write_text(MODEL)
    monkeypatch.syspath_prepend(typed.folder)

    def asking(function, *flags, code=0):
        return typed(
            "run",
            *GRID,
            "--model",
            f"python/reader:{function}",
            "--tokenizer",
            "cl100k_base",
            *flags,
            code=code,
        )

    return asking


def records(path: Path) -> int:
    return len(list(RunFolder(path).every_record()))


def found_score(path: Path) -> float:
    """The reference model's score, in percent to one digit."""
    frozen = yaml.safe_load((path / "difficulty.yaml").read_text())
    return round(frozen["reference"]["score"], 1)


def test_the_dial_is_raised_until_the_model_errs_and_the_run_goes_on_from_there(asking, tmp_path):
    ended = asking("weak", "--difficulty", "auto", "--repeats", 3, "-o", "r")
    assert "step 1 of 6: keys=4: 100.0" in ended.stderr
    assert "* frozen. Others at the same difficulty: --difficulty r/difficulty.yaml" in ended.stdout
    rows = [line.split() for line in ended.stdout.splitlines() if "keys=" in line]
    score = str(found_score(tmp_path / "r"))
    assert rows == [["1", "keys=4", "100.0", "22"], ["2", "*", "keys=8", score, "22"]]
    found = yaml.safe_load((tmp_path / "r" / "difficulty.yaml").read_text())
    assert found["task"] == "multikey"
    assert found["task_options"] == {"keys": 8}
    assert 60 <= found["reference"]["score"] <= 95
    assert found["reference"]["model"] == "python/reader:weak"
    assert (
        json.loads((tmp_path / "r" / "run.json").read_text())["settings"]["task_options"]["keys"]
        == 8
    )
    assert [records(tmp_path / "r" / "pilots" / name) for name in "01"] == [22, 22]
    assert records(tmp_path / "r") == 66  # a third of which the pilot asked already


def test_others_are_measured_on_the_same_items(asking, typed, tmp_path):
    asking("weak", "--difficulty", "auto", "-o", "r")
    asking("strong", "--difficulty", "r/difficulty.yaml", "-o", "s")
    one, other = (
        {(r.length_tokens, r.depth): r.prompt.sha256 for r in RunFolder(tmp_path / name).records()}
        for name in "rs"
    )
    assert one == other
    shown = typed("compare", "r", "s").stdout
    assert "22 pairs" in shown
    assert "B lost 0" in shown


def test_the_same_command_again_asks_nothing(asking, tmp_path):
    asking("weak", "--difficulty", "auto", "-o", "r")
    before = records(tmp_path / "r")
    again = asking("weak", "--difficulty", "auto", "-o", "r")
    assert records(tmp_path / "r") == before == 22
    assert "trials" not in again.stderr


def test_a_model_that_never_errs_gets_the_hardest_step_with_a_warning(asking, tmp_path):
    ended = asking("perfect", "--difficulty", "auto", "-o", "r")
    assert "step 6 of 6" in ended.stderr
    assert "scores 100.0, outside 60 to 95: no step is hard enough" in ended.stdout
    assert (tmp_path / "r" / "difficulty.yaml").is_file()


def test_a_model_that_always_errs_gets_the_easiest_with_a_warning(asking):
    ended = asking("useless", "--difficulty", "auto", "-o", "r")
    assert "step 1 of 6" in ended.stderr
    assert "step 2" not in ended.stderr
    assert "scores 0.0, outside 60 to 95: no step is easy enough" in ended.stdout


def test_between_a_step_that_is_too_easy_and_one_too_hard_the_nearer_is_taken_with_a_warning(
    asking,
):
    ended = asking("brittle", "--difficulty", "auto", "-o", "r")
    assert "step 2 of 6: keys=8: 0.0" in ended.stderr
    assert "scores 100.0, outside 60 to 95: step 2 is too hard" in ended.stdout


def test_a_limit_counts_the_pilots_too(asking, tmp_path):
    ended = asking(
        "weak", "--difficulty", "auto", "--limit-tokens", "40k", "--repeats", 3, "-o", "r", code=3
    )
    assert "stopped by the budget" in ended.stderr
    folders = [tmp_path / "r", *(tmp_path / "r" / "pilots").iterdir()]
    spent = {
        record.key: record.prompt.tokens
        for folder in folders
        for record in RunFolder(folder).every_record()
        if record.scored
    }
    assert sum(spent.values()) <= 40_000


def test_programs_read_the_steps_the_frozen_one_and_the_run(asking, tmp_path):
    shown = json.loads(asking("weak", "--difficulty", "auto", "--json", "-o", "r").stdout)
    found = shown["difficulty"]
    assert found["file"] == "r/difficulty.yaml"
    assert [(step["options"], step["frozen"]) for step in found["steps"]] == [
        ({"keys": 4}, False),
        ({"keys": 8}, True),
    ]
    assert found["steps"][1]["score"] == pytest.approx(found_score(tmp_path / "r"), abs=0.1)
    assert shown["runs"][0]["overall"]["n"] == 22
    assert shown["exit_code"] == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--task", "single", "--difficulty", "auto"), "Task 'single' has no dial"),
        (
            ("--difficulty", "auto", "--no-save"),
            "leave --live, --fail-under and --no-save out",
        ),
        (
            ("--difficulty", "auto", "--seek", "85"),
            "asks whole grids: leave --seek and --until out",
        ),
        (("--difficulty", "mine.yaml"), "No file at 'mine.yaml'"),
    ],
)
def test_what_it_cannot_do_is_said(typed, flags, said):
    assert said in typed("run", *GRID, *flags, "-o", "x", code=2).stderr


def test_a_frozen_option_cannot_be_given_too(typed, tmp_path):
    (tmp_path / "d.yaml").write_text(
        "{task: multikey, task_options: {keys: 8}, reference: {model: a/b, score: 80, n: 9}}"
    )
    given = ("plan", *GRID, "--difficulty", "d.yaml", "--task-options")
    assert "--difficulty d.yaml sets keys=8: leave it out" in typed(*given, "keys=3", code=2).stderr
    assert json.loads(typed(*given, "digits=9", "--json").stdout)["modes"]


SUITE = (
    "settings: {lengths: [1000, 1400], depths: '0:100:11', max_answer_tokens: 40}\n"
    "families: {keys: {task: multikey}, more: {task: multikey, task_options: {fresh: repeat}}}\n"
)


@pytest.mark.usefixtures("asking")
def test_each_family_of_a_suite_has_a_difficulty_of_its_own(typed, tmp_path):
    (tmp_path / "two.yaml").write_text(SUITE)
    model = ("--model", "python/reader:weak", "--tokenizer", "cl100k_base", "-o", "s")
    ended = typed("run", "suite:two.yaml", *model, "--difficulty", "auto", "--repeats", 2)
    assert "Others at the same difficulty: --difficulty s\n" in ended.stdout
    assert ended.stdout.startswith("suite two · python/reader:weak\n")
    for family in ("keys", "more"):
        found = yaml.safe_load((tmp_path / "s" / family / "difficulty.yaml").read_text())
        assert found["task_options"] == {"keys": 8}
        assert [records(tmp_path / "s" / family / "pilots" / step) for step in "01"] == [22, 22]
        assert records(tmp_path / "s" / family) == 44
    again = typed("run", "suite:two.yaml", *model, "--difficulty", "auto", "--repeats", 2)
    assert records(tmp_path / "s" / "keys") == 44
    assert again.stdout == ended.stdout

    strong = ("--model", "python/reader:strong", "--tokenizer", "cl100k_base", "-o", "t", "--quiet")
    typed("run", "suite:two.yaml", *strong, "--repeats", 2, "--difficulty", "s")
    assert json.loads(typed("compare", "s", "t", "--json").stdout)["overall"]["n"] == 88
    assert (
        "No file at 'nowhere'"
        in typed("plan", "suite:two.yaml", "--difficulty", "nowhere", code=2).stderr
    )


@pytest.mark.usefixtures("asking")
def test_the_limits_of_a_suite_count_all_pilots(typed, tmp_path):
    (tmp_path / "two.yaml").write_text(SUITE)
    model = ("--model", "python/reader:weak", "--tokenizer", "cl100k_base", "-o", "s")
    flags = ("--difficulty", "auto", "--limit-tokens", "90k", "--repeats", 2)
    ended = typed("run", "suite:two.yaml", *model, *flags, code=3)
    assert "stopped by the budget" in ended.stderr
    found = [
        record
        for file in (tmp_path / "s").rglob("run.json")
        for record in RunFolder(file.parent).every_record()
        if record.scored
    ]
    spent = {(record.run, record.key): record.prompt.tokens for record in found}
    assert 60_000 < sum(spent.values()) <= 90_000


def test_a_difficulty_found_with_another_model_is_not_found_again(asking):
    asking("weak", "--difficulty", "auto", "-o", "r")
    ended = asking("strong", "--difficulty", "auto", "-o", "r", code=2)
    assert "was found with python/reader:weak" in ended.stderr
