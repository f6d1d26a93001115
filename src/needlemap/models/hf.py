"""Any causal language model that transformers loads, in this process: `hf/FOLDER` or
`hf/ORG/MODEL`.

Prompts are token ids. One KV cache walks from prompt to prompt (`walk.py`), so answers come one
after another, in the order asked, whatever the run's concurrency. How a model wants a prompt is in
`chat.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from needlemap.errors import Failure, SettingsError, Unmeasured
from needlemap.models import Decoding, Traits
from needlemap.models.chat import Chat
from needlemap.models.decoding import STOP_FIELDS
from needlemap.models.hf_cache import configured_switch
from needlemap.models.hf_check import settle
from needlemap.models.hf_engine import HuggingFaceEngine
from needlemap.models.model_files import (
    Loading,
    ModelFiles,
    load_model,
    position_limit,
    stop_tokens,
)
from needlemap.models.walk import Ids, WalkingModel
from needlemap.prompts import Prompt
from needlemap.registry import checked
from needlemap.secrets import scrub

# Kinds of models whose cache transformers (5.23) cannot extend by several tokens, or that keep none
# for the next token, or whose cache has layers of another kind than full, sliding and recurrent
# ones (benchmarks/architectures.py asks all). For plans: a model is tried when it is loaded.
ALONE = (
    "axk2", "cpmant", "deepseek_v32", "deepseek_v4", "falcon_mamba", "glm_moe_dsa", "hrm_text", "hy_v4",  # noqa: E501
    "jamba", "mamba", "minimax", "moshi", "openai-gpt", "recurrent_gemma", "rwkv", "xlm", "xlnet",
    "zamba",
)  # fmt: skip
TOGETHER = (
    "weights of 8 bit round by what all tokens of a pass are: each prompt is computed in full"
)
_SAMPLE = (
    b"The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again, "
    b"12345."
)


class HuggingFaceModel(WalkingModel):
    """A model in this process.

    Attributes:
        device: 'auto' (cuda if there is one, else cpu) or torch's name of one.
        dtype: 'auto' is the checkpoint's own, float32 for a float16 checkpoint on the CPU.
        device_map, max_memory, offload_folder (several devices), attn_implementation,
            quantization_config (its fields), revision, trust_remote_code: As for transformers.
        base: Whether to send plain text even if there is a chat template.
        template_options: Further variables of the chat template.
        chunk_tokens: The tokens computed at a time.
        allow_beyond: Whether prompts longer than the model's positions are sent too.
        share: False computes every prompt from nothing.
        notes: What a user should know before a run.
        side: As `Traits.side`, of the model that was tried.
    """

    unread, free, longer = ("concurrency",), True, "allow_beyond=true"
    also_called = ("transformers",)
    backend = "hf"

    def __init__(
        self,
        name: str,
        *,
        device: str = "auto",
        dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto",
        device_map: str | dict[str, Any] | None = None,
        max_memory: dict[int | str, int | str] | None = None,
        offload_folder: str | None = None,
        attn_implementation: str | None = None,
        quantization_config: dict[str, Any] | None = None,
        trust_remote_code: bool = False,
        revision: str | None = None,
        base: bool = False,
        template_options: Mapping[str, Any] | None = None,
        chunk_tokens: int = 2048,
        allow_beyond: bool = False,
        share: bool = True,
    ) -> None:
        loading = Loading(
            **{key: value for key, value in locals().items() if key in Loading.__slots__}
        )
        check_chunk(chunk_tokens)
        files = ModelFiles(name, revision)
        self._chat = Chat.of(files, base=base, template_options=template_options)
        share = share and not rounds_together(files, quantization_config)
        model = load_model(name, loading)
        self._limit = None if allow_beyond else position_limit(model.config)
        engine, self.notes = checked_engine(model, name, chunk_tokens, share, self._chat)
        vocabulary = self._chat.vocabulary
        stops = stop_tokens(model, vocabulary, self._chat.variables.get("eos_token"))
        super().__init__(name, engine, stops, vocabulary)
        self._engine = engine
        self.side: Callable[[int], int | None] | None = _nothing
        if engine.way.share:
            self.side = engine.switch.side if engine.switch else None
        commit = getattr(model.config, "_commit_hash", None)
        self._answered_by = f"{name}@{commit}" if commit else name

    @classmethod
    def traits(cls, name: str, options: Mapping[str, Any]) -> Traits:
        """Return its traits: chat if its tokenizer has a chat template; its own tokens, fed as ids.

        Imports no torch.
        """
        settings = checked(cls, options)
        check_chunk(settings.get("chunk_tokens", 1))
        Loading(**{key: settings[key] for key in settings if key in Loading.__slots__}).check()
        files = ModelFiles(name, settings.get("revision"))
        chat = Chat.of(
            files, **{key: settings[key] for key in ("base", "template_options") if key in settings}
        )
        together = rounds_together(files, settings.get("quantization_config"))
        return chat.traits(
            teacher=True,
            serial=True,
            positions=None if settings.get("allow_beyond") else files.positions,
            needs=("torch", "transformers"),
            side=side_of(files, share=bool(settings.get("share", True)) and not together),
            request=STOP_FIELDS,
            notes=(*notes_of(files), *((TOGETHER,) if together else ())),
        )

    def prompt_ids(self, prompt: Prompt) -> Ids:
        """Return a prompt's ids, with what the model needs around it."""
        return self._chat.ids(prompt)

    def refuse(self, ids: Ids, answer_tokens: int, decoding: Decoding) -> None:
        """Raise Unmeasured for request fields, too long a prompt, or another vocabulary's ids."""
        unknown = sorted(set(decoding.request) - set(STOP_FIELDS))
        if unknown:
            raise Unmeasured(
                Failure.REJECTED,
                f"hf models take no request field but stop, got {', '.join(unknown)}.",
            )
        if self._limit is not None and len(ids) + answer_tokens > self._limit:
            raise Unmeasured(
                Failure.TOO_LONG,
                f"{len(ids):,} prompt and {answer_tokens:,} answer tokens are more than the "
                f"{self._limit:,} positions of '{self.name}'. To try all the same: "
                f"--model-options allow_beyond=true",
            )
        if len(ids) and int(ids.max()) >= self._engine.vocabulary:
            raise Unmeasured(
                Failure.REJECTED,
                f"Token {int(ids.max())} of the tokenizer is not among the "
                f"{self._engine.vocabulary:,} that '{self.name}' knows: tokenizer and model do "
                f"not belong together.",
            )

    def answer_ids(self, prompt: Prompt, answer: str) -> Ids:
        """Return an answer's ids as they follow the prompt."""
        return self._chat.answer_ids(prompt, answer)


def checked_engine(
    model: Any, name: str, chunk_tokens: int, share: bool, chat: Chat
) -> tuple[HuggingFaceEngine, tuple[str, ...]]:
    """Return an engine for a model that passed its check, and what a user should know of it.

    Raise SettingsError if the model fails.
    """
    try:
        engine = HuggingFaceEngine(model, chunk_tokens, share=share)
        notes = settle(engine, np.asarray(chat.plain.index(_SAMPLE).ids, np.int32))
    except SettingsError as error:
        raise SettingsError(f"'{name}' cannot be asked: {error}") from None
    # A model's own code may raise anything.
    except Exception as error:
        reason = scrub(f"{type(error).__name__}: {error}")
        raise SettingsError(
            f"'{name}' cannot be asked: it does not compute a few tokens: {reason}"
        ) from error
    return engine, tuple(f"hf/{name}: {note}." for note in notes)


def check_chunk(chunk_tokens: int) -> None:
    """Raise SettingsError for chunks of no token."""
    if chunk_tokens < 1:
        raise SettingsError(
            f"Option 'chunk_tokens' of HuggingFaceModel must be at least 1, got {chunk_tokens}."
        )


def side_of(model: ModelFiles, *, share: bool) -> Callable[[int], int | None] | None:
    """Return which prompts serve each other (see `Traits.side`), by a configuration."""
    if not share or kind_of(model) in ALONE:
        return _nothing
    switch = configured_switch(model.json("config.json"))
    return switch.side if switch is not None else None


def kind_of(model: ModelFiles) -> str:
    """Return transformers' name of the architecture; of several parts the language model's."""
    config = model.json("config.json")
    inner = config.get("text_config")
    return str((inner if isinstance(inner, dict) else config).get("model_type", ""))


def notes_of(model: ModelFiles) -> tuple[str, ...]:
    """Return what a user should know of a kind of models before one is loaded."""
    if kind_of(model) not in ALONE:
        return ()
    return (
        f"the cache of a {kind_of(model)} model does not go on to the next prompt: each is "
        f"computed in full",
    )


def rounds_together(model: ModelFiles, quantization: Mapping[str, Any] | None) -> bool:
    """Return True if weights of 8 bit (bitsandbytes) round by what all tokens of a pass are.

    A prompt that continues from a cache would come to other numbers.
    """
    quantization_fields = quantization or model.json("config.json").get("quantization_config")
    return isinstance(quantization_fields, Mapping) and bool(
        quantization_fields.get("load_in_8bit")
    )


def _nothing(_: int) -> None:
    return None
