"""The page of a large run: how long it takes to build, how large it is, how fast it opens and
answers.

    python benchmarks/report.py [--essays FOLDER] [--rounds N] [--keep FOLDER] [--smoke]

35 lengths x 35 depths x 10 repeats: 12,250 real prompts with simulated answers (sides/filled.py),
kept as a run would keep them. `needlemap report RUN -o page.html` is a process of its own, its
start included. The limit beside it is what no page can do without: to read the records as JSON, and
to compress and encode its data. Where Chromium and playwright are installed, the page is opened
from the disk and a cell clicked. A second page holds 100 runs of 15 x 15 trials: one sheet of
curves, and 99 differences.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

from essays import essays
from machine import machine, run
from needlemap.reports.page.document import LEVEL
from needlemap.settings import Settings
from needlemap.settings.reading import configure
from needlemap.trials.build import prepare
from sides.browser import Opened, open_page
from sides.filled import fill
from table import rounded, show

MANY = {"lengths": "1000:16000:15", "depths": "0:100:15", "repeats": 1}
_START = "import needlemap.cli, needlemap.stats.means, needlemap.settings"


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds on the clock, and of CPU time."""

    wall_s: float
    cpu_s: float


def main() -> None:
    """Make a run, build its page, verify, print."""
    options = _options()
    with TemporaryDirectory() as scratch:
        haystack, about = essays(options.essays, Path(scratch) / "essays")
        folder = options.keep or Path(scratch) / "run"
        if not (folder / "run.json").exists():
            fill(prepare(_settings(haystack, options)), folder)
        page = Path(scratch) / "page.html"
        built = [_ran(_report_command(folder, page)) for _ in range(options.rounds)]
        trials = check(page.read_bytes(), folder)
        parts = _limits(folder, page.read_bytes())
        limits = {
            name: _least([work() for _ in range(options.rounds)]) for name, work in parts.items()
        }
        opened = open_page(page, options.rounds)
        many = _many(haystack, options, Path(scratch))
        _report(about, built, limits, opened, trials, page.stat().st_size, many)


def _report_command(folder: Path, page: Path, *more: Path) -> list[str]:
    """What a user types."""
    command = Path(sys.executable).with_name("needlemap")
    return list(map(str, (command, "report", folder, *more, "-o", page)))


@dataclass(frozen=True, slots=True)
class Many:
    """The page of many runs: its bytes, what it took to build, seconds to open it."""

    runs: int
    size: int
    built: Took
    open_s: float | None


def _many(haystack: Path, options: argparse.Namespace, scratch: Path) -> Many:
    """Runs of one grid with other answers each."""
    experiment = prepare(_settings(haystack, replaced(options, options.many)))
    folders = [scratch / f"run-{number}" for number in range(options.runs)]
    for seed, folder in enumerate(folders):
        fill(experiment, folder, seed)
    page = scratch / "many.html"
    built = _ran(_report_command(folders[0], page, *folders[1:]))
    data = _data(page.read_bytes())
    if len(data) != 1 + len(folders) or not json.loads(gzip.decompress(data[0]))["sheets"]:
        raise RuntimeError("The page does not hold all runs and their sheet.")
    opened = open_page(page, 1, clicks=False)
    return Many(len(folders), page.stat().st_size, built, opened and opened.open_s)


def replaced(options: argparse.Namespace, more: dict[str, Any]) -> argparse.Namespace:
    """Options with others in their place."""
    return argparse.Namespace(**{**vars(options), **more})


def check(page: bytes, folder: Path) -> int:
    """How many trials the page holds. Raises RuntimeError unless it holds every answer of the run,
    whole.

    One that several cells share stands in each of them.
    """
    blobs = [json.loads(gzip.decompress(data)) for data in _data(page)]
    strings, answers = blobs[1]["strings"], blobs[1]["answer"]
    shown = Counter(strings[answer] for answer in answers if answer is not None)
    kept = Counter(line["answer"] for line in _lines(folder) if line["answer"] is not None)
    if kept - shown or set(shown) != set(kept):
        raise RuntimeError("The page does not hold the run's answers.")
    return len(answers)


def _limits(folder: Path, page: bytes) -> dict[str, Callable[[], Took]]:
    """What has to be done however the rest is done."""
    texts = [gzip.decompress(data) for data in _data(page)]
    values = [json.loads(text) for text in texts]
    return {
        "start Python with what is needed": lambda: _ran([sys.executable, "-c", _START]),
        "read the records as JSON": lambda: _timed(lambda: _lines(folder)),
        "write the page's data as JSON": lambda: _timed(
            lambda: [json.dumps(value) for value in values]
        ),
        "compress and encode it": lambda: _timed(
            lambda: [b64encode(gzip.compress(text, LEVEL)) for text in texts]
        ),
    }


def _lines(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("records-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_bytes().splitlines()]


def _data(page: bytes) -> list[bytes]:
    blobs = re.findall(
        rb'<script type="application/octet-stream" id="[\w-]+">([\w+/=]*)</script>', page
    )
    return [b64decode(blob) for blob in blobs]


def _ran(command: list[str]) -> Took:
    done = run(command)
    return Took(done.wall_s, done.cpu_s)


def _timed(work: Callable[[], object]) -> Took:
    wall, cpu = perf_counter(), process_time()
    work()
    return Took(perf_counter() - wall, process_time() - cpu)


def _least(times: list[Took]) -> Took:
    return Took(min(each.wall_s for each in times), min(each.cpu_s for each in times))


def _settings(haystack: Path, options: argparse.Namespace) -> Settings:
    return configure(
        None,
        {
            "model": "openai/gpt-4o",
            "haystack": "folder",
            "haystack_path": str(haystack.resolve()),
            "lengths": options.lengths,
            "depths": options.depths,
            "repeats": options.repeats,
            "haystack_repeat": True,
        },
    )


def _report(
    about: str,
    built: list[Took],
    limits: dict[str, Took],
    opened: Opened | None,
    trials: int,
    size: int,
    many: Many,
) -> None:
    ours = Took(median(each.wall_s for each in built), median(each.cpu_s for each in built))
    limit = Took(
        sum(each.wall_s for each in limits.values()), sum(each.cpu_s for each in limits.values())
    )
    rows = [
        _row("needlemap report RUN -o page.html", ours, f"{ours.cpu_s / limit.cpu_s:.1f}"),
        _row("the limit, as the sum of", limit, "1.0"),
        *(_row(f"  {name}", took, "") for name, took in limits.items()),
    ]
    seen = (
        {}
        if opened is None
        else {"open_s": rounded(opened.open_s), "click_ms": rounded(opened.click_ms)}
    )
    says = (
        "No Chromium or no playwright here: opening was not measured."
        if opened is None
        else (
            f"Chromium opens it in {opened.open_s:.2f} s; a click shows a trial in "
            f"{opened.click_ms:.0f} ms."
        )
    )
    show(
        f"The page of {trials:,} trials; answers simulated, prompts from {about}",
        machine("needlemap", "pydantic", "numpy"),
        ("", "CPU s", "seconds", "times the limit"),
        rows,
        [
            f"The page has {size / 1e6:.2f} MB and holds every answer. {says}",
            f"Medians of {len(built)} builds, the least of as many limits; shares of CPU seconds.",
            f"{many.runs} runs in one page: {many.size / 1e6:.2f} MB, built in "
            f"{many.built.cpu_s:.1f} CPU s"
            + (f", opened in {many.open_s:.2f} s." if many.open_s else "."),
        ],
        {
            "benchmark": "report",
            "build_s": rounded(ours.wall_s),
            "build_cpu_s": rounded(ours.cpu_s),
            "limit_cpu_s": rounded(limit.cpu_s),
            "build_over_limit": rounded(ours.cpu_s / limit.cpu_s),
            "mb": rounded(size / 1e6),
            "mb_100": rounded(many.size / 1e6),
            "build_100_cpu_s": rounded(many.built.cpu_s),
            "trials": trials,
            **seen,
        },
    )


def _row(name: str, took: Took, share: str) -> tuple[str, ...]:
    return name, f"{took.cpu_s:.2f}", f"{took.wall_s:.2f}", share


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="The page of a large run: building and opening it."
    )
    parser.add_argument(
        "--essays", type=Path, help="folder of .txt files; default: shared essays, or prose"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="keep the run here, and use it if it is there")
    parser.add_argument(
        "--smoke", action="store_true", help="a few short cells: does it work at all?"
    )
    options: Any = parser.parse_args()
    options.lengths, options.depths, options.repeats = "1000:128000:35", "0:100:35", 10
    options.runs, options.many = 100, MANY
    if options.smoke:
        options.lengths, options.depths, options.repeats, options.rounds = (
            "1000:2000:3",
            "0:100:4",
            2,
            1,
        )
        options.runs, options.many = 3, {}
    return options


if __name__ == "__main__":
    main()
