"""The haystack of the benchmarks: 49 essays where they are at hand, else generated prose of their
size."""

from __future__ import annotations

import os
from pathlib import Path

from needlemap.haystacks.generated import Generated

SIZE_BYTES = 644_051  # the 49 essays'
_SHARED = Path(__file__).resolve().parents[2] / "shared"


def essays(asked: Path | None, spare: Path) -> tuple[Path, str]:
    """A folder of .txt files; its name: the one asked for, the shared essays, or `spare`, made and
    filled."""
    if asked is not None:
        return asked, f"the text files of {asked.name}"
    shared = Path(os.environ.get("NEEDLEMAP_SHARED", _SHARED)) / "data" / "PaulGrahamEssays"
    if shared.is_dir():
        return shared, "49 essays"
    spare.mkdir()
    size, source = 0, Generated()
    for number, document in enumerate(source.documents()):
        size += (spare / f"{number:04d}.txt").write_bytes(f"{document.text}\n\n".encode())
        if size >= SIZE_BYTES:
            return spare, "generated prose of the essays' size"
    raise AssertionError("the generated haystack has no end")
