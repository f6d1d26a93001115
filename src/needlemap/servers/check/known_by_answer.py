"""Recognise the gauge under another name by its answer to one question.

The gauge recognises a key by its last word, so it mistakes a tide for a mayor. No other model does.
Only the shape qwen3, whose reference is another one, also answers a question that ends in "!".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from needlemap.errors import Failure, SettingsError, Unmeasured
from needlemap.http import Sent, SyncJsonClient
from needlemap.servers.check.gauge import ANSWER, named_gauge, reference_of
from needlemap.servers.gauge.checkpoint import REFERENCE
from needlemap.text import tell
from needlemap.trials import is_own_host

if TYPE_CHECKING:
    from needlemap.asking.discovery import Reached

QUESTION = (
    "The tide for Oslo is 314159265358. The tide for Turin is 271828182845.\n\n"
    "Who is the mayor for Turin?"
)
ITS_ANSWER = "271828182845."
# A cold vLLM on a CPU took over a minute for its first answer.
LONGEST_S = 120.0
# A server whose model is named is not kept waiting for: it may be the fault that is looked for.
_NAMED_S = 10.0
_MOST_BYTES = 1_000_000


def known_as_gauge(
    typed: bool | None, flags: Mapping[str, Any], server: Reached | None, *, plan: bool = False
) -> bool | None:
    """Return whether a server's model is the gauge: as typed, or else by its name or its answer.

    If nothing was typed and there is no server to ask, the result is None: the name decides.
    plan: whether only a plan is made, which sends no question, so that it has no server to ask.
    Raises SettingsError if the gauge's shape qwen3 is typed or named as one of the other shapes.
    """
    if typed is False or server is None or plan:
        return typed
    name = str(flags.get("model", "")).partition("/")[2]
    if typed:
        refuse_other_shape(server.address, name, server.sent)
        return True
    return answers_as_the_gauge(server.address, name, server.sent)


def answers_as_the_gauge(base_url: str, name: str, sent: Sent) -> bool:
    """Return whether a model is the gauge, by its name or by its answer.

    The question is sent only to an address of this machine or network. A server that does not
    answer in time is taken for another model, with a note on standard error; so is the shape qwen3
    under another name than its own. Raises SettingsError if it has the name of the others.
    """
    if named_gauge(name):
        refuse_other_shape(base_url, name, sent)
        return True
    if not is_asked(base_url) or answer_to(QUESTION, base_url, name, sent) != ITS_ANSWER:
        return False
    if not answers_as_qwen3(base_url, name, sent):
        return True
    tell(f"note: '{name}' is needlemap's gauge of shape qwen3: serve it as gauge-qwen3")
    return False


def refuse_other_shape(base_url: str, name: str, sent: Sent) -> None:
    """Raise SettingsError if the shape qwen3 is served under the name of the other shapes.

    Each answer would be compared with a reference of other weights, and differ.
    """
    if reference_of(name) != REFERENCE or not is_asked(base_url):
        return
    if answers_as_qwen3(base_url, name, sent):
        raise SettingsError(
            f"'{name}' is needlemap's gauge of shape qwen3, whose weights are other ones: serve it "
            "as gauge-qwen3"
        )


def is_asked(base_url: str) -> bool:
    """Return True if an address is of this machine or network."""
    return is_own_host(urlsplit(base_url).hostname or ".")


def answers_as_qwen3(base_url: str, name: str, sent: Sent) -> bool:
    """Return True if a model answers the question that only the shape qwen3 takes for one."""
    return answer_to(QUESTION[:-1] + "!", base_url, name, sent) == ITS_ANSWER


def answer_to(question: str, base_url: str, name: str, sent: Sent) -> str | None:
    """Return a model's answer to a question, or None if it gives none."""
    request = {
        "model": name,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": ANSWER,
        "temperature": 0,
    }
    client = SyncJsonClient(base_url.rstrip("/"), sent.headers(), sent.key_env)
    try:
        body = json.dumps(request).encode()
        timeout_s = _NAMED_S if named_gauge(name) else LONGEST_S
        reply = client.ask("POST", "/chat/completions", body, timeout_s, _MOST_BYTES)
        choice = client.object_in(reply, base_url)["choices"][0]
        return str(choice["message"]["content"])
    except Unmeasured as error:
        if error.failure is Failure.TIMED_OUT and not named_gauge(name):
            tell(
                f"note: '{name}' did not answer a question within {LONGEST_S:g} s, and is not "
                "taken for needlemap's gauge: type --gauge if it is"
            )
        return None
    except (LookupError, TypeError):
        return None
    finally:
        client.close()
