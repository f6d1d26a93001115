"""The `lmdeploy` back end against the installed package.

Its engines need an NVIDIA GPU. So every name and argument that the back end uses is looked up in
the real package; and the real pipeline, sessions, checks and batching run here, on top of an engine
that stands in for the CUDA part alone: it speaks LMDeploy's `EngineOutput` and computes with a real
transformer on the CPU.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from needlemap.asking.session import Session, make_model
from needlemap.errors import Failure, SettingsError, Unmeasured
from needlemap.models import Answer, Decoding
from needlemap.registry import checked
from needlemap.reports.live import LiveView
from needlemap.settings.reading import configure
from needlemap.trials import Trial
from needlemap.trials.build import prepare

pytest.importorskip("torch", reason="needs torch: python3 -m pip install '.[hf]'")
lmdeploy = pytest.importorskip("lmdeploy", reason="needs lmdeploy: see .ci/run")

from needlemap.cluster.lmdeploy import (  # noqa: E402
    _REFUSALS,
    OURS,
    LMDeployModel,
    engine_config,
    generation_config,
    refusal,
)
from needlemap.models.hf import HuggingFaceModel  # noqa: E402

Folders = Callable[..., Path]
SHORT = Decoding(max_answer_tokens=6)
BLOCK = 64


# --- the real package's names


def options() -> set[str]:
    named = inspect.signature(LMDeployModel.__init__).parameters
    return {name for name in named if name not in OURS}


def parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters)


def names(config: Any) -> set[str]:
    return {field.name for field in fields(config)}


def test_each_option_is_one_of_the_engines_own() -> None:
    turbomind, pytorch = names(lmdeploy.TurbomindEngineConfig), names(lmdeploy.PytorchEngineConfig)
    assert options() <= turbomind | pytorch
    needed = {
        "session_len",
        "tp",
        "max_batch_size",
        "quant_policy",
        "enable_prefix_caching",
        "dtype",
    }
    assert needed | {"cache_max_entry_count", "model_format"} <= turbomind & pytorch
    assert "rope_scaling_factor" in turbomind


@pytest.mark.parametrize("engine", ["turbomind", "pytorch"])
def test_an_engines_options_arrive_as_given(engine: str) -> None:
    shared = {
        "session_len": 200_000,
        "tp": 4,
        "max_batch_size": 8,
        "quant_policy": 8,
        "dtype": "bfloat16",
    }
    shared |= {"enable_prefix_caching": True, "cache_max_entry_count": 0.7}
    config = engine_config(lmdeploy, engine, shared)
    assert {name: getattr(config, name) for name in shared} == shared


@pytest.mark.parametrize(
    ("engine", "wrong", "message"),
    [
        (
            "turbomind",
            {"block_size": 64},
            "'block_size'. It is one of --model-options engine=pytorch",
        ),
        ("pytorch", {"rope_scaling_factor": 2.0}, "Engine 'pytorch' of lmdeploy .* has no option"),
        ("pytorch", {"of_another_release": 1}, "has no option 'of_another_release'.$"),
        ("turbomind", {"quant_policy": 5}, "does not take that: .*quant_policy"),
        ("turbomind", {"dtype": "float8"}, "does not take that"),
        ("pytorch", {"cache_max_entry_count": 3.0}, "invalid cache_max_entry_count"),
    ],
)
def test_what_an_engine_does_not_take_is_refused_in_its_words(
    engine: str, wrong: Any, message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        engine_config(lmdeploy, engine, wrong)


def test_a_misspelt_option_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(SettingsError, match="Did you mean 'session_len'"):
        checked(LMDeployModel, {"sesion_len": 4096})


def test_everything_that_the_back_end_calls_takes_what_it_gives() -> None:
    from lmdeploy.pipeline import Pipeline
    from lmdeploy.serve.core import AsyncEngine
    from lmdeploy.serve.managers.session_manager import Session as EngineSession
    from lmdeploy.serve.managers.session_manager import SessionManager

    opened = {"model_path", "backend_config", "log_level", "trust_remote_code"}
    assert opened <= parameters(lmdeploy.pipeline)
    assert {"messages", "session_id", "gen_config", "input_ids"} <= parameters(
        AsyncEngine.preprocess
    )
    assert inspect.iscoroutinefunction(AsyncEngine.preprocess)
    assert parameters(AsyncEngine.safe_run) == {"self", "handle", "session", "kwargs"}
    assert parameters(EngineSession.request_handle) == {"self"}
    assert "session" in parameters(SessionManager.remove)
    assert parameters(Pipeline.close) == {"self"}
    source = inspect.getsource(Pipeline.__init__)
    assert "self.async_engine" in source
    assert "self.internal_thread" in source


def test_an_output_and_a_request_have_the_fields_that_are_read() -> None:
    from lmdeploy.messages import EngineOutput, RequestMetrics
    from lmdeploy.serve.core.async_engine import PreprocessedRequest

    assert {"status", "token_ids", "req_metrics"} <= names(EngineOutput)
    assert "cached_tokens" in names(RequestMetrics)
    assert {"inputs", "gen_config"} <= names(PreprocessedRequest)


def test_every_refusal_that_is_told_apart_is_one_of_the_engines_own() -> None:
    from lmdeploy.messages import ResponseType
    from lmdeploy.serve.core.exceptions import ErrorCode

    known = {state.name for state in ResponseType} | {code.value for code in ErrorCode}
    assert set(_REFUSALS) | {"SUCCESS", "FINISH"} <= known


def test_answers_are_greedy_unless_there_is_a_temperature() -> None:
    greedy = generation_config(lmdeploy, Decoding(max_answer_tokens=9))
    assert (greedy.do_sample, greedy.max_new_tokens) == (False, 9)
    drawn = generation_config(lmdeploy, Decoding(temperature=0.7, seed=3, request={"top_p": 0.9}))
    assert (drawn.do_sample, drawn.temperature, drawn.random_seed, drawn.top_p) == (
        True,
        0.7,
        3,
        0.9,
    )


@pytest.mark.parametrize(
    ("request_fields", "message"),
    [
        ({"top_pp": 1}, "Did you mean 'top_p'"),
        ({"do_sample": True}, "takes no"),
        ({"top_p": 3}, "not take"),
    ],
)
def test_unknown_request_fields_are_refused(request_fields: dict[str, Any], message: str) -> None:
    with pytest.raises(Unmeasured, match=message) as refused:
        generation_config(lmdeploy, Decoding(request=request_fields))
    assert refused.value.failure is Failure.REJECTED


def test_refusals_mean_what_their_codes_say() -> None:
    from lmdeploy.serve.core.exceptions import ErrorCode, RequestError

    long = refusal(
        RequestError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "Input length (9) must be smaller")
    )
    assert (long.failure, "Input length (9)" in str(long)) == (Failure.TOO_LONG, True)
    full = RequestError(ErrorCode.INTERNAL_ERROR)
    full.__cause__ = RuntimeError("CUDA out of memory. Tried to allocate")
    assert refusal(full).failure is Failure.MEMORY
    assert refusal(RequestError(ErrorCode.INTERNAL_ERROR)).failure is Failure.MODEL
    assert refusal(RequestError(ErrorCode.INVALID_REQUEST)).failure is Failure.REJECTED


def test_without_a_gpu_the_engine_itself_says_so(folders: Folders) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    with pytest.raises(SettingsError, match=r"cannot be loaded by lmdeploy: \w+"):
        LMDeployModel(str(folders("llama")), engine="pytorch")


# --- the real pipeline, on an engine without CUDA


class Engine:
    """Stands in for `lmdeploy.pytorch.engine.Engine`: answers with transformers, keeps blocks of
    prefixes.

    trouble: what happens to the next prompt ('slow', 'memory', 'raise').
    """

    def __init__(self, folder: str, engine_config: Any) -> None:
        from needlemap.models.model_files import Loading, load_model

        self.engine_config = engine_config
        engine_config.max_batch_size = engine_config.max_batch_size or 4
        self.model = load_model(folder, Loading(device="cpu", dtype="float32"))
        self.held: set[bytes] = set()
        self.trouble = ""
        self.open_now = self.most_open = self.cancelled = 0
        self.order: list[bytes] = []
        self.lock = threading.Lock()

    def create_instance(self) -> Engine:
        return self

    def close(self) -> None:
        self.closed = True

    async def async_cancel(self, session_id: int) -> None:
        self.cancelled += 1

    async def async_stream_infer(
        self, session_id: int, input_ids: list[int], gen_config: Any, stream_output: bool
    ) -> AsyncIterator[Any]:
        from lmdeploy.messages import EngineOutput, RequestMetrics, ResponseType

        trouble, self.trouble = self.trouble, ""
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        self.order.append(np.array(input_ids, np.int32).tobytes())
        try:
            if trouble == "slow":
                await asyncio.sleep(60)
            if trouble == "raise":
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
            if trouble == "memory":
                yield EngineOutput(ResponseType.OUT_OF_MEMORY, [])
                return
            cached = self.reused(input_ids)
            answer = await asyncio.to_thread(self.generated, input_ids, gen_config)
            metrics = RequestMetrics(cached_tokens=cached)
            before = self.cancelled
            for token in answer if stream_output else ():
                yield EngineOutput(ResponseType.SUCCESS, [token], req_metrics=metrics)
                if self.cancelled > before:
                    yield EngineOutput(ResponseType.CANCEL, [], req_metrics=metrics)
                    return
            answer = [] if stream_output else answer
            yield EngineOutput(ResponseType.SUCCESS, answer[:2], req_metrics=metrics)
            yield EngineOutput(ResponseType.FINISH, answer[2:], req_metrics=metrics)
        finally:
            self.open_now -= 1

    def reused(self, ids: list[int]) -> int:
        """Tokens of whole blocks that were seen before, if prefix caching is on."""
        if not self.engine_config.enable_prefix_caching:
            return 0
        ends = range(BLOCK, len(ids), BLOCK)
        blocks = [np.array(ids[:end], np.int32).tobytes() for end in ends]
        found = next(
            (place for place, block in enumerate(blocks) if block not in self.held), len(blocks)
        )
        self.held.update(blocks)
        return found * BLOCK

    def generated(self, ids: list[int], gen_config: Any) -> list[int]:
        import torch

        assert gen_config.top_k == 1  # what LMDeploy makes of a greedy request
        tokens = torch.tensor([ids])
        with self.lock:
            said = self.model.generate(
                tokens,
                attention_mask=torch.ones_like(tokens),
                max_new_tokens=gen_config.max_new_tokens,
                do_sample=False,
                eos_token_id=gen_config.stop_token_ids,
                pad_token_id=0,
            )
        answer: list[int] = said[0, len(ids) :].tolist()
        return answer


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    """The engines that were made. Only building the CUDA part of one is replaced."""
    from lmdeploy.serve.core import AsyncEngine

    made: list[Engine] = []

    def build(_: Any, model_path: str, backend_config: Any, **__: Any) -> Engine:
        made.append(Engine(model_path, backend_config))
        return made[-1]

    monkeypatch.setattr(AsyncEngine, "_build_pytorch", build)
    monkeypatch.setattr(AsyncEngine, "_build_turbomind", build)
    monkeypatch.setattr(AsyncEngine, "_build_stat_loggers", lambda _: None)
    return made


@pytest.fixture
def folder(folders: Folders) -> Path:
    return folders("llama")


@pytest.fixture
def asked(folder: Path) -> list[Trial]:
    grid = {"lengths": "256:640:4", "depths": "0:100:4", "max_answer_tokens": 6, "mode": "bins"}
    from needlemap.plan import ordered

    return ordered(prepare(configure(None, {"model": f"lmdeploy/{folder}", **grid})).trials, "bins")


async def _each(model: Any, asked: list[Trial], decoding: Decoding) -> list[Answer]:
    return await asyncio.gather(*(model.answer(trial.prompt, decoding) for trial in asked))


async def _closing(model: Any, asked: list[Trial], decoding: Decoding) -> list[Answer]:
    try:
        return await _each(model, asked, decoding)
    finally:
        await model.close()


def ask(model: Any, asked: list[Trial], decoding: Decoding = SHORT) -> list[Answer]:
    return asyncio.run(_closing(model, asked, decoding))


def test_answers_through_the_pipeline_are_those_of_hf(
    engines: list[Engine], folder: Path, asked: list[Trial]
) -> None:
    found = ask(LMDeployModel(str(folder), engine="pytorch", session_len=2048), asked)
    expected = ask(HuggingFaceModel(str(folder)), asked)
    assert [(answer.text, answer.finish) for answer in found] == [
        (answer.text, answer.finish) for answer in expected
    ]
    assert len({answer.text for answer in found}) > 1
    assert [answer.prompt_tokens for answer in found] == [trial.prompt.tokens for trial in asked]
    assert [answer.completion_tokens for answer in found] == [a.completion_tokens for a in expected]
    assert engines[0].closed


@pytest.mark.usefixtures("engines")
def test_a_thinking_budget_comes_on_top_and_thoughts_that_do_not_end_are_no_answer(
    folder: Path, asked: list[Trial]
) -> None:
    budgets = Decoding(max_answer_tokens=6, thinking_tokens=4)
    ours, theirs = (
        ask(model, asked[:1], budgets)[0]
        for model in (LMDeployModel(str(folder), engine="pytorch"), HuggingFaceModel(str(folder)))
    )
    assert (ours.text, ours.finish, ours.completion_tokens) == ("", "length", 10)
    assert ours.thinking
    assert ours.thinking == theirs.thinking


@pytest.mark.usefixtures("engines")
def test_an_answer_ends_at_the_models_own_stop_tokens(
    folder: Path, asked: list[Trial], tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    said = ask(HuggingFaceModel(str(folder)), asked[:1])[0].text
    ids = (
        Tokenizer.from_file(str(copy / "tokenizer.json")).encode(said, add_special_tokens=False).ids
    )
    generation_config = json.loads((copy / "generation_config.json").read_text())
    generation_config["eos_token_id"] = [4, ids[-1]]
    (copy / "generation_config.json").write_text(json.dumps(generation_config))
    ours, theirs = (
        ask(model, asked[:1])[0]
        for model in (LMDeployModel(str(copy), engine="pytorch"), HuggingFaceModel(str(copy)))
    )
    assert (ours.text, ours.finish, ours.completion_tokens) == (
        theirs.text,
        "stop",
        theirs.completion_tokens,
    )
    assert ours.completion_tokens is not None
    assert ours.completion_tokens < 6


def test_stop_strings_end_answers_as_those_of_hf(
    engines: list[Engine], folder: Path, asked: list[Trial]
) -> None:
    """The engine's own stop words are single tokens."""
    said = [answer.text for answer in ask(HuggingFaceModel(str(folder)), asked[:4])]
    decoding = Decoding(max_answer_tokens=6, request={"stop": [text[2:6] for text in said]})
    ours = ask(LMDeployModel(str(folder), engine="pytorch"), asked[:4], decoding)
    theirs = ask(HuggingFaceModel(str(folder)), asked[:4], decoding)
    assert [(a.text, a.finish, a.completion_tokens) for a in ours] == [
        (a.text, a.finish, a.completion_tokens) for a in theirs
    ]
    assert engines[0].cancelled == 4
    assert {answer.finish for answer in ours} == {"stop"}


def test_requests_are_batched_and_keep_the_plans_order(
    engines: list[Engine], folder: Path, asked: list[Trial]
) -> None:
    model = LMDeployModel(str(folder), engine="pytorch", session_len=2048, max_batch_size=3)
    ask(model, asked)
    assert engines[0].most_open == 3
    assert engines[0].order == [trial.prompt.ids.astype(np.int32).tobytes() for trial in asked]


def test_cached_tokens_are_those_that_the_engine_reports(
    engines: list[Engine], folder: Path, asked: list[Trial]
) -> None:
    walk = asked[:6]
    on, off = (
        ask(LMDeployModel(str(folder), engine="pytorch", max_batch_size=1, **options), walk)
        for options in ({}, {"enable_prefix_caching": False})
    )
    assert engines[0].engine_config.enable_prefix_caching
    assert [answer.cached_tokens for answer in off] == [0] * len(walk)
    assert sum(answer.cached_tokens or 0 for answer in on) > BLOCK * len(walk) / 2
    assert all((answer.cached_tokens or 0) % BLOCK == 0 for answer in on)


def test_a_prompt_beyond_the_session_is_too_long_and_never_sent(
    engines: list[Engine], folder: Path, asked: list[Trial]
) -> None:
    tokens = asked[0].prompt.tokens
    model = LMDeployModel(str(folder), engine="pytorch", session_len=tokens + 5)
    with pytest.raises(Unmeasured, match=f"session_len={tokens + 6}") as refused:
        ask(model, asked[:1])
    assert refused.value.failure is Failure.TOO_LONG
    assert engines[0].order == []
    fits = LMDeployModel(str(folder), engine="pytorch", session_len=tokens + 6)
    assert ask(fits, asked[:1])[0].completion_tokens


@pytest.mark.parametrize("trouble", ["memory", "raise"])
def test_out_of_memory_is_its_own_failure_and_the_next_prompt_is_answered(
    engines: list[Engine], folder: Path, asked: list[Trial], trouble: str
) -> None:
    async def both(model: Any) -> Answer:
        try:
            with pytest.raises(Unmeasured) as caught:
                await model.answer(asked[0].prompt, SHORT)
            assert caught.value.failure is Failure.MEMORY
            answer: Answer = await model.answer(asked[1].prompt, SHORT)
            return answer
        finally:
            await model.close()

    model = LMDeployModel(str(folder), engine="pytorch")
    engines[0].trouble = trouble
    assert asyncio.run(both(model)).finish in ("stop", "length")


def test_a_late_answer_is_cancelled_in_the_engine_and_its_slot_is_free_again(
    engines: list[Engine], folder: Path, asked: list[Trial]
) -> None:
    async def both(model: Any) -> Answer:
        try:
            with pytest.raises(Unmeasured, match=r"within 0\.2 s") as caught:
                await model.answer(asked[0].prompt, Decoding(max_answer_tokens=6, timeout_s=0.2))
            assert caught.value.failure is Failure.TIMED_OUT
            answer: Answer = await model.answer(asked[1].prompt, SHORT)
            return answer
        finally:
            await model.close()

    model = LMDeployModel(str(folder), engine="pytorch", max_batch_size=1)
    engines[0].trouble = "slow"
    began = time.monotonic()
    assert asyncio.run(both(model)).completion_tokens
    assert time.monotonic() - began < 30
    assert engines[0].cancelled == 1


@pytest.mark.usefixtures("engines")
def test_another_engine_than_asked_for_is_announced(folder: Path) -> None:
    from lmdeploy import turbomind

    model = LMDeployModel(str(folder))
    assert bool(model.notes) is not turbomind.is_available()
    assert LMDeployModel(str(folder), engine="pytorch").notes == ()


@pytest.mark.usefixtures("engines")
def test_a_whole_run_is_scored(folder: Path, tmp_path: Path) -> None:
    given = {"lengths": "300,600", "depths": "0,50,100", "max_answer_tokens": 6, "mode": "exact"}
    engine = {"engine": "pytorch", "session_len": 1024, "max_batch_size": 2}
    settings = configure(None, {"model": f"lmdeploy/{folder}", "model_options": engine, **given})
    session = Session.open(prepare(settings), tmp_path / "run")
    outcome = asyncio.run(session.run(make_model(settings), LiveView()))
    assert (outcome.scored, outcome.failures) == (6, {})
    records = list(session.folder.records())
    assert all(record.cached_tokens is not None for record in records)
    assert {record.prompt_tokens for record in records} == {294, 594}
