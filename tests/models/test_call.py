"""Whatever a stranger's back end does, a call of it ends in an answer or in a reason."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from needlemap.errors import Failure, SettingsError, Unmeasured
from needlemap.models import Answer, Decoding, Model
from needlemap.models.call import call_model
from needlemap.prompts import Prompt

PROMPT = Prompt.plain([("user", "Where is it?")])


class Stranger(Model):
    """Says or raises what it was made with."""

    def __init__(self, said: Any) -> None:
        self.said = said

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        if isinstance(self.said, Exception):
            raise self.said
        return self.said  # type: ignore[no-any-return]

    async def force(self, prompt: Prompt, answer: str, decoding: Decoding) -> Answer:
        return Answer("", model=answer)


def call(said: Any, given: str | None = None) -> Answer:
    return asyncio.run(call_model(Stranger(said), PROMPT, Decoding(), given))


def test_its_answer_or_how_likely_it_finds_a_given_one():
    assert call(Answer("here")).text == "here"
    assert call(Answer("here"), "there").model == "there"


def test_what_it_raises_is_the_reason_of_one_trial():
    with pytest.raises(Unmeasured, match="KeyError: 'x'") as raised:
        call(KeyError("x"))
    assert raised.value.failure is Failure.MODEL


def test_what_is_no_answer_is_a_reason_too():
    with pytest.raises(Unmeasured, match="Stranger returned str, not an Answer"):
        call("a plain text")


def test_our_own_errors_stay_as_they_are():
    with pytest.raises(SettingsError, match="no key"):
        call(SettingsError("no key"))
