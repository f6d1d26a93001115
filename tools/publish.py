"""Make this checkout ready for a package index: its version is a tag's, and it has an address.

python tools/publish.py https://github.com/SOMEBODY/needlemap v0.1.0

A checkout knows no address, so README's links are relative, which no package index can follow.
This rewrites README.md, pyproject.toml, CITATION.cff and version.py in place. The release workflow
types it before it builds.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
README, PROJECT, CITATION = "README.md", "pyproject.toml", "CITATION.cff"
MODULE = "src/needlemap/version.py"
FILES = (README, PROJECT, CITATION, MODULE)
TAG = re.compile(r"v(\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?)")
LINK = re.compile(r"(!?)(\[[^\]]*\])\((?!https?:|#)([^)\s]+)\)")


def published(files: Mapping[str, str], address: str, tag: str) -> dict[str, str]:
    """Return the texts of FILES with the address and the tag's version.

    Raises ValueError for a tag that is not a version's, e.g. v0.1.0.
    """
    match = TAG.fullmatch(tag)
    if match is None:
        raise ValueError(f"The tag '{tag}' is not a version's, e.g. v0.1.0.")
    version = match[1]

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link[1] else "blob"
        return f"{link[1]}{link[2]}({address}/{kind}/{tag}/{link[3]})"

    urls = {
        "Source": address,
        "Documentation": f"{address}/blob/{tag}/docs/README.md",
        "Changelog": f"{address}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }
    table = "\n".join(f'{name} = "{url}"' for name, url in urls.items())
    head = "[project.optional-dependencies]"
    project = _with_version(files[PROJECT], f'version = "{version}"')
    return {
        README: LINK.sub(absolute, files[README]),
        PROJECT: project.replace(head, f"[project.urls]\n{table}\n\n{head}", 1),
        CITATION: _with_version(files[CITATION], f"version: {version}"),
        MODULE: _with_version(files[MODULE], f'__version__ = "{version}"'),
    }


def _with_version(text: str, line: str) -> str:
    """Return a file with another version. Raises ValueError if it has no line for one."""
    start = re.match(r"\w+(?: =|:) ", line)
    assert start is not None
    changed, count = re.subn(rf"^{re.escape(start[0])}.*$", line, text, flags=re.MULTILINE)
    if count != 1:
        raise ValueError(f"{count} lines start with '{start[0]}', not one.")
    return changed


def main() -> None:
    """Rewrite the files of this checkout."""
    address, tag = sys.argv[1:]
    files = {name: (ROOT / name).read_text("utf-8") for name in FILES}
    for name, text in published(files, address.rstrip("/"), tag).items():
        (ROOT / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
