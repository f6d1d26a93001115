"""Describe one trial in a record, which is one JSON line, and name its outcome.

A record's key hashes everything that can change the answer. Failures to measure are records without
a score. Only what the model did is scored: an answer, a refusal or a cut-off answer is, every other
outcome is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    computed_field,
)

from needlemap.errors import Failure
from needlemap.finishes import Ending, ending_of
from needlemap.grid import MOST_TOKENS
from needlemap.models import Logprobs, clean_logprobs
from needlemap.records.run_file import RuledScorer
from needlemap.scorers import FIRST_RULE
from needlemap.settings.prices import summed
from needlemap.untrusted import (
    MOST_WHOLE,
    clean_amount,
    clean_count,
    clean_json,
    clean_object,
    clean_usage,
)
from needlemap.version import SCHEMA

# The key in `scorer.why` of the distractors' values that an answer names.
DISTRACTORS = "distractors"
# Tokens that the seams between a prompt's parts cost at most.
_SEAMS = 64


Count = Annotated[int | None, BeforeValidator(clean_count)]
Amount = Annotated[float | None, BeforeValidator(clean_amount)]
Native = Annotated[float | None, BeforeValidator(clean_json)]
Thought = Annotated[Logprobs | None, BeforeValidator(clean_logprobs)]
# Not copied, so that what was cleaned is known by its type.
JsonObject = Annotated[dict[str, Any], PlainValidator(clean_object)]
Usage = Annotated[dict[str, Any], PlainValidator(clean_usage)]
Whole = Annotated[int, Field(ge=-MOST_WHOLE, le=MOST_WHOLE)]


class NeedleRecord(BaseModel):
    """One needle of a prompt. Its texts are kept for a trial's first 32 needles only.

    Attributes:
        meant: The depth that was asked for, as a share in [0, 1].
        realised: The depth at which it stands, as a share in [0, 1].
        byte: Its offset in the context.
        text: The needle as it was placed.
        before, after: Up to 300 characters of the context on either side.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
    meant: float
    realised: float
    byte: Whole
    text: str = ""
    before: str = ""
    after: str = ""


class PromptRecord(BaseModel):
    """A prompt: its hash, its sizes, and the few numbers that rebuild it with the run's settings.

    Attributes:
        sha256: Hash of its text.
        tokens: Its length by the tokenizer that counts lengths, without the reserve.
        fed_tokens: Its length by the model's own tokenizer, chat template included; None if that
            is the same one.
        ids_sha256: Hash of the token ids that the model sees, chat template included; None if
            unknown.
        haystack_tokens: The tokens of its haystack.
        positions: The haystack tokens before each needle.
        pad: The text added at the haystack's end to reach the exact length.
        off_by: Its length minus the length that was asked for, in tokens.
        haystack_repeated: Whether the haystack was too short and was repeated.
        collisions: Words of needles and answers that the haystack holds too.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
    sha256: str
    tokens: Whole
    fed_tokens: Whole | None = None
    ids_sha256: str | None = None
    haystack_tokens: Whole
    positions: tuple[Whole, ...] = ()
    pad: str = ""
    off_by: Whole = 0
    haystack_repeated: bool = False
    collisions: tuple[str, ...] = ()

    @property
    def is_short(self) -> bool:
        """Return True if the haystack ended: the prompt lacks more tokens than seams cost."""
        return self.off_by < -_SEAMS


class ScorerRecord(RuledScorer):
    """How an answer was scored.

    Attributes:
        name: The scorer.
        options: Its options as resolved.
        rule: The number of its rule.
        scale: Its lowest and highest score.
        native: The score on that scale.
        why: What decided the score.
        unreadable: Whether nothing could be taken from the answer. Its score is 0 then.
        mean: Whether the score is a mean of an unknown number of answers, as in an imported
            summary.
        usd: The cost of a judge; None if no price is known.
        ratio: The two parts of a score that is a ratio. Maps show ratios of their sums.
    """

    model_config = ConfigDict(allow_inf_nan=False)
    options: JsonObject = Field(default_factory=dict)
    rule: Whole = FIRST_RULE
    scale: tuple[float, float] = (0.0, 1.0)
    native: Native = None
    why: JsonObject = Field(default_factory=dict)
    unreadable: bool = False
    mean: bool = False
    usd: Amount = 0.0
    ratio: tuple[float, float] | None = None


class PassRecord(BaseModel):
    """A given answer behind another of an item's prompts.

    If several items share the prompt, the first record has its tokens and seconds and the others
    have 0.

    Attributes:
        role: 'bare' for the prompt of the same length without the needle, 'oracle' for the needle
            and the question alone.
        sha256: Hash of that prompt's text.
        nats: The log-probability of each of the answer's tokens behind it.
        tokens: The prompt's tokens as the server counted them, else as we did.
        cached_tokens, shared_tokens, latency_s: As a record's.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)
    role: str
    sha256: str
    nats: tuple[float, ...]
    tokens: Count = None
    cached_tokens: Count = None
    shared_tokens: Count = None
    latency_s: Amount = None


class UnreadRecord(BaseModel):
    """Attempts that were accepted and brought no readable answer: too late, cut short, unreadable.

    A provider may bill them.

    Attributes:
        attempts: How many there were.
        prompt_tokens: Their tokens by the server's count, else by ours; None for the whole prompt
            each time.
        answer_tokens: The tokens that the model wrote.
        usd: Their cost; None if no price is known.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
    attempts: Whole = 0
    prompt_tokens: Count = None
    answer_tokens: Whole = 0
    usd: Amount = None

    def __add__(self, other: UnreadRecord) -> UnreadRecord:
        """Return the sums of both. The prompt tokens of both must be known."""
        return UnreadRecord(
            attempts=self.attempts + other.attempts,
            prompt_tokens=(self.prompt_tokens or 0) + (other.prompt_tokens or 0),
            answer_tokens=self.answer_tokens + other.answer_tokens,
            usd=summed([self.usd if self.attempts else 0.0, other.usd]),
        )


class Record(BaseModel):
    """One trial: what was sent, what came back, and how it was scored.

    An optional number that is missing or out of bounds is read as None.

    Attributes:
        schema_version: The version of this schema.
        key: Hash of all that can change the answer or its score.
        asked: Hash of what the model was sent, so that answers can be scored anew.
        run: Hash of the settings that make its run what it is, as in run.json; '' if unknown.
        task: The task's name.
        model: The model as BACKEND/NAME.
        length_tokens: The length that was asked for, of the first cell that the prompt stands for.
        depth: The depth that was asked for in that cell, as a share in [0, 1].
        repeat: The repeat in that cell, from 0.
        second: Whether its prompt was sent for the second time.
        seed: The run's seed.
        question: The question.
        reference: The right answer.
        keywords: Words of the right answer that scorers look for.
        reference_sha256: Hash of all that is right and wrong; '' if unknown.
        needles: Where the needles stand.
        prompt: The prompt's hash and sizes; None if unknown, as in imported results.
        answer: What the model wrote; None without an answer.
        logprobs: What the model thought of each token of its answer, if that was requested, or of
            the reference answer, if that was scored.
        beside: The reference answer behind the item's other prompts.
        thinking: What a reasoning model wrote before its answer, at most 20,000 characters of it.
        finish: Why the answer ended.
        score: The score in [0, 1]; None if not measured.
        scorer: How it was scored.
        prompt_tokens, cached_tokens, completion_tokens, thinking_tokens: As the server counted
            them; None if it did not.
        shared_tokens: The tokens that the plan expects in a cache; None in mode `cold`, which
            shares nothing.
        usage: The server's own usage report.
        usd: The cost of the answer; None if no price is known.
        latency_s: Seconds of the attempt that was answered.
        first_token_s: Seconds until the first piece of a streamed answer came. Lines of other
            answers do not have the field.
        attempts: How often it was sent.
        unread: Attempts whose answers could not be read.
        rescored: Whether the answer is an earlier record's, scored anew.
        failure: The kind of failure; None for a trial that was measured.
        error: The failure in words.
        answered_by: The model that the provider names in its reply.
        finished_at: When it ended, in UTC.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)
    schema_version: int = Field(SCHEMA, alias="schema")
    key: str
    asked: str = ""
    run: str = ""
    task: str
    model: str
    length_tokens: int = Field(ge=0, le=MOST_TOKENS)
    depth: float = Field(ge=0, le=1)
    repeat: int = Field(ge=0, le=MOST_WHOLE)
    second: bool = False
    seed: int = Field(ge=-(2**63), lt=2**63)
    question: str = ""
    reference: str = ""
    keywords: tuple[str, ...] = ()
    reference_sha256: str = ""
    needles: tuple[NeedleRecord, ...] = ()
    prompt: PromptRecord | None = None
    answer: str | None = None
    logprobs: Thought = None
    beside: tuple[PassRecord, ...] = ()
    thinking: str | None = None
    finish: str | None = None
    score: float | None = Field(None, ge=0, le=1)
    scorer: ScorerRecord | None = None
    prompt_tokens: Count = None
    cached_tokens: Count = None
    shared_tokens: Count = None
    completion_tokens: Count = None
    thinking_tokens: Count = None
    usage: Usage = Field(default_factory=dict)
    usd: Amount = None
    latency_s: Amount = None
    first_token_s: Amount = None
    attempts: Whole = 0
    unread: UnreadRecord = Field(default_factory=UnreadRecord)
    rescored: bool = False
    failure: str | None = None
    error: str | None = None
    answered_by: str | None = None
    finished_at: str = ""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def outcome(self) -> str:
        """Return what became of the trial, as `outcome_counts` counts it."""
        return outcome_of(self)

    @property
    def scored(self) -> bool:
        """Return True if the trial is done. A failure to measure is retried on resume."""
        return self.score is not None

    @property
    def is_skipped(self) -> bool:
        """Return True if a limit left the trial out or cut it off.

        It may have an answer that is still to be scored.
        """
        return self.failure == Failure.SKIPPED

    @property
    def asked_usd(self) -> float | None:
        """Return the cost of all its attempts, or None if no price is known."""
        if not self.unread.attempts:
            return self.usd
        return summed([self.unread.usd, self.usd if self.answer is not None else 0.0])

    @property
    def judge_usd(self) -> float | None:
        """Return the cost of judging the answer, or None if no price is known."""
        return self.scorer.usd if self.scorer else 0.0

    @property
    def own_tokens(self) -> int:
        """Return the prompt's tokens by our count in the model's vocabulary, or 0 if unknown."""
        if self.prompt is None:
            return 0
        return self.prompt.fed_tokens or self.prompt.tokens

    @property
    def sent_tokens(self) -> int | None:
        """Return the prompt's tokens as the server counted them or, if it did not, as we did.

        If neither count is known, None is returned.
        """
        if self.prompt_tokens is not None:
            return self.prompt_tokens
        return self.prompt.tokens if self.prompt else None

    @property
    def all_tokens(self) -> int | None:
        """Return the tokens of all prompts that were sent for the trial.

        If the tokens of its own prompt are unknown, None is returned.
        """
        sent_tokens = self.sent_tokens
        if sent_tokens is None:
            return None
        return sent_tokens + sum(passage.tokens or 0 for passage in self.beside)

    def line(self) -> bytes:
        """Return its JSON line."""
        exclude = {"first_token_s"} if self.first_token_s is None else None
        return self.model_dump_json(by_alias=True, exclude=exclude).encode() + b"\n"


_NO_NAMES: set[str] = set()


def without_field_names(record: Record) -> Record:
    """Halve the memory that a record takes, and return the record.

    pydantic keeps the names of the fields that were set in a set for each record and each of its
    parts. They are dropped, because nothing asks which fields of a record were set.
    """
    for part in (record, record.prompt, record.scorer, record.unread, *record.needles):
        if part is not None:
            object.__setattr__(part, "__pydantic_fields_set__", _NO_NAMES)
    return record


def outline(record: Record, shared: dict[Any, Any]) -> Record:
    """Return a record that takes a quarter of the memory, to resume its run and to draw its map.

    Long texts are left out. If `answer` and `thinking` hold more than white space, they become
    `TEXT`, else ''. shared: parts of other outlines, which are used again if they are equal.
    """
    fields = {
        **record.__dict__,
        **_WITHOUT_TEXTS,
        "question": record.question if record.prompt is None else "",
        "reference": record.reference if record.prompt is None else "",
        "keywords": record.keywords if len(record.needles) > 1 else (),
        "needles": tuple(
            _NeedleOutline.of({**needle.__dict__, **_NO_TEXTS}) for needle in record.needles
        ),
        "answer": _outline_text(record.answer),
        "thinking": _outline_text(record.thinking),
        "beside": tuple(other.model_copy(update={"nats": ()}) for other in record.beside),
        "scorer": _scorer_outline(record.scorer, shared),
        "prompt": _prompt_outline(record.prompt),
        "unread": _shared_unread(record.unread, shared),
    }
    common_fields = {name: fields.pop(name) for name in _COMMON}
    common_fields = shared.setdefault(("common", *common_fields.values()), common_fields)
    return _RecordOutline.of(fields, common_fields)


def _scorer_outline(scorer: ScorerRecord | None, shared: dict[Any, Any]) -> ScorerRecord | None:
    if scorer is None:
        return None
    why = {name: value for name, value in scorer.why.items() if name != "found"}
    scorer_outline = scorer.model_copy(update={"why": why, "native": None})
    key = "scorer", str(tuple(getattr(scorer_outline, name) for name in ScorerRecord.model_fields))
    result: ScorerRecord = shared.setdefault(key, scorer_outline)
    return result


def _prompt_outline(prompt: PromptRecord | None) -> PromptRecord | None:
    if prompt is None:
        return None
    return _PromptOutline.of({**prompt.__dict__, "positions": (), "pad": "", "ids_sha256": None})


def _shared_unread(unread: UnreadRecord, shared: dict[Any, Any]) -> UnreadRecord:
    key = "unread", unread.attempts, unread.prompt_tokens, unread.answer_tokens, unread.usd
    result: UnreadRecord = shared.setdefault(key, unread)
    return result


class _Outline(BaseModel):
    """A part of an outline.

    It holds only the fields that differ from the defaults, because a dictionary of all fields would
    take as much memory as the rest.
    """

    @classmethod
    def of(cls, fields: dict[str, Any], common: dict[str, Any] | None = None) -> Self:
        """Make an outline of valid fields.

        common: further fields, which it shares with other outlines.
        """
        defaults = _defaults(cls)
        unusual = {name: value for name, value in fields.items() if value != defaults[name]}
        if common is not None:
            unusual["common"] = common
        part = cls.__new__(cls)
        object.__setattr__(part, "__dict__", unusual)
        object.__setattr__(part, "__pydantic_fields_set__", _NO_NAMES)
        object.__setattr__(part, "__pydantic_extra__", None)
        object.__setattr__(part, "__pydantic_private__", None)
        return part

    def __getattr__(self, name: str) -> Any:
        """Return a field that the outline does not hold itself: the common one, or the default."""
        defaults = _defaults(type(self))
        if name not in defaults:
            raise AttributeError(name)
        common = self.__dict__.get("common") or {}
        return common[name] if name in common else defaults[name]


class _RecordOutline(_Outline, Record):
    pass


class _PromptOutline(_Outline, PromptRecord):
    pass


class _NeedleOutline(_Outline, NeedleRecord):
    pass


@cache
def _defaults(kind: type[BaseModel]) -> Mapping[str, Any]:
    """Return the default of each field. That of a required field equals no value."""
    fields = kind.model_fields.items()
    return {name: field.get_default(call_default_factory=True) for name, field in fields}


# Fields that most outlines of a run have in common.
_COMMON = (
    "schema_version",
    "run",
    "task",
    "model",
    "seed",
    "finish",
    "failure",
    "answered_by",
    "attempts",
)
# What stands for a text in an outline.
TEXT = "..."
_WITHOUT_TEXTS: dict[str, Any] = {"finished_at": "", "logprobs": None, "error": None, "usage": {}}
_NO_TEXTS = {"text": "", "before": "", "after": ""}


def _outline_text(text: str | None) -> str | None:
    if text is None:
        return None
    return TEXT if text and not text.isspace() else ""


def costs_of(records: Iterable[Record], names: Iterable[str] = ()) -> dict[str, float | None]:
    """Return the summed costs of several records, to six decimals, by name.

    If no record has a cost, its sum is None.

    names: the costs, by default all. `usd` is of the model's answers and of attempts that could not
    be read. `seconds` is latency, which overlaps between lanes.
    """
    costs = {name: _COSTS[name] for name in names or _COSTS}
    rows = [[cost(record) for cost in costs.values()] for record in records]
    sums: dict[str, float | None] = {}
    for index, name in enumerate(costs):
        total = summed((row[index] for row in rows), of_known=True)
        sums[name] = None if total is None else round(total, 6)
    return sums


_COSTS: dict[str, Callable[[Record], float | None]] = {
    "prompt_tokens": lambda record: None if record.latency_s is None else record.all_tokens,
    "cached_tokens": lambda record: _sum_of_prompts(record, "cached_tokens"),
    # As the tokens of which they are a share: of prompts that were answered.
    "planned_tokens": lambda record: (
        None if record.latency_s is None else _sum_of_prompts(record, "shared_tokens")
    ),
    "completion_tokens": attrgetter("completion_tokens"),
    "thinking_tokens": attrgetter("thinking_tokens"),
    "usd": attrgetter("asked_usd"),
    "judge_usd": attrgetter("judge_usd"),
    "seconds": lambda record: _sum_of_prompts(record, "latency_s"),
}


def _sum_of_prompts(record: Record, name: str) -> float | None:
    """Return the sum of an amount over all prompts of a record, or None if no prompt has it."""
    # Most records are of one prompt, and a page sums up many records.
    if not record.beside:
        amount: float | None = getattr(record, name)
        return amount
    amounts = [getattr(part, name) for part in (record, *record.beside)]
    return summed(amounts, of_known=True)


SCORED = "scored"
REFUSED = "refused by the model"
FILTERED = "filtered by the provider"
ANSWER_SPENT = "answer budget spent"
THINKING_SPENT = "thinking budget spent"
UNREADABLE = "unreadable answer"
WITHHELD = (REFUSED, FILTERED)
THE_MODELS = (SCORED, REFUSED, FILTERED, ANSWER_SPENT, THINKING_SPENT, UNREADABLE)
SKIPPED = str(Failure.SKIPPED)
# An imported trial without a score.
NOT_MEASURED = "not measured"


def outcome_of(record: Record) -> str:
    """Return what became of a record: its kind of failure, or one of `THE_MODELS`."""
    if record.score is None:
        return record.failure or NOT_MEASURED
    ending = ending_of(record.finish)
    if ending is Ending.REFUSED:
        return REFUSED
    if ending is Ending.FILTERED:
        return FILTERED
    if ending in (Ending.CUT, Ending.WINDOW):
        has_thought = record.thinking or record.thinking_tokens
        has_answered = (record.answer or "").strip()
        return THINKING_SPENT if has_thought and not has_answered else ANSWER_SPENT
    if record.scorer is not None and record.scorer.unreadable:
        return UNREADABLE
    return SCORED


def outcome_counts(outcomes: Iterable[str]) -> dict[str, int]:
    """Count outcomes of records: the model's own outcomes first, then failures by name."""
    counts = Counter(outcomes)
    failures = sorted(counts.keys() - set(THE_MODELS))
    return {name: counts[name] for name in (*THE_MODELS, *failures) if counts[name]}
