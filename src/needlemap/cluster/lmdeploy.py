"""LMDeploy's engines in this process, TurboMind first: `lmdeploy/FOLDER` or `lmdeploy/ORG/MODEL`.

Prompts are token ids, chat template included, as for `hf`. They go into LMDeploy's pipeline as they
come, so that it batches them continuously and its prefix cache follows the plan. Options are named
as the engine names them; they are checked against the installed package by
tests/wings/cluster/test_lmdeploy.py
(release 0.18).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import fields
from time import perf_counter
from typing import Any, Literal

from needlemap.errors import Failure, SettingsError, Unmeasured, did_you_mean
from needlemap.extras import install_line
from needlemap.http import faults
from needlemap.http.wording import OUT_OF_MEMORY
from needlemap.models import Answer, Decoding, Model, Traits
from needlemap.models.chat import Chat
from needlemap.models.decoding import STOP_FIELDS, Stops, stop_strings
from needlemap.models.model_files import ModelFiles
from needlemap.models.thinking import ends_in_thought, split_thinking
from needlemap.models.walk import Ids
from needlemap.prompts import Prompt
from needlemap.registry import checked
from needlemap.secrets import scrub

# Arguments of the constructor that are not the engine's.
OURS = ("self", "name", "engine", "trust_remote_code", "base", "template_options")
CONFIGS = {"turbomind": "TurbomindEngineConfig", "pytorch": "PytorchEngineConfig"}
# Fields of GenerationConfig that are settings of their own, or that would change what comes back.
OUR_FIELDS = (
    "n",
    "max_new_tokens",
    "do_sample",
    "temperature",
    "random_seed",
    "with_cache",
    "migration_request",
)
LESS_MEMORY = (
    "Less memory: --model-options cache_max_entry_count=0.5, session_len=N, tp=GPUS or "
    "quant_policy=8."
)
# LMDeploy's error codes, and the states in which its engines end an answer.
_REFUSALS = {
    "context_length_exceeded": Failure.TOO_LONG,
    "INPUT_LENGTH_ERROR": Failure.TOO_LONG,
    "OUT_OF_MEMORY": Failure.MEMORY,
    "invalid_request": Failure.REJECTED,
    "unsupported_feature": Failure.REJECTED,
    "preprocess_failed": Failure.REJECTED,
}


class LMDeployModel(Model):
    """A model on LMDeploy's engine.

    engine: which one; where TurboMind does not run the model, LMDeploy takes its PyTorch engine,
    and `notes` says so. enable_prefix_caching: on unless told otherwise, since a plan lives on it
    (the engine's own default is off). base, template_options: as for `hf`. Options that are None
    are left to the engine; what they mean is in its documentation (TurbomindEngineConfig,
    PytorchEngineConfig).
    """

    unread, free, longer = ("logprobs",), True, "session_len={}"
    also_called = ("turbomind", "turbomindmodel", "turbomindmodelwithchattemplate")

    def __init__(
        self,
        name: str,
        *,
        engine: Literal["turbomind", "pytorch"] = "turbomind",
        session_len: int | None = None,
        tp: int | None = None,
        dp: int | None = None,
        cp: int | None = None,
        ep: int | None = None,
        max_batch_size: int | None = None,
        quant_policy: int | None = None,
        enable_prefix_caching: bool = True,
        cache_max_entry_count: float | None = None,
        cache_block_seq_len: int | None = None,
        block_size: int | None = None,
        max_prefill_token_num: int | None = None,
        num_tokens_per_iter: int | None = None,
        max_prefill_iters: int | None = None,
        rope_scaling_factor: float | None = None,
        use_logn_attn: bool | None = None,
        hf_overrides: dict[str, Any] | None = None,
        dtype: str | None = None,
        model_format: str | None = None,
        communicator: str | None = None,
        devices: list[int] | None = None,
        device_type: str | None = None,
        eager_mode: bool | None = None,
        download_dir: str | None = None,
        revision: str | None = None,
        trust_remote_code: bool = False,
        base: bool = False,
        template_options: Mapping[str, Any] | None = None,
    ) -> None:
        options = {
            key: value for key, value in locals().items() if key not in OURS and value is not None
        }
        self.name = name
        self._chat = Chat.of(
            ModelFiles(name, revision), base=base, template_options=template_options
        )
        self._package = library()
        self._pipeline = open_pipeline(name, engine, options, trust_remote_code=trust_remote_code)
        self._engine = self._pipeline.async_engine
        if self._engine.backend != engine:
            note = "TurboMind does not run this model here, LMDeploy's PyTorch engine does."
            self.notes = (f"lmdeploy/{name}: {note}",)

    @classmethod
    def traits(cls, name: str, options: Mapping[str, Any]) -> Traits:
        """Return the traits of a chat model if its tokenizer has a chat template.

        Lengths are in its own tokens, and prompts are sent as ids. No engine is imported.
        """
        checked_options = checked(cls, options)
        files = ModelFiles(name, checked_options.get("revision"))
        chat_options = {
            key: checked_options[key]
            for key in ("base", "template_options")
            if key in checked_options
        }
        chat = Chat.of(files, **chat_options)
        return chat.traits(
            positions=checked_options.get("session_len") or files.positions, needs=("lmdeploy",)
        )

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        """Return the answer to a prompt.

        Raises Unmeasured if the prompt is too long for session_len, if memory or time runs out, or
        if the engine fails.
        """
        start_s = perf_counter()
        ids = self._chat.ids(prompt)
        self._check_room(len(ids), decoding.most_tokens)
        strings = (*stop_strings(decoding.request), *prompt.stops)
        stops = Stops(strings, self._chat.vocabulary)
        future = asyncio.run_coroutine_threadsafe(
            self._generate(ids, decoding, stops=stops), self._pipeline.internal_thread.loop
        )
        try:
            async with asyncio.timeout(decoding.timeout_s):
                tokens, finish, cached_tokens = await asyncio.wrap_future(future)
        except TimeoutError:
            raise faults.timeout_failure(decoding.timeout_s) from None
        answer = Answer(
            stops.text(tokens),
            finish,
            prompt_tokens=len(ids),
            cached_tokens=cached_tokens,
            completion_tokens=len(tokens),
            model=self.name,
            latency_s=perf_counter() - start_s,
        )
        return split_thinking(answer, decoding, opened=ends_in_thought(prompt))

    async def close(self) -> None:
        """Stop the engine, and free its memory."""
        await asyncio.to_thread(self._pipeline.close)

    async def _generate(
        self, ids: Ids, decoding: Decoding, stops: Stops
    ) -> tuple[list[int], str, int | None]:
        """Return an answer's tokens, why it ended, and how many prompt tokens were cached.

        Runs on the engine's own loop. The pipeline's plainer interface is not used, because it
        reports every failure of the engine alike: here the engine's last state shows if memory ran
        out. The engine knows only stop words of one token, so with stop strings the answer is read
        while it is generated, and then cancelled.
        """
        engine = self._engine
        session = engine.session_mgr.get()
        tokens: list[int] = []
        last_output: Any = None
        has_stopped = False
        try:
            request = await engine.preprocess(
                None,
                session,
                gen_config=generation_config(self._package, decoding),
                input_ids=ids.tolist(),
            )
            config = request.gen_config
            async with (
                session.request_handle() as handle,
                engine.safe_run(
                    handle,
                    session=session,
                    gen_config=config,
                    stream_output=bool(stops.strings),
                    **request.inputs,
                ) as outputs,
            ):
                async for last_output in outputs:
                    new_tokens = last_output.token_ids
                    tokens += new_tokens
                    if not has_stopped and stops.is_reached(tokens, len(new_tokens)):
                        has_stopped = True
                        await handle.async_cancel(session.session_id)
        except Unmeasured:
            raise
        except Exception as error:
            raise refusal(error) from None
        finally:
            engine.session_mgr.remove(session)
        task = asyncio.current_task()
        # LMDeploy swallows a cancellation.
        if task is not None and task.cancelling():
            raise asyncio.CancelledError

        cached_tokens = None
        if last_output is not None and last_output.req_metrics is not None:
            cached_tokens = last_output.req_metrics.cached_tokens
        if has_stopped:
            return tokens, "stop", cached_tokens
        state = last_output.status.name if last_output is not None else "no output"
        failure = failure_of_state(state)
        if failure is not None:
            raise failure
        if tokens and tokens[-1] in (config.stop_token_ids or ()):
            return tokens[:-1], "stop", cached_tokens
        return tokens, "length", cached_tokens

    def _check_room(self, prompt_tokens: int, answer_tokens: int) -> None:
        """Raise Unmeasured for a prompt that is too long for the session with its answer."""
        room = self._engine.session_len
        needed = prompt_tokens + answer_tokens
        if needed > room:
            raise Unmeasured(
                Failure.TOO_LONG,
                f"{prompt_tokens:,} prompt and {answer_tokens:,} answer tokens are more than the "
                f"engine's session of {room:,}. For a longer one: --model-options "
                f"session_len={needed}",
            )


def library() -> Any:
    """Return the package `lmdeploy`. Raises SettingsError with the line that installs it."""
    try:
        import lmdeploy
        from lmdeploy.serve.core import AsyncEngine
    except ImportError as error:
        raise SettingsError(
            f"Model 'lmdeploy' needs {error.name or 'lmdeploy'}, and an NVIDIA GPU. "
            f"Run: {install_line('lmdeploy')}"
        ) from None
    if not hasattr(AsyncEngine, "preprocess"):
        raise SettingsError(
            f"Model 'lmdeploy' needs lmdeploy 0.16 or newer, this is {lmdeploy.__version__}. "
            f"Run: {install_line('lmdeploy')}"
        )
    return lmdeploy


def open_pipeline(
    name: str, engine: str, options: Mapping[str, Any], *, trust_remote_code: bool
) -> Any:
    """Return a pipeline with the model loaded. Raises SettingsError if it cannot be loaded."""
    package = library()
    config = engine_config(package, engine, options=options)
    try:
        return package.pipeline(
            name,
            backend_config=config,
            log_level="ERROR",
            trust_remote_code=trust_remote_code,
        )
    except Exception as error:
        # Engines raise everything that CUDA and a model's own code raise.
        reason = scrub(f"{type(error).__name__}: {error}")
        remedy = f" {LESS_MEMORY}" if OUT_OF_MEMORY.search(reason) else ""
        if "trust_remote_code" in reason:
            remedy = " If you have read its code and trust it: --trust-remote-code"
        raise SettingsError(f"'{name}' cannot be loaded by lmdeploy: {reason}{remedy}") from error


def _options_of(package: Any, engine: str) -> set[str]:
    return {field.name for field in fields(getattr(package, CONFIGS[engine]))}


def engine_config(package: Any, engine: str, options: Mapping[str, Any]) -> Any:
    """Return the engine's own configuration.

    Raises SettingsError for an option or a value that the engine does not take.
    """
    known_options = _options_of(package, engine)
    for name in options:
        if name not in known_options:
            engines = [other for other in CONFIGS if name in _options_of(package, other)]
            hint = f" It is one of --model-options engine={engines[0]}." if engines else ""
            raise SettingsError(
                f"Engine '{engine}' of lmdeploy {package.__version__} has no option '{name}'.{hint}"
            )
    config_class = getattr(package, CONFIGS[engine])
    try:
        return config_class(**options)
    except (AssertionError, ValueError, TypeError) as error:
        raise SettingsError(
            f"Engine '{engine}' of lmdeploy does not take that: {scrub(str(error))}"
        ) from None


def generation_config(package: Any, decoding: Decoding) -> Any:
    """Return LMDeploy's configuration of an answer, which is greedy at temperature 0.

    Raises Unmeasured for request fields or values that LMDeploy does not take.
    """
    config_class = package.GenerationConfig
    known_fields = [field.name for field in fields(config_class) if field.name not in OUR_FIELDS]
    arguments: dict[str, Any] = {"max_new_tokens": decoding.most_tokens}
    if decoding.temperature:
        arguments["do_sample"] = True
        arguments["temperature"] = decoding.temperature
        arguments["random_seed"] = decoding.seed
    for name, value in decoding.request.items():
        if name in STOP_FIELDS:
            continue
        if name not in known_fields:
            raise Unmeasured(
                Failure.REJECTED,
                f"lmdeploy takes no '{name}'. {did_you_mean(name, known_fields)}",
            )
        arguments[name] = value
    try:
        return config_class(**arguments)
    except (AssertionError, ValueError, TypeError) as error:
        raise Unmeasured(Failure.REJECTED, f"lmdeploy does not take that: {error}") from None


def refusal(error: Exception) -> Unmeasured:
    """Return the failure that an exception of LMDeploy's, mostly its RequestError, stands for."""
    cause = f"{error.__cause__ or ''} {error}"
    code = str(getattr(getattr(error, "code", ""), "value", ""))
    failure = _REFUSALS.get(code, Failure.MODEL)
    if OUT_OF_MEMORY.search(cause):
        failure = Failure.MEMORY
    return Unmeasured(failure, scrub(f"lmdeploy: {code or type(error).__name__}: {cause}"))


def failure_of_state(state: str) -> Unmeasured | None:
    """Return the failure that an engine's last state stands for, or None for a whole answer."""
    if state in ("SUCCESS", "FINISH"):
        return None
    failure = _REFUSALS.get(state, Failure.MODEL)
    hint = f" {LESS_MEMORY}" if failure is Failure.MEMORY else ""
    return Unmeasured(failure, f"lmdeploy: the engine ended with {state}.{hint}")
