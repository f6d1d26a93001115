"""The JSON joined from escaped slices is the JSON of the joined text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needlemap.models import Decoding
from needlemap.models.openai import Escaper, OpenAIModel, server_messages
from needlemap.prompts import TEXT, Message, Prompt
from needlemap.text.tokens import TokenText
from needlemap.tokenizers import load

LONG = 'He said "no\\yes".\n\tWhere\x00?\x1f\x7f 在上海，“怎么办”？\r\n🙂 e\u0301 \u2028'


@settings(deadline=None, max_examples=50)
@given(st.text(), st.integers(0, 10_000), st.integers(0, 10_000))
def test_slices_of_an_escaped_text_are_the_escaped_slices(text, start, stop):
    whole = load("cl100k_base").index((text + LONG * 1_000).encode())
    start, stop = sorted((start % (len(whole) + 1), stop % (len(whole) + 1)))
    found = Escaper().string([whole.span(start, stop), TokenText.opaque(b'\n"needle"').span()])
    assert (
        json.loads(found)
        == bytes(whole.span(start, stop).data).decode("utf-8", "replace") + '\n"needle"'
    )


def messages(prompt, system_role="system"):
    return [
        {"role": part.role, "content": part.content}
        for part in server_messages(prompt, system_role)
    ]


@pytest.mark.parametrize("role", ["system", "user"])
def test_a_request_is_the_json_of_its_fields(role):
    context = load("cl100k_base").index((LONG * 1_000).encode())
    prompt = Prompt(
        (
            Message("system", (TokenText.opaque(b"Be short.").span(),)),
            Message(
                "user", (context.span(0, 900), TokenText.opaque(b"?").span(), context.span(900))
            ),
        )
    )
    model = OpenAIModel("m", base_url="http://127.0.0.1:1/v1", system_role=role)
    for _ in range(2):  # the second time from what was remembered
        body = model.body(prompt, Decoding(7, 0.5, request={"top_k": 3, "stop": ["\n"]}))
        assert json.loads(body) == {
            "model": "m",
            "messages": messages(prompt, role),
            "temperature": 0.5,
            "max_tokens": 7,
            "top_k": 3,
            "stop": ["\n"],
        }


def test_a_completion_request_joins_messages_with_a_blank_line():
    model = OpenAIModel("m", base_url="http://127.0.0.1:1/v1", api="completions")
    body = model.body(Prompt.plain([("system", "A"), (TEXT, 'B "C"')]), Decoding(7, None))
    assert json.loads(body) == {"model": "m", "prompt": 'A\n\nB "C"', "max_tokens": 7}
