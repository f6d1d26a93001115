"""Every text of a run is hostile: answers, names, errors, judges' words. None of it runs or breaks
a page."""

from __future__ import annotations

import re
import shlex
import shutil

import pytest

BREAKOUTS = (
    "</script><script>window.ran = 1</script>",
    "<!--<script>window.ran = 2</script>",
    "]]></title></style></textarea></noscript><img src=x onerror='window.ran = 3'>",
    "<svg onload='window.ran = 4'><iframe srcdoc='<script>parent.ran = 5</script>'><b>bold",
    "<a href='javascript:window.ran = 6'>click</a><link rel=stylesheet href=http://example.invalid/x.css>",
    "${window.ran = 7}{{script}}&lt;&#60;script&#62;",
)
RIGHT_TO_LEFT = "\u202eמה השעה? הקוד הוא 12345 \u2066 \u200b"
CONTROLS = "\x1b[31mred\x1b[0m \x00\x07\x9b\u2028 end"
LINE = "x" * 100_000
ANSWERS = (*BREAKOUTS, RIGHT_TO_LEFT, CONTROLS, LINE)
FOLDER = "it's <img src=x onerror=alert(1)> $(touch ran) &"
NAME = "</title><script>window.ran = 8</script>\u202e<b>&"


def poison(record):
    """Hostile text in every field of a record that holds text."""
    text = ANSWERS[
        (record["repeat"] + round(4 * record["depth"]) + record["length_tokens"]) % len(ANSWERS)
    ]
    record["answer"] = text
    record["thinking"] = text
    record["question"] = text[:5000]
    record["reference"] = BREAKOUTS[0]
    record["keywords"] = [text[:50], "<script>", ""]
    record["model"] = NAME
    record["finish"] = record["answered_by"] = text[:300]
    record["scorer"]["why"] = {
        text[:40]: text[:4000],
        "found": [text[:40]],
        "said": text[:3000],
        "deep": {"a": [text[:40]]},
    }
    record["prompt"]["collisions"] = [text[:40]]
    if record["repeat"] == 1:
        record["score"], record["scorer"] = None, None
        record["failure"], record["error"] = "server error", text[:6000]


@pytest.fixture(scope="session")
def hostile(bench):
    """The plain run with hostile text everywhere, in a folder of a hostile name, under a hostile
    title."""
    bench.plain()
    bench.changed("plain", "poisoned", poison)
    folder = bench.folder / FOLDER
    shutil.move(bench.folder / "poisoned", folder)
    return bench.report(folder.name, "plain", title=NAME)


def ran(page):
    return page.evaluate("window.ran ?? null")


def alien(page):
    """Elements that no part of the page makes."""
    found = (
        "img, iframe, svg [onload], a:not(.skip, .link), link:not([rel=icon]), object, embed, "
        "[onerror], [onload]"
    )
    return page.locator(found).count()


def test_names_and_titles_are_text(visit, hostile):
    page = visit(hostile)
    assert page.title() == NAME
    assert "<script>window.ran = 8</script>" in page.locator("h1").inner_text()
    assert "U+202E" in page.locator("h1").inner_text()
    assert ran(page) is None
    assert alien(page) == 0


def test_every_trial_can_be_read_and_none_runs(visit, hostile):
    page = visit(hostile)
    page.get_by_role("tab").nth(2).click()
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    seen = set()
    for number in range(20):
        page.locator(f"#grid [data-cell='{number}']").click()
        for _ in range(3):
            page.keyboard.press("n")
            text = page.locator("#trial").text_content()
            seen |= {answer for answer in BREAKOUTS if answer in text}
        assert ran(page) is None
        assert alien(page) == 0
    assert seen == set(BREAKOUTS)


def test_searching_hostile_answers_is_as_harmless(visit, hostile):
    page = visit(hostile)
    page.fill("#query", "<script>")
    page.locator("#found .hit").first.wait_for()
    assert "<script>" in page.locator("#found mark").first.inner_text()
    assert (ran(page), alien(page)) == (None, 0)


def test_right_to_left_text_runs_its_own_way_and_turns_nothing_else(visit, hostile):
    page = visit(hostile)
    page.fill("#query", "הקוד")
    page.locator("#found .hit").first.click()
    answer = page.locator("#trial .block > .prose", has_text="השעה").last
    assert answer.evaluate("block => block.matches(':dir(rtl)')")
    assert "U+202E" in answer.inner_text()
    assert "\u202e" not in page.locator("#trial").text_content()
    assert page.locator("#trial h3").evaluate("title => getComputedStyle(title).direction") == "ltr"


def test_control_characters_are_made_visible(visit, hostile):
    page = visit(hostile)
    page.fill("#query", "[31mred")
    page.locator("#found .hit").first.click()
    text = page.locator("#trial").text_content()
    for picture in ("ESC", "NUL BEL U+009B", "U+2028"):
        assert picture in text
    assert not set("\x1b\x00\x07\x9b\u2028") & set(text)


def test_a_line_of_a_hundred_thousand_letters_is_wrapped_and_opens_on_demand(visit, hostile):
    page = visit(hostile, viewport={"width": 360, "height": 740}, reduced_motion="reduce")
    page.fill("#query", "x" * 60)
    page.locator("#found .hit").first.click()
    answer = page.locator("#trial .block", has=page.locator("h4", has_text="Answer")).last
    assert len(answer.inner_text()) < 3000
    took = page.evaluate(
        """() => new Promise((done) => {
            const from = performance.now();
            document.querySelector('#trial > .block:not(details) .more').click();
            requestAnimationFrame(() => setTimeout(() => done(performance.now() - from)));
        })"""
    )
    assert took < 1000
    page.locator("#trial .more").last.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert "more characters are in the run's records only" in answer.inner_text()


def test_a_hostile_folder_is_one_word_of_the_replay_command(visit, hostile, bench):
    page = visit(hostile)
    page.locator("#grid [data-cell='0']").click()
    words = shlex.split(page.locator(".replay code").inner_text())
    assert words[:3] == ["needlemap", "replay", str(bench.folder / FOLDER)]
    assert words[3:] == ["--length", "300", "--depth", "0", "--repeat", "0"]


def test_without_scripts_the_numbers_are_still_there(hostile, browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(hostile.as_uri())
    assert re.search(r"75 %\s+\d+\.\d \(\d\)", page.locator("#written").inner_text())
    context.close()


def test_a_page_that_was_cut_off_says_so(plain, browser, tmp_path):
    text = plain.read_text("utf-8")
    start = text.index('id="summary">') + len('id="summary">')
    broken = tmp_path / "broken.html"
    broken.write_text(text[: start + 400] + text[start + 480 :], "utf-8")
    context = browser.new_context()
    page = context.new_page()
    page.goto(broken.as_uri())
    page.get_by_text("This page is damaged").wait_for()
    assert page.locator("#written").get_by_text("Versions and hashes").is_visible()
    context.close()
