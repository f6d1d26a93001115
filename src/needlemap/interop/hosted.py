"""Run a family in another harness (Inspect, lm-evaluation-harness), with our scores.

The harness sends the requests and keeps the answers. A sample is a recipe: its prompt is built
again when it is sent, with the bytes that `needlemap prompts` writes for the same settings. Lengths
count the tokens of TOKENIZER unless the settings name another one, or the address of the server,
because a harness does not report whose model it uses.

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

from needlemap.asking import decoding_of
from needlemap.asking.discovery import listed_model
from needlemap.asking.recording import whole_answer
from needlemap.asking.retry import bounded
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.files import write_report
from needlemap.grid import percent
from needlemap.http.compatible import served_model
from needlemap.models import Answer
from needlemap.models.decoding import up_to_stop
from needlemap.models.thinking import split_thinking
from needlemap.registry import installed
from needlemap.scorers import Score
from needlemap.settings import Settings
from needlemap.settings.older_names import setting_value
from needlemap.settings.suites import choose
from needlemap.text import show
from needlemap.trials import Trial
from needlemap.trials.build import prepare
from needlemap.version import __version__

TOKENIZER = "o200k_base"
# The family whose settings are those of a preset: -T name=latent-hard
PRESET = "preset"
# Names of families in lm-evaluation-harness start with this.
PREFIX = "needlemap_"
_TASK_FILE = "task: {}\nclass: !function needlemap.interop.lm_eval_tasks.Family\n"
# The tag of all families that run without settings.
_TAG = "tag: needlemap\n"
# These tasks need texts of the user's.
_NEEDED = ("multi", "published")
# Model options that make a prompt one plain text.
_TEXT = {"api": "completions"}


@dataclass(frozen=True, slots=True)
class Hosted:
    """A family whose prompts another harness sends.

    Attributes:
        given: The settings as the user typed them.
        settings: All settings.
        trials: Trials by the id of their sample.
        scorer: Scores the answers.
    """

    given: Mapping[str, Any]
    settings: Settings
    trials: Mapping[str, Trial]
    scorer: Any

    def recipe(self, id: str) -> dict[str, Any]:
        """Return what a log keeps of a sample: the recipe of its prompt, and the prompt's hash."""
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
        """Return roles and texts of a sample's prompt."""
        return [(message.role, message.content) for message in self.trials[id].prompt.messages]

    def sample_input(self, id: str) -> str:
        """Return what a log shows as a sample's input: its cell, repeat and question."""
        trial = self.trials[id]
        place = f"{trial.cell.length_tokens} tokens, depth {percent(trial.cell.depth):g} %"
        return f"[{place}, repeat {trial.repeat}] {trial.item.question}"

    async def score(self, id: str, response: Answer) -> Score:
        """Return our score of a model's response to a sample's prompt.

        Its thinking is not scored, as in a run.
        """
        trial = self.trials[id]
        answer = split_thinking(response, decoding_of(self.settings))
        ended_text = up_to_stop(answer.text, trial.prompt.stops)
        whole_text = whole_answer(trial.prompt.answer_prefix, ended_text)
        score: Score = await self.scorer.score(bounded(whole_text), trial.item.reference)
        return score


def hosted_tasks() -> list[str]:
    """Return the names of all families: tasks that need no texts of the user's, and PRESET."""
    tasks = [name for name in sorted(installed("tasks")) if name not in _NEEDED]
    return [*tasks, PRESET]


def hosted(family: str, given: Mapping[str, Any], *, chat: bool = True) -> Hosted:
    """Return a family by its name. Settings that were used before are not built again.

    given: any settings of a run. chat: True for messages, False for one plain text. Raises
    NeedlemapError for anything that the user can correct.
    """
    return _hosted(family, json.dumps(dict(given), sort_keys=True), chat=chat)


@lru_cache(8)
def _hosted(family: str, given: str, chat: bool) -> Hosted:
    """Return a family. given: its settings as JSON, so that they can be a key of the cache."""
    flags = {name: _flag_text(value) for name, value in json.loads(given).items()}
    preset = flags.pop("name", None) if family == PRESET else None
    if family == PRESET and not preset:
        raise SettingsError(
            "Family 'preset' takes the settings of one: name=latent-hard, for instance."
        )

    settings: dict[str, Any] = {}
    if not chat:
        settings["model_options"] = _TEXT
    if not preset:
        settings["task"] = family
    if "base_url" in flags:
        # Lengths count the tokens of the served model.
        settings |= flags | listed_model(None, flags)
    else:
        for name, value in (("model", served_model("hosted")), ("tokenizer", TOKENIZER)):
            if setting_value(flags, name) is None:
                settings[name] = value
        settings |= flags
    chosen = choose(preset, settings)
    experiment = prepare(chosen.first, asked=False)
    if experiment.scorer.asks or experiment.scorer.passes:
        raise SettingsError(
            f"Scorer '{experiment.scorer.name}' asks a model, which another harness does not lend "
            f"it. Give scorer=substring, or run it by needlemap run."
        )
    return Hosted(
        given=json.loads(given),
        settings=chosen.first,
        trials={_id(trial): trial for trial in experiment.trials},
        scorer=experiment.scorer,
    )


def _flag_text(value: Any) -> Any:
    """Return a setting as it was typed: harnesses split lists at their commas."""
    return ",".join(map(str, value)) if isinstance(value, list) else value


def _id(trial: Trial) -> str:
    """Return a sample's id: length, depth in percent, repeat.

    Of two trials of one cell and repeat (`ask_twice`) the second ends in '-again'.
    """
    place = f"{trial.cell.length_tokens}-{percent(trial.cell.depth):g}-{trial.repeat}"
    return f"{place}-again" if trial.second else place


def write_task_files(folder: Path) -> Path:
    """Write a task file for each family, and return the folder.

    Raises NeedlemapError if a file would be written through a link inside a run's folder.
    """
    for name in hosted_tasks():
        text = _TASK_FILE.format(PREFIX + name)
        # The family of a preset does not run without the preset's name.
        if name != PRESET:
            text += _TAG
        write_report(folder / f"{PREFIX}{name}.yaml", text.encode())
    return folder


if __name__ == "__main__":
    try:
        show(str(write_task_files(Path(sys.argv[1]))))
    except (IndexError, OSError, NeedlemapError) as error:
        sys.exit(f"python -m needlemap.interop.hosted FOLDER: {error}")
