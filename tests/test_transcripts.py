"""What people read, whole: each file of transcripts/ is a terminal, commands and what they print.

A line that begins with '$' is typed; below it stands its standard output, and its exit code if that
is not 0. DATE is the time of the measurement. NEEDLEMAP_TRANSCRIPTS=write writes the files anew,
from their commands.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_terminal_shows_what_its_transcript_shows(file, typed):
    lines, shown = file.read_text("utf-8").splitlines(), list[str]()
    for line in lines:
        if line.startswith("$ needlemap "):
            ended = typed(*shlex.split(line)[2:], code=None)
            printed = re.sub(r"measured .*? UTC", "measured DATE", ended.stdout)
            shown += [line, *map(str.rstrip, printed.splitlines())]
            shown += [f"[exit code {ended.returncode}]"] * bool(ended.returncode) + [""]
    if os.environ.get("NEEDLEMAP_TRANSCRIPTS") == "write":
        file.write_text("\n".join(shown), "utf-8")
    assert "\n".join(shown).splitlines() == lines
