"""Trains `demo/retriever`, the language model in the box, on two CPU cores in under half an hour.

    pip install torch && python tools/train_demo_model.py --out src/needlemap/models/demo_data

It learns one family of needles, the default one of `configure.DEFAULT_ITEMS`, in text of the
generated haystack, from sequences of at most 256 tokens. So it finds a needle within that length
and loses it beyond.

The curriculum matters: from whole sentences alone many seeds copy the number's later digits but
guess its first, which needs a match three tokens back. So: repeated random tokens (heads that copy
form), then "Oslo48172." (the key one token before the number), "Oslo 48172." (two), the sentence
(three), then prompts.

It writes tokenizer.json, retriever.npz (fp16) and training.json. What it finds is measured with the
written files, by needlemap itself, on documents and numbers that it was not trained on (the twelve
cities it was). The same seed and number of threads give the same weights on the same kind of
processor only.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import torch.nn.functional as F
from demo_samples import Samples, Stage, train_tokenizer
from tokenizers import Tokenizer
from torch import Tensor, nn

from needlemap.haystacks.generated import Generated
from needlemap.models.demo import load_engine, stop_tokens
from needlemap.models.walk import Walk
from needlemap.plan import ordered
from needlemap.settings.reading import configure
from needlemap.trials.build import prepare

TEXT_SEED = 20_261_120  # of the documents trained on; runs draw theirs from other seeds
DOCUMENTS = 800
LENGTHS = (96, 128, 192, 256, 320, 384, 512, 768, 1024)  # measured, in tokens
DEPTHS = (0, 10, 25, 50, 75, 90, 100)  # measured, in percent
ANSWER_TOKENS = 24
STAGES = (
    Stage("copy", (48,), 64, 300),
    Stage("glue", (48,), 64, 120, 4),
    Stage("pair", (48,), 64, 120, 4),
    Stage("full", (48,), 64, 160, 3),
    Stage("prompt", (96,), 32, 300, 3),
    Stage("prompt", (256, 256, 192, 128, 80), 16, 900, 6),
)


@dataclass(frozen=True)
class Shape:
    """Sizes of the transformer. theta: base of its rotary positions; window: tokens that a token
    sees, itself included, all where None; eps: of its norms."""

    vocabulary: int = 1024
    width: int = 128
    layers: int = 3
    heads: int = 4
    inner: int = 256
    theta: float = 10_000.0
    eps: float = 1e-6
    window: int | None = None


class Retriever(nn.Module):
    """A decoder: rotary positions, RMS norms before each part, SiLU-gated inner layers, tied
    embeddings."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Parameter(torch.randn(shape.vocabulary, shape.width) * 0.02)
        self.last_norm = nn.Parameter(torch.ones(shape.width))
        self.layers = nn.ModuleList(_layer(shape) for _ in range(shape.layers))

    def forward(self, ids: Tensor) -> Tensor:
        """ids: (batch, tokens); logits: (batch, tokens, vocabulary)."""
        heads = self.shape.heads
        cos, sin = self._turns(ids.shape[1])
        sees = self._sees(ids.shape[1])
        hidden = self.embedding[ids]
        for layer in self.layers:
            joint = (self._norm(hidden, layer["norm_1"]) @ layer["attend"].T).unflatten(
                -1, (3, heads, -1)
            )
            queries, keys, values = joint.permute(2, 0, 3, 1, 4)
            turned = _turned(queries, cos, sin), _turned(keys, cos, sin)
            mixed = F.scaled_dot_product_attention(
                *turned, values, attn_mask=sees, is_causal=sees is None
            )
            hidden = hidden + mixed.transpose(1, 2).flatten(2) @ layer["mix"].T
            gate, up = (self._norm(hidden, layer["norm_2"]) @ layer["widen"].T).chunk(2, -1)
            hidden = hidden + (F.silu(gate) * up) @ layer["narrow"].T
        return self._norm(hidden, self.last_norm) @ self.embedding.T

    def _norm(self, hidden: Tensor, scale: Tensor) -> Tensor:
        return F.rms_norm(hidden, scale.shape, scale, self.shape.eps)

    def _sees(self, tokens: int) -> Tensor | None:
        """Which tokens each may look at, (tokens, tokens); None where all those before it."""
        if self.shape.window is None or tokens <= self.shape.window:
            return None
        apart = torch.arange(tokens)[:, None] - torch.arange(tokens)
        return (apart >= 0) & (apart < self.shape.window)

    def _turns(self, tokens: int) -> tuple[Tensor, Tensor]:
        width = self.shape.width // self.shape.heads
        angles = torch.arange(tokens)[:, None] * self.shape.theta ** (
            -torch.arange(0, width, 2) / width
        )
        return angles.cos(), angles.sin()


def _layer(shape: Shape) -> nn.ParameterDict:
    sizes = {
        "attend": (3 * shape.width, shape.width),
        "mix": (shape.width, shape.width),
        "widen": (2 * shape.inner, shape.width),
        "narrow": (shape.width, shape.inner),
    }
    drawn = {name: nn.Parameter(torch.randn(size) * 0.02) for name, size in sizes.items()}
    norms = {name: nn.Parameter(torch.ones(shape.width)) for name in ("norm_1", "norm_2")}
    return nn.ParameterDict(drawn | norms)


def _turned(vectors: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = vectors.chunk(2, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


def train(
    model: Retriever,
    samples: Samples,
    rate: float,
    stages: Sequence[Stage] = STAGES,
    logged: Collection[int] = (),
) -> Iterator[dict[str, Any]]:
    """Trains in place; yields a line of the log every 50 steps, after the steps `logged` and at the
    end of each stage."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    total, step, start = sum(stage.steps for stage in stages), 0, time.time()
    for stage in stages:
        for left in range(stage.steps - 1, -1, -1):
            for group in optimizer.param_groups:
                group["lr"] = rate * _share_of_rate(step, total)
            step += 1
            found = _learn(model, optimizer, samples, stage)
            if step % 50 == 0 or left == 0 or step in logged:
                yield {
                    "form": stage.form,
                    "step": step,
                    **found,
                    "seconds": round(time.time() - start),
                }


def _share_of_rate(step: int, total: int) -> float:
    """Up in 100 steps, level, and down over the last two fifths."""
    return min(1.0, (step + 1) / 100, max(0.03, (total - step) / (0.4 * total)))


def _learn(
    model: Retriever, optimizer: torch.optim.Optimizer, samples: Samples, stage: Stage
) -> dict[str, float | None]:
    """One step. Returns its loss and the shares of right tokens."""
    ids, weights = map(torch.tensor, samples.batch(stage))
    logits, wanted, weights = model(ids)[:, :-1], ids[:, 1:], weights[:, 1:]
    losses = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="none").view_as(
        weights
    )
    loss = (losses * weights).sum() / weights.sum()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    right = logits.argmax(-1) == wanted
    return {
        "loss": round(loss.item(), 4),
        "first_digit": _share(right[weights == 3]),
        "looked_up": _share(right[weights >= 1]),
    }


def _share(right: Tensor) -> float | None:
    return round(right.float().mean().item(), 4) if len(right) else None


def exported(model: Retriever) -> dict[str, np.ndarray]:
    """The weights as fp16 arrays, and the sizes that their shapes do not tell."""
    values = {name.removeprefix("layers."): value for name, value in model.named_parameters()}
    rounded = {name: value.detach().numpy().astype(np.float16) for name, value in values.items()}
    shape = model.shape
    sizes = {
        "heads": np.int64(shape.heads),
        "theta": np.float64(shape.theta),
        "eps": np.float64(shape.eps),
    }
    return rounded | sizes


def measure(folder: Path, repeats: int, seed: int) -> dict[str, dict[str, float]]:
    """Share of right answers by length and depth in percent, asked as `needlemap run` asks."""
    options = {"model_options": {"folder": str(folder)}, "max_answer_tokens": ANSWER_TOKENS}
    grid = {"lengths": list(LENGTHS), "depths": list(DEPTHS), "repeats": repeats, "seed": seed}
    trials = prepare(configure("demo", {**options, **grid, "collisions": "warn"})).trials
    vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json"))
    walk = Walk(load_engine(folder), stop_tokens(vocabulary))
    hits: dict[tuple[int, float], list[bool]] = {}
    for trial in ordered(trials, "exact"):
        said = vocabulary.decode(list(walk.ask(trial.prompt.ids, ANSWER_TOKENS).answer))
        cell = hits.setdefault((trial.cell.length_tokens, trial.cell.depth), [])
        cell.append(trial.item.reference.keywords[0] in said)
    return {
        str(length): {
            str(depth): round(float(np.mean(hits[length, depth / 100])), 4) for depth in DEPTHS
        }
        for length in LENGTHS
    }


def show(found: Mapping[str, Mapping[str, float]]) -> str:
    """The table of what was measured."""
    lines = ["tokens  " + " ".join(f"{depth:>4}%" for depth in DEPTHS)]
    lines += [
        f"{length:>6}  " + " ".join(f"{share:5.2f}" for share in found[length].values())
        for length in found
    ]
    return "\n".join(lines)


def about() -> dict[str, Any]:
    """What fixed the result beside the arguments."""
    packages = {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "tokenizers": tokenizers.__version__,
    }
    return {
        "stages": [asdict(stage) for stage in STAGES],
        "shape": asdict(Shape()),
        "text": {"haystack": "generated/english", "seed": TEXT_SEED, "documents": DOCUMENTS},
        "versions": {"python": platform.python_version(), **packages},
        "machine": platform.machine(),
    }


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the three files")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rate", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument("--repeats", type=int, default=32, help="prompts a cell when measuring")
    return parser.parse_args()


def main() -> None:
    """Train, write, measure."""
    given = arguments()
    torch.set_num_threads(given.threads)
    torch.manual_seed(given.seed)
    given.out.mkdir(parents=True, exist_ok=True)
    start, cpu = time.time(), time.process_time()
    documents = islice(Generated(language="english", seed=TEXT_SEED).documents(), DOCUMENTS)
    texts = [document.text.strip() for document in documents]
    path = given.out / "tokenizer.json"
    train_tokenizer(texts, Shape().vocabulary).save(str(path), pretty=False)
    samples, model = Samples(path, texts, given.seed), Retriever(Shape())
    parameters = sum(value.numel() for value in model.parameters())
    print(f"{parameters:,} parameters, {len(samples.text):,} tokens of text", flush=True)
    log = []
    for line in train(model, samples, given.rate):
        print(line, flush=True)
        log.append(line)
    np.savez(given.out / "retriever.npz", **exported(model))
    took = {"wall_s": round(time.time() - start), "cpu_s": round(time.process_time() - cpu)}
    print(f"trained: {took}", flush=True)
    seed = given.seed + 1000
    found = measure(given.out, given.repeats, seed)
    print(show(found))
    report = {
        "seed": given.seed,
        "threads": given.threads,
        "rate": given.rate,
        "parameters": parameters,
        **took,
        **about(),
        "measured": {"prompts_a_cell": given.repeats, "seed": seed, "found": found},
        "log": log,
    }
    (given.out / "training.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
