"""The page breaks no rule of axe (WCAG 2 A and AA, good practice), as it opens and with all
open."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

AXE = "NEEDLEMAP_AXE"  # a file axe.min.js; CI takes it from a package that holds it
SHAPES = {
    "wide": {},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 400, "height": 800}},
}


@pytest.fixture(scope="module")
def axe() -> str:
    file = os.environ.get(AXE)
    if file is None:
        pytest.skip(f"no axe: {AXE} names no axe.min.js")
    return Path(file).read_text("utf-8")


def violations(page, axe: str) -> list[str]:
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {preload: false}).then((found) => found.violations)")
    return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "report", ["plain", "faulty", "two", "three", "suite", "check", "storm", "ab"]
)
def test_it_breaks_no_rule_of_axe_as_it_opens_nor_with_all_open(visit, report, shape, axe, request):
    page = visit(request.getfixturevalue(report), **SHAPES[shape])
    assert violations(page, axe) == []
    if page.locator("#grid").is_visible():
        page.check("#values")
        page.locator("#grid [data-cell='7']").click()
        page.locator("#trial h3").wait_for()
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert violations(page, axe) == []
    if page.get_by_role("tab").count():
        page.get_by_role("tab").last.click()
        assert violations(page, axe) == []


def test_a_page_that_breaks_a_rule_is_found_out(visit, plain, axe):
    page = visit(plain)
    page.evaluate(
        "document.querySelector('#query').closest('label').replaceWith(document.querySelector('#query'))"
    )
    assert any(each.startswith("label") for each in violations(page, axe))
