"""Fixtures that several test files share."""

from __future__ import annotations

import gc
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.request import Request, urlopen

import hypothesis
import pytest
import typer.main

from needlemap.cli import main
from needlemap.http import framing

sys.path.insert(0, str(Path(__file__).parent / "fixtures"))
pytest_plugins = ("maps", "tiny_models")
collect_ignore = ["fixtures", "servers"]  # no tests
ROOT = Path(__file__).parent.parent
SERVER = Path(__file__).parent / "servers" / "wire.py"
SLOW = hypothesis.HealthCheck.too_slow  # says how busy the machine is, not what the test found
hypothesis.settings.register_profile(
    "busy", deadline=None, derandomize=True, suppress_health_check=[SLOW]
)
hypothesis.settings.load_profile("busy")
# What `secrets` draws, as the seeds of commands: each test has its own, the same ones in each run.
DRAWN = random.Random()
random._urandom = DRAWN.randbytes  # type: ignore[attr-defined]


class Wire:
    """A running wire server. root: for Anthropic's SDK; base_url: for OpenAI's."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, str(SERVER), "--port", "0", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.root = f"http://127.0.0.1:{int(self.process.stdout.readline())}"
        self.base_url = f"{self.root}/v1"

    def log(self) -> list[dict[str, Any]]:
        """What was asked since the test began, in order of arrival."""
        requests: list[dict[str, Any]] = self._ask("/log")["requests"]
        return requests

    def prompt_counts(self) -> Counter[str]:
        """How often each prompt was asked, by the hash that its record has."""
        return Counter(map(prompt_sha256, self.log()))

    def schedule(self, *faults: str, cycle: bool = False) -> None:
        """The faults that the next requests meet, one each, then 'ok' (or from the start again)."""
        self._ask("/schedule", {"faults": faults, "cycle": cycle})

    def limit(self, **limits: object) -> None:
        """The rate limits of the server from now on: see servers/wire_limits.py."""
        self._ask("/limit", limits)

    def reset(self) -> None:
        """Forget log, schedule and prompt cache."""
        self._ask("/reset", {})

    def stop(self) -> None:
        """End the process; again does nothing."""
        self.process.terminate()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _ask(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        with urlopen(Request(self.root + path, data=data), timeout=250) as reply:
            return json.load(reply)


@pytest.fixture(scope="session", autouse=True)
def _state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What this program remembers of itself: nothing of whoever runs the tests."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session", autouse=True)
def _new_servers_are_listened_to_shortly() -> Iterator[None]:
    """Hardly any test's server sends anything behind a reply. `models/test_framing.py`, whose do,
    keeps the real time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(framing, "FIRST_LISTEN_S", 0.02)
        yield


@pytest.fixture(scope="session")
def _wire_process() -> Iterator[Wire]:
    server = Wire()
    yield server
    server.stop()


@pytest.fixture
def wire(_wire_process: Wire) -> Wire:
    """A real HTTP server that speaks the OpenAI and Anthropic wire formats, as new."""
    _wire_process.reset()
    return _wire_process


def prompt_sha256(request: dict[str, Any]) -> str:
    """The hash that a record keeps of a chat request in the log."""
    digest = sha256()
    for message in request["body"]["messages"]:
        digest.update(f"{message['role']}\0{message['content']}\0".encode())
    return digest.hexdigest()


class Wires:
    """Starts servers with options of their own: wires("--max-context", "100")."""

    def __init__(self) -> None:
        self.running: list[Wire] = []

    def __call__(self, *options: str) -> Wire:
        self.running.append(Wire(*options))
        return self.running[-1]


@pytest.fixture
def wires() -> Iterator[Wires]:
    """Wire servers for tests that need their own."""
    started = Wires()
    yield started
    for server in started.running:
        server.stop()


@pytest.fixture(scope="module")
def wires_for() -> Iterator[Wires]:
    """The same, for all tests of a file."""
    started = Wires()
    yield started
    for server in started.running:
        server.stop()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of data and vectors that is not in the repository, or a skip."""
    folder = Path(os.environ.get("NEEDLEMAP_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(
            "compares with other tools' files, which are not in this repository (NEEDLEMAP_SHARED)"
        )
    return folder


class Command:
    """`needlemap` in a folder of its own, with no key in its environment but those given.

    Typed in this process, ten times quicker than another one. What is about processes (signals, two
    at a time, what is imported, other environments of Python) uses `start` or `process`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = without_keys()
        self.started: list[subprocess.Popen[str]] = []

    def __call__(
        self, *arguments: object, code: int | None = 0
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end. Exceptions that would be tracebacks are raised. code: None for any."""
        return typed_here(arguments, self.folder, self.environment, code)

    def process(self, *arguments: object, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """The same in a process. Whatever happens, a user never sees a traceback."""
        process = self.start(*arguments)
        out, err = process.communicate()
        assert "Traceback" not in err, err
        assert code in (None, process.returncode), (process.returncode, out, err)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        """Start and return at once."""
        command = [str(Path(sys.executable).with_name("needlemap")), *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        process = subprocess.Popen(
            command, cwd=self.folder, env=self.environment, text=True, **pipes
        )
        self.started.append(process)
        return process

    def run(
        self, wire: Wire, *arguments: object, code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """`needlemap run` on a wire server, of a model that the arguments may name."""
        asking = self.asking(wire)
        return self(
            "run", *(asking[2:] if "--model" in arguments else asking), *arguments, code=code
        )

    def asking(self, wire: Wire) -> tuple[str, ...]:
        """The flags that name a wire server, with answers so short that small lengths do."""
        chosen = ("--model", "openai/m", "--base-url", wire.base_url)
        return (*chosen, "--tokenizer", "cl100k_base", "--max-answer-tokens", "40", "-o", "r")

    def records(self, run: str = "r") -> list[dict[str, Any]]:
        """All records of a run, file by file as they were begun."""
        files = sorted((self.folder / run).glob("records-*.jsonl"))
        texts = [
            file.read_text("utf-8").rpartition("\n")[0] for file in files
        ]  # a line may be under way
        return [json.loads(line) for text in texts for line in text.splitlines()]

    def answered(self, run: str = "r") -> list[dict[str, Any]]:
        """A run's records by key, without what time, and the places where a walk was cut, make of
        them."""
        kept = [
            {name: row[name] for name in row if name not in _PASSING} for row in self.records(run)
        ]
        return sorted(kept, key=lambda row: row["key"])

    def scored(self, run: str = "r") -> Counter[str]:
        """How often each trial was scored, by key."""
        return Counter(row["key"] for row in self.records(run) if row["score"] is not None)

    def replicas(self, run: str = "") -> dict[str, int]:
        """The process numbers of replicas that live, of a run or of all, by the name of their
        log."""
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                command = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
                state = (process / "stat").read_text().rpartition(")")[2].split()[0]
                log = Path(os.readlink(process / "fd/1"))
            except OSError:
                continue
            ours = "needlemap.cluster.replica" in command and str(self.folder / run) in command[-2]
            found |= {log.stem: int(process.name)} if ours and state != "Z" else {}
        return found

    def end(self) -> None:
        """Kill what still runs, replicas too, which take a moment to see that nobody asks."""
        for process in self.started:
            process.kill()
            with process:  # closes its pipes
                pass
        for pid in self.replicas().values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


_PASSING = ("latency_s", "finished_at", "usage", "cached_tokens", "shared_tokens")


def wait_until(condition: Callable[[], Any], seconds: float = 250.0) -> Any:
    """Wait until something is so, and return it."""
    for _ in range(int(seconds * 20)):
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"it did not come about in {seconds} s")


@pytest.fixture(scope="session")
def until() -> Callable[..., Any]:
    """until(condition, seconds=250): the bound is there for what hangs."""
    return wait_until


def without_keys() -> dict[str, str]:
    """The environment of whoever runs the tests, without keys, addresses, and how a terminal
    looks."""
    return {name: value for name, value in os.environ.items() if not name.endswith(_PRIVATE)}


_PRIVATE = ("_API_KEY", "_BASE_URL", "_TOKEN", "COLUMNS", "NO_COLOR", "DONTWRITEBYTECODE")


def typed_here(
    arguments: Sequence[object], folder: Path, environment: Mapping[str, str], code: int | None
) -> subprocess.CompletedProcess[str]:
    """The command line in this process, in a folder and an environment, with nobody at its
    input."""
    out, err, known = _printed(), _printed(), set(sys.modules)
    words = ["needlemap", *map(str, arguments)]
    with (
        patch.dict(os.environ, environment, clear=True),
        patch.multiple(sys, argv=words, stdin=io.StringIO(), path=[*sys.path]),
        patch.object(typer.main, "get_command", _flags_made_once),
        chdir(folder),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    _forget_modules_of(folder, known)
    shown = [stream.buffer.getvalue().decode("utf-8") for stream in (out, err)]  # type: ignore[attr-defined]
    ending = int(ended.value.code or 0)
    assert code in (None, ending), (ending, *shown)
    return subprocess.CompletedProcess(arguments, ending, *shown)


_flags_made_once = cache(
    typer.main.get_command
)  # as good as new each time, and most of a small command's time


def _printed() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def _forget_modules_of(folder: Path, known: set[str]) -> None:
    """A model of a test's own, my_model.py, is not the next test's."""
    for name in set(sys.modules) - known:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


class Typed:
    """`needlemap` in this process, with the environment of the moment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self,
        *arguments: object,
        code: int | None = 0,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end; exceptions that would be tracebacks are raised."""
        return typed_here(arguments, folder or self.folder, environment or without_keys(), code)


@pytest.fixture
def typed(tmp_path: Path) -> Typed:
    """The command line in this process and the test's folder."""
    return Typed(tmp_path)


@pytest.fixture(scope="session")
def command_in() -> type[Command]:
    """The command line, for fixtures that live longer than a test: command_in(folder)."""
    return Command


@pytest.fixture
def needlemap(tmp_path: Path) -> Iterator[Command]:
    """The command line, as a user types it in an empty folder."""
    command = Command(tmp_path)
    yield command
    command.end()


@pytest.fixture(scope="session")
def vocabularies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small trained vocabularies: byte-level.json, metaspace.json, unigram.model,
    bpe.model."""
    from needlemap.haystacks.generated import Generated

    folder = tmp_path_factory.mktemp("vocabularies")
    sources = [Generated(language=language, seed=7) for language in ("english", "chinese")]
    texts = [source.document(number).text for source in sources for number in range(12)]
    _train_hugging_face(folder, texts)
    lines = [line for text in texts for line in text.split("\n") if line]
    _train_sentencepiece(
        folder / "unigram.model", lines, model_type="unigram", hard_vocab_limit=False
    )
    plain = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    _train_sentencepiece(folder / "bpe.model", lines, model_type="bpe", byte_fallback=True, **plain)
    return folder


def _train_hugging_face(folder: Path, texts: list[str]) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    level = pre_tokenizers.ByteLevel
    specials = ["<|endoftext|>", "<|im_end|>"]
    bytewise = Tokenizer(models.BPE())
    bytewise.pre_tokenizer, bytewise.decoder = level(add_prefix_space=False), decoders.ByteLevel()
    options: dict[str, Any] = {
        "vocab_size": 2000,
        "special_tokens": specials,
        "show_progress": False,
    }
    bytewise.train_from_iterator(
        texts, trainers.BpeTrainer(initial_alphabet=level.alphabet(), **options)
    )
    bytewise.save(str(folder / "byte-level.json"))
    spaced = Tokenizer(models.Unigram())
    spaced.pre_tokenizer, spaced.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    options["special_tokens"] = [*specials, "<unk>"]
    spaced.train_from_iterator(texts, trainers.UnigramTrainer(unk_token="<unk>", **options))
    spaced.save(str(folder / "metaspace.json"))


def _train_sentencepiece(file: Path, lines: list[str], **options: Any) -> None:
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=2500, minloglevel=2, **options
    )
    file.write_bytes(model.getvalue())


STARTED_S = time.monotonic()
TIME_IS_UP = "a long proof, and its time is up"
_OPTIONAL = ("optional: ", "may not mount", TIME_IS_UP)  # what even CI may lack
FULL = {  # how long the proofs are with --long; each may be set by itself
    "NEEDLEMAP_KILLS": "100",
    "NEEDLEMAP_REPLICA_KILLS": "30",
    "NEEDLEMAP_SOAK": "20000",
    "NEEDLEMAP_TRIALS": "1000",
    "NEEDLEMAP_FUZZ": "600",
    "NEEDLEMAP_ARCHITECTURES": "llama,gpt2,gemma3_text,gpt_oss,qwen3_next,mamba,mamba2,jamba,bamba,"
    "minimax,phi3 longrope,llama dynamic,openai-gpt,bert,deepseek_v3",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """`pytest --long`: all proofs, each in full. `--long-until 20`: those that begin within 20
    minutes."""
    parser.addoption("--long", action="store_true", help="The long proofs too, and all in full.")
    parser.addoption(
        "--long-until",
        type=float,
        metavar="MINUTES",
        help="With --long: no long proof begins later than that.",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without --long the long proofs are skipped.

    Files that may take longest come first, so that no worker is left with one at the end; then
    files with long proofs, so that few are left out by --long-until. Which ones these are differs
    from commit to commit, so that none is left out for ever.
    """
    if not config.getoption("--long"):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="a long proof: pytest --long"))
    longest, long_proofs = Counter[Path](), set[Path]()
    for item in items:
        allowed = item.get_closest_marker("timeout")
        longest[item.path] = max(longest[item.path], allowed.args[0] if allowed else 0)
        if item.get_closest_marker("long"):
            long_proofs.add(item.path)

    def place(item: pytest.Item) -> tuple[float, bool, str]:
        file = item.nodeid.partition("::")[0]
        turn = sha256(f"{os.environ.get('NEEDLEMAP_COMMIT')} {file}".encode()).hexdigest()
        has_none = item.path not in long_proofs
        return -longest[item.path], has_none, turn if config.getoption("--long") else ""

    items.sort(key=place)


@pytest.hookimpl(tryfirst=True)  # before its fixtures are made
def pytest_runtest_setup(item: pytest.Item) -> None:
    """On a slow machine the long proofs leave time for all other tests.

    What a test and its fixtures draw is the same in each run, so that one that fails fails again.
    """
    DRAWN.seed(item.nodeid)
    until = item.config.getoption("--long-until")
    late = until is not None and time.monotonic() - STARTED_S > 60 * until
    if late and item.get_closest_marker("long"):
        pytest.skip(f"{TIME_IS_UP}: pytest --long")


def pytest_configure(config: pytest.Config) -> None:
    """In the background of a script a shell lets Ctrl-C be ignored, by all that the tests start
    too."""
    if config.getoption("--long"):
        for name, value in FULL.items():
            os.environ.setdefault(name, value)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):  # as nohup and the background leave them
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """What all tests imported stays: to look through it again and again took a tenth of their
    time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where all real parts are said to be here, a suite that was skipped for want of one is a
    failure."""
    if not os.environ.get("NEEDLEMAP_REQUIRE_REAL_PARTS"):
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    missing = [
        report for report in skipped if not any(word in str(report.longrepr) for word in _OPTIONAL)
    ]
    if missing and reporter:
        reporter.write_line("Skipped although all real parts must be here:")
        for report in missing:
            reporter.write_line(f"{report.nodeid}: {report.longrepr}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
