"""Real engines that serve the gauge: honest ways to run them, and faults that are put into them.

    python benchmarks/check.py --real FILE

checks each, and keeps a line of JSON of each check in FILE; what FILE holds is not asked again.
A line names the engine's build, and the rules by which `check` asked and judged: one of other rules
is left where it is, counts for nothing, and is asked again. `real_engines.jsonl` is such a file.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from itertools import product, zip_longest
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/servers"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/wings/servers/real_servers"))

from between import between  # of tests/servers

from conftest import Served, Servers  # of tests/wings/servers/real_servers
from needlemap.grid import tokens
from needlemap.records.folder import RunFolder
from needlemap.records.record import Record
from needlemap.servers.check.ask import BESIDE
from needlemap.servers.check.gauge import MOVES
from needlemap.servers.check.haystack import Options
from needlemap.servers.check.margins import margins_of, nats_apart
from needlemap.servers.check.schedule import Schedule
from needlemap.servers.gauge.checkpoint import (
    floats_of,
    holds_tokens,
    read_tensors,
    write_checkpoint,
)
from needlemap.stats.verdicts import FAIL, OPEN

Tensors = dict[str, NDArray[np.uint16]]
LLAMA, TRANSFORMERS, IN_PROCESS = "llama-server", "transformers serve", "transformers"
QUICK = "2k"  # the longest prompt of the first round of faults
JUDGED = 1  # one more with each change by which the same answers come to another verdict
ANSWER = 128  # tokens of a context beside the longest prompt: the answer, and what templates add


KINDS = {"f16": "float16", "q8_0": "q8_0"}  # data types of llama-server's caches, as MOVES has them
ASKED: Mapping[str, tuple[str, ...]] = {  # endpoints, and what a check of each is asked
    "chat": (),
    "completions": ("--template", "text-en", "--model-options", "api=completions"),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A way to serve the gauge. options: of the engine. asked: of `check`. slots: prompts at a
    time; room: of the longest prompt, what a slot's context holds. altered: the weights. hot: a
    temperature that the server heeds instead of the asked one. fault: what is wrong, '' where
    nothing is; probes: those that name its kind. fixes: whether it is of the half on which limits
    are fixed; they are scored on the other half. kind: the data type that its margins are of; ''
    where it gives none."""

    name: str
    engine: str = LLAMA
    options: tuple[object, ...] = ()
    asked: tuple[object, ...] = ()
    slots: int = 1
    room: float = 1.0
    altered: Callable[[], Tensors] = read_tensors
    hot: float | None = None
    fault: str = ""
    probes: tuple[str, ...] = ()
    fixes: bool = False
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check of a case came to. states: of its probes; said: what those that do not pass
    found; cpu_s, wall_s: of the check itself; server_cpu_s: of the server, its start included.
    probes: those that were asked, all where none is named. moved: by how many nats a token the
    margins of each first prompt differ from the reference's. build: of the engine. rules: of
    `check`. load: of the machine, in processes, before it began."""

    case: str
    fault: str
    max_length: str
    time: int
    code: int
    states: Mapping[str, str]
    said: Mapping[str, str] = field(default_factory=dict)
    cpu_s: float = 0.0
    ended: str = ""
    probes: str = ""
    server_cpu_s: float = 0.0
    wall_s: float = 0.0
    moved: Sequence[float] = ()
    build: str = ""
    rules: str = ""
    load: float = 0.0


def honest_cases() -> Iterator[Case]:
    """llama-server by slots, RAM cache, flash attention, cache type and endpoint; values in q8_0
    need flash attention. transformers serve in two data types. Limits are fixed on llama-server
    where an even number of these five is not the first choice, on transformers serve in float32,
    and on transformers in this process, which alone gives margins, with one of two templates."""
    choices = ("1", "4"), ("on", "off"), ("on", "off"), ("f16", "q8_0"), tuple(ASKED)
    for chosen in product(*choices):
        slots, ram, flash, kind, api = chosen
        if kind == "q8_0" and flash == "off":
            continue
        options = ("-fa", flash, "-ctk", kind, "-ctv", kind, *(("-cram", 0) * (ram == "off")))
        name = f"llama-server, slots {slots}, RAM cache {ram}, flash {flash}, {kind}, {api}"
        others = sum(one != first for one, (first, _) in zip(chosen, choices, strict=True))
        how = {"asked": ASKED[api], "slots": int(slots), "fixes": others % 2 == 0}
        yield Case(name, options=options, kind=KINDS[kind], **how)
    for kind in ("float32", "bfloat16"):
        options = ("--dtype", kind)
        yield Case(f"transformers serve, {kind}", TRANSFORMERS, options, fixes=kind == "float32")
    for kind, template in product(("float32", "bfloat16"), ("chat-en", "text-en")):
        asked = ("--model-options", f"dtype={kind}")  # its own template is chat-en
        asked += ("--template", template, "--model-options", "base=true") * (template == "text-en")
        how = {"asked": asked, "fixes": template == "chat-en", "kind": kind}
        yield Case(f"transformers, {kind}, {template}", IN_PROCESS, **how)


def with_values_grown() -> Tensors:
    """The gauge whose second layer's values are 1.05 times as large."""
    name, tensors = "model.layers.1.self_attn.v_proj.weight", read_tensors()
    return {**tensors, name: rounded_bits(np.float32(1.05) * floats_of(tensors[name]))}


def with_a_tensor_in_fp8() -> Tensors:
    """The gauge, one of whose tensors was put into 8-bit floats as it is, without a scale."""
    name, tensors = "model.layers.1.mlp.down_proj.weight", read_tensors()
    weights = floats_of(tensors[name])
    step = np.exp2(np.maximum(np.floor(np.log2(np.abs(weights) + 1e-30)), -6) - 3)
    return {**tensors, name: rounded_bits(np.round(weights / step) * step)}


def rounded_bits(weights: NDArray[Any]) -> NDArray[np.uint16]:
    """Numbers as the bits of the nearest bfloat16."""
    bits = weights.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


MARGINS, ROOM = ("reference",), ("window", "cut")
EXACT = ("--kv", "exact")  # the one who asks knows that the cache is no coarser than the weights
WRONG = (
    Case("half the rotary base", options=("--rope-freq-base", 5e11), probes=MARGINS),
    Case("half the rotary scale", options=("--rope-freq-scale", 0.5), probes=MARGINS),
    Case(
        "YaRN where there is none",
        options=("--rope-scaling", "yarn", "--rope-scale", 4, "--yarn-orig-ctx", 8192),
        probes=MARGINS,
    ),
    Case("a context smaller than promised", room=0.5, probes=ROOM),
    Case("context shift", options=("--context-shift",), room=0.5, probes=ROOM),
    Case("a context divided among slots", slots=4, room=0.25, probes=ROOM),
    Case("a wrong chat template", options=("--chat-template", "llama2"), probes=MARGINS),
    Case("temperature left on", hot=1.0, probes=("same",)),
    Case("one layer's values times 1.05", altered=with_values_grown, probes=MARGINS),
    Case("one tensor through fp8 without its scale", altered=with_a_tensor_in_fp8, probes=MARGINS),
)


def faulty_cases() -> Iterator[Case]:
    """Ten faults, asked what the probes that name them need; every other one is of the half that
    fixes limits."""
    for number, case in enumerate(WRONG):
        flash = ("-fa", "on") if case.engine == LLAMA else ()
        asked = [word for probe in ("length", *case.probes) for word in ("--probe", probe)]
        asked += EXACT if case.probes == MARGINS else ()
        made = replace(case, fault=case.name, options=(*flash, *case.options), asked=tuple(asked))
        yield replace(made, fixes=number % 2 == 0)


CASES = (*honest_cases(), *faulty_cases())


@contextmanager
def serving(case: Case, tokens: int, folder: Path) -> Iterator[Served]:
    """A server of the case, for prompts of so many tokens; it ends with the block."""
    started = Servers(folder)
    try:
        if case.engine == IN_PROCESS:
            served = Served("", f"hf/{write_checkpoint(folder / 'gauge')}")
        elif case.engine == TRANSFORMERS:
            served = _transformers(started, case, folder)
        else:
            served = _llama(started, case, tokens, folder)
        with heated(served, case.hot) as reached:
            yield reached
    finally:
        started.end()


@contextmanager
def heated(served: Served, temperature: float | None) -> Iterator[Served]:
    """The server, or one before it that asks with a temperature of its own."""
    if temperature is None:
        yield served
        return

    with between(served.root, lambda body: body | {"temperature": temperature}) as root:
        yield replace(served, root=root)


def _llama(started: Servers, case: Case, tokens: int, folder: Path) -> Served:
    sys.path.append(os.environ["NEEDLEMAP_GGUF_CONVERTER"])
    from needlemap.servers.gauge import gguf as gauge_gguf

    file = folder / gauge_gguf.NAME
    gauge_gguf.write_gguf(file, tensors=case.altered())
    context = round(case.slots * (case.room * tokens + (ANSWER if case.room == 1 else 0)))
    size = ("-c", context, "-np", case.slots, "-t", 1, "-tb", 1, "--alias", "gauge", "--jinja")
    where = ("--host", "127.0.0.1", *case.options, "--port")
    binary = os.environ["NEEDLEMAP_LLAMA_SERVER"]
    return started.start("gauge", binary, "-m", file, *size, *where)


def _transformers(started: Servers, case: Case, folder: Path) -> Served:
    gauge = write_checkpoint(folder / "gauge")
    (folder / "home" / "hub").mkdir(parents=True)
    python = Path(os.environ.get("NEEDLEMAP_TRANSFORMERS_PYTHON", sys.executable))
    serve = (python.with_name("transformers"), "serve", gauge, "--device", "cpu", *case.options)
    home = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "home")}
    return started.start(str(gauge), *serve, "--host", "127.0.0.1", "--port", **home)


def checked(
    case: Case, max_length: str, time: int, kept: Path | None = None, probes: str = ""
) -> Checked:
    """Serve a case and check it. kept: the check's folder, where it is to stay. probes: of an
    honest case, where not all are to be asked."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as place:
        folder, began = Path(place), cpu_s()
        out = kept or folder / "check"
        with serving(case, int(tokens(max_length)), folder) as served:
            address = ("--model", served.model)
            if served.root:
                address = ("--model", f"openai/{served.model}", "--base-url", served.base_url)
            some = [word for name in probes.split(",") if name for word in ("--probe", name)]
            some += ["--require", probes] * bool(probes)
            asked = ("--max-length", max_length, *address, *case.asked, *some, "--quiet", "-o", out)
            code = "from needlemap.cli import main; main()"
            before, start = cpu_s(), monotonic()
            ended = subprocess.run(
                [sys.executable, "-c", code, "check", *map(str, asked)],
                capture_output=True,
                text=True,
            )
            spent, took = cpu_s() - before, monotonic() - start
        server = cpu_s() - began - spent
        file = out / "check.json"
        found = json.loads(file.read_text())["findings"] if file.is_file() else []
        moved = moved_in(out)
    return Checked(
        case.name,
        case.fault,
        max_length,
        time,
        ended.returncode,
        {each["probe"]: each["state"] for each in found},
        {each["probe"]: each["said"] for each in found if each["state"] in (FAIL, *OPEN)},
        round(spent, 1),
        ended.stderr[-300:] if not found else "",
        probes,
        round(server, 1),
        round(took, 1),
        [float(f"{each:.3g}") for each in moved],
        build_of(case),
        rules(),
        round(load, 1),
    )


def build_of(case: Case) -> str:
    """The build of a case's engine: versions, and of llama-server what tells two builds apart."""
    if case.engine == LLAMA:
        return _llama_build(os.environ["NEEDLEMAP_LLAMA_SERVER"])
    return ", ".join(f"{name} {version(name)}" for name in ("transformers", "torch"))


@cache
def _llama_build(binary: str) -> str:
    said = subprocess.run([binary, "--version"], capture_output=True, text=True)
    first = (said.stdout + said.stderr).strip().partition("\n")[0]
    known = first if first.startswith("llama.cpp") else first.replace("version:", "llama.cpp", 1)
    return f"{known} ({sha256(Path(binary).read_bytes()).hexdigest()[:8]})"


@cache
def rules() -> str:
    """What `check` asks of the gauge and by which limits it judges: a number, and a digest of the
    asks of one seed in any order, of each probe's share of the alpha, and of the limits of
    margins."""
    known = {"holds": holds_tokens(), "moves": MOVES, "few": True}
    schedule = Schedule(Options(max_length=8_000, reference=True, logprobs=True, **known))
    shares = {name: probe.share for name, probe in schedule.probes.items()}
    asks = sorted(ask.key for ask in schedule.cells())
    return f"{JUDGED}-{sha256(repr((asks, shares, MOVES)).encode()).hexdigest()[:8]}"


def cpu_s() -> float:
    """CPU seconds of ended processes."""
    spent = getrusage(RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def read_checked(file: Path) -> list[Checked]:
    """What a file holds."""
    lines = file.read_text().splitlines() if file.is_file() else []
    return [Checked(**json.loads(line)) for line in lines]


def in_rounds(
    cases: Sequence[Case], max_length: str, times: int
) -> Iterator[tuple[Case, str, int]]:
    """Cases with the longest prompt and the time at which each is checked, so that whatever is
    there when it is interrupted says most: faults at 2k, llama-server once, transformers, faults,
    then honest ones again. Both halves and numbers of slots take turns."""
    if not times:
        return
    faults = [case for case in cases if case.fault]
    others = [case for case in cases if not case.fault and case.engine != LLAMA]
    kinds = product((True, False), (1, 4))
    llama = [
        [c for c in cases if not c.fault and c.engine == LLAMA and (c.fixes, c.slots) == kind]
        for kind in kinds
    ]
    honest = [case for turn in zip_longest(*llama) for case in turn if case]
    if tokens(max_length) > tokens(QUICK):
        yield from ((case, QUICK, 0) for case in faults)
    yield from ((case, max_length, 0) for case in (*honest, *others, *faults))
    yield from ((case, max_length, time) for time in range(1, times) for case in (*honest, *others))


def check_each(
    file: Path,
    max_length: str,
    times: int,
    cases: Sequence[Case],
    kept: Path | None = None,
    probes: str = "",
) -> list[Checked]:
    """Check each case as the file lacks it, a line of it after each; all lines of these rules."""
    for case, length, time in in_rounds(cases, max_length, times):
        some = "" if case.fault else probes
        known = of_these_rules(read_checked(file))  # another command may have added to it
        if (case.name, length, time, some) in {
            (e.case, e.max_length, e.time, e.probes) for e in known
        }:
            continue
        name = "-".join(re.findall(r"[\w.]+", case.name))
        place = kept / f"{name}-{length}-{time}" if kept else None
        found = checked(case, length, time, place, some)
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(asdict(found)) + "\n")
        print(f"{case.name}: {found.code} {found.said or found.ended}", file=sys.stderr)
    return of_these_rules(read_checked(file))


def of_these_rules(found: Sequence[Checked]) -> list[Checked]:
    """Lines of checks that asked and judged as `check` does now."""
    return [each for each in found if each.rules == rules()]


def moved_in(folder: Path) -> list[float]:
    """By how many nats a token the margins of first prompts differ from the reference's, in the
    folder of a check."""
    found = []
    for way in folder.glob(f"{BESIDE}*"):
        there = {_place(each): each for each in RunFolder(way).records()}
        here = RunFolder(folder / way.name.removeprefix(BESIDE)).records()
        pairs = ((there[_place(each)], each) for each in here if _place(each) in there)
        apart = (nats_apart(margins_of(one), margins_of(other)) for one, other in pairs)
        found += [nats for nats in apart if nats is not None]
    return found


def _place(record: Record) -> tuple[int, float, int]:
    return record.length_tokens, round(record.depth, 8), record.repeat


def summed(found: Sequence[Checked], max_length: str) -> dict[str, object]:
    """Honest configurations to a longest prompt, and faults to any, and what came of them: of all,
    and of the half on which limits are scored."""
    by_name = {case.name: case for case in CASES}
    honest = [e for e in found if not e.fault and e.max_length == max_length and not e.probes]
    faults = [each for each in found if each.fault]
    counts: dict[str, object] = {}
    for half in ("", "scored_"):
        good = [each for each in honest if not (half and by_name[each.case].fixes)]
        bad = [each for each in faults if not (half and by_name[each.case].fixes)]
        missed = {each.case for each in bad if not is_named(each, by_name[each.case])}
        counts |= {
            f"real_{half}honest": len({each.case for each in good}),
            f"real_{half}checks": len(good),
            f"real_{half}blamed": sum(each.code == 1 for each in good),
            f"real_{half}undecided": sum(each.code not in (0, 1) for each in good),
            f"real_{half}faults": len({each.case for each in bad}),
            f"real_{half}found": len({each.case for each in bad} - missed),
        }
    return counts


def limits(found: Sequence[Checked]) -> Iterator[str]:
    """By data type, in words: how far margins moved in either half of the honest configurations,
    and the limit, which is to be twice what the first half shows at the least."""
    by_name = {case.name: case for case in CASES}
    for kind, limit in MOVES:
        parts = []
        for fixes, words in ((True, "the half that fixes limits"), (False, "the other half")):
            moved = [
                nats
                for each in found
                if (case := by_name[each.case]).kind == kind and case.fixes is fixes
                for nats in each.moved
            ]
            beyond = sum(nats > limit for nats in moved)
            most = f"{max(moved):.2g} at most, {beyond} of {len(moved)} beyond" if moved else "none"
            parts.append(f"{words} {most}")
        yield f"{kind}, limit {limit:g} nats a token: {'; '.join(parts)}."


def is_named(found: Checked, case: Case) -> bool:
    """Whether a probe that names a fault's kind fails."""
    return any(found.states.get(probe) == FAIL for probe in case.probes)
