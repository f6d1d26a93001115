"""run.json: its shape, as docs/schema/run.json publishes it, and in what two of them differ.

It says what a run asks, and what it was made with.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from needlemap import SCHEMA
from needlemap.grid import MOST, MOST_TOKENS, MOST_TRIALS
from needlemap.registry import current_name, find
from needlemap.scorers import FIRST_RULE, rule_of
from needlemap.settings import marked, with_role

SIGNED = "signed"  # the name under which a file holds its signature
About = Mapping[str, Any]  # what run.json holds
Contrast = Mapping[str, tuple[Any, Any]]  # by name, what the two runs say
SUBJECT = marked("subject")  # none of them changes a prompt
_NO_MATTER = with_role(
    "grid", "free", "scored"
)  # settings that change no answer, or are told by the scorer
_ABSENT = "not set"
_LONGEST = 60
_DIGITS = 8  # of a hash
_FEW = 1  # haystacks named: there is one for each repeat
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
    """A scorer as run.json holds it: by its name of today, and with the number of its rule also
    where an earlier version wrote none."""
    name = current_name("scorers", str(scorer.get("name", "")))
    return {**scorer, "name": name, "rule": scorer.get("rule", FIRST_RULE)}


def is_ruled_otherwise(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two are the same scorer by another rule. An option that one does not name came with a
    rule.

    >>> is_ruled_otherwise({"name": "exact", "options": {}, "rule": 1}, {"name": "exact", "rule": 2})
    True
    """  # noqa: E501
    options, others = one.get("options") or {}, other.get("options") or {}
    alike = all(options[name] == others[name] for name in options if name in others)
    return one.get("name") == other.get("name") and one.get("rule") != other.get("rule") and alike


class Haystack(BaseModel):
    """One repeat's text."""

    name: str
    sha256: str


_Length = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
_Depth = Annotated[float, Field(ge=0, le=1)]
_Repeat = Annotated[int, Field(ge=0, le=MOST)]
Cell = tuple[_Length, _Depth, list[_Repeat]]
Place = tuple[_Length, _Depth, _Repeat]


def _counted(cells: list[Cell]) -> list[Cell]:
    """Cells that a map can be made of: it is an array. Raises ValueError, as pydantic wants it."""
    lengths, depths = len({cell[0] for cell in cells}), len({cell[1] for cell in cells})
    repeats = len({repeat for cell in cells for repeat in cell[2]})
    if (
        lengths * depths * repeats > _MOST_PLACES
        or sum(len(cell[2]) for cell in cells) > MOST_TRIALS
    ):
        raise ValueError(
            f"{lengths} lengths x {depths} depths x {repeats} repeats are more than any run has"
        )
    return cells


def _bounded(shared: dict[str, list[Place]]) -> dict[str, list[Place]]:
    """No more places than a run has trials. Raises ValueError, as pydantic wants it."""
    if sum(map(len, shared.values())) > MOST_TRIALS:
        raise ValueError("more places than any run has")
    return shared


class Run(BaseModel):
    """run.json: what a run asks, and what it was made with."""

    model_config = ConfigDict(extra="allow")
    schema_version: int = Field(SCHEMA, alias="schema", description="version of this schema")
    needlemap: str = Field("", description="version that wrote it last")
    created: str = Field("", description="UTC time")
    python: str = ""
    packages: dict[str, str] = Field(
        {}, description="versions of what may change prompts and requests"
    )
    identity: str = Field(
        "", description="hash of what makes this run what it is; its records hold it too"
    )
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
    shared: Annotated[dict[str, list[Place]], AfterValidator(_bounded)] = Field(
        {},
        description="by a trial's `asked` all that it stands for: length in tokens, depth, repeat",
    )
    depthless: bool = Field(
        False, description="whether the task asks about the whole text: no depth counts"
    )
    earlier_scorers: list[Scorer] = Field(
        [], description="whose scores count no more (needlemap score)"
    )
    model_notes: list[str] = Field(
        [], description="what the model itself told: how its prompts are computed"
    )
    stopped: str = Field("", description="the limit that ended the last start, in words")


def what_is_wrong(text: bytes) -> str:
    """Why a text is no run.json of ours, in words; empty where it is one."""
    try:
        Run.model_validate_json(text, strict=True)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)
        missing = [
            str(each["loc"][0])
            for each in problems
            if each["type"] == "missing" and len(each["loc"]) == 1
        ]
        if missing:
            return f"it holds no {', '.join(missing)}"
        first = problems[0]
        return (
            f"{'.'.join(map(str, first['loc'])) or 'its JSON'}: "
            f"{first['msg'].removeprefix('Value error, ')}"
        )
    return ""


def contrast(first: About, second: About) -> dict[str, tuple[Any, Any]]:
    """Settings that can change an answer or its score, tokenizer, haystacks and scorer, where they
    differ."""
    ours, theirs = (dict(about.get("settings", {})) for about in (first, second))
    names = [name for name in {**ours, **theirs} if name not in _NO_MATTER]
    found = {name: (ours.get(name, _ABSENT), theirs.get(name, _ABSENT)) for name in names}
    found |= {
        part: (_brief(first.get(part)), _brief(second.get(part)))
        for part in ("tokenizer", "haystacks")
    }
    scorers = ruled(first.get("scorer") or {}), ruled(second.get("scorer") or {})
    if scorers[0] != scorers[1]:
        found["scorer"] = (_scorer(scorers[0]), _scorer(scorers[1]))
        if found["scorer"][0] == found["scorer"][1]:
            found["scorer"] = _ruled(scorers[0]), _ruled(scorers[1])
    return {name: values for name, values in found.items() if values[0] != values[1]}


def how_to_score(path: str, scorer: Mapping[str, Any]) -> str:
    """What to type so that a run's answers are scored by a scorer that run.json names.

    >>> how_to_score("my run", {"name": "recall", "options": {"rule": "ruler"}})
    "needlemap score 'my run' --scorer recall --scorer-options rule=ruler"
    >>> how_to_score("old", {"name": "keyword", "options": {}})
    'needlemap score old --scorer keyword --scorer-options rule=opencompass'
    """
    name, options = str(scorer.get("name")), dict(scorer.get("options") or {})
    usual: dict[str, Any] = {}
    with suppress(Exception):  # not installed, or a plug-in that wants options
        made = find("scorers", name)
        options = {**getattr(made, "unsaid", {}), **options}
        usual = dict(made().options)
    given = {option: value for option, value in options.items() if value != usual.get(option)}
    flags = [part for each in given.items() for part in ("--scorer-options", _typed(*each))]
    return shlex.join(["needlemap", "score", path, "--scorer", name, *flags])


def outdated(path: str, about: About) -> list[str]:
    """A line, where a run's scores are by another rule of its scorer than a run of today would
    have."""
    scorer = ruled(about["scorer"])
    name, rule = str(scorer["name"]), scorer["rule"]
    with suppress(Exception):  # not installed, or a plug-in that cannot be imported
        rule = rule_of(find("scorers", name))
    if "imported" in about or rule == scorer["rule"]:
        return []
    return [
        f"scored by rule {scorer['rule']} of scorer '{name}', which has rule {rule} now. To score "
        f"all its "
        f"answers anew, which asks nothing: {how_to_score(path, scorer)}"
    ]


def prompt_contrast(found: Contrast) -> dict[str, tuple[Any, Any]]:
    """Of what differs, what can change a prompt."""
    return {name: values for name, values in found.items() if name not in SUBJECT}


def phrase(found: Contrast) -> str:
    """Differences in a line.

    >>> phrase({"seed": (0, 1), "needle": ("", "A fact.")})
    "seed (0, 1); needle ('', 'A fact.')"
    """
    return "; ".join(
        f"{name} ({_short(one)}, {_short(other)})" for name, (one, other) in found.items()
    )


def _ruled(scorer: Mapping[str, Any]) -> str:
    return f"{_scorer(scorer)}, rule {scorer['rule']}"


def _typed(name: str, value: Any) -> str:
    """An option as a flag takes it."""
    return f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"


def _brief(part: Any) -> str:
    """Names with the first letters of their hashes, which is what people can compare."""
    if isinstance(part, list):
        return ", ".join(dict.fromkeys(_brief(row) for row in part[:_FEW])) + (
            " ..." if part[_FEW:] else ""
        )
    row = part or {}
    digest = str(row.get("fingerprint") or row.get("sha256") or "").rpartition(":")[2]
    return f"{row.get('name', _ABSENT)} {digest[:_DIGITS]}".strip()


def _scorer(scorer: Any) -> str:
    """A scorer's name, and the options that it was given."""
    row = scorer or {}
    options = [
        f"{name}={value!r}" for name, value in dict(row.get("options") or {}).items() if value
    ]
    return " ".join([str(row.get("name", _ABSENT)), *options])


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def one_haystack(about: Mapping[str, Any]) -> bool:
    """Whether all repeats have the same: documents taken as they are listed."""
    return bool(about["settings"].get("order") == "listed")
