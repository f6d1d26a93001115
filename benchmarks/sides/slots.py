"""The llama.cpp side of prefill.py: four lanes on the four slots of a real server.

A small random Llama is asked a 10 x 10 grid to 4k in mode `exact`, of a server that has no memory
beside its slots, and of one that keeps prompts in RAM. The server splits text into about 5 % more
tokens than the model's tokenizer, as the converter knows no pre-tokenizer like it; so shares of the
prompts' tokens are compared, each by its own count. NEEDLEMAP_LLAMA_SERVER and
NEEDLEMAP_GGUF_CONVERTER name what it takes (`eval "$(bash .ci/servers)"`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import needlemap
from tinymodel import write_model

REAL = Path(__file__).resolve().parents[2] / "tests" / "wings" / "servers" / "real_servers"
SLOTS, POSITIONS = 4, 4352
_CHAT = 'messages:\n  - {role: user, text: "{haystack}\\n\\n{question}"}\n'


def cached_of_planned(smoke: bool) -> dict[str, float]:
    """The share of tokens that the server found cached over the share that the plan said, without
    and with the server's RAM cache; nothing without a server."""
    binary, package = (
        os.environ.get(f"NEEDLEMAP_{name}", "") for name in ("LLAMA_SERVER", "GGUF_CONVERTER")
    )
    if not binary or not package:
        return {}
    sys.path.insert(0, str(REAL))
    from conftest import Servers

    with TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder / "model", layers=2, hidden=64, positions=POSITIONS)
        (folder / "chat.yaml").write_text(_CHAT)
        gguf = folder / "random.gguf"
        command = [sys.executable, REAL / "convert.py", package, folder / "model", gguf]
        subprocess.run([str(word) for word in command], check=True, capture_output=True)
        size = ("-c", SLOTS * POSITIONS, "-np", SLOTS, "-t", 1, "-tb", 1)
        where = ("--alias", "random", "--jinja", "--host", "127.0.0.1", "--port")
        found = {}
        for memory, flags in (("no RAM cache", ("--cache-ram", 0)), ("RAM cache", ())):
            servers = Servers(folder)
            try:
                served = servers.start("random", binary, "-m", gguf, *size, *flags, *where)
                found[memory] = _shares(folder, served.base_url, folder / memory, smoke)
            finally:
                servers.end()
    return found


def _shares(folder: Path, base_url: str, out: Path, smoke: bool) -> float:
    run = needlemap.run(
        model="openai/random",
        base_url=base_url,
        tokenizer=str(folder / "model"),
        template=str(folder / "chat.yaml"),
        lengths="300:900:4" if smoke else "400:4k:10",
        depths="0:100:4" if smoke else "0:100:10",
        max_answer_tokens=8,
        concurrency=SLOTS,
        canary=False,
        quiet=True,
        out=out,
    )
    records = run.records()
    sent = sum(record.prompt_tokens for record in records)
    planned = sum(record.prompt.tokens for record in records)
    cached = sum(record.cached_tokens or 0 for record in records)
    shared = sum(record.shared_tokens or 0 for record in records)
    return (cached / sent) / (shared / planned)
