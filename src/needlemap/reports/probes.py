"""The sheet of a check's page: a row a probe, what it found, and which public fault that looks like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from needlemap.probes.base import UNITS, Finding, read_check
from needlemap.records.loaded import Loaded
from needlemap.reports.labels import length_labels
from needlemap.secrets import hidden
from needlemap.text import short


def check_sheet(runs: Sequence[Loaded], path: Path, places: Mapping[str, int]) -> dict[str, Any]:
    """A row a probe; the finding's way of asking is a click away. runs: the ways'; places: of each."""
    findings = read_check(path).findings
    lengths = sorted({length for run in runs for length in run.map.lengths})
    rows = [
        {
            "to": ["run", places[each.worst.way]] if each.worst and each.worst.way in places else None,
            "line": None,
            "cells": _cells(each),
        }
        for each in findings
    ]
    found = ", ".join(
        f"{count} {state}" for state, count in sorted(Counter(each.state for each in findings).items())
    )
    known = [(each.probe, fault) for each in findings for fault in each.known]
    looks = [f"{probe} looks like: {each.name} ({each.link}). Try: {each.tried}." for probe, each in known]
    seen = [
        f"See it: needlemap replay {path} --probe {each.probe} --worst" for each in findings if each.worst
    ]
    return {
        "lengths": [[length, length_labels([length])[length]] for length in lengths],  # ways differ by a few
        "says": found,
        "readings": [["Check", found or "not ended yet", "probes", "main"]],
        "table": {"head": ["Probe", "Verdict", "n", "Effect", "Tokens", "Found"], "rows": rows},
        "lines": [hidden(line) for line in (*looks, *seen, UNITS)],
    }


def _cells(finding: Finding) -> list[Any]:
    """A probe's row: its name, its numbers and what was found in words."""
    effect = finding.effect.label if finding.effect else ""
    numbers = finding.state, f"{finding.n:,}", effect, short(finding.tokens)
    return [finding.probe, *([text, None] for text in numbers), [hidden(finding.said), None, "words"]]
