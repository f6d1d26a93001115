"""From a trial and what came of it to its record.

A needle is kept as it stands in its prompt, with the context's letters either side of it: a few
slices of the prompt's spans. The context itself, which may be long, is never joined or decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from needlemap.errors import Unmeasured
from needlemap.models import Answer
from needlemap.prompts import Prompt
from needlemap.records.record import (
    DISTRACTORS,
    NeedleRecord,
    PassRecord,
    PromptRecord,
    Record,
    ScorerRecord,
    UnreadRecord,
)
from needlemap.scorers import Score, Scorer, rule_of
from needlemap.scorers.words import sought
from needlemap.settings import Settings
from needlemap.settings.prices import Prices, summed
from needlemap.text.tokens import Span
from needlemap.trials import run_hash

if TYPE_CHECKING:
    from needlemap.tasks import Item
    from needlemap.trials import Trial

LETTERS = 300  # characters kept either side
_BYTES = 4 * (LETTERS + 1)  # as many characters at least, and one that may be cut in two


def needle_records(prompt: Prompt, needles: Sequence[str]) -> tuple[NeedleRecord, ...]:
    """What a record keeps of a prompt's needles: depths, place, and of the first few their text and
    up to LETTERS characters of the context before and after it. needles: their texts, as the task
    gave them.

    before + text + after is a slice of the prompt's context; other needles in it are part of that
    text. A space that was put behind a needle, to keep two words apart, belongs to what comes after
    it.
    """
    spans, told = prompt.context_spans, needles[: min(_SHOWN, len(prompt.needles))]
    return tuple(
        NeedleRecord(
            meant=placed.meant,
            realised=placed.realised,
            byte=placed.byte,
            **(
                {}
                if needle is None
                else _around(spans, placed.byte, _end(spans, placed.byte, needle))
            ),
        )
        for placed, needle in zip_longest(prompt.needles, told)
    )


def _around(spans: Sequence[Span], start: int, end: int) -> dict[str, str]:
    before, after = _bytes(spans, max(0, start - _BYTES), start), _bytes(spans, end, end + _BYTES)
    needle = _text(_bytes(spans, start, end))
    return {"text": needle, "before": _text(before)[-LETTERS:], "after": _text(after)[:LETTERS]}


def _end(spans: Sequence[Span], start: int, needle: str) -> int:
    """The end of the needle that starts at a byte: its span's end, without a space added
    behind it."""
    begin, span = next(row for row in _placed(spans) if row[0] <= start < row[0] + len(row[1].data))
    spaced = bytes(span.data[-1:]) == b" " and not needle.endswith(" ")
    return begin + len(span.data) - spaced


def _bytes(spans: Sequence[Span], start: int, stop: int) -> bytes:
    """The context's bytes from start to stop, as far as there are any."""
    return b"".join(
        [span.data[max(0, start - at) : max(0, stop - at)] for at, span in _placed(spans)]
    )


def _placed(spans: Sequence[Span]) -> Iterator[tuple[int, Span]]:
    """Each span with its first byte's offset in the context."""
    at = 0
    for span in spans:
        yield at, span
        at += len(span.data)


def _text(data: bytes) -> str:
    """As `Prompt.context_text` has it: half a character (presets that follow older tools) is
    U+FFFD."""
    return data.decode("utf-8", "replace")


LONGEST_THINKING = 20_000  # characters
NONE_UNREAD = UnreadRecord(prompt_tokens=0, usd=0.0)
_CUT = "\n[...]\n"
_SHOWN = (
    32  # needles of a trial whose text and surroundings are kept; of others only where they stand
)


@dataclass(frozen=True, slots=True)
class RecordMaker:
    """Makes the records of one run."""

    settings: Settings
    scorer: Scorer
    prices: Prices

    def make(
        self,
        trial: Trial,
        answer: Answer | None,
        score: Score | Unmeasured,
        attempts: int,
        unread: UnreadRecord = NONE_UNREAD,
    ) -> Record:
        """The record of a trial: asked, answered (or not), scored (or not)."""
        fields: dict[str, Any] = self._trial_fields(trial)
        if answer is not None:
            fields |= self._answered(trial, answer)
        named = {} if answer is None else named_distractors(trial.item, answer.text)
        return Record(
            **fields,
            **_scored(score),
            scorer=self._scorer(score, named),
            attempts=attempts,
            unread=unread,
            finished_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )

    def _trial_fields(self, trial: Trial) -> dict[str, Any]:
        reference = trial.item.reference
        return {
            "key": trial.key,
            "asked": trial.asked,
            "run": run_hash(self.settings),
            "task": self.settings.task,
            "model": self.settings.model,
            "length_tokens": trial.cell.length_tokens,
            "depth": trial.cell.depth,
            "repeat": trial.repeat,
            "second": trial.second,
            "seed": self.settings.seed,
            "question": trial.item.question,
            "reference": reference.answer,
            "keywords": reference.keywords,
            "reference_sha256": reference.digest(),
            "needles": needle_records(trial.prompt, [needle.text for needle in trial.item.needles]),
            "prompt": prompt_record(trial),
            "shared_tokens": trial.shared_tokens,
        }

    def _answered(self, trial: Trial, answer: Answer) -> dict[str, Any]:
        prompt_tokens = (
            trial.prompt.asked_tokens if answer.prompt_tokens is None else answer.prompt_tokens
        )
        beside = tuple(_pass_records(trial, answer))
        return {
            "answer": answer.text if answer.forced is None else None,
            "logprobs": answer.logprobs,
            "beside": beside,
            "thinking": capped(answer.thinking),
            "finish": answer.finish,
            "prompt_tokens": answer.prompt_tokens,
            "cached_tokens": answer.cached_tokens,
            "completion_tokens": answer.completion_tokens,
            "thinking_tokens": answer.thinking_tokens,
            "usage": answer.usage,
            "usd": summed(
                [
                    self.prices.usd(
                        prompt_tokens, answer.cached_tokens or 0, answer.completion_tokens or 0
                    ),
                    *(
                        self.prices.usd(each.tokens or 0, each.cached_tokens or 0, 0)
                        for each in beside
                    ),
                ]
            ),
            "latency_s": round(answer.latency_s, 4),
            "first_token_s": answer.first_token_s and round(answer.first_token_s, 4),
            "answered_by": answer.model,
        }

    def _scorer(self, score: Score | Unmeasured, named: dict[str, Any]) -> ScorerRecord:
        native, why = None, dict[str, Any]()
        if isinstance(score, Score):
            native, why = score.native, {**score.why, **named}
        scorer = self.scorer
        return ScorerRecord(
            name=scorer.name,
            options=dict(scorer.options),
            rule=rule_of(scorer),
            scale=scorer.scale,
            native=native,
            why=why,
            unreadable=isinstance(score, Score) and score.unreadable,
            usd=score.usd,
            ratio=score.ratio if isinstance(score, Score) else None,
        )


def _pass_records(trial: Trial, answer: Answer) -> Iterator[PassRecord]:
    """What a record keeps of a given answer behind the item's other prompts."""
    for request in trial.beside:
        given = answer.beside.get(request.role)
        if given is None:  # it failed
            continue
        sent = given.prompt_tokens
        yield PassRecord(
            role=request.role,
            sha256=request.prompt.sha256,
            nats=tuple(round(each, 6) for each in given.forced.logprobs) if given.forced else (),
            tokens=request.prompt.asked_tokens if sent is None else sent,
            cached_tokens=given.cached_tokens,
            shared_tokens=request.shared_tokens,
            latency_s=round(given.latency_s, 4),
        )


def named_distractors(item: Item, answer: str) -> dict[str, Any]:
    """Under `distractors` the values that an answer takes from the prompt's distractors; nothing
    where there are none, or none whose value is known."""
    if not item.reference.decoys or not any(needle.wrong for needle in item.needles):
        return {}
    named, _ = sought(answer, item.reference.decoys, "inside")
    return {DISTRACTORS: named}


def capped(thinking: str | None) -> str | None:
    """Thinking as a record keeps it: of a longer one the beginning and the end.

    >>> len(capped("x" * 50_000))
    20000
    """
    if thinking is None or len(thinking) <= LONGEST_THINKING:
        return thinking
    half = (LONGEST_THINKING - len(_CUT)) // 2
    return thinking[: LONGEST_THINKING - len(_CUT) - half] + _CUT + thinking[-half:]


def answer_of(record: Record) -> Answer:
    """The answer that a record keeps, to be scored anew."""
    return Answer(
        record.answer or "",
        record.finish,
        record.prompt_tokens,
        record.cached_tokens,
        record.completion_tokens,
        record.usage,
        record.answered_by,
        record.latency_s or 0.0,
        thinking=record.thinking,
        thinking_tokens=record.thinking_tokens,
        logprobs=record.logprobs,
        first_token_s=record.first_token_s,
    )


def scored_anew(asked: Record, scored: Record) -> Record:
    """An answer's record with another score: what asking it cost and took stays as it was."""
    new = ("key", "asked", "scorer", "score", "failure", "error", "finished_at")
    return asked.model_copy(
        update={"rescored": True} | {name: getattr(scored, name) for name in new}
    )


def prompt_record(trial: Trial) -> PromptRecord:
    """What a record keeps of a trial's prompt as a whole: never its text."""
    prompt = trial.prompt
    return PromptRecord(
        sha256=prompt.sha256,
        tokens=prompt.tokens,
        fed_tokens=prompt.asked_tokens if prompt.asked_tokens != prompt.tokens else None,
        ids_sha256=prompt.ids_sha256 or None,
        haystack_tokens=prompt.haystack_tokens,
        positions=prompt.positions,
        pad=prompt.pad,
        off_by=prompt.off_by,
        haystack_repeated=trial.haystack_repeated,
        collisions=trial.collisions,
    )


def _scored(score: Score | Unmeasured) -> dict[str, Any]:
    if isinstance(score, Score):
        return {"score": score.share}
    return {"failure": score.failure.value, "error": str(score)}


def whole_answer(prefix: str, said: str) -> str:
    """An answer with the beginning that was given to the model, unless the model began anew itself.

    >>> whole_answer("The code is", " 42."), whole_answer("The code is", "The code is 42.")
    ('The code is 42.', 'The code is 42.')
    """
    return said if said.lstrip().startswith(prefix.strip()) else prefix + said
