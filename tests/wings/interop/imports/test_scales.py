"""Scales are told or seen, and asked for where they could be two."""

from __future__ import annotations

import pytest

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.interop.result_row import ResultRow, parsed_scale, scale_of


def rows(*natives: float | None) -> list[ResultRow]:
    return [ResultRow(f"row {number}", 1000, 0.0, native) for number, native in enumerate(natives)]


@pytest.mark.parametrize(
    ("natives", "scale"),
    [
        ((10, 1, 3), (1, 10)),
        ((2,), (1, 10)),
        ((0, 1), (0, 1)),
        ((0.5, 1), (0, 1)),
        ((None,), (0, 1)),
    ],
)
def test_a_scale_is_seen_where_only_one_fits(natives, scale):
    assert scale_of(rows(*natives), None) == scale


def test_scores_that_are_all_1_could_be_best_or_worst():
    with pytest.raises(NeedlemapError, match="--scale 0:1 or 1:10"):
        scale_of(rows(1, 1), None)
    assert scale_of(rows(1, 1), (1.0, 10.0)) == (1, 10)


def test_scores_on_no_known_scale_need_words():
    with pytest.raises(NeedlemapError, match="Scores from 0 to 10 are neither on"):
        scale_of(rows(0, 10), None)


def test_a_score_outside_its_scale_is_named():
    with pytest.raises(NeedlemapError, match=r"row 1: score 11 is outside 1\.\.10"):
        scale_of(rows(5, 11), (1.0, 10.0))


@pytest.mark.parametrize("text", ["1", "1:1", "10:1", "a:b", "1:2:3", "nan:1", "0:inf"])
def test_a_scale_that_is_none_is_refused(text):
    with pytest.raises(SettingsError, match="is not LOWEST:HIGHEST"):
        parsed_scale(text)
