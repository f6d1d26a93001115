"""OpenCompass's summary: every model column, data sets apart, and what is refused."""

from __future__ import annotations

import time

import pytest

from needlemap.errors import NeedlemapError
from needlemap.interop.opencompass.summary import from_csv, from_txt

HEAD = "dataset,version,metric,mode,a,b\n"


def test_every_column_is_a_model_and_a_dash_is_missing():
    rows = from_csv(HEAD + "CDME_Length1000Depth50,f,score,gen,30.75,-\n", "s.csv")
    assert [(row.model, row.length, row.depth_percent, row.native) for row in rows] == [
        ("a", 1000, 50, 30.75),
        ("b", 1000, 50, None),
    ]
    assert {row.task for row in rows} == {"CDME"}


def test_depths_may_have_decimals_and_data_sets_a_suffix():
    rows = from_csv(HEAD + "Length4000Depth12.5_origin_en_4k,f,score,gen,1,2\n", "s.csv")
    assert (rows[0].depth_percent, rows[0].task) == (12.5, "origin_en_4k")


def test_other_data_sets_and_metrics_are_kept_apart():
    text = HEAD + "".join(
        f"{dataset}Length1000Depth0{suffix},f,{metric},gen,1,2\n"
        for dataset, suffix, metric in (
            ("", "_p_en", "Depth0"),
            ("", "_p_en", "average_score"),
            ("CDME_", "", "score"),
        )
    )
    assert len({row.series for row in from_csv(text, "s.csv")}) == 3


def test_rows_without_a_place_in_a_map_are_passed_over():
    rows = from_csv(
        HEAD + "mmlu,f,accuracy,gen,50,60\nCDME_Length1000Depth0,f,score,gen,1,2\n", "s.csv"
    )
    assert len(rows) == 2


DASHES = "CDME_Length2000Depth0,-,-,-,-,-\n"


@pytest.mark.parametrize("first", [True, False])
def test_a_row_that_was_not_measured_belongs_to_the_tests_of_its_data_set(first):
    measured = "CDME_Length1000Depth0,f,score,gen,1,2\nCDME_Length1000Depth0,f,accuracy,gen,3,4\n"
    other = "zh_Length1000Depth0,f,score,gen,5,6\n"
    rows = from_csv(HEAD + (DASHES + measured if first else measured + DASHES) + other, "s.csv")
    found = {(row.series, row.length, row.native) for row in rows if row.model == "a"}
    assert found == {
        ("CDME score gen", 1000, 1),
        ("CDME score gen", 2000, None),
        ("CDME accuracy gen", 1000, 3),
        ("CDME accuracy gen", 2000, None),
        ("zh score gen", 1000, 5),
    }


def test_a_summary_that_holds_nothing_but_dashes_is_one_run_with_nothing_in_it():
    rows = from_csv(HEAD + DASHES, "s.csv")
    assert {(row.series, row.native) for row in rows} == {("CDME - -", None)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD + "mmlu,f,accuracy,gen,50,60\n", "no data set with length and depth"),
        (HEAD + "CDME_Length1000Depth0,f,score,gen,1\n", "row 2: 6 columns expected, got 5"),
        (
            HEAD + "CDME_Length1000Depth0,f,score,gen,x,2\n",
            "row 2: field 'a' must be a number, got 'x'",
        ),
        (HEAD + "CDME_Length1000Depth101,f,score,gen,1,2\n", "field 'depth' must lie in 0..100"),
        ("dataset,version,metric,mode\n", "a column a model is expected"),
        ("dataset,version,metric,mode,a,a\n", "a column a model is expected"),
        ("dataset,m\nNeedleBench-Overall-Score-4K,39.60\n", "the first row must be dataset"),
        ("", "the first row must be dataset,version,metric,mode"),
    ],
)
def test_what_makes_no_map_is_refused_in_one_line(text, words):
    with pytest.raises(NeedlemapError, match=r"^s\.csv") as error:
        from_csv(text, "s.csv")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_text_summary_without_its_csv_part_is_refused():
    with pytest.raises(NeedlemapError, match="no section 'csv format'"):
        from_txt("hello\n", "s.txt")


def test_a_summary_of_nothing_but_titles_takes_time_in_proportion():
    """240 kB took 48 s, by the square: each title was followed to the end of the text."""
    began = time.process_time()
    with pytest.raises(NeedlemapError, match="no section 'csv format'"):
        from_txt("csv format\n^^^\n" * 70_000, "s.txt")
    assert time.process_time() - began < 5


def test_a_cell_of_nothing_but_names_takes_time_in_proportion():
    began = time.process_time()
    field = '"' + "Length1Depth1" * 9_000 + '\nx",v,m,mode,1\n'
    assert len(from_csv("dataset,version,metric,mode,m\n" + field * 8, "s.csv")) == 8
    assert time.process_time() - began < 5
