"""The page of a run that still goes, in a browser: it fills in, and leaves the reader in peace."""

from __future__ import annotations

import re
import signal

import pytest

pytestmark = pytest.mark.long
ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+/[\w-]{22}/)")
GRID = (
    "--lengths",
    "300,400",
    "--depths",
    "0,50,100",
    "--repeats",
    "2",
    "--concurrency",
    "1",
    "--retries",
    "0",
)
ASKED = ("/data?since=",)  # what a live page asks of its own server


@pytest.fixture
def going(needlemap, wire):
    """going(): a run that takes some seconds, and the address of its page."""

    def start():
        wire.schedule(*["slow:0.2"] * 3, *["slow:4"] * 9, cycle=True)  # time to look at half a map
        process = needlemap.start("run", *needlemap.asking(wire), *GRID, "--live")
        said = ""
        while (found := ADDRESS.search(said)) is None:
            line = process.stderr.readline()
            assert line, said
            said += line
        return process, found[1]

    return start


SEEN = """() => {
    const count = (selector) => document.querySelectorAll(selector).length;
    return {
        state: document.querySelector("#live").dataset.state,
        readings: document.querySelector("#readings").innerText,
        heading: document.querySelector("#effective-heading").innerText,
        legend: document.querySelector("#legend").innerText,
        terms: count("#readings dt"),
        provisional: count("#readings .provisional"),
        warnings: count("#readings .warn"),
        empty: document.querySelector("#grid .cell.unasked")?.getAttribute("aria-label") ?? null,
    };
}"""


def measured(page):
    return page.locator("#grid .cell:not(.unmeasured)").count()


def test_the_map_fills_in_while_cell_focus_theme_and_place_stay(visit, going):
    process, address = going()
    page = visit(address)
    page.watch.expected = ASKED
    assert "scored" in page.locator("#live").inner_text()
    page.select_option("#theme", "dark")
    page.locator("#grid .cell:not(.unmeasured)").first.click()
    opened = page.locator("#pane-heading").inner_text()
    reading = page.locator("#trial h3").inner_text()
    held = page.evaluate("document.activeElement.dataset.cell")
    page.locator("#notes summary").nth(3).click()
    page.locator(f"#grid [data-cell='{held}']").focus()
    page.evaluate("scrollTo(0, 60)")
    before = measured(page)
    assert page.locator(".chip").count() == 1
    page.locator("#live[data-state=ended]").wait_for()
    assert before < measured(page) == 6
    assert page.locator("#pane-heading").inner_text() == opened
    assert page.locator("#trial h3").inner_text() == reading
    assert page.locator(".chip").count() == 2
    assert page.evaluate("document.activeElement.dataset.cell") == held
    assert page.evaluate("scrollY") == 60
    assert page.locator("#theme").input_value() == "dark"
    assert page.locator("#notes details").nth(3).get_attribute("open") is not None
    assert "12 trials" in page.locator("#readings").inner_text()
    assert "updated" in page.locator("#live-updated").inner_text()
    assert page.locator("#announce[aria-live=polite]").inner_text()
    process.communicate(timeout=250)
    assert process.returncode == 0


def test_when_the_run_is_gone_the_page_says_so_and_still_works(visit, going):
    process, address = going()
    page = visit(address)
    page.watch.expected = (
        *ASKED,
        "ERR_CONNECTION_REFUSED",
        "ERR_EMPTY_RESPONSE",
        "ERR_CONNECTION_RESET",
    )
    page.locator("#grid .cell:not(.unmeasured)").first.wait_for()
    process.send_signal(signal.SIGKILL)
    page.locator("#live.gone").wait_for()
    assert "does not answer any more" in page.locator("#live").inner_text()
    page.locator("#grid .cell:not(.unmeasured)").first.click()
    assert page.locator(".chip").count() >= 1


def test_while_it_goes_on_numbers_look_provisional_and_what_is_to_come_is_no_failure(visit, going):
    """A length of 11 trials of 44 looked final, and 33 trials to come were "not measured", in
    red."""
    process, address = going()
    page = visit(address)
    page.watch.expected = ASKED
    page.locator("#grid .cell:not(.unmeasured)").first.wait_for()
    before = page.evaluate(SEEN)  # at one moment, as the run goes on
    assert before["state"] == "running"
    assert "Mean of all prompts so far" in before["readings"]
    assert "Still to ask" in before["readings"]
    assert before["heading"] == "Effective length so far"
    assert "Not measured\n0\n" in before["readings"]
    assert before["provisional"] == before["terms"]
    assert before["warnings"] == 0
    assert "not asked yet" in before["legend"]
    assert "score not asked yet" in before["empty"]
    page.locator("#live[data-state=ended]").wait_for()
    after = page.evaluate(SEEN)
    assert "so far" not in after["readings"]
    assert "Still to ask" not in after["readings"]
    assert after["provisional"] == 0
    assert after["empty"] is None
    process.communicate(timeout=250)
