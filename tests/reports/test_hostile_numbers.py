"""A stranger's storm.json or check.json with numbers that no storm or check writes: it is drawn in
little memory, or refused in words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from needlemap.errors import NeedlemapError
from needlemap.records.document import DocumentKind
from needlemap.records.families import SUITE, SuiteFile, families_of
from needlemap.reports.kept import finding_report
from needlemap.reports.page.sheets import size_in
from needlemap.reports.renderers.json import to_json
from needlemap.reports.renderers.junit import to_junit
from needlemap.reports.renderers.markdown import to_markdown
from needlemap.reports.renderers.text import to_text
from needlemap.servers.check.effects import Effect
from needlemap.servers.check.finding import CHECK, AtSize, CheckFile, Finding, Worst
from needlemap.servers.storm.act import ACTS
from needlemap.servers.storm.file import STORM, Replayed, StormFile, StormRequest
from needlemap.stats.verdicts import Verdict

ODD = (-5, 0, 2_000_000_000, 2**63 - 1, 10**30, 10**400, 5e-324, 1e308)
OUTCOMES = ("right", "foreign", "lost", "cancelled")
REQUESTS = [
    StormRequest(
        key=1_000 + number,
        round=1,
        wave=number // 2,
        family=number % 2,
        session=number % 3,
        operation="turn",
        at_s=float(number),
        seconds=0.5,
        tokens=500,
        outcome=OUTCOMES[number % 4],
    )
    for number in range(4)
]
STORMED = StormFile(
    seed=1,
    model="openai/m",
    max_length=4_000,
    load=4,
    limit_nats=0.1,
    verdict=Verdict("FAIL", "a line"),
    counts={"right": 1},
    suspects=[Replayed(key=1_002, outcome="lost", replayed=5, lost=4)],
    sequence=REQUESTS,
    shrunk=REQUESTS[:2],
)
ROW = AtSize(1_000, "FAIL", n=20, lost=5, effect=Effect(0.25, 0.1, 0.4), upper=40.0, p=0.001)
FOUND = Finding(
    "length", "FAIL", 20, "lost", worst=Worst("cold", 900, 0.5, 1), sizes=(ROW,), p=0.001
)
CHECKED = CheckFile(
    seed=1,
    model="openai/m",
    max_length=1_000,
    load=8,
    sizes=[1_000],
    looks=[4],
    verdict=Verdict("FAIL", "a line"),
    findings=[FOUND],
)
DOCUMENTS = {"storm": (STORM, STORMED), "check": (CHECK, CHECKED)}


def numbers(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of the numbers in JSON's values."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from numbers(part, (*at, key))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from numbers(part, (*at, number))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield at


def with_number(value: Any, at: tuple[Any, ...], number: float) -> Any:
    """The same values with another number in one place."""
    if not at:
        return number
    items = value.items() if isinstance(value, dict) else enumerate(value)
    changed = {key: with_number(x, at[1:], number) if key == at[0] else x for key, x in items}
    return changed if isinstance(value, dict) else list(changed.values())


def folder_of(path: Path, kind: DocumentKind[Any], content: dict[str, Any]) -> Path:
    SUITE.write(path, SuiteFile(suite=kind.name, families=["first"]))
    (path / kind.file).write_text(json.dumps(content))
    return path


def draw(folder: Path) -> None:
    """Draw it in every way. Raises NeedlemapError."""
    report = finding_report(families_of(folder), {})
    assert report is not None
    for render in (to_text, to_markdown, lambda report: to_junit([report])):
        render(report)
    json.dumps(to_json(report), allow_nan=False)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_number_is_drawn_or_refused_in_words(name, tmp_path):
    kind, document = DOCUMENTS[name]
    content = document.model_dump(mode="json")
    draw(folder_of(tmp_path, kind, content))
    for at in numbers(content):
        for number in (*ODD, float("nan"), float("inf")):
            folder = folder_of(tmp_path, kind, with_number(content, at, number))
            with suppress(NeedlemapError):
                draw(folder)


@pytest.mark.parametrize(
    ("wave", "lines"),
    [
        (-5, {"0.0": " ■", "0.2": "  L", "1.0": "  ·", "1.1": "F"}),
        (2_000_000_000, {"0.0": "■", "0.2": " L", "1.0": " ·", "1.1": "  F"}),
    ],
)
def test_waves_are_numbered_as_they_are_there(wave, lines, tmp_path):
    """One wave of two thousand million took 16 GB."""
    content = STORMED.model_dump(mode="json")
    content["sequence"][1]["wave"] = wave
    folder = folder_of(tmp_path, STORM, content)
    report = finding_report(families_of(folder), {})
    assert report is not None
    (table,) = (table for table in report.all_tables if table.key == "time_line")
    assert {row.values["session"]: row.values["waves"] for row in table.rows} == lines


def test_a_round_of_more_requests_than_any_has_is_refused(tmp_path):
    """Its picture has a square for each wave of each session."""
    content = STORMED.model_dump(mode="json")
    row = content["sequence"][0]
    content["sequence"] = [{**row, "wave": n, "session": n} for n in range(ACTS + 1)]
    with pytest.raises(NeedlemapError, match="a round has more than 1,000 requests"):
        draw(folder_of(tmp_path, STORM, content))


@pytest.mark.parametrize(
    ("family", "size"),
    [("cold-4000", "4k tokens"), ("cold", ""), ("cold-x", ""), (f"cold-{10**40}", ""), ("a-²", "")],
)
def test_a_family_of_a_check_that_names_no_size_is_shown_without_one(family, size):
    assert size_in(family) == size
