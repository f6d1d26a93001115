"""Finding a tokenizer by name: a file or folder, a bundled vocabulary, a model's name, the hub.

There is never a substitute: what cannot be found is an error that names every place looked at.
Bundled are those that come with the core dependency quicktok: OpenAI's, Llama 3's and Qwen's,
offline.
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
