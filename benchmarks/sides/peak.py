"""A needlemap command in a process of its own, and the most memory that it took: python peak.py run
...

Prints what the command prints, and as its last line JSON: the peak resident memory in bytes (the
kernel's VmHWM), its exit code, and the memory that Python and the imports of a run take by
themselves.
"""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter, process_time

from needlemap.cli import main


def resident_bytes(field: str) -> int:
    """A line of the kernel's account of this process: VmHWM, the most so far, or VmRSS, now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024


def imports_bytes() -> int:
    """Resident memory once everything that a run needs is imported, and nothing is built."""
    import httpx  # noqa: F401

    import needlemap.commands.run
    import needlemap.models.openai  # noqa: F401

    return resident_bytes("VmRSS")


def command() -> int:
    """Run it; its exit code."""
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


if __name__ == "__main__":
    before, wall, cpu = imports_bytes(), perf_counter(), process_time()
    code = command()
    spent = {"wall_s": perf_counter() - wall, "cpu_s": process_time() - cpu}
    print(json.dumps({"peak": resident_bytes("VmHWM"), "imports": before, "code": code, **spent}))
