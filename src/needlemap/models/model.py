"""The interface of a back end: it answers prompts, and raises `Unmeasured` when it gets no
answer.

A back end never retries, never scores and keeps no state between answers except its
connection: retrying is `asking/retry.py`'s, scoring is `scorers/`'s.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import fsum
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from needlemap.errors import Failure, SettingsError, Unmeasured
from needlemap.registry import Checked, find_kind, option_names
from needlemap.untrusted import (
    clean_amount,
    clean_count,
    clean_name,
    clean_nats,
    clean_text,
    clean_usage,
)

# Arrays are not for those who only ask for help.
if TYPE_CHECKING:
    from needlemap.allowance import Allowance
    from needlemap.prompts import Prompt
    from needlemap.text.tokens import TokenText

# The lane that sends a request. Replicas keep the prompts of a lane together.
LANE: ContextVar[int] = ContextVar("needlemap_lane", default=0)
# Tokens of an answer whose log-probabilities are kept: the first ones. A record of so many takes
# 200 kB.
MOST_ROWS = 4_096


@dataclass(frozen=True, slots=True)
class Decoding:
    """How an answer is drawn.

    Attributes:
        max_answer_tokens: The budget of the answer.
        temperature: The temperature; None to send none, as some models refuse the field.
        timeout_s: The time for one attempt.
        request: Further request fields, sent as they are.
        seed: Fixes the draws of back ends that draw here. Each trial has its own.
        thinking_tokens: A reasoning model's budget before its answer; None if none is set.
        logprobs: Keep what the model thought of each token of its answer.
        stream: Have a server send the answer while it is written.
    """

    max_answer_tokens: int = 300
    temperature: float | None = 0.0
    timeout_s: float = 600.0
    request: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    thinking_tokens: int | None = None
    logprobs: bool = False
    stream: bool = False

    @property
    def most_tokens(self) -> int:
        """Return the budget of thinking and answer together."""
        return self.max_answer_tokens + (self.thinking_tokens or 0)


@dataclass(frozen=True, slots=True)
class Forced:
    """How likely a model finds an answer that it was given.

    Attributes:
        logprobs: The natural log-probability of each of its tokens (at least one), after the
            prompt and the tokens before it.
        greedy: Whether each token was the model's first choice.
    """

    logprobs: tuple[float, ...]
    greedy: bool


# A token's text and natural log-probability, and those of the likeliest other token; None if
# unknown.
Row = tuple[object, object, object, object]
LogprobSource = Literal["generated", "walk", "echo", "steps", "prompt"]


@dataclass(frozen=True, slots=True)
class Logprobs:
    """What a model thought of each token of an answer: its own, or one that it was given.

    Attributes:
        tokens: Their texts.
        nats: The natural log-probability of each, after the prompt and the tokens before it.
        others, other_nats: The likeliest other token in its place: the runner-up, or the first
            choice if the token was not that. None if unknown.
        way: 'generated' for the model's own answer. For a given answer 'walk' (computed here,
            behind the prompt), 'echo' (the server's log-probabilities of a prompt that holds the
            answer) or 'steps' (the server was made to write it token by token). 'prompt' for what
            the server would write behind a prompt that holds all of an answer but its last token.
        start: The tokens before the first one; None if unknown.
    """

    tokens: tuple[str, ...]
    nats: tuple[float, ...]
    others: tuple[str | None, ...]
    other_nats: tuple[float | None, ...]
    way: LogprobSource
    start: int | None = None

    def __post_init__(self) -> None:
        """Clean what a server, a file or a plug-in reports.

        Raises ValueError if no tokens are left, or one lacks its number.
        """
        columns = (self.tokens, self.nats, self.others, self.other_nats)
        if not all(isinstance(column, list | tuple) for column in columns):
            raise ValueError("tokens, nats, others and other_nats are lists of equal length")
        if not self.tokens or len(set(map(len, columns))) > 1:
            raise ValueError("tokens, nats, others and other_nats have at least one row each")
        if self.way not in get_args(LogprobSource):
            raise ValueError(f"unknown way: {self.way!r:.80}")
        nats = tuple(map(clean_nats, self.nats[:MOST_ROWS]))
        if None in nats:
            raise ValueError("nats holds a value that is not a log-probability")
        pairs = zip(self.others[:MOST_ROWS], self.other_nats[:MOST_ROWS], strict=True)
        others = [_other_token(text, likelihood) for text, likelihood in pairs]
        fields = {
            "tokens": tuple(clean_name(text) or "" for text in self.tokens[:MOST_ROWS]),
            "nats": nats,
            "others": tuple(text for text, _ in others),
            "other_nats": tuple(likelihood for _, likelihood in others),
            "start": clean_count(self.start),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, rows: Sequence[Row], way: object, start: object = None) -> Logprobs | None:
        """Return the log-probabilities in rows of a reply, or None.

        There are none without rows, and if one lacks its number.
        """
        if not rows:
            return None
        tokens, nats, others, other_nats = zip(*rows[:MOST_ROWS], strict=True)
        try:
            return cls(
                tokens=cast(Any, tokens),
                nats=cast(Any, nats),
                others=cast(Any, others),
                other_nats=cast(Any, other_nats),
                way=cast(LogprobSource, way),
                start=cast(Any, start),
            )
        except ValueError:
            return None

    @property
    def mean(self) -> float:
        """Return the mean log-probability of its tokens."""
        return fsum(self.nats) / len(self.nats)


def clean_logprobs(value: object) -> Logprobs | None:
    """Return log-probabilities as a record keeps them, or None for any other value."""
    if isinstance(value, Logprobs):
        return value
    if not isinstance(value, Mapping):
        return None
    fields: dict[str, Any] = {name: value.get(name) for name in Logprobs.__slots__}
    try:
        return Logprobs(**fields)
    except ValueError:
        return None


def _other_token(text: object, likelihood: object) -> tuple[str | None, float | None]:
    """Return another token with its log-probability, or None for both if either is missing."""
    name, nats = clean_name(text), clean_nats(likelihood)
    if name is None or nats is None:
        return None, None
    return name, nats


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model wrote.

    Whatever a server or a user's function returns, an Answer fits into a record: half characters
    become '?', and an invalid reason, count or name becomes None. Raises Unmeasured for an answer
    that is not text.

    Attributes:
        text: The answer; '' if it was given.
        finish: Why it ended: 'stop', 'length', 'refusal', or the provider's own word. None if
            unknown.
        prompt_tokens, cached_tokens, completion_tokens: The provider's own counts; None if it
            reports none. completion_tokens includes thinking_tokens.
        usage: The provider's usage report.
        model: The model that the provider names.
        latency_s: The seconds of the attempt.
        forced: How likely the model finds a given answer; None for one that it wrote.
        thinking: What a reasoning model wrote before its answer; None if it is not shown.
        thinking_tokens: The tokens of that.
        allowance: What the server's rate limits still allow.
        note: What the user should know of the request.
        logprobs: What the model thought of each token, if requested.
        beside: The given answer behind an item's other prompts, by the names of a scorer's passes.
        first_token_s: The seconds until the first piece of a streamed answer, or of its thinking,
            came.
    """

    text: str
    finish: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    latency_s: float = 0.0
    forced: Forced | None = None
    thinking: str | None = None
    thinking_tokens: int | None = None
    allowance: Allowance | None = None
    note: str = ""
    logprobs: Logprobs | None = None
    beside: Mapping[str, Answer] = field(default_factory=dict)
    first_token_s: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise Unmeasured(
                Failure.UNREADABLE, f"The answer is {type(self.text).__name__}, not text."
            )
        fields = {
            "text": clean_text(self.text),
            "finish": clean_name(self.finish),
            "prompt_tokens": clean_count(self.prompt_tokens),
            "cached_tokens": clean_count(self.cached_tokens),
            "completion_tokens": clean_count(self.completion_tokens),
            "usage": clean_usage(self.usage),
            "model": clean_name(self.model),
            "latency_s": clean_amount(self.latency_s) or 0.0,
            "thinking": clean_text(self.thinking) if isinstance(self.thinking, str) else None,
            "thinking_tokens": clean_count(self.thinking_tokens),
            "logprobs": clean_logprobs(self.logprobs),
            "first_token_s": clean_amount(self.first_token_s),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)


# Chat messages as (role, text), one of which may hold MARK, to the token texts before and after
# that mark, with everything that a model wants around them (chat template, first token). Without
# one: to all and none.
MARK = "\x00haystack\x00"
Render = Callable[[Sequence[tuple[str, str]]], "tuple[TokenText, TokenText]"]


@dataclass(frozen=True, slots=True)
class Traits:
    """The prompts that a model takes, known before it is loaded.

    Attributes:
        chat: Whether it takes messages; if not, one plain text.
        tokenizer: The name that 'auto' means; None if unknown.
        render: Makes the token ids of models that are fed ids, so that no text is tokenised twice.
            None for models that are fed text.
        whole: Whether these are the ids of the whole text, as a server of the same weights makes
            them. If not, they are the ids of its spans, one after the other.
        teacher: Whether the model weighs given answers (`Model.force`), as far as is known before
            the first request.
        serial: Whether answers come one after another from one cache, so that several requests at
            a time only mix up their order.
        breakpoints: Whether a provider's cache needs marks where prompts part.
        remote: Whether it is reached over a network, so that its counts cannot be checked here.
        weights: Hash of a local model's files, so that a retrained model has other keys.
        positions: The tokens of prompt and answer that it has positions for; None for no known
            limit.
        needs: The packages that it imports.
        request: The request fields that it reads; None if a server or an engine decides that.
        side: Maps a prompt's tokens to a number. What was computed for one prompt serves those of
            the same number; with None it serves no other. Without a function all serve each other.
        notes: What a user should know of how it is used.
    """

    chat: bool = True
    tokenizer: str | None = None
    render: Render | None = None
    whole: bool = False
    teacher: bool = False
    serial: bool = False
    breakpoints: bool = False
    remote: bool = False
    weights: str = ""
    positions: int | None = None
    needs: tuple[str, ...] = ()
    request: tuple[str, ...] | None = None
    side: Callable[[int], int | None] | None = None
    notes: tuple[str, ...] = ()


class Model(metaclass=Checked):
    """A back end bound to one model. Built as `Backend(name, **options)`; `name` is what follows
    the slash.

    Raises SettingsError at once when it cannot work (a missing key, an unknown option), and
    asks nothing yet. Override `traits`, `answer`, and what differs. All facts about a back end
    stand in its class, with these defaults; no other module names it:

    unread: settings that it does not read, of `temperature`, `thinking_tokens`, `request`,
    `logprobs` and `concurrency`; given for it, they are refused. free: whether asking costs
    nothing. vendor: its name in the price list (genai-prices), '' for the back end's own.

    Of one behind an address, whose constructor takes `base_url`: streams: whether it reads setting
    `stream`. host: the provider's own, which
    stands in no key. base_url_variable, key_variable: the environment's, which hold the address and
    the key where none is typed; headers_variable: the one that holds more headers. renders: whether
    its server makes tokens of chat messages by the model's own template, so that the model's files,
    where they are here, tell which.

    also_called: names that other tools give it, for which `--model` is told its own.

    vocabulary: a sentence on a vocabulary that is not public. longer: the option that lets it take
    longer prompts, with {} for their tokens, '' for none.

    notes: what a user should know before a run. replicas: how many copies of the model answer, each
    of which takes lanes of its own.

    What a server reports of itself, known once the model is open; None if it reports nothing:
    context_tokens: tokens of prompt and answer that it takes. slots: prompts that it computes at a
    time.
    """

    unread: tuple[str, ...] = ()
    also_called: tuple[str, ...] = ()
    free = renders = streams = False
    vendor = host = base_url_variable = key_variable = ""
    headers_variable = vocabulary = longer = ""
    notes: Sequence[str] = ()
    replicas: int = 1
    context_tokens: int | None = None
    slots: int | None = None

    def __init__(self, name: str, **options: Any) -> None:
        self.name = name

    @classmethod
    def traits(cls, name: str, options: Mapping[str, Any]) -> Traits:
        """Return the prompts that the model takes, without loading or reaching it.

        Raises SettingsError for options that cannot work.
        """
        return Traits()

    async def open(
        self, most: int, show_state: Callable[[str], None], show_event: Callable[[str], None]
    ) -> None:
        """Wait until the model can answer. Called once before each batch of prompts.

        most: how many prompts are left. show_state: takes a line on all copies of the model.
        show_event: takes a line on one that started or ended. Raises NeedlemapError if no copy can
        be started.
        """

    async def prepare(self, lanes: int) -> bool:
        """Prepare for several lanes at a time, each with prompts that share their start.

        `LANE` is the number of the lane that sends a request. Returns True if each lane then has
        its own cache.
        """
        return False

    @classmethod
    def address(cls, name: str, options: Mapping[str, Any]) -> str:
        """Return the model's address if none is typed, or '' if it has none of its own.

        It is hashed into keys, so that another server's answers have other keys. A class that names
        no variable is built, and its `base_url` read.
        """
        if "base_url" in options or "base_url" not in option_names(cls):
            return ""
        if cls.base_url_variable:
            return os.environ.get(cls.base_url_variable, "")
        # An error here comes again, with its message, when the model is built for the run.
        with suppress(Exception):
            if cls.traits(name, options).remote:
                base_url = getattr(cls(name, **options), "base_url", None)
                return base_url if isinstance(base_url, str) else ""
        return ""

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        """Send one request and return its answer.

        Raises Unmeasured, e.g. for a refused request, a time-out or an unreadable answer.
        """
        raise NotImplementedError

    async def force(self, prompt: Prompt, answer: str, decoding: Decoding) -> Answer:
        """Return, in the Answer's `forced`, how likely it finds a given answer.

        Called if its traits have teacher=True. Raises Unmeasured.
        """
        raise NotImplementedError

    async def prefill(self, prompt: Prompt, answer: str, decoding: Decoding) -> Answer:
        """Return what it thinks of the last token of a given answer, behind all before that token
        as one prompt of which no cache holds anything.

        The Answer's `logprobs` have one row, whose `start` counts prompt and answer. Raises
        Unmeasured, also if the model cannot tell.
        """
        raise Unmeasured(Failure.REJECTED, f"{self.name} cannot be sent an answer as a prompt.")

    async def close(self) -> None:
        """Release connections."""


def find_backend(name: str) -> type[Model]:
    """Return a back end by its registered name. Raise SettingsError if there is none."""
    return find_kind("models", name, Model)


def backend_or_default(name: str) -> type[Model]:
    """Return a back end by its registered name; `Model` with its defaults if there is none."""
    with suppress(SettingsError):
        return find_backend(name)
    return Model
