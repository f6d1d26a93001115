"""Define the command of this wing: parse its flags, and call what does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from needlemap.commands.arguments import Metric, option
from needlemap.commands.command import MAP, Command
from needlemap.interop.flags import DatasetLength


def _import(
    files: Annotated[
        list[Path], typer.Argument(metavar="FOLDER|FILE", help="Results of another tool.")
    ],
    out: Annotated[
        Path, option("Folder for the run, or for several runs.", "-o", "--out", metavar="DIR")
    ],
    model: Annotated[
        str, option("Name of the model, if the files do not name it.", metavar="BACKEND/NAME")
    ] = "",
    scale: Annotated[
        str,
        option("Lowest and highest score, if the files do not show it.", metavar="LOWEST:HIGHEST"),
    ] = "",
    tokenizer: Annotated[
        str, option("Tokenizer that lengths were counted with, to be shown.", metavar="NAME")
    ] = "",
    dataset_length: DatasetLength = "",
    metric: Metric = "",
) -> int:
    """Turn results of other tools into runs.

    It reads those of needlehaystack, OpenCompass, Inspect and lm-evaluation-harness.

    \b
    Examples:
      needlemap import summary.csv -o published
      needlemap import results -o imported
      needlemap import results --scale 1:10 -o scaled
    """
    from needlemap.interop.import_command import import_command
    from needlemap.interop.imported import ImportOptions
    from needlemap.interop.result_row import parsed_scale

    options = ImportOptions(
        model=model,
        scale=parsed_scale(scale) if scale else None,
        tokenizer=tokenizer,
        dataset_length=dataset_length,
        metric=metric,
    )
    return import_command(files, out, options=options)


import_ = Command(_import, group=MAP)
