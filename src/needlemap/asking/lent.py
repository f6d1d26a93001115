"""Exactly the prompts of another run, for another model: `--prompts-of RUN`.

They are built from RUN's settings, and checked by the hashes in its records. Of RUN's folder run.json and the
records are read, once; what builds prompts is kept in the new run's own settings, which need RUN no more.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.maps.cube import place_of
from needlemap.records.families import check_origin
from needlemap.records.folder import RUN_FILE, RunFolder
from needlemap.settings.grid import percent
from needlemap.settings.reading import DEFAULT_ITEMS, checked
from needlemap.settings.settings import Lender, Settings, settings_of
from needlemap.settings.suites import Chosen
from needlemap.trials.build import Experiment
from needlemap.trials.keys import SCORING

# Settings that whoever asks another run's prompts says: no prompt hangs on them.
_ASKER = {*settings_of("Model"), *settings_of("Scoring"), *settings_of("Run")}.difference(
    ("tokenizer", "max_answer_tokens", "mode", "bin_tolerance", "seed")
)


def with_lent_prompts(chosen: Chosen, trusted: bool = False) -> Chosen:
    """A run with one family, with all that builds prompts as the named run has it. trusted: follow that run,
    though another machine began it. Several families are refused when they are prepared."""
    if chosen.suite:
        return chosen
    return replace(chosen, families={"": with_prompts_of(chosen.first, trusted)})


def with_prompts_of(settings: Settings, trusted: bool = False) -> Settings:
    """Settings with all that builds prompts as the named run has it.

    Raises NeedlemapError for a run that is not to be followed or read, SettingsError for settings that would
    make other prompts.
    """
    if not isinstance(settings.prompts_of, str) or not settings.prompts_of:
        return settings
    folder = Path(settings.prompts_of)
    check_origin(folder, trusted)
    about = RunFolder(folder).about()
    if "imported" in about:
        raise NeedlemapError(f"'{folder}' was imported: its prompts are not known, so none can be asked.")
    theirs = checked(about["settings"], str(folder / RUN_FILE))
    _refuse(settings, theirs)
    own = {name: getattr(settings, name) for name in _ASKER}
    if settings.scorer == "auto":
        own |= {name: getattr(theirs, name) for name in SCORING}
    named = {name: getattr(theirs, name) for name in Lender.model_fields if name != "run"}
    lender = theirs.prompts_of or Lender(run=str(folder), **named)
    return theirs.model_copy(update={**own, "prompts_of": lender})


def check_lent(experiment: Experiment) -> None:
    """Raises NeedlemapError where a prompt is not the one that the other run's record has the hash of.

    Nothing is checked where that run is gone: a run that was begun has keys of its own.
    """
    lender = experiment.settings.prompts_of
    folder = RunFolder(lender.run) if isinstance(lender, Lender) else None
    if folder is None or not folder.exists:
        return
    built = {
        (repeat, cell.length_tokens, cell.depth): trial.prompt.sha256
        for trial in experiment.trials
        for repeat, cell in trial.places
    }
    for record in folder.records():
        place = place_of(record)
        if record.prompt is not None and built.get(place, record.prompt.sha256) != record.prompt.sha256:
            raise NeedlemapError(
                f"The prompts of '{folder.path}' cannot be built again (first: length {place[1]}, depth "
                f"{percent(place[2]):g}, repeat {place[0]}): the haystack, needlemap or a library changed."
            )


def _refuse(settings: Settings, theirs: Settings) -> None:
    """Raises SettingsError for a setting that says otherwise than the run whose prompts are asked."""
    default = {name: field.default for name, field in Settings.model_fields.items()}
    item = DEFAULT_ITEMS[settings.language]
    for name in default:
        value = getattr(settings, name)
        known = (default[name], item.get(name), getattr(theirs, name))
        if name not in _ASKER and name != "prompts_of" and value not in known:
            raise SettingsError(
                f"--prompts-of asks prompts as they are, and their run has {name} {getattr(theirs, name)!r}. "
                f"Leave --{name.replace('_', '-')} out."
            )
