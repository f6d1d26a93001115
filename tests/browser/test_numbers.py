"""One number has one rounding, wherever it stands: the page's is that of the terminal and of
`compare`."""

from __future__ import annotations

from random import Random

import pytest

from needlemap.reports.labels import in_percent, loss_label, score_label

pytestmark = pytest.mark.long
TIES = [odd / 2000 for odd in range(1, 2000, 2)]  # shares that lie between two tenths of a percent
NOISE = [share + error for share in TIES for error in (-1e-12, 1e-12)]


def shares() -> list[float]:
    """Ties, ties as sums leave them, rates of few trials, and any others; as pages hold them."""
    random = Random(0)
    rates = [hits / n for n in range(1, 80) for hits in range(n + 1)]
    return [
        round(share, 6)
        for share in (*TIES, *NOISE, *rates, *(random.random() for _ in range(5000)))
    ]


def test_a_share_is_the_same_text_in_the_page_as_in_python(visit, plain):
    """81.25 was 81.2 in a suite's table, and 81.3 in `compare` and on the page."""
    given = shares()
    told = visit(plain).evaluate("shares => shares.map((share) => percent(share))", given)
    assert told == [score_label(share) for share in given]
    assert score_label(0.8125) == score_label(0.8125 - 1e-12) == "81.3"


def test_a_difference_is_the_same_text_but_for_its_minus(visit, plain):
    given = [sign * share for share in shares() for sign in (1, -1)]
    told = visit(plain).evaluate("shares => shares.map((share) => points(share))", given)
    assert [text.replace("\u2212", "-") for text in told] == [loss_label(share) for share in given]


def test_a_cells_value_is_the_same_without_decimals_and_only_a_perfect_score_is_100(visit, plain):
    given = shares()
    told = visit(plain).evaluate("shares => shares.map((share) => wholePercent(share))", given)
    assert told == [
        f"{min(in_percent(share, 0), 99):.0f}" if share < 1 else "100" for share in given
    ]
    assert visit(plain).evaluate("wholePercent(0.996)") == "99"
