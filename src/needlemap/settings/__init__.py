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
    check and ab take it, ab also what check does. 'older': a way of the older tools, which help
    leaves to `needlemap help from-opencompass`.

    metavar. What the flag takes, as help shows it: URL, TOKENS, DURATION; '' for what its type
    comes to.
    """

    group: str
    role: Role
    marks: tuple[Mark, ...]
    metavar: str = ""


def _known(group: str, role: Role, *marks: Mark, metavar: str = "") -> SettingMeta:
    """What is known of a setting. group: the name under which `--help` shows it. metavar: what its
    flag takes, in one word; by default what its type comes to."""
    return SettingMeta(group, role, marks, metavar)


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
    model: Annotated[str, _MODEL("asked", "model_identity", "shared", metavar="BACKEND/NAME")] = (
        "baseline/bm25"
    )
    """The model, e.g. openai/gpt-4o. For several repeat the flag, or write a list in YAML; for the
    checkpoints of a training: 'hf/run/step-*'."""
    label: Annotated[str, _MODEL("free", "shared")] = ""
    """Short name of the model in figures and tables. By default BACKEND/NAME."""
    step: Annotated[int | None, _MODEL("free", "shared"), Field(ge=0, le=MOST_WHOLE)] = None
    """Training step of a checkpoint. With 'hf/run/step-*' it is read from each folder's name."""
    base_url: Annotated[str | None, _MODEL("asked", "model_identity", "shared", metavar="URL")] = (
        None
    )
    """Address of the server, e.g. http://127.0.0.1:8000/v1."""
    model_options: Annotated[dict[str, Any], _MODEL("asked", "model_identity", "shared")] = {}
    """Options of the back end (needlemap help options)."""
    trust_remote_code: Annotated[bool, _MODEL("asked", "shared")] = False
    """Run Python code that comes with a model (hf, lmdeploy). Only for models that you trust."""
    tokenizer: Annotated[
        str, _MODEL("built", "shared", "executes_or_opens", "from_other_run", metavar="NAME")
    ] = "auto"
    """Tokenizer for lengths, e.g. qwen3. auto: the model's."""
    max_answer_tokens: Annotated[
        int, _MODEL("asked", "from_other_run", metavar="TOKENS"), Field(ge=1, le=MOST_LENGTH)
    ] = 300
    """Most tokens of an answer."""
    thinking_tokens: Annotated[
        int | None, _MODEL("asked", metavar="TOKENS"), Field(ge=1, le=MOST_LENGTH)
    ] = None
    """Most tokens of a reasoning model's thoughts. They do not count into the length."""
    temperature: Annotated[
        float | None,
        _MODEL("asked", "model_identity", "shared", metavar="NUMBER|none"),
        Field(ge=0, le=100),
    ] = 0.0
    """Sampling temperature. none: send none."""
    request: Annotated[dict[str, Any], _MODEL("asked", "model_identity", "shared")] = {}
    """Any other field of the request."""
    logprobs: Annotated[bool, _MODEL("free", "shared")] = False
    """Keep the log-probability of each answer token and of the likeliest other token. It does not
    change the answer."""
    stream: Annotated[bool, _MODEL("free", "shared")] = False
    """Stream answers: for servers that only stream, and proxies that cut long silences. Records the
    time to the first token."""
    # task
    task: Annotated[str, _TASK("asked", "executes_or_opens", "family", metavar="NAME")] = "single"
    """What is hidden (needlemap list tasks)."""
    task_options: Annotated[dict[str, Any], _TASK("asked", "executes_or_opens")] = {}
    """Options of the task (needlemap help options)."""
    needle: Annotated[str, _TASK("built", "family", "check")] = ""
    """Fact to hide. By default a random locker code."""
    needles: Annotated[list[str], _TASK("built", "family")] = []
    """Several facts to hide, for task multi (repeatable)."""
    question: Annotated[str, _TASK("built", "family", "check")] = ""
    """Question to ask."""
    answer: Annotated[str | None, _TASK("built", "family")] = None
    """A correct answer. By default the needle itself."""
    keywords: Annotated[list[str], _TASK("built", "family", "check")] = []
    """Text that a correct answer contains (repeatable)."""
    spread: Annotated[Literal["chain", "chain-as-coded", "even"], _TASK("built")] = "chain"
    """How several needles are spread over the haystack."""
    diff: Annotated[float, _TASK("built", metavar="PERCENT"), Field(ge=0, le=100)] = 10.0
    """With --spread chain: depth from one needle to the next."""
    draw: Annotated[
        dict[str, list[str] | str], _TASK("built", "family", "check", metavar="KEY=VALUES")
    ] = {}
    """Values for {placeholders}: a list, or low:high."""
    distractors: Annotated[
        int | list[str],
        BeforeValidator(lambda value: _counted(value)),
        AfterValidator(lambda value: _sentences(value)),
        _TASK("built", "sentences", metavar="N|FILE"),
    ] = 0
    """Sentences like the needle, hidden too: N drawn from its slots, or a file of your own."""
    prompts_of: Annotated[
        str | PromptSource, _TASK("built", "executes_or_opens", metavar="RUN")
    ] = ""
    """Send exactly the prompts of this run. Only the model and the scorer may differ from it."""
    language: Annotated[
        Literal["english", "chinese"], BeforeValidator(spelt_out), _TASK("built")
    ] = "english"
    """Language of the template and the generated haystack. en and zh are accepted too."""
    # haystack
    haystack: Annotated[str, _HAYSTACK("built", "check", metavar="NAME")] = "generated"
    """Kind of haystack: generated, folder, jsonl, txt, hub, or a plug-in's. --haystack-path chooses
    it."""
    haystack_path: Annotated[
        str | None, _HAYSTACK("built", "executes_or_opens", "check", metavar="PATH")
    ] = None
    """Your own text: folder, document, JSON Lines, hub name."""
    file_list: Annotated[list[str], _HAYSTACK("built", "executes_or_opens", metavar="FILE")] = []
    """Files to use of a folder of JSON Lines, in this order (repeatable)."""
    order: Annotated[Literal["listed", "shuffled", "cumulative"], _HAYSTACK("built")] = "shuffled"
    """Order of the documents in each repeat."""
    shuffle: Annotated[Literal["none", "sentences"], _HAYSTACK("built")] = "none"
    """Shuffle the sentences of each document, so that the haystack has no thread."""
    joined: Annotated[Literal["paragraphs", "text", "tokens"], _HAYSTACK("built", "older")] = (
        "paragraphs"
    )
    """How documents are joined."""
    haystack_repeat: Annotated[bool, _HAYSTACK("free")] = False
    """Repeat a haystack that is too short, and report it."""
    collisions: Annotated[Literal["error", "warn"], _HAYSTACK("free")] = "error"
    """What to do if the haystack already holds the answer."""
    # grid
    lengths: Annotated[Lengths, _GRID("grid", "ab")] = Lengths.parse("1k:16k:8:log")
    """Lengths, e.g. 1k,4k or 1k:128k:8."""
    depths: Annotated[Depths, _GRID("grid", "per_family", "ab")] = Depths.parse("0:100:11")
    """Depths, e.g. 0,50 or 0:100:5."""
    repeats: Annotated[int, _GRID("free"), Field(ge=1, le=MOST_REPEATS)] = 1
    """Prompts per cell, with other documents."""
    first_repeat: Annotated[int, _GRID("free"), Field(ge=0, le=MOST_LENGTH)] = 0
    """Number of the first repeat, to add more to a finished run."""
    ask_twice: Annotated[int, _GRID("free"), Field(ge=0, le=MOST_REPEATS)] = 0
    """Send N prompts a second time, to see how much answers vary for no reason (noise floor)."""
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
    reserve_tokens: Annotated[
        int | None, _GRID("built", "older", metavar="TOKENS"), Field(ge=0, le=MOST_LENGTH)
    ] = None
    """Tokens taken off each length. By default the answer's budget."""
    framing_tokens: Annotated[
        int, _GRID("built", "check", metavar="TOKENS"), Field(ge=LEAST_FRAMING, le=100_000)
    ] = 0
    """Tokens that the server's chat template adds. They count as part of the length."""
    # template
    template: Annotated[
        str, _TEMPLATE("built", "executes_or_opens", "check", metavar="NAME|FILE")
    ] = "auto"
    """Prompt template: a name or a YAML file. auto: by language and kind of model."""
    question_position: Annotated[Literal["end", "start"], _TEMPLATE("built")] = "end"
    """Put the question after or before the haystack."""
    guide: Annotated[bool, _TEMPLATE("built", "older")] = False
    """Ask the model to think of the relevant part first."""
    answer_prefix: Annotated[str, _TEMPLATE("built")] = ""
    """Start of the answer, given to the model. {task}: the task's own."""
    # scoring
    scorer: Annotated[str, _SCORING("scored", "executes_or_opens", metavar="NAME")] = "auto"
    """Scoring rule (needlemap list scorers). auto: by task."""
    scorer_options: Annotated[dict[str, Any], _SCORING("scored")] = {}
    """Options of the scorer (needlemap help options)."""
    # run
    mode: Annotated[
        Literal["exact", "bins", "single", "cold"],
        _RUN("asked", "shared", "from_other_run", "ab"),
    ] = "exact"
    """How prompts share prefixes, for prompt caches (needlemap help plan)."""
    seed: Annotated[int, _RUN("asked", "from_other_run", "ab"), Field(ge=-(2**63), lt=2**63)] = 0
    """Seed of documents, order and drawn values."""
    concurrency: Annotated[int, _RUN("free", "per_model", "ab"), Field(ge=1, le=MOST_AT_A_TIME)] = 4
    """Requests at a time."""
    retries: Annotated[int, _RUN("free", "per_model", "check"), Field(ge=0, le=1000)] = 6
    """Further attempts after a temporary failure."""
    timeout_s: Annotated[
        float, _RUN("free", "per_model", "check", metavar="SECONDS"), Field(gt=0, le=MOST_S)
    ] = 600.0
    """Time limit of one attempt."""
    wait: Annotated[
        Seconds, _RUN("free", "per_model", "check", metavar="DURATION"), Field(ge=0, le=MOST_S)
    ] = 0.0
    """Wait up to this long for the server, e.g. 5m."""
    pause_s: Annotated[float, _RUN("free", "older", metavar="SECONDS"), Field(ge=0, le=MOST_S)] = (
        0.0
    )
    """Pause after each answer."""
    limit_usd: Annotated[
        float | None, _RUN("free", "shared", "check", metavar="USD"), Field(gt=0, le=1e9)
    ] = None
    """Stop before spending more than this."""
    limit_tokens: Annotated[
        Tokens | None, _RUN("free", "shared", "check", metavar="TOKENS"), Field(gt=0, le=10**15)
    ] = None
    """Stop before more tokens than this, e.g. 100k or 2M."""
    limit_time: Annotated[
        Seconds | None, _RUN("free", "shared", "ab", metavar="DURATION"), Field(gt=0, le=MOST_S)
    ] = None
    """Stop after this long, e.g. 1h30m, at every start."""
    seek: Annotated[Percent | None, _RUN("free", metavar="PERCENT"), Field(gt=1, lt=99.9)] = None
    """Find the longest length with this mean, e.g. 85."""
    within: Annotated[Percent, _RUN("free", metavar="PERCENT"), Field(ge=3, le=100)] = 30.0
    """With --seek: how narrow, e.g. 30% or 10% either side."""
    until: Annotated[str, _RUN("free", "executes_or_opens", metavar="RULE")] = ""
    """no-worse-than RUN:POINTS: stop once that is decided."""
    scope: Annotated[Literal["these", "new"], _RUN("free")] = "these"
    """With --until: the verdict is about these prompts, or new haystacks too (72 or more)."""
    requests_per_minute: Annotated[
        float | None, _RUN("free", "per_model", "check", metavar="N"), Field(gt=0, le=1e9)
    ] = None
    """Most requests a minute, evenly spread. A server's own limits are learned anyway."""
    tokens_per_minute: Annotated[
        Tokens | None, _RUN("free", "per_model", "check", metavar="TOKENS"), Field(gt=0, le=10**15)
    ] = None
    """Most prompt and answer tokens a minute, evenly spread, e.g. 100k."""
    canary: Annotated[bool, _RUN("free")] = True
    """Send one small prompt first, and stop if something is wrong."""
    closed_book: Annotated[bool, _RUN("free")] = False
    """Also ask each question without a haystack, to see what the model knows anyway."""
    prices: Annotated[
        dict[str, float], _RUN("free", "shared", "per_model", "check", metavar="KEY=USD")
    ] = {}
    """Your prices in US dollars per million tokens: input=, cached_input=, output=."""
    save: Annotated[bool, _RUN("free", "shared")] = True
    """Keep the run folder. --no-save: only print the map."""
    save_contexts: Annotated[bool, _RUN("free", "shared", "older")] = False
    """Also write every context as a text file into the run folder."""
    quiet: Annotated[bool, _RUN("free", "shared", "check")] = False
    """Print only the result."""

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
