"""What every report writes alike: lengths, depths, scores, margins, what is missing; and where
rows are."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import copysign, floor, inf
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from needlemap.grid import duration_label, percent
from needlemap.stats.effective import LEAST_BASE, Effective, Mean
from needlemap.stats.intervals import NoiseFloor

if TYPE_CHECKING:
    from needlemap.stats.cell_score import CellScore
    from needlemap.stats.intervals import ClusterMean
    from needlemap.stats.means import DepthScore, Map

T = TypeVar("T")
NOT_ASKED = "not sent"
WHOLE = "whole text"
# A hyphen before a number that is not a part of a word, a flag or a range.
_MINUS = re.compile(r"(?<![\w.)\]\-−])-(?=\d)")
_PERCENT = re.compile(r"(?<=\d)%")
# A sign for each word of a verdict, so that they are told apart without colours.
SIGNS = {"PASS": "✓", "FAIL": "✗", "SUSPECT": "!", "NOT ENOUGH DATA": "…", "NO RESULT": "–"}


def length_labels(lengths: Sequence[int]) -> dict[int, str]:
    """Return compact labels, with as few digits as keep the lengths apart.

    >>> list(length_labels([500, 1000, 4096, 131072, 1_000_000]).values())
    ['500', '1k', '4.1k', '131k', '1M']
    >>> list(length_labels([128_000, 128_400]).values())
    ['128k', '128.4k']
    """
    for extra in range(7):
        labels = {length: _compact_length(length, extra) for length in lengths}
        if len(set(labels.values())) == len(labels):
            return labels
    return {length: str(length) for length in lengths}


def depth_labels(depths: Sequence[float]) -> dict[float, str]:
    """Return depths in percent, with as few decimals as keep them apart.

    They have one decimal if that makes all of them exact.

    >>> list(depth_labels([0, 1 / 3, 1]).values())
    ['0%', '33%', '100%']
    >>> list(depth_labels([0, 0.125]).values())
    ['0%', '12.5%']
    """
    is_exact = all(percent(depth) == round(percent(depth), 1) for depth in depths)
    for digits in range(1 if is_exact else 0, 7):
        labels = {depth: f"{_trim_zeros(percent(depth), digits)}%" for depth in depths}
        if len(set(labels.values())) == len(labels):
            return labels
    return {depth: f"{percent(depth):g}%" for depth in depths}


def row_labels(score_map: Map, depths: Sequence[float]) -> dict[float, str]:
    """Return the names of a map's rows: depths, or the whole text if a task asks about that."""
    return dict.fromkeys(depths, WHOLE) if score_map.depthless else depth_labels(depths)


def depth_score_labels(rows: Sequence[DepthScore], depths: Sequence[float]) -> list[str]:
    """Return the names of rows: '40%', or '40–50%' for a part of the haystack.

    They are kept apart among all depths.
    """
    labels = depth_labels(depths)
    names = []
    for row in rows:
        if row.end == row.depth:
            names.append(labels[row.depth])
        else:
            names.append(f"{percent(row.depth):g}–{percent(row.end):g}%")
    return names


def length_range(lengths: Sequence[int]) -> str:
    """Return the lengths' range: '1k-128k tokens'; '4k tokens' for one, 'no lengths' for none."""
    if not lengths:
        return "no lengths"
    ends = length_labels(sorted({min(lengths), max(lengths)}))
    return f"{'–'.join(ends.values())} tokens"


def unique_names(models: Sequence[str], paths: Sequence[Path]) -> list[str]:
    """Return a name for each run: its model.

    If models repeat, the folder's name is added, or if need be the path.

    >>> unique_names(["a", "b", "a"], [Path("x/r"), Path("x/s"), Path("y/t")])
    ['a@r', 'b', 'a@t']
    >>> unique_names(["b/a", "b/a"], [Path("b-a-single"), Path("b-a-multi")])
    ['b/a@single', 'b/a@multi']
    """
    folders = [
        f"{model}@{_folder_suffix(model, path.name)}"
        for model, path in zip(models, paths, strict=True)
    ]
    names = []
    for model, folder, path in zip(models, folders, paths, strict=True):
        if models.count(model) == 1:
            names.append(model)
        elif folders.count(folder) == 1:
            names.append(folder)
        else:
            names.append(f"{model}@{path}")
    return names


def _folder_suffix(model: str, folder: str) -> str:
    """Return a folder's name without the model's, with which it may start."""
    prefix = "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in model)
    return folder.removeprefix(prefix).strip("-._") or folder


def in_percent(share: float, digits: int = 1) -> float:
    """Return a share in percent, rounded as every report rounds it.

    `inPercent` of the page is its twin. A share is taken to six decimals, as pages hold it; halves
    go away from zero.

    >>> [in_percent(share) for share in (0.8125, 0.8125 - 1e-12, -0.0085, 0.5)]
    [81.3, 81.3, -0.9, 50.0]
    """
    steps = floor(abs(round(share, 6)) * 10 ** (digits + 2) + 0.5 + 1e-6)
    return copysign(steps / 10**digits, share) if steps else 0.0


def percent_of(share: float | None) -> float | None:
    """Return a share in percent for programs, without binary noise. None stays None."""
    return None if share is None else percent(share)


def score_label(score: float | None) -> str:
    """Return a score in percent with one decimal, or '-' if nothing was measured.

    >>> score_label(0.925), score_label(None)
    ('92.5', '-')
    """
    return "-" if score is None else f"{in_percent(score):.1f}"


def interval_label(low: float | None, high: float | None) -> str:
    """Return an interval in percent: '[83.1, 97.0]'; '-' if there is none."""
    return "-" if low is None or high is None else f"[{score_label(low)}, {score_label(high)}]"


def interval_behind(mean: ClusterMean | Mean | CellScore | None) -> str:
    """Return what stands behind a score: ' [83.1, 97.0]', or '' if it has no interval."""
    return "" if mean is None or mean.low is None else f" {interval_label(mean.low, mean.high)}"


def typeset(text: str) -> str:
    """Return our own words as pages and figures set them.

    They have a true minus, one sign for "at least", and a blank before a percent sign. Terminals
    keep what a shell and a spreadsheet can read.

    >>> typeset("-25.0 points (-41.4 to -15.8) at 50%, >=4k, --margin 2, qwen-7")
    '−25.0 points (−41.4 to −15.8) at 50 %, ≥4k, --margin 2, qwen-7'
    """
    text = _MINUS.sub("\N{MINUS SIGN}", _PERCENT.sub(" %", text))
    return text.replace(">=", "≥").replace("<=", "≤")


def usd_label(usd: float) -> str:
    """Return an amount of US dollars, to the cent; below one dollar to two digits.

    >>> usd_label(0.0), usd_label(0.00123), usd_label(12.5)
    ('$0', '$0.0012', '$12.50')
    """
    return f"${usd:,.2f}" if usd >= 1 else f"${float(f'{usd:.2g}'):g}"


def seconds_label(seconds: float) -> str:
    """Return a duration, below ten seconds to two digits.

    >>> seconds_label(0.391), seconds_label(75.2)
    ('0.39 s', '1 min')
    """
    return f"{float(f'{seconds:.2g}'):g} s" if seconds < 10 else duration_label(seconds)


def moment_label(time: str) -> str:
    """Return a time of a record or a page.

    >>> moment_label("2026-11-20T12:00:00Z")
    '2026-11-20 12:00:00 UTC'
    """
    return re.sub(r"^(\d{4}-\d\d-\d\d)T([\d:]+)[\d.]*(Z|\+00:00)?$", r"\1 \2 UTC", time)


def depth_words(depth: float) -> str:
    """Return a depth in a sentence: '49.8 %'."""
    return f"{round(100 * depth, 2):g} %"


def cached_label(cached: float | None, planned: float | None) -> str | None:
    """Return the tokens that a cache read, and those that the plan expected, in words.

    If neither is known, None is returned.

    >>> cached_label(320, 640), cached_label(None, None)
    ('320 tokens; planned 640', None)
    """
    if cached is None and planned is None:
        return None
    read = "not known" if cached is None else f"{round(cached):,} tokens"
    return read if planned is None else f"{read}; planned {round(planned):,}"


def loss_label(share: float) -> str:
    """Return a loss in points; positive is worse.

    >>> loss_label(0.0731), loss_label(-0.0)
    ('7.3', '0.0')
    """
    return f"{in_percent(share) + 0.0:.1f}"


def ends_label(low: float, high: float) -> str:
    """Return the interval of a loss: '2.1 to 23.2'."""
    return f"{loss_label(low)} to {loss_label(high)}"


def p_label(p: float) -> str:
    """Return a p-value with as many digits as it is worth.

    >>> p_label(0.0312), p_label(0.00001), p_label(1.0)
    ('0.031', '<0.001', '1')
    """
    return "<0.001" if p < 0.001 else f"{p:.3f}".rstrip("0").rstrip(".")


def floor_label(noise: NoiseFloor, prompts: int) -> str:
    """Return a phrase on how far two runs with `prompts` prompts differ for no reason."""
    points = score_label(noise.smallest(prompts))
    return f"noise floor: two runs of one model differ by up to {points} points 95 times in 100"


def missing_label(missing: int, failures: Mapping[str, int]) -> str:
    """Return the number of missing trials, and the count of each reason.

    >>> missing_label(3, {"timed out": 1})
    '3 (1 timed out, 2 not sent)'
    """
    kinds = [f"{count} {kind}" for kind, count in sorted(failures.items())]
    unsent = missing - sum(failures.values())
    if unsent > 0:
        kinds.append(f"{unsent} {NOT_ASKED}")
    return f"{missing} ({', '.join(kinds)})" if kinds else str(missing)


def overall_label(score_map: Map) -> str:
    """Return the line under a map: 'overall 87.3 (n=225, 2 missing) [82.3, 91.0]'."""
    n = n_label(score_map.n, counted=score_map.counted)
    missing = f"{score_map.missing} missing{withheld_label(score_map)}"
    score, interval = score_label(score_map.overall), interval_behind(score_map.total)
    return f"overall {score} ({n}, {missing}){interval}"


def withheld_label(score_map: Map) -> str:
    """Return a phrase on answers that were held back and count as 0, or '' if there are none."""
    return f", {score_map.withheld:,} refused or filtered" if score_map.withheld else ""


def n_label(n: int, *, counted: bool) -> str:
    """Return n of a score, e.g. 'n=20', or e.g. '3 means' if the number of answers is unknown."""
    return f"n={n:,}" if counted else f"{n:,} mean{'s' * (n != 1)}"


def _compact_length(length: int, extra: int) -> str:
    # An unknown length.
    if not length:
        return "-"
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if length >= size:
            value = length / size
            return _trim_zeros(value, extra + (1 if value < 10 else 0)) + unit
    return str(length)


def _trim_zeros(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# Top and bottom of each cell, shares of the height.
Bands = dict[tuple[int, float], tuple[float, float]]


def ragged_bands(score_map: Map) -> Bands:
    """Return the bands of cells if every length has depths of its own.

    Each cell reaches half way to its neighbours.
    """
    by_length: dict[int, list[float]] = defaultdict(list)
    for cell in score_map.cells:
        by_length[cell.length_tokens].append(cell.depth)
    bands: Bands = {}
    for length, own_depths in by_length.items():
        depths = sorted(own_depths)
        middles = [0.0, *((above + below) / 2 for above, below in pairwise(depths)), 1.0]
        bands.update(
            {(length, depth): band for depth, band in zip(depths, pairwise(middles), strict=True)}
        )
    return bands


def effective_label(effective: Effective) -> str:
    """Return a rule's value with its interval: '11k [8k, 18k]' or '>=128k [64k, >=128k]'.

    The values of auc are in percent.
    """
    if effective.rule.kind == "relative" and effective.value is None and not effective.crawls:
        return f"- (below {100 * LEAST_BASE:g} at {tokens_label(effective.shortest)})"
    if effective.low is None or effective.high is None:
        return effective_value(effective, effective.value)
    low = effective_value(effective, effective.low)
    high = effective_value(effective, effective.high)
    if effective.crawls:
        share = f"{100 * effective.rule.threshold:g}"
        if effective.rule.kind == "relative":
            share += " % of the first"
        return f"crawls through {share} between {low} and {high}"
    if effective.value is None:
        return f"[{low}, {high}]"
    return f"{effective_value(effective, effective.value)} [{low}, {high}]"


def effective_value(effective: Effective, value: float | None) -> str:
    """Return a value or an end of a rule. If it is beyond the tested lengths, it is a bound."""
    if value is None or effective.rule.kind == "auc":
        return score_label(value)
    return bounded_label(value, effective.shortest, effective.longest)


def bounded_label(tokens: float, shortest: float, longest: float) -> str:
    """Return a number of tokens. Beyond the shortest (0) or the longest (inf) it is a bound.

    >>> [bounded_label(tokens, 1000, 128_000) for tokens in (0, 4000, inf)]
    ['<1k', '4k', '>=128k']
    """
    if tokens == inf:
        return f">={tokens_label(longest)}"
    return tokens_label(tokens) if tokens else f"<{tokens_label(shortest)}"


def tokens_label(length: float) -> str:
    """Return a number of tokens, as `length_labels` has it."""
    return length_labels([round(length)])[round(length)]
