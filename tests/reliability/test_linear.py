"""What strangers send takes time in proportion to its size, whatever it is made of.

Each function that meets a stranger's text reads a text and one four times as long, made of one
piece again and again. A ratio of processor times is asserted, never a time: twice the proportion is
let pass, a square is not. A measurement that other work disturbed is taken again.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import suppress
from time import process_time
from typing import Any

import pytest

from needlemap.allowance import read_allowance, retry_after_s
from needlemap.errors import NeedlemapError
from needlemap.http import HttpReply, JsonClient, check_address
from needlemap.http.faults import from_status, message_of
from needlemap.models import openai
from needlemap.models.judge import verdict
from needlemap.models.thinking import parted
from needlemap.registry import find
from needlemap.reports.table import escape_markdown
from needlemap.secrets import Secrets, hidden, scrub
from needlemap.tasks import Reference
from needlemap.text import plain, printable, ungrouped

SHORT, TIMES = 20_000, 4
MOST = 2 * TIMES
WORTH_S = 0.1  # a function that reads 80,000 characters sooner is quick, whatever its ratio
PIECES = (
    *("?", "=", "&", "a", "A", "1", "é", "中", " ", "\n", "\t", "-", "_", ".", ",", ":", ";", "/"),
    *("\\", "%", "#", "@", "*", "`", '"', "'", "(", ")", "[", "]", "{", "}", "<", ">", "|", "$"),
    *("~", "^", "!", "\x1b[", "\\boxed{", "<think>", "</think>", "**A", "A. ", "1,", "1.", "1 "),
    *("sk-", "bearer ", "?a=", "?key=", "://", "%41", "\\u0041", "&#65;", "a: ", "not ", "the "),
    *("answer is ", "a-", "ab-1 ", "答案", "\n- ", "\n1. ", "\\text{", "x1", "- - ", "['", ' "'),
    *("no answer: ", "correct", "option A", "input token count ", "http://a", "Score: 1", "a\n\n"),
)
REFERENCE = Reference("48213", question="What is the code? (A) 48213 (B) 5", keywords=("48213",))
LETTER = Reference("B", question="Which? A. red B. blue C. green", choices=("A", "B", "C"))
SECRETS = Secrets(["sk-proj/Ab+cD.9=qLm_Tr40xYz-7w", "short-7"])
SCORERS = ("levenshtein", "keyword", "substring", "exact", "first", "recall", "f1", "verbatim")
MORE = ("label", "boxed", "only", "choice")


def scored(name: str) -> Callable[[str], object]:
    scorer = find("scorers", name)()
    reference = LETTER if name in ("choice", "label", "boxed") else REFERENCE
    return lambda text: asyncio.run(scorer.score(text, reference))


def reply(text: str) -> object:
    message = {"content": text, "reasoning_content": text, "refusal": None}
    return openai.read({"choices": [{"message": message, "finish_reason": text}], "model": text})


READERS: dict[str, Callable[[str], object]] = {
    "scrub": scrub,
    "hidden": hidden,
    "secrets": SECRETS.hide,
    "secrets in JSON": lambda text: SECRETS.hide_in(
        [text[at : at + 9] for at in range(0, len(text), 9)]
    ),
    "a refusal": lambda text: from_status(400, text, {"location": text}),
    "a redirect": lambda text: from_status(302, "", {"location": text}),
    "an error's words": message_of,
    "a wait": lambda text: retry_after_s({"retry-after": text, "retry-after-ms": text}),
    "limits": lambda text: read_allowance(
        {f"x-ratelimit-{part}-tokens": text for part in ("limit", "remaining", "reset")}
    ),
    "an address": lambda text: check_address(f"http://{text}"),
    "an address's query": lambda text: check_address(f"http://h/?{text}"),
    "a reply": reply,
    "thinking": parted,
    "a judge": verdict,
    "a printed text": printable,
    "a printed line": lambda text: printable(text, line=True),
    "a compared text": plain,
    "numbers": ungrouped,
    "Markdown": escape_markdown,
    **{f"scorer {name}": scored(name) for name in (*SCORERS, *MORE)},
}


def rows(count: int) -> str:
    """A sound reply with so many log-probabilities, five others each."""
    others = [{"token": f"t{n}", "logprob": -n / 7, "bytes": [1, 2, 3]} for n in range(5)]
    row = {"token": "t", "logprob": -0.1, "bytes": [1], "top_logprobs": others}
    message = {"message": {"content": "t"}, "logprobs": {"content": [row] * count}}
    return json.dumps({"choices": [message]})


def test_log_probabilities_are_read_in_proportion() -> None:
    """20,000 rows took 6 s in the event loop, for hiding keys alone."""
    door = JsonClient("http://127.0.0.1:9/v1", {"authorization": "Bearer sk-planted-0123456789"})

    def read_rows(text: str) -> object:
        return openai.read(door.object_in(HttpReply(200, {}, text), "The server"))

    few, many = rows(10_000), rows(20_000)
    ratios = [seconds(read_rows, many) / seconds(read_rows, few) for _ in range(4)]
    assert min(ratios) < 2.5


def seconds(read: Callable[[str], Any], text: str) -> float:
    """The processor time of one reading; what a text is refused for does not matter."""
    start = process_time()
    with suppress(NeedlemapError):
        read(text)
    return process_time() - start


def is_linear(read: Callable[[str], Any], piece: str, size: int = SHORT) -> bool:
    short, long = (piece * (each // len(piece)) for each in (size, size * TIMES))
    for _ in range(4):
        took_s = seconds(read, long)
        if took_s < WORTH_S or took_s < MOST * seconds(read, short):
            return True
    return False


@pytest.mark.parametrize("name", READERS)
def test_time_grows_with_the_text_and_no_faster(name: str) -> None:
    assert [piece for piece in PIECES if not is_linear(READERS[name], piece)] == []


def test_a_square_is_seen() -> None:
    assert not is_linear(re.compile("a+b").search, "a", 5_000)
