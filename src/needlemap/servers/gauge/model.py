"""The gauge as a back end: `gauge/numpy` (of the shape qwen3 `gauge/qwen3`), asked in this process
by the package's own NumPy engine.

A server of the gauge is checked beside it: right answers, and log-probabilities, of the very
prompts, without torch. Chat messages get the checkpoint's template; one plain text is fed as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from needlemap.errors import Failure, SettingsError, Unmeasured
from needlemap.models import Decoding, Traits
from needlemap.models.chat import Chat, Row
from needlemap.models.decoding import STOP_FIELDS
from needlemap.models.model_files import ModelFiles
from needlemap.models.walk import Engine, Ids, WalkingModel
from needlemap.prompts import TEXT, Prompt
from needlemap.servers.gauge.checkpoint import DATA, read_config
from needlemap.servers.gauge.shapes import QWEN3, config_of, engine_of
from needlemap.text.tokens import TokenText

NAME = "numpy"
NAMES = (NAME, QWEN3)


class GaugeModel(WalkingModel):
    """Answers one prompt after another, from one cache. engine: another one than the exact."""

    unread, free = ("thinking_tokens", "concurrency"), True
    backend = "gauge"

    def __init__(self, name: str, engine: Engine | None = None) -> None:
        check_name(name)
        stops = (int(read_config()["eos_token_id"]),)
        super().__init__(name, engine or engine_of(name), stops, chat().vocabulary)

    @classmethod
    def traits(cls, name: str, options: Mapping[str, Any]) -> Traits:
        """Messages or one text, in tokens of its own vocabulary, fed as ids."""
        check_name(name)
        positions = positions_of(name)
        known = chat().traits(teacher=True, serial=True, positions=positions, request=STOP_FIELDS)
        return replace(known, render=rendered)

    def prompt_ids(self, prompt: Prompt) -> Ids:
        """A prompt's ids, with the chat template's where it has messages."""
        return chat(base=not prompt.chat).ids(prompt)

    def answer_ids(self, prompt: Prompt, answer: str) -> Ids:
        """An answer as the gauge gives it: no blank before it."""
        return np.asarray(chat().plain.index(answer.encode()).ids, np.int32)

    def refuse(self, ids: Ids, answer_tokens: int, decoding: Decoding) -> None:
        """Raises Unmeasured for request fields that it does not heed, and too long a
        prompt."""
        if unknown := sorted(set(decoding.request) - set(STOP_FIELDS)):
            said = f"gauge/{self.name} takes no request field but stop, got {', '.join(unknown)}."
            raise Unmeasured(Failure.REJECTED, said)
        room = positions_of(self.name)
        if len(ids) + answer_tokens > room:
            said = f"{len(ids):,} prompt and {answer_tokens:,} answer tokens are more than the "
            raise Unmeasured(Failure.TOO_LONG, f"{said}{room:,} positions of gauge/{self.name}.")


def check_name(name: str) -> None:
    """Raises SettingsError for another name than an engine's."""
    if name not in NAMES:
        raise SettingsError(f"Unknown gauge '{name}'. Type: gauge/{NAME}")


def positions_of(name: str) -> int:
    """The most tokens that it takes, the answer's included."""
    return int(config_of(name)["max_position_embeddings"])


@cache
def chat(*, base: bool = False) -> Chat:
    """The checkpoint's tokenizer, with its chat template; without it for plain texts."""
    return Chat.of(ModelFiles(str(DATA)), base=base)


def rendered(rows: Sequence[Row]) -> tuple[TokenText, TokenText]:
    """The tokens before and behind a haystack."""
    return chat(base=rows[0][0] == TEXT).render(rows)
