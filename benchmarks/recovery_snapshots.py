"""Trains the recipes of recovery_recipes.py, and gives each of their snapshots the same items.

    python benchmarks/recovery_snapshots.py --out FOLDER [--only NAME] [--seed N] [--scores FILE]

All start from one base: the first four stages of the model of tools/train_demo_model.py, sequences
of 48 tokens. It copies, and has read neither a question nor a prompt. A recipe trains with its own
rotary base, attention window, lengths and share of sequences that hold needles. After each of
SNAPSHOTS steps it is given the same items of LENGTH tokens, which it never saw: three forced
passes, and as a control the value of another item, which is not in the prompt. FILE gets a line a
snapshot; weights stay in FOLDER. What is in FILE is not done again. One thread, two CPU minutes a
recipe, and five for the base.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
from demo_samples import Samples, Stage
from train_demo_model import DOCUMENTS, STAGES, TEXT_SEED, Retriever, Shape, train

from needlemap.haystacks.generated import Generated
from needlemap.models.demo import DATA, TOKENIZER
from needlemap.settings.reading import configure
from needlemap.text.tokens import Tokenizer
from needlemap.tokenizers import load
from needlemap.training.scorer import LEAST_NATS
from needlemap.trials import Trial
from needlemap.trials.build import prepare
from recovery_recipes import (
    LENGTH,
    RATE,
    RECIPES,
    REPEATS,
    SEEDS,
    SNAPSHOTS,
    STEPS,
    TOKENS,
    Recipe,
)

SCORES = Path(__file__).with_name("recovery_scores.jsonl")
BASE = STAGES[:4]
BASE_RATE = 2e-3
ITEMS = {"lengths": [LENGTH], "depths": [10, 50, 90], "repeats": REPEATS, "seed": 3_100}
ANSWER_TOKENS = 16
CONTROL_DEPTH = 50  # where each haystack's control is given
PASSES = ("whole", "bare", "oracle")


PILOT = Recipe("pilot", 100_000, None, (512, 256), 0.8)  # tried beforehand, and not counted


def stage_of(recipe: Recipe) -> Stage:
    """What a recipe trains on."""
    return Stage("prompt", recipe.tokens, TOKENS // max(recipe.tokens), STEPS, 6, recipe.share)


@dataclass(frozen=True)
class Row:
    """ids: of a prompt with an answer behind it. value: which of them are the value's."""

    ids: tuple[int, ...]
    answer_tokens: int
    value: tuple[int, ...]


@dataclass(frozen=True)
class Items:
    """rows: what the model is given, each once. places: by pass the row of each item, depth by
    depth within a haystack; of the two wrong passes that of each haystack."""

    rows: tuple[Row, ...]
    places: dict[str, list[int]]


def items_of(trials: Sequence[Trial], tokenizer: Tokenizer) -> Items:
    """Every trial's prompts with its own answer, and with the value of another haystack's."""
    values = {trial.repeat: trial.item.reference.keywords[0] for trial in trials}
    places = {role: list[int]() for role in (*PASSES, "wrong_whole", "wrong_bare")}
    rows = dict[Row, int]()
    for trial in sorted(trials, key=lambda trial: (trial.repeat, trial.cell.depth)):
        own, other = values[trial.repeat], values[(trial.repeat + 1) % len(values)]
        prompts = {"whole": trial.prompt} | {each.role: each.prompt for each in trial.beside}
        given = [(role, prompt, own) for role, prompt in prompts.items()]
        if round(100 * trial.cell.depth) == CONTROL_DEPTH:
            given += [(f"wrong_{role}", prompts[role], other) for role in ("whole", "bare")]
        for role, prompt, value in given:
            answer = trial.item.reference.answer.replace(own, value)
            row = row_of(tokenizer, [*map(int, prompt.ids)], answer, value)
            places[role].append(rows.setdefault(row, len(rows)))
    return Items(tuple(rows), places)


def row_of(tokenizer: Tokenizer, ids: list[int], answer: str, value: str) -> Row:
    """An answer behind a prompt."""
    text = tokenizer.index(f" {answer}".encode())
    start = answer.index(value) + 1
    ends = enumerate(text.offsets.tolist()[-len(text.ids) :])
    held = [len(ids) + at for at, end in ends if start < end <= start + len(value)]
    return Row((*ids, *text.ids.tolist()), len(text.ids), tuple(held))


def read_snapshot(model: Retriever, items: Items) -> dict[str, Any]:
    """What a snapshot makes of the items: `gain`, `oracle`, `control`, in nats a token of the
    value; `right`: whether each of its tokens is the likeliest, behind the whole prompt and the
    answer's wording; `loss`: nats a token of the prompts without a needle."""
    nats, first, text = forced(model, items)
    mean = {
        role: np.array([float(np.maximum(nats[row], LEAST_NATS).mean()) for row in rows])
        for role, rows in items.places.items()
    }
    return {
        "loss": round(float(np.mean(list(text.values()))), 4),
        "gain": np.round(mean["whole"] - mean["bare"], 3).tolist(),
        "oracle": np.round(mean["oracle"] - mean["bare"], 3).tolist(),
        "control": np.round(mean["wrong_whole"] - mean["wrong_bare"], 3).tolist(),
        "right": "".join("01"[first[row]] for row in items.places["whole"]),
    }


def forced(
    model: Retriever, items: Items
) -> tuple[dict[int, np.ndarray], dict[int, bool], dict[int, float]]:
    """Of each row the log-probabilities of its value's tokens, and whether each is the likeliest;
    of the rows without a needle also minus the mean log-probability of the tokens before the
    answer."""
    nats, first, text = dict[int, np.ndarray](), dict[int, bool](), dict[int, float]()
    order = sorted(range(len(items.rows)), key=lambda row: len(items.rows[row].ids))
    bare = set(items.places["bare"])
    with torch.no_grad():
        for start in range(0, len(order), 8):
            chosen = [(row, items.rows[row]) for row in order[start : start + 8]]
            longest = max(len(each.ids) for _, each in chosen)
            padded = [[*each.ids, *[0] * (longest - len(each.ids))] for _, each in chosen]
            for logits, (row, each) in zip(model(torch.tensor(padded)), chosen, strict=True):
                value = torch.tensor(each.value)
                asked = torch.tensor(each.ids)[value]
                logs: Tensor = torch.log_softmax(logits[value - 1], -1)
                nats[row] = logs.gather(-1, asked[:, None])[:, 0].numpy()
                first[row] = bool((logs.argmax(-1) == asked).all())
                if row in bare:
                    stop = len(each.ids) - each.answer_tokens
                    told = torch.tensor(each.ids[1:stop])
                    text[row] = float(F.cross_entropy(logits[: stop - 1], told))
    return nats, first, text


def trained_base(folder: Path, samples: Samples) -> Path:
    """The file of the weights that every recipe starts from."""
    path = folder / "base.pt"
    if not path.is_file():
        torch.manual_seed(1)
        model = Retriever(Shape())
        for line in train(model, samples, BASE_RATE, BASE):
            print(line, flush=True)
        torch.save(model.state_dict(), path)
    return path


def snapshots(
    recipe: Recipe, seed: int, base: Path, samples: Samples, items: Items
) -> Iterator[Any]:
    """What each of a recipe's snapshots makes of the items."""
    torch.manual_seed(seed)
    model = Retriever(replace(Shape(), theta=recipe.theta, window=recipe.window))
    model.load_state_dict(torch.load(base))
    start, reading = time.process_time(), 0.0
    for line in train(model, samples, RATE, [stage_of(recipe)], SNAPSHOTS):
        if line["step"] in SNAPSHOTS:
            before = time.process_time()
            found = read_snapshot(model, items)
            reading += time.process_time() - before
            spent = round(time.process_time() - start - reading, 1)
            yield {"recipe": recipe.name, "step": line["step"], "cpu_s": spent, **found}


def main() -> None:
    """Train and read what is not in FILE yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the base's weights")
    parser.add_argument("--scores", type=Path, default=SCORES)
    parser.add_argument("--only", help="one recipe, or the pilot")
    parser.add_argument("--seed", type=int, default=SEEDS[0], help="of the trainings")
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    documents = islice(Generated(language="english", seed=TEXT_SEED).documents(), DOCUMENTS)
    texts, path = [document.text.strip() for document in documents], DATA / TOKENIZER
    base = trained_base(given.out, Samples(path, texts, 1))
    asked = {**ITEMS, "scorer": "recovery", "max_answer_tokens": ANSWER_TOKENS}
    items = items_of(prepare(configure("demo", asked)).trials, load(str(path)))
    kept = given.scores.read_text().splitlines() if given.scores.is_file() else []
    done = {json.loads(line)["recipe"] for line in kept}
    for recipe in (*RECIPES, PILOT):
        if recipe.name in done or recipe.name != (given.only or recipe.name):
            continue
        if recipe is PILOT and given.only != PILOT.name:
            continue
        samples = Samples(path, texts, given.seed)
        lines = []
        for found in snapshots(recipe, given.seed, base, samples, items):
            lines.append(json.dumps(found, separators=(",", ":")) + "\n")
            share = found["right"].count("1") / len(found["right"])
            print(recipe.name, found["step"], found["cpu_s"], found["loss"], share, flush=True)
        with given.scores.open("a", encoding="utf-8") as file:
            file.writelines(lines)


if __name__ == "__main__":
    main()
