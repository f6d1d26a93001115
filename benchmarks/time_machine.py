"""Public faults of released engines: which needlemap command fails on the affected release, and
passes on the one that mended it?

    python benchmarks/time_machine.py                 prints the kept rows
    python benchmarks/time_machine.py --anew NAME     asks one row again: installs both releases
    python benchmarks/time_machine.py --quick N       asks mended releases N quick checks each
    python benchmarks/time_machine.py --full N        and N whole checks each

    --cache DIR keeps environments and models in a folder. --only TEXT: mended releases and settings
    whose name has it.

Rows are in `sides/faults_of_releases.py`. Each release gets an environment of its own, a server on
a free port and, twice, the command. The mended side is first: a command that cannot pass shows
nothing. A line of each is kept in `time_machine.jsonl`, and the last of each counts.

Prints one JSON object last. reproduced: rows that failed twice on the affected side and passed
twice on the other, without an error; controls: those of them whose fault no release has mended, so
that their green side is the same release without what the fault needs; engines: of reproduced
rows; released: rows of twins that `check` alone, by its probe `ways`, fails and passes as often;
not_seen: rows that were not reproduced, and known faults that were not tried; false_red:
commands that failed on a green side, quick and full checks of mended releases included;
answers_kept, answers_lost: in the kept records of those checks (`results/checks/`);
full_checks_of_engines, false_red_of_engines: whole checks of honest configurations of llama-server
and transformers, and those of them that failed, out of what `check.py --real` keeps.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).parent / "sides"))

from faults_of_releases import HONEST, NOT_TRIED, RELEASED, ROWS, Row, Server, Side, full

from real_models import KEPT as KEPT_RUNS
from real_models import files_of, pack

KEPT = Path(__file__).with_suffix(".jsonl")
HERE = Path(__file__).parent
CHECKS = KEPT_RUNS / "checks"  # records of the checks of mended releases
ENGINES = HERE / "real_engines.jsonl"
TIMES = 2  # that each side is asked
STARTS_S, COMMAND_S = 900.0, 1800.0
GREEN, RED = "green", "red"
WORDS = {0: "PASS", 1: "FAIL", 4: "NOT ENOUGH DATA", 5: "SUSPECT"}


def main() -> None:
    """Ask the named rows again, and print what is kept of all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--anew",
        nargs="*",
        default=[],
        choices=[row.name for row in (*ROWS, *RELEASED)],
        metavar="NAME",
    )
    parser.add_argument("--cache", type=Path, help="keep environments and models in this folder")
    parser.add_argument(
        "--quick", type=int, default=0, metavar="N", help="ask mended releases N quick checks each"
    )
    parser.add_argument(
        "--full", type=int, default=0, metavar="N", help="ask mended releases N whole checks each"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="ask those whose name has it")
    parser.add_argument("--smoke", action="store_true", help="print the kept rows; the default")
    options = parser.parse_args()
    with ExitStack() as stack:
        cache = options.cache or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for row in (*ROWS, *RELEASED):
            if row.name in options.anew:
                ask_row(row, cache.resolve())
        for row in HONEST:
            if options.only in row.name:
                ask_checks(row, options.quick, cache.resolve())
                ask_checks(full(row), options.full, cache.resolve())
    print_rows(kept())


def kept() -> dict[tuple[str, str, int], dict[str, Any]]:
    """Return the last kept line of each row, side and time."""
    if not KEPT.is_file():
        return {}
    lines = [json.loads(line) for line in KEPT.read_text("utf-8").splitlines()]
    return {(line["row"], line["side"], line["time"]): line for line in lines}


def print_rows(lines: dict[tuple[str, str, int], dict[str, Any]]) -> None:
    """Print the table, what was not seen, and the JSON object."""
    reproduced, not_seen = list[Row](), dict[str, str]()
    print("thread | engine | affected | mended | command | verdicts: affected, mended")
    for row in ROWS:
        verdicts = verdicts_of(lines, row)
        reason = why_not(verdicts)
        if reason:
            not_seen[row.name] = reason
        else:
            reproduced.append(row)
        words = [", ".join(map(word_of, verdicts[side])) for side in (RED, GREEN)]
        shown = (row.thread, row.engine, row.affected.shown, row.mended.shown, command_of(row))
        print(" | ".join((*shown, "; ".join(words))))
    by_check = {row.name: why_not(verdicts_of(lines, row)) for row in RELEASED}
    for name, reason in by_check.items():
        print(f"by check alone: {name.removesuffix('-by-check')}: {reason or 'FAIL; PASS'}")
    not_seen |= {fault.thread: fault.reason for fault in NOT_TRIED}
    for name, reason in not_seen.items():
        print(f"not seen: {name}: {reason}")
    result = {
        "benchmark": "time_machine",
        "rows": len(ROWS),
        "reproduced": len(reproduced),
        "controls": sum(row.is_control for row in reproduced),
        "engines": len({row.engine for row in reproduced}),
        "engines_named": sorted({row.engine for row in reproduced}),
        "released": sum(not reason for reason in by_check.values()),
        "not_seen": len(not_seen),
        "false_red": sum(
            line["code"] == 1 for (_, side, _), line in lines.items() if side == GREEN
        ),
        "false_red_of": sum(side == GREEN for _, side, _ in lines),
        "quick_checks": sum(name.startswith("quick") for name, _, _ in lines),
        "quick_settings": len({name for name, _, _ in lines if name.startswith("quick")}),
        "full_checks": sum(name.startswith("full") for name, _, _ in lines),
        **full_checks_of_engines(),
        **kept_answers(),
        "requests": sum(line["requests"] for line in lines.values()),
        "errors": sum(line["errors"] for line in lines.values()),
    }
    for kind, shown in (("quick", "check --quick"), ("full", "check")):
        words = [word_of(line) for (name, _, _), line in lines.items() if name.startswith(kind)]
        counts = ", ".join(f"{word} {words.count(word)}" for word in sorted(set(words)))
        print(f"{shown} of mended releases: {counts or 'not run'}")
    print(json.dumps(result))


def full_checks_of_engines() -> dict[str, int]:
    """Count the whole checks of honest configurations that `check.py --real` keeps."""
    kept_lines = [json.loads(line) for line in ENGINES.read_text("utf-8").splitlines()]
    honest = [line for line in kept_lines if not line["fault"]]
    return {
        "full_checks_of_engines": len(honest),
        "false_red_of_engines": sum(line["code"] == 1 for line in honest),
    }


def kept_answers() -> dict[str, int]:
    """Count the kept records of checks on mended releases: checks, answers, and lost facts."""
    archives = sorted(CHECKS.glob("*.tar.xz"))
    scores = [score for archive in archives for score in scores_in(archive)]
    return {
        "checks_with_records": len(archives),
        "answers_kept": len(scores),
        "answers_lost": sum(score < 1 for score in scores),
    }


def scores_in(archive: Path) -> Iterator[float]:
    """Yield the scores of a kept check's answers."""
    with tarfile.open(archive) as packed:
        for member in packed:
            file = packed.extractfile(member)
            if file is not None and Path(member.name).name.startswith("records"):
                records = [json.loads(line) for line in file]
                yield from (record["score"] for record in records if record["score"] is not None)


def verdicts_of(
    lines: dict[tuple[str, str, int], dict[str, Any]], row: Row
) -> dict[str, list[dict[str, Any] | None]]:
    """Return the kept lines of a row by side, None for a time that was not run."""
    return {
        side: [lines.get((row.name, side, time)) for time in range(1, TIMES + 1)]
        for side in (RED, GREEN)
    }


def why_not(verdicts: dict[str, list[dict[str, Any] | None]]) -> str:
    """Return why a row does not count as reproduced, or an empty text."""
    lines = [line for rows in verdicts.values() for line in rows]
    if not all(lines):
        return "not run"
    if any(line["errors"] for line in lines if line):
        return "some requests got no answer"
    if any(word_of(line) != "FAIL" for line in verdicts[RED]):
        return f"affected: {', '.join(map(word_of, verdicts[RED]))}"
    if any(word_of(line) != "PASS" for line in verdicts[GREEN]):
        return f"mended: {', '.join(map(word_of, verdicts[GREEN]))}"
    return ""


def word_of(line: dict[str, Any] | None) -> str:
    """Return the verdict of a kept line."""
    if line is None:
        return "not run"
    return WORDS.get(line["code"], f"exit code {line['code']}")


def command_of(row: Row) -> str:
    """Return the command of a row as the table shows it."""
    if row.command:
        return " ".join(row.command)
    first, second = row.ways
    return f"run ({first.shown}); run ({second.shown}); compare --answers"


def ask_row(row: Row, cache: Path) -> None:
    """Ask both sides of a row, the green one first, and keep a line of each command."""
    for name, side in ((GREEN, row.mended), (RED, row.affected)):
        model = made_model(side.model or row.model, cache)
        with tempfile.TemporaryDirectory() as folder:
            verdicts = judged if row.command else compared
            start = time.monotonic()
            for number, found in enumerate(verdicts(row, side, model, cache, Path(folder)), 1):
                keep(row, name, side, number, found | {"seconds": round(time.monotonic() - start)})
                start = time.monotonic()


def ask_checks(row: Row, count: int, cache: Path) -> None:
    """Ask a mended release by checks, and keep a line and the records of each behind those that
    are kept."""
    if not count:
        return
    model = made_model(row.model, cache)
    number = 1 + sum(name == row.name for name, _, _ in kept())
    with tempfile.TemporaryDirectory() as folder:
        for turn, found in enumerate(
            judged(row, row.mended, model, cache, Path(folder), count=count)
        ):
            name = f"{re.sub('[^a-z0-9.]+', '-', row.name)}-{number}"
            pack(CHECKS / f"{name}.tar.xz", files_of(Path(folder) / f"asked-{turn}", name))
            keep(row, GREEN, row.mended, number, found | {"records": name})
            number += 1


def keep(row: Row, name: str, side: Side, number: int, found: dict[str, Any]) -> None:
    """Append a line, and print it."""
    line = {
        "row": row.name,
        "side": name,
        "time": number,
        "release": side.shown,
        **found,
        "date": datetime.now(UTC).date().isoformat(),
        "needlemap": version("needlemap"),
    }
    print(json.dumps(line), flush=True)
    with KEPT.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def judged(
    row: Row, side: Side, model: Path, cache: Path, folder: Path, count: int = TIMES
) -> Iterator[dict[str, Any]]:
    """Ask fresh servers by one command, each time with prompts of another seed.

    What all prompts start with stays in a server's cache, and a fault that needs cold prompts does
    not show again.
    """
    options = side.options.get("", ())
    for number in range(count):
        with serving(side.server, options, model, cache, folder) as url:
            yield commanded(row, row.command, url, model, folder / f"asked-{number}")


def compared(
    row: Row, side: Side, model: Path, cache: Path, folder: Path
) -> Iterator[dict[str, Any]]:
    """Ask fresh servers in a row's two ways, each time: do the answers differ?"""
    for number in range(TIMES):
        yield compared_once(row, side, model, cache, folder / str(number))


def compared_once(row: Row, side: Side, model: Path, cache: Path, folder: Path) -> dict[str, Any]:
    """Ask one side of a row once: its exit code, its last line, requests and errors."""
    folder.mkdir()
    runs = list[Path]()
    with ExitStack() as servers:
        url = ""
        for number, way in enumerate(row.ways):
            if not (url and row.is_one_server):
                options = side.options_of(way)
                url = servers.enter_context(serving(side.server, options, model, cache, folder))
            for turn, flags in enumerate((*way.before, way.flags)):
                out = folder / f"run-{number}-{turn}"
                asked = run_of(row, flags, url, model, out)
                if asked["code"]:
                    return asked
            runs.append(out)
    ended = needlemap("compare", *map(str, runs), "--answers", "--fail-if-answers-differ", "0")
    counts = [counted(out) for out in runs]
    return {
        "code": ended.returncode,
        "said": last_line(ended),
        "requests": sum(requests for requests, _ in counts),
        "errors": sum(errors for _, errors in counts),
    }


def run_of(row: Row, flags: Sequence[str], url: str, model: Path, out: Path) -> dict[str, Any]:
    """Run the prompts of a row: its exit code, and why it did not end well."""
    words = ("run", *row.run, *flags, "--no-canary")
    return commanded(row, words, url, model, out)


def commanded(row: Row, words: Sequence[str], url: str, model: Path, out: Path) -> dict[str, Any]:
    """Run a needlemap command against a server."""
    named = ("--base-url", f"{url}/v1", "--model", f"openai/{row.served_as}")
    vocabulary = () if row.model.startswith("gauge") else ("--tokenizer", str(vocabulary_of(model)))
    ended = needlemap(*words, *named, *vocabulary, "--quiet", "-o", str(out))
    requests, errors = counted(out)
    return {
        "code": ended.returncode,
        "said": last_line(ended),
        "requests": requests,
        "errors": errors,
    }


def needlemap(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a needlemap command in a process of its own."""
    code = "from needlemap.cli import main; main()"
    # The folder that holds the package `gguf`, where it is not installed.
    paths = (os.environ.get("PYTHONPATH"), os.environ.get("NEEDLEMAP_GGUF_CONVERTER"))
    path = os.pathsep.join(filter(None, paths))
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
    )


def last_line(ended: subprocess.CompletedProcess[str]) -> str:
    """Return the last line that a command printed, without the names of folders."""
    printed = ended.stdout if ended.returncode in WORDS else ended.stderr
    return (printed.strip().splitlines() or [""])[-1][:400]


def counted(out: Path) -> tuple[int, int]:
    """Return how many requests a folder has records of, and how many of them have no answer.

    A server that cannot score its own answers refuses them as prompts, which is no error.
    """
    requests = errors = 0
    for file in out.rglob("records*.jsonl"):
        lines = file.read_text("utf-8").splitlines()
        requests += len(lines)
        if not file.parent.name.startswith("prefilled"):
            errors += sum(json.loads(line).get("error") is not None for line in lines)
    return requests, errors


def vocabulary_of(model: Path) -> Path:
    """Return the folder of a model's tokenizer: a GGUF file's twin stands beside it."""
    return model if model.is_dir() else model.with_suffix("")


def made_model(name: str, cache: Path) -> Path:
    """Return the folder or file of a model, which is made once."""
    cache.mkdir(parents=True, exist_ok=True)
    kind, _, changed = name.partition("+")
    if name == "gauge+gguf":
        file = cache / "model-gauge-gguf" / "gauge.gguf"
        if not file.is_file():
            made_folder(file.parent, "--gguf")
        return file
    folder = cache / f"model-{kind}"
    gauge, _, shape = kind.partition("-")
    if not folder.is_dir() and gauge == "gauge":
        made_folder(folder, *(("--shape", shape) if shape else ()))
    elif not folder.is_dir():
        made_folder(folder, "--like", kind)
    if not changed:
        return folder
    target = (
        cache / f"model-{kind}.gguf" if changed == "gguf" else cache / f"model-{kind}-{changed}"
    )
    if not target.exists():
        script = {"gguf": "gemma3_gguf.py", "mlx": "twin_for_mlx.py"}[changed]
        line = [sys.executable, str(HERE / "sides" / script), str(folder), str(target)]
        subprocess.run(line, check=True)
    return target


def made_folder(folder: Path, *flags: str) -> None:
    """Write the gauge or a twin into a folder. Raises SystemExit with the reason."""
    made = needlemap("gauge", *flags, "-o", str(folder))
    if made.returncode:
        raise SystemExit(f"No model: {made.stderr}")


def python_of(server: Server, cache: Path) -> Path:
    """Return the Python of an environment that holds a server's packages, which is made once."""
    named = "-".join(server.requirements).replace("[", "-").replace("]", "").replace("==", "-")
    folder = cache / f"env-{named}"
    python = folder / "bin" / "python"
    done = folder / "installed"
    if not done.is_file():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "-q", *server.requirements], check=True
        )
        if server.repair:
            subprocess.run([str(python), str(HERE / "sides" / server.repair)], check=True)
        done.touch()
    return python


@contextmanager
def serving(
    server: Server, options: Sequence[str], model: Path, cache: Path, folder: Path
) -> Iterator[str]:
    """Start a server, and the one behind it; its address. Both end with the block."""
    with ExitStack() as stack:
        behind = ""
        if server.behind:
            behind = stack.enter_context(serving(server.behind, (), model, cache, folder))
        python = python_of(server, cache)
        port = free_port()
        known = {
            "python": str(python),
            "bin": str(python.parent),
            "model": str(model),
            "port": str(port),
            "behind": behind,
            "launcher": str(HERE.parent / ".ci" / "llama_server.py"),
            "sides": str(HERE / "sides"),
        }
        words = [word.format(**known) for word in (*server.command, *options)]
        yield stack.enter_context(started(words, port, dict(server.environment), known, folder))


@contextmanager
def started(
    words: Sequence[str],
    port: int,
    environment: dict[str, str],
    known: dict[str, str],
    folder: Path,
) -> Iterator[str]:
    """Start a server in a process group of its own, and wait until it answers; its address. The
    group is killed: some servers outlive a request to end, and answer for the next one."""
    url, log = f"http://127.0.0.1:{port}", folder / f"server-{port}.log"
    given = {name: value.format(**known) for name, value in environment.items()}
    own = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
    with log.open("wb") as output:
        process = subprocess.Popen(
            words,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **own, **given},
            start_new_session=True,
            cwd=folder,
        )
    try:
        wait_for(process, url, log)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Wait until a server lists its models. Raises RuntimeError with the end of its log."""
    deadline = time.monotonic() + STARTS_S
    while not is_up(url):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"The server did not start:\n{log.read_text('utf-8')[-2000:]}")
        time.sleep(0.5)
    if process.poll() is not None:
        raise RuntimeError(f"Another server answers at {url}.")


def is_up(url: str) -> bool:
    """Return True if a server lists its models."""
    try:
        with urlopen(f"{url}/v1/models", timeout=5) as reply:
            return bool(reply.status == 200)
    except (URLError, OSError):
        return False


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        port: int = line.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
