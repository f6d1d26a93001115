"""NeedleBench's own summary becomes a suite: a family a test and language, and its overall
score."""

from __future__ import annotations

import pytest

from needlemap.errors import NeedlemapError
from needlemap.interop.opencompass.summary import from_csv, summary_notes
from needlemap.reports.suite_report import fields_of

SUITE = ["single", "parallel", *(f"reasoning-{needles}" for needles in (2, 3, 4, 5))]


def summary(size: str = "4K", models: str = "a,b", single: str = "90,80", overall: str = "") -> str:
    """As OpenCompass writes it: rules and headers stand between its blocks."""
    leaves = {
        **{f"Single-Needle-Retrieval-{each}-{size}": single for each in ("EN", "ZH")},
        **{f"Multi-Needle-Retrieval-{each}-{size}": "48.00,-" for each in ("EN", "ZH")},
        **{
            f"{n}-Needle-{each}-{size}": "20.00,10.00" for n in range(2, 6) for each in ("EN", "ZH")
        },
    }
    totals = {
        f"NeedleBench-Overall-Score-{size}": overall or "56.40,-",
        f"--------- NeedleBench-{size}-Single-Needle-Retrieval ---------": "-",
        "dataset": models,
        f"Single-Needle-Retrieval(S-RT)-{size}": single,
        f"Multi-Needle-Retrieval(M-RT)-{size}": "48.00,-",
        f"Multi-Needle-Reasoning(M-RS)-{size}": "20.00,10.00",
        f"Multi-Needle-Reasoning-EN-{size}": "20.00,10.00",
    }
    return f"dataset,{models}\n" + "".join(f"{k},{v}\n" for k, v in (totals | leaves).items())


def test_a_row_is_a_test_a_language_a_size_and_a_model():
    rows = from_csv(summary("1000K"), "s.csv")
    assert {(row.length, row.suite, row.mean, row.scale) for row in rows} == {
        (1_000_000, "needlebench", True, (0.0, 100.0))
    }
    assert [row.task for row in rows if row.model == "a"] == [
        f"{test}-{language}" for test in SUITE for language in ("en", "zh")
    ]
    assert {row.native for row in rows if row.model == "b" and "parallel" in row.task} == {None}


def test_sizes_become_lengths_of_one_suite_and_its_overall_score_is_made_anew(typed):
    for size, single in (("4K", "90.00"), ("8K", "60.00")):
        text = summary(size, single=f"{single},1.00").replace("48.00,-", "48.00,48.00")
        (typed.folder / f"{size}.csv").write_text(text)
    ended = typed("import", "4K.csv", "8K.csv", "-o", "both")
    assert "both/a/single-en: a · single-en · 2 results in 2 cells" in ended.stderr
    scores = {each["name"]: each for each in fields_of(typed.folder / "both/a")["scores"]}
    assert [each["score"] for each in scores["overall-v1"]["lengths"]] == [56.4, 44.4]
    assert scores["overall"]["lengths"][0]["score"] == pytest.approx((90 + 48 + 20) / 3)
    assert scores["overall"]["lengths"][0]["low"] is None
    shown = typed("report", "both/a").stdout
    assert shown.startswith("suite needlebench · a\n")
    assert [line.split() for line in shown.splitlines() if line.startswith("overall-v1")] == [
        ["overall-v1", "56.4", "44.4", "50.4", "-"]
    ]


def test_a_score_is_left_out_where_the_file_lacks_a_family_of_it(typed):
    text = "".join(
        line for line in summary(models="a,b").splitlines(True) if "5-Needle" not in line
    )
    (typed.folder / "s.csv").write_text(text)
    typed("import", "s.csv", "-o", "s")
    assert [each["name"] for each in fields_of(typed.folder / "s/a")["scores"]] == ["S-RT", "M-RT"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"overall": "56.40,-"}, "4K: its overall score of 56.40 has the weights of 'overall-v1'"),
        ({"overall": "52.67,-"}, "4K: its overall score of 52.67 has the weights of 'overall'"),
        ({"overall": "70.00,-"}, "4K: its overall score of 70.00 has neither version's weights"),
        ({"single": "48.00,9"}, "OpenCompass's summary takes the first from the second since"),
    ],
)
def test_notes_say_which_weights_a_file_has_and_whether_its_single_score_is_another(given, said):
    notes = summary_notes(summary(**given), "s.csv")
    assert any(said in note for note in notes)
    assert all(note.startswith("s.csv, a, ") for note in notes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dataset\n2-Needle-EN-4K\n", "a column a model is expected"),
        ("dataset,m\n2-Needle-EN-4K,1,2\n", "row 2: 2 columns expected, got 3"),
        ("dataset,m\n2-Needle-EN-4K,x\n", "must be a number, got 'x'"),
        ("dataset,m\n2-Needle-EN-4K,101\n", "101"),
    ],
)
def test_what_is_no_summary_is_refused_in_one_line(text, words, typed):
    (typed.folder / "s.csv").write_text(text)
    said = typed("import", "s.csv", "-o", "s", code=2).stderr
    assert words in said
    assert said.count("\n") == 1


def test_the_summary_that_opencompass_wrote_is_read(shared):
    file = shared / "vectors/opencompass/summary_example/needlebench_4k_summary.csv"
    text = file.read_text(encoding="utf-8")
    rows = from_csv(text, "s.csv")
    assert [row.native for row in rows] == [48.0] * 4 + [20.0] * 8
    assert len(summary_notes(text, "s.csv")) == 2
    with pytest.raises(NeedlemapError, match="row 6"):
        from_csv(text.replace("Retrieval-EN-4K,48.00", "Retrieval-EN-4K,1,2", 1), "s.csv")
