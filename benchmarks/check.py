"""Does `needlemap check` find public faults, each with the probe that is meant for it, and blame nobody else?

    python benchmarks/check.py [--clean N] [--smoke]

The faults are those of tests/gallery/mutants.py, in the model in the box. Clean runs: that model as it is,
and a reader whose answers differ now and then when it is asked again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from time import process_time

from machine import machine
from table import rounded, show

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "gallery"))
from mutants import BOX, MUTANTS, NOISY, asked, examined

QUICK = ("last-block-of-a-hit", "cut-and-told")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clean", type=int, default=200, help="Clean runs.")
    parser.add_argument("--smoke", action="store_true", help="Two mutants and two clean runs.")
    options = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if not options.smoke or mutant.name in QUICK]
    clean = 2 if options.smoke else options.clean
    rows, found, slowest = [], 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        for mutant in chosen:
            began = process_time()
            failing = [
                each.probe for each in examined(mutant, Path(folder) / mutant.name) if each.state == "fail"
            ]
            took = process_time() - began
            slowest, found = max(slowest, took), found + (mutant.probe in failing)
            rows.append((mutant.name, mutant.probe, ", ".join(failing) or "-", f"{took:.1f}"))
        alarms = 0
        for number in range(clean):
            flags = BOX if number % 10 == 0 else NOISY
            findings = asked(flags, Path(folder) / f"clean-{number}")
            alarms += any(each.state == "fail" for each in findings)
    result = {
        "benchmark": "check",
        "mutants": len(chosen),
        "found": found,
        "clean_runs": clean,
        "false_alarms": alarms,
        "mutant_cpu_s_most": rounded(slowest),
    }
    notes = [
        f"clean runs: {clean}, of which {alarms} blamed somebody; one in ten of the model in the box, the",
        "others of a reader of which one answer in forty is wrong by chance",
    ]
    header = ("fault", "meant for", "found by", "CPU s")
    show("Faults of the gallery, found by check", machine(), header, rows, notes, result)


if __name__ == "__main__":
    main()
