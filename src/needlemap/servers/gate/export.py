"""`needlemap export gate`: write a gate as one file that needs nothing but Python."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from pprint import pformat
from types import ModuleType
from typing import Any

from needlemap import finishes
from needlemap.errors import SettingsError
from needlemap.files import write_report
from needlemap.grid import make_grid
from needlemap.models import thinking
from needlemap.reports.goals import check_threshold
from needlemap.settings import Settings
from needlemap.text import matching, tell

_START = "# settings: written by `needlemap export gate`\n"
_END = "# end of settings\n"
_OURS_START = "# of needlemap: "
_OURS_HEAD = "# of needlemap: what of a text is its answer, how it ended, and if it holds a number"
# What a gate has of our own, so that it judges an answer as a run does.
_OURS = (
    (finishes, ("Ending", "ending_of", "finish_of")),
    (thinking, ("parted",)),
    (matching, ("contains", "plain")),
)
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
    """Return the source of the gate, with the given settings in place of its own.

    What it imports of needlemap stands in it.
    """
    source = files("needlemap.servers.gate").joinpath("gate_file.py").read_text("utf-8")
    before, _, rest = source.partition(_OURS_START)
    _, _, rest = rest.partition(_START)
    _, _, after = rest.partition(_END)
    lines = [f"{name} = {pformat(value, width=96)}\n" for name, value in settings.items()]
    imports = list[str]()
    definitions = list[str]()
    for module, names in _OURS:
        new_imports, new_definitions = source_of(module, *names)
        imports += [line for line in new_imports if f"\n{line}\n" not in before]
        definitions += new_definitions
    head = [before.rstrip("\n"), *imports, ""]
    ours = "\n\n\n".join([_OURS_HEAD, *definitions])
    return "\n".join([*head, f"{_START}{''.join(lines)}{_END}", f"{ours}\n{after}"])


def source_of(module: ModuleType, *names: str) -> tuple[list[str], list[str]]:
    """Return the source of some names of a module, and of all in the module that they use.

    It comes as imports and definitions.
    """
    source = inspect.getsource(module)
    nodes = ast.parse(source).body
    node_of = {name: node for node in nodes for name in _defined_names(node)}
    used_names: set[str] = set()
    new_names = set(names)
    while new_names:
        used_names |= new_names
        references = {
            part.id
            for name in new_names
            for part in ast.walk(node_of[name])
            if isinstance(part, ast.Name)
        }
        new_names = (references & node_of.keys()) - used_names

    lines = source.splitlines()
    imports = []
    definitions = []
    for node in nodes:
        if not used_names.intersection(_defined_names(node)):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            node.names = [alias for alias in node.names if alias.name in used_names]
            imports.append(ast.unparse(node))
            continue
        start = node.lineno - 1
        while lines[start - 1].startswith(("#", "@")):
            start -= 1
        definitions.append("\n".join(lines[start : node.end_lineno]))
    return imports, definitions


def _defined_names(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a module defines or imports."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]
