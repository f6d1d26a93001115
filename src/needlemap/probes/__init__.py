"""All probes, in the order in which they are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from needlemap.probes import within
from needlemap.probes.base import ALPHA, Answers, Finding


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing that `check` tries. sees: what it can tell, in a line; docs/check.md has what it
    cannot. test: what it makes of the answers, None where they hold nothing of its kind. needs:
    what they
    lack."""

    sees: str
    test: Callable[[Answers], Finding | None]
    needs: str = ""


PROBES: Mapping[str, Probe] = {
    "comb": Probe("one length in two, four, eight or sixteen that is computed wrong", within.comb),
    "edges": Probe("a needle that is lost at some places of a block or chunk", within.edges),
    "cache": Probe("a prefix-cache hit that answers worse than a miss", within.cache),
    "nats": Probe(
        "a warm cache under which the same answer is more or less likely",
        within.nats,
        "log-probabilities, which the server does not give",
    ),
    "same": Probe("the same prompt answered right and wrong in turn", within.same),
    "load": Probe("answers that are lost among other prompts", within.load),
    "mates": Probe("answers that hold the value of somebody else's prompt", within.mates),
    "cut": Probe("a prompt whose head was cut off without a word", within.cut),
    "window": Probe(
        "a context that ends before what was promised, or cuts what is longer",
        within.window,
        "a server that tells its context, of at most --max-length, and the model's own vocabulary",
    ),
    "distance": Probe(
        "needles that are lost far from the question (a window, a rotary scale)", within.distance
    ),
    "stop": Probe("answers that never end behind long prompts", within.stop),
    "reference": Probe(
        "all that is wrong cold and warm, alone and loaded alike: windows, positions, quantised "
        "caches",
        within.reference,
    ),
}


LEAST = 6  # answers or pairs without which no probe passes


def examined(name: str, answers: Answers) -> Finding | None:
    """What a probe makes of the answers so far. Few of them show a fault, but never that there is
    none."""
    found = PROBES[name].test(answers)
    if found is None or found.state != "pass" or found.n >= LEAST:
        return found
    said = f"{found.said}: {found.n} are too few to tell, {LEAST} are the least"
    return replace(found, state="undecided", said=said)


def level(look: int) -> float:
    """The alpha of one probe at one look, the first being 1, so that a whole check keeps to `ALPHA`
    however often it is looked at: an alpha is split over all looks that there may ever be. A check
    of some probes has no more of it: who asks for one again gets no easier test.

    >>> round(sum(level(look) for look in range(1, 10_000)) * len(PROBES), 4)
    0.01
    """
    return ALPHA / (len(PROBES) * look * (look + 1))
