"""How many threads numpy's BLAS starts."""

from __future__ import annotations

import os
import sys


def calm() -> None:
    """Keep numpy's BLAS to one thread, unless the user or a model in this process may want more.

    Nothing here multiplies large matrices, and idle BLAS threads cost a quarter of a start's CPU time.
    """
    if not any(argument.startswith(("hf/", "lmdeploy/", "python/")) for argument in sys.argv):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
