"""What a back end is: it answers prompts, and raises `Unmeasured` when it gets no answer.

A back end never retries, never scores and keeps no state between answers but its connection: retrying is
`runs/retry.py`'s, scoring is `scorers/`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import islice
from json import dumps
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from needlemap.errors import Failure, Unmeasured
from needlemap.models.allowance import Allowance

if TYPE_CHECKING:  # arrays: not for those who only ask for help
    from needlemap.prompts.prompt import Prompt
    from needlemap.text.tokens import TokenText

LANE: ContextVar[int] = ContextVar("needlemap_lane", default=0)  # which lane asks: replicas keep it together
MOST_TOKENS = 2**53  # no larger count is kept: beyond it JSON readers disagree about whole numbers
LONGEST_NAME = 200  # characters of a model's name, of a finish reason, and of each text in a usage report
LONGEST_USAGE = 20_000  # characters of a usage report; of a longer one nothing is kept
_DEEPEST, _WIDEST = 6, 200  # levels of a usage report, and parts of each


@dataclass(frozen=True, slots=True)
class Decoding:
    """How an answer is drawn. temperature None: the field is not sent (some models refuse it).

    request: further request fields, passed on as they are. timeout_s: for one attempt. seed: fixes the draws
    of back ends that draw here; another one for each trial. thinking_tokens: a reasoning model's budget
    before its answer, None where none was set.
    """

    max_answer_tokens: int = 300
    temperature: float | None = 0.0
    timeout_s: float = 600.0
    request: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    thinking_tokens: int | None = None

    @property
    def most_tokens(self) -> int:
        """What the model may write in all: thinking and answer."""
        return self.max_answer_tokens + (self.thinking_tokens or 0)


@dataclass(frozen=True, slots=True)
class Forced:
    """How likely a model finds an answer that it was given.

    logprobs: natural log-probability of each of its tokens (at least one), after the prompt and the tokens
    before it. greedy: whether each was the model's first choice.
    """

    logprobs: tuple[float, ...]
    greedy: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said. finish: 'stop', 'length', 'refusal', or the provider's own word; None for none.

    Whatever a server or a user's function says, an Answer fits into a record: half characters become '?',
    and what is no reason, no count or no name is None. Raises Unmeasured for a text that is none.
    Token counts are the provider's own, None where it reports none; usage is its report, in bounds.
    completion_tokens holds thinking_tokens. thinking: what a reasoning model wrote before its answer, None
    where nothing of it is seen. forced: set when the model was given the answer instead of asked for one;
    text is then empty. allowance: what the server still takes. note: what the user should know of the asking.
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

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise Unmeasured(Failure.UNREADABLE, f"The answer is {type(self.text).__name__}, not text.")
        sound = {
            "text": whole(self.text),
            "finish": named(self.finish),
            "model": named(self.model),
            "thinking": whole(self.thinking) if isinstance(self.thinking, str) else None,
            "usage": usage_kept(self.usage),
            "latency_s": self.latency_s if seconds(self.latency_s) else 0.0,
        }
        counts = ("prompt_tokens", "cached_tokens", "completion_tokens", "thinking_tokens")
        for name, value in {**sound, **{name: tokens(getattr(self, name)) for name in counts}}.items():
            object.__setattr__(self, name, value)


def whole(text: str) -> str:
    """A text that any file can hold: half a character (a lone surrogate) becomes '?'."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def named(value: object) -> str | None:
    """A short text as it is, a long one's beginning; None for anything else."""
    return whole(value[:LONGEST_NAME]) if isinstance(value, str) else None


def tokens(value: object) -> int | None:
    """A count of tokens: a whole number from 0 to 2^53; None for anything else.

    >>> tokens(7), tokens(-1), tokens(10**400), tokens(True), tokens("7")
    (7, None, None, None, None)
    """
    number = isinstance(value, int) and not isinstance(value, bool)
    return value if number and 0 <= value <= MOST_TOKENS else None  # type: ignore[operator,return-value]


def seconds(value: object) -> bool:
    """Whether this is a duration."""
    return isinstance(value, (int, float)) and 0 <= value <= MOST_TOKENS


def usage_kept(usage: object) -> dict[str, Any]:
    """A usage report as a record keeps it: unchanged, but for what no report can mean."""
    found = _kept(usage, _DEEPEST)
    return found if isinstance(found, dict) and len(dumps(found)) <= LONGEST_USAGE else {}


def _kept(value: object, levels: int) -> Any:
    """A JSON value within bounds; None for what is out of them."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return named(value)
    if isinstance(value, (int, float)):
        return value if abs(value) <= MOST_TOKENS else None
    if levels and isinstance(value, Mapping):
        return {whole(str(key)[:LONGEST_NAME]): _kept(part, levels - 1) for key, part in _few(value.items())}
    return [_kept(part, levels - 1) for part in _few(value)] if levels and isinstance(value, list) else None


def _few(parts: Iterable[Any]) -> Iterable[Any]:
    return islice(parts, _WIDEST)


# Chat messages as (role, text), one of which may hold MARK, to the token texts before and after that mark,
# with everything that a model wants around them (chat template, first token). Without one: to all and none.
MARK = "\x00haystack\x00"
Render = Callable[[Sequence[tuple[str, str]]], "tuple[TokenText, TokenText]"]


@dataclass(frozen=True, slots=True)
class Traits:
    """What prompts a model takes; known before it is loaded.

    chat: messages (True) or one plain text. tokenizer: the name that 'auto' means, None where nobody knows.
    render: for models that are fed token ids, so that no text is tokenised twice; None for those fed text.
    whole: whether these are the ids of the whole text, as a server of the same weights makes them; else those
    of its spans, one behind the other.
    teacher: whether the model is a `Teacher`. serial: answers come one after another from one cache, so that
    asking several at a time only mixes up their order. breakpoints: whether a provider's cache wants to be
    told where prompts part. remote: whether it is asked over a network, so that what it counts is its word.
    weights: hash of a local model's files, so that a retrained one is asked anew. positions: tokens of prompt
    and answer that it has places for, None for no known limit. needs: packages that asking it imports.
    request: the request fields that it heeds, None where a server or an engine says which. side: for prompts
    of so many tokens a number: what was computed for one serves those of the same number, of None nothing. No
    function where all serve each other.
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


class Model(Protocol):
    """A back end bound to one model. Built as `Backend(name, **options)`; `name` is what follows the slash.

    Raises SettingsError at once when it cannot work (a missing key, an unknown option).
    """

    @classmethod
    def traits(cls, name: str, options: Mapping[str, Any]) -> Traits:
        """What the model takes, without loading or reaching it. Raises SettingsError."""
        ...

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        """Ask once. Raises Unmeasured for a refused request, a time-out, an unreadable answer, ..."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


def replicas_of(model: Model | None) -> int:
    """How many copies a model has, each of which takes lanes of its own."""
    return int(getattr(model, "replicas", 1))


@runtime_checkable
class Teacher(Protocol):
    """A model that also says how likely it finds a given answer (its traits say teacher=True)."""

    async def force(self, prompt: Prompt, answer: str, decoding: Decoding) -> Answer:
        """Weigh once; the result is in the Answer's `forced`. Raises Unmeasured."""
        ...
