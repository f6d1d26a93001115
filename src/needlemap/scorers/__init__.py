"""Score answers: (answer, reference) -> score.

A user's own function may be a scorer or a model. It is named `python/module:function`, or handed
over in Python.
"""

from needlemap.scorers.finding import find_scorer
from needlemap.scorers.function import (
    FunctionScorer,
    call_unblocked,
    is_async,
    load_function,
    name_function,
    source_hash,
)
from needlemap.scorers.scorer import (
    FIRST_RULE,
    MARK,
    VERDICTS,
    Pass,
    Scale,
    Score,
    Scorer,
    rule_of,
    share_of,
)

__all__ = [
    "FIRST_RULE",
    "MARK",
    "VERDICTS",
    "FunctionScorer",
    "Pass",
    "Scale",
    "Score",
    "Scorer",
    "call_unblocked",
    "find_scorer",
    "is_async",
    "load_function",
    "name_function",
    "rule_of",
    "share_of",
    "source_hash",
]
