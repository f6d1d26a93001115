"""Our families as tasks of lm-evaluation-harness.

`lm_eval run --include_path "$(python -m needlemap.interop.hosted tasks)" --tasks
needlemap_multikey --metadata '{"needlemap": {"lengths": "32k,128k"}}'`. A chat model
(`--apply_chat_template`) gets messages, any other one our plain text. Nothing but that harness
imports this module, by the task files that `hosted` writes; it needs the packages of the extra
`lm-eval`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.task import Task, TaskConfig

from needlemap.errors import SettingsError
from needlemap.interop.hosted import PREFIX, Hosted, hosted
from needlemap.interop.logs import OURS
from needlemap.sync import run_coroutine

SCORE = "score"
_GREEDY = {
    "until": [],
    "do_sample": False,
    "temperature": 0.0,
}  # an answer may have several paragraphs


@contextmanager
def _silent() -> Iterator[None]:
    """No warnings meanwhile."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


class Family(Task):
    """The task of one family. config: that of the task file; its `metadata` holds what was
    typed."""

    VERSION = 1
    OUTPUT_TYPE = "generate_until"

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        given = dict(config or {})
        told = dict(given.get("metadata") or {})  # what --metadata and --model_args say
        with _silent():  # of a default that is replaced in the next line
            super().__init__()
        self._config = TaskConfig(
            task=given.get("task"), generation_kwargs=dict(_GREEDY), metadata=told
        )
        self._family = str(given.get("task", "")).removeprefix(PREFIX)
        self._given, self._most = dict(told.get(OURS) or {}), told.get("max_length")
        self._chat = False
        self._made: Hosted | None = None

    def download(self, *_: Any, **__: Any) -> None:
        """There is nothing to load: prompts are made."""

    @property
    def _hosted(self) -> Hosted:
        self._made = self._made or hosted(self._family, self._given, chat=self._chat)
        return self._made

    def has_training_docs(self) -> bool:
        return False

    def has_validation_docs(self) -> bool:
        return False

    def has_test_docs(self) -> bool:
        return True

    def test_docs(self) -> Sequence[dict[str, Any]]:
        """A recipe a sample, with what is asked and what is right; no context."""
        family = self._hosted
        return [
            {
                "id": id,
                "question": trial.item.question,
                "reference": trial.item.reference.answer,
                OURS: family.recipe(id),
            }
            for id, trial in family.trials.items()
        ]

    def doc_to_text(self, doc: Mapping[str, Any]) -> str:
        """The prompt, where it is one plain text."""
        ((_, text),) = self._hosted.messages(doc["id"])
        return text

    def doc_to_target(self, doc: Mapping[str, Any]) -> str:
        return str(doc["reference"])

    def build_all_requests(self, *, apply_chat_template: bool = False, **more: Any) -> None:
        """All requests. Raises SettingsError for what would change our prompts, or cut
        them."""
        if more.get("system_instruction") or self.config.num_fewshot:
            raise SettingsError(
                "needlemap's prompts take no examples and no system instruction of others."
            )
        self._chat, self._made = bool(apply_chat_template), None
        self._refuse_cut(self._most)
        super().build_all_requests(apply_chat_template=apply_chat_template, **more)

    def _refuse_cut(self, most: object) -> None:
        family = self._hosted
        longest = (
            max(trial.prompt.tokens for trial in family.trials.values())
            + family.settings.most_tokens
        )
        if isinstance(most, int) and longest > most:
            raise SettingsError(
                f"max_length={most} would cut the beginning of prompts off, which with their "
                f"answers take "
                f"{longest:,} tokens. Give a larger one in --model_args, or shorter lengths."
            )

    def fewshot_context(
        self,
        doc: Mapping[str, Any],
        *_: Any,
        chat_template: Callable[..., Any] | None = None,
        **__: Any,
    ) -> Any:
        """The prompt: of a chat model its messages as the harness renders them."""
        if not self._chat or chat_template is None:
            return self.doc_to_text(doc)
        rows = self._hosted.messages(doc["id"])
        return chat_template([{"role": role, "content": text} for role, text in rows])

    def construct_requests(self, doc: Mapping[str, Any], ctx: Any, **more: Any) -> list[Any]:
        """One request; the harness's --gen_kwargs win."""
        room = {"max_gen_toks": self._hosted.settings.most_tokens}
        options = {**room, **(self.config.generation_kwargs or {})}
        options["until"] = options.get("until") or list(self._hosted.trials[doc["id"]].prompt.stops)
        asked = (ctx, options)
        known = {"metadata": more.get("metadata")}
        return [Instance(request_type=self.OUTPUT_TYPE, doc=doc, arguments=asked, idx=0, **known)]

    def process_results(self, doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
        """Our score of an answer, a share in [0, 1]."""
        return {SCORE: run_coroutine(self._hosted.score(doc["id"], results[0])).share}

    def aggregation(self) -> dict[str, Callable[..., Any]]:
        return {
            SCORE: fmean
        }  # not its own, for which it prints an error as if no prompts shared a haystack

    def higher_is_better(self) -> dict[str, bool]:
        return {SCORE: True}
