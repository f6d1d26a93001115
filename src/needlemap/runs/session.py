"""A run from start to end: prepare, look what is done already, ask the rest, keep everything.

The same call again resumes: trials that were scored are not asked twice, those that failed are asked again.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from needlemap import __version__
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.maps.map import Map, make_map
from needlemap.models.base import Model
from needlemap.money import Prices
from needlemap.plan.order import ordered
from needlemap.registry import find
from needlemap.runs.budget import Budget
from needlemap.runs.record import SCHEMA, Record
from needlemap.runs.runner import Outcome, Runner, Watcher
from needlemap.runs.store import RunFolder, Writer
from needlemap.scorers.base import Connected
from needlemap.settings import Settings
from needlemap.trials import Experiment, Trial

# Settings that may differ when a run is resumed: none of them changes an answer that is already there.
FREE = {
    *("concurrency", "retries", "timeout_s", "pause_s", "limit_usd", "limit_tokens", "prices", "save"),
    *(
        "save_contexts",
        "quiet",
        "lengths",
        "depths",
        "repeats",
        "first_repeat",
        "sigmoid_ends",
        "depth_rounding",
    ),
    *("collisions", "haystack_repeat"),
}
_PACKAGES = ("openai", "anthropic", "quicktok-v1", "tokenizers", "rapidfuzz", "numpy")


@dataclass(frozen=True, slots=True)
class Session:
    """An experiment and the folder that it fills. todo: trials to ask, in order; done: how many were scored."""

    experiment: Experiment
    folder: RunFolder
    todo: tuple[Trial, ...]
    done: int

    @classmethod
    def open(cls, experiment: Experiment, path: str | Path) -> Session:
        """Raises NeedlemapError when the folder holds another run."""
        folder = RunFolder(path)
        if folder.exists:
            check_same(folder, experiment)
        done = folder.done() if folder.exists else set()
        todo = [trial for trial in experiment.trials if trial.key not in done]
        return cls(
            experiment,
            folder,
            tuple(ordered(todo, experiment.settings.mode)),
            len(experiment.trials) - len(todo),
        )

    async def run(self, model: Model, watcher: Watcher) -> Outcome:
        """Ask what is left. Records are on the disk before the watcher hears of them. Closes the model."""
        settings = self.experiment.settings
        budget = Budget(settings.limit_usd, settings.limit_tokens)
        for record in self.folder.records():
            budget.add(record)
        scorer = self.experiment.scorer
        connected = scorer if isinstance(scorer, Connected) else None
        if connected:
            connected.open()
        writer = Writer(self.folder, about(self.experiment, self.folder))
        try:
            runner = Runner(model, scorer, settings, budget, writer, watcher)
            return await runner.run(self.todo)
        finally:
            await model.close()
            if connected:
                await connected.close()
            writer.close()


def make_model(settings: Settings) -> Model:
    """The back end that the settings name, bound to its model. Raises SettingsError."""
    options = dict(settings.model_options)
    if settings.base_url:
        options["base_url"] = settings.base_url
    if settings.limit_usd is not None and Prices.of(settings).usd(1000, 0, 1) is None:
        raise SettingsError(
            f"No price is known for '{settings.model}', so --limit-usd cannot hold. Give --prices input=USD "
            f"--prices output=USD (per million tokens), or use --limit-tokens."
        )
    made: Model = find("models", settings.backend)(settings.model_name, **options)
    return made


def about(experiment: Experiment, folder: RunFolder) -> dict[str, Any]:
    """What run.json holds: the resolved settings, versions, hashes, and how many trials each cell is to have."""
    before = folder.about() if folder.exists else {}
    expected = Counter((trial.cell.length_tokens, trial.cell.depth) for trial in experiment.trials)
    for length, depth, count in before.get("cells", []):
        expected[length, depth] = max(expected[length, depth], count)
    return {
        "schema": SCHEMA,
        "needlemap": __version__,
        "created": before.get("created") or datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "packages": dict(filter(lambda row: row[1], ((name, _version(name)) for name in _PACKAGES))),
        "settings": experiment.settings.model_dump(mode="json"),
        "tokenizer": {"name": experiment.tokenizer.name, "fingerprint": experiment.tokenizer.fingerprint},
        "scorer": {"name": experiment.scorer.name, "options": dict(experiment.scorer.options)},
        "haystacks": [{"name": name, "sha256": sha256} for name, sha256 in experiment.haystacks],
        "cells": [[length, depth, count] for (length, depth), count in sorted(expected.items())],
    }


def check_same(folder: RunFolder, experiment: Experiment) -> None:
    """Raises NeedlemapError when a folder's run asks something else: mixing two runs would make a false map."""
    theirs, ours = folder.about(), experiment.settings.model_dump(mode="json")
    differing = [
        name
        for name, value in theirs["settings"].items()
        if name not in FREE and name in ours and ours[name] != value
    ]
    if not differing and theirs["tokenizer"]["fingerprint"] != experiment.tokenizer.fingerprint:
        differing = ["tokenizer"]
    if differing:
        name = differing[0]
        was, now = theirs["settings"].get(name), ours.get(name)
        raise NeedlemapError(
            f"'{folder.path}' holds a run with other settings: {', '.join(differing)} ({name} was {was!r}, is "
            f"{now!r}). Give another folder with -o, or the settings of that run."
        )


def load_map(path: str | Path) -> Map:
    """The map of a run folder."""
    folder = RunFolder(path)
    return map_of(folder.about(), folder.records())


def map_of(about: Mapping[str, Any], records: Iterable[Record]) -> Map:
    """The map of records, with what run.json says about them."""
    settings = about["settings"]
    expected = {(length, depth): count for length, depth, count in about["cells"]}
    return make_map(
        records,
        expected,
        model=settings["model"],
        tokenizer=about["tokenizer"]["name"],
        task=settings["task"],
        scorer=about["scorer"]["name"],
        mode=settings["mode"],
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
