"""A record: what happened in one trial, one JSON line, and what became of the trial.

Its key hashes everything that can change the answer. Failures to measure are records without a
score. Only what the model did is scored: an answer, a refusal or a cut-off answer is, every other
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

DISTRACTORS = "distractors"  # in scorer.why: their values that an answer names
_SEAMS = 64  # tokens that seams between a prompt's parts cost at most


Count = Annotated[int | None, BeforeValidator(clean_count)]
Amount = Annotated[float | None, BeforeValidator(clean_amount)]
Native = Annotated[float | None, BeforeValidator(clean_json)]
Thought = Annotated[Logprobs | None, BeforeValidator(clean_logprobs)]
# Not copied, so that what was cleaned is known by its type.
JsonObject = Annotated[dict[str, Any], PlainValidator(clean_object)]
Usage = Annotated[dict[str, Any], PlainValidator(clean_usage)]
Whole = Annotated[int, Field(ge=-MOST_WHOLE, le=MOST_WHOLE)]


class NeedleRecord(BaseModel):
    """One needle: meant and realised depth as shares in [0, 1]; byte: its offset in the context.

    text: as it was placed. before, after: up to 300 characters of the context either side of it. Of
    a trial's first 32 needles only.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
    meant: float
    realised: float
    byte: Whole
    text: str = ""
    before: str = ""
    after: str = ""


class PromptRecord(BaseModel):
    """What the prompt was: its hash, its sizes, and the few numbers that rebuild it with the run's
    settings.

    tokens: by the tokenizer that counts lengths, without the reserve. fed_tokens: by the model's
    own, chat template included, where that is another one. ids_sha256: of the token ids that the
    model sees, chat template included; None where unknown. positions: haystack tokens
    before each needle. pad: what was added at the haystack's end to reach the exact length.
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
        """Whether it is shorter than its length by more than seams cost: the haystack ended."""
        return self.off_by < -_SEAMS


class ScorerRecord(BaseModel):
    """How the answer was scored: the scorer, its options, its rule's number, its native scale and
    what decided the score.

    unreadable: whether nothing could be taken from the answer; its score is 0 then.
    mean: whether the score is a mean of an unknown number of answers, as in an imported summary.
    ratio: of a score that is a ratio, its two parts: maps show ratios of their sums.
    usd: what a judge cost; None when no price is known.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
    name: str
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
    """A given answer behind another of an item's prompts. role: 'bare' is the prompt of the same
    length without the needle, 'oracle' the needle and the question alone. nats: log-probability of
    each of the answer's tokens there. tokens: as the server counted the prompt's, else as we did;
    of a prompt that several items share the first record has them, others 0; so with
    cached_tokens, shared_tokens and latency_s, which are as a record's."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)
    role: str
    sha256: str
    nats: tuple[float, ...]
    tokens: Count = None
    cached_tokens: Count = None
    shared_tokens: Count = None
    latency_s: Amount = None


class UnreadRecord(BaseModel):
    """Attempts that were sent and not refused, and brought no answer that could be read (too late,
    cut short, unreadable): a provider may bill them.

    Tokens by the server's count, else the prompt's by ours; prompt_tokens None: so many prompts.
    usd: None when no price is known.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
    attempts: Whole = 0
    prompt_tokens: Count = None
    answer_tokens: Whole = 0
    usd: Amount = None

    def __add__(self, other: UnreadRecord) -> UnreadRecord:
        """Both together; tokens of both are known."""
        return UnreadRecord(
            attempts=self.attempts + other.attempts,
            prompt_tokens=(self.prompt_tokens or 0) + (other.prompt_tokens or 0),
            answer_tokens=self.answer_tokens + other.answer_tokens,
            usd=summed([self.usd if self.attempts else 0.0, other.usd]),
        )


class Record(BaseModel):
    """One trial. length_tokens, depth (a share) and repeat as asked, of the first cell that it
    stood for; second: whether its prompt was asked for the second time; score in [0, 1], None when
    not measured.

    prompt_tokens, cached_tokens, completion_tokens: as the server counted; None where it did
    not say. shared_tokens: what the plan promised that a cache holds of it; None in mode
    `cold`, which shares nothing. asked: hash of what the model was asked, so that answers can
    be scored anew; key adds what is right and the scorer. reference_sha256: of all that is
    right and wrong (`Reference.digest`), '' where unknown. logprobs: what the model thought of
    each token of its answer, on request, or of the reference answer where that is what was
    scored. beside: the same behind the item's other prompts. thinking: what a reasoning model
    wrote before its answer, at most 20,000 characters of it. rescored: whether the answer is
    an earlier record's, scored anew: nothing was asked. first_token_s: seconds until the first
    piece of a streamed answer came; the line of any other has no such field. run: hash of the
    settings that make its run what it is, as run.json has it; '' before there was one. A missing
    or non-numeric value of an optional number is read as missing.
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
        """What became of the trial, in one word, as `outcome_counts` counts them."""
        return outcome_of(self)

    @property
    def scored(self) -> bool:
        """Whether this trial is done: a failure to measure is asked again on resume."""
        return self.score is not None

    @property
    def is_skipped(self) -> bool:
        """Whether a limit left it out or cut it off; an answer that it has is still to be
        scored."""
        return self.failure == Failure.SKIPPED

    @property
    def asked_usd(self) -> float | None:
        """What asking cost, attempts without an answer included; None when no price is known."""
        if not self.unread.attempts:
            return self.usd
        return summed([self.unread.usd, self.usd if self.answer is not None else 0.0])

    @property
    def judge_usd(self) -> float | None:
        """What judging the answer cost; None when no price is known."""
        return self.scorer.usd if self.scorer else 0.0

    @property
    def own_tokens(self) -> int:
        """The prompt's tokens by our own count, of the vocabulary that the model was fed."""
        return (self.prompt.fed_tokens or self.prompt.tokens) if self.prompt else 0

    @property
    def sent_tokens(self) -> int | None:
        """The prompt's tokens as the server counted them, else as we did; None if neither is
        known."""
        ours = self.prompt.tokens if self.prompt else None
        return ours if self.prompt_tokens is None else self.prompt_tokens

    @property
    def all_tokens(self) -> int | None:
        """Tokens of its prompt and of the others that were asked for it; None as sent_tokens."""
        sent = self.sent_tokens
        return None if sent is None else sent + sum(each.tokens or 0 for each in self.beside)

    def line(self) -> bytes:
        """Its JSON line."""
        unknown = {"first_token_s"} if self.first_token_s is None else None
        return self.model_dump_json(by_alias=True, exclude=unknown).encode() + b"\n"


_FIELD_NAMES: dict[frozenset[str], set[str]] = {}
_MOST_SHAPES = 1_000  # of records and their parts; a stranger's may each have one of their own


def share_field_names(record: Record) -> Record:
    """The same record in half the memory: the names of the fields that its line has, which
    pydantic keeps in a set for each record and each part of one, in one set for all."""
    for part in (record, record.prompt, record.scorer, record.unread, *record.needles):
        if part is not None:
            names = part.model_fields_set
            if len(_FIELD_NAMES) < _MOST_SHAPES:
                names = _FIELD_NAMES.setdefault(frozenset(names), names)
            object.__setattr__(part, "__pydantic_fields_set__", names)
    return record


def outline(record: Record, shared: dict[Any, Any]) -> Record:
    """A record as its run needs it to resume and to draw its map, in a quarter of the memory: what
    was asked and where, what became of it and what it cost, and no long text. answer, thinking:
    `TEXT` where there is more than white space, else ''. shared: parts of other outlines, used
    again where they are alike."""
    scorer, prompt, unread, few = record.scorer, record.prompt, record.unread, record.needles
    if scorer is not None:
        why = {name: value for name, value in scorer.why.items() if name != "found"}
        by = (scorer.name, scorer.options, scorer.rule, scorer.scale, why, scorer.unreadable)
        key = ("scorer", str((*by, scorer.mean, scorer.ratio, scorer.usd)))
        if key not in shared:
            shared[key] = scorer.model_copy(update={"why": why, "native": None})
        scorer = shared[key]
    if prompt is not None:
        unused = {"positions": (), "pad": "", "ids_sha256": None}
        prompt = _PromptOutline.of({**prompt.__dict__, **unused})
    sent = ("unread", unread.attempts, unread.prompt_tokens, unread.answer_tokens, unread.usd)
    fields = {
        **record.__dict__,
        **_WITHOUT_TEXTS,
        "question": record.question if prompt is None else "",
        "reference": record.reference if prompt is None else "",
        "keywords": record.keywords if len(few) > 1 else (),
        "needles": tuple(_NeedleOutline.of({**each.__dict__, **_NO_TEXTS}) for each in few),
        "answer": _shortened(record.answer),
        "thinking": _shortened(record.thinking),
        "beside": tuple(each.model_copy(update={"nats": ()}) for each in record.beside),
        "scorer": scorer,
        "prompt": prompt,
        "unread": shared.setdefault(sent, unread),
    }
    common = {name: fields.pop(name) for name in _COMMON}
    common = shared.setdefault(("common", *common.values()), common)
    return _RecordOutline.of(fields, common)


class _Outline(BaseModel):
    """A part of an outline. Only what is unusual in it is kept with it: a dictionary of all fields
    takes as much as the rest."""

    @classmethod
    def of(cls, fields: dict[str, Any], common: dict[str, Any] | None = None) -> Self:
        """One with these fields, which are not checked again. common: others, which it shares."""
        usual, made = _usual(cls), cls.__new__(cls)
        own = {name: value for name, value in fields.items() if value != usual[name]}
        own |= {} if common is None else {"common": common}
        object.__setattr__(made, "__dict__", own)
        object.__setattr__(made, "__pydantic_fields_set__", _NO_NAMES)
        object.__setattr__(made, "__pydantic_extra__", None)
        object.__setattr__(made, "__pydantic_private__", None)
        return made

    def __getattr__(self, name: str) -> Any:
        """What it does not hold itself."""
        common = self.__dict__.get("common") or {}
        usual = _usual(type(self))
        if name not in usual:
            raise AttributeError(name)
        return common[name] if name in common else usual[name]


class _RecordOutline(_Outline, Record):
    pass


class _PromptOutline(_Outline, PromptRecord):
    pass


class _NeedleOutline(_Outline, NeedleRecord):
    pass


@cache
def _usual(kind: type[BaseModel]) -> Mapping[str, Any]:
    """What each field of a model is by default; of one that has no default, nothing is equal."""
    fields = kind.model_fields.items()
    return {name: field.get_default(call_default_factory=True) for name, field in fields}


_NO_NAMES: set[str] = set()
_COMMON = (
    *("schema_version", "run", "task", "model", "seed"),
    *("finish", "failure", "answered_by", "attempts"),
)
TEXT = "..."
_WITHOUT_TEXTS: dict[str, Any] = {"finished_at": "", "logprobs": None, "error": None, "usage": {}}
_NO_TEXTS = {"text": "", "before": "", "after": ""}


def _shortened(text: str | None) -> str | None:
    return TEXT if text and not text.isspace() else text and ""


def costs_of(records: Iterable[Record], names: Iterable[str] = ()) -> dict[str, float | None]:
    """The cost of several records, to six decimals; None if none of them has one. names: of
    some costs, else all.

    usd: of the model's answers, and of what was sent and could not be read. seconds: of latency,
    which overlaps between lanes.
    """
    rows = list(records)
    sums = {name: summed(map(_COSTS[name], rows), of_known=True) for name in names or _COSTS}
    return {name: None if found is None else round(found, 6) for name, found in sums.items()}


_COSTS: dict[str, Callable[[Record], float | None]] = {
    "prompt_tokens": lambda record: None if record.latency_s is None else record.all_tokens,
    "cached_tokens": lambda record: _with_beside(record, "cached_tokens"),
    "planned_tokens": lambda record: _with_beside(record, "shared_tokens"),
    "completion_tokens": attrgetter("completion_tokens"),
    "thinking_tokens": attrgetter("thinking_tokens"),
    "usd": attrgetter("asked_usd"),
    "judge_usd": attrgetter("judge_usd"),
    "seconds": lambda record: _with_beside(record, "latency_s"),
}


def _with_beside(record: Record, name: str) -> float | None:
    """A record's amount with that of the item's other prompts; None where it has none."""
    own: float | None = getattr(record, name)
    return summed([own, *(getattr(each, name) for each in record.beside)], of_known=True)


SCORED = "scored"
REFUSED = "refused by the model"
FILTERED = "filtered by the provider"
ANSWER_SPENT = "answer budget spent"
THINKING_SPENT = "thinking budget spent"
UNREADABLE = "unreadable answer"
WITHHELD = (REFUSED, FILTERED)
THE_MODELS = (SCORED, REFUSED, FILTERED, ANSWER_SPENT, THINKING_SPENT, UNREADABLE)
SKIPPED = str(Failure.SKIPPED)
NOT_MEASURED = "not measured"  # an imported trial without a score


def outcome_of(record: Record) -> str:
    """The outcome of one record: a failure's own word, or one of `THE_MODELS`."""
    if record.score is None:
        return record.failure or NOT_MEASURED
    ending = ending_of(record.finish)
    if ending is Ending.REFUSED:
        return REFUSED
    if ending is Ending.FILTERED:
        return FILTERED
    if ending in (Ending.CUT, Ending.WINDOW):
        thought = record.thinking or record.thinking_tokens
        return THINKING_SPENT if thought and not (record.answer or "").strip() else ANSWER_SPENT
    return UNREADABLE if record.scorer and record.scorer.unreadable else SCORED


def outcome_counts(records: Iterable[Record]) -> dict[str, int]:
    """How many records ended how; the model's own outcomes first, then failures by name."""
    found = Counter(record.outcome for record in records)
    names = [*THE_MODELS, *sorted(set(found).difference(THE_MODELS))]
    return {name: found[name] for name in names if found[name]}
