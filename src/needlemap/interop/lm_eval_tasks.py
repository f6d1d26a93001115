"""Offer our families as tasks of lm-evaluation-harness.

`lm_eval run --include_path "$(python -m needlemap.interop.hosted tasks)" --tasks
needlemap_multikey --metadata '{"needlemap": {"lengths": "32k,128k"}}'`. A chat model
(`--apply_chat_template`) gets messages, any other model our plain text. Only that harness imports
this module, through the task files that `hosted` writes. It needs the packages of the extra
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
from needlemap.models import Answer
from needlemap.sync import run_coroutine

SCORE = "score"
_GREEDY = {
    # Without stops, because an answer may have several paragraphs.
    "until": [],
    "do_sample": False,
    "temperature": 0.0,
}


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Log no warnings inside."""
    previous_level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(previous_level)


class Family(Task):
    """The task of one family.

    config: that of the task file, whose `metadata` holds what was typed.
    """

    VERSION = 1
    OUTPUT_TYPE = "generate_until"

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        fields = dict(config or {})
        # These come from --metadata and --model_args.
        metadata = dict(fields.get("metadata") or {})
        # The harness warns about its default config, which is replaced in the next statement.
        with _without_warnings():
            super().__init__()
        self._config = TaskConfig(
            task=fields.get("task"), generation_kwargs=dict(_GREEDY), metadata=metadata
        )
        self._family = str(fields.get("task", "")).removeprefix(PREFIX)
        self._given = dict(metadata.get(OURS) or {})
        self._max_length = metadata.get("max_length")
        self._chat = False
        self._built: Hosted | None = None

    def download(self, *_: Any, **__: Any) -> None:
        """Do nothing, because prompts are built and not loaded."""

    @property
    def _hosted(self) -> Hosted:
        if self._built is None:
            self._built = hosted(self._family, self._given, chat=self._chat)
        return self._built

    def has_training_docs(self) -> bool:
        return False

    def has_validation_docs(self) -> bool:
        return False

    def has_test_docs(self) -> bool:
        return True

    def test_docs(self) -> Sequence[dict[str, Any]]:
        """Return a recipe for each sample, with question and right answer, but without context."""
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
        """Return a prompt that is one plain text."""
        ((_, text),) = self._hosted.messages(doc["id"])
        return text

    def doc_to_target(self, doc: Mapping[str, Any]) -> str:
        return str(doc["reference"])

    def build_all_requests(self, *, apply_chat_template: bool = False, **more: Any) -> None:
        """Build all requests. Raises SettingsError for settings that change or cut our prompts."""
        if more.get("system_instruction") or self.config.num_fewshot:
            raise SettingsError(
                "needlemap's prompts take no examples and no system instruction of others."
            )
        self._chat = bool(apply_chat_template)
        self._built = None
        self._refuse_cut(self._max_length)
        super().build_all_requests(apply_chat_template=apply_chat_template, **more)

    def _refuse_cut(self, max_length: object) -> None:
        """Raise SettingsError if a prompt and its answer are longer than `max_length` tokens."""
        family = self._hosted
        longest_prompt = max(trial.prompt.tokens for trial in family.trials.values())
        longest = longest_prompt + family.settings.most_tokens
        if isinstance(max_length, int) and longest > max_length:
            raise SettingsError(
                f"max_length={max_length} would cut the beginning of prompts off, which with their "
                f"answers take {longest:,} tokens. Give a larger one in --model_args, or shorter "
                f"lengths."
            )

    def fewshot_context(
        self,
        doc: Mapping[str, Any],
        *_: Any,
        chat_template: Callable[..., Any] | None = None,
        **__: Any,
    ) -> Any:
        """Return the prompt, for a chat model its messages as the harness renders them."""
        if not self._chat or chat_template is None:
            return self.doc_to_text(doc)
        rows = self._hosted.messages(doc["id"])
        return chat_template([{"role": role, "content": text} for role, text in rows])

    def construct_requests(self, doc: Mapping[str, Any], ctx: Any, **more: Any) -> list[Any]:
        """Return one request. The harness's --gen_kwargs come first."""
        options: dict[str, Any] = {"max_gen_toks": self._hosted.settings.most_tokens}
        options |= self.config.generation_kwargs or {}
        if not options.get("until"):
            options["until"] = list(self._hosted.trials[doc["id"]].prompt.stops)
        request = Instance(
            request_type=self.OUTPUT_TYPE,
            doc=doc,
            arguments=(ctx, options),
            idx=0,
            metadata=more.get("metadata"),
        )
        return [request]

    def process_results(self, doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
        """Return our score of an answer, a share in [0, 1]."""
        score = run_coroutine(self._hosted.score(doc["id"], Answer(results[0])))
        return {SCORE: score.share}

    def aggregation(self) -> dict[str, Callable[..., Any]]:
        # For its own mean the harness prints an error as if no prompts shared a haystack.
        return {SCORE: fmean}

    def higher_is_better(self) -> dict[str, bool]:
        return {SCORE: True}
