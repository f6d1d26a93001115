"""The llama.cpp side of prefill.py: four lanes on the four slots of a real server.

A small random Llama is asked a 10 x 10 grid to 4k in mode `exact`, of a server that has no memory
beside its slots. NEEDLEMAP_LLAMA_SERVER and NEEDLEMAP_GGUF_CONVERTER name what it takes
(`eval "$(bash .ci/servers)"`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import needlemap
from tinymodel import write_model

REAL = Path(__file__).resolve().parents[2] / "tests" / "real_servers"
SLOTS, POSITIONS = 4, 4352
_CHAT = 'messages:\n  - {role: user, text: "{haystack}\\n\\n{question}"}\n'


def cached_of_planned(smoke: bool) -> float | None:
    """Tokens that the server found cached over those that the plan said; None without a server."""
    binary, package = (
        os.environ.get(f"NEEDLEMAP_{name}", "") for name in ("LLAMA_SERVER", "GGUF_CONVERTER")
    )
    if not binary or not package:
        return None
    sys.path.insert(0, str(REAL))
    from conftest import Servers

    with TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder / "model", layers=2, hidden=64, positions=POSITIONS)
        (folder / "chat.yaml").write_text(_CHAT)
        gguf = folder / "random.gguf"
        command = [sys.executable, REAL / "convert.py", package, folder / "model", gguf]
        subprocess.run([str(word) for word in command], check=True, capture_output=True)
        size = ("-c", SLOTS * POSITIONS, "-np", SLOTS, "-t", 1, "-tb", 1, "--cache-ram", 0)
        where = ("--alias", "random", "--jinja", "--host", "127.0.0.1", "--port")
        servers = Servers(folder)
        try:
            served = servers.start("random", binary, "-m", gguf, *size, *where)
            run = needlemap.run(
                model="openai/random",
                base_url=served.base_url,
                tokenizer=str(folder / "model"),
                template=str(folder / "chat.yaml"),
                lengths="300:900:4" if smoke else "400:4k:10",
                depths="0:100:4" if smoke else "0:100:10",
                max_answer_tokens=8,
                concurrency=SLOTS,
                canary=False,
                quiet=True,
                out=folder / "run",
            )
        finally:
            servers.end()
        records = run.records()
    cached = sum(record.cached_tokens or 0 for record in records)
    return cached / sum(record.shared_tokens or 0 for record in records)
