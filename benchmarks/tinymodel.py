"""A small Llama with random weights, its tokenizer and chat template, as a folder that `hf/FOLDER`
loads.

Weights are drawn at five times the usual scale: at the usual one a random model hardly looks at its
context, so that a stale cache gives the right answer.
"""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

from needlemap.haystacks.generated import Generated

SPECIAL = ("<pad>", "<s>", "</s>")
TEMPLATE = (
    "{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}<s>assistant:"
)
VOCABULARY = 1024


def write_model(folder: Path, *, layers: int, hidden: int, positions: int) -> int:
    """Write it; its number of parameters. Heads are 32 wide, two queries to one key. Never ends an
    answer."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=hidden * 8 // 3,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,
        num_key_value_heads=max(1, hidden // 64),
        max_position_embeddings=positions,
        initializer_range=0.1,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
        tie_word_embeddings=False,
    )
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return sum(weights.numel() for weights in model.parameters())


def write_tokenizer(folder: Path) -> None:
    """A tokenizer.json of `VOCABULARY` tokens, and a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(
        (page.text for page in islice(Generated().documents(), 40)), trainer
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<s>", "pad_token": "<pad>"})
    )
    (folder / "chat_template.jinja").write_text(TEMPLATE)
