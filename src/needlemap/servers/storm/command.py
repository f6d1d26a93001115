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

from needlemap.asking.discovery import Reached, reach_server, tell_unknown_context
from needlemap.commands.announce import going_on, say_stopped, show_finding, terminable
from needlemap.commands.arguments import is_address
from needlemap.deadline import clock, without_limit
from needlemap.errors import SettingsError
from needlemap.finishes import list_unknown
from needlemap.grid import tokens
from needlemap.http.compatible import BACKEND
from needlemap.http.served import cache_tokens
from needlemap.models.started import started
from needlemap.records.lock import hold_folder
from needlemap.records.origin import CheckedRun
from needlemap.secrets import check_key_names
from needlemap.servers.check.families import logprobs_setting, vocabulary_note
from needlemap.servers.check.gauge import CHANGING, gauge_flags, is_wrapped, reference_of
from needlemap.servers.check.known_by_answer import known_as_gauge
from needlemap.servers.flags import StormFlags
from needlemap.servers.gauge.checkpoint import REFERENCE
from needlemap.servers.storm.file import STORM, StormFile
from needlemap.servers.storm.judge import StormResult
from needlemap.servers.storm.offered import saves_slots, second_model
from needlemap.servers.storm.report import storm_report
from needlemap.servers.storm.repro import write_repro
from needlemap.servers.storm.shrink import Shrinking, requests_of, to_replay
from needlemap.servers.storm.storm import OWN, STORMED, Storm, StormOptions
from needlemap.servers.storm.storming import StormInRounds, show_nothing
from needlemap.settings import marked, settings_of
from needlemap.settings.prices import Prices, price_source
from needlemap.settings.trust import refuse_untyped_model
from needlemap.stats.bets import units_needed
from needlemap.stats.verdicts import FAIL, NOT_ENOUGH_DATA, PASS, exit_code
from needlemap.text import counted, short, show, tell
from needlemap.trials import provider_host

_UNTIL = re.compile(r"rate<(\d*\.?\d+)%")
# Rounds from which the cost is estimated before any is sent.
_SAMPLED = 60
# Tokens of the longest prompt if neither the user nor the server says.
_LONGEST = 64_000
# The log of what --command starts, in the folder of the storm.
_SERVER_LOG = "server.log"
# Seconds between two lines of progress.
_EVERY_S = 8.0
# Times the families that the wanted rate takes: some rounds are left out or end early.
_SPARE = 1.3
# Tokens of template and answer that a request has in addition to its texts, about.
_AROUND = 100


def storm_command(typed: StormFlags, flags: Mapping[str, Any], listed: Mapping[str, Any]) -> int:
    """Send the rounds, and report the rate and what was found. Return the verdict's exit code.

    listed: the settings of the model that the server lists; {} if they were typed.
    """
    reaches = bool(listed) or not typed.plan
    storm = Storm.of(options_of(typed, {**flags, **listed}, reaches=reaches), typed.out)
    settings = storm.resolved.settings
    note = vocabulary_note(storm.options.flags, settings)
    if note:
        tell(f"{note}: give --tokenizer to aim at the edges of blocks")
    tell(cost_line(storm))
    if typed.plan:
        return 0
    with terminable() as ending, hold_folder(storm.folder.path):
        asking = StormInRounds(storm, show_nothing if settings.quiet else Progress())
        result = ending.finish(asking.run(), going_on(storm.folder.path))
    for line in list_unknown(asking.finishes):
        tell(line)
    if result is None:
        return show_verdict(asking, asking.result, typed, interrupted_by=ending.code)
    if asking.missed:
        tell(f"needlemap: {asking.missed}.")
    else:
        say_stopped(asking.stopped, storm.folder.path)
    return show_verdict(asking, result, typed)


def options_of(
    typed: StormFlags, flags: Mapping[str, Any], *, reaches: bool = True
) -> StormOptions:
    """Return the options of a storm from what was typed and what the server reports of itself.

    Raises SettingsError for wrong flags. reaches: False for a plan that contacts no server. A plan
    takes only the server's context.
    """
    # A slip in the flags is reported before the server is waited for.
    wanted = wanted_rate(typed.until)
    typed_length = int(tokens(typed.max_length)) if typed.max_length else None
    kv_tokens = int(tokens(typed.kv_tokens)) if typed.kv_tokens else None

    server = reach_server(flags) if reaches else None
    is_known = known_as_gauge(typed.gauge, flags, server, plan=typed.plan)
    settings, note, gauge_length = gauge_flags(flags, is_known)
    is_gauge = gauge_length > 0
    has_reference = reference_of(str(flags.get("model", ""))) == REFERENCE
    reference = REFERENCE if is_gauge and has_reference and not is_wrapped(flags) else ""
    if reference:
        settings = {**logprobs_setting(str(settings.get("model", ""))), **settings}
        note += f". Margins beside {reference}'s"
    if note:
        tell(f"note: {note}")
    options = StormOptions(
        flags={**settings, "limit_time": 60 * typed.minutes},
        max_length=typed_length or gauge_length or _LONGEST,
        load=typed.load,
        kv_tokens=kv_tokens,
        wanted=wanted,
        own=typed.own,
        gauge=is_gauge and not CHANGING & flags.keys(),
        reference=reference,
        without=tuple(typed.without or ()),
        ways=typed.ways,
        dtype=typed.dtype,
    )
    if typed.plan and typed_length is None:
        tell_unknown_context(options.max_length, server)
    if server is None:
        return options
    max_length = server.length_within(options.max_length, promised=typed_length is not None)
    options = replace(options, max_length=max_length)
    return options if typed.plan else _with_server(options, server)


def wanted_rate(until: str) -> float:
    """Return the rate that is to be excluded, as a share.

    Raises SettingsError if it is not a percentage between 0 and 100.

    >>> wanted_rate("rate<0.2%")
    0.002
    """
    match = _UNTIL.fullmatch(until.replace(" ", ""))
    share = float(match[1]) / 100 if match else 0.0
    if not 0 < share < 1:
        raise SettingsError(f"--until '{until}' is no rate. Give one as 'rate<0.2%'.")
    return share


def _with_server(options: StormOptions, server: Reached) -> StormOptions:
    """Return the options with what the server caches, and with what it offers."""
    address, sent, _ = server
    name = str(options.flags.get("model", "")).partition("/")[2]
    if options.kv_tokens is None:
        options = replace(options, kv_tokens=cache_tokens(address, name, sent))
    if options.kv_tokens is None:
        tell("note: the server does not say what it caches: no floods; give --kv-tokens")
    if options.own or provider_host(BACKEND, address) == OWN:
        options = replace(
            options,
            slots="slot" not in options.without and saves_slots(address, sent),
            other="" if "models" in options.without else second_model(address, name, sent),
        )
    return options


def cost_line(storm: Storm) -> str:
    """Return an estimate of what a storm costs, in words."""
    rounds = [storm.round(number) for number in range(1, _SAMPLED + 1)]
    families = sum(len({act.family for act in sample.acts}) for sample in rounds) / _SAMPLED
    requests = sum(len(sample.acts) for sample in rounds) / _SAMPLED
    prompt_tokens = sum(act.tokens + _AROUND for sample in rounds for act in sample.acts) / _SAMPLED
    rate = storm.options.wanted
    needed_families = units_needed(rate)
    count = _SPARE * needed_families / families
    settings, calls = storm.resolved.settings, round(count * requests)
    mean_tokens = round(prompt_tokens / requests)
    price = Prices.of(settings).usd(mean_tokens, 0, settings.max_answer_tokens)
    dollars = f", about ${calls * price:,.2f} ({price_source(settings)})" if price else ""
    cancels = "" if storm.limits.cancels else "; no client goes away (--own allows it)"
    return (
        f"{settings.model}: {needed_families:,} families without a fault bring the rate below "
        f"{100 * rate:g} %: about {short(calls)} requests and "
        f"{short(round(count * prompt_tokens))} prompt tokens{dollars}, equals asked cold among "
        f"them{cancels}"
    )


class Progress:
    """Prints a line every few seconds, so that a slow server is seen to answer."""

    def __init__(self) -> None:
        self._shown_s = monotonic()

    def __call__(self, number: int, requests: int, claim: str) -> None:
        """Print a line on the requests that ended, if the last line is long enough ago.

        number: the round; 0 for the first prompts. claim: of the last verdict, or ''.
        """
        if monotonic() - self._shown_s < _EVERY_S:
            return
        self._shown_s = monotonic()
        line = counted(number, "round") if number else "first prompts"
        line += f", {counted(requests, 'request')}"
        if claim:
            line += f": {claim}"
        tell(line)


def show_verdict(
    asking: StormInRounds,
    result: StormResult,
    typed: StormFlags,
    *,
    interrupted_by: int | None = None,
) -> int:
    """Print the report, write it for CI, and return the exit code."""
    path, document = asking.storm.folder.path, asking.document(result)
    if result.verdict.word == FAIL and to_replay(document) and document.little is None:
        tell(f"\nthe shortest sequence that shows it: needlemap storm {path} --shrink")
    brief = bool(asking.missed) and result.verdict.word != FAIL
    report = storm_report(path, document)
    return show_finding(report, typed, path, brief=brief, interrupted_by=interrupted_by)


def shrink_command(folder: Path | None, typed: StormFlags, flags: Mapping[str, Any]) -> int:
    """Find the shortest sequence that shows a storm's fault, and write it as a script.

    The result is the exit code: 0 if a script is written, 4 if no replay showed the fault. Raises
    NeedlemapError if the folder holds no storm.
    """
    if folder is None or not typed.shrink:
        way = "To shrink a storm's sequence, type: needlemap storm FOLDER --shrink"
        address = "A server's address is given as --base-url"
        raise SettingsError(address if folder and is_address(folder) else way)

    file = STORM.read(folder)
    if file.little is not None:
        tell(f"needlemap: nothing was shrunk: '{folder}' was judged by equal ways of asking.")
        return exit_code(NOT_ENOUGH_DATA)
    if not to_replay(file):
        tell(f"needlemap: nothing was shrunk: '{folder}' holds no fault that a replay may show.")
        return exit_code(NOT_ENOUGH_DATA)

    run = CheckedRun.of(folder / STORMED, typed.trust_run)
    storm = Storm.of(_stored_options(run, file, typed, flags), folder)
    settings, command = storm.resolved.settings, typed.command
    if command is not None and settings.base_url is None:
        raise SettingsError(f"--command starts a server, and '{settings.model}' is none")
    with terminable() as ending, hold_folder(folder), ExitStack() as server:

        def restart(command: str) -> None:
            server.close()
            log = folder / _SERVER_LOG
            server.enter_context(started(command, log, settings.base_url, "--command"))

        restart_server = None if command is None else partial(restart, command)
        if restart_server is not None:
            # Later starts count: shrinking decides how many there are, and a limit ends it.
            with clock().stopped():
                restart_server()
        asking = Shrinking(storm, say=str if settings.quiet else tell, restart=restart_server)
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
        paths = write_repro(storm, shrunk, folder)
    for path in paths:
        tell(str(path))
    return exit_code(PASS)


def _stored_options(
    run: CheckedRun, file: StormFile, typed: StormFlags, flags: Mapping[str, Any]
) -> StormOptions:
    """Return the options of the storm in a folder.

    Anybody may have written the folder's storm.json, so only numbers are taken from it. Raises
    SettingsError if somebody else's folder names a model or a key that must be typed.

    run: the run of the storm's requests. file: the contents of storm.json.
    """
    stored = run.about.settings
    if not run.is_ours:
        refuse_untyped_model(run.about.named.model, flags.get("model"))
        if "model_options" not in flags:
            check_key_names(stored.get("model_options"), "To send it: --model-options key_env=NAME")

    names = (*settings_of("Model"), *marked("check"), "tokenizer")
    settings = {name: stored[name] for name in names if stored.get(name) not in (None, "", [], {})}
    # It was typed for the storm, not for this command.
    settings.pop("quiet", None)

    limits = {"limit_time": 60 * typed.minutes, "limit_tokens": None, "limit_usd": None}
    return StormOptions(
        flags={**settings, **limits, **flags},
        max_length=file.max_length,
        load=file.load,
        kv_tokens=file.kv_tokens,
        wanted=file.wanted,
        own=typed.own,
        reference=REFERENCE if file.reference else "",
    )
