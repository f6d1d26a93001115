"""`needlemap gauge`: write the model in the box that engines serve."""

from __future__ import annotations

from pathlib import Path

from needlemap.servers.gauge.checkpoint import holds_tokens, write_checkpoint
from needlemap.text import tell


def gauge_command(out: Path, gguf: bool) -> None:
    """Write the checkpoint, or llama.cpp's file of it, into a folder, and say what it is
    for."""
    folder = write_checkpoint(out)
    served = folder
    if gguf:
        from needlemap.servers.gauge.gguf import NAME, write_gguf

        served = folder / NAME
        write_gguf(served)
    tell(f"{served}: finds every needle up to {holds_tokens():,} tokens")
