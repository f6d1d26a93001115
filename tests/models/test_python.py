"""A user's own function as a model."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from needlemap.errors import Failure, SettingsError, Unmeasured
from needlemap.models import Answer, Decoding
from needlemap.models.baseline import PythonModel
from needlemap.prompts import TEXT, Prompt

CHAT = Prompt.plain([("system", "Be brief."), ("user", "Who?")])
PLAIN = Prompt.plain([(TEXT, "Who?")])
MODULE = """
import asyncio, threading
from needlemap.models import Answer
from needlemap.errors import Failure, Unmeasured

def last(messages): return messages[-1]["content"].upper()
def plain(text): return text + "!"
async def later(messages):
    await asyncio.sleep(0.01)
    return "later"
def hands_back_a_coroutine(messages): return later(messages)
class Whole:
    def __call__(self, messages): return Answer("whole", "length", prompt_tokens=3)
    async def method(self, messages): return "method"
whole = Whole()
def breaks(messages): raise ValueError("no weights, key sk-abcdefgh12345678")
def out_of_memory(messages): raise MemoryError("big")
def busy(messages): raise Unmeasured(Failure.RATE_LIMITED, "busy", transient=True)
def own_timeout(messages): raise TimeoutError("their own")
def number(messages): return 7
all_here = threading.Barrier(20)
def meets(messages):
    all_here.wait(100)
    return "met"
async def sleeps_long(messages): await asyncio.sleep(30)
value = 3
"""


@pytest.fixture(autouse=True)
def _module_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "my_model.py").write_text(MODULE)
    (tmp_path / "needs_more.py").write_text("import not_installed_anywhere\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in ("my_model", "needs_more", "broken"):  # another test may have a module of that name
        sys.modules.pop(name, None)


async def _ask(model: PythonModel, prompts: list[Prompt], timeout_s: float) -> list[Answer]:
    try:
        return await asyncio.gather(
            *(model.answer(prompt, Decoding(timeout_s=timeout_s)) for prompt in prompts)
        )
    finally:
        await model.close()


def ask(function: str, prompt: Prompt = CHAT, timeout_s: float = 250.0) -> Answer:
    return asyncio.run(_ask(PythonModel(f"my_model:{function}"), [prompt], timeout_s))[0]


def failure(function: str, **options: Any) -> Unmeasured:
    with pytest.raises(Unmeasured) as caught:
        ask(function, **options)
    return caught.value


def test_it_gets_messages_and_returns_a_text():
    answer = ask("last")
    assert answer.text == "WHO?"
    assert answer.latency_s > 0


def test_a_plain_prompt_arrives_as_text():
    assert ask("plain", PLAIN).text == "Who?!"


@pytest.mark.parametrize(
    ("function", "text"),
    [("later", "later"), ("hands_back_a_coroutine", "later"), ("whole.method", "method")],
)
def test_async_functions_and_methods_are_awaited(function, text):
    assert ask(function).text == text


def test_a_whole_answer_is_kept():
    answer = ask("whole")
    assert (answer.text, answer.finish, answer.prompt_tokens) == ("whole", "length", 3)
    assert answer.latency_s > 0


def test_plain_functions_run_at_the_same_time():
    answers = asyncio.run(
        _ask(PythonModel("my_model:meets"), [CHAT] * 20, 100.0)
    )  # each waits for all
    assert [answer.text for answer in answers] == ["met"] * 20


def test_an_exception_is_a_failure_of_the_model_without_its_secrets():
    error = failure("breaks")
    assert error.failure is Failure.MODEL
    assert not error.transient
    assert (
        str(error)
        == "my_model:breaks: ValueError: no weights, key sk-[hidden] (my_model.py, line 16)"
    )


def test_out_of_memory_is_named():
    assert failure("out_of_memory").failure is Failure.MEMORY


def test_its_own_verdict_passes_through():
    error = failure("busy")
    assert (error.failure, error.transient) == (Failure.RATE_LIMITED, True)


def test_too_slow_is_a_time_out_but_its_own_time_out_is_its_own():
    assert failure("sleeps_long", timeout_s=0.1).failure is Failure.TIMED_OUT
    assert failure("own_timeout").failure is Failure.MODEL


def test_another_type_is_unreadable():
    error = failure("number")
    assert error.failure is Failure.UNREADABLE
    assert "returned int" in str(error)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_model", "Type python/module:function"),
        ("my_model.py:last", "Type python/module:function"),
        ("my_modle:last", "No module 'my_modle' here"),
        ("my_model:lasst", "Did you mean 'last'"),
        ("my_model:value", "is int, not a function"),
        ("needs_more:f", "needs 'not_installed_anywhere'"),
        ("broken:f", "cannot be imported: ZeroDivisionError"),
    ],
)
def test_a_name_that_leads_nowhere_says_what_to_type(name, message):
    with pytest.raises(SettingsError, match=message):
        PythonModel(name)
