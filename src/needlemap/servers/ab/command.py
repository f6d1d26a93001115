"""`needlemap ab`: is B no worse than A? It asks both, until it knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from time import monotonic
from typing import Any

from needlemap.asking.discovery import find_model, sent_with
from needlemap.commands.announce import (
    Ending,
    going_on,
    say_stopped,
    show_finding,
    terminable,
)
from needlemap.commands.compare import scope_of
from needlemap.deadline import clock
from needlemap.errors import SettingsError, naming
from needlemap.files import make_folder
from needlemap.finishes import list_unknown
from needlemap.http.compatible import served
from needlemap.models.started import PORT, started
from needlemap.records.lock import hold_folder
from needlemap.records.origin import check_origin
from needlemap.reports.renderers.json import to_json
from needlemap.reports.report import COUNT, Column, Report, Row, Table, keyed
from needlemap.servers.ab.arms import ArmsLoss, ArmTrial
from needlemap.servers.ab.campaign import (
    MOST,
    PAIRS,
    YARDSTICK,
    Ab,
    AbOptions,
    ArmsInBlocks,
    Settle,
)
from needlemap.servers.ab.file import AGAIN, Arm
from needlemap.servers.ab.report import ab_report
from needlemap.servers.check.command import FailuresObserver
from needlemap.servers.check.gauge import (
    ab_settings,
    arms_of_the_gauge,
    named_gauge,
    with_reference,
)
from needlemap.servers.check.known_by_answer import answers_as_the_gauge
from needlemap.servers.flags import AbFlags
from needlemap.servers.gauge.checkpoint import REFERENCE
from needlemap.settings.prices import Prices, summed
from needlemap.text import counted, dollars, short, tell

EVERY_S = 5.0  # between two lines of progress
LONG_AB = "suite:long-ab"
DECIDED = "decided"
_SHOWN = 60  # characters of what is no number
FEW_DEPTHS = 4
PLAN = (
    Column("family", "family"),
    Column("lengths", "lengths, one a haystack"),
    Column("depths", "depths", COUNT),
)


def parse_until(typed: str | None) -> tuple[int, bool]:
    """The most pairs, and whether a verdict ends it before. Raises SettingsError.

    >>> parse_until("decided"), parse_until("500"), parse_until(None)
    ((20000, True), (500, False), (200, False))
    """
    if typed is None:
        return PAIRS, False
    if typed == DECIDED:
        return MOST, True
    # int() raises for thousands of digits.
    few = typed.isdecimal() and len(typed) <= len(str(MOST))
    if not few or not 0 < int(typed) <= MOST:
        raise SettingsError(
            f"--until '{typed[:_SHOWN]}': give '{DECIDED}', or a number of pairs up to {MOST:,}."
        )
    return int(typed), False


def typed_arms(typed: AbFlags, model: str) -> tuple[tuple[Arm, Arm], dict[str, str]]:
    """Both arms, and the commands that start some of them, which get their addresses then.
    Raises SettingsError."""
    begun, arms = dict[str, str](), [Arm.of(each, model) for each in typed.arm or ()]
    for each in typed.arm_command or ():
        name, _, command = each.partition("=")
        if PORT not in command:
            raise SettingsError(
                f"--arm-command wants NAME='COMMAND ... {PORT} ...', as --arm-command "
                f"q8='llama-server -m model.gguf --cache-type-k q8_0 --port {PORT}'."
            )
        arms.append(Arm.of(f"{name}=http://127.0.0.1/v1", model))
        begun[name] = command
    arms = with_reference(arms)
    if len(arms) != 2:
        raise SettingsError(
            "ab has two arms, the reference first: needlemap ab --arm before=URL --arm after=URL"
        )
    return (arms[0], arms[1]), begun


def ab_command(
    typed: AbFlags, flags: Mapping[str, Any], settle: Settle, plain: Settle | None = None
) -> int:
    """Ask until the verdict, and tell it; the exit code. settle: what flags choose; plain:
    what they choose without a preset, if none was typed."""
    arms, commands = typed_arms(typed, flags.get("model", ""))
    until = parse_until(typed.until)
    asked = AbOptions(arms, flags, settle, typed.margin, *until, typed.weigh, scope_of(typed.scope))
    if typed.plan:
        first, second = (_named(arm, flags) for arm in arms)
        named = replace(asked, arms=(first, second))
        return plan_ab(with_gauge(named, plain, typed.gauge), typed)
    if commands and typed.out is None:
        raise SettingsError("--arm-command keeps what servers say: name a folder with -o.")
    with terminable() as ending, ExitStack() as stack:
        if typed.out is not None:
            stack.enter_context(hold_folder(typed.out))
        try:
            reach = partial(_reached, flags=flags, commands=commands, out=typed.out, stack=stack)
            first, second = map(reach, asked.arms)
            known = typed.gauge
            if known is None and plain is not None:
                known = all(is_gauge(arm, flags) for arm in (first, second)) or None
            reached = replace(asked, arms=(first, second))
            return _run_ab(with_gauge(reached, plain, known), typed, ending)
        except KeyboardInterrupt:  # while a server was started
            return ending.code


def is_gauge(arm: Arm, flags: Mapping[str, Any]) -> bool:
    """Whether an arm is the gauge: the package's own, or served, by its name or its answer."""
    if not arm.base_url:
        return arm.model == REFERENCE or named_gauge(arm.model)
    return answers_as_the_gauge(arm.base_url, arm.model.partition("/")[2], sent_with(flags))


def with_gauge(asked: AbOptions, plain: Settle | None, wanted: bool | None) -> AbOptions:
    """An ab whose settings are the gauge's, where both arms are, and no preset was typed."""
    if not arms_of_the_gauge(asked.arms, wanted) or plain is None:
        return asked
    arms = " and ".join(arm.name for arm in asked.arms)
    tell(f"note: {arms} are taken for needlemap's gauge, with its needle. Otherwise: --no-gauge")
    return replace(asked, flags=ab_settings(asked.flags), settle=plain)


def _reached(
    arm: Arm,
    flags: Mapping[str, Any],
    commands: Mapping[str, str],
    out: Path | None,
    stack: ExitStack,
) -> Arm:
    """An arm whose server is there."""
    if arm.name in commands and out is not None:
        make_folder(out)
        log = out / f"server-{arm.name}.log"
        server = started(commands[arm.name], log, name=f"Arm '{arm.name}'")
        with clock().stopped():
            arm = replace(arm, base_url=stack.enter_context(server))
    return _named(arm, flags)


def _named(arm: Arm, flags: Mapping[str, Any]) -> Arm:
    """An arm with the model that its server lists, where none was typed."""
    if arm.model:
        return arm
    with naming(f"Arm '{arm.name}'"):
        name, address = find_model(arm.base_url, flags)
    return replace(arm, model=served(name), base_url=address)


def _run_ab(asked: AbOptions, typed: AbFlags, ending: Ending) -> int:
    ab = Ab.of(asked, typed.out)
    check_origin(ab.folder.path, typed.trust_run, ab.folder.names)
    path, quiet = ab.folder.path, bool(asked.flags.get("quiet"))
    if not quiet:
        tell("\n".join([most_line(ab), *_many_depths(ab)]))
    observer = FailuresObserver(ab.folder)
    with hold_folder(path):
        blocks = ArmsInBlocks(ab, observer, AbProgress(quiet))
        found = ending.finish(blocks.run(), going_on(path))
    if found is not None:
        say_stopped(blocks.stopped, path)
    trios = ab.trios() if found is None else found
    records = [each for trio in trios for each in (trio.first, trio.second, trio.again)]
    for line in list_unknown(record.finish for record in records if record is not None):
        tell(line)
    code = show_found(ab, trios, typed)
    return ending.code if found is None else code


def most_of(ab: Ab) -> tuple[int, float | None]:
    """What it can cost at most, in tokens and dollars; None where a price is not known."""
    tokens, prices = 0, list[float | None]()
    for arm, ways in [*ab.ways.items(), *ab.weighing.items()]:
        share = ab.haystacks
        if arm == AGAIN:
            share = min(share, YARDSTICK) + max(0, share - YARDSTICK) // 4
        for resolved in ways.values():
            grid, settings = resolved.grid, resolved.settings
            mean = sum(grid.lengths) / len(grid.lengths)
            count = share * len(ab.depths_of(grid, 0))
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
        f"ab: {names}, {counted(ab.most_pairs, 'pair')} at most, {until}: up to {short(tokens)} "
        f"prompt "
        f"tokens{price}, {names.split(' ')[0]} being asked twice{_one_prompt(ab)}"
    )


def _one_prompt(ab: Ab) -> str:
    """What sending one prompt of each haystack costs beside sending it at all depths."""
    if not ab.asked.decided:
        return ""
    alone = together = 0.0
    for resolved in ab.first.values():
        depths = sorted(resolved.grid.depths)
        alone += len(depths)
        # Behind one text each prompt computes what lies behind the needle of the one before.
        together += len(depths) - sum(depths[:-1])
    times = alone / together
    return f"; one prompt a haystack, up to {times:.2f} times the tokens a prompt of all its depths"


def _many_depths(ab: Ab) -> list[str]:
    """A word on families whose haystacks are asked at many depths, for one bet each."""
    most = max(len(ab.depths_of(each.grid, 0)) for each in ab.ways[AGAIN].values())
    told = (
        f"note: a haystack is one bet, and is asked at {most} depths; few decide sooner: --depths "
        f"10,60"
    )
    return [told] if most > FEW_DEPTHS else []


def plan_ab(asked: AbOptions, typed: AbFlags) -> int:
    """What would be asked, and what that costs at most; nothing is asked. Returns 0."""
    ab = Ab.of(asked)
    tokens, usd = most_of(ab)
    values = {
        "arms": [arm.name for arm in asked.arms],
        "families": ab.families,
        "pairs": ab.most_pairs,
        "haystacks": ab.haystacks * len(ab.families),
        "tokens": tokens,
        "usd": usd,
    }
    rows = tuple(
        Row(
            {
                "family": family,
                "lengths": ", ".join(f"{length:,}" for length in found.grid.lengths),
                "depths": len(found.grid.depths),
            }
        )
        for family, found in ab.ways[asked.arms[0].name].items()
    )
    table = Table("", PLAN, rows, after="\n".join([most_line(ab), *_many_depths(ab)]))
    show_finding(Report("ab", "what is asked", (*keyed(values), table)), typed)
    return 0


def show_found(ab: Ab, found: Sequence[ArmTrial], typed: AbFlags) -> int:
    """Print and keep what was found; the exit code."""
    asked, path = ab.asked, ab.folder.path
    names = asked.arms[0].name, asked.arms[1].name
    report = ab_report(
        path, names, found, asked.margin, ab.most_pairs, stops=asked.decided, wanted=asked.scope
    )
    ab.keep(to_json(report))
    return show_finding(report, typed, path)


class AbProgress:
    """Tells now and then how the pairs stand."""

    def __init__(self, quiet: bool) -> None:
        self._quiet, self._told_s = quiet, monotonic()

    def __call__(self, arms: ArmsLoss) -> None:
        if self._quiet or monotonic() - self._told_s < EVERY_S:
            return
        self._told_s = monotonic()
        found = arms.judged
        tell(f"{counted(found.n, 'pair')}: {found.lost} lost, {found.gained} gained, {found.word}")
