"""The one rule of all verdicts, and the codes that commands end with."""

import pytest

from needlemap.stats.verdicts import Verdict, Word, combined_code, combined_word, decide, exit_code


@pytest.mark.parametrize(
    ("low", "high", "margin", "word"),
    [
        (-0.03, -0.001, 0.02, "PASS"),
        (-0.03, 0.019, 0.02, "PASS"),
        (0.005, 0.019, 0.02, "PASS"),  # a loss that is sure, and accepted
        (-0.03, 0.02, 0.02, "NOT ENOUGH DATA"),  # exactly the margin is not below it
        (0.02, 0.05, 0.02, "NOT ENOUGH DATA"),
        (0.011, 0.051, 0.05, "NOT ENOUGH DATA"),  # verdicts.md 5: this was called worse
        (0.021, 0.05, 0.02, "FAIL"),
        (-0.01, 0.01, 0.0, "NOT ENOUGH DATA"),  # without a margin equal engines stay open
        (-0.02, -0.01, 0.0, "PASS"),
    ],
)
def test_all_of_the_loss_lies_on_one_side_of_the_margin_or_nothing_is_said(
    low: float, high: float, margin: float, word: str
) -> None:
    assert decide(low, high, margin) == word


def test_each_word_has_a_code_and_only_not_enough_data_may_pass() -> None:
    words: list[Word] = ["PASS", "FAIL", "NO RESULT", "NOT ENOUGH DATA", "SUSPECT"]
    assert [exit_code(word) for word in words] == [0, 1, 3, 4, 5]
    assert [exit_code(word, "pass") for word in words] == [0, 1, 3, 0, 5]
    assert [exit_code(word, exit_zero=True) for word in words] == [0] * 5


def test_of_several_codes_a_failure_counts_first_and_what_is_missing_before_a_pass_only() -> None:
    assert combined_code([0, 3]) == 3
    assert combined_code([3, 4, 0]) == 4
    assert combined_code([5, 4, 0]) == 5
    assert combined_code([5, 1, 4, 2, 3]) == 1
    assert combined_code([1, 3, 143]) == 143
    assert combined_code([]) == 0


def test_of_several_words_the_same_one_counts() -> None:
    assert combined_word(["PASS", "NO RESULT"]) == "NO RESULT"
    assert combined_word(["NO RESULT", "NOT ENOUGH DATA"]) == "NOT ENOUGH DATA"
    assert combined_word(["NOT ENOUGH DATA", "SUSPECT"]) == "SUSPECT"
    assert combined_word(["SUSPECT", "FAIL", "PASS"]) == "FAIL"


def test_the_last_line_names_word_command_claim_evidence_scope_and_what_is_next() -> None:
    whole = Verdict("SUSPECT", "b loses 3 points", "40 pairs at 1k", "these prompts", "ask more.")
    assert whole.line("ab") == (
        "SUSPECT ab: b loses 3 points, 40 pairs at 1k; these prompts; ask more."
    )
    assert Verdict("NO RESULT", "it has not ended yet").line("check") == (
        "NO RESULT check: it has not ended yet."
    )
