"""The map of a page: what it shows, by pointer, keyboard and touch, on screens of all kinds and on
paper."""

from __future__ import annotations

import re

import pytest

from needlemap.reports.colours import PALETTE, PALETTES
from needlemap.stats.effective import RULES

WIDE = {"width": 1400, "height": 1000}
NARROW = {"viewport": {"width": 360, "height": 740}, "reduced_motion": "reduce"}
PHONE = {**NARROW, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}


def cell(page, number):
    """One cell of the map."""
    return page.locator(f"#grid [data-cell='{number}']")


def colour(page, number):
    return cell(page, number).evaluate("cell => getComputedStyle(cell).fill")


def paper(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def brightness(rgb):
    return sum(map(int, re.findall(r"\d+", rgb)[:3]))


def label(page, number):
    return cell(page, number).get_attribute("aria-label")


def focused(page):
    return page.evaluate("document.activeElement.dataset.cell")


def contrast(page, number):
    """Of a cell's text on its colour (WCAG 2.2)."""
    return page.evaluate(
        """number => {
            const fill = (name) =>
                getComputedStyle(document.querySelector(`#chart [${name}='${number}']`)).fill;
            const light = (rgb) => {
                const [r, g, b] = rgb.match(/[\\d.]+/g).map((v) => v / 255)
                    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            const [a, b] = [light(fill("data-on")), light(fill("data-cell"))].sort((x, y) => y - x);
            return (a + 0.05) / (b + 0.05);
        }""",
        number,
    )


def test_it_opens_from_the_disk_with_every_cell_named_by_score_n_and_interval(visit, plain):
    page = visit(plain)
    assert page.title() == "openai/plain"
    assert page.locator("#grid [role=gridcell]").count() == 20
    for number in range(20):
        assert re.match(
            r"\S+ tokens at \d+ %: score [\d.]+ %, n \d trials?, 95 % interval \[[\d.]+, [\d.]+\]",
            label(page, number),
        )


def test_a_task_about_the_whole_text_has_no_depth_on_its_page(visit, depthless):
    """It was shown at 50 %, where it was asked for and nothing stands."""
    page = visit(depthless)
    assert re.match(r"1k tokens: loss \S+ points", label(page, 1))
    assert "depth" not in label(page, 1)
    page.get_by_role("tab").last.click()
    words = page.locator("#chart text").all_text_contents()
    assert "whole text" in words
    assert "Depth" not in words
    assert re.match(r"1k tokens: score [\d.]+ %, n \d", label(page, 1))
    assert not re.search(r"needle|meant|50 %", label(page, 1))
    shown = page.locator("#page").inner_text()
    assert "at 50 %" not in shown
    assert "depth of the needle" not in shown
    assert "by depth" not in shown
    assert "all depths" not in shown
    assert page.locator("#notes summary").first.inner_text() == "Numbers by length"


def test_colours_follow_scores(visit, plain):
    page = visit(plain)
    shown = {
        re.search(r"score ([\d.]+)", label(page, number))[1]: colour(page, number)
        for number in range(20)
    }
    best = PALETTES[PALETTE][-1]
    assert (
        shown["100.0"] == f"rgb({', '.join(str(int(best[at : at + 2], 16)) for at in (1, 3, 5))})"
    )
    assert len(set(shown.values())) == len(shown) >= 2


def test_hovering_tells_of_a_cell_and_moves_nothing(visit, plain):
    page = visit(plain)
    before = page.evaluate("document.documentElement.scrollHeight")
    cell(page, 7).hover()
    tip = page.locator("#tip")
    assert tip.is_visible()
    words = tip.inner_text()
    for part in (
        "400 tokens at 50 %",
        "score",
        "n\n",
        "95 % interval",
        "needle at",
        "prompt",
        "cached",
    ):
        assert part in words
    assert page.evaluate("document.documentElement.scrollHeight") == before
    page.mouse.move(5, 5)
    assert not tip.is_visible()


def test_a_margins_points_stand_over_its_columns(visit, plain):
    page = visit(plain)
    dots = page.locator("#chart circle")
    for column in range(4):
        box, dot = cell(page, column * 5).bounding_box(), dots.nth(column).bounding_box()
        assert box["x"] < dot["x"] + dot["width"] / 2 < box["x"] + box["width"]
        assert dot["y"] < box["y"]
    for row in range(5):
        box, dot = cell(page, row).bounding_box(), dots.nth(4 + row).bounding_box()
        assert dot["y"] + dot["height"] / 2 == pytest.approx(box["y"] + box["height"] / 2, abs=1.5)


def test_keys_move_in_the_map_and_tab_enters_it_once(visit, plain):
    page = visit(plain)
    assert page.locator("#grid [tabindex='0']").count() == 1
    cell(page, 0).focus()
    for key, reached in [
        ("ArrowDown", "1"), ("ArrowRight", "6"), ("ArrowUp", "5"), ("ArrowUp", "5"), ("End", "15"),
        ("PageDown", "19"), ("PageUp", "15"), ("Home", "0"), ("ArrowLeft", "0"),
        ("Control+End", "19"), ("Control+Home", "0"),
    ]:  # fmt: skip
        page.keyboard.press(key)
        assert focused(page) == reached, key
    assert page.locator("#tip").is_visible()
    assert page.locator("#grid [tabindex='0']").count() == 1


def test_enter_opens_a_cell_and_escape_comes_back_to_it(visit, plain):
    page = visit(plain)
    cell(page, 8).focus()
    page.keyboard.press("Enter")
    assert page.locator("#pane-heading").inner_text() == "400 tokens at 75 %"
    assert page.evaluate("document.activeElement.id") == "pane-heading"
    page.keyboard.press("Escape")
    assert page.locator("#pane-heading").inner_text() == "Trials"
    assert focused(page) == "8"


def test_space_opens_a_cell_and_its_trials_follow_the_arrows(visit, plain):
    page = visit(plain)
    cell(page, 8).focus()
    page.keyboard.press(" ")
    assert focused(page) == "8"
    page.keyboard.press("ArrowRight")
    assert page.locator("#pane-heading").inner_text() == "600 tokens at 75 %"
    assert cell(page, 13).get_attribute("aria-selected") == "true"


def test_values_are_written_in_the_cells_readable_in_every_palette(visit, plain):
    page = visit(plain)
    value = page.locator("#chart .value").nth(3)
    assert not value.is_visible()
    page.check("#values")
    assert value.bounding_box()["height"] >= 9
    for palette in page.locator("#palette option").all():
        page.select_option("#palette", palette.get_attribute("value"))
        assert all(contrast(page, number) >= 4.5 for number in range(20))


def test_a_palette_for_the_colour_blind_is_named_so_and_recolours_all(visit, plain):
    page = visit(plain)
    assert "colour-blind safe" in page.locator("#palette option[value=cividis]").inner_text()
    page.select_option("#palette", "cividis")
    best = next(number for number in range(20) if "score 100.0" in label(page, number))
    assert colour(page, best) == "rgb(254, 232, 56)"


def test_choices_outlive_the_page_where_the_browser_keeps_them(visit, plain):
    page = visit(plain)
    page.select_option("#palette", "grey")
    page.select_option("#theme", "dark")
    page.reload()
    page.locator("#page").wait_for()
    assert page.locator("#palette").input_value() == "grey"
    assert brightness(paper(page)) < 100


def test_it_works_where_nothing_can_be_kept(visit, plain):
    page = visit(plain)
    refuse = (
        "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('no') }})"
    )
    page.context.add_init_script(refuse)
    page.reload()
    page.locator("#page").wait_for()
    page.select_option("#palette", "grey")
    assert page.locator("#palette").input_value() == "grey"


def test_it_is_dark_where_the_reader_wants_dark(visit, plain):
    assert brightness(paper(visit(plain, color_scheme="light"))) > 700
    page = visit(plain, color_scheme="dark")
    assert brightness(paper(page)) < 100
    assert brightness(page.evaluate("getComputedStyle(document.body).color")) > 600
    page.select_option("#theme", "light")
    assert brightness(paper(page)) > 700


def test_on_paper_it_is_white_with_map_and_summary_and_without_controls(visit, plain):
    page = visit(plain, color_scheme="dark")
    cell(page, 2).click()
    page.emulate_media(media="print", color_scheme="dark")
    assert paper(page) == "rgb(255, 255, 255)"
    assert brightness(page.evaluate("getComputedStyle(document.body).color")) < 200
    for hidden in ("#controls", "#pane", "#keys"):
        assert not page.locator(hidden).is_visible(), hidden
    for shown in ("#grid", "#chart", "#answer", "#readings", "#effective", "#lines"):
        assert page.locator(shown).is_visible(), shown
    assert cell(page, 0).evaluate("cell => getComputedStyle(cell).printColorAdjust") == "exact"


def test_on_paper_nothing_stays_folded(visit, plain):
    page = visit(plain)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("#notes details:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("#notes details[open]").count() < page.locator("#notes details").count()
    assert page.pdf(format="A4", print_background=False).startswith(b"%PDF")


@pytest.mark.parametrize(
    "report",
    [
        "plain",
        "three",
        "faulty",
    ],
)
def test_a_narrow_page_has_nothing_beside_the_screen(visit, report, request):
    page = visit(request.getfixturevalue(report), **NARROW)
    if report == "three":
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.get_by_role("tab").nth(1).click()
    cell(page, 1).click()
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert cell(page, 0).bounding_box()["width"] >= 8


def test_cells_too_small_for_values_say_so_beside_what_was_ticked(visit, crowded):
    page = visit(crowded, **NARROW)
    assert not page.locator("#cramped-note").is_visible()
    page.check("#values")
    assert (
        page.locator("#controls #cramped-note").inner_text() == "no room for values in these cells"
    )
    assert page.locator("#chart .value").count() == 0


def test_the_tip_stands_beside_its_cell_and_is_gone_after_a_click(visit, plain):
    """It covered a third of the map, the cells above the one being read, and stayed when it was
    clicked."""
    page = visit(plain)
    for number in (0, 7, 12, 19):
        cell(page, number).hover()
        tip, box = page.locator("#tip").bounding_box(), cell(page, number).bounding_box()
        assert tip["x"] >= box["x"] + box["width"] or tip["x"] + tip["width"] <= box["x"]
    cell(page, 19).click()
    assert not page.locator("#tip").is_visible()
    page.keyboard.press("ArrowUp")
    assert page.locator("#pane-heading").inner_text() == "900 tokens at 75 %"
    assert not page.locator("#tip").is_visible()


def test_on_a_phone_the_tip_of_a_key_covers_no_part_of_its_cell(visit, plain):
    page = visit(plain, **NARROW)
    cell(page, 6).focus()
    page.keyboard.press("ArrowDown")
    tip, box = page.locator("#tip").bounding_box(), cell(page, 7).bounding_box()
    apart = tip["y"] >= box["y"] + box["height"] or tip["y"] + tip["height"] <= box["y"]
    assert apart or tip["x"] >= box["x"] + box["width"] or tip["x"] + tip["width"] <= box["x"]


def test_trials_fill_the_right_half_and_numbers_stand_under_the_map(visit, plain):
    """A third of the page under the map was blank while the right column was full."""
    page = visit(plain)
    middle, top = WIDE["width"] / 2, page.locator("#readings").bounding_box()["y"]
    assert page.locator("#effective").bounding_box()["x"] < middle
    cell(page, 3).click()
    pane = page.locator("#pane").bounding_box()
    assert pane["x"] > middle
    assert pane["y"] < top + 40
    assert page.locator("#effective").bounding_box()["x"] < middle


def test_a_tap_opens_a_cell_and_brings_its_trials_in_sight(visit, plain):
    page = visit(plain, **PHONE)
    cell(page, 8).tap()
    assert page.locator("#pane-heading").inner_text() == "400 tokens at 75 %"
    top = page.locator("#pane").bounding_box()["y"]
    assert 0 <= top < 740 / 2
    page.locator(".chip").nth(1).tap()
    assert page.locator("#trial h3").inner_text().startswith("Repeat 1")


def test_what_was_not_measured_is_hatched_and_never_a_zero(visit, faulty):
    page = visit(faulty)
    names = [label(page, number) for number in range(20)]
    empty = next(number for number, name in enumerate(names) if "score not measured" in name)
    assert "hatch" in colour(page, empty)
    assert re.search(r"n 0 trials, .*missing 3 \(.*out of memory", names[empty])
    assert page.locator(f"#chart [data-on='{empty}']").count() == 0
    assert page.locator("#chart").get_by_text("not measured", exact=True).is_visible()


def test_what_is_partly_missing_has_a_corner(visit, faulty):
    page = visit(faulty)
    some = next(
        number
        for number in range(20)
        if re.search(r"score [\d.].*missing [12] \(", label(page, number) or "")
    )
    assert page.locator(f"#chart path[data-on='{some}']").count() == 1
    whole = next(number for number in range(20) if "missing" not in (label(page, number) or ""))
    assert page.locator(f"#chart path[data-on='{whole}']").count() == 0


def test_the_reasons_are_listed_by_kind_with_the_servers_words(visit, faulty):
    notes = visit(faulty).locator("#notes details", has_text="What could not be measured")
    assert notes.get_attribute("open") is not None
    assert "out of memory" in notes.inner_text()
    assert "CUDA out of memory" in notes.inner_text()


def test_effective_length_stands_in_a_table_and_nowhere_over_the_curve(visit, plain):
    """Its names were printed over the curve, and it stood on the page three times."""
    page = visit(plain)
    rows = page.locator("#effective tbody tr")
    assert rows.count() == len(RULES)
    assert rows.first.inner_text().startswith(("absolute:85", "1 absolute:85", "1\nabsolute:85"))
    assert "absolute:85" not in " ".join(page.locator("#chart text").all_text_contents())
    assert "effective" not in page.locator("#readings").inner_text().lower()


def test_the_answer_stands_first_in_a_sentence(visit, plain):
    page = visit(plain)
    answer = page.locator("#answer")
    assert re.match(
        r"Mean score 75\.0 % \[[\d., ]+\] of 60 prompts\.\s+Lowest at ", answer.inner_text()
    )
    assert answer.bounding_box()["y"] < page.locator("#readings").bounding_box()["y"]
    assert page.locator("#page").inner_text().count("75.0 %") == 1


def test_on_a_phone_the_answer_stands_before_palette_and_theme(visit, plain):
    page = visit(plain, **NARROW)
    controls = page.locator("#controls").bounding_box()
    assert page.locator("#answer").bounding_box()["y"] < 200 < controls["y"]
