"""`needlemap check`: is this server right at length? What is found by length, a table of
probes, an exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from needlemap.asking import Outcome
from needlemap.asking.discovery import Reached, reach_server
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
from needlemap.servers.check.gauge import beside_the_gauge
from needlemap.servers.check.haystack import QUICK_LENGTH, Options
from needlemap.servers.check.judge import Checked
from needlemap.servers.check.known_by_answer import answers_as_the_gauge
from needlemap.servers.check.report import check_report
from needlemap.servers.flags import CheckFlags
from needlemap.servers.gauge.checkpoint import REFERENCE
from needlemap.text import counted, short, tell
from needlemap.trials.resolve import ANY

MOST_QUICK = 8_192  # tokens, as 8k is typed
_EVERY = 50  # answers between two lines of progress
_TOKENS, _MINUTES = Unit(short), Unit("{:g}".format)
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


def check_command(typed: CheckFlags, flags: Mapping[str, Any]) -> int:
    """Ask, report what each probe found; the exit code of the verdict."""
    server = None if typed.plan else reach_server(flags)
    asked = asked_of(typed, flags, known_as_gauge(typed.gauge, flags, server))
    asked = asked if server is None else _with_context(asked, server)
    check = Check.of(asked, typed.out)
    if check.tokenizer_assumed:
        tell(f"note: the model's vocabulary is not known here: lengths count {ANY}'s tokens")
    if typed.plan:
        return show_plan(check, typed)
    quiet = bool(check.asker.first.settings.quiet)
    with terminable() as ending, hold_folder(check.folder.path):
        asking = ProbesOnSchedule(check, show_nothing if quiet else CheckProgress(check))
        found = ending.finish(asking.run(), going_on(check.folder.path))
    path = check.folder.path
    for line in list_unknown(asking.finishes):
        tell(line)
    if found is None:
        show_finding(report_of(check, check.judged()), typed, path)
        return ending.code
    if asking.missed:
        tell(f"needlemap: {asking.missed}.")
    else:
        say_stopped(asking.why, path)
    return show_finding(report_of(check, found), typed, path, brief=bool(asking.missed))


def known_as_gauge(
    typed: bool | None, flags: Mapping[str, Any], server: Reached | None
) -> bool | None:
    """Whether the model is the gauge: as typed, else by its answer; None where its name
    decides."""
    if typed is not None or server is None:
        return typed
    name = str(flags.get("model", "")).partition("/")[2]
    return answers_as_the_gauge(server.address, name, server.sent) or None


def longest_of(typed: str | None, *, quick: bool) -> int:
    """Return the tokens of the longest prompts. Raises SettingsError for more than a quick check
    sends."""
    longest = int(tokens(typed or (str(QUICK_LENGTH) if quick else "128k")))
    if quick and longest > MOST_QUICK:
        raise SettingsError(
            f"--quick sends prompts of up to 8k, and --max-length is {typed}: leave one out."
        )
    return longest


def asked_of(
    typed: CheckFlags, flags: Mapping[str, Any], gauge: bool | None = None
) -> CheckOptions:
    """What is typed as what is asked. gauge: whether the model is the gauge, as far as its
    name does not say it. Raises SettingsError."""
    limited = {"limit_time": 60 * typed.minutes} if typed.minutes is not None else {}
    options = Options(
        max_length=longest_of(typed.max_length, quick=typed.quick),
        load=typed.load,
        promised=typed.max_length is not None,
        probes=tuple(typed.probe or ()),
        require=tuple(word.strip() for word in typed.require.split(",") if word.strip()),
        accept=tuple(typed.accept or ()),
        exact=typed.kv == "exact",
        few=typed.few,
        quick=typed.quick,
    )
    if typed.quick and (typed.probe or typed.baseline or typed.reference):
        raise SettingsError(
            "--quick has probes of its own: leave --probe, --baseline, --reference out."
        )
    asked = CheckOptions({**flags, **limited}, options, typed.reference, typed.baseline)
    asked, note = beside_the_gauge(asked, gauge)
    if note:
        tell(f"note: {note}")
    if asked.options.exact and not asked.options.moves:
        model = asked.flags.get("model", "")
        raise SettingsError(
            f"--kv exact judges a server of needlemap's gauge beside {REFERENCE}; '{model}' is "
            "not taken for it: type --gauge if it is"
        )
    return asked


def _with_context(asked: CheckOptions, server: Reached) -> CheckOptions:
    """Nothing goes beyond the server's context unless somebody promised more."""
    if (context := server.context) is None:
        return asked
    options = asked.options
    if context < options.max_length and not options.promised:
        tell(f"note: the server's context is {context:,} tokens: --max-length {context}")
        options = replace(options, max_length=context)
    return replace(asked, options=replace(options, context=context))


def show_plan(check: Check, typed: CheckFlags) -> int:
    """What a check asks: prompts, tokens sent, and tokens that a server computes which caches
    prefixes; with minutes where its speed is given. Nothing is asked. Returns 0."""
    schedule, speed, rows = check.asker.schedule, typed.tokens_per_second, []
    for name, cost in (("whole", schedule.whole), ("undecided rows, at most", schedule.most)):
        row: dict[str, Any] = {"check": name, **asdict(cost)}
        if speed:
            row["minutes"] = round(cost.computed / speed / 60, 1)
            row["minutes_without_cache"] = round(cost.sent / speed / 60, 1)
        rows.append(Row(row))
    said = "computed: prompt tokens, by a server that caches prefixes"
    plan = Table("plan", (*PLAN, *(MINUTES if speed else ())), tuple(rows), after=said)
    parts = (Fact("sizes", list(schedule.sizes)), plan, Fact("total", asdict(schedule.whole)))
    show_finding(Report("check", "what is asked", parts), typed)
    return 0


class FailuresObserver(ShowingObserver):
    """Tells on the terminal what could not be measured."""

    def ended(self, name: str, session: Session, outcome: Outcome) -> None:
        """Each kind, and how often."""
        for kind, count in sorted(outcome.failures.items()):
            tell(f"{name}: not measured: {count} {kind}")


class CheckProgress:
    """Tells how far a check is."""

    def __init__(self, check: Check) -> None:
        self._whole, self._said = check.asker.schedule.whole.prompts, -_EVERY

    def __call__(self, asks: Sequence[Ask], done: int) -> None:
        """A line for every so many answers."""
        if done - self._said >= _EVERY:
            self._said = done
            what = "more haystacks" if asks[0].round > 1 else "further prompts"
            tell(
                f"{done:,} of {self._whole:,} prompts"
                if done < self._whole
                else f"{done:,}: {what}"
            )


def report_of(check: Check, found: Checked) -> Report:
    """What was found, and what only a check that was just asked knows."""
    schedule, settings = check.asker.schedule, check.asker.first.settings
    more = [
        Fact("sizes", list(schedule.sizes)),
        Fact("accepted", list(schedule.options.accept)),
    ]
    path, reference = check.folder.path, check.asked.reference
    return check_report(path, settings.model, found, reference, _spent(check), more)


def _spent(check: Check) -> str:
    """What was asked in all, and how long answers took."""
    rows = list(check.answers.by_key.values())
    sent, seconds = sum(row.tokens for row in rows), sum(row.seconds for row in rows)
    return (
        f"asked {counted(len(rows), 'prompt')}, {short(sent)} tokens, {duration_label(seconds)} of "
        "answers"
    )
