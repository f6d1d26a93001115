"""From a trial and what came of it to its record."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from needlemap.errors import Unmeasured
from needlemap.models.base import Answer
from needlemap.money import Prices
from needlemap.runs.record import NeedleRecord, PromptRecord, Record, ScorerRecord
from needlemap.scorers.base import Score, Scorer
from needlemap.settings import Settings
from needlemap.trials import Trial


@dataclass(frozen=True, slots=True)
class RecordMaker:
    """Makes the records of one run."""

    settings: Settings
    scorer: Scorer
    prices: Prices

    def make(self, trial: Trial, answer: Answer | None, score: Score | Unmeasured, attempts: int) -> Record:
        """The record of a trial: asked, answered (or not), scored (or not)."""
        fields: dict[str, Any] = self._asked(trial)
        if answer is not None:
            fields |= self._answered(trial, answer)
        return Record(
            **fields,
            **_scored(score),
            scorer=self._scorer(score),
            attempts=attempts,
            finished_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )

    def _asked(self, trial: Trial) -> dict[str, Any]:
        reference = trial.item.reference
        return {
            "key": trial.key,
            "task": self.settings.task,
            "model": self.settings.model,
            "length_tokens": trial.cell.length_tokens,
            "depth": trial.cell.depth,
            "repeat": trial.repeat,
            "seed": self.settings.seed,
            "question": trial.item.question,
            "reference": reference.answer,
            "keywords": reference.keywords,
            "needles": tuple(
                NeedleRecord(meant=needle.meant, realised=needle.realised, byte=needle.byte)
                for needle in trial.prompt.needles
            ),
            "prompt": prompt_record(trial),
            "shared_tokens": trial.shared_tokens,
        }

    def _answered(self, trial: Trial, answer: Answer) -> dict[str, Any]:
        prompt_tokens = trial.prompt.tokens if answer.prompt_tokens is None else answer.prompt_tokens
        return {
            "answer": answer.text if answer.forced is None else None,
            "finish": answer.finish,
            "prompt_tokens": answer.prompt_tokens,
            "cached_tokens": answer.cached_tokens,
            "completion_tokens": answer.completion_tokens,
            "usage": dict(answer.usage),
            "usd": self.prices.usd(prompt_tokens, answer.cached_tokens or 0, answer.completion_tokens or 0),
            "latency_s": round(answer.latency_s, 4),
            "answered_by": answer.model,
        }

    def _scorer(self, score: Score | Unmeasured) -> ScorerRecord:
        native, why = (score.native, dict(score.why)) if isinstance(score, Score) else (None, {})
        scorer = self.scorer
        return ScorerRecord(
            name=scorer.name, options=dict(scorer.options), scale=scorer.scale, native=native, why=why
        )


def prompt_record(trial: Trial) -> PromptRecord:
    """What a record keeps of a trial's prompt: never the text."""
    prompt = trial.prompt
    return PromptRecord(
        sha256=prompt.sha256,
        tokens=prompt.tokens,
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
