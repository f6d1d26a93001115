"""What an answer holds of another prompt."""

from __future__ import annotations

import pytest

from needlemap.servers.check.owners import Owners

LONG = "123456789012", "210987654321"


def owners_of(*secrets: str) -> Owners[int]:
    owners = Owners[int]()
    for at, secret in enumerate(secrets):
        owners.add([secret, ""], at)
    return owners


@pytest.mark.parametrize(
    ("secrets", "answer", "own", "found"),
    [
        (LONG, "It is 210987654321.", LONG[0], LONG[1]),
        (LONG, "It is 2109-8765 4321, I think.", LONG[0], LONG[1]),
        (LONG, "It is 99210987654321.", LONG[0], LONG[1]),
        (LONG, "It is 210987654321.", LONG[1], ""),
        ((*LONG, "1234567890123"), "It is 2109 8765 4321.", LONG[0], LONG[1]),
        (("4711", "1234"), "It is 1234.", "4711", "1234"),
        (("4711", "1234"), "It is 12345.", "4711", ""),
        (("blue notebook", "red fox"), "A red-fox, or so.", "blue notebook", "red fox"),
        (("cat", "red fox"), "A cat.", "red fox", ""),  # any answer may hold so short a word
        ((), "It is 1234.", "", ""),
    ],
)
def test_a_secret_of_another_prompt_is_found_as_it_is_written(secrets, answer, own, found):
    assert owners_of(*secrets).foreign_secret(answer, [own]) == found


def test_a_secret_of_two_prompts_is_the_firsts():
    assert owners_of("123456789012", "123456789012").by_secret == {"123456789012": 0}
