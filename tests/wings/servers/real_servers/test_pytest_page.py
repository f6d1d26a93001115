"""The test file that docs/pytest.md shows, as its reader runs it, on a golden of a real
llama-server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[4] / "docs" / "pytest.md"
PLUGIN = "needlemap.servers.pytest_plugin"


@pytest.fixture
def page(llama, needlemap, checkpoint, gguf):
    """page(OPTIONS): what pytest prints of the page's test file, with a server of these options."""
    text, folder = PAGE.read_text("utf-8"), needlemap.folder
    (tests,) = re.findall(r"^```python\n# test_long_context.py\n(.*?)^```$", text, re.M | re.S)
    assert len(tests.splitlines()) <= 15
    (folder / "test_long_context.py").write_text(tests)
    (needle,) = re.findall(r"^```yaml\n# needle.yaml\n(.*?)^```$", text, re.M | re.S)
    (folder / "needle.yaml").write_text(needle)
    shutil.copytree(checkpoint, folder / "tiny")  # what a golden names is read within the folder
    (asked,) = re.findall(r"^needlemap (run .*)$", text, re.M)
    needlemap(*asked.replace("http://127.0.0.1:8000/v1", llama().base_url).split(), "--quiet")
    (frozen,) = re.findall(r"^needlemap (report .*)$", text, re.M)
    needlemap(*frozen.split())

    def run(*options: str) -> str:
        binary, size = (
            os.environ["NEEDLEMAP_LLAMA_SERVER"],
            "-c 2048 -np 1 -t 1 -tb 1 --host 127.0.0.1",
        )
        served = (
            f"{binary} -m {gguf} --alias tiny --jinja {size} {' '.join(options)} --port {{port}}"
        )
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rs",
            "-p",
            PLUGIN,
            "-p",
            "no:cacheprovider",
        ]
        done = subprocess.run(
            [*command, "--basetemp", str(folder / "temporary"), "--needle-command", served],
            cwd=folder,
            env={**os.environ, "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            timeout=250,
        )
        return done.stdout + done.stderr

    return run


def test_the_same_server_passes_and_one_with_other_positions_fails(page):
    """The tiny model knows one wording alone, not that of a check, which judges equal ways then: it
    passes, or its two minutes end first."""
    same = page()
    assert re.search(r"3 passed|2 passed, 1 skipped", same), same
    turned = page("--rope-freq-base", "100")
    assert re.search(r"FAIL compare: run-\w+ loses 100\.0 points .* allowed 5, ", turned)
    assert "beside golden/tiny" in turned
    assert "see the first answer that differs: needlemap replay " in turned
