"""The contract of the walk, with real transformers in float32 on the CPU.

Every answer equals that of the same prompt from an empty cache, token for token, and a question
leaves the cache as it found it, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from needlemap.models.walk import Engine, Ids, Logits, Walk, shared_prefix
from needlemap.plan import shared as shared_in
from needlemap.plan.cover import WALKED
from needlemap.settings import Settings
from needlemap.trials import Trial

torch = pytest.importorskip("torch", reason="needs torch: python3 -m pip install '.[hf]'")
transformers = pytest.importorskip(
    "transformers", reason="needs transformers: python3 -m pip install '.[hf]'"
)

from needlemap.models.hf_attention import split_attention  # noqa: E402
from needlemap.models.hf_check import settle  # noqa: E402
from needlemap.models.hf_engine import HuggingFaceEngine  # noqa: E402
from needlemap.models.model_files import Loading, load_model  # noqa: E402

MODES = [mode for mode in get_args(Settings.model_fields["mode"].annotation) if mode != "cold"]
CROPPABLE = ["llama", "gpt2", "gpt_neox", "qwen3"]
ANSWER = 8  # tokens
STOP = 4
Folders = Callable[..., Path]
Trials = Callable[..., list[Trial]]


@cache
def loaded(folder: Path) -> Any:
    return load_model(str(folder), Loading(device="cpu", dtype="float32"))


_FRESH: dict[tuple[Path, bytes], tuple[int, ...]] = {}


def fresh(folder: Path, ids: Ids) -> tuple[int, ...]:
    """What transformers' own `generate` answers, from nothing."""
    key = (folder, ids.tobytes())
    if key not in _FRESH:
        tokens = torch.from_numpy(ids.astype(np.int64))[None]
        said = loaded(folder).generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=ANSWER,
            do_sample=False,
            eos_token_id=STOP,
            pad_token_id=0,
        )
        answer = said[0, len(ids) :].tolist()
        _FRESH[key] = tuple(answer[: answer.index(STOP)] if STOP in answer else answer)
    return _FRESH[key]


def different(engine: Any, folder: Path, asked: list[Trial]) -> int:
    """How many answers of a walk are not those from an empty cache."""
    walk = Walk(engine, [STOP])
    answers = [walk.ask(trial.prompt.ids, ANSWER).answer for trial in asked]
    return sum(
        answer != fresh(folder, trial.prompt.ids)
        for answer, trial in zip(answers, asked, strict=True)
    )


class Forgetful(HuggingFaceEngine):
    """A bug to be caught: its cache is never cropped."""

    def crop(self, length_tokens: int) -> int:
        if not length_tokens:
            super().crop(0)
        return length_tokens


class Watched(Engine):
    """An engine that compares the cache behind each question with the one before it."""

    def __init__(self, engine: HuggingFaceEngine) -> None:
        self._engine = engine
        self._before: list[Any] = []
        self._prompt = 0
        self.questions = self.unequal = 0

    def extend(self, ids: Ids) -> Logits:
        logits = self._engine.extend(ids)
        if not self._before:  # the prompt; what follows until the next crop is its answer
            self._before = [tensor.clone() for tensor in states(self._engine)]
            self._prompt = self._before[0].shape[-2]
        return logits

    def crop(self, length_tokens: int) -> int:
        kept = self._engine.crop(length_tokens)
        if self._before and length_tokens == self._prompt:
            self.questions += 1
            after = states(self._engine)
            self.unequal += not all(
                torch.equal(*pair) for pair in zip(self._before, after, strict=True)
            )
        self._before = []
        return kept


def states(engine: HuggingFaceEngine) -> list[Any]:
    """Keys and values of all layers, (1, kv_heads, tokens, head_dim) each."""
    return [tensor for layer in engine.cache.layers for tensor in (layer.keys, layer.values)]


def nodes(asked: list[Trial]) -> int:
    """Distinct prefixes of all prompts."""
    prompts = [trial.prompt.ids.tolist() for trial in asked]
    root: dict[int, Any] = {}
    count = 0
    for ids in prompts:
        here = root
        for token in ids:
            count += token not in here
            here = here.setdefault(token, {})
    return count


@pytest.mark.parametrize(
    ("architecture", "mode"),
    [
        *((name, "exact") for name in CROPPABLE),
        *(("llama", mode) for mode in MODES if mode != "exact"),
    ],
)
def test_every_token_equals_that_from_an_empty_cache(
    folders: Folders, trials: Trials, architecture: str, mode: str
) -> None:
    folder = folders(architecture)
    asked = trials(folder, mode)
    assert len(asked) >= 45  # of fifty cells, some of which come to the same prompt
    engine = HuggingFaceEngine(loaded(folder), 2048)
    assert settle(engine) == ()
    assert different(engine, folder, asked) == 0


@pytest.mark.parametrize(
    ("model", "mode"),
    [("tiny_retriever", "exact"), *(("llama", mode) for mode in (*MODES, "cold"))],
)
def test_so_it_does_where_another_vocabulary_counts_the_lengths(
    folders: Folders, trials: Trials, shared: Path, model: str, mode: str
) -> None:
    """The walk, and what it promises to share, are of the ids that the model is fed."""
    folder = folders(model) if model in CROPPABLE else shared / "data" / model
    if not folder.is_dir():
        pytest.skip(f"no trained model at {folder}")
    asked = trials(folder, mode, "gpt-4", "128:256")
    assert all(trial.prompt.fed for trial in asked)
    assert different(HuggingFaceEngine(loaded(folder), 2048), folder, asked) == 0
    walk = Walk(HuggingFaceEngine(loaded(folder), 2048), [STOP])
    cached = [walk.ask(trial.prompt.ids, 1).cached for trial in asked]
    ids = [trial.prompt.ids for trial in asked]
    assert cached[1:] == [min(shared_prefix(*pair), len(pair[1])) for pair in pairwise(ids)]
    if mode in WALKED:
        assert cached == shared_in(asked, mode)
        assert sum(map(len, ids)) - sum(cached) == nodes(asked)


def test_the_test_would_catch_a_stale_cache(folders: Folders, trials: Trials) -> None:
    folder = folders("llama")
    asked = trials(folder, "exact")
    assert different(Forgetful(loaded(folder), 2048), folder, asked) > len(asked) // 2


def test_the_answers_differ_from_prompt_to_prompt(folders: Folders, trials: Trials) -> None:
    folder = folders("llama")
    asked = trials(folder, "exact")
    assert len({fresh(folder, trial.prompt.ids) for trial in asked}) > len(asked) // 2


@pytest.mark.parametrize("architecture", CROPPABLE)
def test_a_question_leaves_the_cache_as_it_found_it_bit_for_bit(
    folders: Folders, trials: Trials, architecture: str
) -> None:
    folder = folders(architecture)
    asked = trials(folder, "exact")
    watched = Watched(HuggingFaceEngine(loaded(folder), 2048))
    walk = Walk(watched, [STOP])
    for trial in asked:
        walk.ask(trial.prompt.ids, ANSWER)
    distinct = len({trial.prompt.ids.tobytes() for trial in asked})
    assert watched.questions >= distinct
    assert watched.unequal == 0


@pytest.mark.parametrize("architecture", CROPPABLE)
def test_a_cache_that_is_written_in_place_holds_what_transformers_own_would(
    folders: Folders, trials: Trials, architecture: str
) -> None:
    folder = folders(architecture)
    ids = trials(folder, "exact")[-1].prompt.ids
    engine = HuggingFaceEngine(loaded(folder), 100)
    theirs = transformers.DynamicCache()
    for start in range(0, len(ids), 100):
        engine.extend(ids[start : start + 100])
        tokens = torch.from_numpy(ids[start : start + 100].astype(np.int64))[None]
        with torch.inference_mode(), split_attention():
            loaded(folder)(tokens, past_key_values=theirs, logits_to_keep=1)
    assert states(engine)[0].shape[-2] == len(ids)
    own = [tensor for layer in theirs.layers for tensor in (layer.keys, layer.values)]
    assert all(torch.equal(*pair) for pair in zip(states(engine), own, strict=True))


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "single"])
def test_it_computes_each_token_once(folders: Folders, trials: Trials, mode: str) -> None:
    folder = folders("llama")
    asked = trials(folder, mode)
    walk = Walk(HuggingFaceEngine(loaded(folder), 2048), [STOP])
    walked = [walk.ask(trial.prompt.ids, 1) for trial in asked]
    assert sum(step.computed for step in walked) == nodes(asked)
    assert all(
        step.computed + step.cached == len(trial.prompt.ids)
        for step, trial in zip(walked, asked, strict=True)
    )


def test_small_chunks_change_nothing(folders: Folders, trials: Trials) -> None:
    folder = folders("qwen3")
    assert (
        different(HuggingFaceEngine(loaded(folder), 37), folder, trials(folder, "exact")[:24]) == 0
    )


@pytest.mark.parametrize("architecture", ["mistral", "mamba"])
def test_without_sharing_every_prompt_is_computed_in_full(
    folders: Folders, trials: Trials, architecture: str
) -> None:
    folder = folders(architecture)
    asked = trials(folder, "exact")[:24]
    engine = HuggingFaceEngine(loaded(folder), 100, share=False)
    settle(engine)
    assert different(engine, folder, asked) == 0
    walk = Walk(engine, [STOP])
    assert [walk.ask(trial.prompt.ids, 1).cached for trial in asked[:3]] == [0, 0, 0]


def test_a_sliding_window_is_shared_and_equal(folders: Folders, trials: Trials) -> None:
    folder = folders("mistral")
    engine = HuggingFaceEngine(loaded(folder), 100)
    assert settle(engine) == ()
    assert different(engine, folder, trials(folder, "exact")) == 0


def test_a_given_answer_is_weighed_as_in_one_fresh_pass(folders: Folders, trials: Trials) -> None:
    folder = folders("llama")
    engine = HuggingFaceEngine(loaded(folder), 2048)
    walk = Walk(engine, [STOP])
    answer = np.array([300, 400, 500, 600], np.int32)
    for trial in trials(folder, "exact")[:12]:
        ids = trial.prompt.ids
        weighed = walk.weigh(ids, answer)
        whole = torch.from_numpy(np.concatenate([ids, answer]).astype(np.int64))[None]
        with torch.inference_mode():
            rows = loaded(folder)(whole).logits[0, len(ids) - 1 : -1].double().log_softmax(-1)
        expected = rows[torch.arange(len(answer)), torch.from_numpy(answer.astype(np.int64))]
        assert weighed.logprobs == pytest.approx(expected.tolist(), abs=1e-4)
        assert walk.ask(ids, ANSWER).answer == fresh(folder, ids)


def test_the_answer_that_it_gives_is_its_greedy_match(folders: Folders, trials: Trials) -> None:
    folder = folders("llama")
    ids = trials(folder, "exact")[0].prompt.ids
    walk = Walk(HuggingFaceEngine(loaded(folder), 2048), [STOP])
    said = np.array(walk.ask(ids, ANSWER).answer, np.int32)
    assert walk.weigh(ids, said).greedy
    said[-1] += 1
    assert not walk.weigh(ids, said).greedy
