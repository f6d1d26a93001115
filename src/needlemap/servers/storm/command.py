"""`needlemap storm`: is this server right under use? A rate with its bound, an exit code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from needlemap.asking.discovery import reach_server
from needlemap.commands.announce import going_on, say_stopped, show_finding, terminable
from needlemap.commands.arguments import is_address
from needlemap.deadline import without_limit
from needlemap.errors import SettingsError
from needlemap.finishes import list_unknown
from needlemap.grid import tokens
from needlemap.http.served import cache_tokens
from needlemap.models.started import started
from needlemap.records.lock import hold_folder
from needlemap.records.origin import CheckedRun
from needlemap.secrets import check_key_names
from needlemap.servers.check.families import keeping_logprobs
from needlemap.servers.check.gauge import CHANGING, gauge_flags, is_wrapped
from needlemap.servers.flags import StormFlags
from needlemap.servers.gauge.checkpoint import REFERENCE
from needlemap.servers.storm.file import STORM, StormFile
from needlemap.servers.storm.judge import Stormed
from needlemap.servers.storm.report import storm_report
from needlemap.servers.storm.repro import write_repro
from needlemap.servers.storm.shrink import Shrinking, requests_of, to_replay
from needlemap.servers.storm.storm import STORMED, Storm, StormOptions
from needlemap.servers.storm.storming import StormInRounds, show_nothing
from needlemap.settings import marked, settings_of
from needlemap.settings.prices import Prices, price_source
from needlemap.settings.trust import refuse_untyped_model
from needlemap.stats.bets import needed
from needlemap.stats.verdicts import FAIL, NOT_ENOUGH_DATA, PASS, exit_code
from needlemap.text import counted, short, show, tell
from needlemap.trials.resolve import ANY

_UNTIL = re.compile(r"rate<(\d*\.?\d+)%")
_SAMPLED = 60  # rounds of which the cost is known before any is asked
_LONGEST = 64_000  # tokens, where neither the user nor the server says
_SERVER_LOG = "server.log"  # of what --command starts, in the folder of the storm
_EVERY_S = 8.0  # between two lines of progress


def storm_command(typed: StormFlags, flags: Mapping[str, Any]) -> int:
    """Ask, report the rate and what was found; the exit code of the verdict."""
    storm = Storm.of(asked_of(typed, flags), typed.out)
    settings = storm.resolved.settings
    if storm.resolved.tokenizer.name == ANY and settings.tokenizer == ANY:
        tell(f"note: lengths count {ANY}'s tokens: give --tokenizer to aim at the edges of blocks")
    tell(cost_line(storm))
    if typed.plan:
        return 0
    with terminable() as ending, hold_folder(storm.folder.path):
        asking = StormInRounds(storm, show_nothing if settings.quiet else Progress())
        found = ending.finish(asking.run(), going_on(storm.folder.path))
    for line in list_unknown(asking.finishes):
        tell(line)
    if found is None:
        show_verdict(asking, asking.found, typed)
        return ending.code
    if asking.missed:
        tell(f"needlemap: {asking.missed}.")
    else:
        say_stopped(asking.stopped, storm.folder.path)
    return show_verdict(asking, found, typed)


def asked_of(typed: StormFlags, flags: Mapping[str, Any]) -> StormOptions:
    """What is typed as what is asked, with what the server says of itself. Raises
    SettingsError."""
    known, note, usual = gauge_flags(flags, typed.gauge)
    reference = REFERENCE if usual and not is_wrapped(flags) else ""
    if reference:
        known = {**keeping_logprobs(str(known.get("model", ""))), **known}
    if note:
        beside = f". Margins beside {reference}'s" if reference else ""
        tell(f"note: {note}{beside}")
    length = int(tokens(typed.max_length)) if typed.max_length else usual or _LONGEST
    cached = int(tokens(typed.kv_tokens)) if typed.kv_tokens else None
    options = StormOptions(
        {**known, "limit_time": 60 * typed.minutes},
        length,
        typed.load,
        cached,
        wanted_rate(typed.until),
        typed.own,
        bool(usual) and not CHANGING & flags.keys(),
        reference,
        tuple(typed.without or ()),
    )
    return options if typed.plan else _with_server(options, promised=typed.max_length is not None)


def wanted_rate(until: str) -> float:
    """The rate that is to be excluded, as a share. Raises SettingsError.

    >>> wanted_rate("rate<0.2%")
    0.002
    """
    found = _UNTIL.fullmatch(until.replace(" ", ""))
    share = float(found[1]) / 100 if found else 0.0
    if not 0 < share < 1:
        raise SettingsError(f"--until '{until}' is no rate. Give one as 'rate<0.2%'.")
    return share


def _with_server(options: StormOptions, *, promised: bool) -> StormOptions:
    """The same within the context that the server tells, and with what it says that it
    caches."""
    if (server := reach_server(options.flags)) is None:
        return options
    address, sent, context = server
    if context is not None and context < options.max_length and not promised:
        tell(f"note: the server's context is {context:,} tokens: --max-length {context}")
        options = replace(options, max_length=context)
    if options.kv_tokens is None:
        options = replace(options, kv_tokens=cache_tokens(address, sent))
    if options.kv_tokens is None:
        tell("note: the server does not say what it caches: no floods; give --kv-tokens")
    return options


def cost_line(storm: Storm) -> str:
    """What a storm takes, before anything is asked."""
    rounds = [storm.round(number) for number in range(1, _SAMPLED + 1)]
    families = sum(len({act.family for act in each.acts}) for each in rounds) / _SAMPLED
    requests = sum(len(each.acts) for each in rounds) / _SAMPLED
    size = sum(act.tokens + 100 for each in rounds for act in each.acts) / _SAMPLED
    wanted = storm.options.wanted
    units = needed(wanted)
    times = 1.3 * units / families
    settings, calls = storm.resolved.settings, round(times * requests)
    each = Prices.of(settings).usd(round(size / requests), 0, settings.max_answer_tokens)
    dollars = f", about ${calls * each:,.2f} ({price_source(settings)})" if each else ""
    cancels = "" if storm.limits.cancels else "; no client goes away (--own allows it)"
    return (
        f"{settings.model}: {units:,} families without a fault bring the rate below "
        f"{100 * wanted:g} %: about {short(calls)} requests and {short(round(times * size))} "
        f"prompt tokens{dollars}, equals asked cold among them{cancels}"
    )


class Progress:
    """Prints a line every few seconds, so that a slow server is seen to answer."""

    def __init__(self) -> None:
        self._told = monotonic()

    def __call__(self, number: int, requests: int, claim: str) -> None:
        """Hear of requests that ended. number: the round, 0 for the first prompts. claim: what is
        known so far."""
        if monotonic() - self._told >= _EVERY_S:
            self._told = monotonic()
            rounds = counted(number, "round") if number else "first prompts"
            tell(f"{rounds}, {counted(requests, 'request')}{claim and f': {claim}'}")


def show_verdict(asking: StormInRounds, found: Stormed, typed: StormFlags) -> int:
    """Print what was found, and write it for CI; the exit code."""
    path, document = asking.storm.folder.path, asking.document(found)
    if found.verdict.word == FAIL and to_replay(document):
        tell(f"\nthe shortest sequence that shows it: needlemap storm {path} --shrink")
    return show_finding(storm_report(path, document), typed, path, brief=bool(asking.missed))


def shrink_command(folder: Path | None, typed: StormFlags, flags: Mapping[str, Any]) -> int:
    """Find the shortest sequence that shows a storm's fault, and write it as a script; the
    exit code: 0 where it is written, 4 where no replay showed the fault. Raises
    NeedlemapError."""
    if folder is None or not typed.shrink:
        way = "To shrink a storm's sequence, type: needlemap storm FOLDER --shrink"
        address = "A server's address is given as --base-url"
        raise SettingsError(address if folder and is_address(folder) else way)
    file = STORM.read(folder)
    if not to_replay(file):
        tell(f"needlemap: nothing was shrunk: '{folder}' holds no fault that a replay may show.")
        return exit_code(NOT_ENOUGH_DATA)
    run = CheckedRun.of(folder / STORMED, typed.trust_run)
    storm = Storm.of(_asked_before(run, file, typed, flags), folder)
    settings, command = storm.resolved.settings, typed.command
    if command is not None and settings.base_url is None:
        raise SettingsError(f"--command starts a server, and '{settings.model}' is none")
    with terminable() as ending, hold_folder(folder), ExitStack() as server:

        def restart(command: str) -> None:
            server.close()
            log = folder / _SERVER_LOG
            server.enter_context(started(command, log, settings.base_url, "--command"))

        anew = None if command is None else partial(restart, command)
        if anew is not None:
            anew()
        asking = Shrinking(storm, say=str if settings.quiet else tell, restart=anew)
        if ending.finish(asking.run(), "To begin anew: the same command") is None:
            return ending.code
    shrunk = asking.shrunk
    if shrunk is None:
        why = asking.stopped or "its sequence failed in no replay"
        tell(f"needlemap: nothing was shrunk: {why.rstrip('.')}.")
        return exit_code(NOT_ENOUGH_DATA)
    wrong = "wrong" if shrunk.limit is None else "margins moved"
    show(
        f"{counted(len(shrunk.sequence.acts), 'request')} of {shrunk.was} show it: {wrong} in "
        f"{shrunk.failed} of {shrunk.of} replays, and in {shrunk.cold} of {shrunk.cold_of} cold"
    )
    STORM.write(folder, file.model_copy(update={"shrunk": requests_of(shrunk)}))
    with without_limit():
        written = write_repro(storm, shrunk, folder)
    for path in written:
        tell(str(path))
    return exit_code(PASS)


def _asked_before(
    run: CheckedRun, file: StormFile, typed: StormFlags, flags: Mapping[str, Any]
) -> StormOptions:
    """What a storm was asked to do. run: of its requests; file: its storm.json, which anybody may
    have written: only numbers are taken from it. Raises SettingsError where the model's or its
    key's name must be typed."""
    kept = run.about.settings
    if not run.is_ours:
        refuse_untyped_model(run.about.named.model, flags.get("model"))
        if "model_options" not in flags:
            check_key_names(kept.get("model_options"), "To send it: --model-options key_env=NAME")
    names = (*settings_of("Model"), *marked("check"), "tokenizer")
    known = {name: kept[name] for name in names if kept.get(name) not in (None, "", [], {})}
    known.pop("quiet", None)  # of the storm, not of this command
    limits = {"limit_time": 60 * typed.minutes, "limit_tokens": None, "limit_usd": None}
    return StormOptions(
        {**known, **limits, **flags},
        file.max_length,
        file.load,
        file.kv_tokens,
        file.wanted,
        own=typed.own,
        reference=REFERENCE if file.reference else "",
    )
