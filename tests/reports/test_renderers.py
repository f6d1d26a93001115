"""A report has the same facts on each of its faces."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest

from needlemap.reports.renderers.frame import to_pandas
from needlemap.reports.renderers.json import to_json
from needlemap.reports.renderers.junit import to_junit
from needlemap.reports.renderers.markdown import to_markdown
from needlemap.reports.renderers.page import to_sheet
from needlemap.reports.renderers.text import show_report, to_text
from needlemap.reports.report import (
    COUNT,
    LENGTH,
    LOSS,
    SCORE,
    SENTENCE,
    Claim,
    Column,
    Fact,
    Line,
    Parts,
    Report,
    Row,
    Table,
)
from needlemap.stats.effective import Mean
from needlemap.stats.verdicts import Verdict

COLUMNS = (
    Column("length", "length", LENGTH),
    Column("n", "pairs", COUNT),
    Column("change", "loss", LOSS),
    Column("seconds", "seconds", COUNT, wide=True),
    Column("said", "found", SENTENCE),
    Column("doubled", "twice", COUNT, of=lambda row: 2 * row["n"]),
)
ROWS = (
    Row({"length": 128_000, "n": 1200, "change": 0.07311, "seconds": 3, "said": "<b>", "raw": 1}),
    Row(
        {"length": 128_400, "n": 5, "change": None, "seconds": 4, "said": "fine", "raw": 2},
        details=("looks like: a fault\n  try: another",),
        to="far",
    ),
    Row({"length": 9, "n": 0, "change": 0.0, "seconds": 0, "said": "", "raw": 3}, shown=False),
)
VERDICT = Verdict("FAIL", "b loses 7 points", "40 pairs", "these prompts", "look at 128k")
LAST = "FAIL ab: b loses 7 points, 40 pairs; these prompts; look at 128k."
REPORT = Report(
    "ab",
    "b against a",
    (
        Fact("model", "demo/retriever"),
        Fact("drift", 1.25, "the last third lost 1.3 points"),
        Fact(value="worse", head="Verdict", note="margin 2 points"),
        Table("lengths", COLUMNS, ROWS, title="by length:"),
        Table("worst", rows=(Row({"place": 3}, details=("prompt 3: lost",)),), after="see it: ..."),
        Parts("families", {"one": Report("ab", "one", (Fact("n", 8),))}),
    ),
    VERDICT,
    (Claim("b against a", "FAIL"), Claim("answers", "NOT ENOUGH DATA", "too few", "too few: 3")),
    (Line("far", {1000: Mean(0.5, None, None), 2000: None}),),
)


def test_text_holds_the_sentences_the_shown_rows_and_the_verdict_last() -> None:
    assert to_text(REPORT).splitlines() == [
        "the last third lost 1.3 points",
        "by length:",
        "length  pairs  loss  found  twice",
        "  128k  1,200   7.3  <b>    2,400",
        "128.4k      5        fine      10",
        "",
        "looks like: a fault",
        "  try: another",
        "",
        "prompt 3: lost",
        "see it: ...",
        "",
        LAST,
    ]


def test_a_table_that_is_wider_than_the_console_is_printed_whole() -> None:
    """Of 30 lengths the cells were cut to fit 80 columns: 50.0 was printed as 5."""
    columns = [Column(str(at), f"{at + 1}k", SCORE) for at in range(30)]
    rows = tuple(Row({str(at): at / 40 for at in range(30)}) for _ in range(2))
    head, *shown = to_text(Report("suite", "s", (Table("", tuple(columns), rows),))).splitlines()
    assert head.split() == [f"{at + 1}k" for at in range(30)]
    assert {tuple(line.split()) for line in shown} == {tuple(f"{at * 2.5:.1f}" for at in range(30))}


def test_a_name_in_a_table_is_neither_markup_nor_a_control_sequence(capsys) -> None:
    name = "org/m[red]x\x1b[2J\nnext"
    table = Table("", (Column("name", "run"),), (Row({"name": name}),))
    show_report(Report("models", "1 model", (table,)))
    assert capsys.readouterr().out == to_text(Report("models", "1 model", (table,)))
    assert to_text(Report("models", "1 model", (table,))).splitlines()[1].strip() == (
        "org/m[red]x[2J next"
    )


def test_without_a_verdict_the_last_line_is_the_reports_own() -> None:
    assert to_text(Report("compare", "b", ends="compare: b loses 1")) == "compare: b loses 1\n"
    assert to_sheet(Report("compare", "b", ends="compare: b loses 1"), {})["answer"] == (
        "compare: b loses 1"
    )


def test_json_holds_every_key_in_the_unit_of_programs_and_all_rows() -> None:
    found = to_json(REPORT)
    assert list(found) == ["result", "model", "drift", "lengths", "worst", "families"]
    assert found["result"] == {
        "word": "FAIL",
        "claim": "b loses 7 points",
        "evidence": "40 pairs",
        "scope": "these prompts",
        "next": "look at 128k",
        "code": 1,
        "line": LAST,
    }
    assert found["drift"] == 1.25
    assert [row["change"] for row in found["lengths"]] == [7.311, None, 0.0]
    assert [row["raw"] for row in found["lengths"]] == [1, 2, 3]
    assert "doubled" not in found["lengths"][0]
    assert found["families"] == {"one": {"n": 8}}
    json.dumps(found, allow_nan=False)


def test_a_sheet_of_the_page_has_readings_tables_that_lead_to_maps_and_lines() -> None:
    sheet = to_sheet(REPORT, {"far": ["run", 4]})
    assert sheet["says"] == "✗ FAIL"
    assert sheet["readings"] == [["Verdict", "worse", "margin 2 points", "main"]]
    assert sheet["table"]["head"] == ["Length", "Pairs", "Loss", "Seconds", "Found", "Twice"]
    first, second = sheet["table"]["rows"]
    assert [row["to"] for row in (first, second)] == [None, ["run", 4]]
    assert first["cells"][1] == ["1,200", None]
    assert first["cells"][4] == ["<b>", None, "sentence words"]
    assert "more" not in sheet
    assert sheet["answer"] == LAST
    assert re.findall(r">(far|1k|2k)<", sheet["chart"]) == ["1k", "2k", "far"]
    assert sheet["lines"] == ["the last third lost 1.3 points", "prompt 3: lost"]
    assert sheet["advice"] == ["looks like: a fault\n  try: another"]


def test_a_folded_table_holds_its_sentences_and_a_terminal_shows_them_all() -> None:
    rows = tuple(Row({"place": n}, details=(f"prompt {n}: lost",)) for n in range(3))
    folded = Table("worst", rows=rows, title="worst:", after="see it", folded="Worst")
    report = Report("ab", "b against a", (folded,))
    (table,) = to_sheet(report, {})["table"], *to_sheet(report, {}).get("more", ())
    assert (table["folded"], table["after"]) == ("Worst", "see it")
    assert table["lines"] == [f"prompt {n}: lost" for n in range(3)]
    assert to_sheet(report, {})["lines"] == []
    assert to_text(report).splitlines()[:2] == ["worst:", "prompt 0: lost"]


def test_a_score_on_the_page_has_the_share_that_colours_it_and_the_tab_a_word() -> None:
    scores = Table("", (Column("name", "run"), Column("all", "all", SCORE)), (Row({"all": 0.925}),))
    sheet = to_sheet(Report("runs", "two", (scores,), brief="2 runs"), {})
    assert sheet["says"] == "2 runs"
    assert sheet["table"]["rows"][0]["cells"][1] == ["92.5", 0.925]


def test_what_costs_time_is_made_for_who_reads_it() -> None:
    made = []
    report = Report("suite", "s", (Fact("families", lambda: made.append(1) or {"one": 1}),))
    assert (to_text(report), to_markdown(report), made) == ("", "suite, s\n", [])
    assert to_json(report) == {"families": {"one": 1}}


def test_markdown_means_nothing_else_whatever_a_model_said() -> None:
    text = to_markdown(REPORT)
    said = "FAIL ab\\: b loses 7 points, 40 pairs; these prompts; look at 128k."
    assert text.startswith(f"**{said}**\n\nab, b against a\n")
    assert "| 128k | 1,200 | 7.3 | \\<b\\> | 2,400 |" in text
    assert "\n- the last third lost 1.3 points\n" in text


def test_in_junit_a_claim_without_a_text_of_its_own_shows_the_whole_report() -> None:
    root = ElementTree.fromstring(to_junit([REPORT]))
    worse, few = root.iter("testcase")
    assert [part.get("message") for part in (*worse, *few)] == [LAST, "too few"]
    assert worse.findtext("failure", "") == to_text(REPORT).rstrip("\n")
    assert few.findtext("error") == "too few: 3"


def test_a_table_is_a_frame() -> None:
    pytest.importorskip("pandas")
    frame = to_pandas(REPORT)
    assert list(frame["change"][:1]) == [7.311]
    assert list(to_pandas(Report("ab", "")).columns) == []
