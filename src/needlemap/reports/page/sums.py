"""A run in sums: trials, tokens, dollars, and what could not be measured, by kind of failure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from needlemap.reports.labels import NOT_ASKED
from needlemap.reports.page.cells import tokens_of
from needlemap.reports.page.numbers import total
from needlemap.reports.usage import cache_lines
from needlemap.runs.loaded import Loaded
from needlemap.runs.record import Record

EXAMPLES = 3  # different messages shown for each kind of failure


def totals(run: Loaded) -> dict[str, Any]:
    """Sums over all trials, None where nobody counted. seconds: of latency, which overlaps between lanes.
    usd: of the model's answers, and of what was sent and could not be read; judge_usd: of verdicts, None
    without a judge that costs."""
    records = run.records
    scored = sum(record.scored for record in records)
    return {
        "trials": scored + run.map.missing,
        "scored": scored,
        "missing": run.map.missing,
        "prompt_tokens": total(tokens_of(record) for record in records if record.latency_s is not None),
        "cached_tokens": total(record.cached_tokens for record in records),
        "planned_tokens": total(record.shared_tokens for record in records),
        "completion_tokens": total(record.completion_tokens for record in records),
        "thinking_tokens": total(record.thinking_tokens for record in records),
        "usd": total(record.asked_usd for record in records),
        "judge_usd": total(record.judge_usd for record in records) or None,
        "seconds": total(record.latency_s for record in records),
        "cache_lines": cache_lines(records),
    }


def failures(run: Loaded) -> list[dict[str, Any]]:
    """Kinds by how often; examples: the first different messages. Trials not asked yet are a kind too."""
    kinds: dict[str, list[Record]] = defaultdict(list)
    for record in run.records:
        if record.failure and not record.scored:
            kinds[record.failure].append(record)
    rows = [
        {"kind": kind, "count": len(found), "examples": _examples(found)} for kind, found in kinds.items()
    ]
    unasked = run.map.missing - sum(map(len, kinds.values()))
    rows += [{"kind": NOT_ASKED, "count": unasked, "examples": []}] if unasked > 0 else []
    return sorted(rows, key=_often)


def _often(row: Mapping[str, Any]) -> tuple[int, str]:
    return -row["count"], row["kind"]


def _examples(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(record.error for record in records if record.error))[:EXAMPLES]
