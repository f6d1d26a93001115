"""Reproduce OpenCompass' needle test (CDME, December 2023 to February 2024) byte for byte.

`load` returns the prompts of one cell, with one needle or several. `generate` writes the first
version's files. `score` does what its evaluators do. `depth_percents` and `script_depth_percents`
return its depth lists. Its habits are kept: characters are split at cuts, a short file gives a
short context, needle lengths count twice if there are several needles, and in the second evaluator
a keyword is worth everything. Its wording is not part of needlemap: pass `template`. Two things
differ: special-token text (`<|endoftext|>`) is plain text, while the original raises, and files are
read in the order of `file_list`, while the original takes the file system's order.
"""

from needlemap.interop.opencompass.prompts import load
from needlemap.interop.opencompass.scoring import score
from needlemap.interop.opencompass.script import depth_percents, generate, script_depth_percents

__all__ = [
    "depth_percents",
    "generate",
    "load",
    "score",
    "script_depth_percents",
]
