"""The OpenAI back end against a real server process."""

from __future__ import annotations

import asyncio
import socket
from time import perf_counter
from typing import Any

import pytest

from needlemap.errors import Failure, SettingsError, Unmeasured
from needlemap.models import Answer, Decoding
from needlemap.models.openai import OpenAIModel, read, server_messages
from needlemap.prompts import TEXT, Prompt

KEY = "sk-test-0123456789abcdef"
NEEDLE = "The best thing to do in San Francisco is eat a sandwich."
PROMPT = Prompt.plain(
    [
        ("system", "Answer from the text."),
        (
            "user",
            f"Dogs bark. {NEEDLE} The sky is blue.\n\nWhat is the best thing to do in San "
            f"Francisco?",
        ),
    ]
)


def messages(prompt, system_role="system"):
    return [
        {"role": part.role, "content": part.content}
        for part in server_messages(prompt, system_role)
    ]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


async def _ask(model: OpenAIModel, prompt: Prompt, decoding: Decoding) -> Answer:
    try:
        return await model.answer(prompt, decoding)
    finally:
        await model.close()


def ask(
    wire: Any,
    name: str = "m",
    prompt: Prompt = PROMPT,
    decoding: Decoding | None = None,
    **options: Any,
) -> Answer:
    model = OpenAIModel(name, base_url=wire.base_url, **options)
    return asyncio.run(_ask(model, prompt, decoding or Decoding(timeout_s=250)))


def failure(wire: Any, fault: str, **options: Any) -> Unmeasured:
    wire.schedule(fault)
    with pytest.raises(Unmeasured) as caught:
        ask(wire, **options)
    return caught.value


def test_an_answer_carries_text_finish_usage_model_and_latency(wire):
    answer = ask(wire)
    assert answer.text == NEEDLE
    assert (answer.finish, answer.model) == ("stop", "m")
    assert answer.completion_tokens == 12
    assert answer.prompt_tokens == answer.usage["prompt_tokens"] == 32
    assert answer.latency_s > 0


def test_the_request_holds_what_the_decoding_says_and_no_more(wire):
    ask(wire)
    (request,) = wire.log()
    assert request["fields"] == ["max_tokens", "messages", "model", "temperature"]
    assert request["body"]["max_tokens"] == 300
    assert request["body"]["messages"][0] == {"role": "system", "content": "Answer from the text."}


def test_no_temperature_is_not_sent(wire):
    ask(wire, decoding=Decoding(temperature=None))
    assert "temperature" not in wire.log()[0]["fields"]


def test_request_fields_are_added_and_override(wire):
    ask(
        wire,
        decoding=Decoding(
            request={"temperature": 0.5, "top_k": 3, "chat_template_kwargs": {"a": 1}}
        ),
    )
    body = wire.log()[0]["body"]
    assert (body["temperature"], body["top_k"], body["chat_template_kwargs"]) == (0.5, 3, {"a": 1})


def test_an_answer_budget_in_the_request_replaces_ours(wire):
    ask(wire, decoding=Decoding(request={"max_completion_tokens": 7}))
    body = wire.log()[0]["body"]
    assert body["max_completion_tokens"] == 7
    assert "max_tokens" not in body


@pytest.mark.parametrize("field", ["model", "messages", "stream", "n"])
def test_request_fields_that_change_the_question_are_refused(wire, field):
    with pytest.raises(SettingsError, match=f"'{field}' cannot be set"):
        ask(wire, decoding=Decoding(request={field: 1}))
    assert wire.log() == []


def test_the_budget_field_can_be_named(wire):
    ask(wire, max_tokens_field="max_completion_tokens")
    assert "max_completion_tokens" in wire.log()[0]["fields"]


def test_openai_itself_gets_the_newer_budget_field(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert OpenAIModel("gpt-4o").max_tokens_field == "max_completion_tokens"
    assert OpenAIModel("davinci-002", api="completions").max_tokens_field == "max_tokens"


def test_a_cut_off_answer_is_an_answer(wire):
    answer = ask(wire, decoding=Decoding(max_answer_tokens=3))
    assert (answer.text, answer.finish) == ("The best thing", "length")


def test_completions_send_one_text(wire):
    plain = Prompt.plain([(TEXT, f"Dogs bark. {NEEDLE}\nWhat is the best thing to do?")])
    assert ask(wire, prompt=plain, api="completions").text == NEEDLE
    (request,) = wire.log()
    assert request["path"] == "/v1/completions"
    assert request["body"]["prompt"] == plain.messages[0].content


def test_completions_join_chat_messages(wire):
    ask(wire, api="completions")
    assert wire.log()[0]["body"]["prompt"].startswith("Answer from the text.\n\nDogs bark.")


def test_a_plain_text_is_one_user_message_in_chat(wire):
    ask(wire, prompt=Prompt.plain([(TEXT, "Who?")]))
    assert wire.log()[0]["body"]["messages"] == [{"role": "user", "content": "Who?"}]


def test_an_answers_first_words_are_passed_on(wire):
    ask(wire, prompt=Prompt.plain([("user", "Who?"), ("assistant", "It is")]))
    assert wire.log()[0]["body"]["messages"][-1] == {"role": "assistant", "content": "It is"}


def test_the_system_text_can_be_the_developers_or_open_the_users():
    assert messages(PROMPT, "developer")[0]["role"] == "developer"
    (only,) = messages(PROMPT, "user")
    assert only["role"] == "user"
    assert only["content"].startswith("Answer from the text.\n\nDogs bark.")


def test_shared_prefixes_are_reported_as_cached_tokens(wire):
    assert ask(wire).cached_tokens == 0
    assert ask(wire).cached_tokens == 32


@pytest.mark.parametrize(
    ("body", "cached"),
    [
        ({"usage": {"prompt_tokens_details": {"cached_tokens": 5}}}, 5),
        ({"usage": {"prompt_cache_hit_tokens": 6}}, 6),
        ({"usage": {"prompt_tokens_details": None}, "timings": {"cache_n": 7}}, 7),
        ({"usage": None}, None),
        ({}, None),
    ],
)
def test_cached_tokens_are_read_in_each_dialect(body, cached):
    answer = read({"choices": [{"message": {"content": "x"}}], **body})
    assert answer.cached_tokens == cached
    assert answer.usage == (body.get("usage") or {})


def test_missing_usage_is_unknown_not_zero(wire):
    wire.schedule("no-usage")
    answer = ask(wire)
    assert (answer.prompt_tokens, answer.completion_tokens, answer.usage) == (None, None, {})


def test_an_empty_answer_is_an_answer(wire):
    wire.schedule("empty-answer")
    assert ask(wire).text == ""


@pytest.mark.parametrize(
    ("fault", "text", "finish"),
    [
        ("refusal", "I cannot help with that.", "refusal"),
        ("filtered", "", "content_filter"),
        ("thinking", "", "length"),
    ],
)
def test_refusals_and_cut_off_thoughts_are_the_models(wire, fault, text, finish):
    wire.schedule(fault)
    answer = ask(wire)
    assert (answer.text, answer.finish) == (text, finish)


def test_content_in_parts_is_joined():
    parts = [
        {"type": "thinking", "thinking": []},
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]
    assert read({"choices": [{"message": {"content": parts}}]}).text == "ab"


@pytest.mark.parametrize(
    ("fault", "kind", "transient"),
    [
        ("429-large", Failure.RATE_LIMITED, False),
        ("reset", Failure.CONNECTION, True),
        ("cut", Failure.CONNECTION, True),
        ("invalid-json", Failure.UNREADABLE, True),
        ("wrong-shape", Failure.UNREADABLE, False),
        ("array", Failure.UNREADABLE, False),
        ("empty-choices", Failure.UNREADABLE, False),
        ("null-content", Failure.UNREADABLE, False),
        ("error-200:502", Failure.SERVER, True),
        ("unwritten", Failure.TOO_LONG, False),
    ],
)
def test_each_fault_is_named_and_marked_worth_asking_again_or_not(wire, fault, kind, transient):
    error = failure(wire, fault)
    assert (error.failure, error.transient) == (kind, transient)
    assert len(wire.log()) == 1, "a back end never retries"


def test_a_server_with_a_short_context_says_so(wires):
    small = wires("--max-context", "10")
    with pytest.raises(Unmeasured, match="maximum context length") as caught:
        ask(small)
    assert caught.value.failure is Failure.TOO_LONG


@pytest.mark.parametrize(
    ("fault", "wait_s"),
    [("429-after:3", 3.0), ("429-ms:150", 0.15), ("429", None), ("503:1.5", 1.5)],
)
def test_how_long_to_wait_is_read(wire, fault, wait_s):
    assert failure(wire, fault).retry_after_s == wait_s


def test_how_long_to_wait_is_read_from_a_date(wire):
    wait_s = failure(wire, "429-date:60").retry_after_s
    assert wait_s is not None
    assert 57 < wait_s <= 60


def test_a_slow_answer_times_out_in_the_time_allowed(wire):
    start = perf_counter()
    error = failure(wire, "slow:60", decoding=Decoding(timeout_s=0.3))
    assert (error.failure, error.transient) == (Failure.TIMED_OUT, True)
    assert "timeout_s" in str(error)
    assert perf_counter() - start < 30  # one after the other: 400


def test_a_server_that_is_not_there_is_a_lost_connection(wires):
    gone = wires()
    gone.stop()
    with pytest.raises(Unmeasured, match=gone.base_url) as caught:
        ask(gone)
    assert (caught.value.failure, caught.value.transient) == (Failure.CONNECTION, True)


def test_a_connection_that_nobody_answers_is_lost_and_was_not_billed():
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the connection, says nothing
        address = f"https://127.0.0.1:{silent.getsockname()[1]}/v1"
        model = OpenAIModel("m", base_url=address)
        with pytest.raises(Unmeasured, match=r"it did not answer for 4\.5 s") as lost:
            asyncio.run(_ask(model, PROMPT, Decoding(timeout_s=5)))
    assert (lost.value.failure, lost.value.transient) == (Failure.CONNECTION, True)


def test_a_local_server_needs_no_key(wire):
    ask(wire)
    assert not wire.log()[0]["had_key"]


def test_a_key_that_is_set_is_sent(wire, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    ask(wire, key_env="MY_KEY")
    assert wire.log()[0]["had_key"]


def test_openai_without_a_key_says_what_to_type():
    with pytest.raises(SettingsError, match="export OPENAI_API_KEY="):
        OpenAIModel("gpt-4o")


def test_a_named_key_must_be_set(wire):
    with pytest.raises(SettingsError, match="export MY_KEY="):
        OpenAIModel("m", base_url=wire.base_url, key_env="MY_KEY")


def test_a_key_never_shows_in_an_error(wire, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "plainsecret42")
    error = failure(wire, "401")
    assert "plainsecret42" not in str(error)
    assert "[hidden]" in str(error)


def test_a_key_with_a_stray_character_is_refused_unseen(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-abc…def")
    with pytest.raises(SettingsError, match="Copy it again") as caught:
        OpenAIModel("gpt-4o")
    assert "abc" not in str(caught.value)


def test_error_texts_are_short(wire):
    wire.schedule("say:" + "x" * 2000, "wrong-shape")
    ask(wire)
    assert len(str(failure(wire, "too-long:proxy"))) <= 500


def test_the_environments_base_url_is_used_and_told(wire, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", wire.base_url)
    assert OpenAIModel("m").base_url == wire.base_url


def test_a_base_url_without_a_scheme_is_refused():
    with pytest.raises(SettingsError, match="Type one such as http://localhost:8000/v1"):
        OpenAIModel("m", base_url="localhost:8000/v1")


def test_an_unknown_option_names_the_nearest(wire):
    with pytest.raises(SettingsError, match="Did you mean 'base_url'"):
        OpenAIModel("m", bas_url=wire.base_url)  # type: ignore[call-arg]


def test_an_option_of_the_wrong_value_is_refused(wire):
    with pytest.raises(
        SettingsError,
        match="Option 'api' of OpenAIModel must be 'chat', 'completions' or 'responses'",
    ):
        OpenAIModel("m", base_url=wire.base_url, api="chats")  # type: ignore[arg-type]


async def _many(model: OpenAIModel, count: int) -> list[Answer]:
    try:
        return await asyncio.gather(*(model.answer(PROMPT, Decoding()) for _ in range(count)))
    finally:
        await model.close()


def test_many_requests_run_at_once(wire):
    wire.schedule(*["slow:2"] * 20)
    start = perf_counter()
    answers = asyncio.run(_many(OpenAIModel("m", base_url=wire.base_url), 20))
    assert {answer.text for answer in answers} == {NEEDLE}
    assert perf_counter() - start < 30  # one after the other: 40


SHARING = ("--lengths", "600", "--depths", "0:100:8", "--repeats", "1", "--no-canary")


@pytest.mark.parametrize(
    ("server", "lanes", "slots"),
    [
        (("--owner", "llamacpp", "--slots", "4"), 4, {0, 1, 2, 3}),
        (("--owner", "llamacpp", "--slots", "4"), 2, {0, 1}),
        (("--owner", "llamacpp", "--slots", "2"), 4, {0, 1}),  # two at a time: it has no more
        (("--owner", "llamacpp", "--slots", "4"), 1, {None}),  # the server finds the one cache
        (("--owner", "vllm", "--slots", "4"), 4, {None}),  # no other server may get this field
        (("--slots", "4"), 4, {None}),
        ((), 4, {None}),
    ],
)
def test_lanes_are_kept_to_slots_of_llama_cpp_and_of_no_other_server(
    wires, needlemap, server, lanes, slots
):
    wire = wires(*server)
    needlemap.run(wire, *SHARING, "--concurrency", lanes)
    assert {each["body"].get("id_slot") for each in wire.log()} == slots


def test_a_slot_that_the_user_names_is_sent(wires, needlemap):
    wire = wires("--owner", "llamacpp", "--slots", "4")
    needlemap.run(wire, *SHARING, "--concurrency", "4", "--request", "id_slot=2")
    assert {each["body"]["id_slot"] for each in wire.log()} == {2}


def test_prompts_that_share_little_are_left_to_any_slot(wires, needlemap):
    wire = wires("--owner", "llamacpp", "--slots", "4")
    needlemap.run(wire, *SHARING, "--concurrency", "4", "--mode", "cold")
    assert {each["body"].get("id_slot") for each in wire.log()} == {None}
