"""Secrets are found again in any usual spelling, and nothing else is touched."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote

import pytest

from needlemap.secrets import HIDDEN, RUN, Secrets, hidden
from needlemap.spellings import _Grams

KEY = "sk-proj/Ab+cD.9=qLm_Tr40xYz-7w"


def in_lines(text: str, between: str) -> str:
    return between.join(text[at : at + 11] for at in range(0, len(text), 11))


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
    "with every letter escaped for an address": "".join(f"%{ord(letter):02X}" for letter in KEY),
    "escaped for an address twice": quote(quote(KEY, safe=""), safe=""),
    "with some letters escaped": KEY.replace("A", "%41").replace("x", "%78"),
    "in JSON in JSON": "".join(f"\\\\u{ord(letter):04x}" for letter in KEY),
    "in JSON in JSON in JSON": json.dumps(json.dumps("".join(f"\\u{ord(x):04x}" for x in KEY))),
    "with Python's escapes": "".join(f"\\x{ord(letter):02x}" for letter in KEY),
    "with HTML's escapes": "".join(f"&#{ord(letter)};" for letter in KEY),
    "with HTML's other escapes": "".join(f"&#x{ord(letter):x};" for letter in KEY),
    "with HTML's escapes and noughts": "".join(f"&#{ord(letter):04};" for letter in KEY),
    "with HTML's other escapes and noughts": "".join(f"&#x{ord(letter):04X};" for letter in KEY),
    "with Python's long escapes": "".join(f"\\U{ord(letter):08x}" for letter in KEY),
    "with HTML's other escapes in capitals": "".join(f"&#X{ord(letter):X};" for letter in KEY),
    "with JavaScript's braces": "".join(f"\\u{{{ord(letter):x}}}" for letter in KEY),
    "in base64 in lines of 11": in_lines(b64encode(KEY.encode()).decode(), "\n"),
    "in base64 in lines, in JSON": in_lines(b64encode(KEY.encode()).decode(), "\\r\\n"),
    "in base64 of UTF-16": b64encode(KEY.encode("utf-16-le")).decode(),
    "in lines": in_lines(KEY, "\n  "),
    "in hexadecimal digits": KEY.encode().hex(),
    "in capitals": KEY.upper(),
    "backwards": KEY[::-1],
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


def test_a_secret_in_a_text_of_many_alphabets_is_cut_out_where_it_stands():
    said = f"在上海 🙂 \ud800 {KEY} naïve %41 \\u0041"
    assert Secrets([KEY]).hide(said) == f"在上海 🙂 \ud800 {HIDDEN} naïve %41 \\u0041"


@pytest.mark.parametrize("before", [0, 1_000_000, 1_048_576 - 15, 2_080_000])
def test_a_secret_is_found_wherever_it_stands_in_a_long_text(before):
    """Long texts are read in pieces, which overlap."""
    said = "." * before + KEY + "." * 1_100_000
    assert Secrets([KEY]).hide(said) == "." * before + HIDDEN + "." * 1_100_000


def test_texts_that_stand_side_by_side_make_no_secret_and_hide_none():
    """The texts of a reply are looked through as one."""
    said = [KEY[:9], KEY[9:18], {KEY[:11]: KEY}, "a", KEY[11:], KEY + "b"]
    assert Secrets([KEY]).hide_in(said) == [
        *(KEY[:9], KEY[9:18], {KEY[:11]: HIDDEN}, "a"),
        *(HIDDEN, f"{HIDDEN}b"),
    ]


@pytest.mark.parametrize("name", ["code", "sig", "api_key", "auth", "password", "X-Amz-Signature"])
def test_a_value_in_an_address_that_is_named_as_keys_are_is_hidden_however_short(name):
    assert hidden(f"http://h/v1?a=1&{name}=abc&n=1") == f"http://h/v1?a=1&{name}={HIDDEN}&n=1"


def test_a_text_full_of_keys_is_looked_through_once(monkeypatch):
    """It was made plain and looked up anew for where they stand: 70 to 140 ms a megabyte."""
    looked = list[int]()
    found = _Grams.found
    monkeypatch.setattr(
        _Grams, "found", lambda self, text: looked.append(len(text)) or found(self, text)
    )
    assert Secrets([KEY]).hide(f"{KEY} " * 1000) == f"{HIDDEN} " * 1000
    assert looked == [1000 * len(KEY)]


@pytest.mark.parametrize("spelt", SPELLINGS.values(), ids=SPELLINGS)
@pytest.mark.parametrize("around", ["\\", "\\\\", '\\"', "%", "\n", "\x7f", "é", "&#38;"])
def test_what_stands_around_a_key_stays_in_each_text_of_a_reply(spelt, around):
    """A backslash that is taken away with a key makes broken JSON of a text that holds JSON."""
    said = [f"{around}. {spelt} .{around}", f"{around}. .{around}", f"{spelt} {spelt}", "%4", "1 "]
    hid = Secrets([KEY]).hide_in(said)
    assert hid == [Secrets([KEY]).hide(text) for text in said]
    assert hid[0].startswith(f"{around}. ")
    assert hid[0].endswith(f" .{around}")
    assert hid[1::2] == [said[1], "%4"]
