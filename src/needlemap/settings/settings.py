"""Every setting of a run, once: presets, YAML files, flags and Python arguments all use these names.

How they are read and merged is in `reading.py`; the older tools' names for them are in `older_names.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from needlemap.errors import SettingsError
from needlemap.settings.units import duration_s, tokens

MOST_TOKENS = 100_000_000  # of an answer or a reserve: ten times the longest context that is sold
MOST_REPEATS = 100_000
MOST_S = 10_000_000.0  # of a wait: four months
LEAST_FRAMING = -100  # tokens: a server that trims blanks counts a few less than we do
_CODES = {"en": "english", "zh": "chinese"}
Spec = str | int | float | list[Any] | dict[str, Any]  # [...], {min, max, count, scale}, "min:max:count"


def _read(read: Callable[[object], float], value: Any) -> Any:
    """A text as the number that it stands for. Raises ValueError, as pydantic wants it."""
    try:
        return read(value) if isinstance(value, str) else value
    except SettingsError as error:
        raise ValueError(str(error)) from None


Tokens = Annotated[int, BeforeValidator(lambda value: _read(tokens, value))]  # 2000000, '100k', '2M'
Seconds = Annotated[float, BeforeValidator(lambda value: _read(duration_s, value))]  # 90, '90s', '1h30m'


def spelt_out(language: Any) -> Any:
    """A language's whole name, of its code too."""
    return _CODES.get(language, language) if isinstance(language, str) else language


def _field(default: Any, group: str, text: str, *, read: str | None = None, **limits: Any) -> Any:
    """A setting: its default, the group that `--help` shows it in, and one line of help.

    read: the rule in `unread.py` that says where it is read; None: always.
    """
    return Field(default, description=text, json_schema_extra={"group": group, "read": read}, **limits)


class Settings(BaseModel):
    """The resolved settings of a run. Field descriptions are the help texts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # model
    model: str = _field(
        "baseline/bm25", "Model", "Who answers: BACKEND/NAME, as openai/gpt-4o or baseline/bm25."
    )
    label: str = _field(
        "", "Model", "The model's short name in figures, tables and CSV; by default BACKEND/NAME."
    )
    base_url: str | None = _field(
        None, "Model", "Address of a compatible server, as http://127.0.0.1:8000/v1.", read="address"
    )
    model_options: dict[str, Any] = _field({}, "Model", "The back end's own options, KEY=VALUE.")
    trust_remote_code: bool = _field(
        False,
        "Model",
        "Run the Python code that comes with a model (hf, lmdeploy): only what you trust.",
        read="own code",
    )
    tokenizer: str = _field(
        "auto",
        "Model",
        "Whose tokens lengths count; auto: the model's own; server: ask base_url.",
    )
    max_answer_tokens: int = _field(300, "Model", "The answer's budget in tokens.", ge=1, le=MOST_TOKENS)
    thinking_tokens: int | None = _field(
        None,
        "Model",
        "A reasoning model's budget before its answer; no part of lengths.",
        ge=1,
        le=MOST_TOKENS,
        read="model",
    )
    temperature: float | None = _field(
        0.0, "Model", "Sampling temperature; 'none' leaves the field out.", ge=0, le=100, read="model"
    )
    request: dict[str, Any] = _field({}, "Model", "Any further request field, KEY=VALUE.", read="model")
    # task
    task: str = _field("single", "Task", "What is hidden and asked; see needlemap list tasks.")
    task_options: dict[str, Any] = _field({}, "Task", "The task's own options, KEY=VALUE; see docs/tasks.md.")
    needle: str = _field(
        "", "Task", "The fact to hide; by default a locker code, drawn afresh for each repeat.", read="task"
    )
    needles: list[str] = _field([], "Task", "Several facts (task multi); repeat the flag.", read="task")
    question: str = _field("", "Task", "What is asked.", read="task")
    answer: str | None = _field(
        None, "Task", "A right answer; the needle itself when not given.", read="task"
    )
    keywords: list[str] = _field([], "Task", "Words that a right answer holds; one a flag.", read="task")
    spread: Literal["chain", "chain-as-coded", "even"] = _field(
        "chain", "Task", "How several needles are spread.", read="several"
    )
    diff: float = _field(
        10.0, "Task", "Chain: percent of depth from one needle to the next.", ge=0, le=100, read="several"
    )
    draw: dict[str, list[str] | str] = _field(
        {}, "Task", "Values for {placeholders}: a list, or low:high.", read="drawn"
    )
    language: Annotated[Literal["english", "chinese"], BeforeValidator(spelt_out)] = _field(
        "english",
        "Task",
        "Of template and generated haystack; en and zh are short for them.",
        read="language",
    )
    # haystack
    haystack: str = _field(
        "generated",
        "Haystack",
        "Its source: generated, folder, jsonl, txt, hub, a plug-in's; a path says which.",
        read="haystack",
    )
    haystack_path: str | None = _field(
        None,
        "Haystack",
        "Folder of documents (with subfolders), one document, JSON Lines, or a hub name.",
        read="path",
    )
    file_list: list[str] = _field(
        [], "Haystack", "Which files of a folder of JSON Lines, in this order.", read="files"
    )
    order: Literal["listed", "shuffled", "cumulative"] = _field(
        "shuffled", "Haystack", "Order of documents by repeat.", read="ordered"
    )
    joined: Literal["paragraphs", "text", "tokens"] = _field(
        "paragraphs", "Haystack", "How documents are joined.", read="haystack"
    )
    haystack_repeat: bool = _field(
        False, "Haystack", "Repeat a source that is too short, and say so.", read="ending"
    )
    collisions: Literal["error", "warn"] = _field(
        "error", "Haystack", "When the haystack already holds the answer.", read="built"
    )
    # grid
    lengths: Spec = _field("1k:16k:8:log", "Grid", "Tokens: a list as 1k,4k or min:max:count[:linear|log].")
    depths: Spec = _field("0:100:11", "Grid", "Percent: a list as 0,50 or min:max:count[:linear|sigmoid].")
    repeats: int = _field(
        1, "Grid", "Draws of each cell: other documents, other values.", ge=1, le=MOST_REPEATS, read="built"
    )
    first_repeat: int = _field(
        0,
        "Grid",
        "Number of the first repeat, to add more to a finished run.",
        ge=0,
        le=MOST_TOKENS,
        read="built",
    )
    sigmoid_ends: Literal["keep", "squash"] = _field(
        "keep", "Grid", "Sigmoid: keep 0 and 100, or squash them too.", read="sigmoid"
    )
    depth_rounding: Literal["none", "round", "truncate"] = _field("none", "Grid", "Depths to whole percents.")
    placement: Literal["sentence", "token", "period"] = _field(
        "sentence", "Grid", "Where a needle may go.", read="placed"
    )
    counts: Literal["prompt", "context"] = _field(
        "prompt", "Grid", "What a length counts: all, or the context alone.", read="built"
    )
    reserve_tokens: int | None = _field(
        None, "Grid", "Taken off each length; the answer's budget if not given.", ge=0, le=MOST_TOKENS
    )
    framing_tokens: int = _field(
        0,
        "Grid",
        "Tokens that the server's chat template adds; they count into the length.",
        ge=LEAST_FRAMING,
        le=100_000,
        read="framing",
    )
    # template
    template: str = _field(
        "auto", "Template", "Its name or a YAML file; auto: by language and kind of model.", read="built"
    )
    question_position: Literal["end", "start"] = _field(
        "end", "Template", "Question after or before the haystack.", read="built"
    )
    guide: bool = _field(
        False, "Template", "Ask the model to think of the relevant part first.", read="built"
    )
    answer_prefix: str = _field(
        "", "Template", "The answer's beginning, given to the model; {task}: the task's own."
    )
    # scoring
    scorer: str = _field("auto", "Scoring", "Its name, see needlemap list scorers; auto: the task's.")
    scorer_options: dict[str, Any] = _field({}, "Scoring", "The scorer's own options, KEY=VALUE.")
    # run
    mode: Literal["exact", "bins", "lattice", "single", "cold"] = _field(
        "exact", "Run", "How prompts share their beginnings; see docs/plan.md."
    )
    bin_tolerance: float | None = _field(
        None,
        "Run",
        "Mode bins: percent of depth either side of a cell's; half a step if not given.",
        gt=0,
        le=50,
        read="bins",
    )
    seed: int = _field(0, "Run", "Fixes documents, order and drawn values.", ge=-(2**63), lt=2**63)
    concurrency: int = _field(4, "Run", "Requests at a time.", ge=1, le=10_000, read="model")
    retries: int = _field(6, "Run", "Further attempts after a passing failure.", ge=0, le=1000)
    timeout_s: float = _field(600.0, "Run", "For one attempt, in seconds.", gt=0, le=MOST_S)
    pause_s: float = _field(0.0, "Run", "Rest after each answer, in seconds.", ge=0, le=MOST_S)
    limit_usd: float | None = _field(None, "Run", "Stop before spending more, in US dollars.", gt=0, le=1e9)
    limit_tokens: Tokens | None = _field(
        None, "Run", "Stop before asking more prompt and answer tokens, as 100k or 2M.", gt=0, le=10**15
    )
    limit_time: Seconds | None = _field(
        None,
        "Run",
        "Stop this start after so long, as 90s or 1h30m; a resume has as long again.",
        gt=0,
        le=MOST_S,
    )
    requests_per_minute: float | None = _field(
        None, "Run", "Send no more, evenly; a server's own limits are learned anyway.", gt=0, le=1e9
    )
    tokens_per_minute: Tokens | None = _field(
        None, "Run", "Send no more prompt and answer tokens, evenly, as 100k.", gt=0, le=10**15
    )
    canary: bool = _field(True, "Run", "Ask one small trial first, and stop if something is wrong.")
    closed_book: bool = _field(
        False, "Run", "Also ask each question without a haystack: what is known anyway proves nothing."
    )
    prices: dict[str, float] = _field(
        {}, "Run", "Own prices, US dollars per million: input=, cached_input=, output=."
    )
    save: bool = _field(True, "Run", "Keep the run folder; off: only the printed map is left.")
    save_contexts: bool = _field(False, "Run", "Also write every context as a text file into the run folder.")
    quiet: bool = _field(False, "Run", "Print the result only.")

    @field_validator("*", mode="before")
    @classmethod
    def _no_yes(cls, value: Any, info: ValidationInfo) -> Any:
        """YAML's yes is no number and no text. Raises ValueError, as pydantic wants it."""
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise ValueError(f"takes no yes or no, got {value!r}")
        return value

    @property
    def backend(self) -> str:
        """The model's back end, what stands before the slash."""
        return self.model.partition("/")[0]

    @property
    def model_name(self) -> str:
        """The model's name, what stands behind the first slash."""
        return self.model.partition("/")[2]

    @property
    def most_tokens(self) -> int:
        """What a model may write in all: thinking and answer."""
        return self.max_answer_tokens + (self.thinking_tokens or 0)

    @property
    def reserve(self) -> int:
        """Tokens taken off each length: the answer's, and the chat template's where it counts."""
        framing = self.framing_tokens if self.counts == "prompt" else 0
        return framing + (self.max_answer_tokens if self.reserve_tokens is None else self.reserve_tokens)


def settings_of(group: str) -> list[str]:
    """The names of a group's settings."""
    return [name for name in Settings.model_fields if _said_of(name, "group") == group]


def reason_of(name: str) -> str | None:
    """The rule in `unread.py` that says where a setting is read; None: always."""
    return _said_of(name, "read")


def _said_of(name: str, what: str) -> str | None:
    extra = Settings.model_fields[name].json_schema_extra
    found = extra[what] if isinstance(extra, dict) else None
    return None if found is None else str(found)
