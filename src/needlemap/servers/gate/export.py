"""`needlemap export gate`: write a gate as one file that needs nothing but Python."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from pprint import pformat
from typing import Any

from needlemap.errors import SettingsError
from needlemap.files import write_report
from needlemap.grid import make_grid
from needlemap.reports.goals import check_threshold
from needlemap.settings import Settings
from needlemap.text import tell

_START = "# settings: written by `needlemap export gate`\n"
_END = "# end of settings\n"
# A gate's answer and all that stands around its text need about so many tokens.
LEAST_LENGTH = 256


# What a gate sends if nothing else is typed.
USUAL = {
    "lengths": "2k,8k",
    "depths": "0,25,50,75,100",
    "repeats": 5,
    "max_answer_tokens": 64,
}


def export_gate(file: Path, chosen: Settings, fail_under: float) -> None:
    """Write a gate with these settings. Raises SettingsError for a length that is too short."""
    grid = make_grid(chosen.lengths, chosen.depths)
    shortest = LEAST_LENGTH + chosen.max_answer_tokens
    if grid.lengths[0] < shortest:
        raise SettingsError(f"A gate's --lengths start at {shortest}, got {grid.lengths[0]}.")
    settings = {
        "LENGTHS": grid.lengths,
        "DEPTHS": tuple(round(100 * depth, 6) for depth in grid.depths),
        "REPEATS": chosen.repeats,
        "FAIL_UNDER": check_threshold(fail_under),
        "ANSWER_TOKENS": chosen.max_answer_tokens,
    }
    write_report(file, gate_source(settings).encode())
    count = chosen.repeats * len(grid.lengths) * len(grid.depths)
    tell(f"{file}: {count} prompts. Run: python {file} --base-url http://127.0.0.1:8000/v1")


def gate_source(settings: Mapping[str, Any]) -> str:
    """Return the gate's source with other settings."""
    source = files("needlemap.servers.gate").joinpath("gate_file.py").read_text("utf-8")
    before, _, rest = source.partition(_START)
    _, _, after = rest.partition(_END)
    lines = [f"{name} = {pformat(value, width=96)}\n" for name, value in settings.items()]
    return "".join([before, _START, *lines, _END, after])
