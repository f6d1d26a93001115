"""Does the gauge find every needle, in each data type, and what does its reference cost?

    python benchmarks/gauge.py [--lengths 64,256,1024] [--engines numpy,float32,bfloat16]
    [--shapes llama,padded] [--device cuda] [--kept FILE] [--smoke]

Each length gets fresh prompts over eleven depths: 600, and 200 beyond 4k; a third of the haystacks
has one token more, a third one less. Half are in chat, half behind "Answer:". A haystack hides as
many locker codes of twelve digits as fill half of it, eleven at most, and is asked for each: so the
engines compute it once. A prompt is missed if the likeliest answer is anything but the code, a full
stop and the end. Seeds are none that any part of the gauge was made with.

Engines: `numpy`, the package's own; `float32` and `bfloat16`, by transformers, on the CPU or on
--device; `llama.cpp`, of the server that NEEDLEMAP_LLAMA_SERVER names, from gauge.gguf in 16-bit
floats; `vllm`, of the binary that NEEDLEMAP_VLLM names, in float32. Beside each miss stands 95 %
certainty: with none of 600, fewer than .5 % are missed. `shapes`: how many shapes of --shapes (all)
missed nothing in any engine; `shapes_missed` names the others, `shapes_refused` those that an
engine's server does not start with. `params` and `holds_tokens` are those of the shape that holds
longest.

--kept: a file with a line for each haystack that was asked. A haystack that stands in it is not
asked again unless weights or prompts have changed, so long prompts can be asked over several days.

`margin_over_threshold_least`: how much likelier the right token is than the next one, in nats a
token, beside twice of what bfloat16 moves that.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from itertools import product
from math import comb
from pathlib import Path
from random import Random
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import tokenizers
from numpy.typing import NDArray

from machine import machine
from needlemap.haystacks.generated import Generated
from needlemap.models.demo import NumpyEngine
from needlemap.prompts.templates import load_template
from needlemap.servers.gauge.checkpoint import (
    DATA,
    TOKENIZER,
    load_weights,
    write_checkpoint,
)
from needlemap.servers.gauge.shapes import QWEN3, SHAPES, USUAL, engine_of, gauge_in_shape
from needlemap.settings.reading import DEFAULT_ITEMS
from table import rounded, show

Ids = list[int]
# whether the likeliest answer is right: of what prompts share, what is behind it, and the answer
Ask = Callable[[Ids, Ids, str], bool]

SEED = 27_000_000  # of the first prompt of the first length
DEPTHS = 11
LENGTHS = (64, 256, 1_024, 2_048, 4_096, 8_192)
MANY, FEWER, BEYOND = 600, 200, 4_096  # prompts of a length, and of one beyond so many tokens
ITEM = DEFAULT_ITEMS["english"]
ANSWER_TOKENS = 16
END = "<|im_end|>"
READY_S = 600  # in which a server has to be ready; vLLM takes a minute on a busy machine
MAKING_CPU_S = 11  # of tools/train_gauge.py, which trains no weights


@dataclass(frozen=True)
class Asked:
    """What prompts share, and of each the tokens behind that with the answer that is right."""

    shared: Ids
    questions: list[tuple[Ids, str]]


@cache
def vocabulary() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(DATA / TOKENIZER))


def encode(text: str) -> Ids:
    ids: Ids = vocabulary().encode(text, add_special_tokens=False).ids
    return ids


def draw_prompts(length: int, number: int) -> Asked:
    """The prompts of a haystack by its length and number: its template, its facts, their depths
    and its text."""
    length += number % 3 - 1
    draw, chat = Random(SEED + 10_000 * length + number), number % 2 == 0
    cities = draw.sample(ITEM["draw"]["city"], DEPTHS)
    codes = [str(draw.randrange(10**11, 10**12)) for _ in cities]
    facts = [
        encode(" " + ITEM["needle"].format(city=city, number=code))
        for city, code in zip(cities, codes, strict=True)
    ]
    frames = [frame(ITEM["question"].format(city=city), chat) for city in cities]
    head = frames[0][0]
    room = length - len(head) - max(len(tail) for _, tail in frames)
    count = max(1, min(DEPTHS, room // 2 // max(map(len, facts))))
    text = prose(draw.randrange(10**9), max(0, room - sum(map(len, facts[:count]))))
    places = sorted((number * count + at) % DEPTHS / (DEPTHS - 1) for at in range(count))
    ids, last = list(head), 0
    for place, fact in zip(places, facts, strict=False):
        cut = round(len(text) * place)
        ids += text[last:cut] + fact
        last = cut
    asked = [(tail, f"{code}.{END}") for (_, tail), code in zip(frames, codes, strict=True)]
    return Asked(ids + text[last:], asked[:count])


def frame(question: str, chat: bool) -> tuple[Ids, Ids]:
    """Tokens before and behind a haystack, in needlemap's own templates."""
    parts = load_template("chat-en" if chat else "text-en").parts
    around = [part.around(question) for part in parts]
    if not chat:
        return encode(around[0][0]), encode(around[0][1] or "")
    system, (before, behind) = around[0][0], around[1]
    head = f"<|im_start|>system\n{system}{END}\n<|im_start|>user\n{before}"
    return encode(head), encode(f"{behind}{END}\n<|im_start|>assistant\n")


def prose(seed: int, tokens: int) -> Ids:
    """The first tokens of generated prose."""
    ids: Ids = []
    source = Generated(seed=seed)
    for number in range(tokens):
        if len(ids) >= tokens:
            break
        ids += encode(source.document(number).text + "\n\n")
    return ids[:tokens]


def write_shape(name: str, folder: Path) -> None:
    """Write a shape's checkpoint and llama.cpp's file of it."""
    checkpoint = gauge_in_shape(name)
    write_checkpoint(folder, checkpoint.files())
    if "NEEDLEMAP_GGUF_CONVERTER" in os.environ:
        sys.path.append(os.environ["NEEDLEMAP_GGUF_CONVERTER"])
        from needlemap.servers.gauge.gguf import NAME, write_gguf

        write_gguf(folder / NAME, checkpoint.config, checkpoint.tensors)


def asks_numpy(shape: str) -> Ask:
    engine, held = engine_of(shape), Ids()

    def ask(shared: Ids, tail: Ids, right: str) -> bool:
        nonlocal held
        if held is not shared:
            engine.crop(0)
            engine.extend(np.array(shared, np.int32))
            held = shared
        engine.crop(len(shared))
        answer = encode(right)
        logits = engine.extend_all(np.array(tail + answer[:-1], np.int32))
        return logits[-len(answer) :].argmax(axis=-1).tolist() == answer

    return ask


def asks_transformers(model: Any) -> Ask:
    import torch
    from transformers import DynamicCache

    cache, held = DynamicCache(config=model.config), Ids()

    def feed(ids: Ids, kept: int, cache: Any) -> Any:
        with torch.inference_mode():
            return model(
                torch.tensor([ids], device=model.device),
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=kept,
            ).logits[0]

    def ask(shared: Ids, tail: Ids, right: str) -> bool:
        nonlocal cache, held
        if held is not shared:
            cache, held = DynamicCache(config=model.config), shared
            feed(shared, 1, cache)
        answer = encode(right)
        # A copy, as a cache of windows cannot be cut back.
        logits = feed(tail + answer[:-1], len(answer), deepcopy(cache))
        return bool(logits.argmax(-1).tolist() == answer)

    return ask


def load_model(data_type: str, device: str, folder: Path = DATA) -> Any:
    import torch
    import transformers

    torch.set_num_threads(1)
    kind = getattr(torch, data_type)
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=kind)
    return model.to(device).eval()


def device_name(device: str) -> str:
    """What transformers computes on, for the machine's line; '' for the CPU."""
    if device == "cpu":
        return ""

    import torch

    return f", {torch.cuda.get_device_name(device)}"


def asks_llama_cpp(url: str) -> Ask:
    def ask(shared: Ids, tail: Ids, right: str) -> bool:
        prompt = shared + tail
        body = {"prompt": prompt, "n_predict": ANSWER_TOKENS, "temperature": 0}
        request = Request(f"{url}/completion", json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        with urlopen(request, timeout=3_600) as reply:
            told = json.load(reply)
        return str(told["content"]) + (END if told["stop_type"] == "eos" else "") == right

    return ask


def asks_vllm(url: str) -> Ask:
    def ask(shared: Ids, tail: Ids, right: str) -> bool:
        body = {
            "model": "gauge",
            "prompt": shared + tail,
            "max_tokens": ANSWER_TOKENS,
            "temperature": 0,
        }
        request = Request(f"{url}/v1/completions", json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        with urlopen(request, timeout=3_600) as reply:
            (told,) = json.load(reply)["choices"]
        return str(told["text"]) + (END if told["finish_reason"] == "stop" else "") == right

    return ask


def margins(logits: NDArray[np.float32], answer: Ids) -> float:
    """By how many nats a token of an answer is likelier than the likeliest other, in the mean."""
    own = logits[np.arange(len(answer)), answer]
    others = logits.copy()
    others[np.arange(len(answer)), answer] = -np.inf
    return float(np.mean(own - others.max(axis=-1)))


def margin_of(model: Any, ids: Ids, answer: Ids) -> float:
    import torch

    with torch.inference_mode():
        logits = model(torch.tensor([ids + answer], device=model.device)).logits[0]
    return margins(logits[len(ids) - 1 : -1].float().cpu().numpy(), answer)


class Kept:
    """The haystacks that were asked before, each in a line of a file; none without a file."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._missed: dict[str, int] = {}
        for line in path.read_text().splitlines() if path and path.exists() else []:
            told = json.loads(line)
            missed = told.pop("missed")
            self._missed[json.dumps(told)] = missed

    def missed(self, told: dict[str, Any], count: Callable[[], int]) -> int:
        """Return how many prompts of a haystack were missed. Without a line they are counted."""
        key = json.dumps(told)
        if key not in self._missed:
            self._missed[key] = count()
            if self.path:
                with self.path.open("a") as file:
                    print(json.dumps(told | {"missed": self._missed[key]}), file=file)
        return self._missed[key]


def digest(*parts: object) -> str:
    """A short hash. If it differs from a kept one, weights or prompts have changed."""
    return sha256(repr(parts).encode()).hexdigest()[:16]


def count_missed(
    ask: Ask, length: int, prompts: int, kept: Kept, told: dict[str, str]
) -> tuple[int, int]:
    """Of so many prompts at least: those that were missed, and those asked. told: the shape,
    its weights, and the engine, as lines of `kept` have them."""
    wrong = asked = 0
    for number in range(prompts):
        if asked >= prompts:
            break
        drawn = draw_prompts(length, number)
        haystack = {
            "tokens": length,
            "number": number,
            "prompts": digest(drawn.shared, drawn.questions),
            "asked": len(drawn.questions),
        }
        wrong += kept.missed(told | haystack, partial(count_wrong, ask, drawn))
        asked += len(drawn.questions)
    return wrong, asked


def count_wrong(ask: Ask, drawn: Asked) -> int:
    return sum(not ask(drawn.shared, tail, right) for tail, right in drawn.questions)


def most_missed(wrong: int, asked: int) -> float:
    """The share that is surely not exceeded: the upper end of an exact one-sided interval of 95 %
    (Clopper and Pearson 1934, Biometrika 26:404).

    >>> round(most_missed(0, 600), 5)
    0.00498
    """
    low, high = 0.0, 1.0
    for _ in range(50):
        share = (low + high) / 2
        chance = sum(
            comb(asked, k) * share**k * (1 - share) ** (asked - k) for k in range(wrong + 1)
        )
        low, high = (share, high) if chance > 0.05 else (low, share)
    return high


def apart(length: int, prompts: int, device: str) -> tuple[float, float]:
    """The reference beside transformers in 32 bits: the most that the margin of an answer differs;
    and the least margin over twice what bfloat16 moves margins."""
    exact, coarse = load_model("float32", device), load_model("bfloat16", device)
    engine, least, most, moved = NumpyEngine(load_weights()), np.inf, 0.0, []
    for number in range(prompts):
        drawn = draw_prompts(length, number)
        tail, right = drawn.questions[number % len(drawn.questions)]
        ids, answer = drawn.shared + tail, encode(right)
        engine.crop(0)
        logits = engine.extend_all(np.array(ids + answer, np.int32))
        ours = margins(logits[len(ids) - 1 : -1], answer)
        theirs = margin_of(exact, ids, answer)
        most, least = max(most, abs(ours - theirs)), min(least, theirs)
        moved.append(abs(margin_of(coarse, ids, answer) - theirs))
    return most, least / (2 * max(moved))


def reference_cpu_s(tokens: int) -> float:
    """CPU seconds of the package's engine for one cold prompt."""
    drawn = draw_prompts(tokens, 1)
    ids = np.array(drawn.shared + drawn.questions[0][0], np.int32)
    engine = NumpyEngine(load_weights())
    start = time.process_time()
    engine.extend(ids)
    return time.process_time() - start


def llama_server(folder: Path, longest: int) -> Iterator[str]:
    """The address of a llama-server that serves the gauge of a folder to so many tokens."""
    size = ["-c", str(longest + 4_096), "-np", "1", "-t", "1", "-tb", "1"]
    binary = os.environ["NEEDLEMAP_LLAMA_SERVER"]
    yield from served([binary, "-m", str(folder / "gauge.gguf"), *size])


def vllm_server(folder: Path, longest: int) -> Iterator[str]:
    """The address of a vLLM on one core that serves the gauge of a folder."""
    size = ["--dtype", "float32", "--max-model-len", str(longest + 64), "--max-num-seqs", "1"]
    binary = os.environ["NEEDLEMAP_VLLM"]
    named = ["--served-model-name", "gauge", "--enforce-eager"]
    own = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "OMP_NUM_THREADS": "1",
    }
    yield from served([binary, "serve", str(folder), *size, *named], **own)


def served(command: Sequence[str], **own: str) -> Iterator[str]:
    """The address of a server that a command starts, until it is ended. own: environment."""
    port = free_port()
    where = ["--host", "127.0.0.1", "--port", str(port)]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        [*command, *where],
        stdout=quiet,
        stderr=quiet,
        env=os.environ | own,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        await_health(url, process)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def free_port() -> int:
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        port: int = line.getsockname()[1]
        return port


class Refused(Exception):
    """A server ended before it was ready: its engine does not take the shape."""


def await_health(url: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until a server is ready. Raises Refused if it ends, RuntimeError if that takes too
    long."""
    until = time.monotonic() + READY_S
    while time.monotonic() < until and process.poll() is None:
        try:
            with urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    if process.poll() is not None:
        raise Refused
    raise RuntimeError(f"no server at {url}")


def asks_of(engine: str, device: str, shape: str, longest: int = 16_384) -> Iterator[Ask]:
    """An engine's way of asking about a shape, and its end. NumPy knows the usual shape, which
    stands for all that share its weights, and qwen3."""
    if engine == "numpy":
        yield asks_numpy(shape)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_shape(shape, folder)
        if engine == "llama.cpp":
            for url in llama_server(folder, longest):
                yield asks_llama_cpp(url)
        elif engine == "vllm":
            for url in vllm_server(folder, longest):
                yield asks_vllm(url)
        else:
            yield asks_transformers(load_model(engine, device, folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--engines", default="float32,bfloat16,llama.cpp")
    parser.add_argument("--device", default="cpu", help="torch's name, for transformers")
    parser.add_argument("--prompts", type=int, help="of each length, in place of 600 and 200")
    parser.add_argument("--shapes", default="llama", help="or: all")
    parser.add_argument("--kept", type=Path, help="haystacks that are not asked again")
    parser.add_argument("--smoke", action="store_true")
    given = parser.parse_args()
    engines = given.engines.split(",")
    shapes = list(SHAPES) if given.shapes == "all" else given.shapes.split(",")
    lengths = [int(each) for each in given.lengths.split(",")]
    prompts = given.prompts
    if given.smoke:
        engines, lengths, prompts = ["numpy"], [64, 256], 11
    rows, result, kept = [], dict[str, Any](), Kept(given.kept)
    missed, answered, refused = dict.fromkeys(shapes, 0), set[str](), list[str]()
    for shape, engine in product(shapes, engines):
        name = "bf16" if engine == "bfloat16" else engine.replace(".", "_")
        worst = 0
        told = {
            "shape": shape,
            "weights": digest(gauge_in_shape(shape).files()),
            "engine": engine,
            "device": given.device,
        }
        try:
            for ask in asks_of(engine, given.device, shape, max(lengths)):
                for length in lengths:
                    count = prompts or (MANY if length <= BEYOND else FEWER)
                    start = time.process_time()
                    wrong, asked = count_missed(ask, length, count, kept, told)
                    worst = max(worst, wrong)
                    answered.add(shape)
                    bound = most_missed(wrong, asked)
                    spent = (time.process_time() - start) / asked
                    figures = [f"{wrong} of {asked}", f"{bound:.2%}", f"{spent:.2f}"]
                    rows.append([shape, engine, str(length), *figures])
                    print(" ".join(rows[-1]), file=sys.stderr, flush=True)
        except Refused:
            refused.append(f"{shape} by {engine}")
            print(f"{shape} {engine} refused", file=sys.stderr, flush=True)
        missed[shape] += worst
        if shape in (USUAL, QWEN3):
            own = "" if shape == USUAL else f"_{shape}"
            result[f"missed{own}_{name}_most"] = worst
    if len(shapes) > 1:
        result["shapes"] = sum(not missed[shape] for shape in answered)
        result["shapes_missed"] = [shape for shape, worst in missed.items() if worst]
        result["shapes_refused"] = refused
    longest = max(map(gauge_in_shape, shapes), key=lambda shape: int(shape.config["holds_tokens"]))
    result |= {
        "params": sum(bits.size for bits in longest.tensors.values()),
        "holds_tokens": longest.config["holds_tokens"],
        "train_cpu_min": rounded(MAKING_CPU_S / 60),
        "reference_cpu_s_16k": rounded(reference_cpu_s(1_024 if given.smoke else 16_384)),
    }
    if not given.smoke:
        nats, over = apart(min(4_096, max(lengths)), 12, given.device)
        result |= {
            "reference_nats_apart": rounded(nats),
            "margin_over_threshold_least": rounded(over),
        }
    header = ["shape", "engine", "tokens", "missed", "surely fewer than", "CPU s"]
    notes = ["surely: 95 %, exact (Clopper-Pearson). CPU s: of this process, a prompt asked now."]
    show(
        "The gauge",
        machine("numpy") + device_name(given.device),
        header,
        rows,
        notes,
        {"benchmark": "gauge", **result},
    )


if __name__ == "__main__":
    main()
