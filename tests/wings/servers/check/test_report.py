"""The table of a check: counts by length, and a sentence only of what does not pass."""

from __future__ import annotations

from pathlib import Path

from needlemap.reports.renderers.text import to_text
from needlemap.servers.check import Answers, Options, Reply, Schedule, judge
from needlemap.servers.check.report import check_report


def table_of(is_lost, max_length=128_000) -> list[str]:
    """The lines of a report at 80 columns."""
    schedule, answers = Schedule(Options(max_length=max_length), seed=7), Answers()
    for ask in schedule.cells():
        answers.add(Reply.of(ask, "Not said." if is_lost(ask) else ask.secret))
    return to_text(check_report(Path("c"), "m", judge(schedule, answers), ""), 80).splitlines()


def test_a_probe_that_passes_is_one_line_of_80_columns():
    lines = table_of(lambda _: False)
    first = lines.index("Lost of tried, by length in tokens:")
    assert lines[first + 1].split() == ["probe", "verdict", "to", "8k", "32k", "128k", "excludes"]
    rows = lines[first + 2 : lines.index("", first)]
    assert len({row.split()[0] for row in rows}) == len(rows), "no row is broken"
    assert max(map(len, rows)) <= 80


def test_a_probe_that_fails_has_its_sentence_below_the_table():
    lines = table_of(lambda ask: ask.size > 8_000 and ask.length % 4 == 1)
    (said,) = [line for line in lines if line.startswith("pattern: ")]
    assert said.endswith("lost where length % 4 = 1")


def test_a_probe_that_never_decides_is_not_counted_as_passing():
    lines = table_of(lambda _: False)
    rows = [line.split() for line in lines]
    passing = [row[0] for row in rows if len(row) > 1 and row[1] == "PASS" and row[0] != "PASS"]
    counted = len([name for name in passing if name != "usage"])
    last = " ".join(lines)
    assert f"{counted} probes pass at 8k, 32k, 128k" in last
