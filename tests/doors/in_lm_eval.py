"""Runs tasks in lm-evaluation-harness with a model that answers as it is told; prints what came of
each.

Arguments: runs, each with tasks (names), include (a folder of task files), metadata, answers (by a
part of the prompt), chat, out (a folder for samples, '' for none).
"""

from __future__ import annotations

import json
import sys
from typing import Any

import lm_eval
from lm_eval.api.model import LM
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager

RUNS = json.loads(sys.argv[1])["runs"]


class Told(LM):
    """Answers by what a prompt holds. asked, how: all that it was asked."""

    def __init__(self, answers: dict[str, str]) -> None:
        super().__init__()
        self.answers = answers
        self.asked: list[str] = []
        self.how: list[dict[str, Any]] = []

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        self.asked.extend(str(request.arguments[0]) for request in requests)
        self.how.extend(request.arguments[1] for request in requests)
        return [self._answer(str(request.arguments[0])) for request in requests]

    def loglikelihood(
        self, requests: list[Any], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        likes = [
            self.answers.get(request.arguments[0], " a") == request.arguments[1]
            for request in requests
        ]
        return [(-1.0 + like, like) for like in likes]

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        raise NotImplementedError

    def _answer(self, prompt: str) -> str:
        return next((words for part, words in self.answers.items() if part in prompt), "no")

    @property
    def tokenizer_name(self) -> str:
        return "none"

    def chat_template(self, chat_template: bool | str = False) -> str:
        return "messages as JSON"

    def apply_chat_template(
        self, chat_history: list[Any], add_generation_prompt: bool = True
    ) -> str:
        return json.dumps([[each["role"], each["content"]] for each in chat_history])


def run(typed: dict[str, Any]) -> dict[str, Any]:
    told = Told(typed["answers"])
    found = lm_eval.simple_evaluate(
        model=told,
        tasks=typed["tasks"],
        task_manager=TaskManager(
            include_path=typed["include"], include_defaults=False, metadata=typed.get("metadata")
        ),
        apply_chat_template=typed.get("chat", False),
        gen_kwargs=typed.get("gen_kwargs"),
        log_samples=True,
        bootstrap_iters=0,
    )
    if typed.get("out"):
        tracker = EvaluationTracker(output_path=typed["out"])
        tracker.general_config_tracker.model_name_sanitized = "told"
        tracker.date_id = "2026-01-01T00-00-00"
        for name, samples in found["samples"].items():
            tracker.save_results_samples(task_name=name, samples=samples)
    scores = {
        name: {each["doc"].get("id"): each.get("score") for each in rows}
        for name, rows in found["samples"].items()
    }
    return {"asked": told.asked, "how": told.how, "scores": scores, "results": found["results"]}


print(json.dumps([run(typed) for typed in RUNS]))
