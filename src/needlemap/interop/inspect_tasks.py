"""Offer our families as tasks of Inspect: `inspect eval needlemap/multikey -T lengths=32k,128k`.

A log holds a sample's recipe and answer, but not its context: the prompt is built in the solver,
and the event of the model's call is logged without its input. Only Inspect imports this module
(entry point group `inspect_ai`). It needs the packages of the extra `inspect`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from inspect_ai import Task, task
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.event import ModelEvent
from inspect_ai.log import Transcript, transcript
from inspect_ai.log._transcript import _transcript
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
    ModelOutput,
    get_model,
)
from inspect_ai.scorer import Score, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, TaskState, solver

from needlemap.errors import NeedlemapError
from needlemap.interop.hosted import hosted, hosted_tasks
from needlemap.interop.logs import OURS
from needlemap.models import Answer
from needlemap.stats.intervals import FEWEST

# Samples with the same value share a haystack, so their scores are not independent.
HAYSTACK = "haystack"
_ROLES = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}
# Inspect passes these to every task in addition to what was typed.
_THEIRS = ("model",)


async def _unlogged(messages: list[ChatMessage]) -> ModelOutput:
    """Return the model's output. Its events go to the log without the messages."""
    temporary = Transcript()
    token = _transcript.set(temporary)
    try:
        return await get_model().generate(messages)
    finally:
        _transcript.reset(token)
        for event in temporary.events:
            if isinstance(event, ModelEvent):
                transcript()._event(event.model_copy(update={"input": [], "call": None}))


class NeedleSolver:
    """The solver: it builds the prompt and sends it. given: the settings, as in `hosted`."""

    def __init__(self, family: str, given: Mapping[str, Any]) -> None:
        self._family = hosted(family, given)

    async def __call__(self, state: TaskState, generate: Generate) -> TaskState:
        """Return the state with the answer, but without the prompt."""
        messages = [
            _message(role, text) for role, text in self._family.messages(str(state.sample_id))
        ]
        state.output = await _unlogged(messages)
        state.messages.append(state.output.message)
        return state


class NeedleScorer:
    """The scorer: it scores an answer as needlemap does. given: the settings, as in `hosted`."""

    def __init__(self, family: str, given: Mapping[str, Any]) -> None:
        self._family = hosted(family, given)

    async def __call__(self, state: TaskState, target: Target) -> Score:
        """Return a share in [0, 1], and what decided it."""
        scored = await self._family.score(str(state.sample_id), _answer_of(state.output))
        return Score(
            value=scored.share,
            answer=state.output.completion,
            explanation=json.dumps(dict(scored.why), ensure_ascii=False, default=str),
            metadata={
                "scorer": self._family.scorer.name,
                "native": scored.native,
                "unreadable": scored.unreadable,
            },
        )


ask = solver(name="ask")(NeedleSolver)
score = scorer(metrics=[mean()], name="score")(NeedleScorer)


class InspectFamily:
    """A function that returns the task of one family."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.__name__ = name

    def __call__(self, **given: Any) -> Task:
        """Return the task. given: any settings of a run.

        Raises PrerequisiteError for anything that the user can correct.
        """
        typed = {name: value for name, value in given.items() if name not in _THEIRS}
        try:
            family = hosted(self._name, typed)
        except NeedlemapError as error:
            # Inspect shows such an error as a message, without a traceback.
            raise PrerequisiteError(str(error)) from None
        samples = [
            Sample(
                id=id,
                input=family.sample_input(id),
                target=trial.item.reference.answer,
                metadata={OURS: family.recipe(id), HAYSTACK: trial.repeat},
            )
            for id, trial in family.trials.items()
        ]
        settings = family.settings
        metrics = [mean()]
        # needlemap shows no interval from fewer haystacks; from one the error would be 0.
        if settings.repeats >= FEWEST:
            metrics.append(stderr(cluster=HAYSTACK))
        return Task(
            dataset=MemoryDataset(samples, name=f"needlemap {self._name}"),
            solver=ask(self._name, typed),
            scorer=score(self._name, typed),
            metrics=metrics,
            config=GenerateConfig(
                max_tokens=settings.most_tokens, temperature=settings.temperature
            ),
        )


def _answer_of(output: ModelOutput) -> Answer:
    """Return Inspect's output as an answer.

    How it ended and its tokens show whether a thought that never ends used the budget up.
    """
    return Answer(
        output.completion,
        finish=None if output.empty else output.stop_reason,
        completion_tokens=output.usage.output_tokens if output.usage else None,
    )


def _message(role: str, text: str) -> ChatMessage:
    return _ROLES[role](content=text)


TASKS = {name: task(name=name)(InspectFamily(name)) for name in hosted_tasks()}
