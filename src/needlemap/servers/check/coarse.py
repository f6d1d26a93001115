"""A coarse cache told from a fault, where a server of the gauge moves margins.

The package's NumPy engine computes some of the prompts again with rounded keys and values. What
moves margins as rounding does is a coarse cache: a choice. All else is a fault, also mantissas
that are cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from needlemap.servers.check.ask import FIRST, FIRST_BESIDE, Answers
from needlemap.servers.check.effects import middle
from needlemap.servers.check.finding import AtSize
from needlemap.servers.check.judge import Checked, settle, unmeasured
from needlemap.servers.check.margins import Margins, alike_margins, nats_apart
from needlemap.servers.gauge.cache import COARSER, CoarseEngine, Round, fp8_cut_off
from needlemap.servers.gauge.checkpoint import REFERENCE, load_engine
from needlemap.servers.gauge.model import NAME, GaugeModel
from needlemap.stats.verdicts import FAIL, SUSPECT, Word

if TYPE_CHECKING:
    from needlemap.models.demo import NumpyEngine
    from needlemap.models.walk import Ids
    from needlemap.prompts import Prompt
    from needlemap.servers.check.families import Asker

Nats = NDArray[np.float64]
Cache = Literal["", "coarser", "cut off"]
PROMPTS = 8  # that are computed again
# Correlation of moves from which on they are of one kind: with another kind's it was 0.6 at most.
# A server in bfloat16 that cut mantissas off had 0.79, as its other noise is in the moves too.
ALIKE = 0.7
LEFT = 0.5  # share of the moves that a cache leaves unexplained, at most


@dataclass(frozen=True, slots=True)
class Moved:
    """A prompt with the server's answer, and by how many nats its margins moved, by token."""

    ids: Ids
    answer: Ids
    nats: Nats


def judge_cache(asker: Asker, checked: Checked, answers: Answers) -> Checked:
    """The verdict, in which margins that a coarse cache moved are no fault, unless the cache
    was said to be as fine as the weights."""
    found = next((each for each in checked.findings if each.probe == "reference"), None)
    if found is None or found.state != FAIL or asker.reference != REFERENCE:
        return checked
    if any(row.lost for row in found.sizes):
        return checked
    if not (cache := cache_of(moved_prompts(asker, answers))):
        return checked
    probe = asker.schedule.probes["reference"]
    exact = asker.schedule.options.exact
    rows = [said_of(row, answers, cache, exact=exact) for row in found.sizes]
    told = probe.whole(rows, found.accepted)
    told = replace(told, tokens=found.tokens, seconds=found.seconds)
    findings = [told if each is found else each for each in checked.findings]
    return settle(asker.schedule, findings, unmeasured(answers))


def said_of(row: AtSize, answers: Answers, cache: Cache, *, exact: bool) -> AtSize:
    """A row that failed by its margins, as that cache explains it."""
    if row.state != FAIL:
        return row
    pairs = answers.same_prompt(row.size, FIRST_BESIDE, FIRST)
    apart = (nats_apart(there.margins, here.margins) for there, here in pairs)
    moved = middle([nats for nats in apart if nats is not None])
    by = f"{moved.value:.2g} [{moved.low:.2g}, {moved.high:.2g}]" if moved else "0"
    if cache == "cut off":
        said = f"the cache's mantissas are cut off: margins move by {by} nats a token"
    else:
        said = f"cache coarser than the weights by {by} nats a token"
    state: Word = FAIL if exact or cache == "cut off" else SUSPECT
    return replace(row, state=state, effect=moved, said=said)


def cache_of(moved: Sequence[Moved]) -> Cache:
    """The cache that moves margins as a server did; '' where none does."""
    if not moved:
        return ""
    nats = np.concatenate([each.nats for each in moved])
    exact = load_engine()
    right = [computed(exact, each) for each in moved]

    def likeness(rounded: Round) -> float:
        engine = CoarseEngine(rounded)
        made = [computed(engine, each) - own for each, own in zip(moved, right, strict=True)]
        return explained(nats, np.concatenate(made))

    cut_off, coarser = likeness(fp8_cut_off), max(map(likeness, COARSER))
    if max(cut_off, coarser) < ALIKE:
        return ""
    return "cut off" if cut_off > coarser else "coarser"


def explained(nats: Nats, made: Nats) -> float:
    """How alike moves of margins are to those that a cache makes: their correlation, which
    heeds no move that all tokens share; 0 where the cache leaves more than half of them.

    >>> moves = np.array([0.5, -1.0, 0.2, -0.4])
    >>> round(explained(moves, 0.9 * moves), 2), explained(moves, -moves)
    (1.0, 0.0)
    >>> round(explained(np.array([1.0, 1.1, 1.0, 1.1]), np.array([0.7, 0.7, 1.3, 1.3])), 2)
    0.0
    """
    left = np.abs(nats - made).mean() > LEFT * np.abs(nats).mean()
    if left or not np.std(nats) or not np.std(made):
        return 0.0
    return max(0.0, float(np.corrcoef(nats, made)[0, 1]))


def moved_prompts(asker: Asker, answers: Answers) -> list[Moved]:
    """The first prompts of the shortest size, with the server's margins beside the
    reference's."""
    size, found = asker.schedule.sizes[0], list[Moved]()
    for there, here in answers.same_prompt(size, FIRST_BESIDE, FIRST):
        if there.right and here.right and len(found) < PROMPTS:
            trial = asker.experiment([here.ask])[here.ask.key]
            prompt = asker.elsewhere(there.ask, trial)[1].prompt
            found += moved_prompt(prompt, here.answer, there.margins, here.margins)
    return found


def moved_prompt(
    prompt: Prompt, answer: str, there: Margins | None, here: Margins | None
) -> Sequence[Moved]:
    """A prompt as the reference is fed it, with the margins of both, as far as both say the
    same; none without margins."""
    alike = alike_margins(there, here)
    if not alike:
        return ()
    model = GaugeModel(NAME)
    ids = model.answer_ids(prompt, answer)[: len(alike)]
    nats = np.array([right - left for left, right in alike[: len(ids)]])
    return (Moved(model.prompt_ids(prompt), ids, nats),)


def computed(engine: NumpyEngine, moved: Moved) -> Nats:
    """By how many nats each token of an answer is likelier than the likeliest other."""
    engine.crop(0)
    ids, answer = moved.ids, moved.answer
    logits = engine.extend_all(np.concatenate([ids, answer[:-1]]).astype(np.int32))[-len(answer) :]
    at = np.arange(len(answer)), answer
    own = logits[at].astype(np.float64)
    logits[at] = -np.inf
    margins: Nats = own - logits.max(axis=-1)
    return margins
