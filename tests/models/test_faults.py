"""What a server's words mean."""

from __future__ import annotations

import json
from pathlib import Path
from time import process_time

import pytest

from needlemap.allowance import read_allowance, retry_after_s
from needlemap.errors import Failure
from needlemap.http.faults import from_status, message_of
from needlemap.secrets import scrub

TOO_LONG = json.loads((Path(__file__).parents[1] / "servers" / "too_long.json").read_text("utf-8"))


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
        # By the rule: a word of length, a word of excess, two numbers.
        "Your prompt has 9000 tokens; the limit is 8192.",
        "the number of input tokens 9000 cannot exceed the total tokens limit 8192 for this model",
        "Sequence length 9,000 > max 8,192",
        "context: 131k tokens, this model supports only 128k",
        "n_ctx 4096 is not enough for 5000 tokens",
        "Only 8192 tokens fit into the window of this model, you sent 9000.",
        "input text token count 9000 is out of range [1, 8192]",
        # By a phrase, without two numbers.
        "Context length exceeded.",
        "Your input is too long for this model.",
        "Token limit exceeded.",
        "The conversation exceeds the maximum length.",
        "请求的输入超过模型的最大长度",
    ],
)
@pytest.mark.parametrize("status", [400, 422, 500])
def test_too_long_in_many_words(words, status):
    refused = from_status(status, words, {})
    assert (refused.failure, refused.transient) == (Failure.TOO_LONG, False)


@pytest.mark.parametrize("server", sorted(TOO_LONG.keys() - {"proxy"}))
def test_every_servers_way_to_say_too_long_is_understood(server):
    row = TOO_LONG[server]
    refused = from_status(row["status"], json.dumps(row["body"]), {})
    assert (refused.failure, refused.transient) == (Failure.TOO_LONG, False)


@pytest.mark.parametrize(
    ("status", "failure", "transient"),
    [
        (400, Failure.REJECTED, False),
        (401, Failure.UNAUTHORISED, False),
        (403, Failure.UNAUTHORISED, False),
        (404, Failure.REJECTED, False),
        (408, Failure.TIMED_OUT, True),
        (409, Failure.SERVER, True),
        (429, Failure.RATE_LIMITED, True),
        (500, Failure.SERVER, True),
        (503, Failure.SERVER, True),
        (529, Failure.SERVER, True),
    ],
)
def test_a_status_says_what_is_wrong_and_whether_it_is_worth_asking_again(
    status, failure, transient
):
    refused = from_status(status, '{"error": {"message": "no"}}', {})
    assert (refused.failure, refused.transient) == (failure, transient)


@pytest.mark.parametrize(
    "words",
    [
        "Unsupported value: 'temperature'",
        "The model `x` does not exist.",
        "max_tokens must be positive",
        "'n' must be at most 8, got 20",
        "max_tokens must be at most 4096 tokens, got 8000",
        "budget_tokens: Input should be greater than or equal to 1024, got 100",
        "top_logprobs must be at most 20, got 30",
        "Invalid 'user': string too long. Expected a maximum length of 64, got a length of 80.",
        "The image exceeds the maximum of 5 MB: 6000000 bytes > 5242880 bytes",
        "Model gpt-4-32k needs version 2024-10-21 of the API",
    ],
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
        ({"retry-after": "-3"}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after-ms": "0", "retry-after": "2"}, 2.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "20", "retry-after": "1"}, 0.02),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 90.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, None),
        ({}, None),
    ],
)
def test_waiting_times(headers, wait_s):
    assert retry_after_s(headers, now_s=10.0) == wait_s


@pytest.mark.parametrize("value", ["1" * 100_000, "1." * 50_000, "1h" * 50_000, "9" * 64 + "x"])
def test_of_a_header_its_beginning_is_read(value):
    """A header of 60,000 digits took minutes in the event loop, where no limit holds."""
    start = process_time()
    for name in ("retry-after", "retry-after-ms"):
        retry_after_s({name: value})
    parts = ("limit", "remaining", "reset")
    read_allowance({f"x-ratelimit-{part}-requests": value for part in parts})
    read_allowance({f"anthropic-ratelimit-tokens-{part}": value for part in parts})
    assert process_time() - start < 1


@pytest.mark.parametrize(
    "text",
    [
        "Incorrect API key provided: sk-proj-abcdef123456.",
        "Authorization: Bearer abcdefabcdefabcdef42",
        "x-api-key: abcdefabcdefabcdef42",
        "http://user:abcdefabcdef@host/v1",
        "sk-abcdef/abcdef+abcdef.abcdef=",
    ],
)
def test_keys_are_hidden(text):
    assert "abcdef" not in scrub(text)


@pytest.mark.parametrize(
    "page",
    [
        "<!DOCTYPE html><html><head><title>502 Bad\n Gateway</title></head><body>"
        + "<p>x" * 99_999,
        "\n<HTML><TITLE class=x>502 Bad Gateway</TITLE>",
    ],
)
def test_of_an_error_page_its_title_is_told_and_no_more(page):
    assert (
        str(from_status(502, page, {}))
        == "The server answered 502: an HTML page, '502 Bad Gateway'"
    )


def test_of_a_page_without_a_title_only_that_it_is_one():
    assert message_of("<html><body><script>x</script>") == "an HTML page"


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("http://other/v1?key=abc#tok=abc", "http://other/v1"),
        ("http://me:abc@other/v1", "http://[hidden]@other/v1"),
        ("http://[::1/v1", "nowhere"),
        ("", "nowhere"),
    ],
)
def test_a_redirect_is_rejected_with_the_address_it_leads_to_and_no_key(place, told):
    refused = from_status(307, "abc", {"location": place})
    assert (refused.failure, refused.transient, refused.spent) == (Failure.REJECTED, False, None)
    assert f"it sends us on to {told}, and redirects are not followed" in str(refused)
    assert "abc" not in str(refused)


def test_a_body_of_any_size_or_depth_is_read_for_words_quickly():
    start = process_time()
    for body in (
        "[" * 2_000_000,
        '{"message": "' + "input token count " * 500_000 + '"}',
        "x" * 60_000_000,
    ):
        assert len(str(from_status(400, body, {}))) <= 500
    assert process_time() - start < 10


def test_ordinary_words_stay():
    text = "Missing bearer token; see the key-value risk-free task-list at http://host/v1."
    assert scrub(text) == text
