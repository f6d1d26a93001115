"""One small trial before all others: is anything wrong that would make the whole run worthless?

For models behind a server, where every further request costs money. A model that answers, but wrongly, gets
two more small trials before the run is stopped: weak models miss, wrong settings always miss. A base model is
only warned about. What was asked counts as the trials' records.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from needlemap.asking.runner import Runner
from needlemap.errors import Failure
from needlemap.plan.places import ALONE
from needlemap.prompts.prompt import Prompt
from needlemap.records.record import ANSWER_SPENT, REFUSED, THINKING_SPENT, Record
from needlemap.secrets import scrub
from needlemap.settings.grid import percent
from needlemap.settings.settings import Settings
from needlemap.trials.repeat import Trial

SMALL_TOKENS = 1_500  # up to which a missed needle is suspicious
ENOUGH = 3  # small trials that all scored 0
SHOWN = 120  # characters of an answer
FIRST_TOKENS = ("<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "<｜begin▁of▁sentence｜>", "[BOS]")
_FOREVER = (Failure.REJECTED, Failure.CONNECTION, Failure.MODEL, Failure.SCORER, Failure.UNREADABLE)
_SKIP = "To go on all the same: --no-canary."

# What a server says, and what helps.
_REMEDIES = (
    (r"temperature", "Add --temperature none."),
    (
        r"max_(completion_)?tokens",
        "Give --model-options max_tokens_field=max_tokens or max_completion_tokens.",
    ),
    (r"system (role|message)|roles must alternate|role", "Try --model-options system_role=user."),
    (r"model.*(not exist|not found|unknown|invalid)|no such model|404", "Is --model right, and --base-url?"),
    (r"no connection", "Is a server running at --base-url?"),
)


@dataclass(slots=True)
class Found:
    """What was found. asked: keys of the trials that were asked. stop: why to stop, and what to type.
    warnings: what is worth a word."""

    asked: set[str] = field(default_factory=set)
    stop: str | None = None
    warnings: list[str] = field(default_factory=list)


async def send(runner: Runner, walk: Sequence[Trial], before: Iterable[Record], settings: Settings) -> Found:
    """Ask one trial, or three. before: records of earlier starts; one that scored is proof enough."""
    found, small = Found(), sorted(walk, key=lambda trial: trial.cell.length_tokens)
    scored = [record for record in before if record.score is not None]
    if not small or any(record.score for record in scored):
        return found
    found.stop = first_token_twice(small[0].prompt)
    zeros = [record for record in scored if record.length_tokens <= SMALL_TOKENS]
    for trial in small:
        if found.stop or len(zeros) >= ENOUGH or (zeros and trial.cell.length_tokens > SMALL_TOKENS):
            break
        alone = replace(trial, shared_tokens=None if settings.mode == ALONE else 0)
        record = await runner.first(alone)
        if record is None:
            break
        found.asked.add(trial.key)
        found.stop = look(record, trial.prompt, settings, found.warnings)
        if record.score != 0:
            break
        zeros.append(record)
    if not found.stop and len(zeros) >= ENOUGH:
        _missed(found, zeros[-1], small[0].prompt)
    return found


def first_token_twice(prompt: Prompt) -> str | None:
    """Whether a text begins with a first token's spelling, which servers add themselves."""
    text = prompt.messages[0].data[:64].decode("utf-8", "replace")
    spelt = next((token for token in FIRST_TOKENS if text.startswith(token)), None)
    if spelt is None:
        return None
    return (
        f"The template begins with {spelt}, which the server adds too. Take it out of the template. {_SKIP}"
    )


def begins_twice(prompt: Prompt) -> bool:
    """Whether token ids begin with one token twice, as where template and tokenizer both add theirs."""
    ids = prompt.ids[:2]
    return len(ids) == 2 and bool(ids[0] == ids[1]) and int(ids[0]) >= 0


def look(record: Record, prompt: Prompt, settings: Settings, warnings: list[str]) -> str | None:
    """Why to stop after a first trial, and what to type; None if nothing is wrong with it."""
    where = f"The first trial ({record.length_tokens:,} tokens, depth {percent(record.depth):g} %)"
    if record.failure:
        if record.failure not in _FOREVER:
            return None
        error = (record.error or "").rstrip(".")
        return f"{where} could not be measured: {error}. {remedy(error)} {_SKIP}"
    if not (record.answer or "").strip() and record.answer is not None:
        written = f"finish {record.finish!r}, {record.completion_tokens} tokens written"
        said = f"{where} got an empty answer ({written})."
        advice = _emptied(record, settings)
        if prompt.chat:
            return f"{said} {advice} {_SKIP}"
        warnings.append(f"{said} {advice}")
    if record.outcome == REFUSED and not warnings:
        warnings.append(f"{where} was refused: {shown(record)}")
    off = (record.prompt_tokens or 0) - (record.prompt.tokens if record.prompt else 0)
    if not prompt.chat and off == 2:
        warnings.append(
            f"{where} has 2 tokens more by the server's count than its text: a first token twice?"
        )
    return None


def remedy(error: str) -> str:
    """What to type after a server's refusal."""
    for pattern, advice in _REMEDIES:
        if re.search(pattern, error, re.IGNORECASE):
            return advice
    return "Check --model, --base-url, --model-options and --request."


def shown(record: Record) -> str:
    """An answer as an error message may show it: one line, no control characters."""
    text = scrub(record.answer or "")
    return repr(text if len(text) <= SHOWN else text[: SHOWN - 1] + "…")


def _emptied(record: Record, settings: Settings) -> str:
    if record.outcome == THINKING_SPENT:
        more = 4 * settings.most_tokens
        return f"It thought until its budget was spent: give --thinking-tokens {more} or more."
    if record.outcome == ANSWER_SPENT:
        return "If it thinks first, give it --thinking-tokens 4000; else raise --max-answer-tokens."
    return "Look at what is sent (needlemap prompts); a base model wants --model-options api=completions."


def _missed(found: Found, record: Record, prompt: Prompt) -> None:
    """Say that all small trials were missed: reason to stop for a chat model, not for a base model."""
    said = (
        f"{ENOUGH} trials of up to {record.length_tokens:,} tokens all scored 0; to {record.question!r} it "
        f"said {shown(record)}, by scorer '{record.scorer.name if record.scorer else ''}'."
    )
    if prompt.chat:
        advice = "Is the answer wrong, or the scorer (--scorer), or the template (needlemap prompts)?"
        found.stop = f"{said} {advice} {_SKIP}"
    else:
        found.warnings.append(said)
