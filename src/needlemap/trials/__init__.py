"""Trials: what settings come to, the prompts built from it, and their keys."""

from needlemap.trials.trial import (
    Keys,
    Trial,
    ask_twice,
    is_own_host,
    provider_host,
    requests,
    run_hash,
    settings_hash,
    share_prompts,
)

__all__ = [
    "Keys",
    "Trial",
    "ask_twice",
    "is_own_host",
    "provider_host",
    "requests",
    "run_hash",
    "settings_hash",
    "share_prompts",
]
