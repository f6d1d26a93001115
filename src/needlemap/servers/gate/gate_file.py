"""Test whether a server finds facts in long prompts. Standard library only.

    python FILE --base-url http://127.0.0.1:8000/v1

Each prompt hides one fact at one depth of a random text and asks for it. The texts start with a
salt, so no cache and no training data holds them; --seed N repeats a run. The last line is the
verdict, which is that of `needlemap run --fail-under`, and the exit code is that of its word:

    0 PASS             the lower end of the mean's 95 % interval reaches the wanted mean
    1 FAIL             its upper end is below the wanted mean
    2                  a wrong flag
    3 NO RESULT        no answer was scored
    4 NOT ENOUGH DATA  neither; use more --repeats
    5 SUSPECT          neither, and the mean, or the mean of a length, is below the wanted one

From a test suite: `assert run_gate("http://127.0.0.1:8000/v1").exit_code == 0`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import atan, cos, inf, pi, sin, sqrt
from random import Random, SystemRandom
from statistics import NormalDist

# of needlemap: `needlemap export gate` writes the source of what is imported here
from needlemap.finishes import Ending, ending_of, finish_of
from needlemap.models.thinking import parted
from needlemap.text.matching import contains, plain

# settings: written by `needlemap export gate`
LENGTHS = (2000, 8000)
DEPTHS = (0.0, 25.0, 50.0, 75.0, 100.0)
REPEATS = 5
FAIL_UNDER = 90.0
ANSWER_TOKENS = 64
# end of settings

NEEDLE = "The locker code for {place} is {number}."
QUESTION = "What is the locker code for {place}? Answer with the code only."

# Tokens of a prompt beside its text, roughly: chat template, question and needle.
AROUND = 80
# Characters of these texts that make a token, until the server has counted some.
CHARACTERS_A_TOKEN = 4.0
ATTEMPTS = 4
# A longer reply is cut off, and then no JSON.
MOST_BYTES = 2**24
# What a server may make a request end with: a dead address, a refusal, a reply of another shape.
BROKEN = (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError)
# Fewer haystacks do not show how haystacks differ: a correlation within them is assumed.
FEWEST = 5
ASSUMED = 0.05
Z = 1.959963984540054
CODES = {"PASS": 0, "FAIL": 1, "NO RESULT": 3, "NOT ENOUGH DATA": 4, "SUSPECT": 5}

PLACES = (
    "Alden Birch Corley Dunmere Eastby Fenwick Garrow Hollin Ilton Kesby Lowick Marden Norcott "
    "Oakley Penrith Quorn Rushby Selwick Thorley Upton Verwood Wexham Yarrow"
)
PEOPLE = "baker carpenter clerk doctor farmer gardener librarian miller painter potter tailor"
THINGS = "apples baskets blankets books candles chairs clocks jars lamps maps mirrors ropes"
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
SENTENCES = (
    "On {day} the {person} of {place} sold {count} {things} to a {other}.",
    "The road from {place} to {town} was closed for {count} days because of the rain.",
    "In {place} the {person} still repairs {things}, though few people ask for them.",
    "A {person} and a {other} walked to {town} and counted {count} {things} on the way.",
    "Nobody in {place} remembers who gave the {things} to the {person}.",
    "The market at {town} opens on {day} and closes when the {person} goes home.",
    "They say that the {person} keeps {count} {things} in a shed behind the church of {place}.",
)


@dataclass(frozen=True)
class Prompt:
    """One prompt.

    Attributes:
        length: tokens of prompt and answer together.
        depth: percent of the text before the needle.
        repeat: the number of its haystack.
        text: what is sent.
        number: the right answer.
    """

    length: int
    depth: float
    repeat: int
    text: str
    number: str


@dataclass(frozen=True)
class Reply:
    """What a server sent.

    Attributes:
        text: the answer, with its thoughts if the server leaves them in it.
        finish: the server's word for how it ended; None without one.
        prompt_tokens: as the server counts them, or 0.
    """

    text: str
    finish: str | None
    prompt_tokens: int


@dataclass(frozen=True)
class Outcome:
    """The verdict of a gate.

    Attributes:
        word: PASS, FAIL, NOT ENOUGH DATA, SUSPECT or NO RESULT.
        score: mean in percent; None without an answer.
        low, high: its 95 % interval in percent.
        n: answers.
        missing: prompts without an answer.
        line: the verdict in one line.
    """

    word: str
    score: float | None
    low: float | None
    high: float | None
    n: int
    missing: int
    line: str

    @property
    def exit_code(self) -> int:
        """Return the exit code of the word."""
        return CODES[self.word]


def make_text(random: Random, characters: int) -> list[str]:
    """Return sentences of at least so many characters."""
    sentences, size = list[str](), 0
    while size < characters:
        sentence = random.choice(SENTENCES).format(
            day=one_of(random, DAYS),
            person=one_of(random, PEOPLE),
            other=one_of(random, PEOPLE),
            place=one_of(random, PLACES),
            town=one_of(random, PLACES),
            things=one_of(random, THINGS),
            count=random.randint(2, 99),
        )
        sentences.append(sentence)
        size += len(sentence) + 1
    return sentences


def one_of(random: Random, words: str) -> str:
    """Draw one of some words."""
    return random.choice(words.split())


def make_prompt(
    length: int, depth: float, repeat: int, seed: int, characters_a_token: float
) -> Prompt:
    """Hide a fact at a depth of a text of about `length` tokens, its answer included."""
    tokens = max(0, length - ANSWER_TOKENS - AROUND)
    text = make_text(Random(f"{seed}:{repeat}:text"), round(tokens * characters_a_token))
    random = Random(f"{seed}:{repeat}:needle")
    place, number = one_of(random, PLACES), str(random.randint(100_000, 999_999))
    text.insert(round(depth / 100 * len(text)), NEEDLE.format(place=place, number=number))
    salt = f"Notes {Random(f'{seed}:{repeat}:salt').getrandbits(64):016x}"
    question = QUESTION.format(place=place)
    return Prompt(length, depth, repeat, f"{salt}\n\n{' '.join(text)}\n\n{question}", number)


def score_reply(reply: Reply, number: str) -> float:
    """Return the score of a reply. Raises ValueError if its model did not end the answer."""
    ending = ending_of(reply.finish)
    is_empty = bool(reply.finish) and ending is None and not reply.text.strip()
    if is_empty or ending in (Ending.BROKEN, Ending.WINDOW):
        raise ValueError(f"the answer was broken off (finish reason {reply.finish!r})")
    return score_answer(parted(reply.text, cut=ending is Ending.CUT).answer, number)


def score_answer(answer: str, number: str) -> float:
    """Return 1 if the answer holds the number, grouped or not, and not within a longer one.

    >>> score_answer("It is 417,302.", "417302"), score_answer("1417302", "417302")
    (1.0, 0.0)
    """
    return float(contains(plain(answer), number))


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Redirects are errors: a key goes to the address that was typed, and to no other."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Return no further request."""


class Server:
    """An OpenAI-compatible server. key_env: the environment variable that holds its key."""

    def __init__(self, base_url: str, model: str = "", key_env: str = "", timeout_s: float = 600):
        if not base_url.startswith(("http://", "https://")):
            raise ValueError("an address starts with http:// or https://")
        self.base_url, self.timeout_s = base_url.rstrip("/"), timeout_s
        self._opener = urllib.request.build_opener(NoRedirects)
        self._key = os.environ.get(key_env, "") if key_env else ""
        self.model = model or self._fetch("/models")["data"][0]["id"]

    def ask(self, text: str) -> Reply:
        """Return the reply to a prompt."""
        reply = self._fetch(
            "/chat/completions",
            {
                "model": self.model,
                "messages": [{"role": "user", "content": text}],
                "max_tokens": ANSWER_TOKENS,
                "temperature": 0,
            },
        )
        counted = (reply.get("usage") or {}).get("prompt_tokens")
        choice = reply["choices"][0]
        message = choice["message"]
        finish = finish_of(choice["finish_reason"]) if "finish_reason" in choice else None
        if choice.get("error") or message.get("error"):
            finish = "error"
        return Reply(
            text=str(message.get("content") or ""),
            finish=finish,
            prompt_tokens=counted if isinstance(counted, int) else 0,
        )

    def _fetch(self, path: str, body: object = None) -> dict:  # type: ignore[type-arg]
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base_url + path, data, headers)
        for attempt in range(ATTEMPTS):
            try:
                with self._opener.open(request, timeout=self.timeout_s) as reply:
                    content = json.loads(reply.read(MOST_BYTES))
                if not isinstance(content, dict):
                    raise ValueError("the reply is not a JSON object")
                return content
            except urllib.error.HTTPError as error:
                if attempt == ATTEMPTS - 1 or not (error.code == 429 or error.code >= 500):
                    raise
            # A page in place of JSON does not heal: only a lost connection is tried again.
            except OSError:
                if attempt == ATTEMPTS - 1:
                    raise
            time.sleep(2**attempt)
        raise AssertionError


def run_gate(
    base_url: str,
    model: str = "",
    *,
    key_env: str = "",
    repeats: int = REPEATS,
    seed: int | None = None,
    parallel: int = 4,
    timeout_s: float = 600,
) -> Outcome:
    """Send all prompts and judge the answers.

    Args:
        base_url: of an OpenAI-compatible server, with /v1.
        model: by default the first that the server lists.
        key_env: environment variable of the key, if the server wants one.
        repeats: haystacks. Each has one prompt per length and depth.
        seed: of the texts; drawn and printed by default.
        parallel: requests at a time.
        timeout_s: seconds for one answer.

    Raises OSError, ValueError or KeyError if the server does not list its model.
    """
    if seed is None:
        seed = SystemRandom().randrange(10**6)
    say(f"seed {seed}")
    server = Server(base_url, model, key_env, timeout_s)

    def ask(prompt: Prompt) -> float | None:
        try:
            return score_reply(server.ask(prompt.text), prompt.number)
        except BROKEN as error:
            say(f"missing: {prompt.length} tokens, depth {prompt.depth:g}: {error}")
            return None

    a_token = measured_characters(server, seed)
    cells = [(length, depth) for length in LENGTHS for depth in DEPTHS]
    prompts = [
        make_prompt(length, depth, repeat, seed, a_token)
        for repeat in range(repeats)
        for length, depth in cells
    ]
    with ThreadPoolExecutor(parallel) as pool:
        scores = list(pool.map(ask, prompts))
    rows = [
        (prompt.repeat, prompt.length, score) for prompt, score in zip(prompts, scores, strict=True)
    ]
    return judge(rows, FAIL_UNDER)


def measured_characters(server: Server, seed: int) -> float:
    """Return how many characters of these texts make a token of the server's."""
    text = " ".join(make_text(Random(f"{seed}:ratio"), 4_000))
    try:
        counted = server.ask(text).prompt_tokens
    except BROKEN:
        counted = 0
    # The chat template's tokens are counted too; they are few beside a thousand.
    return len(text) / counted if counted > len(text) / 20 else CHARACTERS_A_TOKEN


def judge(rows: Sequence[tuple[int, int, float | None]], wanted: float) -> Outcome:
    """Return the verdict on (repeat, length, score) rows; a score is None if it is missing."""
    known = [(repeat, score) for repeat, _, score in rows if score is not None]
    missing = len(rows) - len(known)
    if not known:
        line = "NO RESULT gate: no answer was scored; is the server running?"
        return Outcome("NO RESULT", None, None, None, 0, missing, line)

    mean, low, high = (100 * share for share in cluster_interval(known))
    # The ends, if all that is missing were wrong, and if it were right.
    lowest = low - missing / len(rows) * mean
    highest = high + missing / len(rows) * (100 - mean)
    below = []
    for length in sorted({length for _, length, _ in rows}):
        scores = [score for _, at, score in rows if at == length and score is not None]
        if scores and 100 * sum(scores) / len(scores) < wanted - 1e-9:
            below.append(length)
    if highest < wanted:
        word = "FAIL"
    elif lowest >= wanted - 1e-9:
        word = "PASS"
    elif mean < wanted - 1e-9 or below:
        word = "SUSPECT"
    else:
        word = "NOT ENOUGH DATA"
    line = (
        f"{word} gate: mean {mean:.1f} % ({low:.1f} to {high:.1f}), wanted {wanted:g}; "
        f"{len(known)} prompts of {len({repeat for repeat, _ in known})} haystacks"
    )
    if missing:
        line += f", {missing} missing"
    if below:
        line += f"; below it at {', '.join(map(str, below))} tokens"
    return Outcome(word, mean, low, high, len(known), missing, line + ".")


def cluster_interval(scored: Sequence[tuple[int, float]]) -> tuple[float, float, float]:
    """Return the mean of (haystack, score) pairs and its 95 % interval, as shares.

    Wilson's interval with the effective sample size n / design effect, and Student's t for few
    haystacks (Korn and Graubard 1998, Survey Methodology 24:193).
    """
    haystacks: dict[int, list[float]] = {}
    for haystack, score in scored:
        haystacks.setdefault(haystack, []).append(score)
    sums = [sum(scores) for scores in haystacks.values()]
    counts = [len(scores) for scores in haystacks.values()]
    n, clusters = sum(counts), len(counts)
    mean = sum(sums) / n
    independent = mean * (1 - mean) / n
    if clusters < FEWEST:
        effect = 1 + (sum(count * count for count in counts) / n - 1) * ASSUMED
    elif independent > 1e-12:
        squares = sum(
            (total - mean * count) ** 2 for total, count in zip(sums, counts, strict=True)
        )
        effect = max(1.0, clusters / (clusters - 1) * squares / n**2 / independent)
    else:
        effect = 1.0
    z = t_quantile(0.975, clusters - 1) if effect > 1 and clusters >= FEWEST else Z
    size = n / effect
    width = z * z / size
    half = z * sqrt(mean * (1 - mean) / size + width / (4 * size))
    low, high = (mean + width / 2 - half) / (1 + width), (mean + width / 2 + half) / (1 + width)
    return mean, max(0.0, low), min(1.0, high)


def t_quantile(share: float, freedom: int) -> float:
    """Return the t below which a share of Student's distribution lies, by bisection."""
    if freedom < 1:
        return inf
    if freedom > 1_000:
        return NormalDist().inv_cdf(share)
    low, high = 0.0, 1.0
    while t_cdf(high, freedom) < share:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, freedom) < share else (low, middle)
    return (low + high) / 2


def t_cdf(t: float, freedom: int) -> float:
    """Return P(T <= t) for whole degrees of freedom (Abramowitz and Stegun 1964, 26.7.3)."""
    angle, odd = atan(t / sqrt(freedom)), freedom % 2
    term = total = 0.0 if freedom == 1 else cos(angle) if odd else 1.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= cos(angle) ** 2 * (k - 1) / k
        total += term
    inside = 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total
    return 0.5 + inside / 2


def say(text: str) -> None:
    """Print a line, without what a server's words could do to a terminal."""
    print("".join(letter if letter.isprintable() else "?" for letter in text), flush=True)


def main(words: Sequence[str] | None = None) -> int:
    """Run the gate as a command; return its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base-url", required=True, help="e.g. http://127.0.0.1:8000/v1")
    parser.add_argument("--model", default="", help="by default the first that the server lists")
    parser.add_argument("--key-env", default="", help="environment variable of the key")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="haystacks")
    parser.add_argument("--seed", type=int, help="repeat the prompts of that seed")
    parser.add_argument("--parallel", type=int, default=4, help="requests at a time")
    parser.add_argument("--timeout-s", type=float, default=600, help="seconds for one answer")
    typed = parser.parse_args(words)
    if typed.repeats < 1 or typed.parallel < 1:
        parser.error("--repeats and --parallel are 1 or more")
    try:
        outcome = run_gate(
            typed.base_url,
            typed.model,
            key_env=typed.key_env,
            repeats=typed.repeats,
            seed=typed.seed,
            parallel=typed.parallel,
            timeout_s=typed.timeout_s,
        )
    except BROKEN as error:
        say(f"NO RESULT gate: {typed.base_url} does not list its models: {error}")
        return CODES["NO RESULT"]
    say(outcome.line)
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(main())
