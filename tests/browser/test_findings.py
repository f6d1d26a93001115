"""Pages of what a command found: a check, a storm, an ab, a comparison. Each opens with the answer
and the exit code, at any width."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.long  # what they show is tested as data in tests/reports
PHONE = {"viewport": {"width": 400, "height": 900}}
ANSWERS = {
    "check": "! SUSPECT length points to a loss at 4k",
    "storm": "✗ FAIL faulty families: 2 of 32",
    "ab": "✗ FAIL new loses ",
    "two": "better loses −25.0 points",
}
CUT = """() => [...document.querySelectorAll(".wide, table, #page th, #page td")]
    .filter((each) => each.offsetParent && each.scrollWidth > each.clientWidth + 1)
    .map((each) => each.outerHTML.slice(0, 120))"""


def open_all(page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")


@pytest.mark.parametrize("kind", ANSWERS)
def test_it_opens_with_the_answer_and_the_exit_code(visit, kind, request):
    page = visit(request.getfixturevalue(kind))
    answer = page.locator("#answer")
    assert " ".join(answer.inner_text().split()).startswith(ANSWERS[kind])
    first = page.locator(":is(.readings, table, figure):visible").first.bounding_box()
    assert answer.bounding_box()["y"] < first["y"]


@pytest.mark.parametrize("kind", [*ANSWERS, "suite"])
def test_no_column_is_cut_off_on_a_phone_nor_on_a_screen(visit, kind, request):
    """A check's last column was cut in mid-word: "0 of 144 missed, at no lengths mor"."""
    for shape in (PHONE, {"viewport": {"width": 1280, "height": 900}}):
        page = visit(request.getfixturevalue(kind), **shape)
        open_all(page)
        width, room = page.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert width <= room
        assert page.locator(":is(#sheet, #verdict)").first.evaluate(CUT) == []


def test_a_check_shows_found_by_length_first_and_its_ways_by_length(visit, check):
    page = visit(check)
    head = "\n".join(page.locator(":is(#answer, #sheet .readings)").all_inner_texts())
    for number in ("192 of 192", "191 of 192", "161 of 336"):
        assert head.count(number) == 1
    groups = page.locator("#views optgroup").evaluate_all("all => all.map((each) => each.label)")
    assert groups == ["1,264 tokens", "2,249 tokens", "4k tokens"]
    assert page.locator("#sheet .chart text[font-weight=bold]").all_text_contents() == ["length"]
    lines = page.locator("#sheet .lines").inner_text()
    assert "not tried: window" in lines
    assert "not seen without --reference" in lines
    page.locator("#sheet .link", has_text="length").click()
    assert page.locator("h1").inner_text() == "ask-4000"


def test_many_ways_do_not_make_a_table_of_as_many_columns(visit, check):
    """Versions of 37 ways were 37 columns, most of them empty."""
    page = visit(check)
    open_all(page)
    for name in ("Settings", "Versions and hashes"):
        page.locator("#notes summary", has_text=name).wait_for()
        heads = page.locator(f"#notes [aria-label='{name}'] thead th").all_inner_texts()
        assert heads[1:] == ["Value", "Runs"]


def test_the_worst_prompts_of_an_ab_are_folded_and_both_arms_have_a_curve(visit, ab):
    page = visit(ab)
    worst = page.locator("details.fold", has_text="The worst prompts")
    assert not worst.locator("pre").first.is_visible()
    worst.locator("summary").click()
    texts = worst.locator("pre").all_inner_texts()
    assert len(texts) == len(set(texts))
    names = page.locator("#sheet .chart text[font-weight=bold]").all_text_contents()
    assert sorted(names) == ["new", "ref"]


def test_a_storm_draws_its_time_line_and_the_shrunk_sequence(visit, storm):
    page = visit(storm)
    line, shrunk = page.locator("#sheet .picture svg").all()
    marked = line.locator("rect[stroke] title").all_text_contents()
    assert any(", turn, " in title and title.endswith(", lost") for title in marked)
    assert line.locator("rect:not([stroke]) title").count() > 5
    assert {"session", "time, by wave"} <= set(line.locator("text").all_text_contents())
    assert shrunk.locator("rect title").count() == 2
    assert "turn" in shrunk.locator("rect title").last.text_content()


def test_words_of_a_verdict_are_told_apart_by_sign_and_by_colour(visit, check):
    page = visit(check)
    rows = page.locator("#sheet tbody tr")
    shown = {
        (row.locator(".shape").inner_text(), row.locator(".word-of").inner_text().split()[1])
        for row in rows.all()
    }
    assert shown == {("!", "SUSPECT"), ("✓", "PASS")}
    colours = {
        word: page.locator(f"#sheet .word-of.{word}").first.evaluate(
            "each => getComputedStyle(each).color"
        )
        for word in ("pass", "suspect")
    }
    assert len(set(colours.values())) == 2


def test_advice_stands_under_the_verdict_and_its_addresses_are_links(visit, check):
    page = visit(check)
    advice = page.locator("#answer .advice")
    link = advice.locator("a")
    assert link.get_attribute("href") == link.inner_text()
    assert link.get_attribute("href").startswith("https://github.com/")
    assert "try: " in advice.first.inner_text()
    assert advice.bounding_box()["y"] < page.locator("#sheet table").first.bounding_box()["y"]
    assert "http" not in page.locator("#sheet .lines").inner_text()


def test_two_tabs_do_not_have_one_name(visit, storm):
    names = visit(storm).locator(".tab-name").all_inner_texts()
    assert names == ["Verdict", "storm", "replay"]
