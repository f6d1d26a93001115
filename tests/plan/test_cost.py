"""Prefill operations, beside what one works out by hand."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from needlemap.errors import SettingsError
from needlemap.plan.summary import Shape, prefill_flops

SMALL = {
    "hidden_size": 8,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 10,
    "hidden_act": "silu",
}
LLAMA_3_8B = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "hidden_act": "silu",
    "vocab_size": 128256,
}


def shape(tmp_path, **config):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return Shape.of_config(path)


def test_a_small_shape_worked_out_by_hand(tmp_path):
    # queries and output 8 x 8 each, keys and values 8 x 4 each, three inner matrices of 8 x 10
    assert shape(tmp_path, **SMALL) == Shape(3, 8, 3 * (64 + 64 + 32 + 32 + 3 * 80))


def test_the_published_size_of_llama_3_8b(tmp_path):
    """8.03 billion parameters (arXiv 2407.21783), less two embeddings of 128,256 x 4,096 and a few
    norms."""
    found = shape(tmp_path, **LLAMA_3_8B)
    assert found.weights == pytest.approx(8.03e9 - 2 * 128256 * 4096, rel=1e-3)
    assert (found.layers, found.width) == (32, 4096)


def test_heads_of_their_own_size_and_two_inner_matrices(tmp_path):
    found = shape(
        tmp_path, **{**SMALL, "head_dim": 4, "hidden_act": "gelu", "num_key_value_heads": None}
    )
    assert found == Shape(3, 16, 3 * (4 * 8 * 16 + 2 * 80))


def test_operations_worked_out_by_hand():
    """Two tokens behind one: 2 a weight and token; the second token sees 2 tokens, the third 3."""
    assert prefill_flops(Shape(2, 5, 100), [(1, 3)]) == 2 * 100 * 2 + 4 * 2 * 5 * (2 + 3)


@given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 500))
def test_a_prompt_computed_in_two_pieces_costs_the_same(one, two, three):
    start, middle, stop = sorted([one, two, three])
    known = Shape(3, 64, 1000)
    whole = prefill_flops(known, [(start, stop)])
    assert prefill_flops(known, [(start, middle), (middle, stop)]) == whole


@pytest.mark.parametrize("text", ["", "[]", '{"hidden_size": 8}', '{"hidden_size": "many"}', None])
def test_what_is_no_configuration_is_an_error(tmp_path, text):
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(
        SettingsError, match=r"config\.json' is no model configuration that can be read"
    ):
        Shape.of_config(path)
