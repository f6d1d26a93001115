"""Define every setting of a run once, for presets, YAML files, flags and Python arguments.

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
# Requests, lanes or copies of a model.
MOST_AT_A_TIME = 10_000
# Seconds of a wait: four months.
MOST_S = 10_000_000.0
# Tokens. A server that trims blanks counts a few less than we do.
LEAST_FRAMING = -100
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
    "older",
]


@dataclass(frozen=True, slots=True)
class SettingMeta:
    """The properties of a setting, which stand where it is defined.

    Attributes:
        group: The name under which `--help` shows it.
        role: Its role in a trial's key. 'asked': the key holds its value. 'built': the key holds
            what it decides, that is texts, places and the tokenizer's own. 'scored': the same, and
            `needlemap score` changes it. 'grid' and 'free': the key does not hold it, so it may
            differ when a run is resumed. Settings of the grid decide which cells there are.
        marks: 'model_identity': it chooses the model and changes no prompt. 'shared': it is the
            same for all families of a suite. 'family': it makes a family what it is, so no flag
            changes it in all families. 'per_family': the same, but only if a family sets it.
            'per_model': one of several models may have its own, as with all of group Model.
            'executes_or_opens': it may make this machine open or run something.
            'from_other_run': it comes with the prompts of another run. 'check', 'ab': needlemap
            check or ab takes it; ab takes what check takes. 'older': a way of the older tools,
            which help leaves to `needlemap help from-opencompass`.
        metavar: What the flag takes, as help shows it: URL, TOKENS, DURATION. '' if it follows from
            the setting's type.
    """

    group: str
    role: Role
    marks: tuple[Mark, ...]
    metavar: str = ""


def _meta(group: str, role: Role, *marks: Mark, metavar: str = "") -> SettingMeta:
    """Return the properties of a setting. The parameters are those of `SettingMeta`."""
    return SettingMeta(group, role, marks, metavar)


_MODEL, _TASK, _HAYSTACK, _GRID, _TEMPLATE, _SCORING, _RUN = (
    partial(_meta, group)
    for group in ("Model", "Task", "Haystack", "Grid", "Template", "Scoring", "Run")
)


def language_name(language: Any) -> Any:
    """Return the name of a language, given by its name or its code. Other values stay."""
    if not isinstance(language, str):
        return language
    return _CODES.get(language.lower(), language.lower())


def _parse_number(parse: Callable[[object], float], value: Any) -> Any:
    """Return the number that a text stands for. Other values stay.

    Raises ValueError, which pydantic takes for a wrong value, if it stands for none.
    """
    try:
        return parse(value) if isinstance(value, str) else value
    except SettingsError as error:
        raise ValueError(str(error)) from None


# 2000000, '100k', '2M'.
Tokens = Annotated[int, BeforeValidator(lambda value: _parse_number(tokens, value))]
# 30, '30%'.
Percent = Annotated[float, BeforeValidator(lambda value: _parse_number(percents, value))]
# 90, '90s', '1h30m'.
Seconds = Annotated[float, BeforeValidator(lambda value: _parse_number(duration_s, value))]


def is_count(text: str) -> bool:
    """Return True if a text is written as a whole number, which no file is then called."""
    return text.strip().lstrip("+-").isdecimal()


def _parse_count(value: object) -> object:
    """Return the whole number that a text stands for. Other values stay."""
    return int(value) if isinstance(value, str) and is_count(value) else value


def _check_sentences(value: int | list[str]) -> int | list[str]:
    """Return a number of sentences, or the sentences.

    Raises ValueError, which pydantic takes for a wrong value, if there are too many, or if a
    sentence is empty or repeated.
    """
    if isinstance(value, int):
        if not 0 <= value <= MOST_SENTENCES:
            raise ValueError(f"takes 0 to {MOST_SENTENCES:,}, or a file of sentences")
        return value

    for number, sentence in enumerate(value):
        if not sentence.strip() or sentence in value[:number]:
            raise ValueError(f"holds {sentence!r}, which is empty or stands there twice")
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
    """The resolved settings of a run.

    The docstrings of its fields are the help texts, which `help_texts` reads.
    """

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
        BeforeValidator(lambda value: _parse_count(value)),
        AfterValidator(lambda value: _check_sentences(value)),
        _TASK("built", metavar="N|FILE"),
    ] = 0
    """Sentences like the needle, hidden too: N drawn from its slots, or a file of your own."""
    prompts_of: Annotated[
        str | PromptSource, _TASK("built", "executes_or_opens", metavar="RUN")
    ] = ""
    """Send exactly the prompts of this run. Only the model and the scorer may differ from it."""
    language: Annotated[
        Literal["english", "chinese"], BeforeValidator(language_name), _TASK("built")
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
    def _refuse_yes(cls, value: Any, info: ValidationInfo) -> Any:
        """Return a value, unless it is YAML's yes or no for a setting that is not a switch.

        Raises ValueError, which pydantic takes for a wrong value. Without it, yes would be 1.
        """
        is_switch = cls.model_fields[str(info.field_name)].annotation is bool
        if isinstance(value, bool) and not is_switch:
            raise ValueError(f"takes no yes or no, got {value!r}")
        return value

    @property
    def options(self) -> dict[str, dict[str, Any]]:
        """Return the settings that are mappings of options, by name. They are merged key by key."""
        return {name: getattr(self, name) for name in OPTIONS}

    @property
    def backend(self) -> str:
        """Return the model's back end, which stands before the slash."""
        return self.model.partition("/")[0]

    @property
    def model_name(self) -> str:
        """Return the model's name, which stands behind the first slash."""
        return self.model.partition("/")[2]

    @property
    def most_tokens(self) -> int:
        """Return how many tokens a model may write, for thinking and answer together."""
        return self.max_answer_tokens + (self.thinking_tokens or 0)

    @property
    def reserve(self) -> int:
        """Return the tokens that are taken off each length.

        They are those of the answer, and those of the chat template if a length counts the prompt.
        """
        reserve = self.max_answer_tokens if self.reserve_tokens is None else self.reserve_tokens
        if self.counts == "prompt":
            reserve += self.framing_tokens
        return reserve


@cache
def help_texts() -> dict[str, str]:
    """Return the help text of each setting by name: the docstring below its field.

    The texts are read from the source when they are first needed. Pydantic's own way
    (`use_attribute_docstrings`) reads them whenever the class is made, line by line, which is a
    fifth of the time that importing settings takes.
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
    """Return the settings with which another run built the prompts that this run sends.

    If the run builds its own prompts, the result is None. Raises SettingsError if the other run was
    not read.
    """
    if isinstance(settings.prompts_of, PromptSource):
        source = {name: value for name, value in settings.prompts_of if name != "run"}
        return settings.model_copy(update={**source, "prompts_of": ""})
    if settings.prompts_of:
        raise SettingsError("--prompts-of is for one run, no suite. Leave it out.")
    return None


def _meta_of(name: str) -> SettingMeta:
    """Return the properties of a setting.

    Raises TypeError if it has none: nobody would know whether it changes a trial's key.
    """
    for meta in Settings.model_fields[name].metadata:
        if isinstance(meta, SettingMeta):
            return meta
    raise TypeError(
        f"Setting '{name}' has no role: define it as Annotated[..., _RUN('free')] or alike."
    )


KNOWN = {name: _meta_of(name) for name in Settings.model_fields}


def settings_of(*groups: str) -> tuple[str, ...]:
    """Return the names of the settings of some groups."""
    return tuple(name for name, known in KNOWN.items() if known.group in groups)


def with_role(*roles: Role) -> tuple[str, ...]:
    """Return the names of the settings with one of some roles in a trial's key."""
    return tuple(name for name, known in KNOWN.items() if known.role in roles)


def marked(*marks: Mark) -> tuple[str, ...]:
    """Return the names of the settings with one of some marks."""
    return tuple(
        name for name, known in KNOWN.items() if any(mark in marks for mark in known.marks)
    )


# What is hidden, asked and wanted, in the user's own words.
ITEM = ("needle", "needles", "question", "answer", "keywords", "draw")
# Settings that are newer than the format of run.json.
LATER = ("stream",)


def run_file_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings as run.json has them.

    Newer settings with their default values are left out, so that the file of a run that does not
    use them stays the same.
    """
    unused = {
        name for name in LATER if getattr(settings, name) == Settings.model_fields[name].default
    }
    return settings.model_dump(mode="json", exclude=unused)


# As run.json has them.
DEFAULTS = Settings().model_dump(mode="json")


OPTIONS = tuple(
    name
    for name, field in Settings.model_fields.items()
    if get_origin(field.annotation) is dict and name not in ITEM
)
