"""Does every architecture that transformers has a causal class for answer from a shared cache as
from none?

    python benchmarks/architectures.py [--only llama,mamba] [--brief] [--smoke]

Each is made tiny, with random weights in float32, tried as `hf` tries every model that it loads,
and asked in all modes: in one piece, in chunks, without sharing, with eager attention. Prompts
cross the sliding windows, and those lengths at which some turn their positions otherwise. An answer
is right that is transformers' own `generate`'s, or that of whole passes where `generate` itself
gives another.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
import transformers
from transformers import CONFIG_MAPPING

from machine import machine
from needlemap.errors import SettingsError
from needlemap.models.hf import ALONE
from needlemap.models.hf_check import settle
from needlemap.models.hf_engine import HuggingFaceEngine
from needlemap.models.model_files import loader_of, refuse_encoders
from needlemap.models.walk import Ids, Walk
from needlemap.plan import ordered, partings, shared
from needlemap.settings.reading import configure
from needlemap.trials.build import prepare
from sides.tiny import SMOKE, Case, cases, made
from table import show
from tinymodel import write_tokenizer

ANSWER = 4  # tokens
CHUNK = 40  # tokens; far less than a prompt
GRID = {"lengths": "230:350:3", "depths": "0,40", "max_answer_tokens": ANSWER}
MODES = ("exact", "bins", "single")
WHOLE = 2048
WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("chunks", {"chunk_tokens": CHUNK}),
    ("alone", {"chunk_tokens": WHOLE, "share": False}),
)


@dataclass(frozen=True, slots=True)
class Asked:
    """The prompts of one mode in the order of its plan. planned: tokens shared with the one
    before."""

    prompts: tuple[Ids, ...]
    planned: tuple[int, ...]
    partings: tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class Found:
    """What came of one architecture.

    verdict: 'equal', 'in_full', 'refused', 'wrong', 'crashed'; none where no tiny form could be
    made. cached:
    of the planned tokens of mode exact. alone: prompts for which `generate` gives another answer
    than passes.
    """

    name: str
    verdict: str = ""
    note: str = ""
    answers: int = 0
    cached: float = 0.0
    alone: int = 0
    wrong: Counter[str] = field(default_factory=Counter)


class Truth:
    """What one model answers from nothing."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._answers: dict[bytes, tuple[int, ...] | None] = {}
        self.alone = set[bytes]()

    def is_right(self, ids: Ids, answer: tuple[int, ...]) -> bool:
        """Whether an answer is `generate`'s; where it is not, that of whole passes."""
        key = ids.tobytes()
        if key not in self._answers:
            self._answers[key] = self._generated(ids)
        if answer == self._answers[key]:
            return True
        if answer == self._passes(ids, answer):
            self.alone.add(key)
            return True
        return False

    def generated(self, ids: Ids) -> tuple[int, ...]:
        """What `generate` answers; raises whatever it raises."""
        self._reset()
        tokens = torch.from_numpy(ids.astype(np.int64))[None]
        told: dict[str, Any] = {"attention_mask": torch.ones_like(tokens), "max_new_tokens": ANSWER}
        said = self._model.generate(
            tokens, do_sample=False, eos_token_id=None, pad_token_id=0, **told
        )
        return tuple(said[0, len(ids) :].tolist())

    def _generated(self, ids: Ids) -> tuple[int, ...] | None:
        try:
            return self.generated(ids)
        except Exception:  # a model's own code may raise anything
            return None

    def _passes(self, ids: Ids, answer: tuple[int, ...]) -> tuple[int, ...]:
        """Each token's likeliest successor in passes without a cache, one for each answer token."""
        said: list[int] = []
        with torch.inference_mode():
            for _ in answer:
                self._reset()
                tokens = torch.tensor([[*ids.tolist(), *said]])
                said.append(int(self._model(tokens, use_cache=False).logits[0, -1].argmax()))
        return tuple(said)

    def _reset(self) -> None:
        """Let rotary modules drop the positions of longer texts, as one token makes them do."""
        with torch.inference_mode():
            self._model(torch.zeros(1, 1, dtype=torch.long), use_cache=False)


def prompts() -> dict[str, Asked]:
    """Those of each mode."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder))
        (Path(folder) / "config.json").write_text("{}")
        for mode in MODES:
            experiment = prepare(configure(None, {"model": f"hf/{folder}", "mode": mode, **GRID}))
            walk = ordered(experiment.trials, mode)
            planned = shared(walk, mode)
            ids = tuple(trial.prompt.ids for trial in walk)
            found[mode] = Asked(ids, tuple(planned), tuple(partings(planned)))
    return found


def tried(case: Case, asked: dict[str, Asked], brief: bool) -> Found:
    """One architecture in all modes and ways; brief: in one mode, in one piece and in chunks."""
    found = Found(case.name)
    try:
        refuse_encoders(case.name, CONFIG_MAPPING[case.kind]())
    except SettingsError as error:
        found.verdict, found.note = "refused", str(error)
        return found
    try:
        model = built(case)
    except Exception as error:  # the factory's sizes do not fit each other
        found.note = f"{type(error).__name__}: {error}"
        return found
    try:
        compare(found, case, model, asked, brief)
    except SettingsError as error:
        found.verdict, found.note = "refused", str(error)
        is_encoder = "encoder" in str(error) and getattr(model.config, "is_decoder", None) is False
        refusable = is_encoder or not generates(model, asked["exact"].prompts[0])
        return found if refusable else wronged(found, f"its own generate works: {error}")
    except Exception as error:  # a model's own code may raise anything
        works = generates(model, asked["exact"].prompts[0])
        found.verdict = "crashed" if works else "refused"
        found.note = (
            "" if works else "its own generate fails: "
        ) + f"{type(error).__name__}: {error}"
    if found.answers and (case.kind in ALONE) == (found.verdict == "equal"):
        wronged(found, "a plan promises otherwise: " + found.note)
    if found.wrong:
        wronged(found, ", ".join(f"{way} {count}" for way, count in found.wrong.items()))
    return found


def wronged(found: Found, why: str) -> Found:
    """A verdict that must not be."""
    found.verdict, found.note = "wrong", why
    return found


def generates(model: Any, ids: Ids) -> bool:
    """Whether transformers' own `generate` works, and gives the same each time."""
    truth = Truth(model)
    try:
        return len({truth.generated(ids) for _ in range(4)}) == 1
    except Exception:  # a model's own code may raise anything
        return False


def compare(found: Found, case: Case, model: Any, asked: dict[str, Asked], brief: bool) -> None:
    """Ask in all modes and ways, and count what is not as from nothing."""
    truth, engine = Truth(model), HuggingFaceEngine(model, WHOLE)
    found.note = "; ".join(settle(engine, asked["exact"].prompts[0]))
    for mode in MODES[:1] if brief else MODES:
        cached = ask(found, mode, engine, truth, asked[mode])
        if mode == "exact":
            found.cached = cached / sum(asked[mode].planned)
    for way, options in WAYS[:1] if brief else WAYS:
        other = HuggingFaceEngine(model, **options)
        settle(other, asked["exact"].prompts[0])
        ask(found, way, other, truth, asked["exact"])
    found.verdict, found.alone = "equal" if engine.way.share else "in_full", len(truth.alone)
    try:
        eager = None if brief else built(case, attn_implementation="eager")
    except Exception:  # some have but one way
        eager = None
    if eager is not None:
        other = HuggingFaceEngine(eager, WHOLE)
        settle(other, asked["exact"].prompts[0])
        ask(found, "eager", other, Truth(eager), asked["exact"])


def ask(found: Found, way: str, engine: HuggingFaceEngine, truth: Truth, asked: Asked) -> int:
    """Ask a mode's prompts; how many of their tokens came from the cache."""
    walk, cached = Walk(engine, []), 0
    for ids, places in zip(asked.prompts, asked.partings, strict=True):
        walked = walk.ask(ids, ANSWER, partings=places)
        cached += walked.cached
        found.answers += 1
        found.wrong[way] += not truth.is_right(ids, walked.answer)
    walk.drop()
    found.wrong = +found.wrong
    return cached


def built(case: Case, **options: Any) -> Any:
    """A tiny model with weights drawn anew."""
    torch.manual_seed(0)
    config = made(case.kind, **case.given)
    loader = loader_of(config, transformers)
    model = loader.from_config(config, dtype=torch.float32, **options)
    model.generation_config = transformers.GenerationConfig(pad_token_id=0)
    return model.eval()


def main() -> None:
    """Try all, count, print."""
    options = _options()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    asked, found, spent = prompts(), [], process_time()
    for case in chosen(options):
        found.append(tried(case, asked, options.brief or options.smoke))
        if options.verbose:
            one = found[-1]
            print(json.dumps([one.name, one.verdict, round(one.cached, 2), one.note]), flush=True)
    _report(found, process_time() - spent)
    sys.exit(any(each.verdict in ("wrong", "crashed") for each in found))


def chosen(options: argparse.Namespace) -> Iterator[Case]:
    """What is to be tried."""
    names = options.only.split(",") if options.only else SMOKE if options.smoke else None
    yield from (case for case in cases() if names is None or case.name in names)


def _report(found: Sequence[Found], cpu_s: float) -> None:
    left_out = [each.name for each in found if not each.verdict]
    found = [each for each in found if each.verdict]
    counts = Counter(each.verdict for each in found)
    names = ("equal", "in_full", "refused", "wrong", "crashed")
    result: dict[str, object] = {"benchmark": "architectures", "architectures": len(found)}
    result |= {name: counts[name] for name in names}
    result |= {"shared": sum(each.verdict == "equal" and each.cached > 0 for each in found)}
    result |= {"answers": sum(each.answers for each in found), "cpu_s": round(cpu_s)}
    rows = [
        _row(each)
        for each in sorted(found, key=lambda each: (names.index(each.verdict), each.name))
    ]
    show(
        "Answers from a shared cache beside those from none",
        machine("needlemap", "torch", "transformers"),
        ("architecture", "verdict", "answers", "cached of planned", "generate alone", "note"),
        rows,
        [f"No tiny form was made of: {', '.join(left_out)}."] if left_out else [],
        result,
    )


def _row(each: Found) -> tuple[str, ...]:
    cached = f"{each.cached:.0%}" if each.answers else ""
    return (
        each.name,
        each.verdict,
        str(each.answers or ""),
        cached,
        str(each.alone or ""),
        each.note[:70],
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Answers of every architecture, from a shared cache and none."
    )
    parser.add_argument("--only", default="", help="these, with commas between")
    parser.add_argument(
        "--brief", action="store_true", help="mode exact, in one piece and in chunks"
    )
    parser.add_argument("--smoke", action="store_true", help="one of each sort, in brief")
    parser.add_argument("--verbose", action="store_true", help="a line for each as it is done")
    return parser.parse_args()


if __name__ == "__main__":
    main()
