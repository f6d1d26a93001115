"""The command and the flags of this wing: parse, call. What they do is elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from needlemap.commands.arguments import Metric, option
from needlemap.interop.flags import DatasetLength


def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FOLDER|FILE...", help="Results of another tool.")
    ],
    out: Annotated[
        Path, option("The new run's folder; of several runs, the folder of these.", "-o", "--out")
    ],
    model: Annotated[str, option("The model's name, where files do not tell it.")] = "",
    scale: Annotated[str, option("LOWEST:HIGHEST score, where files do not show it.")] = "",
    tokenizer: Annotated[str, option("Whose tokens lengths count, to be shown.")] = "",
    dataset_length: DatasetLength = "",
    metric: Metric = "",
) -> int:
    """Turn results of other tools into runs. needlehaystack, OpenCompass, Inspect,
    lm-evaluation-harness.

    \b
    Examples:
      needlemap import summary.csv -o published
      needlemap import results -o imported
      needlemap import results --scale 1:10 -o scaled
    """
    from needlemap.interop.import_command import import_command
    from needlemap.interop.imported import ImportOptions
    from needlemap.interop.result_row import parsed_scale

    share = parsed_scale(scale) if scale else None
    options = ImportOptions(model, share, tokenizer, dataset_length, metric)
    return import_command(files, out, options)
