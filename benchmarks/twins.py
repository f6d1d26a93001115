"""Equal ways of asking twins of each architecture: do they agree, and is nothing honest blamed?

    python benchmarks/twins.py                judges the kept replies: `--recorded`
    python benchmarks/twins.py --engines ...  asks engines anew: transformers, llama.cpp, mutants

transformers computes in this process; llama.cpp serves what its own converter takes
(NEEDLEMAP_GGUF_CONVERTER: the folder of its source; NEEDLEMAP_LLAMA_SERVER: the server); mutants
are the faults of `sides/twin_mutants.py`, and the engine around them without a fault. Replies with
their log-probabilities are kept in benchmarks/twins.jsonl.xz.

Prints one JSON object last. architectures: compared by log-probabilities in transformers, cached
against one pass; clean: judged ways of honest engines; alarms: those that failed or are suspect;
mutants: planted faults that some way of asking computes otherwise; found: the share of them at
which a way fails that the engine without the fault passes; by_reference: faults that every way
meets alike, and which of them transformers' own log-probabilities show.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from random import Random
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parent / "sides"))

from needlemap.errors import SettingsError
from needlemap.models.started import started
from needlemap.servers.gauge import twins
from needlemap.servers.gauge.architectures import ARCHITECTURES
from needlemap.servers.gauge.gguf import TWIN, write_twin_gguf
from needlemap.servers.ways import (
    AGAIN,
    ALONE,
    CACHED,
    COMPANY,
    EXTENDED,
    FAIL,
    FLOODED,
    PREFILLED,
    REWOUND,
    SUSPECT,
    TOLERANCE,
    Step,
    Way,
    WayReply,
    judge_ways,
    move_between,
)

KEPT = Path(__file__).with_suffix(".jsonl.xz")
MUTANTS = "mutants"
ENGINES = ("transformers", "llama.cpp", MUTANTS)
ALARMS = FAIL, SUSPECT  # what no honest engine is to get; one asked once cannot fail
PROMPTS, TOKENS, TOP = 20, 3, 3
SHORTEST, LONGEST = 60, 300  # tokens of a prompt
SERVE = (
    "{server} -m {model} -c 8192 -np {slots} -t 1 -tb 1 --alias twin --jinja --host 127.0.0.1 "
    "--port {{port}} --cache-type-k f32 --cache-type-v f32 -fa off"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--recorded", action="store_true", help="judge the kept replies; the default"
    )
    parser.add_argument("--smoke", action="store_true", help="the same, as every benchmark has it")
    parser.add_argument("--engines", nargs="*", default=[], choices=ENGINES)
    parser.add_argument("--only", nargs="*", default=[], help="architectures, or mutants")
    asked = parser.parse_args()
    for engine in asked.engines:
        if engine == MUTANTS:
            ask_mutants(asked.only)
        else:
            ask_anew(engine, asked.only)
    print(json.dumps(summary(kept())))


def kept() -> list[dict[str, Any]]:
    """The kept lines, the last of each engine, architecture and data type."""
    with lzma.open(KEPT, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    named = {(row["engine"], row["architecture"], row["data_type"]): row for row in lines}
    return list(named.values())


def keep(line: dict[str, Any]) -> None:
    with lzma.open(KEPT, "at", encoding="utf-8") as file:
        file.write(json.dumps(line, separators=(",", ":")) + "\n")


def name_of(row: dict[str, Any]) -> str:
    return f"{row['engine']}/{row['architecture']}/{row['data_type']}"


def ways_of(row: dict[str, Any]) -> list[Way]:
    """What the ways of a kept line came to."""
    replies = [said_of(reply) for reply in row["replies"]]
    return [
        way
        for way in judge_ways(replies, TOLERANCE[row["data_type"]])
        if way.way != AGAIN and way.n
    ]


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the kept replies come to."""
    clean, alarms, refused = 0, list[str](), dict[str, str]()
    reference = dict[str, float]()
    for row in rows:
        name = name_of(row)
        if row.get("refused"):
            refused[name] = row["refused"]
            continue
        if "mutant" in row:
            continue
        ways = ways_of(row)
        clean += len(ways)
        alarms += [f"{name} {way.way}: {way.said}" for way in ways if way.state in ALARMS]
        moves = {way.way: max((way.percentiles or {}).values(), default=0.0) for way in ways}
        if "reference_nats" in row:
            reference[name] = moves["reference"] = row["reference_nats"]
        shown = ", ".join(f"{way} {nats:.2g}" for way, nats in moves.items())
        print(f"{name}: moved by at most {shown}")
    asked = [row for row in rows if "replies" in row and "mutant" not in row]
    return {
        "benchmark": "twins",
        "architectures": sum(
            row["engine"] == "transformers" and row["data_type"] == "float32" for row in asked
        ),
        "pairs": len(asked),
        "refused": refused,
        "reference_nats": reference,
        "clean": clean,
        "clean_over_http": sum(len(ways_of(row)) for row in asked if row["engine"] == "llama.cpp"),
        "clean_bfloat16": sum(len(ways_of(row)) for row in asked if row["data_type"] == "bfloat16"),
        "alarms": len(alarms),
        "alarms_named": alarms,
        **mutants_of(rows),
    }


def mutants_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Which planted faults were found, by name."""
    found, missed, shown, hidden = dict[str, str](), list[str](), list[str](), list[str]()
    threads = 0
    for row in rows:
        if "mutant" not in row or "replies" not in row:
            continue
        told, honest = row["mutant"], engine_without(row, rows)
        passed = {way.way for way in ways_of(honest) if way.state != FAIL}
        failed = [way.way for way in ways_of(row) if way.state == FAIL and way.way in passed]
        name = told["name"] + (f" ({told['thread']})" if told["thread"] else "")
        print(f"{name}, {row['architecture']}: {', '.join(failed) or 'no way failed'}")
        if told["by_reference"]:
            far = row["reference_nats"] > TOLERANCE["float32"] >= honest["reference_nats"]
            (shown if far else hidden).append(name)
            continue
        threads += bool(told["thread"])
        if failed:
            found[name] = ", ".join(failed)
        else:
            missed.append(name)
    count = len(found) + len(missed)
    return {
        "mutants": count,
        "of_threads": threads,
        "found": round(len(found) / count, 3) if count else None,
        "found_named": found,
        "missed_named": missed,
        "by_reference": {"found": shown, "missed": hidden},
    }


def engine_without(row: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The line of the engine without a mutant's fault."""
    told = row["mutant"]
    name = honest_name(drafts=told["drafts"], plain=told.get("plain", False))
    wanted = (name, row["architecture"].split("+")[0])
    return next(
        each
        for each in rows
        if (each["engine"], each["architecture"]) == wanted and "replies" in each
    )


def honest_name(*, drafts: bool, plain: bool) -> str:
    return "engine" + " with drafts" * drafts + " without temperature" * plain


def said_of(row: list[Any]) -> WayReply:
    """A reply, as `plain` kept it."""
    prompt, way, text, prompt_tokens, cached_tokens, steps, *more = row
    copy, generated, positions = more or (0, [], [])
    return WayReply(
        prompt,
        way,
        text,
        tuple(map(tuple, steps)),
        prompt_tokens,
        cached_tokens,
        copy=copy,
        generated=tuple(map(tuple, generated)),
        positions=tuple(positions),
    )


def ask_anew(engine: str, only: list[str]) -> None:
    """Ask an engine each architecture's prompts, and keep the replies as they come."""
    types = ("float32", "bfloat16") if engine == "transformers" else ("float32",)
    names = [row.model_type for row in ARCHITECTURES if not only or row.model_type in only]
    with tempfile.TemporaryDirectory() as place:
        for data_type in types:
            for name in names:
                line = {"engine": engine, "architecture": name, "data_type": data_type}
                line |= replies_of(engine, name, Path(place) / name, data_type)
                print(engine, name, data_type, line.get("refused", ""), flush=True)
                keep(line)


def replies_of(engine: str, name: str, folder: Path, data_type: str) -> dict[str, Any]:
    """What a line keeps of an engine: its replies, or why it takes no such twin."""
    try:
        if not folder.exists():
            twins.write_twin(twins.shape_of(name), folder, 1, (512,))
        return in_process(folder, data_type) if engine == "transformers" else served(folder)
    except SettingsError as error:
        return {"refused": str(error).split(": ", 1)[-1].replace(str(folder), name)[:200]}


def prompts() -> Iterator[tuple[int, str]]:
    for number in range(PROMPTS):
        draw = Random(f"twins {number}")
        yield number, twins.prose(draw.randrange(SHORTEST, LONGEST), draw)


def plain(said: WayReply) -> list[Any]:
    """A reply as it is kept."""
    row = [said.prompt, said.way, said.text, said.prompt_tokens, said.cached_tokens]
    more = [said.copy, plain_steps(said.generated), said.positions]
    return [*row, plain_steps(said.steps), *(more if said.copy or said.generated else ())]


def plain_steps(steps: Sequence[Step]) -> list[Any]:
    return [
        [token, {text: round(value, 5) for text, value in nats.items()}] for token, nats in steps
    ]


# transformers, in this process


def in_process(folder: Path, data_type: str) -> dict[str, Any]:
    """Replies of each way, of a twin in transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, data_type)).eval()
    replies = []
    with torch.inference_mode():
        for number, text in prompts():
            ids = [twins.TOKENS.index(letter) for letter in text]
            parts = {
                ALONE: [ids],
                AGAIN: [ids],
                CACHED: [ids[:-1], ids[-1:]],
                EXTENDED: [ids[: len(ids) // 3], ids[len(ids) // 3 : -7], ids[-7:]],
            }
            answers = {way: passes(model, cut) for way, cut in parts.items()}
            answers[COMPANY] = beside(model, ids, text)
            written = [token for token, _ in answers[ALONE]]
            whole = model(torch.tensor([[*ids, *written]]), use_cache=False).logits[0]
            answers[PREFILLED] = [
                (token, whole[len(ids) - 1 + at]) for at, token in enumerate(written)
            ]
            for way, found in answers.items():
                held = len(ids) // 3 if way in (CACHED, EXTENDED) else 0
                steps = tuple(step_of(token, logits) for token, logits in found)
                answer = "".join(token for token, _ in steps)
                said = WayReply(number, way, answer, steps, len(ids), held)
                if way == PREFILLED:
                    own = tuple(step_of(token, logits) for token, logits in answers[ALONE])
                    places = tuple(range(1, len(steps) + 1))
                    said = replace(said, generated=own, positions=places)
                replies.append(plain(said))
    return {"replies": replies}


def passes(model: Any, parts: list[list[int]]) -> list[tuple[int, Any]]:
    """The likeliest tokens behind a prompt that is fed in parts, with the logits of each."""
    import torch

    field, cache, found = twins.cache_field(model), None, list[tuple[int, Any]]()
    for ids in parts:
        made = model(torch.tensor([ids]), **{field: cache}, use_cache=True)
        cache = getattr(made, field)
    for _ in range(TOKENS):
        logits = made.logits[0, -1]
        found.append((int(logits.argmax()), logits))
        made = model(torch.tensor([[found[-1][0]]]), **{field: cache}, use_cache=True)
        cache = getattr(made, field)
    return found


def beside(model: Any, ids: list[int], text: str) -> list[tuple[int, Any]]:
    """The same in a batch with a longer and a shorter prompt, padded on the left."""
    import torch

    other = [twins.TOKENS.index(letter) for letter in twins.prose(LONGEST + 50, Random(text))]
    batch = [ids, other, other[: SHORTEST // 2]]
    most = max(map(len, batch))
    given = torch.tensor([[0] * (most - len(row)) + row for row in batch])
    mask = torch.tensor([[0] * (most - len(row)) + [1] * len(row) for row in batch])
    field, cache, found = twins.cache_field(model), None, list[tuple[int, Any]]()
    placed = "position_ids" in signature(model.forward).parameters
    for _ in range(TOKENS):
        places = (mask.cumsum(-1) - 1).clamp(min=0)[:, -given.shape[1] :]
        more = {"position_ids": places} if placed else {}
        made = model(given, attention_mask=mask, **{field: cache}, use_cache=True, **more)
        cache = getattr(made, field)
        chosen = made.logits[:, -1].argmax(-1)
        found.append((int(chosen[0]), made.logits[0, -1]))
        given = chosen[:, None]
        mask = torch.cat([mask, torch.ones_like(given)], -1)
    return found


def step_of(token: int, logits: Any) -> Step:
    nats = logits.float().log_softmax(-1)
    best = nats.argsort(descending=True)[:TOP].tolist()
    return twins.TOKENS[token], {twins.TOKENS[each]: float(nats[each]) for each in best}


# llama.cpp, over HTTP


def served(folder: Path) -> dict[str, Any]:
    """Replies of each way, of a twin that llama.cpp's server has, and by how much its answers
    differ from the twin's reference."""
    write_twin_gguf(folder)
    server = os.environ.get("NEEDLEMAP_LLAMA_SERVER", "")
    command = SERVE.format(server=server, model=folder / TWIN, slots=1)
    replies = []
    try:
        with (
            started(command, folder / "log") as url,
            httpx.Client(base_url=url, timeout=60) as client,
        ):
            for number, text in prompts():
                cold = {"cache_prompt": False}
                first = complete(client, number, ALONE, text, **cold)
                replies += [first, complete(client, number, AGAIN, text, **cold)]
                complete(client, number, "", text)
                replies.append(complete(client, number, CACHED, text))
                turn = text + first.text + twins.prose(60, Random(text))
                complete(client, number, "", turn + twins.prose(200, Random(turn)))
                replies.append(complete(client, number, REWOUND, text))
                head = complete(client, number, "", text[: len(text) // 3])
                assert head.prompt_tokens
                replies.append(complete(client, number, EXTENDED, text))
            worst = 0.0
            for line in (folder / twins.REFERENCE).read_text("utf-8").splitlines():
                row = json.loads(line)
                worst = max(worst, beside_reference(client, row))
    except (subprocess.SubprocessError, RuntimeError, OSError, httpx.HTTPError) as error:
        raise SettingsError(f"llama-server: {type(error).__name__} {error}") from error
    return {"replies": [plain(each) for each in replies], "reference_nats": round(worst, 6)}


def complete(client: httpx.Client, number: int, way: str, text: str, **more: Any) -> WayReply:
    asked = {"prompt": text, "max_tokens": TOKENS, "temperature": 0, "logprobs": TOP, **more}
    told = client.post("completions", json=asked).raise_for_status().json()
    rows = told["choices"][0]["logprobs"]["content"]
    steps = tuple(
        (row["token"], {top["token"]: top["logprob"] for top in row["top_logprobs"]})
        for row in rows
    )
    usage = told["usage"]
    held = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    return WayReply(number, way, told["choices"][0]["text"], steps, usage["prompt_tokens"], held)


def beside_reference(client: httpx.Client, row: dict[str, Any]) -> float:
    """By how many nats the server's answer to a prompt of the reference differs from it."""
    reply = complete(client, 0, ALONE, row["prompt"], cache_prompt=False)
    right = tuple(zip(row["answer"], row["top"], strict=True))
    move = move_between(WayReply(0, "reference", row["answer"], right), reply)
    return move.nats if move else 0.0


# Mutants, in this process

TURN = 1_000  # added to a prompt's number: the talk that goes on behind it
WRITTEN = 4  # tokens of each answer
SET_BESIDE = (2, 4)  # tokens of an answer at which it is sent as a prompt
FLOOD, FLOOD_TOKENS = 26, 40  # prompts that push all others out of the engine's cache
CONFIRMED = 3  # moves of a way that are asked again, in copies


def ask_mutants(only: list[str]) -> None:
    """Ask the engines with a fault, and those without, the same in every way."""
    import twin_mutants

    done = {(row["engine"], row["architecture"]) for row in kept()}
    with tempfile.TemporaryDirectory() as place:
        for kind in twin_mutants.MUTANTS:
            if only and kind.__name__ not in only:
                continue
            options = {"drafts": kind.drafts, "plain": kind.plain}
            honest = type("Honest", (twin_mutants.Engine,), options)
            own = (honest_name(**options), kind.architecture)
            told = {
                "name": kind.__name__,
                "thread": kind.thread,
                "by_reference": kind.by_reference,
                **options,
            }
            mutant = (MUTANTS, f"{kind.architecture}+{kind.__name__}")
            for names, made, more in ((own, honest, {}), (mutant, kind, {"mutant": told})):
                if names in done and not (only and more):
                    continue
                done.add(names)
                line = {"engine": names[0], "architecture": names[1], "data_type": "float32"}
                line |= more | engine_replies(made, kind.architecture, Path(place))
                print(*names, line.get("refused", ""), flush=True)
                keep(line)


def engine_replies(kind: Any, architecture: str, place: Path) -> dict[str, Any]:
    """Replies of each way, of an engine, with copies of what moved most, and by how much its
    answers differ from the twin's reference."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    folder = place / architecture
    try:
        if not folder.exists():
            twins.write_twin(twins.shape_of(architecture), folder, 1, (512,))
    except SettingsError as error:
        return {"refused": str(error).split(": ", 1)[-1].replace(str(folder), architecture)[:200]}
    engine = kind(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval())
    texts = {(number, 0): text for number, text in prompts()}
    replies = every_way(engine, texts)
    far = {
        number % TURN
        for way in judge_ways(replies, TOLERANCE["float32"])
        for number in sorted(way.moves, key=lambda number: -way.moves[number])[:CONFIRMED]
        if way.moves[number] > way.limit
    }
    copies = {
        (number, copy): f"{twins.prose(12, Random(f'{number} {copy}'))} {texts[number, 0]}"
        for number in sorted(far)
        for copy in (1, 2)
    }
    replies += every_way(engine, copies) if copies else []
    worst = 0.0
    for line in (folder / twins.REFERENCE).read_text("utf-8").splitlines()[: 2 * PROMPTS]:
        row = json.loads(line)
        right = tuple(zip(row["answer"], row["top"], strict=True))
        said = engine_said(engine, 0, 0, ALONE, row["prompt"], len(row["answer"]), cached=False)
        move = move_between(WayReply(0, "reference", row["answer"], right), said)
        worst = max(worst, move.nats if move else 0.0)
    return {"replies": [plain(each) for each in replies], "reference_nats": round(worst, 6)}


def every_way(engine: Any, texts: dict[tuple[int, int], str]) -> list[WayReply]:
    """Ask prompts in company, from the cache, in a talk that goes on, and as it was before; then
    behind a flood, which makes them cold, twice; then what was written as a prompt."""
    replies, turns = list[WayReply](), dict[tuple[int, int], str]()
    for (number, copy), text in texts.items():
        draw = Random(f"company {text}")
        others = [twins.prose(length, draw) for length in (len(text) + 40, SHORTEST // 2)]
        replies.append(engine_said(engine, number, copy, COMPANY, text, beside=others))
        reply = engine_said(engine, number, copy, CACHED, text)
        if reply.cold:  # what a batch leaves is not always of use
            replies.append(replace(reply, way=AGAIN))
            reply = engine_said(engine, number, copy, CACHED, text)
        replies.append(reply)
        turn = turns[number + TURN, copy] = text + reply.text + twins.prose(60, draw)
        replies.append(engine_said(engine, number + TURN, copy, EXTENDED, turn))
        replies.append(engine_said(engine, number, copy, REWOUND, text))
    alone = dict[tuple[int, int], WayReply]()
    for asked in (texts, turns, texts):
        flood(engine, f"{len(replies)} {next(iter(texts.values()))}")
        for (number, copy), text in asked.items():
            reply = engine_said(engine, number, copy, ALONE, text)
            way = ALONE if reply.cold else FLOODED
            if reply.cold and (number, copy) in alone:
                way = AGAIN
            replies.append(replace(reply, way=way))
            if way == ALONE:
                alone[number, copy] = reply
    for (number, copy), text in texts.items():
        if reply := alone.get((number, copy)):
            replies.append(sent_back(engine, reply, text))
    return replies


def flood(engine: Any, name: str) -> None:
    for number in range(FLOOD):
        text = twins.prose(FLOOD_TOKENS, Random(f"flood {name} {number}"))
        engine_said(engine, 0, 0, "", text, 1)


def sent_back(engine: Any, reply: WayReply, text: str) -> WayReply:
    """An answer as a prompt, beside what was said of it when it was written."""
    sent = [
        engine_said(engine, 0, 0, "", text + reply.text[: at - 1], 1, cached=False).steps[0]
        for at in SET_BESIDE
    ]
    return replace(
        reply,
        way=PREFILLED,
        steps=tuple(
            (reply.text[at - 1], nats) for at, (_, nats) in zip(SET_BESIDE, sent, strict=True)
        ),
        generated=tuple(reply.steps[at - 1] for at in SET_BESIDE),
        positions=SET_BESIDE,
    )


def engine_said(
    engine: Any,
    number: int,
    copy: int,
    way: str,
    text: str,
    tokens: int = WRITTEN,
    *,
    beside: Iterable[str] = (),
    cached: bool = True,
) -> WayReply:
    """What an engine says of a prompt, alone or together with others."""
    rows = [[twins.TOKENS.index(letter) for letter in each] for each in (text, *beside)]
    reply = engine.answer(rows, tokens, cached)[0]
    steps = tuple(
        step_of(token, logits) for token, logits in zip(reply.tokens, reply.logits, strict=True)
    )
    written = "".join(token for token, _ in steps)
    return WayReply(number, way, written, steps, len(text), reply.held, copy=copy)


if __name__ == "__main__":
    sys.exit(main())
