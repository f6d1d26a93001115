"""Runs a task in Inspect with a model that answers as it is told; prints what it was asked.

Arguments: task (a name, or '' for sums), args, answers (by a part of the prompt), folder, format.
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

TYPED = json.loads(sys.argv[1])
ASKED: list[list[tuple[str, str]]] = []


@task
def sums() -> Task:
    samples = [Sample(id=f"s{n}", input=f"What is {n} and {n}?", target=str(2 * n)) for n in range(60)]
    return Task(dataset=samples, solver=generate(), scorer=[match(), includes()])


def answer(messages: list[Any], *_: Any) -> ModelOutput:
    ASKED.append([(message.role, message.text) for message in messages])
    said = next((words for part, words in TYPED["answers"].items() if part in messages[-1].text), "no")
    output = ModelOutput.from_content("mockllm/model", said)
    output.usage = ModelUsage(
        input_tokens=1, output_tokens=1, total_tokens=2
    )  # else it counts, by the network
    return output


(log,) = eval(
    TYPED["task"] or sums(),
    model=get_model("mockllm/model", custom_outputs=answer),
    task_args=TYPED.get("args", {}),
    log_dir=TYPED["folder"],
    log_format=TYPED.get("format", "eval"),
    max_samples=1,
    display="none",
)
scores = {each.id: next(iter(each.scores.values())).value for each in log.samples or []}
print(json.dumps({"status": log.status, "log": log.location, "asked": ASKED, "scores": scores}))
