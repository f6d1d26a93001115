"""A real Chromium, real runs, and pages made of them by `needlemap report`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import needlemap
from needlemap.records.families import begin_families
from needlemap.reports.page.summary import write_page

FIXTURES = Path(__file__).parents[1] / "fixtures"
NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ("--disable-background-networking", "--disable-component-update", "--no-first-run")
GRID = {"lengths": "300,400,600,900", "depths": "0:100:5", "repeats": 3}
SMALL = {
    "tokenizer": "cl100k_base",
    "max_answer_tokens": 40,
    "retries": 0,
    "concurrency": 1,
    "quiet": True,
}
WIDE = {"width": 1400, "height": 1000}

Visit = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium as it is installed; a skip without it or without playwright.

    One for each file: while playwright is open, its loop runs, and nothing else here may start one.
    """
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="no playwright: pip install '.[test]'"
    )
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no Chromium: apt-get install chromium")
    sandbox = ("--no-sandbox",) if os.geteuid() == 0 else ()
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=[*ARGUMENTS, *sandbox])
        yield started
        started.close()


class Watch:
    """What a page must not do: complain, fail, break its own policy, ask for anything but
    itself."""

    def __init__(self, page: Any) -> None:
        self.problems: list[str] = []
        self.expected: tuple[str, ...] = ()
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("request", lambda request: self._request(page, request))
        page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))

    def unexpected(self) -> list[str]:
        """Problems but those that the test says must come."""
        return [each for each in self.problems if not any(words in each for words in self.expected)]

    def _console(self, message: Any) -> None:
        self.problems.append(f"console: {message.text}")

    def _request(self, page: Any, request: Any) -> None:
        itself = request.is_navigation_request() and request.frame == page.main_frame
        if not itself and not request.url.startswith("data:"):
            self.problems.append(f"request: {request.url}")


@pytest.fixture
def visit(browser: Any) -> Iterator[Visit]:
    """visit(file or address, **context options): the opened page; in the end, it did nothing it
    must not."""
    contexts: list[Any] = []
    watches: list[Watch] = []

    def opened(where: Path | str, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": WIDE, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(120_000)  # a bound for what hangs
        page.watch = Watch(page)
        watches.append(page.watch)
        page.goto(where.resolve().as_uri() if isinstance(where, Path) else where)
        page.locator("#page").wait_for()
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [problem for watch in watches for problem in watch.unexpected()] == []


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory, _wire_process: Any) -> Bench:
    """Makes runs and reports in a folder of its own."""
    return Bench(tmp_path_factory.mktemp("browser"), _wire_process)


class Bench:
    """Runs and their reports, each made once."""

    def __init__(self, folder: Path, wire: Any) -> None:
        self.folder, self.wire = folder, wire

    def run(self, name: str, *faults: str, **settings: Any) -> Path:
        """A run against the wire server, which meets these faults in turn, over and over."""
        folder = self.folder / name
        if not folder.exists():
            self.wire.reset()
            self.wire.schedule(*(faults or ("ok",)), cycle=True)
            model = {"model": f"openai/{name}", "base_url": self.wire.base_url}
            needlemap.run(out=folder, **{**model, **SMALL, **GRID, **settings})
        return folder

    def plain(self) -> Path:
        """A run in which every fourth answer is wrong."""
        return self.run("plain", "ok", "ok", "ok", "say:I do not know.")

    def other(self) -> Path:
        """A run of another needle."""
        needle = {"needle": "The gate code is 4711.", "question": "What is the gate code?"}
        return self.run("other", **needle, keywords=["4711"])

    def changed(self, name: str, new: str, change: Callable[[dict[str, Any]], None]) -> Path:
        """A copy of a run in which `change` was made to each record."""
        folder = self.folder / new
        shutil.copytree(self.folder / name, folder)
        for file in folder.glob("records-*.jsonl"):
            records = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
            for record in records:
                change(record)
            file.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
        return folder

    def report(self, *runs: str, title: str | None = None) -> Path:
        """The page of runs."""
        file = self.folder / f"{len(runs)} {runs[0][:20]} {runs[-1][:9]}.html"
        return (
            file
            if file.exists()
            else write_page([self.folder / run for run in runs], file, title=title)
        )


def judged(bench: Bench, kind: str, families: dict[str, str]) -> Path:
    """A folder as `check` or `storm` leaves it: what it once found about a server that forgets
    (fixtures/pages), beside runs that its rows lead to. families: their names, and the length that
    each asks."""
    folder = bench.folder / kind
    if not (folder / f"{kind}.json").exists():
        begin_families(folder, kind, tuple(families))
        for name, length in families.items():
            bench.run(f"{kind}/{name}", "ok", "say:no", lengths=length, depths="0,50", repeats=1)
        shutil.copy(FIXTURES / "pages" / f"{kind}.json", folder)
    return bench.report(kind)


@pytest.fixture(scope="session")
def check(bench: Bench) -> Path:
    """A check that is undecided, as a length loses half of what is asked."""
    ways = ("ask", "cold", "edges", "again")
    families = {f"{way}-{size}": str(size // 4) for size in (1264, 2249, 4000) for way in ways}
    return judged(bench, "check", families)


@pytest.fixture(scope="session")
def storm(bench: Bench) -> Path:
    """A storm that found a fault of state, and its shortest sequence."""
    return judged(bench, "storm", {"storm": "300", "replay": "400"})


@pytest.fixture(scope="session")
def ab(bench: Bench) -> Path:
    """Two arms of which the second guesses."""
    if not (bench.folder / "ab").exists():
        arms = ("--arm", "ref=baseline/bm25", "--arm", "new=baseline/random")
        grid = ("--lengths", "300,400,500", "--depths", "20,70", "--tokenizer", "cl100k_base")
        asked = ("--until", "60", "-o", "ab", "--quiet")
        command = [
            Path(sys.executable).with_name("needlemap"),
            "ab",
            "passkey",
            *arms,
            *grid,
            *asked,
        ]
        ended = subprocess.run(command, cwd=bench.folder, capture_output=True, check=False)
        assert ended.returncode == 1, ended.stderr
    return bench.report("ab")


@pytest.fixture(scope="session")
def plain(bench: Bench) -> Path:
    """One run, in which every fourth answer is wrong."""
    bench.plain()
    return bench.report("plain")


@pytest.fixture(scope="session")
def faulty(bench: Bench) -> Path:
    """Some trials could not be measured, and of one cell none."""
    bench.run(
        "faulty", *["500-memory"] * 3, "ok", "ok", "429-large", "ok", "ok", "say:no", "ok", "ok"
    )
    return bench.report("faulty")


@pytest.fixture(scope="session")
def crowded(bench: Bench) -> Path:
    """So many lengths that a narrow screen has no room for their names."""
    bench.run("crowded", lengths="300:1900:24", depths="0,100", repeats=1)
    return bench.report("crowded")


@pytest.fixture(scope="session")
def depthless(bench: Bench) -> Path:
    """Two runs of a task that asks about the whole text."""
    asked = {"task": "count-frequent", "lengths": "800,1000", "depths": 50, "canary": False}
    bench.run("depthless", "ok", "say:no", **asked)
    bench.run("depthless-too", "say:no", **asked)
    return bench.report("depthless", "depthless-too")


@pytest.fixture(scope="session")
def three(bench: Bench) -> Path:
    """The plain run, one of the same trials that does better, and one of another needle."""
    bench.plain()
    bench.run("better")
    bench.other()
    return bench.report("plain", "better", "other")


@pytest.fixture(scope="session")
def unlike(bench: Bench) -> Path:
    """Two runs that cannot be compared."""
    bench.run("better")
    bench.other()
    return bench.report("better", "other")


@pytest.fixture(scope="session")
def two(bench: Bench) -> Path:
    """The plain run and one of the same trials that does better."""
    bench.plain()
    bench.run("better")
    return bench.report("plain", "better")


@pytest.fixture(scope="session")
def suites(bench: Bench) -> tuple[Path, Path]:
    """Two runs of one suite: all that can be found, and the last 600 tokens of it."""
    asked = {
        "model": "baseline/bm25",
        "lengths": "600,1200",
        "depths": "0,100",
        "repeats": 1,
        "quiet": True,
    }
    for name, options in (
        ("full", {}),
        ("lossy", {"model_options": {"window": 600}, "label": "lossy"}),
    ):
        if not (bench.folder / name).exists():
            needlemap.run(
                "suite:ruler-niah",
                out=bench.folder / name,
                tokenizer="cl100k_base",
                **asked,
                **options,
            )
    return bench.folder / "full", bench.folder / "lossy"


@pytest.fixture(scope="session")
def suite(bench: Bench, suites: tuple[Path, Path]) -> Path:
    """The page of one of them."""
    return bench.report(suites[0].name)
