"""A long run keeps its memory and its descriptors: 20,000 trials with --long.

NEEDLEMAP_SOAK: how many trials (800). Memory is compared with what it was after the first tenth.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TRIALS = int(os.environ.get("NEEDLEMAP_SOAK", "800"))
SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"


@pytest.mark.long
@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="memory is read from Linux' /proc"
)
@pytest.mark.timeout(900)
def test_memory_stays_flat_and_no_descriptor_stays_open():
    command = [sys.executable, str(SOAK), "--trials", str(TRIALS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["benchmark"], found["trials"]) == ("soak", TRIALS)
    assert found["growth"] <= 1.10
    assert found["descriptors"] <= 16  # connections that happen to be open when it is looked at
    assert found["left_open"] == 0
    print(done.stdout, file=sys.stderr)
