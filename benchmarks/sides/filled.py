"""A run folder filled without a model: real prompts, simulated answers, real scores and records.

Answers vary as a model's do: right in several wordings, at times after some deliberation, wrong
with another number or with what stands beside the needle, refusals, cut-off ones, and requests that
failed. They are right less often the longer the prompt, least in its middle.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

from needlemap.asking.recording import RecordMaker, needle_records
from needlemap.asking.session import make_run_file
from needlemap.errors import Failure, Unmeasured
from needlemap.models import Answer
from needlemap.plan import laned, ordered
from needlemap.records.folder import RunFolder, Writer
from needlemap.records.record import Record
from needlemap.settings.prices import Prices
from needlemap.sync import run_coroutine
from needlemap.trials import Trial
from needlemap.trials.build import Experiment

RIGHT = (
    "{needle}",
    "{word}",
    "The code is {word}.",
    "According to the text, the locker code is **{word}**.",
    "Based on the document, {needle} I found this stated in the passage that begins “{near}”.",
    "Let me look for it. The text is mostly essays. {near} None of that is about lockers. {far} "
    "Then, in "
    "the middle of it, there is a sentence that does not belong: {needle} So the answer is {word}.",
)
WRONG = (
    "The document does not say what the locker code is.",
    "I'm sorry, but I could not find any mention of a locker code in the text you gave me.",
    "The code is {other}.",
    "The text talks about something else: {near}",
    "{far} {near} {far}",
)
FAILURES = (
    (Failure.TIMED_OUT, "No answer within 600 s (setting: timeout_s)."),
    (Failure.RATE_LIMITED, "The server answered 429: Rate limit reached for requests"),
    (Failure.SERVER, "The server answered 502: Bad Gateway"),
)


def fill(experiment: Experiment, path: Path, seed: int = 0) -> None:
    """Write run.json and one records file, in the order in which a run would have asked."""
    folder = RunFolder(path)
    writer = Writer(folder)
    writer.describe(make_run_file(experiment, folder))
    writer.close()
    with (path / "records-0-benchmark-0.jsonl").open("wb") as file:
        file.writelines(record.line() for record in records(experiment, Random(seed)))


def records(experiment: Experiment, random: Random) -> Iterator[Record]:
    """A record for each trial."""
    settings = experiment.settings
    maker = RecordMaker(settings, experiment.scorer, Prices.of(settings))
    walk = ordered(experiment.trials, settings.mode)
    for trial in laned(walk, settings.mode, experiment.workers)[0]:
        if random.random() < 0.005:
            failure, message = random.choice(FAILURES)
            yield maker.make(trial, None, Unmeasured(failure, message), settings.retries + 1)
        else:
            answer = answered(trial, random)
            score = run_coroutine(experiment.scorer.score(answer.text, trial.item.reference))
            yield maker.make(trial, answer, score, 1)


def answered(trial: Trial, random: Random) -> Answer:
    """What a model might have said, and what its server would report."""
    text = likely_answer(trial, random)
    long = random.random() < 0.01
    prompt_tokens, cached = trial.prompt.tokens + 11, (trial.shared_tokens or 0) // 128 * 128
    tokens = 300 if long else max(2, len(text) // 4)
    return Answer(
        text,
        "length" if long else "stop",
        prompt_tokens,
        cached,
        tokens,
        {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": prompt_tokens + tokens,
            "prompt_tokens_details": {"cached_tokens": cached, "audio_tokens": 0},
        },
        "gpt-4o-2024-08-06",
        random.lognormvariate(-0.5, 0.5) + (prompt_tokens - cached) / 20_000,
    )


def likely_answer(trial: Trial, random: Random) -> str:
    """A right answer or a wrong one."""
    needle = trial.item.needles[0]
    around = needle_records(trial.prompt, [needle.text])[0]
    middle = 1 - abs(2 * needle.depth - 1)
    lost = min(0.9, (trial.cell.length_tokens / 128_000) ** 2 * (0.2 + 0.7 * middle))
    wordings = WRONG if random.random() < lost else RIGHT
    return random.choice(wordings).format(
        needle=needle.text,
        word=trial.item.reference.keywords[0],
        other=random.randint(10_000, 99_999),
        near=around.before[-150:].strip() or around.after[:150].strip(),
        far=around.after.strip() or around.before.strip(),
    )
