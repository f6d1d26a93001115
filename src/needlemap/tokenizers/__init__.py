"""Find a tokenizer by name: a file or folder, a bundled vocabulary, a model's name, or the hub.

There is never a substitute: if nothing is found, the error names every place that was looked at.
Bundled vocabularies come with quicktok, which the core requires: OpenAI's, Llama 3's and Qwen's.
They need no network.
"""

from needlemap.tokenizers.bundled import BUNDLED, Bundled, Keyed
from needlemap.tokenizers.finding import bundled_for, load, path_of

__all__ = [
    "BUNDLED",
    "Bundled",
    "Keyed",
    "bundled_for",
    "load",
    "path_of",
]
