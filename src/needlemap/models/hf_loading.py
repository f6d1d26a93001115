"""Loading a transformers model, and what its configuration says. Whatever fails says what to type next."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Vocabulary

from needlemap.errors import SettingsError, did_you_mean
from needlemap.models.model_files import ModelFiles
from needlemap.secrets import scrub

_MOST_LAYERS = 10_000


@dataclass(frozen=True, slots=True)
class Loading:
    """How a model is loaded. Names and values are transformers' own, but for device: 'auto' or torch's name.

    device_map, max_memory, offload_folder: over several devices. quantization_config: fields of
    transformers' configuration of that kind, as {"load_in_4bit": True}; None: as the checkpoint says.
    trust_remote_code: run the code that comes with the model.
    """

    device: str = "auto"
    dtype: str = "auto"
    device_map: str | dict[str, Any] | None = None
    max_memory: dict[int | str, int | str] | None = None
    offload_folder: str | None = None
    attn_implementation: str | None = None
    quantization_config: dict[str, Any] | None = None
    trust_remote_code: bool = False
    revision: str | None = None

    def check(self) -> None:
        """Raises SettingsError for options that need each other."""
        for name in ("max_memory", "offload_folder"):
            if getattr(self, name) is not None and self.device_map is None:
                raise SettingsError(
                    f"Option '{name}' needs a device map: add --model-options device_map=auto."
                )
        if self.device != "auto" and self.device_map is not None:
            raise SettingsError("Give 'device' for one device or 'device_map' for several, not both.")


def load_model(name: str, loading: Loading) -> Any:
    """The model on its device or devices, ready to be asked. Raises SettingsError."""
    loading.check()
    torch, transformers = libraries()
    files = ModelFiles(name, loading.revision)
    folder = files.folder
    common: dict[str, Any] = {"trust_remote_code": loading.trust_remote_code}
    if folder is None:
        common["revision"] = loading.revision or "main"
    source, config = str(folder or name), None
    _refuse_absurd(files)
    try:
        config = transformers.AutoConfig.from_pretrained(source, **common)
        refuse_encoders(name, config)
        where = _device(loading, torch)
        given = _given(loading, where, config, torch, transformers)
        model = transformers.AutoModelForCausalLM.from_pretrained(source, config=config, **common, **given)
        placed = loading.device_map is not None or getattr(model, "is_quantized", False)
        return (model if placed else model.to(where)).eval()
    except SettingsError:
        raise
    except Exception as error:  # a model's own code may raise anything
        raise SettingsError(_why(name, folder, config, error)) from error


def refuse_encoders(name: str, config: Any) -> None:
    """Raises SettingsError for a model whose decoder reads what an encoder made of another text."""
    if getattr(config, "is_encoder_decoder", False):
        raise SettingsError(
            f"'{name}' ({config.model_type}) is an encoder-decoder: one half reads a prompt, the other "
            f"writes. needlemap asks causal (decoder-only) language models."
        )


def _refuse_absurd(files: ModelFiles) -> None:
    """Raises SettingsError for more layers than any model has: building them would never end."""
    layers = files.number("num_hidden_layers", "n_layer", "num_layers")
    if layers is not None and layers > _MOST_LAYERS:
        raise SettingsError(f"The config.json of '{files.name}' names {layers:,} layers: it is no model's.")


def _device(loading: Loading, torch: Any) -> str:
    """The one device of a model without a device map."""
    if loading.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return loading.device


def _given(loading: Loading, where: str, config: Any, torch: Any, transformers: Any) -> dict[str, Any]:
    """The options that go to transformers."""
    dtype, method = loading.dtype, loading.quantization_config
    if dtype == "auto" and where == "cpu" and loading.device_map is None and _halved(config, torch):
        dtype = "float32"  # CPUs do not compute in float16
    options = {
        "dtype": dtype,
        "device_map": loading.device_map,
        "max_memory": _by_device(loading.max_memory),
        "offload_folder": loading.offload_folder,
        "attn_implementation": loading.attn_implementation,
        "quantization_config": None if method is None else _quantisation(method, transformers),
    }
    if loading.device != "auto" and (method or getattr(config, "quantization_config", None)):
        options["device_map"] = {"": where}  # quantised weights cannot be moved once they are loaded
    return {key: value for key, value in options.items() if value is not None}


def _by_device(memory: dict[int | str, int | str] | None) -> dict[int | str, int | str] | None:
    """Memory by device; GPU numbers that came through JSON, where keys are texts, are numbers again."""
    if memory is None:
        return None
    return {int(key) if str(key).isdigit() else key: room for key, room in memory.items()}


def _quantisation(fields: dict[str, Any], transformers: Any) -> Any:
    """transformers' object for it. Raises ValueError for an unknown method, SettingsError for a field that
    would be ignored without a word."""
    made = transformers.quantizers.AutoQuantizationConfig.from_dict(dict(fields))
    known = made.to_dict()
    for name in fields:
        if name not in known:
            raise SettingsError(f"Unknown field '{name}' of quantization_config. {did_you_mean(name, known)}")
    return made


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


def _why(name: str, folder: Path | None, config: Any, error: Exception) -> str:
    """What went wrong in one line, and the remedy."""
    said = " ".join(scrub(str(error)).split())
    if "trust_remote_code" in said:
        return (
            f"'{name}' brings its own code, which has not been run. With --trust-remote-code it would be run "
            f"on this machine, with all that you may do here: read it first, and pin a model of "
            f"the hub with --model-options revision=COMMIT."
        )
    if "Unrecognized configuration class" in said:
        kind = getattr(config, "model_type", "")
        return f"'{name}' is no causal language model: transformers has no such class for '{kind}'."
    if folder is not None and not (folder / "config.json").is_file():
        return f"'{folder}' is not a model folder: it has no config.json."
    return f"'{name}' cannot be loaded by transformers: {type(error).__name__}: {said}"
