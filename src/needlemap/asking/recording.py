"""From a trial and what came of it to its record.

A needle is kept as it stands in its prompt, with the context's letters either side of it: a few
slices of the prompt's spans. The context itself, which may be long, is never joined or decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
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
from needlemap.scorers.words import find_texts
from needlemap.settings import Settings
from needlemap.settings.prices import Prices, summed
from needlemap.text.tokens import Span
from needlemap.trials import run_hash

if TYPE_CHECKING:
    from needlemap.tasks import Item
    from needlemap.trials import Trial

# Characters kept on either side of a needle.
LETTERS = 300
# At least as many characters, and one that may be cut in two.
_BYTES = 4 * (LETTERS + 1)


def needle_records(prompt: Prompt, needles: Sequence[str]) -> tuple[NeedleRecord, ...]:
    """Return what a record keeps of a prompt's needles: depths, place, text and surroundings.

    The first few keep their text and up to LETTERS characters of the context before and after it.
    needles: their texts, as the task gave them.

    before + text + after is a slice of the prompt's context; other needles in it are part of that
    text. A space that was put behind a needle, to keep two words apart, belongs to what comes after
    it.
    """
    spans = prompt.context_spans
    texts = needles[: min(_SHOWN, len(prompt.needles))]
    records = []
    for placed, needle in zip_longest(prompt.needles, texts):
        surroundings = {}
        if needle is not None:
            needle_end = _needle_end(spans, placed.byte, needle)
            surroundings = _surroundings(spans, placed.byte, needle_end)
        records.append(
            NeedleRecord(
                meant=placed.meant,
                realised=placed.realised,
                byte=placed.byte,
                **surroundings,
            )
        )
    return tuple(records)


def _surroundings(spans: Sequence[Span], start: int, end: int) -> dict[str, str]:
    """Return the text of a needle and the letters before and after it.

    start, end: offsets of the needle's first byte, and of the first byte behind it.
    """
    before = _bytes(spans, max(0, start - _BYTES), start)
    after = _bytes(spans, end, end + _BYTES)
    return {
        "text": _decode(_bytes(spans, start, end)),
        "before": _decode(before)[-LETTERS:],
        "after": _decode(after)[:LETTERS],
    }


def _needle_end(spans: Sequence[Span], start: int, needle: str) -> int:
    """Return the offset of the first byte behind a needle.

    start: the offset of the needle's first byte. needle: its text, as the task gave it. A space
    that was added to the text, to keep two words apart, is not part of the needle.
    """
    for offset, span in _spans_with_offsets(spans):
        span_end = offset + len(span.data)
        if offset <= start < span_end:
            has_added_space = bytes(span.data[-1:]) == b" " and not needle.endswith(" ")
            return span_end - 1 if has_added_space else span_end
    raise ValueError(f"no needle starts at byte {start}")


def _bytes(spans: Sequence[Span], start: int, stop: int) -> bytes:
    """Return the context's bytes from start to stop, as far as there are any."""
    parts = []
    for offset, span in _spans_with_offsets(spans):
        parts.append(span.data[max(0, start - offset) : max(0, stop - offset)])
    return b"".join(parts)


def _spans_with_offsets(spans: Sequence[Span]) -> Iterator[tuple[int, Span]]:
    """Yield each span with its first byte's offset in the context."""
    offset = 0
    for span in spans:
        yield offset, span
        offset += len(span.data)


def _decode(data: bytes) -> str:
    """Return bytes as text, as `Prompt.context_text` does.

    Presets that follow older tools may leave half of a character, which becomes U+FFFD.
    """
    return data.decode("utf-8", "replace")


# Characters.
LONGEST_THINKING = 20_000
NONE_UNREAD = UnreadRecord(prompt_tokens=0, usd=0.0)
_CUT = "\n[...]\n"
# Needles of a trial whose text and surroundings are kept; of others only where they stand.
_SHOWN = 32


@dataclass(frozen=True)
class RecordMaker:
    """Makes the records of one run."""

    settings: Settings
    scorer: Scorer
    prices: Prices

    @cached_property
    def _run(self) -> str:
        """Return the run's hash. Writing all settings for each record took a third of its time."""
        return run_hash(self.settings)

    def make(
        self,
        trial: Trial,
        answer: Answer | None,
        score: Score | Unmeasured,
        attempts: int,
        unread: UnreadRecord = NONE_UNREAD,
    ) -> Record:
        """Return the record of a trial: asked, answered (or not), scored (or not)."""
        fields: dict[str, Any] = self._trial_fields(trial)
        if answer is not None:
            fields |= self._answer_fields(trial, answer)
        named = {} if answer is None else named_distractors(trial.item, answer.text)
        return Record(
            **fields,
            **_score_fields(score),
            scorer=self._scorer_record(score, named),
            attempts=attempts,
            unread=unread,
            finished_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )

    def _trial_fields(self, trial: Trial) -> dict[str, Any]:
        reference = trial.item.reference
        return {
            "key": trial.key,
            "asked": trial.asked,
            "run": self._run,
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

    def _answer_fields(self, trial: Trial, answer: Answer) -> dict[str, Any]:
        prompt_tokens = answer.prompt_tokens
        if prompt_tokens is None:
            prompt_tokens = trial.prompt.asked_tokens
        beside = tuple(_pass_records(trial, answer))
        cached_tokens, completion_tokens = answer.cached_tokens or 0, answer.completion_tokens or 0
        prices = [self.prices.usd(prompt_tokens, cached_tokens, completion_tokens)]
        for other in beside:
            prices.append(self.prices.usd(other.tokens or 0, other.cached_tokens or 0, 0))
        return {
            "answer": answer.text if answer.forced is None else None,
            "logprobs": answer.logprobs,
            "beside": beside,
            "thinking": capped_thinking(answer.thinking),
            "finish": answer.finish,
            "prompt_tokens": answer.prompt_tokens,
            "cached_tokens": answer.cached_tokens,
            "completion_tokens": answer.completion_tokens,
            "thinking_tokens": answer.thinking_tokens,
            "usage": answer.usage,
            "usd": summed(prices),
            "latency_s": round(answer.latency_s, 4),
            "first_token_s": answer.first_token_s and round(answer.first_token_s, 4),
            "answered_by": answer.model,
        }

    def _scorer_record(self, score: Score | Unmeasured, named: dict[str, Any]) -> ScorerRecord:
        fields: dict[str, Any] = {}
        if isinstance(score, Score):
            fields = {
                "native": score.native,
                "why": {**score.why, **named},
                "unreadable": score.unreadable,
                "ratio": score.ratio,
            }
        return ScorerRecord(
            name=self.scorer.name,
            options=dict(self.scorer.options),
            rule=rule_of(self.scorer),
            scale=self.scorer.scale,
            usd=score.usd,
            **fields,
        )


def _pass_records(trial: Trial, answer: Answer) -> Iterator[PassRecord]:
    """Yield what a record keeps of a given answer behind the item's other prompts."""
    for request in trial.beside:
        pass_answer = answer.beside.get(request.role)
        # The request failed.
        if pass_answer is None:
            continue

        logprobs = pass_answer.forced.logprobs if pass_answer.forced else ()
        sent_tokens = pass_answer.prompt_tokens
        yield PassRecord(
            role=request.role,
            sha256=request.prompt.sha256,
            nats=tuple(round(logprob, 6) for logprob in logprobs),
            tokens=request.prompt.asked_tokens if sent_tokens is None else sent_tokens,
            cached_tokens=pass_answer.cached_tokens,
            shared_tokens=request.shared_tokens,
            latency_s=round(pass_answer.latency_s, 4),
        )


def named_distractors(item: Item, answer: str) -> dict[str, Any]:
    """Return under `distractors` the values that an answer takes from the prompt's distractors.

    Return {} if the prompt has no distractor, or none whose value is known.
    """
    if not item.reference.decoys or not any(needle.wrong for needle in item.needles):
        return {}
    named, _ = find_texts(answer, item.reference.decoys, rule="inside")
    return {DISTRACTORS: named}


def capped_thinking(thinking: str | None) -> str | None:
    """Return thinking as a record keeps it: of a longer one the start and the end.

    >>> len(capped_thinking("x" * 50_000))
    20000
    """
    if thinking is None or len(thinking) <= LONGEST_THINKING:
        return thinking
    half = (LONGEST_THINKING - len(_CUT)) // 2
    return thinking[: LONGEST_THINKING - len(_CUT) - half] + _CUT + thinking[-half:]


def answer_of(record: Record) -> Answer:
    """Return the answer that a record keeps, to be scored anew."""
    return Answer(
        text=record.answer or "",
        finish=record.finish,
        prompt_tokens=record.prompt_tokens,
        cached_tokens=record.cached_tokens,
        completion_tokens=record.completion_tokens,
        usage=record.usage,
        model=record.answered_by,
        latency_s=record.latency_s or 0.0,
        thinking=record.thinking,
        thinking_tokens=record.thinking_tokens,
        logprobs=record.logprobs,
        first_token_s=record.first_token_s,
    )


def rescored_record(answered: Record, scored: Record) -> Record:
    """Return an answer's record with another score. What the answer cost and took stays."""
    fields = ("key", "asked", "scorer", "score", "failure", "error", "finished_at")
    return answered.model_copy(
        update={"rescored": True} | {name: getattr(scored, name) for name in fields}
    )


def prompt_record(trial: Trial) -> PromptRecord:
    """Return what a record keeps of a trial's prompt as a whole: never its text."""
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


def _score_fields(score: Score | Unmeasured) -> dict[str, Any]:
    if isinstance(score, Score):
        return {"score": score.share}
    return {"failure": score.failure.value, "error": str(score)}


def whole_answer(prefix: str, answer: str) -> str:
    """Return an answer with the start that was given to the model, unless it repeats that itself.

    >>> whole_answer("The code is", " 42."), whole_answer("The code is", "The code is 42.")
    ('The code is 42.', 'The code is 42.')
    """
    return answer if answer.lstrip().startswith(prefix.strip()) else prefix + answer
