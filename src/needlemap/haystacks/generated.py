"""The `generated` haystack: prose from a seed, in English or Chinese, as long as you like.

Essays, letters, diaries, reports, chronicles and town guides about invented people, full of small facts,
so that a needle is not the only concrete sentence. It needs no download and quotes nobody. It does not tell
a true or a long story: each document stands alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from needlemap.errors import SettingsError, did_you_mean
from needlemap.haystacks.base import Document
from needlemap.haystacks.prose import document

LANGUAGES = {"english": "english", "en": "english", "chinese": "chinese", "zh": "chinese"}


class Generated:
    """Invented prose from (language, seed, index), without end: the same bytes on any machine.

    language: 'english' ('en') or 'chinese' ('zh'), in any case. Raises SettingsError for another.
    """

    endless = True

    def __init__(self, *, language: str = "english", seed: int = 0) -> None:
        known = LANGUAGES.get(language.lower())
        if known is None:
            hint = did_you_mean(language.lower(), LANGUAGES)
            raise SettingsError(f"The generated haystack does not write '{language}'. {hint}")
        self.language = known
        self.seed = seed
        self.name = f"generated/{known}"

    def document(self, index: int) -> Document:
        """Document `index`, counted from 0, made without those before it."""
        return Document(f"{self.name}/{self.seed}/{index}", document(self.language, self.seed, index))

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Documents first, first + 1, ... without end."""
        return map(self.document, count(first))
