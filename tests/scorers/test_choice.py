"""Which letter an answer takes."""

from __future__ import annotations

import asyncio
from time import process_time

import pytest

from needlemap.errors import SettingsError
from needlemap.scorers.extract import letter
from needlemap.scorers.stated import Choice
from needlemap.tasks import Reference


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("The correct answer is (B).", "B"),
        ("the correct answer is b", "B"),
        ("**Answer: C**", "C"),
        ("Answer: (D)", "D"),
        ("I first thought the answer is (A), but the answer is (C).", "C"),
        ("B", "B"),
        ("B. green", "B"),
        ("B) green", "B"),
        ("**B**", "B"),
        ("The correct answer is **(B) green**.", "B"),
        ("The best choice would be (C).", "C"),
        ("The answer to the question is (B).", "B"),
        ("The answer I would choose is B.", "B"),
        ("The answer is A because it is red.", "A"),
        ("I would go with option B.", "B"),
        ("Option B is correct.", "B"),
        ("B is the correct answer.", "B"),
        ("C, because the text says so.", "C"),
        ("[B]", "B"),
        ("Answer: B, (B) green", "B"),
        (r"$\boxed{\text{B}}$", "B"),
        ("Let me think.\n\nB", "B"),
        ("Answer\n\n(B)", "B"),
        ("答案是B。", "B"),
        ("正确答案是（B）。", "B"),
        ("正确答案应为 D。", "D"),
        ("答案：Ｂ", "B"),
        ("故选B项", "B"),
        ("本题选择（C）选项。", "C"),
        ("选项B。", "B"),
        ("B。", "B"),
        ("Final answer B", "B"),
        ("Option B: green", "B"),
        ("The answer can only be (B).", "B"),
        ("The answer is (B) may cause harm.", "B"),  # a choice's own words
    ],
)
def test_the_letter_that_is_taken_however_it_is_said(answer, said):
    assert (letter(answer) or "") == said


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("The correct answer is (B), not (A). So answer A is wrong.", "B"),
        ("The correct answer is (B). (A) is close, but wrong.", "B"),
        ("The correct answer is (B) because (A) and (C) are not named.", "B"),
        ("The answer is A and B is wrong.", "A"),
        ("(A) and (D) are wrong. (B) is right.", "B"),
        ("Rather than (A), the answer is (B).", "B"),
        ("The answer is not (B).", ""),
        ("The answer cannot be B.", ""),
        ("I would not choose B.", ""),
        ("(B) is wrong.", ""),
        ("Option B is incorrect.", ""),
        ("答案不是B。", ""),
        ("选项B不正确。", ""),
        ("The correct answer is (B). (A) is almost correct.", "B"),
        ("The correct answer is (B). Answer (A) is tempting.", "B"),
        ("The answer is (B). The wolf (A) is right about red.", "B"),
        ("正确答案是B。选项A说的是红色。", "B"),
    ],
)
def test_a_letter_that_is_called_wrong_is_not_taken(answer, said):
    """The last letter behind 'answer' was once taken, be it called wrong."""
    assert (letter(answer) or "") == said


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("The answer could be A. Final answer B", "B"),
        ("The answer may be B, but I choose C.", "C"),
        ("It could be A or B. The answer is C.", "C"),
        ("B is correct. The answer could be A.", "B"),
        ("Option A might be right. I choose B.", "B"),
        ("答案可能是A。故选B项", "B"),
        ("The answer could be A.", ""),
        ("The answer might well be (A).", ""),
        ("(A) may be the answer.", ""),
        ("答案可能是（A）。", ""),
        ("Option A is tempting. The passage supports option B.", ""),
        ("Option A: says red. Option B: says green.", ""),
        ("A is tempting.", ""),
    ],
)
def test_a_letter_that_is_only_weighed_is_not_taken(answer, said):
    """'Option A is tempting' once took A, and so did 'The answer could be A. Final answer B'."""
    assert (letter(answer) or "") == said


@pytest.mark.parametrize(
    "answer",
    [
        "Either (A) or (D).",
        "(A) or (D)",
        "A/B",
        "B, C",
        "A, B, C, D",
        "The answer is (A) or (B).",
        "The answer is (A), or maybe (B).",
        "The answer is (A), (B) or (C)",
        "Answer: B or C",
        "B or something else",
        "The options are (A), (B), (C) and (D).",
        "A) red\nB) green\nC) blue\nD) grey",
        "答案是A或B。",
    ],
)
def test_who_takes_several_takes_none(answer):
    assert letter(answer) is None


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "A dog is named.",
        "I cannot tell.",
        "Answers differ.",
        "The answer is a dog.",
        "The answer is A matter of taste",
        "The answer isn't clear.",
        "The correct answer is (letter).",
        "Vitamin C is named.",
        "None of the choices.",
        "Option A says red. Option B says green. Option C",
    ],
)
def test_words_and_thoughts_are_no_letters(answer):
    assert letter(answer) is None


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("The wrong answer is (B).", ""),
        ("An incorrect answer is (B)", ""),
        ("错误答案是B", ""),
        ("不选B", ""),
        ("不选择B", ""),
        ("不应该选B项", ""),
        ("The incorrect option is (B).", "B"),  # the question may have been which is
    ],
)
def test_the_letter_of_a_wrong_answer_is_not_taken(answer, said):
    assert (letter(answer) or "") == said


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("Could the answer be (B)? No.", ""),
        ("(B)? No.", ""),
        ("The answer is (A) or (B)?", ""),
        ("Is it (A)? No, the answer is (B).", "B"),
        ("Many readers would think B. The answer is C.", "C"),
        ("The correct answer is (B) Who is he?", "B"),  # a choice's own words
        ("B. Is it red?", "B"),
    ],
)
def test_a_letter_that_is_asked_or_others_is_not_taken(answer, said):
    assert (letter(answer) or "") == said


@pytest.mark.parametrize(
    "answer",
    [
        r"\boxed{B, C}",
        r"\boxed{b, c}",
        r"\boxed{\text{B}, \text{C}}",
        "The correct answer is (B) (C)",
        "Answer: B C",
        "B; C",
        "答案是B还是C",
        "答案是B或者C",
    ],
)
def test_two_at_once_are_none_however_they_are_joined(answer):
    assert letter(answer) is None


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("The answer is (B). Wait, no: (C).", "C"),
        ("The answer is (A). Wait, (B).", "B"),
        ("The answer is (B). Hmm, actually it is C.", "C"),
        ("B. No, C.", "C"),
        ("B\n\nActually C", "C"),
        ("答案是B。不，应该是C。", "C"),
        ("The answer is (B). Wait, could it be (C)? No, (B).", "B"),
        ("The answer is (B). There is no (C).", "B"),
        ("The answer is (B). Actually, (A) and (C) are wrong.", "B"),
        ("The answer is (B); (C) is wrong.", "B"),
    ],
)
def test_a_correction_holds_and_what_only_looks_like_one_does_not(answer, said):
    assert (letter(answer) or "") == said


@pytest.mark.parametrize(
    "answer", ["b", "(b)", "b.", "**b**", " [b]\n", r"\boxed{b}", r"\boxed{b) green}"]
)
def test_a_small_letter_that_is_the_whole_answer_is_one(answer):
    assert letter(answer) == "B"


@pytest.mark.parametrize(
    "answer",
    [
        "Only (D) is named in the text.",
        "The answer is not (A) but (B).",
        "What is right? B",
        "答案是B吗？不是，是C",
        "The wrong answer is (B), the right one is (C).",
        "(A) is wrong because the",
    ],
)
def test_what_is_said_in_no_form_that_is_asked_for_is_unreadable_rather_than_guessed(answer):
    score = asyncio.run(Choice().score(answer, Reference("B", question="(A) red\n(B) green")))
    assert (score.share, score.why, score.unreadable) == (0, {"said": None}, True)


@pytest.mark.parametrize(
    "answer", ["(B) green", "(B) Green.", r"\boxed{(B) green}", "**(B) green**"]
)
def test_a_letter_in_brackets_may_stand_before_its_choice_as_the_question_has_it(answer):
    assert letter(answer, "Which?\n\n(A) red\n(B) green") == "B"
    assert letter(answer, "Which?\n\n(A) red\n(B) blue") is None


_CHOICES = "Who wrote it?\n\n(A) The captain\n(B) His brother.\n(C) A neighbour\n(D) Nobody knows"


@pytest.mark.parametrize(
    "form",
    [
        r"\({}\)",
        r"\[{}\]",
        r"The answer is \(\text{{{}}}\).",
        r"\boxed{{\text{{{}}}}}",
        "Correct option: {}",
        "**Correct choice:** ({})",
        "Answer - {}",
        "'{}'",
        "<answer>{}</answer>",
        "Choice: {}",
        "Option {} is correct because the hand is his.",
        "({}) is the answer.",
        "The answer must be {}.",
        "The answer is most likely {}.",
        "Hence, ({}).",
        "I think it's {}.",
        "I’d say {}.",
        "I am going with {}.",
        "The answer is D. No, wait, it's {}.",
        "故选：{}",
        "答案是：{}",
        "【答案】{}",
        "正确的是{}。",
        "{}选项正确。",
        "{}项",
        "({})\n\n(C) is wrong: he could not write.\n(D) is wrong.",
    ],
)
@pytest.mark.parametrize("said", ["A", "B"])
def test_a_letter_is_taken_in_the_forms_in_which_models_write_it(form, said):
    """Half of these were unreadable, and more of them with A, which may be an article."""
    assert letter(form.format(said), _CHOICES) == said


@pytest.mark.parametrize(
    "answer",
    [
        "B - his brother",
        "B his brother",
        "Option (B) His brother is correct.",
        "(B) His brother is the correct answer.",
        "The answer is (B) his brother",
    ],
)
def test_the_words_of_a_choice_behind_its_letter_are_that_choice(answer):
    assert letter(answer, _CHOICES) == "B"


@pytest.mark.parametrize(
    "answer",
    [
        "Wrong answer: B",
        "Incorrect option: B",
        "Neither A nor B is correct.",
        "(A) or (B) is correct.",
        "I don’t think the answer is B.",
        "It is not true that the answer is B.",
        "不应选B",
        "错误的选项是B。",
        "A、B正确",
        "Correct option: A captain",
        "It is A captain.",
        "If it is (B), the hand is his.",
        "A: he was at sea. B: the hand is his.",
        "A\nB\nC\nD",
        "(A) The captain\n(B) His brother\n(C) A neighbour\n(D) Nobody knows",
        _CHOICES,
        "A. The captain\nHe was at sea.\n\nB. His brother\nThe hand is his.",
    ],
)
def test_who_denies_a_letter_or_goes_through_several_takes_none(answer):
    assert letter(answer, _CHOICES) is None


def test_what_was_said_last_holds():
    """LongBench's own script takes what was said first, in one form of words."""
    assert letter("The correct answer is (B) or (C). No: the correct answer is (B).") == "B"
    assert letter("The answer is A. On reflection, I choose B.") == "B"
    assert letter("I choose A. On reflection, the answer is B.") == "B"


@pytest.mark.parametrize(
    "filling",
    [
        "\n",
        "\n ",
        " ",
        "B, ",
        "B.\n",
        "option ",
        "could be ",
        "选",
        "is ",
        "no, ",
        "wait\n",
        "some say ",
        "B? ",
        "wrong answer is ",
        "不选",
        "else ",
        "B if ",
        "B ",
        "答案是 ",
        "no, no, ",
        r"\boxed{",
        r"\boxed{{x}",
        "{x}",
    ],
)
def test_a_long_answer_takes_no_longer_than_its_length(filling):
    """Of processor time: in proportion to the square of so many characters it would be a minute."""
    filler, began = filling * (100_000 // len(filling)), process_time()
    assert letter("B.\n" + filler + "so") in (None, "B")
    assert letter("Is B" + filler + "so") in (None, "B")
    assert letter(r"\boxed{B" + filler) in (None, "B")
    assert process_time() - began < 2


def test_the_right_letter_scores_and_why_says_which_was_taken():
    score = asyncio.run(Choice().score("The correct answer is (B).", Reference("B")))
    assert (score.share, score.why) == (1, {"said": "B"})
    assert asyncio.run(Choice().score("The correct answer is (B).", Reference("C"))).share == 0


def test_a_task_without_letters_is_refused():
    with pytest.raises(SettingsError, match="lettered choices"):
        asyncio.run(Choice().score("B", Reference("Jack")))
