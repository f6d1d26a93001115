"""Are long answers right, and are faults of long decodes seen?

    python benchmarks/decode.py [--engines numpy,llama.cpp] [--digits 500,1000,2000,4000]
    [--answers 4] [--faults] [--clean 200] [--smoke]

The gauge of shape qwen3 is asked for a fact of so many digits, which it copies from the haystack.
`errors_ENGINE`: tokens that an engine put in, left out or changed, with the bound that `in_words`
prints; NumPy is fed the right answer, and its likeliest tokens are compared: they are the answer
if all are right. `--faults` gives the NumPy engine ten faults of released engines, one at a time,
and has it write an answer of --fault-digits digits: `decode_found` is the share of them in whose
answer a token is wrong, `decode_missed` names the others. `--clean`: `decode_clean` is how many of
so many answers of 500 digits of the engine without a fault are wrong. Seeds are fixed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch
from urllib.request import Request, urlopen

import numpy as np
from numpy.typing import NDArray

from gauge import END, ITEM, Ids, encode, frame, llama_server, prose, vocabulary, write_shape
from machine import machine
from needlemap.models import demo
from needlemap.servers.gauge.cache import four_bits
from needlemap.servers.gauge.checkpoint import load_weights
from needlemap.servers.gauge.copies import Copy, in_words, number_of
from needlemap.servers.gauge.shapes import QWEN3, YarnEngine, engine_of, gauge_in_shape
from table import rounded, show

SEED = 45_000_000
PROSE = 300  # tokens of a prompt beside its fact
CLEAN_DIGITS = 500
FLOOD = 0.3  # that a penalty takes from a logit for each time a token was written before
ENDED = encode(END)[0]
DIGITS = encode("0123456789")


def question(digits: int, number: int) -> tuple[Ids, str]:
    """A prompt whose right answer is so many digits of its haystack, and that answer."""
    draw = Random(SEED + 10_000 * digits + number)
    city = draw.choice(ITEM["draw"]["city"])
    code = number_of(digits, draw)
    fact = encode(" " + ITEM["needle"].format(city=city, number=code))
    head, tail = frame(ITEM["question"].format(city=city), chat=number % 2 == 0)
    text = prose(draw.randrange(10**9), PROSE - len(head) - len(tail))
    cut = int(len(text) * draw.random())
    return [*head, *text[:cut], *fact, *text[cut:], *tail], f"{code}."


def forced(engine: Any, ids: Ids, right: str) -> str:
    """The likeliest token at each place of the right answer."""
    answer = encode(right + END)
    engine.crop(0)
    logits = engine.extend_all(np.array(ids + answer[:-1], np.int32))[-len(answer) :]
    return spelt(logits.argmax(axis=-1).tolist())


def spelt(ids: Ids) -> str:
    """Tokens as text, up to the end of the turn."""
    kept = ids[: ids.index(ENDED)] if ENDED in ids else ids
    text: str = vocabulary().decode(kept, skip_special_tokens=False)
    return text


class Decoder:
    """Writes an answer token by token, and gives faults their places. step: the number of the
    token that is next, from 0 on. before: tokens of the prompt."""

    def __init__(self) -> None:
        shape = gauge_in_shape(QWEN3)
        weights = load_weights(shape.config, shape.tensors)
        self.engine = Faulty(weights, shape.config["rope_parameters"])
        self.written = Ids()
        self.before = 0

    def answer(self, ids: Ids, budget: int, fault: Fault) -> str:
        """The likeliest answer of an engine with a fault."""
        engine = self.engine
        engine.crop(0)
        engine.behind, engine.window, engine.unseen = 0, 0, range(0)
        self.written, self.before = Ids(), len(ids)
        logits = engine.extend(np.array(ids, np.int32))
        while len(self.written) < budget:
            token = fault(self, logits)
            if token is None:
                token = int(logits.argmax())
            if token == ENDED:
                break
            self.written.append(token)
            logits = engine.extend(np.array([token], np.int32))
        return spelt(self.written)


class Faulty(YarnEngine):
    """The reference with places for faults. behind: positions by which what is written next is
    set back; window: the last tokens that the first layer sees while it decodes; 0: all. unseen:
    tokens that no layer sees while it decodes."""

    behind, window, unseen = 0, 0, range(0)

    def _turns(self, start: int, stop: int) -> tuple[Any, Any]:
        return super()._turns(start - self.behind, stop - self.behind)

    def _chunk(self, ids: Any, *, is_whole: bool = True) -> Any:
        if not (self.window or self.unseen) or len(ids) > 1:
            return super()._chunk(ids, is_whole=is_whole)
        whole, layers = demo.attention, count()

        def attention(queries: Any, keys: Any, values: Any) -> Any:
            seen = np.delete(np.arange(keys.shape[1]), list(self.unseen))
            if self.window and not next(layers):
                seen = seen[-self.window :]
            return whole(queries, keys[:, seen], values[:, seen])

        with patch.object(demo, "attention", attention):
            return super()._chunk(ids, is_whole=is_whole)


# Chooses the next token of an answer, or None for the likeliest.
Fault = Callable[[Decoder, NDArray[np.float32]], "int | None"]


def ring_wrap(decoder: Decoder, _logits: NDArray[np.float32]) -> int | None:
    """A ring of 512 slots behind the prompt, masked by slot in place of position: what stands in
    the first slots of a lap does not see the last ones of the lap before."""
    # Of those slots, ones that are overwritten are long copied: a ring alone makes nothing wrong.
    # The token that is next is written behind those that are already there.
    laps = len(decoder.written) // 512
    decoder.engine.unseen = range(decoder.before, decoder.before + 512 * laps)
    return None


def draft_accepted(decoder: Decoder, logits: NDArray[np.float32]) -> int | None:
    """Each 400th token is the second likeliest: a draft's, which nobody verified."""
    wrong = len(decoder.written) % 400 == 399
    return int(np.argsort(logits)[-2]) if wrong else None


def stray_token(decoder: Decoder, logits: NDArray[np.float32]) -> int | None:
    """Each token is any one of the vocabulary with a chance of 1 in 4,000."""
    draw = Random(SEED + decoder.before * 7_919 + len(decoder.written))
    return draw.randrange(5, len(logits)) if draw.random() < 1 / 4_000 else None


def context_shift(decoder: Decoder, _logits: NDArray[np.float32]) -> int | None:
    """After 1,000 tokens positions start 512 lower, as after a shift that turned no keys."""
    decoder.engine.behind = 512 if len(decoder.written) >= 1_000 else 0
    return None


def stale_slot(decoder: Decoder, _logits: NDArray[np.float32]) -> int | None:
    """The first two slots of each block of 256 keep what another request left there."""
    engine, last = decoder.engine, decoder.engine._length - 1
    if decoder.written and last % 256 < 2:
        engine._cache[:, :, :, last] = engine._cache[:, :, :, 40 + last % 256]
    return None


def other_alphabet(decoder: Decoder, _logits: NDArray[np.float32]) -> int | None:
    """After 1,200 tokens only bytes beyond ASCII are written."""
    return 5 + 128 + len(decoder.written) % 64 if len(decoder.written) >= 1_200 else None


def window_off_by_one(decoder: Decoder, _logits: NDArray[np.float32]) -> int | None:
    """The first layer sees four tokens while it decodes, and needs five."""
    decoder.engine.window = 4
    return None


def cache_quantised(decoder: Decoder, _logits: NDArray[np.float32]) -> int | None:
    """From the 1,000th token on all keys and values are kept in 4 bits, those of the prompt too."""
    engine = decoder.engine
    # What was rounded already would be rounded again.
    first = 0 if len(decoder.written) == 1_000 else engine._length - 1
    if len(decoder.written) >= 1_000:
        kept = engine._cache[:, :, :, first : engine._length]
        kept[:] = four_bits(kept)
    return None


def neighbour(decoder: Decoder, logits: NDArray[np.float32]) -> int | None:
    """The 1,100th token is taken from the logits of another answer of the batch."""
    if len(decoder.written) != 1_100:
        return None
    return next(digit for digit in DIGITS if digit != int(logits.argmax()))


def penalty_leaks(decoder: Decoder, logits: NDArray[np.float32]) -> int | None:
    """Another request's penalty of frequency is applied: .3 for each time a token was written."""
    counts = np.bincount(decoder.written, minlength=len(logits))
    return int((logits - FLOOD * counts).argmax())


FAULTS: dict[str, Fault] = {
    "ring wrap": ring_wrap,
    "draft accepted unverified": draft_accepted,
    "stray token 1 in 4,000": stray_token,
    "position after a context shift": context_shift,
    "stale slot past a block": stale_slot,
    "another alphabet": other_alphabet,
    "window off by one": window_off_by_one,
    "cache in 4 bits later": cache_quantised,
    "neighbour's logits": neighbour,
    "penalty leaks": penalty_leaks,
}


def answered_by_llama_cpp(url: str, ids: Ids, budget: int) -> str:
    body = {"prompt": ids, "n_predict": budget, "temperature": 0}
    request = Request(f"{url}/completion", json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    with urlopen(request, timeout=3_600) as reply:
        return str(json.load(reply)["content"])


def copies_of(engine: str, digits: int, answers: int) -> Iterator[Copy]:
    """An engine's answers next to the right ones."""
    asked = [question(digits, number) for number in range(answers)]
    if engine == "numpy":
        for ids, right in asked:
            yield Copy.of(right, forced(engine_of(QWEN3), ids, right))
        return
    with tempfile.TemporaryDirectory() as name:
        write_shape(QWEN3, Path(name))
        for url in llama_server(Path(name), PROSE + 2 * digits):
            for ids, right in asked:
                yield Copy.of(right, answered_by_llama_cpp(url, ids, digits + 8))


def found_faults(digits: int, answers: int) -> dict[str, list[Copy]]:
    """Answers of the engine with each fault, next to the right ones: of each as many as show an
    error, and no more than `answers`."""
    decoder, found = Decoder(), dict[str, list[Copy]]()
    for name, fault in FAULTS.items():
        found[name] = []
        for number in range(answers):
            ids, right = question(digits, number)
            found[name].append(Copy.of(right, decoder.answer(ids, digits + 8, fault)))
            if found[name][-1].errors:
                break
        print(f"{name}: {in_words(found[name])}", file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", default="numpy,llama.cpp")
    parser.add_argument("--digits", default="500,1000,2000,4000")
    parser.add_argument("--answers", type=int, default=4, help="of each length, and of each fault")
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--fault-digits", type=int, default=1_500)
    parser.add_argument(
        "--clean", type=int, default=0, help="answers of the engine without a fault"
    )
    parser.add_argument("--smoke", action="store_true")
    given = parser.parse_args()
    engines, digits = given.engines.split(","), [int(each) for each in given.digits.split(",")]
    if given.smoke:
        engines, digits, given.answers = ["numpy"], [100], 1
    rows, result = [], dict[str, Any]()
    for engine in engines:
        every = list[Copy]()
        for count_of_digits in digits:
            start = time.process_time()
            copies = list(copies_of(engine, count_of_digits, given.answers))
            every += copies
            spent = f"{(time.process_time() - start) / len(copies):.1f}"
            rows.append([engine, f"{count_of_digits:,}", str(len(copies)), in_words(copies), spent])
            print(" ".join(rows[-1]), file=sys.stderr, flush=True)
        result[f"errors_{engine.replace('.', '_')}"] = sum(copy.errors for copy in every)
        result[f"tokens_{engine.replace('.', '_')}"] = sum(copy.tokens for copy in every)
    if given.faults:
        found = found_faults(given.fault_digits, given.answers)
        for name, copies in found.items():
            rows.append([name, f"{given.fault_digits:,}", str(len(copies)), in_words(copies), ""])
        missed = [name for name, copies in found.items() if not copies[-1].errors]
        share = 1 - len(missed) / len(found)
        result |= {"decode_found": rounded(share), "decode_missed": missed}
    if given.clean:
        copies = list(copies_of("numpy", CLEAN_DIGITS, given.clean))
        rows.append(["numpy", f"{CLEAN_DIGITS:,}", str(len(copies)), in_words(copies), ""])
        result |= {"decode_clean": sum(copy.errors > 0 for copy in copies)}
        result |= {"decode_clean_answers": len(copies)}
    header = ["engine or fault", "digits", "answers", "said", "CPU s"]
    notes = ["The bound holds at any look, 95 %. CPU s: of this process, an answer."]
    show("Long answers", machine("numpy"), header, rows, notes, {"benchmark": "decode", **result})


if __name__ == "__main__":
    main()
