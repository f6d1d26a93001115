"""Run `needlemap plan` and `needlemap prompts`: show what a run would send and cost.

No request is sent here. Prompts are JSON Lines, for people who send them to a model themselves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from needlemap.commands.announce import tell_notes, tell_rules
from needlemap.commands.arguments import PlanFlags
from needlemap.files import refuse_link
from needlemap.grid import percent
from needlemap.plan import ordered
from needlemap.plan.summary import Shape, Terms
from needlemap.reports.plan_report import plan_report
from needlemap.reports.renderers.json import to_json
from needlemap.reports.renderers.text import show_report
from needlemap.settings.suites import Chosen, only_model
from needlemap.text import show_data, show_json, tell
from needlemap.trials import Trial
from needlemap.trials.build import prepare

# Fields that only some references have.
_OPTIONAL_FIELDS = ("decoys", "choices", "none", "like", "owners")


def plan_command(chosen_by_model: Mapping[str, Chosen], typed: PlanFlags) -> None:
    """Print the plan of each model, and the sum of several."""
    shape = Shape.of_config(typed.model_config) if typed.model_config else None
    terms = Terms(
        typed.workers,
        typed.tokens_per_second,
        shape=shape,
        cache_tokens=typed.cache_tokens,
        cache_block=typed.cache_block,
    )
    report = plan_report(chosen_by_model, terms)
    if typed.json:
        show_json(to_json(report))
    else:
        show_report(report)


def prompts_command(chosen_by_model: Mapping[str, Chosen], out: Path | None) -> None:
    """Write all prompts, family by family in the order in which a run would send them."""
    chosen = only_model(chosen_by_model)
    tell_rules(chosen)
    if out is None:
        _write(show_data, chosen)
        return

    refuse_link(out)
    with out.open("w", encoding="utf-8") as file:
        prompts, tokens = _write(file.write, chosen)
    families = f" of {len(chosen.families)} families" if chosen.suite else ""
    tell(f"{prompts:,} prompts{families}, {tokens:,} tokens: {out}")


def _write(write: Callable[[str], object], chosen: Chosen) -> tuple[int, int]:
    """Write prompts, and return how many there are and how many tokens they have.

    If there are several families, each line names its own.
    """
    prompts = 0
    tokens = 0
    printed_notes = set[str]()
    for name, settings in chosen.families.items():
        experiment = prepare(settings)
        tell_notes(experiment, printed_notes)
        for trial in ordered(experiment.trials, settings.mode):
            fields = prompt_line(trial)
            if name:
                fields = {"family": name, **fields}
            write(json.dumps(fields, ensure_ascii=False) + "\n")
        prompts += len(experiment.trials)
        tokens += sum(trial.prompt.tokens for trial in experiment.trials)
    return prompts, tokens


def prompt_line(trial: Trial) -> dict[str, Any]:
    """Return a prompt with the fields that scoring its answer needs. Depths are in percent."""
    prompt = trial.prompt
    reference = trial.item.reference
    fields: dict[str, Any] = {
        "key": trial.key,
        "length": trial.cell.length_tokens,
        "depth": percent(trial.cell.depth),
        "repeat": trial.repeat,
    }
    other_places = [{"depth": percent(cell.depth), "repeat": repeat} for repeat, cell in trial.also]
    if other_places:
        fields["also"] = other_places
    fields["tokens"] = prompt.tokens
    fields["needles"] = [
        {"meant": percent(needle.meant), "realised": percent(needle.realised)}
        for needle in prompt.needles
    ]
    if prompt.chat:
        fields["messages"] = [
            {"role": message.role, "content": message.content} for message in prompt.messages
        ]
    else:
        fields["prompt"] = prompt.messages[0].content
    fields["question"] = reference.question
    fields["reference"] = reference.answer
    fields["keywords"] = list(reference.keywords)
    for name in _OPTIONAL_FIELDS:
        value = getattr(reference, name)
        if value:
            fields[name] = value
    fields["sha256"] = prompt.sha256
    return fields
