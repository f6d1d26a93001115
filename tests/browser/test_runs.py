"""A page of several runs: side by side on one scale, their difference, what sets them apart."""

from __future__ import annotations

import re
from itertools import pairwise

from needlemap.reports.colours import CHANGES, DARK_CHANGES


def tabs(page):
    return page.locator("[role=tab]")


def tab(page, name):
    return tabs(page).filter(has=page.locator(".tab-name", has_text=re.compile(f"^{name}")))


def chosen(page):
    return page.locator("[role=tab][aria-selected=true] .tab-name").inner_text().split("\n")[0]


def test_several_runs_open_with_their_curves_and_each_has_score_interval_and_n(visit, three):
    page = visit(three)
    names = ["Curves", "openai/plain", "openai/better", "openai/other", "Loss"]
    assert [text.split("\n")[0] for text in page.locator(".tab-name").all_inner_texts()] == names
    assert chosen(page) == "Curves"
    for name in names[1:4]:
        assert re.search(r"[\d.]+ % \[[\d.]+, [\d.]+\] n=\d+", tab(page, name).inner_text())
        row = page.locator("#sheet tbody tr", has_text=name).inner_text()
        assert re.search(r"[\d.]+\s+\[[\d.]+, [\d.]+\] n=\d+", row)
    ends = page.locator("#sheet .chart text[font-weight=bold]")
    assert sorted(text.split(" ")[0] for text in ends.all_text_contents()) == sorted(names[1:4])
    tops = sorted(each.bounding_box()["y"] for each in ends.all())
    assert all(below - above >= 10 for above, below in pairwise(tops))
    assert not page.locator("#grid").is_visible()


def test_a_row_or_a_tab_leads_to_a_runs_map(visit, three):
    page = visit(three)
    page.locator("#sheet .link", has_text="openai/plain").click()
    before = page.locator("#answer").inner_text()
    tab(page, "openai/better").click()
    assert chosen(page) == "openai/better"
    assert page.locator("#answer").inner_text() != before
    assert "score 100.0 %" in page.locator("#grid .cell").first.get_attribute("aria-label")


def test_keys_switch_runs_and_the_open_trial_stays(visit, three):
    page = visit(three)
    tab(page, "openai/plain").click()
    page.locator("#grid [data-cell='7']").click()
    page.keyboard.press("n")
    tab(page, "openai/plain").focus()
    page.keyboard.press("ArrowRight")
    assert chosen(page) == "openai/better"
    assert page.evaluate("document.activeElement.getAttribute('aria-selected')") == "true"
    assert page.locator("#pane-heading").inner_text() == "400 tokens at 50 %"
    assert page.locator("#trial h3").inner_text().startswith("Repeat 1")
    page.keyboard.press("End")
    assert chosen(page) == "Loss"
    page.keyboard.press("ArrowRight")
    assert chosen(page) == "Curves"
    page.keyboard.press("ArrowRight")
    assert page.locator("#pane-heading").inner_text() == "400 tokens at 50 %"


def test_two_runs_open_with_the_verdict(visit, two):
    """They opened with the first one's map, and on a phone the verdict was off the screen."""
    page = visit(two)
    assert chosen(page) == "Loss"
    assert page.locator("h1").inner_text() == "openai/better against openai/plain"
    assert page.title() == "openai/plain · openai/better"
    assert page.locator("#answer").inner_text().startswith("better loses −25.0 points (")


def test_on_a_phone_every_tab_is_in_reach_and_the_verdict_in_sight(visit, two):
    page = visit(two, viewport={"width": 400, "height": 800})
    for each in tabs(page).all():
        box = each.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 400
    assert page.locator("#answer").bounding_box()["y"] < 500


def test_the_difference_has_its_verdict_and_a_scale_about_zero(visit, three):
    page = visit(three)
    tabs(page).last.click()
    readings = page.locator("#readings").inner_text()
    assert re.search(r"Scores\s+75.0 → 100.0\s+%, A to B\s+60 pairs", readings)
    assert {"100", "0", "−100", "Loss, points"} <= set(
        page.locator("#chart text").all_text_contents()
    )
    assert page.locator("#answer").inner_text().startswith("better loses −25.0 points (")
    said = page.get_by_text("All sentences of needlemap compare")
    assert not page.locator("#verdict .lines").is_visible()
    said.click()
    assert "A openai/plain" in page.locator("#verdict .lines").inner_text()


def test_a_cell_of_the_difference_is_exploration_and_holds_trials_of_both(visit, three):
    page = visit(three)
    tabs(page).last.click()
    cell = page.locator("#grid .cell", has=page.locator(":scope")).first
    spoken = [each.get_attribute("aria-label") for each in page.locator("#grid .cell").all()]
    changed = next(number for number, words in enumerate(spoken) if "0 lost, 0 gained" not in words)
    assert re.search(r"loss −?[\d.]+ points, n 3 pairs, .*exploration only", spoken[changed])
    assert cell.count() == 1
    page.locator(f"#grid [data-cell='{changed}']").click()
    assert page.locator(".chip").all_inner_texts() == ["A 0", "B 0", "A 1", "B 1", "A 2", "B 2"]
    assert "Run openai/plain" in page.locator("#trial").inner_text()
    page.keyboard.press("n")
    assert "Run openai/better" in page.locator("#trial").inner_text()


def test_loss_and_gain_have_the_figures_colours_that_nobody_confuses(visit, three):
    page = visit(three)
    tabs(page).last.click()
    ramp = page.locator("#chart stop").evaluate_all(
        "all => all.map((stop) => getComputedStyle(stop).stopColor)"
    )
    assert (ramp[0], ramp[-1]) == (f"rgb{rgb(CHANGES[0])}", f"rgb{rgb(CHANGES[-1])}")


def test_in_the_dark_what_did_not_change_is_dark_and_on_paper_it_is_white(visit, three):
    """The map of differences was glaring white on a dark page."""
    page = visit(three, color_scheme="dark")
    tabs(page).last.click()
    spoken = [each.get_attribute("aria-label") for each in page.locator("#grid .cell").all()]
    same = next(number for number, words in enumerate(spoken) if "loss 0.0 points" in words)
    colour = "cell => getComputedStyle(cell).fill"
    box = page.locator(f"#grid [data-cell='{same}']")
    assert box.evaluate(colour) == f"rgb{rgb(DARK_CHANGES[2])}"
    page.emulate_media(media="print", color_scheme="dark")
    assert box.evaluate(colour) == f"rgb{rgb(CHANGES[2])}"


def rgb(hex):
    return tuple(int(hex[at : at + 2], 16) for at in (1, 3, 5))


def test_what_cannot_be_compared_is_one_quiet_line_and_why_is_folded(visit, three):
    page = visit(three)
    words = "Not compared with openai/plain, as they asked or scored something else: openai/other."
    assert page.locator("#sheet .lines").inner_text() == words
    why = page.locator("#notes details", has_text="What is not compared, and why")
    assert why.get_attribute("open") is None
    why.locator("summary").click()
    assert "needle" in why.inner_text()


def test_runs_that_asked_something_else_open_with_curves_and_that_line(visit, unlike):
    page = visit(unlike)
    assert chosen(page) == "Curves"
    assert "Not compared with openai/better" in page.locator("#sheet .lines").inner_text()
    assert tabs(page).count() == 3


def test_settings_that_differ_are_marked(visit, three):
    page = visit(three)
    settings = page.locator("#notes details", has=page.get_by_role("heading", name="Settings"))
    settings.locator("summary").click()
    head = settings.locator("thead th").all_inner_texts()
    assert head[1:] == ["Value", "Runs"]
    rows = {row.locator("th bdi").inner_text(): row for row in settings.locator("tbody tr").all()}
    assert "differs" in rows["needle"].get_attribute("class")
    assert rows["needle"].locator("td").last.inner_text() == "1 of 3: openai/other"
    assert rows["repeats"].locator("td").last.inner_text() == "all"
    assert "changed" in rows["repeats"].get_attribute("class")
    assert "differs" not in rows["repeats"].get_attribute("class")
    assert rows["temperature"].get_attribute("class") is None


def test_versions_hashes_and_totals_are_there(visit, three):
    page = visit(three)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    notes = page.locator("#notes").inner_text()
    for words in (
        "needlemap",
        "python",
        "sha256",
        "of which read from a cache",
        "of which planned to be shared",
    ):
        assert words in notes, words


def test_means_over_an_unknown_number_of_answers_show_no_n_and_no_interval(visit, typed, tmp_path):
    """An OpenCompass summary: every number is a mean of unknown size, so no interval of it is made
    up."""
    rows = ["dataset,version,metric,mode,first,second"]
    rows += [
        f"CDME_Length{n}Depth{d},abc,score,gen,{90 - d / 5},{95 - d / 5}"
        for n in (1000, 2000)
        for d in (0, 50)
    ]
    (tmp_path / "summary.csv").write_text("\n".join(rows) + "\n")
    typed("import", "summary.csv", "-o", "runs", folder=tmp_path)
    typed("report", "runs/first", "runs/second", "-o", "page.html", folder=tmp_path)
    page = visit(tmp_path / "page.html")
    shown = page.locator("#page").inner_text()
    assert "4 means in both" in shown
    tabs(page).last.click()
    assert "4 means" in tabs(page).last.inner_text()
    page.locator("#grid .cell").first.click()
    shown += page.locator("#page").inner_text()
    assert "over an unknown number of answers" in shown
    assert "1 mean" in page.locator("#cell").inner_text()
    assert not re.search(r"\[[+−\d.]+, [+−\d.]+\]|n=\d|\d trials?\b|\bp [<\d]", shown)
