"""Many trials on a server that fails in every way we know: none lost, none twice, no false map.

The order of faults is drawn from a seed. NEEDLEMAP_FAULTS=SEED takes another. NEEDLEMAP_TRIALS: how
many trials (200; with --long 1,000).
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from needlemap.errors import Failure
from needlemap.records.loaded import load_run

SEED = int(os.environ.get("NEEDLEMAP_FAULTS", "6"))
TRIALS = int(os.environ.get("NEEDLEMAP_TRIALS", "200"))  # a multiple of a hundred
GRID = ("--lengths", "200:400:10", "--depths", "0:100:10", "--repeats", str(TRIALS // 100))
PATIENCE = ("--retries", "1", "--timeout-s", "4", "--concurrency", "32")
SHARES = {  # of requests
    "ok": 60.0,
    "slow:0.05": 10.0,
    "slow:9": 0.6,  # longer than the timeout
    "429": 1.5,
    "429-after:0.05": 2.0,
    "429-ms:20": 2.0,
    "500": 4.0,
    "503": 4.0,
    "reset": 3.0,
    "down:0.2": 0.6,
    "cut": 3.0,
    "wrong-length:40": 3.0,
    "wrong-length:-40": 3.0,
    "invalid-json": 3.0,
    "wrong-shape": 2.0,
    "array": 2.0,
    "empty-choices": 3.0,
    "null-content": 3.0,
    "large:10000000": 0.3,
}
KNOWN = {failure.value for failure in Failure}


def drawn(seed: int) -> list[str]:
    """What the requests meet, each kind at least once, and early. The first is answered."""
    random = Random(seed)
    kinds, shares = list(SHARES), list(SHARES.values())
    early = [*kinds, *random.choices(kinds, shares, k=TRIALS // 2)]
    random.shuffle(early)
    return ["ok", *early, *random.choices(kinds, shares, k=3 * TRIALS)]


def scores(rows: list[dict[str, Any]]) -> dict[str, float]:
    """By key, of the trials that were scored."""
    return {row["key"]: row["score"] for row in rows if row["score"] is not None}


def cells(run: Path) -> dict[tuple[int, float], float | None]:
    """The scores of a map's cells in which nothing is missing."""
    return {
        (one.length_tokens, one.depth): one.score
        for one in load_run(run).map.cells
        if not one.missing
    }


def test_trials_on_a_failing_server_end_scored_or_classified_and_resumes_mend_the_map(
    needlemap, wires
):
    sound, failing = wires("--forgets", "0.3"), wires("--forgets", "0.3")
    grid = (*GRID, *PATIENCE)
    needlemap.run(sound, *GRID, "--concurrency", "32", "-o", "sound")
    wanted = scores(needlemap.records("sound"))
    trials = len(wanted)
    assert 0.8 * TRIALS < trials <= TRIALS  # cells that come to the same prompt share one
    assert 0.6 < sum(wanted.values()) / trials < 0.8  # a map with something to get wrong

    failing.schedule(*drawn(SEED))
    needlemap.run(failing, *grid, code=3)
    first = needlemap.records()
    assert Counter(row["key"] for row in first) == Counter(wanted.keys())  # none lost, none twice
    assert {row["failure"] for row in first} - {None} <= KNOWN
    assert all((row["score"] is None) == bool(row["failure"] and row["error"]) for row in first)
    assert max(len(row["error"] or "") for row in first) <= 500
    found = scores(first)
    assert 0.5 * trials < len(found) < trials
    assert found == {key: wanted[key] for key in found}
    whole = cells(needlemap.folder / "sound")
    assert set(cells(needlemap.folder / "r").items()) < set(whole.items())
    assert {row["fault"] for row in failing.log()} == set(SHARES)

    needlemap.run(failing, *grid, code=3)  # while the server goes on failing
    failing.schedule()
    needlemap.run(failing, *grid)
    assert scores(needlemap.records()) == wanted
    assert set(needlemap.scored().values()) == {1}
    assert cells(needlemap.folder / "r") == whole
