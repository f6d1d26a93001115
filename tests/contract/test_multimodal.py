"""Models that also take images, asked in text alone: answers equal those of their own `generate`.

transformers has no causal class for these configurations, only one for images and text.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from needlemap.errors import SettingsError
from needlemap.models import Answer, Decoding
from needlemap.models.chat import Chat
from needlemap.models.model_files import Loading, ModelFiles, load_model
from needlemap.plan import with_partings
from needlemap.prompts import Prompt
from needlemap.trials import Trial

torch = pytest.importorskip("torch", reason="needs torch: python3 -m pip install '.[hf]'")
transformers = pytest.importorskip(
    "transformers", reason="needs transformers: python3 -m pip install '.[hf]'"
)

from needlemap.models.hf import HuggingFaceModel  # noqa: E402

KINDS = {  # of configurations, and the class that transformers has for it
    "mistral3": "Mistral3ForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
    "glm4v": "Glm4vForConditionalGeneration",
    "internvl": "InternVLForConditionalGeneration",
    "llava": "LlavaForConditionalGeneration",
}
ANSWER = 6  # tokens
PARTS = (  # Llava's way: a message is a list of parts; a text's letters are no parts
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for part in m['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ROWS = [("system", "Be brief."), ("user", "Where is the code?")]
Folders = Callable[..., Path]


@pytest.fixture(scope="session")
def seeing(folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folders of tiny models by their kind, made as the benchmark of architectures makes them."""
    root, plain = tmp_path_factory.mktemp("seeing"), folders("llama")

    @cache
    def make(kind: str) -> Path:
        with _benchmarks():
            from sides.tiny import made
        torch.manual_seed(0)
        model = transformers.AutoModelForImageTextToText.from_config(
            made(kind), dtype=torch.float32
        )
        model.generation_config = transformers.GenerationConfig(pad_token_id=0, eos_token_id=4)
        folder: Path = root / kind
        model.save_pretrained(folder)
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            (folder / name).write_text((plain / name).read_text())
        return folder

    return make


class _benchmarks:
    """Its folder among those that are imported from."""

    _folder = str(Path(__file__).parents[2] / "benchmarks")

    def __enter__(self) -> None:
        sys.path.insert(0, self._folder)

    def __exit__(self, *_: object) -> None:
        sys.path.remove(self._folder)


async def _ask(folder: Path, prompts: list[Prompt], **options: Any) -> list[Answer]:
    model = HuggingFaceModel(str(folder), device="cpu", **options)
    try:
        return [await model.answer(prompt, Decoding(ANSWER)) for prompt in prompts]
    finally:
        await model.close()


def generated(folder: Path, prompts: list[Prompt]) -> Iterator[str]:
    """What transformers' own `generate` says, each from nothing, by its own class."""
    model = transformers.AutoModelForImageTextToText.from_pretrained(folder).eval()
    vocabulary = transformers.AutoTokenizer.from_pretrained(folder)
    for prompt in prompts:
        tokens = torch.from_numpy(prompt.ids.astype("int64"))[None]
        said = model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=ANSWER,
            do_sample=False,
            pad_token_id=0,
        )
        yield vocabulary.decode(said[0, len(prompt.ids) :], skip_special_tokens=True)


@pytest.mark.parametrize("kind", KINDS)
def test_answers_from_a_shared_cache_are_those_of_its_own_generate(
    seeing: Callable[[str], Path], trials: Callable[..., list[Trial]], kind: str
) -> None:
    """Positions of several axes (Qwen-VL, GLM-4V) are those of plain text, also behind a cache."""
    folder = seeing(kind)
    prompts = with_partings([trial.prompt for trial in trials(folder, "exact")[:8]])
    expected = list(generated(folder, prompts))
    for options in ({}, {"chunk_tokens": 61}):
        answers = asyncio.run(_ask(folder, prompts, **options))
        assert [answer.text for answer in answers] == expected
        assert all((answer.cached_tokens or 0) > 100 for answer in answers[1:])
    assert len(set(expected)) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_loaded_by_the_class_that_transformers_has_for_it(
    seeing: Callable[[str], Path], kind: str
) -> None:
    model = load_model(str(seeing(kind)), Loading(device="cpu"))
    assert type(model).__name__ == KINDS[kind]


def test_a_model_of_images_alone_is_still_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit"}))
    with pytest.raises(SettingsError, match="transformers has no such class for 'vit'"):
        load_model(str(tmp_path), Loading(device="cpu"))


def rendered(folder: Path, template: str, tmp_path: Path) -> str:
    """What a template makes of `ROWS`."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_text((folder / name).read_text())
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    chat = Chat.of(ModelFiles(str(tmp_path)))
    return str(chat.vocabulary.decode(chat.row_ids(ROWS).tolist(), skip_special_tokens=False))


def test_a_template_that_wants_parts_gets_them(folders: Folders, tmp_path: Path) -> None:
    """Llava's template takes the letters of a plain text for parts and prints none of them: the
    prompt was refused as one that does not keep its text."""
    folder = folders("llama")
    said = rendered(folder, PARTS, tmp_path)
    assert said == rendered(folder, (folder / "chat_template.jinja").read_text(), tmp_path)
    assert all(text in said for _, text in ROWS)


def test_a_template_that_wants_a_text_never_gets_a_list(folders: Folders, tmp_path: Path) -> None:
    """One that leaves the system message out is asked with it before the user's, as before."""
    silent = (
        "{% for m in messages %}{% if m['role'] != 'system' %}{{ m['role'] }}: "
        "{{ m['content'] }}\n{% endif %}{% endfor %}"
    )
    said = rendered(folders("llama"), silent, tmp_path)
    assert said == "user: Be brief.\n\nWhere is the code?\n"
