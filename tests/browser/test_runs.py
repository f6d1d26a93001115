"""A page of several runs: side by side on one scale, their difference, what sets them apart."""

from __future__ import annotations

import re


def tabs(page):
    return page.locator("[role=tab]")


def test_runs_stand_side_by_side_with_score_interval_and_n(visit, three):
    page = visit(three)
    names = ["openai/plain", "openai/better", "openai/other", "Difference"]
    assert [text.split("\n")[0] for text in tabs(page).all_inner_texts()] == names
    for text in tabs(page).all_inner_texts()[:3]:
        assert re.search(r"[\d.]+ \[[\d.]+, [\d.]+\] n=\d+", text)
    assert page.locator(".thumbnail").count() == 4


def test_a_click_on_a_run_shows_it(visit, three):
    page = visit(three)
    before = page.locator("#readings").inner_text()
    tabs(page).nth(1).click()
    assert tabs(page).nth(1).get_attribute("aria-selected") == "true"
    assert page.locator("#readings").inner_text() != before
    assert "score 100.0 %" in page.locator("#grid .cell").first.get_attribute("aria-label")


def test_keys_switch_runs_and_the_open_trial_stays(visit, three):
    page = visit(three)
    page.locator("#grid [data-cell='7']").click()
    page.keyboard.press("n")
    tabs(page).first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("[role=tab][aria-selected=true]").inner_text().startswith("openai/better")
    assert page.evaluate("document.activeElement.getAttribute('aria-selected')") == "true"
    assert page.locator("#pane-heading").inner_text() == "400 tokens at 50 %"
    assert page.locator("#trial h3").inner_text().startswith("Repeat 1")
    page.keyboard.press("End")
    assert page.locator("[role=tab][aria-selected=true]").inner_text().startswith("Difference")
    page.keyboard.press("ArrowRight")
    assert page.locator("[role=tab][aria-selected=true]").inner_text().startswith("openai/plain")


def test_the_difference_has_its_verdict_and_a_scale_about_zero(visit, three):
    page = visit(three)
    tabs(page).last.click()
    readings = page.locator("#readings").inner_text()
    assert re.search(r"Verdict\s+better", readings)
    assert re.search(r"Difference\s+\+[\d.]+ points\s+\[[+−\d.]+, [+−\d.]+\]\s+n=60 pairs", readings)
    ends = page.locator("#legend .ends").inner_text().split()
    assert ends[0].strip("−") == ends[2].strip("+")
    assert ends[1] == "0"
    assert "verdict: better (the whole 95 % interval is a gain)" in page.locator("#verdict pre").inner_text()


def test_a_cell_of_the_difference_is_exploration_and_holds_trials_of_both(visit, three):
    page = visit(three)
    tabs(page).last.click()
    cell = page.locator("#grid .cell", has=page.locator(":scope")).first
    spoken = [each.get_attribute("aria-label") for each in page.locator("#grid .cell").all()]
    changed = next(number for number, words in enumerate(spoken) if "0 lost, 0 gained" not in words)
    assert re.search(r"difference [+−][\d.]+ points, n 3 pairs, .*exploration only", spoken[changed])
    assert cell.count() == 1
    page.locator(f"#grid [data-cell='{changed}']").click()
    assert page.locator(".chip").all_inner_texts() == ["A 0", "B 0", "A 1", "B 1", "A 2", "B 2"]
    assert "Run openai/plain" in page.locator("#trial").inner_text()
    page.keyboard.press("n")
    assert "Run openai/better" in page.locator("#trial").inner_text()


def test_loss_and_gain_have_colours_that_nobody_confuses(visit, three):
    page = visit(three)
    tabs(page).last.click()
    ramp = page.locator("#legend .ramp").evaluate("ramp => getComputedStyle(ramp).backgroundImage")
    assert "rgb(138, 67, 9)" in ramp
    assert "rgb(26, 76, 134)" in ramp


def test_what_cannot_be_compared_says_why(visit, three):
    refused = visit(three).locator("#refused").inner_text()
    assert refused.startswith("Not compared: openai/plain with openai/other.")
    assert "needle" in refused


def test_settings_that_differ_are_marked(visit, three):
    page = visit(three)
    settings = page.locator("#notes details", has_text="Settings")
    settings.locator("summary").click()
    head = settings.locator("thead th").all_inner_texts()
    assert head[1:] == ["openai/plain", "openai/better", "openai/other"]
    rows = {row.locator("th bdi").inner_text(): row for row in settings.locator("tbody tr").all()}
    assert "differs" in rows["needle"].get_attribute("class")
    assert "changed" in rows["repeats"].get_attribute("class")
    assert "differs" not in rows["repeats"].get_attribute("class")
    assert rows["temperature"].get_attribute("class").strip() == ""


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


def test_means_of_nobody_knows_how_many_answers_show_no_n_and_no_interval(visit, typed, tmp_path):
    """An OpenCompass summary: every number is a mean of unknown size, so no interval of it is made up."""
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
    assert "4 means" in tabs(page).first.inner_text()
    page.locator("#grid .cell").first.click()
    shown = page.locator("#page").inner_text()
    assert "of how many answers, nobody knows" in shown
    assert "1 mean" in page.locator("#cell").inner_text()
    tabs(page).last.click()
    shown += page.locator("#page").inner_text()
    assert "+5.0 points\n4 means in both" in shown
    assert not re.search(r"\[[+−\d.]+, [+−\d.]+\]|n=\d|\d trials?\b|\bp [<\d]", shown)
