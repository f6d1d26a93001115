"""Read a file of environment variables, e.g. `.env`, only if `--env-file` names it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from needlemap.errors import SettingsError
from needlemap.files import read_regular

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*)")
_QUOTED = re.compile(r"""(["'])(.*)\1\s*(?:#.*)?""")


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables of a file.

    Its lines are NAME=VALUE, with `export` and quotes if you like. `#` starts a comment. Nothing is
    expanded. Raises SettingsError, which names a line and never shows it, because it may hold a
    key.
    """
    if not path.is_file():
        raise SettingsError(f"No file at '{path}' (--env-file).")
    try:
        text = read_regular(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SettingsError(f"'{path}' is no text in UTF-8 (--env-file).") from None
    variables: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None or "\0" in line:
            raise SettingsError(f"'{path}', line {number} is not NAME=VALUE (--env-file).")
        quoted = _QUOTED.fullmatch(match[2])
        value = quoted[2] if quoted else match[2].partition(" #")[0].strip()
        variables[match[1]] = value
    return variables


def use_env_file(path: Path) -> None:
    """Set the variables of a file for this process. Those that are set already stay."""
    for name, value in read_env_file(path).items():
        os.environ.setdefault(name, value)
