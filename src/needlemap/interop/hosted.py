"""A family in another harness (Inspect, lm-evaluation-harness): its prompts, the right
answers, and our scores.

The harness asks and keeps; a sample is a recipe, and its prompt is built again when it is
asked: the bytes that `needlemap prompts` writes for the same settings. Lengths count the
tokens of TOKENIZER unless the settings name another, or the address of the server: a harness
does not say whose model it asks.

`python -m needlemap.interop.hosted FOLDER` writes a task file for each family, by which
lm-evaluation-harness finds it (`--include_path`), and prints the folder.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from needlemap.asking.discovery import listed_model
from needlemap.asking.recording import whole_answer
from needlemap.asking.retry import bounded
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.files import write_report
from needlemap.grid import percent
from needlemap.http.compatible import served
from needlemap.models.decoding import up_to_stop
from needlemap.registry import installed
from needlemap.scorers import Score
from needlemap.settings import Settings
from needlemap.settings.older_names import value_of
from needlemap.settings.suites import choose
from needlemap.text import show
from needlemap.trials import Trial
from needlemap.trials.build import prepare
from needlemap.version import __version__

TOKENIZER = "o200k_base"
PRESET = "preset"  # the family whose settings are those of a preset: -T name=latent-hard
PREFIX = "needlemap_"  # of the families' names in lm-evaluation-harness
_TASK_FILE = "task: {}\nclass: !function needlemap.interop.lm_eval_tasks.Family\n"
_TAG = "tag: needlemap\n"  # of all that need no more than their names
_NEEDED = ("multi", "published")  # tasks that say nothing without texts of the user's
_TEXT = {"api": "completions"}  # what makes a prompt one plain text


@dataclass(frozen=True, slots=True)
class Hosted:
    """trials: by the id of a sample. given: what the user set, as it was typed."""

    given: Mapping[str, Any]
    settings: Settings
    trials: Mapping[str, Trial]
    scorer: Any

    def recipe(self, id: str) -> dict[str, Any]:
        """What a log keeps of a sample, instead of its prompt: what builds it again, and its
        hash."""
        trial = self.trials[id]
        return {
            "needlemap": __version__,
            "task": self.settings.task,
            "settings": dict(self.given),
            "length_tokens": trial.cell.length_tokens,
            "depth": trial.cell.depth,
            "repeat": trial.repeat,
            "prompt_tokens": trial.prompt.tokens,
            "prompt_sha256": trial.prompt.sha256,
        }

    def messages(self, id: str) -> list[tuple[str, str]]:
        """Roles and texts of a sample's prompt."""
        return [(message.role, message.content) for message in self.trials[id].prompt.messages]

    def shown(self, id: str) -> str:
        """What a log shows as a sample's input: its place and its question."""
        trial = self.trials[id]
        place = f"{trial.cell.length_tokens} tokens, depth {percent(trial.cell.depth):g} %"
        return f"[{place}, repeat {trial.repeat}] {trial.item.question}"

    async def score(self, id: str, said: str) -> Score:
        """Our score of what a model said to a sample's prompt."""
        trial = self.trials[id]
        answer = whole_answer(trial.prompt.answer_prefix, up_to_stop(said, trial.prompt.stops))
        score: Score = await self.scorer.score(bounded(answer), trial.item.reference)
        return score


def hosted_tasks() -> list[str]:
    """The families' names: tasks that need no texts of one's own, and PRESET."""
    return [*(name for name in sorted(installed("tasks")) if name not in _NEEDED), PRESET]


def hosted(family: str, given: Mapping[str, Any], *, chat: bool = True) -> Hosted:
    """A family by its name, with any setting of a run. chat: messages, or one plain text. The
    same again is not built twice. Raises NeedlemapError for whatever the user can mend."""
    return _hosted(family, json.dumps(dict(given), sort_keys=True), chat)


@lru_cache(8)
def _hosted(family: str, given: str, chat: bool) -> Hosted:
    flags = {name: _typed(value) for name, value in json.loads(given).items()}
    preset = flags.pop("name", None) if family == PRESET else None
    if family == PRESET and not preset:
        raise SettingsError(
            "Family 'preset' takes the settings of one: name=latent-hard, for instance."
        )
    named = {} if preset else {"task": family}
    options = {} if chat else {"model_options": _TEXT}
    if "base_url" in flags:
        asked = flags | listed_model(None, flags)  # lengths are the tokens of the served model
    else:
        usual = {"model": served("hosted"), "tokenizer": TOKENIZER}
        asked = {name: value for name, value in usual.items() if value_of(flags, name) is None}
        asked |= flags
    chosen = choose(preset, {**options, **named, **asked})
    experiment = prepare(chosen.first, asked=False)
    if experiment.scorer.asks or experiment.scorer.passes:
        raise SettingsError(
            f"Scorer '{experiment.scorer.name}' asks a model, which another harness does not lend "
            f"it. Give "
            f"scorer=substring, or run it by needlemap run."
        )
    trials = {_id(trial): trial for trial in experiment.trials}
    return Hosted(json.loads(given), chosen.first, trials, experiment.scorer)


def _typed(value: Any) -> Any:
    """A setting as it is typed: harnesses split lists at their commas."""
    return ",".join(map(str, value)) if isinstance(value, list) else value


def _id(trial: Trial) -> str:
    """A sample's id: length, depth in percent, repeat.

    Trials of one place (`ask_twice`) are told apart.
    """
    place = f"{trial.cell.length_tokens}-{percent(trial.cell.depth):g}-{trial.repeat}"
    return f"{place}-again" if trial.second else place


def write_task_files(folder: Path) -> Path:
    """The folder, with a task file a family in it. Raises NeedlemapError."""
    for name in hosted_tasks():
        text = _TASK_FILE.format(PREFIX + name) + _TAG * (name != PRESET)
        write_report(folder / f"{PREFIX}{name}.yaml", text.encode())
    return folder


if __name__ == "__main__":
    try:
        show(str(write_task_files(Path(sys.argv[1]))))
    except (IndexError, OSError, NeedlemapError) as error:
        sys.exit(f"python -m needlemap.interop.hosted FOLDER: {error}")
