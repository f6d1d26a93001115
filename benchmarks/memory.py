"""Peak memory of a run: every prompt of a 35 x 35 grid to 1,000,000 tokens, built and sent.

    python benchmarks/memory.py [--peer-python PYTHON] [--essays FOLDER] [--skip-peer] [--smoke]

Ours is the command itself, `needlemap run`, in a process of its own, against a server in another
that answers at once and keeps nothing (`sides/sink.py`); the figure is the kernel's VmHWM of the
process. Beside it the original tool over the four longest cells only, and what cannot be avoided:
Python with what a run imports, the haystack's text, and one prompt's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

from essays import essays
from machine import machine, run
from needlemap.grid import Depths, Lengths, make_grid
from needlemap.records.folder import RunFolder
from ranks import write_ranks
from sides.sink import WORD
from table import rounded, show

_SIDES = Path(__file__).resolve().parent / "sides"
_ANSWER_TOKENS = 40
_LEAST_BYTES, _MOST_BYTES = 2.5, 8.0  # of text a token
_CONCURRENCY = 4
PEER_DEPTHS = [10, 35, 60, 85]


@dataclass(frozen=True, slots=True)
class Took:
    """What a run took. peak, imports: bytes; sent: bytes of requests; tokens: of prompts."""

    grid: str
    cells: int
    tokens: int
    sent: int
    peak: int
    imports: int
    wall_s: float
    cpu_s: float


def main() -> None:
    """Measure, verify, print."""
    options = _options()
    with TemporaryDirectory() as scratch:
        folder, about = essays(options.essays, Path(scratch) / "essays")
        took = [
            measure(folder, grid, Path(scratch) / f"run{place}")
            for place, grid in enumerate(options.grids)
        ]
        peer = None if options.skip_peer else measure_peer(folder, Path(scratch), options)
    _report(about, took, peer)


@contextmanager
def sink() -> Iterator[str]:
    """A server process; its address."""
    command = [sys.executable, str(_SIDES / "sink.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def received(url: str) -> dict[str, int]:
    """Requests and bytes that came to a server."""
    with urlopen(f"{url}/count", timeout=10) as reply:
        found: dict[str, int] = json.load(reply)
    return found


def measure(folder: Path, grid: tuple[str, str, str], out: Path) -> Took:
    """A whole run of the command. Raises RuntimeError when not every prompt was sent and
    recorded."""
    name, lengths, depths = grid
    asked = {"--model": "openai/gpt-4", "--lengths": lengths, "--depths": depths, "-o": str(out)}
    asked |= {"--haystack": "folder", "--haystack-path": str(folder.resolve())}
    asked |= {
        "--needle": f"The word is {WORD}.",
        "--question": "What is the word?",
        "--keywords": WORD,
    }
    asked |= {"--max-answer-tokens": str(_ANSWER_TOKENS), "--concurrency": str(_CONCURRENCY)}
    with sink() as url:
        asked["--base-url"] = f"{url}/v1"
        flags = [part for pair in asked.items() for part in pair]
        done = run(
            [sys.executable, str(_SIDES / "peak.py"), "run", *flags, "--haystack-repeat", "--quiet"]
        )
        came = received(url)
    found = json.loads(done.output.splitlines()[-1])
    tokens = verify(out, lengths, depths, came, found["code"])
    return Took(
        name,
        came["requests"],
        tokens,
        came["bytes"],
        found["peak"],
        found["imports"],
        found["wall_s"],
        found["cpu_s"],
    )


def verify(out: Path, lengths: str, depths: str, came: dict[str, int], code: int) -> int:
    """Prompt tokens of a run, each cell of which was asked once, at its exact length, and
    scored."""
    grid, records = (
        make_grid(Lengths.parse(lengths), Depths.parse(depths)),
        list(RunFolder(out).records()),
    )
    cells = {(record.length_tokens, record.depth) for record in records if record.scored}
    exact = all(record.prompt.tokens == record.length_tokens - _ANSWER_TOKENS for record in records)
    tokens = sum(record.prompt.tokens for record in records)
    count = len(grid.lengths) * len(grid.depths)
    fits = _LEAST_BYTES * tokens < came["bytes"] < _MOST_BYTES * tokens
    if not (
        code == 0 and exact and fits and len(cells) == len(records) == came["requests"] == count
    ):
        raise RuntimeError(
            f"{len(records)} records, {came}, exit code {code}: not every prompt was sent."
        )
    return tokens


def measure_peer(folder: Path, scratch: Path, options: argparse.Namespace) -> tuple[str, int]:
    """The original tool's name here, and its peak in bytes, over the longest cells."""
    ranks = scratch / "ranks"
    ranks.mkdir()
    write_ranks(ranks)
    probe = subprocess.run(
        [options.peer_python, "-c", "import needlehaystack"], capture_output=True
    )
    way = "rewritten" if probe.returncode else "package"
    name = "needlehaystack 0.1.0" if way == "package" else "needlehaystack's way, in our words"
    longest = max(Lengths.parse(options.grids[-1][1]).tokens)
    with sink() as url:
        where = [str(folder.resolve()), f"{url}/v1", json.dumps([longest]), json.dumps(PEER_DEPTHS)]
        done = run(
            [options.peer_python, str(_SIDES / "memory_peer.py"), *where, str(_CONCURRENCY), way],
            {"TIKTOKEN_CACHE_DIR": str(ranks), "PATH": ""},
        )
        came = received(url)
    if came["requests"] != len(PEER_DEPTHS):
        raise RuntimeError(f"{name} sent {came['requests']} prompts, not {len(PEER_DEPTHS)}.")
    return name, int(json.loads(done.output.splitlines()[-1])["peak"])


def _report(about: str, took: list[Took], peer: tuple[str, int] | None) -> None:
    whole = took[-1]
    text = whole.sent / whole.tokens
    longest = max(Lengths.parse(_grid_of(whole)).tokens)
    limit = whole.imports + 2 * longest * text
    rows = [(f"needlemap, {one.grid}", *_figures(one)) for one in took]
    if peer is not None:
        cells = f"{len(PEER_DEPTHS)} cells of {longest:,} tokens"
        rows.append((f"{peer[0]}, {cells}", str(len(PEER_DEPTHS)), "", "", _gb(peer[1]), "", ""))
    rows += [
        (
            "all prompts' text held at once (reckoned)",
            "",
            "",
            "",
            _gb(whole.sent + whole.imports),
            "",
            "",
        ),
        ("Python, imports, haystack and one prompt's text", "", "", "", _gb(limit), "", ""),
    ]
    result: dict[str, Any] = {"benchmark": "memory", "peak_gb_1m": rounded(whole.peak / 1e9)}
    result |= {
        "peak_gb_1m_one_cell": rounded(took[0].peak / 1e9),
        "limit_gb_1m": rounded(limit / 1e9),
    }
    result |= {"peer": peer and peer[0], "peer_gb_1m": peer and rounded(peer[1] / 1e9)}
    result |= {"prompts": whole.cells, "tokens": whole.tokens, "sent_gb": rounded(whole.sent / 1e9)}
    show(
        f"Peak memory of a run, {_CONCURRENCY} requests at a time, from {about}",
        machine("needlemap", "numpy", "httpx", "quicktok-v1"),
        ("", "prompts", "M tokens", "GB sent", "peak GB", "wall s", "CPU s"),
        rows,
        [f"Every prompt was sent and its answer recorded; texts have {text:.2f} bytes a token."],
        result,
    )


def _grid_of(took: Took) -> str:
    return took.grid.partition(" of ")[2]


def _figures(one: Took) -> tuple[str, ...]:
    return (
        f"{one.cells:,}",
        f"{one.tokens / 1e6:,.1f}",
        f"{one.sent / 1e9:,.2f}",
        _gb(one.peak),
        f"{one.wall_s:.1f}",
        f"{one.cpu_s:.1f}",
    )


def _gb(size: float) -> str:
    return f"{size / 1e9:.3f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Peak memory of a run over a grid to 1M tokens.")
    parser.add_argument(
        "--essays", type=Path, help="folder of .txt files; default: as the other benchmarks"
    )
    parser.add_argument(
        "--peer-python", default=sys.executable, help="a Python that has needlehaystack 0.1.0"
    )
    parser.add_argument("--skip-peer", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="tiny grids: does it work at all?")
    options = parser.parse_args()
    top, small = ("4k", "1k") if options.smoke else ("1M", "128k")
    options.grids = [
        (f"1 x 1 of {top}", top, "50"),
        (f"5 x 5 of 1k:{top}:5", f"1k:{top}:5", "0:100:5"),
        (f"35 x 35 of 1k:{small}:35", f"1k:{small}:35", "0:100:35"),
        (f"35 x 35 of 1k:{top}:35", f"1k:{top}:35", "0:100:35"),
    ]
    if options.smoke:
        options.grids = [options.grids[0], ("3 x 3 of 1k:4k:3", "1k:4k:3", "0:100:3")]
    return options


if __name__ == "__main__":
    main()
