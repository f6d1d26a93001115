"""The gauge in other shapes: the same logits, and other faults that an engine may have."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from needlemap import cli
from needlemap.errors import SettingsError
from needlemap.models import demo
from needlemap.servers.check import known_by_answer
from needlemap.servers.check.gauge import MOVES
from needlemap.servers.gauge import checkpoint as gauge
from needlemap.servers.gauge.shapes import QWEN3, SHAPES, Checkpoint, engine_of, gauge_in_shape

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))
from gauge import draw_prompts, encode, margins

NAMES = tuple(SHAPES)
CHAT = "<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
# That transformers' float32 moves a log-probability at most, over the whole vocabulary: the
# processor decides how sums are rounded, and one of three moved the window's by 7.2e-5.
FLOAT32_NATS = 1e-4


@pytest.fixture(scope="module")
def prompt() -> tuple[list[int], list[int]]:
    """The ids of a prompt of 700 tokens, and those of its right answer."""
    drawn = draw_prompts(700, 1)
    tail, right = drawn.questions[3]
    return drawn.shared + tail, encode(right)


def answered(
    folder: Path, name: str, prompt: tuple[list[int], list[int]], change: Callable[..., None]
) -> np.ndarray:
    """Logits of the answer's tokens by transformers, of a shape with something changed in it."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    checkpoint = gauge_in_shape(name)
    change(checkpoint)
    for file, data in checkpoint.files().items():
        (folder / file).write_bytes(data)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids, answer = prompt
    with torch.inference_mode():
        logits = model(torch.tensor([ids + answer[:-1]])).logits[0, -len(answer) :]
    return np.asarray(logits.numpy())


def nothing(_checkpoint: Checkpoint) -> None:
    """No change."""


def log_shares(logits: np.ndarray) -> np.ndarray:
    less = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(less - np.log(np.exp(less).sum(axis=-1, keepdims=True)))


@pytest.mark.parametrize("name", NAMES)
def test_every_shape_computes_what_the_reference_does(tmp_path, prompt, name):
    ids, answer = prompt
    reference = engine_of(name).extend_all(np.array(ids + answer[:-1], np.int32))[-len(answer) :]
    logits = answered(tmp_path, name, prompt, nothing)
    assert logits.argmax(axis=-1).tolist() == answer
    assert np.abs(log_shares(logits) - log_shares(np.asarray(reference))).max() < FLOAT32_NATS


def no_norms_of_heads(checkpoint: Checkpoint) -> None:
    for name, bits in checkpoint.tensors.items():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            checkpoint.tensors[name] = np.full_like(bits, 0x3F80)  # ones


def no_yarn(checkpoint: Checkpoint) -> None:
    rope = checkpoint.config["rope_parameters"]
    checkpoint.config["rope_parameters"] = {
        "rope_theta": rope["rope_theta"],
        "rope_type": "default",
    }


def yarn_from_elsewhere(checkpoint: Checkpoint) -> None:
    checkpoint.config["rope_parameters"]["original_max_position_embeddings"] = 4_096


def window_on_each_layer(checkpoint: Checkpoint) -> None:
    config = checkpoint.config
    config["layer_types"] = ["sliding_attention"] * config["num_hidden_layers"]


def window_too_short(checkpoint: Checkpoint) -> None:
    checkpoint.config["sliding_window"] = 3


def next_expert(checkpoint: Checkpoint) -> None:
    name = "model.layers.1.block_sparse_moe.gate.weight"
    checkpoint.tensors[name] = np.roll(checkpoint.tensors[name], 1, axis=0)


def keys_of_the_next_head(checkpoint: Checkpoint) -> None:
    for name, bits in checkpoint.tensors.items():
        if "k_proj" in name:
            checkpoint.tensors[name] = np.roll(bits, checkpoint.config["head_dim"], axis=0)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("windows", window_on_each_layer),
        ("windows", window_too_short),
        ("unequal-experts", next_expert),
        ("padded", keys_of_the_next_head),
        (QWEN3, keys_of_the_next_head),
    ],
)
def test_what_an_engine_may_do_wrong_with_a_shape_loses_the_answer(tmp_path, prompt, name, fault):
    logits = answered(tmp_path, name, prompt, fault)
    assert logits.argmax(axis=-1).tolist() != prompt[1]


@pytest.mark.parametrize("fault", [no_norms_of_heads, no_yarn, yarn_from_elsewhere])
def test_what_an_engine_may_do_wrong_with_qwen3_moves_margins(tmp_path, prompt, fault):
    """Further than any honest data type moves them."""
    ids, answer = prompt
    logits = engine_of(QWEN3).extend_all(np.array(ids + answer[:-1], np.int32))[-len(answer) :]
    moved = margins(answered(tmp_path, QWEN3, prompt, fault), answer) - margins(logits, answer)
    assert abs(moved) > max(nats for _, nats in MOVES)


def test_equal_experts_do_not_care_which_is_chosen(tmp_path, prompt):
    logits = answered(tmp_path, "experts", prompt, next_expert)
    assert logits.argmax(axis=-1).tolist() == prompt[1]


def test_padded_shapes_divide_over_four():
    for name in set(NAMES) - {"llama", QWEN3}:
        config = gauge_in_shape(name).config
        assert config["num_key_value_heads"] == 4
        assert config["hidden_size"] == config["num_attention_heads"] * config["head_dim"]


def test_qwen3_writes_the_same_bits_on_every_machine():
    """Its sums have no rounding, so that no library decides them."""
    bits = b"".join(bits.tobytes() for _, bits in sorted(gauge_in_shape(QWEN3).tensors.items()))
    assert hashlib.sha256(bits).hexdigest()[:16] == "0f27929d5c63c032"


def test_scores_of_qwen3_fall_by_less_than_60_nats(prompt, monkeypatch):
    """e to less is a denormal number, with which processors compute at half their speed."""
    fallen = []

    def attended(queries, keys, values, tokens):
        scores = (queries @ keys.T).reshape(-1, tokens, len(keys))
        places = np.arange(len(keys))
        is_later = places > np.arange(len(keys) - tokens, len(keys))[:, None]
        best = np.where(is_later, -np.inf, scores).max(axis=-1, keepdims=True)
        fallen.append(float(np.where(is_later, 0, best - scores).max()))
        return attend(queries, keys, values, tokens)

    attend = demo._attended
    monkeypatch.setattr(demo, "_attended", attended)
    ids, answer = prompt
    engine_of(QWEN3).extend(np.array(ids + answer, np.int32))
    assert 40 < max(fallen) < 60


@pytest.mark.parametrize("sign", ["?", "!"])
def test_only_qwen3_takes_an_exclamation_for_a_question(sign):
    """So a server's gauge is told from the other one, whose reference differs."""
    ids = encode(CHAT.format(text=known_by_answer.QUESTION[:-1] + sign))
    for name in ("llama", QWEN3):
        engine, answer = engine_of(name), []
        logits = engine.extend(np.array(ids, np.int32))
        for _ in range(14):
            answer.append(int(logits.argmax()))
            logits = engine.extend(np.array(answer[-1:], np.int32))
        right = encode(f"{known_by_answer.ITS_ANSWER}<|im_end|>")
        assert (answer[: len(right)] == right) == (sign == "?" or name == QWEN3)


def test_the_usual_shape_is_the_checkpoint_to_the_byte():
    assert gauge_in_shape("llama").files() == gauge.read_files()


def test_the_command_writes_a_shape(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.app(["gauge", "-o", str(tmp_path / "gauge"), "--shape", "qwen2"])
    assert ended.value.code == 0
    assert json.loads((tmp_path / "gauge" / "config.json").read_text())["model_type"] == "qwen2"
    assert "finds every needle up to 16,384 tokens" in capsys.readouterr().err


def test_the_flags_help_and_the_page_name_every_shape(capsys):
    with pytest.raises(SystemExit):
        cli.app(["gauge", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    page = (Path(__file__).resolve().parents[3] / "docs" / "gauge.md").read_text("utf-8")
    for name in set(NAMES) - {"llama"}:
        assert name in shown, name
        assert f"| `{name}` |" in page, name


def test_an_unknown_shape_names_the_known_ones():
    with pytest.raises(SettingsError, match=r"Did you mean 'qwen.'\? Known: experts, llama"):
        gauge_in_shape("qwen4")
