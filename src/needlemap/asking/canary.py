"""Controls around a run: one small trial before all others, and each question without a haystack.

The canary is for models behind a server, where every further request costs money. A model that
answers, but wrongly, gets two more small trials before the run is stopped: weak models miss, wrong
settings always miss. A base model is only warned about. What was asked counts as the trials'
records.

The closed book asks each distinct question alone: what a model knows anyway, no map can show. It is
kept beside the records, in a file of its own, since none of it belongs to a cell.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from needlemap.asking import Outcome, Runner
from needlemap.asking.resume import to_be_scored
from needlemap.errors import Failure
from needlemap.files import open_inside
from needlemap.grid import Cell, percent
from needlemap.plan import make_lanes
from needlemap.plan.cover import ALONE
from needlemap.prompts import TEXT, Message, Prompt
from needlemap.records.folder import CLOSED_BOOK, RunFolder
from needlemap.records.loaded import closed_book_records
from needlemap.records.record import ANSWER_SPENT, REFUSED, THINKING_SPENT, Record
from needlemap.secrets import scrub
from needlemap.settings import Settings
from needlemap.trials import Trial
from needlemap.trials.build import Experiment

# Up to this length a missed needle is suspicious.
SMALL_TOKENS = 1_500
# Small trials that all scored 0.
ENOUGH = 3
# Characters of an answer that a message shows.
SHOWN = 120
FIRST_TOKENS = (
    "<s>",
    "<bos>",
    "<|begin_of_text|>",
    "<|startoftext|>",
    "<｜begin▁of▁sentence｜>",
    "[BOS]",
)
_PERMANENT = (
    Failure.REJECTED,
    Failure.CONNECTION,
    Failure.MODEL,
    Failure.SCORER,
    Failure.UNREADABLE,
)
_GO_ON = "To go on all the same: --no-canary."

# What a server says, and what helps: the first that fits.
_REMEDIES = (
    (
        r"only supported in .{0,12}v1/responses|use the responses api",
        "Add --model-options api=responses.",
    ),
    (
        r"not a chat model|did you mean to use v1/completions|(provide|have|has no|without) a chat "
        r"template|not support (the )?chat",
        "Add --model-options api=completions.",
    ),
    (r"The server lists .*Type: --model", ""),
    (
        r"answered 402\b|credit balance|more credits|insufficient.?(balance|credit|funds)|payment"
        r"|余额不足|欠费",
        "Pay into the account that the key belongs to, or name another provider or model.",
    ),
    (
        r"thinking\.type\.adaptive|adaptive thinking",
        "Use --request 'thinking={type: adaptive}' in place of --thinking-tokens.",
    ),
    (r"enable_thinking", "Add --request enable_thinking=false."),
    (r"temperature", "Add --temperature none."),
    (
        r"max_(completion_)?tokens.{0,200}(unsupported|unrecogni[sz]ed|unknown|not supported"
        r"|not permitted|extra)|(unsupported|unrecogni[sz]ed|unknown).{0,80}max_(completion_)?"
        r"tokens",
        "Give --model-options max_tokens_field=max_tokens or max_completion_tokens.",
    ),
    (
        r"system (role|message|prompt)|roles? must|(unsupported|unknown|invalid|unexpected).{0,20}"
        r"\brole|\brole\b.{0,30}(not|invalid|unsupported)",
        "Try --model-options system_role=user.",
    ),
    (r"an HTML page", "The address of an API mostly ends in /v1."),
    (
        r"model.*(not exist|not found|unknown|invalid)|no such model|answered 404\b",
        "Is --model right, and --base-url?",
    ),
)
# What somebody's own function is given and must return.
_OWN_FUNCTIONS = {
    Failure.MODEL: (
        "A model of your own is called with messages, a list of {'role', 'content'}, and returns "
        "the answer's text."
    ),
    Failure.SCORER: (
        "A scorer of your own is called with the answer and the reference, and returns a number in "
        "[0, 1], True or False, or a Score."
    ),
}


def own_function_advice(failure: str, settings: Settings) -> str:
    """Return advice if a function of the user's own failed: what it gets and must return; or ''."""
    is_own = settings.backend == "python" or failure == Failure.SCORER
    return _OWN_FUNCTIONS.get(Failure(failure), "") if is_own else ""


# That the answer's budget is above the model's, which the last group holds.
_TOO_MUCH = re.compile(
    r"max_\w*tokens.{0,40}too (?:large|big|high)(?:.{0,80}?at most (\d{1,9}))?"
    r"|max_\w*tokens: \d{1,12} > (\d{1,9})|max_\w*tokens.{0,60}(?:less than or equal to|<=|at most|"
    r"cannot exceed|must not exceed) (\d{1,9})",
    re.IGNORECASE,
)
# The roles of a reply that is quoted say nothing of those of the request.
_QUOTED_ROLE = re.compile(r"""["']role["'] ?: ?["'][a-z]*["']""")


async def send(
    runner: Runner, walk: Sequence[Trial], earlier_records: Iterable[Record]
) -> set[str]:
    """Ask one trial, or three, and return their keys.

    The runner's outcome holds why to stop, and what to type. earlier_records: of earlier starts;
    one that scored is proof enough.
    """
    outcome, settings = runner.outcome, runner.settings
    keys: set[str] = set()
    zeros = _small_zeros(earlier_records) if walk else None
    if zeros is None:
        return keys

    shortest_first = sorted(walk, key=lambda trial: trial.cell.length_tokens)
    outcome.canary = first_token_twice(shortest_first[0].prompt)
    for trial in shortest_first:
        if outcome.canary or len(zeros) >= ENOUGH:
            break
        if zeros and trial.cell.length_tokens > SMALL_TOKENS:
            break
        shared_tokens = None if settings.mode == ALONE else 0
        record = await runner.run_alone(replace(trial, shared_tokens=shared_tokens))
        if record is None:
            break
        keys.add(trial.key)
        outcome.canary = find_fault(record, trial.prompt, settings, outcome.warnings)
        if record.score != 0:
            break
        zeros.append(record)

    if not outcome.canary and len(zeros) >= ENOUGH:
        _report_misses(outcome, zeros[-1], shortest_first[0].prompt)
    return keys


def _small_zeros(records: Iterable[Record]) -> list[Record] | None:
    """Return the last records of small trials that scored 0, or None if any trial scored."""
    zeros: list[Record] = []
    for record in records:
        if record.score:
            return None
        if record.scored and record.length_tokens <= SMALL_TOKENS:
            zeros = [*zeros, record][-ENOUGH:]
    return zeros


def first_token_twice(prompt: Prompt) -> str | None:
    """Return a warning if a text starts with a token that servers add themselves, or None."""
    text = prompt.messages[0].data[:64].decode("utf-8", "replace")
    first_token = next((token for token in FIRST_TOKENS if text.startswith(token)), None)
    if first_token is None:
        return None
    return (
        f"The template begins with {first_token}, which the server adds too. Take it out of the "
        f"template. {_GO_ON}"
    )


def begins_twice(prompt: Prompt) -> bool:
    """Return True if ids start with one token twice: template and tokenizer both add theirs."""
    ids = prompt.ids[:2]
    return len(ids) == 2 and bool(ids[0] == ids[1]) and int(ids[0]) >= 0


def find_fault(
    record: Record, prompt: Prompt, settings: Settings, warnings: list[str]
) -> str | None:
    """Return why to stop after a first trial and what to type, or None if nothing is wrong.

    warnings: what does not stop a run is added to them.
    """
    where = f"The first trial ({record.length_tokens:,} tokens, depth {percent(record.depth):g} %)"
    if record.failure:
        if record.failure not in _PERMANENT:
            return None
        error = (record.error or "").rstrip(".")
        advice = own_function_advice(record.failure, settings) or remedy(error)
        stop = "" if error.endswith("?") else "."
        sentences = [f"{where} could not be measured: {error}{stop}", advice, _GO_ON]
        return " ".join(filter(None, sentences))

    if record.answer is not None and not record.answer.strip():
        finish = f"finish {record.finish!r}, {record.completion_tokens} tokens written"
        finding = f"{where} got an empty answer ({finish})."
        advice = _empty_answer_advice(record, settings)
        if prompt.chat:
            return f"{finding} {advice} {_GO_ON}"
        warnings.append(f"{finding} {advice}")
    if record.outcome == REFUSED and not warnings:
        warnings.append(f"{where} was refused: {quoted_answer(record)}")

    own_count = record.prompt.tokens if record.prompt else 0
    surplus_tokens = (record.prompt_tokens or 0) - own_count
    if not prompt.chat and surplus_tokens == 2:
        warnings.append(
            f"{where} has 2 tokens more by the server's count than its text: a first token twice?"
        )
    return None


def remedy(error: str) -> str:
    """Return what to type after a server's refusal."""
    error = _QUOTED_ROLE.sub("", error)
    if too_much := _TOO_MUCH.search(error):
        most = next(filter(None, too_much.groups()), None)
        return f"Use --max-answer-tokens {most}." if most else "Use a smaller --max-answer-tokens."
    for pattern, advice in _REMEDIES:
        if re.search(pattern, error, re.IGNORECASE | re.DOTALL):
            return advice
    return "Check --model, --base-url, --model-options and --request."


def quoted_answer(record: Record) -> str:
    """Return an answer as an error message may quote it: one line, no control characters."""
    return _quoted(record.answer or "")


def _quoted(text: str) -> str:
    text = scrub(text)
    return repr(text if len(text) <= SHOWN else text[: SHOWN - 1] + "…")


def _empty_answer_advice(record: Record, settings: Settings) -> str:
    if record.outcome == THINKING_SPENT:
        more = 4 * settings.most_tokens
        return f"It thought until its budget was spent: give --thinking-tokens {more} or more."
    if record.outcome == ANSWER_SPENT:
        return "If it thinks first, give it --thinking-tokens 4000; else raise --max-answer-tokens."
    if record.thinking:
        return (
            f"All that it said is in its thinking: {_quoted(record.thinking)}. Start the server "
            f"without its reasoning parser or with the model's, or let it not think, as with "
            f"--request 'chat_template_kwargs={{enable_thinking: false}}'."
        )
    return (
        "Look at what is sent (needlemap prompts); a base model wants --model-options "
        "api=completions."
    )


def _report_misses(outcome: Outcome, record: Record, prompt: Prompt) -> None:
    """Report that all small trials were missed: stop for a chat model, warn for a base model."""
    scorer = record.scorer.name if record.scorer else ""
    finding = (
        f"{ENOUGH} trials of up to {record.length_tokens:,} tokens all scored 0; to "
        f"{record.question!r} it said {quoted_answer(record)}, by scorer '{scorer}'."
    )
    if prompt.chat:
        advice = (
            "Is the answer wrong, or the scorer (--scorer), or the template (needlemap prompts)?"
        )
        outcome.canary = f"{finding} {advice} {_GO_ON}"
    else:
        outcome.warnings.append(finding)


def questions(experiment: Experiment) -> list[Trial]:
    """Return each distinct question and answer as a trial without a haystack.

    Questions that no text answers are left out, as with `absent`: a model that says so without a
    haystack is right, and knows nothing.
    """
    keys = experiment.keys
    trial_by_key: dict[str, Trial] = {}
    for trial in experiment.trials:
        if trial.item.reference.none and not trial.item.reference.keywords:
            continue
        hash_alone = keys.asked_alone(trial.item.question)
        key = keys.key(hash_alone, trial.item.reference)
        if key not in trial_by_key:
            trial_by_key[key] = Trial(
                key=key,
                asked=hash_alone,
                cell=Cell(0, 0.0),
                repeat=trial.repeat,
                item=replace(trial.item, needles=()),
                prompt=_prompt(experiment, trial),
            )
    return list(trial_by_key.values())


def unscored_questions(experiment: Experiment, folder: RunFolder) -> list[Trial]:
    """Return the questions that a folder has no score of; none if the settings want no control."""
    if not experiment.settings.closed_book:
        return []
    done = {record.key for record in closed_book_records(folder, texts=False) if record.scored}
    return [trial for trial in questions(experiment) if trial.key not in done]


async def ask(experiment: Experiment, folder: RunFolder, runner: Runner) -> None:
    """Ask the questions that are left, under the limits of the run's own trials.

    Raises as `Runner.run` does.
    """
    trials = unscored_questions(experiment, folder)
    waiting = {trial.asked for trial in trials}
    records = closed_book_records(folder)
    answers = to_be_scored(record for record in records if record.asked in waiting)
    question_runner = runner.sibling(OneFile(folder.path / CLOSED_BOOK), len(trials), answers)
    sizes = [trial.prompt.tokens for trial in trials]
    await question_runner.run((trials, make_lanes(sizes, [0] * len(sizes), experiment.workers)))


class OneFile:
    """A file that records are appended to, next to those of the grid."""

    def __init__(self, file: Path) -> None:
        self._file, self._lock = file, asyncio.Lock()

    async def append(self, record: Record) -> None:
        """Append a record, and return once it is on the disk."""
        async with self._lock:
            await asyncio.to_thread(self._write, record.line())

    def _write(self, line: bytes) -> None:
        with open_inside(self._file, "a+b") as stream:
            if stream.seek(0, os.SEEK_END) and _last_byte(stream) != b"\n":
                # A kill or a full disk tore the last line.
                stream.write(b"\n")
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())


def _last_byte(file: IO[bytes]) -> bytes:
    """Return the last byte of a file that is not empty."""
    file.seek(-1, os.SEEK_END)
    return file.read(1)


def _prompt(experiment: Experiment, trial: Trial) -> Prompt:
    """Return the question alone, as a message or as a text to complete."""
    question = trial.item.question
    completion = f"Question: {question}\nAnswer:"
    role, text = ("user", question) if trial.prompt.chat else (TEXT, completion)
    tokens = experiment.tokenizer.index(text.encode())
    if experiment.traits.render is None:
        prompt = Prompt((Message(role, (tokens.span(),)),))
    elif experiment.traits.chat:
        # The model itself makes the ids, with its chat template.
        prompt = Prompt.plain([("user", question)])
    else:
        prompt = Prompt.plain([(TEXT, text)])
    stops = trial.prompt.stops
    return replace(prompt, question=question, tokens=len(tokens.ids), stops=stops)
