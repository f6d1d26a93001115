"""What is wanted and nothing else of its kind; or that there is nothing."""

from __future__ import annotations

import asyncio
import time

import pytest

from needlemap.errors import SettingsError
from needlemap.scorers import Score
from needlemap.scorers.stated import Only
from needlemap.tasks import Reference
from needlemap.text import any_of, number

ANN = Reference("Ann", ("Ann",), question="Who swims?", decoys=("Bob", "Cleo"))
ASKED = "Who swims? If the text does not say, answer: none."
THERE = Reference("Ann", ("Ann",), question=ASKED, decoys=("Bob",), none="none")
NOT_THERE = Reference("none", question=ASKED, decoys=("Bob",), none="none")


def scored(answer: str, reference: Reference) -> Score:
    return asyncio.run(Only().score(answer, reference))


@pytest.mark.parametrize(
    ("answer", "share"),
    [
        ("Ann", 1),
        ("It is ANN, I think.", 1),
        ("Ann or Bob", 0),  # guessing does not pay
        ("Bob", 0),
        ("Anna", 0),  # a word is found whole
        ("Ann, not Cleopatra", 1),
        ("Who swims? Ann", 1),
        ("", 0),
        ("none", 0),
    ],
)
def test_the_wanted_counts_and_a_decoy_beside_it_spoils_it(answer, share):
    assert scored(answer, ANN).share == share


def test_of_several_wanted_the_share_counts():
    reference = Reference("1, 2", ("1", "2"), decoys=("3",))
    assert scored("1", reference).share == 0.5
    assert scored("1 and 3", reference).share == 0


@pytest.mark.parametrize(
    ("answer", "share"),
    [
        ("none", 1),
        ("None.", 1),
        ("Bob", 0),
        ("none, or perhaps Bob", 0),
        ("nonetheless", 0),
        ("I do not know.", 0),
        ("", 0),
        (ASKED, 0),  # it holds that word
        (f"{ASKED} None.", 1),
    ],
)
def test_where_there_is_nothing_only_denying_is_right(answer, share):
    assert scored(answer, NOT_THERE).share == share


NEAR_MISS = Reference(
    "none",
    question="Which number does the text say is assigned to green-elbow? Answer with that number alone. "  # noqa: E501
    "If the text does not say, answer: none.",
    decoys=("7672901", "1234567"),
    none="none",
    like=number(7),
    owners=("greedy-notebook", "red-fox"),
)
NEAR_MISS_ZH = Reference(
    "没有",
    question="文中说绿色手肘对应的数字是什么？只回答这个数字。如果文中没有说，就回答“没有”。",
    decoys=("7672901",),
    none="没有",
    like=number(7),
    owners=("安静茶壶",),
)


@pytest.mark.parametrize(
    "answer",
    [
        "**none**",
        "There is none in the text.",
        "The text does not say.",
        "Answer: none",
        "N/A: not in the text",
        "It is not stated.",
        "The text doesn\u2019t mention green-elbow.",
        "The number assigned to green-elbow isn't given.",
        "The number is not mentioned in the text.",
        "There is no such number in the text.",
        "No number is assigned to green-elbow.",
        "Nothing in the text is assigned to green-elbow.",
        "The text gives no number for green-elbow.",
        f"{NEAR_MISS.question} None.",
    ],
)
def test_a_denial_in_other_words_is_one(answer):
    """In Chinese any of them counted, as '没有' is in most; in English the bare word alone once
    did."""
    assert scored(answer, NEAR_MISS).share == 1


@pytest.mark.parametrize(
    "answer",
    [
        "没有",
        "文中没有说",
        "文中未提及",
        "文中未提到绿色手肘。",
        "未说明",
        "无",
        "答案：无",
        "不存在",
        "找不到相关内容。",
    ],
)
def test_a_denial_in_chinese(answer):
    assert scored(answer, NEAR_MISS_ZH).share == 1


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("None. Only greedy-notebook (7672901) is mentioned.", NEAR_MISS),
        ("none; greedy-notebook has 7672901 and red-fox 1,234,567.", NEAR_MISS),
        ("The text does not say; it assigns 7672901 to greedy notebook.", NEAR_MISS),
        ("没有。文中只提到安静茶壶对应7672901。", NEAR_MISS_ZH),
    ],
)
def test_a_denial_may_say_whose_number_the_text_has_instead(answer, reference):
    score = scored(answer, reference)
    assert (score.share, score.why["decoys"]) == (1, [])


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("", NEAR_MISS),
        ("unknown", NEAR_MISS),
        ("Not sure.", NEAR_MISS),
        ("I don't know.", NEAR_MISS),
        ("7672901", NEAR_MISS),
        ("greedy-notebook: 7672901", NEAR_MISS),
        ("none, or perhaps 7672901", NEAR_MISS),
        ("None. 7672901 is mentioned. So is greedy-notebook.", NEAR_MISS),
        ("None. Only red-fox (7672901) is mentioned.", NEAR_MISS),  # it is another's
        ("The text does not say, but 5555555.", NEAR_MISS),
        (NEAR_MISS.question, NEAR_MISS),
        ("If the text does not say, answer: none.", NEAR_MISS),
        ("If the text does not say, answer: none", NEAR_MISS),
        ("If the text does not say so, none is the answer.", NEAR_MISS),
        ("Which number does the text say is assigned to green-elbow?", NEAR_MISS),
        (
            "Say none where nobody swims.",
            Reference("none", question="Who? Say none where nobody swims.", none="none"),
        ),
        ("", NEAR_MISS_ZH),
        ("不知道", NEAR_MISS_ZH),
        ("7672901", NEAR_MISS_ZH),
        ("没有，可能是7672901", NEAR_MISS_ZH),
        ("无论如何，是7672901", NEAR_MISS_ZH),
        ("如果文中没有说，就回答“没有”。", NEAR_MISS_ZH),
        (NEAR_MISS_ZH.question, NEAR_MISS_ZH),
    ],
)
def test_no_hedge_no_echo_and_no_wrong_value_is_a_denial(answer, reference):
    """The question's last sentence, repeated, once scored full: it holds the word."""
    assert scored(answer, reference).share == 0


OPEN = Reference("none", question=ASKED, none="none")  # nobody says what a value looks like
OPEN_ZH = Reference("没有", question="谁会游泳？如果文中没有说，就回答“没有”。", none="没有")


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("Nothing is easier: the word is crimson-falcon", OPEN),
        ("Nobody else. It is twelve.", OPEN),
        ("None other than Mandy", OPEN),
        ("Mandy is second to none.", OPEN),
        ("none, but it must be Mandy", OPEN),
        ("The text does not say it directly, but it must be Mandy.", OPEN),
        ("The text does not say, but one two three four", OPEN),
        ("The text does not say; however, Mandy", OPEN),
        ("The text does not say. It is probably Mandy.", OPEN),
        ("Maybe Mandy. The text does not say.", OPEN),
        ("It is not stated, the answer is Mandy", OPEN),
        ("The number was not given twice: it is forty-seven eleven", OPEN),
        ("The number was not given twice: it is forty-seven eleven", NEAR_MISS),
        ("文中没有说，但应该是小明", OPEN_ZH),
        ("文中没有明说，不过是小明", OPEN_ZH),
        ("没有疑问，是小明", OPEN_ZH),
        ("没有别人，小明", OPEN_ZH),
        ("文中没有说，可能是小明", OPEN_ZH),
    ],
)
def test_who_goes_on_with_a_guess_denies_nothing(answer, reference):
    """Once any 'nothing' or 'not given' was a denial, whatever followed it."""
    assert scored(answer, reference).share == 0


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("Nobody in the text swims.", NEAR_MISS),
        ("The answer is none.", OPEN),
        ("- 'none'", OPEN),
        ("The text does not say: none.", OPEN),
        ("The text does not say who it is.", NEAR_MISS),
        ("It is not stated. It is not in the text.", NEAR_MISS),
        ("I read it all, but it does not say.", NEAR_MISS),
        ("None. The text speaks of swimming, but Mandy is not named.", NEAR_MISS),
        (
            "The text does not mention green-elbow, but it gives 7672901 for greedy-notebook.",
            NEAR_MISS,
        ),
        ("The text does not mention green-elbow, but greedy-notebook: 7672901.", NEAR_MISS),
        ("None (greedy-notebook: 7672901)", NEAR_MISS),
        ("The text does not say which; it is never mentioned.", NEAR_MISS),
        ("答案是没有", OPEN_ZH),
        ("没有，但文中没有说明", NEAR_MISS_ZH),
        ("文中没有提到绿色手肘，但提到了安静茶壶对应7672901。", NEAR_MISS_ZH),
    ],
)
def test_a_denial_may_go_on_with_another_or_with_whose_a_value_is(answer, reference):
    assert scored(answer, reference).share == 1


@pytest.mark.parametrize("answer", ["The text does not say.", "Nobody.", "none, but ask Mandy"])
def test_where_nobody_knows_what_a_value_looks_like_only_the_word_itself_denies(answer):
    """Else a made-up value beside the denial would stay unseen."""
    score = scored(answer, OPEN)
    assert (score.share, score.unreadable) == (0, True)
    assert scored("Answer: **none**.", OPEN).share == 1


@pytest.mark.parametrize("answer", ["", "I don't know.", "green-elbow", "There is no text."])
def test_an_answer_without_value_and_denial_is_unreadable(answer):
    for reference in (NEAR_MISS, ANN):
        assert scored(answer, reference).unreadable
    assert not scored("7394821", NEAR_MISS).unreadable
    assert not scored("7394821", Reference("4711234", ("4711234",), none="none")).unreadable
    assert not scored("Bob", ANN).unreadable


ELEVEN = Reference("4711", ("4711",), question=ASKED, decoys=("1234",), none="none")


@pytest.mark.parametrize(
    ("answer", "share"),
    [
        ("If the text is to be believed, the number is 4711.", 1),
        ("如果文中没有弄错，是4711", 1),
        ("4711. If there is a mistake, 1234.", 0),
        ("4711。如果不是，就是1234。", 0),
        ("1234. If there is a mistake, 4711.", 0),
    ],
)
def test_what_is_said_on_a_condition_is_said(answer, share):
    """Conditions were once cut out: right answers were lost, and second guesses were free."""
    assert scored(answer, ELEVEN).share == share


@pytest.mark.parametrize(
    ("answer", "share"),
    [
        ("If the text doesn't say so, none is the answer.", 0),
        ("If the text does not say, answer: none. None.", 1),
        ("If the text is to be believed, none.", 1),
        ("None. If there is a mistake, 1234567.", 0),
    ],
)
def test_a_denial_on_the_condition_that_the_text_does_not_say_is_none(answer, share):
    reference = Reference("none", question="Which number?", decoys=("1234567",), none="none")
    assert scored(answer, reference).share == share


@pytest.mark.parametrize(
    "piece", ["none, but it is ", "if the text ", "not ", "没有，但", "\n", "--", "''", "x"]
)
def test_a_long_answer_is_read_once(piece):
    """The time grows with the length: a search that begins anew at every piece would take
    minutes."""
    begun = time.process_time()
    scored("none. " + piece * (100_000 // len(piece)), NEAR_MISS)
    assert time.process_time() - begun < 5


def test_whose_a_value_is_excuses_nothing_where_the_text_has_the_answer():
    """Else who copies every key with its value would be right."""
    reference = Reference("", ("1111111",), decoys=("2222222",), none="none", owners=("red-fox",))
    assert scored("green-elbow: 1111111, red-fox: 2222222", reference).share == 0
    assert scored("none but 1111111, and red-fox: 2222222", reference).share == 0


def test_why_says_whether_it_was_there_and_whether_the_answer_denies_it():
    assert scored("Bob", NOT_THERE).why == {
        "found": [],
        "missing": [],
        "decoys": ["Bob"],
        "present": False,
        "none": False,
    }
    denied = scored("none", THERE)
    assert (denied.share, denied.why["present"], denied.why["none"]) == (0, True, True)
    assert "present" not in scored("Ann", ANN).why


NUMBER = Reference(
    "none", question="Which of 4711?", decoys=("1234567",), none="none", like=number(7)
)


@pytest.mark.parametrize(
    ("answer", "share", "made_up"),
    [
        ("none", 1, []),
        ("none; but it might be 7394821", 0, ["7394821"]),
        ("None. Perhaps 7,394,821?", 0, ["7394821"]),
        ("none, or 739482", 0, ["739482"]),  # a digit short of the kind that is asked for
        ("none, 7394821 or 7394822", 0, ["7394821", "7394822"]),
        ("None of the 300 sentences names 4711, as of 2024.", 1, []),
        ("none, though 1234567 is there", 0, []),  # a decoy is not made up
        ("none, though 1,234,567 is there", 0, []),
        ("none, for 4,711", 1, []),
        ("7394821", 0, ["7394821"]),
    ],
)
def test_where_there_is_nothing_a_value_beside_the_denial_is_made_up(answer, share, made_up):
    score = scored(answer, NUMBER)
    assert (score.share, score.why["invented"]) == (share, made_up)


def test_of_people_another_name_of_those_that_there_are_is_made_up():
    names = any_of(["Ann", "Bob", "Cleo"])
    reference = Reference("none", question="Who is Ann?", decoys=("Bob",), none="none", like=names)
    answers = ("none; Cleo, I guess", "none for Ann", "None. Cleopatra?", "None, not Bob")
    assert [scored(answer, reference).why["invented"] for answer in answers] == [
        ["cleo"],
        [],
        [],
        [],
    ]
    assert [scored(answer, reference).share for answer in answers] == [0, 1, 1, 0]


def test_nobody_says_what_is_made_up_where_nobody_knows_the_kind():
    assert "invented" not in scored("none, or 7394821", NOT_THERE).why
    assert "invented" not in scored("none, or 7394821", THERE).why


def test_a_kind_that_is_no_pattern_is_said():
    with pytest.raises(SettingsError, match="like: '\\(' is no pattern"):
        scored("none", Reference("none", none="none", like="("))


def test_what_the_question_says_is_no_decoy():
    reference = Reference(
        "Ann", ("Ann",), question="Who is taller than Bob?", decoys=("Bob", "Cleo")
    )
    assert scored("Ann is taller than Bob.", reference).share == 1


def test_chinese_needs_no_ends_of_words():
    reference = Reference(
        "没有", question="谁会游泳？", decoys=("柯以宁",), none="没有", like="李."
    )
    assert scored("文中没有提到。", reference).share == 1
    assert scored("柯以宁会游泳。", reference).share == 0


def test_a_task_without_keywords_is_refused():
    with pytest.raises(SettingsError, match=r"needs a task with keywords\. Type: --scorer recall"):
        scored("x", Reference("x"))


@pytest.mark.parametrize(
    "answer",
    [
        *(
            "The text is not provided.",
            "You did not provide a text.",
            "You didn't give me the text.",
        ),
        *("There is no text.", 'The answer is not "none".'),
        *("没有提供文本", "我没有看到文档", "并非没有", "有没有呢?"),
    ],
)
def test_who_misses_the_text_or_denies_a_denial_denies_nothing(answer):
    for none in ("none", "没有"):
        reference = Reference(none, (), question="Who swims?", none=none)
        assert asyncio.run(Only().score(answer, reference)).share == 0
