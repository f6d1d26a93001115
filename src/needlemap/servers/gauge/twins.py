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
# They make 104 tokens: eight kernels' rows.
RESERVED = tuple(f"<reserved_{number}>" for number in range(4))
TOKENS = (*SPECIAL, *PRINTABLE, *RESERVED)
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
# Scales of weights, tried in this order until one makes the model heed all of its context.
GAINS = (2.0, 3.0, 1.5, 1.0)
# Tokens at which that is measured.
LENGTHS = (512, 1_024, 2_048, 4_096)
TENTHS = 10
# Nats by which a changed tenth must move some log-probability.
LEAST_NATS = 0.05
# Spread of the logits, in nats.
LOGIT_NATS = 2.0
# Share of an expert's variance that all have in common: a tie between two must be no cliff.
SHARED = 0.75
# Rates of recurrent layers: from 5 to 500 tokens are remembered.
DECAYS = (0.002, 0.2)
# Of norms and biases, so that an engine that leaves one out is seen.
NOISE = 0.2
REFERENCE_LENGTHS = (64, 256, 1_000)
# Prompts of each length.
REFERENCE_PROMPTS = 4
# Tokens of each answer of the reference.
ANSWER = 16
# Tokens of which the reference keeps the log-probability, at each place.
TOP = 5
REFERENCE = "reference.jsonl"


@dataclass(frozen=True, slots=True)
class Twin:
    """A twin that was written.

    Attributes:
        model_type: Transformers' name of its architecture.
        layers: How many layers it has.
        holds_tokens: The longest context of which it was measured to heed every tenth.
        least_nats: How little a changed tenth moves its log-probabilities there.
        cached_nats: By how much its own cached passes differ from one pass.
    """

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
        holds_tokens, least_nats = choose_scale(model, seed, lengths)
        rows, cached_nats = reference_of(model, seed)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    _write_tokenizer(folder)
    (folder / REFERENCE).write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    config = model.config
    return Twin(
        config.model_type,
        config.num_hidden_layers,
        holds_tokens=holds_tokens,
        least_nats=least_nats,
        cached_nats=cached_nats,
    )


def shape_of(like: str) -> Shape:
    """Return the shape of the twin of a model.

    like: an architecture, a config.json, a model's folder or a model of the hub. Raises
    SettingsError if it is none of these, or cannot be read.
    """
    hf = _transformers()
    path = Path(like)
    if path.exists():
        return _shape_of_config(read_own_config(path))
    row = row_of(like)
    model_type = row.model_type if row else like.replace("-", "_").lower()
    if model_type in hf.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return named_shape(row.model_type if row else model_type, _class_config(model_type))
    if "/" in like:
        return _shape_of_config(read_own_config(_hub_config(like)))
    return named_shape(like, None)


def _class_config(model_type: str) -> dict[str, Any]:
    config: dict[str, Any] = _transformers().AutoConfig.for_model(model_type).to_dict()
    return config


def _shape_of_config(config_fields: Mapping[str, Any]) -> Shape:
    """Return the shape of the twin of a configuration.

    If the configuration has several models, it is that of its text model.
    """
    text_fields = config_fields.get("text_config") or config_fields
    model_type = str(text_fields.get("model_type"))
    fields = {key: value for key, value in text_fields.items() if key != "model_type"}
    try:
        # The class adds fields, above all kinds of layers.
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
    """Have torch compute in one thread, so that sums are the same on every machine.

    Matrices are tiny, so it takes no longer.
    """
    torch = _torch()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _refuse_others_files(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise SettingsError(f"'{folder}' is a file. Name a folder for the twin: -o FOLDER")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / REFERENCE).is_file():
        raise SettingsError(f"'{folder}' holds other files. Name an empty folder: -o FOLDER")


def model_of(shape: Shape) -> Any:
    """Return a model with its class's own weights, in float32.

    Raises SettingsError if transformers cannot make one of these sizes.
    """
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


def choose_scale(model: Any, seed: int, lengths: Sequence[int] = LENGTHS) -> tuple[int, float]:
    """Fill a model with weights of the first scale at which it heeds all of its context.

    Return the longest context that it heeds, in tokens, and by how many nats a changed tenth moves
    it there at least. Raises SettingsError if there is no such scale.
    """
    class_weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    moves: Sequence[float] = ()
    for gain in GAINS:
        model.load_state_dict(class_weights)
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

    holds_tokens, least_nats = lengths[0], min(moves)
    for length in lengths[1:]:
        moves = tenth_moves(model, length, seed)
        if min(moves) < LEAST_NATS:
            break
        holds_tokens, least_nats = length, min(moves)
    return holds_tokens, least_nats


def fill(model: Any, *, seed: int, gain: float) -> None:
    """Draw every weight by its name and a seed.

    gain: by how much a matrix widens the spread of its inputs.
    """
    torch = _torch()
    config = model.config
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


def draw(name: str, weights: Array, config: Any, chance: np.random.Generator) -> Drawn:
    """Draw the weights of one tensor. weights: those that the class gave it.

    Matrices keep the spread of their inputs; vectors stay about the constant that the class gave
    them, 0 or 1; recurrent layers get decays that remember.
    """
    normal = chance.standard_normal(weights.shape)
    if name.endswith("A_log"):
        return np.asarray(chance.uniform(log(DECAYS[0]), log(DECAYS[1]), weights.shape))
    if weights.ndim < 2:
        constant = (
            weights.flat[0]
            if weights.size and np.ptp(weights) == 0 and "dt_bias" not in name
            else 0
        )
        return np.asarray(constant + NOISE * normal)
    if _is_vocabulary(name):
        tied = config.tie_word_embeddings
        spread = 1.0 if "embed" in name and not tied else LOGIT_NATS / config.hidden_size**0.5
        return np.asarray(spread * normal)
    # Experts. Some classes have inputs before outputs.
    if weights.ndim == 3 and "conv" not in name:
        shared = chance.standard_normal(weights.shape[1:])
        mixed = SHARED**0.5 * shared + (1 - SHARED) ** 0.5 * normal
        return np.asarray(mixed / config.hidden_size**0.5)
    return np.asarray(normal / weights.shape[-1] ** 0.5)


def is_output(name: str, config: Any) -> bool:
    """Return True if a tensor has a row for each token that the last layer is multiplied with."""
    return "lm_head" in name or (
        bool(config.tie_word_embeddings) and name.endswith("embed_tokens.weight")
    )


def _is_vocabulary(name: str) -> bool:
    return "embed" in name or "lm_head" in name


def _hash(name: str) -> int:
    return crc32(name.encode())


def tenth_moves(model: Any, length: int, seed: int) -> list[float]:
    """Return the most nats by which changing each tenth of a random context moves the next token.

    length: of the context, in tokens.
    """
    torch = _torch()
    chance = np.random.default_rng([seed, length])
    first, last = len(SPECIAL), len(SPECIAL) + len(PRINTABLE)

    def next_nats(ids: np.ndarray[Any, Any]) -> Any:
        with torch.inference_mode():
            logits = model(torch.from_numpy(ids[None]), use_cache=False).logits[0, -1]
            return logits.log_softmax(-1)[first:last]

    ids = chance.integers(first, last, length)
    usual_nats = next_nats(ids)
    moves = []
    for tenth in range(TENTHS):
        start, stop = tenth * length // TENTHS, (tenth + 1) * length // TENTHS
        changed_ids = ids.copy()
        changed_ids[start:stop] = chance.integers(first, last, stop - start)
        moves.append(float((next_nats(changed_ids) - usual_nats).abs().max()))
    return moves


def reference_of(model: Any, seed: int) -> tuple[list[dict[str, Any]], float]:
    """Return prompts with the likeliest answers and their log-probabilities.

    Log-probabilities are from one pass over prompt and answer. The second value is the most nats by
    which the cached passes that found the answers differ from it.
    """
    torch = _torch()
    rows = []
    most_nats = 0.0
    for length in REFERENCE_LENGTHS:
        for number in range(REFERENCE_PROMPTS):
            text = prose(length, Random(f"{seed} {length} {number}"))
            ids = [TOKENS.index(letter) for letter in text]
            answer, steps = likeliest_answer(model, ids)
            with torch.inference_mode():
                whole = torch.tensor([[*ids, *answer]])
                logits = model(whole, use_cache=False).logits[0, len(ids) - 1 : -1]
                nats = logits.log_softmax(-1)
            most_nats = max(most_nats, float((nats - steps).abs().max()))
            rows.append(reference_row(text, answer, nats.numpy()))
    return rows, most_nats


def reference_row(prompt: str, answer: Sequence[int], nats: Array) -> dict[str, Any]:
    """Return a row of the reference: prompt, answer, and the likeliest tokens at each place."""
    top = [
        {TOKENS[token]: round(float(step[token]), 6) for token in np.argsort(-step)[:TOP]}
        for step in nats
    ]
    return {"prompt": prompt, "answer": "".join(TOKENS[token] for token in answer), "top": top}


def likeliest_answer(model: Any, ids: Sequence[int], tokens: int = ANSWER) -> tuple[list[int], Any]:
    """Return the likeliest answer, found with a cache token by token, and its log-probabilities."""
    torch = _torch()
    field = cache_field(model)
    cache = None
    new_ids = list(ids)
    answer = list[int]()
    steps = []
    with torch.inference_mode():
        for _ in range(tokens):
            output = model(torch.tensor([new_ids]), **{field: cache}, use_cache=True)
            cache = getattr(output, field)
            steps.append(output.logits[0, -1].log_softmax(-1))
            answer.append(int(steps[-1].argmax()))
            new_ids = answer[-1:]
    return answer, torch.stack(steps)


def cache_field(model: Any) -> str:
    """Return the name of the argument that takes a cache.

    Mamba's classes accept the usual one without an error, and start anew.
    """
    return (
        "cache_params"
        if "cache_params" in signature(model.forward).parameters
        else "past_key_values"
    )


def prose(length: int, draw: Random) -> str:
    """Return drawn words and numbers, cut to a length in characters."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words: list[str] = []
    while sum(map(len, words)) + len(words) <= length:
        word = "".join(draw.choices(letters, k=draw.randint(2, 8)))
        words.append(word if draw.random() < 0.9 else str(draw.randrange(1_000_000)))
    return " ".join(words)[:length]


def _write_tokenizer(folder: Path) -> None:
    """Write a tokenizer, its settings and the chat template into a folder.

    The tokens are single characters, so that a text has one spelling. Characters that are not
    printable ASCII are left out.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    ids = {}
    for number, text in enumerate(TOKENS):
        # Special tokens, e.g. <bos>, are not spelled in the letters of a byte-level vocabulary.
        name = byte_letter(text) if text in PRINTABLE else text
        ids[name] = number
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special_texts = [text for text in TOKENS if text not in PRINTABLE]
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in special_texts]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    settings: Mapping[str, Any] = {
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
    (folder / "tokenizer_config.json").write_text(f"{json.dumps(settings, indent=2)}\n", "utf-8")
    (folder / "chat_template.jinja").write_text(TEMPLATE, "utf-8")


def byte_letter(text: str) -> str:
    """Return the letter for a character in a byte-level vocabulary (Radford et al. 2019).

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
    # The models of transformers need it.
    assert torch
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def _torch() -> Any:
    _transformers()
    import torch

    return torch
