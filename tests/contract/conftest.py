"""Tiny real models with random weights, made on the spot, and what they are asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from needlemap.haystacks.generated import Generated
from needlemap.plan import ordered
from needlemap.settings.reading import configure
from needlemap.trials import Trial
from needlemap.trials.build import prepare

SPECIAL = ["<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# A default scale of 0.02 makes a random model that hardly looks at its context: a stale cache would
# pass.
SCALE = 0.3
WINDOW = 48  # of the sliding-window model: far shorter than any prompt


@cache
def vocabulary() -> str:
    """A byte-level BPE tokenizer.json of 1,024 tokens, trained on generated prose."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1024,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [document.text for document in islice(Generated(seed=7).documents(), 40)]
    tokenizer.train_from_iterator(texts, trainer)
    return str(tokenizer.to_str())


def config(architecture: str) -> Any:
    """A tiny configuration of one kind of attention."""
    import transformers as hf

    shared: dict[str, Any] = {
        "vocab_size": 1024,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 2048,
        "initializer_range": SCALE,
        "bos_token_id": 1,
        "eos_token_id": 4,
        "pad_token_id": 0,
        "tie_word_embeddings": False,
    }
    grouped = {**shared, "num_key_value_heads": 1, "head_dim": 32}
    makers: dict[str, Callable[[], Any]] = {
        "llama": lambda: hf.LlamaConfig(**grouped),  # grouped queries
        "gpt2": lambda: hf.GPT2Config(  # learned positions
            vocab_size=1024,
            n_embd=64,
            n_layer=2,
            n_head=2,
            n_positions=2048,
            initializer_range=SCALE,
            bos_token_id=1,
            eos_token_id=4,
        ),
        "gpt_neox": lambda: hf.GPTNeoXConfig(
            **shared
        ),  # attention beside the inner layer, partial rotation
        "qwen3": lambda: hf.Qwen3Config(**grouped),  # normed queries and keys
        "mistral": lambda: hf.MistralConfig(**grouped, sliding_window=WINDOW),
        "bamba": lambda: hf.BambaConfig(  # a recurrent layer, and one of attention
            **shared,
            num_key_value_heads=1,
            attn_layer_indices=[1],
            mamba_n_heads=8,
            mamba_d_head=16,
            mamba_n_groups=1,
            mamba_d_state=8,
            mamba_chunk_size=32,
        ),
        "mamba": lambda: hf.MambaConfig(
            vocab_size=1024,
            hidden_size=32,
            state_size=8,
            num_hidden_layers=2,
            initializer_range=SCALE,
            bos_token_id=1,
            eos_token_id=4,
            pad_token_id=0,
        ),
    }
    return makers[architecture]()


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Model folders by architecture: folders("llama"), folders("llama", chat=False)."""
    pytest.importorskip("torch", reason="needs torch: python3 -m pip install '.[hf]'")
    pytest.importorskip("transformers", reason="needs transformers: python3 -m pip install '.[hf]'")
    root = tmp_path_factory.mktemp("models")

    @cache
    def make(architecture: str, chat: bool = True) -> Path:
        import torch
        import transformers

        torch.set_num_threads(1)
        torch.manual_seed(0)
        folder = root / f"{architecture}{'' if chat else '-base'}"
        transformers.AutoModelForCausalLM.from_config(config(architecture)).save_pretrained(folder)
        (folder / "tokenizer.json").write_text(vocabulary())
        tokens = {"bos_token": "<s>", "eos_token": "<|im_end|>", "pad_token": "<pad>"}
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **tokens})
        )
        if chat:
            (folder / "chat_template.jinja").write_text(TEMPLATE)
        return folder

    return make


@pytest.fixture(scope="session")
def trials() -> Callable[..., list[Trial]]:
    """The trials of a run in the order of its plan."""

    @cache
    def make(
        folder: Path, mode: str, counted: str = "auto", lengths: str = "256:768"
    ) -> list[Trial]:
        grid = {"lengths": f"{lengths}:5", "depths": "0:100:5", "repeats": 2}
        given = {"model": f"hf/{folder}", "mode": mode, "tokenizer": counted, **grid}
        experiment = prepare(configure(None, {**given, "max_answer_tokens": 8}))
        return ordered(experiment.trials, mode)

    return make
