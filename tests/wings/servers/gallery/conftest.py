"""The gallery's mutants can be imported, also by the name that `python/faults:...` gives them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
