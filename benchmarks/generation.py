"""How fast each family's items are made: prompts with exact places, references, keys and hashes, on
one core.

    python benchmarks/generation.py [--smoke]

Beside it two limits. Built: the same prompts from items that are given, so that only drawing keys,
values and depths is on top (target 1.5 times at most). Floor: what the texts alone cost, that is
writing a haystack and tokenising it once a repeat, tokenising what is new in each prompt (needles,
question) once, and joining its bytes: no exact length, no place, no key. CPU seconds of this
process, of several rounds the median. Checked:
every reference stands in its prompt, and no prompt is longer than asked.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from time import process_time
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from machine import machine
from needlemap.haystacks import Document
from needlemap.plan.summary import WalkedTrials, summarise
from needlemap.prompts import Prompt
from needlemap.registry import find, option_names
from needlemap.settings import Settings
from needlemap.settings.reading import configure
from needlemap.tasks import Draw
from needlemap.text.tokens import TokenText
from needlemap.trials.build import Experiment, prepare
from needlemap.trials.leaks import Held
from needlemap.trials.resolve import resolve
from table import rounded, show

RULER = tuple(
    f"ruler-niah-{name}"
    for name in (
        *("single-1", "single-2", "single-3", "multikey-1", "multikey-2", "multikey-3"),
        *("multivalue", "multiquery"),
    )
)
FAMILIES: tuple[tuple[str, dict[str, Any]], ...] = (
    *((name, {}) for name in RULER),
    ("kv-json", {}),
    ("kv-json", {"task_options": {"query_first": True}}),
    ("passkey", {}),
    ("ordinal-4", {}),
    ("ruler-cwe", {"depths": [50]}),
    ("ruler-fwe", {"depths": [50]}),
    ("scattered-counts", {}),
    ("trace", {}),
    ("ruler-vt", {}),
    ("ruler-qa-1", {}),
    ("ruler-qa-2", {}),
    ("thread", {}),
    ("facts-1", {}),
    ("facts-3", {}),
    ("kinship", {}),
    ("kinship", {"task_options": {"haystack": "families"}}),
    ("kinship-dense", {"max_answer_tokens": 64}),
    ("graphwalks", {}),
    ("graphwalks-parents", {}),
    ("latent", {}),
    ("latent-hard", {}),
    ("absent", {}),
)
LENGTHS, DEPTHS, REPEATS = ("4k", "32k", "128k"), "0:100:25", 8
SHARING = {"lengths": "4k:128k:12:log", "depths": "0:100:12", "repeats": 1}
PEER_ITEMS_PER_MIN = 32_500 / 15  # tenstorrent/tt-inference-server#706


@dataclass(frozen=True, slots=True)
class Made:
    """One family at one length: items a CPU second, times building alone, times the floor."""

    per_s: float
    built: float
    floor: float


def main() -> None:
    """Measure, verify, print."""
    parser = argparse.ArgumentParser(description="How fast items are made.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="tiny lengths: does it work at all?")
    options = parser.parse_args()
    lengths: tuple[str, ...] = ("3k",) if options.smoke else LENGTHS
    rounds = 1 if options.smoke else options.rounds
    grid = {
        "repeats": 1 if options.smoke else REPEATS,
        "depths": "0:100:3" if options.smoke else DEPTHS,
    }
    prepare(
        settings_of("ruler-niah-single-2", {"lengths": "1k", **grid})
    )  # vocabulary, grammar, modules
    families = FAMILIES[:3] if options.smoke else FAMILIES
    rows = {
        label(name, given): [
            measured(settings_of(name, {**grid, **given, "lengths": length}), rounds)
            for length in lengths
        ]
        for name, given in families
    }
    sharing = {label(*family): factors(*family, smoke=options.smoke) for family in families}
    _report(lengths, rows, sharing, ruler(options.smoke))


def settings_of(name: str, given: Mapping[str, Any]) -> Settings:
    """A family's settings for a model that nobody asks."""
    return configure(name, {"model": "baseline/bm25", "tokenizer": "cl100k_base", **given})


def label(name: str, given: Mapping[str, Any]) -> str:
    """A row's name."""
    return name + "".join(f", {option}" for option in given.get("task_options", ()))


def measured(settings: Settings, rounds: int) -> Made:
    """A family at one length. Raises RuntimeError where a prompt lacks what is asked for."""
    ours, drawn, floors = [], [], []
    for _ in range(rounds):
        start = process_time()
        experiment = prepare(settings)
        texts(experiment)
        ours.append(process_time() - start)
        drawn.append(drawing(experiment))
        floors.append(floor(settings, experiment))
    verify(experiment)
    cost = median(ours)
    return Made(len(experiment.trials) / cost, cost / (cost - median(drawn)), cost / median(floors))


def drawing(experiment: Experiment) -> float:
    """CPU seconds of drawing all items again, finding out what the haystacks hold included."""
    seed, held = experiment.settings.seed, dict[int, Held]()
    start = process_time()
    for trial in experiment.trials:
        text = haystack_of(trial.prompt)
        known = held.setdefault(id(text), Held(text))
        experiment.task.item(
            Draw(trial.cell, trial.repeat, seed, known.within(trial.cell.length_tokens))
        )
    return process_time() - start


def floor(settings: Settings, experiment: Experiment) -> float:
    """CPU seconds of the texts alone: haystacks written and tokenised, what is new tokenised, all
    joined."""
    resolved, tokenizer, new = resolve(settings), experiment.tokenizer, new_texts(experiment)
    sizes = {trial.repeat: len(haystack_of(trial.prompt).data) for trial in experiment.trials}
    start, before = process_time(), None
    for repeat, size in sizes.items():
        background = resolved.task.background(repeat, settings.seed)
        if background is None or background != before:
            source = background.source if background else resolved.source
            tokenizer.index(written(source.documents(0 if background else repeat * 1000), size))
        before = background
    for text in new:
        tokenizer.index(text)
    texts(experiment)
    return process_time() - start


def written(documents: Iterator[Document], size: int) -> bytes:
    """So many bytes of documents."""
    parts, held = [], 0
    for document in documents:
        parts.append(document.text.encode())
        held += len(parts[-1])
        if held >= size:
            break
    return b"".join(parts)


def haystack_of(prompt: Prompt) -> TokenText:
    """The longest text that a prompt is cut from."""
    return max((span.text for span in prompt.context_spans), key=len)


def new_texts(experiment: Experiment) -> list[bytes]:
    """Each text of the prompts that is no haystack: needles, questions, what stands around."""
    found: dict[int, TokenText] = {}
    for trial in experiment.trials:
        haystack = haystack_of(trial.prompt)
        spans = (span for message in trial.prompt.messages for span in message.spans)
        found |= {id(span.text): span.text for span in spans if span.text is not haystack}
    return [text.data for text in found.values()]


def texts(experiment: Experiment) -> int:
    """Bytes of all prompts, joined."""
    return sum(
        len(message.data) for trial in experiment.trials for message in trial.prompt.messages
    )


def verify(experiment: Experiment) -> None:
    """Every reference stands in its prompt, which is not longer than asked. Raises RuntimeError."""
    reserve = experiment.settings.reserve
    for trial in experiment.trials:
        text = trial.prompt.context_text
        if not all(word in text for word in trial.item.reference.keywords):
            raise RuntimeError(f"{trial.cell} lacks a reference.")
        if trial.prompt.tokens > trial.cell.length_tokens - reserve:
            raise RuntimeError(f"{trial.cell} has {trial.prompt.tokens} tokens.")


def factors(name: str, given: Mapping[str, Any], *, smoke: bool) -> list[float | None]:
    """Times fewer tokens than asking one by one: exact, bins, and bins with values drawn once a
    repeat.

    None where a task has no option for that.
    """
    grid = {**SHARING, "lengths": "3k,4k", "depths": "0:100:3"} if smoke else SHARING
    found: list[float | None] = [
        shared(name, {**grid, **given, "mode": mode}) for mode in ("exact", "bins")
    ]
    if "fresh" not in option_names(find("tasks", settings_of(name, given).task)):
        return [*found, None]
    once = {**given, "task_options": {**given.get("task_options", {}), "fresh": "repeat"}}
    return [*found, shared(name, {**grid, **once, "mode": "bins"})]


def shared(name: str, given: Mapping[str, Any]) -> float:
    """Times fewer tokens than asking a family's prompts one by one."""
    return summarise(WalkedTrials.of(prepare(settings_of(name, given)), 1)).factor


def ruler(smoke: bool) -> tuple[int, float]:
    """Items of RULER's needle tests, 500 a test and length as it has them, and the CPU seconds they
    take."""
    grid: dict[str, Any] = {"depths": "0:100:25", "repeats": 20}
    if smoke:
        grid = {"depths": "0:100:3", "repeats": 1, "lengths": "1k,2k"}
    items, start = 0, process_time()
    for name in RULER:
        experiment = prepare(settings_of(name, grid))
        texts(experiment)
        items += len(experiment.trials)
    return items, process_time() - start


def _report(
    lengths: tuple[str, ...],
    rows: Mapping[str, list[Made]],
    sharing: Mapping[str, list[float | None]],
    done: tuple[int, float],
) -> None:
    items, seconds = done
    header = [
        f"{length}, {what}" for what in ("items/s", "built x", "floor x") for length in lengths
    ]
    header = ["", *header, "exact", "bins", "bins, fresh=repeat"]
    table = [
        [
            name,
            *(f"{made.per_s:,.0f}" for made in row),
            *(f"{made.built:.2f}" for made in row),
            *(f"{made.floor:.1f}" for made in row),
            *("" if factor is None else f"{factor:.1f}" for factor in sharing[name]),
        ]
        for name, row in rows.items()
    ]
    per_min = 60 * items / seconds
    show(
        "Items made a CPU second, times building and texts alone, and times fewer tokens by "
        "sharing",
        machine("needlemap", "numpy", "quicktok-v1"),
        header,
        table,
        [
            f"RULER's eight needle tests, 500 items at each length: {items:,} items in "
            f"{seconds:.1f} CPU s "
            f"({per_min / PEER_ITEMS_PER_MIN:,.0f} times the published 32,500 in 15 minutes).",
        ],
        {
            "benchmark": "generation",
            "ruler_items_per_min": rounded(per_min),
            "ruler_items": items,
            "built_times_most": rounded(max(made.built for row in rows.values() for made in row)),
            "floor_times_most": rounded(max(made.floor for row in rows.values() for made in row)),
            "items_per_s_least": rounded(min(made.per_s for row in rows.values() for made in row)),
        },
    )


if __name__ == "__main__":
    main()
