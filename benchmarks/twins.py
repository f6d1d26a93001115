"""Equal ways of asking twins of each architecture: do they agree, and is nothing honest blamed?

    python benchmarks/twins.py                     judges the kept replies: `--recorded`
    python benchmarks/twins.py --engines NAME...   asks engines anew: transformers, llama.cpp

transformers computes in this process; llama.cpp serves what its own converter takes
(NEEDLEMAP_GGUF_CONVERTER: the folder of its source; NEEDLEMAP_LLAMA_SERVER: the server). Replies
with their log-probabilities are kept in benchmarks/twins.jsonl.

Prints one JSON object last. architectures: compared by log-probabilities in transformers, cached
against one pass; clean: judged ways of honest engines; alarms: those of them that failed;
mutants, found: planted faults and those that were found, by name; none are planted yet.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from random import Random
from typing import Any

import httpx

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
    PREFILLED,
    REWOUND,
    Said,
    Step,
    judge_ways,
)

KEPT = Path(__file__).with_suffix(".jsonl")
ENGINES = ("transformers", "llama.cpp")
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
    parser.add_argument("--only", nargs="*", default=[], help="architectures")
    asked = parser.parse_args()
    for engine in asked.engines:
        ask_anew(engine, asked.only)
    print(json.dumps(summary(kept())))


def kept() -> list[dict[str, Any]]:
    """The kept lines, the last of each engine, architecture and data type."""
    lines = [json.loads(line) for line in KEPT.read_text("utf-8").splitlines()]
    named = {(row["engine"], row["architecture"], row["data_type"]): row for row in lines}
    return list(named.values())


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the kept replies come to."""
    clean, alarms, refused = 0, list[str](), dict[str, str]()
    reference = dict[str, float]()
    moves = defaultdict[str, dict[str, float]](dict)
    for row in rows:
        name = f"{row['engine']}/{row['architecture']}/{row['data_type']}"
        if row.get("refused"):
            refused[name] = row["refused"]
            continue
        replies = [said_of(reply) for reply in row["replies"]]
        for way in judge_ways(replies, row["data_type"]):
            if way.way == AGAIN or not way.n:
                continue
            clean += 1
            moves[name][way.way] = max((way.percentiles or {}).values(), default=0.0)
            if way.state == FAIL:
                alarms.append(f"{name} {way.way}: {way.said}")
        if "reference_nats" in row:
            reference[name] = moves[name]["reference"] = row["reference_nats"]
    for name, found in moves.items():
        shown = ", ".join(f"{way} {nats:.2g}" for way, nats in found.items())
        print(f"{name}: moved by at most {shown}")
    return {
        "benchmark": "twins",
        "architectures": sum(
            row["engine"] == "transformers" and row["data_type"] == "float32" and "replies" in row
            for row in rows
        ),
        "pairs": sum("replies" in row for row in rows),
        "refused": refused,
        "reference_nats": reference,
        "clean": clean,
        "alarms": len(alarms),
        "alarms_named": alarms,
        "mutants": 0,
        "found": None,
    }


def said_of(row: list[Any]) -> Said:
    """A reply, as `plain` kept it."""
    prompt, way, text, prompt_tokens, cached_tokens, steps = row
    told = tuple((token, nats) for token, nats in steps)
    return Said(prompt, way, text, told, prompt_tokens, cached_tokens)


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
                with KEPT.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line, separators=(",", ":")) + "\n")


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


def plain(said: Said) -> list[Any]:
    """A reply as it is kept."""
    steps = [
        [token, {text: round(value, 5) for text, value in nats.items()}]
        for token, nats in said.steps
    ]
    return [said.prompt, said.way, said.text, said.prompt_tokens, said.cached_tokens, steps]


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
                said = "".join(token for token, _ in steps)
                replies.append(plain(Said(number, way, said, steps, len(ids), held)))
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


def complete(client: httpx.Client, number: int, way: str, text: str, **more: Any) -> Said:
    asked = {"prompt": text, "max_tokens": TOKENS, "temperature": 0, "logprobs": TOP, **more}
    told = client.post("completions", json=asked).raise_for_status().json()
    rows = told["choices"][0]["logprobs"]["content"]
    steps = tuple(
        (row["token"], {top["token"]: top["logprob"] for top in row["top_logprobs"]})
        for row in rows
    )
    usage = told["usage"]
    held = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    return Said(number, way, told["choices"][0]["text"], steps, usage["prompt_tokens"], held)


def beside_reference(client: httpx.Client, row: dict[str, Any]) -> float:
    """By how many nats the server's answer to a prompt of the reference differs from it."""
    from needlemap.servers.ways import moved

    reply = complete(client, 0, ALONE, row["prompt"], cache_prompt=False)
    right = tuple(zip(row["answer"], row["top"], strict=True))
    move = moved(Said(0, "reference", row["answer"], right), reply)
    return move.nats if move else 0.0


if __name__ == "__main__":
    sys.exit(main())
