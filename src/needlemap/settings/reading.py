"""From presets, YAML files and flags to checked settings. Later ones win: defaults, preset,
file, flags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from needlemap.errors import SettingsError, did_you_mean, validator_words
from needlemap.files import is_yaml
from needlemap.haystacks.folder import source_of
from needlemap.http import check_address
from needlemap.http.compatible import KEY, served
from needlemap.models import backend_or_default
from needlemap.secrets import check_key_names, parts_of, refuse_keys
from needlemap.settings import ITEM, OPTIONS, Settings, spelt_out
from needlemap.settings.older_names import BY_NAME, Implied, explained, implied, translate, value_of
from needlemap.settings.sentences import FROM_FILES, with_sentences
from needlemap.settings.series import is_several
from needlemap.shelves import PRESETS
from needlemap.untrusted import clean_text

# What is hidden when nobody says what: values drawn afresh for each repeat, so that no model knows
# them.
_CITIES = [
    *("Oslo", "Lima", "Cairo", "Quito", "Turin", "Osaka"),
    *("Perth", "Dakar", "Porto", "Riga", "Hanoi", "Tunis"),
]
_CITIES_ZH = [
    *("奥斯陆", "利马", "开罗", "基多", "都灵", "大阪"),
    *("珀斯", "达喀尔", "波尔图", "里加", "河内", "突尼斯"),
]
_NUMBER = "10000:99999"
DEFAULT_ITEMS: dict[str, dict[str, Any]] = {
    "english": {
        "needle": "The locker code for {city} is {number}.",
        "question": "What is the locker code for {city}?",
        "keywords": ["{number}"],
        "draw": {"city": _CITIES, "number": _NUMBER},
    },
    "chinese": {
        "needle": "{city}的储物柜密码是{number}。",
        "question": "{city}的储物柜密码是多少？",
        "keywords": ["{number}"],
        "draw": {"city": _CITIES_ZH, "number": _NUMBER},
    },
}
COMMAND = "the command line"


@dataclass(frozen=True, slots=True)
class SettingsLayer:
    """Settings that are written in one place. ours: in a preset of this package."""

    where: str
    data: Mapping[str, Any]
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Unheeded:
    """A setting that nothing would read. where: who gave it. why: what to tell. replaced:
    whether what decides it was given later, so that it is left out without a word, as a
    preset's always is."""

    name: str
    where: str
    why: str
    replaced: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """Settings, those that were left out since nothing would read them, and what older tools'
    names brought."""

    settings: Settings
    unheeded: list[Unheeded]
    older: Implied | None

    @property
    def note(self) -> str:
        """A note on the rules that older tools' names bring; '' for none, and where it is
        quiet."""
        settings, older = self.settings, self.older
        return older.note(settings.model_dump()) if older and not settings.quiet else ""


def configure(named: str | None = None, given: Mapping[str, Any] | None = None) -> Settings:
    """Settings from a preset's name or a .yaml file (which may itself name a preset),
    overridden by `given`.

    Raises SettingsError for unknown names (with the nearest known one), unreadable files,
    wrong values, and settings that nothing would read.
    """
    reading = read_settings(named, given or {})
    for each in reading.unheeded:
        if not each.replaced:
            raise SettingsError(each.why)
    return reading.settings


def read_settings(
    named: str | None,
    given: Mapping[str, Any],
    between: Mapping[str, Mapping[str, Any]] | None = None,
    subject: Mapping[str, Any] | None = None,
) -> Reading:
    """What `configure` gives, and what it left out.

    between: settings by where they stand, which override the preset and are overridden.
    subject: of several models that are named together, the one that is meant, with settings of
    its own. Raises SettingsError.
    """
    layers = [
        *(_named(named) if named else []),
        *(SettingsLayer(*each) for each in (between or {}).items()),
    ]
    layers.append(SettingsLayer(COMMAND, given))
    models = [model for each in layers if (model := value_of(each.data, "model")) is not None]
    if subject is None and models and is_several(models[-1]):
        listed = ", ".join(map(str, models[-1])) if isinstance(models[-1], list) else models[-1]
        raise SettingsError(f"'model' names several ({listed}), and this takes one: give --model.")
    layers = [
        _of_one(each, subject) if is_several(each.data.get("model")) else each for each in layers
    ]
    settled, givers = _settle(layers)
    older = None if between else _older(layers)
    if older and older.rules:
        layers = [SettingsLayer(f"{older.tool}'s rules", older.rules, ours=True), *layers]
        settled, givers = _settle(layers)
    files = [*([named] if named else []), *(between or {})]
    sources = files + ([COMMAND] if given or not files else [])
    settings, unheeded = _heeded(settled, givers, layers, " or ".join(sources))
    return Reading(addressed(settings), unheeded, older)


def setting_in(named: str, setting: str) -> Any:
    """What a preset or a file says of a setting; None where it says nothing."""
    found = (value_of(layer.data, setting) for layer in reversed(_named(named)))
    return next((value for value in found if value is not None), None)


def _of_one(layer: SettingsLayer, subject: Mapping[str, Any] | None) -> SettingsLayer:
    """A layer with one model in the place of several."""
    rest = {name: value for name, value in layer.data.items() if name != "model"}
    return replace(layer, data={**rest, **(subject or {})})


def _older(layers: Sequence[SettingsLayer]) -> Implied | None:
    if any(layer.ours for layer in layers):
        return None
    given = (name for layer in layers for name, value in layer.data.items() if value is not None)
    return implied(dict.fromkeys(given))


def _settle(layers: Sequence[SettingsLayer]) -> tuple[dict[str, Any], dict[str, int]]:
    """Settings of all layers, later ones first, and the number of the layer that gave each
    last."""
    settled: dict[str, Any] = {}
    givers: dict[str, int] = {}
    for number, layer in enumerate(layers):
        _refuse_unknown(layer.data, layer.where)
        found = dict(layer.data)
        if BY_NAME.keys() & found.keys():
            found = translate(found, settled)
        found |= _merged_options(found, settled)
        if FROM_FILES & found.keys():
            found = with_sentences(found)
        settled = _without_texts(settled, found, all(each.ours for each in layers[:number]))
        if found.get("haystack_path") is not None and "haystack" not in found:
            path = str(found["haystack_path"])
            settled["haystack"] = source_of(path, settled.get("haystack"))
        settled = {**settled, **found}
        givers |= dict.fromkeys(found, number)
    return settled, givers


def _without_texts(settled: dict[str, Any], found: Mapping[str, Any], ours: bool) -> dict[str, Any]:
    """Settings so far without what another task hides and asks. ours: whether only presets
    said it."""
    task = settled.get("task", "single" if ours else None)
    if task is None or found.get("task", task) == task:
        return settled
    return {name: value for name, value in settled.items() if name not in (*ITEM, "spread", "diff")}


def _heeded(
    settled: dict[str, Any], givers: Mapping[str, int], layers: Sequence[SettingsLayer], where: str
) -> tuple[Settings, list[Unheeded]]:
    """Settings without those that nothing would read. What is left out may leave others
    unread: again."""
    from needlemap.settings.unused_settings import (  # late: it needs what a run needs
        find_unread,
        what_stays,
    )

    unheeded: list[Unheeded] = []
    while True:
        places = {name: layers[number].where for name, number in givers.items()}
        own_item = _says_what(settled)
        item = {} if own_item else _default_item(settled.get("language", "english"))
        settings = checked({**settled, **item}, where, places)
        found = [each for each in find_unread(settings, own_item) if each.name in settled]
        if not found:
            return settings, unheeded
        for each in found:
            number = givers.get(each.name)
            stays = what_stays(settings, each.name)
            settled = {**settled, each.name: stays}
            if number is not None:
                decided = max((givers.get(name, -1) for name in each.by), default=-1)
                replaced = layers[number].ours or decided > number
                unheeded.append(Unheeded(each.name, layers[number].where, each.why, replaced))


def _says_what(settled: Mapping[str, Any]) -> bool:
    """Whether settings say what is hidden, or have a task that does."""
    return settled.get("task", "single") != "single" or any(settled.get(name) for name in ITEM)


def _default_item(language: object) -> dict[str, Any]:
    """What is hidden in a language where settings do not say it; {} for one that is
    unknown."""
    return DEFAULT_ITEMS.get(str(spelt_out(language)), {})


def addressed(settings: Settings) -> Settings:
    """Settings with the server's address, also where the environment or the back end names it,
    so that it is part of what was asked."""
    backend = backend_or_default(settings.backend)
    address = settings.base_url or backend.address(settings.model_name, settings.model_options)
    if address:
        check_address(address, *filter(None, [backend.key_variable]))
    refuse_keys(settings.options, backend.key_variable or KEY)
    return settings.model_copy(update={"base_url": address}) if address else settings


def checked(
    raw: Mapping[str, Any], where: str, places: Mapping[str, str] = MappingProxyType({})
) -> Settings:
    """Settings from plain data. Raises SettingsError with each setting that is wrong, what it
    got and what it takes. places: where single settings stand, if that is known."""
    if odd := {name: _NO_TEXT for name, value in raw.items() if not _is_text((name, value))}:
        shown = {clean_text(name): odd[name] for name in odd}
        raise _refused(shown, where, places)
    try:
        return Settings.model_validate(dict(raw))
    except ValidationError:
        raise _refused(_wrong(raw), where, places) from None


_NO_TEXT = "holds bytes that are no UTF-8, which no record can keep. Type it anew, or rename it."


def _is_text(value: Any) -> bool:
    """Whether all texts in a value can be written. A word of the command line that is no
    UTF-8, and half a character in a file, cannot."""
    try:
        for name, part in parts_of(value):
            f"{name}{part if isinstance(part, str) else ''}".encode()
    except UnicodeEncodeError:
        return False
    return True


def _refused(problems: Mapping[str, str], where: str, places: Mapping[str, str]) -> SettingsError:
    """All that is wrong with some settings, by name, as one error."""
    if len(problems) == 1:
        ((name, problem),) = problems.items()
        return SettingsError(f"Setting '{name}' in {places.get(name, where)}: {problem}")
    lines = "".join(f"\n  {name}: {problem}" for name, problem in problems.items())
    return SettingsError(f"{len(problems)} settings in {where} are wrong:{lines}")


def _wrong(raw: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with each of some settings, in words, and what it got."""
    found: dict[str, str] = {}
    try:
        Settings.model_validate(dict(raw))
    except ValidationError as error:
        for (
            problem
        ) in error.errors():  # behind a setting's first follow the other types that were tried
            found.setdefault(
                str(problem["loc"][0]), validator_words(problem["msg"], problem["input"])
            )
    return found


def _named(name: str, inside: tuple[str, ...] = ()) -> list[SettingsLayer]:
    """The layers of a preset or a file: those that it builds on come first."""
    if name in inside:
        raise SettingsError(f"'{name}' is its own preset: {' -> '.join([*inside, name])}.")
    if name.startswith("suite:"):
        raise SettingsError(
            f"'{name}' is several runs: needlemap run, plan, prompts and list suites take it."
        )
    data = PRESETS.read(name) or {}
    if not isinstance(data, dict):
        raise SettingsError(
            f"'{name}' must be a mapping of settings to values, as 'model: {served()}'."
        )
    own = {str(key): value for key, value in data.items()}
    base = _named(str(own.pop("preset")), (*inside, name)) if "preset" in own else []
    return [
        *base,
        SettingsLayer(name, own)
        if is_yaml(name)
        else SettingsLayer(f"preset {name}", own, ours=True),
    ]


def _refuse_unknown(raw: Mapping[str, Any], where: str) -> None:
    """Raises SettingsError for names that are no settings, and for keys in a file."""
    known = {*Settings.model_fields, *BY_NAME}
    theirs = next(filter(None, (explained(name, f"in {where}") for name in raw)), "")
    if theirs:
        raise SettingsError(theirs)
    unknown = {name: _hint(name, known) for name in raw if name not in known}
    if unknown:
        wrong = _wrong(
            {name: value for name, value in raw.items() if name in Settings.model_fields}
        )
        if len(unknown) + len(wrong) == 1:
            ((name, hint),) = unknown.items()
            raise SettingsError(f"Unknown setting '{name}' in {where}. {hint}")
        problems = {name: f"unknown. {hint}" for name, hint in unknown.items()} | wrong
        raise _refused(problems, where, {})
    if where != COMMAND:
        check_key_names(
            raw, f"It stands in {where}. By flag any is taken: --model-options key_env=NAME"
        )


def _hint(name: str, known: Iterable[str]) -> str:
    near = did_you_mean(name, known).split(" Known:")[0]
    return near if near.startswith("Did") else "See needlemap run --help."


def _merged_options(raw: Mapping[str, Any], settled: Mapping[str, Any]) -> dict[str, Any]:
    """A layer's option mappings, merged key by key with those so far. Another task's, scorer's
    or back end's options are not this one's."""
    merged = dict[str, Any]()
    for name in OPTIONS:
        owner = name.removesuffix("_options")
        owned = owner != name and owner in raw and owner in settled
        if owned and _kind(raw[owner]) != _kind(settled[owner]):
            merged[name] = raw.get(name, {})
        elif isinstance(raw.get(name), dict) and isinstance(settled.get(name), dict):
            merged[name] = {**settled[name], **raw[name]}
    return merged


def _kind(named: object) -> str:
    """What options belong to: a task, a scorer, or a model's back end."""
    return str(named).partition("/")[0]
