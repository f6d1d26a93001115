"""The page's summary: everything but the single trials, as JSON can hold it. Same runs, same
summary.

A run's settings and where they differ from the defaults, versions, hashes; sums of trials,
tokens, dollars, and of what could not be measured, by kind of failure. Never a secret.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from shlex import quote
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.grid import percent
from needlemap.records.loaded import Loaded
from needlemap.records.record import SKIPPED, THINKING_SPENT, Record, costs_of
from needlemap.records.run_file import ImportedFile, RunFile, RunHaystack
from needlemap.reports.comparison import comparison_report
from needlemap.reports.labels import (
    NOT_ASKED,
    cached_label,
    depth_labels,
    depth_score_labels,
    depth_words,
    effective_label,
    interval_behind,
    interval_label,
    length_labels,
    loss_label,
    missing_label,
    n_label,
    p_label,
    row_labels,
    score_label,
    tokens_label,
    typeset,
)
from needlemap.reports.page.charts import difference_panel, draw_panel, run_panel, shares
from needlemap.reports.pairing import Names, compare_loaded
from needlemap.reports.renderers.json import to_json
from needlemap.reports.renderers.page import Columns, mean_columns, share, to_sheet
from needlemap.reports.run_notes import cache_lines
from needlemap.reports.run_report import run_report
from needlemap.reports.seek_report import seeks
from needlemap.reports.summary import effective_lengths_of
from needlemap.secrets import hidden, mask_keys
from needlemap.settings import DEFAULTS, ITEM
from needlemap.stats import Cube
from needlemap.stats.cell_score import CellScore
from needlemap.stats.comparison import CellChange, Comparison, FamilyComparison
from needlemap.stats.effective import Effective, Rule
from needlemap.stats.intervals import ClusterMean
from needlemap.stats.means import Map, depth_scores
from needlemap.text import counted


def run_payload(run: Loaded, rules: tuple[str, ...]) -> dict[str, Any]:
    """Return a run's axes, cells and curves, its words and sums, its settings and versions."""
    panel = run_panel(run.map)
    return {
        **_identity(run),
        **_axes(run.map),
        "cells": {**_cell_columns(run.map), "share": shares(panel)},
        "chart": draw_panel(panel),
        "facts": fact_columns(_cell_facts(run.map, cell) for cell in run.map.cells),
        "says": index_texts(_cell_says(run.map, cell) for cell in run.map.cells),
        "words": _tab_words(run.map),
        "sharing": _sharing(run),
        "replay": f"needlemap replay {quote(run.path)}",
        "answer": run_answer(run),
        "withheld": run.map.withheld,
        "lines": list(run_report(run, rules).sentences()),
        **_curves(run, rules),
        "totals": totals(run),
        "failures": failures(run),
        "settings": setting_rows(run.about.settings),
        "versions": fact_rows(run.about),
    }


def run_answer(run: Loaded) -> str:
    """Return a sentence on a map: the mean, and the length and depth at which it is lowest.

    For a run that seeks it is empty.
    """
    if seeks(run):
        return ""
    score_map, mean = run.map, run.map.total
    if mean is None:
        return "Nothing is scored yet"

    n = f"{score_map.n:,} prompts"
    if not score_map.counted:
        n = f"{counted(score_map.n, 'mean')}, each over an unknown number of answers"
    sentence = f"Mean score {score_label(mean.score)} %{interval_behind(mean)} of {n}"
    lengths = {
        f"{tokens_label(length)} tokens": row for length, row in score_map.margins.items() if row
    }
    rows = () if score_map.depthless else score_map.by_depth
    names = depth_score_labels(rows, score_map.depths)
    depths = {f"depth {name}": row.mean for name, row in zip(names, rows, strict=True) if row.mean}
    lowest = list(filter(None, [_lowest_label(lengths), _lowest_label(depths)]))
    return f"{sentence}; lowest at {' and at '.join(lowest)}" if lowest else sentence


def _lowest_label(means: Mapping[str, ClusterMean]) -> str:
    """Return the name and the score of the lowest mean, or '' if all means have one label."""
    if len({score_label(mean.score) for mean in means.values()}) < 2:
        return ""
    name = min(means, key=lambda name: means[name].score)
    return f"{name} ({score_label(means[name].score)} %)"


def _sharing(run: Loaded) -> str:
    """Return the reason if cells hold more trials than were sent, else ''."""
    trials_in_cells = sum(cell.n + cell.missing for cell in run.map.cells)
    is_shared = trials_in_cells > sum(record.scored for record in run.records) + run.map.missing
    return "A prompt that several cells share stands in each of them." if is_shared else ""


def _tab_words(score_map: Map) -> str:
    """Return the words of a run's tab: score, interval and n, or that nothing was measured."""
    if score_map.total is None:
        return "not measured"
    n = n_label(score_map.n, counted=score_map.counted)
    return f"{score_label(score_map.total.score)} %{interval_behind(score_map.total)} {n}"


TextIndices = list[list[Any]]


def index_texts(values: Iterable[str | None]) -> TextIndices:
    """Return the distinct texts as pages set them, and each value's index among them.

    >>> index_texts(["a", None, "a"])
    [['a'], [0, None, 0]]
    """
    places: dict[str, int] = {}
    typeset_texts = (None if text is None else typeset(text) for text in values)
    indices = [
        None if text is None else places.setdefault(text, len(places)) for text in typeset_texts
    ]
    return [list(places), indices]


def fact_columns(rows: Iterable[Mapping[str, str | None]]) -> list[list[Any]]:
    """Return facts about all cells as columns: a name, distinct texts, and each cell's index."""
    all_rows = list(rows)
    names = list(dict.fromkeys(name for row in all_rows for name in row))
    columns = ([name, *index_texts(row.get(name) for row in all_rows)] for name in names)
    return [column for column in columns if column[1]]


def _cell_says(score_map: Map, cell: CellScore) -> str | None:
    """Return a cell's score, interval and n, or None if it has no score."""
    if cell.score is None:
        return None
    n = n_label(cell.n, counted=score_map.counted)
    return f"{score_label(cell.score)} %{interval_behind(cell) if score_map.counted else ''} {n}"


def _cell_facts(score_map: Map, cell: CellScore) -> dict[str, str | None]:
    """Return the facts about a cell by name, the most important first."""
    tokens = _mean(record.sent_tokens for record in cell.records)
    cached = _mean(record.cached_tokens for record in cell.records)
    planned = _mean(record.shared_tokens for record in cell.records)
    # A trial that was not sent yet has no kind of failure; SKIPPED is one that a limit held back.
    has_failures = any(kind != SKIPPED for kind in cell.failures)
    reason = "not measured" if has_failures else "not sent"
    interval = interval_label(cell.low, cell.high) if score_map.counted and cell.n else None
    trials = counted(cell.n, "trial" if score_map.counted else "mean")
    unsent = counted(cell.missing, "trial") if cell.missing and not has_failures else None
    spent = f"{cell.thought} of {cell.n}, no answer" if cell.thought else None
    return {
        "score": reason if cell.score is None else f"{score_label(cell.score)} %",
        "n": trials,
        "95 % interval": interval,
        "needle at": None if score_map.depthless else depth_words(cell.realised),
        "meant for": None if score_map.depthless else depth_words(cell.depth),
        "prompt": None if tokens is None else f"{round(tokens):,} tokens",
        "cached": cached_label(cached, planned),
        THINKING_SPENT: spent,
        "missing": missing_label(cell.missing, cell.failures) if has_failures else None,
        "not sent": unsent,
    }


def _identity(run: Loaded) -> dict[str, Any]:
    title = run.about.title
    return {
        "path": run.path,
        "title": title,
        "model": run.map.model,
        "tokenizer": run.map.tokenizer,
        "task": run.map.task,
        "scorer": run.map.scorer,
        "imported": run.about.imported is not None,
    }


def _axes(score_map: Map) -> dict[str, Any]:
    return {
        "lengths": [[length, label] for length, label in length_labels(score_map.lengths).items()],
        "depths": [
            [share(depth), typeset(label), f"{percent(depth):.10g}"]
            for depth, label in row_labels(score_map, score_map.depths).items()
        ],
        "ragged": score_map.ragged,
        "depthless": score_map.depthless,
        "counted": score_map.counted,
    }


def _cell_columns(score_map: Map) -> Columns:
    """Return columns of equal length, in the order of the map's cells: by length, then depth."""
    cells = score_map.cells
    return {
        **_places(cells, score_map),
        "score": [share(cell.score) for cell in cells],
        "n": [cell.n for cell in cells],
    }


def _places(cells: Sequence[CellScore | CellChange], score_map: Map) -> Columns:
    """Return the index of each cell's length in a map, and its depth."""
    index_of = {length: index for index, length in enumerate(score_map.lengths)}
    return {
        "length": [index_of[cell.length_tokens] for cell in cells],
        "depth": [share(cell.depth) for cell in cells],
    }


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values to one decimal, or None if no value is known."""
    numbers = [value for value in values if value is not None]
    return round(sum(numbers) / len(numbers), 1) if numbers else None


def _curves(run: Loaded, rules: tuple[str, ...]) -> dict[str, Any]:
    score_map, cube = run.map, run.cube
    effective_lengths = effective_lengths_of(run, rules)
    return {
        "by_length": mean_columns([score_map.margins.get(length) for length in score_map.lengths]),
        "by_depth": _by_depth(cube),
        "effective": [_effective_row(effective) for effective in effective_lengths],
    }


def _by_depth(cube: Cube) -> Columns:
    """Return a row for each depth or, if depths are ragged, for each part of the haystack.

    If a depth has no score, its values are None.
    """
    rows = depth_scores(cube)
    if not cube.ragged:
        mean_of, labels = {row.depth: row.mean for row in rows}, depth_labels(cube.depths)
        means = mean_columns([mean_of.get(depth) for depth in cube.depths])
        return {"label": list(labels.values()), **means}
    return {
        "label": depth_score_labels(rows, cube.depths),
        **mean_columns([row.mean for row in rows]),
    }


# The values of a comparison that the readings show: all others are in its sheet.
SCRIPT_VALUES = ("overall", "counted", "warnings", "pairs", "lost", "gained")


def difference_payload(first: Loaded, second: Loaded) -> dict[str, Any]:
    """Return the paired comparison of two runs, or the reason why it is refused."""
    try:
        comparison, names = compare_loaded(first, second)
    except NeedlemapError as error:
        return {"refused": hidden(str(error))}
    assert comparison.only is not None
    panel = difference_panel(comparison.only, first.map)
    return {
        **comparison_payload(comparison, names, answers=True),
        "cells": {**_places(comparison.only.cells, first.map), "share": shares(panel)},
        "chart": draw_panel(panel),
        "facts": fact_columns(
            _change_facts(comparison.only, cell, first.map) for cell in comparison.only.cells
        ),
        "says": index_texts(map(_change_says, comparison.only.cells)),
        "words": _pairs_words(comparison.only),
    }


def _change_says(cell: CellChange) -> str:
    return (
        f"loss {loss_label(cell.loss)} points, {cell.lost} lost, {cell.gained} gained, n={cell.n}"
    )


def _change_facts(
    comparison: FamilyComparison, cell: CellChange, score_map: Map
) -> dict[str, str | None]:
    """Return the facts about a changed cell by name."""
    p = f"{p_label(cell.p)}, not corrected: exploration only" if comparison.counted else None
    return {
        "loss": f"{loss_label(cell.loss)} points",
        "n": counted(cell.n, "pair"),
        "changed": f"{cell.lost} lost, {cell.gained} gained",
        "p": p,
        "depth": None if score_map.depthless else depth_words(cell.depth),
    }


def _pairs_words(comparison: FamilyComparison) -> str:
    """Return the number of pairs or, if scores are means of unknown counts, of means in both."""
    n = comparison.overall.n
    return counted(n, "pair") if comparison.counted else f"{counted(n, 'mean')} in both"


def comparison_payload(
    comparison: Comparison, names: Names, *, answers: bool = False
) -> dict[str, Any]:
    """Return a comparison as a sheet and as values for the script. Secrets in names are hidden."""
    first, second, differ = map(hidden, (names.first, names.second, names.differ))
    hidden_names = replace(names, first=first, second=second, differ=differ, notes=())
    sheet = to_sheet(comparison_report(comparison, hidden_names, answers), {})
    fields = to_json(comparison_report(comparison, hidden_names))
    values = {name: fields[name] for name in SCRIPT_VALUES if name in fields}
    return {"refused": None, "sheet": sheet, "json": values}


def _effective_row(effective: Effective) -> dict[str, str]:
    """Return one rule as a row."""
    return {
        "rule": effective.rule.name,
        "says": rule_says(effective.rule),
        "value": effective_label(effective),
    }


def rule_says(rule: Rule) -> str:
    """Return a rule in words.

    >>> from needlemap.stats.effective import parse_rule
    >>> rule_says(parse_rule("relative:85"))
    'mean score at least 85 % of that at the shortest length'
    """
    percent = f"{100 * rule.threshold:g} %"
    return {
        "absolute": f"mean score at least {percent}",
        "relative": f"mean score at least {percent} of that at the shortest length",
        "worst-depth": f"score at the worst depth at least {percent}",
        "auc": "mean score over the logarithm of the length",
    }[rule.kind]


# Digits of a hash.
_DIGITS = 12


def setting_rows(settings: Mapping[str, Any]) -> list[list[Any]]:
    """Return a row for each setting: its name, its value as text, and True if it was changed."""
    return [
        [name, value_text(name, value), name not in DEFAULTS or value != DEFAULTS[name]]
        for name, value in settings.items()
    ]


def value_text(name: str, value: Any) -> str:
    """Return a setting as text, without passwords in addresses and values that are named keys.

    >>> (
    ...     value_text("base_url", "http://me:pass@127.0.0.1/v1"),
    ...     value_text("request", {"api_key": "abc"}),
    ... )
    ('http://[hidden]@127.0.0.1/v1', '{"api_key": "[hidden]"}')
    """
    if name in ITEM:
        return _text(value)
    return hidden(_text(mask_keys(value, name)))


def fact_rows(about: RunFile) -> list[list[str]]:
    """Return rows of the versions and hashes that identify a run."""
    tokenizer, scorer = about.tokenizer, about.scorer
    rows = [
        ["needlemap", about.needlemap],
        ["created", about.created],
        ["python", about.python],
        *([name, number] for name, number in about.packages.items()),
        ["tokenizer", f"{tokenizer.name} {_short_hash(tokenizer.fingerprint)}".strip()],
        ["scorer", f"{scorer.name} {value_text('scorer_options', scorer.options)}"],
        *_hash_rows("haystack", about.haystacks),
        *_hash_rows("file", about.imported.files if about.imported else ()),
    ]
    return [row for row in rows if row[1]]


def _hash_rows(noun: str, rows: Sequence[RunHaystack | ImportedFile]) -> list[list[str]]:
    return [
        [f"{noun} {number}", hidden(f"{row.name} · sha256 {_short_hash(row.sha256)}")]
        for number, row in enumerate(rows)
    ]


def _short_hash(digest: str) -> str:
    """Return the first digits of a hash, with its prefix if it has one."""
    kind, colon, digits = digest.rpartition(":")
    return f"{kind}{colon}{digits[:_DIGITS]}"


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


# Different messages shown for each kind of failure.
EXAMPLES = 3


def totals(run: Loaded) -> dict[str, Any]:
    """Return counts of trials, and their summed costs. judge_usd is None if the judge is free."""
    records, costs = run.records, costs_of(run.records)
    scored_count = sum(record.scored for record in records)
    unasked_count = sum(not prompt.records for prompt in run.prompts)
    return {
        "trials": len(records) + unasked_count,
        "scored": scored_count,
        "missing": len(records) - scored_count + unasked_count,
        "unasked": unasked_count,
        **costs,
        "judge_usd": costs["judge_usd"] or None,
        "cache_lines": cache_lines(records),
    }


def failures(run: Loaded) -> list[dict[str, Any]]:
    """Return a row for each kind of failure with its first messages, the most frequent first.

    Trials that were not sent yet are a kind too.
    """
    kinds: dict[str, list[Record]] = defaultdict(list)
    for record in run.records:
        if record.failure and not record.scored:
            kinds[record.failure].append(record)
    rows = [
        {"kind": kind, "count": len(records), "examples": _examples(records)}
        for kind, records in kinds.items()
    ]
    if unsent_count := sum(not prompt.records for prompt in run.prompts):
        rows.append({"kind": NOT_ASKED, "count": unsent_count, "examples": []})
    return sorted(rows, key=lambda row: (-row["count"], row["kind"]))


def _examples(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(record.error for record in records if record.error))[:EXAMPLES]
