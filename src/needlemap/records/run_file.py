"""Read run.json: the prompts of a run, and what it was made with.

docs/schema/run.json publishes its shape. No other module reads its content by name; each takes a
part of it from `RunFile`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from needlemap.extras import NEWER
from needlemap.files import RUN_FILE
from needlemap.grid import MOST_TOKENS, MOST_TRIALS, Depths, Lengths
from needlemap.records.document import DocumentKind
from needlemap.scorers import FIRST_RULE
from needlemap.text import printable
from needlemap.untrusted import MOST_WHOLE
from needlemap.version import SCHEMA

# Lengths x depths x repeats: a map is an array of them.
_MOST_PLACES = 10_000_000
_NUMBERS = ("seek", "within", "step")
RunKind = Literal["run", "suite", "check", "ab", "storm"]


class RunSettings(BaseModel):
    """The settings that reports read; all others may have any value."""

    model: str
    task: str
    mode: str
    label: str = ""
    step: Annotated[int, Field(ge=0, le=MOST_WHOLE)] | None = None
    order: str = ""
    seed: Any = 0
    haystack_path: Any = None
    lengths: Lengths | None = None
    depths: Depths | None = None
    seek: Annotated[float, Field(ge=0, le=100)] | None = None
    within: Annotated[float, Field(ge=0, le=100)] = 0.0
    until: str = ""
    scope: Literal["these", "new"] = "these"


def _check_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings, or raise ValueError for pydantic if reports cannot read them."""
    try:
        RunSettings.model_validate(settings, strict=True)
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        missing = "missing, or " if RunSettings.model_fields[name].is_required() else ""
        kind = "number" if name in _NUMBERS else "text"
        raise ValueError(f"'{name}' is {missing}no {kind}") from None
    return settings


class RunTokenizer(BaseModel):
    """Whose tokens lengths count, and a hash of its vocabulary."""

    name: str
    fingerprint: str


class RuledScorer(BaseModel):
    """A scorer with its options as resolved, and the number of its rule."""

    model_config = ConfigDict(frozen=True)
    name: str
    options: dict[str, Any]
    rule: int = FIRST_RULE

    def is_same(self, other: RuledScorer) -> bool:
        """Return True if another is this scorer, with the same options and by the same rule."""
        return (self.name, self.rule, self.options) == (other.name, other.rule, other.options)

    def is_by_another_rule(self, other: RuledScorer) -> bool:
        """Return True if another is this scorer by another rule.

        Options that only one of them has are no difference: they came with a rule.

        >>> ours = RuledScorer(name="exact", options={})
        >>> ours.is_by_another_rule(RuledScorer(name="exact", options={"new": True}, rule=2))
        True
        """
        if self.name != other.name or self.rule == other.rule:
            return False
        common_names = self.options.keys() & other.options.keys()
        return all(self.options[name] == other.options[name] for name in common_names)


class RunHaystack(BaseModel):
    """One repeat's text."""

    name: str
    sha256: str


class ImportedFile(BaseModel):
    """A file of another tool, and the tool."""

    model_config = ConfigDict(extra="allow")
    tool: str = ""
    name: str = ""
    sha256: str = ""


class ImportedFrom(BaseModel):
    """Where a run's results were imported from."""

    model_config = ConfigDict(extra="allow")
    files: list[ImportedFile] = []
    scale: list[float] = []
    series: str = ""


_Length = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
_Depth = Annotated[float, Field(ge=0, le=1)]
_Repeat = Annotated[int, Field(ge=0, le=MOST_WHOLE)]
RunCell = tuple[_Length, _Depth, list[_Repeat]]
RunPlace = tuple[_Length, _Depth, _Repeat]


def _check_kind(kind: str) -> str:
    """Return a kind, or raise ValueError for pydantic if this version does not read it."""
    if kind not in get_args(RunKind):
        raise ValueError(
            f"this version reads {', '.join(get_args(RunKind))}, not '{kind}'. {NEWER}"
        )
    return kind


def _check_cells(cells: list[RunCell]) -> list[RunCell]:
    """Return cells, or raise ValueError for pydantic if they are more than any run has."""
    lengths = len({length for length, _, _ in cells})
    depths = len({depth for _, depth, _ in cells})
    repeats = len({repeat for _, _, numbers in cells for repeat in numbers})
    trials = sum(len(numbers) for _, _, numbers in cells)
    if lengths * depths * repeats > _MOST_PLACES or trials > MOST_TRIALS:
        raise ValueError(
            f"{lengths} lengths x {depths} depths x {repeats} repeats are more than any run has"
        )
    return cells


def _check_shared(shared: dict[str, list[RunPlace]]) -> dict[str, list[RunPlace]]:
    """Return shared places, or raise ValueError for pydantic if they are more than trials."""
    if sum(map(len, shared.values())) > MOST_TRIALS:
        raise ValueError("more places than any run has")
    return shared


class RunFile(BaseModel):
    """run.json: what a run asks, and what it was made with."""

    model_config = ConfigDict(extra="allow", frozen=True)
    schema_version: int = Field(
        default=SCHEMA, alias="schema", description="version of this schema"
    )
    kind: Annotated[str | None, AfterValidator(_check_kind)] = Field(
        default=None,
        description="what asked it: run, suite, check, ab or storm",
    )
    needlemap: str = Field(default="", description="version that wrote it last")
    created: str = Field(default="", description="UTC time")
    imported: ImportedFrom | None = Field(
        default=None, description="where another tool's results were imported from"
    )
    title: str | None = Field(
        default=None, description="of its figure, where another tool writes one"
    )
    python: str = ""
    packages: dict[str, str] = Field(
        default={}, description="versions of what may change prompts and requests"
    )
    identity: str = Field(
        default="", description="hash of what makes this run what it is; its records hold it too"
    )
    settings: Annotated[dict[str, Any], AfterValidator(_check_settings)] = Field(
        description="the resolved settings: see Settings below"
    )
    tokenizer: RunTokenizer
    scorer: RuledScorer
    haystacks: list[RunHaystack] = []
    cells: Annotated[list[RunCell], AfterValidator(_check_cells)] = Field(
        description="length in tokens, depth as a share, repeats"
    )
    shared: Annotated[dict[str, list[RunPlace]], AfterValidator(_check_shared)] = Field(
        default={},
        description="by a trial's `asked` all that it stands for: length in tokens, depth, repeat",
    )
    notes: list[str] = Field(
        default=[], description="notes printed before asking: documents that were read, or not"
    )
    depthless: bool = Field(
        default=False, description="whether the task asks about the whole text: no depth counts"
    )
    model_notes: list[str] = Field(
        default=[], description="the model's own notes: how its prompts are computed"
    )
    earlier_scorers: list[RuledScorer] = Field(
        default=[], description="whose scores count no more (needlemap score)"
    )
    signed: str = Field(default="", description="signature of the settings by who began the run")
    stopped: str = Field(default="", description="the limit that ended the last start, in words")

    @property
    def named(self) -> RunSettings:
        """Return the settings that reports read."""
        return RunSettings.model_validate(self.settings)

    @property
    def model_label(self) -> str:
        """Return the label of the run's model in reports or, without a label, BACKEND/NAME."""
        settings = self.named
        # In a run.json that somebody sent it may be any text.
        return printable(settings.label or settings.model, line=True)

    @property
    def one_haystack(self) -> bool:
        """Return True if all repeats have the same haystack: documents as they are listed."""
        return self.named.order == "listed"

    def with_settings(self, changed: Mapping[str, Any]) -> RunFile:
        """Return a copy with some settings changed."""
        return self.model_copy(update={"settings": {**self.settings, **changed}})

    def document(self) -> dict[str, Any]:
        """Return its content as JSON: the fields that were read or set."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


RUN = DocumentKind(RUN_FILE, "run", RunFile, SCHEMA, version_field="schema", any_numbers=True)
