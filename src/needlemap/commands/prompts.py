"""`needlemap prompts`: every prompt as JSON Lines, for people who ask their models themselves."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from needlemap.commands.settle import settle, tell_notes
from needlemap.files import refuse_link
from needlemap.plan.order import ordered
from needlemap.settings.grid import percent
from needlemap.text.printable import show, show_data
from needlemap.trials.build import prepare
from needlemap.trials.repeat import Trial


def prompts_command(preset: str | None, out: Path | None, flags: Mapping[str, Any]) -> None:
    """Write all prompts in the order a run would ask them."""
    settings = settle(preset, flags)
    experiment = prepare(settings)
    tell_notes(experiment)
    trials = ordered(experiment.trials, settings.mode)
    if out is None:
        _write(show_data, trials)
        return
    refuse_link(out)
    with out.open("w", encoding="utf-8") as file:
        _write(file.write, trials)
    show(f"{len(trials)} prompts, {experiment.tokens_asked:,} tokens: {out}", file=sys.stderr)


def _write(write: Callable[[str], object], trials: list[Trial]) -> None:
    for trial in trials:
        write(json.dumps(prompt_line(trial), ensure_ascii=False) + "\n")


def prompt_line(trial: Trial) -> dict[str, Any]:
    """One prompt with what scoring its answer needs. Depths in percent."""
    prompt, reference = trial.prompt, trial.item.reference
    messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
    return {
        "key": trial.key,
        "length": trial.cell.length_tokens,
        "depth": percent(trial.cell.depth),
        "repeat": trial.repeat,
        "tokens": prompt.tokens,
        "needles": [{"meant": percent(n.meant), "realised": percent(n.realised)} for n in prompt.needles],
        **({"messages": messages} if prompt.chat else {"prompt": prompt.messages[0].content}),
        "question": reference.question,
        "reference": reference.answer,
        "keywords": list(reference.keywords),
        **({"decoys": list(reference.decoys)} if reference.decoys else {}),
        **({"choices": list(reference.choices)} if reference.choices else {}),
        **({"none": reference.none} if reference.none else {}),
        **({"like": reference.like} if reference.like else {}),
        **({"owners": list(reference.owners)} if reference.owners else {}),
        "sha256": prompt.sha256,
    }
