"""All probes, in the order in which they are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from needlemap.probes import beside, within
from needlemap.probes.base import ALPHA, Answers, Finding
from needlemap.probes.ways import SIZES


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing that `check` tries. sees, cannot: what it can tell and what it cannot, a line each."""

    sees: str
    cannot: str
    test: Callable[[Answers], Finding]


PROBES: Mapping[str, Probe] = {
    "comb": Probe(
        "one length in two, four, eight or sixteen that is computed wrong",
        "what goes wrong at every length alike",
        within.comb,
    ),
    "edges": Probe(
        "a needle that is lost at some places of a block or chunk",
        "a loss so small that answers stay right",
        within.edges,
    ),
    "cache": Probe(
        "a prefix-cache hit that answers worse than a miss",
        "caches that the server does not have, or was told not to use",
        within.cache,
    ),
    "nats": Probe(
        "a warm cache under which the same answer is more or less likely",
        "servers that give no log-probabilities",
        within.nats,
    ),
    "same": Probe(
        "the same prompt answered right and wrong in turn",
        "what is wrong each time alike",
        within.same,
    ),
    "load": Probe(
        "answers that are lost among other prompts",
        "loads of another kind than long prompts",
        within.load,
    ),
    "mates": Probe(
        "answers that hold the value of somebody else's prompt",
        "leaks that change no answer",
        within.mates,
    ),
    "cut": Probe(
        "a prompt whose head was cut off without a word",
        "a cut of a few tokens on a server that counts none",
        within.cut,
    ),
    "distance": Probe(
        "needles that are lost far from the question (a window, a rotary scale)",
        "whether that is the model or the server: it is never more than undecided",
        within.distance,
    ),
    "stop": Probe(
        "answers that never end behind long prompts",
        "a budget for answers that is too small for the model's habits",
        within.stop,
    ),
    "reference": Probe(
        "all that is wrong cold and warm, alone and loaded alike: windows, positions, quantised caches",
        "a fault that the reference has too",
        beside.reference,
    ),
}


def level(probes: int) -> float:
    """The alpha of one probe at one look, so that a whole check keeps to `ALPHA`."""
    return ALPHA / (probes * SIZES)
