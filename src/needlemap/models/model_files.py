"""A model's files, from a folder or from the hub: the small ones as data, and all of them by
transformers.

Tokenizer, chat template and configuration are read without weights, and without the model's code.
They tell which weights and code a folder holds: part of a trial's key, so that another model is
asked anew. Whatever fails says what to type next.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from needlemap.errors import NeedlemapError, SettingsError, VocabularyMissing, did_you_mean
from needlemap.extras import install_line
from needlemap.files import read_regular
from needlemap.hub import fetch
from needlemap.models.weights import refuse_partial
from needlemap.secrets import scrub
from needlemap.untrusted import MOST_WHOLE, read_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Vocabulary

TOKENIZER = "tokenizer.json"
# Of a configuration or a template.
_LARGEST_BYTES = 2**26
_MOST_LAYERS = 10_000
_KINDS = (".safetensors", ".npz", ".bin", ".pt", ".gguf", ".json", ".py")
_SAMPLE_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model's files.

    name: a folder or a hub name (org/model). revision: branch, tag or commit on the hub.
    """

    name: str
    revision: str | None = None

    @property
    def folder(self) -> Path | None:
        """Return the folder, None for a hub name.

        Raises SettingsError for a path that is not there.
        """
        path = Path(self.name).expanduser()
        if path.is_dir():
            return path
        if self.name.startswith((".", "/", "~")) or self.name.count("/") != 1:
            raise SettingsError(
                f"No model folder at '{path.absolute()}'. Give a folder, as hf/./my-model, or a "
                f"hub name, as hf/Qwen/Qwen3-0.6B (lmdeploy/... likewise)."
            )
        return None

    @property
    def tokenizer(self) -> Path:
        """Return the path of its tokenizer.json. Raises VocabularyMissing with what to do."""
        path = self.find(TOKENIZER)
        if path is None:
            trust, warning = "", ""
            # A tokenizer that is code, e.g. InternLM's.
            if "auto_map" in self.json("tokenizer_config.json"):
                trust, warning = ", trust_remote_code=True", ", which runs its own code"
            raise VocabularyMissing(
                f"No {TOKENIZER} in '{self.name}'. Copy the one it was trained with there, or make "
                f"it of its other files{warning}: "
                f'python -c "from transformers import AutoTokenizer as A; '
                f"A.from_pretrained('{self.name}'{trust}).save_pretrained('{self.name}')\""
            )
        return path

    def find(self, file: str) -> Path | None:
        """Return the path of a file, None if the model has none."""
        folder = self.folder
        if folder is None:
            return self._downloaded(file)
        try:
            return folder / file if (folder / file).is_file() else None
        except OSError as error:
            raise SettingsError(
                f"'{folder / file}' cannot be looked at: {error.strerror}."
            ) from None

    def text(self, file: str) -> str | None:
        """Return a file's text, None if the model has none.

        Raises SettingsError for a file that is not such a text.
        """
        path = self.find(file)
        if path is None:
            return None
        try:
            return read_regular(path, _LARGEST_BYTES).decode("utf-8")
        except NeedlemapError as error:
            raise SettingsError(str(error)) from None
        except (ValueError, OSError) as error:
            raise SettingsError(f"'{path}' cannot be read as text: {error}") from None

    def json(self, file: str) -> dict[str, Any]:
        """Return a JSON file's object; {} if the model has none.

        Raises SettingsError if it is unreadable.
        """
        text = self.text(file)
        if text is None:
            return {}
        try:
            data = read_json(text)
        except ValueError as error:
            raise SettingsError(f"'{self.find(file)}' is not readable JSON: {error}") from None
        if not isinstance(data, dict):
            raise SettingsError(f"'{self.find(file)}' is no JSON object of names and values.")
        return data

    @property
    def positions(self) -> int | None:
        """Return how many positions its configuration has, or None if it names no number."""
        return self.number("max_position_embeddings", "n_positions")

    def number(self, *names: str) -> int | None:
        """Return the first of some sizes that its configuration names, or None.

        The text part comes first.
        """
        config = self.json("config.json")
        inner = config.get("text_config")
        for part in (inner if isinstance(inner, dict) else {}, config):
            for name in names:
                size = part.get(name)
                if type(size) is int and 0 < size < MOST_WHOLE:
                    return size
        return None

    def _downloaded(self, file: str) -> Path | None:
        try:
            import huggingface_hub as hub
        except ImportError:
            raise SettingsError(
                f"'{self.name}' is not a folder here, and the hub needs huggingface_hub. "
                f"Run: {install_line('hub')}"
            ) from None
        try:
            download = partial(
                hub.hf_hub_download,
                self.name,
                file,
                revision=self.revision,
                etag_timeout=10,
            )
            return fetch(download, self.name)
        except NeedlemapError:
            raise
        except hub.errors.LocalEntryNotFoundError as error:
            reason = str(error.__cause__ or error).splitlines()[0]
        except hub.errors.EntryNotFoundError:
            return None
        # The library raises its own errors, its client's, and OSError.
        except Exception as error:
            reason = scrub(str(error) or type(error).__name__)
        revision = f" at revision '{self.revision}'" if self.revision else ""
        raise SettingsError(
            f"'{self.name}'{revision} is neither a folder here nor to be had from the hub: "
            f"{reason} Give a folder, as hf/./my-model."
        )


def weights_fingerprint(folder: Path) -> str:
    """Hash a folder's weight, configuration and code files.

    Names, sizes, and the first and last 64 kB of each are hashed. Whole files would take minutes;
    trained weights that differ at all differ there. Raises SettingsError if the folder cannot be
    read.
    """
    digest = hashlib.sha256()
    try:
        files = [path for path in folder.iterdir() if path.suffix in _KINDS and path.is_file()]
        for file in sorted(files):
            size = file.stat().st_size
            digest.update(f"{file.name}\0{size}\0".encode(errors="surrogateescape"))
            with file.open("rb") as data:
                digest.update(data.read(_SAMPLE_BYTES))
                data.seek(max(0, size - _SAMPLE_BYTES), os.SEEK_SET)
                digest.update(data.read(_SAMPLE_BYTES))
    except OSError as error:
        raise SettingsError(f"The model folder '{folder}' cannot be read: {error}") from None
    return digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Loading:
    """How a model is loaded.

    Names and values are transformers' own, but for device: 'auto' or torch's name. device_map,
    max_memory, offload_folder: over several devices. quantization_config: fields of transformers'
    configuration of that kind, e.g. {"load_in_4bit": True}; None: as the checkpoint says.
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
        """Raise SettingsError for options that need each other."""
        for name in ("max_memory", "offload_folder"):
            if getattr(self, name) is not None and self.device_map is None:
                raise SettingsError(
                    f"Option '{name}' needs a device map: add --model-options device_map=auto."
                )
        if self.device != "auto" and self.device_map is not None:
            raise SettingsError(
                "Give 'device' for one device or 'device_map' for several, not both."
            )


def load_model(name: str, loading: Loading) -> Any:
    """Return the model on its device or devices, ready for prompts.

    Raises SettingsError if the model cannot be loaded.
    """
    loading.check()
    torch, transformers = libraries()
    files = ModelFiles(name, loading.revision)
    folder = files.folder
    common: dict[str, Any] = {"trust_remote_code": loading.trust_remote_code}
    if folder is None:
        common["revision"] = loading.revision or "main"
    source = str(folder or name)
    config = None
    _refuse_absurd(files)
    try:
        config = transformers.AutoConfig.from_pretrained(source, **common)
        refuse_encoders(name, config)
        device = _device(loading, torch)
        options = _options(loading, device, config, torch, transformers)
        loaded = loader_of(config, transformers).from_pretrained(
            source, config=config, output_loading_info=True, **common, **options
        )
        model, loading_info = loaded if isinstance(loaded, tuple) else (loaded, {})
        refuse_partial(name, model, loading_info)
        is_placed = loading.device_map is not None or getattr(model, "is_quantized", False)
        return (model if is_placed else model.to(device)).eval()
    except SettingsError:
        raise
    # A model's own code may raise anything.
    except Exception as error:
        raise SettingsError(_failure_words(name, folder, config, error)) from error


def loader_of(config: Any, transformers: Any) -> Any:
    """Return the class that loads a model of this configuration.

    It is the causal one. If a model also takes images and has no causal class, it is the one by
    which the model takes text alone.
    """
    causal = transformers.AutoModelForCausalLM
    image_text = getattr(transformers, "AutoModelForImageTextToText", causal)
    own_classes = getattr(config, "auto_map", None) or {}
    if causal.__name__ in own_classes or type(config) in causal._model_mapping:
        return causal
    if image_text.__name__ in own_classes or type(config) in image_text._model_mapping:
        return image_text
    # It reports what is wrong.
    return causal


def refuse_encoders(name: str, config: Any) -> None:
    """Raise SettingsError for a model whose decoder reads what an encoder made of another text."""
    if getattr(config, "is_encoder_decoder", False):
        raise SettingsError(
            f"'{name}' ({config.model_type}) is an encoder-decoder: one half reads a prompt, the "
            f"other writes. needlemap asks causal (decoder-only) language models."
        )


def _refuse_absurd(files: ModelFiles) -> None:
    """Raise SettingsError for more layers than any model has: building them would never end."""
    layers = files.number("num_hidden_layers", "n_layer", "num_layers")
    if layers is not None and layers > _MOST_LAYERS:
        raise SettingsError(
            f"The config.json of '{files.name}' names {layers:,} layers: it is no model's."
        )


def _device(loading: Loading, torch: Any) -> str:
    """Return the one device of a model without a device map."""
    if loading.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return loading.device


def _options(
    loading: Loading, device: str, config: Any, torch: Any, transformers: Any
) -> dict[str, Any]:
    """Return the options that go to transformers."""
    dtype, method = loading.dtype, loading.quantization_config
    on_cpu = device == "cpu" and loading.device_map is None
    if dtype == "auto" and on_cpu and _halved(config, torch):
        # CPUs do not compute in float16.
        dtype = "float32"
    options = {
        "dtype": dtype,
        "device_map": loading.device_map,
        "max_memory": _by_device(loading.max_memory),
        "offload_folder": loading.offload_folder,
        "attn_implementation": loading.attn_implementation,
        "quantization_config": None if method is None else _quantisation(method, transformers),
    }
    if loading.device != "auto" and (method or getattr(config, "quantization_config", None)):
        # Quantised weights cannot be moved once they are loaded.
        options["device_map"] = {"": device}
    return {key: value for key, value in options.items() if value is not None}


def _by_device(memory: dict[int | str, int | str] | None) -> dict[int | str, int | str] | None:
    """Return memory by device.

    GPU numbers that came through JSON, where keys are texts, are numbers again.
    """
    if memory is None:
        return None
    return {int(key) if str(key).isdigit() else key: room for key, room in memory.items()}


def _quantisation(fields: dict[str, Any], transformers: Any) -> Any:
    """Return transformers' object for a quantisation.

    Raises ValueError for an unknown method, SettingsError for a field that would be ignored without
    a word.
    """
    configuration = transformers.quantizers.AutoQuantizationConfig.from_dict(dict(fields))
    known_fields = configuration.to_dict()
    for name in fields:
        if name not in known_fields:
            raise SettingsError(
                f"Unknown field '{name}' of quantization_config. {did_you_mean(name, known_fields)}"
            )
    return configuration


def libraries() -> tuple[Any, Any]:
    """Return torch and transformers, imported now. Raises SettingsError with what to install."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise SettingsError(
            f"Model 'hf' needs {error.name or 'torch'}. Run: {install_line('hf')}. "
            f"pytorch.org has the line for your GPU's torch."
        ) from None
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call, unused-ignore]
    return torch, transformers


def position_limit(config: Any) -> int | None:
    """Return how many positions the model has, or None if it names no limit."""
    limit = getattr(config.get_text_config(), "max_position_embeddings", None)
    return limit if isinstance(limit, int) and limit > 0 else None


def stop_tokens(model: Any, vocabulary: Vocabulary, eos: object) -> tuple[int, ...]:
    """Return every token that ends an answer.

    These are the generation settings', the configuration's and the tokenizer's.
    """
    entries = [
        getattr(model.generation_config, "eos_token_id", None),
        getattr(model.config, "eos_token_id", None),
    ]
    entries.append(vocabulary.token_to_id(eos) if isinstance(eos, str) else None)
    return tuple(sorted({number for entry in entries for number in _numbers(entry)}))


def _numbers(entry: object) -> list[int]:
    entries = entry if isinstance(entry, list | tuple) else [entry]
    return [number for number in entries if isinstance(number, int)]


def _halved(config: Any, torch: Any) -> bool:
    return getattr(config, "dtype", None) in (torch.float16, "float16")


def _failure_words(name: str, folder: Path | None, config: Any, error: Exception) -> str:
    """Return what went wrong in one line, and the remedy."""
    message = " ".join(scrub(str(error)).split())
    if "trust_remote_code" in message:
        return (
            f"'{name}' brings its own code, which has not been run. With --trust-remote-code it "
            f"would be run on this machine, with all that you may do here: read it first, and pin "
            f"a model of the hub with --model-options revision=COMMIT."
        )
    if "Unrecognized configuration class" in message:
        kind = getattr(config, "model_type", "")
        return f"'{name}' is no causal language model: transformers has no such class for '{kind}'."
    if folder is not None and not (folder / "config.json").is_file():
        return f"'{folder}' is not a model folder: it has no config.json."
    return f"'{name}' cannot be loaded by transformers: {type(error).__name__}: {message}"
