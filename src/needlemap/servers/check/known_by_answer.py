"""Recognise the gauge under another name by its answer to one question.

The gauge recognises a key by its last word, so it mistakes a tide for a mayor. No other model does.
Only the shape qwen3, whose reference is another one, also answers a question that ends in "!".
"""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from needlemap.errors import Failure, Unmeasured
from needlemap.http import Sent, SyncJsonClient
from needlemap.servers.check.gauge import ANSWER, named_gauge
from needlemap.text import tell
from needlemap.trials import is_own_host

QUESTION = (
    "The tide for Oslo is 314159265358. The tide for Turin is 271828182845.\n\n"
    "Who is the mayor for Turin?"
)
ITS_ANSWER = "271828182845."
# A cold vLLM on a CPU took over a minute for its first answer.
LONGEST_S = 120.0
_MOST_BYTES = 1_000_000


def answers_as_the_gauge(base_url: str, name: str, sent: Sent) -> bool:
    """Return whether a model is the gauge, by its name or by its answer.

    The question is sent only to an address of this machine or network. A server that does not
    answer in time is taken for another model, with a note on standard error; so is the shape qwen3
    under another name than its own.
    """
    if named_gauge(name):
        return True
    if not is_own_host(urlsplit(base_url).hostname or "."):
        return False
    if answer_to(QUESTION, base_url, name, sent) != ITS_ANSWER:
        return False
    if answer_to(QUESTION[:-1] + "!", base_url, name, sent) != ITS_ANSWER:
        return True
    tell(f"note: '{name}' is needlemap's gauge of shape qwen3: serve it as gauge-qwen3")
    return False


def answer_to(question: str, base_url: str, name: str, sent: Sent) -> str | None:
    """Return a model's answer to a question; None without one."""
    request = {
        "model": name,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": ANSWER,
        "temperature": 0,
    }
    client = SyncJsonClient(base_url.rstrip("/"), sent.headers(), sent.key_env)
    try:
        body = json.dumps(request).encode()
        reply = client.ask("POST", "/chat/completions", body, LONGEST_S, _MOST_BYTES)
        choice = client.object_in(reply, base_url)["choices"][0]
        return str(choice["message"]["content"])
    except Unmeasured as error:
        if error.failure is Failure.TIMED_OUT:
            tell(
                f"note: '{name}' did not answer a question within {LONGEST_S:g} s, and is not "
                "taken for needlemap's gauge: type --gauge if it is"
            )
        return None
    except (LookupError, TypeError):
        return None
    finally:
        client.close()
