"""What the test server knows: to find the sentence that answers a question, and what it has read
before."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict

SENTENCES = re.compile(r"[^.!?。！？\n]+[.!?。！？]?")
# A question's own words: "Use only what the document says" is no answer to "What is the code?".
ASKING = {"what", "which", "who", "where", "when", "how"}
WORDS = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+")


def find(text: str) -> str:
    """The sentence that best shares words with the text's last question, rare words first."""
    sentences = [found.strip() for found in SENTENCES.findall(text) if found.strip()]
    asked = [sentence for sentence in sentences if sentence[-1] in "?？"] or sentences[-1:]
    if not asked:
        return ""
    wanted = set(WORDS.findall(asked[-1].lower())) - ASKING
    shared = [wanted.intersection(WORDS.findall(sentence.lower())) for sentence in sentences]
    often = Counter(word for words in shared for word in words)
    scores = [
        0.0 if sentence[-1] in "?？" else sum(1 / often[word] for word in words)
        for sentence, words in zip(sentences, shared, strict=True)
    ]
    best = max(range(len(scores)), key=scores.__getitem__)
    return sentences[best] if scores[best] else "I do not know."


def words(text: str) -> int:
    """The server's tokens are words between whitespace."""
    return len(text.split())


class Cache:
    """Prompts read before, the last 64 of them, as a server keeps their keys and values."""

    def __init__(self, size: int = 64) -> None:
        self.size = size
        self.texts: OrderedDict[str, None] = OrderedDict()

    def shared(self, text: str) -> int:
        """Words of the longest prefix that any earlier prompt has in common with this one."""
        end = max((_common(text, earlier) for earlier in self.texts), default=0)
        inside = bool(text[end - 1 : end].strip() and text[end : end + 1].strip())
        return words(text[:end]) - inside

    def longest(self, prefixes: list[str]) -> int:
        """Words of the longest of these prefixes that was kept before."""
        return max((words(prefix) for prefix in prefixes if prefix in self.texts), default=0)

    def keep(self, text: str) -> None:
        """Remember a prompt, or a prefix of one."""
        self.texts[text] = None
        self.texts.move_to_end(text)
        while len(self.texts) > self.size:
            self.texts.popitem(last=False)


def _common(one: str, other: str) -> int:
    """Length of the common prefix, by halving."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low
