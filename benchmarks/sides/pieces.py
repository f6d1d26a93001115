"""The machine side of gpu.py: the model, and how long each piece of its work takes."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from needlemap.models.hf_engine import HuggingFaceEngine
from needlemap.models.walk import Engine, Ids, Logits

ANSWER_TOKENS = 16
VOCABULARY = 128_256
LLAMA_3_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "initializer_range": 0.04,
}
TINY = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "initializer_range": 0.3,
}


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens computed behind a context of `start` tokens: a part of a prompt, or one of an
    answer."""

    start: int
    tokens: int
    seconds: float = 0.0

    @property
    def pairs(self) -> float:
        """Token pairs that attention weighs."""
        return self.tokens * (self.start + (self.tokens + 1) / 2)


@dataclass(slots=True)
class Measured:
    """A mode's measured pieces, in order asked. asked: prompts; answers: their tokens; peak_bytes:
    memory."""

    prefill: list[Piece] = field(default_factory=list)
    decode: list[Piece] = field(default_factory=list)
    answers: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    asked: int = 0
    peak_bytes: int = 0


class Machine:
    """The model and its device. Everything that needs torch."""

    def __init__(self, smoke: bool, positions: int) -> None:
        import torch
        import transformers

        self.torch = torch
        self.cuda = torch.cuda.is_available() and not smoke
        self.device = "cuda" if self.cuda else "cpu"
        torch.manual_seed(0)
        shape = LLAMA_3_8B if self.cuda else TINY
        config = transformers.LlamaConfig(
            vocab_size=VOCABULARY,
            max_position_embeddings=positions,
            rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
            bos_token_id=None,
            eos_token_id=None,
            tie_word_embeddings=not self.cuda,
            **shape,
        )
        with torch.device(self.device):
            dtype = torch.bfloat16 if self.cuda else torch.float32
            self.model: Any = transformers.AutoModelForCausalLM.from_config(
                config, dtype=dtype
            ).eval()
        name = torch.cuda.get_device_name() if self.cuda else "the CPU"
        self.about = (
            f"{'Llama-3-8B shape, bf16' if self.cuda else 'a tiny Llama, float32'}, on {name}"
        )

    @contextmanager
    def peak(self, measured: Measured) -> Iterator[None]:
        """Note the most memory held inside the block (of the whole process, on the CPU)."""
        if self.cuda:
            self.torch.cuda.empty_cache()
            self.torch.cuda.reset_peak_memory_stats()
        yield
        on_cpu = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        measured.peak_bytes = self.torch.cuda.max_memory_allocated() if self.cuda else on_cpu

    def generate(self, ids: Ids, measured: Measured | None = None) -> tuple[int, ...]:
        """The answer of transformers' own `generate`, from nothing."""
        clock = Clock(len(ids))
        tokens = self.torch.from_numpy(ids.astype(np.int64))[None].to(self.device)
        with self.torch.inference_mode():
            said = self.model.generate(
                tokens,
                attention_mask=self.torch.ones_like(tokens),
                max_new_tokens=ANSWER_TOKENS,
                do_sample=False,
                pad_token_id=0,
                streamer=clock,
            )
        if measured is not None:
            measured.prefill.append(clock.pieces[0])
            measured.decode += clock.pieces[1:]
        return tuple(said[0, len(ids) :].tolist())


class Clock:
    """A `generate` streamer that keeps times and no text: the prompt comes first, then token by
    token."""

    def __init__(self, prompt_tokens: int) -> None:
        self.pieces: list[Piece] = []
        self._prompt, self._last = prompt_tokens, 0.0

    def put(self, value: Any) -> None:
        """Called by `generate`, with a tensor that is already on the CPU."""
        now = perf_counter()
        if value.dim() < 2:  # not the prompt itself
            behind = self._prompt + len(self.pieces) - 1
            start, tokens = (behind, 1) if self.pieces else (0, self._prompt)
            self.pieces.append(Piece(start, tokens, now - self._last))
        self._last = now

    def end(self) -> None:
        """Called by `generate`."""


class TimedEngine(Engine):
    """An engine whose every computation is timed: the first behind a crop as prefill, others as
    decoding."""

    def __init__(self, engine: HuggingFaceEngine) -> None:
        self._engine, self._length, self._prompt = engine, 0, True
        self.measured = Measured()

    def extend(self, ids: Ids) -> Logits:
        """As the engine's; its logits are on the CPU when it returns, so the time is the whole
        one."""
        start = perf_counter()
        logits = self._engine.extend(ids)
        piece = Piece(self._length, len(ids), perf_counter() - start)
        (self.measured.prefill if self._prompt else self.measured.decode).append(piece)
        self._length, self._prompt = self._length + len(ids), False
        return logits

    def prepare(self, prompt_tokens: int, partings: Sequence[int]) -> None:
        """As the engine's."""
        self._engine.prepare(prompt_tokens, partings)

    def crop(self, length_tokens: int) -> int:
        """As the engine's."""
        kept = self._engine.crop(length_tokens)
        self._length, self._prompt = kept, True
        return kept
