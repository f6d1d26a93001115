"""A Hugging Face Llama folder as a GGUF, by llama.cpp's own converter: convert.py LLAMA_CPP MODEL
OUT.gguf

The converter knows tokenizers by a hash of their splits, ours it does not: it is told which rules
it has.
"""

from __future__ import annotations

import runpy
import sys

RULES = (
    "smollm"  # digits one by one, then GPT-2's: what the trained retriever's tokenizer.json says
)

if __name__ == "__main__":
    root, model, out = sys.argv[1:4]
    sys.path[:0] = [root, f"{root}/gguf-py"]
    from conversion.base import TextModel

    TextModel.get_vocab_base_pre = lambda *_: RULES
    sys.argv = ["convert_hf_to_gguf.py", model, "--outfile", out, "--outtype", "f32"]
    runpy.run_path(f"{root}/convert_hf_to_gguf.py", run_name="__main__")
