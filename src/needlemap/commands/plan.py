"""`needlemap plan`: what a run would ask and cost, before any call."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from needlemap.plan.reckoned import Reckoned, Terms, dollars, reckon, short
from needlemap.plan.summary import Summary
from needlemap.settings.suites import Chosen
from needlemap.text.printable import counted, show


def plan_command(chosen: Chosen, terms: Terms, as_json: bool) -> None:
    """Print the plan."""
    plan = reckon(chosen, terms)
    for note in () if chosen.first.quiet else plan.told:
        show(f"note: {note}", file=sys.stderr)
    if as_json:
        show(json.dumps(plan.plain(), indent=1))
        return
    show(_title(plan))
    if plan.total is None:
        show("".join(f"{note}\n\n" for note in plan.fed_notes()), end="")
        mode = chosen.first.mode
        show("\n".join(table_lines(plan.rows, mode)), end="\n\n")
        show("* this run's mode. " if mode in plan.rows else "", end="")
    else:
        show("\n".join(table_lines({**plan.rows, "total": plan.total}, first="family")), end="\n\n")
    show("\n".join(plan.notes()))


def _title(plan: Reckoned) -> str:
    settings = plan.chosen.first
    if plan.total is not None:
        return f"suite {plan.chosen.suite} · {settings.model} · mode {settings.mode}\n"
    axes = counted(plan.lengths, "length"), counted(plan.depths, "depth")
    return (
        f"{settings.model} · {plan.task} · {' x '.join(axes)} x {settings.repeats} · "
        f"tokenizer {plan.tokenizer} · lanes: {plan.rows['single'].lanes}\n"
    )


def table_lines(named: Mapping[str, Summary], chosen: str = "", first: str = "mode") -> list[str]:
    """Summaries as a table. chosen: the one to mark. first: what the first column is called."""
    rows = list(named.values())
    cells = [[f"{name} *" if name == chosen else name, *_cells(row, rows)] for name, row in named.items()]
    lines = [_headings(rows, first), *cells]
    wide = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rests = [[text.rjust(width) for text, width in zip(line[1:], wide[1:], strict=True)] for line in lines]
    return ["  ".join([line[0].ljust(wide[0]), *rest]) for line, rest in zip(lines, rests, strict=True)]


def _headings(rows: list[Summary], first: str) -> list[str]:
    found = [first, "cells", "calls", "asked", "computed", "cached", "times fewer", "beside caching"]
    if any(row.usd_plain for row in rows):
        found += ["dollars", "if cached"]
    found += ["PFLOP"] if rows[0].flops is not None else []
    found += ["time"] if rows[0].seconds is not None else []
    found += ["server cache"] if rows[0].held_tokens is not None else []
    return found


def _cells(row: Summary, rows: list[Summary]) -> list[str]:
    tokens = (short(number) for number in (row.asked, row.computed, row.cached))
    found = [f"{row.cells:,}", f"{row.prompts:,}", *tokens, f"{row.factor:.1f}", f"{row.gain:.1f}"]
    if any(other.usd_plain for other in rows):
        found += [dollars(row.usd_plain), dollars(row.usd_cached)]
    if row.flops is not None:
        found.append(f"{row.flops / 1e15:,.2f}")
    if row.seconds is not None:
        found.append(_long(row.seconds))
    if row.held_tokens is not None:
        found.append(short(row.held_tokens))
    return found


def _long(seconds: float) -> str:
    """A time in minutes, from two hours on in hours, from three days on in days.

    >>> _long(1_560), _long(46_974), _long(525_252)
    ('26.0 min', '13.0 h', '6.1 days')
    """
    if seconds < 2 * 3600:
        return f"{seconds / 60:,.1f} min"
    return f"{seconds / 3600:,.1f} h" if seconds < 72 * 3600 else f"{seconds / 86_400:,.1f} days"
