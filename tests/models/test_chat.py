"""What a model wants around a text, as token ids. Equality with transformers is in
tests/contract."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from needlemap.errors import SettingsError, VocabularyMissing
from needlemap.models import MARK
from needlemap.models.chat import Chat
from needlemap.models.model_files import ModelFiles
from needlemap.prompts import TEXT
from needlemap.text.tokens import TokenText

CHATML = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] "
    "}}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% "
    "endif %}" + CHATML
)
DROPS_SYSTEM = CHATML.replace("in messages", "in messages if m['role'] != 'system'")
DATED = "{{ strftime_now('%d %b %Y') }}" + CHATML
ROWS = [("system", "Be brief."), ("user", f"Text:\n\n{MARK}\n\nWho?")]
SPECIAL = ["<s>", "<|im_start|>", "<|im_end|>"]


def make(folder: Path, template: str | None = CHATML, *, bos: bool = False, **config: Any) -> Path:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["user assistant system Who? Be brief. Text " * 5], trainer)
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 0)]
        )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", **config}))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder


def chat(folder: Path, base: bool = False, options: Mapping[str, Any] | None = None) -> Chat:
    return Chat.of(ModelFiles(str(folder)), base=base, template_options=options or {})


def text(made: TokenText) -> str:
    assert made.offsets[0] == 0
    assert made.offsets[-1] == len(made.data)
    assert len(made.offsets) == len(made.ids) + 1
    assert (np.diff(made.offsets) >= 0).all()
    return made.data.decode()


def special(made: TokenText) -> list[str]:
    """The special tokens among some tokens, in order."""
    return [SPECIAL[number] for number in made.ids.tolist() if number < len(SPECIAL)]


def test_a_chat_template_is_put_around_the_haystack(tmp_path: Path) -> None:
    head, tail = chat(make(tmp_path)).render(ROWS)
    assert text(head) == "<s><|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nText:\n\n"
    assert text(tail) == "\n\nWho?<|im_end|>\n<|im_start|>assistant\n"
    assert special(head) == ["<s>", "<|im_start|>", "<|im_end|>", "<|im_start|>"]
    assert special(tail) == ["<|im_end|>", "<|im_start|>"]


def test_there_is_one_first_token_even_if_the_tokenizer_would_add_another(tmp_path: Path) -> None:
    head, _ = chat(make(tmp_path, bos=True)).render(ROWS)
    assert special(head).count("<s>") == 1


@pytest.mark.parametrize("template", [NO_SYSTEM, DROPS_SYSTEM])
def test_without_a_system_role_its_text_opens_the_first_user_message(
    tmp_path: Path, template: str
) -> None:
    head, _ = chat(make(tmp_path, template)).render(ROWS)
    assert text(head) == "<s><|im_start|>user\nBe brief.\n\nText:\n\n"


def test_an_answers_first_words_are_left_open(tmp_path: Path) -> None:
    _, tail = chat(make(tmp_path)).render([*ROWS, ("assistant", "It was ")])
    assert text(tail) == "\n\nWho?<|im_end|>\n<|im_start|>assistant\nIt was "


def test_a_template_that_trims_leaves_no_blank_behind_them(tmp_path: Path) -> None:
    trims = CHATML.replace("m['content'] }}", "m['content'] | trim }}")
    _, tail = chat(make(tmp_path, trims)).render([*ROWS, ("assistant", "It was ")])
    assert text(tail).endswith("assistant\nIt was")


def test_special_tokens_spelt_in_a_message_are_plain_text(tmp_path: Path) -> None:
    rows = [("user", f"{MARK} What does <|im_end|> mean, or <s>?")]
    _, tail = chat(make(tmp_path)).render(rows)
    assert "What does <|im_end|> mean, or <s>?" in text(tail)
    assert special(tail) == ["<|im_end|>", "<|im_start|>"]


def test_a_plain_text_is_a_user_message(tmp_path: Path) -> None:
    head, _ = chat(make(tmp_path)).render([(TEXT, f"A {MARK} B")])
    assert text(head) == "<s><|im_start|>user\nA "


@pytest.mark.parametrize(("bos", "first"), [(False, []), (True, ["<s>"])])
def test_a_base_text_gets_the_first_token_that_its_tokenizer_adds(
    tmp_path: Path, bos: bool, first: list[str]
) -> None:
    made = chat(make(tmp_path, None, bos=bos))
    head, tail = made.render([(TEXT, f"{MARK}\nAnswer:"), ("assistant", " It")])
    assert made.template is None
    assert special(head) == first
    assert text(head) == "".join(first)
    assert text(tail) == "\nAnswer: It"


def test_base_text_can_be_forced_on_a_chat_model(tmp_path: Path) -> None:
    head, tail = chat(make(tmp_path), base=True).render(ROWS)
    assert text(head) + "|" + text(tail) == "Be brief.\n\nText:\n\n|\n\nWho?"


def test_template_options_reach_the_template(tmp_path: Path) -> None:
    thinks = (
        CHATML
        + "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    )
    _, tail = chat(make(tmp_path, thinks), options={"enable_thinking": False}).render(ROWS)
    assert text(tail).endswith("assistant\n<think></think>")


def test_a_template_that_asks_for_the_date_gets_the_same_one_every_day(tmp_path: Path) -> None:
    head, _ = chat(make(tmp_path, DATED)).render(ROWS)
    assert text(head).startswith("26 Jul 2024")


def test_a_template_in_the_tokenizers_configuration_counts_too(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": CHATML}]
    assert chat(make(tmp_path, None, chat_template=named)).template == CHATML


def test_messages_without_a_haystack_are_rendered_whole(tmp_path: Path) -> None:
    made = chat(make(tmp_path))
    head, tail = made.render([("user", f"Who?{MARK}")])
    assert made.row_ids([("user", "Who?")]).tolist() == [*head.ids, *tail.ids]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ messages[0]['content'] | upper }}", "does not keep a message's text"),
        ("{{ raise_exception('Only tools') }}", "refuses these messages: Only tools"),
        ("{% if %}", "refuses these messages"),
    ],
)
def test_a_template_that_cannot_be_used_says_what_to_type(
    tmp_path: Path, template: str, message: str
) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        chat(make(tmp_path, template)).render([("user", f"some {MARK}")])
    assert "--model-options base=true" in str(caught.value)


def test_a_template_runs_in_a_sandbox(tmp_path: Path) -> None:
    escape = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    with pytest.raises(SettingsError, match="refuses"):
        chat(make(tmp_path, escape)).render(ROWS)


def test_a_folder_without_a_tokenizer_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(VocabularyMissing, match=r"No tokenizer\.json in .*AutoTokenizer"):
        chat(tmp_path)


def test_a_folder_that_is_not_there_is_named() -> None:
    with pytest.raises(SettingsError, match=r"No model folder at .*nowhere"):
        chat(Path("./nowhere/at/all"))


def test_text_behind_the_haystack_gets_no_blank_that_begins_a_text(tmp_path: Path) -> None:
    """A SentencePiece-like tokenizer puts a blank before every text; the tail is not a text of its
    own."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=120, special_tokens=["<unk>", *SPECIAL], show_progress=False
    )
    tokenizer.train_from_iterator(["▁Who?▁Be▁brief.▁Text▁user▁assistant▁system|<_>\n" * 5], trainer)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    made = chat(tmp_path)
    head, tail = made.render([("user", f"Text {MARK}\nWho?")])
    assert [text(part).replace("▁", " ") for part in (head, tail)] == ["Text ", "\nWho?"]
    assert tokenizer.id_to_token(int(head.ids[0])).startswith("▁")
    assert tokenizer.id_to_token(int(tail.ids[0])) == "\n"
