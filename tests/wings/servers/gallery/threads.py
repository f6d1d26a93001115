"""Public threads of 2026 on long contexts that went wrong in silence: what each is, which probe of
`check` sees its kind, and the fault of the gallery that stands for it; or the fault of `storm`'s
engine in a box.

The gallery's faults are a few lines of ours, not the engines' code: a thread is covered where the
fault that stands for it is found.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thread:
    """where: repository and number. what: went wrong. probe: that sees this kind; '' where none
    does. fault: of the gallery, '' without one. storm: the fault that stands for it there; missed:
    whether storms of it ended without finding it."""

    where: str
    what: str
    probe: str = ""
    fault: str = ""
    storm: str = ""
    missed: bool = False


THREADS = (
    Thread(
        "vllm#53912, #51571",
        "a count of another request, drafts on hybrids",
        storm="decoded-rows",
        missed=True,
    ),
    Thread("vllm-ascend#13863", "the same, 2 of 512 with a full cache", storm="full-cache"),
    Thread("vllm#47087", "loops in deep conversations with drafts", storm="endless"),
    Thread("vllm#50188", "equal prompts, other answers", "same", "race-over-rows"),
    Thread("vllm#52109", "a sparse indexer that loses keys", "reference", "best-sixteen-keys"),
    Thread(
        "vllm#52617", "rows of another place from first token on", "reference", "offsets-that-wrap"
    ),
    Thread(
        "vllm#51039", "no numbers behind a long prefill until a restart", "length", storm="poisoned"
    ),
    Thread("vllm#41292", "state in a wrong layout between chunks", "reference", "two-chunks-only"),
    Thread("vllm#50576", "one band of lengths is wrong", "reference", "one-band-of-lengths"),
    Thread("vllm#42426", "garbage when the cache is nearly full", storm="salad"),
    Thread("sglang#34947", "one long extend computes no attention", "onset", "one-long-extend"),
    Thread("sglang#29633", "hits of one length modulo 64", "pattern", "one-length-in-four"),
    Thread("sglang#22819", "a prefix of exactly 64 tokens", storm="edge"),
    Thread("sglang#23392", "a cancel spoils other requests", storm="double-free"),
    Thread("sglang#23020", "right and wrong in turn, ever more often", "same", "race-over-rows"),
    Thread("sglang#38031, #38212", "loaded back without its index", storm="load-back"),
    Thread("sglang#27504", "garbled when loaded from a third tier", storm="third-tier"),
    Thread("sglang#22688", "a batch whose prefixes differ", "load", "wrong-under-load"),
    Thread(
        "LMCache#4247", "a shared prefix read back wrong", "cache", "read-back-in-another-layout"
    ),
    Thread("Mooncake#4153", "a hit of a part is another prompt's", "cache", "last-block-of-a-hit"),
    Thread("local-inference-lab/vllm#402", "a wrong local hit", "cache", "last-block-of-a-hit"),
    Thread("mlx-lm#1494", "a longer prompt's cache for a shorter one", storm="trim"),
    Thread("mlx-vlm#1715, #1748", "a rotating cache cut at a wrong place", storm="sliced"),
    Thread("mlx-vlm#2162", "a quantised cache ends answers at once", "reference", "four-bit-cache"),
    Thread("mlx-lm#1914", "a window that is never left", "reference", "window-never-left"),
    Thread("llama.cpp#26185", "state of another prefix from turn 2 on", storm="turn"),
    Thread("claude-code-local#47", "a hit of a wrong length", "ways", "off-by-one-after-a-hit"),
    Thread(
        "ik_llama.cpp#2045, #2095",
        "sparse attention garbles at 10k",
        "reference",
        "best-sixteen-keys",
    ),
    Thread("omlx#2355", "a prefill that skips tokens", "reference", "last-tokens-only"),
    Thread(
        "TensorRT-LLM#12673",
        "chunks and reuse count other tokens",
        "ways",
        "off-by-one-after-a-hit",
    ),
)
