"""Distinguish a coarse cache from a fault if a server of the gauge moves margins.

The package's NumPy engine computes some of the prompts again with rounded keys and values. If the
server moves margins as rounding does, it has a coarse cache, which is a choice. Any other move is a
fault, also one by mantissas that are cut off.
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
from needlemap.servers.check.judge import Checked, settle
from needlemap.servers.check.margins import Margins, equal_token_margins, nats_apart
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
# Moves with this correlation or more are of one kind. With another kind's it was 0.6 at most.
# A server in bfloat16 that cut mantissas off had 0.79, as its other noise is in the moves too.
ALIKE = 0.7
# The largest share of the moves that a cache may leave unexplained.
UNEXPLAINED = 0.5


@dataclass(frozen=True, slots=True)
class MovedPrompt:
    """A prompt with the server's answer, and the move of each token's margin in nats."""

    ids: Ids
    answer: Ids
    nats: Nats


def judge_cache(asker: Asker, checked: Checked, answers: Answers) -> Checked:
    """Return the outcome in which margins that a coarse cache moved are not a fault.

    If --kv exact was given, they stay a fault. If no cache explains the moves, the outcome is
    unchanged.
    """
    reference = next((row for row in checked.findings if row.probe == "reference"), None)
    if reference is None or reference.state != FAIL or asker.reference != REFERENCE:
        return checked
    # A cache of four bits loses an answer now and then, which is found when asked again.
    if any(row.lost > row.noise for row in reference.sizes):
        return checked
    cache = find_cache(moved_prompts(asker, answers))
    if not cache:
        return checked

    exact = asker.schedule.options.exact
    rows = [explain_row(row, answers, cache, exact=exact) for row in reference.sizes]
    probe = asker.schedule.probes["reference"]
    explained_finding = replace(
        probe.whole(rows, reference.accepted),
        tokens=reference.tokens,
        seconds=reference.seconds,
    )
    findings = [
        explained_finding if finding is reference else finding for finding in checked.findings
    ]
    return settle(asker.schedule, findings, answers)


def explain_row(row: AtSize, answers: Answers, cache: Cache, *, exact: bool) -> AtSize:
    """Return a row that names the cache, if it failed by its margins.

    exact: whether a cache coarser than the weights is a fault.
    """
    if row.state != FAIL:
        return row
    pairs = answers.same_prompt(row.size, FIRST_BESIDE, FIRST)
    moves = (nats_apart(reference.margins, server.margins) for reference, server in pairs)
    effect = middle([nats for nats in moves if nats is not None])
    by = f"{effect.value:.2g} [{effect.low:.2g}, {effect.high:.2g}]" if effect else "0"
    if cache == "cut off":
        sentence = f"the cache's mantissas are cut off: margins move by {by} nats a token"
    else:
        sentence = f"cache coarser than the weights by {by} nats a token"
    if row.lost:
        sentence += f", {row.lost} of {row.n} lost and found when asked again"
    state: Word = FAIL if exact or cache == "cut off" else SUSPECT
    return replace(row, state=state, effect=effect, said=sentence)


def find_cache(prompts: Sequence[MovedPrompt]) -> Cache:
    """Return the cache that moves margins as a server did, or '' if none does."""
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
        return likeness_of_moves(nats, np.concatenate(moves))

    cut_off = likeness(fp8_cut_off)
    coarser = max(map(likeness, COARSER))
    if max(cut_off, coarser) < ALIKE:
        return ""
    return "cut off" if cut_off > coarser else "coarser"


def likeness_of_moves(nats: Nats, cache_nats: Nats) -> float:
    """Return the likeness of moves of margins to those by a cache, from 0 to 1.

    It is their correlation, which ignores a move that all tokens share. If the cache leaves more
    than half of the moves unexplained, it is 0.

    >>> moves = np.array([0.5, -1.0, 0.2, -0.4])
    >>> round(likeness_of_moves(moves, 0.9 * moves), 2), likeness_of_moves(moves, -moves)
    (1.0, 0.0)
    >>> round(likeness_of_moves(np.array([1.0, 1.1, 1.0, 1.1]), np.array([0.7, 0.7, 1.3, 1.3])), 2)
    0.0
    """
    leaves_too_much = np.abs(nats - cache_nats).mean() > UNEXPLAINED * np.abs(nats).mean()
    if leaves_too_much or not np.std(nats) or not np.std(cache_nats):
        return 0.0
    return max(0.0, float(np.corrcoef(nats, cache_nats)[0, 1]))


def moved_prompts(asker: Asker, answers: Answers) -> list[MovedPrompt]:
    """Return first prompts of the smallest size, with the moves of the server's margins.

    They are at most PROMPTS, which both the server and the reference answered right.
    """
    prompts = list[MovedPrompt]()
    for reference, server in answers.same_prompt(asker.schedule.sizes[0], FIRST_BESIDE, FIRST):
        if not (reference.right and server.right) or len(prompts) >= PROMPTS:
            continue
        trial = asker.experiment([server.ask])[server.ask.key]
        _, reference_trial = asker.reference_trial(reference.ask, trial)
        prompts += moved_prompt(
            reference_trial.prompt,
            server.answer,
            reference_margins=reference.margins,
            server_margins=server.margins,
        )
    return prompts


def moved_prompt(
    prompt: Prompt,
    answer: str,
    reference_margins: Margins | None,
    server_margins: Margins | None,
) -> Sequence[MovedPrompt]:
    """Return a prompt as the reference is sent it, with the moves of the answer's margins.

    The answer is taken as far as those of the reference and of the server are equal, and both have
    margins. If that is not even its first token, the result is ().
    """
    moves = list[float]()
    for reference, server in equal_token_margins(reference_margins, server_margins):
        if reference is None or server is None:
            break
        moves.append(server - reference)
    if not moves:
        return ()
    model = GaugeModel(NAME)
    answer_ids = model.answer_ids(prompt, answer)[: len(moves)]
    nats = np.array(moves[: len(answer_ids)])
    return (MovedPrompt(ids=model.prompt_ids(prompt), answer=answer_ids, nats=nats),)


def margins_by(engine: NumpyEngine, prompt: MovedPrompt) -> Nats:
    """Return by how many nats each token of an answer is likelier than the likeliest other."""
    engine.crop(0)
    answer = prompt.answer
    ids = np.concatenate([prompt.ids, answer[:-1]]).astype(np.int32)
    logits = engine.extend_all(ids)[-len(answer) :]
    places = np.arange(len(answer)), answer
    answer_logits = logits[places].astype(np.float64)
    logits[places] = -np.inf
    margins: Nats = answer_logits - logits.max(axis=-1)
    return margins
