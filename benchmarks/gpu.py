"""What sharing prefixes saves on a GPU: a Llama-3-8B-shaped model with random weights in bf16.

    python benchmarks/gpu.py [--measure 1k:64k:15] [--extrapolate 1k:128k:35] [--budget-s 150]
    [--smoke]

Grids have as many depths as lengths. One by one with transformers' own `generate`, then the walks
of `exact` and `bins` with one KV cache; prefill and decoding are timed apart, answers have 16
tokens. What the time budget of a mode leaves out, and the larger grid, is extrapolated from the
measured pieces: by least squares on (1, tokens x context, tokens) for prefill and (1, context) for
decoding. Without a GPU, or with --smoke, it runs a tiny model in float32 on the CPU: that the
program works is all that such figures say.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from machine import machine
from needlemap.models.hf_engine import HuggingFaceEngine
from needlemap.models.walk import Ids, Walk, shared_prefix
from needlemap.plan import ordered
from needlemap.settings.reading import configure
from needlemap.trials import Trial
from needlemap.trials.build import prepare
from sides.pieces import ANSWER_TOKENS, Machine, Measured, Piece, TimedEngine
from table import rounded, show

MODES = ("single", "exact", "bins")  # single: one by one, of the prompts of mode exact
SHOWN = {
    "single": "one by one (generate)",
    "exact": "exact (one cache)",
    "bins": "bins (one cache)",
}
_WARM_UP = 64  # tokens
_CHUNK = 4096  # tokens computed at a time, in a walk


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a whole grid takes. measured: how many of its prompts were; the rest is extrapolated."""

    grid: str
    mode: str
    measured: int
    prompts: int
    tokens_asked: int
    tokens_computed: int
    prefill_s: float
    decode_s: float

    @property
    def total_s(self) -> float:
        """Seconds in all."""
        return self.prefill_s + self.decode_s


def main() -> None:
    """Measure, extrapolate, print."""
    options = _options()
    grids = {
        options.measure: walks_of(options.measure),
        options.extrapolate: walks_of(options.extrapolate),
    }
    longest = max(
        len(prompt) for walks in grids.values() for walk in walks.values() for prompt in walk
    )
    host = Machine(options.smoke, longest + ANSWER_TOKENS)
    _warm_up(host)
    walks = grids[options.measure]
    measured = {mode: measure(host, mode, walks[mode], options.budget_s) for mode in MODES}
    equal = {
        mode: compare(host, walks[mode], measured[mode], options.checked)
        for mode in ("exact", "bins")
    }
    found = [
        estimate(grid, mode, walks[mode], measured[mode], options.measure)
        for grid, walks in grids.items()
        for mode in MODES
    ]
    _report(host, found, measured, equal, options)


def walks_of(lengths: str) -> dict[str, list[Ids]]:
    """The prompts of a grid with as many depths as lengths, in the order of each mode's plan."""
    settings = {
        "lengths": lengths,
        "depths": f"0:100:{lengths.split(':')[2]}",
        "tokenizer": "cl100k_base",
    }
    walks = {}
    for mode in ("exact", "bins"):
        given = {**settings, "mode": mode, "max_answer_tokens": ANSWER_TOKENS}
        walks[mode] = [trial.prompt.ids for trial in ordered(_trials(given), mode)]
    return {"single": walks["exact"], **walks}


def _trials(given: dict[str, Any]) -> tuple[Trial, ...]:
    return prepare(configure(None, given)).trials


def _warm_up(host: Machine) -> None:
    ids = np.arange(_WARM_UP, dtype=np.int32)
    host.generate(ids)
    Walk(HuggingFaceEngine(host.model, _CHUNK), []).ask(ids, ANSWER_TOKENS)


def measure(host: Machine, mode: str, walk: Sequence[Ids], budget_s: float) -> Measured:
    """Ask a mode's prompts until its time is up: one by one spread over the walk, else along it."""
    begun = perf_counter()
    if mode == "single":
        found = Measured()
        with host.peak(found):
            for place in spread(len(walk)):
                found.answers[walk[place].tobytes()] = host.generate(walk[place], found)
                found.asked += 1
                if perf_counter() - begun > budget_s:
                    break
        return found
    engine = TimedEngine(HuggingFaceEngine(host.model, _CHUNK))
    with host.peak(engine.measured):
        asking = Walk(engine, [])
        for ids in walk:
            engine.measured.answers[ids.tobytes()] = asking.ask(ids, ANSWER_TOKENS).answer
            engine.measured.asked += 1
            if perf_counter() - begun > budget_s:
                break
        asking.drop()
    return engine.measured


def spread(count: int) -> list[int]:
    """All places, so ordered that any beginning is spread over the whole (golden-section steps)."""
    return sorted(range(count), key=lambda place: (place * 0.6180339887498949) % 1)


def compare(
    host: Machine, walk: Sequence[Ids], measured: Measured, checked: int
) -> tuple[int, int]:
    """(same, compared): a walk's answers beside those of `generate`, for some of its prompts."""
    asked = walk[: measured.asked]
    places = spread(len(asked))[:checked]
    same = sum(
        host.generate(asked[place]) == measured.answers[asked[place].tobytes()] for place in places
    )
    return same, len(places)


def estimate(grid: str, mode: str, walk: Sequence[Ids], measured: Measured, known: str) -> Estimate:
    """A whole grid's time: what was measured of it, and the rest by the fit of the measured
    pieces."""
    pieces = pieces_of(mode, walk)
    decoded = [Piece(len(ids) + step, 1) for ids in walk for step in range(ANSWER_TOKENS - 1)]
    whole = grid == known and measured.asked == len(walk)
    if whole:
        prefill_s = sum(piece.seconds for piece in measured.prefill)
        decode_s = sum(piece.seconds for piece in measured.decode)
    else:
        prefill_s = float((features(pieces, 3) @ fit(measured.prefill, 3)).sum())
        decode_s = float((features(decoded, 2) @ fit(measured.decode, 2)).sum())
    return Estimate(
        grid,
        mode,
        measured.asked if grid == known else 0,
        len(walk),
        sum(map(len, walk)),
        sum(piece.tokens for piece in pieces),
        prefill_s,
        decode_s,
    )


def pieces_of(mode: str, walk: Sequence[Ids]) -> list[Piece]:
    """What each prompt has to compute: all of it one by one, in a walk what it does not share with
    the one before (one token at least, for its logits)."""
    if mode == "single":
        return [Piece(0, len(ids)) for ids in walk]
    pieces = [Piece(0, len(walk[0]))]
    for before, ids in pairwise(walk):
        start = min(shared_prefix(before, ids), len(ids) - 1)
        pieces.append(Piece(start, len(ids) - start))
    return pieces


def fit(pieces: Sequence[Piece], terms: int) -> NDArray[np.float64]:
    """Seconds of each of the first terms of `features`, by least squares; none below 0."""
    table, seconds = features(pieces, terms), np.array([piece.seconds for piece in pieces])
    used, found = list(range(terms)), np.zeros(terms)
    while used:
        part = np.linalg.lstsq(table[:, used], seconds, rcond=None)[0]
        if (part >= 0).all():
            found[used] = part
            break
        used.pop(int(part.argmin()))
    return found


def features(pieces: Sequence[Piece], terms: int) -> NDArray[np.float64]:
    """(pieces, terms): 1, then token pairs and tokens of a prefill (in decoding, all but 1 are
    contexts)."""
    return np.array([(1.0, piece.pairs, piece.tokens)[:terms] for piece in pieces])


def _report(
    host: Machine,
    found: Sequence[Estimate],
    measured: dict[str, Measured],
    equal: dict[str, tuple[int, int]],
    options: argparse.Namespace,
) -> None:
    alone = {one.grid: one for one in found if one.mode == "single"}
    rows = [_row(one, alone[one.grid], measured[one.mode], equal.get(one.mode)) for one in found]
    notes = [
        f"Answers of {ANSWER_TOKENS} tokens. faster: in all; without decoding: were decoding free."
    ]
    notes += (
        []
        if host.cuda
        else ["CPU SMOKE FIGURES: a tiny model shows that the program works, and no speed."]
    )
    result: dict[str, object] = {"benchmark": "gpu", "cuda": host.cuda}
    for one in found:
        size = "measured" if one.grid == options.measure else "extrapolated"
        if one.mode != "single":
            result[f"{one.mode}_{size}"] = rounded(alone[one.grid].total_s / one.total_s)
            result[f"{one.mode}_{size}_prefill"] = rounded(
                alone[one.grid].prefill_s / one.prefill_s
            )
    result |= {f"equal_{mode}": same / max(1, compared) for mode, (same, compared) in equal.items()}
    heads = (
        "",
        "grid",
        "measured",
        "prefill s",
        "decode s",
        "tokens/s",
        "faster",
        "w/o decoding",
        "GiB",
        "equal",
    )
    show(
        f"Walks beside one by one: {host.about}",
        machine("needlemap", "torch", "transformers"),
        heads,
        rows,
        notes,
        result,
    )


def _row(
    one: Estimate, alone: Estimate, measured: Measured, equal: tuple[int, int] | None
) -> tuple[str, ...]:
    return (
        SHOWN[one.mode],
        one.grid,
        f"{one.measured}/{one.prompts}",
        f"{one.prefill_s:,.2f}",
        f"{one.decode_s:,.2f}",
        f"{one.tokens_asked / one.total_s:,.0f}",
        f"{alone.total_s / one.total_s:.2f}",
        f"{alone.prefill_s / one.prefill_s:.2f}",
        f"{measured.peak_bytes / 2**30:.1f}",
        f"{equal[0]}/{equal[1]}" if equal else "",
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What sharing prefixes saves on a GPU.")
    parser.add_argument(
        "--measure", default="1k:64k:15", help="lengths of the grid that is asked; as many depths"
    )
    parser.add_argument(
        "--extrapolate", default="1k:128k:35", help="lengths of the grid that is reckoned"
    )
    parser.add_argument(
        "--budget-s", type=float, default=120.0, help="seconds of asking for each mode"
    )
    parser.add_argument(
        "--checked", type=int, default=20, help="answers of each walk compared with generate's"
    )
    parser.add_argument("--smoke", action="store_true", help="tiny grids and model, on the CPU")
    options = parser.parse_args()
    if options.smoke:
        options.measure, options.extrapolate, options.checked = "300:600:3", "300:900:4", 4
    return options


if __name__ == "__main__":
    main()
