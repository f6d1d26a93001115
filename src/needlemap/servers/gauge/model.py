"""Run the gauge in this process, with the package's own NumPy engine, as the back end `gauge`.

`gauge/numpy` is the gauge, `gauge/qwen3` the one of the shape qwen3. A server of the gauge is
compared with it: right answers, and log-probabilities, of the same prompts, without torch. Chat
messages get the checkpoint's template; one plain text is fed as it is.
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
        """Return its traits: it takes messages or one text, in ids of its own vocabulary."""
        check_name(name)
        positions = positions_of(name)
        traits = chat().traits(teacher=True, serial=True, positions=positions, request=STOP_FIELDS)
        return replace(traits, render=frame_texts)

    def prompt_ids(self, prompt: Prompt) -> Ids:
        """Return a prompt's ids, with those of the chat template if it has messages."""
        return chat(base=not prompt.chat).ids(prompt)

    def answer_ids(self, prompt: Prompt, answer: str) -> Ids:
        """Return the ids of an answer as the gauge gives it, without a blank before it."""
        return np.asarray(chat().plain.index(answer.encode()).ids, np.int32)

    def refuse(self, ids: Ids, answer_tokens: int, decoding: Decoding) -> None:
        """Raise Unmeasured for request fields that it does not heed, and for too long a prompt."""
        unknown_fields = sorted(set(decoding.request) - set(STOP_FIELDS))
        if unknown_fields:
            raise Unmeasured(
                Failure.REJECTED,
                f"gauge/{self.name} takes no request field but stop, got "
                f"{', '.join(unknown_fields)}.",
            )
        room = positions_of(self.name)
        if len(ids) + answer_tokens > room:
            raise Unmeasured(
                Failure.TOO_LONG,
                f"{len(ids):,} prompt and {answer_tokens:,} answer tokens are more than the "
                f"{room:,} positions of gauge/{self.name}.",
            )


def check_name(name: str) -> None:
    """Raise SettingsError unless the name is that of an engine."""
    if name not in NAMES:
        raise SettingsError(f"Unknown gauge '{name}'. Type: gauge/{NAME}")


def positions_of(name: str) -> int:
    """Return the most tokens that a gauge takes, those of the answer included."""
    return int(config_of(name)["max_position_embeddings"])


@cache
def chat(*, base: bool = False) -> Chat:
    """Return the checkpoint's tokenizer with its chat template, or without it for plain texts."""
    return Chat.of(ModelFiles(str(DATA)), base=base)


def frame_texts(rows: Sequence[Row]) -> tuple[TokenText, TokenText]:
    """Return the texts before and behind a haystack, in tokens."""
    return chat(base=rows[0][0] == TEXT).render(rows)
