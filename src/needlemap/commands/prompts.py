"""`needlemap prompts`: every prompt as JSON Lines, for people who ask their models themselves."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from needlemap.commands.announce import tell_notes, tell_rules
from needlemap.files import refuse_link
from needlemap.plan.order import ordered
from needlemap.settings.grid import percent
from needlemap.settings.suites import Chosen
from needlemap.text.printable import show, show_data
from needlemap.trials.build import prepare
from needlemap.trials.repeat import Trial


def prompts_command(chosen: Chosen, out: Path | None) -> None:
    """Write all prompts, family by family in the order a run would ask them."""
    tell_rules(chosen)
    if out is None:
        _write(show_data, chosen)
        return
    refuse_link(out)
    with out.open("w", encoding="utf-8") as file:
        count, tokens = _write(file.write, chosen)
    families = f" of {len(chosen.families)} families" if chosen.suite else ""
    show(f"{count:,} prompts{families}, {tokens:,} tokens: {out}", file=sys.stderr)


def _write(write: Callable[[str], object], chosen: Chosen) -> tuple[int, int]:
    """How many prompts and tokens were written; of several families each line says which."""
    count, tokens, told = 0, 0, set[str]()
    for name, settings in chosen.families.items():
        experiment, family = prepare(settings), {"family": name} if name else {}
        tell_notes(experiment, told)
        for trial in ordered(experiment.trials, settings.mode):
            write(json.dumps({**family, **prompt_line(trial)}, ensure_ascii=False) + "\n")
        count, tokens = count + len(experiment.trials), tokens + experiment.tokens_asked
    return count, tokens


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
