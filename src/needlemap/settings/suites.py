"""Choose what a run asks: the settings of its families, for each model that is named.

A preset is one family. A suite, which is data, names several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

from needlemap.errors import SettingsError, did_you_mean, naming
from needlemap.files import folder_name, is_yaml, plain_name
from needlemap.http.compatible import served_model
from needlemap.settings import Settings, marked, settings_of, with_role
from needlemap.settings.older_names import setting_names, setting_value
from needlemap.settings.reading import (
    COMMAND,
    Unheeded,
    read_settings,
    setting_in,
)
from needlemap.settings.series import expand_series, is_series, is_several
from needlemap.settings.trust import Trust, for_plan, refuse_code
from needlemap.shelves import SUITES

MARK = "suite:"
DEFAULT = "demo"
_KEYS = ("families", "settings", "scores")
# Settings that one of several models may have to itself.
_PER_MODEL = (*settings_of("Model"), *marked("per_model"))


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is asked of one model.

    Attributes:
        suite: The suite's name; '' without one.
        families: Settings by family. The only family of a plain run is named ''.
        note: Which rules an older tool's names bring; '' for none.
        scores: Weighted means of some families, by name.
    """

    suite: str
    families: Mapping[str, Settings]
    note: str = ""
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def first(self) -> Settings:
        """Return the first family's settings, for what all families share."""
        return next(iter(self.families.values()))


def choose(named: str | None, flags: Mapping[str, Any]) -> Chosen:
    """Return what `choose_each` does for one model. Raises SettingsError for several."""
    return only_model(choose_each(named, flags))


def only_model(models: Mapping[str, Chosen]) -> Chosen:
    """Return what is asked of the only model. Raises SettingsError for several."""
    if len(models) > 1:
        raise SettingsError(
            f"{len(models)} models are named, and this takes one. Give one with --model."
        )
    return next(iter(models.values()))


def choose_each(
    named: str | None, flags: Mapping[str, Any], *, trusted: Trust = False, planned: bool = False
) -> dict[str, Chosen]:
    """Return the families of a preset, a file or a suite, for each model that is named.

    Without a name and without a flag that matters, they are the demo's. The same arguments mean the
    same trials in every command.

    Args:
        named: The preset, the file or `suite:NAME`.
        flags: Typed settings.
        trusted: Whether code that stands only in a file may run.
        planned: Whether nothing is going to be asked.

    Returns the families by the name of the model's folder, '' if there is one model. Raises
    SettingsError.
    """
    models = [_model_settings(model) for model in _models(named, flags)]
    subjects = list(expand_series(models)) or [{}]
    is_one = len(subjects) < 2 and not any(is_series(model["model"]) for model in models)
    names = [""] if is_one else _folder_names(subjects)
    if named is not None and named.startswith(MARK):
        chosen = _choose_suite(named.removeprefix(MARK), flags, names, subjects)
    else:
        preset = DEFAULT if is_demo(named, flags) else named
        chosen = _choose_preset(preset, flags, names, subjects)
    _refuse_one_address([model.first for model in chosen.values()], subjects)
    if planned:
        return {name: _for_plan(model, flags) for name, model in chosen.items()}
    if trusted is not True:
        for model in chosen.values():
            for settings in model.families.values():
                refuse_code(settings, flags, named or COMMAND)
    return chosen


def _choose_suite(
    suite_name: str,
    flags: Mapping[str, Any],
    names: Sequence[str],
    subjects: Sequence[Mapping[str, Any]],
) -> dict[str, Chosen]:
    """Return a suite's families for each model.

    names: of the models' folders. subjects: the models, with settings of their own.
    """
    suite = load_suite(suite_name)
    chosen = {}
    for name, subject in zip(names, subjects, strict=True):
        with naming(name and f"Model '{subject['model']}'"):
            families = suite.settle(flags, subject or None)
        chosen[name] = Chosen(suite.name, families, scores=suite.scores)
    return chosen


def _choose_preset(
    preset: str | None,
    flags: Mapping[str, Any],
    names: Sequence[str],
    subjects: Sequence[Mapping[str, Any]],
) -> dict[str, Chosen]:
    """Return the one family of a preset or a file for each model, as `_choose_suite` does.

    Raises SettingsError for a setting that no model reads.
    """
    chosen = {}
    unread = list[list[Unheeded]]()
    for name, subject in zip(names, subjects, strict=True):
        with naming(name and f"Model '{subject['model']}'"):
            reading = read_settings(preset, flags, subject=subject or None)
        chosen[name] = Chosen("", {"": reading.settings}, reading.note)
        unread.append([unheeded for unheeded in reading.unheeded if not unheeded.replaced])
    _refuse_unread(unread, subjects)
    return chosen


def _for_plan(chosen: Chosen, flags: Mapping[str, Any]) -> Chosen:
    """Return the same without what only a run may ask or import."""
    families = {name: for_plan(settings, flags) for name, settings in chosen.families.items()}
    return replace(chosen, families=families)


def is_demo(named: str | None, flags: Mapping[str, Any]) -> bool:
    """Return True if the demo is meant: nothing is named, and no flag that matters is typed.

    An older tool's name does matter.
    """
    return named is None and set(flags) <= {*with_role("grid", "free")}


def given_in(named: str, setting: str) -> Any:
    """Return a setting's value in a preset or a file, or in all families of a suite.

    If it has no value there, the result is None. Raises SettingsError if the suite, the preset or
    the file cannot be read.
    """
    if not named.startswith(MARK):
        return setting_in(named, setting)
    suite = load_suite(named.removeprefix(MARK))
    value = setting_value(suite.settings, setting)
    if value is not None:
        return value
    values = [_given_by(family, setting) for family in suite.families.values()]
    return None if None in values else values[0]


def _given_by(family: Mapping[str, Any], setting: str) -> Any:
    """Return a setting's value in a family of a suite, its own or its preset's."""
    own = {name: value for name, value in family.items() if name != "preset"}
    value = setting_value(own, setting)
    if value is None and "preset" in family:
        return setting_in(str(family["preset"]), setting)
    return value


def _models(named: str | None, flags: Mapping[str, Any]) -> list[Any]:
    """Return the models that are named, flags before files; [] for one that is not a series."""
    model = setting_value(flags, "model")
    if not model and named:
        model = given_in(named, "model")
    if not is_several(model):
        return []
    return model if isinstance(model, list) else [model]


def _model_settings(model: Any) -> dict[str, Any]:
    """Return one of several models, with settings of its own.

    Raises SettingsError if it is not a model, or has a setting that a model cannot have.
    """
    if isinstance(model, str):
        return {"model": model}
    if not isinstance(model, dict) or not isinstance(model.get("model"), str):
        raise SettingsError(
            f"One of several models is no model: {model!r}. Write BACKEND/NAME, or a mapping such "
            f"as {{model: {served_model()}, base_url: URL}}."
        )
    for name in model:
        if name not in _PER_MODEL:
            raise SettingsError(
                f"'{name}' cannot be one model's own. {did_you_mean(str(name), _PER_MODEL)} Give "
                "it beside the list: it holds for all of them."
            )
    return dict(model)


def _folder_names(subjects: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a folder's name for each model: its label, or else what it is called.

    Raises SettingsError if two are the same.
    """
    names = [folder_name(str(subject.get("label") or subject["model"])) for subject in subjects]
    for name, subject in zip(names, subjects, strict=True):
        if names.count(name) > 1:
            raise SettingsError(
                f"Model '{subject['model']}' is named twice. Name it once, or give each a label in "
                "a YAML file."
            )
    return names


def _refuse_unread(
    models: Sequence[Sequence[Unheeded]], subjects: Sequence[Mapping[str, Any]]
) -> None:
    """Raise SettingsError for a setting that no model reads, or that is one model's own and not
    read.

    models: of each model what it does not read.
    """
    shared = set.intersection(*({setting.name for setting in unread} for unread in models))
    for unread, subject in zip(models, subjects, strict=True):
        for setting in unread:
            if setting.name in shared or setting.name in subject:
                raise SettingsError(setting.why)


def _refuse_one_address(models: Sequence[Settings], subjects: Sequence[Mapping[str, Any]]) -> None:
    """Raise SettingsError if one address would be sent the keys of several vendors."""
    shared = [
        settings
        for settings, subject in zip(models, subjects, strict=True)
        if settings.base_url and "base_url" not in subject
    ]
    backends = {settings.backend for settings in shared if settings.base_url == shared[0].base_url}
    if len(backends) > 1:
        raise SettingsError(
            f"--base-url is one server, and the models have several back ends "
            f"({', '.join(sorted(backends))}). "
            f"In a YAML file give each its own: "
            f"model: [{{model: {served_model()}, base_url: URL}}, ...]"
        )


@dataclass(frozen=True, slots=True)
class Suite:
    """Several families with settings.

    Attributes:
        name: Its name.
        families: The settings of each family, of which `preset` may be one.
        settings: Those of all families that do not have their own.
        scores: Weighted means of some families, by name: of each its families' weights, which add
            up to 1.
    """

    name: str
    families: Mapping[str, Mapping[str, Any]]
    settings: Mapping[str, Any]
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def settle(
        self, flags: Mapping[str, Any], subject: Mapping[str, Any] | None = None
    ) -> dict[str, Settings]:
        """Return each family's settings; later ones win: preset, suite, family, flags.

        subject: of several models the one that is meant, with settings of its own. Raises
        SettingsError.
        """
        self._refuse_flags(flags)
        families, unread = {}, []
        for family in self.families:
            families[family], shared_unread = self._settled(family, flags, subject)
            unread.append(shared_unread)
        self._refuse_unread(unread)
        self._refuse_different(families)
        return families

    def _refuse_flags(self, flags: Mapping[str, Any]) -> None:
        """Raise SettingsError for a flag that each family sets for itself."""
        set_by_all = [
            name
            for name in marked("per_family")
            if all(name in setting_names(family) for family in self.families.values())
        ]
        typed = setting_names(flags)
        for name in (*marked("family"), *set_by_all):
            if name in typed:
                raise SettingsError(
                    f"Each family of suite '{self.name}' has its own {name}: leave --{name} out."
                )

    def _refuse_different(self, families: Mapping[str, Settings]) -> None:
        """Raise SettingsError for a shared setting that differs between families."""
        for name in marked("shared"):
            first, *others = [getattr(settings, name) for settings in families.values()]
            if any(value != first for value in others):
                raise SettingsError(
                    f"Setting '{name}' must be the same for all families of suite '{self.name}': "
                    "leave it out of its file, or set it there under 'settings'."
                )

    def _settled(
        self, family: str, flags: Mapping[str, Any], subject: Mapping[str, Any] | None
    ) -> tuple[Settings, list[Unheeded]]:
        """Return a family's settings, and the shared ones that it does not read."""
        own = dict(self.families[family])
        preset = own.pop("preset", None)
        layers = {self._label: self.settings, f"family '{family}' of suite '{self.name}'": own}
        kept = setting_names(own) & {*marked("per_family")}
        given = {
            name: value for name, value in flags.items() if not setting_names({name: value}) & kept
        }
        with naming(f"Family '{family}'"):
            reading = read_settings(preset, given, layers, subject)
        shared = []
        for unheeded in reading.unheeded:
            if unheeded.where in (self._label, COMMAND):
                shared.append(unheeded)
            elif not unheeded.replaced:
                raise SettingsError(f"Family '{family}': {unheeded.why}")
        return reading.settings, shared

    @property
    def _label(self) -> str:
        """Return what errors call the settings that all families share."""
        return f"suite '{self.name}'"

    def _refuse_unread(self, families: Sequence[Sequence[Unheeded]]) -> None:
        """Raise SettingsError for a shared setting that no family reads."""
        reasons = [
            {(setting.name, setting.where): setting.why for setting in unread}
            for unread in families
        ]
        for name, where in sorted(set(reasons[0]).intersection(*reasons[1:])):
            raise SettingsError(
                f"No family of suite '{self.name}' reads '{name}'. {reasons[0][name, where]}"
            )


def load_suite(name: str) -> Suite:
    """Return a suite by its name, or from a .yaml file.

    Raises SettingsError if it is unknown or not valid.
    """
    data = SUITES.read(name)
    name = Path(name).stem if is_yaml(name) else name
    _check(name, data)
    families = {str(family): settings or {} for family, settings in data["families"].items()}
    scores = weighted(name, data.get("scores") or {}, [*families])
    return Suite(name, families, settings=data.get("settings") or {}, scores=scores)


def scores_among(suite: str, families: Iterable[str]) -> dict[str, Mapping[str, float]]:
    """Return the scores of a suite whose families are all among these.

    Raises SettingsError if the suite is unknown or not valid.
    """
    names = set(families)
    scores = load_suite(suite).scores
    return {name: weights for name, weights in scores.items() if names.issuperset(weights)}


def weighted(suite: str, scores: Any, families: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the weights of families in each score, which add up to 1.

    A score weighs families, or scores above it. Raises SettingsError if a score is not valid.

    >>> weighted("s", {"one": ["a", "b"], "all": {"one": 1, "c": 3}}, ["a", "b", "c"])
    {'one': {'a': 0.5, 'b': 0.5}, 'all': {'a': 0.125, 'b': 0.125, 'c': 0.75}}
    """
    if not isinstance(scores, dict):
        raise SettingsError(f"Suite '{suite}': 'scores' must map names to families' weights.")
    by_score: dict[str, dict[str, float]] = {}
    for name, parts in scores.items():
        part_weights = dict.fromkeys(parts, 1) if isinstance(parts, list) else parts
        if not _are_weights(part_weights):
            raise SettingsError(
                f"Suite '{suite}': score '{name}' must list families, or map them to weights above "
                "0."
            )
        weights = dict[str, float]()
        for part, weight in part_weights.items():
            if part not in (*families, *by_score):
                hint = did_you_mean(str(part), (*families, *by_score))
                raise SettingsError(f"Suite '{suite}': score '{name}' weighs '{part}'. {hint}")
            for family, share in by_score.get(part, {part: 1.0}).items():
                part_share = share * weight / sum(part_weights.values())
                weights[family] = weights.get(family, 0.0) + part_share
        by_score[str(name)] = weights
    return by_score


def _are_weights(weights: Any) -> bool:
    return isinstance(weights, dict) and bool(weights) and all(map(_is_weight, weights.values()))


def _is_weight(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < inf


def _check(name: str, data: Any) -> None:
    if (
        not isinstance(data, dict)
        or not isinstance(data.get("families"), dict)
        or not data["families"]
    ):
        raise SettingsError(
            f"Suite '{name}' needs families, as families: {{mine: {{preset: passkey}}}}. See "
            f"needlemap help suites."
        )
    for key in data:
        if key not in _KEYS:
            raise SettingsError(
                f"Suite '{name}': unknown key '{key}'. {did_you_mean(str(key), _KEYS)}"
            )
    for family, settings in [*data["families"].items(), ("settings", data.get("settings"))]:
        if settings is not None and not isinstance(settings, dict):
            raise SettingsError(
                f"Suite '{name}': '{family}' must be a mapping of settings to values."
            )
        if not plain_name(str(family)):
            raise SettingsError(
                f"Suite '{name}': '{family}' names a folder: use letters, digits, '-', '_' and '.'."
            )
