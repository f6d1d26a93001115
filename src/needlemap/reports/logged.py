"""What an experiment tracker is told of a run: settings, scalars, the figure, the table of cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from needlemap.grid import percent
from needlemap.maps.effective import RULES, effective_length, parse_rule
from needlemap.reports.figure import Figure, Shown, figure_bytes
from needlemap.reports.page.known import fact_rows, value_text
from needlemap.reports.page.numbers import total
from needlemap.reports.table import Table, cells_table
from needlemap.runs.loaded import Loaded
from needlemap.runs.session import cube_of_run


@dataclass(frozen=True, slots=True)
class Logged:
    """name: of the run, by its model and folder. config: settings and versions, no secret in it.

    scalars: scores in percent; lengths in tokens. figure: the map as PNG.
    """

    name: str
    config: dict[str, str | int | float | bool]
    scalars: dict[str, float]
    figure: bytes
    cells: Table


def logged(
    run: Loaded,
    name: str,
    title: str | None = None,
    palette: str = "amber",
    rules: tuple[str, ...] = RULES,
) -> Logged:
    """All of it. rules: of effective length. Raises SettingsError for an unknown palette."""
    figure = Figure((Shown(run.map, title or run.about.get("title")),), palette=palette)
    return Logged(
        name,
        dict(_config(run.about)),
        {name: float(value) for name, value in _scalars(run, rules) if value is not None},
        figure_bytes(figure, ".png"),
        cells_table([run]),
    )


def _config(about: Mapping[str, Any]) -> Iterator[tuple[str, str | int | float | bool]]:
    """Versions and hashes, then settings: numbers as they are, to be sorted by; all else as text."""
    yield from ((f"about/{name}", text) for name, text in fact_rows(about))
    for name, value in about["settings"].items():
        yield name, value if isinstance(value, bool | int | float) else value_text(name, value)


def _scalars(run: Loaded, rules: tuple[str, ...]) -> Iterator[tuple[str, float | None]]:
    """A length's name is its tokens, which stay the same whatever other lengths a run has."""
    mean, records = run.map.total, run.records
    if mean is not None:
        yield from (("score/overall", percent(mean.score)), ("score/n", mean.n))
        yield from (("score/low", _share(mean.low)), ("score/high", _share(mean.high)))
    for length, score in run.map.by_length.items():
        yield f"score_at_length/{length}", _share(score)
    yield from _effective(run, rules)
    yield "trials/scored", sum(record.scored for record in records)
    yield "trials/missing", run.map.missing
    yield "tokens/prompt", total(record.prompt_tokens for record in records)
    yield "tokens/cached", total(record.cached_tokens for record in records)
    yield "tokens/completion", total(record.completion_tokens for record in records)
    yield "usd", total(record.asked_usd for record in records)
    yield "usd_judge", total(record.judge_usd for record in records)


def _share(value: float | None) -> float | None:
    return None if value is None else percent(value)


def _effective(run: Loaded, rules: tuple[str, ...]) -> Iterator[tuple[str, float | None]]:
    """Effective lengths, the longest tested where the score holds that far; 0 where it never did."""
    cube = cube_of_run(run.about, run.records)
    for rule in map(parse_rule, rules):
        found = effective_length(cube, rule)
        if found is not None and found.value is not None:
            value = percent(found.value) if rule.kind == "auc" else min(found.value, found.longest)
            yield f"effective_length/{rule.name.replace(':', '_')}", value
