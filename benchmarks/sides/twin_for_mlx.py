"""A twin of Granite 4 under the names that mlx-lm's configuration has.

python twin_for_mlx.py FOLDER NEW_FOLDER
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

KINDS = {"linear_attention": "mamba", "full_attention": "attention"}


def main() -> None:
    """Copy a twin, and rewrite its configuration."""
    folder, target = map(Path, sys.argv[1:])
    shutil.copytree(folder, target)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["layer_types"] = [KINDS[kind] for kind in config["layer_types"]]
    config["rope_theta"] = config["rope_parameters"]["rope_theta"]
    # Without bounds, as mlx-lm's default; an infinity is not JSON.
    del config["time_step_limit"]
    (target / "config.json").write_text(json.dumps(config, indent=2), "utf-8")


if __name__ == "__main__":
    main()
