"""The commands of this wing: parse, call. What a command does is elsewhere."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from needlemap.commands.arguments import Preset, option
from needlemap.commands.command import Command, limited_by, refuse_strangers
from needlemap.deadline import limited_to
from needlemap.servers.flags import (
    AB_TEXTS,
    CHECK_TEXTS,
    GATE_TEXTS,
    AbFlags,
    CheckFlags,
    StormFlags,
)
from needlemap.settings import marked, settings_of


def _check(typed: CheckFlags, **flags: Any) -> int:
    """Try whether a server computes long prompts right. It needs no reference and no settings.

    \b
    Examples:
      needlemap check --base-url http://127.0.0.1:8000/v1 --max-length 4k -o check
      needlemap check --base-url http://127.0.0.1:8000/v1 --minutes 10 --junit check.xml
      needlemap check --base-url http://127.0.0.1:8000/v1 --plan
    """
    from needlemap.asking.discovery import listed_model
    from needlemap.records.lock import hold_folder
    from needlemap.servers.check.asking import begun_in
    from needlemap.servers.check.command import check_command

    refuse_strangers(typed.out, typed.trust_run, begun_in(typed.out))
    held = hold_folder(None if typed.plan else typed.out)  # its seed is drawn, or read there
    with limited_to(60 * (typed.minutes or 0), "--minutes"), held:
        return check_command(typed, flags | listed_model(None, flags, command="check"))


def _storm(
    typed: StormFlags,
    folder: Annotated[
        Path | None, typer.Argument(help="With --shrink: the folder of a storm that found one.")
    ] = None,
    **flags: Any,
) -> int:
    """Try whether a server is right under use. Turns, forks, rewinds, cancels, floods, bursts.

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
    held = hold_folder(None if typed.plan else typed.out)  # its seed is drawn, or read there
    with limited_to(60 * typed.minutes, "--minutes"), held:
        return storm_command(typed, flags | listed_model(None, flags, command="storm"))


def _ab(typed: AbFlags, preset: Preset = None, **flags: Any) -> int:
    """Tell whether a changed engine is no worse. Two arms get the same prompts, until a verdict.

    \b
    Examples:
      needlemap ab --arm old=http://127.0.0.1:8000/v1 --arm new=http://127.0.0.1:8001/v1 \\
        --tokenizer qwen3 --until decided -o ab
      needlemap ab --arm a=openai/gpt-4o --arm b=openai/gpt-4o-mini --lengths 1k,4k --margin 10
      needlemap ab --arm old=http://127.0.0.1:8000/v1 --arm new=http://127.0.0.1:8001/v1 \\
        --tokenizer qwen3 --plan
    """
    from needlemap.asking.chosen import models_to_ask
    from needlemap.servers.ab.command import LONG_AB, ab_command

    named = preset or LONG_AB
    settle = partial(models_to_ask, trusted=typed.trust_run)
    plain = None if preset else partial(settle, None)
    with limited_by(named, flags):
        return ab_command(typed, flags, partial(settle, named), plain)


def gauge(
    out: Annotated[Path, option("The folder for the checkpoint.", "-o", "--out")],
    gguf: Annotated[
        bool, option("Also write a .gguf file, which llama.cpp loads.", "--gguf")
    ] = False,
    like: Annotated[
        str,
        option(
            "A twin instead: a tiny random model of this architecture (qwen3-next), config.json, "
            "folder or hub model.",
            "--like",
        ),
    ] = "",
) -> None:
    """Write a small model that finds every needle. If one is lost, the engine lost it.

    \b
    Examples:
      needlemap gauge -o gauge
      needlemap gauge -o gauge --gguf
      needlemap gauge --like gemma3 -o twin
    """
    from needlemap.servers.gauge.command import gauge_command, twin_command

    if like:
        twin_command(like, out, gguf)
    else:
        gauge_command(out, gguf)


def _export(
    what: Annotated[Literal["gate"], typer.Argument(help="What to write.")],
    file: Annotated[Path, typer.Argument(help="The file to write, e.g. long_context_gate.py.")],
    fail_under: Annotated[
        float, option("The least mean: PASS if its 95 % interval reaches it.", metavar="PERCENT")
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
check = Command(_check, settings=_MODEL_SETTINGS, texts=CHECK_TEXTS)
storm = Command(_storm, settings=_MODEL_SETTINGS, texts=CHECK_TEXTS)
ab = Command(_ab, settings=_AB_SETTINGS, texts=AB_TEXTS)
export = Command(
    _export, settings=("lengths", "depths", "repeats", "max_answer_tokens"), texts=GATE_TEXTS
)
