"""The model in the box: a real transformer that finds needles within 256 tokens and loses them
beyond."""

from __future__ import annotations

import asyncio
import importlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from needlemap.errors import Failure, SettingsError, Unmeasured
from needlemap.models import Answer, Decoding
from needlemap.models.demo import (
    CHUNK,
    DATA,
    DemoModel,
    NumpyEngine,
    Weights,
    attention,
    load_engine,
    stop_tokens,
)
from needlemap.models.walk import Walk, shared_prefix
from needlemap.plan import ordered
from needlemap.registry import find
from needlemap.settings.reading import configure
from needlemap.trials import Trial
from needlemap.trials.build import prepare

TOOLS = Path(__file__).parents[2] / "tools"
ANSWER_TOKENS = 24


@pytest.fixture(scope="module")
def weights() -> Weights:
    return Weights.load(DATA / "retriever.npz")


@pytest.fixture(scope="module")
def stops() -> tuple[int, ...]:
    return stop_tokens(tokenizers.Tokenizer.from_file(str(DATA / "tokenizer.json")))


def asked(**given: Any) -> list[Trial]:
    """Trials of the demo preset, in the order of a run."""
    return ordered(prepare(configure("demo", given)).trials, "exact")


def random_ids(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1024, count).astype(np.int32)


def answer(trial: Trial, decoding: Decoding | None = None) -> Answer:
    return asyncio.run(
        DemoModel("retriever").answer(trial.prompt, decoding or Decoding(ANSWER_TOKENS))
    )


def found(trials: list[Trial], weights: Weights, stops: tuple[int, ...]) -> float:
    """Share of trials whose number stands in the answer."""
    vocabulary = tokenizers.Tokenizer.from_file(str(DATA / "tokenizer.json"))
    walk, hits = Walk(NumpyEngine(weights), stops), 0
    for trial in trials:
        said = vocabulary.decode(list(walk.ask(trial.prompt.ids, ANSWER_TOKENS).answer))
        hits += trial.item.reference.keywords[0] in said
    return hits / len(trials)


def reference_logits(weights: Weights, ids: np.ndarray) -> np.ndarray:
    """All logits, (tokens, vocabulary), straight from the formulas: float64, head by head, no
    cache."""

    def norm(rows: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return rows / np.sqrt((rows**2).mean(-1, keepdims=True) + weights.eps) * scale

    width, count = weights.head_width, len(ids)
    pairs = width // 2
    turn = np.exp(
        1j * np.outer(np.arange(count), weights.theta ** (-np.arange(pairs) * 2.0 / width))
    )

    def turned(rows: np.ndarray) -> np.ndarray:
        pairwise = (rows[:, :pairs] + 1j * rows[:, pairs:]) * turn
        return np.concatenate([pairwise.real, pairwise.imag], -1)

    hidden = weights.embedding.astype(np.float64)[ids]
    for layer in weights.layers:
        queries, keys, values = np.split(norm(hidden, layer.norm_1) @ layer.attend.T, 3, -1)
        heads = []
        for head in range(weights.heads):
            own = slice(head * width, (head + 1) * width)
            scores = turned(queries[:, own]) @ turned(keys[:, own]).T / np.sqrt(width)
            seen = np.exp(np.where(np.tri(count, dtype=bool), scores, -np.inf))
            heads.append(seen / seen.sum(-1, keepdims=True) @ values[:, own])
        hidden = hidden + np.concatenate(heads, -1) @ layer.mix.T
        gate, up = np.split(norm(hidden, layer.norm_2) @ layer.widen.T, 2, -1)
        hidden = hidden + (gate / (1 + np.exp(-gate)) * up) @ layer.narrow.T
    return norm(hidden, weights.last_norm) @ weights.embedding.T


@pytest.mark.parametrize("count", [1, 2, CHUNK, CHUNK + 1, 3 * CHUNK - 7])
def test_logits_are_those_of_the_formulas(weights: Weights, count: int):
    ids = random_ids(count)
    np.testing.assert_allclose(
        NumpyEngine(weights).extend(ids), reference_logits(weights, ids)[-1], rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("keys", [1, 50, CHUNK, 2 * CHUNK])
def test_keys_that_are_weighed_block_by_block_give_the_logits_of_the_formulas(
    weights: Weights, monkeypatch: pytest.MonkeyPatch, keys: int
):
    monkeypatch.setattr("needlemap.models.demo._SCORES", keys * CHUNK)
    ids = random_ids(3 * CHUNK - 7)
    np.testing.assert_allclose(
        NumpyEngine(weights).extend_all(ids), reference_logits(weights, ids), rtol=0, atol=1e-4
    )


def test_keys_far_below_the_best_one_are_weighed_by_no_denormal_number():
    """With them the products took three times as long on Intel's processors."""
    keys = np.linspace(0, 1, 300, dtype=np.float32)[None, :, None]
    queries = np.full((1, 300, 1), 500, np.float32)
    with np.errstate(under="raise"):
        found = attention(queries, keys, keys)
    np.testing.assert_allclose(found[0, 1:, 0], keys[0, 1:, 0], atol=0.01)


def test_logits_are_those_of_the_network_that_was_trained(
    weights: Weights, monkeypatch: pytest.MonkeyPatch
):
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(TOOLS)
    tool = importlib.import_module("train_demo_model")
    network = tool.Retriever(tool.Shape())
    with torch.no_grad(), np.load(DATA / "retriever.npz", allow_pickle=False) as arrays:
        for name, value in network.named_parameters():
            value.copy_(torch.tensor(arrays[name.removeprefix("layers.")].astype(np.float32)))
        ids = random_ids(300)
        logits = network(torch.tensor(ids[None].astype(np.int64)))[0, -1].numpy()
    np.testing.assert_allclose(NumpyEngine(weights).extend(ids), logits, rtol=0, atol=1e-4)


def test_a_window_hides_what_lies_further_back_than_all_layers_reach(
    monkeypatch: pytest.MonkeyPatch,
):
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(TOOLS)
    tool = importlib.import_module("train_demo_model")
    torch.manual_seed(1)
    whole, narrow, wide = (tool.Retriever(tool.Shape(window=n)) for n in (None, 20, 300))
    for other in (narrow, wide):
        other.load_state_dict(whole.state_dict())
    ids = torch.tensor(random_ids(300)[None].astype("int64"))
    changed = ids.clone()
    changed[0, 0] = (ids[0, 0] + 1) % 1024
    with torch.no_grad():
        assert torch.equal(whole(ids), wide(ids))
        reach = 3 * (20 - 1)  # tokens, over three layers
        before, after = narrow(ids)[0], narrow(changed)[0]
    assert not torch.equal(before[reach], after[reach])
    assert torch.equal(before[reach + 1 :], after[reach + 1 :])


def test_a_text_in_pieces_gives_the_logits_of_the_whole(weights: Weights):
    ids = random_ids(700)
    whole, pieces = NumpyEngine(weights).extend(ids), NumpyEngine(weights)
    for start, stop in ((0, 1), (1, 90), (90, 90 + CHUNK), (90 + CHUNK, 700)):
        last = pieces.extend(ids[start:stop])
    np.testing.assert_allclose(last, whole, rtol=0, atol=1e-4)


def test_walked_answers_equal_those_from_an_empty_cache(weights: Weights, stops: tuple[int, ...]):
    trials = asked(lengths=[96, 150, 256, 400, 512], depths="0:100:5", repeats=1)
    assert len(trials) >= 20  # of 25 cells, some of which come to the same prompt
    walk, computed = Walk(NumpyEngine(weights), stops), 0
    for trial in trials:
        walked = walk.ask(trial.prompt.ids, ANSWER_TOKENS)
        fresh = Walk(NumpyEngine(weights), stops).ask(trial.prompt.ids, ANSWER_TOKENS)
        assert walked == replace(fresh, computed=walked.computed, cached=walked.cached)
        assert walked.computed + walked.cached == trial.prompt.tokens
        computed += walked.computed
    assert computed < 0.8 * sum(trial.prompt.tokens for trial in trials)


def test_a_question_leaves_the_cache_as_it_found_it(weights: Weights):
    engine = NumpyEngine(weights)
    engine.extend(random_ids(333))
    before = engine.cache.tobytes()
    for turn in range(3):
        engine.extend(random_ids(1500, seed=turn))  # makes the cache grow, too
        engine.crop(333)
        assert engine.cache.shape[3] == 333
        assert engine.cache.tobytes() == before


def test_another_prefix_changes_the_logits(weights: Weights):
    """Else the tests above would prove nothing."""
    ids, other = random_ids(200), random_ids(200)
    other[:100] = random_ids(100, seed=1)
    assert np.abs(NumpyEngine(weights).extend(ids) - NumpyEngine(weights).extend(other)).max() > 0.1


def test_any_length_can_be_asked(weights: Weights):
    assert np.isfinite(NumpyEngine(weights).extend(random_ids(3000))).all()


def test_crop_refuses_what_is_not_there(weights: Weights):
    engine = NumpyEngine(weights)
    engine.extend(random_ids(5))
    with pytest.raises(ValueError, match="cannot crop a cache of 5 tokens to 6"):
        engine.crop(6)
    with pytest.raises(ValueError, match="at least one token"):
        engine.extend(random_ids(0))
    engine.crop(0)
    assert engine.cache.size == 0


def test_out_of_memory_is_unmeasured(weights: Weights, monkeypatch: pytest.MonkeyPatch):
    engine = NumpyEngine(weights)
    monkeypatch.setattr(engine, "_empty_cache", lambda _: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(Unmeasured, match="No memory for a cache of 5 tokens") as caught:
        engine.extend(random_ids(5))
    assert caught.value.failure is Failure.MEMORY


def test_it_finds_needles_within_the_length_it_was_trained_on(
    weights: Weights, stops: tuple[int, ...]
):
    trials = asked(lengths=[96, 160, 224, 256], depths="0:100:5", repeats=4, seed=77)
    assert found(trials, weights, stops) >= 0.95


def test_it_loses_them_far_beyond(weights: Weights, stops: tuple[int, ...]):
    assert found(asked(lengths=[1024], depths=[0], repeats=12, seed=77), weights, stops) <= 0.1


def test_beyond_its_length_it_loses_the_farthest_first(weights: Weights, stops: tuple[int, ...]):
    far = asked(lengths=[512], depths=[0], repeats=10, seed=77)
    near = asked(lengths=[512], depths=[75], repeats=10, seed=77)
    assert found(far, weights, stops) + 0.4 <= found(near, weights, stops)


def test_an_answer_is_one_line_with_its_usage():
    trial = asked(lengths=[128], depths=[50], repeats=1)[0]
    said = answer(trial)
    assert said.text == trial.item.reference.answer
    assert (said.finish, said.prompt_tokens, said.cached_tokens) == ("stop", trial.prompt.tokens, 0)
    assert 0 < (said.completion_tokens or 0) < ANSWER_TOKENS
    assert said.latency_s > 0
    cut = answer(trial, Decoding(3))
    assert (cut.finish, cut.completion_tokens) == ("length", 3)
    assert said.text.startswith(cut.text)


def test_cached_tokens_are_reported():
    trials = asked(lengths=[128], depths=[50, 100], repeats=1)

    async def both() -> list[Answer]:
        model = DemoModel("retriever")
        said = [await model.answer(trial.prompt, Decoding(ANSWER_TOKENS)) for trial in trials]
        await model.close()
        return said

    first, second = asyncio.run(both())
    assert first.cached_tokens == 0
    assert second.cached_tokens == shared_prefix(*(trial.prompt.ids for trial in trials)) > 20


def test_it_says_how_likely_it_finds_a_given_answer():
    trial = asked(lengths=[128], depths=[50], repeats=1)[0]
    right = trial.item.reference.answer

    async def forced(*answers: str) -> list[Answer]:
        model = DemoModel("retriever")
        return [await model.force(trial.prompt, answer, Decoding()) for answer in answers]

    likely, unlikely = asyncio.run(forced(right, right.replace(".", "?")))
    assert likely.text == ""
    assert likely.forced
    assert unlikely.forced
    assert (likely.forced.greedy, unlikely.forced.greedy) == (True, False)
    assert likely.forced.logprobs[:-1] == pytest.approx(unlikely.forced.logprobs[:-1])
    assert likely.forced.logprobs[-1] > unlikely.forced.logprobs[-1] + 2
    assert (likely.cached_tokens, unlikely.cached_tokens) == (0, trial.prompt.tokens)


def test_extend_all_gives_the_logits_of_every_position(weights: Weights):
    ids = random_ids(CHUNK + 20)
    rows = NumpyEngine(weights).extend_all(ids)
    np.testing.assert_allclose(rows, reference_logits(weights, ids), rtol=0, atol=1e-4)


def test_prompts_are_ids_of_its_own_vocabulary():
    traits = DemoModel.traits("retriever", {})
    assert (traits.chat, traits.tokenizer) == (False, str(DATA / "tokenizer.json"))
    trial = asked(lengths=[200], depths=[50], repeats=1)[0]
    assert trial.prompt.tokens == len(trial.prompt.ids) == 200 - ANSWER_TOKENS
    vocabulary = tokenizers.Tokenizer.from_file(str(DATA / "tokenizer.json"))
    assert vocabulary.decode(trial.prompt.ids.tolist()) == trial.prompt.messages[0].content
    assert trial.prompt.messages[0].content.endswith(f"Question: {trial.item.question}\nAnswer:")


def test_an_answer_prefix_is_part_of_the_prompt():
    trial = asked(lengths=[200], depths=[50], repeats=1, answer_prefix=" The locker code for")[0]
    assert trial.prompt.messages[0].content.endswith("Answer: The locker code for")


def test_only_the_retriever_is_in_the_box():
    with pytest.raises(
        SettingsError, match=r"Unknown demo model 'retreiver'\. Did you mean 'retriever'"
    ):
        DemoModel.traits("retreiver", {})
    with pytest.raises(SettingsError, match="Unknown demo model"):
        DemoModel("gpt")
    with pytest.raises(SettingsError, match="Unknown option 'window' of DemoModel"):
        DemoModel("retriever", window=3)
    assert find("models", "demo") is DemoModel


def test_another_checkpoint_of_its_kind_can_be_asked(tmp_path: Path):
    with pytest.raises(
        SettingsError, match=r"No retriever\.npz in .*tools/train_demo_model\.py --out"
    ):
        asked(model_options={"folder": str(tmp_path)}, lengths=[128], depths=[50], repeats=1)
    for file in ("retriever.npz", "tokenizer.json"):
        (tmp_path / file).write_bytes((DATA / file).read_bytes())
    options = {"folder": str(tmp_path)}
    trial = asked(model_options=options, lengths=[128], depths=[50], repeats=1)[0]
    said = asyncio.run(
        DemoModel("retriever", **options).answer(trial.prompt, Decoding(ANSWER_TOKENS))
    )
    assert said.text == answer(trial).text


def test_a_chat_template_is_refused():
    with pytest.raises(SettingsError, match="Use --template text-en"):
        asked(template="chat-en", lengths=[256], depths=[0], repeats=1)


@pytest.mark.parametrize(
    ("decoding", "message"),
    [
        (Decoding(temperature=0.7), "always answers greedily"),
        (Decoding(request={"top_p": 0.5}), "takes no request fields, got top_p"),
    ],
)
def test_what_it_cannot_do_is_refused_not_ignored(decoding: Decoding, message: str):
    trial = asked(lengths=[128], depths=[0], repeats=1)[0]
    with pytest.raises(Unmeasured, match=message) as caught:
        answer(trial, decoding)
    assert caught.value.failure is Failure.REJECTED


def test_log_probabilities_are_those_of_the_answer_given_back_and_change_nothing():
    trial = asked(lengths=[128], depths=[50], repeats=1)[0]
    plain, told = answer(trial), answer(trial, Decoding(ANSWER_TOKENS, logprobs=True))
    assert (plain.text, plain.logprobs) == (told.text, None)
    given = asyncio.run(DemoModel("retriever").force(trial.prompt, told.text, Decoding())).logprobs
    assert told.logprobs is not None
    assert given is not None
    assert (told.logprobs.way, given.way) == ("generated", "walk")
    assert told.logprobs.start == given.start == len(trial.prompt.ids)
    count = len(given.tokens)
    assert "".join(given.tokens) == f" {told.text}"
    assert told.logprobs.tokens == (*given.tokens, "\n"), "what ended it is kept too"
    assert told.logprobs.nats[:count] == pytest.approx(given.nats, abs=1e-4)
    assert told.logprobs.others[:count] == given.others


def test_an_answer_that_takes_too_long_is_unmeasured(monkeypatch: pytest.MonkeyPatch):
    from time import sleep

    computed, sound = list[int](), NumpyEngine._chunk

    def slow(engine: NumpyEngine, ids: np.ndarray, **whole: bool) -> np.ndarray:
        computed.append(len(ids))
        sleep(0.05)
        return sound(engine, ids, **whole)

    monkeypatch.setattr(NumpyEngine, "_chunk", slow)
    trial = asked(lengths=[128], depths=[0], repeats=1)[0]
    with pytest.raises(Unmeasured) as caught:
        answer(trial, Decoding(timeout_s=0.01))
    assert caught.value.failure is Failure.TIMED_OUT
    assert len(computed) == 1, "the rest was not computed"


def test_the_box_is_small_and_its_measurements_lie_beside_it():
    assert sum(path.stat().st_size for path in DATA.iterdir()) <= 2_000_000
    with np.load(DATA / "retriever.npz", allow_pickle=False) as arrays:
        parameters = sum(arrays[name].size for name in arrays.files if arrays[name].ndim)
    assert parameters < 1_000_000
    training = json.loads((DATA / "training.json").read_text("utf-8"))
    assert training["parameters"] == parameters
    measured = training["measured"]["found"]
    within = [
        share for length in ("96", "128", "192", "256") for share in measured[length].values()
    ]
    assert np.mean(within) >= 0.98
    assert measured["1024"]["0"] <= 0.1


def test_no_torch_is_needed():
    program = (
        "import sys; from needlemap.models.demo import DATA, load_engine; import numpy as np;"
        "load_engine(DATA).extend(np.arange(9, dtype=np.int32));"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_load_engine_starts_empty():
    assert load_engine(DATA).cache.size == 0
