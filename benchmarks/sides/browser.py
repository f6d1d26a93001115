"""How fast the page opens in Chromium, and shows the trial of a cell that is clicked."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_CLICKS = 10
_LATEST_MS = 20_000
# Frames are counted to the one after that in which the map, or the trial, is there: then it is
# painted.
_WATCH = """
const frame = () => new Promise(requestAnimationFrame);
const until = async (there) => {
  const late = performance.now() + LATEST_MS;
  while (!there()) {
    if (performance.now() > late) throw new Error("nothing was drawn in LATEST_MS ms");
    await frame();
  }
  await frame();
  return performance.now();
};
const mapped = () =>
  document.querySelector("#page:not([hidden]) :is(#grid .cell, #sheet .chart svg)");
window.opened = until(mapped);
addEventListener("pointerdown", (event) => {
  const trial = document.querySelector("#trial");
  const shown = trial.textContent;
  window.clicked = until(() => trial.textContent && trial.textContent !== shown)
    .then((now) => now - event.timeStamp);
}, true);
""".replace("LATEST_MS", str(_LATEST_MS))


@dataclass(frozen=True, slots=True)
class Opened:
    """Seconds from navigation to the painted map; milliseconds from the press to the painted
    trial."""

    open_s: float
    click_ms: float


def open_page(page: Path, rounds: int, *, clicks: bool = True) -> Opened | None:
    """Medians over fresh browser contexts; None where Chromium or playwright is not installed.

    clicks: whether cells are clicked; a page that opens with a sheet has none in sight, and is open
    when its curves are there.
    """
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if program is None:
        return None
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        found = [_opened(browser, page, clicks) for _ in range(rounds)]
        browser.close()
    return Opened(median(each.open_s for each in found), median(each.click_ms for each in found))


def _opened(browser: Any, page: Path, clicks: bool) -> Opened:
    """One fresh context. Trials are unpacked while nobody clicks, so the clicks come a second
    later."""
    with browser.new_context(viewport={"width": 1400, "height": 1000}) as context:
        shown = context.new_page()
        shown.add_init_script(_WATCH)
        shown.goto(page.resolve().as_uri())
        open_ms = shown.evaluate("opened")
        if not clicks:
            return Opened(open_ms / 1000, float("nan"))
        shown.wait_for_timeout(1000)
        cells = shown.locator("#grid .cell")
        step = max(1, cells.count() // _CLICKS)
        times = []
        for place in range(0, cells.count(), step):
            cells.nth(place).click()
            times.append(shown.evaluate("clicked"))
    return Opened(open_ms / 1000, median(times))
