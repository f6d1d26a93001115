"""`needlemap ab`: is the other arm no worse than the reference? A verdict, an exit code, where to look."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.table import Table

from needlemap.asking.ab import MOST, PAIRS, YARDSTICK, Ab, Asked, Asking
from needlemap.commands.check import CheckFace
from needlemap.commands.termination import Ending, say_interrupted, say_stopped, terminable
from needlemap.errors import SettingsError
from needlemap.files import make_folder
from needlemap.maps.arms import Judged, Trio
from needlemap.models.servers import PORT, served_model, started
from needlemap.records.ab import AGAIN, Arm
from needlemap.reports.arms import CELL_HEAD, FAMILY_HEAD, ArmsReport, Row
from needlemap.reports.live import View
from needlemap.reports.verdict import OF_CODE, Case, write_junit
from needlemap.settings.prices import Prices, summed
from needlemap.text import counted, dollars, short, show

EVERY_S = 5.0  # between two lines of progress
UNDECIDED = ("fail", "pass")
DECIDED = "decided"
FEW_DEPTHS = 4


@dataclass(frozen=True, slots=True)
class Typed:
    """What a user typed beside the settings. commands: by arm, what starts its server."""

    out: Path | None
    on_undecided: str
    as_json: bool
    junit: Path | None = None
    commands: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.on_undecided not in UNDECIDED:
            raise SettingsError(f"--on-undecided '{self.on_undecided}' is neither 'fail' nor 'pass'.")
        if self.commands and self.out is None:
            raise SettingsError("--arm-command keeps what servers say: name a folder with -o.")


def parse_until(typed: str | None) -> tuple[int, bool]:
    """The most pairs, and whether a verdict ends it before. Raises SettingsError.

    >>> parse_until("decided"), parse_until("500"), parse_until(None)
    ((20000, True), (500, False), (200, False))
    """
    if typed is None:
        return PAIRS, False
    if typed == DECIDED:
        return MOST, True
    if not typed.isdecimal() or not 0 < int(typed) <= MOST:
        raise SettingsError(f"--until '{typed}': give '{DECIDED}', or a number of pairs up to {MOST:,}.")
    return int(typed), False


def typed_arms(
    typed: Sequence[str], commands: Sequence[str], model: str
) -> tuple[tuple[Arm, Arm], dict[str, str]]:
    """Both arms, and the commands that start some of them, which get their addresses then. Raises
    SettingsError."""
    begun, arms = dict[str, str](), [Arm.of(each, model) for each in typed]
    for each in commands:
        name, _, command = each.partition("=")
        if PORT not in command:
            raise SettingsError(
                f"--arm-command wants NAME='COMMAND ... {PORT} ...', as --arm-command "
                f"q8='llama-server -m model.gguf --cache-type-k q8_0 --port {PORT}'."
            )
        arms.append(Arm.of(f"{name}=http://127.0.0.1/v1", model))
        begun[name] = command
    if len(arms) != 2:
        raise SettingsError("ab has two arms, the reference first: --arm NAME=URL|MODEL --arm NAME=URL|MODEL")
    return (arms[0], arms[1]), begun


def ab_command(asked: Asked, typed: Typed) -> int:
    """Ask until the verdict, and tell it; the exit code: 0 no worse, 1 worse, 4 undecided."""
    with terminable() as ending, ExitStack() as stack:
        try:
            first, second = (_reached(arm, typed, stack) for arm in asked.arms)
            return _asked(replace(asked, arms=(first, second)), typed, ending)
        except KeyboardInterrupt:  # while a server was started
            return ending.code


def _reached(arm: Arm, typed: Typed, stack: ExitStack) -> Arm:
    """An arm whose server is there."""
    if arm.name in typed.commands and typed.out is not None:
        make_folder(typed.out)
        log = typed.out / f"server-{arm.name}.log"
        server = started(typed.commands[arm.name], log, name=f"Arm '{arm.name}'")
        arm = replace(arm, base_url=stack.enter_context(server))
    return _named(arm)


def _named(arm: Arm) -> Arm:
    """An arm with the model that its server lists first, where none was typed."""
    return arm if arm.model else replace(arm, model=f"openai/{served_model(arm.base_url)}")


def _asked(asked: Asked, typed: Typed, ending: Ending) -> int:
    ab = Ab.of(asked, typed.out)
    path, quiet = ab.folder.path, bool(asked.flags.get("quiet"))
    if not quiet:
        show("\n".join([most_line(ab), *_many_depths(ab)]), file=sys.stderr, flush=True)
    with AbFace(ab.folder) as face:
        asking = Asking(ab, face, Progress(quiet))
        try:
            found = ending.run(asking.run())
        except KeyboardInterrupt:
            say_interrupted(path)
            told(ab, ab.trios(), typed)
            return ending.code
    report = told(ab, found, typed)
    say_stopped(asking.stopped, path)
    return report.code(undecided_passes=typed.on_undecided == "pass")


def most_of(ab: Ab) -> tuple[int, float | None]:
    """What it can cost at most, in tokens and dollars; None where a price is not known."""
    tokens, prices = 0, list[float | None]()
    for arm, ways in [*ab.ways.items(), *ab.weighing.items()]:
        share = ab.haystacks
        if arm == AGAIN:
            share = min(share, YARDSTICK) + max(0, share - YARDSTICK) // 4
        for resolved in ways.values():
            grid, settings = resolved.grid, resolved.settings
            mean, count = sum(grid.lengths) / len(grid.lengths), share * len(grid.depths)
            price = Prices.of(settings).usd(ceil(mean), 0, settings.most_tokens)
            tokens += ceil(count * mean)
            prices.append(None if price is None else count * price)
    return tokens, summed(prices)


def most_line(ab: Ab) -> str:
    """What it asks, and costs at most."""
    tokens, usd = most_of(ab)
    names = " and ".join(arm.name for arm in ab.asked.arms)
    price = "" if usd is None else f", {dollars(usd)} dollars"
    until = "until a verdict" if ab.asked.decided else "whatever the verdict"
    return (
        f"ab: {names}, {counted(ab.most_pairs, 'pair')} at most, {until}: up to {short(tokens)} prompt "
        f"tokens{price}, {names.split(' ')[0]} being asked twice"
    )


def _many_depths(ab: Ab) -> list[str]:
    """A word on families whose haystacks are asked at many depths, for one bet each."""
    most = max(len(each.grid.depths) for each in ab.ways[AGAIN].values())
    told = f"note: a haystack is one bet, and is asked at {most} depths; few decide sooner: --depths 10,60"
    return [told] if most > FEW_DEPTHS else []


def plan_ab(asked: Asked, as_json: bool) -> None:
    """What would be asked, and what that costs at most; nothing is asked."""
    first, second = map(_named, asked.arms)
    ab = Ab.of(replace(asked, arms=(first, second)))
    tokens, usd = most_of(ab)
    if as_json:
        row = {"arms": [arm.name for arm in asked.arms], "families": ab.families, "pairs": ab.most_pairs}
        row |= {"haystacks": ab.haystacks * len(ab.families), "tokens": tokens, "usd": usd}
        show(json.dumps(row, indent=1))
        return
    rows = [
        (family, ", ".join(f"{length:,}" for length in found.grid.lengths), f"{len(found.grid.depths)}")
        for family, found in ab.ways[asked.arms[0].name].items()
    ]
    _table(("family", "lengths, one a haystack", "depths"), rows)
    show("\n".join([most_line(ab), *_many_depths(ab)]))


def told(ab: Ab, found: Sequence[Trio], typed: Typed) -> ArmsReport:
    """Print and keep what was found."""
    names = ab.asked.arms[0].name, ab.asked.arms[1].name
    report = ArmsReport.of(names, found, ab.asked.margin, ab.most_pairs, stops=ab.asked.decided)
    code = report.code(undecided_passes=typed.on_undecided == "pass")
    ab.keep(report.plain())
    show_report(report, ab.folder.path, code if typed.as_json else None)
    if typed.junit is not None:
        state = "skipped" if code == 0 and report.judged.word == "undecided" else OF_CODE[code]
        text = "\n".join([*report.lines(), *report.worst_lines()])
        write_junit(
            typed.junit, "ab", [Case(" against ".join(report.names[::-1]), state, report.verdict, text)]
        )
    return report


def show_report(report: ArmsReport, path: Path, code: int | None = None) -> None:
    """Verdict, tables, worst prompts; with an exit code one JSON document instead."""
    worst = report.worst_lines()
    again = f"needlemap replay {path} --worst --arm {report.names[1]}"
    if code is not None:
        row = {"ab": str(path), "code": code, **report.plain(), "replay": again if worst else ""}
        show(json.dumps(row, indent=1, ensure_ascii=False))
        return
    show("\n".join(report.lines()))
    if report.judged.these.n:
        _table(FAMILY_HEAD, report.family_rows())
        _table(CELL_HEAD, report.cell_rows())
    if worst:
        show("\n".join(["", "the worst prompts:", *worst, f"see the first: {again}"]))
    show(f"\nab: {path}\npage: needlemap report {path} -o ab.html", file=sys.stderr)


def _table(head: Sequence[str], rows: Sequence[Row]) -> None:
    table = Table(box=None, pad_edge=False)
    for at, name in enumerate(head):
        table.add_column(name, justify="right" if at else "left")
    for row in rows:
        table.add_row(*row)
    show()
    Console(width=max(80, Console().width)).print(table)


class AbFace(CheckFace):
    """Says what could not be measured, and nothing of each block."""

    def begins(self, *_: object) -> None:
        """Nothing: blocks are many."""

    def view(self, *_: object) -> View:
        """No lines of its own."""
        return View()


class Progress:
    """Tells now and then how the pairs stand."""

    def __init__(self, quiet: bool) -> None:
        self._quiet, self._told_s = quiet, monotonic()

    def __call__(self, judged: Judged) -> None:
        if self._quiet or monotonic() - self._told_s < EVERY_S:
            return
        self._told_s = monotonic()
        gate = judged.these
        show(
            f"{counted(gate.n, 'pair')}: {gate.lost} lost, {gate.gained} gained, {judged.word}",
            file=sys.stderr,
            flush=True,
        )
