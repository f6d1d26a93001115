"""Finding by wording: the question as it stands beside the same question in other words.

A model that finds a fact by matching words loses where the question shares none with it. Each
pair has one haystack and one needle, so the difference is the wording's. Intervals go by
haystack.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from needlemap.maps.difference import Difference, paired_difference
from needlemap.maps.intervals import ClusterMean, rate_of
from needlemap.records.folder import REWORDED, scorer_of
from needlemap.records.loaded import Loaded, kept
from needlemap.reports.labels import interval_label, points, score_label
from needlemap.text import plain, printable

ALL = "all in other words"
_SLOT = re.compile(r"\{[^{}]*\}")
_WORDS = re.compile("[\u2e80-\u9fff\uf900-\ufaff]|[^\\W\u2e80-\u9fff\uf900-\ufaff]+")
Pair = tuple[int, float, float]  # haystack, score as asked, score in other words


@dataclass(frozen=True, slots=True)
class WordingScore:
    """A question in other words. text: as the user wrote it, or ALL. shared: how many of its
    words the needle has, of how many; None of several. score: its own. change: from the
    question as it stands, over the same prompts. unpaired: answers without a score, or without
    one beside it."""

    text: str
    shared: tuple[int, int] | None
    score: ClusterMean
    change: Difference
    unpaired: int


def wordings_of(run: Loaded) -> list[WordingScore]:
    """Each wording of a run, and of several all together; none where none was asked. Records
    by another scorer than the run's do not count."""
    records = kept(run.folder, REWORDED) if run.folder else []
    records = [each for each in records if scorer_of(each) in (None, run.about.scorer.current)]
    asked = {place: prompt.score for prompt in run.prompts for place in prompt.places}
    pairs: dict[str, list[Pair]] = defaultdict(list)
    together: dict[tuple[int, int, float], list[float]] = defaultdict(list)
    unpaired: dict[str, int] = defaultdict(int)
    for record in records:
        place = record.repeat, record.length_tokens, record.depth
        literal = asked.get(place)
        if record.score is None or literal is None:
            unpaired[record.wording] += 1
            continue
        pairs[record.wording].append((_haystack(run, record.repeat), literal, record.score))
        together[place].append(record.score)
    settings = run.about.settings
    written = settings.get("paraphrases")
    order = [text for text in written if text in pairs] if isinstance(written, list) else []
    found = [
        made
        for text in (*order, *(text for text in pairs if text not in order))
        if (made := _wording(text, _shared(text, settings), pairs[text], unpaired[text]))
    ]
    if len(found) > 1:
        rows = [
            (_haystack(run, place[0]), asked[place] or 0.0, sum(scores) / len(scores))
            for place, scores in together.items()
        ]
        whole = _wording(ALL, None, rows, sum(unpaired.values()))
        found += [whole] if whole else []
    return found


def _haystack(run: Loaded, repeat: int) -> int:
    return 0 if run.about.one_haystack else repeat


def _wording(
    text: str, shared: tuple[int, int] | None, rows: Sequence[Pair], unpaired: int
) -> WordingScore | None:
    """What some pairs come to; None without any."""
    groups: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for haystack, literal, other in rows:
        groups[haystack].append((literal, other))
    size = max(map(len, groups.values()), default=0)
    scores = np.full((2, len(groups), size), np.nan)
    for row, group in enumerate(groups.values()):
        scores[:, row, : len(group)] = np.array(group).T
    graded = any(score not in (0.0, 1.0) for _, *both in rows for score in both)
    change = paired_difference(scores[0], scores[1], graded=graded)
    rate = rate_of([(haystack, other) for haystack, _, other in rows])
    return WordingScore(text, shared, rate, change, unpaired) if rate and change else None


def _shared(text: str, settings: Mapping[str, object]) -> tuple[int, int]:
    """How many different words of a wording stand in the needle, of how many; slots are none.

    >>> _shared("Who is {a}?", {"needle": "He is {a}."})
    (1, 2)
    """
    needles = settings.get("needles")
    hidden = [settings.get("needle"), *(needles if isinstance(needles, list) else [])]
    held = {word for each in hidden if isinstance(each, str) for word in _words(each)}
    words = set(_words(text))
    return len(words & held), len(words)


def _words(text: str) -> Iterable[str]:
    """The words of a text, and of Chinese each character."""
    return _WORDS.findall(plain(_SLOT.sub(" ", text)))


def ends_of(change: Difference) -> tuple[float, float]:
    """The ends of a difference's interval, which no difference of scores goes beyond."""
    return max(-1.0, change.low), min(1.0, change.high)


def wording_lines(found: Sequence[WordingScore]) -> list[str]:
    """A line for each wording, behind one for the question as it stands."""
    if not found:
        return []
    whole = found[-1].change
    lines = [f"finding by wording: as asked {score_label(whole.first)} (n={whole.n})"]
    for each in found:
        change = each.change
        text = each.text if each.shared is None else f"'{printable(each.text, line=True)}'"
        shared, size = each.shared or (0, 0)
        words = f", {shared} of {size} words shared" if size else ""
        missing = f", {each.unpaired} not measured" if each.unpaired else ""
        own = f"{score_label(each.score.score)} {interval_label(each.score.low, each.score.high)}"
        low, high = ends_of(change)
        apart = f"{points(change.value)} [{points(low)}, {points(high)}] points"
        lines.append(f"{text}: {own}, {apart} (n={change.n} pairs{words}{missing})")
    return lines
