"""The page of a suite: its table, the mean over families and their curves first, then each
family."""

from __future__ import annotations

import re

import pytest

FAMILIES = [f"{kind}-{number}" for kind in ("single", "multikey") for number in (1, 2, 3)]
FAMILIES += ["multivalue", "multiquery"]


def rows(page):
    return page.locator("#sheet tbody tr")


def test_a_suite_opens_with_its_table_the_mean_and_curves_and_no_refusals(visit, suite):
    """It opened with seven paragraphs of what cannot be compared, and had no table at all."""
    page = visit(suite)
    assert page.locator("h1").inner_text() == "suite ruler-niah \u00b7 baseline/bm25"
    assert page.locator("#sheet thead th").all_inner_texts() == [
        "Family",
        "600",
        "1.2k",
        "All",
        "n",
    ]
    names = page.locator("#sheet .row-name").all_inner_texts()
    assert names == [*FAMILIES, "mean"]
    ends = page.locator("#sheet .chart text[font-weight=bold]").all_text_contents()
    assert sorted(text.split(" ")[0] for text in ends) == sorted(names)
    assert "Not compared" not in page.locator("#page").inner_text()
    assert "not compared" not in page.locator("#notes").inner_text()


def test_its_numbers_are_those_of_the_terminal(visit, suite, typed, suites):
    lines = typed("report", str(suites[0])).stdout.splitlines()
    told = {line.split()[0]: line.split()[1:] for line in lines[2:11]}
    for row in rows(visit(suite)).all():
        name = row.locator(".row-name").inner_text()
        cells = row.locator("td").all_inner_texts()
        assert [cell for cell in cells if cell] == told[name], name


def test_a_family_is_called_by_its_own_name_and_its_row_leads_to_its_map(visit, suite):
    page = visit(suite)
    names = [text.split(":")[0] for text in page.locator("#views option").all_inner_texts()]
    assert names == ["suite ruler-niah", *FAMILIES]
    page.locator("#sheet .link", has_text="multikey-2").click()
    assert page.locator("h1").inner_text() == "multikey-2"
    assert page.locator("#grid [role=gridcell]").count() == 4
    assert not page.locator("#sheet").is_visible()


def test_what_a_cell_of_the_table_says_can_be_read_on_its_colour(visit, suite):
    page = visit(suite)
    for box in page.locator(".tint").all()[:4]:
        ink, ground = box.evaluate(
            "box => [getComputedStyle(box).color, getComputedStyle(box).backgroundColor]"
        )
        assert ink != ground
        assert re.search(r"[\d.]+", box.inner_text())


@pytest.fixture
def both(bench, suites):
    return bench.report(*(path.name for path in suites))


def test_two_suites_open_with_the_verdict_on_their_mean(visit, both):
    page = visit(both)
    assert page.locator("h1").inner_text() == "lossy against baseline/bm25"
    readings = page.locator("#sheet .readings").inner_text()
    assert re.search(r"Scores\s+81.3 → 62.5\s+%, A to B\s+32 pairs", readings)
    assert page.locator("#answer").inner_text().startswith("lossy loses 18.8 points (")
    assert page.locator("#sheet .verdict tbody tr").count() == 8
    assert page.locator("#sheet .chart text[font-weight=bold]").count() == 2
    assert "Not compared" not in page.locator("#page").inner_text()
    page.locator("#sheet .link", has_text="lossy").click()
    assert page.locator("h1").inner_text() == "suite ruler-niah \u00b7 lossy"


def test_a_difference_of_two_suites_is_of_families_of_one_name(visit, both):
    page = visit(both)
    last = page.locator("#views option").last
    assert last.inner_text().startswith("multiquery: baseline/bm25 \u2212 lossy: ")
    page.locator("#views").select_option(last.get_attribute("value"))
    assert "multiquery" in page.locator("h1").inner_text()
    assert "lossy loses 0.0 points" in page.locator("#answer").inner_text()


def test_where_scripts_do_not_run_the_table_stands_all_the_same(suite, browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(suite.as_uri())
    told = page.locator("#written").inner_text()
    assert "suite ruler-niah" in told
    assert re.search(r"multivalue\s+[\d.]+\s+[\d.]+", told)
    assert "Versions and hashes" in told
    page.locator("#written .link", has_text="multikey-2").click()
    assert page.url.endswith("#run-4")
    assert page.locator("#run-4 h2").first.inner_text() == "multikey-2"
    context.close()


def test_on_a_phone_what_fits_stays_a_table(visit, suite):
    """A table of 13 x 4 was cards of four repeated heads each, 1,000 px tall."""
    page = visit(suite, viewport={"width": 420, "height": 900})
    table = page.locator("#sheet table").first
    assert table.locator("thead").is_visible()
    boxes = [row.locator("td").first.bounding_box() for row in table.locator("tbody tr").all()]
    assert len({round(box["x"]) for box in boxes}) == 1
    assert table.bounding_box()["height"] < 400
