"""Streams of server-sent events: what they add up to, however they are cut, and what is missing."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from needlemap.errors import Failure, Unmeasured
from needlemap.http.events import Event, EventReader, StreamedReply, is_stream
from needlemap.models.anthropic import read as read_messages
from needlemap.models.openai import read

TEXT = "Größe: 12.5 µm, 在上海 🙂."


def event(data: Any, name: str = "", end: str = "\n") -> str:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return (f"event: {name}{end}" if name else "") + f"data: {text}{end}{end}"


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> Any:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish, **more}
    return {
        "id": "c-1",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [choice],
        "usage": None,
    }


def said(text: str) -> list[Any]:
    return [chunk({"content": letter}) for letter in text]


USAGE = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}
REPORT = {"id": "c-1", "object": "chat.completion.chunk", "choices": [], "usage": USAGE}
START, STOP = chunk({"role": "assistant", "content": ""}), chunk({}, "stop")
CHAT = "".join(map(event, [START, *said(TEXT), STOP, REPORT, "[DONE]"]))
UNSTREAMED = {
    "id": "c-1",
    "object": "chat.completion",
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": TEXT},
            "finish_reason": "stop",
        }
    ],
    "usage": USAGE,
}
MESSAGES = "".join(
    event(data, data["type"])
    for data in [
        {
            "type": "message_start",
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "claude",
                "content": [],
                "stop_reason": None,
                "usage": {"input_tokens": 25, "cache_read_input_tokens": 5, "output_tokens": 1},
            },
        },
        {"type": "ping"},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "thinking_delta", "thinking": "Hm"},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "signature_delta", "signature": "EqQB"},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        *(
            {
                "type": "content_block_delta",
                "index": 1,
                "delta": {"type": "text_delta", "text": letter},
            }
            for letter in TEXT
        ),
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 15},
        },
        {"type": "message_stop"},
    ]
)


def streamed(data: str | bytes, size: int = 2**20) -> dict[str, Any]:
    """The reply that a stream adds up to, read in pieces of so many bytes."""
    reply = StreamedReply()
    whole = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    for at in range(0, len(whole), size):
        reply.feed(whole[at : at + size], float(at))
    return reply.joined_body()


def of(*values: Any, done: bool = True) -> dict[str, Any]:
    return streamed("".join(map(event, [*values, *(["[DONE]"] if done else [])])))


def failure(data: str) -> Unmeasured:
    with pytest.raises(Unmeasured) as caught:
        streamed(data)
    return caught.value


def outcome(data: bytes) -> dict[str, Any] | Unmeasured:
    """The reply, or why there is none."""
    try:
        return streamed(data)
    except Unmeasured as failure:
        return failure


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
def test_a_chat_is_the_reply_that_is_sent_when_nothing_is_streamed(size):
    assert streamed(CHAT, size) == UNSTREAMED


@pytest.mark.parametrize("size", [1, 3, 10_000])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_of_three_kinds_are_read_wherever_a_piece_ends(size, end):
    assert streamed(CHAT.replace("\n", end), size) == UNSTREAMED


@pytest.mark.parametrize("size", [1, 50, 10_000])
def test_messages_of_anthropics_kind_are_the_reply_that_is_sent_otherwise(size):
    assert streamed(MESSAGES, size) == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [
            {"type": "thinking", "thinking": "Hm", "signature": "EqQB"},
            {"type": "text", "text": TEXT},
        ],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 25, "cache_read_input_tokens": 5, "output_tokens": 15},
    }


def test_both_are_read_by_the_functions_that_read_unstreamed_replies():
    assert read(streamed(CHAT)) == read(UNSTREAMED)
    answer = read_messages(streamed(MESSAGES))
    assert (answer.text, answer.thinking, answer.finish) == (TEXT, "Hm", "stop")
    assert (answer.prompt_tokens, answer.completion_tokens) == (30, 15)


def test_keep_alives_are_no_part_of_an_answer():
    alive = [
        ": OPENROUTER PROCESSING\n\n",
        "\n\n",
        "  \n",
        "data:\n\n",
        "event: ping\ndata: {}\n\n",
    ]
    lines = CHAT.split("\n\n")
    noisy = "".join(f"{line}\n\n{alive[at % len(alive)]}" for at, line in enumerate(lines) if line)
    assert streamed("".join(alive) + noisy, 5) == UNSTREAMED
    assert streamed("\ufeff" + CHAT, 1) == UNSTREAMED
    assert streamed("retry: 10\nid: 7\n\n" + CHAT) == UNSTREAMED


def test_data_of_several_lines_is_one_value_and_values_without_a_blank_line_are_several():
    spread = json.dumps(STOP, indent=1).replace("\n", "\ndata: ")
    assert streamed(CHAT.replace(json.dumps(STOP, ensure_ascii=False), spread)) == UNSTREAMED
    assert streamed(CHAT.replace("\n\n", "\n")) == UNSTREAMED
    assert streamed(CHAT.replace("data: ", "data:")) == UNSTREAMED


@pytest.mark.parametrize("data", [CHAT, MESSAGES], ids=["chat", "messages"])
def test_a_stream_that_is_cut_anywhere_is_missing_or_the_whole_answer(data):
    """Half an answer would be a false score."""
    bodies = [outcome(data.encode()[:end]) for end in range(len(data.encode()))]
    cuts = [body for body in bodies if isinstance(body, Unmeasured)]
    assert {(cut.failure, cut.transient) for cut in cuts} == {(Failure.UNREADABLE, True)}
    assert all(cut.spent is not None for cut in cuts), "they may be billed"
    whole = streamed(data)
    kept = [body for body in bodies if isinstance(body, dict)]
    assert all(body.get("choices") == whole.get("choices") for body in kept)
    assert all(body.get("content") == whole.get("content") for body in kept)
    assert len(kept) < 200


def test_what_was_cut_is_said_with_its_last_words():
    cut = failure("".join(map(event, [START, *said("The code is 5")])))
    assert "The stream was cut before the answer ended: " in str(cut)
    assert "The code is 5" in str(cut)
    assert "The stream was cut" in str(failure(": ping\n\n"))


def test_an_answer_that_ended_is_whole_without_the_last_event():
    """Some servers send no [DONE]."""
    assert of(START, *said("7"), STOP, done=False)["choices"][0]["message"]["content"] == "7"
    assert of(START, *said("7"), chunk({}, "length"), done=False)["choices"][0]["finish_reason"]


def test_an_end_without_a_reason_is_an_answer_that_the_server_broke_off():
    with pytest.raises(Unmeasured, match="broke the answer off"):
        read(of(START, *said("7")))
    assert read(of(START, *said("7")), null_is_whole=True).text == "7"
    told = [{"choices": [{"index": 0, "delta": {"content": "7"}}]}]
    assert read(of(*told)).text == "7", "as of a reply that has no such field"


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (
            {"error": {"message": "Overloaded", "code": 503}},
            {"message": "Overloaded", "code": 503},
        ),
        (
            {"error": {"message": "no", "type": "server_error", "code": None}},
            {"message": "no", "type": "server_error", "code": 500, "reason": None},
        ),
        ({"error": "CUDA out of memory"}, "CUDA out of memory"),
        (
            {"object": "error", "message": "no", "code": 400},
            {"object": "error", "message": "no", "code": 400},
        ),
        (
            {"code": "InvalidParameter", "message": "Range of input length", "request_id": "1"},
            {"code": "InvalidParameter", "message": "Range of input length", "request_id": "1"},
        ),
    ],
)
def test_an_error_in_mid_stream_takes_the_place_of_the_answer(sent, error):
    assert of(START, *said("The lo"), sent) == {"error": error}
    assert of(sent) == {"error": error}


@pytest.mark.parametrize("code", [0, "0", 200, None, "success"])
def test_a_code_that_says_that_all_is_well_is_no_error(code):
    body = of(START, *said("7"), STOP, {"code": code, "message": "success"})
    assert read(body).text == "7"


def test_errors_that_have_a_name_instead_of_a_status():
    sent = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    body = streamed(MESSAGES.partition("event: content_block_stop")[0] + event(sent, "error"))
    assert body["error"]["code"] == 529
    assert streamed(CHAT[:200].rpartition("\n\n")[0] + '\n\nerror: {"code": 500}\n\n') == {
        "error": {"code": 500}
    }
    assert streamed(event("no room", "error")) == {"error": {"message": "no room"}}
    limited = {"error": {"message": "wait", "type": "tokens", "code": "rate_limit_exceeded"}}
    assert of(limited)["error"]["code"] == 429


def test_an_error_beside_a_choice_is_read_as_without_streaming():
    """OpenRouter sends both, and a finish reason."""
    error = {"code": 502, "message": "upstream"}
    broken = of(START, *said("The loc"), {**chunk({}, "error"), "error": error})
    assert broken["error"] == error
    inside = of(START, *said("The loc"), chunk({}, "error", error=error))
    with pytest.raises(Unmeasured, match="upstream"):
        read(inside)


def test_thinking_is_kept_apart_in_every_dialect():
    for name in ("reasoning_content", "reasoning"):
        body = of(START, chunk({name: "H"}), chunk({name: "m."}), *said("7"), STOP)
        assert (read(body).thinking, read(body).text) == ("Hm.", "7")


def test_parts_that_are_lists_and_texts_behind_them():
    """Mistral's thinking models."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}
    for first in (chunk({"role": "assistant", "content": ""}), chunk({"content": None})):
        body = of(first, chunk({"content": [thought]}), chunk({"content": [thought]}), *said("42"))
        body["choices"][0]["finish_reason"] = "stop"
        assert (read(body).thinking, read(body).text) == ("HmHm", "42")
    body = of(*said("Hi "), chunk({"content": [{"type": "text", "text": "there"}]}), STOP)
    assert read(body).text == "Hi there"


def test_tool_calls_alone_are_no_answer():
    calls = [chunk({"tool_calls": [{"index": 0, **fields}]}) for fields in ({"id": "a"}, {})]
    with pytest.raises(Unmeasured, match="holds no text"):
        read(of(*calls, chunk({}, "tool_calls")))


def test_log_probabilities_are_those_of_all_chunks():
    rows = [{"token": each, "logprob": -0.5, "top_logprobs": []} for each in "42"]
    chat = of(*(chunk({"content": r["token"]}, logprobs={"content": [r]}) for r in rows), STOP)
    assert chat["choices"][0]["logprobs"] == {"content": rows}
    columns = [
        {"tokens": ["4"], "token_logprobs": [-0.5], "top_logprobs": [{"4": -0.5}]},
        {"tokens": ["2"], "token_logprobs": [-0.1], "top_logprobs": [{"2": -0.1}]},
    ]
    texts = of(
        *(
            {"choices": [{"index": 0, "text": t, "logprobs": row, "finish_reason": None}]}
            for t, row in zip("42", columns, strict=True)
        ),
        {"choices": [{"index": 0, "text": "", "logprobs": None, "finish_reason": "length"}]},
    )
    assert texts["choices"][0]["text"] == "42"
    assert texts["choices"][0]["logprobs"]["token_logprobs"] == [-0.5, -0.1]
    assert read(texts).logprobs.tokens == ("4", "2")


@pytest.mark.parametrize("first", [{"role": "assistant", "content": None}, {"role": "assistant"}])
def test_an_answer_without_a_word_is_empty_and_the_models(first):
    answer = read(of(chunk(first), STOP))
    assert (answer.text, answer.finish) == ("", "stop")


def test_only_the_first_of_several_choices_is_the_answer():
    other = {"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": "stop"}]}
    assert read(of(other, *said("7"), STOP)).text == "7"


def test_a_usage_report_is_found_in_every_place():
    inside = chunk({}, "stop", usage=USAGE)
    assert read(of(*said("7"), inside)).prompt_tokens == 12  # Moonshot
    running = {**chunk({"content": "7"}), "usage": {"prompt_tokens": 12, "completion_tokens": 1}}
    assert read(of(running, {**STOP, "usage": USAGE})).completion_tokens == 5  # the last one counts


def test_messages_repeated_beside_deltas_are_not_added_up():
    """Perplexity repeats in each chunk what was said so far."""
    first = chunk({"content": "4"}, message={"content": "4"})
    assert read(of(first, chunk({"content": "2"}, "stop", message={"content": "42"}))).text == "42"
    whole = {"choices": [{"index": 0, "message": {"content": "42"}, "finish_reason": "stop"}]}
    assert read(of(whole)).text == "42"


def test_the_events_of_openais_responses_end_in_the_whole_reply():
    reply = {"id": "r", "status": "completed", "output": [{"type": "message"}]}
    events = [
        {"type": "response.created", "response": {"id": "r"}},
        {"type": "response.output_text.delta", "delta": "4"},
        {"type": "response.completed", "response": reply},
    ]
    assert of(*events, done=False) == reply
    with pytest.raises(Unmeasured, match="was cut"):
        of(*events[:2], done=False)


@pytest.mark.parametrize("data", ["7", '"x"', "[1]", "null", "{", "<html>", "{}]"])
def test_data_that_is_no_object_is_unreadable_and_not_left_out(data):
    """It may have been a part of the answer."""
    found = failure(event(START) + event(data) + CHAT)
    assert found.failure is Failure.UNREADABLE


@pytest.mark.parametrize(
    "data", ['{"choices":' + "[" * 100_000, '{"choices":[{"delta":' + '{"a":' * 600 + "1"]
)
def test_what_lies_deep_is_an_error_in_words(data):
    closed = data + "}" * 601 + "}]}" if data.endswith("1") else data
    made = outcome((event(closed) + CHAT).encode())
    assert isinstance(made, dict) or made.failure is Failure.UNREADABLE


def test_the_first_token_is_the_first_piece_of_an_answer_or_of_its_thinking():
    def first(*values: Any) -> float | None:
        reply = StreamedReply()
        for at, value in enumerate(values):
            reply.feed(event(value).encode(), float(at))
        return reply.first_token_at

    assert first(START, *said("42"), STOP) == 1.0
    assert first(START, chunk({"content": ""}), chunk({"reasoning_content": "H"}), STOP) == 2.0
    assert first(START, chunk({"tool_calls": [{"index": 0}]})) == 1.0
    assert first({"choices": [{"text": ""}]}, {"choices": [{"text": "4"}]}) == 1.0
    assert first(START, STOP) is None
    assert (
        first(*(json.loads(row.partition("data: ")[2]) for row in MESSAGES.split("\n\n")[:4]))
        == 3.0
    )


def test_long_answers_take_time_that_grows_with_their_length():
    """Texts that were added up piece by piece took the square of it."""
    body = of(*[chunk({"content": "word " * 20})] * 20_000, STOP)
    assert len(body["choices"][0]["message"]["content"]) == 2_000_000


@pytest.mark.parametrize(
    ("start", "media_type", "whether"),
    [
        (b"data: {", "application/json", True),
        (b": ping\n\n", "", True),
        (b"event: message_start", "", True),
        (b"\xef\xbb\xbfdata: x", "", True),
        (b"\n\n data: x", "text/plain", True),
        (b'{"choices": []}', "text/event-stream; charset=utf-8", False),
        (b"<html><head>", "text/html", False),
        (b"<html><head>", "text/event-stream", True),
        (b"", "text/event-stream", None),
        (b"da", "text/event-stream", None),
        (b"database is down", "application/json", False),
    ],
)
def test_the_first_letters_tell_a_stream_from_json(start, media_type, whether):
    assert is_stream(start, media_type) is whether


@given(st.text(), st.integers(1, 9))
def test_any_text_comes_through_whole(text, size):
    body = streamed("".join(map(event, [START, *said(text), STOP, "[DONE]"])), size)
    assert body["choices"][0]["message"]["content"] == text


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_events_do_not_depend_on_where_pieces_end(data, cuts):
    def events(pieces: list[bytes]) -> list[Event]:
        reader = EventReader()
        return [*(e for piece in pieces for e in reader.feed(piece)), *reader.close()]

    places = [0, *sorted(cuts), len(data)]
    pieces = [data[one:other] for one, other in pairwise(places)]
    lined = data.replace(b"x", b"\n").replace(b"y", b"\r").replace(b"z", b"data:")
    assert events([lined[i : i + 1] for i in range(len(lined))]) == events([lined])
    assert events(pieces) == events([data])


NAMES = (
    *("choices", "delta", "message", "content", "text", "index", "logprobs", "tool_calls"),
    *("usage", "error", "type", "finish_reason", "content_block", "code", "function"),
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(NAMES),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
_KINDS = st.sampled_from(
    ["", "message_start", "content_block_start", "content_block_delta", "error"]
)


@given(st.lists(st.tuples(_JSON, _KINDS), max_size=4))
def test_whatever_comes_is_a_reply_or_unreadable(values):
    data = "".join(
        event({**value, **({"type": kind} if kind else {})} if isinstance(value, dict) else value)
        for value, kind in values
    )
    made = outcome((data + event("[DONE]")).encode())
    if isinstance(made, Unmeasured):
        assert made.failure is Failure.UNREADABLE
    else:
        json.dumps(made)
