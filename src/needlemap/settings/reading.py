"""Read settings from presets, YAML files and flags, and check them.

Later ones win: defaults, preset, file, flags.
"""

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
from needlemap.http.compatible import KEY, served_model
from needlemap.models import backend_or_default
from needlemap.secrets import check_key_names, parts_of, refuse_keys
from needlemap.settings import ITEM, OPTIONS, Settings, language_name
from needlemap.settings.older_names import (
    BY_NAME,
    ImpliedRules,
    explanation_of,
    implied_rules,
    setting_value,
    translate,
)
from needlemap.settings.sentences import with_sentences
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
    """Settings that are written in one place.

    where: the place, in words. ours: whether it is a preset of this package.
    """

    where: str
    data: Mapping[str, Any]
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Unheeded:
    """A setting that nothing would read.

    Attributes:
        name: Its name.
        where: The place that set it.
        why: Why nothing reads it, in words.
        replaced: Whether what decides that was set later. Then it is left out without a word, as a
            preset's always is.
    """

    name: str
    where: str
    why: str
    replaced: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """Settings as they were read.

    Attributes:
        settings: The settings.
        unheeded: Those that were left out because nothing would read them.
        older: What older tools' names brought; None for nothing.
    """

    settings: Settings
    unheeded: list[Unheeded]
    older: ImpliedRules | None

    @property
    def note(self) -> str:
        """Return a note on the rules that older tools' names bring.

        '' for none, and if the run is quiet.
        """
        if self.older is None or self.settings.quiet:
            return ""
        return self.older.note(self.settings.model_dump())


def configure(named: str | None = None, given: Mapping[str, Any] | None = None) -> Settings:
    """Return the settings of a preset or a .yaml file, overridden by `given`.

    A file may itself name a preset. Raises SettingsError for unknown names (with the nearest known
    one), unreadable files, wrong values, and settings that nothing would read.
    """
    reading = read_settings(named, given or {})
    for setting in reading.unheeded:
        if not setting.replaced:
            raise SettingsError(setting.why)
    return reading.settings


def read_settings(
    named: str | None,
    given: Mapping[str, Any],
    between: Mapping[str, Mapping[str, Any]] | None = None,
    subject: Mapping[str, Any] | None = None,
) -> Reading:
    """Return what `configure` does, and what it left out.

    Args:
        named: A preset or a .yaml file.
        given: Typed settings, which override all others.
        between: Settings by the place in which they stand, which override the preset.
        subject: Of several models that are named together the one that is meant, with settings of
            its own.

    Raises SettingsError.
    """
    layers = _named(named) if named else []
    layers += [SettingsLayer(where, data) for where, data in (between or {}).items()]
    layers.append(SettingsLayer(COMMAND, given))
    models = [setting_value(layer.data, "model") for layer in layers]
    model = next((model for model in reversed(models) if model is not None), None)
    if subject is None and model is not None and is_several(model):
        listed = ", ".join(map(str, model)) if isinstance(model, list) else model
        raise SettingsError(f"'model' names several ({listed}), and this takes one: give --model.")
    layers = [
        _of_one(layer, subject) if is_several(layer.data.get("model")) else layer
        for layer in layers
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
    """Return a setting's value in a preset or a file, or None if it has none."""
    for layer in reversed(_named(named)):
        value = setting_value(layer.data, setting)
        if value is not None:
            return value
    return None


def _of_one(layer: SettingsLayer, subject: Mapping[str, Any] | None) -> SettingsLayer:
    """Return a layer with one model in the place of several."""
    rest = {name: value for name, value in layer.data.items() if name != "model"}
    return replace(layer, data={**rest, **(subject or {})})


def _older(layers: Sequence[SettingsLayer]) -> ImpliedRules | None:
    """Return what older tools' names in some layers bring, or None for nothing."""
    if any(layer.ours for layer in layers):
        return None
    given = (name for layer in layers for name, value in layer.data.items() if value is not None)
    return implied_rules(dict.fromkeys(given))


def _settle(layers: Sequence[SettingsLayer]) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the settings of all layers, and the number of the layer that set each last.

    Later layers win.
    """
    settled: dict[str, Any] = {}
    givers: dict[str, int] = {}
    for number, layer in enumerate(layers):
        _refuse_unknown(layer.data, layer.where)
        data = dict(layer.data)
        if BY_NAME.keys() & data.keys():
            data = translate(data, settled)
        data |= _merged_options(data, settled)
        data = with_sentences(data)
        are_presets = all(earlier.ours for earlier in layers[:number])
        settled = _without_texts(settled, data, ours=are_presets)
        if data.get("haystack_path") is not None and "haystack" not in data:
            path = str(data["haystack_path"])
            settled["haystack"] = source_of(path, settled.get("haystack"))
        settled = {**settled, **data}
        givers |= dict.fromkeys(data, number)
    return settled, givers


def _without_texts(
    settled: dict[str, Any], data: Mapping[str, Any], *, ours: bool
) -> dict[str, Any]:
    """Return the settings so far without what another task hides and asks.

    data: the next layer's. ours: whether only presets set the others.
    """
    task = settled.get("task", "single" if ours else None)
    if task is None or data.get("task", task) == task:
        return settled
    return {name: value for name, value in settled.items() if name not in (*ITEM, "spread", "diff")}


def _heeded(
    settled: dict[str, Any], givers: Mapping[str, int], layers: Sequence[SettingsLayer], where: str
) -> tuple[Settings, list[Unheeded]]:
    """Return the settings without those that nothing would read, and these.

    What is left out may leave others unread, so it is repeated until nothing is.
    """
    # Late, because it needs what a run needs.
    from needlemap.settings.unused_settings import find_unread, remaining_value

    unheeded: list[Unheeded] = []
    places = {name: layers[number].where for name, number in givers.items()}
    while True:
        has_item = _has_item(settled)
        item = {} if has_item else _default_item(settled.get("language", "english"))
        settings = checked({**settled, **item}, where, places)
        unread = [each for each in find_unread(settings, has_item) if each.name in settled]
        if not unread:
            return settings, unheeded
        for setting in unread:
            settled = {**settled, setting.name: remaining_value(settings, setting.name)}
            giver = givers.get(setting.name)
            if giver is None:
                continue
            decider = max((givers.get(name, -1) for name in setting.by), default=-1)
            unheeded.append(
                Unheeded(
                    name=setting.name,
                    where=layers[giver].where,
                    why=setting.why,
                    replaced=layers[giver].ours or decider > giver,
                )
            )


def _has_item(settled: Mapping[str, Any]) -> bool:
    """Return True if settings name what is hidden, or a task that does."""
    return settled.get("task", "single") != "single" or any(settled.get(name) for name in ITEM)


def _default_item(language: object) -> dict[str, Any]:
    """Return what is hidden in a language if settings do not name it; {} for an unknown one."""
    return DEFAULT_ITEMS.get(str(language_name(language)), {})


def addressed(settings: Settings) -> Settings:
    """Return settings with the server's address, so that it is part of what was sent.

    The environment or the back end may name it.
    """
    backend = backend_or_default(settings.backend)
    address = settings.base_url or backend.address(settings.model_name, settings.model_options)
    if address:
        check_address(address, *filter(None, [backend.key_variable]))
    refuse_keys(settings.options, backend.key_variable or KEY)
    return settings.model_copy(update={"base_url": address}) if address else settings


def checked(
    raw: Mapping[str, Any], where: str, places: Mapping[str, str] = MappingProxyType({})
) -> Settings:
    """Return settings from plain data.

    where: the place of all, in words. places: those of single settings, if they are known. Raises
    SettingsError with each setting that is wrong, what it got and what it takes.
    """
    unwritable = [name for name, value in raw.items() if not _is_text((name, value))]
    if unwritable:
        raise _refused({clean_text(name): _NO_TEXT for name in unwritable}, where, places)
    try:
        return Settings.model_validate(dict(raw))
    except ValidationError:
        raise _refused(_wrong(raw), where, places) from None


_NO_TEXT = "holds bytes that are no UTF-8, which no record can keep. Type it anew, or rename it."


def _is_text(value: Any) -> bool:
    """Return True if all texts in a value can be written as UTF-8.

    A word of the command line that is not UTF-8, or half of a character in a file, cannot.
    """
    try:
        for name, part in parts_of(value):
            f"{name}{part if isinstance(part, str) else ''}".encode()
    except UnicodeEncodeError:
        return False
    return True


def _refused(problems: Mapping[str, str], where: str, places: Mapping[str, str]) -> SettingsError:
    """Return all that is wrong with some settings, by name, as one error."""
    if len(problems) == 1:
        ((name, problem),) = problems.items()
        return SettingsError(f"Setting '{name}' in {places.get(name, where)}: {problem}")
    lines = "".join(f"\n  {name}: {problem}" for name, problem in problems.items())
    return SettingsError(f"{len(problems)} settings in {where} are wrong:{lines}")


def _wrong(raw: Mapping[str, Any]) -> dict[str, str]:
    """Return what is wrong with each of some settings, in words, and what it got."""
    problems: dict[str, str] = {}
    try:
        Settings.model_validate(dict(raw))
    except ValidationError as error:
        # After a setting's first problem come those of the other types that were tried.
        for problem in error.errors():
            name = str(problem["loc"][0])
            problems.setdefault(name, validator_words(problem["msg"], problem["input"]))
    return problems


def _named(name: str, inside: tuple[str, ...] = ()) -> list[SettingsLayer]:
    """Return the layers of a preset or a file: those that it builds on come first."""
    if name in inside:
        raise SettingsError(f"'{name}' is its own preset: {' -> '.join([*inside, name])}.")
    if name.startswith("suite:"):
        raise SettingsError(
            f"'{name}' is several runs: needlemap run, plan, prompts and list suites take it."
        )
    data = PRESETS.read(name) or {}
    if not isinstance(data, dict):
        raise SettingsError(
            f"'{name}' must be a mapping of settings to values, as 'model: {served_model()}'."
        )
    own = {str(key): value for key, value in data.items()}
    layers = []
    if "preset" in own:
        layers = _named(str(own.pop("preset")), (*inside, name))
    if is_yaml(name):
        layers.append(SettingsLayer(name, own))
    else:
        layers.append(SettingsLayer(f"preset {name}", own, ours=True))
    return layers


def _refuse_unknown(raw: Mapping[str, Any], where: str) -> None:
    """Raise SettingsError for names that are not settings, and for keys in a file."""
    known = {*Settings.model_fields, *BY_NAME}
    for name in raw:
        explanation = explanation_of(name, f"in {where}")
        if explanation:
            raise SettingsError(explanation)
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
    """Return the nearest known name, or where all of them stand."""
    near = did_you_mean(name, known).split(" Known:")[0]
    return near if near.startswith("Did") else "See needlemap run --help-all."


def _merged_options(raw: Mapping[str, Any], settled: Mapping[str, Any]) -> dict[str, Any]:
    """Return a layer's option mappings, merged key by key with those so far.

    Options of another task, scorer or back end are left out.
    """
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
    """Return what options belong to: a task, a scorer, or a model's back end."""
    return str(named).partition("/")[0]
