"""Makes the gauge: a Llama of 0.7 million parameters that never misses a needle.

    pip install 'needlemap[hf]' scipy && python tools/train_gauge.py --out GAUGE

A small model that is trained finds a needle nearly always, and nearly is not enough: whatever is
lost shall be the engine's fault. So only the vocabulary is trained, on generated prose. The weights
are computed: each head does one thing that can be named.

1. Layer 1. Four heads look one, two, three and four tokens back: rotary phases peak there.
2. Layer 2. Two heads look for the last " is" or "?", and fetch the word before it: that is what a
   value, or an answer, is about. Two heads look four tokens back, at what layer 1 brought there.
3. Layer 3. Two heads look for the place that is about the same word and stands behind the same
   digits as the answer so far, and copy what stands there. Two heads feel a little of what stands
   700 and 5,000 tokens back, so that other positions move the log-probabilities.

The inner layers carry what the next layer reads, and sharpen the answer, so that no tensor is idle.
An answer is the value's digits and a full stop; then the turn ends. It takes every question
that ends in "KEY?" about a needle "KEY is DIGITS.", in chat or behind "Answer:".

Writes a standard checkpoint: model.safetensors (bfloat16), config.json, tokenizer.json,
tokenizer_config.json, chat_template.jinja, generation_config.json. Prints the CPU time. The same
versions of numpy and scipy give the same weights.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from needlemap.haystacks.generated import Generated
from needlemap.prompts.templates import load_template
from needlemap.settings.reading import DEFAULT_ITEMS

Array = NDArray[np.float64]

SPECIAL = ["<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
END = "<|im_end|>"
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
DOCUMENTS, TEXT_SEED = 300, 20_271_123
LONGEST = 32_768  # positions that the checkpoint says it takes
HOLDS = 16_384  # the longest prompt at which benchmarks/gauge.py found it to hold
OTHER_CITIES = """
    Accra Amman Athens Baghdad Bangkok Beijing Berlin Bogota Boston Brussels Bucharest Budapest
    Calgary Chicago Dallas Delhi Denver Dhaka Dublin Geneva Havana Helsinki Istanbul Jakarta Karachi
    Kiev Lagos Lisbon London Madrid Manila Milan Montreal Moscow Mumbai Nairobi Naples Paris Prague
    Rome Santiago Seattle Seoul Sofia Stockholm Sydney Taipei Tallinn Tokyo Toronto Venice Vienna
    Vilnius Warsaw Zagreb Zurich
"""


@dataclass(frozen=True)
class Shape:
    """Sizes of the transformer. theta: base of its rotary positions, large, so that half of the
    pairs hardly turn within 16k tokens and can compare words at any distance."""

    vocabulary: int = 1024
    width: int = 128
    heads: int = 4
    shared: int = 2  # heads of keys and values
    head: int = 64
    inner: int = 128
    layers: int = 3
    theta: float = 1e12

    @property
    def turns(self) -> Array:
        """Radians by which each pair turns with each token, (head / 2,)."""
        return self.theta ** (-np.arange(0, self.head, 2) / self.head)


# What the residual stream carries, and how many numbers each takes.
WIRES = {
    "one": 1,  # always 1
    "marker": 1,  # 1 at " is" and "?"
    "fill": 1,  # makes all embeddings equally long
    "word": 14,  # which token
    "lead": 1,  # 1 at " for", else -1
    "kind": 4,  # which digit, what opens a value, or neither
    "here": 12,  # which digit, a full stop, or neither: what is copied
    "before": 14,  # the word one token back
    "lead_before": 1,  # lead, two tokens back
    "kinds1": 16,  # kinds one to four tokens back
    "kind_again": 4,  # kind, through the inner layer
    "topic": 14,  # the word before the last marker
    "topic_lead": 1,  # lead, two tokens before the last marker
    "kinds5": 16,  # kinds five to eight tokens back
    "here_again": 12,  # here, through the inner layer
    "answer": 12,  # what is copied
}
STOPS = np.cumsum([0, *WIRES.values()])
AT = {name: slice(int(a), int(b)) for name, a, b in zip(WIRES, STOPS[:-1], STOPS[1:], strict=True)}
KINDS, OPENS_1, OPENS_2, OTHER = 13, 10, 11, 12  # digits first
# Scores in nats: of the same topic; against what is no value; of the same kinds one to six back.
TOPIC, LEAD, NO_VALUE, KIND_BACK = 44.0, 8.0, 24.0, (14.0, 20.0, 12.0, 10.0, 10.0, 10.0)
# Heads that only feel what stands so many tokens back, over so many pairs, and how much of it.
FELT_BACK, FELT_PAIRS, FELT_NATS, FELT = (700, 5_000), (3, 12), 2.0, 0.5
FULL_STOP, NO_DIGIT = 10, 11  # among `here`, behind the digits


def train_tokenizer(size: int) -> Tokenizer:
    """Byte-level BPE of generated prose, digits one by one, each city one token."""
    made = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    made.decoder = decoders.ByteLevel()
    item = DEFAULT_ITEMS["english"]
    cities = [*item["draw"]["city"], *OTHER_CITIES.split()]
    _, around = load_template("text-en").parts[0].around(item["question"])
    frames = "\nsystem\nuser\nassistant\n You answer questions about a long document. Use only what"
    frames += " the document says, and be brief. Here is the document. That is the end of it."
    shown = [f" {item['needle']}{around}{frames}".format(city=city, number=10) for city in cities]
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[AddedToken(each, special=True, normalized=False) for each in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    source = Generated(seed=TEXT_SEED)
    texts = [source.document(number).text for number in range(DOCUMENTS)]
    made.train_from_iterator([*texts, *shown * DOCUMENTS], trainer)
    return made


def spread(count: int, width: int, *, steps: int, seed: int) -> Array:
    """Points on a sphere that keep apart, (count, width): each step pushes near ones away."""
    points = np.random.default_rng(seed).normal(size=(count, width))
    for step in range(steps):
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        near = points @ points.T
        np.fill_diagonal(near, -1.0)
        sharp = 8 + 32 * step / steps
        push = np.exp(sharp * (near - near.max()))
        push /= push.sum(axis=1).max()
        points -= 0.3 * (1 - step / steps) * (push @ points)
    return np.asarray(points / np.linalg.norm(points, axis=1, keepdims=True))


def distances() -> Array:
    """Tokens back that a head's score is tried at: all near ones, and a sample to twice LONGEST."""
    far = np.random.default_rng(0).integers(600, LONGEST, 6_000)
    return np.concatenate([np.arange(600), np.unique(far)]).astype(float)


def peak(shape: Shape, pairs: int, least: float) -> Array:
    """The least amplitudes by pair of a head whose score at one distance is `least` above all
    others, in nats. Raises ValueError where there are none."""
    back = np.concatenate([np.arange(-4.0, 0.0), distances()[1:]])
    less = np.cos(back[:, None] * shape.turns[:pairs]) - 1
    found = linprog(np.ones(pairs), less, np.full(len(back), -least), method="highs")
    if found.status:
        raise ValueError(f"no amplitudes: {found.message}")
    return np.asarray(found.x)


def recency(shape: Shape, pairs: int, reach: int, slope: float) -> tuple[Array, Array, float]:
    """Cosine and sine amplitudes of a head that prefers what is nearer: by `slope` a token up to
    `reach`; whatever is further scores below that. And the span of its scores."""
    turns = shape.turns[:pairs]
    back = distances()
    angles = back[:, None] * turns
    each = np.hstack([np.cos(angles), np.sin(angles)])
    near = each[1 : reach + 1] - each[:reach]
    far = each[reach + 1 :] - each[reach]
    rows = np.vstack([near, far])
    least = np.concatenate([np.full(reach, slope), np.zeros(len(far))])
    found = linprog(np.ones(4 * pairs), np.hstack([rows, -rows]), -least, method="highs")
    if found.status:
        raise ValueError(f"no amplitudes: {found.message}")
    both = found.x[: 2 * pairs] - found.x[2 * pairs :]
    scores = each @ both
    return both[:pairs], both[pairs:], float(scores.max() - scores[:reach].min())


@dataclass
class Head:
    """Queries, keys, values and outputs of one head, before norms: (head, width), the output
    (width, head)."""

    query: Array
    key: Array
    value: Array
    out: Array

    @classmethod
    def empty(cls, shape: Shape) -> Head:
        size = (shape.head, shape.width)
        return cls(np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size[::-1]))


def wire(name: str, part: int | slice | None = None) -> Any:
    """Where the residual stream carries something."""
    whole = AT[name]
    if part is None:
        return whole
    if isinstance(part, int):
        return whole.start + part
    return slice(whole.start + part.start, whole.start + part.stop)


class Maker:
    """Computes the weights. squares: the squared length of the residual stream before each norm."""

    def __init__(self, shape: Shape, tokenizer: Tokenizer) -> None:
        self.shape, self.tokenizer = shape, tokenizer
        self.tensors: dict[str, Array] = {}
        self.squares = 6.0

    def token(self, text: str) -> int:
        """The only token of a text. Raises ValueError where there are several."""
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        if len(ids) != 1:
            raise ValueError(f"{text!r} is {len(ids)} tokens")
        return int(ids[0])

    def make(self) -> dict[str, Array]:
        self.embed()
        self.look_back()
        self.look_up()
        self.copy()
        self.unembed()
        self.turn()
        return self.tensors

    def turn(self) -> None:
        """Turns the residual stream by a random rotation, which changes no answer: each weight is
        then a sum of many, and rounding any tensor coarsely is felt."""
        drawn = np.random.default_rng(4).normal(size=(self.shape.width,) * 2)
        rotation = np.linalg.qr(drawn)[0]
        writers = ("o_proj.weight", "down_proj.weight")
        for name, values in self.tensors.items():
            if name.endswith(writers):
                self.tensors[name] = rotation.T @ values
            elif values.ndim == 2:
                self.tensors[name] = values @ rotation

    @property
    def gain(self) -> float:
        """By what a norm multiplies the residual stream."""
        return float(np.sqrt(self.shape.width / self.squares))

    def embed(self) -> None:
        shape = self.shape
        table = np.zeros((shape.vocabulary, shape.width))
        kinds = spread(KINDS, 4, steps=3000, seed=1)
        table[:, wire("one")] = 1
        table[:, wire("word")] = spread(shape.vocabulary, 14, steps=300, seed=2)
        table[:, wire("lead")] = -1
        table[self.token(" for"), wire("lead")] = 1
        kind = np.full(shape.vocabulary, OTHER)
        here = np.full(shape.vocabulary, NO_DIGIT)
        for digit in range(10):
            kind[self.token(str(digit))] = here[self.token(str(digit))] = digit
        for text in (" ", "\n", ":"):
            kind[self.token(text)] = OPENS_1
        for text in (" is", "assistant", "Answer"):
            kind[self.token(text)] = OPENS_2
        here[self.token(".")] = FULL_STOP
        table[:, wire("kind")] = kinds[kind]
        table[np.arange(shape.vocabulary), wire("here").start + here] = 1
        marked = [self.token(text) for text in (" is", "?")]
        table[:, wire("fill")] = 1
        table[marked, wire("fill")] = 0
        table[marked, wire("marker")] = 1
        self.tensors["model.embed_tokens.weight"] = table

    def look_back(self) -> None:
        """Layer 1: kinds and the word of the tokens before."""
        shape, half = self.shape, self.shape.head // 2
        pairs = 10
        size = np.sqrt(peak(shape, pairs, 14.0))
        heads = []
        for back in (1, 2, 3, 4):
            head = Head.empty(shape)
            turn = back * shape.turns[:pairs]
            head.query[:pairs, wire("one", 0)] = size * np.cos(turn)
            head.query[half : half + pairs, wire("one", 0)] = -size * np.sin(turn)
            head.key[:pairs, wire("one", 0)] = size
            head.value[:14, wire("word")] = np.eye(14)
            head.value[16:20, wire("kind")] = np.eye(4)
            head.out[wire("kinds1", slice(4 * back - 4, 4 * back)), 16:20] = np.eye(4)
            head.value[14, wire("lead")] = 1
            if back == 1:
                head.out[wire("before"), :14] = np.eye(14)
            if back == 2:
                head.out[wire("lead_before"), 14] = 1
            heads.append(head)
        self.attend(0, heads, 6.0)
        self.carry(0, {"kind": "kind_again"}, 1.0)

    def look_up(self) -> None:
        """Layer 2: the topic, and kinds of tokens further back."""
        shape, half = self.shape, self.shape.head // 2
        cosines, sines, span = recency(shape, 9, 40, 1.0)
        size = np.sqrt(np.hypot(cosines, sines))
        turn = np.arctan2(-sines, cosines)
        heads = []
        for part in (slice(0, 7), slice(7, 14)):
            head = Head.empty(shape)
            head.query[:9, wire("one", 0)] = size * np.cos(turn)
            head.query[half : half + 9, wire("one", 0)] = size * np.sin(turn)
            head.key[:9, wire("one", 0)] = size
            head.query[half - 1, wire("one", 0)] = np.sqrt(span + 16)
            head.key[half - 1, wire("marker", 0)] = np.sqrt(span + 16)
            head.value[:14, wire("before")] = np.eye(14)
            head.out[wire("topic", part), part] = np.eye(7)
            head.value[14, wire("lead_before")] = 1
            if part.start == 0:
                head.out[wire("topic_lead"), 14] = 1
            heads.append(head)
        size = np.sqrt(peak(shape, 10, 14.0))
        for part in (slice(0, 8), slice(8, 16)):
            head = Head.empty(shape)
            turn = 4 * shape.turns[:10]
            head.query[:10, wire("one", 0)] = size * np.cos(turn)
            head.query[half : half + 10, wire("one", 0)] = -size * np.sin(turn)
            head.key[:10, wire("one", 0)] = size
            head.value[:16, wire("kinds1")] = np.eye(16)
            head.out[wire("kinds5", part), part] = np.eye(8)
            heads.append(head)
        self.attend(1, heads, 6.0)
        self.carry(1, {"here": "here_again"}, 1.0)

    def copy(self) -> None:
        """Layer 3: find the place, and copy what stands there."""
        shape, half = self.shape, self.shape.head // 2
        # rows of a head, those of the slowest pairs first
        rows = [pair + half * side for pair in range(half - 1, half - 21, -1) for side in (0, 1)]
        heads = []
        for scale in (1.0, 0.9):
            head = Head.empty(shape)
            for at in range(14):
                head.query[rows[at], wire("topic", at)] = np.sqrt(TOPIC) * scale
                head.key[rows[at], wire("topic", at)] = np.sqrt(TOPIC)
            # "for Turin" is asked for, and not "to Turin"
            head.query[rows[15], wire("topic_lead", 0)] = np.sqrt(LEAD) * scale
            head.key[rows[15], wire("topic_lead", 0)] = np.sqrt(LEAD)
            # what is no digit and no full stop is no part of a value
            head.query[rows[14], wire("one", 0)] = -np.sqrt(NO_VALUE) * scale
            head.key[rows[14], wire("here", NO_DIGIT)] = np.sqrt(NO_VALUE)
            for back, nats in enumerate(KIND_BACK, 1):
                size = np.sqrt(nats)
                for at in range(4):
                    row = rows[12 + 4 * back + at]
                    head.key[row, self._kind(back, at)] = size
                    if back == 1:
                        head.query[row, wire("kind", at)] = size * scale / 2
                        head.query[row, wire("kind_again", at)] = size * scale / 2
                    else:
                        head.query[row, self._kind(back - 1, at)] = size * scale
            head.value[:12, wire("here")] = np.eye(12) / 2
            head.value[:12, wire("here_again")] = np.eye(12) / 2
            head.out[wire("answer"), :12] = np.eye(12) / 2
            heads.append(head)
        mixed = spread(12, 14, steps=300, seed=3) * FELT
        pairs = range(*FELT_PAIRS)
        for back in FELT_BACK:
            head = Head.empty(shape)
            for pair in pairs:
                turn = back * shape.turns[pair]
                size = np.sqrt(FELT_NATS)
                head.query[pair, wire("one", 0)] = size * np.cos(turn)
                head.query[pair + half, wire("one", 0)] = -size * np.sin(turn)
                head.key[pair, wire("one", 0)] = size
            head.value[:14, wire("word")] = np.eye(14)
            head.out[wire("answer"), :14] = mixed
            heads.append(head)
        self.attend(2, heads, 1.0)
        self.sharpen(2)

    def _kind(self, back: int, at: int) -> int:
        """Where the kind of a token some tokens back is carried."""
        name = "kinds1" if back <= 4 else "kinds5"
        return int(wire(name, 4 * ((back - 1) % 4) + at))

    def attend(self, layer: int, heads: list[Head], added: float) -> None:
        """Joins heads, two of which share keys and values. Scores are divided by the root of the
        head's width, and what is read was multiplied by the norm's gain."""
        prefix, gain = f"model.layers.{layer}.self_attn.", self.gain
        root = self.shape.head**0.25
        groups = len(heads) // self.shape.shared
        own = [heads[at] for at in range(0, len(heads), groups)]
        for at, head in enumerate(heads):
            first = own[at // groups]
            if not (np.allclose(head.key, first.key) and np.allclose(head.value, first.value)):
                raise ValueError(f"head {at} of layer {layer} has keys of its own")
        stack = np.concatenate
        self.tensors[prefix + "q_proj.weight"] = stack([h.query for h in heads]) * root / gain
        self.tensors[prefix + "k_proj.weight"] = stack([h.key for h in own]) * root / gain
        self.tensors[prefix + "v_proj.weight"] = stack([h.value for h in own])
        self.tensors[prefix + "o_proj.weight"] = stack([h.out for h in heads], axis=1) / gain
        self.squares += added

    def carry(self, layer: int, copies: dict[str, str], added: float) -> None:
        """An inner layer that copies wires: gates that are always open."""
        gate, up, down = self._inner()
        row, opened = 0, 8.0
        for source, target in copies.items():
            size = WIRES[source]
            rows = slice(row, row + size)
            gate[rows, wire("one")] = opened / self.gain
            up[rows, wire(source)] = np.eye(size) / self.gain
            down[wire(target), rows] = np.eye(size) / opened
            row += size
        self._add(layer, gate, up, down, added)

    def sharpen(self, layer: int) -> None:
        """An inner layer that makes the largest part of the answer larger."""
        gate, up, down = self._inner()
        rows = slice(0, 12)
        gate[rows, wire("answer")] = 8 * np.eye(12) / self.gain
        gate[rows, wire("one")] = -4 / self.gain
        up[rows, wire("one")] = 1 / self.gain
        down[wire("answer"), rows] = np.eye(12) / 4
        self._add(layer, gate, up, down, 3.0)

    def _inner(self) -> tuple[Array, Array, Array]:
        size = (self.shape.inner, self.shape.width)
        return np.zeros(size), np.zeros(size), np.zeros(size[::-1])

    def _add(self, layer: int, gate: Array, up: Array, down: Array, added: float) -> None:
        prefix = f"model.layers.{layer}."
        self.tensors[prefix + "mlp.gate_proj.weight"] = gate
        self.tensors[prefix + "mlp.up_proj.weight"] = up
        self.tensors[prefix + "mlp.down_proj.weight"] = down
        for norm in ("input_layernorm", "post_attention_layernorm"):
            self.tensors[prefix + norm + ".weight"] = np.ones(self.shape.width)
        self.squares += added

    def unembed(self) -> None:
        """Digits and a full stop as they were copied; behind a full stop, or where nothing is
        copied, the end of the turn; everything else is unlikely."""
        table = np.zeros((self.shape.vocabulary, self.shape.width))
        table[:, wire("one")] = -6
        stop, end = self.token("."), self.token(END)
        for digit in range(10):
            table[self.token(str(digit))] = 0
            table[self.token(str(digit)), wire("answer", digit)] = 8
        table[stop] = table[end] = 0
        table[stop, wire("answer", FULL_STOP)] = 8
        table[end, wire("answer", NO_DIGIT)] = 8
        table[end, wire("here", FULL_STOP)] = 30
        self.tensors["lm_head.weight"] = table / self.gain
        self.tensors["model.norm.weight"] = np.ones(self.shape.width)


def config_of(shape: Shape) -> dict[str, Any]:
    """What config.json says."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": SPECIAL.index("<s>"),
        "eos_token_id": SPECIAL.index(END),
        "pad_token_id": SPECIAL.index("<pad>"),
        "dtype": "bfloat16",
        "head_dim": shape.head,
        "hidden_act": "silu",
        "hidden_size": shape.width,
        "initializer_range": 0.02,
        "intermediate_size": shape.inner,
        "max_position_embeddings": LONGEST,
        "mlp_bias": False,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.shared,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_theta": shape.theta, "rope_type": "default"},
        # Where engines look that do not read transformers 5's: mlx-lm takes 10,000 without it.
        "rope_theta": shape.theta,
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": shape.vocabulary,
        "holds_tokens": HOLDS,
    }


def write(folder: Path, shape: Shape, tokenizer: Tokenizer, tensors: dict[str, Array]) -> None:
    """A checkpoint that transformers, vLLM, SGLang, LMDeploy and llama.cpp's converter read."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    kept = {
        name: torch.from_numpy(values).to(torch.bfloat16).contiguous()
        for name, values in tensors.items()
    }
    save_file(kept, str(folder / "model.safetensors"), {"format": "pt"})
    tokenizer.save(str(folder / "tokenizer.json"))
    generation = {"do_sample": False, "eos_token_id": 4, "pad_token_id": 0}
    files = {
        "config.json": config_of(shape),
        "generation_config.json": generation,
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            # CTranslate2's converter wants a name for each. Bytes are never unknown.
            "bos_token": "<s>",
            "eos_token": END,
            "pad_token": "<pad>",
            "unk_token": "<pad>",
            "model_max_length": LONGEST,
            "clean_up_tokenization_spaces": False,
            "add_bos_token": False,
        },
    }
    for name, data in files.items():
        (folder / name).write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHAT, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    start = time.process_time()
    shape = Shape()
    tokenizer = train_tokenizer(shape.vocabulary)
    print(f"vocabulary {tokenizer.get_vocab_size()}, cpu {time.process_time() - start:.0f} s")
    tensors = Maker(shape, tokenizer).make()
    write(out, shape, tokenizer, tensors)
    parameters = sum(values.size for values in tensors.values())
    spent = time.process_time() - start
    print(f"parameters {parameters:,}, cpu {spent:.0f} s")


if __name__ == "__main__":
    main()
