"""Tell a coarse cache from a fault if a server of the gauge moves margins.

The package's NumPy engine computes some of the prompts again with rounded keys and values. What
moves margins as rounding does is a coarse cache, which is a choice. All else is a fault, mantissas
that are cut off included.
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
# Prompts that are computed again.
PROMPTS = 8
# Correlation of moves from which on they are of one kind: with another kind's it was 0.6 at most.
# A server in bfloat16 that cut mantissas off had 0.79, as its other noise is in the moves too.
ALIKE = 0.7
# Share of the moves that a cache leaves unexplained, at most.
LEFT = 0.5


@dataclass(frozen=True, slots=True)
class Moved:
    """A prompt with the server's answer, and by how many nats its margins moved, by token."""

    ids: Ids
    answer: Ids
    nats: Nats


def judge_cache(asker: Asker, checked: Checked, answers: Answers) -> Checked:
    """Return the verdict in which margins that a coarse cache moved are no fault.

    They stay a fault if the cache was said to be as fine as the weights.
    """
    reference = next((row for row in checked.findings if row.probe == "reference"), None)
    if reference is None or reference.state != FAIL or asker.reference != REFERENCE:
        return checked
    if any(row.lost for row in reference.sizes):
        return checked
    cache = cache_of(moved_prompts(asker, answers))
    if not cache:
        return checked

    exact = asker.schedule.options.exact
    rows = [explained_row(row, answers, cache, exact=exact) for row in reference.sizes]
    probe = asker.schedule.probes["reference"]
    explanation = replace(
        probe.whole(rows, reference.accepted),
        tokens=reference.tokens,
        seconds=reference.seconds,
    )
    findings = [explanation if finding is reference else finding for finding in checked.findings]
    return settle(asker.schedule, findings, unmeasured(answers))


def explained_row(row: AtSize, answers: Answers, cache: Cache, *, exact: bool) -> AtSize:
    """Return a row that failed by its margins, as that cache explains it."""
    if row.state != FAIL:
        return row
    pairs = answers.same_prompt(row.size, FIRST_BESIDE, FIRST)
    moves = (nats_apart(reference.margins, server.margins) for reference, server in pairs)
    effect = middle([nats for nats in moves if nats is not None])
    by = f"{effect.value:.2g} [{effect.low:.2g}, {effect.high:.2g}]" if effect else "0"
    if cache == "cut off":
        said = f"the cache's mantissas are cut off: margins move by {by} nats a token"
    else:
        said = f"cache coarser than the weights by {by} nats a token"
    state: Word = FAIL if exact or cache == "cut off" else SUSPECT
    return replace(row, state=state, effect=effect, said=said)


def cache_of(prompts: Sequence[Moved]) -> Cache:
    """Return the cache that moves margins as a server did; '' if none does."""
    if not prompts:
        return ""
    nats = np.concatenate([prompt.nats for prompt in prompts])
    engine = load_engine()
    exact_margins = [margins_by(engine, prompt) for prompt in prompts]

    def likeness(rounding: Round) -> float:
        coarse_engine = CoarseEngine(rounding)
        moves = [
            margins_by(coarse_engine, prompt) - exact
            for prompt, exact in zip(prompts, exact_margins, strict=True)
        ]
        return explained(nats, np.concatenate(moves))

    cut_off = likeness(fp8_cut_off)
    coarser = max(map(likeness, COARSER))
    if max(cut_off, coarser) < ALIKE:
        return ""
    return "cut off" if cut_off > coarser else "coarser"


def explained(nats: Nats, cache_nats: Nats) -> float:
    """Return how alike moves of margins are to those that a cache makes.

    It is their correlation, which heeds no move that all tokens share; 0 if the cache leaves more
    than half of the moves unexplained.

    >>> moves = np.array([0.5, -1.0, 0.2, -0.4])
    >>> round(explained(moves, 0.9 * moves), 2), explained(moves, -moves)
    (1.0, 0.0)
    >>> round(explained(np.array([1.0, 1.1, 1.0, 1.1]), np.array([0.7, 0.7, 1.3, 1.3])), 2)
    0.0
    """
    leaves_too_much = np.abs(nats - cache_nats).mean() > LEFT * np.abs(nats).mean()
    if leaves_too_much or not np.std(nats) or not np.std(cache_nats):
        return 0.0
    return max(0.0, float(np.corrcoef(nats, cache_nats)[0, 1]))


def moved_prompts(asker: Asker, answers: Answers) -> list[Moved]:
    """Return first prompts of the shortest size with the server's margins next to the
    reference's."""
    prompts = list[Moved]()
    for reference, server in answers.same_prompt(asker.schedule.sizes[0], FIRST_BESIDE, FIRST):
        if not (reference.right and server.right) or len(prompts) >= PROMPTS:
            continue
        trial = asker.experiment([server.ask])[server.ask.key]
        _, reference_trial = asker.reference_trial(reference.ask, trial)
        prompts += moved_prompt(
            reference_trial.prompt,
            server.answer,
            there=reference.margins,
            here=server.margins,
        )
    return prompts


def moved_prompt(
    prompt: Prompt, answer: str, there: Margins | None, here: Margins | None
) -> Sequence[Moved]:
    """Return a prompt as the reference is fed it, with its moves; () without margins.

    The answer is taken as far as both say the same. there, here: margins of the reference and of
    the server.
    """
    alike = alike_margins(there, here)
    if not alike:
        return ()
    model = GaugeModel(NAME)
    answer_ids = model.answer_ids(prompt, answer)[: len(alike)]
    nats = np.array([server - reference for reference, server in alike[: len(answer_ids)]])
    return (Moved(ids=model.prompt_ids(prompt), answer=answer_ids, nats=nats),)


def margins_by(engine: NumpyEngine, prompt: Moved) -> Nats:
    """Return by how many nats each token of an answer is likelier than the likeliest other."""
    engine.crop(0)
    answer = prompt.answer
    fed = np.concatenate([prompt.ids, answer[:-1]]).astype(np.int32)
    logits = engine.extend_all(fed)[-len(answer) :]
    places = np.arange(len(answer)), answer
    answer_logits = logits[places].astype(np.float64)
    logits[places] = -np.inf
    margins: Nats = answer_logits - logits.max(axis=-1)
    return margins
