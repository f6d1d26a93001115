"""What the workers of a launch may spend together: the run's limits, or those of the suite that it is of."""

from __future__ import annotations

from pathlib import Path

from needlemap.runs.budget import Budget
from needlemap.runs.families import budget_beside
from needlemap.runs.launch_file import read_launch
from needlemap.runs.presence import began_s
from needlemap.settings.settings import Settings


def launched_budget(run: Path, folder: Path, settings: Settings) -> Budget:
    """The limits, with what a suite's other families spent, and how long they were asked, counted; what the
    run itself spent is not yet. folder: of the launch, whose time begins with its first worker."""
    file = read_launch(run)
    families, ran_s = (file.families, file.ran_s) if file else ((), 0.0)
    others = [run.parent / family for family in families if family != run.name]
    return budget_beside(settings, others, began_s(folder) - ran_s)
