"""The door to servers: bounded, follows nothing, says no key back."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from typing import Any

import pytest

from needlemap.errors import Failure, SettingsError, Unmeasured
from needlemap.http import LARGEST_BYTES, check_address
from needlemap.models import Answer, Decoding
from needlemap.models.anthropic import AnthropicModel
from needlemap.models.openai import OpenAIModel
from needlemap.prompts import Prompt

KEY = "sk-test/0123+456789.abcdef"
MODELS = {"openai": OpenAIModel, "anthropic": AnthropicModel}
PROMPT = Prompt.plain([("user", "It is 7. What is it?")])
SAID = {"choices": [{"message": {"content": "7"}}], "content": [{"type": "text", "text": "7"}]}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_API_KEY", KEY)
        monkeypatch.delenv(f"{name}_BASE_URL", raising=False)
        monkeypatch.setenv(
            f"{name}_CUSTOM_HEADERS", "x-gateway-key: gateway-0123456789\nX-Two: b\n"
        )


async def _ask(backend: str, url: str) -> Answer:
    model = MODELS[backend]("m", base_url=url)
    try:
        return await model.answer(PROMPT, Decoding(timeout_s=250))
    finally:
        await model.close()


def ask(backend: str, wire: Any, **reply: Any) -> Answer:
    """What a back end makes of a reply."""
    if "body" in reply and not isinstance(reply["body"], str):
        reply["body"] = json.dumps(reply["body"])
    wire.schedule(f"reply:{json.dumps(reply)}")
    return asyncio.run(_ask(backend, wire.root if backend == "anthropic" else wire.base_url))


def failure(backend: str, wire: Any, **reply: Any) -> Unmeasured:
    with pytest.raises(Unmeasured) as caught:
        ask(backend, wire, **reply)
    return caught.value


@pytest.mark.parametrize(("backend", "status"), [("openai", 307), ("anthropic", 302)])
def test_a_redirect_is_not_followed(wire, wires, backend, status):
    """Prompts and a gateway's key went to wherever a server pointed, and what that said was
    scored."""
    other = wires()
    refused = failure(
        backend, wire, status=status, headers={"location": f"{other.base_url}/x?key={KEY}"}
    )
    assert refused.failure is Failure.REJECTED
    assert f"it sends us on to {other.base_url}/x, and redirects are not followed" in str(refused)
    assert other.log() == []
    assert len(wire.log()) == 1


@pytest.mark.parametrize("backend", MODELS)
def test_a_body_that_goes_on_is_not_read_on(wire, backend):
    wire.schedule(f"large:{LARGEST_BYTES}")
    with pytest.raises(Unmeasured, match="too large: more than 64 MB") as caught:
        asyncio.run(_ask(backend, wire.root if backend == "anthropic" else wire.base_url))
    assert (caught.value.failure, caught.value.transient) == (Failure.UNREADABLE, False)


def test_a_megabyte_that_unpacks_to_a_gigabyte_takes_no_such_memory(wire):
    tracemalloc.start()
    refused = failure("openai", wire, body=SAID, packed_mb=1000)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused.failure is Failure.UNREADABLE
    assert most < 5 * LARGEST_BYTES


def test_a_packed_answer_is_unpacked(wire):
    assert ask("openai", wire, body=SAID, packed_mb=1).text == "7"


@pytest.mark.parametrize("packed", ["br", "zstd", "gzip, gzip", "x"])
def test_what_is_packed_otherwise_or_twice_is_not_unpacked(wire, packed):
    refused = failure("openai", wire, body=SAID, headers={"content-encoding": packed})
    assert f"not asked for: {packed}" in str(refused)


@pytest.mark.parametrize("backend", MODELS)
@pytest.mark.parametrize(
    "reply",
    [
        {"body": "[" * 100_000},
        {"body": '{"choices": ' + "[" * 100_000},
        {"body": '{"error": ' + '{"a":' * 100_000},
        {"body": "[" + "[]," * 6_000_000 + "[]]"},
        {
            "body": '{"choices": [{"message": {"content": [{"text": {}}]}}], "content": [{"type": ["text"]}]}'  # noqa: E501
        },
        {"body": '{"choices": [{"message": [1]}], "content": [{"type": {}}], "usage": [1]}'},
        {"body": "9" * 10_000},
        {"body": "<html><title>Welcome</title>"},
        {"headers": {"content-encoding": "gzip"}, "body": "no gzip"},
    ],
)
def test_what_is_odd_in_a_reply_is_the_servers_fault_and_an_unreadable_answer(wire, backend, reply):
    """Some were called errors of the model's own, three of which end a run at first."""
    found = failure(backend, wire, **reply)
    assert found.failure is Failure.UNREADABLE
    assert len(str(found)) <= 500


@pytest.mark.parametrize("charset", ["undefined", "base64", "utf-16", "hex", "no-such"])
def test_json_is_utf_8_whatever_a_header_says(wire, charset):
    headers = {"content-type": f"application/json; charset={charset}"}
    assert ask("openai", wire, body=SAID, headers=headers).text == "7"


@pytest.mark.parametrize("backend", MODELS)
def test_what_was_sent_in_secret_is_hidden_in_all_that_is_kept(wire, backend):
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in KEY)
    words = f"{escaped} {KEY.replace('/', chr(92) + '/')} {KEY[3:17]} gateway-0123456789 7"
    body = (
        f'{{"choices": [{{"message": {{"content": "{words}"}}, "finish_reason": "{escaped}"}}], '
        f'"content": [{{"type": "text", "text": "{words}"}}], '
        f'"model": "{escaped}", "usage": {{"{escaped}": "{escaped}"}}}}'
    )
    answer = ask(backend, wire, body=body)
    assert answer.text == "[hidden] [hidden] [hidden] [hidden] 7"
    assert answer.model == "[hidden]"
    assert answer.usage == {"[hidden]": "[hidden]"}
    for status in (400, 200):
        found = str(
            failure(backend, wire, body=f'{{"error": {{"message": "{words}"}}}}', status=status)
        )
        assert "0123" not in found
        assert "[hidden]" in found


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://[::1/v1", "is no base URL"),
        ("http://xn--ä/v1", "is no base URL"),
        ("http://a:99999/v1", "is no base URL"),
        ("http://a:0/v1", "is no base URL"),
        ("http://256.1.1.1/v1", "is no base URL"),
        ("ftp://a/v1", "is no base URL"),
        ("localhost:8000/v1", "is no base URL"),
        ("http:///v1", "is no base URL"),
        ("http://me:secret0@a/v1", "holds a key"),
    ],
)
def test_what_is_no_address_is_refused_in_words(url, told):
    with pytest.raises(SettingsError, match=told) as caught:
        check_address(url)
    assert "secret0" not in str(caught.value)


def test_an_address_that_no_name_server_knows_is_a_lost_connection_and_no_outage():
    with pytest.raises(Unmeasured, match="No connection to") as caught:
        asyncio.run(_ask("openai", "http://no-such-host.invalid/v1"))
    assert (caught.value.failure, caught.value.outage, caught.value.spent) == (
        Failure.CONNECTION,
        False,
        None,
    )


@pytest.mark.parametrize("variable", ["ALL_PROXY", "HTTPS_PROXY"])
def test_a_proxy_that_is_none_is_told_in_words(variable, monkeypatch):
    monkeypatch.setenv(variable, "gopher://127.0.0.1:1")
    with pytest.raises(SettingsError, match="No connections can be made"):
        OpenAIModel("m", base_url="http://127.0.0.1:9/v1")


def test_no_proxy_stands_before_this_machines_own_servers(wire, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert asyncio.run(_ask("openai", wire.base_url)).text


@pytest.mark.parametrize("line", ["plain words", "x y: z", "x: \u00e9"])
def test_a_custom_header_that_is_none_is_told_and_not_shown(line, monkeypatch):
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", line)
    with pytest.raises(SettingsError, match="one a line") as caught:
        OpenAIModel("m", base_url="http://127.0.0.1:9/v1")
    assert line not in str(caught.value)


def test_an_unknown_model_is_told_by_the_address_that_knows_models(wire):
    wire.schedule("404")
    with pytest.raises(Unmeasured, match="does not exist"):
        asyncio.run(_ask("openai", wire.base_url))
    assert len(wire.log()) == 1
