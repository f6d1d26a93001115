"""The gallery: public faults in the model in the box, each with its report and its probe.

A check must find each with that probe, at whichever of its three sizes the fault begins: that is
the instrument's own sensitivity. From a checkout:

    python tests/wings/servers/gallery/mutants.py NAME [SIZE [LONGEST]]

checks the model with that fault from prompts of SIZE on (the middle size unless given), and prints
what every probe found. With LONGEST, up to 8192 tokens: the gauge with that fault, asked by its
own probe. Without a name: all names.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from faults import (
    BestSixteenKeys,
    CutWalk,
    EndlessWalk,
    Engine,
    Faulty,
    FaultyGauge,
    FirstRowOfAChunk,
    ForgetfulWalk,
    FourBitCache,
    LastBlockOfAHit,
    LastTokensOnly,
    LocalLayer,
    OffByOneAfterAHit,
    OffsetsThatWrap,
    OneBandOfLengths,
    OneLengthInFour,
    OneLongExtend,
    OthersWalk,
    RaceOverRows,
    ReadBackInAnotherLayout,
    ScaledPositions,
    ShardsMergedInAnotherBase,
    SilentCutWalk,
    TwoChunksOnly,
    UnderLoad,
    WindowNeverLeft,
    WindowOnAllLayers,
)

from needlemap.asking.campaign import MakeModel
from needlemap.asking.session import make_model
from needlemap.models import Model
from needlemap.models.baseline import PythonModel
from needlemap.models.demo import DATA
from needlemap.models.walk import Walk
from needlemap.reports.renderers.text import show_report
from needlemap.scorers import name_function
from needlemap.servers.check import Finding, Options, probes
from needlemap.servers.check.asking import Check, CheckOptions, ProbesOnSchedule
from needlemap.servers.check.gauge import gauge_options
from needlemap.servers.check.report import check_report
from needlemap.servers.gauge.checkpoint import REFERENCE
from needlemap.settings.reading import DEFAULT_ITEMS
from needlemap.text import show

BOX = {"model": "demo/retriever"}
IN_THE_BOX = {"tokenizer": str(DATA / "tokenizer.json"), "template": "text-en"}
KNOWN = DEFAULT_ITEMS["english"]  # with secrets as short as it was trained on
NOISY = {"model": "python/faults:noisy", **IN_THE_BOX}
LONGEST = 256  # tokens that the model in the box was trained on
SIZES = (160, 202, 256)  # of its check
# Of the prompts: with drawn ones a test would fail now and then, and could not be repeated.
SEED = 27
BELOW_GAUGE = 100  # the same of the gauge, beyond 1,000 tokens
BELOW = 42  # tokens that the shortest prompts of a size, without room for the answer, lack of it
PROBES = tuple(probes())


Box = type[Faulty] | type[FaultyGauge]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault. probe: what must find it. make: the model in the box with it, from so many prompt
    tokens on. sure: whether the probe finds it at whichever size it begins. sound: the engine of
    its reference. probe_in_gauge: what must find it there, where not the same."""

    name: str
    about: str
    like: str
    probe: str
    make: Callable[[int, Box], Model]
    sure: bool = True
    flags: Mapping[str, Any] = field(default_factory=lambda: BOX)
    sound: type[Engine] = Engine
    probe_in_gauge: str = ""

    @property
    def reference(self) -> bool:
        return self.probe == "reference"

    @property
    def meant_in_gauge(self) -> str:
        """The probe that must find it in the gauge."""
        return self.probe_in_gauge or self.probe

    def asking(
        self, folder: Path, probes: Collection[str] = PROBES, size: int = SIZES[1]
    ) -> ProbesOnSchedule:
        """A check of the model with the fault from a size on, about to be asked."""
        reference = "demo/retriever" if self.reference else ""
        make = partial(self.make, size - BELOW, Faulty)
        return asking(self.flags, folder, probes, reference, make, lambda: Faulty(self.sound))

    def asking_gauge(
        self,
        folder: Path,
        longest: int,
        size: int,
        probes: Collection[str] = PROBES,
        elsewhere: MakeModel | None = None,
        seed: int | None = None,
    ) -> ProbesOnSchedule:
        """A check to `longest` tokens of the gauge with the fault from a size on. elsewhere: its
        reference; seed: of its prompts, None for a drawn one."""
        options = Options(longest, 8, probes=tuple(probes))
        asked, _ = gauge_options(CheckOptions({"model": REFERENCE}, options), is_gauge=True)
        make = partial(self.make, size - BELOW_GAUGE, FaultyGauge)
        check = Check.of(asked, folder, seed)
        there = elsewhere or (lambda _: FaultyGauge(self.sound))
        return ProbesOnSchedule(check, make=lambda _: make(), make_reference=there)


def _engine(kind: type[Engine]) -> Callable[[int, Box], Model]:
    return lambda begins, box=Faulty: box(kind, begins=begins)


def _walk(kind: type[Walk]) -> Callable[[int, Box], Model]:
    return lambda begins, box=Faulty: box(walk=kind, begins=begins)


def _loaded(begins: int, _: Box = Faulty) -> Model:
    return PythonModel(name_function(UnderLoad(begins).answer))


MUTANTS = (
    Mutant(
        "one-length-in-four",
        "A wrong token in decoding where the prompt's length is 3 mod 4; round lengths are right.",
        "https://github.com/vllm-project/vllm/issues/55927",
        "pattern",
        _engine(OneLengthInFour),
    ),
    Mutant(
        "last-block-of-a-hit",
        "The last full block of a prefix-cache hit holds rows of another place.",
        "https://github.com/tenstorrent/vllm/issues/415",
        "cache",
        _engine(LastBlockOfAHit),
    ),
    Mutant(
        "off-by-one-after-a-hit",
        "Positions behind a prefix-cache hit are one too many.",
        "https://github.com/vllm-project/vllm/issues/43559",
        "ways",
        _engine(OffByOneAfterAHit),
        probe_in_gauge="cache",
    ),
    Mutant(
        "read-back-in-another-layout",
        "Values are read back from an outer cache in another layout than keys.",
        "https://github.com/LMCache/LMCache/issues/4492",
        "cache",
        _engine(ReadBackInAnotherLayout),
    ),
    Mutant(
        "wrong-under-load",
        "A prompt gets foreign rows while others are computed; alone it is right.",
        "https://github.com/local-inference-lab/vllm/issues/616",
        "load",
        _loaded,
        flags={"model": "python/faults:UnderLoad.answer", **IN_THE_BOX, **KNOWN},
    ),
    Mutant(
        "somebody-elses-facts",
        "One answer in twelve is the one to the prompt before.",
        "https://github.com/LMCache/LMCache/issues/4385",
        "mates",
        _walk(OthersWalk),
    ),
    Mutant(
        "race-over-rows",
        "Now and then rows of the cache are overwritten; the same prompt is right and wrong in "
        "turn.",
        "https://github.com/ikawrakow/ik_llama.cpp/issues/2083",
        "same",
        _engine(RaceOverRows),
    ),
    Mutant(
        "cut-and-told",
        "A prompt's head is cut off, and the usage counts what is left.",
        "https://github.com/marin-community/marin/pull/7626",
        "cut",
        _walk(CutWalk),
    ),
    Mutant(
        "cut-and-not-told",
        "A prompt's head is cut off, and the usage counts the whole.",
        "https://github.com/marin-community/marin/pull/7626",
        "cut",
        _walk(SilentCutWalk),
        sure=False,
    ),
    Mutant(
        "never-ends",
        "Behind long prompts the stop token is not heeded.",
        "https://github.com/local-inference-lab/vllm/issues/616",
        "stop",
        _walk(EndlessWalk),
    ),
    Mutant(
        "last-tokens-only",
        "Beyond a length only the last tokens are seen.",
        "https://github.com/ml-explore/mlx-lm/pull/1454",
        "reference",
        _engine(LastTokensOnly),
    ),
    Mutant(
        "window-never-left",
        "A layer with a sliding window sees all that came before.",
        "https://github.com/ml-explore/mlx-lm/issues/1914",
        "reference",
        _engine(WindowNeverLeft),
        sure=False,
        sound=LocalLayer,
    ),
    Mutant(
        "one-band-of-lengths",
        "Prompts of a number of tokens up to twice as many are computed wrong, longer ones right.",
        "https://github.com/vllm-project/vllm/issues/50576",
        "reference",
        _engine(OneBandOfLengths),
    ),
    Mutant(
        "one-long-extend",
        "One extend of too many tokens attends to nothing.",
        "https://github.com/sgl-project/sglang/issues/34947",
        "onset",
        _engine(OneLongExtend),
    ),
    Mutant(
        "window-on-all-layers",
        "A sliding window on layers that have none.",
        "https://github.com/sgl-project/sglang/issues/4823",
        "reference",
        _engine(WindowOnAllLayers),
    ),
    Mutant(
        "offsets-that-wrap",
        "Row numbers wrap above a size.",
        "https://github.com/vllm-project/vllm/issues/50427",
        "reference",
        _engine(OffsetsThatWrap),
    ),
    Mutant(
        "scaled-positions",
        "Rotary positions are scaled in another way than in training.",
        "https://github.com/ml-explore/mlx-examples/issues/799",
        "reference",
        _engine(ScaledPositions),
    ),
    Mutant(
        "two-chunks-only",
        "A chunk of prefill sees itself and the one before.",
        "https://github.com/tinygrad/tinygrad/pull/15182",
        "reference",
        _engine(TwoChunksOnly),
    ),
    Mutant(
        "first-row-of-a-chunk",
        "The first row of each chunk is lost; every answer stays right.",
        "https://github.com/GeeeekExplorer/nano-vllm/pull/218",
        "reference",
        _engine(FirstRowOfAChunk),
        sure=False,
    ),
    Mutant(
        "four-bit-cache",
        "Keys and values are kept in four bits; nearly every answer stays right.",
        "https://github.com/vllm-project/vllm/pull/54705",
        "reference",
        _engine(FourBitCache),
    ),
    Mutant(
        "best-sixteen-keys",
        "Attention sees the sixteen best keys only.",
        "https://github.com/ml-explore/mlx-lm/pull/1443",
        "reference",
        _engine(BestSixteenKeys),
    ),
    Mutant(
        "shards-merged-in-another-base",
        "Two shards of attention are merged by powers of two instead of e.",
        "https://github.com/vllm-project/vllm/issues/41623",
        "reference",
        _engine(ShardsMergedInAnotherBase),
        sure=False,
    ),
)


SOUND = {  # servers that nothing is wrong with: flags, and what makes the model where these do not
    "with a cache": (BOX, None),
    "without a cache": (BOX, lambda: Faulty(walk=ForgetfulWalk)),
    "noisy": (NOISY, None),
}


def examined(
    mutant: Mutant, folder: Path, probes: Collection[str] = PROBES, size: int = SIZES[1]
) -> list[Finding]:
    """What a check finds of a fault that begins at a size."""
    return list(asyncio.run(mutant.asking(folder, probes, size).run()).findings)


def begins_at(finding: Finding) -> int | None:
    """The size from which on a probe fails; None where it does not."""
    failed = [row.size for row in finding.sizes if row.state == "FAIL"]
    return min(failed) if finding.state == "FAIL" and failed else None


def asking(
    flags: Mapping[str, Any],
    folder: Path,
    probes: Collection[str] = PROBES,
    reference: str = "",
    make: Callable[[], Model] | None = None,
    elsewhere: Callable[[], Model] | None = None,
) -> ProbesOnSchedule:
    """A check of a model, about to be asked. elsewhere: makes its reference."""
    settings = {"max_answer_tokens": 24, **flags}
    options = Options(LONGEST, 8, probes=tuple(probes), dtype="float32")
    check = Check.of(CheckOptions(settings, options, reference), folder, SEED)
    return ProbesOnSchedule(
        check,
        make=(lambda _: make()) if make else make_model,
        make_reference=(lambda _: elsewhere()) if elsewhere else make_model,
    )


def main(name: str, size: int, longest: int) -> None:
    """Check the model with a fault, into a folder of its name; the gauge, to a longest prompt."""
    mutant = next(each for each in MUTANTS if each.name == name)
    show(f"{mutant.about} It begins at {size} tokens.\n{mutant.like}\n")
    folder = Path(f"{name}-{size}")
    made = mutant.asking(folder, PROBES, size)
    if longest:
        made = mutant.asking_gauge(folder, longest, size, {"length", mutant.meant_in_gauge})
    verdict = asyncio.run(made.run())
    show_report(check_report(folder, folder.name, verdict, ""))


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in {mutant.name for mutant in MUTANTS}:
        size = int(sys.argv[2]) if sys.argv[2:] else SIZES[1]
        longest = int(sys.argv[3]) if sys.argv[3:] else 0
        main(sys.argv[1], size, longest)
    else:
        show("\n".join(mutant.name for mutant in MUTANTS))
