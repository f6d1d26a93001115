"""Our families as tasks of Inspect: `inspect eval needlemap/multikey -T lengths=32k,128k`.

A log holds a sample's recipe and answer and no context: the prompt is built in the solver, and
the event of the model's call is logged without its input. Nothing but Inspect imports this
module (entry point group `inspect_ai`); it needs the packages of the extra `inspect`.
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
from needlemap.stats.intervals import FEWEST

HAYSTACK = "haystack"  # what samples share, so that their scores are no independent ones
_ROLES = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}
_THEIRS = ("model",)  # what Inspect passes to every task beside what was typed


async def _unlogged(messages: list[ChatMessage]) -> ModelOutput:
    """The model's output. Its events go to the log without what was sent."""
    own = Transcript()
    token = _transcript.set(own)
    try:
        return await get_model().generate(messages)
    finally:
        _transcript.reset(token)
        for event in own.events:
            if isinstance(event, ModelEvent):
                transcript()._event(event.model_copy(update={"input": [], "call": None}))


class NeedleSolver:
    """The solver: builds the prompt and asks it. given: the settings, as in `hosted`."""

    def __init__(self, family: str, given: Mapping[str, Any]) -> None:
        self._family = hosted(family, given)

    async def __call__(self, state: TaskState, generate: Generate) -> TaskState:
        """The state with the answer, and without the prompt."""
        messages = [_message(*row) for row in self._family.messages(str(state.sample_id))]
        state.output = await _unlogged(messages)
        state.messages.append(state.output.message)
        return state


class NeedleScorer:
    """The scorer: our score of an answer."""

    def __init__(self, family: str, given: Mapping[str, Any]) -> None:
        self._family = hosted(family, given)

    async def __call__(self, state: TaskState, target: Target) -> Score:
        """A share in [0, 1], and what decided it."""
        said = state.output.completion
        found = await self._family.score(str(state.sample_id), said)
        why = json.dumps(dict(found.why), ensure_ascii=False, default=str)
        about = {
            "scorer": self._family.scorer.name,
            "native": found.native,
            "unreadable": found.unreadable,
        }
        return Score(value=found.share, answer=said, explanation=why, metadata=about)


ask = solver(name="ask")(NeedleSolver)
score = scorer(metrics=[mean()], name="score")(NeedleScorer)


class InspectFamily:
    """What makes the task of one family."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.__name__ = name

    def __call__(self, **given: Any) -> Task:
        """The task. given: any setting of a run. Raises PrerequisiteError for whatever the
        user can mend."""
        typed = {name: value for name, value in given.items() if name not in _THEIRS}
        try:
            family = hosted(self._name, typed)
        except NeedlemapError as error:
            raise PrerequisiteError(str(error)) from None  # which Inspect shows in words
        samples = [
            Sample(
                id=id,
                input=family.shown(id),
                target=trial.item.reference.answer,
                metadata={OURS: family.recipe(id), HAYSTACK: trial.repeat},
            )
            for id, trial in family.trials.items()
        ]
        settings = family.settings
        errors = (
            [stderr(cluster=HAYSTACK)] if settings.repeats >= FEWEST else []
        )  # of one haystack it is 0
        return Task(
            dataset=MemoryDataset(samples, name=f"needlemap {self._name}"),
            solver=ask(self._name, typed),
            scorer=score(self._name, typed),
            metrics=[mean(), *errors],
            config=GenerateConfig(
                max_tokens=settings.most_tokens, temperature=settings.temperature
            ),
        )


def _message(role: str, text: str) -> ChatMessage:
    return _ROLES[role](content=text)


TASKS = {name: task(name=name)(InspectFamily(name)) for name in hosted_tasks()}
