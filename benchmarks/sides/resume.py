"""The second start of a finished run: python resume.py RUN. Prints JSON: seconds after the
imports."""

from __future__ import annotations

import json
import sys
from time import perf_counter, process_time

from needlemap.asking.session import Session
from needlemap.records.folder import RunFolder
from needlemap.settings.reading import checked
from needlemap.trials.build import prepare

wall, cpu = perf_counter(), process_time()
settings = checked(RunFolder(sys.argv[1]).about().settings, sys.argv[1])
session = Session.open(prepare(settings), sys.argv[1])
wall_s, cpu_s = perf_counter() - wall, process_time() - cpu
if session.todo:
    raise SystemExit(
        f"{len(session.todo)} of {session.done + len(session.todo)} trials are left to ask"
    )
print(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s, "trials": session.done}))
