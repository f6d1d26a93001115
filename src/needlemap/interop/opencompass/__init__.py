"""OpenCompass' needle test (CDME, December 2023 to February 2024), byte for byte, over
needlemap's own core.

`load`: the prompts of one cell, single or multi needle. `generate`: the first version's files.
`score`: its evaluators. `depth_percents`, `script_depth_percents`: its depth lists. Its habits
are kept: characters are split at cuts, a short file gives a short context, needle lengths
count twice in multi needle; the second evaluator takes a keyword that is worth everything. Its
wording is not here: pass `template`. Two things differ: special-token text (`<|endoftext|>`)
is plain text where the original raises, and files are read in the order of `file_list`, where
the original takes the file system's.
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
