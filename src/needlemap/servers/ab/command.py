"""`needlemap ab`: is B no worse than A? It asks both until it knows."""

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
from needlemap.deadline import clock
from needlemap.errors import SettingsError, naming
from needlemap.files import make_folder
from needlemap.finishes import list_unknown
from needlemap.http.compatible import served_model
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
    YARDSTICK_STEP,
    Ab,
    AbOptions,
    ArmsInBlocks,
    Settle,
)
from needlemap.servers.ab.file import AGAIN, Arm
from needlemap.servers.ab.report import ab_report
from needlemap.servers.check.command import FailuresObserver
from needlemap.servers.check.gauge import (
    REFERENCES,
    ab_settings,
    arms_of_the_gauge,
    named_gauge,
    with_reference,
)
from needlemap.servers.check.known_by_answer import answers_as_the_gauge
from needlemap.servers.flags import AbFlags
from needlemap.settings.prices import Prices, summed
from needlemap.text import counted, dollars, short, tell

# Seconds between two lines of progress.
EVERY_S = 5.0
LONG_AB = "suite:long-ab"
DECIDED = "decided"
# Characters of a typed text that an error shows.
_SHOWN = 60
FEW_DEPTHS = 4
PLAN = (
    Column("family", "family"),
    Column("lengths", "lengths, one a haystack"),
    Column("depths", "depths", COUNT),
)


def parse_until(typed: str | None) -> tuple[int, bool]:
    """Return the most pairs, and whether an earlier verdict ends an ab.

    Raises SettingsError if --until is neither 'decided' nor a number of pairs.

    >>> parse_until("decided"), parse_until("500"), parse_until(None)
    ((20000, True), (500, False), (200, False))
    """
    if typed is None:
        return PAIRS, False
    if typed == DECIDED:
        return MOST, True
    # int() raises for thousands of digits.
    is_short_number = typed.isdecimal() and len(typed) <= len(str(MOST))
    if not is_short_number or not 0 < int(typed) <= MOST:
        raise SettingsError(
            f"--until '{typed[:_SHOWN]}': give '{DECIDED}', or a number of pairs up to {MOST:,}."
        )
    return int(typed), False


def parse_arms(typed: AbFlags, model: str) -> tuple[tuple[Arm, Arm], dict[str, str]]:
    """Return both arms, and by arm the commands that start their servers.

    An arm with a command gets its address when the server is started.

    model: the model of the arms that are addresses. Raises SettingsError if there are not two
    arms, or if one is not valid.
    """
    arms = [Arm.of(text, model) for text in typed.arm or ()]
    commands = dict[str, str]()
    for text in typed.arm_command or ():
        name, _, command = text.partition("=")
        if PORT not in command:
            raise SettingsError(
                f"--arm-command wants NAME='COMMAND ... {PORT} ...', as --arm-command "
                f"q8='llama-server -m model.gguf --cache-type-k q8_0 --port {PORT}'."
            )
        arms.append(Arm.of(f"{name}=http://127.0.0.1/v1", model))
        commands[name] = command
    arms = with_reference(arms)
    if len(arms) != 2:
        raise SettingsError(
            "ab has two arms, the reference first: needlemap ab --arm before=URL --arm after=URL"
        )
    return (arms[0], arms[1]), commands


def ab_command(
    typed: AbFlags, flags: Mapping[str, Any], settle: Settle, plain: Settle | None = None
) -> int:
    """Send prompts until the verdict, and print it. Return the exit code.

    settle: returns the preset's families under some flags. plain: the same without a preset; None
        if a preset was typed.
    """
    arms, commands = parse_arms(typed, flags.get("model", ""))
    pairs, decided = parse_until(typed.until)
    options = AbOptions(
        arms,
        flags,
        settle=settle,
        margin=typed.margin,
        pairs=pairs,
        decided=decided,
        weigh=typed.weigh,
        scope=typed.scope,
    )
    if typed.plan:
        reference, other = (_find_arm_model(arm, flags) for arm in arms)
        with_models = replace(options, arms=(reference, other))
        return plan_ab(with_gauge(with_models, plain, typed.gauge), typed)
    if commands and typed.out is None:
        raise SettingsError("--arm-command keeps what servers say: name a folder with -o.")

    with terminable() as ending, ExitStack() as stack:
        if typed.out is not None:
            stack.enter_context(hold_folder(typed.out))
        try:
            reach = partial(_reach_arm, flags=flags, commands=commands, out=typed.out, stack=stack)
            reference, other = map(reach, options.arms)
            are_gauges = typed.gauge
            if are_gauges is None and plain is not None:
                are_gauges = all(is_gauge(arm, flags) for arm in (reference, other)) or None
            with_models = replace(options, arms=(reference, other))
            return _run_ab(with_gauge(with_models, plain, are_gauges), typed, ending)
        except KeyboardInterrupt:
            # The interrupt came while a server was started.
            return ending.code


def is_gauge(arm: Arm, flags: Mapping[str, Any]) -> bool:
    """Return True if an arm is the gauge: the package's own, or served, by its name or answer."""
    if not arm.base_url:
        return arm.model in REFERENCES or named_gauge(arm.model)
    return answers_as_the_gauge(arm.base_url, arm.model.partition("/")[2], sent_with(flags))


def with_gauge(options: AbOptions, plain: Settle | None, are_gauges: bool | None) -> AbOptions:
    """Return an ab's options, with the gauge's settings if both arms are the gauge.

    If a preset was typed, they are returned unchanged.
    """
    if not arms_of_the_gauge(options.arms, are_gauges) or plain is None:
        return options
    arms = " and ".join(arm.name for arm in options.arms)
    tell(f"note: {arms} are taken for needlemap's gauge, with its needle. Otherwise: --no-gauge")
    return replace(options, flags=ab_settings(options.flags), settle=plain)


def _reach_arm(
    arm: Arm,
    flags: Mapping[str, Any],
    commands: Mapping[str, str],
    out: Path | None,
    stack: ExitStack,
) -> Arm:
    """Start an arm's server if there is a command for it. Return the arm with address and model."""
    if arm.name in commands and out is not None:
        make_folder(out)
        log = out / f"server-{arm.name}.log"
        server = started(commands[arm.name], log, name=f"Arm '{arm.name}'")
        with clock().stopped():
            arm = replace(arm, base_url=stack.enter_context(server))
    return _find_arm_model(arm, flags)


def _find_arm_model(arm: Arm, flags: Mapping[str, Any]) -> Arm:
    """Return an arm with its model: the typed one, or else the one that its server lists."""
    if arm.model:
        return arm
    with naming(f"Arm '{arm.name}'"):
        name, address = find_model(arm.base_url, flags)
    return replace(arm, model=served_model(name), base_url=address)


def _run_ab(options: AbOptions, typed: AbFlags, ending: Ending) -> int:
    """Send the pairs, and print the findings. Return the exit code."""
    ab = Ab.of(options, typed.out)
    check_origin(ab.folder.path, typed.trust_run, ab.folder.names)
    path, quiet = ab.folder.path, bool(options.flags.get("quiet"))
    if not quiet:
        tell("\n".join([cost_line(ab), *_depth_notes(ab)]))

    observer = FailuresObserver(ab.folder)
    with hold_folder(path):
        blocks = ArmsInBlocks(ab, observer, AbProgress(quiet))
        trials = ending.finish(blocks.run(), going_on(path))
    interrupted_by = ending.code if trials is None else None
    if trials is None:
        trials = ab.trios()
    else:
        say_stopped(blocks.stopped, path)

    records = [
        record for trial in trials for record in (trial.reference, trial.other, trial.repeat)
    ]
    for line in list_unknown(record.finish for record in records if record is not None):
        tell(line)
    return show_findings(ab, trials, typed, interrupted_by)


def highest_cost(ab: Ab) -> tuple[int, float | None]:
    """Return the highest cost of an ab in tokens and dollars, or None if a price is not known."""
    tokens = 0
    prices = list[float | None]()
    for arm, families in [*ab.ways.items(), *ab.weighing.items()]:
        haystacks = ab.haystacks
        if arm == AGAIN:
            haystacks_beyond = max(0, haystacks - YARDSTICK)
            haystacks = min(haystacks, YARDSTICK) + haystacks_beyond // YARDSTICK_STEP
        for resolved in families.values():
            grid, settings = resolved.grid, resolved.settings
            mean_length = sum(grid.lengths) / len(grid.lengths)
            prompts = haystacks * len(ab.depths_of(grid, 0))
            price = Prices.of(settings).usd(ceil(mean_length), 0, settings.most_tokens)
            tokens += ceil(prompts * mean_length)
            prices.append(None if price is None else prompts * price)
    return tokens, summed(prices)


def cost_line(ab: Ab) -> str:
    """Return the line that names the pairs of an ab and its highest cost."""
    tokens, usd = highest_cost(ab)
    names = [arm.name for arm in ab.options.arms]
    price = "" if usd is None else f", {dollars(usd)} dollars"
    until = "until a verdict" if ab.options.decided else "whatever the verdict"
    return (
        f"ab: {' and '.join(names)}, {counted(ab.most_pairs, 'pair')} at most, {until}: up to "
        f"{short(tokens)} prompt tokens{price}, {names[0]} being asked twice"
    )


def _depth_notes(ab: Ab) -> list[str]:
    """Return a note that fewer depths decide sooner, or none if haystacks have few depths."""
    most = max(len(ab.depths_of(resolved.grid, 0)) for resolved in ab.ways[AGAIN].values())
    if most <= FEW_DEPTHS:
        return []
    return [
        f"note: a haystack is one bet, and is asked at {most} depths; few decide sooner: --depths "
        "10,60"
    ]


def plan_ab(options: AbOptions, typed: AbFlags) -> int:
    """Print the prompts and the highest cost of an ab, and send nothing. Return 0."""
    ab = Ab.of(options)
    tokens, usd = highest_cost(ab)
    values = {
        "arms": [arm.name for arm in options.arms],
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
                "lengths": ", ".join(f"{length:,}" for length in resolved.grid.lengths),
                "depths": len(resolved.grid.depths),
            }
        )
        for family, resolved in ab.reference_families.items()
    )
    table = Table("", PLAN, rows, after="\n".join([cost_line(ab), *_depth_notes(ab)]))
    show_finding(Report("ab", "what is asked", (*keyed(values), table)), typed)
    return 0


def show_findings(
    ab: Ab, trials: Sequence[ArmTrial], typed: AbFlags, interrupted_by: int | None
) -> int:
    """Write the findings to ab.json, and print them. Return the exit code."""
    options, path = ab.options, ab.folder.path
    reference, other = options.arms
    report = ab_report(
        path,
        (reference.name, other.name),
        trials,
        margin=options.margin,
        most=ab.most_pairs,
        stops=options.decided,
        wanted=options.scope,
    )
    ab.keep(to_json(report))
    return show_finding(report, typed, path, interrupted_by=interrupted_by)


class AbProgress:
    """Prints the pairs that were lost and gained, every few seconds."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._shown_s = monotonic()

    def __call__(self, arms: ArmsLoss) -> None:
        """Print the loss after a block, unless the last line is recent."""
        if self._quiet or monotonic() - self._shown_s < EVERY_S:
            return
        self._shown_s = monotonic()
        loss = arms.loss
        tell(f"{counted(loss.n, 'pair')}: {loss.lost} lost, {loss.gained} gained, {loss.word}")
