"""Every context as a text file, for people who want to read what was asked (setting save_contexts)."""

from __future__ import annotations

from pathlib import Path

from needlemap.files import make_inside, write_whole
from needlemap.runs.runner import Watcher
from needlemap.settings.grid import percent
from needlemap.trials.repeat import Trial


class SavingContexts(Watcher):
    """A watcher that writes contexts/len_L_depth_D_repeat_R.txt into a run's folder as prompts go out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "contexts"

    def asked(self, trial: Trial) -> None:
        """Write the context."""
        make_inside(self._folder)
        name = f"len_{trial.cell.length_tokens}_depth_{percent(trial.cell.depth):g}_repeat_{trial.repeat}.txt"
        write_whole(self._folder / name, trial.prompt.context_text.encode())
