"""The older tools' formulas stand once: what presets and drop-in classes compute is the same."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import needlemap
from needlemap.interop.formulas import behind_full_stop, chained_positions
from needlemap.interop.needlehaystack.parameters import depths, lengths
from needlemap.interop.opencompass.scoring import score
from needlemap.scorers import VERDICTS, share_of
from needlemap.scorers.edit import CONSOLATION, edit_score

SOURCE = Path(needlemap.__file__).parent


@pytest.mark.parametrize(
    ("formula", "pattern", "place"),
    [
        ("the next needle's place", r"\(point(s|ion)? \+ \w+ \+ \w+ \*", "interop/formulas.py"),
        ("a full stop's tokens", r"index\(b\"\.\"\)", "interop/formulas.py"),
        ("even steps", r"linspace", None),
        ("the logistic curve", r"- 50\)", "grid.py"),
        ("an answer without its keyword", r"= 0\.2\b", "scorers/edit.py"),
        ("a judge's scale", r"= \(1\.0, 10\.0", "scorers/scorer.py"),
    ],
)
def test_each_formula_stands_in_one_file(formula: str, pattern: str, place: str | None) -> None:
    folders = ("interop", "scorers", "models", "prompts", "tasks", "trials")
    files = [file for folder in folders for file in (SOURCE / folder).rglob("*.py")]
    found = {file for file in (*files, SOURCE / "grid.py") if re.search(pattern, file.read_text())}
    assert found <= ({SOURCE / place} if place else set()), formula


@given(st.integers(1, 10_000), st.integers(0, 300_000), st.integers(1, 60))
def test_grids_are_those_of_numpy(low: int, more: int, count: int) -> None:
    """needlehaystack makes its grids with numpy."""
    assert lengths(low, low + more, count) == [
        round(float(value)) for value in np.linspace(low, low + more, count)
    ]


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 60))
def test_depths_are_those_of_numpy(low: int, more: int, count: int) -> None:
    assert depths(low, low + more, count) == [
        round(float(value)) for value in np.linspace(low, low + more, count)
    ]


@given(
    st.lists(st.integers(0, 3), max_size=40),
    st.integers(0, 50),
    st.frozensets(st.integers(0, 3), max_size=2),
)
def test_a_needle_goes_behind_the_last_full_stop(
    ids: list[int], position: int, stops: frozenset[int]
) -> None:
    """needlehaystack takes tokens off the haystack's end until a full stop is the last one."""
    kept = ids[:position]
    while kept and kept[-1] not in stops:
        kept = kept[:-1]
    assert behind_full_stop(np.array(ids, np.int32), position, stops) == len(kept)


@given(
    st.integers(0, 100),
    st.lists(st.integers(1, 60), min_size=1, max_size=5),
    st.integers(0, 5_000),
    st.integers(0, 60),
)
def test_chained_needles_stand_where_opencompass_puts_them(
    depth: int, sizes: list[int], tokens: int, diff: int
) -> None:
    """Its loop, in percent: the position of the last needle, its size and the increment."""
    place = int(tokens * (depth / 100))
    places = [place]
    for size in sizes[:-1]:
        place = int(place + size + tokens * (diff / 100))
        places.append(place)
    expected = [min(place, tokens) for place in places]
    assert chained_positions(depth / 100, sizes, tokens, diff / 100) == expected


def test_an_answer_without_its_keyword_keeps_a_fifth_of_its_wording() -> None:
    *_, wording = edit_score("It is bred.", "It is bread.")
    assert score(["It is bred."], ["It is bread."], "bread")["score"] == CONSOLATION * wording
    assert score(["It is bre ad."], ["It is bread."], "bread")["score"] == 100


def test_a_share_of_a_judges_scale() -> None:
    assert [share_of(native, VERDICTS) for native in (1, 5.5, 10)] == [0, 0.5, 1]
