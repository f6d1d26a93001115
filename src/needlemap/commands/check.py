"""`needlemap check`: is this server right at length? A table of probes, as text or JSON, and an
exit code."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from needlemap.asking import Outcome
from needlemap.asking.check import Asked, Asking, Check, built, spent
from needlemap.asking.discovery import ADDRESS, seconds_of
from needlemap.asking.session import Session
from needlemap.commands.announce import say_stopped, show_json, terminable
from needlemap.commands.arguments import CheckFlags
from needlemap.grid import duration_label, tokens
from needlemap.http.served import context_of, wait_for
from needlemap.models import Model
from needlemap.plan import shared_tokens, walk_order
from needlemap.probes import PROBES
from needlemap.probes.base import UNITS, Finding
from needlemap.prompts import Prompt
from needlemap.records.lock import hold_folder
from needlemap.reports.live import ShowingFace
from needlemap.reports.verdict import Case, write_junit
from needlemap.text import short, show, tell
from needlemap.trials.resolve import ANY

PASSED, FAILED, UNDECIDED = 0, 1, 4


def check_command(typed: CheckFlags, flags: Mapping[str, Any]) -> int:
    """Ask, tell what each probe found; the exit code: 0 all pass, 1 one fails, 4 undecided."""
    limited = {"limit_time": 60 * typed.minutes} if typed.minutes is not None else {}
    most, probes = int(tokens(typed.max_length or "128k")), tuple(typed.probe or PROBES)
    promised = typed.max_length is not None
    asked = Asked({**flags, **limited}, most, typed.load, typed.reference, probes, promised)
    if typed.plan:
        return plan_check(asked, typed.json)
    asked = _with_context(asked)
    check = Check.of(asked, typed.out)
    path = check.folder.path
    if check.asked.flags.get("tokenizer") != asked.flags.get("tokenizer"):
        tell(f"note: the model's vocabulary is not known here: lengths count {ANY}'s tokens")
    with terminable() as ending, hold_folder(path), CheckFace(check.folder) as face:
        asking = Asking(check, face, tell_finding)
        found = ending.finish(asking.run(), path)
    findings = check.findings() if found is None else found
    told(check, findings, typed)
    if found is None:
        return ending.code
    say_stopped(asking.stopped, path)
    if asking.stopped:
        tell("\n".join(["left untested:", *(f"  {line}" for line in asking.untested())]))
    return verdict_code(findings)


def told(check: Check, findings: Sequence[Finding], typed: CheckFlags) -> None:
    """Print what was found, and write it for CI."""
    show_findings(check, findings, typed.json)
    if typed.junit is not None:
        write_junit(typed.junit, "check", [case_of(check.folder.path, each) for each in findings])


def case_of(path: Path, finding: Finding) -> Case:
    """A probe's finding for JUnit."""
    known = [
        f"looks like: {fault.name}\n  {fault.link}\n  try: {fault.tried}" for fault in finding.known
    ]
    lines = [
        finding.said,
        *known,
        *([f"see it: {_replay(path, finding)}"] if finding.worst else []),
    ]
    return Case(finding.probe, finding.state, finding.said, "\n".join(lines))


def _with_context(asked: Asked) -> Asked:
    """The server is asked for its context, which nothing goes beyond unless somebody promised
    more."""
    backend, _, name = str(asked.flags.get("model", "")).partition("/")
    address = str(asked.flags.get("base_url") or os.environ.get(ADDRESS, ""))
    if backend != "openai" or not address:
        return asked
    wait_for(address, seconds_of(asked.flags.get("wait", 0.0)))
    if (context := context_of(address, name)) is None:
        return asked
    most = asked.most if asked.promised else min(asked.most, context)
    if most < asked.most:
        tell(f"note: the server's context is {context:,} tokens: --max-length {context}")
    return replace(asked, most=most, context=context)


def verdict_code(findings: Sequence[Finding]) -> int:
    """0 where all pass, 1 where one fails, else 4."""
    states = {finding.state for finding in findings}
    return FAILED if "fail" in states else PASSED if states == {"pass"} else UNDECIDED


def plan_check(asked: Asked, as_json: bool) -> int:
    """What a check would ask, way by way: prompts, tokens sent, and tokens that a server computes
    which caches prefixes; nothing is asked. Returns 0."""
    check = Check.of(asked)
    rows, held = list[dict[str, Any]](), list[Prompt]()
    before = 0
    for name, experiment in built(check).items():
        prompts = [trial.prompt for trial in experiment.trials]
        held += prompts
        computed = max(before, _computed(held))
        sent = sum(prompt.asked_tokens for prompt in prompts)
        rows.append(
            {"way": name, "prompts": len(prompts), "sent": sent, "computed": computed - before}
        )
        before = computed
    total = {name: sum(row[name] for row in rows) for name in ("prompts", "sent", "computed")}
    if as_json:
        show_json({"ways": rows, "total": total})
        return PASSED
    every = [*rows, {"way": "total", **total}]
    told = [
        (row["way"], f"{row['prompts']:,}", short(row["sent"]), short(row["computed"]))
        for row in every
    ]
    show_table(("way", "prompts", "sent", "computed"), told)
    show(
        "computed: by a server that caches prefixes; one that caches none computes all that is sent"
    )
    return PASSED


def _computed(prompts: Sequence[Prompt]) -> int:
    """Tokens that a server computes of some prompts if it keeps all that it has computed."""
    walk = [prompts[at] for at in walk_order(prompts)]
    shared = sum(shared_tokens(left, right) for left, right in pairwise(walk))
    return sum(prompt.asked_tokens for prompt in prompts) - shared


def show_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], left: Collection[str] = ()
) -> None:
    """Print a table of 80 columns at least. left: what stands on the left beside the first
    column."""
    table = Table(box=None, pad_edge=False)
    for name in head:
        on_left = name == head[0] or name in left
        table.add_column(name, justify="left" if on_left else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(width=max(80, Console().width)).print(table)


class FailuresFace(ShowingFace):
    """Tells on the terminal what could not be measured."""

    def ended(self, name: str, session: Session, outcome: Outcome) -> None:
        """Each kind, and how often."""
        for kind, count in sorted(outcome.failures.items()):
            tell(f"{name}: not measured: {count} {kind}")


class CheckFace(FailuresFace):
    """Tells also which way of asking is under way."""

    def begins(self, name: str, session: Session, model: Model | None) -> None:
        """Its name and its size."""
        settings = session.experiment.settings
        if not settings.quiet:
            count, length = len(session.unanswered), max(session.experiment.grid.lengths)
            tell(f"{name}: {count} prompts of {length:,} tokens")


def tell_finding(finding: Finding) -> None:
    """A probe has found something: say so at once."""
    tell(f"{finding.probe}: fail: {finding.said}")


def show_findings(check: Check, findings: Sequence[Finding], as_json: bool) -> None:
    """The table of probes, what each failing one looks like, and how to see it again."""
    path = check.folder.path
    if as_json:
        rows = [{**asdict(each), "replay": _replay(path, each)} for each in findings]
        show_json({"check": str(path), "code": verdict_code(findings), "probes": rows})
        return
    effects = [each.effect.label if each.effect else "-" for each in findings]
    told = [
        (each.probe, each.state, f"{each.n:,}", effect, short(each.tokens), each.said)
        for each, effect in zip(findings, effects, strict=True)
    ]
    head = ("probe", "verdict", "n", "effect", "tokens", "found")
    show_table(head, told, left=("verdict", "effect", "found"))
    for each in findings:
        if each.state == "pass":
            continue
        for fault in each.known:
            show(f"\n{each.probe} looks like: {fault.name}\n  {fault.link}\n  try: {fault.tried}")
        if each.worst is not None:
            show(f"  see it: {_replay(path, each)}")
    show(f"\n{_spent(check)}\n{UNITS}")
    for name in sorted(set(check.probes) - {each.probe for each in findings}):
        show(f"\nnot tried: {name} needs {PROBES[name].needs}")
    if not check.asked.reference:
        show(f"\nnot seen without --reference: {PROBES['reference'].sees}")
    tell(f"\ncheck: {path}\npage: needlemap report {path} -o check.html")


def _spent(check: Check) -> str:
    """What was asked in all, and how long answers took."""
    records = [record for found in check.records().values() for record in found]
    tokens, seconds = spent(records)
    return (
        f"asked {len(records):,} prompts, {short(tokens)} tokens, {duration_label(seconds)} of "
        f"answers"
    )


def _replay(path: Path, finding: Finding) -> str:
    """The command that shows the smallest trial of a finding; '' without one."""
    if finding.worst is None:
        return ""
    return f"needlemap replay {path} --probe {finding.probe} --worst"
