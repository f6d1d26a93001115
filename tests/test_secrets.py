"""Secrets are found again as they are, URL-encoded, JSON-escaped and in base64, and nothing else is
touched."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote

import pytest

from needlemap.errors import SettingsError
from needlemap.secrets import HIDDEN, RUN, Secrets, hidden, mask_keys, refuse_keys

KEY = "sk-proj/Ab+cD.9=qLm_Tr40xYz-7w"
LOOKS_RANDOM = "4f9aQ27cd01e88ba"

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
    "with some letters escaped": KEY.replace("A", "%41").replace("x", "%78"),
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


@pytest.mark.parametrize("before", range(12))
def test_a_secret_is_found_wherever_it_stands_in_a_text(before):
    assert Secrets([KEY]).hide("." * before + KEY[3 : 3 + RUN]) == "." * before + HIDDEN


def test_stretches_of_two_secrets_that_overlap_are_hidden_as_one():
    one, two = "abcdefghijklmnop", "klmnopqrstuvwxyz"
    secrets = Secrets([one, two, "short-7"])
    assert secrets.hide("1. abcdefghijklmnopqrstuvwxyz.") == f"1. {HIDDEN}."
    assert secrets.hide(f"{one}{one}short-7\\/") == f"{HIDDEN}{HIDDEN}{HIDDEN}\\/"
    assert secrets.hide(f"{one[:11]}{two[-11:]}") == f"{one[:11]}{two[-11:]}"


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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, "abc") for name in ("api_key", "client_secret", "Authorization", "proxy-bearer")),
        *((name, LOOKS_RANDOM) for name in ("cookie", "x-auth", "session", "id_token", "pat")),
    ],
)
def test_a_setting_that_is_refused_as_a_key_is_not_shown_of_a_run_that_has_it(name, value):
    """A page showed what a run of today is refused for: it had a list of names of its own."""
    for setting in ({name: value}, {"deeper": [{name: [value]}]}):
        with pytest.raises(SettingsError, match="holds a key"):
            refuse_keys({"request": setting}, "OPENAI_API_KEY")
        assert value not in json.dumps(mask_keys(setting))
    assert mask_keys(value, name) == HIDDEN


def test_other_settings_are_shown():
    setting = {"tokens": 7, "max_tokens": 9, "session": "warm", "code": "", "stop": ["a", "b"]}
    assert mask_keys(setting, "request") == setting
