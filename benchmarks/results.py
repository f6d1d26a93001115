"""Maps of real models: made anew, or read from what is kept.

    python benchmarks/results.py                   reads the kept runs, writes docs/results.md
    python benchmarks/results.py --anew [MAP ...]  installs the models, asks, keeps
    python benchmarks/results.py --sample 100      answers to be read by hand, as JSON lines

`--anew` takes hours on two cores, and goes on with what is in `--work FOLDER`; type the first line
after it. Kept are the runs, in benchmarks/results/, and no weights. `labels.jsonl` has what a
person made of some answers, `engines.jsonl` what was typed to engines by hand.

Prints one JSON object last. models, maps: kept ones, a suite's family being one map; answers: in
all of them; scorer_false_right: of answers that a person found wrong, those that the scorer took
for right; scorer_false_wrong: of those found right, the ones that it took for wrong; ruler_apart:
needlemap's score of lm-evaluation-harness's RULER prompts less that tool's own; ruler_found: both,
and RULER's tests in our words; needle_times: what other tools take to ask one needle, over what
needlemap takes in mode bins (`beside.py`).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import beside
import needlemap
from machine import machine
from needlemap.records.families import families_of
from needlemap.records.record import Record
from needlemap.reports.figures.figure import Figure, Shown, draw
from needlemap.reports.kept import finding_report
from needlemap.reports.report import Fact
from needlemap.reports.summary import read_families
from needlemap.stats.intervals import wilson
from real_models import (
    KEPT,
    KEPT_AB,
    LLAMA_CPP,
    TRANSFORMERS,
    AbToAsk,
    MapToAsk,
    Workplace,
    kept_names,
    unpack,
)
from results_page import KeptAb, KeptMap, Pair, Rate, page, summary_rows
from table import show

DOCS = Path(__file__).parents[1] / "docs"
LABELS, ENGINES = KEPT / "labels.jsonl", KEPT / "engines.jsonl"
PASS_OR_FAIL = ("substring", "recall")  # scorers whose 0 and 100 say wrong and right
ASKED_LABELS_SEED = 43

SMOL, GEMMA = "smollm2", "gemma-3-270m"
GRID = ("--depths", "0:100:5", "--mode", "bins")
THREE = ("--depths", "0,50,100", "--mode", "bins")
FIVE = ("--repeats", "5")
GENERATED = ("--haystack", "generated")
SINGLE = ("--lengths", "2k,8000", *GRID, "--repeats", "3", "--max-answer-tokens", "24")
KEYS = (
    *("ruler-niah-multikey-2", "--task-options", "fresh=repeat"),
    *("--lengths", "512,1k,2k,4k", *GRID, *FIVE, "--max-answer-tokens", "24"),
)
OLDER = (
    *("needlehaystack-substring", *GENERATED),
    *("--lengths", "1k,2k,4k,7k", *GRID, "--max-answer-tokens", "32"),
)
OPENCOMPASS = ("cdme-8k", *GENERATED, "--lengths", "1k", *THREE, *FIVE)
ENGLISH = (  # the same rules, with the needle of needlehaystack's preset
    *("--language", "english", "--question", "What is the best thing to do in San Francisco?"),
    "--needle",
    "The best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny "
    "day.",
)
FEW = (
    *("ruler-niah-multikey-1", "--task-options", "fresh=repeat"),
    *("--lengths", "1k", *GRID, *FIVE, "--max-answer-tokens", "24"),
)
REASONING = tuple(
    word
    for facts in (2, 3, 4, 5)
    for language in ("en", "zh")
    for word in ("--skip", f"reasoning-{facts}-{language}")
)
BENCH = (
    *("suite:needlebench", "--lengths", "1k", "--depths", "0,50,100", "--mode", "bins", *FIVE),
    *("--max-answer-tokens", "96", *REASONING),
)
RULER = (
    *("suite:ruler", "--lengths", "1k", "--depths", "50", "--mode", "bins", *FIVE),
    # The list of words alone has more than 1k tokens.
    *("--max-answer-tokens", "64", "--skip", "cwe"),
)


SHORT = ("--lengths", "1k", *THREE, *FIVE, "--max-answer-tokens", "24")
LONG = ("--lengths", "2k,10k", *THREE, "--repeats", "2", "--max-answer-tokens", "24")
TO_40K = ("--lengths", "8k,40k", *LONG[2:])


def yarn(rope_theta: float, context: int) -> dict[str, object]:
    """Positions of twice the trained context, halved: YaRN, without training."""
    return {
        "rope_type": "yarn",
        "rope_theta": rope_theta,
        "factor": 2.0,
        "original_max_position_embeddings": context,
    }


# Gemma's other layers see 512 tokens, whose positions are not stretched.
GEMMA_YARN = {
    "full_attention": yarn(1_000_000.0, 32768),
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
}
# A base model continues a text: a chat template would make another prompt of it.
AS_TEXT = {GEMMA: ("--model-options", "api=completions")}
TO_30K = (
    *("--lengths", "8k,16k,30k", *THREE, "--repeats", "2", "--max-answer-tokens", "24"),
    *("--template", "text-en", *AS_TEXT[GEMMA]),
    *("--tokenizer", f"./{GEMMA}", "--timeout-s", "3600"),
)
SEEK = ("--seek", "85", "--lengths", "512,8000", "--max-answer-tokens", "24")
RECOVERY = ("--scorer", "recovery", "--lengths", "512,2k", "--depths", "10,50,90", "--repeats", "4")
F16, Q4 = ("-fa", "on"), ("-fa", "on", "-ctk", "q4_0", "-ctv", "q4_0")

BOTH = (  # of each model, in transformers: name, settings, what for
    ("needlehaystack", OLDER, "needlehaystack's preset"),
    ("keys", KEYS, "one of many keys"),
    ("single", SINGLE, "a locker code in prose"),
    ("cdme-zh", OPENCOMPASS, "OpenCompass's preset, Chinese"),
    ("cdme-en", (*OPENCOMPASS, *ENGLISH), "OpenCompass's preset, in English"),
    ("few-keys", FEW, "one of four keys"),
    ("ruler", RULER, "RULER's tests at 1k"),
    ("needlebench", BENCH, "OpenCompass's NeedleBench, English and Chinese"),
)
in_process = partial(MapToAsk, engine=TRANSFORMERS)
served = partial(MapToAsk, engine=LLAMA_CPP)
MAPS = (
    *(
        in_process(f"{short}-{name}", model, settings=settings, about=about)
        for short, model in (("smollm2", SMOL), ("gemma", GEMMA))
        for name, settings, about in BOTH
    ),
    *(
        in_process(f"smollm2-{name}", SMOL, settings=(*task, *SHORT), about=about)
        for name, task, about in (
            ("our-words-noise", ("ruler-niah-single-1",), "our words in repeated noise"),
            ("our-words-prose", ("ruler-niah-single-2",), "our words in prose"),
        )
    ),
    *(
        in_process(
            f"{name}-{way}-{longest}",
            model,
            settings=settings,
            about=about,
            config={"max_position_embeddings": 2 * trained, **changed},
        )
        for name, longest, model, settings, trained, rope in (
            ("smollm2", "10k", SMOL, LONG, 8192, yarn(100_000.0, 8192)),
            ("gemma", "40k", GEMMA, TO_40K, 32768, GEMMA_YARN),
        )
        for way, about, changed in (
            ("plain", "a locker code, beyond the trained context", {}),
            ("yarn", "the same, stretched by YaRN", {"rope_parameters": rope}),
        )
    ),
    *(
        in_process(f"{short}-{name}", model, settings=settings, about=about)
        for short, model in (("smollm2", SMOL), ("gemma", GEMMA))
        for name, settings, about in (
            ("seek", SEEK, "a locker code in prose, sought"),
            ("recovery", RECOVERY, "a locker code in prose, read"),
        )
    ),
    *(
        served(
            f"{short}-few-keys-{cache}",
            model,
            settings=AS_TEXT.get(model, ()),
            prompts_of=f"{short}-few-keys",
            served=options,
            about=f"one of four keys, {cache} cache",
        )
        for short, model in (("smollm2", SMOL), ("gemma", GEMMA))
        for cache, options in (("f16", F16), ("q4_0", Q4))
    ),
    *(
        served(
            f"{short}-needlehaystack-f16",
            model,
            settings=AS_TEXT.get(model, ()),
            prompts_of=f"{short}-needlehaystack",
            served=F16,
            about="needlehaystack's preset, f16 cache",
        )
        for short, model in (("smollm2", SMOL), ("gemma", GEMMA))
    ),
    served(
        "gemma-single-30k",
        GEMMA,
        settings=TO_30K,
        served=F16,
        about="a locker code in prose, to 30k",
    ),
    in_process(
        "gemma-single-30k-hf",
        GEMMA,
        prompts_of="gemma-single-30k",
        settings=(),
        about="the same, in transformers",
    ),
)
# Ten points, fixed beforehand: fewer need more prompts than two cores ask in half an hour.
COMPARED = (
    *("ruler-niah-multikey-1", "--lengths", "512", "--depths", "0,50,100"),
    *("--max-answer-tokens", "24", "--margin", "10", "--until", "decided"),
)
PASSKEY = ("passkey", "--lengths", "2k", *COMPARED[3:])
CACHES = (("f16", F16), ("q4_0", Q4))
ABS = (
    *(
        AbToAsk(
            f"{short}-cache-q4_0",
            model,
            settings=(*COMPARED, *AS_TEXT.get(model, ()), "--limit-time", "30m"),
            arms=CACHES,
            about="cache f16, then q4_0",
        )
        for short, model in (("smollm2", SMOL), ("gemma", GEMMA))
    ),
    # Chosen after the one above, of which Gemma gets less than half.
    AbToAsk(
        "gemma-passkey-cache-q4_0",
        GEMMA,
        settings=(*PASSKEY, *AS_TEXT[GEMMA], "--limit-time", "30m"),
        arms=CACHES,
        about="cache f16, then q4_0: a pass key at 2k",
    ),
)
PAIRS = (
    (
        "SmolLM2 to 7k: transformers, then llama.cpp",
        "smollm2-needlehaystack",
        "smollm2-needlehaystack-f16",
    ),
    (
        "Gemma 3 to 7k: transformers, then llama.cpp",
        "gemma-needlehaystack",
        "gemma-needlehaystack-f16",
    ),
    ("Gemma 3 to 30k: llama.cpp, then transformers", "gemma-single-30k", "gemma-single-30k-hf"),
    ("SmolLM2: transformers, then llama.cpp", "smollm2-few-keys", "smollm2-few-keys-f16"),
    ("Gemma 3: transformers, then llama.cpp", "gemma-few-keys", "gemma-few-keys-f16"),
    ("SmolLM2: cache f16, then q4_0", "smollm2-few-keys-f16", "smollm2-few-keys-q4_0"),
    ("Gemma 3: cache f16, then q4_0", "gemma-few-keys-f16", "gemma-few-keys-q4_0"),
    ("SmolLM2: as trained, then YaRN x 2", "smollm2-plain-10k", "smollm2-yarn-10k"),
    ("Gemma 3: as trained, then YaRN x 2", "gemma-plain-40k", "gemma-yarn-40k"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [each.name for each in (*MAPS, *ABS)]
    parser.add_argument("--anew", nargs="*", choices=names, metavar="MAP")
    parser.add_argument("--work", type=Path, help="keeps models and runs; a temporary folder")
    parser.add_argument(
        "--smoke", action="store_true", help="write nothing; the page must be there"
    )
    parser.add_argument("--sample", type=int, default=0, help="print answers to be labelled")
    asked = parser.parse_args()
    if asked.anew is not None:
        with tempfile.TemporaryDirectory() as spare:
            ask_anew(asked.anew, asked.work or Path(spare))
        return
    with tempfile.TemporaryDirectory() as folder:
        maps = read_kept(Path(folder))
        if asked.sample:
            print_sample(maps, asked.sample)
            return
        judge(maps, read_kept_abs(Path(folder)), writes=not asked.smoke)


def ask_anew(names: Sequence[str], work: Path) -> None:
    """Ask what is named, or all, in its order, and keep each as soon as it is whole."""
    place = Workplace(work)
    for each in MAPS:
        if not names or each.name in names:
            place.ask(each)
    for pair in ABS:
        if not names or pair.name in names:
            place.ask_ab(pair)


def read_kept(folder: Path) -> list[KeptMap]:
    """The kept runs, unpacked into a folder, in the order of MAPS."""
    places = {each.name: place for place, each in enumerate(MAPS)}
    names = sorted(kept_names(), key=lambda name: places.get(name, len(places)))
    return [KeptMap(unpack(name, folder), needlemap.load(folder / name)) for name in names]


def read_kept_abs(folder: Path) -> list[KeptAb]:
    """The kept comparisons of two servers, unpacked into a folder."""
    kept = []
    for name in kept_names(KEPT_AB):
        asked = unpack(name, folder, KEPT_AB)
        families = families_of(folder / name)
        report = finding_report(families, read_families(families))
        assert report is not None
        assert report.verdict is not None
        said = [part.said for part in report.parts if isinstance(part, Fact)]
        notes = [line.removeprefix("note: ") for line in said if line.startswith("note: ")]
        kept.append(KeptAb(asked, report.verdict, notes))
    return kept


def judge(maps: Sequence[KeptMap], compared: Sequence[KeptAb], *, writes: bool) -> None:
    """Write the page and its picture, print the table, and the JSON object."""
    by_name = {each.asked.name: each for each in maps}
    pairs = [
        Pair(title, needlemap.compare(by_name[first].run.path, by_name[second].run.path))
        for title, first, second in PAIRS
        if first in by_name and second in by_name
    ]
    rates = scorer_rates(maps, labels())
    text = page(maps, pairs, compared, rates=rates, engines=engines())
    target = DOCS / "results.md"
    if writes:
        target.write_text(text, "utf-8")
        drawn = [each for each in maps if each.is_grid and not each.is_suite]
        draw_all(drawn)
        draw_first(drawn)
    elif target.read_text("utf-8") != text:
        sys.exit("docs/results.md is not what the kept runs say. Run: python benchmarks/results.py")
    header, rows = summary_rows([each for each in maps if each.is_grid])
    result = {
        "models": len({each.asked.model for each in maps}),
        "maps": sum(len(each.run.families) for each in maps),
        "runs": len(maps),
        "answers": sum(each.answers for each in maps),
        "not_asked": [each.name for each in MAPS if each.name not in by_name],
        "ab": {each.asked.name: each.verdict.word for each in compared},
        **{name: asdict(rate) for name, rate in rates.items()},
        **beside.figures(),
        "benchmark": "results",
    }
    show("Maps of real models, from kept records", machine(), header, rows, [], result)


def draw_all(maps: Sequence[KeptMap]) -> None:
    """The picture of the page: a small map of each run with several lengths, by its row's name."""
    drawn = [(each.asked, each.run.map()) for each in maps]
    shown = tuple(
        # The folder of a tokenizer tells readers less than the model that it belongs to.
        Shown(replace(map, tokenizer=asked.model), asked.name)
        for asked, map in drawn
        if len(map.lengths) > 1
    )
    draw(Figure(shown)).save(DOCS / "images" / "results.png")


# The maps of the README's picture, with their titles there.
FIRST_PICTURE = {
    "smollm2-needlehaystack": "SmolLM2-135M: one fact in prose",
    "smollm2-keys": "SmolLM2-135M: one of many similar facts",
}


def draw_first(maps: Sequence[KeptMap]) -> None:
    """The picture of the README."""
    by_name = {each.asked.name: each for each in maps}
    shown = (Shown(by_name[name].run.map(), title) for name, title in FIRST_PICTURE.items())
    draw(Figure(tuple(shown))).save(DOCS / "images" / "first-results.png")


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines; none where there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def engines() -> list[dict[str, Any]]:
    """What was typed to engines by hand: engine, version, how, verdict, evidence, command."""
    return lines_of(ENGINES)


def labels() -> dict[str, bool]:
    """What a person made of an answer, by its identity: True for right."""
    return {line["id"]: line["right"] for line in lines_of(LABELS)}


def identity(name: str, record: Record) -> str:
    """A record's place among all kept ones, and the answer that was read there."""
    words = f"{name} {record.key} {record.answer}"
    return sha256(words.encode()).hexdigest()[:16]


def judged(maps: Sequence[KeptMap]) -> Iterator[tuple[str, Record]]:
    """Answers whose score says right or wrong."""
    for each in maps:
        for record in each.run.records():
            scorer = record.scorer
            if scorer and record.score in (0, 1) and scorer.name in PASS_OR_FAIL:
                yield each.asked.name, record


def scorer_rates(maps: Sequence[KeptMap], read: Mapping[str, bool]) -> dict[str, Rate]:
    """How often the scorer differs from the person who read the answers."""
    pairs = [
        (read[each], bool(record.score))
        for name, record in judged(maps)
        if (each := identity(name, record)) in read
    ]
    wrong = [score for right, score in pairs if not right]
    right = [not score for right, score in pairs if right]
    return {"scorer_false_right": rate(wrong), "scorer_false_wrong": rate(right)}


def rate(errors: Sequence[bool]) -> Rate:
    """A share with Wilson's interval."""
    low, high = wilson(sum(errors), len(errors)) or (0.0, 1.0)
    return Rate(errors=sum(errors), n=len(errors), low=round(low, 4), high=round(high, 4))


def print_sample(maps: Sequence[KeptMap], size: int) -> None:
    """Answers to be read, as JSON lines without the score; each map and score has its turn."""
    piles: dict[tuple[str, float | None], list[tuple[str, Record]]] = {}
    for name, record in judged(maps):
        piles.setdefault((name, record.score), []).append((name, record))
    random = Random(ASKED_LABELS_SEED)
    for pile in piles.values():
        random.shuffle(pile)
    turns = [pile[at] for at in range(size) for pile in piles.values() if at < len(pile)]
    for name, record in random.sample(turns[:size], min(size, len(turns))):
        told = {
            "id": identity(name, record),
            "map": name,
            "question": record.question,
            "reference": record.reference,
            "answer": record.answer,
        }
        print(json.dumps(told, ensure_ascii=False, default=str))


if __name__ == "__main__":
    main()
