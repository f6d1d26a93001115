"""Does a green of `check` hold against faults that nobody chose, and are sound servers left alone?

    python benchmarks/green.py [--seed N] [--faults N] [--commands N] [--clean N]
                               [--keep FOLDER] [--no-verdicts] [--smoke]

Faults (`sides/broken.py`) and sound servers (`sides/sound.py`) are drawn at random; the seed is the
only thing that chooses them. Most are asked what a check asks, in memory, and are judged by its
code; some by the command over HTTP. The peer is what people do by hand: a pass if nine in ten of
the answers of every size are right. The limit is who sees each answer change. Verdicts of `compare`
and `ab`, and `--seek`: `sides/verdicts.py`, `sides/seeks.py`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from itertools import repeat
from pathlib import Path
from time import process_time
from typing import Any

from machine import machine
from needlemap.servers.check import Options, Schedule
from needlemap.stats.verdicts import FAIL, OPEN, PASS
from sides import broken, sound
from sides.replayed import Outcome, check
from sides.served import Server, serving
from table import rounded

ROOT = Path(__file__).resolve().parents[1]
SIDES = ROOT / "benchmarks" / "sides"
SIZES = {"replay": 128_000, "command": 2_000}
ANSWER, AROUND = 24, 107  # tokens of an answer, and of a prompt beside its haystack, by the command
WORKERS = 2
OTHERS = 22_000  # first number of the faults that the command is asked about
PEER = 0.9  # share of right answers of a size that the peer wants
HALF, QUARTER = 0.5, 0.25
TOKENS = 6_000_000
BARS = {
    "faults": (">=", 120),
    "commands": (">=", 60),
    "right_by_command_undecided": ("<=", 0),
    "false_green": ("<=", 0),
    "false_green_quarter": ("<=", 0.05),
    "found_all": (">=", 1),
    "found_half": (">=", 0.9),
    "clean": (">=", 1000),
    "tied": (">=", 60),
    "false_alarms": ("<=", 5),
    "foreign_alarms": ("<=", 0),
    "undecided_clean": ("<=", 0.02),
    "undecided_clean_1": ("<=", 0.05),
    "undecided_clean_5": ("<=", 0.15),
    "tokens_128k": ("<=", TOKENS),
    "false_worse_most": ("<=", 0.01),
    "false_no_worse_new_most": ("<=", 0.025),
    "no_worse_equal_200": (">=", 0.9),
    "worse_5_1000": (">=", 0.8),
    "no_worse_missing": (">=", 0.8),
    "dead_length_green": ("<=", 0),
    "dead_length_false": ("<=", 0.02),
    "opposite": ("<=", 0),
    "seek_false_flat": ("<=", 0.02),
    "seek_times_most": ("<=", 4),
}

SAFE = ("false_green", "false_alarms", "foreign_alarms", "tokens_128k")  # at any size of the proof


@dataclass(frozen=True, slots=True)
class Case:
    """One fault or sound server, and what a check said of it. by: replay or command."""

    by: str
    of: broken.Fault | sound.Sound
    came: Outcome


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1, help="Chooses faults and sound servers.")
    parser.add_argument("--faults", type=int, default=150, help="Faults that are replayed.")
    parser.add_argument("--commands", type=int, default=75, help="Faults by the command.")
    parser.add_argument("--right", type=int, default=20, help="Right servers by the command.")
    parser.add_argument("--clean", type=int, default=1008, help="Sound servers.")
    parser.add_argument("--smoke", action="store_true", help="A few of each.")
    parser.add_argument("--keep", type=Path, help="A folder of what was asked: go on with it.")
    parser.add_argument("--no-verdicts", action="store_true", help="Checks alone.")
    options = parser.parse_args()
    began = process_time()
    if options.smoke:
        options.faults, options.commands, options.right, options.clean = 3, 1, 1, 4
    wanted = {
        "fault": (fault_case, options.faults),
        "sound": (sound_case, options.clean),
        "command": (command_case, options.commands),
        "right": (right_case, options.right),
    }
    with ProcessPoolExecutor(WORKERS) as pool:
        # All are handed out at once: a check by the command waits more than it computes.
        handed = {
            name: pool.map(make, range(count), repeat(options.seed), repeat(options.keep))
            for name, (make, count) in wanted.items()
        }
        found = {name: told(cases) for name, cases in handed.items()}
    faults, clean = found["fault"] + found["command"], found["sound"]
    result = {"benchmark": "green", "seed": options.seed, **of_faults(faults), **of_clean(clean)}
    result["right_by_command"] = len(found["right"])
    # The benchmark's own reader must be right, or its faults are found for the wrong reason.
    result["right_by_command_undecided"] = sum(case.came.code != 0 for case in found["right"])
    result["tokens_128k"] = tokens_128k()
    if not options.no_verdicts:
        result |= others(options.smoke, options.seed)
    print(f"Verdicts of needlemap against faults drawn with seed {options.seed}\n{machine()}\n")
    print_faults(faults)
    print_clean(clean)
    bars = {name: BARS[name] for name in BARS if not options.smoke or name in SAFE}
    missed = list(bars_missed(result, bars))
    print("\n".join(missed or [f"All {len(bars)} bars are met."]))
    result["cpu_s"] = rounded(process_time() - began)
    print(json.dumps(result), flush=True)
    raise SystemExit(bool(missed))


def sizes_of(by: str) -> broken.Sizes:
    """The lengths at which a check asks."""
    return Schedule(asked(by), seed=0).sizes


def shortest_of(by: str) -> int:
    """Tokens of its shortest prompts."""
    return Schedule(asked(by), seed=0).short


def asked(by: str) -> Options:
    """What a check is asked to do."""
    own = {} if by == "replay" else {"answer_tokens": ANSWER, "around": AROUND}
    return Options(max_length=SIZES[by], promised=True, **own)


def kept(keep: Path | None, name: str, ask: Callable[[], Outcome]) -> Outcome:
    """What a check came to, from the folder where it was asked before."""
    file = keep / f"{name}.json" if keep else None
    if file and file.is_file():
        told = json.loads(file.read_text())
        return Outcome(**{key: as_tuple(value) for key, value in told.items()})
    came = ask()
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(came)))
    return came


def as_tuple(value: Any) -> Any:
    """Lists as tuples, also within lists."""
    return tuple(map(as_tuple, value)) if isinstance(value, list) else value


def fault_case(number: int, seed: int, keep: Path | None = None) -> Case:
    """A fault, replayed."""
    fault = broken.drawn(number, seed, sizes_of("replay"), shortest_of("replay"))
    told = asked("replay")

    def ask() -> Outcome:
        return check(told, fault.machine, [fault], f"{seed} {number}", number)

    return Case("replay", fault, kept(keep, f"fault-{seed}-{number}", ask))


def sound_case(number: int, seed: int, keep: Path | None = None) -> Case:
    """A sound server, replayed."""
    server = sound.drawn(number, seed, sizes_of("replay"))
    told = asked("replay")

    def ask() -> Outcome:
        return check(told, server.machine, [server], f"sound {seed} {number}", number)

    return Case("replay", server, kept(keep, f"sound-{seed}-{number}", ask))


def command_case(number: int, seed: int, keep: Path | None = None) -> Case:
    """A fault, by the command."""
    sizes, short = sizes_of("command"), shortest_of("command")
    fault = broken.drawn(OTHERS + number, seed, sizes, short)

    def ask() -> Outcome:
        with tempfile.TemporaryDirectory() as folder, serving(2 * SIZES["command"]) as server:
            server.become(fault.machine, [fault], f"{seed} {number}")
            came = by_command(server, Path(folder) / "check")
            return replace(came, changed=server.engine.changed)

    return Case("command", fault, kept(keep, f"command-{seed}-{number}", ask))


def right_case(number: int, seed: int, keep: Path | None = None) -> Case:
    """A right server, by the command."""
    server = sound.drawn(0, seed + number, sizes_of("command"))

    def ask() -> Outcome:
        with tempfile.TemporaryDirectory() as folder, serving(2 * SIZES["command"]) as served:
            served.become(server.machine, [], f"right {seed} {number}")
            return by_command(served, Path(folder) / "check")

    return Case("command", server, kept(keep, f"right-{seed}-{number}", ask))


def told(cases: Iterable[Case]) -> list[Case]:
    """The same, each told on standard error as it comes."""
    found = list[Case]()
    for case in cases:
        found.append(case)
        failing = ", ".join(case.came.failing) or "-"
        told = f"{case.by} {case.of.number} {case.of.kind}: exit {case.came.code}, {failing}"
        print(told, file=sys.stderr, flush=True)
    return found


def by_command(server: Server, folder: Path) -> Outcome:
    """What `needlemap check` says of a server."""
    where = ["--model", "openai/green", "--base-url", f"http://127.0.0.1:{server.port}/v1"]
    how = ["--tokenizer", "o200k_base", "--max-length", str(SIZES["command"]), "--quiet", "--json"]
    # A prompt that is refused is refused each time: to ask it again tells nothing.
    budget = ["--max-answer-tokens", str(ANSWER), "--retries", "0", "-o", str(folder)]
    done = subprocess.run(
        [str(Path(sys.executable).with_name("needlemap")), "check", *where, *how, *budget],
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode not in (0, 1, 4, 5):
        return Outcome(done.returncode, (), (), done.stderr.strip()[-300:], ())
    told = json.loads(done.stdout)
    probes = told["probes"]
    return Outcome(
        done.returncode,
        tuple(each["probe"] for each in probes if each["state"] == FAIL),
        tuple(each["probe"] for each in probes if each["state"] in OPEN),
        str(told["result"]["line"]),
        tuple(f"{each['probe']}: {each['said']}" for each in probes if each["state"] != PASS),
    )


def workflow(code: int) -> int:
    """The exit code of the step in action.yml."""
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    typed = text.partition("\n        needlemap check ")[2].partition("||")[0]
    return 0 if code == 4 and "--on-undecided pass" in typed else code


def is_green(case: Case) -> bool:
    """Whether the workflow's step passes."""
    return workflow(case.came.code) == 0


def is_found(case: Case) -> bool:
    """Whether a check fails, by a probe that names the fault's kind."""
    assert isinstance(case.of, broken.Fault)
    return case.came.code == 1 and bool(set(case.came.failing) & set(case.of.names))


def struck(case: Case) -> bool:
    """Whether it changed an answer of its check. One that changed none is lost in no way of
    asking: it tells what a check does not ask."""
    return case.came.code != 0 or case.came.changed != 0


def peer_passes(came: Outcome) -> bool:
    """Whether nine in ten of the answers of each size are right."""
    return all(right >= PEER * n for _, right, n in came.found)


def share(cases: Iterable[bool]) -> float:
    """Of some; 0 without any."""
    found = list(cases)
    return rounded(sum(found) / len(found), 4) if found else 0.0


def of_faults(cases: Sequence[Case]) -> dict[str, Any]:
    """The figures of faults."""
    rows = [(case, case.of) for case in cases if isinstance(case.of, broken.Fault) if struck(case)]
    half = [case for case, fault in rows if fault.strength >= HALF]
    quarter = [case for case, fault in rows if QUARTER <= fault.strength < HALF]
    apart = [(case, fault) for case, fault in rows if fault.differs]
    leaking = [case for case in cases if case.by == "replay" and case.came.leaked]
    replayed = [case for case in half if case.by == "replay"]
    return {
        "faults": len(cases),
        "idle": len(cases) - len(rows),
        "commands": sum(case.by == "command" for case in cases),
        "half": len(half),
        "quarter": len(quarter),
        "false_green": sum(map(is_green, half)),
        "false_green_quarter": share(map(is_green, quarter)),
        "of_all": sum(fault.strength == 1 for _, fault in apart),
        "found_all": share(is_found(case) for case, fault in apart if fault.strength == 1),
        "of_half": sum(HALF <= fault.strength < 1 for _, fault in apart),
        "found_half": share(is_found(case) for case, fault in apart if HALF <= fault.strength < 1),
        "leaks_missed": sum("mates" not in case.came.failing for case in leaking),
        "peer_green": share(peer_passes(case.came) for case in replayed),
        "limit_green": share(case.came.changed == 0 for case in replayed),
    }


def of_clean(cases: Sequence[Case]) -> dict[str, Any]:
    """The figures of sound servers."""
    able = [(case, case.of) for case in cases if isinstance(case.of, sound.Sound) and case.of.able]
    tied = [case for case, server in able if "ties" in server.numbers]
    calm = [case for case, server in able if not server.noise and "ties" not in server.numbers]
    return {
        "clean": len(cases),
        "tied": len(tied),
        "false_alarms": sum(case.came.code == 1 for case in cases),
        "foreign_alarms": sum("mates" in case.came.failing for case in cases),
        "undecided_clean": share(map(is_undecided, calm)),
        "undecided_clean_1": share(
            is_undecided(case) for case, server in able if 0 < server.noise <= 0.01
        ),
        "undecided_clean_5": share(
            is_undecided(case) for case, server in able if 0.01 < server.noise <= 0.05
        ),
        "undecided_tied": share(map(is_undecided, tied)),
        "peer_alarms": sum(not peer_passes(case.came) for case in cases),
    }


def is_undecided(case: Case) -> bool:
    """Whether a check tells neither pass nor fail."""
    return case.came.code in (4, 5)


def tokens_128k() -> int:
    """Tokens that a quiet server with a prefix cache computes, by a check's own plan."""
    schedule = Schedule(asked("replay"), seed=0)
    return int(schedule.first_round_cost.computed)


def others(smoke: bool, seed: int) -> dict[str, Any]:
    """The figures of compare, ab and --seek."""
    found = dict[str, Any]()
    for name in ("verdicts", "seeks"):
        if (SIDES / f"{name}.py").is_file():
            found |= import_module(f"sides.{name}").figures(5 if smoke else 400, seed)
    return found


def bars_missed(result: Mapping[str, Any], bars: Mapping[str, tuple[str, float]]) -> Iterable[str]:
    """Each bar that is not met, in words."""
    for name, (sign, bar) in bars.items():
        value = result.get(name)
        if value is None:
            yield f"not measured: {name}, which must be {sign} {bar}"
        elif value < bar if sign == ">=" else value > bar:
            yield f"not met: {name} is {value}, and must be {sign} {bar}"


def print_faults(cases: Sequence[Case]) -> None:
    """How checks ended, by kind, by the share that is lost, and by the size at which it begins."""
    print_table("fault", [(kind_of(case), case) for case in cases])
    print_table("lost", [(lost_of(case), case) for case in cases])
    print_table("begins at", [(f"{case.by}, size {case.of.begin + 1}", case) for case in cases])  # type: ignore[union-attr]
    idle = [case for case in cases if not struck(case)]
    print(f"Faults that changed no answer of their check, which are counted nowhere: {len(idle)}")
    for case in idle:
        print(f"  {case.by} {case.of}")
    worst = [case for case in cases if is_bad(case)]
    print(f"Faults of half or more that are green, or of all that are not found: {len(worst)}")
    for case in worst:
        print(
            f"  {case.by} {case.of}\n    exit {case.came.code}: {'; '.join(case.came.said)[:600]}"
        )


def is_bad(case: Case) -> bool:
    """Whether a fault counts against a bar."""
    fault = case.of
    assert isinstance(fault, broken.Fault)
    if not struck(case):
        return False
    green = is_green(case) and fault.strength >= QUARTER
    return green or (fault.differs and fault.strength >= HALF and not is_found(case))


def kind_of(case: Case) -> str:
    """Its kind; of a command's, marked."""
    return case.of.kind


def lost_of(case: Case) -> str:
    """The share that is lost, as a range."""
    assert isinstance(case.of, broken.Fault)
    strength = case.of.strength
    if strength == 1:
        return "all"
    return "half" if strength >= HALF else "a quarter" if strength >= QUARTER else "less"


def print_clean(cases: Sequence[Case]) -> None:
    """How checks of sound servers ended, by kind."""
    print_table("sound server", [(case.of.kind, case) for case in cases])
    for case in cases:
        if case.came.code == 1:
            print(f"  {case.of}\n    {'; '.join(case.came.said)[:600]}")


def print_table(named: str, rows: Sequence[tuple[str, Case]]) -> None:
    """Exits, and the probes that fail, by name."""
    groups = defaultdict[str, list[Outcome]](list)
    for name, case in rows:
        groups[name].append(case.came)
    head = (named, "n", "exit 0", "1", "4", "5", "other", "failing probes", "undecided")
    lines = [head]
    for name, group in groups.items():
        codes = Counter(each.code for each in group)
        known = [codes[code] for code in (0, 1, 4, 5)]
        failing = Counter(probe for each in group for probe in each.failing)
        left = Counter(probe for each in group if each.code in (4, 5) for probe in each.open)
        told = [", ".join(f"{probe} {n}" for probe, n in c.most_common(6)) for c in (failing, left)]
        counts = [len(group), *known, len(group) - sum(known)]
        lines.append((name, *map(str, counts), *told))  # type: ignore[arg-type]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    for line in lines:
        cells = [
            cell.rjust(width) if 0 < at < 7 else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
    print()


if __name__ == "__main__":
    main()
