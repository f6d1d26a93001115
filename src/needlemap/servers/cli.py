"""Parse the commands of this wing and call them. What they do is in their packages."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from needlemap.commands.arguments import Preset, option
from needlemap.commands.command import COMPARE, TEST, Command, limited_by, refuse_strangers
from needlemap.deadline import limited_to
from needlemap.servers.flags import (
    OF_AB,
    OF_GATE,
    OF_SERVER,
    AbFlags,
    CheckFlags,
    StormFlags,
)
from needlemap.settings import marked, settings_of


def _check(typed: CheckFlags, **flags: Any) -> int:
    """Test a server for long-context bugs. It needs only an address.

    \b
    Examples:
      needlemap check --base-url http://127.0.0.1:8000/v1 --max-length 4k -o check
      needlemap check --base-url http://127.0.0.1:8000/v1 --minutes 10 --junit check.xml
      needlemap check --base-url http://127.0.0.1:8000/v1 --quick
    """
    from needlemap.asking.discovery import listed_model
    from needlemap.records.lock import hold_folder
    from needlemap.servers.check.asking import resumable_families
    from needlemap.servers.check.command import check_command

    refuse_strangers(typed.out, typed.trust_run, resumable_families(typed.out))
    # The folder is held before its seed is drawn, or read there.
    hold = hold_folder(None if typed.plan else typed.out)
    with limited_to(60 * (typed.minutes or 0), "--minutes"), hold:
        return check_command(typed, flags, listed_model(None, flags, command="check"))


def _storm(
    typed: StormFlags,
    folder: Annotated[
        Path | None,
        typer.Argument(help="With --shrink: a storm that found a fault.", metavar="FOLDER"),
    ] = None,
    **flags: Any,
) -> int:
    """Test a server for bugs in multi-turn use. Turns, forks, rewinds, cancels, floods, bursts.

    \b
    Examples:
      needlemap storm --base-url http://127.0.0.1:8000/v1 --max-length 4k -o storm
      needlemap storm --base-url http://127.0.0.1:8000/v1 --minutes 10 --until 'rate<5%'
      needlemap storm --base-url http://127.0.0.1:8000/v1 --plan
    """
    from needlemap.asking.discovery import listed_model
    from needlemap.records.lock import hold_folder
    from needlemap.servers.storm.command import shrink_command, storm_command
    from needlemap.servers.storm.storm import ALL_FAMILIES

    if folder is not None or typed.shrink:
        with limited_to(60 * typed.minutes, "--minutes"):
            return shrink_command(folder, typed, flags)
    refuse_strangers(typed.out, typed.trust_run, ALL_FAMILIES)
    # The folder is held before its seed is drawn, or read there.
    hold = hold_folder(None if typed.plan else typed.out)
    with limited_to(60 * typed.minutes, "--minutes"), hold:
        return storm_command(typed, flags, listed_model(None, flags, command="storm"))


def _ab(typed: AbFlags, preset: Preset = None, **flags: Any) -> int:
    """A/B-test two servers or models. Both get the same prompts, in random order.

    \b
    Examples:
      needlemap ab --arm old=http://127.0.0.1:8000/v1 --arm new=http://127.0.0.1:8001/v1 \\
        --until decided -o ab
      needlemap ab --arm a=openai/gpt-4o --arm b=openai/gpt-4o-mini --lengths 1k,4k --margin 10
      needlemap ab --arm old=http://127.0.0.1:8000/v1 --arm new=http://127.0.0.1:8001/v1 --plan
    """
    from needlemap.asking.chosen import models_to_ask
    from needlemap.servers.ab.command import LONG_AB, ab_command

    preset_or_default = preset or LONG_AB
    settle = partial(models_to_ask, trusted=typed.trust_run)
    plain = None if preset else partial(settle, None)
    with limited_by(preset_or_default, flags):
        return ab_command(typed, flags, partial(settle, preset_or_default), plain)


def _gauge(
    out: Annotated[Path, option("Folder for the checkpoint.", "-o", "--out", metavar="DIR")],
    gguf: Annotated[
        bool, option("Also write a .gguf file, which llama.cpp loads.", "--gguf")
    ] = False,
    like: Annotated[
        str,
        option(
            "Write a twin instead: a tiny random model of this architecture (qwen3-next), "
            "config.json, folder or hub model.",
            "--like",
            metavar="NAME|PATH",
        ),
    ] = "",
    shape: Annotated[
        str,
        option(
            "Same answers by other code of the engine: padded, mistral, qwen2, phi3, windows, "
            "experts, unequal-experts, qwen3.",
            "--shape",
            metavar="NAME",
        ),
    ] = "llama",
) -> None:
    """Write a small model that finds every needle. If one is lost, the engine lost it.

    \b
    Examples:
      needlemap gauge -o gauge --gguf
      needlemap gauge -o qwen2 --shape qwen2
      needlemap gauge --like gemma3 -o twin
    """
    from needlemap.servers.gauge.command import gauge_command, twin_command

    if like:
        twin_command(like, out, gguf)
    else:
        gauge_command(out, shape, gguf=gguf)


def _export(
    what: Annotated[Literal["gate"], typer.Argument(help="What to write: gate.", metavar="WHAT")],
    file: Annotated[
        Path, typer.Argument(help="File to write, e.g. long_context_gate.py.", metavar="FILE")
    ],
    fail_under: Annotated[
        float, option("PASS if the mean's 95 % interval reaches this.", metavar="PERCENT")
    ] = 90,
    **flags: Any,
) -> None:
    """Write a test of a server as one file. It needs Python, and no package.

    \b
    Examples:
      needlemap export gate long_context_gate.py
      needlemap export gate gate.py --lengths 4k,32k --repeats 10 --fail-under 95
    """
    from needlemap.servers.gate.export import USUAL, export_gate
    from needlemap.settings.reading import configure

    assert what == "gate"
    export_gate(file, configure(given={**USUAL, **flags}), fail_under)


_MODEL_SETTINGS = (*settings_of("Model"), *marked("check"))
_AB_SETTINGS = (*settings_of("Model"), *marked("check", "ab"))
check = Command(_check, group=TEST, settings=_MODEL_SETTINGS, shown=OF_SERVER)
storm = Command(_storm, group=TEST, settings=_MODEL_SETTINGS, shown=OF_SERVER)
gauge = Command(_gauge, group=TEST)
ab = Command(_ab, group=COMPARE, settings=_AB_SETTINGS, shown=OF_AB)
export = Command(
    _export,
    group=COMPARE,
    settings=("lengths", "depths", "repeats", "max_answer_tokens"),
    shown=OF_GATE,
)
