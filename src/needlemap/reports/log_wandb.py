"""A run in Weights & Biases. Needs wandb (extra), which sends to where its user is logged in, or keeps it for
later (WANDB_MODE=offline). Told is what `Logged` holds: no host, no program, no code, no Git state.
"""

from __future__ import annotations

import io
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from needlemap.errors import NeedlemapError
from needlemap.reports.logged import Logged

_ENVIRONMENT = {"WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}  # read when wandb is imported
_NOT_TOLD: dict[str, Any] = {  # what wandb would send beside what it is given
    "console": "off",
    "disable_code": True,
    "disable_git": True,
    "host": "",
    "x_disable_machine_info": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
}


def log_wandb(runs: Sequence[Logged], project: str, step: int) -> list[str]:
    """Log each as a new run of PROJECT or ENTITY/PROJECT; their addresses, or what to type to send them.

    Raises NeedlemapError when wandb is not installed, nobody is logged in, or the project is refused.
    """
    for variable, value in _ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    try:
        import PIL.Image
        import wandb
    except ImportError:
        raise NeedlemapError("--log wandb needs wandb. Run: pip install 'needlemap[wandb]'") from None
    try:
        return [_log(wandb, PIL.Image, run, project, step) for run in runs]
    except wandb.Error as error:
        said = " ".join(str(error).split())
        raise NeedlemapError(
            f"Weights & Biases: {said} To keep runs on this machine instead, set WANDB_MODE=offline."
        ) from None


def _log(wandb: Any, image: Any, run: Logged, project: str, step: int) -> str:
    entity, _, name = project.rpartition("/")
    session = wandb.init(
        project=name,
        entity=entity or None,
        name=run.name,
        job_type="needlemap",
        config={**run.config, "step": step},
        settings=wandb.Settings(**_NOT_TOLD),
        reinit="create_new",  # several runs of one command are runs there too
    )
    figure = wandb.Image(image.open(io.BytesIO(run.figure)))
    columns = [column.name for column in run.cells.columns]
    cells = wandb.Table(columns=columns, data=[list(row) for row in run.cells.rows], allow_mixed_types=True)
    session.log({**run.scalars, "map": figure, "cells": cells}, step=step)
    session.finish()
    if session.offline:
        return f"wandb sync {shlex.quote(os.path.relpath(Path(session.dir).parent))}"
    return str(session.url)
