"""The page's summary: the numbers that the terminal and `needlemap compare` give, as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from needlemap.errors import SettingsError
from needlemap.reports.labels import interval_label, score_label
from needlemap.reports.page.summary import summary
from needlemap.reports.pairing import compare_loaded
from needlemap.reports.summary import summary_lines
from needlemap.stats.means import depth_scores

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_a_run_has_the_numbers_of_its_map(falling):
    whole = summary([falling], made=NOW)
    assert json.loads(json.dumps(whole, allow_nan=False)) == whole
    (run,) = whole["runs"]
    cells = run["cells"]
    assert {len(column) for column in cells.values()} == {9}
    assert cells["share"] == cells["score"]
    for at, cell in enumerate(falling.map.cells):
        assert run["lengths"][cells["length"][at]][0] == cell.length_tokens
        assert cells["score"][at] == pytest.approx(cell.score, abs=1e-6)
        assert (cells["depth"][at], cells["n"][at]) == (cell.depth, cell.n)
    assert run["depths"] == [[0.0, "0 %", "0"], [0.5, "50 %", "50"], [1.0, "100 %", "100"]]
    assert not run["ragged"]
    assert (whole["made"], whole["title"]) == ("2026-11-20T12:00:00Z", None)


def facts_of(view, cell):
    """What the page says of a cell: each fact's name and words."""
    return {name: texts[at[cell]] for name, texts, at in view["facts"] if at[cell] is not None}


def test_what_is_known_of_a_cell_comes_in_words(falling):
    (run,) = summary([falling], made=NOW)["runs"]
    cell = falling.map.cells[0]
    assert facts_of(run, 0) == {
        "score": f"{score_label(cell.score)} %",
        "n": f"{cell.n} trials",
        "95 % interval": interval_label(cell.low, cell.high),
        "needle at": "0 %",
        "meant for": "0 %",
        "prompt": "700 tokens",
        "not sent": "1 trial",
    }
    assert facts_of(run, 8)["missing"] == "1 (1 timed out)"
    texts, at = run["says"]
    assert texts[at[0]] == f"100.0 % {interval_label(cell.low, cell.high)} n=5"


def test_a_page_answers_first_and_says_where_it_is_lowest(falling, make_run, make_record):
    (run,) = summary([falling], made=NOW)["runs"]
    mean = falling.map.total
    assert run["answer"].startswith(
        f"Mean score {score_label(mean.score)} % {interval_label(mean.low, mean.high)} of 52 "
        "prompts; lowest at 16k tokens ("
    )
    alike = make_run([make_record(depth=depth) for depth in (0.0, 1.0)])
    assert "lowest" not in summary([alike], made=NOW)["runs"][0]["answer"]
    empty = make_run([], cells=[[1000, 0.0, [0]]])
    assert summary([empty], made=NOW)["runs"][0]["answer"] == "Nothing is scored yet"


def test_its_curves_and_lines_are_those_of_the_report(falling):
    (run,) = summary([falling], made=NOW)["runs"]
    cube = falling.cube
    assert run["lines"][: len(summary_lines(cube))] == summary_lines(cube)
    assert run["by_length"]["n"] == [
        falling.map.margins[length].n for length in falling.map.lengths
    ]
    assert run["by_depth"]["score"] == pytest.approx(
        [row.mean.score for row in depth_scores(cube)], abs=1e-6
    )
    rules = {row["rule"]: row for row in run["effective"]}
    assert rules["absolute:85"]["says"] == "mean score at least 85 %"
    assert "worst-depth:85" not in rules
    (other,) = summary([falling], rules=("worst-depth:85",), made=NOW)["runs"]
    assert [row["rule"] for row in other["effective"]] == ["worst-depth:85"]


def test_what_could_not_be_measured_is_counted_by_kind(falling):
    (run,) = summary([falling], made=NOW)["runs"]
    assert run["failures"] == [
        {"kind": "not sent", "count": 1, "examples": []},
        {"kind": "timed out", "count": 1, "examples": ["No answer within 600 s."]},
    ]
    assert (run["totals"]["trials"], run["totals"]["scored"], run["totals"]["missing"]) == (
        54,
        52,
        2,
    )
    assert run["totals"]["usd"] is None


def test_an_unfinished_run_without_any_score_has_no_numbers(make_run):
    run = make_run([], cells=[[1000, 0.0, [0]], [1000, 1.0, [0]]])
    (shown,) = summary([run], made=NOW)["runs"]
    assert shown["cells"]["score"] == [None, None]
    assert shown["by_length"] == {"score": [None], "low": [None], "high": [None], "n": [0]}
    assert (shown["by_depth"]["score"], shown["effective"]) == ([None] * 2, [])


def test_a_ragged_run_scores_equal_parts_of_the_haystack(make_run, make_record):
    places = [
        (1000 * (at + 1), (7 * at + 3 * part) % 97 / 97) for at in range(6) for part in range(5)
    ]
    run = make_run(
        [make_record(length, depth, score=float(depth < 0.5)) for length, depth in places]
    )
    (shown,) = summary([run], made=NOW)["runs"]
    assert shown["ragged"]
    rows = dict(zip(shown["by_depth"]["label"], shown["by_depth"]["score"], strict=True))
    assert rows["0–10%"] == 1.0
    assert all(
        score == 0.0 for label, score in rows.items() if float(label.partition("–")[0]) >= 50
    )
    assert sum(shown["by_depth"]["n"]) == 30


def test_runs_are_named_apart_and_differ_from_the_first(falling, make_run):
    worse = [
        each.model_copy(update={"score": 0.0}) if each.repeat == 2 else each
        for each in falling.records
    ]
    runs = [
        falling,
        replace(falling, path="runs/b", records=tuple(worse)),
        make_run([], "other/c", model="hf/x"),
    ]
    whole = summary(runs, made=NOW)
    assert [run["name"] for run in whole["runs"]] == ["openai/m@a", "openai/m@b", "hf/x"]
    found, refused = whole["differences"]
    comparison, _ = compare_loaded(runs[0], runs[1])
    assert (found["a"], found["b"], found["refused"]) == (0, 1, None)
    assert found["json"]["lost"] == comparison.overall.lost > 0
    claim, _, evidence = found["sheet"]["answer"].partition("; ")
    assert (claim, evidence[:9]) == ("b loses 15.4 points (-54.9 to 100.0)", "52 pairs ")
    assert {len(column) for column in found["cells"].values()} == {9}
    assert refused["b"] == 2
    assert "have no trial (length, depth, repeat) in common" in refused["refused"]


def test_a_password_in_an_address_is_nowhere_in_it(falling):
    about = falling.about.with_settings({"base_url": "http://me:hunter2@host/v1"})
    other = replace(falling, about=about, path="runs/b")
    assert "hunter2" not in json.dumps(summary([falling, other], made=NOW))


def test_title_palette_and_notes_are_passed_on(falling):
    more = {"title": "Ours", "palette": "cividis", "notes": [["cut"]]}
    whole = summary([falling], made=NOW, **more)
    assert (whole["title"], whole["palette"]) == ("Ours", "cividis")
    assert whole["runs"][0]["notes"] == ["cut"]
    assert whole["palette"] in whole["palettes"]
    with pytest.raises(SettingsError, match="Did you mean 'amber'"):
        summary([falling], made=NOW, palette="ambr")


def test_an_imported_run_says_so_and_keeps_its_title(make_run, make_record):
    run = make_run([make_record()], imported={"files": []}, title="GPT-4 128K")
    (shown,) = summary([run], made=NOW)["runs"]
    assert shown["imported"]
    assert shown["title"] == "GPT-4 128K"


def test_a_prompt_that_cells_share_is_left_to_ask_once(make_run):
    cells = [[1000, 0.0, [0]], [1000, 1.0, [0]], [2000, 0.0, [0]]]
    run = make_run([], cells=cells, shared={"k": [[1000, 0.0, 0], [1000, 1.0, 0]]})
    totals = summary([run], made=NOW)["runs"][0]["totals"]
    assert (totals["trials"], totals["unasked"]) == (2, 2)


def test_tokens_planned_to_be_shared_are_those_of_the_prompts_whose_tokens_count(
    make_run, make_record
):
    """A run whose long prompts failed had 95 % of its prompt tokens planned to be shared."""
    answered = make_record(prompt_tokens=1000, shared_tokens=100)
    failed = make_record(
        length=4000,
        score=None,
        scorer=None,
        answer=None,
        latency_s=None,
        failure="timed out",
        shared_tokens=3000,
    )
    totals = summary([make_run([answered, failed])], made=NOW)["runs"][0]["totals"]
    assert (totals["prompt_tokens"], totals["planned_tokens"]) == (1000, 100)


def test_a_second_asking_that_failed_is_a_trial_that_was_not_measured(make_run, make_record):
    """The page said "not measured 0 of 1 trials" over a table of one failure."""
    first = make_record()
    second = make_record(
        key="again",
        second=True,
        score=None,
        scorer=None,
        answer=None,
        failure="timed out",
    )
    (shown,) = summary([make_run([first, second])], made=NOW)["runs"]
    counts = [shown["totals"][name] for name in ("trials", "scored", "missing", "unasked")]
    assert counts == [2, 1, 1, 0]
    assert [(row["kind"], row["count"]) for row in shown["failures"]] == [("timed out", 1)]
