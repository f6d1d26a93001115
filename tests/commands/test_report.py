"""`needlemap report`: a run as text, figure, page and tables; `needlemap list` names what is
installed."""

from __future__ import annotations

import csv

import pytest

from needlemap.grid import percent


@pytest.fixture(scope="module")
def reports(tmp_path_factory, command_in):
    """A folder with two runs of the baseline."""
    command = command_in(tmp_path_factory.mktemp("reports"))
    grid = (
        "--model",
        "baseline/bm25",
        "--lengths",
        "500,900",
        "--depths",
        "0,50,100",
        "--repeats",
        "2",
    )
    command("run", *grid, "-o", "r")
    command("run", *grid, "--model-options", "window=60", "-o", "short")
    return command


def test_without_a_file_it_prints_a_line_per_length_of_every_run(reports):
    shown = reports("report", "r", "short").stdout
    assert (
        shown.count(
            "baseline/bm25 · single · tokenizer cl100k_base · scorer substring · mode exact\n"
        )
        == 2
    )
    assert "500  100.0  n=6 [58.7, 100.0]\n" in shown
    assert shown.count("overall ") == 2


@pytest.mark.parametrize(
    ("suffix", "start"),
    [("png", b"\x89PNG"), ("svg", b"<svg"), ("pdf", b"%PDF"), ("html", b"<!doctype html>")],
)
def test_a_figure_is_written_by_its_suffix_into_a_new_folder(reports, typed, suffix, start):
    ended = typed("report", "r", "-o", f"{suffix}s/map.{suffix}", folder=reports.folder)
    assert ended.stderr == f"{suffix}s/map.{suffix} (in a new folder, {suffix}s)\n"
    assert (reports.folder / f"{suffix}s" / f"map.{suffix}").read_bytes().lstrip().startswith(start)


def test_tables_hold_a_row_per_cell_or_per_trial(reports, typed):
    typed("report", "r", "-o", "tables/cells.csv", folder=reports.folder)
    typed("report", "r", "-o", "tables/trials.csv", "--format", "trials", folder=reports.folder)
    with (reports.folder / "tables" / "cells.csv").open(newline="") as file:
        cells = list(csv.DictReader(file))
    with (reports.folder / "tables" / "trials.csv").open(newline="") as file:
        trials = list(csv.DictReader(file))
    assert [(row["length_tokens"], row["depth_percent"], row["n"]) for row in cells] == [
        (length, depth, "2") for length in ("500", "900") for depth in ("0.0", "50.0", "100.0")
    ]
    assert len(trials) == 12
    records = {record["key"]: record for record in reports.records()}
    for row in trials:
        record = records[row["key"]]
        assert row["answer"] == record["answer"]
        assert float(row["score"]) == percent(record["score"])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_several_runs_are_one_table_told_by_run_and_model(reports, typed, suffix):
    if suffix == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    read = getattr(pandas, f"read_{suffix}")
    typed("report", "r", "short", "r", "-o", f"all.{suffix}", folder=reports.folder)  # r once
    cells = read(reports.folder / f"all.{suffix}")
    assert cells.groupby("run").size().to_dict() == {"r": 6, "short": 6}
    assert set(cells["model"]) == {"baseline/bm25"}
    assert cells[cells["run"] == "r"]["score"].tolist() == [100] * 6
    typed(
        "report", "r", "short", "-o", f"all.{suffix}", "--format", "trials", folder=reports.folder
    )
    trials = read(reports.folder / f"all.{suffix}")
    assert trials.groupby("run").size().to_dict() == {"r": 12, "short": 12}
    assert trials["key"].is_unique


def test_the_opencompass_table_has_a_column_per_run(reports, typed):
    typed(
        "report",
        "r",
        "short",
        "-o",
        "summary.csv",
        "--format",
        "opencompass",
        folder=reports.folder,
    )
    rows = (reports.folder / "summary.csv").read_text().splitlines()
    assert rows[0] == "dataset,version,metric,mode,bm25@r,bm25@short"
    assert rows[1].startswith("CDME_Length500Depth0,")
    text = (reports.folder / "summary.txt").read_text()
    assert "\n".join(rows) in text
    assert "Model: bm25@short\nCDME_Length500Depth0: {'score': " in text
    assert rows[1].endswith(",score,gen,100.00,0.00")
    assert len(rows) == 7


@pytest.mark.parametrize("width", ["column", "8.4cm"])
def test_a_figure_for_a_paper_is_exactly_as_wide_as_asked(reports, typed, width):
    pypdf = pytest.importorskip("pypdf", reason="pip install '.[test]'")
    typed("report", "r", "-o", "paper.pdf", "--width", width, folder=reports.folder)
    (page,) = pypdf.PdfReader(reports.folder / "paper.pdf").pages
    assert float(page.mediabox.width) == pytest.approx(
        {"column": 234, "8.4cm": 238.11}[width], abs=0.01
    )
    text = page.extract_text()
    for part in ("baseline/bm25", "n = 12 prompts, 2 trials a cell", "mode exact"):
        assert part in text


def test_two_runs_of_the_same_prompts_come_with_what_changed(reports, typed):
    ended = typed("report", "r", "short", "-o", "both.svg", folder=reports.folder)
    assert ended.stderr == "both.svg\n"
    shown = (reports.folder / "both.svg").read_text()
    for part in ("baseline/bm25, single", "A: r<", "B: short<", "Loss of B", "n = 12 pairs"):
        assert part in shown


def test_runs_that_cannot_be_paired_are_drawn_side_by_side_and_it_says_why(reports, typed):
    grid = (
        "--model",
        "baseline/bm25",
        "--lengths",
        "500",
        "--depths",
        "0,50,100",
        "--seed",
        "3",
        "--quiet",
    )
    typed("run", *grid, "-o", "seeded", folder=reports.folder)
    ended = typed("report", "r", "seeded", "-o", "two.svg", folder=reports.folder)
    assert ended.stderr.startswith(
        "no map of the difference: 'r' and 'seeded' ask different prompts"
    )
    shown = (reports.folder / "two.svg").read_text()
    assert ">seeded" in shown
    assert "B - A" not in shown


def test_three_runs_are_three_maps(reports, typed):
    typed(
        "report", "r", "short", "seeded", "-o", "three.svg", "--title", "All", folder=reports.folder
    )
    shown = (reports.folder / "three.svg").read_text()
    assert [name in shown for name in (">r", ">short", ">seeded", ">All<", "B - A")] == [
        True
    ] * 4 + [False]


def test_rules_of_effective_length_are_chosen_for_terminal_and_page(reports, typed):
    shown = typed("report", "r", "--rules", "absolute:90,auc", folder=reports.folder).stdout
    assert "effective length: absolute:90 >=900 · auc 100.0\n" in shown
    typed("report", "r", "-o", "rules.html", "--rules", "relative:70", folder=reports.folder)
    assert "relative:70" in (reports.folder / "rules.html").read_text()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["r", "-o", "map.gif"], "Cannot write a map as '.gif'. Give a name that ends in .png"),
        (["r", "-o", "x.csv", "--format", "cell"], "Unknown format 'cell'. Did you mean 'cells'?"),
        (["r", "-o", "x.parquet", "--format", "opencompass"], "Give a name that ends in .csv."),
        (
            ["r", "-o", "x.pdf", "--width", "wide"],
            "--width 'wide' is no width. Write 3.25in, 8.4cm, ",
        ),
        (["r", "-o", "x.csv", "--width", "3in"], "--width is a figure's, and x.csv is none."),
        (["r", "--width", "3in"], "--width is a figure's. Say where to: -o map.pdf"),
        (["r", "-o", "x.html", "--format", "trials"], "--format is a table's, and x.html is none."),
        (["r", "--rules", "absolut:90"], "Did you mean 'absolute:85'?"),
        (["r", "-o", "x.html", "--rules", "best"], "Unknown rule 'best' of effective length."),
        (["r", "-o", "x.png", "--palette", "ambr"], "Did you mean 'amber'?"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_a_line(reports, typed, flags, said):
    ended = typed("report", *flags, code=2, folder=reports.folder)
    assert said in ended.stderr
    assert ended.stderr.startswith("needlemap: ")
    assert not (reports.folder / flags[-1]).exists()


def test_under_the_map_it_says_what_the_run_comes_to(reports, typed):
    lines = typed("report", "r", folder=reports.folder).stdout.splitlines()[-7:]
    assert lines[0].startswith("With 2 repeats the variation between texts is unknown: ")
    assert lines[0].endswith("use --repeats 5 (18 more prompts, 13k tokens).")
    assert lines[1].startswith(
        "all prompts: 100.0 [71.4, 100.0] (n=12, 2 haystacks: prompts of one are "
    )
    assert lines[2] == "effective length: absolute:85 >=900 · relative:85 >=900 · auc 100.0"
    assert lines[3].strip() == "no intervals from fewer than 5 haystacks: --repeats 5 or more"
    assert lines[4] == "by depth: 100.0 at every depth"
    assert lines[6].startswith(
        "note: all 12 answers are right, so this map shows gross losses only"
    )
    assert lines[5] == (
        "Sample size: 12. To detect a 5-point loss on these texts with 80 % power you need about "
        "279."
    )


def test_no_file_of_ones_own_is_written_over_by_the_summarys_text(reports, typed):
    (reports.folder / "notes.txt").write_text("mine")
    ended = typed(
        "report", "r", "-o", "notes.csv", "--format", "opencompass", folder=reports.folder, code=2
    )
    assert "'notes.txt' would be written too" in ended.stderr
    assert (reports.folder / "notes.txt").read_text() == "mine"


def test_a_label_is_what_reports_call_a_model_and_asks_nothing_again(reports, typed):
    grid = ("--model", "baseline/bm25", "--lengths", "500", "--depths", "0", "-o", "named")
    typed("run", *grid, folder=reports.folder)
    before = reports.records("named")
    typed("run", *grid, "--label", "Search (BM25)", folder=reports.folder)
    assert reports.records("named") == before
    typed("run", *grid, "--repeats", "2", folder=reports.folder)  # the label stays
    assert typed("report", "named", folder=reports.folder).stdout.startswith(
        "Search (BM25) · single"
    )
    for format in ("cells", "trials"):
        typed("report", "named", "-o", "n.csv", "--format", format, folder=reports.folder)
        assert ",Search (BM25),single," in (reports.folder / "n.csv").read_text()
    typed("report", "named", "-o", "n.csv", "--format", "opencompass", folder=reports.folder)
    assert (
        (reports.folder / "n.csv")
        .read_text()
        .startswith("dataset,version,metric,mode,Search (BM25)\n")
    )
    shown = typed("compare", "named", "r", folder=reports.folder).stdout.splitlines()
    assert shown[:2] == ["A  Search (BM25) (named)", "B  baseline/bm25 (r)"]
    typed("report", "named", "-o", "n.svg", folder=reports.folder)
    assert "Search (BM25)" in (reports.folder / "n.svg").read_text()


HEAD = "dataset,version,metric,mode,{}\n"
ROWS = "CDME_Length1000Depth0,f,score,gen,{0}\nCDME_Length1000Depth50,f,score,gen,-\n"


@pytest.fixture
def summaries(tmp_path):
    """Two of OpenCompass's summaries, of one model each, with a missing cell."""
    for name, model, score in (("a", "one-7b", 90), ("b", "two-7b", 80)):
        (tmp_path / f"{name}.csv").write_text(HEAD.format(model) + ROWS.format(score))
    return tmp_path


def test_summaries_become_a_picture_in_one_step(summaries, typed):
    typed("report", "a.csv", "b.csv", "-o", "x.svg", "--dataset_length", "200K", folder=summaries)
    drawn = (summaries / "x.svg").read_text()
    assert "one-7b 200K Context" in drawn
    assert "two-7b 200K Context" in drawn
    assert sorted(path.name for path in summaries.iterdir()) == ["a.csv", "b.csv", "x.svg"]


@pytest.mark.parametrize("out", ["x.png", "x.html", "x.csv", None])
def test_whatever_import_reads_every_report_reads(summaries, typed, out):
    results = summaries / "results"
    results.mkdir()
    fields = (
        '{"model": "m", "context_length": 1000, "depth_percent": 50.0, "needle": "N", "score": 7}'
    )
    (results / "m_len_1000_depth_5000_results.json").write_text(fields)
    where = ("-o", out) if out else ()
    ended = typed("report", "a.csv", "results", *where, folder=summaries)
    if out is None:
        assert "one-7b · CDME" in ended.stdout
        assert "m · single" in ended.stdout
    else:
        assert ended.stderr.endswith(f"{out}\n")
    if out == "x.csv":
        runs = {line.split(",")[0] for line in (summaries / out).read_text().splitlines()[1:]}
        assert runs == {"a.csv", "results"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere", "No run at 'nowhere'"),
        ("x.txt", "x.txt: no section 'csv format'"),
        ("empty", "No run at"),
    ],
)
def test_what_is_neither_a_run_nor_a_result_is_said(summaries, typed, name, words):
    (summaries / "x.txt").write_text("hello")
    (summaries / "empty").mkdir()
    assert words in typed("report", name, "-o", "x.png", folder=summaries, code=2).stderr


def test_several_runs_score_by_length_is_one_plot_with_names_at_the_lines_ends(reports, typed):
    typed(
        "report",
        "r",
        "short",
        "-o",
        "c.svg",
        "--curves",
        "--width",
        "column",
        folder=reports.folder,
    )
    shown = (reports.folder / "c.svg").read_text()
    assert 'width="234pt"' in shown
    for part in (
        "baseline/bm25@r",
        "baseline/bm25@short",
        "Length (tokens)",
        "absolute:85",
        "n = 12 prompts a line",
    ):
        assert part in shown


@pytest.mark.parametrize(
    ("style", "parts"),
    [("opencompass", ("Average Depth Score", "Overall Score for baseline/bm25: 100.00", "Depth Percent")),  # noqa: E501
     ("needlehaystack", ("Pressure Testing baseline/bm25", "Token Limit", ">Score<"))],
)  # fmt: skip
def test_a_map_looks_as_an_older_tool_draws_it(reports, typed, style, parts):
    typed("report", "r", "-o", "old.svg", "--style", style, folder=reports.folder)
    shown = (reports.folder / "old.svg").read_text()
    assert all(part in shown for part in parts)
    assert ("Average Depth Score" in shown) == (style == "opencompass")
    assert "#0CD79F" in shown  # red, amber, green


def test_a_map_can_be_drawn_where_there_is_no_terminal(reports, typed):
    plain, drawn = (
        typed("report", "r", *more, folder=reports.folder).stdout for more in ((), ("--map",))
    )
    assert plain in drawn
    assert "50%  100   100" in drawn.removesuffix(plain)
    assert "\x1b" not in drawn


@pytest.mark.parametrize(
    ("flags", "said"),
    [(("--style", "opencompas", "-o", "x.png"), "Did you mean 'opencompass'"),
     (("--style", "opencompass"), "--style is a figure's. Say where to"),
     (("--curves", "-o", "x.html"), "--curves is a figure's, and x.html is none")],
)  # fmt: skip
def test_what_only_figures_have_is_refused_elsewhere(reports, typed, flags, said):
    assert said in typed("report", "r", *flags, folder=reports.folder, code=2).stderr
