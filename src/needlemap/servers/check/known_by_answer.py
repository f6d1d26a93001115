"""Whether a server of one's own serves the gauge under another name: its answer to one question.

The gauge tells a key by its last word, so it takes a tide for a mayor; no other model does.
"""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from needlemap.errors import Unmeasured
from needlemap.http import Sent, SyncJsonClient
from needlemap.servers.check.gauge import ANSWER, named_gauge
from needlemap.trials import is_own_host

QUESTION = (
    "The tide for Oslo is 314159265358. The tide for Turin is 271828182845.\n\n"
    "Who is the mayor for Turin?"
)
ITS_ANSWER = "271828182845."
_LONGEST_S, _MOST_BYTES = 10.0, 1_000_000  # of a reply


def answers_as_the_gauge(base_url: str, name: str, sent: Sent) -> bool:
    """Whether a model is the gauge, by its name or by its answer. It is asked only at an
    address of this machine or network; what does not answer is taken for another model."""
    if named_gauge(name):
        return True
    if not is_own_host(urlsplit(base_url).hostname or "."):
        return False
    asked = {
        "model": name,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": ANSWER,
        "temperature": 0,
    }
    door = SyncJsonClient(base_url.rstrip("/"), sent.headers(), sent.key_env)
    try:
        body = json.dumps(asked).encode()
        reply = door.ask("POST", "/chat/completions", body, _LONGEST_S, _MOST_BYTES)
        said = door.object_in(reply, base_url)["choices"][0]["message"]["content"]
    except (Unmeasured, LookupError, TypeError):
        return False
    finally:
        door.close()
    return bool(said == ITS_ANSWER)
