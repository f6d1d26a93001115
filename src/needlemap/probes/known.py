"""Public faults by the pattern that they leave, for findings to point at; of each what to try."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Known:
    """A public fault that looks like a finding. tried: what to do about it."""

    name: str
    link: str
    tried: str


def _issue(where: str, name: str, tried: str) -> Known:
    repository, _, number = where.partition("#")
    return Known(name, f"https://github.com/{repository}/issues/{number}", tried)


FAULTS: Mapping[str, tuple[Known, ...]] = {
    "comb": (
        _issue(
            "vllm-project/vllm#55927",
            "a wrong token at one prompt length in four",
            "another kernel or attention back end; pad prompts by a token and ask again",
        ),
    ),
    "edges": (
        _issue(
            "tinygrad/tinygrad#15182",
            "chunked prefill that feeds wrong tokens at a chunk's edge",
            "another chunk size, or chunked prefill off",
        ),
    ),
    "cache": (
        _issue(
            "tenstorrent/vllm#415",
            "prefix-cache hits that answer wrong where misses are right",
            "prefix caching off, then another block size",
        ),
        _issue(
            "LMCache/LMCache#4492",
            "a cache that is read back wrong",
            "the outer cache off, or emptied",
        ),
    ),
    "nats": (
        _issue(
            "vllm-project/vllm#43559",
            "positions off behind a prefix-cache hit",
            "prefix caching off, or speculative decoding off",
        ),
    ),
    "same": (
        _issue(
            "ikawrakow/ik_llama.cpp#2083",
            "a race that overwrites rows of the cache, now and then",
            "one sequence at a time; fewer threads or streams",
        ),
    ),
    "load": (
        _issue(
            "local-inference-lab/vllm#616",
            "answers that are wrong while other prompts are computed",
            "fewer tokens a step, or prefill and decoding apart",
        ),
    ),
    "mates": (
        _issue(
            "LMCache/LMCache#4385",
            "answers that hold what somebody else was told",
            "the shared cache off: this is a leak between users, whatever else it is",
        ),
    ),
    "cut": (
        _issue(
            "marin-community/marin#7626",
            "a prompt whose head is cut off without a word",
            "a larger context size on the server (Ollama: num_ctx; llama.cpp: --ctx-size)",
        ),
    ),
    "window": (
        _issue(
            "marin-community/marin#7626",
            "a context that ends before the length that was promised",
            "a larger context size on the server, for each of its slots (Ollama: num_ctx; "
            "llama.cpp: "
            "--ctx-size)",
        ),
    ),
    "distance": (
        _issue(
            "ml-explore/mlx-lm#1454",
            "attention that sees the last tokens only",
            "the model's sliding-window settings, layer by layer",
        ),
        _issue(
            "sgl-project/sglang#4823",
            "a sliding window on the wrong layers",
            "another attention back end",
        ),
    ),
    "stop": (
        _issue(
            "local-inference-lab/vllm#616",
            "answers that go on and on behind long prompts",
            "the stop tokens and the chat template that the server uses",
        ),
    ),
    "reference": (
        _issue(
            "tinygrad/tinygrad#15182",
            "wrong tokens or rows in prefill",
            "another chunk size, or chunked prefill off",
        ),
        _issue(
            "ml-explore/mlx-examples#799",
            "rotary positions scaled in another way than the model was trained with",
            "the rope_scaling and rope_theta that the server took from the configuration",
        ),
        _issue(
            "vllm-project/vllm#54705",
            "a quantised KV cache, whose losses answers alone do not show",
            "the KV cache in the weights' own precision",
        ),
    ),
}
