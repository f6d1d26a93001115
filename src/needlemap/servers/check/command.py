"""`needlemap check`: is this server right at length?

It prints what is found by length, a table of probes, and ends with an exit code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from needlemap.asking import Outcome
from needlemap.asking.discovery import Reached, reach_server, tell_unknown_context
from needlemap.asking.session import Session
from needlemap.commands.announce import going_on, say_stopped, show_finding, terminable
from needlemap.errors import SettingsError
from needlemap.finishes import list_unknown
from needlemap.grid import duration_label, tokens
from needlemap.records.lock import hold_folder
from needlemap.reports.live import ShowingObserver
from needlemap.reports.report import COUNT, Column, Fact, Report, Row, Table, Unit
from needlemap.servers.check.ask import Ask
from needlemap.servers.check.asking import Check, CheckOptions, ProbesOnSchedule, show_nothing
from needlemap.servers.check.families import vocabulary_note
from needlemap.servers.check.gauge import gauge_options
from needlemap.servers.check.haystack import QUICK_LENGTH, Options
from needlemap.servers.check.judge import Checked
from needlemap.servers.check.known_by_answer import known_as_gauge
from needlemap.servers.check.report import check_report
from needlemap.servers.flags import CheckFlags
from needlemap.servers.gauge.checkpoint import REFERENCE
from needlemap.stats.verdicts import FAIL
from needlemap.text import counted, short, tell

# Tokens, as 8k is typed.
MOST_QUICK = 8_192
# Answers between two lines of progress.
_EVERY = 50
_TOKENS = Unit(short)
_MINUTES = Unit("{:g}".format)
PLAN = (
    Column("check", "check"),
    Column("prompts", "prompts", COUNT),
    Column("computed", "computed", _TOKENS),
    Column("sent", "without a cache", _TOKENS),
)
MINUTES = (
    Column("minutes", "minutes", _MINUTES),
    Column("minutes_without_cache", "without a cache", _MINUTES),
)


def check_command(typed: CheckFlags, flags: Mapping[str, Any], listed: Mapping[str, Any]) -> int:
    """Send the prompts, and report what each probe found. Return the verdict's exit code.

    listed: the settings of the model that the server lists; {} if they were typed.
    """
    reaches = bool(listed) or not typed.plan
    options = options_on(typed, {**flags, **listed}, reaches=reaches)
    check = Check.of(options, typed.out)
    note = vocabulary_note(options.flags, check.asker.base.settings)
    if note:
        tell(note)
    if typed.plan:
        return show_plan(check, typed)

    quiet = bool(check.asker.base.settings.quiet)
    with terminable() as ending, hold_folder(check.folder.path):
        asking = ProbesOnSchedule(check, show_nothing if quiet else CheckProgress(check))
        checked = ending.finish(asking.run(), going_on(check.folder.path))
    path = check.folder.path
    for line in list_unknown(asking.finishes):
        tell(line)
    if checked is None:
        report = report_of(check, check.judge())
        return show_finding(report, typed, path, interrupted_by=ending.code)
    if asking.missed:
        tell(f"needlemap: {asking.missed}.")
    else:
        say_stopped(asking.why, path)
    # A leak has a table and a prompt to look at.
    brief = bool(asking.missed) and checked.verdict.word != FAIL
    return show_finding(report_of(check, checked), typed, path, brief=brief)


def options_on(
    typed: CheckFlags, flags: Mapping[str, Any], *, reaches: bool = True
) -> CheckOptions:
    """Return the options of a check from what is typed and what the server reports of itself.

    Raises SettingsError for wrong flags. reaches: False for a plan that contacts no server.
    """
    server = reach_server(flags) if reaches else None
    is_gauge = known_as_gauge(typed.gauge, flags, server, plan=typed.plan)
    check_options = options_of(typed, flags, is_gauge)
    if typed.plan and not check_options.options.promised:
        tell_unknown_context(check_options.options.max_length, server)
    return check_options if server is None else _within_context(check_options, server)


def longest_of(typed: str | None, *, quick: bool) -> int:
    """Return the tokens of the longest prompts. Raises SettingsError for more than a quick check
    sends."""
    longest = int(tokens(typed or (str(QUICK_LENGTH) if quick else "128k")))
    if quick and longest > MOST_QUICK:
        raise SettingsError(
            f"--quick sends prompts of up to 8k, and --max-length is {typed}: leave one out."
        )
    return longest


def options_of(
    typed: CheckFlags, flags: Mapping[str, Any], is_gauge: bool | None = None
) -> CheckOptions:
    """Return what is typed as what a check is asked to do.

    Raises SettingsError if options do not go together.

    is_gauge: whether the model is the gauge; None if its name decides.
    """
    options = Options(
        max_length=longest_of(typed.max_length, quick=typed.quick),
        load=typed.load,
        promised=typed.max_length is not None,
        probes=tuple(typed.probe or ()),
        require=tuple(word.strip() for word in typed.require.split(",") if word.strip()),
        accept=tuple(typed.accept or ()),
        exact=typed.kv == "exact",
        dtype=typed.dtype,
        few=typed.few,
        quick=typed.quick,
    )
    if typed.quick and (typed.probe or typed.baseline or typed.reference):
        raise SettingsError(
            "--quick has probes of its own: leave --probe, --baseline, --reference out."
        )
    settings = dict(flags)
    if typed.minutes is not None:
        settings["limit_time"] = 60 * typed.minutes
    asked, note = gauge_options(
        CheckOptions(
            flags=settings,
            options=options,
            reference=typed.reference,
            baseline=typed.baseline,
        ),
        is_gauge,
    )
    if note:
        tell(f"note: {note}")
    if asked.options.exact and not asked.options.moves:
        model = asked.flags.get("model", "")
        raise SettingsError(
            f"--kv exact judges a server of needlemap's gauge beside {REFERENCE}; '{model}' is "
            "not taken for it: type --gauge if it is"
        )
    return asked


def _within_context(asked: CheckOptions, server: Reached) -> CheckOptions:
    """Return a check that stays within the server's context, unless more was promised."""
    options = asked.options
    max_length = server.length_within(options.max_length, promised=options.promised)
    return replace(asked, options=replace(options, context=server.context, max_length=max_length))


def show_plan(check: Check, typed: CheckFlags) -> int:
    """Print what a check sends, and send nothing. Return 0.

    That is prompts, tokens, and tokens that a server computes that caches prefixes; with minutes
    if its speed is given.
    """
    schedule, speed = check.asker.schedule, typed.tokens_per_second
    costs = {
        "whole": schedule.first_round_cost,
        "undecided rows, at most": schedule.highest_cost,
    }
    rows = []
    for name, cost in costs.items():
        row: dict[str, Any] = {"check": name, **asdict(cost)}
        if speed:
            row["minutes"] = round(cost.computed / speed / 60, 1)
            row["minutes_without_cache"] = round(cost.sent / speed / 60, 1)
        rows.append(Row(row))
    columns = (*PLAN, *MINUTES) if speed else PLAN
    note = "computed: prompt tokens, by a server that caches prefixes"
    parts = (
        Fact("sizes", list(schedule.sizes)),
        Table("plan", columns, tuple(rows), after=note),
        Fact("total", asdict(schedule.first_round_cost)),
    )
    show_finding(Report("check", "what is asked", parts), typed)
    return 0


class FailuresObserver(ShowingObserver):
    """Prints what could not be measured."""

    def ended(self, name: str, session: Session, outcome: Outcome) -> None:
        """Print each kind, and how often."""
        for kind, count in sorted(outcome.failures.items()):
            tell(f"{name}: not measured: {count} {kind}")


class CheckProgress:
    """Prints how far a check is, a line for every so many answers."""

    def __init__(self, check: Check) -> None:
        self._total = check.asker.schedule.first_round_cost.prompts
        # The number of answers at the last line.
        self._shown = -_EVERY

    def __call__(self, asks: Sequence[Ask], done: int) -> None:
        """Hear which prompts are sent next, after so many answers."""
        if done - self._shown < _EVERY:
            return
        self._shown = done
        if done < self._total:
            tell(f"{done:,} of {self._total:,} prompts")
        elif asks[0].round > 1:
            tell(f"{done:,}: more haystacks")
        else:
            tell(f"{done:,}: further prompts")


def report_of(check: Check, checked: Checked) -> Report:
    """Return what was found, with what only a check that was just run knows."""
    schedule = check.asker.schedule
    facts = [
        Fact("sizes", list(schedule.sizes)),
        Fact("accepted", list(schedule.options.accept)),
    ]
    return check_report(
        check.folder.path,
        check.asker.base.settings.model,
        checked,
        check.asked.reference,
        _cost_line(check),
        facts,
    )


def _cost_line(check: Check) -> str:
    """Return what was sent in all, and how long the answers took."""
    replies = list(check.answers.by_key.values())
    tokens = sum(reply.tokens for reply in replies)
    seconds = sum(reply.seconds for reply in replies)
    return (
        f"asked {counted(len(replies), 'prompt')}, {short(tokens)} tokens, "
        f"{duration_label(seconds)} of answers"
    )
