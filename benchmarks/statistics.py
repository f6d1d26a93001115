"""Coverage of the intervals, by simulation: python benchmarks/statistics.py [--maps N] [--smoke]

The simulation is in `intervals.py`. A program in this folder that imports the standard library's
`statistics` finds this file first, so imported under that name it makes way for the one that is
meant.
"""

from __future__ import annotations

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

if __name__ == "__main__":
    from intervals import main

    main()
else:
    spec = spec_from_file_location("statistics", Path(os.__file__).with_name("statistics.py"))
    if spec is None or spec.loader is None:
        raise ImportError("the standard library's statistics is not where os is")
    sys.modules["statistics"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["statistics"])
