"""Questions that give their own answers away, and key words that no right answer would hold."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from needlemap.errors import SettingsError
from needlemap.scorers.matching import held, plain
from needlemap.tasks.base import Item

_MEND = "Give one that does with --keywords, or with --answer the answer that holds it."


def given_away(items: Iterable[Item], words: Sequence[str] = ()) -> list[str]:
    """Questions that hold all that their answers are told by. words: what the scorer looks for instead of an
    item's key words."""
    rows = {
        (item.question, tuple(words) or item.reference.keywords, item.reference.answer)
        for item in items
        if item.reference.keywords or not item.reference.none  # 'none' is offered to everybody
    }
    return sorted({question for question, keys, answer in rows if _holds(question, keys or (answer,))})


def refuse_given_away(questions: Sequence[str]) -> None:
    """Raises SettingsError for the first of such questions."""
    if questions:
        raise SettingsError(
            f"The question '{questions[0]}' holds the answer already, so repeating it would be right. Change "
            f"--question or --keywords, or allow it with --collisions warn."
        )


def refuse_unheard(items: Iterable[Item], words: Sequence[str]) -> None:
    """Raises SettingsError for a key word that stands in neither needle nor answer: a right answer would
    score as a wrong one. words: what the scorer looks for instead of an item's key words."""
    for item in items:
        texts = [plain(text) for text in (*(needle.text for needle in item.needles), item.reference.answer)]
        for word in words or item.reference.keywords:
            if not any(held(text, plain(word)) for text in texts):
                parts = [part.strip() for part in word.split(",") if part.strip()]
                flags = " ".join(f"--keywords {shlex.quote(part)}" for part in parts)
                advice = f"Several are given as several: {flags}" if len(parts) > 1 else _MEND
                raise SettingsError(
                    f"Key word '{word}' stands in neither the needle nor the answer: no right answer would "
                    f"hold it. {advice}"
                )


def _holds(question: str, texts: Sequence[str]) -> bool:
    wanted = [text.strip().lower() for text in texts if text.strip()]
    return bool(wanted) and all(text in question.lower() for text in wanted)
