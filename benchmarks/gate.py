"""How often does a verdict that is looked at after each piece say something false, and how soon
something true?

    python benchmarks/gate.py [--runs N] [--smoke]

Pairs of pass or fail are drawn: flips is the share that changes though nothing is worse, half of it
lost and half gained; a loss comes on top. `compare --sequential` and `run --until` judge the
planned prompts in random pieces (`needlemap.stats.looks`). Wrong is what the planned prompts
themselves contradict: PASS where they lose the margin or more, FAIL where they lose less.
What random pieces cost is the prompt tokens that one cache computes of such prompts, over those
of whole haystacks.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from machine import machine
from needlemap.asking.until import computed_tokens, pieces_of
from needlemap.settings.reading import checked
from needlemap.stats.judging import PairedLoss, judge
from needlemap.stats.looks import in_random_order
from needlemap.stats.looks import planned_looks as planned
from needlemap.stats.rows import JudgedPrompt, Rows
from needlemap.stats.verdicts import FAIL, PASS
from needlemap.trials.build import prepare
from sides.verdicts import (
    Design,
    Draw,
    coins,
    dead,
    flips,
    one_look,
    planned_looks,
    without_end,
)
from table import rounded, show

SEEDS = {"wrong": 20_261, "pairs": 7, "peeking": 3, "lengths": 11}
MARGIN = 0.02
CAMPAIGN_MARGINS = (0.02, 0.05, 0.1, 0.2, 0.3)
LOSSES = (0.0, 0.02, 0.05, 0.1)
DESIGN = Design(100, 10, 5)
SHAPES = (Design(6, 60, 6), Design(40, 24, 8), Design(200, 2, 2))
DRAWS: tuple[Draw, ...] = (
    flips(0.0, MARGIN),
    flips(0.02, MARGIN),
    flips(0.1, MARGIN),
    flips(0.02),
    coins(0.5),
    dead(MARGIN),
)


def wrong_shares(runs: int) -> tuple[float, float]:
    """The most often that FAIL and PASS are said of prompts that contradict it."""
    random, most = np.random.default_rng(SEEDS["wrong"]), [0.0, 0.0]
    for design in SHAPES:
        for draw in DRAWS:
            said = [0, 0]
            for _ in range(runs):
                losses = draw(random, design)
                found, lost = planned_looks(design.rows(losses), MARGIN), float(losses.mean())
                said[0] += found.word == FAIL and lost <= MARGIN
                said[1] += found.word == PASS and lost >= MARGIN
            most = [max(before, each / runs) for before, each in zip(most, said, strict=True)]
    return most[0], most[1]


def pairs_until(loss: float, share: float, runs: int) -> float:
    """The median number of pairs until a verdict, of 1,000 planned; infinite where it stays
    open."""
    random = np.random.default_rng(SEEDS["pairs"])
    pairs = []
    for _ in range(runs):
        rows = DESIGN.rows(flips(share, loss)(random, DESIGN))
        after = planned_looks(rows, MARGIN).after
        pairs.append(np.inf if after is None else after)
    return float(np.median(pairs))


def peeked(rows: Rows) -> PairedLoss:
    """What one look says, if it is taken after each haystack and the first that decides counts."""
    order = in_random_order(rows.haystack.tolist())
    for at in range(2, len(order), 2):
        found = one_look(rows.where(np.isin(rows.haystack, order[:at])), MARGIN)
        if found.is_decided:
            return found
    return judge(rows, MARGIN, looks=planned)


def peeking(runs: int) -> float:
    """How often the control says PASS where exactly the margin is lost."""
    random, design = np.random.default_rng(SEEDS["peeking"]), Design(200, 2, 2)
    draw = flips(0.1, MARGIN)
    said = [peeked(design.rows(draw(random, design))).is_decided for _ in range(runs)]
    return float(np.mean(said))


def length_campaigns(runs: int) -> tuple[float, float]:
    """How often a length that loses all is decided, and how often a campaign of equal arms is
    called worse: `ab --until decided` of 2 to 10 lengths, at margins 2 to 30."""
    random, said = np.random.default_rng(SEEDS["lengths"]), [0, 0]
    for _ in range(runs):
        lengths, margin = int(random.integers(2, 11)), float(random.choice(CAMPAIGN_MARGINS))
        share, dead_at = float(random.choice([0.0, 0.02, 0.05])), int(random.integers(lengths))
        design = Design(60 * lengths, 1)
        rows = design.rows(flips(share)(random, design))
        length = 1_000 * (1 + rows.haystack % lengths)
        equal = replace(rows, length=length)
        lost = replace(equal, second=np.where(length == 1_000 * (1 + dead_at), 0.0, rows.second))
        said[0] += without_end(lost, margin).word == FAIL
        said[1] += without_end(equal, margin).word == FAIL
    return said[0] / runs, said[1] / runs


def tokens_times(haystacks: int) -> float:
    """The prompt tokens that a cache computes of random pieces, over whole haystacks: five
    lengths at two depths."""
    settings = {"model": "baseline/bm25", "lengths": "1k:16k:5", "depths": "10,60"}
    settings |= {
        "needle": "The code of the day is 4711.",
        "question": "What is the code of the day?",
    }
    experiment = prepare(checked(settings | {"repeats": haystacks}, "the benchmark"))
    trials = {
        (repeat, cell.length_tokens, cell.depth): trial
        for trial in experiment.trials
        for repeat, cell in trial.places
    }
    rows = Rows.of(JudgedPrompt("", place, place[0], 1.0, 1.0) for place in trials)
    pieces = pieces_of(rows, planned(rows))
    parts = [[trials[place] for place in piece] for piece in pieces]
    whole = computed_tokens(experiment, experiment.trials)
    return sum(computed_tokens(experiment, part) for part in parts) / whole


def figures(runs: int) -> tuple[dict[str, float], list[tuple[str, ...]]]:
    """What is promised, and the table: medians of pairs by flips and loss."""
    few = max(2, runs // 10)
    worse, no_worse = wrong_shares(runs)
    decides, worse_campaigns = length_campaigns(max(few, min(runs, 200)))
    medians = {
        (share, loss): pairs_until(loss, share, few) for share in (0.0, 0.02) for loss in LOSSES
    }
    rows = [
        (f"{100 * share:g} %", *(f"{medians[share, loss]:,.0f}" for loss in LOSSES))
        for share in (0.0, 0.02)
    ]
    return {
        "false_worse_most": max(worse, worse_campaigns),
        "false_no_worse_most": no_worse,
        "pairs_5_points": medians[0.02, 0.05],
        "pairs_no_worse_2": medians[0.02, 0.0],
        "pairs_no_worse_2_calm": medians[0.0, 0.0],
        "pairs_10_points": max(medians[0.0, 0.1], medians[0.02, 0.1]),
        "tokens_times": tokens_times(20 if runs < 10 else DESIGN.haystacks),
        "sure_length_decides": decides,
        "control_peeking": peeking(few),
    }, rows


LIMITS = {
    "false_worse_most": 0.01,
    "false_no_worse_most": 0.025,
    "pairs_5_points": 1_000,
    "pairs_no_worse_2": 650,
    "pairs_no_worse_2_calm": 300,
    "pairs_10_points": 350,
    "tokens_times": 1.5,
}


def main() -> None:
    """Simulate, check, print."""
    options = _options()
    found, rows = figures(options.runs)
    broken = {name: found[name] for name, most in LIMITS.items() if found[name] > most}
    weak = found["control_peeking"] < 0.05 or found["sure_length_decides"] < 1
    if (broken or weak) and not options.smoke:
        raise RuntimeError(f"The verdict does not hold what it promises: {broken or found}")
    show(
        f"A verdict looked at after each piece, {options.runs:,} runs a condition",
        machine("needlemap", "numpy"),
        ("flips", *(f"-{100 * loss:g} points" for loss in LOSSES)),
        rows,
        [
            "Medians of pairs until a verdict, of 1,000 planned (100 haystacks of 10), margin 2.",
            "The control takes the first of many single looks that decides.",
        ],
        {"benchmark": "gate", "runs": options.runs, "seeds": SEEDS}
        | {k: rounded(v, 4) for k, v in found.items()},
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Errors and pairs of the sequential verdict, by simulation."
    )
    parser.add_argument("--runs", type=int, default=400, help="simulated runs a condition")
    parser.add_argument("--smoke", action="store_true", help="3 runs, and nothing is asserted")
    options = parser.parse_args()
    if options.smoke:
        options.runs = 3
    return options


if __name__ == "__main__":
    main()
