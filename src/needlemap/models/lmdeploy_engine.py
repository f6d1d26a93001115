"""LMDeploy's pipeline: opening it, how an answer is drawn, and what its refusals mean.

Checked against the signatures of the installed package by tests/contract/test_lmdeploy.py (release 0.18).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from needlemap.errors import Failure, SettingsError, Unmeasured, did_you_mean
from needlemap.models.base import Decoding
from needlemap.models.faults import OUT_OF_MEMORY
from needlemap.models.sampling import STOP_FIELDS
from needlemap.secrets import scrub

CONFIGS = {"turbomind": "TurbomindEngineConfig", "pytorch": "PytorchEngineConfig"}
# Fields of GenerationConfig that are settings of their own, or that would change what comes back.
OURS = ("n", "max_new_tokens", "do_sample", "temperature", "random_seed", "with_cache", "migration_request")
LESS_MEMORY = (
    "Less memory: --model-options cache_max_entry_count=0.5, session_len=N, tp=GPUS or quant_policy=8."
)
_REFUSALS = {  # LMDeploy's error codes, and the states that its engines end in
    "context_length_exceeded": Failure.TOO_LONG,
    "INPUT_LENGTH_ERROR": Failure.TOO_LONG,
    "OUT_OF_MEMORY": Failure.MEMORY,
    "invalid_request": Failure.REJECTED,
    "unsupported_feature": Failure.REJECTED,
    "preprocess_failed": Failure.REJECTED,
}


def library() -> Any:
    """The package, imported now. Raises SettingsError with what to install."""
    try:
        import lmdeploy
        from lmdeploy.serve.core import AsyncEngine
    except ImportError as error:
        raise SettingsError(
            f"Model 'lmdeploy' needs {error.name or 'lmdeploy'}, and an NVIDIA GPU. "
            f"Run: pip install 'needlemap[lmdeploy]'"
        ) from None
    if not hasattr(AsyncEngine, "preprocess"):
        raise SettingsError(
            f"Model 'lmdeploy' needs lmdeploy 0.16 or newer, this is {lmdeploy.__version__}. "
            f"Run: pip install -U lmdeploy"
        )
    return lmdeploy


def open_pipeline(name: str, engine: str, options: Mapping[str, Any], *, trust_remote_code: bool) -> Any:
    """A pipeline with the model loaded. Raises SettingsError."""
    package = library()
    config = engine_config(package, engine, options)
    try:
        return package.pipeline(
            name, backend_config=config, log_level="ERROR", trust_remote_code=trust_remote_code
        )
    except Exception as error:  # engines raise whatever CUDA and a model's own code do
        said = scrub(f"{type(error).__name__}: {error}")
        remedy = f" {LESS_MEMORY}" if OUT_OF_MEMORY.search(said) else ""
        if "trust_remote_code" in said:
            remedy = " If you have read its code and trust it: --trust-remote-code"
        raise SettingsError(f"'{name}' cannot be loaded by lmdeploy: {said}{remedy}") from error


def engine_config(package: Any, engine: str, options: Mapping[str, Any]) -> Any:
    """The engine's own configuration. Raises SettingsError for what it does not know or take."""
    kind = getattr(package, CONFIGS[engine])
    known = {field.name for field in fields(kind)}
    for name in options:
        if name not in known:
            others = [
                other
                for other in CONFIGS
                if name in {field.name for field in fields(getattr(package, CONFIGS[other]))}
            ]
            hint = f" It is one of --model-options engine={others[0]}." if others else ""
            raise SettingsError(
                f"Engine '{engine}' of lmdeploy {package.__version__} has no option '{name}'.{hint}"
            )
    try:
        return kind(**options)
    except (AssertionError, ValueError, TypeError) as error:
        raise SettingsError(
            f"Engine '{engine}' of lmdeploy does not take that: {scrub(str(error))}"
        ) from None


def generation(package: Any, decoding: Decoding) -> Any:
    """How an answer is drawn: greedily at temperature 0. Raises Unmeasured for unknown request fields."""
    kind = package.GenerationConfig
    known = [field.name for field in fields(kind) if field.name not in OURS]
    given = {name: value for name, value in decoding.request.items() if name not in STOP_FIELDS}
    for name in given:
        if name not in known:
            raise Unmeasured(Failure.REJECTED, f"lmdeploy takes no '{name}'. {did_you_mean(name, known)}")
    drawn = {}
    if decoding.temperature:
        drawn = {"do_sample": True, "temperature": decoding.temperature, "random_seed": decoding.seed}
    try:
        return kind(max_new_tokens=decoding.most_tokens, **drawn, **given)
    except (AssertionError, ValueError, TypeError) as error:
        raise Unmeasured(Failure.REJECTED, f"lmdeploy does not take that: {error}") from None


def refusal(error: Exception) -> Unmeasured:
    """What an exception of LMDeploy's (mostly its RequestError) means."""
    cause = f"{error.__cause__ or ''} {error}"
    code = str(getattr(getattr(error, "code", ""), "value", ""))
    failure = _REFUSALS.get(code, Failure.MODEL)
    if OUT_OF_MEMORY.search(cause):
        failure = Failure.MEMORY
    return Unmeasured(failure, scrub(f"lmdeploy: {code or type(error).__name__}: {cause}"))


def ended(state: str) -> Unmeasured | None:
    """What the state that an engine ended an answer in means; None for a good end."""
    if state in ("SUCCESS", "FINISH"):
        return None
    failure = _REFUSALS.get(state, Failure.MODEL)
    hint = f" {LESS_MEMORY}" if failure is Failure.MEMORY else ""
    return Unmeasured(failure, f"lmdeploy: the engine ended with {state}.{hint}")
