"""`--json`: what a run came to, as one document; `--fail-under`: its mean against a threshold."""

from __future__ import annotations

import json

import pytest

from needlemap.reports.goals import MeanScore, threshold_verdict

GRID = ("--lengths", "1k,2k", "--depths", "0,50,100", "--repeats", "2")
LOSSY = ("--model-options", "window=1000")


@pytest.fixture
def ran(needlemap):
    """A run that finds all at 1k and not all at 2k."""
    needlemap("run", "bm25", *GRID, *LOSSY, "--quiet", "-o", "r")
    return needlemap


def document(text: str) -> dict:
    return json.loads(text)


def test_a_report_is_one_document_in_the_words_and_units_of_the_csv(ran):
    run = document(ran("report", "r", "--json").stdout)["runs"][0]
    assert run["run"] == "r"
    assert (run["model"], run["task"], run["scorer"]) == ("baseline/bm25", "single", "substring")
    assert run["missing"] == 0
    assert run["overall"]["n"] == 12
    assert 0 < run["overall"]["low"] < run["overall"]["score"] < run["overall"]["high"] < 100
    assert [row["length_tokens"] for row in run["lengths"]] == [1000, 2000]
    assert [row["depth_percent"] for row in run["depths"]] == [0, 50, 100]
    assert len(run["cells"]) == 6
    ran("report", "r", "-o", "cells.csv")
    header = (ran.folder / "cells.csv").read_text().splitlines()[0].split(",")
    assert set(run["cells"][0]) == {*header} - {"run", "model", "task"}


def test_an_effective_length_beyond_the_longest_tested_is_that_and_says_so(needlemap):
    needlemap("run", "bm25", *GRID, "--quiet", "-o", "r")
    rules = document(needlemap("report", "r", "--json", "--rules", "absolute:85,auc").stdout)[
        "runs"
    ][0]
    found = {each["rule"]: each for each in rules["effective_lengths"]}
    assert found["absolute:85"]["value"] == 2000
    assert found["absolute:85"]["beyond"] == ["value"]
    assert found["auc"]["value"] == 100


def test_several_runs_are_one_document_and_a_suite_has_its_families_and_their_mean(ran):
    ran("run", "suite:smoke", "--lengths", "1k", "--depths", "0", "--quiet", "-o", "s")
    plain, suite = document(ran("report", "r", "s", "--json").stdout)["runs"]
    assert plain["run"] == "r"
    assert suite["suite"] == "smoke"
    scores = [family["overall"]["score"] for family in suite["families"].values()]
    assert suite["overall"]["score"] == pytest.approx(sum(scores) / len(scores))


def test_a_run_prints_the_document_alone_with_its_exit_code(needlemap):
    ended = needlemap("run", "bm25", *GRID, "--json", "-o", "r")
    found = document(ended.stdout)
    assert found["exit_code"] == 0
    assert found["runs"] == document(needlemap("report", "r", "--json").stdout)["runs"]
    assert "12 trials" in ended.stderr
    stopped = needlemap("run", "bm25", *GRID, "--json", "--limit-tokens", "4000", "-o", "s", code=3)
    found = document(stopped.stdout)
    assert found["exit_code"] == 3
    assert "of 4,000 tokens" in found["runs"][0]["stopped"]
    assert found["runs"][0]["missing"] == 7


def test_a_suite_s_run_prints_it_too(needlemap):
    suite = ("run", "suite:smoke", "--lengths", "1k", "--depths", "0", "--json")
    assert document(needlemap(*suite).stdout)["runs"][0]["suite"] == "smoke"


def test_a_page_and_a_document_are_not_made_at_once(ran):
    assert "leave -o out" in ran("report", "r", "--json", "-o", "x.html", code=2).stderr


@pytest.mark.parametrize(
    ("flags", "threshold", "code", "said"),
    [
        ((), "60", 0, "PASS run: mean 100.0 % (71.4 to 100.0), wanted 60"),
        ((), "90", 4, "NOT ENOUGH DATA run: mean 100.0 % (71.4 to 100.0), wanted 90"),
        (
            ("--model", "baseline/random"),
            "60",
            1,
            "FAIL run: mean 0.0 % (0.0 to 28.6), wanted 60, below",
        ),
    ],
)
def test_a_mean_passes_fails_or_cannot_be_told_by_its_interval(
    needlemap, flags, threshold, code, said
):
    ended = needlemap("run", "bm25", *GRID, *flags, "--fail-under", threshold, "-o", "r", code=code)
    assert said in ended.stdout
    again = needlemap(
        "run", "bm25", *GRID, *flags, "--fail-under", threshold, "-o", "r", "--json", code=code
    )
    verdict = document(again.stdout)["runs"][0]["verdict"]
    assert (verdict["fail_under"], document(again.stdout)["exit_code"]) == (float(threshold), code)
    result = document(again.stdout)["result"]
    assert (result["code"], verdict["result"]) == (code, result)
    assert result["line"].startswith(said)


@pytest.mark.parametrize(
    ("mean", "word"),
    [
        (MeanScore(90.0, 82.0, 95.0, 0, 82.0, 95.0), "PASS"),
        (MeanScore(90.0, 82.0, 95.0, 3, 79.0, 97.0), "NOT ENOUGH DATA"),
        (MeanScore(83.0, 70.0, 92.0, 0, 70.0, 92.0), "NOT ENOUGH DATA"),
        (MeanScore(83.0, 70.0, 92.0, 0, 70.0, 92.0, below=(4_000,)), "SUSPECT"),
        (MeanScore(99.0, 70.0, 100.0, 24, 50.0, 100.0, left_out=(4_000,)), "SUSPECT"),
        (MeanScore(66.7, 37.9, 86.8, 0, 37.9, 86.8, below=(4_000,)), "SUSPECT"),
        (MeanScore(66.7, None, None, 0, None, None), "SUSPECT"),
        (MeanScore(60.0, 50.0, 70.0, 0, 50.0, 70.0, below=(4_000,)), "FAIL"),
        (MeanScore(42.9, 21.4, 67.4, 66, 7.5, 90.0), "SUSPECT"),
        (MeanScore(None, None, None, 12, None, None), "NO RESULT"),
    ],
)
def test_a_mean_or_a_length_below_the_threshold_is_suspect(mean, word):
    """`--on-undecided pass` let a mean of 66.7 pass at 80, with 4k at 0 of 4."""
    assert threshold_verdict(mean, 80).word == word


def test_exit_zero_prints_the_word(needlemap):
    asked = ("run", "bm25", *GRID, "--model", "baseline/random", "--fail-under", "60", "-o", "r")
    assert needlemap(*asked, "--exit-zero", code=0).stdout.splitlines()[-1].startswith("FAIL run: ")


def test_what_was_not_measured_counts_against_passing_and_the_verdict_outranks_a_limit(needlemap):
    # One at a time: which trials a limit leaves out must not be a matter of chance.
    flags = ("--limit-tokens", "8000", "--fail-under", "40", "--concurrency", "1", "-o", "r")
    ended = needlemap("run", "bm25", *GRID, *flags, code=4)
    last = ended.stdout.splitlines()[-1]
    assert last.startswith("NOT ENOUGH DATA run: mean 100.0 % (64.2 to 100.0), wanted 40")
    assert last.endswith(
        ", 4 trials without a score; these prompts; the same command asks them again."
    )
    assert needlemap("run", "bm25", *GRID, "--fail-under", "40", "-o", "r", code=0)


def test_a_suite_is_judged_by_the_mean_over_its_families(needlemap):
    suite = ("run", "suite:smoke", "--lengths", "1k", "--depths", "0", "--quiet")
    assert (
        "give 5 or more --repeats"
        in needlemap(*suite, "--fail-under", "20", "-o", "s", code=4).stdout
    )
    ended = needlemap(*suite, "--repeats", "5", "--fail-under", "5", "-o", "s5")
    assert ended.stdout.splitlines()[-1].startswith("PASS run: mean ")


def test_a_length_that_one_family_lacks_does_not_pass_for_the_others(needlemap):
    """2k was wrong in one family and unmeasured in the other, so the mean left it out: PASS at
    100 %."""
    (needlemap.folder / "suite.yaml").write_text(
        "families: {english: {task: passkey}, chinese: {task: passkey, language: chinese}}\n"
    )
    (needlemap.folder / "short.py").write_text(
        "import re\n\n"
        "def answers(messages):\n"
        "    text = messages[-1]['content']\n"
        "    is_chinese = '的' in text\n"
        "    if len(text) > (900 if is_chinese else 4000):\n"
        "        if is_chinese:\n"
        "            raise RuntimeError('too long')\n"
        "        return 'I do not know'\n"
        "    return re.search(r'[0-9]{5}', text)[0]\n"
    )
    grid = ("--lengths", "500,2k", "--depths", "0,50", "--repeats", "9", "--quiet")
    model = ("--model", "python/short:answers", "--tokenizer", "cl100k_base")
    asked = ("run", "suite:suite.yaml", *grid, *model, "--fail-under", "70", "--no-canary")
    last = needlemap(*asked, "-o", "r", code=5).stdout.splitlines()[-1]
    assert last.startswith("SUSPECT run: mean 100.0 %")
    assert "not all families have a score at 2k, 18 trials without a score" in last


def test_a_threshold_that_no_mean_could_reach_is_refused_before_anything_is_asked(needlemap):
    ended = needlemap("run", "bm25", *GRID, "--fail-under", "101", "-o", "r", code=2)
    assert "above 0 and up to 100, got 101." in ended.stderr
    assert not (needlemap.folder / "r").exists()
