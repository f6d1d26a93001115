"""Find answers that leak: in haystacks that hold them, and in questions that give them away."""

from __future__ import annotations

import re
import shlex
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from itertools import groupby, takewhile
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from needlemap.errors import HaystackError, SettingsError
from needlemap.scorers import Scorer
from needlemap.sync import result_at_once
from needlemap.tasks import Item, Reference
from needlemap.text import contains, plain
from needlemap.text.tokens import TokenText

if TYPE_CHECKING:
    from needlemap.trials import Trial

# Share of a score from which a distractor counts as right: by edit distance a near miss has .9.
_REWARDED = 0.5
# ASCII but letters, digits, - and _ becomes a space.
_RUNS = bytes(
    code if code >= 128 or chr(code).isalnum() or chr(code) in "-_" else 32 for code in range(256)
)
# ASCII but letters and digits: what a scorer may ignore between the parts of a word, with “ and ”.
_FILLING = bytes(code for code in range(128) if not chr(code).isalnum())
_BETWEEN = "[\\x00-/:-@\\[-`{-\\x7f“”]*"
# Pieces of so many bytes are looked up by hashes of so many kinds: 16 MB a haystack.
_PIECE = 6
_HASHES = 1 << 24
# Characters next to a match by which a scorer decides that it is whole. It is more than the scorers
# look back.
_REACH = 64
_MEND = "Give one that does with --keywords, or with --answer the answer that holds it."
# Words from which on looking at the text's runs once is faster than searching the text each time.
_MANY = 8


class Held:
    """A haystack that is searched in any case, and as scorers search it: 51,328 is 51328.

    A thousand questions cost one pass over its text. Texts are cut into runs at ASCII's marks and
    spaces. A text with a run that is in none of the haystack's is not there; most texts have one,
    and need no search.
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
        """Return the runs of each length, joined: the longest first."""
        runs = sorted(self._runs, key=len, reverse=True)
        return [(size, b" ".join(group)) for size, group in groupby(runs, key=len)]

    def within(self, tokens: int) -> Callable[[str], bool]:
        """Return a function that is true of texts in the first so many tokens, words' parts too.

        A draw that uses only this does not change if a longer grid needs more haystack.
        """
        return partial(self._holds, int(self.text.offsets[min(tokens, len(self.text))]))

    @cached_property
    def _plain(self) -> str:
        return plain(self.text.data.decode("utf-8", "replace"))

    @cached_property
    def _bare(self) -> bytes:
        return _without_filling(self._plain)

    @cached_property
    def _seen(self) -> NDArray[np.bool_]:
        seen = np.zeros(_HASHES, dtype=np.bool_)
        seen[_hashes(self._bare)] = True
        return seen

    @cached_property
    def _spans(self) -> dict[str, tuple[int, int] | None]:
        return {}

    def span_of(self, word: str) -> tuple[int, int] | None:
        """Return the bytes between which a scorer first finds a word, or None if it finds none."""
        if word not in self._spans:
            self._spans[word] = self._find_span(plain(word))
        return self._spans[word]

    def _find_span(self, word: str) -> tuple[int, int] | None:
        bare_word = _without_filling(word)
        if not bare_word:
            return None
        # A word that is not there without its spaces and marks is not there. Nearly all have a
        # piece that is not, and need no search.
        if len(self._spans) >= _MANY and not self._seen[_hashes(bare_word)].all():
            return None
        if bare_word not in self._bare:
            return None

        pattern = _BETWEEN.join(map(re.escape, bare_word.decode("utf-8", "replace")))
        for match in re.finditer(pattern, self._plain):
            start, end = match.span()
            if contains(self._plain[max(0, start - _REACH) : end + _REACH], word):
                return self._byte_of(start), self._byte_of(end)
        return None

    def _byte_of(self, place: int) -> int:
        """Return the byte of a place in the plain text, which may be longer or shorter."""
        if self.text.data.isascii():
            return place
        text = self.text.data.decode("utf-8", "replace")
        lengths = range(len(text) + 1)
        index = bisect_left(lengths, place, key=lambda length: len(plain(text[:length])))
        return len(text[:index].encode())

    def _holds(self, stop: int, text: str) -> bool:
        word_bytes = text.lower().encode("utf-8", "replace")
        is_there = all(map(self._in_a_run, word_bytes.translate(_RUNS).split()))
        if is_there and self._text.find(word_bytes, 0, stop) >= 0:
            return True
        span = self.span_of(text)
        return span is not None and span[1] <= stop

    def _in_a_run(self, run: bytes) -> bool:
        if run in self._runs:
            return True
        longer = takewhile(lambda group: group[0] > len(run), self._joined)
        return any(run in group for _, group in longer)


def _without_filling(text: str) -> bytes:
    """Return a plain text without what a scorer may ignore in a word."""
    text = text.replace("“", "").replace("”", "")
    return text.encode("utf-8", "replace").translate(None, _FILLING)


def _hashes(data: bytes) -> NDArray[np.uint32]:
    """Return a hash of each piece of some bytes, below _HASHES: FNV-1's."""
    size = max(0, len(data) - _PIECE + 1)
    codes = np.frombuffer(data, dtype=np.uint8).astype(np.uint32)
    hashes = np.zeros(size, dtype=np.uint32)
    for index in range(_PIECE if size else 0):
        hashes = hashes * np.uint32(0x01000193) ^ codes[index : index + size]
    return (hashes ^ hashes >> np.uint32(24)) & np.uint32(_HASHES - 1)


def hidden_words(item: Item, scored: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the texts that must not stand in the haystack.

    If the item names such texts, return these: its answers may be of a few kinds that the haystack
    is full of. If not, return its needles, keywords and answer, and what a scorer looks for.
    """
    if item.unique is not None:
        return item.unique
    needles = [needle.text.strip() for needle in item.needles]
    texts = [*needles, *item.reference.keywords, *scored, item.reference.answer.strip()]
    return tuple(dict.fromkeys(texts))


def collisions(held: Held, stop: int, words: Iterable[str]) -> dict[str, int]:
    """Return the words that a haystack's first `stop` tokens hold, each with its first byte.

    Upper and lower case are the same, and so is what a scorer takes as the same: an answer that
    repeats it would be right.
    """
    suspects = [word for word in dict.fromkeys(words) if word]
    if len(suspects) > _MANY:
        suspects = list(filter(held.within(stop), suspects))
    if not suspects:
        return {}
    text = bytes(held.text.span(0, stop).data).decode("utf-8", "replace")
    lowered = text.lower()
    first_byte = {}
    for word in suspects:
        if word.lower() in lowered:
            match = re.search(re.escape(word), text, re.IGNORECASE)
            first_byte[word] = len(text[: match.start()].encode()) if match else 0
            continue
        span = held.span_of(word)
        if span is not None and span[1] <= held.text.offsets[stop]:
            first_byte[word] = span[0]
    return first_byte


def collision_error(name: str, word: str, place: int) -> HaystackError:
    """Return the error for a word that stands in a trial's haystack. place: its byte."""
    return HaystackError(
        f"The haystack '{name}' already holds '{word}' (byte {place}), so an answer could come "
        "from there. Change the needle or the haystack, or allow it with --collisions warn."
    )


def given_away(items: Iterable[Item], words: Sequence[str] = ()) -> list[str]:
    """Return the questions that hold all that a right answer must hold.

    words: what the scorer looks for in place of an item's key words.
    """
    questions = set[str]()
    for item in items:
        reference = item.reference
        # The answer 'none' stands in every question that allows it.
        if reference.none and not reference.keywords:
            continue
        right_words = words or reference.keywords or (reference.answer,)
        if item.question not in questions and _gives_away(item.question, right_words):
            questions.add(item.question)
    return sorted(questions)


def refuse_given_away(questions: Sequence[str]) -> None:
    """Raise SettingsError for the first of such questions."""
    if questions:
        raise SettingsError(
            f"The question '{questions[0]}' holds the answer already, so repeating it would be "
            "right. Change --question or --keywords, or allow it with --collisions warn."
        )


def refuse_unheard(items: Iterable[Item], words: Sequence[str]) -> None:
    """Raise SettingsError for a key word that stands in neither needle nor answer.

    A right answer would score as a wrong one. words: what the scorer looks for in place of an
    item's key words.
    """
    for item in items:
        texts = [plain(needle.text) for needle in item.needles]
        texts.append(plain(item.reference.answer))
        for word in words or item.reference.keywords:
            if any(contains(text, plain(word)) for text in texts):
                continue
            advice = _MEND
            parts = [part.strip() for part in word.split(",") if part.strip()]
            if len(parts) > 1:
                flags = " ".join(f"--keywords {shlex.quote(part)}" for part in parts)
                advice = f"Several are given as several: {flags}"
            raise SettingsError(
                f"Key word '{word}' stands in neither the needle nor the answer: no right answer "
                f"would hold it. {advice}"
            )


def refuse_rewarded(scorer: Scorer, items: Iterable[Item]) -> None:
    """Raise SettingsError for a distractor that scores as a right answer, or nearly so.

    A scorer that sends requests, or that fails, is not tried.
    """
    if scorer.asks or scorer.passes:
        return
    tried = set[tuple[str, str]]()
    for item in items:
        for needle in item.needles:
            text = needle.text
            if not needle.wrong or (text, item.reference.answer) in tried:
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
    """Return the score of a text, a share, or None if the scorer waits for something, or fails."""
    try:
        return float(result_at_once(scorer.score(text, reference)).share)
    except Exception:
        # The first real answer reports it, with its remedy.
        return None


def valueless(distractors: int | Sequence[str], trials: Iterable[Trial]) -> list[str]:
    """Return a note on the user's distractors whose values are not known."""
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
    right_texts = [text.strip().lower() for text in texts if text.strip()]
    return bool(right_texts) and all(
        text in question.lower() or contains(plain(question), plain(text)) for text in right_texts
    )
