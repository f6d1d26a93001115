"""The map in a terminal, and the lines for where there is none."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from needlemap.reports.renderers.heat import break_line, plain_summary, terminal_map
from needlemap.reports.renderers.text import STYLES, _colour_word
from needlemap.reports.run_notes import Tally
from needlemap.stats.means import Map


def printed(map: Map, width: int = 80, encoding: str = "utf-8", **options: Any) -> list[str]:
    """What a console without colours shows."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    Console(file=file, width=width, color_system=None).print(terminal_map(map, **options))
    file.flush()
    return raw.getvalue().decode(encoding).splitlines()


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (35, 35), (200, 20), (1, 9), (9, 1)])
def test_fits_the_width(make_grid: Any, width: int, shape: tuple[int, int]) -> None:
    lines = printed(make_grid(*shape), width)
    assert max(map(len, lines)) <= width
    assert sum(line.split()[0].endswith("%") for line in lines) == shape[1]


def test_numbers_where_there_is_room(mixed: Map) -> None:
    assert [" ".join(line.split()) for line in printed(mixed)] == [
        "a-model · single · 1k–128k tokens",
        "depth 1k 4k 128k tokens",
        "0% 100 100 50",
        "50% 75 0 ·",
        "100% 100 × 25",
        "mean 92 50 33",
        "overall 65.4 (n=26, 10 missing) [43.8, 82.1]",
        "missing 10 (2 rate limited, 3 timed out, 5 not sent)",
        "· not sent × failed",
    ]


def test_35_lengths_have_a_glyph_each_at_80_columns(make_map: Any, make_cell: Any) -> None:
    cells = [make_cell(1000 * place, 0.0, 1 - place / 35) for place in range(1, 36)]
    row = printed(make_map(cells))[2]
    assert len(row.split()) == 36
    assert row.split()[-1] == "0"


def test_one_glyph_tells_100_from_99_from_nothing(make_map: Any, make_cell: Any) -> None:
    scores = [1.0, 0.999, 0.0, None]
    cells = [make_cell(place + 1, 0.0, score) for place, score in enumerate(scores)]
    assert "   0% █90·" in printed(make_map(cells), width=12)


def test_colours_when_the_terminal_has_them(mixed: Map) -> None:
    console = Console(
        file=io.StringIO(), force_terminal=True, color_system="truecolor", width=80, record=True
    )
    console.print(terminal_map(mixed))
    shown = console.export_text(styles=True)
    assert "48;2;253;231;37m" in shown  # 100: yellow
    assert "48;2;68;1;84m" in shown  # 0: dark violet


def test_a_console_without_unicode_gets_ascii(mixed: Map) -> None:
    lines = printed(mixed, width=9, encoding="ascii")
    assert [line for line in lines if "% " in line] == ["   0% ##5", "  50% 70.", " 100% #x2"]


def test_many_lengths_share_columns_and_it_says_so(make_grid: Any) -> None:
    assert printed(make_grid(200, 2))[-1] == "each place: the mean of up to 3 cells"


def test_depth_rows_can_be_limited_for_a_live_view(make_grid: Any) -> None:
    lines = printed(make_grid(3, 35), max_rows=10)
    assert len(lines) - 6 <= 10


def test_lattice_cells_stand_at_their_depth(make_map: Any, make_cell: Any) -> None:
    cells = [
        make_cell(length, place / length, 1.0)
        for length in range(10, 20)
        for place in range(0, length, 3)
    ]
    lines = printed(make_map(cells))
    assert len(lines) == 20 + 4
    assert lines[2].split()[0] == "0%"


def test_a_map_without_cells_is_printed(make_map: Any) -> None:
    assert "overall - (n=0, 0 missing)" in printed(make_map([]))


def test_plain_summary_has_a_line_a_length_and_one_a_depth(mixed: Map) -> None:
    assert plain_summary(mixed).splitlines() == [
        "a-model · single · tokenizer cl100k_base · scorer levenshtein · mode exact",
        "  1k   91.7  n=12 [63.0, 98.6]",
        "  4k   50.0  n=8 [21.1, 78.9] missing 4 (3 timed out, 1 not sent)",
        "128k   33.3  n=6 [9.5, 70.4] missing 6 (2 rate limited, 4 not sent)",
        "depth   0%   90.0  n=10 [58.2, 98.3]",
        "depth  50%   37.5  n=8 [13.3, 70.0]",
        "depth 100%   62.5  n=8 [30.0, 86.7]",
        "overall 65.4 (n=26, 10 missing) [43.8, 82.1]",
        "missing 10 (2 rate limited, 3 timed out, 5 not sent)",
    ]


def test_long_lines_are_broken_between_words(make_grid: Any) -> None:
    lines = printed(
        replace(make_grid(2, 2), model="a model with quite a few words in its name"), width=24
    )
    assert lines[:4] == [
        "a model with quite a few",
        "  words in its name ·",
        "  single · 1k–2k tokens",
        "depth   1k    2k  tokens",
    ]
    assert max(map(len, lines)) <= 24
    assert break_line("  indented words go on here, too", 25) == [
        "  indented words go on",
        "    here, too",
    ]


def test_signs_of_what_is_missing_are_explained_where_something_is(
    mixed: Map, make_grid: Any
) -> None:
    assert "not sent" in printed(mixed)[-1]
    assert "failed" in printed(mixed)[-1]
    assert not {"not sent", "failed"} & set(" ".join(printed(make_grid(2, 2))).split("  "))


def test_axes_have_names_where_there_is_room_for_them(mixed: Map) -> None:
    assert printed(mixed, 80)[1].split() == ["depth", "1k", "4k", "128k", "tokens"]
    assert any(line.startswith("depth ") and "tokens" not in line for line in printed(mixed, 20))
    alone = replace(mixed, depthless=True)
    assert printed(alone)[1].split()[-1] == "tokens"
    assert "depth" not in printed(alone)[1]


@pytest.mark.parametrize("word", STYLES)
def test_a_verdicts_word_has_a_colour_and_stays_a_word(word: Any) -> None:
    line = _colour_word(f"{word} check: all found\x1b[31m", word)
    assert line.plain.startswith(f"{word} check: all found")
    assert "\x1b" not in line.plain
    ((start, end, _),) = line.spans
    assert (start, end) == (0, len(word))
    assert len({*STYLES.values()}) == len(STYLES)


def test_a_bar_shows_how_far_it_is_and_the_time_left() -> None:
    tally = Tally(4, 0)
    assert tally.bar(80).endswith("  0 %")
    tally._work, tally._computed, tally.scored = {"a": 300}, 100, 1
    tally.started -= 10
    assert tally.bar(80) == f"{'█' * 10}{'░' * 30}  25 % · 0.1/s · 30 s left"
    assert all(len(tally.bar(width)) <= width for width in (30, 40, 80))
