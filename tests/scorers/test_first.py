"""The first thing of the reference's kind decides."""

from __future__ import annotations

import asyncio

import pytest

from needlemap.errors import SettingsError
from needlemap.scorers import Score
from needlemap.scorers.stated import First
from needlemap.tasks import Reference

UUID = "0961f7af-3b6c-214b-abd9-e54f40d3d615"
OTHER = "9cc9f6a2-f548-076b-1c9c-075cb1aa2cc8"
KEY_ASKED = "30c2a6a1-0f4e-4b62-9d3b-6f5a3c1e7d90"


def scored(answer: str, wanted: str, question: str = "", **options: str) -> Score:
    return asyncio.run(First(**options).score(answer, Reference(wanted, question=question)))


@pytest.mark.parametrize(
    ("answer", "wanted", "share"),
    [
        ("The pass key is 48213.", "48213", 1),
        ("48213 or 48214", "48213", 1),
        ("48214 or 48213", "48213", 0),  # the first counts, not the best
        ("It is 48,213.", "48213", 1),
        ("482130", "48213", 0),
        ("The 1 key is 48213", "48213", 1),
        ("The 5-digit pass key is 48213.", "48213", 1),
        ("1. 48213", "48213", 1),
        ("The pass key (stated 2 times) is 48213.", "48213", 1),
        ("On line 117 of 2024-01-05: 48213", "48213", 1),
        ("这个5位通行码是48213。", "48213", 1),
        ("文中第3行写着：48213", "48213", 1),
        ("４８，２１３", "48213", 1),
        ("4821, no: 48213", "48213", 0),  # a digit short is a try, three are none
        ("482134 or 48213", "48213", 0),
        ("12345, 48213", "48213", 0),
        ("这个5位通行码是48214，不是48213。", "48213", 0),
        ("5", "48213", 0),
        ("2 or 12", "12", 0),  # of short numbers any is one
        ("none", "48213", 0),
        ("", "48213", 0),
        (f'"{UUID}"', UUID, 1),
        (UUID.upper(), UUID, 1),
        (f"{OTHER}, no: {UUID}", UUID, 0),
        ("It is Red-Fox.", "red-fox", 1),
        ("这个值是安静茶壶。", "安静茶壶", 1),
        ("这个值是高大茶壶。", "安静茶壶", 0),
    ],
)
def test_the_first_of_its_kind_is_compared(answer, wanted, share):
    assert scored(answer, wanted).share == share


def test_an_answer_may_repeat_the_question():
    """A model that names the asked key before its value once scored 0."""
    assert (
        scored(f"The value of {OTHER} is {UUID}.", UUID, f"What is the value of {OTHER}?").share
        == 1
    )
    assert scored("Ann Lee: New York", "New York", "Where does Ann Lee live?").share == 1


SHORT = "50aea17b"
KEY = "4dd3c00f"


@pytest.mark.parametrize(
    "said",
    [
        "It may be-fed by a key, but the value is ",
        "A face-bead, a dead-beef and a bad-cafe-decade-facade-added-bed: ",
        "As of 2024-01-05, and of 2024-01-05-12-30-00, it is ",
        "Found in line 0047 of 1-800-555-0199: ",
        "The key begins with 9cc9f6a2 and ends with 075cb1aa2cc8. So the value that would be\u2014",
        "Let me think aloud. The asked key is {question}, which is 32 digits, 8-4-4-4-12: ",
        "#4a 3d 2f deed ",
        "Value:",
        "urn:uuid:",
        "值是",
    ],
)
def test_prose_dates_and_parts_are_no_uuid(said):
    """'be-fed' is made of hexadecimal letters and was once taken for the answer."""
    question = f"What is the value of {OTHER}?"
    assert scored(said.format(question=OTHER) + UUID, UUID, question).why["said"] == UUID


@pytest.mark.parametrize(
    ("said", "similarity"),
    [
        (UUID[:-1], 0.97),  # a digit missing
        (UUID[:5] + UUID[4:], 0.97),  # one too many
        (UUID.replace("-", ""), 0.89),
        (UUID.replace("-214b-", "-"), 0.86),  # a group missing
        (UUID.replace("-abd9", "-abd9-abd9"), 0.87),
        (UUID.replace("-", "\u2011"), 1.0),  # a hyphen that does not break
        (UUID.replace("e54f", "be-fed"), 0.86),
    ],
)
def test_a_slightly_wrong_uuid_is_taken_as_the_answer(said, similarity):
    """Else a second try behind it would count, and no slip would be told from an answer in other
    words."""
    score = scored(f"It is {said}. No: {UUID}", UUID)
    assert score.share == (similarity == 1)
    assert score.why["similarity"] == pytest.approx(similarity, abs=0.01)


@pytest.mark.parametrize(
    ("said", "share"),
    [
        (f"The value of {KEY} is {SHORT}.", 1),
        (
            f"On 2024-01-05 a dead beef was added. {SHORT}",
            1,
        ),  # 'on' was once taken: there is no hyphen
        (f"{KEY}-{KEY} is {SHORT}", 1),
        (f"It is {SHORT[:-1]}, or {SHORT}", 0),
        (f"It is {SHORT}0, or {SHORT}", 0),
        (f"A facade, a deadbeef: {SHORT}", 1),
    ],
)
def test_a_uuid_of_one_group_is_found_too(said, share):
    assert scored(said, SHORT, f"What is the value of {KEY}?").share == share


def test_a_number_is_no_part_of_the_key_that_an_answer_repeats():
    """A key of digits, letters and hyphens holds numbers, the first of which was once taken."""
    assert scored(f"{OTHER} holds 48213", "48213", f"What does {OTHER} hold?").share == 1
    assert scored("4a-b7 and 5b-7: 48213", "48213", "What does 4a-b7 hold?").share == 1
    assert scored("4a-b7 and 12-b7: 31", "31", "What does 4a-b7 hold?").why["said"] == "12"


def test_how_near_a_wrong_answer_came_is_kept():
    why = scored("48214", "48213").why
    assert why == {"said": "48214", "similarity": 0.8}
    assert scored("It is 482.", "48213").why == {"said": "482", "similarity": pytest.approx(0.6)}


@pytest.mark.parametrize(
    ("answer", "share"),
    [
        (UUID, 1),
        (f"{KEY_ASKED} -> {OTHER} -> {UUID}", 1),
        (f"The chain is {KEY_ASKED}, {OTHER}, {UUID}. Final answer: {UUID}", 1),
        (f"1. {OTHER}\n2. {UUID}", 1),
        (f"{UUID} (reached from {OTHER})", 1),
        (OTHER, 0),  # stopped too early
        (KEY_ASKED, 0),
        (f"{OTHER} -> {UUID} -> {OTHER}", 0),
        (f"{OTHER}, {UUID}, {UUID[:-1]}0", 0),  # all values there are
        (f"{UUID[:-1]}0, no: {UUID}", 0),
    ],
)
def test_an_answer_may_tell_the_way_to_the_last_of_a_chain(answer, share):
    """Where the way begins with what the text has on it, the last counts; else the first, as
    ever."""
    question = f"Look up the key {KEY_ASKED}, and so on."
    reference = Reference(UUID, question=question, decoys=(OTHER,))
    assert asyncio.run(First(chain=True).score(answer, reference)).share == share
    if OTHER in answer and not answer.startswith(UUID):
        assert asyncio.run(First().score(answer, reference)).share == 0


def test_another_chains_value_is_no_step_of_the_way():
    """Else who names any value of the text before the right one would be forgiven."""
    pairs = f'"{KEY_ASKED}": "{OTHER}",\n"{OTHER}": "{UUID}",\n'
    reference = Reference(UUID, needle=pairs, decoys=(OTHER, UUID[::-1]))
    shares = [
        asyncio.run(First(chain=True).score(f"{said} -> {UUID}", reference)).share
        for said in reference.decoys
    ]
    assert shares == [1, 0]


def test_a_pattern_of_ones_own():
    assert scored("answer: B", "B", pattern=r"\b[a-d]\b").share == 1
    with pytest.raises(SettingsError, match="is no pattern"):
        First(pattern="(")


def test_nothing_to_look_for_is_an_error():
    with pytest.raises(SettingsError, match="needs a reference answer"):
        scored("x", " ")
