"""A file of environment variables, as `.env`: read only where `--env-file` names it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from needlemap.errors import SettingsError
from needlemap.files import read_regular

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*)")
_QUOTED = re.compile(r"""(["'])(.*)\1\s*(?:#.*)?""")


def read_env_file(path: Path) -> dict[str, str]:
    """Its variables: lines NAME=VALUE, with `export` and quotes if you like; `#` begins a
    remark.

    Nothing is expanded. Raises SettingsError, which names a line and never shows it: it may
    hold a key.
    """
    if not path.is_file():
        raise SettingsError(f"No file at '{path}' (--env-file).")
    try:
        text = read_regular(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SettingsError(f"'{path}' is no text in UTF-8 (--env-file).") from None
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None or "\0" in line:
            raise SettingsError(f"'{path}', line {number} is not NAME=VALUE (--env-file).")
        quoted = _QUOTED.fullmatch(match[2])
        found[match[1]] = quoted[2] if quoted else match[2].partition(" #")[0].strip()
    return found


def use_env_file(path: Path) -> None:
    """Sets its variables for this process; what the environment has already stays."""
    for name, value in read_env_file(path).items():
        os.environ.setdefault(name, value)
