"""Questions that give their own answers away: whoever repeats the question is right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from needlemap.errors import SettingsError
from needlemap.tasks.base import Item


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


def _holds(question: str, texts: Sequence[str]) -> bool:
    wanted = [text.strip().lower() for text in texts if text.strip()]
    return bool(wanted) and all(text in question.lower() for text in wanted)
