"""A record: what happened in one trial, one JSON line.

Its key hashes everything that can change the answer. Failures to measure are records without a score.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, computed_field

from needlemap.runs.outcomes import outcome_of

SCHEMA = 1


class NeedleRecord(BaseModel):
    """One needle: meant and realised depth as shares in [0, 1]; byte: its offset in the context.

    text: as it was placed. before, after: up to 300 characters of the context either side of it. Of a
    trial's first 32 needles only.
    """

    model_config = ConfigDict(frozen=True)
    meant: float
    realised: float
    byte: int
    text: str = ""
    before: str = ""
    after: str = ""


class PromptRecord(BaseModel):
    """What the prompt was: its hash, its sizes, and the few numbers that rebuild it with the run's settings.

    tokens: by our tokenizer, without the reserve. positions: haystack tokens before each needle.
    pad: what was added at the haystack's end to reach the exact length.
    """

    model_config = ConfigDict(frozen=True)
    sha256: str
    tokens: int
    haystack_tokens: int
    positions: tuple[int, ...] = ()
    pad: str = ""
    off_by: int = 0
    haystack_repeated: bool = False
    collisions: tuple[str, ...] = ()


class ScorerRecord(BaseModel):
    """How the answer was scored: the scorer, its options, its native scale and what decided the score.

    mean: whether the score is a mean of nobody knows how many answers, as in an imported summary.
    usd: what a judge cost; None when no price is known.
    """

    model_config = ConfigDict(frozen=True)
    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    scale: tuple[float, float] = (0.0, 1.0)
    native: float | None = None
    why: dict[str, Any] = Field(default_factory=dict)
    mean: bool = False
    usd: float | None = 0.0


class Record(BaseModel):
    """One trial. length_tokens and depth (a share) as asked; score in [0, 1], None when not measured.

    prompt_tokens, cached_tokens, completion_tokens: as the server counted; None where it did not say.
    shared_tokens: what the plan promised that a cache holds of it; None where the mode shares nothing.
    asked: hash of what can change the answer, so that answers can be scored anew; key adds the scorer.
    thinking: what a reasoning model wrote before its answer, at most 20,000 characters of it.
    rescored: whether the answer is an earlier record's, scored anew: nothing was asked.
    timed_out: of the attempts, those that ran out of time, which a provider may bill all the same.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")
    schema_version: int = Field(SCHEMA, alias="schema")
    key: str
    asked: str = ""
    task: str
    model: str
    length_tokens: int = Field(ge=0)
    depth: float = Field(ge=0, le=1)
    repeat: int = Field(ge=0)
    seed: int
    question: str = ""
    reference: str = ""
    keywords: tuple[str, ...] = ()
    needles: tuple[NeedleRecord, ...] = ()
    prompt: PromptRecord | None = None
    answer: str | None = None
    thinking: str | None = None
    finish: str | None = None
    score: float | None = Field(None, ge=0, le=1)
    scorer: ScorerRecord | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    shared_tokens: int | None = None
    completion_tokens: int | None = None
    thinking_tokens: int | None = None
    usage: dict[str, Any] = Field(default_factory=dict)
    usd: float | None = None
    latency_s: float | None = None
    attempts: int = 0
    timed_out: int = 0
    rescored: bool = False
    failure: str | None = None
    error: str | None = None
    answered_by: str | None = None
    finished_at: str = ""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def outcome(self) -> str:
        """What became of the trial, in one of the words of `outcomes.py`."""
        return outcome_of(self)

    @property
    def scored(self) -> bool:
        """Whether this trial is done: a failure to measure is asked again on resume."""
        return self.score is not None

    @property
    def judge_usd(self) -> float | None:
        """What judging the answer cost; None when no price is known."""
        return self.scorer.usd if self.scorer else 0.0

    def line(self) -> bytes:
        """Its JSON line."""
        return self.model_dump_json(by_alias=True, exclude_defaults=False).encode() + b"\n"
