"""Small runs of every kind, prepared as a user's settings would, and what a prefix tree is by brute
force."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest

from needlemap.haystacks.generated import Generated
from needlemap.settings.reading import configure
from needlemap.text.tokens import Cuts
from needlemap.trials.build import Experiment, prepare

SMALL = {"tokenizer": "cl100k_base", "max_answer_tokens": 20}
TEMPLATE = (
    "{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}<s>assistant:"
)


@pytest.fixture(scope="session")
def prepared() -> Callable[..., Experiment]:
    """prepared(lengths=..., mode=...): everything but the answers, by tokens of cl100k_base."""

    @cache
    def make(settings: str) -> Experiment:
        return prepare(configure(None, {**SMALL, **json.loads(settings)}))

    def prepared(**settings: Any) -> Experiment:
        return make(json.dumps(settings, sort_keys=True))

    return prepared


@pytest.fixture(scope="session")
def fed_ids(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Settings of a model that is fed token ids: a folder with tokenizer and chat template, no
    weights."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<s>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(
        (page.text for page in islice(Generated().documents(), 10)), trainer
    )
    folder = tmp_path_factory.mktemp("model")
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>"}))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return {"model": f"hf/{folder}", "tokenizer": "auto"}


@pytest.fixture(scope="session")
def nodes() -> Callable[[Iterable[Sequence[int]]], int]:
    """How many nodes the prefix tree of some sequences of ids has: one for each distinct prefix."""

    def nodes(prompts: Iterable[Sequence[int]]) -> int:
        tree: dict[tuple[int, int], int] = {}
        for ids in prompts:
            node = 0
            for token in ids:
                node = tree.setdefault((node, int(token)), len(tree) + 1)
        return len(tree)

    return nodes


@pytest.fixture(scope="session")
def cuts() -> Callable[..., Cuts]:
    """cuts(n, sentence=20, character=1): a text of n tokens with a cut of each kind every so many
    tokens."""

    def cuts(n: int, sentence: int = 20, character: int = 1) -> Cuts:
        at = np.arange(n + 1, dtype=np.int32)
        ends, starts = at - at % sentence, at - at % character
        return Cuts(starts, ends, starts, starts)

    return cuts
