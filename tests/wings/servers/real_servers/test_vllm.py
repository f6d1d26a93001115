"""vLLM on the CPU: a prefix cache in blocks of 128 tokens, and a tokenizer end point. Optional."""

from __future__ import annotations

import pytest

from needlemap.tokenizers.huggingface import HuggingFace
from needlemap.tokenizers.server import Server

pytestmark = pytest.mark.timeout(600)
BLOCK = 128  # of its CPU build; 16 on GPUs


def test_its_own_tokens_make_exact_lengths_and_whole_blocks_are_cached(vllm, asking):
    grid = ("--lengths", "128,256,512,1200", "--depths", "0:100:5", "--framing-tokens", 8)
    ended, records = asking.run(vllm, *grid, "--concurrency", 2)
    assert all(record["score"] == 1 for record in records if record["length_tokens"] <= 256)
    assert {record["prompt_tokens"] - record["length_tokens"] for record in records} == {-20}
    blocks = sum(record["shared_tokens"] // BLOCK * BLOCK for record in records)
    assert sum(record["cached_tokens"] or 0 for record in records) >= 0.9 * blocks > 0
    assert "warning" not in ended.stderr


def test_its_tokens_are_those_of_the_models_own_file(vllm, asking):
    theirs, ours = Server(vllm.base_url), HuggingFace(asking.checkpoint / "tokenizer.json")
    for text in ("x", "Größe: 12.5 µm, 在上海。 🙂\n\n  e\u0301"):
        found, known = theirs.index(text.encode()), ours.index(text.encode())
        assert found.ids.tolist() == known.ids.tolist()
        assert found.offsets.tolist() == known.offsets.tolist()
        assert theirs.count(text.encode()) == len(known)


def test_a_prompt_that_is_too_long_ends_the_run_with_advice(vllm, asking):
    ended, _ = asking.run(vllm, "--lengths", "256,3000", "--depths", "0,50", code=2)
    assert "Use --lengths up to 256." in ended.stderr
