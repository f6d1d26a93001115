"""Twins: a tiny random model of any architecture that transformers knows.

A twin finds nothing, and need not: every way of asking must give the same log-probabilities. Its
weights are drawn at a scale at which the next token depends on all of the context, which is
measured, and lie on bfloat16's grid, so that engines of any data type load the same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from math import log
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from needlemap.errors import SettingsError
from needlemap.extras import install_line
from needlemap.hub import fetch
from needlemap.servers.gauge.architectures import (
    CONFIG,
    LONGEST,
    Shape,
    named_shape,
    read_own_config,
    row_of,
    shrunk_shape,
)

if TYPE_CHECKING:
    from needlemap.models.demo import Array

Drawn = NDArray[np.float64]
SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
PRINTABLE = ("\n", *map(chr, range(ord(" "), ord("~") + 1)))
RESERVED = tuple(f"<reserved_{number}>" for number in range(4))  # 104 tokens: eight kernels' rows
TOKENS = (*SPECIAL, *PRINTABLE, *RESERVED)
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
GAINS = (2.0, 3.0, 1.5, 1.0)  # tried in this order, until one looks at all of its context
LENGTHS = (512, 1_024, 2_048, 4_096)  # tokens at which that is measured
TENTHS = 10
LEAST_NATS = 0.05  # that a changed tenth must move some log-probability by
LOGIT_NATS = 2.0  # spread of the logits
SHARED = 0.75  # of an expert's variance: a tie between two experts must be no cliff
DECAYS = (0.002, 0.2)  # rates of recurrent layers: from 5 to 500 tokens are remembered
NOISE = 0.2  # of norms and biases, so that one that is left out is seen
REFERENCE_LENGTHS = (64, 256, 1_000)
REFERENCE_PROMPTS = 4  # of each length
ANSWER = 16  # tokens of each answer of the reference
TOP = 5  # tokens of which the reference keeps the log-probability
REFERENCE = "reference.jsonl"


@dataclass(frozen=True, slots=True)
class Twin:
    """A twin that was written. holds_tokens: the longest context of which it was measured to heed
    every tenth; least_nats: how little a changed tenth moves its log-probabilities there;
    cached_nats: by how much its own cached passes differ from one pass."""

    model_type: str
    layers: int
    holds_tokens: int
    least_nats: float
    cached_nats: float


def write_twin(shape: Shape, folder: Path, seed: int = 1, lengths: Sequence[int] = LENGTHS) -> Twin:
    """Write a twin with its tokenizer, its template and its reference into a folder.

    lengths: at which it is measured; it must hold the first. Raises SettingsError without torch, if
    transformers cannot make it, or if no scale of its weights makes it heed all of its context.
    """
    _refuse_others_files(folder)
    with one_thread():
        model = model_of(shape)
        holds, least = scaled(model, seed, lengths)
        rows, apart = reference_of(model, seed)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    _write_vocabulary(folder)
    (folder / REFERENCE).write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    config = model.config
    return Twin(config.model_type, config.num_hidden_layers, holds, least, apart)


def shape_of(like: str) -> Shape:
    """The shape of the twin of an architecture, a config.json, a model's folder or a model of the
    hub. Raises SettingsError."""
    hf = _transformers()
    path = Path(like)
    if path.exists():
        return _own_shape(read_own_config(path))
    row = row_of(like)
    model_type = row.model_type if row else like.replace("-", "_").lower()
    if model_type in hf.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return named_shape(row.model_type if row else model_type, _usual(model_type))
    if "/" in like:
        return _own_shape(read_own_config(_hub_config(like)))
    return named_shape(like, None)


def _usual(model_type: str) -> dict[str, Any]:
    usual: dict[str, Any] = _transformers().AutoConfig.for_model(model_type).to_dict()
    return usual


def _own_shape(told: Mapping[str, Any]) -> Shape:
    """The shape of a twin of a configuration, of its text model where it has others too."""
    told = told.get("text_config") or told
    model_type = str(told.get("model_type"))
    fields = {key: value for key, value in told.items() if key != "model_type"}
    try:  # with what the class adds: kinds of layers, above all
        config = _transformers().AutoConfig.for_model(model_type, **fields)
    except Exception as error:
        raise SettingsError(
            f"transformers cannot read a '{model_type}': {str(error)[:300]}"
        ) from None
    return shrunk_shape(model_type, config.to_dict())


def _hub_config(name: str) -> Path:
    from huggingface_hub import hf_hub_download

    try:
        return fetch(lambda: hf_hub_download(name, CONFIG), name)
    except (OSError, ValueError) as error:
        raise SettingsError(f"--like {name}: {error}") from None


@contextmanager
def one_thread() -> Iterator[None]:
    """Have torch compute in one thread: matrices are tiny, and sums come out alike on every
    machine."""
    torch = _torch()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _refuse_others_files(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise SettingsError(f"'{folder}' is a file. Name a folder for the twin: -o FOLDER")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / REFERENCE).is_file():
        raise SettingsError(f"'{folder}' holds other files. Name an empty folder: -o FOLDER")


def model_of(shape: Shape) -> Any:
    """The model with its class's own weights, in float32. Raises SettingsError."""
    hf = _transformers()
    ids = {f"{name[1:-1]}_token_id": number for number, name in enumerate(SPECIAL[:3])}
    try:
        config = hf.AutoConfig.for_model(
            shape.model_type, **{**shape.fields, **ids, "vocab_size": len(TOKENS)}
        )
        model = hf.AutoModelForCausalLM.from_config(config, dtype=_torch().float32)
    # A class of transformers may refuse sizes with any error.
    except Exception as error:
        raise SettingsError(
            f"transformers cannot make a small '{shape.model_type}': {str(error)[:300]}"
        ) from error
    return model.eval()


def scaled(model: Any, seed: int, lengths: Sequence[int] = LENGTHS) -> tuple[int, float]:
    """Fill a model with weights of the first scale at which it heeds all of its context; how
    long a context, and how little a changed tenth moves it there. Raises SettingsError if there is
    none."""
    fixed = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    moves: Sequence[float] = ()
    for gain in GAINS:
        model.load_state_dict(fixed)
        fill(model, seed=seed, gain=gain)
        moves = tenth_moves(model, lengths[0], seed)
        if min(moves) >= LEAST_NATS:
            break
    else:
        tenth = int(np.argmin(moves))
        raise SettingsError(
            f"a random '{model.config.model_type}' of {model.config.num_hidden_layers} layers does "
            f"not heed all of {lengths[0]} tokens: changing tenth {tenth + 1} moves no "
            f"log-probability by {LEAST_NATS:g} nats. It needs more layers or longer windows"
        )
    holds, least = lengths[0], min(moves)
    for length in lengths[1:]:
        moves = tenth_moves(model, length, seed)
        if min(moves) < LEAST_NATS:
            break
        holds, least = length, min(moves)
    return holds, least


def fill(model: Any, *, seed: int, gain: float) -> None:
    """Draw every weight by its name and a seed. gain: by how much a matrix widens the spread of
    what it takes."""
    torch, config = _torch(), model.config
    silent = [number for number, text in enumerate(TOKENS) if text not in PRINTABLE]
    floats = {name: buffer for name, buffer in model.named_buffers() if name.endswith("bias")}
    with torch.no_grad():
        for name, tensor in {**floats, **dict(model.named_parameters())}.items():
            drawn = draw(name, tensor.numpy(), config, np.random.default_rng([seed, _hash(name)]))
            if drawn.ndim > 1 and not _is_vocabulary(name) and "conv1d" not in name:
                drawn = gain * drawn
            if is_output(name, config):
                # Nothing that a server cannot spell, and no end, is ever the likeliest.
                drawn[silent] = 0
            tensor.copy_(torch.from_numpy(drawn.astype(np.float32)).to(torch.bfloat16))


def draw(name: str, kept: Array, config: Any, chance: np.random.Generator) -> Drawn:
    """Weights of one tensor. kept: those that the class gave it.

    Matrices keep the spread of what they take; vectors stay about the constant that the class gave
    them, 0 or 1; recurrent layers get decays that remember.
    """
    normal = chance.standard_normal(kept.shape)
    if name.endswith("A_log"):
        return np.asarray(chance.uniform(log(DECAYS[0]), log(DECAYS[1]), kept.shape))
    if kept.ndim < 2:
        constant = kept.flat[0] if kept.size and np.ptp(kept) == 0 and "dt_bias" not in name else 0
        return np.asarray(constant + NOISE * normal)
    if _is_vocabulary(name):
        tied = config.tie_word_embeddings
        spread = 1.0 if "embed" in name and not tied else LOGIT_NATS / config.hidden_size**0.5
        return np.asarray(spread * normal)
    if kept.ndim == 3 and "conv" not in name:  # experts; some classes have inputs before outputs
        shared = chance.standard_normal(kept.shape[1:])
        mixed = SHARED**0.5 * shared + (1 - SHARED) ** 0.5 * normal
        return np.asarray(mixed / config.hidden_size**0.5)
    return np.asarray(normal / kept.shape[-1] ** 0.5)


def is_output(name: str, config: Any) -> bool:
    """Whether a tensor's rows are what the last layer is compared with, a row a token."""
    return "lm_head" in name or (
        bool(config.tie_word_embeddings) and name.endswith("embed_tokens.weight")
    )


def _is_vocabulary(name: str) -> bool:
    return "embed" in name or "lm_head" in name


def _hash(name: str) -> int:
    return crc32(name.encode())


def tenth_moves(model: Any, length: int, seed: int) -> list[float]:
    """By how many nats, at most, each changed tenth of a random context moves the
    log-probabilities of the next token."""
    torch = _torch()
    chance = np.random.default_rng([seed, length])
    first, last = len(SPECIAL), len(SPECIAL) + len(PRINTABLE)

    def following(ids: np.ndarray[Any, Any]) -> Any:
        with torch.inference_mode():
            logits = model(torch.from_numpy(ids[None]), use_cache=False).logits[0, -1]
            return logits.log_softmax(-1)[first:last]

    ids = chance.integers(first, last, length)
    usual, moves = following(ids), []
    for tenth in range(TENTHS):
        start, stop = tenth * length // TENTHS, (tenth + 1) * length // TENTHS
        other = ids.copy()
        other[start:stop] = chance.integers(first, last, stop - start)
        moves.append(float((following(other) - usual).abs().max()))
    return moves


def reference_of(model: Any, seed: int) -> tuple[list[dict[str, Any]], float]:
    """Prompts with the likeliest answers and their log-probabilities, each from one pass over
    prompt and answer, and by how many nats the cached passes that found the answers differ."""
    torch = _torch()
    rows, most = [], 0.0
    for length in REFERENCE_LENGTHS:
        for number in range(REFERENCE_PROMPTS):
            text = prose(length, Random(f"{seed} {length} {number}"))
            ids = [TOKENS.index(letter) for letter in text]
            answer, steps = answered(model, ids)
            with torch.inference_mode():
                given = torch.tensor([[*ids, *answer]])
                logits = model(given, use_cache=False).logits[0, len(ids) - 1 : -1]
                nats = logits.log_softmax(-1)
            most = max(most, float((nats - steps).abs().max()))
            rows.append(reference_row(text, answer, nats.numpy()))
    return rows, most


def reference_row(prompt: str, answer: Sequence[int], nats: Array) -> dict[str, Any]:
    """A row of the reference: the answer, and of each of its tokens the likeliest ones."""
    top = [
        {TOKENS[token]: round(float(step[token]), 6) for token in np.argsort(-step)[:TOP]}
        for step in nats
    ]
    return {"prompt": prompt, "answer": "".join(TOKENS[token] for token in answer), "top": top}


def answered(model: Any, ids: Sequence[int], tokens: int = ANSWER) -> tuple[list[int], Any]:
    """The likeliest answer, found with a cache token by token, and its log-probabilities."""
    torch, field = _torch(), cache_field(model)
    cache, given, answer, steps = None, list(ids), list[int](), []
    with torch.inference_mode():
        for _ in range(tokens):
            made = model(torch.tensor([given]), **{field: cache}, use_cache=True)
            cache = getattr(made, field)
            steps.append(made.logits[0, -1].log_softmax(-1))
            answer.append(int(steps[-1].argmax()))
            given = answer[-1:]
    return answer, torch.stack(steps)


def cache_field(model: Any) -> str:
    """The argument that takes a cache. Mamba's classes swallow the usual one, and start anew."""
    return (
        "cache_params"
        if "cache_params" in signature(model.forward).parameters
        else "past_key_values"
    )


def prose(length: int, draw: Random) -> str:
    """So many characters of drawn words and numbers."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words: list[str] = []
    while sum(map(len, words)) + len(words) <= length:
        word = "".join(draw.choices(letters, k=draw.randint(2, 8)))
        words.append(word if draw.random() < 0.9 else str(draw.randrange(1_000_000)))
    return " ".join(words)[:length]


def _write_vocabulary(folder: Path) -> None:
    """Write a tokenizer whose tokens are single characters, so that each text is spelt in one
    way; other characters than printable ASCII are left out."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    ids = {byte_letter(text) if text in PRINTABLE else text: n for n, text in enumerate(TOKENS)}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [
            AddedToken(text, special=True, normalized=False)
            for text in TOKENS
            if text not in PRINTABLE
        ]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    told: Mapping[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        # Unnamed, it is a token of its own in some of transformers' classes: Qwen2's, for one.
        "unk_token": "<unk>",
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": LONGEST,
    }
    (folder / "tokenizer_config.json").write_text(f"{json.dumps(told, indent=2)}\n", "utf-8")
    (folder / "chat_template.jinja").write_text(TEMPLATE, "utf-8")


def byte_letter(text: str) -> str:
    """The letter that stands for a character in a byte-level vocabulary (Radford et al. 2019).

    >>> byte_letter("a"), byte_letter(" "), byte_letter(chr(10))
    ('a', 'Ġ', 'Ċ')
    """
    return text if ord(text) > ord(" ") else chr(256 + ord(text))


def _transformers() -> Any:
    transformers: Any
    try:
        import torch
        import transformers
    except ImportError:
        raise SettingsError(
            f"--like needs torch and transformers. Run: {install_line('hf')}"
        ) from None
    assert torch  # its models need it
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def _torch() -> Any:
    _transformers()
    import torch

    return torch
