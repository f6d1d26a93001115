"""Every setting of a run, once: presets, YAML files, flags and Python arguments all use these
names.

How they are read and merged is in `reading.py`; the older tools' names for them are in
`older_names.py`.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import Annotated, Any, Literal, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from needlemap.errors import SettingsError
from needlemap.grid import MOST_LENGTH, Depths, Lengths, duration_s, percents, tokens
from needlemap.untrusted import MOST_WHOLE

MOST_REPEATS = 100_000
MOST_SENTENCES = 1_000
MOST_AT_A_TIME = 10_000  # requests, lanes or copies of a model
MOST_S = 10_000_000.0  # of a wait: four months
LEAST_FRAMING = -100  # tokens: a server that trims blanks counts a few less than we do
_CODES = {"en": "english", "zh": "chinese"}
Role = Literal["asked", "built", "scored", "grid", "free"]
Mark = Literal[
    "model_identity",
    "shared",
    "family",
    "per_family",
    "per_model",
    "executes_or_opens",
    "from_other_run",
    "check",
    "ab",
    "sentences",
    "rare",
    "older",
]


@dataclass(frozen=True, slots=True)
class SettingMeta:
    """What is known of a setting where it is defined.

    role, in a trial's key. 'asked': its value is in it. 'built': what it comes to is, texts, places
    and the tokenizer's own. 'scored': so, and `needlemap score` changes it. 'grid' and 'free': it
    is not, and may differ when a run is resumed; the grid says which cells there are.

    marks. 'model_identity': who is asked, which changes no prompt. 'shared': the same for all
    families of a suite. 'family': makes a family what it is, so that no flag changes it in all.
    'per_family': so only where a family says it. 'per_model': one of several models may have its
    own, as it may all of group Model. 'sentences': a list of texts, for
    which a file is typed. 'executes_or_opens': may make this machine open or run
    something. 'from_other_run': comes with the prompts of another run. 'check', 'ab': needlemap
    check and ab take it, ab also what check does. 'rare': `--help` leaves it to
    `--help-all`. 'older': a way of the older tools, which both leave to docs/coming-from.md.
    """

    group: str
    role: Role
    marks: tuple[Mark, ...]


def _known(group: str, role: Role, *marks: Mark) -> SettingMeta:
    """What is known of a setting. group: the name under which `--help` shows it."""
    return SettingMeta(group, role, marks)


_MODEL, _TASK, _HAYSTACK, _GRID, _TEMPLATE, _SCORING, _RUN = (
    partial(_known, group)
    for group in ("Model", "Task", "Haystack", "Grid", "Template", "Scoring", "Run")
)


def spelt_out(language: Any) -> Any:
    """A language's whole name, of its code too."""
    return _CODES.get(language.lower(), language.lower()) if isinstance(language, str) else language


def _read(read: Callable[[object], float], value: Any) -> Any:
    """A text as the number that it stands for. Raises ValueError, as pydantic wants it."""
    try:
        return read(value) if isinstance(value, str) else value
    except SettingsError as error:
        raise ValueError(str(error)) from None


Tokens = Annotated[
    int, BeforeValidator(lambda value: _read(tokens, value))
]  # 2000000, '100k', '2M'
Percent = Annotated[float, BeforeValidator(lambda value: _read(percents, value))]  # 30, '30%'
Seconds = Annotated[
    float, BeforeValidator(lambda value: _read(duration_s, value))
]  # 90, '90s', '1h30m'


def _counted(value: object) -> object:
    """A number that is written as a text, as a number; anything else as it is."""
    whole = isinstance(value, str) and value.strip().lstrip("+-").isdecimal()
    return int(str(value)) if whole else value


def _sentences(value: int | list[str]) -> int | list[str]:
    """How many, or which sentences. Raises ValueError, as pydantic wants it."""
    if isinstance(value, int):
        if not 0 <= value <= MOST_SENTENCES:
            raise ValueError(f"takes 0 to {MOST_SENTENCES:,}, or a file of sentences")
        return value
    for number, each in enumerate(value):
        if not each.strip() or each in value[:number]:
            raise ValueError(f"holds {each!r}, which is empty or stands there twice")
    return value


class PromptSource(BaseModel):
    """The run whose prompts are asked: where it was, and what of its model builds prompts."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    run: str
    model: str
    base_url: str | None = None
    model_options: dict[str, Any] = {}
    trust_remote_code: bool = False
    tokenizer: str = "auto"


class Settings(BaseModel):
    """The resolved settings of a run. Their docstrings are the help texts, which `help_texts`
    reads."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # model
    model: Annotated[str, _MODEL("asked", "model_identity", "shared")] = "baseline/bm25"
    """Who answers: BACKEND/NAME, as openai/gpt-4o; several: repeat the flag, in YAML a list; a
    training's checkpoints: 'hf/run/step-*'."""
    label: Annotated[str, _MODEL("free", "shared", "rare")] = ""
    """The model's short name in figures, tables and CSV; by default BACKEND/NAME."""
    step: Annotated[int | None, _MODEL("free", "shared", "rare"), Field(ge=0, le=MOST_WHOLE)] = None
    """The training step that a checkpoint is of; of --model 'hf/run/step-*' each folder's own."""
    base_url: Annotated[str | None, _MODEL("asked", "model_identity", "shared")] = None
    """Address of a compatible server, as http://127.0.0.1:8000/v1."""
    model_options: Annotated[dict[str, Any], _MODEL("asked", "model_identity", "shared")] = {}
    """The back end's own options, KEY=VALUE."""
    trust_remote_code: Annotated[bool, _MODEL("asked", "shared", "rare")] = False
    """Run the Python code that comes with a model (hf, lmdeploy): only what you trust."""
    tokenizer: Annotated[str, _MODEL("built", "shared", "executes_or_opens", "from_other_run")] = (
        "auto"
    )
    """Whose tokens lengths count; auto: the model's own; server: ask base_url."""
    max_answer_tokens: Annotated[
        int, _MODEL("asked", "from_other_run"), Field(ge=1, le=MOST_LENGTH)
    ] = 300
    """The answer's budget in tokens."""
    thinking_tokens: Annotated[int | None, _MODEL("asked"), Field(ge=1, le=MOST_LENGTH)] = None
    """A reasoning model's budget before its answer; no part of lengths."""
    temperature: Annotated[
        float | None,
        _MODEL("asked", "model_identity", "shared"),
        Field(ge=0, le=100),
    ] = 0.0
    """Sampling temperature; 'none' leaves the field out."""
    request: Annotated[dict[str, Any], _MODEL("asked", "model_identity", "shared", "rare")] = {}
    """Any further request field, KEY=VALUE."""
    logprobs: Annotated[bool, _MODEL("free", "shared", "rare")] = False
    """Keep each answer token's log-probability and the likeliest other token; asks for no other
    answer."""
    stream: Annotated[bool, _MODEL("free", "shared")] = False
    """Have the server send each answer as it is written: for servers that only stream, and proxies
    that cut long silences; records then hold the time to the first token."""
    # task
    task: Annotated[str, _TASK("asked", "executes_or_opens", "family")] = "single"
    """What is hidden and asked; see needlemap list tasks."""
    task_options: Annotated[dict[str, Any], _TASK("asked", "executes_or_opens")] = {}
    """The task's own options, KEY=VALUE; see docs/tasks.md."""
    needle: Annotated[str, _TASK("built", "family", "check")] = ""
    """The fact to hide; by default a locker code, drawn afresh for each repeat."""
    needles: Annotated[list[str], _TASK("built", "family", "rare")] = []
    """Several facts (task multi); repeat the flag."""
    question: Annotated[str, _TASK("built", "family", "check")] = ""
    """What is asked."""
    answer: Annotated[str | None, _TASK("built", "family", "rare")] = None
    """A right answer; the needle itself when not given."""
    keywords: Annotated[list[str], _TASK("built", "family", "check")] = []
    """Words that a right answer holds; one a flag."""
    spread: Annotated[Literal["chain", "chain-as-coded", "even"], _TASK("built", "rare")] = "chain"
    """How several needles are spread."""
    diff: Annotated[float, _TASK("built", "rare"), Field(ge=0, le=100)] = 10.0
    """Chain: percent of depth from one needle to the next."""
    draw: Annotated[dict[str, list[str] | str], _TASK("built", "family", "check", "rare")] = {}
    """Values for {placeholders}: a list, or low:high."""
    distractors: Annotated[
        int | list[str],
        BeforeValidator(lambda value: _counted(value)),
        AfterValidator(lambda value: _sentences(value)),
        _TASK("built", "sentences", "rare"),
    ] = 0
    """Sentences like the needle, hidden too: N drawn from its slots, or a file of one's own."""
    prompts_of: Annotated[str | PromptSource, _TASK("built", "executes_or_opens", "rare")] = ""
    """A run's folder: ask exactly its prompts; all but model and scorer is as there."""
    language: Annotated[
        Literal["english", "chinese"], BeforeValidator(spelt_out), _TASK("built")
    ] = "english"
    """Of template and generated haystack; en and zh are short for them."""
    # haystack
    haystack: Annotated[str, _HAYSTACK("built", "check")] = "generated"
    """Its source: generated, folder, jsonl, txt, hub, a plug-in's; a path says which."""
    haystack_path: Annotated[str | None, _HAYSTACK("built", "executes_or_opens", "check")] = None
    """Folder of documents (with subfolders), one document, JSON Lines, or a hub name."""
    file_list: Annotated[list[str], _HAYSTACK("built", "executes_or_opens", "rare")] = []
    """Which files of a folder of JSON Lines, in this order."""
    order: Annotated[Literal["listed", "shuffled", "cumulative"], _HAYSTACK("built", "rare")] = (
        "shuffled"
    )
    """Order of documents by repeat."""
    shuffle: Annotated[Literal["none", "sentences"], _HAYSTACK("built", "rare")] = "none"
    """Put the sentences of each document in any order: a haystack without a thread."""
    joined: Annotated[Literal["paragraphs", "text", "tokens"], _HAYSTACK("built", "older")] = (
        "paragraphs"
    )
    """How documents are joined."""
    haystack_repeat: Annotated[bool, _HAYSTACK("free", "rare")] = False
    """Repeat a source that is too short, and say so."""
    collisions: Annotated[Literal["error", "warn"], _HAYSTACK("free", "rare")] = "error"
    """When the haystack already holds the answer."""
    # grid
    lengths: Annotated[Lengths, _GRID("grid", "ab")] = Lengths.parse("1k:16k:8:log")
    """Tokens: a list as 1k,4k or min:max:count[:linear|log]."""
    depths: Annotated[Depths, _GRID("grid", "per_family", "ab")] = Depths.parse("0:100:11")
    """Percent: a list as 0,50 or min:max:count[:linear|sigmoid]."""
    repeats: Annotated[int, _GRID("free"), Field(ge=1, le=MOST_REPEATS)] = 1
    """Draws of each cell: other documents, other values."""
    first_repeat: Annotated[int, _GRID("free", "rare"), Field(ge=0, le=MOST_LENGTH)] = 0
    """Number of the first repeat, to add more to a finished run."""
    ask_twice: Annotated[int, _GRID("free", "rare"), Field(ge=0, le=MOST_REPEATS)] = 0
    """Ask so many prompts a second time: how much answers differ for no reason (noise floor)."""
    sigmoid_ends: Annotated[Literal["keep", "squash"], _GRID("grid", "older")] = "keep"
    """Sigmoid: keep 0 and 100, or squash them too."""
    depth_rounding: Annotated[Literal["none", "round", "truncate"], _GRID("grid", "older")] = "none"
    """Depths to whole percents."""
    placement: Annotated[Literal["sentence", "token", "period"], _GRID("built", "older")] = (
        "sentence"
    )
    """Where a needle may go."""
    counts: Annotated[Literal["prompt", "context"], _GRID("built", "older")] = "prompt"
    """What a length counts: all, or the context alone."""
    reserve_tokens: Annotated[int | None, _GRID("built", "older"), Field(ge=0, le=MOST_LENGTH)] = (
        None
    )
    """Taken off each length; the answer's budget if not given."""
    framing_tokens: Annotated[
        int, _GRID("built", "check", "rare"), Field(ge=LEAST_FRAMING, le=100_000)
    ] = 0
    """Tokens that the server's chat template adds; they count into the length."""
    # template
    template: Annotated[str, _TEMPLATE("built", "executes_or_opens", "check", "rare")] = "auto"
    """Its name or a YAML file; auto: by language and kind of model."""
    question_position: Annotated[Literal["end", "start"], _TEMPLATE("built", "rare")] = "end"
    """Question after or before the haystack."""
    guide: Annotated[bool, _TEMPLATE("built", "older")] = False
    """Ask the model to think of the relevant part first."""
    answer_prefix: Annotated[str, _TEMPLATE("built", "rare")] = ""
    """The answer's beginning, given to the model; {task}: the task's own."""
    # scoring
    scorer: Annotated[str, _SCORING("scored", "executes_or_opens")] = "auto"
    """Its name, see needlemap list scorers; auto: the task's."""
    scorer_options: Annotated[dict[str, Any], _SCORING("scored", "rare")] = {}
    """The scorer's own options, KEY=VALUE."""
    # run
    mode: Annotated[
        Literal["exact", "bins", "single", "cold"],
        _RUN("asked", "shared", "from_other_run", "ab", "rare"),
    ] = "exact"
    """How prompts share their beginnings; see docs/plan.md."""
    seed: Annotated[int, _RUN("asked", "from_other_run", "ab"), Field(ge=-(2**63), lt=2**63)] = 0
    """Fixes documents, order and drawn values."""
    concurrency: Annotated[int, _RUN("free", "per_model", "ab"), Field(ge=1, le=MOST_AT_A_TIME)] = 4
    """Requests at a time."""
    retries: Annotated[int, _RUN("free", "per_model", "check", "rare"), Field(ge=0, le=1000)] = 6
    """Further attempts after a passing failure."""
    timeout_s: Annotated[
        float, _RUN("free", "per_model", "check", "rare"), Field(gt=0, le=MOST_S)
    ] = 600.0
    """For one attempt, in seconds."""
    wait: Annotated[Seconds, _RUN("free", "per_model", "check"), Field(ge=0, le=MOST_S)] = 0.0
    """Wait so long for a server that is not there yet, as 5m."""
    pause_s: Annotated[float, _RUN("free", "older"), Field(ge=0, le=MOST_S)] = 0.0
    """Rest after each answer, in seconds."""
    limit_usd: Annotated[float | None, _RUN("free", "shared", "check"), Field(gt=0, le=1e9)] = None
    """Stop before spending more, in US dollars."""
    limit_tokens: Annotated[
        Tokens | None, _RUN("free", "shared", "check"), Field(gt=0, le=10**15)
    ] = None
    """Stop before asking more prompt and answer tokens, as 100k or 2M."""
    limit_time: Annotated[Seconds | None, _RUN("free", "shared", "ab"), Field(gt=0, le=MOST_S)] = (
        None
    )
    """Stop this start after so long, as 90s or 1h30m; a resume has as long again."""
    seek: Annotated[Percent | None, _RUN("free"), Field(gt=1, lt=99.9)] = None
    """Ask where it matters for the length up to which the mean is so high, as 85."""
    within: Annotated[Percent, _RUN("free", "rare"), Field(ge=3, le=100)] = 30.0
    """With --seek: how narrow, as 30% or 10% either side."""
    until: Annotated[str, _RUN("free", "executes_or_opens")] = ""
    """Stop when decided: no-worse-than RUN:POINTS, a reference."""
    scope: Annotated[Literal["these", "new"], _RUN("free", "rare")] = "these"
    """With --until: what the verdict holds for, these prompts or new haystacks too (72 or more)."""
    requests_per_minute: Annotated[
        float | None, _RUN("free", "per_model", "check", "rare"), Field(gt=0, le=1e9)
    ] = None
    """Send no more, evenly; a server's own limits are learned anyway."""
    tokens_per_minute: Annotated[
        Tokens | None, _RUN("free", "per_model", "check", "rare"), Field(gt=0, le=10**15)
    ] = None
    """Send no more prompt and answer tokens, evenly, as 100k."""
    canary: Annotated[bool, _RUN("free", "rare")] = True
    """Ask one small trial first, and stop if something is wrong."""
    closed_book: Annotated[bool, _RUN("free", "rare")] = False
    """Also ask each question without a haystack: what is known anyway proves nothing."""
    prices: Annotated[dict[str, float], _RUN("free", "shared", "per_model", "check", "rare")] = {}
    """Own prices, US dollars per million: input=, cached_input=, output=."""
    save: Annotated[bool, _RUN("free", "shared", "rare")] = True
    """Keep the run folder; off: only the printed map is left."""
    save_contexts: Annotated[bool, _RUN("free", "shared", "older")] = False
    """Also write every context as a text file into the run folder."""
    quiet: Annotated[bool, _RUN("free", "shared", "check")] = False
    """Print the result only."""

    @field_validator("*", mode="before")
    @classmethod
    def _no_yes(cls, value: Any, info: ValidationInfo) -> Any:
        """YAML's yes is no number and no text. Raises ValueError, as pydantic wants it."""
        if (
            isinstance(value, bool)
            and cls.model_fields[str(info.field_name)].annotation is not bool
        ):
            raise ValueError(f"takes no yes or no, got {value!r}")
        return value

    @property
    def options(self) -> dict[str, dict[str, Any]]:
        """The settings that are options of something, by name: mappings that are merged key by
        key."""
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
        return framing + (
            self.max_answer_tokens if self.reserve_tokens is None else self.reserve_tokens
        )


@cache
def help_texts() -> dict[str, str]:
    """Return what each setting is, by name: the docstring below its field.

    They are read from the source once they are wanted. Pydantic's own way
    (`use_attribute_docstrings`) does so whenever the class is made, line by line: a fifth of the
    time that importing settings takes.
    """
    module = ast.parse(inspect.getsource(sys.modules[__name__]))
    (body,) = (
        node.body
        for node in module.body
        if isinstance(node, ast.ClassDef) and node.name == Settings.__name__
    )
    texts = {}
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            texts[ast.unparse(field.target)] = inspect.cleandoc(ast.literal_eval(text.value))
    return texts


def prompt_source_of(settings: Settings) -> Settings | None:
    """The settings of the run whose prompts are asked; None for a run with prompts of its own.

    Raises SettingsError where that run was not read.
    """
    if isinstance(settings.prompts_of, PromptSource):
        lent = {name: value for name, value in settings.prompts_of if name != "run"}
        return settings.model_copy(update={**lent, "prompts_of": ""})
    if settings.prompts_of:
        raise SettingsError("--prompts-of is for one run, no suite. Leave it out.")
    return None


def _known_of(name: str) -> SettingMeta:
    """What is known of a setting. Raises TypeError where nothing is: nobody could tell when keys
    change."""
    for each in Settings.model_fields[name].metadata:
        if isinstance(each, SettingMeta):
            return each
    raise TypeError(
        f"Setting '{name}' has no role: define it as Annotated[..., _RUN('free')] or alike."
    )


KNOWN = {name: _known_of(name) for name in Settings.model_fields}


def settings_of(*groups: str) -> tuple[str, ...]:
    """The names of some groups' settings."""
    return tuple(name for name, known in KNOWN.items() if known.group in groups)


def with_role(*roles: Role) -> tuple[str, ...]:
    """The names of the settings that play one of these roles in a trial's key."""
    return tuple(name for name, known in KNOWN.items() if known.role in roles)


def marked(*marks: Mark) -> tuple[str, ...]:
    """The names of the settings that bear one of these marks."""
    return tuple(
        name for name, known in KNOWN.items() if any(mark in marks for mark in known.marks)
    )


# What is hidden, asked and wanted, in the user's own words.
ITEM = ("needle", "needles", "question", "answer", "keywords", "draw")
LATER = ("stream",)  # than the format of run.json


def written(settings: Settings) -> dict[str, Any]:
    """The settings as run.json has them. Later ones that are as by default are left out, so that
    the file of a run without them stays as it was."""
    usual = {
        name for name in LATER if getattr(settings, name) == Settings.model_fields[name].default
    }
    return settings.model_dump(mode="json", exclude=usual)


DEFAULTS = Settings().model_dump(mode="json")  # as run.json has them


OPTIONS = tuple(
    name
    for name, field in Settings.model_fields.items()
    if get_origin(field.annotation) is dict and name not in ITEM
)
