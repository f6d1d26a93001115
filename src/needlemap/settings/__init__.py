"""Every setting of a run, once: presets, YAML files, flags and Python arguments all use these names.

How they are read and merged is in `reading.py`; the older tools' names for them are in `older_names.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationInfo, field_validator

from needlemap.errors import SettingsError
from needlemap.settings.units import Group, Mark, Percent, Role, Seconds, Tokens

MOST_TOKENS = 100_000_000  # of an answer or a reserve: ten times the longest context that is sold
MOST_REPEATS = 100_000
MOST_S = 10_000_000.0  # of a wait: four months
LEAST_FRAMING = -100  # tokens: a server that trims blanks counts a few less than we do
_CODES = {"en": "english", "zh": "chinese"}
Spec = str | int | float | list[Any] | dict[str, Any]  # [...], {min, max, count, scale}, "min:max:count"


def spelt_out(language: Any) -> Any:
    """A language's whole name, of its code too."""
    return _CODES.get(language, language) if isinstance(language, str) else language


_MODEL, _TASK, _HAYSTACK, _GRID, _TEMPLATE, _SCORING, _RUN = map(
    Group, ("Model", "Task", "Haystack", "Grid", "Template", "Scoring", "Run")
)


class Lender(BaseModel):
    """The run whose prompts are asked: where it was, and what of its model builds prompts."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    run: str
    model: str
    base_url: str | None = None
    model_options: dict[str, Any] = {}
    trust_remote_code: bool = False
    tokenizer: str = "auto"


class Settings(BaseModel):
    """The resolved settings of a run. Field descriptions are the help texts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # model
    model: str = _MODEL.asked(
        "baseline/bm25",
        "Who answers: BACKEND/NAME, as openai/gpt-4o; several: repeat the flag, in YAML a list.",
        "subject",
        "shared",
    )
    label: str = _MODEL.free(
        "", "The model's short name in figures, tables and CSV; by default BACKEND/NAME.", "shared"
    )
    base_url: str | None = _MODEL.asked(
        None,
        "Address of a compatible server, as http://127.0.0.1:8000/v1.",
        "subject",
        "shared",
        read="address",
    )
    model_options: dict[str, Any] = _MODEL.asked(
        {}, "The back end's own options, KEY=VALUE.", "subject", "shared"
    )
    trust_remote_code: bool = _MODEL.asked(
        False,
        "Run the Python code that comes with a model (hf, lmdeploy): only what you trust.",
        "shared",
        read="own code",
    )
    tokenizer: str = _MODEL.built(
        "auto", "Whose tokens lengths count; auto: the model's own; server: ask base_url.", "shared", "opened"
    )
    max_answer_tokens: int = _MODEL.asked(300, "The answer's budget in tokens.", ge=1, le=MOST_TOKENS)
    thinking_tokens: int | None = _MODEL.asked(
        None,
        "A reasoning model's budget before its answer; no part of lengths.",
        "sampled",
        ge=1,
        le=MOST_TOKENS,
        read="model",
    )
    temperature: float | None = _MODEL.asked(
        0.0,
        "Sampling temperature; 'none' leaves the field out.",
        "subject",
        "shared",
        "sampled",
        ge=0,
        le=100,
        read="model",
    )
    request: dict[str, Any] = _MODEL.asked(
        {}, "Any further request field, KEY=VALUE.", "subject", "shared", "sampled", read="model"
    )
    logprobs: bool = _MODEL.free(
        False,
        "Keep each answer token's log-probability and the likeliest other token; asks for no other answer.",
        "shared",
        read="model",
    )
    # task
    task: str = _TASK.asked("single", "What is hidden and asked; see needlemap list tasks.", "opened")
    task_options: dict[str, Any] = _TASK.asked(
        {}, "The task's own options, KEY=VALUE; see docs/tasks.md.", "opened"
    )
    needle: str = _TASK.built(
        "", "The fact to hide; by default a locker code, drawn afresh for each repeat.", read="task"
    )
    needles: list[str] = _TASK.built([], "Several facts (task multi); repeat the flag.", read="task")
    question: str = _TASK.built("", "What is asked.", read="task")
    answer: str | None = _TASK.built(None, "A right answer; the needle itself when not given.", read="task")
    keywords: list[str] = _TASK.built([], "Words that a right answer holds; one a flag.", read="task")
    spread: Literal["chain", "chain-as-coded", "even"] = _TASK.built(
        "chain", "How several needles are spread.", read="several"
    )
    diff: float = _TASK.built(
        10.0, "Chain: percent of depth from one needle to the next.", ge=0, le=100, read="several"
    )
    draw: dict[str, list[str] | str] = _TASK.built(
        {}, "Values for {placeholders}: a list, or low:high.", read="drawn"
    )
    prompts_of: str | Lender = _TASK.built(
        "", "A run's folder: ask exactly its prompts; all but model and scorer is as there.", "opened"
    )
    language: Annotated[Literal["english", "chinese"], BeforeValidator(spelt_out)] = _TASK.built(
        "english", "Of template and generated haystack; en and zh are short for them.", read="language"
    )
    # haystack
    haystack: str = _HAYSTACK.built(
        "generated",
        "Its source: generated, folder, jsonl, txt, hub, a plug-in's; a path says which.",
        read="haystack",
    )
    haystack_path: str | None = _HAYSTACK.built(
        None,
        "Folder of documents (with subfolders), one document, JSON Lines, or a hub name.",
        "opened",
        read="path",
    )
    file_list: list[str] = _HAYSTACK.built(
        [], "Which files of a folder of JSON Lines, in this order.", "opened", read="files"
    )
    order: Literal["listed", "shuffled", "cumulative"] = _HAYSTACK.built(
        "shuffled", "Order of documents by repeat.", read="ordered"
    )
    joined: Literal["paragraphs", "text", "tokens"] = _HAYSTACK.built(
        "paragraphs", "How documents are joined.", "older", read="haystack"
    )
    haystack_repeat: bool = _HAYSTACK.free(
        False, "Repeat a source that is too short, and say so.", read="ending"
    )
    collisions: Literal["error", "warn"] = _HAYSTACK.free(
        "error", "When the haystack already holds the answer.", read="built"
    )
    # grid
    lengths: Spec = _GRID.grid("1k:16k:8:log", "Tokens: a list as 1k,4k or min:max:count[:linear|log].")
    depths: Spec = _GRID.grid("0:100:11", "Percent: a list as 0,50 or min:max:count[:linear|sigmoid].")
    repeats: int = _GRID.free(
        1, "Draws of each cell: other documents, other values.", ge=1, le=MOST_REPEATS, read="repeats"
    )
    first_repeat: int = _GRID.free(
        0, "Number of the first repeat, to add more to a finished run.", ge=0, le=MOST_TOKENS, read="repeats"
    )
    ask_twice: int = _GRID.free(
        0,
        "Ask so many prompts a second time: how much answers differ for no reason (noise floor).",
        ge=0,
        le=MOST_REPEATS,
    )
    sigmoid_ends: Literal["keep", "squash"] = _GRID.grid(
        "keep", "Sigmoid: keep 0 and 100, or squash them too.", "older", read="sigmoid"
    )
    depth_rounding: Literal["none", "round", "truncate"] = _GRID.grid(
        "none", "Depths to whole percents.", "older"
    )
    placement: Literal["sentence", "token", "period"] = _GRID.built(
        "sentence", "Where a needle may go.", "older", read="placed"
    )
    counts: Literal["prompt", "context"] = _GRID.built(
        "prompt", "What a length counts: all, or the context alone.", "older", read="built"
    )
    reserve_tokens: int | None = _GRID.built(
        None, "Taken off each length; the answer's budget if not given.", "older", ge=0, le=MOST_TOKENS
    )
    framing_tokens: int = _GRID.built(
        0,
        "Tokens that the server's chat template adds; they count into the length.",
        ge=LEAST_FRAMING,
        le=100_000,
        read="framing",
    )
    # template
    template: str = _TEMPLATE.built(
        "auto", "Its name or a YAML file; auto: by language and kind of model.", "opened", read="built"
    )
    question_position: Literal["end", "start"] = _TEMPLATE.built(
        "end", "Question after or before the haystack.", read="built"
    )
    guide: bool = _TEMPLATE.built(
        False, "Ask the model to think of the relevant part first.", "older", read="built"
    )
    answer_prefix: str = _TEMPLATE.built(
        "", "The answer's beginning, given to the model; {task}: the task's own."
    )
    # scoring
    scorer: str = _SCORING.scored("auto", "Its name, see needlemap list scorers; auto: the task's.", "opened")
    scorer_options: dict[str, Any] = _SCORING.scored({}, "The scorer's own options, KEY=VALUE.")
    # run
    mode: Literal["exact", "bins", "lattice", "single", "cold"] = _RUN.asked(
        "exact", "How prompts share their beginnings; see docs/plan.md.", "shared"
    )
    bin_tolerance: float | None = _RUN.built(
        None,
        "Mode bins: percent of depth either side of a cell's; half a step if not given.",
        gt=0,
        le=50,
        read="bins",
    )
    seed: int = _RUN.asked(0, "Fixes documents, order and drawn values.", ge=-(2**63), lt=2**63)
    concurrency: int = _RUN.free(4, "Requests at a time.", ge=1, le=10_000, read="model")
    retries: int = _RUN.free(6, "Further attempts after a passing failure.", ge=0, le=1000)
    timeout_s: float = _RUN.free(600.0, "For one attempt, in seconds.", gt=0, le=MOST_S)
    pause_s: float = _RUN.free(0.0, "Rest after each answer, in seconds.", "older", ge=0, le=MOST_S)
    limit_usd: float | None = _RUN.free(
        None, "Stop before spending more, in US dollars.", "shared", gt=0, le=1e9
    )
    limit_tokens: Tokens | None = _RUN.free(
        None, "Stop before asking more prompt and answer tokens, as 100k or 2M.", "shared", gt=0, le=10**15
    )
    limit_time: Seconds | None = _RUN.free(
        None,
        "Stop this start after so long, as 90s or 1h30m; a resume has as long again.",
        "shared",
        gt=0,
        le=MOST_S,
    )
    seek: Percent | None = _RUN.free(
        None, "Ask where it matters for the length up to which the mean is so high, as 85.", gt=1, lt=99.9
    )
    within: Percent = _RUN.free(
        30.0, "With --seek: how narrow, as 30% or 10% either side.", ge=3, le=100, read="seek"
    )
    until: str = _RUN.free("", "Stop when decided: no-worse-than RUN:POINTS, a reference.", "opened")
    requests_per_minute: float | None = _RUN.free(
        None, "Send no more, evenly; a server's own limits are learned anyway.", gt=0, le=1e9
    )
    tokens_per_minute: Tokens | None = _RUN.free(
        None, "Send no more prompt and answer tokens, evenly, as 100k.", gt=0, le=10**15
    )
    canary: bool = _RUN.free(True, "Ask one small trial first, and stop if something is wrong.")
    closed_book: bool = _RUN.free(
        False, "Also ask each question without a haystack: what is known anyway proves nothing."
    )
    prices: dict[str, float] = _RUN.free(
        {}, "Own prices, US dollars per million: input=, cached_input=, output=.", "shared"
    )
    save: bool = _RUN.free(True, "Keep the run folder; off: only the printed map is left.", "shared")
    save_contexts: bool = _RUN.free(
        False, "Also write every context as a text file into the run folder.", "shared", "older"
    )
    quiet: bool = _RUN.free(False, "Print the result only.", "shared")

    @field_validator("*", mode="before")
    @classmethod
    def _no_yes(cls, value: Any, info: ValidationInfo) -> Any:
        """YAML's yes is no number and no text. Raises ValueError, as pydantic wants it."""
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise ValueError(f"takes no yes or no, got {value!r}")
        return value

    @property
    def options(self) -> dict[str, dict[str, Any]]:
        """The settings that are options of something, by name: mappings that are merged key by key."""
        return {name: getattr(self, name) for name in OPTIONS}

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


def lender_of(settings: Settings) -> Settings | None:
    """The settings of the run whose prompts are asked; None for a run with prompts of its own.

    Raises SettingsError where that run was not read.
    """
    if isinstance(settings.prompts_of, Lender):
        lent = {name: value for name, value in settings.prompts_of if name != "run"}
        return settings.model_copy(update={**lent, "prompts_of": ""})
    if settings.prompts_of:
        raise SettingsError("--prompts-of is for one run, no suite and no pilot. Leave it out.")
    return None


def settings_of(group: str) -> tuple[str, ...]:
    """The names of a group's settings."""
    return tuple(name for name in Settings.model_fields if known_of(name)["group"] == group)


def with_role(*roles: Role) -> tuple[str, ...]:
    """The names of the settings that play one of these roles in a trial's key."""
    return tuple(name for name in Settings.model_fields if known_of(name)["role"] in roles)


def marked(mark: Mark) -> tuple[str, ...]:
    """The names of the settings that bear a mark."""
    return tuple(name for name in Settings.model_fields if mark in known_of(name)["marks"])


def read_by(*rules: str) -> tuple[str, ...]:
    """The names of the settings that one of these rules of `unread.py` asks about."""
    return tuple(name for name in Settings.model_fields if known_of(name)["read"] in rules)


def known_of(name: str) -> dict[str, Any]:
    """What is known of a setting: its role, group, read and marks, as `_field` has them."""
    known = Settings.model_fields[name].json_schema_extra
    assert isinstance(known, dict)
    return known


ITEM = read_by("task", "drawn")  # what is hidden, asked and wanted, in the user's own words
OPTIONS = tuple(
    name
    for name, field in Settings.model_fields.items()
    if get_origin(field.annotation) is dict and name not in ITEM
)
