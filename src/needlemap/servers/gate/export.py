"""`needlemap export gate`: write a gate as one file that needs nothing but Python."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from pprint import pformat
from typing import Any

from needlemap.errors import SettingsError
from needlemap.files import write_report
from needlemap.grid import Grid
from needlemap.reports.goals import check_threshold
from needlemap.text import tell

_START = "# settings: written by `needlemap export gate`\n"
_END = "# end of settings\n"
# A gate's answer and all that stands around its text need about so many tokens.
LEAST_LENGTH = 256


def export_gate(
    file: Path, grid: Grid, repeats: int, fail_under: float, answer_tokens: int
) -> None:
    """Write a gate with these settings. Raises SettingsError for settings that it cannot have."""
    shortest = LEAST_LENGTH + answer_tokens
    if grid.lengths[0] < shortest:
        raise SettingsError(f"A gate's --lengths start at {shortest}, got {grid.lengths[0]}.")
    if repeats < 1:
        raise SettingsError(f"--repeats must be 1 or more, got {repeats}.")
    if answer_tokens < 1:
        raise SettingsError(f"--max-answer-tokens must be 1 or more, got {answer_tokens}.")
    settings = {
        "LENGTHS": grid.lengths,
        "DEPTHS": tuple(round(100 * depth, 6) for depth in grid.depths),
        "REPEATS": repeats,
        "FAIL_UNDER": check_threshold(fail_under),
        "ANSWER_TOKENS": answer_tokens,
    }
    write_report(file, gate_source(settings).encode())
    count = repeats * len(grid.lengths) * len(grid.depths)
    tell(f"{file}: {count} prompts. Run: python {file} --base-url http://127.0.0.1:8000/v1")


def gate_source(settings: Mapping[str, Any]) -> str:
    """Return the gate's source with other settings."""
    source = files("needlemap.servers.gate").joinpath("gate_file.py").read_text("utf-8")
    before, _, rest = source.partition(_START)
    _, _, after = rest.partition(_END)
    lines = [f"{name} = {pformat(value, width=96)}\n" for name, value in settings.items()]
    return "".join([before, _START, *lines, _END, after])
