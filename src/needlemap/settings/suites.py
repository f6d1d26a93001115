"""What a run asks: the settings of its families, for each model that is named.

A preset is one family; a suite, which is data, names several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

from needlemap.errors import SettingsError, did_you_mean, naming
from needlemap.files import folder_name, is_yaml, plain_name
from needlemap.http.compatible import served
from needlemap.settings import Settings, marked, settings_of, with_role
from needlemap.settings.older_names import settings_in, value_of
from needlemap.settings.reading import (
    COMMAND,
    Unheeded,
    read_settings,
    setting_in,
)
from needlemap.settings.series import expanded, is_series, is_several
from needlemap.settings.trust import Trust, for_plan, refuse_code
from needlemap.shelves import SUITES

MARK = "suite:"
DEFAULT = "demo"
_KEYS = ("families", "settings", "scores")
_MODEL_S_OWN = (
    *settings_of("Model"),
    *marked("per_model"),
)  # what one of several models may have to itself


@dataclass(frozen=True, slots=True)
class Chosen:
    """suite: its name, '' without one. families: settings by name, '' that of the only one of
    a plain run. note: which rules an older tool's names bring; '' for none. scores: weighted
    means of some families, by name."""

    suite: str
    families: Mapping[str, Settings]
    note: str = ""
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def first(self) -> Settings:
        """The first family's, with what all families share."""
        return next(iter(self.families.values()))


def choose(named: str | None, flags: Mapping[str, Any]) -> Chosen:
    """What `choose_each` gives, of one model. Raises SettingsError for several."""
    return only_model(choose_each(named, flags))


def only_model(each: Mapping[str, Chosen]) -> Chosen:
    """What is asked of the only model. Raises SettingsError for several."""
    if len(each) > 1:
        raise SettingsError(
            f"{len(each)} models are named, and this takes one. Give one with --model."
        )
    return next(iter(each.values()))


def choose_each(
    named: str | None, flags: Mapping[str, Any], *, trusted: Trust = False, planned: bool = False
) -> dict[str, Chosen]:
    """The families of a preset, a file or a suite, of the demo without one and without a flag
    that matters, for each model that is named, by the name of its folder; for one model by ''.

    The same arguments mean the same trials, whichever command they are given to. trusted: code
    that stands only in a file may run. planned: nothing is going to be asked. Raises
    SettingsError.
    """
    typed = [_subject(each) for each in _models(named, flags)]
    subjects = [*expanded(typed)] or [{}]
    alone = len(subjects) < 2 and not any(is_series(each["model"]) for each in typed)
    suite = None
    if named is not None and named.startswith(MARK):
        suite = load_suite(named.removeprefix(MARK))
    plain = DEFAULT if is_demo(named, flags) else named
    each, unread = dict[str, Chosen](), list[list[Unheeded]]()
    for name, subject in zip([""] if alone else _folder_names(subjects), subjects, strict=True):
        with naming(name and f"Model '{subject['model']}'"):
            if suite:
                settled = suite.settle(flags, subject or None)
                each[name] = Chosen(suite.name, settled, scores=suite.scores)
                unread.append([])
                continue
            reading = read_settings(plain, flags, subject=subject or None)
            each[name] = Chosen("", {"": reading.settings}, reading.note)
            unread.append([one for one in reading.unheeded if not one.replaced])
    _refuse(unread, subjects)
    _refuse_one_address([chosen.first for chosen in each.values()], subjects)
    if planned:
        return {name: _for_plan(chosen, flags) for name, chosen in each.items()}
    for chosen in each.values() if trusted is not True else ():
        for settings in chosen.families.values():
            refuse_code(settings, flags, named or COMMAND)
    return each


def _for_plan(chosen: Chosen, flags: Mapping[str, Any]) -> Chosen:
    """The same without what only a run may ask or import."""
    planned = {name: for_plan(each, flags) for name, each in chosen.families.items()}
    return replace(chosen, families=planned)


def is_demo(named: str | None, flags: Mapping[str, Any]) -> bool:
    """Whether the demo is meant: nothing is named, and no flag that matters is given; an
    older tool's name does matter."""
    return named is None and set(flags) <= {*with_role("grid", "free")}


def given_in(named: str, setting: str) -> Any:
    """What a preset or a file says of a setting, or a suite for all its families; None where
    it says nothing. Raises SettingsError."""
    if not named.startswith(MARK):
        return setting_in(named, setting)
    suite = load_suite(named.removeprefix(MARK))
    if (own := value_of(suite.settings, setting)) is not None:
        return own
    found = [_given_by(family, setting) for family in suite.families.values()]
    return found[0] if None not in found else None


def _given_by(family: Mapping[str, Any], setting: str) -> Any:
    """What a family of a suite says of a setting, itself or by its preset."""
    own = value_of({name: value for name, value in family.items() if name != "preset"}, setting)
    return setting_in(str(family["preset"]), setting) if own is None and "preset" in family else own


def _models(named: str | None, flags: Mapping[str, Any]) -> list[Any]:
    """The models that are named last; empty where one is that is no series."""
    model = value_of(flags, "model") or (given_in(named, "model") if named else None)
    if not is_several(model):
        return []
    return model if isinstance(model, list) else [model]


def _subject(model: Any) -> dict[str, Any]:
    """One of several models, with settings of its own. Raises SettingsError."""
    if isinstance(model, str):
        return {"model": model}
    if not isinstance(model, dict) or not isinstance(model.get("model"), str):
        raise SettingsError(
            f"One of several models is no model: {model!r}. Write BACKEND/NAME, or a mapping such "
            f"as {{model: {served()}, base_url: URL}}."
        )
    for name in model:
        if name not in _MODEL_S_OWN:
            raise SettingsError(
                f"'{name}' cannot be one model's own. {did_you_mean(str(name), _MODEL_S_OWN)} Give "
                f"it beside "
                f"the list: it holds for all of them."
            )
    return dict(model)


def _folder_names(subjects: Sequence[Mapping[str, Any]]) -> list[str]:
    """A folder's name for each model: its label, else what it is called. Raises SettingsError for
    twins."""
    names = [folder_name(str(each.get("label") or each["model"])) for each in subjects]
    for name, subject in zip(names, subjects, strict=True):
        if names.count(name) > 1:
            raise SettingsError(
                f"Model '{subject['model']}' is named twice. Name it once, or give each a label in "
                f"a YAML "
                f"file."
            )
    return names


def _refuse(models: Sequence[Sequence[Unheeded]], subjects: Sequence[Mapping[str, Any]]) -> None:
    """Raises SettingsError for a setting that no model reads, or that is one model's own and
    not read."""
    shared = set.intersection(*({each.name for each in unheeded} for unheeded in models))
    for unheeded, own in zip(models, subjects, strict=True):
        for each in unheeded:
            if each.name in shared or each.name in own:
                raise SettingsError(each.why)


def _refuse_one_address(each: Sequence[Settings], subjects: Sequence[Mapping[str, Any]]) -> None:
    """Raises SettingsError where one address would be sent the keys of several vendors."""
    pairs = zip(each, subjects, strict=True)
    shared = [settings for settings, own in pairs if settings.base_url and "base_url" not in own]
    asked = {settings.backend for settings in shared if settings.base_url == shared[0].base_url}
    if len(asked) > 1:
        raise SettingsError(
            f"--base-url is one server, and the models have several back ends "
            f"({', '.join(sorted(asked))}). "
            f"In a YAML file give each its own: model: [{{model: {served()}, base_url: URL}}, ...]"
        )


@dataclass(frozen=True, slots=True)
class Suite:
    """families: the settings of each, of which `preset` may be one. settings: those of all
    families that do not have their own. scores: weighted means of some families, by name; of
    each its families' weights, which add up to 1."""

    name: str
    families: Mapping[str, Mapping[str, Any]]
    settings: Mapping[str, Any]
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def settle(
        self, flags: Mapping[str, Any], subject: Mapping[str, Any] | None = None
    ) -> dict[str, Settings]:
        """Each family's settings; later ones win: preset, suite, family, flags. Raises
        SettingsError.

        subject: of several models the one that is meant, with settings of its own.
        """
        stay = [
            name
            for name in marked("per_family")
            if all(name in settings_in(own) for own in self.families.values())
        ]
        for name in (*marked("family"), *stay):
            if name in settings_in(flags):
                raise SettingsError(
                    f"Each family of suite '{self.name}' has its own {name}: leave --{name} out."
                )
        settled = {family: self._settled(family, flags, subject) for family in self.families}
        self._refuse_unheeded([unheeded for _, unheeded in settled.values()])
        found = {family: settings for family, (settings, _) in settled.items()}
        for name in marked("shared"):
            values = [getattr(settings, name) for settings in found.values()]
            if any(value != values[0] for value in values):
                raise SettingsError(
                    f"Setting '{name}' must be the same for all families of suite '{self.name}': "
                    f"leave it "
                    f"out of its file, or set it there under 'settings'."
                )
        return found

    def _settled(
        self, family: str, flags: Mapping[str, Any], subject: Mapping[str, Any] | None
    ) -> tuple[Settings, list[Unheeded]]:
        """A family's settings, and what it does not read of those that it shares with
        others."""
        own = dict(self.families[family])
        preset, mine = own.pop("preset", None), f"family '{family}' of suite '{self.name}'"
        between = {self._label: self.settings, mine: own}
        stay = settings_in(own) & {*marked("per_family")}
        given = {
            name: value for name, value in flags.items() if not settings_in({name: value}) & stay
        }
        with naming(f"Family '{family}'"):
            reading = read_settings(preset, given, between, subject)
        shared = [each for each in reading.unheeded if each.where in (self._label, COMMAND)]
        for each in reading.unheeded:
            if each not in shared and not each.replaced:
                raise SettingsError(f"Family '{family}': {each.why}")
        return reading.settings, shared

    @property
    def _label(self) -> str:
        """What errors call the settings that all families share."""
        return f"suite '{self.name}'"

    def _refuse_unheeded(self, families: Sequence[Sequence[Unheeded]]) -> None:
        """Raises SettingsError for a shared setting that no family reads; some may leave it to
        others."""
        names = [{(each.name, each.where) for each in unheeded} for unheeded in families]
        for name, where in sorted(set.intersection(*names)):
            why = next(each.why for each in families[0] if (each.name, each.where) == (name, where))
            raise SettingsError(f"No family of suite '{self.name}' reads '{name}'. {why}")


def load_suite(name: str) -> Suite:
    """A suite by its name, or from a .yaml file of one's own. Raises SettingsError."""
    data = SUITES.read(name)
    name = Path(name).stem if is_yaml(name) else name
    _check(name, data)
    families = {str(family): settings or {} for family, settings in data["families"].items()}
    scores = weighted(name, data.get("scores") or {}, [*families])
    return Suite(name, families, data.get("settings") or {}, scores)


def scores_among(suite: str, families: Iterable[str]) -> dict[str, Mapping[str, float]]:
    """The scores of a suite whose families are all among these. Raises SettingsError."""
    known, scores = {*families}, load_suite(suite).scores
    return {name: weights for name, weights in scores.items() if {*weights} <= known}


def weighted(suite: str, scores: Any, families: Sequence[str]) -> dict[str, dict[str, float]]:
    """The weights of families in each score, which add up to 1. A score weighs families, or
    scores above it. Raises SettingsError.

    >>> weighted("s", {"one": ["a", "b"], "all": {"one": 1, "c": 3}}, ["a", "b", "c"])
    {'one': {'a': 0.5, 'b': 0.5}, 'all': {'a': 0.125, 'b': 0.125, 'c': 0.75}}
    """
    if not isinstance(scores, dict):
        raise SettingsError(f"Suite '{suite}': 'scores' must map names to families' weights.")
    found: dict[str, dict[str, float]] = {}
    for name, parts in scores.items():
        known = dict.fromkeys(parts, 1) if isinstance(parts, list) else parts
        if not isinstance(known, dict) or not known or not all(map(_is_weight, known.values())):
            raise SettingsError(
                f"Suite '{suite}': score '{name}' must list families, or map them to weights above "
                f"0."
            )
        made = dict[str, float]()
        for part, weight in known.items():
            if part not in (*families, *found):
                said = did_you_mean(str(part), (*families, *found))
                raise SettingsError(f"Suite '{suite}': score '{name}' weighs '{part}'. {said}")
            for family, share in found.get(part, {part: 1.0}).items():
                made[family] = made.get(family, 0.0) + share * weight / sum(known.values())
        found[str(name)] = made
    return found


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
            f"docs/suites.md."
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
