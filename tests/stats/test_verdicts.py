"""The one rule of all verdicts, and the codes that commands end with."""

import pytest

from needlemap.stats.verdicts import decide, softened, verdict_code, worst_code


@pytest.mark.parametrize(
    ("low", "high", "margin", "word"),
    [
        (-0.03, -0.001, 0.02, "better"),
        (-0.03, 0.019, 0.02, "no worse"),
        (0.005, 0.019, 0.02, "no worse"),  # a loss that is sure, and accepted
        (-0.03, 0.02, 0.02, "undecided"),  # exactly the margin is not below it
        (0.02, 0.05, 0.02, "undecided"),
        (0.011, 0.051, 0.05, "undecided"),  # verdicts.md 5: this was called worse
        (0.021, 0.05, 0.02, "worse"),
        (-0.01, 0.01, 0.0, "undecided"),  # without a margin equal engines stay undecided
        (-0.02, -0.01, 0.0, "better"),
    ],
)
def test_all_of_the_loss_lies_on_one_side_of_the_margin_or_nothing_is_said(
    low: float, high: float, margin: float, word: str
) -> None:
    assert decide(low, high, margin) == word


def test_undecided_has_two_codes_and_only_one_of_them_may_pass() -> None:
    assert [verdict_code("undecided", suspect=each) for each in (False, True)] == [4, 5]
    assert [softened(code, "pass") for code in (0, 1, 2, 4, 5)] == [0, 1, 2, 0, 5]
    assert [softened(code, "fail") for code in (0, 1, 2, 4, 5)] == [0, 1, 2, 4, 5]


def test_of_several_codes_a_loss_counts_more_than_a_suspicion_and_that_more_than_doubt() -> None:
    assert worst_code([0, 4]) == 4
    assert worst_code([5, 4, 0]) == 5
    assert worst_code([5, 1, 4]) == 1
    assert worst_code([1, 2]) == 2
    assert worst_code([1, 3, 143]) == 143
