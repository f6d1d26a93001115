"""What commands do, for tools/golden.py: requests in their order, exit codes, JUnit, pages' JSON.

All of it runs in this process, against functions that read their prompts; requests also go over
HTTP, to a server of this process on 127.0.0.1. Seeds that a command draws are fixed: see `SEED`.
"""

import io
import json
import os
import random
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import patch

import typer.main

made_once = cache(typer.main.get_command)  # each making takes a tenth of a second
SEED = 7  # of every seed that a command draws
MODELS = '''"""Models of tools/golden.py: functions of a prompt."""

import os
import re
import signal
from hashlib import blake2b


def sound(prompt):
    text = str(prompt)
    if keys := re.findall(r"Write it down: (\\d+)", text):
        return keys[-1]
    asked = re.findall(r"What is ([^?.]*)\\?", text)[-1]
    name = asked[0].upper() + asked[1:]
    found = re.findall(rf"{re.escape(name)} is ([^.]*)\\.", text)
    return found[-1] if found else "I do not know."


def chance(prompt):
    return blake2b(str(prompt).encode(), digest_size=1).digest()[0] / 256


def weak(prompt):
    return sound(prompt) if chance(prompt) < 0.7 else "I do not know."


def noisy(prompt):
    return sound(prompt) if chance(prompt) < 0.95 else "I do not know."


def short(prompt):
    return sound(prompt) if len(str(prompt)) < 1_300 else "I do not know."


def cliff(prompt):
    return sound(prompt) if len(str(prompt)) < 6_000 else "I do not know."


def blind(prompt):
    return "I do not know."


def salad(prompt):
    return "!" * 60 if chance(prompt) < 0.2 else sound(prompt)


def raising(prompt):
    raise ValueError("no answer")


def raising_now_and_then(prompt):
    if chance(prompt) < 0.3:
        raise ValueError("no answer")
    return sound(prompt)


def interrupted(prompt):
    os.kill(os.getpid(), signal.SIGINT)
    return sound(prompt)


def terminated(prompt):
    os.kill(os.getpid(), signal.SIGTERM)
    return sound(prompt)
'''


def write_models() -> None:
    """Put the models into the current folder, where commands find them."""
    Path("golden_models.py").write_text(MODELS, encoding="utf-8")


@contextmanager
def seeds_fixed() -> Iterator[None]:
    """Whatever module of the package draws a seed draws the same one.

    `secrets` draws from `random._urandom`, however and wherever it was imported.
    """
    with patch.object(random, "_urandom", lambda size: SEED.to_bytes(size, "big")):
        yield


def ended(*arguments: str) -> tuple[int, str, str]:
    """A command typed in this process: its exit code, and what it printed."""
    from needlemap.cli import main

    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    code: Any = 0
    with (
        seeds_fixed(),
        patch.multiple(sys, argv=["needlemap", *arguments], stdin=io.StringIO()),
        patch.object(typer.main, "get_command", made_once),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
    printed, told = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
    return int(code or 0), printed, told


def done(*arguments: str, code: int | None = None) -> None:
    """A command that a later one needs. Raises RuntimeError for another exit code."""
    found, _, told = ended(*arguments)
    if found not in ((0, 1, 4, 5) if code is None else (code,)):
        raise RuntimeError(f"{' '.join(arguments)}: {found}\n{told}")


# --- exit codes ----------------------------------------------------------------------------------

BUDGET = ("--tokenizer", "cl100k_base", "--max-answer-tokens", "24", "--quiet")
ALONE = ("--concurrency", "1")  # answers in the order of the prompts
SMALL = ("--lengths", "300,500", "--depths", "0,50,100", *BUDGET, *ALONE)
SUITE = ("suite:smoke", "--model", "baseline/bm25", "--lengths", "1000", "--quiet", *ALONE)
CHECK = ("--max-length", "400", "--few", "--load", "2", *BUDGET)
STORM = ("--max-length", "1000", "--load", "2", "--until", "rate<30%", *BUDGET)
AB = ("ab", "passkey", "--lengths", "300,400", "--depths", "20,70", *BUDGET, *ALONE)


def model(name: str) -> tuple[str, str]:
    return "--model", f"python/golden_models:{name}"


def arms(first: str, second: str) -> tuple[str, ...]:
    return (
        *("--arm", f"ref=python/golden_models:{first}"),
        *("--arm", f"new=python/golden_models:{second}"),
    )


def run_codes() -> Iterator[tuple[str, Sequence[str]]]:
    """Outcomes of run, each with what is typed."""
    sound, many = model("sound"), ("--repeats", "8")
    yield "finished", ("run", *sound, *SMALL, "-o", "sound")
    yield "finished before", ("run", *sound, *SMALL, "-o", "sound")
    yield "finished, a suite", ("run", *SUITE, "-o", "suite")
    yield "unknown flag", ("run", "--no-such-flag")
    yield "unknown preset", ("run", "no-such-preset")
    yield "unknown model", ("run", "--model", "no-such-backend/m")
    yield "wrong lengths", ("run", *sound, "--lengths", "x")
    yield "another run's folder", ("run", *model("blind"), *SMALL, "-o", "sound")
    yield "token limit", ("run", *sound, *SMALL, "--limit-tokens", "600", "-o", "limited")
    yield "token limit, nothing fits", ("run", *sound, *SMALL, "--limit-tokens", "1", "-o", "none")
    yield "no server", ("run", *HTTP_NOBODY, *SMALL, "-o", "nobody")
    yield "model always raises", ("run", *model("raising"), *SMALL, "-o", "raising")
    yield (
        "model raises now and then",
        ("run", *model("raising_now_and_then"), *SMALL, "--repeats", "4", "-o", "raises"),
    )
    yield "interrupted", ("run", *model("interrupted"), *SMALL, *many, "-o", "interrupted")
    yield "terminated", ("run", *model("terminated"), *SMALL, *many, "-o", "terminated")
    fail_under = (*SMALL, *many, "--fail-under")
    yield "--fail-under met", ("run", *sound, *fail_under, "50", "-o", "met")
    yield "--fail-under missed", ("run", *model("blind"), *fail_under, "50", "-o", "missed")
    yield "--fail-under undecided", ("run", *model("weak"), *fail_under, "70", "-o", "open")
    yield (
        "--fail-under undecided passes",
        ("run", *model("weak"), *fail_under, "70", "--on-undecided", "pass", "-o", "open"),
    )
    yield "--junit without a verdict", ("run", *sound, *SMALL, "--junit", "x.xml", "-o", "x")
    yield "reference of --until", ("run", *sound, *SMALL, *many, "-o", "whole")
    for name, other, margin in (
        ("no worse", "sound", "20"),
        ("worse", "blind", "2"),
        ("undecided", "sound", "2"),
        ("of a weak model", "weak", "2"),
    ):
        gate = ("--prompts-of", "whole", *model(other), "--quiet", "--trust-run", *ALONE, "--until")
        goal = f"no-worse-than whole:{margin}"
        yield f"--until {name}", ("run", *gate, goal, "-o", f"until {name}")
    gate = ("--prompts-of", "whole", *sound, "--quiet", "--trust-run", "--on-undecided", "pass")
    yield (
        "--until undecided passes",
        ("run", *gate, "--until", "no-worse-than whole:2", "-o", "until passes"),
    )
    seek = ("--lengths", "500,4000", "--seek", "85", *BUDGET)
    yield "--seek found", ("run", *model("cliff"), *seek, "-o", "sought")
    yield "--seek stopped", ("run", *sound, *seek, "--limit-tokens", "4k", "-o", "sought a little")


HTTP_NOBODY = ("--model", "openai/m", "--base-url", "http://127.0.0.1:9/v1")


def compare_codes() -> Iterator[tuple[str, Sequence[str]]]:
    """Outcomes of compare and of report, of runs that are made first."""
    for name in ("sound", "noisy", "weak", "blind"):
        done("run", *model(name), *SMALL, "--repeats", "10", "-o", name, code=0)
    done("run", *model("sound"), *SMALL, "--repeats", "10", "--label", "b", "-o", "twin", code=0)
    done("run", *model("blind"), *SMALL, "--repeats", "10", "--label", "b", "-o", "dead", code=0)
    done("run", *model("sound"), *SMALL, "--repeats", "40", "-o", "many", code=0)
    done("run", *model("sound"), *SMALL, "--repeats", "40", "--label", "b", "-o", "again", code=0)
    done("run", *model("sound"), *SMALL, "--seed", "3", "-o", "other", code=0)
    fail = "--fail-if-worse"
    yield "no verdict asked for, worse", ("compare", "sound", "blind")
    yield "no worse", ("compare", "many", "again", fail, "2")
    yield "better", ("compare", "weak", "sound", fail, "2")
    yield "worse", ("compare", "sound", "blind", fail, "2")
    yield "undecided", ("compare", "sound", "twin", fail, "2")
    yield "undecided, a sign", ("compare", "sound", "weak", fail, "2")
    passing = ("--on-undecided", "pass")
    yield "undecided passes", ("compare", "sound", "twin", fail, "2", *passing)
    yield "a sign does not pass", ("compare", "sound", "weak", fail, "2", *passing)
    yield "floored", ("compare", "blind", "dead", fail, "2")
    yield "the same run", ("compare", "sound", "sound")
    yield "new haystacks", ("compare", "sound", "weak", fail, "2", "--scope", "new")
    yield "sequential", ("compare", "many", "again", fail, "10", "--sequential")
    yield "answers differ", ("compare", "sound", "noisy", "--fail-if-answers-differ", "0")
    yield "answers equal", ("compare", "many", "again", "--fail-if-answers-differ", "0")
    yield "other prompts", ("compare", "sound", "other")
    yield "no such run", ("compare", "sound", "nothing")
    yield "report: terminal", ("report", "sound")
    yield "report: page", ("report", "sound", "-o", "sound.html")
    yield "report: no such run", ("report", "nothing")
    yield "report: no such format", ("report", "sound", "-o", "sound.xyz")


def check_codes() -> Iterator[tuple[str, Sequence[str]]]:
    """Outcomes of check."""
    lengths = (*CHECK, "--probe", "length", "--require", "length")
    yield "passes", ("check", *model("sound"), *lengths, "-o", "passes")
    yield "gone on", ("check", *model("sound"), *lengths, "-o", "passes")
    yield "undecided, a sign", ("check", *model("short"), *lengths, "-o", "sign")
    yield "too few probes", ("check", *model("sound"), *CHECK, "--probe", "stop", "-o", "few")
    yield "fails", ("check", *model("blind"), *lengths, "--gauge", "-o", "fails")
    yield "first prompts missed", ("check", *model("blind"), *lengths, "-o", "missed")
    limited = (*lengths, "--limit-tokens", "3k")
    yield "stopped by a limit", ("check", *model("sound"), *limited, "-o", "stopped")
    yield (
        "stopped, undecided passes",
        ("check", *model("sound"), *limited, "--on-undecided", "pass", "-o", "stopped too"),
    )
    yield "nothing fits", ("check", *model("sound"), *lengths, "--limit-tokens", "1", "-o", "zero")
    yield "model raises", ("check", *model("raising"), *lengths, "-o", "raising")
    yield "interrupted", ("check", *model("interrupted"), *lengths, "-o", "interrupted")
    yield "terminated", ("check", *model("terminated"), *lengths, "-o", "terminated")
    yield "plan", ("check", *model("sound"), *CHECK, "--plan")
    yield "unknown probe", ("check", *model("sound"), *CHECK, "--probe", "nothing", "-o", "x")
    yield "too short", ("check", *model("sound"), "--max-length", "100", *BUDGET, "-o", "x")
    yield "no server", ("check", *HTTP_NOBODY, *CHECK, "-o", "nobody")


def storm_codes() -> Iterator[tuple[str, Sequence[str]]]:
    """Outcomes of storm."""
    yield "below the rate", ("storm", *model("sound"), *STORM, "-o", "sound")
    yield "gone on", ("storm", *model("sound"), *STORM, "-o", "sound")
    yield "salad", ("storm", *model("salad"), *STORM, "-o", "salad")
    limited = (*STORM, "--limit-tokens", "5k")
    yield "stopped by a limit", ("storm", *model("sound"), *limited, "-o", "stopped")
    yield (
        "stopped, undecided passes",
        ("storm", *model("sound"), *limited, "--on-undecided", "pass", "-o", "stopped too"),
    )
    yield "model raises", ("storm", *model("raising"), *STORM, "-o", "raising")
    yield "interrupted", ("storm", *model("interrupted"), *STORM, "-o", "interrupted")
    yield "terminated", ("storm", *model("terminated"), *STORM, "-o", "terminated")
    yield "plan", ("storm", *model("sound"), *STORM, "--plan")
    yield "no rate", ("storm", *model("sound"), "--until", "x", "-o", "x")
    yield "too short", ("storm", *model("sound"), "--max-length", "100", *BUDGET, "-o", "x")
    yield "nothing to shrink", ("storm", "sound", "--shrink")
    yield "no storm to shrink", ("storm", "nothing", "--shrink")
    yield "no server", ("storm", *HTTP_NOBODY, *STORM, "-o", "nobody")


def ab_codes() -> Iterator[tuple[str, Sequence[str]]]:
    """Outcomes of ab."""
    decided, equal = ("--until", "decided"), arms("sound", "sound")
    yield "no worse", (*AB, *equal, *decided, "--margin", "20", "-o", "equal")
    yield "worse", (*AB, *arms("sound", "weak"), *decided, "-o", "worse")
    yield "undecided", (*AB, *equal, "--until", "8", "-o", "open")
    passing = ("--on-undecided", "pass")
    yield "undecided passes", (*AB, *equal, "--until", "8", *passing, "-o", "open")
    yield "undecided, a sign", (*AB, *arms("sound", "short"), "--until", "8", "-o", "sign")
    limited = ("--until", "16", "--limit-tokens", "3k")
    yield "stopped by a limit", (*AB, *equal, *limited, "-o", "stopped")
    yield "an arm raises", (*AB, *arms("sound", "raising"), "--until", "8", "-o", "raises")
    yield "interrupted", (*AB, *arms("interrupted", "sound"), "--until", "8", "-o", "interrupted")
    yield "terminated", (*AB, *arms("terminated", "sound"), "--until", "8", "-o", "terminated")
    yield "plan", (*AB, *equal, "--until", "8", "--plan")
    yield "one arm", (*AB, *equal[:2], "-o", "x")
    yield "margin of 0", (*AB, *equal, "--margin", "0", "-o", "x")
    yield "a suite with depths", ("ab", *equal, "--depths", "20", "-o", "x")


def other_codes() -> Iterator[tuple[str, Sequence[str]]]:
    """Outcomes of the other commands."""
    done("run", *model("sound"), *SMALL, "-o", "sound", code=0)
    yield "help", ("--help",)
    yield "version", ("--version",)
    yield "unknown command", ("nothing",)
    yield "list", ("list", "presets")
    yield "list: unknown kind", ("list", "nothing")
    yield "plan", ("plan", "passkey", "--model", "baseline/bm25")
    yield "plan: unknown preset", ("plan", "nothing")
    yield "prompts", ("prompts", "passkey", "--model", "baseline/bm25", *SMALL[:4])
    yield "prompts: wrong depths", ("prompts", "passkey", "--depths", "x")
    yield "score: a run", ("score", "sound", "--scorer", "exact", "-o", "exact")
    yield "score: unknown scorer", ("score", "sound", "--scorer", "nothing")
    yield "score: no such file", ("score", "nothing", "--scorer", "exact")
    yield "replay", ("replay", "sound", "--length", "300", "--depth", "0")
    yield "replay: no such cell", ("replay", "sound", "--length", "77", "--depth", "0")
    yield "replay: no such run", ("replay", "nothing")
    yield "import: no such file", ("import", "nothing", "-o", "imported")
    yield "gauge: no folder", ("gauge",)


CODES: Mapping[str, Callable[[], Iterator[tuple[str, Sequence[str]]]]] = {
    "run": run_codes,
    "compare": compare_codes,
    "check": check_codes,
    "storm": storm_codes,
    "ab": ab_codes,
    "others": other_codes,
}


def exit_codes(command: str) -> Iterator[tuple[str, str, str]]:
    """Each outcome of a command, its exit code, and what was typed and printed."""
    with own_folder(f"codes-{command}"):
        for outcome, arguments in CODES[command]():
            code, out, err = ended(*arguments)
            yield outcome, str(code), f"{' '.join(arguments)}\n{err}{out}"


@contextmanager
def own_folder(name: str) -> Iterator[None]:
    """A folder of its own with the models, as the current one."""
    before, path = Path.cwd(), list(sys.path)
    Path(name).mkdir()
    os.chdir(name)
    write_models()
    sys.path.insert(0, str(Path.cwd()))
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path
        sys.modules.pop("golden_models", None)


# --- JUnit and pages -----------------------------------------------------------------------------


def junit() -> Iterator[tuple[str, str]]:
    """The files that commands write for CI, by command and verdict."""
    with own_folder("junit"):
        for name in ("sound", "weak", "blind"):
            done("run", *model(name), *SMALL, "--repeats", "10", "-o", name, code=0)
        done(
            "run", *model("sound"), *SMALL, "--repeats", "10", "--label", "b", "-o", "twin", code=0
        )
        length = (*CHECK, "--probe", "length", "--require", "length")
        gate = ("--prompts-of", "sound", "--quiet", "--trust-run", *ALONE, "--until")
        twin = ("compare", "sound", "twin", "--margin", "2")
        typed: Mapping[str, Sequence[str]] = {
            "compare: no worse": ("compare", "weak", "sound", "--margin", "2"),
            "compare: worse": ("compare", "sound", "blind", "--fail-if-answers-differ", "0"),
            "compare: undecided": twin,
            "compare: undecided passes": (*twin, "--on-undecided", "pass"),
            "compare: a sign": ("compare", "sound", "weak", "--margin", "2"),
            "run: --fail-under": ("run", *model("sound"), *SMALL, "--fail-under", "50", "-o", "m"),
            "run: --until": ("run", *gate, "no-worse-than sound:2", *model("blind"), "-o", "gate"),
            "check: passes": ("check", *model("sound"), *length, "-o", "checked"),
            "check: a sign": ("check", *model("short"), *length, "-o", "short"),
            "storm: below the rate": ("storm", *model("sound"), *STORM, "-o", "stormed"),
            "storm: faulty": ("storm", *model("salad"), *STORM, "-o", "salad"),
            "ab: worse": (*AB, *arms("sound", "blind"), "--until", "16", "-o", "ab"),
            "ab: undecided": (*AB, *arms("sound", "sound"), "--until", "8", "-o", "open"),
        }
        for name, arguments in typed.items():
            done(*arguments, "--junit", "ci.xml")
            yield name, without_times(Path("ci.xml").read_text("utf-8"))
            Path("ci.xml").unlink()


PASSING = (  # in words, what time decides
    (re.compile(r"measured [\d:, –-]*(?:to [\d:, -]+)?UTC"), "measured then"),
    (re.compile(r"tokens, (?:\d+ (?:h|min|s|ms) ?)+of answers"), "tokens"),
)


def without_times(text: str) -> str:
    """A text without when it was measured, and for how long."""
    for form, instead in PASSING:
        text = form.sub(instead, text)
    return text


def pages(freeze: Callable[[str], None]) -> Iterator[tuple[str, str]]:
    """Pages of a run, a comparison, a check, a storm, an ab, a suite: their HTML."""
    with own_folder("pages"):
        for name in ("sound", "weak"):
            done("run", *model(name), *SMALL, "--repeats", "6", "-o", name, code=0)
        probes = ("--probe", "length", "--probe", "cache", "--probe", "same")
        done("check", *model("short"), *CHECK, *probes, "-o", "check")
        done("storm", *model("salad"), *STORM, "-o", "storm")
        done(*AB, *arms("sound", "weak"), "--until", "12", "-o", "ab")
        done("run", *SUITE, "-o", "suite", code=0)
        typed = {name: (name,) for name in ("check", "storm", "ab", "suite")}
        for name, runs in ({"run": ("weak",), "compare": ("sound", "weak")} | typed).items():
            for run in runs:
                freeze(run)
                freeze_documents(Path(run))
            done("report", *runs, "-o", f"{name}.html", code=0)
            yield name, Path(f"{name}.html").read_text("utf-8")


def freeze_documents(folder: Path) -> None:
    """What check.json and storm.json say of time, and of requests at one time, as if all had been
    asked one after the other in a second."""
    for name in ("check.json", "storm.json"):
        file = folder / name
        if file.exists():
            document = json.loads(file.read_text("utf-8"))
            for finding in document.get("findings", ()):
                finding["seconds"] = 0.5
            if "sequence" in document:
                document["pace"] = [0.5, 0.0]
                document["sequence"].sort(key=lambda row: row["key"])
                for at, row in enumerate(document["sequence"]):
                    row |= {"at_s": at, "seconds": 0.5, "ago": 0, "shares": []}
            file.write_text(json.dumps(document), encoding="utf-8")


# --- requests ------------------------------------------------------------------------------------


class Server(ThreadingHTTPServer):
    """A model's server on 127.0.0.1, which keeps the bodies of requests as they come."""

    daemon_threads = True

    def __init__(self, answer: Callable[[str], str]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.bodies: list[dict[str, Any]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def flags(self) -> tuple[str, ...]:
        """What to type for it."""
        return "--model", "openai/m", "--base-url", self.url


class Handler(BaseHTTPRequestHandler):
    """OpenAI's chat completions."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_GET(self) -> None:
        listed = self.path == "/v1/models"
        self.reply(
            {"object": "list", "data": [{"id": "m"}]} if listed else {}, 200 if listed else 404
        )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append({"path": self.path, **body})
        text = self.server.answer(body["messages"])
        sent = sum(len(message["content"].split()) for message in body["messages"])
        usage = {"prompt_tokens": sent, "completion_tokens": 4, "total_tokens": sent + 4}
        message = {"role": "assistant", "content": text}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        self.reply({"id": "x", "model": "m", "choices": choices, "usage": usage})

    def reply(self, document: Mapping[str, Any], status: int = 200) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def served(name: str = "sound") -> Iterator[Server]:
    """A server of one of the models."""
    scope: dict[str, Any] = {}
    exec(MODELS, scope)
    server = Server(scope[name])
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def requests(command: str) -> Iterator[tuple[str, str]]:
    """The bodies of all requests of some commands, in order.

    Where several are sent at one time, their order is that of their bytes.
    """
    makers = {"run": of_run, "check": of_check, "storm": of_storm, "ab": of_ab}
    with own_folder(f"requests-{command}"):
        yield from makers[command]()


def of_run() -> Iterator[tuple[str, str]]:
    """A grid; until a verdict; seeking a length."""
    with served() as server:
        done("run", *server.flags, *SMALL, "--repeats", "8", "-o", "whole", code=0)
        yield "grid", as_lines(server.bodies)
    for name in ("sound", "blind"):
        with served(name) as server:
            gate = ("--prompts-of", "whole", *server.flags, "--quiet", "--trust-run", "--no-canary")
            goal = ("--until", "no-worse-than whole:20", *ALONE)
            done("run", *gate, *goal, "-o", f"gate-{name}")
            yield f"--until, {name}", as_lines(server.bodies)
    for name in ("cliff", "sound", "weak"):
        with served(name) as server:
            seek = ("--lengths", "500,4000", "--seek", "85", *ALONE, *BUDGET)
            done("run", *server.flags, *seek, "-o", f"sought-{name}")
            yield f"--seek, {name}", as_lines(server.bodies)


def of_check() -> Iterator[tuple[str, str]]:
    """Checks of a sound model, and of one whose undecided rows have a second round."""
    for name in ("sound", "short"):
        with served(name) as server:
            done("check", *server.flags, *CHECK, "-o", name)
            beside = {key for way in ("*crowd*", "*loaded*") for key in asked_in(Path(name), way)}
            at_once = [prompt_hash(body) in beside for body in server.bodies]
            yield name, as_lines(in_order(server.bodies, at_once))


def of_storm() -> Iterator[tuple[str, str]]:
    """Storms: by the bytes of requests, as those of a wave are sent at one time."""
    for name in ("sound", "salad"):
        with served(name) as server:
            done("storm", *server.flags, *STORM, "-o", name)
            yield name, as_lines(in_order(server.bodies, [True] * len(server.bodies)))


def of_ab() -> Iterator[tuple[str, str]]:
    """Each arm of two abs, by itself."""
    for name in ("sound", "weak"):
        with served() as first, served(name) as second:
            both = ("--arm", f"ref={first.url}", "--arm", f"new={second.url}")
            one = (*both, "--model", "openai/m", "--seed", "5")
            done(*AB, *one, "--until", "24", "-o", name)
            yield f"{name}, reference", as_lines(first.bodies)
            yield f"{name}, other", as_lines(second.bodies)


def in_order(bodies: Sequence[Any], at_once: Sequence[bool]) -> list[Any]:
    """Bodies in their order; neighbours that are sent at one time by their bytes."""
    found, group = list[Any](), list[Any]()
    for body, together in zip(bodies, at_once, strict=True):
        if together:
            group.append(body)
        else:
            found += [*sorted(group, key=as_line), body]
            group = []
    return [*found, *sorted(group, key=as_line)]


def asked_in(folder: Path, families: str) -> Iterator[str]:
    """The hashes of the prompts that some families of a check asked."""
    for file in folder.glob(f"{families}/records-*.jsonl"):
        for line in file.read_text("utf-8").splitlines():
            yield json.loads(line)["prompt"]["sha256"]


def prompt_hash(body: Mapping[str, Any]) -> str:
    """The hash that a record keeps of a request's prompt."""
    digest = sha256()
    for message in body["messages"]:
        digest.update(f"{message['role']}\0{message['content']}\0".encode())
    return digest.hexdigest()


def as_line(body: Any) -> str:
    return json.dumps(body, ensure_ascii=False, sort_keys=True) + "\n"


def as_lines(bodies: Sequence[Any]) -> str:
    return "".join(map(as_line, bodies))
