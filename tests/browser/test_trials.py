"""The pane of a page: the trials of a cell, what each holds, and the search through all answers."""

from __future__ import annotations

import re
import shlex

import pytest


def open_cell(page, number):
    page.locator(f"#grid [data-cell='{number}']").click()


def trial(page):
    return page.locator("#trial").inner_text()


def part(page, name):
    """One part of the trial that is shown."""
    return page.locator("#trial .block", has=page.locator("h4", has_text=re.compile(rf"^{name}")))


def wrong(page):
    """A cell with a wrong answer."""
    return next(
        each.get_attribute("data-cell")
        for each in page.locator("#grid .cell").all()
        if "score 100.0" not in each.get_attribute("aria-label")
    )


@pytest.fixture(scope="session")
def thoughtful(bench):
    """The plain run, as a model that thinks and a judge would have left it."""

    def change(record):
        record["thinking"] = "Let me see: where was the code?"
        record["scorer"]["name"] = "judge"
        record["scorer"]["scale"] = [1, 10]
        record["scorer"]["native"] = 7.0
        record["score"] = 6 / 9
        record["scorer"]["why"] = {
            "said": "Almost right.\nScore: 7",
            "model": "openai/gpt-4",
            "attempts": 1,
        }
        record["answer"] = f"It is {record['keywords'][0]}, I think."

    bench.plain()
    bench.changed("plain", "thoughtful", change)
    return bench.report("thoughtful")


def test_a_click_shows_the_whole_trial(visit, plain):
    page = visit(plain)
    open_cell(page, 7)
    assert page.locator(".chip").count() == 3
    assert re.match(r"Repeat 0: (100|0)\.0 %", trial(page))
    assert re.search(r"What is the locker code for \w+\?", part(page, "Question").inner_text())
    assert re.search(r"The locker code for \w+ is \d+\.", part(page, "Reference").inner_text())
    measured = part(page, "Measured").inner_text()
    for name in (
        "finish reason",
        "latency",
        "prompt",
        "cached",
        "attempts",
        "answered by",
        "finished",
        "prompt sha256",
    ):
        assert name in measured, name


def test_the_needle_is_marked_in_its_surroundings(visit, plain):
    page = visit(plain)
    open_cell(page, 7)
    about = page.locator("#trial .surroundings")
    assert re.fullmatch(
        r"\s*The locker code for \w+ is \d+\.\s*", about.locator("mark").inner_text()
    )
    assert len(about.inner_text()) > 300
    assert re.search(r"Needle at [\d.]+ % \(meant for 50 %\)", trial(page))


def test_what_was_looked_for_is_marked_in_the_answer(visit, plain):
    page = visit(plain)
    open_cell(page, 7)
    page.locator("#filter button", has_text=re.compile(r"^right")).click()
    assert re.search(r"\d{5}", part(page, "Answer").locator("mark").first.inner_text())


def test_why_a_score_came_about_is_said_in_words(visit, plain):
    page = visit(plain)
    open_cell(page, wrong(page))
    page.locator("#filter button", has_text=re.compile(r"^wrong")).click()
    assert re.search(r"found\s+none\s+not found\s+\d+", part(page, "Why").inner_text())


def test_a_judges_words_its_scale_and_the_models_thinking_are_shown(visit, thoughtful):
    page = visit(thoughtful)
    open_cell(page, 3)
    assert "66.7 % (7 on a scale of 1 to 10)" in trial(page)
    assert re.search(r"the judge said\s+Almost right\.\nScore: 7", part(page, "Why").inner_text())
    thinking = page.locator("#trial details", has_text="Thinking")
    assert not thinking.locator(".prose").is_visible()
    thinking.locator("summary").click()
    assert "where was the code?" in thinking.inner_text()
    assert page.locator("#filter").inner_text().count("full score") == 2


def test_keys_walk_through_the_trials_of_a_cell(visit, plain):
    page = visit(plain)
    open_cell(page, 7)
    for key, title in [("n", "Repeat 1"), ("n", "Repeat 2"), ("n", "Repeat 2"), ("p", "Repeat 1")]:
        page.keyboard.press(key)
        assert trial(page).startswith(title)


def test_the_focus_stays_on_the_trial_that_was_chosen(visit, plain):
    page = visit(plain)
    open_cell(page, 7)
    page.locator(".chip").nth(2).click()
    assert trial(page).startswith("Repeat 2")
    assert page.evaluate("document.activeElement.textContent") == "2"


def test_no_letter_is_a_command_while_somebody_types(visit, plain):
    page = visit(plain)
    open_cell(page, 7)
    page.locator("#query").press_sequentially("npn")
    assert trial(page).startswith("Repeat 0")


def test_the_replay_command_is_the_one_that_works(visit, plain, needlemap):
    page = visit(plain, permissions=["clipboard-read", "clipboard-write"])
    open_cell(page, 7)
    page.keyboard.press("n")
    command = page.locator(".replay code").inner_text()
    page.locator(".replay button").click()
    page.locator(".replay button", has_text="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == command
    replayed = needlemap(*shlex.split(command)[1:])
    assert (
        page.locator("#trial .block", has_text="Reference").inner_text().split("\n")[1]
        in replayed.stdout
    )
    assert "equals" in replayed.stderr or "same" in replayed.stderr or "recorded" in replayed.stderr


def test_filters_count_and_show_one_kind(visit, faulty):
    page = visit(faulty)
    buttons = page.locator("#filter button")
    numbers = [int(re.search(r"\d+$", text)[0]) for text in buttons.all_inner_texts()]
    assert numbers[0] == sum(numbers[1:]) == 60
    buttons.nth(3).click()
    assert f"{numbers[3]} trials found" in page.locator("#found").inner_text()
    page.locator("#found .hit").first.click()
    assert "not measured" in page.locator("#trial h3").inner_text()
    assert page.locator("#trial .failure").is_visible()


def test_searching_answers_lists_trials_and_fades_other_cells(visit, plain):
    page = visit(plain)
    page.fill("#query", "i DO not")
    page.locator("#found .hit").first.wait_for()
    found = page.locator("#found .hit").count()
    assert f"{found} trials found" in page.locator("#found").inner_text()
    assert page.locator("#found mark").first.inner_text() == "I do not"
    assert 0 < page.locator("#grid .cell.dim").count() < 20
    page.locator("#found .hit").nth(1).click()
    assert "I do not know." in part(page, "Answer").inner_text()
    page.fill("#query", "")
    page.locator(".dim").first.wait_for(state="detached")


def test_before_any_click_the_lowest_cells_are_named(visit, plain):
    page = visit(plain)
    first = page.locator("#cell .hit").first
    assert re.search(r"\d+\.\d % \[[\d.]+, [\d.]+\] n=3", first.inner_text())
    first.click()
    assert trial(page).startswith("Repeat 0")
