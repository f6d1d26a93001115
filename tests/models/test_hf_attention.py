"""A chunk behind a cache is computed without a mask, and comes to what transformers comes to."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: python3 -m pip install '.[hf]'")
transformers = pytest.importorskip(
    "transformers", reason="needs transformers: python3 -m pip install '.[hf]'"
)

from needlemap.models import hf_attention  # noqa: E402
from needlemap.models.hf_attention import split_attention  # noqa: E402
from needlemap.models.hf_engine import HuggingFaceEngine  # noqa: E402

WINDOW = 24
TOKENS, CHUNK = 300, 70
SHAPE: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "head_dim": 16,
    "max_position_embeddings": 1024,
    "initializer_range": 0.3,
    "pad_token_id": 0,
}
MAKERS: dict[str, Callable[[], Any]] = {
    "llama, two queries to a key": lambda: transformers.LlamaConfig(**SHAPE, num_key_value_heads=2),
    "llama, one key for all": lambda: transformers.LlamaConfig(**SHAPE, num_key_value_heads=1),
    "llama, a key for each": lambda: transformers.LlamaConfig(**SHAPE, num_key_value_heads=4),
    "mistral, windows": lambda: transformers.MistralConfig(
        **SHAPE, num_key_value_heads=2, sliding_window=WINDOW
    ),
    "gemma 3, windows and none": lambda: transformers.Gemma3TextConfig(
        **SHAPE,
        num_key_value_heads=2,
        sliding_window=WINDOW,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "llama 4, chunks": lambda: transformers.Llama4TextConfig(
        **SHAPE,
        num_key_value_heads=2,
        attention_chunk_size=WINDOW,
        num_local_experts=2,
        intermediate_size_mlp=96,
    ),
}
every_kind = pytest.mark.parametrize("kind", MAKERS)


on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="optional: needs an NVIDIA GPU")


def made(kind: str, dtype: Any = None) -> Any:
    torch.manual_seed(0)
    config = MAKERS[kind]()
    return transformers.AutoModelForCausalLM.from_config(
        config, dtype=dtype or torch.float32, attn_implementation="sdpa"
    ).eval()


def ids() -> Any:
    return np.random.default_rng(0).integers(1, 256, TOKENS).astype(np.int32)


def in_chunks(model: Any) -> Any:
    """Logits of every position by transformers' own passes in chunks."""
    cache, rows = transformers.DynamicCache(), []
    for start in range(0, TOKENS, CHUNK):
        tokens = torch.from_numpy(ids()[start : start + CHUNK].astype(np.int64))[None]
        with torch.inference_mode():
            rows.append(model(tokens.to(model.device), past_key_values=cache).logits[0])
    return torch.cat(rows).float().cpu().numpy()


class Shapes:
    """The shapes of queries, keys and masks that torch's attention was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[int, int, bool]] = []
        theirs = torch.nn.functional.scaled_dot_product_attention

        def watched(query: Any, key: Any, value: Any, attn_mask: Any = None, **given: Any) -> Any:
            self.seen.append((query.shape[2], key.shape[2], attn_mask is not None))
            return theirs(query, key, value, attn_mask=attn_mask, **given)

        monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)


@every_kind
def test_it_equals_transformers_own_chunks_but_for_rounding(kind: str) -> None:
    model = made(kind)
    theirs, ours = in_chunks(model), HuggingFaceEngine(model, CHUNK).extend_all(ids())
    assert np.abs(theirs - ours).max() < 2e-5 * theirs.std()


def test_no_mask_is_used_where_all_keys_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = HuggingFaceEngine(made("llama, two queries to a key"), CHUNK)
    shapes = Shapes(monkeypatch)
    engine.extend(ids())
    assert not any(masked for _, _, masked in shapes.seen)


def test_a_window_keeps_only_the_keys_that_its_next_query_sees(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = HuggingFaceEngine(made("mistral, windows"), CHUNK)
    shapes = Shapes(monkeypatch)
    engine.extend(ids())
    assert max(keys for _, keys, masked in shapes.seen if masked) == CHUNK + WINDOW - 1


def test_passes_of_others_are_as_they_were_to_the_bit() -> None:
    """The functions stay in place for the life of the process: they must do nothing unless asked.

    A user's own transformers code in the same process gave other last bits otherwise.
    """
    model = made("llama, two queries to a key")
    before = in_chunks(model)
    HuggingFaceEngine(model, CHUNK).extend(ids())
    assert np.array_equal(before, in_chunks(model))
    with split_attention():
        inside = in_chunks(model)
    assert not np.array_equal(before, inside)


def test_a_padded_batch_keeps_its_mask() -> None:
    """Of two texts of one batch the shorter one sees nothing of its padding."""
    model = made("llama, two queries to a key")
    tokens = torch.from_numpy(ids().astype(np.int64))[None].repeat(2, 1)
    mask = torch.ones_like(tokens)
    mask[1, :CHUNK] = 0
    rows = []
    for ours in (False, True):
        cache = transformers.DynamicCache()
        with torch.inference_mode(), split_attention() if ours else nullcontext():
            model(tokens[:, :200], attention_mask=mask[:, :200], past_key_values=cache)
            rows.append(model(tokens[:, 200:], attention_mask=mask, past_key_values=cache).logits)
    assert torch.equal(*rows)


def test_below_float32_it_rounds_no_worse_than_a_mask_does() -> None:
    kind = "llama, two queries to a key"
    model = made(kind).to(torch.bfloat16)
    exact = in_chunks(copy.deepcopy(model).float())
    theirs, ours = in_chunks(model), HuggingFaceEngine(model, CHUNK).extend_all(ids())
    errors = [float(np.sqrt(np.square(each - exact).mean())) for each in (theirs, ours)]
    assert errors[1] < 1.1 * errors[0]


@on_a_gpu
def test_on_a_gpu_16_bits_need_no_mask_and_round_no_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Walks of an 8B model in bfloat16 took longer on a GPU than asking one by one: each chunk
    behind a cache went through a mask."""
    model = made("llama, two queries to a key").to("cuda", torch.bfloat16)
    exact, theirs = in_chunks(copy.deepcopy(model).float()), in_chunks(model)
    shapes = Shapes(monkeypatch)
    ours = HuggingFaceEngine(model, CHUNK).extend_all(ids())
    assert not any(masked for _, _, masked in shapes.seen)
    errors = [float(np.sqrt(np.square(each - exact).mean())) for each in (theirs, ours)]
    assert errors[1] < 1.1 * errors[0]


@on_a_gpu
def test_on_a_gpu_32_bits_keep_the_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made("llama, two queries to a key").to("cuda")
    theirs, shapes = in_chunks(model), Shapes(monkeypatch)
    ours = HuggingFaceEngine(model, CHUNK).extend_all(ids())
    assert any(masked for _, _, masked in shapes.seen)
    assert np.abs(theirs - ours).max() < 2e-5 * theirs.std()


@pytest.mark.parametrize(
    ("dtype", "size", "taken"),
    [
        ("bfloat16", 64, True),
        ("float16", 256, True),
        ("float32", 64, False),
        ("bfloat16", 12, False),
        ("bfloat16", 264, False),
    ],
)
def test_a_gpu_takes_16_bits_and_heads_of_eights(dtype: str, size: int, taken: bool) -> None:
    query = torch.empty(1, 1, 1, size, dtype=getattr(torch, dtype))
    assert hf_attention._fits_gpu_kernel(query) is taken


def test_of_all_that_a_gpu_returns_the_output_and_its_sums_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = made("llama, two queries to a key")
    theirs, flash = in_chunks(model), hf_attention._flash_attention(torch.device("cpu"))
    monkeypatch.setattr(
        hf_attention,
        "_flash_attention",
        lambda _: lambda *args, **given: (*flash(*args, **given), None),
    )
    ours = HuggingFaceEngine(model, CHUNK).extend_all(ids())
    assert np.abs(theirs - ours).max() < 2e-5 * theirs.std()
