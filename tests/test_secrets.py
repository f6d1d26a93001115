"""Secrets are found again in any usual spelling, and nothing else is touched."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from time import process_time
from urllib.parse import quote

import pytest

from needlemap.secrets import HIDDEN, RUN, Secrets

KEY = "sk-proj/Ab+cD.9=qLm_Tr40xYz-7w"
SPELLINGS = {
    "as it is": KEY,
    "with JSON's escapes": "".join(f"\\u{ord(letter):04x}" for letter in KEY),
    "with JSON's escapes in capitals": "".join(f"\\u{ord(letter):04X}" for letter in KEY),
    "with PHP's slashes": KEY.replace("/", "\\/"),
    "in an address": quote(KEY, safe=""),
    "in an address, in small letters": quote(KEY, safe="")
    .replace("%2F", "%2f")
    .replace("%2B", "%2b"),
    "in a path": quote(KEY),
    "in base64": b64encode(KEY.encode()).decode(),
    "in base64 behind a word": b64encode(b"Bearer " + KEY.encode()).decode(),
    "in base64 behind a name": b64encode(b"me:" + KEY.encode() + b":").decode(),
    "in base64 for addresses": urlsafe_b64encode(KEY.encode()).decode(),
    "without its end": KEY[:-4],
    "without its beginning": KEY[9:],
    "a dozen of it": KEY[7 : 7 + RUN],
}


@pytest.mark.parametrize("spelt", SPELLINGS.values(), ids=SPELLINGS)
def test_a_secret_is_hidden_in_every_spelling(spelt):
    hidden = Secrets([KEY]).hide(f"You sent '{spelt}' to us, and '{spelt}' again.")
    assert hidden.count(HIDDEN) == 2
    for start in range(len(spelt) - 10):
        assert spelt[start : start + 11] not in hidden
    assert hidden.startswith("You sent '")
    assert hidden.endswith(" again.")


def test_names_and_values_of_an_object_are_looked_through_as_deep_as_anything_is_kept():
    said = {f"x {KEY}": [{"y": f"{KEY}!"}, 5, None, True, 0.5]}
    assert Secrets([KEY]).hide_in(said) == {
        f"x {HIDDEN}": [{"y": f"{HIDDEN}!"}, 5, None, True, 0.5]
    }
    assert json.dumps(Secrets().hide_in(json.loads("[" * 900 + "]" * 900))).count("[") == 100


def test_fewer_characters_in_a_row_and_other_words_stay():
    said = f"The key begins with {KEY[:11]}, ends with {KEY[-11:]}. 51328 / 100 % \\u0041"
    assert Secrets([KEY]).hide(said) == said


def test_a_short_secret_is_hidden_whole_and_a_very_short_one_never():
    secrets = Secrets(["abcdef7", "none"])
    assert secrets.hide("abcdef7 abcdef 7 none") == f"{HIDDEN} abcdef 7 none"


def test_of_a_header_of_words_the_whole_is_hidden_and_each_long_word():
    """Runs over spaces would be found in a model's ordinary words."""
    secrets = Secrets(["Bearer planted-token-0123", "The needle in a haystack test"])
    assert secrets.hide("planted-token-0123") == HIDDEN
    assert secrets.hide("The needle in a haystack test!") == f"{HIDDEN}!"
    assert secrets.hide("It is the needle in a haystack") == "It is the needle in a haystack"


@pytest.mark.parametrize(
    "text", ["A plain sentence of the answer. ", KEY[:6] + " ", KEY[:11] * 3, KEY]
)
def test_a_megabyte_takes_no_time_worth_speaking_of(text):
    start = process_time()
    Secrets([KEY, "planted-token-0123456789", KEY[::-1]]).hide(text * (1_000_000 // len(text)))
    assert process_time() - start < 3
