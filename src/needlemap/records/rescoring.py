"""What to type so that a run's answers are scored anew, and whether they should be."""

from __future__ import annotations

import json
import shlex
from contextlib import suppress
from typing import Any

from needlemap.records.run_file import RuledScorer, RunFile
from needlemap.registry import find
from needlemap.scorers import rule_of


def how_to_score(path: str, scorer: RuledScorer) -> str:
    """What to type so that a run's answers are scored by a scorer that run.json names.

    >>> recall = RuledScorer(name="recall", options={"rule": "ruler"})
    >>> how_to_score("my run", recall)
    "needlemap score 'my run' --scorer recall --scorer-options rule=ruler"
    >>> how_to_score("old", RuledScorer(name="keyword", options={}))
    'needlemap score old --scorer keyword --scorer-options rule=opencompass'
    """
    options = scorer.options
    usual: dict[str, Any] = {}
    with suppress(Exception):  # not installed, or a plug-in that wants options
        made = find("scorers", scorer.name)
        options = {**getattr(made, "unsaid", {}), **options}
        usual = dict(made().options)
    given = {name: value for name, value in options.items() if value != usual.get(name)}
    flags = [part for each in given.items() for part in ("--scorer-options", _typed(*each))]
    return shlex.join(["needlemap", "score", path, "--scorer", scorer.name, *flags])


def outdated(path: str, about: RunFile) -> list[str]:
    """A line, where a run's scores are by another rule of its scorer than a run of today would
    have."""
    scorer = about.scorer
    rule = scorer.rule
    with suppress(Exception):  # not installed, or a plug-in that cannot be imported
        rule = rule_of(find("scorers", scorer.name))
    if about.imported or rule == scorer.rule:
        return []
    return [
        f"scored by rule {scorer.rule} of scorer '{scorer.name}', which has rule {rule} now. To "
        f"score all its answers anew, which asks nothing: {how_to_score(path, scorer)}"
    ]


def _typed(name: str, value: Any) -> str:
    """An option as a flag takes it."""
    return f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
