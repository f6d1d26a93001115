"""Loading a transformers model, and what its configuration says. Whatever fails says what to type next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Vocabulary

from needlemap.errors import SettingsError
from needlemap.models.faults import scrub
from needlemap.models.model_files import ModelFiles


def load_model(
    name: str,
    *,
    device: str,
    dtype: str,
    device_map: str | dict[str, Any] | None,
    attn_implementation: str | None,
    trust_remote_code: bool,
    revision: str | None,
) -> Any:
    """The model on its device, ready to be asked. Raises SettingsError."""
    torch, transformers = libraries()
    where = "cuda" if device == "auto" and torch.cuda.is_available() else device.replace("auto", "cpu")
    folder = ModelFiles(name, revision).folder
    common: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    if folder is None:
        common["revision"] = revision or "main"
    source = str(folder or name)
    try:
        config = transformers.AutoConfig.from_pretrained(source, **common)
        if dtype == "auto" and where == "cpu" and device_map is None and _halved(config, torch):
            dtype = "float32"  # CPUs do not compute in float16
        options = {"dtype": dtype, "device_map": device_map, "attn_implementation": attn_implementation}
        given = {key: value for key, value in options.items() if value is not None}
        model = transformers.AutoModelForCausalLM.from_pretrained(source, config=config, **common, **given)
        return (model if device_map is not None else model.to(where)).eval()
    except (OSError, ValueError, ImportError, RuntimeError, AssertionError, KeyError) as error:
        raise SettingsError(_why(name, folder, error)) from error


def libraries() -> tuple[Any, Any]:
    """torch and transformers, imported now. Raises SettingsError with what to install."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise SettingsError(
            f"Model 'hf' needs {error.name or 'torch'}. Run: pip install torch (your machine's build: see "
            f"pytorch.org), then: pip install 'needlemap[hf]'"
        ) from None
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call, unused-ignore]
    return torch, transformers


def position_limit(config: Any) -> int | None:
    """Tokens that the model has positions for; None where it names no limit."""
    limit = getattr(config.get_text_config(), "max_position_embeddings", None)
    return limit if isinstance(limit, int) and limit > 0 else None


def stop_tokens(model: Any, vocabulary: Vocabulary, eos: object) -> tuple[int, ...]:
    """Every token that ends an answer: the generation settings', the configuration's and the tokenizer's."""
    found = [
        getattr(model.generation_config, "eos_token_id", None),
        getattr(model.config, "eos_token_id", None),
    ]
    found.append(vocabulary.token_to_id(eos) if isinstance(eos, str) else None)
    return tuple(sorted({number for entry in found for number in _numbers(entry)}))


def _numbers(entry: object) -> list[int]:
    entries = entry if isinstance(entry, list | tuple) else [entry]
    return [number for number in entries if isinstance(number, int)]


def _halved(config: Any, torch: Any) -> bool:
    return getattr(config, "dtype", None) in (torch.float16, "float16")


def _why(name: str, folder: Path | None, error: Exception) -> str:
    """What went wrong in one line, and the remedy."""
    said = " ".join(scrub(str(error)).split())
    if "trust_remote_code" in said:
        return (
            f"'{name}' brings its own code, which has not been run. If you trust it: "
            f"--model-options trust_remote_code=true"
        )
    if folder is not None and not (folder / "config.json").is_file():
        return f"'{folder}' is not a model folder: it has no config.json."
    return f"'{name}' cannot be loaded by transformers: {type(error).__name__}: {said}"
