"""run.json's shape, as docs/schema/run.json publishes it: what a run asks, and what it was made with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from needlemap.records.record import MOST, MOST_TOKENS, SCHEMA
from needlemap.scorers.base import FIRST_RULE
from needlemap.settings.grid import MOST_TRIALS
from needlemap.settings.registry import current_name

_MOST_PLACES = 10_000_000  # lengths x depths x repeats
_NAMED = ("model", "task", "mode")  # settings that every report shows


def _named(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings that name model, task and mode. Raises ValueError, as pydantic wants it."""
    for name in _NAMED:
        if not isinstance(settings.get(name), str):
            raise ValueError(f"'{name}' is missing, or no text")
    if not isinstance(settings.get("label", ""), str):
        raise ValueError("'label' is no text")
    return settings


class Tokenizer(BaseModel):
    """Whose tokens lengths count, and a hash of its vocabulary."""

    name: str
    fingerprint: str


class Scorer(BaseModel):
    """A scorer with its options as resolved, and the number of its rule."""

    name: str
    options: dict[str, Any]
    rule: int = FIRST_RULE


def ruled(scorer: Mapping[str, Any]) -> dict[str, Any]:
    """A scorer as run.json holds it: by its name of today, and with the number of its rule also where an
    earlier version wrote none."""
    name = current_name("scorers", str(scorer.get("name", "")))
    return {**scorer, "name": name, "rule": scorer.get("rule", FIRST_RULE)}


def is_ruled_otherwise(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two are the same scorer by another rule. An option that one does not name came with a rule.

    >>> is_ruled_otherwise({"name": "exact", "options": {}, "rule": 1}, {"name": "exact", "rule": 2})
    True
    """
    options, others = one.get("options") or {}, other.get("options") or {}
    alike = all(options[name] == others[name] for name in options if name in others)
    return one.get("name") == other.get("name") and one.get("rule") != other.get("rule") and alike


class Haystack(BaseModel):
    """One repeat's text."""

    name: str
    sha256: str


Cell = tuple[
    Annotated[int, Field(ge=0, le=MOST_TOKENS)],
    Annotated[float, Field(ge=0, le=1)],
    list[Annotated[int, Field(ge=0, le=MOST)]],
]


def _counted(cells: list[Cell]) -> list[Cell]:
    """Cells that a map can be made of: it is an array. Raises ValueError, as pydantic wants it."""
    lengths, depths = len({cell[0] for cell in cells}), len({cell[1] for cell in cells})
    repeats = len({repeat for cell in cells for repeat in cell[2]})
    if lengths * depths * repeats > _MOST_PLACES or sum(len(cell[2]) for cell in cells) > MOST_TRIALS:
        raise ValueError(f"{lengths} lengths x {depths} depths x {repeats} repeats are more than any run has")
    return cells


class Run(BaseModel):
    """run.json: what a run asks, and what it was made with."""

    model_config = ConfigDict(extra="allow")
    schema_version: int = Field(SCHEMA, alias="schema", description="version of this schema")
    needlemap: str = Field("", description="version that wrote it last")
    created: str = Field("", description="UTC time")
    python: str = ""
    packages: dict[str, str] = Field({}, description="versions of what may change prompts and requests")
    identity: str = Field("", description="hash of what makes this run what it is; its records hold it too")
    settings: Annotated[dict[str, Any], AfterValidator(_named)] = Field(
        description="the resolved settings: see Settings below"
    )
    tokenizer: Tokenizer
    scorer: Scorer
    haystacks: list[Haystack] = []
    notes: list[str] = Field(
        [], description="what was told before asking: which documents were read, and not"
    )
    cells: Annotated[list[Cell], AfterValidator(_counted)] = Field(
        description="length in tokens, depth as a share, repeats"
    )
    depthless: bool = Field(False, description="whether the task asks about the whole text: no depth counts")
    earlier_scorers: list[Scorer] = Field([], description="whose scores count no more (needlemap score)")
    model_notes: list[str] = Field([], description="what the model itself told: how its prompts are computed")
    stopped: str = Field("", description="the limit that ended the last start, in words")


def what_is_wrong(text: bytes) -> str:
    """Why a text is no run.json of ours, in words; empty where it is one."""
    try:
        Run.model_validate_json(text, strict=True)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)
        missing = [
            str(each["loc"][0]) for each in problems if each["type"] == "missing" and len(each["loc"]) == 1
        ]
        if missing:
            return f"it holds no {', '.join(missing)}"
        first = problems[0]
        return (
            f"{'.'.join(map(str, first['loc'])) or 'its JSON'}: {first['msg'].removeprefix('Value error, ')}"
        )
    return ""
