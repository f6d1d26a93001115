"""What a server's words mean."""

from __future__ import annotations

import pytest

from needlemap.errors import Failure
from needlemap.models.faults import from_status, message_of, retry_after_s, scrub


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 4096 tokens, however you requested 5000 tokens",
        "Requested token count exceeds the model's maximum context length of 4096 tokens.",
        "'max_tokens' is too large: 300. This model's maximum context length is 2048 tokens",
        "Context size has been exceeded.",
        "`inputs` tokens + `max_new_tokens` must be <= 2048. Given: 2000 `inputs` tokens",
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        "Range of input length should be [1, 30720]",
        "Please reduce the length of the messages or completion.",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    ],
)
def test_too_long_in_many_words(words):
    assert from_status(400, words, {}).failure is Failure.TOO_LONG


@pytest.mark.parametrize(
    "words",
    ["Unsupported value: 'temperature'", "The model `x` does not exist.", "max_tokens must be positive"],
)
def test_other_refusals_are_not_taken_for_too_long(words):
    assert from_status(400, words, {}).failure is Failure.REJECTED


def test_a_gateways_page_is_a_server_error_worth_asking_again():
    error = from_status(502, "<html>Bad Gateway</html>", {})
    assert (error.failure, error.transient) == (Failure.SERVER, True)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"error": {"message": "a"}}', "a"),
        ('{"error": "a"}', "a"),
        ('{"object": "error", "message": "a"}', "a"),
        ('{"detail": [{"msg": "a"}]}', '[{"msg": "a"}]'),
        ("plain", "plain"),
        ("", ""),
    ],
)
def test_the_message_is_found_wherever_a_server_puts_it(body, message):
    assert message_of(body) == message


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"retry-after": "130"}, 130.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "20", "retry-after": "1"}, 0.02),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 90.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 0.0),
        ({}, None),
    ],
)
def test_waiting_times(headers, wait_s):
    assert retry_after_s(headers, now_s=10.0) == wait_s


@pytest.mark.parametrize(
    "text",
    [
        "Incorrect API key provided: sk-proj-abcdef123456.",
        "Authorization: Bearer abcdefabcdefabcdef42",
        "x-api-key: abcdefabcdefabcdef42",
        "http://user:abcdefabcdef@host/v1",
        "your key is abcdefSECRET",
    ],
)
def test_keys_are_hidden(text):
    assert "abcdef" not in scrub(text, secret="abcdefSECRET")


def test_ordinary_words_stay():
    text = "Missing bearer token; see the key-value risk-free task-list at http://host/v1."
    assert scrub(text) == text
