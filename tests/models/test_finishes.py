"""Which finish reason means what, in replies of both wire formats and in answers of functions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from needlemap.errors import Failure, Unmeasured
from needlemap.finishes import Ending, ending_of, is_unknown
from needlemap.models import Answer, Decoding, Model, anthropic
from needlemap.models.call import call_model
from needlemap.models.likelihood import rows_of
from needlemap.models.openai import read
from needlemap.prompts import Prompt

SAID = "The loc"


@pytest.mark.parametrize(
    ("words", "ending"),
    [
        ("stop end_turn stop_sequence eos_token COMPLETE FINISH_REASON_STOP", Ending.WHOLE),
        ("length max_tokens MAX_TOKENS maxTokens FinishReason.MAX_TOKENS limit", Ending.CUT),
        ("model_context_window_exceeded model_length", Ending.WINDOW),
        ("content_filter content-filter ContentFilter content_filtered SAFETY", Ending.FILTERED),
        ("RECITATION guardrail_intervened sensitive PROHIBITED_CONTENT", Ending.FILTERED),
        ("refusal", Ending.REFUSED),
        ("tool_calls tool-calls tool_use function_call MALFORMED_FUNCTION_CALL", Ending.TOOL_CALL),
        ("error Error ERROR abort aborted Aborted cancelled canceled CANCELED", Ending.BROKEN),
        ("timeout Time-Out timed_out engine_error network_error server_error", Ending.BROKEN),
        ("insufficient_system_resource upstream_error request_timeout", Ending.BROKEN),
        ("client_disconnected engine_overloaded pause_turn null None", Ending.BROKEN),
    ],
)
def test_words_are_known_in_any_case_and_with_any_marks(words: str, ending: Ending) -> None:
    assert {word: ending_of(word) for word in words.split()} == dict.fromkeys(words.split(), ending)


def test_what_a_gateway_puts_behind_a_word_does_not_hide_it() -> None:
    assert ending_of("content_filter: RECITATION") is Ending.FILTERED


def test_other_words_are_unknown_and_no_word_is_not() -> None:
    assert [is_unknown(word) for word in ("eol", "OTHER", "", None, "stop")] == [
        True,
        True,
        False,
        False,
        False,
    ]


BROKEN: dict[str, dict[str, Any]] = {
    "error": {"finish_reason": "error"},
    "spelt otherwise": {"finish_reason": "Network-Error"},
    "null": {"finish_reason": None},
    "empty": {"finish_reason": ""},
    "an object with a type": {"finish_reason": {"type": "abort", "message": "killed"}},
    "an object without one": {"finish_reason": {"reason": "error"}},
    "a list": {"finish_reason": ["aborted"]},
    "an error in the choice": {"finish_reason": "stop", "error": {"code": 502, "message": "up"}},
    "a text as the error": {"finish_reason": "length", "error": "upstream"},
}


@pytest.mark.parametrize("api", ["chat", "completions"])
@pytest.mark.parametrize("said", [SAID, "", None])
@pytest.mark.parametrize("choice", BROKEN.values(), ids=BROKEN)
def test_an_answer_that_the_server_broke_off_is_not_measured(choice, said, api):
    text = {"message": {"content": said}} if api == "chat" else {"text": said}
    usage = {"prompt_tokens": 9, "completion_tokens": 3}
    with pytest.raises(Unmeasured, match="broke the answer off") as caught:
        read({"choices": [{"index": 0, **text, **choice}], "usage": usage})
    assert (caught.value.failure, caught.value.transient) == (Failure.SERVER, True)
    assert caught.value.spent is not None, "it may be billed"


def test_the_servers_words_and_the_text_so_far_are_kept():
    choice = {
        "finish_reason": "error",
        "error": {"code": 502, "message": "Upstream died"},
        "message": {"content": SAID},
    }
    with pytest.raises(Unmeasured) as caught:
        read({"choices": [choice]})
    assert str(caught.value) == (
        "The server broke the answer off (finish reason 'error'): Upstream died. Its text so far: "
        "'The loc'"
    )


@pytest.mark.parametrize("reason", [None, ""])
def test_a_server_that_says_null_of_whole_answers_is_believed_where_that_was_typed(reason):
    choice = {"finish_reason": reason, "message": {"content": SAID}}
    with pytest.raises(Unmeasured, match="add --model-options null_finish=whole"):
        read({"choices": [choice]})
    answer = read({"choices": [choice]}, null_is_whole=True)
    assert (answer.text, answer.finish) == (SAID, None)
    for broken in ({"finish_reason": "error"}, {"error": "upstream"}):
        with pytest.raises(Unmeasured, match="broke the answer off"):
            read({"choices": [choice | broken]}, null_is_whole=True)
    with pytest.raises(Unmeasured):
        read({"choices": [{**choice, "message": {"content": None}}]}, null_is_whole=True)


@pytest.mark.parametrize("reason", ["pause_turn", "error", "Aborted", None, ""])
@pytest.mark.parametrize("content", [[{"type": "text", "text": SAID}], [], None])
def test_so_it_is_in_anthropics_format(reason, content):
    with pytest.raises(Unmeasured) as caught:
        anthropic.read({"content": content, "stop_reason": reason})
    assert (caught.value.failure, caught.value.transient) == (Failure.SERVER, True)


@pytest.mark.parametrize("said", [SAID, ""])
def test_a_full_context_window_is_not_measured_and_not_asked_again(said):
    name = "model_context_window_exceeded"
    with pytest.raises(Unmeasured, match="context window was full") as caught:
        anthropic.read({"content": [{"type": "text", "text": said}], "stop_reason": name})
    assert (caught.value.failure, caught.value.transient) == (Failure.SERVER, False)
    with pytest.raises(Unmeasured, match="context window was full"):
        read({"choices": [{"message": {"content": said}, "finish_reason": name}]})


def test_a_server_that_gives_no_finish_reason_at_all_is_believed():
    assert read({"choices": [{"message": {"content": SAID}}]}).text == SAID
    assert anthropic.read({"content": [{"type": "text", "text": SAID}]}).text == SAID


def test_of_an_unknown_reason_a_text_counts_and_no_text_is_not_measured():
    assert read({"choices": [{"message": {"content": SAID}, "finish_reason": "eol"}]}).text == SAID
    for content in ("", " ", None):
        with pytest.raises(Unmeasured, match=r"why is not known \(finish reason 'eol'\)") as caught:
            read({"choices": [{"message": {"content": content}, "finish_reason": "eol"}]})
        assert (caught.value.failure, caught.value.transient) == (Failure.SERVER, True)


@pytest.mark.parametrize("reason", [3, False, ["eol"]])
def test_a_reason_that_is_no_word_is_unknown_too(reason):
    answer = read({"choices": [{"message": {"content": SAID}, "finish_reason": reason}]})
    assert (answer.text, is_unknown(answer.finish)) == (SAID, True)
    with pytest.raises(Unmeasured, match="why is not known"):
        read({"choices": [{"message": {"content": ""}, "finish_reason": reason}]})


@pytest.mark.parametrize("finish", ["SAFETY", "content_filter: RECITATION", "content-filter"])
def test_a_filtered_answer_without_a_text_is_an_answer(finish):
    answer = read({"choices": [{"message": {"role": "assistant"}, "finish_reason": finish}]})
    assert (answer.text, answer.finish) == ("", finish)


class Fixed(Model):
    """Says what it was built with, as a function of a user's may."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        return self._answer


def call(answer: Answer) -> Answer:
    prompt = Prompt.plain([("user", "Who?")])
    return asyncio.run(call_model(Fixed(answer), prompt, Decoding()))


def test_an_answer_of_any_back_end_is_held_to_the_same():
    assert call(Answer(SAID)).text == SAID
    assert call(Answer(SAID, "length")).text == SAID
    with pytest.raises(Unmeasured, match="broke the answer off") as caught:
        call(Answer(SAID, "Cancelled", prompt_tokens=7, completion_tokens=2))
    spent = caught.value.spent
    assert spent is not None
    assert (spent.prompt_tokens, spent.answer_tokens) == (7, 2)


def reply(**usage: int) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "length", "message": {"role": "assistant"}}
    return {"choices": [choice], "usage": {"prompt_tokens": 1000, "completion_tokens": 0, **usage}}


def test_tokens_that_are_in_the_total_alone_were_thought():
    answer = read(reply(total_tokens=1047))
    assert (answer.text, answer.thinking_tokens, answer.completion_tokens) == ("", 47, 47)


def test_thinking_that_is_counted_or_shown_is_no_prompt_that_is_too_long():
    told = reply(total_tokens=1000)
    told["usage"]["completion_tokens_details"] = {"reasoning_tokens": 64}
    assert read(told).thinking_tokens == 64
    shown = reply(total_tokens=1000)
    shown["choices"][0]["message"]["reasoning_content"] = "Let me see"
    assert read(shown).thinking == "Let me see"


@pytest.mark.parametrize("usage", [{}, {"total_tokens": 1000}])
def test_no_token_at_all_is_a_prompt_that_is_too_long(usage):
    with pytest.raises(Unmeasured) as caught:
        read(reply(**usage))
    assert caught.value.failure is Failure.TOO_LONG


def choices(*rows: tuple[object, str]) -> dict[str, Any]:
    """Choices with an index ('none': without) and a text."""
    return {
        "choices": [
            {
                "message": {"content": text},
                "finish_reason": "stop",
                "logprobs": {"content": [{"token": text, "logprob": -1.0}]},
                **({} if index == "none" else {"index": index}),
            }
            for index, text in rows
        ]
    }


@pytest.mark.parametrize(
    "rows",
    [
        [(1, "b"), (0, "a")],
        [("none", "b"), (0, "a")],
        [(1, "b"), ("none", "a")],
        [("none", "a"), ("none", "b")],
        [(None, "a"), (1, "b")],
        [(0, "a"), (0, "a")],
    ],
)
def test_the_choice_with_index_0_counts_wherever_it_stands(rows):
    body = choices(*rows)
    assert read(body).text == "a"
    assert rows_of(body)[0][0] == "a"


@pytest.mark.parametrize("rows", [[], [(0, "a"), (0, "b")], [(1, "a"), (2, "b")]])
def test_a_list_without_one_choice_0_is_unreadable(rows):
    with pytest.raises(Unmeasured) as caught:
        read(choices(*rows))
    assert caught.value.failure is Failure.UNREADABLE
