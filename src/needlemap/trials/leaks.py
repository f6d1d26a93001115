"""Answers that leak: haystacks that hold them already, questions that give them away, words in
no answer."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from itertools import groupby, takewhile
from typing import TYPE_CHECKING

from needlemap.errors import HaystackError, SettingsError
from needlemap.scorers import Scorer
from needlemap.sync import result_at_once
from needlemap.tasks import Item, Reference
from needlemap.text import held as holds_word
from needlemap.text import plain
from needlemap.text.tokens import TokenText

if TYPE_CHECKING:
    from needlemap.trials import Trial

_REWARDED = 0.5  # of a score: by edit distance a near miss comes to .9
_RUNS = bytes(  # ASCII but letters, digits, - and _ becomes a space
    code if code >= 128 or chr(code).isalnum() or chr(code) in "-_" else 32 for code in range(256)
)
_MEND = "Give one that does with --keywords, or with --answer the answer that holds it."
_MANY = (
    8  # words, for which searching the text each time takes longer than looking at its runs once
)


class Held:
    """What a haystack holds, in any case: asked a thousand times for the price of one pass
    over its text.

    Texts are cut into runs at ASCII's marks and spaces. What has a run that is in none of the
    haystack's is not there; most texts that are asked for have one, and need no search.
    """

    def __init__(self, text: TokenText) -> None:
        self.text = text

    @cached_property
    def _text(self) -> bytes:
        return self.text.data.decode("utf-8", "replace").lower().encode()

    @cached_property
    def _runs(self) -> frozenset[bytes]:
        return frozenset(self._text.translate(_RUNS).split())

    @cached_property
    def _joined(self) -> list[tuple[int, bytes]]:
        """The runs by length, joined: the longest first."""
        runs = sorted(self._runs, key=len, reverse=True)
        return [(size, b" ".join(group)) for size, group in groupby(runs, key=len)]

    def within(self, tokens: int) -> Callable[[str], bool]:
        """Whether a text occurs, also inside words, in the first so many tokens.

        A draw that asks this, and no more, stays what it is when a longer grid needs more
        haystack.
        """
        return partial(self._holds, int(self.text.offsets[min(tokens, len(self.text))]))

    def _holds(self, stop: int, text: str) -> bool:
        wanted = text.lower().encode("utf-8", "replace")
        if not all(map(self._in_a_run, wanted.translate(_RUNS).split())):
            return False
        return self._text.find(wanted, 0, stop) >= 0

    def _in_a_run(self, run: bytes) -> bool:
        if run in self._runs:
            return True
        longer = takewhile(lambda group: group[0] > len(run), self._joined)
        return any(run in group for _, group in longer)


def hidden_words(item: Item, scored: Iterable[str] = ()) -> tuple[str, ...]:
    """What must not stand in the haystack: needles, keywords, answer, and what a scorer looks
    for.

    Or what the item says instead, where answers are of few kinds that the haystack is full of.
    """
    if item.unique is not None:
        return item.unique
    texts = [needle.text.strip() for needle in item.needles]
    return tuple(
        dict.fromkeys([*texts, *item.reference.keywords, *scored, item.reference.answer.strip()])
    )


def collisions(held: Held, stop: int, words: Iterable[str]) -> dict[str, int]:
    """The byte where each word that a haystack's first `stop` tokens hold first occurs, in any
    case."""
    suspects = [word for word in dict.fromkeys(words) if word]
    if len(suspects) > _MANY:
        suspects = list(filter(held.within(stop), suspects))
    if not suspects:
        return {}
    text = bytes(held.text.span(0, stop).data).decode("utf-8", "replace")
    lowered, found = text.lower(), {}
    for word in suspects:
        if word.lower() in lowered:
            match = re.search(re.escape(word), text, re.IGNORECASE)
            found[word] = len(text[: match.start()].encode()) if match else 0
    return found


def collided(name: str, word: str, place: int) -> HaystackError:
    """The error for a word that stands in a trial's haystack, at a byte."""
    return HaystackError(
        f"The haystack '{name}' already holds '{word}' (byte {place}), so an answer could come "
        f"from there. "
        f"Change the needle or the haystack, or allow it with --collisions warn."
    )


def given_away(items: Iterable[Item], words: Sequence[str] = ()) -> list[str]:
    """Questions that hold all that their answers are told by. words: what the scorer looks for
    instead of an item's key words."""
    rows = {
        (item.question, tuple(words) or item.reference.keywords, item.reference.answer)
        for item in items
        if item.reference.keywords or not item.reference.none  # 'none' is offered to everybody
    }
    return sorted(
        {question for question, keys, answer in rows if _gives_away(question, keys or (answer,))}
    )


def refuse_given_away(questions: Sequence[str]) -> None:
    """Raises SettingsError for the first of such questions."""
    if questions:
        raise SettingsError(
            f"The question '{questions[0]}' holds the answer already, so repeating it would be "
            f"right. Change "
            f"--question or --keywords, or allow it with --collisions warn."
        )


def refuse_unheard(items: Iterable[Item], words: Sequence[str]) -> None:
    """Raises SettingsError for a key word that stands in neither needle nor answer: a right
    answer would score as a wrong one. words: what the scorer looks for instead of an item's
    key words."""
    for item in items:
        texts = [
            plain(text)
            for text in (*(needle.text for needle in item.needles), item.reference.answer)
        ]
        for word in words or item.reference.keywords:
            if not any(holds_word(text, plain(word)) for text in texts):
                parts = [part.strip() for part in word.split(",") if part.strip()]
                flags = " ".join(f"--keywords {shlex.quote(part)}" for part in parts)
                advice = f"Several are given as several: {flags}" if len(parts) > 1 else _MEND
                raise SettingsError(
                    f"Key word '{word}' stands in neither the needle nor the answer: no right "
                    f"answer would "
                    f"hold it. {advice}"
                )


def refuse_rewarded(scorer: Scorer, items: Iterable[Item]) -> None:
    """Raises SettingsError for a distractor that the scorer takes for a right answer, or
    nearly one. A scorer that asks somebody, or that fails, is not tried."""
    if scorer.asks or scorer.passes:
        return
    tried = set[tuple[str, str]]()
    for item in items:
        for text in (needle.text for needle in item.needles if needle.wrong):
            if (text, item.reference.answer) in tried:
                continue
            tried.add((text, item.reference.answer))
            share = _score_at_once(scorer, text, item.reference)
            if share is not None and share >= _REWARDED:
                raise SettingsError(
                    f"Scorer '{scorer.name}' gives {100 * share:.0f} of 100 to the distractor "
                    f"'{text}', so a wrong answer would count as right. Say what a right answer "
                    f"must hold: --keywords WORD, with --scorer substring."
                )


def _score_at_once(scorer: Scorer, text: str, reference: Reference) -> float | None:
    """The score of a text, from 0 to 1; None where the scorer waits for something, or
    fails."""
    try:
        return float(result_at_once(scorer.score(text, reference)).share)
    except Exception:
        # The first real answer says it, with its remedy.
        return None


def valueless(distractors: int | Sequence[str], trials: Iterable[Trial]) -> list[str]:
    """What to say of the user's distractors whose values are not known."""
    if isinstance(distractors, int):
        return []
    first = next(iter(trials)).item
    known = len(first.reference.decoys)
    if known >= len(distractors):
        return []
    return [
        f"{len(distractors) - known} of {len(distractors)} distractors show no value of their "
        f"own, so an answer taken from one of them counts as neither. Write the value behind the "
        f"sentence, after a tab"
    ]


def _gives_away(question: str, texts: Sequence[str]) -> bool:
    wanted = [text.strip().lower() for text in texts if text.strip()]
    return bool(wanted) and all(text in question.lower() for text in wanted)
