"""`needlemap plan` and `prompts`: what a run would ask and cost.

Nothing is asked here. Prompts are JSON Lines, for people who ask their models themselves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from needlemap.commands.announce import show_json, tell_notes, tell_rules
from needlemap.commands.arguments import PlanFlags
from needlemap.files import refuse_link
from needlemap.grid import percent
from needlemap.plan import ordered
from needlemap.plan.summary import Shape, Terms
from needlemap.reports.plan_report import plan_report
from needlemap.reports.renderers.json import to_json
from needlemap.reports.renderers.text import show_report
from needlemap.settings.suites import Chosen, only_model
from needlemap.text import show_data, tell
from needlemap.trials import Trial
from needlemap.trials.build import prepare

_SOMETIMES = ("decoys", "choices", "none", "like", "owners")  # what only some references have


def plan_command(each: Mapping[str, Chosen], typed: PlanFlags) -> None:
    """Print the plan of each model, and of several their sum."""
    shape = Shape.of_config(typed.model_config) if typed.model_config else None
    terms = Terms(
        typed.workers, typed.tokens_per_second, shape, typed.cache_tokens, typed.cache_block
    )
    report = plan_report(each, terms)
    if typed.json:
        show_json(to_json(report))
    else:
        show_report(report)


def prompts_command(each: Mapping[str, Chosen], out: Path | None) -> None:
    """Write all prompts, family by family in the order a run would ask them."""
    chosen = only_model(each)
    tell_rules(chosen)
    if out is None:
        _write(show_data, chosen)
        return
    refuse_link(out)
    with out.open("w", encoding="utf-8") as file:
        count, tokens = _write(file.write, chosen)
    families = f" of {len(chosen.families)} families" if chosen.suite else ""
    tell(f"{count:,} prompts{families}, {tokens:,} tokens: {out}")


def _write(write: Callable[[str], object], chosen: Chosen) -> tuple[int, int]:
    """How many prompts and tokens were written; of several families each line says which."""
    count, tokens, told = 0, 0, set[str]()
    for name, settings in chosen.families.items():
        experiment, family = prepare(settings), {"family": name} if name else {}
        tell_notes(experiment, told)
        for trial in ordered(experiment.trials, settings.mode):
            write(json.dumps({**family, **prompt_line(trial)}, ensure_ascii=False) + "\n")
        count += len(experiment.trials)
        tokens += sum(trial.prompt.tokens for trial in experiment.trials)
    return count, tokens


def prompt_line(trial: Trial) -> dict[str, Any]:
    """One prompt with what scoring its answer needs. Depths in percent."""
    prompt, reference = trial.prompt, trial.item.reference
    messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
    also = [{"depth": percent(cell.depth), "repeat": repeat} for repeat, cell in trial.also]
    return {
        "key": trial.key,
        "length": trial.cell.length_tokens,
        "depth": percent(trial.cell.depth),
        "repeat": trial.repeat,
        **({"also": also} if also else {}),
        "tokens": prompt.tokens,
        "needles": [
            {"meant": percent(n.meant), "realised": percent(n.realised)} for n in prompt.needles
        ],
        **({"messages": messages} if prompt.chat else {"prompt": prompt.messages[0].content}),
        "question": reference.question,
        "reference": reference.answer,
        "keywords": list(reference.keywords),
        **{name: value for name in _SOMETIMES if (value := getattr(reference, name))},
        "sha256": prompt.sha256,
    }
