"""The original tool's side of memory.py: its run over a few cells, and the most memory that it
took.

    python memory_peer.py FOLDER BASE_URL LENGTHS DEPTHS CONCURRENCY package|rewritten

LENGTHS and DEPTHS are JSON lists. `package`: needlehaystack 0.1.0 itself, with a judge that asks
nobody. `rewritten`: contexts made its way, in our words, and posted one by one. TIKTOKEN_CACHE_DIR
must hold cl100k_base. Prints JSON: the peak resident memory in bytes.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from needlehaystack_peer import BUFFER_TOKENS, NEEDLE, Rewritten

QUESTION = "What is the best thing to do in San Francisco?"


class Judge:
    """An evaluator that finds everything right."""

    def evaluate_response(self, response: str) -> int:
        """Called by the package for each answer."""
        return 10


def package(folder: str, url: str, lengths: list[int], depths: list[int], concurrency: int) -> None:
    """A run of the package's own."""
    os.environ["OPENAI_BASE_URL"] = url
    os.environ.setdefault("NIAH_MODEL_API_KEY", "none")
    testers = import_module("needlehaystack.llm_needle_haystack_tester")
    tester: Any = testers.LLMNeedleHaystackTester(
        import_module("needlehaystack.providers").OpenAI("gpt-4"),
        Judge(),
        needle=NEEDLE,
        haystack_dir=folder,
        retrieval_question=QUESTION,
        context_lengths=lengths,
        document_depth_percents=depths,
        final_context_length_buffer=BUFFER_TOKENS,
        num_concurrent_requests=concurrency,
        save_results=False,
        save_contexts=False,
        print_ongoing_status=False,
    )
    tester.start_test()


def rewritten(folder: str, url: str, lengths: list[int], depths: list[int]) -> None:
    """Its contexts, posted one after another."""
    make = Rewritten(folder, lengths)
    for length in lengths:
        for depth in depths:
            messages = [
                {"role": "user", "content": make(length, depth)},
                {"role": "user", "content": QUESTION},
            ]
            data = json.dumps({"model": "gpt-4", "messages": messages}).encode()
            kind = {"content-type": "application/json"}
            urlopen(Request(f"{url}/chat/completions", data=data, headers=kind)).close()


def main() -> None:
    """Run it, say what it took."""
    folder, url, lengths, depths, concurrency, way = sys.argv[1:]
    wide, deep = json.loads(lengths), json.loads(depths)
    if way == "package":
        package(folder, url, wide, deep, int(concurrency))
    else:
        rewritten(folder, url, wide, deep)
    status = Path("/proc/self/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    print(json.dumps({"peak": int(line.split()[1]) * 1024}))


if __name__ == "__main__":
    main()
