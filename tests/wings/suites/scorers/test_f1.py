"""How well a list agrees with the wanted one, and what an answer lists."""

from __future__ import annotations

import asyncio

import pytest

from needlemap.errors import SettingsError
from needlemap.scorers import Score
from needlemap.suites.f1 import F1, items, separate_items
from needlemap.tasks import Reference
from needlemap.tasks.values import Values

WANTED = ("AAAAA", "BBBBB", "CCCCC")


def scored(answer: str, **options: object) -> Score:
    given = {name: options.pop(name) for name in ("item",) if name in options}
    return asyncio.run(F1(**given).score(answer, Reference("", WANTED, **options)))


def test_the_whole_list_and_nothing_else_is_right():
    assert scored("AAAAA, BBBBB and CCCCC").share == 1
    assert scored("1. ccccc\n2. bbbbb\n3. aaaaa").share == 1


def test_what_is_missing_costs_recall_and_what_is_wrong_costs_precision():
    score = scored("AAAAA, BBBBB, DDDDD")
    assert score.why["recall"] == pytest.approx(2 / 3)
    assert score.why["precision"] == pytest.approx(2 / 3)
    assert score.share == pytest.approx(2 / 3)
    assert score.why["wrong"] == ["ddddd"]


def test_where_decoys_are_known_prose_around_the_list_is_not_wrong():
    score = scored("I looked, and found AAAAA and EEEEE, to be sure", decoys=("DDDDD", "EEEEE"))
    assert (score.why["precision"], score.why["wrong"]) == (0.5, ["eeeee"])


# What task `count-frequent` gives: coded words, and which others its text holds.
CODED = Reference(
    "tugteo, hzyfdy, ykgbfd",
    ("tugteo", "hzyfdy", "ykgbfd"),
    question="Leave the dots out: which 3 coded words come most often?",
    decoys=("dktbwq", "ppwuzm", "qqakfe"),
)
COMMON = Reference(
    "",
    ("rash-plough", "rocky-waffle", "calm-lantern"),
    question="Which 3 words?",
    like=Values("word", 0).like,
)
CHINESE = Reference(
    "",
    ("安静茶壶", "明亮风筝", "勇敢木桥"),
    question="词表中出现次数最多的3个词是哪些？",
    like=Values("word", 0, "chinese").like,
)
COUNTS = Reference(
    "", ("7884", "3437", "1234"), question="How many gulls?", like=Values("number", 4).like
)
NAMES = Reference("", ("MAB22", "DUP13", "KEB41"), question="Which have 48213?", decoys=("XYZ99",))


def share(answer: str, reference: Reference) -> float:
    return asyncio.run(F1().score(answer, reference)).share


@pytest.mark.parametrize(
    "answer",
    [
        "tugteo, hzyfdy, ykgbfd",
        "TUGTEO hzyfdy ykgbfd.",
        "`tugteo`, `hzyfdy`, `ykgbfd`",
        '["tugteo", "hzyfdy", "ykgbfd"]',
        r"\boxed{tugteo, hzyfdy, ykgbfd}",
        "tugteo > hzyfdy > ykgbfd",
        "1) tugteo 2) hzyfdy 3) ykgbfd",
        "Answer: tugteo, hzyfdy, ykgbfd",
        "**Answer:** tugteo, hzyfdy, ykgbfd",
        "### Answer\ntugteo, hzyfdy, ykgbfd",
        "Answer\n\ntugteo, hzyfdy, ykgbfd",
        "Words:\ntugteo, hzyfdy, ykgbfd",
        "## Ranking\ntugteo, hzyfdy, ykgbfd",
        "Ranked, the words are tugteo, hzyfdy and ykgbfd.",
        "Indeed, the words are tugteo, hzyfdy and ykgbfd.",
        "Leaving out the dots, the most common coded words are: tugteo, hzyfdy, ykgbfd",
        "The 3 words that appear most often are tugteo, hzyfdy, and ykgbfd.",
        "tugteo, hzyfdy, and ykgbfd are the words that appear most often, in that order.",
        "First is tugteo, then hzyfdy, finally ykgbfd.",
        "tugteo occurs 30 times, hzyfdy occurs 20 times, ykgbfd occurs twelve times",
        "tugteo \u2014 30 counts\nhzyfdy \u2014 20 counts\nykgbfd \u2014 12 counts",
        "tugteo: 30, hzyfdy: 20, ykgbfd: 12",
        "| Word | Count |\n|---|---|\n| tugteo | 30 |\n| hzyfdy | 20 |\n| ykgbfd | 11 |",
        "tugteo\nhzyfdy\nykgbfd\n\nThese three come most often, leaving the dots out.",
        "Sure! Here they are:\n\n- tugteo\n- hzyfdy\n- ykgbfd\n\nLet me know if you need more!",
        "根据文档，出现次数最多的3个编码词是：tugteo、hzyfdy、ykgbfd",
        "出现最多的是tugteo、hzyfdy和ykgbfd。",
    ],
)
def test_prose_around_coded_words_costs_nothing(answer):
    """'appear' has six letters, as the coded words have, and once counted as one of them."""
    assert share(answer, CODED) == 1


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("tugteo, hzyfdy, ykgbfd, dktbwq", 6 / 7),
        ("tugteo, hzyfdy, ykgbfd, zzzzzz", 6 / 7),  # made up
        ("zzzzzz, tugteo, hzyfdy, ykgbfd", 6 / 7),
        ("tugteo, fig, hzyfdy, ykgbfd", 6 / 7),  # of no kind of ours, but in the midst of the list
        ("tugteo hzyfdy ykgbfd zzzzzz", 6 / 7),
        ("tugteo, hzyfdy, ykgbfd, and perhaps there is dktbwq too", 6 / 7),
        ("tugteo, hzyfdy, ykgbf", 2 / 3),  # a letter lost
        ("The words are tugteo, hzyfdy, and zzzzzz.", 2 / 3),
        ("1. tugteo (30)\n2. hzyfdy (20)\n3. zzzzzz (12)", 2 / 3),
        ("tugteo: 30, hzyfdy: 20, zzzzzz: 12", 2 / 3),
        ("| tugteo | 30 |\n| hzyfdy | 20 |\n| zzzzzz | 11 |", 2 / 3),
        ("tugteo/zzzzzz", 0.4),
        ("tugteo or dktbwq, hzyfdy or ppwuzm, ykgbfd or zzzzzz", 2 / 3),
        ("tugteo, hzyfdy, ykgbfd, dktbwq, ppwuzm, qqakfe", 2 / 3),
        ("tugteo", 0.5),
        ("dktbwq, zzzzzz", 0),
        ("I counted the words, but none of them stands out.", 0),
        ("Leave the dots out: which 3 coded words come most often?", 0),
        ("", 0),
    ],
)
def test_a_coded_word_of_the_text_and_one_that_is_made_up_cost_precision(answer, expected):
    assert share(answer, CODED) == pytest.approx(expected)


@pytest.mark.parametrize(
    "answer",
    [
        "rash-plough, rocky-waffle, calm-lantern",
        "rash plough, rocky waffle, calm lantern",
        "rash_plough\nrocky_waffle\ncalm_lantern",
        "Rash\u2011Plough (30), Rocky\u2013Waffle (30), Calm-Lantern (30)",
        "- rash plough: 30\n- rocky waffle: 30\n- calm lantern: 30",
        "Based on the list, the 3 words are: rash-plough, rocky-waffle, calm-lantern",
        "Sure, the words:\n\n* **rash-plough**\n* **rocky-waffle**\n* **calm-lantern**\n\nLet me "
        "know!",
        "The most-frequent words, in no order, are rash-plough, rocky-waffle and calm-lantern.",
    ],
)
def test_words_of_two_parts_may_have_a_space_and_prose_around_them(answer):
    assert share(answer, COMMON) == 1


def test_the_order_is_told_however_the_words_are_written():
    for answer in (
        "calm-lantern, rash-plough, rocky-waffle",
        "calm lantern, rash plough, rocky waffle",
    ):
        assert asyncio.run(F1().score(answer, COMMON)).why["ordered"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "wrong",
    [
        "green-elbow",
        "green elbow",
        "foggy-bottom",
        "and perhaps also green-elbow",
        "green-elbow (29 times)",
    ],
)
def test_another_word_of_two_parts_is_wrong_whether_or_not_the_text_has_it(wrong):
    answer = f"rash-plough, rocky-waffle, calm-lantern, {wrong}"
    assert share(answer, COMMON) == pytest.approx(6 / 7)


@pytest.mark.parametrize(
    "answer",
    [
        "安静茶壶，明亮风筝，勇敢木桥",
        "1. 安静茶壶\n2. 明亮风筝\n3. 勇敢木桥",
        "**安静茶壶**、**明亮风筝**和**勇敢木桥**",
        "安静茶壶（30次），明亮风筝（30次），勇敢木桥（30次）",
        "好的，它们是安静茶壶、明亮风筝、勇敢木桥",
        "总的来说，安静茶壶、明亮风筝、勇敢木桥",
        "根据词表，出现次数最多的3个词是：安静茶壶、明亮风筝、勇敢木桥。",
    ],
)
def test_a_list_in_chinese(answer):
    assert share(answer, CHINESE) == 1
    assert share(answer.replace("勇敢木桥", "古老灯塔"), CHINESE) == pytest.approx(2 / 3)
    assert share(f"{answer}，古老灯塔", CHINESE) == pytest.approx(6 / 7)


@pytest.mark.parametrize(
    "answer",
    [
        "7884, 3437, 1234",
        "7884,3437,1234",
        "7,884, 3,437, 1,234",
        "7 884, 3 437, 1 234",
        "1. 7,884\n2. 3,437\n3. 1,234",
        "| 1 | 7884 |\n| 2 | 3437 |\n| 3 | 1234 |",
        "(1) 7884 (2) 3437 (3) 1234",
        "The counts, in the order in which they stand, are: 7884, 3437, 1234",
        "Here are the 3 numbers, as asked:\n7884\n3437\n1234",
        "7884 gulls, 3437 gulls, and 1234 gulls",
        "７８８４、３４３７、１２３４",
        "先后数到7884只、3437只和1234只海鸥。",
    ],
)
def test_numbers_may_have_thousands_and_prose_around_them(answer):
    score = asyncio.run(F1().score(answer, COUNTS))
    assert (score.share, score.why["ordered"]) == (1, 1)


@pytest.mark.parametrize(
    "answer",
    [
        "7884, 3437, 1234, 9999",
        "7,884, 3,437, 1,234, 9,999",
        "7884 3437 1234 9999",
        "7884, 12, 3437, 1234",
    ],
)
def test_another_number_is_wrong(answer):
    assert share(answer, COUNTS) == pytest.approx(6 / 7)


@pytest.mark.parametrize(
    "answer",
    [
        "MAB22, DUP13, KEB41",
        "MAB 22, DUP 13, KEB 41",
        "MAB_{22}, DUP_{13}, KEB_{41}",
        r"$MAB_{22}$, $\text{DUP}_{13}$ and $\mathrm{KEB}_{41}$",
        "The names are MAB22, DUP13 and KEB41.",
        "变量有MAB22、DUP13、KEB41",
    ],
)
def test_a_names_number_may_stand_apart(answer):
    assert share(answer, NAMES) == 1
    for wrong in ("XYZ99", "XYZ 99", "QQQ11"):
        assert share(f"{answer}, {wrong}", NAMES) == pytest.approx(6 / 7)


def test_who_lists_everything_gains_nothing_by_writing_it_otherwise():
    """As 'rash plough' is found, every pair of words must count, where an answer writes pairs
    so."""
    everything = "rash-plough green-elbow rocky-waffle amber-anchor calm-lantern"
    for answer in (everything, everything.replace("-", " "), everything.replace("-", "_")):
        assert share(answer, COMMON) == pytest.approx(0.75)
    listed = scored("MAB 22, DUP 13, XYZ 99", item=r"\b[a-z]{3}[0-9]{2}\b", decoys=("XYZ99",))
    assert listed.why["wrong"] == ["xyz99"]
    words = Reference("", ("red-fox", "shy-cat"))
    assert [share(each, words) for each in ("red fox, shy cat", "red fox (3)\nshy cat (2)")] == [
        1,
        1,
    ]
    for answer in ("red fox sad dog shy cat", "red-fox sad-dog shy-cat"):
        assert share(answer, words) == pytest.approx(0.8)


def test_a_pattern_that_is_none_is_said():
    with pytest.raises(SettingsError, match=r"like: '\(' is no pattern"):
        share("fig", Reference("fig", ("fig",), like="("))


def test_what_the_question_says_earns_nothing():
    score = scored("AAAAA", question="Which follow AAAAA?")
    assert (score.share, score.why["missing"]) == (0, ["bbbbb", "ccccc"])


def test_items_may_have_a_pattern():
    assert scored("My list: AAAAA BBBBB CCCCC, that is it", item="[A-Z]{5}").share == 1


def test_with_a_pattern_all_that_looks_like_an_item_counts_not_the_decoys_alone():
    score = scored("AAAAA EEEEE FFFFF", item="[A-Z]{5}", decoys=("EEEEE",))
    assert score.why["wrong"] == ["eeeee", "fffff"]


def test_a_list_with_spaces_alone_hides_no_wrong_items():
    """Whoever copied the whole text without a comma once had full precision."""
    assert scored("AAAAA BBBBB CCCCC EEEEE").why["wrong"] == ["eeeee"]
    assert scored("1) AAAAA 2) BBBBB 3) CCCCC").share == 1
    assert scored("They are AAAAA (30), BBBBB (30) and CCCCC (30).").share == 1


def test_a_heading_is_no_item():
    assert scored("These are they:\nAAAAA\nBBBBB\nCCCCC").share == 1


@pytest.mark.parametrize("answer", ["", "none", "DDDDD"])
def test_an_answer_without_any_of_them_is_0(answer):
    assert scored(answer).share == 0


def test_items_of_a_list_in_any_style():
    assert items('["fig", "plum"]') == ["fig", "plum"]
    assert items("- fig\n* plum\n• pear") == ["fig", "plum", "pear"]
    assert items("无花果、李子和梨") == ["无花果", "李子", "梨"]


@pytest.mark.parametrize("filling", [" ", "_", ": ", "*", "-", "a ", "x_", "fig ", "1,234,", "\n"])
def test_a_long_answer_takes_no_longer_than_its_length(filling):
    """16,000 blanks once took 12 s. So many, so, would take half an hour: pytest's limit would end
    it."""
    answer = f"AAAAA{filling * (200_000 // len(filling))}b"
    assert scored(answer, decoys=("date",)).why["recall"] <= 1 / 3


def test_what_cannot_be_scored_is_said():
    with pytest.raises(SettingsError, match="whose answer is a list"):
        asyncio.run(F1().score("x", Reference("y")))
    with pytest.raises(SettingsError, match="is no pattern"):
        F1(item="(")


FRUITS = ["fig", "plum", "pear"]


@pytest.mark.parametrize(
    "line",
    [
        "date",
        "date (30 times)",
        "date - 30",
        "date: 30",
        "date   30",
        "**date** (30)",
        "_date_ (30)",
        "**_date_** 30",
        "_**date**_: 30",
        "`date` -> 30",
        "1. date",
        "- *date*.",
        '"date",',
        "[date]。",
    ],
)
def test_an_item_is_told_from_its_count_and_marks(line):
    assert separate_items(f"fig\n{line}\nplum", FRUITS) == ["fig", "date", "plum"]


@pytest.mark.parametrize(
    ("piece", "item"),
    [
        ("1. fig.", "fig"),
        ("  * [fig] ", "fig"),
        ('- "`fig`":。', "fig"),
        ("2) **fig**  ", "fig"),
        ("fig's", "fig's"),
        (" ... ", None),
    ],
)
def test_an_item_stands_without_bullets_and_quotes(piece, item):
    assert items(piece) == ([item] if item else [])


def test_a_made_up_item_in_the_midst_of_a_sentence_stays_unseen():
    assert separate_items("They are fig, plum and perhaps a date too", FRUITS) == ["plum"]
