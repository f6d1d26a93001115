"""Make the trials of a run from its settings: every prompt, and its key."""

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
