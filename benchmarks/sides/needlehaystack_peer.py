"""The original tool's side of prompts.py: needlehaystack 0.1.0 itself, or its way of working in our
words.

    python needlehaystack_peer.py FOLDER LENGTHS DEPTHS CELLS package|rewritten

LENGTHS and DEPTHS are JSON lists; of their cells CELLS, evenly spread, are made. Prints JSON: the
CPU seconds of the cells alone. TIKTOKEN_CACHE_DIR must hold cl100k_base.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from time import process_time
from typing import Any

NEEDLE = (
    "\nThe best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny "
    "day.\n"
)
BUFFER_TOKENS = 200
Make = Callable[[int, int], str]


def package(folder: str, lengths: list[int], depths: list[int]) -> Make:
    """The package's own code: one context, as its run makes it."""
    os.environ.setdefault("NIAH_MODEL_API_KEY", "none")  # nothing is asked, but it insists on one
    testers = import_module("needlehaystack.llm_needle_haystack_tester")
    tester: Any = testers.LLMNeedleHaystackTester(
        import_module("needlehaystack.providers").OpenAI("gpt-4"),
        needle=NEEDLE,
        haystack_dir=folder,
        retrieval_question="What is the best thing to do in San Francisco?",
        context_lengths=lengths,
        document_depth_percents=depths,
        final_context_length_buffer=BUFFER_TOKENS,
    )
    loop = asyncio.new_event_loop()
    return lambda length, depth: str(
        loop.run_until_complete(tester.generate_context(length, depth))
    )


class Rewritten:
    """What the package does for each cell: read and count all, trim, tokenise again, insert,
    decode."""

    def __init__(self, folder: str, lengths: list[int]) -> None:
        import tiktoken

        self._encoding = tiktoken.encoding_for_model("gpt-4")
        self._files, self._longest = sorted(Path(folder).glob("*.txt")), max(lengths)

    def __call__(self, length: int, depth: int) -> str:
        """One context."""
        encode, decode = self._encoding.encode, self._encoding.decode
        text = ""
        while len(encode(text)) < self._longest:
            for file in self._files:
                text += file.read_text(encoding="utf-8")
        tokens = encode(text)
        if len(tokens) > length:
            text = decode(tokens[:length])
        needle, tokens = encode(NEEDLE), encode(text)
        room = length - BUFFER_TOKENS
        if len(tokens) + len(needle) > room:
            tokens = tokens[: room - len(needle)]
        at, stop = int(len(tokens) * depth / 100), encode(".")
        while depth != 100 and at and tokens[at - 1] not in stop:
            at -= 1
        return decode(tokens[:at] + needle + tokens[at:])


def main() -> None:
    """Make the cells, say what they cost."""
    folder, lengths, depths, count, way = sys.argv[1:]
    wide, deep = json.loads(lengths), json.loads(depths)
    cells = [(length, depth) for length in wide for depth in deep]
    make: Make = package(folder, wide, deep) if way == "package" else Rewritten(folder, wide)
    wanted = min(int(count), len(cells))
    start, size = process_time(), 0
    for place in range(wanted):
        size += len(make(*cells[place * len(cells) // wanted]).encode())
    print(json.dumps({"cells": wanted, "bytes": size, "cells_cpu_s": process_time() - start}))


if __name__ == "__main__":
    main()
