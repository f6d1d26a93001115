"""The Anthropic back end against a real server process."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from needlemap.errors import Failure, SettingsError, Unmeasured
from needlemap.models import Answer, Decoding
from needlemap.models.anthropic import AnthropicModel, blocks, read
from needlemap.prompts import TEXT, Message, Prompt
from needlemap.text.tokens import TokenText

NEEDLE = "The best thing to do in San Francisco is eat a sandwich."
SPANS = (
    "Read this. ",
    "Dogs bark. ",
    NEEDLE,
    " The sky is blue.",
    "\n\nWhat is the best thing to do in San Francisco?",
)


def message(*texts: str, role: str = "user") -> Message:
    return Message(role, tuple(TokenText.opaque(text.encode()).span() for text in texts))


def prompt(*breakpoints: int, spans: tuple[str, ...] = SPANS) -> Prompt:
    system = message("Be brief.", role="system")
    return Prompt((system, message(*spans)), context=(1, 1, 4), breakpoints=breakpoints)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


async def _ask(model: AnthropicModel, asked: Prompt, decoding: Decoding) -> Answer:
    try:
        return await model.answer(asked, decoding)
    finally:
        await model.close()


def ask(
    wire: Any, asked: Prompt | None = None, decoding: Decoding | None = None, **options: Any
) -> Answer:
    model = AnthropicModel("claude", base_url=wire.root, **options)
    return asyncio.run(_ask(model, asked or prompt(), decoding or Decoding(timeout_s=250)))


def failure(wire: Any, fault: str) -> Unmeasured:
    wire.schedule(fault)
    with pytest.raises(Unmeasured) as caught:
        ask(wire)
    return caught.value


def test_an_answer_carries_text_finish_usage_and_model(wire):
    answer = ask(wire)
    assert answer.text == NEEDLE
    assert (answer.finish, answer.model, answer.completion_tokens) == ("stop", "claude", 12)
    assert answer.prompt_tokens == wire.log()[0]["prompt_words"]


def test_system_temperature_and_budget_are_where_the_api_wants_them(wire):
    ask(wire, decoding=Decoding(max_answer_tokens=50, request={"top_k": 5}))
    body = wire.log()[0]["body"]
    assert body["system"] == [{"type": "text", "text": "Be brief."}]
    assert [said["role"] for said in body["messages"]] == ["user"]
    assert (body["max_tokens"], body["temperature"], body["top_k"]) == (50, 0.0, 5)


def test_no_temperature_is_not_sent(wire):
    ask(wire, decoding=Decoding(temperature=None))
    assert "temperature" not in wire.log()[0]["fields"]


def test_a_plain_text_is_a_user_message_and_a_prefill_is_passed_on(wire):
    ask(wire, Prompt.plain([(TEXT, "Who?"), ("assistant", "It is")]))
    assert [said["role"] for said in wire.log()[0]["body"]["messages"]] == ["user", "assistant"]


def test_without_breakpoints_nothing_asks_to_be_cached(wire):
    ask(wire)
    assert "cache_control" not in str(wire.log()[0]["body"])


def test_breakpoints_split_the_message_and_ask_for_caching(wire):
    ask(wire, prompt(1, 3))
    content = wire.log()[0]["body"]["messages"][0]["content"]
    assert [block["text"] for block in content] == [
        "Read this. Dogs bark. ",
        NEEDLE + SPANS[3],
        SPANS[4],
    ]
    assert ["cache_control" in block for block in content] == [True, True, False]


def test_the_prompt_is_the_same_text_with_and_without_breakpoints(wire):
    ask(wire, prompt(1, 3))
    ask(wire, prompt(1, 3), cache=False)
    first, second = wire.log()
    assert first["prompt_sha256"] == second["prompt_sha256"]
    assert "cache_control" not in str(second["body"])


def test_what_is_written_to_the_cache_is_read_from_it(wire):
    written, found = ask(wire, prompt(1, 3)), ask(wire, prompt(1, 3))
    assert (written.cached_tokens, written.usage["cache_creation_input_tokens"]) == (0, 22)
    assert (found.cached_tokens, found.usage["cache_creation_input_tokens"]) == (22, 0)
    assert written.prompt_tokens == found.prompt_tokens == wire.log()[0]["prompt_words"]


def test_at_most_four_breakpoints_the_last_ones():
    made = blocks(message(*"abcdefgh"), (0, 1, 2, 3, 4, 5))
    assert [block["text"] for block in made] == ["abc", "d", "e", "f", "gh"]
    assert sum("cache_control" in block for block in made) == 4


def test_no_block_is_blank():
    assert [
        block["text"] for block in blocks(message("\n", "a", " ", "b", "\n"), (0, 1, 2, 3))
    ] == [
        "\na",
        " b\n",
    ]


def test_a_breakpoint_inside_a_character_moves_before_it():
    text = TokenText(
        "a€b".encode(), np.array([1, 2, 3], np.int32), np.array([0, 2, 4, 5], np.int64)
    )
    made = blocks(Message("user", (text.span(0, 1), text.span(1))), (0,))
    assert [block["text"] for block in made] == ["a", "€b"]


def test_prompt_tokens_add_up_the_three_counts():
    usage = {
        "input_tokens": 5,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": 1,
    }
    answer = read({"content": [{"type": "text", "text": "x"}], "usage": usage})
    assert (answer.prompt_tokens, answer.cached_tokens, answer.usage) == (125, 100, usage)


def test_thoughts_are_left_out_and_an_empty_answer_is_an_answer():
    thought = {"type": "thinking", "thinking": "hm"}
    assert read({"content": [thought, {"type": "text", "text": "x"}]}).text == "x"
    assert read({"content": [], "stop_reason": "refusal"}) == Answer("", "refusal")


@pytest.mark.parametrize(
    ("fault", "kind", "transient"),
    [
        ("429-after:2", Failure.RATE_LIMITED, True),
        ("reset", Failure.CONNECTION, True),
        ("invalid-json", Failure.UNREADABLE, True),
        ("wrong-shape", Failure.UNREADABLE, False),
        ("null-content", Failure.UNREADABLE, False),
    ],
)
def test_each_fault_is_named_and_marked_worth_asking_again_or_not(wire, fault, kind, transient):
    error = failure(wire, fault)
    assert (error.failure, error.transient) == (kind, transient)
    assert len(wire.log()) == 1, "a back end never retries"


def test_how_long_to_wait_is_read(wire):
    assert failure(wire, "429-after:2").retry_after_s == 2.0


def test_a_slow_answer_times_out(wire):
    wire.schedule("slow:60")
    with pytest.raises(Unmeasured) as caught:
        ask(wire, decoding=Decoding(timeout_s=0.3))
    assert caught.value.failure is Failure.TIMED_OUT


def test_anthropic_without_a_key_says_what_to_type():
    with pytest.raises(SettingsError, match="export ANTHROPIC_API_KEY="):
        AnthropicModel("claude")


def test_a_key_never_shows_in_an_error(wire, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "plainsecret42")
    error = failure(wire, "401")
    assert wire.log()[0]["had_key"]
    assert "plainsecret42" not in str(error)


def test_an_unknown_option_names_the_nearest():
    with pytest.raises(SettingsError, match="Did you mean 'cache'"):
        AnthropicModel("claude", cach=True)  # type: ignore[call-arg]
