"""needlemap's side of prompts.py the way a run does it: settings, trials with keys and hashes,
texts.

python needlemap_settings.py FOLDER LENGTHS DEPTHS
"""

from __future__ import annotations

import sys

from needlemap.settings.reading import configure
from needlemap.trials.build import prepare

NEEDLE = (
    "\nThe best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny "
    "day.\n"
)

folder, lengths, depths = sys.argv[1:]
experiment = prepare(
    configure(
        None,
        {
            "model": "openai/gpt-4",
            "haystack": "folder",
            "haystack_path": folder,
            "order": "listed",
            "joined": "text",
            "collisions": "warn",
            "needle": NEEDLE,
            "question": "What is the best thing to do in San Francisco?",
            "keywords": ["dolores", "sandwich"],
            "lengths": lengths,
            "depths": depths,
            "depth_rounding": "round",
            "reserve_tokens": 200,
        },
    )
)
print(sum(len(message.data) for trial in experiment.trials for message in trial.prompt.messages))
