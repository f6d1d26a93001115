"""Runs tasks in Inspect with a model that answers as it is told; prints what came of each.

Arguments: runs, each with task ('' for sums), args, answers (by a part of the prompt), why they
ended (stop_reason), folder, format.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from inspect_ai import Task, eval, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes, match
from inspect_ai.solver import generate

RUNS = json.loads(sys.argv[1])["runs"]


@task
def sums() -> Task:
    samples = [
        Sample(id=f"s{n}", input=f"What is {n} and {n}?", target=str(2 * n)) for n in range(60)
    ]
    return Task(dataset=samples, solver=generate(), scorer=[match(), includes()])


class Told:
    """Answers by what a prompt holds. asked: all that it was asked."""

    def __init__(self, answers: dict[str, str], stop_reason: Any) -> None:
        self.answers = answers
        self.stop_reason = stop_reason
        self.asked: list[list[tuple[str, str]]] = []

    def __call__(self, messages: list[Any], *_: Any) -> ModelOutput:
        self.asked.append([(message.role, message.text) for message in messages])
        said = next(
            (words for part, words in self.answers.items() if part in messages[-1].text), "no"
        )
        output = ModelOutput.from_content("mockllm/model", said, self.stop_reason)
        output.usage = ModelUsage(
            input_tokens=1, output_tokens=1, total_tokens=2
        )  # else it asks the network
        return output


def run(typed: dict[str, Any]) -> dict[str, Any]:
    told = Told(typed["answers"], typed.get("stop_reason", "stop"))
    (log,) = eval(
        typed["task"] or sums(),
        model=get_model("mockllm/model", custom_outputs=told),
        task_args=typed.get("args", {}),
        log_dir=typed["folder"],
        log_format=typed.get("format", "eval"),
        max_samples=1,
        display="none",
    )
    scores = {each.id: next(iter(each.scores.values())).value for each in log.samples or []}
    metrics = sorted(log.results.scores[0].metrics) if log.results else []
    found = {"status": log.status, "log": log.location, "asked": told.asked, "scores": scores}
    return {**found, "metrics": metrics}


print(json.dumps([run(typed) for typed in RUNS]))
