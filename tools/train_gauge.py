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
versions of numpy and scipy give the same weights. `--shape qwen3 --out qwen3.npz` writes what
needlemap.servers.gauge.shapes makes a checkpoint of: heads of 128, norms of queries and keys, YaRN,
and scores that fall by less than 60 nats, so that no engine computes with denormal numbers.
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
from needlemap.servers.gauge.shapes import nearest_bits
from needlemap.settings.reading import DEFAULT_ITEMS

Array = NDArray[np.float64]

SPECIAL = ["<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
END = "<|im_end|>"
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
DOCUMENTS, TEXT_SEED = 300, 20_271_123
OTHER_CITIES = """
    Accra Amman Athens Baghdad Bangkok Beijing Berlin Bogota Boston Brussels Bucharest Budapest
    Calgary Chicago Dallas Delhi Denver Dhaka Dublin Geneva Havana Helsinki Istanbul Jakarta Karachi
    Kiev Lagos Lisbon London Madrid Manila Milan Montreal Moscow Mumbai Nairobi Naples Paris Prague
    Rome Santiago Seattle Seoul Sofia Stockholm Sydney Taipei Tallinn Tokyo Toronto Venice Vienna
    Vilnius Warsaw Zagreb Zurich
"""


@dataclass(frozen=True)
class Shape:
    """Sizes of the transformer, and scores of its heads in nats.

    theta: base of its rotary positions, large, so that half of the pairs hardly turn within a
    context and can compare words at any distance. yarn: by how much YaRN stretches them, from
    `original` positions on. normed: whether queries and keys have norms, as Qwen3's have.
    word, kind: numbers that tell words, and kinds of tokens, apart. topic, lead, no_value,
    kind_back: scores of the same topic; of what stands before it; against what is no value; of the
    same kinds one to six tokens back. felt_back: tokens back that two heads only feel, over the
    pairs felt_pairs. markers: what a value, or an answer, stands behind. "!" tells qwen3 from the
    others, whose questions must end in "?".
    """

    vocabulary: int = 1024
    width: int = 128
    heads: int = 4
    shared: int = 2  # heads of keys and values
    head: int = 64
    inner: int = 128
    layers: int = 3
    theta: float = 1e12
    yarn: float = 1.0
    original: int = 0
    normed: bool = False
    longest: int = 32_768  # positions that the checkpoint says it takes
    holds: int = 16_384  # the longest prompt at which benchmarks/gauge.py found it to hold
    word: int = 14
    kind: int = 4
    topic: float = 44.0
    lead: float = 8.0
    no_value: float = 24.0
    kind_back: tuple[float, ...] = (14.0, 20.0, 12.0, 10.0, 10.0, 10.0)
    felt_back: tuple[int, int] = (700, 5_000)
    felt_pairs: tuple[int, int] = (3, 12)
    markers: tuple[str, ...] = (" is", "?")

    @property
    def turns(self) -> Array:
        """Radians by which each pair turns with each token, (head / 2,). YaRN: Peng et al. 2023,
        arXiv:2309.00071."""
        turns = self.theta ** (-np.arange(0, self.head, 2) / self.head)
        if self.yarn == 1:
            return turns
        low, high = (self._pair_that_turns(times) for times in (BETA_FAST, BETA_SLOW))
        low, high = np.floor(low), np.ceil(high)
        stretched = np.clip((np.arange(self.head // 2) - low) / (high - low), 0, 1)
        return np.asarray(turns * (1 - stretched + stretched / self.yarn))

    def _pair_that_turns(self, times: float) -> float:
        """The pair that turns so often within the original positions."""
        positions = self.original / (2 * np.pi * times)
        return float(self.head * np.log(positions) / (2 * np.log(self.theta)))

    @property
    def sharper(self) -> float:
        """By what YaRN multiplies scores."""
        return float((0.1 * np.log(self.yarn) + 1) ** 2)

    @property
    def wires(self) -> dict[str, int]:
        """What the residual stream carries, and how many numbers each takes."""
        return {
            "one": 1,  # always 1
            "marker": 1,  # 1 at markers
            "fill": 1,  # makes all embeddings equally long
            "word": self.word,  # which token
            "lead": 1,  # 1 at " for", else -1
            "kind": self.kind,  # which digit, what opens a value, or neither
            "here": 12,  # which digit, a full stop, or neither: what is copied
            "before": self.word,  # the word one token back
            "lead_before": 1,  # lead, two tokens back
            "kinds1": 4 * self.kind,  # kinds one to four tokens back
            "kind_again": self.kind,  # kind, through the inner layer
            "topic": self.word,  # the word before the last marker
            "topic_lead": 1,  # lead, two tokens before the last marker
            "kinds5": 4 * self.kind,  # kinds five to eight tokens back
            "here_again": 12,  # here, through the inner layer
            "answer": 12,  # what is copied
        }


BETA_FAST, BETA_SLOW = 32.0, 1.0  # turns: YaRN's usual bounds
SHAPES = {
    "llama": Shape(),
    # Scores fall by less than 60 nats: e to that is no denormal number.
    "qwen3": Shape(
        width=256,
        head=128,
        yarn=8.0,
        original=16_384,
        normed=True,
        longest=131_072,
        holds=65_536,
        word=30,
        kind=6,
        topic=11.0,
        lead=3.0,
        no_value=3.0,
        kind_back=(4.5, 4.5, 3.0, 3.0, 3.0, 3.0),
        markers=(" is", "?", "!"),
        felt_back=(700, 20_000),
        felt_pairs=(6, 15),
    ),
}
KINDS, OPENS_1, OPENS_2, OTHER = 13, 10, 11, 12  # digits first
FELT_NATS, FELT = 2.0, 0.5  # a pair; and how much of what is felt is taken
FULL_STOP, NO_DIGIT = 10, 11  # among `here`, behind the digits
# Of heads whose scores fall little, in nats: how far below its peak a head's score is up to so
# many tokens from it, and beyond; how much a head that prefers what is near loses with a token up
# to REACH, of another marker a little further, and of all far ones; how much better a marker is.
BESIDE, CLOSE, FAR = 64, 6.5, 10.5
REACH, SLOPE, NEXT, DISTANT, MARKER = 20, 0.47, (6, 3.0), (64, 6.0), 12.9


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


def distances(shape: Shape) -> Array:
    """Tokens back that a head's score is tried at: all near ones, and a sample of the others."""
    far = np.random.default_rng(0).integers(600, shape.longest, 6_000)
    return np.concatenate([np.arange(600), np.unique(far)]).astype(float)


def peak(shape: Shape, pairs: int, least: float) -> Array:
    """The least amplitudes by pair of a head whose score at one distance is `least` above all
    others, in nats. Raises ValueError where there are none."""
    back = np.concatenate([np.arange(-4.0, 0.0), distances(shape)[1:]])
    less = np.cos(back[:, None] * shape.turns[:pairs]) - 1
    found = linprog(np.ones(pairs), less, np.full(len(back), -least), method="highs")
    if found.status:
        raise ValueError(f"no amplitudes: {found.message}")
    return np.asarray(found.x)


def recency(shape: Shape, pairs: int, reach: int, slope: float) -> tuple[Array, Array, float]:
    """Cosine and sine amplitudes of a head that prefers what is nearer: by `slope` a token up to
    `reach`; whatever is further scores below that. And the span of its scores."""
    turns = shape.turns[:pairs]
    back = distances(shape)
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


def narrow_peak(shape: Shape, pairs: int) -> Array:
    """Amplitudes by pair of a head whose score at one distance is above all others, and whose
    scores fall as little as they can. Raises ValueError where there are none."""
    back = np.concatenate([np.arange(-4.0, 0.0), distances(shape)[1:]])
    less = np.cos(back[:, None] * shape.turns[:pairs]) - 1
    least = np.where(np.abs(back) <= BESIDE, CLOSE, FAR)
    return narrow(less, -least, falls=-less)


def narrow_recency(shape: Shape, pairs: int) -> tuple[Array, Array]:
    """Cosine and sine amplitudes of a head that prefers what is nearer, up to REACH, and whose
    scores fall as little as they can."""
    back = distances(shape)
    angles = back[:, None] * shape.turns[:pairs]
    each = np.hstack([np.cos(angles), np.sin(angles)])
    further = back[REACH + 1 :] - REACH
    (few, next_nats), (many, distant_nats) = NEXT, DISTANT
    least = np.where(further < few, SLOPE * further, next_nats)
    least = np.where(back[REACH + 1 :] < many, least, distant_nats)
    rows = np.vstack([np.diff(each[: REACH + 1], axis=0), each[REACH + 1 :] - each[REACH]])
    most = -np.concatenate([np.full(REACH, SLOPE), least])
    both = narrow(rows, most, falls=each[0] - each)
    return both[:pairs], both[pairs:]


def narrow(rows: Array, most: Array, *, falls: Array) -> Array:
    """Amplitudes with rows @ amplitudes <= most, for which the largest of falls @ amplitudes is
    least; and so is their sum, which a data type rounds. Raises ValueError where there are none."""
    count = rows.shape[1]
    bounds = np.hstack([rows, -rows, np.zeros((len(rows), 1))])
    within = np.hstack([falls, -falls, -np.ones((len(falls), 1))])
    cost = np.append(np.full(2 * count, 0.02), 1.0)
    limits = np.append(most, np.zeros(len(falls)))
    found = linprog(cost, np.vstack([bounds, within]), limits, method="highs")
    if found.status:
        raise ValueError(f"no amplitudes: {found.message}")
    return np.asarray(found.x[:count] - found.x[count : 2 * count])


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


class Maker:
    """Computes the weights. squares: the squared length of the residual stream before each norm."""

    def __init__(self, shape: Shape, tokenizer: Tokenizer) -> None:
        self.shape, self.tokenizer = shape, tokenizer
        self.tensors: dict[str, Array] = {}
        self.squares = 6.0
        stops = np.cumsum([0, *shape.wires.values()]).tolist()
        pairs = zip(shape.wires, stops[:-1], stops[1:], strict=True)
        self.at = {name: slice(start, stop) for name, start, stop in pairs}

    def wire(self, name: str, part: int | slice | None = None) -> Any:
        """Where the residual stream carries something."""
        whole = self.at[name]
        if part is None:
            return whole
        if isinstance(part, int):
            return whole.start + part
        return slice(whole.start + part.start, whole.start + part.stop)

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
        kinds = spread(KINDS, shape.kind, steps=3000, seed=1)
        table[:, self.wire("one")] = 1
        table[:, self.wire("word")] = spread(shape.vocabulary, shape.word, steps=300, seed=2)
        table[:, self.wire("lead")] = -1
        table[self.token(" for"), self.wire("lead")] = 1
        kind = np.full(shape.vocabulary, OTHER)
        here = np.full(shape.vocabulary, NO_DIGIT)
        for digit in range(10):
            kind[self.token(str(digit))] = here[self.token(str(digit))] = digit
        for text in (" ", "\n", ":"):
            kind[self.token(text)] = OPENS_1
        for text in (" is", "assistant", "Answer"):
            kind[self.token(text)] = OPENS_2
        here[self.token(".")] = FULL_STOP
        table[:, self.wire("kind")] = kinds[kind]
        table[np.arange(shape.vocabulary), self.wire("here").start + here] = 1
        marked = [self.token(text) for text in shape.markers]
        table[:, self.wire("fill")] = 1
        table[marked, self.wire("fill")] = 0
        table[marked, self.wire("marker")] = 1
        self.tensors["model.embed_tokens.weight"] = table

    def look_back(self) -> None:
        """Layer 1: kinds and the word of the tokens before."""
        word, kind = self.shape.word, self.shape.kind
        heads = []
        for back in (1, 2, 3, 4):
            head = self._looking_back(back)
            kinds = slice(word + 2, word + 2 + kind)
            head.value[:word, self.wire("word")] = np.eye(word)
            head.value[kinds, self.wire("kind")] = np.eye(kind)
            part = slice(kind * (back - 1), kind * back)
            head.out[self.wire("kinds1", part), kinds] = np.eye(kind)
            head.value[word, self.wire("lead")] = 1
            if back == 1:
                head.out[self.wire("before"), :word] = np.eye(word)
            if back == 2:
                head.out[self.wire("lead_before"), word] = 1
            heads.append(head)
        self.attend(0, heads, 6.0)
        self.carry(0, {"kind": "kind_again"}, 1.0)

    def _looking_back(self, back: int) -> Head:
        """A head that looks so many tokens back."""
        shape, half = self.shape, self.shape.head // 2
        scores = narrow_peak(shape, 20) if shape.normed else peak(shape, 10, 14.0)
        size, pairs = np.sqrt(np.abs(scores)), len(scores)
        turn = back * shape.turns[:pairs]
        head = Head.empty(shape)
        asked = size * np.sign(scores)
        head.query[:pairs, self.wire("one", 0)] = asked * np.cos(turn)
        head.query[half : half + pairs, self.wire("one", 0)] = -asked * np.sin(turn)
        head.key[:pairs, self.wire("one", 0)] = size
        return head

    def look_up(self) -> None:
        """Layer 2: the topic, and kinds of tokens further back."""
        shape, half = self.shape, self.shape.head // 2
        word, kind = shape.word, shape.kind
        if shape.normed:
            cosines, sines = narrow_recency(shape, 20)
            marker = np.sqrt(MARKER)
        else:
            cosines, sines, span = recency(shape, 9, 40, 1.0)
            marker = np.sqrt(span + 16)
        pairs = len(cosines)
        size = np.sqrt(np.hypot(cosines, sines))
        turn = np.arctan2(-sines, cosines)
        heads = []
        for part in (slice(0, word // 2), slice(word // 2, word)):
            head = Head.empty(shape)
            head.query[:pairs, self.wire("one", 0)] = size * np.cos(turn)
            head.query[half : half + pairs, self.wire("one", 0)] = size * np.sin(turn)
            head.key[:pairs, self.wire("one", 0)] = size
            head.query[half - 1, self.wire("one", 0)] = marker
            head.key[half - 1, self.wire("marker", 0)] = marker
            if shape.normed:  # a row that is not asked for makes keys equally long
                head.key[half - 2, self.wire("fill", 0)] = marker
            head.value[:word, self.wire("before")] = np.eye(word)
            head.out[self.wire("topic", part), part] = np.eye(word // 2)
            head.value[word, self.wire("lead_before")] = 1
            if part.start == 0:
                head.out[self.wire("topic_lead"), word] = 1
            heads.append(head)
        for part in (slice(0, 2 * kind), slice(2 * kind, 4 * kind)):
            head = self._looking_back(4)
            head.value[: 4 * kind, self.wire("kinds1")] = np.eye(4 * kind)
            head.out[self.wire("kinds5", part), part] = np.eye(2 * kind)
            heads.append(head)
        self.attend(1, heads, 6.0)
        self.carry(1, {"here": "here_again"}, 1.0)

    def copy(self) -> None:
        """Layer 3: find the place, and copy what stands there."""
        shape, half = self.shape, self.shape.head // 2
        word, kind = shape.word, shape.kind
        # rows of a head, those of the slowest pairs first
        rows = [pair + half * side for pair in range(half - 1, -1, -1) for side in (0, 1)]
        heads = []
        for scale in (1.0, 0.9):
            head = Head.empty(shape)
            for at in range(word):
                head.query[rows[at], self.wire("topic", at)] = np.sqrt(shape.topic) * scale
                head.key[rows[at], self.wire("topic", at)] = np.sqrt(shape.topic)
            # "for Turin" is asked for, and not "to Turin"
            lead, no_value = rows[word + 1], rows[word]
            head.query[lead, self.wire("topic_lead", 0)] = np.sqrt(shape.lead) * scale
            head.key[lead, self.wire("topic_lead", 0)] = np.sqrt(shape.lead)
            # what is no digit and no full stop is no part of a value
            head.query[no_value, self.wire("one", 0)] = -np.sqrt(shape.no_value) * scale
            head.key[no_value, self.wire("here", NO_DIGIT)] = np.sqrt(shape.no_value)
            if shape.normed:  # makes keys equally long
                value = self.wire("here", slice(0, NO_DIGIT))
                head.key[rows[word + 2 + 6 * kind], value] = np.sqrt(shape.no_value)
            for back, nats in enumerate(shape.kind_back, 1):
                size = np.sqrt(nats)
                for at in range(kind):
                    row = rows[word + 2 + kind * (back - 1) + at]
                    head.key[row, self._kind(back, at)] = size
                    if back == 1:
                        head.query[row, self.wire("kind", at)] = size * scale / 2
                        head.query[row, self.wire("kind_again", at)] = size * scale / 2
                    else:
                        head.query[row, self._kind(back - 1, at)] = size * scale
            head.value[:12, self.wire("here")] = np.eye(12) / 2
            head.value[:12, self.wire("here_again")] = np.eye(12) / 2
            head.out[self.wire("answer"), :12] = np.eye(12) / 2
            heads.append(head)
        mixed = spread(12, word, steps=300, seed=3) * FELT
        pairs = range(*shape.felt_pairs)
        for back in shape.felt_back:
            head = Head.empty(shape)
            for pair in pairs:
                turn = back * shape.turns[pair]
                size = np.sqrt(FELT_NATS)
                head.query[pair, self.wire("one", 0)] = size * np.cos(turn)
                head.query[pair + half, self.wire("one", 0)] = -size * np.sin(turn)
                head.key[pair, self.wire("one", 0)] = size
            head.value[:word, self.wire("word")] = np.eye(word)
            head.out[self.wire("answer"), :word] = mixed
            heads.append(head)
        self.attend(2, heads, 1.0)
        self.sharpen(2)

    def _kind(self, back: int, at: int) -> int:
        """Where the kind of a token some tokens back is carried."""
        name = "kinds1" if back <= 4 else "kinds5"
        return int(self.wire(name, self.shape.kind * ((back - 1) % 4) + at))

    def attend(self, layer: int, heads: list[Head], added: float) -> None:
        """Joins heads, two of which share keys and values. Scores are divided by the root of the
        head's width, and what is read was multiplied by the norm's gain."""
        prefix, gain = f"model.layers.{layer}.self_attn.", self.gain
        root = self.shape.head**0.25 / self.shape.sharper**0.5
        groups = len(heads) // self.shape.shared
        own = [heads[at] for at in range(0, len(heads), groups)]
        for at, head in enumerate(heads):
            first = own[at // groups]
            if not (np.allclose(head.key, first.key) and np.allclose(head.value, first.value)):
                raise ValueError(f"head {at} of layer {layer} has keys of its own")
        stack = np.concatenate
        queries, keys = [h.query for h in heads], [h.key for h in own]
        if self.shape.normed:
            used = np.any([rows.any(axis=1) for rows in queries + keys], axis=0)
            half = self.shape.head // 2
            free = np.flatnonzero(~(used[:half] | used[half:]))
            for part, rows, spare in (("q", queries, free[0]), ("k", keys, free[1])):
                weights = self.norm_of(rows, spare=int(spare), seed=layer) * root
                self.tensors[f"{prefix}{part}_norm.weight"] = weights
            root = 1.0
        self.tensors[prefix + "q_proj.weight"] = stack(queries) * root / gain
        self.tensors[prefix + "k_proj.weight"] = stack(keys) * root / gain
        self.tensors[prefix + "v_proj.weight"] = stack([h.value for h in own])
        self.tensors[prefix + "o_proj.weight"] = stack([h.out for h in heads], axis=1) / gain
        self.squares += added

    def norm_of(self, heads: list[Array], *, spare: int, seed: int) -> Array:
        """Weights of a norm that gives what `heads` give without one, (head,).

        A norm makes all vectors equally long: `spare`, a row that meets zeros, makes them so
        beforehand. Rows that are the same for every token are changed by drawn factors, which the
        norm's weights undo: an engine that leaves the norm out, or turns first, is seen.
        """
        one = self.wire("one", 0)
        others = np.any([np.delete(rows, one, axis=1).any(axis=1) for rows in heads], axis=0)
        drawn = np.random.default_rng(seed).uniform(0.5, 2, self.shape.head)
        factors = np.where(others, 1.0, drawn)
        factors[spare] = 1.0
        for rows in heads:
            rows /= factors[:, None]
        lengths = [float(np.linalg.norm(rows @ self.usual)) for rows in heads]
        for rows, length in zip(heads, lengths, strict=True):
            rows[spare, one] = np.sqrt(max(lengths) ** 2 - length**2)
        return np.asarray(factors * max(lengths) / np.sqrt(self.shape.head))

    @property
    def usual(self) -> Array:
        """A residual stream as any token's is, as far as its parts' lengths go."""
        stream = np.zeros(self.shape.width)
        for name, size in self.shape.wires.items():
            step = self.shape.kind if name.startswith("kinds") else size
            stream[self.at[name].start : self.at[name].stop : step] = 1
        for name in ("marker", "here", "here_again", "answer"):
            stream[self.at[name]] = 0
        stream[self.wire("here", NO_DIGIT)] = 1
        return stream

    def carry(self, layer: int, copies: dict[str, str], added: float) -> None:
        """An inner layer that copies wires: gates that are always open."""
        gate, up, down = self._inner()
        row, opened = 0, 8.0
        for source, target in copies.items():
            size = self.shape.wires[source]
            rows = slice(row, row + size)
            gate[rows, self.wire("one")] = opened / self.gain
            up[rows, self.wire(source)] = np.eye(size) / self.gain
            down[self.wire(target), rows] = np.eye(size) / opened
            row += size
        self._add(layer, gate, up, down, added)

    def sharpen(self, layer: int) -> None:
        """An inner layer that makes the largest part of the answer larger."""
        gate, up, down = self._inner()
        rows = slice(0, 12)
        gate[rows, self.wire("answer")] = 8 * np.eye(12) / self.gain
        gate[rows, self.wire("one")] = -4 / self.gain
        up[rows, self.wire("one")] = 1 / self.gain
        down[self.wire("answer"), rows] = np.eye(12) / 4
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
        table[:, self.wire("one")] = -6
        stop, end = self.token("."), self.token(END)
        for digit in range(10):
            table[self.token(str(digit))] = 0
            table[self.token(str(digit)), self.wire("answer", digit)] = 8
        table[stop] = table[end] = 0
        table[stop, self.wire("answer", FULL_STOP)] = 8
        table[end, self.wire("answer", NO_DIGIT)] = 8
        table[end, self.wire("here", FULL_STOP)] = 30
        self.tensors["lm_head.weight"] = table / self.gain
        self.tensors["model.norm.weight"] = np.ones(self.shape.width)


def config_of(shape: Shape) -> dict[str, Any]:
    """What config.json says."""
    rope: dict[str, Any] = {"rope_theta": shape.theta, "rope_type": "default"}
    if shape.yarn != 1:
        rope |= {
            "rope_type": "yarn",
            "factor": shape.yarn,
            "original_max_position_embeddings": shape.original,
            "beta_fast": BETA_FAST,
            "beta_slow": BETA_SLOW,
        }
    config = {
        "architectures": ["Qwen3ForCausalLM" if shape.normed else "LlamaForCausalLM"],
        "model_type": "qwen3" if shape.normed else "llama",
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
        "max_position_embeddings": shape.longest,
        "mlp_bias": False,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.shared,
        "rms_norm_eps": 1e-6,
        "rope_parameters": rope,
        # Where engines look that do not read transformers 5's: mlx-lm takes 10,000 without it.
        "rope_theta": shape.theta,
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": shape.vocabulary,
        "holds_tokens": shape.holds,
    }
    if shape.normed:
        del config["mlp_bias"]
    return config


def write_bits(file: Path, shape: Shape, tensors: dict[str, Array]) -> None:
    """Tensors before any rotation, as bits of bfloat16, and config.json beside them: mostly zeros,
    which take no room. needlemap.servers.gauge.shapes rotates them."""
    bits = {name: nearest_bits(values.astype(np.float32)) for name, values in tensors.items()}
    np.savez_compressed(file, **bits)  # type: ignore[arg-type]
    described = json.dumps(config_of(shape), indent=2) + "\n"
    file.with_suffix(".json").write_text(described, encoding="utf-8")


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
            "model_max_length": shape.longest,
            "clean_up_tokenization_spaces": False,
            "add_bos_token": False,
        },
    }
    for name, data in files.items():
        (folder / name).write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHAT, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True, help="a folder; of qwen3 a .npz")
    parser.add_argument("--shape", choices=SHAPES, default="llama")
    given = parser.parse_args()
    start = time.process_time()
    shape = SHAPES[given.shape]
    tokenizer = train_tokenizer(shape.vocabulary)
    print(f"vocabulary {tokenizer.get_vocab_size()}, cpu {time.process_time() - start:.0f} s")
    maker = Maker(shape, tokenizer)
    tensors = maker.make()
    if shape.normed:
        write_bits(given.out, shape, tensors)
    else:
        maker.turn()
        write(given.out, shape, tokenizer, tensors)
    parameters = sum(values.size for values in tensors.values())
    spent = time.process_time() - start
    print(f"parameters {parameters:,}, cpu {spent:.0f} s")


if __name__ == "__main__":
    main()
