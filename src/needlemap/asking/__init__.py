"""Asking: the loop, budgets, pace, retries and resume, and strategies: what comes next."""

from needlemap.asking.runner import (
    Outcome,
    Runner,
    TrialObserver,
    decoding_of,
    failure_of,
    pacer_of,
)

__all__ = [
    "Outcome",
    "Runner",
    "TrialObserver",
    "decoding_of",
    "failure_of",
    "pacer_of",
]
