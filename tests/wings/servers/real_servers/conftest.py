"""Real servers with a real model, small enough for two shared cores: a language model trained to
retrieve.

What is missing skips, with its reason; in CI (NEEDLEMAP_REQUIRE_REAL_PARTS) it fails. `.ci/servers`
installs llama.cpp's server from a wheel and prints the variables that name it:
NEEDLEMAP_LLAMA_SERVER (the command), NEEDLEMAP_GGUF_CONVERTER (the folder that holds the package
`gguf`). NEEDLEMAP_TRANSFORMERS_PYTHON: a Python that has transformers[serving], where the tests'
own has not.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn
from urllib.error import URLError
from urllib.request import urlopen

import pytest

_STARTED_WITHIN_S = 240.0
_SERVING = ("torch", "transformers", "fastapi", "uvicorn")
_CHAT = 'messages:\n  - {role: user, text: "{haystack}\\n\\n{question}"}\n'
_TEXT = (
    'text: "<|im_start|>user\\n{haystack}\\n\\n{question}<|im_end|>\\n<|im_start|>assistant\\n"\n'
)


@dataclass(frozen=True)
class Served:
    """A running server. model: the name that it wants in requests."""

    root: str
    model: str

    @property
    def base_url(self) -> str:
        return f"{self.root}/v1"


class Servers:
    """Starts server processes on free ports of this machine, and ends them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, model: str, *command: object, **environment: str) -> Served:
        """Start a command that ends in a port, and wait until it is healthy."""
        port = free_port()
        log = self._folder / f"server-{port}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*map(str, command), str(port)],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            )
        self._running.append(process)
        served = Served(f"http://127.0.0.1:{port}", model)
        deadline = time.monotonic() + _STARTED_WITHIN_S
        while not healthy(served.root):
            assert process.poll() is None, log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
            time.sleep(0.1)
        return served

    def end(self) -> None:
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.wait(30)


def free_port() -> int:
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        port: int = line.getsockname()[1]
        return port


def healthy(root: str) -> bool:
    try:
        with urlopen(f"{root}/health", timeout=5) as reply:
            return bool(reply.status == 200)
    except (URLError, OSError):
        return False


def missing(reason: str) -> NoReturn:
    if os.environ.get("NEEDLEMAP_REQUIRE_REAL_PARTS"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def checkpoint(shared: Path) -> Path:
    """A Llama of 0.6 M parameters that finds `The magic number for CITY is 1234.` within 256
    tokens."""
    folder = shared / "data" / "tiny_retriever"
    if not folder.is_dir():
        missing(f"no trained model at {folder}")
    return folder


@pytest.fixture(scope="session")
def serving_python() -> str:
    """A Python that can run `transformers serve`."""
    given = os.environ.get("NEEDLEMAP_TRANSFORMERS_PYTHON")
    if given:
        return given
    if not all(map(find_spec, _SERVING)):
        missing(
            "needs transformers[serving]: install it here, or set NEEDLEMAP_TRANSFORMERS_PYTHON"
        )
    return sys.executable


@pytest.fixture(scope="session")
def gguf(checkpoint: Path, serving_python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained model in llama.cpp's format."""
    package = os.environ.get("NEEDLEMAP_GGUF_CONVERTER", "")
    if not Path(package, "gguf").is_dir():
        missing("needs the package gguf: set NEEDLEMAP_GGUF_CONVERTER (bash .ci/servers prints it)")
    out = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    script = Path(__file__).with_name("convert.py")
    made = subprocess.run(
        [serving_python, str(script), package, str(checkpoint), str(out)],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr[-2000:]
    return out


@pytest.fixture(scope="module")
def gauge_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """llama.cpp's file of the gauge, as `needlemap gauge --gguf` writes it."""
    return written_gguf(tmp_path_factory.mktemp("gauge"), "llama")


def written_gguf(folder: Path, shape: str) -> Path:
    """Write llama.cpp's file of the gauge in a shape by the command, and return its path."""
    package = os.environ.get("NEEDLEMAP_GGUF_CONVERTER", "")
    if not Path(package, "gguf").is_dir():
        missing("needs the package gguf: set NEEDLEMAP_GGUF_CONVERTER (bash .ci/servers prints it)")
    code = "from needlemap.cli import main; main()"
    command = (sys.executable, "-c", code, "gauge", "-o", folder, "--shape", shape, "--gguf")
    made = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": package},
    )
    assert made.returncode == 0, made.stderr
    return folder / "gauge.gguf"


@pytest.fixture(scope="module")
def gauge_served(
    gauge_gguf: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Served]]:
    """Starts llama.cpp's server with the gauge: gauge_served("--rope-freq-base", 5e11), or in
    another shape: gauge_served(shape="qwen2")."""
    binary = os.environ.get("NEEDLEMAP_LLAMA_SERVER", "")
    if not Path(binary).is_file():
        missing("needs llama-server: set NEEDLEMAP_LLAMA_SERVER (bash .ci/servers prints it)")
    started = Servers(tmp_path_factory.mktemp("served"))

    def start(*options: object, shape: str = "") -> Served:
        model = written_gguf(tmp_path_factory.mktemp("shape"), shape) if shape else gauge_gguf
        size = ("-c", 8_192, "-np", 2, "-t", 1, "-tb", 1, "--alias", "gauge", "--jinja")
        where = ("--host", "127.0.0.1", *options, "--port")
        return started.start("gauge", binary, "-m", model, *size, *where)

    yield start
    started.end()


@pytest.fixture(scope="module")
def gauge_server(gauge_served: Callable[..., Served]) -> Served:
    """llama.cpp's server with the gauge, with nothing wrong."""
    return gauge_served()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    started = Servers(tmp_path)
    yield started
    started.end()


@pytest.fixture
def llama(servers: Servers, gguf: Path) -> Callable[..., Served]:
    """Starts llama.cpp's server, with nothing in its cache: llama(slots=2, context=2048)."""
    binary = os.environ.get("NEEDLEMAP_LLAMA_SERVER", "")
    if not Path(binary).is_file():
        missing("needs llama-server: set NEEDLEMAP_LLAMA_SERVER (bash .ci/servers prints it)")

    def start(slots: int = 1, context: int = 2048, *options: str) -> Served:
        size = ("-c", slots * context, "-np", slots, "-t", 1, "-tb", 1)
        where = ("--alias", "tiny", "--jinja", "--host", "127.0.0.1", *options, "--port")
        return servers.start("tiny", binary, "-m", gguf, *size, *where)

    return start


@pytest.fixture(scope="module")
def transformers_serve(
    checkpoint: Path, serving_python: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """`transformers serve`: no prefix cache, no limit of length, no report of cached tokens."""
    folder = tmp_path_factory.mktemp("serve")
    (folder / "home" / "hub").mkdir(parents=True)
    started = Servers(folder)
    command = (Path(serving_python).with_name("transformers"), "serve", checkpoint)
    options = ("--device", "cpu", "--dtype", "float32", "--host", "127.0.0.1", "--port")
    try:
        yield started.start(
            str(checkpoint), *command, *options, HF_HUB_OFFLINE="1", HF_HOME=str(folder / "home")
        )
    finally:
        started.end()


@pytest.fixture(scope="module")
def vllm(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """vLLM's CPU build: 3.5 GB and a third party's, so an optional check, never asked for in CI."""
    binary = os.environ.get("NEEDLEMAP_VLLM", "")
    if not Path(binary).is_file():
        pytest.skip("optional: set NEEDLEMAP_VLLM to the path of a `vllm` that runs here")
    started = Servers(tmp_path_factory.mktemp("vllm"))
    size = ("--dtype", "float32", "--max-model-len", 2048, "--max-num-seqs", 8, "--enforce-eager")
    where = (
        "--served-model-name",
        "tiny",
        "--enable-prompt-tokens-details",
        "--host",
        "127.0.0.1",
        "--port",
    )
    quiet = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    small = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    try:
        yield started.start(
            "tiny",
            *(binary, "serve", checkpoint, *size, *where),
            **quiet,
            **small,
            VLLM_CPU_NUM_OF_RESERVED_CPU="0",
        )
    finally:
        started.end()


class Asking:
    """`needlemap` with the one needle that the trained model knows, in essays."""

    def __init__(self, command: Any, shared: Path, checkpoint: Path) -> None:
        self._command, self.checkpoint = command, checkpoint
        self._essays = shared / "data" / "PaulGrahamEssays"
        (command.folder / "chat.yaml").write_text(_CHAT)
        (command.folder / "text.yaml").write_text(_TEXT)

    def __call__(self, verb: str, served: Served, *flags: object, code: int = 0) -> Any:
        """The ended process of `needlemap VERB`; flags given later win."""
        model = ("--model", f"openai/{served.model}", "--base-url", served.base_url)
        return self._command(
            verb, *self._task(), *model, "--max-answer-tokens", 20, *flags, code=code
        )

    def here(self, *flags: object, out: str = "here") -> list[dict]:
        """The records of the same, asked of the weights in the command's own process."""
        model = ("--model", f"hf/{self.checkpoint}", "--max-answer-tokens", 20, "--no-canary")
        self._command("run", *self._task(), *model, "-o", out, *flags)
        records: list[dict] = self._command.records(out)
        return records

    def _task(self) -> tuple[object, ...]:
        task = ("--needle", "The magic number for {city} is {number}.")
        asked = ("--question", "What is the magic number for {city}?", "--keywords", "{number}")
        drawn = ("--draw", "city=Berlin,Oslo,Paris,Madrid,Rome,Lima", "--draw", "number=1000:9999")
        where = ("--haystack", "folder", "--haystack-path", self._essays, "--template", "chat.yaml")
        return (*task, *asked, *drawn, *where)

    def run(
        self, served: Served, *flags: object, out: str = "r", code: int = 0
    ) -> tuple[Any, list[dict]]:
        """`needlemap run` and its records."""
        flags = (
            *flags,
            "--no-canary",
        )  # these models know nothing, and shall be asked all the same
        ended = self("run", served, "-o", out, *flags, code=code)
        return ended, self._command.records(out)


@pytest.fixture
def asking(needlemap: Any, shared: Path, checkpoint: Path) -> Asking:
    return Asking(needlemap, shared, checkpoint)
