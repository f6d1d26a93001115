"""The one place that awaits an answer of a model, for every caller: a campaign, a judge, a
replica, an evaluator of another tool, or `replay`.

A back end may be a stranger's code. An exception from it, or a return value that is no answer,
becomes the reason why the trial is not measured. The run goes on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from needlemap.errors import Failure, NeedlemapError, Spent, Unmeasured
from needlemap.finishes import check_finish
from needlemap.models import Answer, Decoding, Model
from needlemap.models.decoding import up_to_stop
from needlemap.models.thinking import split_thinking
from needlemap.secrets import raised_by

if TYPE_CHECKING:
    from needlemap.prompts import Prompt


async def call_model(
    model: Model, prompt: Prompt, decoding: Decoding, given_answer: str | None = None
) -> Answer:
    """Return the model's answer to one request; of a given answer, how likely the model finds it.

    Raises Unmeasured if there is no answer, NeedlemapError as the back end does.
    """
    try:
        if given_answer is None:
            answer = await model.answer(prompt, decoding)
        else:
            answer = await model.force(prompt, given_answer, decoding)
    except NeedlemapError:
        raise
    except Exception as error:
        raise Unmeasured(Failure.MODEL, raised_by(error)) from error
    if not isinstance(answer, Answer):
        kind = type(answer).__name__
        raise Unmeasured(Failure.MODEL, f"{type(model).__name__} returned {kind}, not an Answer.")
    if given_answer is None:
        check_ended(answer)
        answer = split_thinking(answer, decoding)
    # A back end sends them, so that a model need not go on; not every server heeds them.
    text = up_to_stop(answer.text, prompt.stops)
    return answer if text == answer.text else replace(answer, text=text, finish="stop")


def check_ended(answer: Answer) -> None:
    """Raise Unmeasured, with what it took, for an answer that its model did not end."""
    try:
        check_finish(answer.finish, answer.text)
    except Unmeasured as failure:
        failure.spent = Spent(answer.prompt_tokens, answer.completion_tokens or 0)
        raise
