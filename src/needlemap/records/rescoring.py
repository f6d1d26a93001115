"""Say whether a run's answers should be scored anew, and the command that does it."""

from __future__ import annotations

import json
import shlex
from contextlib import suppress
from typing import Any

from needlemap.records.run_file import RuledScorer, RunFile
from needlemap.registry import find
from needlemap.scorers import rule_of


def how_to_score(path: str, scorer: RuledScorer, now: RuledScorer | None = None) -> str:
    """Return the command that scores a run's answers with a scorer of a run.json.

    now: the run's own scorer, whose options the command keeps if it names the same scorer without
    any; None if it is `scorer`.

    >>> recall = RuledScorer(name="recall", options={"rule": "ruler"})
    >>> how_to_score("my run", recall)
    "needlemap score 'my run' --scorer recall --scorer-options rule=ruler"
    >>> how_to_score("old", RuledScorer(name="keyword", options={}))
    'needlemap score old --scorer keyword --scorer-options rule=opencompass'
    >>> how_to_score("r", RuledScorer(name="recall", options={"rule": "words"}), now=recall)
    'needlemap score r --scorer recall --scorer-options rule=words'
    """
    options = scorer.options
    defaults: dict[str, Any] = {}
    # A scorer may not be installed here, or may be a plug-in that cannot do without options.
    with suppress(Exception):
        kind = find("scorers", scorer.name)
        options = {**getattr(kind, "unsaid", {}), **options}
        defaults = dict(kind().options)
    typed = {name: value for name, value in options.items() if value != defaults.get(name)}
    if not typed and now is not None and now.name == scorer.name:
        # Any option that is typed replaces all that the run has.
        typed = {name: value for name, value in options.items() if value != now.options.get(name)}
    command = ["needlemap", "score", path, "--scorer", scorer.name]
    for name, value in typed.items():
        command += ["--scorer-options", _flag_value(name, value)]
    return shlex.join(command)


def outdated(path: str, about: RunFile) -> list[str]:
    """Return a note if a run's scores follow an earlier rule of its scorer, else none."""
    scorer = about.scorer
    rule = scorer.rule
    # A scorer may not be installed here, or may be a plug-in that cannot be imported.
    with suppress(Exception):
        rule = rule_of(find("scorers", scorer.name))
    if about.imported or rule == scorer.rule:
        return []
    return [
        f"scored by rule {scorer.rule} of scorer '{scorer.name}', which has rule {rule} now. To "
        f"score all its answers anew, which asks nothing: {how_to_score(path, scorer)}"
    ]


def _flag_value(name: str, value: Any) -> str:
    """Return an option as a flag takes it."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{name}={text}"
