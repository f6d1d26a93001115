"""The flags of `needlemap run` that say who asks, and where; together they are one `Fleet`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from needlemap.runs.fleet import Fleet

GROUP = "Workers"  # where --help shows them


def fleet_of(
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Processes on this machine, one a GPU where there are any.", rich_help_panel=GROUP
        ),
    ] = None,
    slurm: Annotated[
        bool, typer.Option("--slurm", help="Workers as one job array of Slurm.", rich_help_panel=GROUP)
    ] = False,
    partition: Annotated[
        str | None, typer.Option("-p", "--partition", help="Slurm's partition.", rich_help_panel=GROUP)
    ] = None,
    qos: Annotated[
        str | None,
        typer.Option("-q", "--qos", help="Slurm's QOS; auto: the site's choice.", rich_help_panel=GROUP),
    ] = None,
    max_num_workers: Annotated[
        int | None,
        typer.Option(min=1, help="Slurm: jobs at a time, at most (default 32).", rich_help_panel=GROUP),
    ] = None,
    gpus_per_worker: Annotated[
        int | None,
        typer.Option(
            min=0, help="GPUs of each (default: 1 here; none asked of Slurm).", rich_help_panel=GROUP
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            help="Slurm's time limit, as 4:00:00 (default: the partition's).", rich_help_panel=GROUP
        ),
    ] = None,
    slurm_arg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Any further option of sbatch; repeat.", rich_help_panel=GROUP
        ),
    ] = None,
    retry: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="New workers for each that ended having done nothing (default 2).",
            rich_help_panel=GROUP,
        ),
    ] = None,
    attach: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Look after the workers of a run, or of a suite, again.",
            rich_help_panel=GROUP,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print what would start the workers, and start nothing.",
            rich_help_panel=GROUP,
        ),
    ] = False,
) -> Fleet:
    """What the flags come to: the parameters are the flags."""
    return Fleet(
        *(workers, slurm, partition, qos, max_num_workers, gpus_per_worker, time),
        *(tuple(slurm_arg or ()), retry, attach, dry_run),
    )


def with_fleet(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter `fleet` becomes these flags."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    made = inspect.signature(fleet_of, eval_str=True).parameters

    def run(**values: Any) -> None:
        command(fleet=fleet_of(**{name: values.pop(name) for name in made}), **values)

    positional = [parameter for parameter in own if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    rest = [parameter for parameter in own if parameter.kind is parameter.VAR_KEYWORD]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature([*positional, *made.values(), *rest])  # type: ignore[attr-defined]
    return run
