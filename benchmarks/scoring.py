"""The edit-distance score beside the algorithm that the older tool runs, in pure Python.

    python benchmarks/scoring.py [--peer-longest CHARACTERS] [--smoke]

Both sides remove white space, find the distance and make the score; every figure must be equal.
English and Chinese; an answer is its reference with one character in ten changed, dropped or
doubled. CPU microseconds a call, the least of five series.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from functools import partial
from random import Random
from time import process_time
from typing import TypeVar

from machine import machine
from needlemap.haystacks.generated import Generated
from needlemap.scorers.edit import edit_score
from table import rounded, show

SIZES = (25, 2_000, 20_000)
TARGET = 2_000
_SERIES, _SERIES_S = 5, 0.05
T = TypeVar("T")


def two_rows(left: str, right: str) -> int:
    """Levenshtein distance by dynamic programming over two rows: the older tool's algorithm."""
    if len(left) < len(right):
        left, right = right, left
    above: list[int] = list(range(len(right) + 1))
    for row, wanted in enumerate(left, 1):
        here = [row]
        for column, found in enumerate(right):
            here.append(
                min(above[column + 1] + 1, here[column] + 1, above[column] + (wanted != found))
            )
        above = here
    return above[-1]


def peer_score(prediction: str, reference: str) -> float:
    """Its score in 0..100."""
    said, wanted = (re.sub(r"\s+", "", text) for text in (prediction, reference))
    longer = max(len(said), len(wanted))
    return 100 * (1 - two_rows(said, wanted) / longer) if longer else 100.0


def texts(language: str, characters: int) -> tuple[str, str]:
    """An answer and its reference, of so many characters besides white space."""
    source, reference = Generated(language=language), ""
    for document in source.documents():
        reference += document.text
        if len(reference) > 2 * characters:
            break
    ends = [match.end() for match in re.finditer(r"\S", reference)]
    reference = reference[: ends[characters - 1]]
    random = Random(characters)
    return "".join(_mistaken(letter, random) for letter in reference), reference


def _mistaken(letter: str, random: Random) -> str:
    kind = random.randrange(30)
    return {0: "", 1: letter * 2, 2: "x"}.get(kind, letter)


def timed_us(work: Callable[[], T]) -> tuple[float, T]:
    """CPU microseconds of one call, the least of five series (one call where it takes long);
    result."""
    start = process_time()
    result = work()
    once = process_time() - start
    if once > _SERIES_S:
        return once * 1e6, result
    calls = max(1, int(_SERIES_S / max(once, 1e-7)))
    best = once
    for _ in range(_SERIES):
        start = process_time()
        for _ in range(calls):
            work()
        best = min(best, (process_time() - start) / calls)
    return best * 1e6, result


def main() -> None:
    """Measure, compare, print."""
    options = _options()
    rows, times = [], {}
    for characters in SIZES:
        for language in ("english", "chinese"):
            answer, reference = texts(language, characters)
            ours, (*_, native) = timed_us(partial(edit_score, answer, reference))
            measured = characters <= options.peer_longest
            if measured:
                peer, theirs = timed_us(partial(peer_score, answer, reference))
                if native != theirs:
                    raise RuntimeError(
                        f"Scores differ at {characters} characters: {native} and {theirs}."
                    )
                last = peer / characters**2
            else:
                peer = last * characters**2
            times[characters, language] = peer / ours
            shown = f"{peer:,.0f}" if measured else f"{peer:,.0f} (extrapolated)"
            what = f"{characters:,} characters, {language}"
            rows.append((what, shown, f"{ours:,.2f}", f"{peer / ours:,.0f}"))
    show(
        "Edit-distance score, CPU microseconds a call",
        machine("needlemap", "rapidfuzz"),
        ("", "pure Python, two rows", "needlemap", "times fewer"),
        rows,
        [
            f"Scores are equal to the last digit where both ran (to {options.peer_longest:,} "
            f"characters)."
        ],
        {
            "benchmark": "scoring",
            "levenshtein_2000_times": rounded(
                min(times[TARGET, name] for name in ("english", "chinese"))
            ),
            "levenshtein_25_times": rounded(times[25, "english"]),
            "levenshtein_20000_times": rounded(times[20_000, "english"]),
            "peer_longest": options.peer_longest,
        },
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The edit-distance score, beside pure Python.")
    parser.add_argument(
        "--peer-longest",
        type=int,
        default=max(SIZES),
        help="longest texts that pure Python is given (20,000 characters take it minutes); beyond, its time "  # noqa: E501
        "is taken to grow with the square",
    )
    parser.add_argument("--smoke", action="store_true", help="pure Python at the shortest only")
    options = parser.parse_args()
    if options.smoke:
        options.peer_longest = min(SIZES)
    return options


if __name__ == "__main__":
    main()
