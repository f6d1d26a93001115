"""`needlemap gauge`: write the model in the box that engines serve, or a twin."""

from __future__ import annotations

from pathlib import Path

from needlemap.servers.gauge.checkpoint import write_checkpoint
from needlemap.text import tell


def gauge_command(out: Path, shape: str, *, gguf: bool) -> None:
    """Write the checkpoint in a shape into a folder, and say what it is for.

    gguf: write llama.cpp's file of it, too.
    """
    from needlemap.servers.gauge.shapes import QWEN3, gauge_in_shape

    checkpoint = gauge_in_shape(shape)
    folder = write_checkpoint(out, checkpoint.files())
    served_path = folder
    if gguf:
        from needlemap.servers.gauge.gguf import NAME, write_gguf

        served_path = folder / NAME
        write_gguf(served_path, checkpoint.config, checkpoint.tensors)
    holds = checkpoint.config["holds_tokens"]
    note = "" if shape != QWEN3 else f". Serve it as gauge-{QWEN3}: its reference is gauge/{QWEN3}"
    tell(f"{served_path}: finds every needle up to {holds:,} tokens{note}")


def twin_command(like: str, out: Path, gguf: bool) -> None:
    """Write a twin into a folder, and say how much of its context it was measured to heed."""
    from needlemap.servers.gauge.twins import shape_of, write_twin

    twin = write_twin(shape_of(like), out)
    served_path = out
    if gguf:
        from needlemap.servers.gauge.gguf import write_twin_gguf

        served_path = write_twin_gguf(out)
    tell(
        f"{served_path}: a random {twin.model_type} of {twin.layers} layers. It finds nothing, and "
        f"heeds all of {twin.holds_tokens:,} tokens: changing any tenth moves log-probabilities "
        f"by {twin.least_nats:.2g} nats or more. Cached passes of transformers differ from one "
        f"pass by {twin.cached_nats:.1g} nats"
    )
