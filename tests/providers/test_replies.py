"""What every provider was reported to answer, and what comes of it: the rows of replies.yaml."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from reported import ROWS, fault_of

from needlemap.asking.canary import remedy
from needlemap.errors import Unmeasured
from needlemap.models import Answer, Decoding, Model
from needlemap.models.anthropic import AnthropicModel
from needlemap.models.call import call_model
from needlemap.models.openai import OpenAIModel
from needlemap.prompts import Prompt

FIELDS = ("failure", "transient", "hopeless", "limit_tokens")
FIELDS_OF_ANSWERS = ("thinking", "finish", "thinking_tokens")


def ask(row: dict[str, Any], wire: Any) -> Answer | Unmeasured:
    """What comes of one request to a provider that answers so."""
    wire.schedule(fault_of(row))
    prompt = Prompt.plain([("user", "What is the locker code for Turin?")])

    async def once() -> Answer:
        model: Model
        if row.get("api") == "anthropic":
            model = AnthropicModel("m", base_url=wire.root)
        else:
            model = OpenAIModel("m", base_url=wire.base_url, api=row.get("api", "chat"))
        try:
            return await call_model(model, prompt, Decoding(timeout_s=20))
        finally:
            await model.close()

    try:
        return asyncio.run(once())
    except Unmeasured as failure:
        return failure


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row["name"]) for row in ROWS],
)
def test_what_comes_of_a_reply(row: dict[str, Any], wire: Any) -> None:
    want, got = dict(row["want"]), ask(row, wire)
    if isinstance(got, Answer):
        assert got.text == want.pop("answer")
        want.pop("outcome", None)
        assert {name: getattr(got, name) for name in FIELDS_OF_ANSWERS if name in want} == want
        return
    assert "answer" not in want, str(got)
    assert want.pop("says", "") in str(got)
    assert want.pop("advice", "") in remedy(str(got))
    wait_s = want.pop("wait_s", None)
    assert wait_s is None or got.retry_after_s == pytest.approx(wait_s)
    assert {name: getattr(got, name) for name in FIELDS if name in want} == want
    assert len(wire.log()) == 1


def test_rows_are_complete() -> None:
    names = [row["name"] for row in ROWS]
    assert len(names) == len(set(names))
    for row in ROWS:
        assert row["source"]
        assert ("body" in row) != ("stream" in row)
        assert ("failure" in row["want"]) != ("answer" in row["want"])
