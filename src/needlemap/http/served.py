"""What a server says that it serves: its models and how long their contexts are.

One GET of `/models`, bounded in size and time, before anything is asked of a model. vLLM,
SGLang, LMDeploy, llama.cpp, `transformers serve` and the providers list their models there;
llama.cpp tells its context at `/props`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from time import monotonic
from typing import Any

from needlemap.deadline import pause
from needlemap.errors import Failure, NeedlemapError, Unmeasured
from needlemap.http import (
    VERSIONED,
    Sent,
    SyncJsonClient,
    check_address,
)
from needlemap.http.compatible import joined, served
from needlemap.http.faults import unreached_words
from needlemap.text import printable
from needlemap.untrusted import LONGEST_NAME, clean_count

SHOWN = 20  # models that an error names
_LONGEST_S, _MOST_BYTES = 10.0, 4_000_000  # of a reply
_DO = f"another --base-url, or the model's name (--model {served()})"
_LOOK_S = 2.0  # between two looks for a server that is starting
_LOADING = 503  # llama.cpp, while it loads its model
_CACHE_CONFIG = re.compile(r"^vllm:cache_config_info\{([^}\n]{1,4000})\}", re.MULTILINE)
_LABEL = re.compile(r'(\w{1,60})="([^"]{0,60})"')
# A row's tokens of prompt and answer: vLLM, SGLang and LMDeploy; OpenRouter; Groq; Mistral.
_CONTEXTS = ("max_model_len", "context_length", "context_window", "max_context_length")


@dataclass(frozen=True, slots=True)
class ServedModels:
    """base_url: with the /v1 that the typed address lacked. names: as the server spells them.
    contexts: tokens of prompt and answer, of those for which it says them."""

    base_url: str
    names: tuple[str, ...]
    contexts: Mapping[str, int]

    def words(self) -> str:
        """Which models there are, in a line that ends with what to type."""
        names, rest = ", ".join(self.names[:SHOWN]), len(self.names) - SHOWN
        more = f" and {rest:,} more" if rest > 0 else ""
        typed = quote(served(self.names[0] if len(self.names) == 1 else "NAME"))
        return f"The server lists {names}{more}. Type: --model {typed}"

    def only(self) -> str:
        """The one model. Raises NeedlemapError where there are several, or none, with what to
        type."""
        if not self.names:
            raise NeedlemapError(f"{self.base_url} lists no model. Name it: --model {served()}")
        if len(self.names) > 1:
            lines = (f"\n  --model {quote(served(name))}" for name in self.names[:SHOWN])
            rest = len(self.names) - SHOWN
            more = f"\n  and {rest:,} more" if rest > 0 else ""
            raise NeedlemapError(
                f"{self.base_url} serves {len(self.names):,} models. Type one of:"
                f"{''.join(lines)}{more}"
            )
        return self.names[0]


def list_models(
    base_url: str, sent: Sent, *, wait_s: float = 0.0, say: Callable[[str], object] = str
) -> ServedModels:
    """What a server lists; no names where it lists none that can be read.

    wait_s: for a server that is not there yet, or that says 503; say: hears of that once.
    Raises NeedlemapError where no connection can be made, and for a key that is refused.
    """
    check_address(base_url)
    until_s, said = monotonic() + wait_s, False
    while True:
        try:
            return _listed(base_url.rstrip("/"), sent)
        except Unmeasured as failure:
            waited = failure.unreached or failure.status == _LOADING
            left_s = until_s - monotonic()
            if not waited or left_s <= 0:
                loading = f"{str(failure).rstrip('.')}. To wait for it, add --wait 5m"
                words = unreached_words(failure) if failure.unreached else str(failure)
                words += f" Give {_DO}." if failure.failure is Failure.TIMED_OUT else ""
                raise NeedlemapError(words if failure.status != _LOADING else loading) from None
            if not said:
                say(f"{str(failure).rstrip('.')}; waiting for it")
            said = True
            pause(min(_LOOK_S, left_s), f"before {base_url} answered")


def _listed(base_url: str, sent: Sent) -> ServedModels:
    """The same, asked once. Raises Unmeasured if no server answers, and for 401, 403 and 503."""
    base_url, _, found = models_at(base_url, sent)
    rows = {name: row for row in rows_of(found) if (name := _name(row))}
    contexts = {name: size for name, row in rows.items() if (size := context_in(row))}
    return ServedModels(base_url, tuple(rows), contexts)


def models_at(base_url: str, sent: Sent) -> tuple[str, int, dict[str, Any]]:
    """The address, with the /v1 that it may lack, and what it says of its models, as `get` has
    it."""
    found = get(base_url, "/models", sent)
    if found[0] == 404 and not VERSIONED.search(base_url):
        other = joined(base_url, "/v1")
        versioned = get(other, "/models", sent)
        if versioned[0] == 200:
            return other, *versioned
    return base_url, *found


def get(base_url: str, path: str, sent: Sent) -> tuple[int, dict[str, Any]]:
    """A reply's status and JSON object, an empty one where it has none. Raises Unmeasured if
    no server answers, and for 401, 403 and 503."""
    door = SyncJsonClient(base_url, sent.headers(), sent.key_env)
    try:
        reply = door.ask("GET", path, b"", _LONGEST_S, _MOST_BYTES, _DO)
        if reply.status in (401, 403, _LOADING):
            door.check(reply, base_url)
        try:
            return reply.status, door.object_in(reply, base_url)
        except Unmeasured:
            return reply.status, {}
    except Unmeasured as failure:
        door.hide(failure)
        raise
    finally:
        door.close()


def context_of(
    base_url: str, model: str, sent: Sent, listed: ServedModels | None = None
) -> int | None:
    """Tokens of prompt and answer that a server says a model takes: in its list (vLLM, SGLang,
    most providers), or of itself (llama.cpp); None where it says nothing."""
    try:
        listed = listed or _listed(base_url.rstrip("/"), sent)
        if found := listed.contexts.get(model):
            return found
        root = VERSIONED.sub("", listed.base_url)
        return own_context(get(root, "/props", sent)[1])
    except Unmeasured:
        return None


def own_context(props: Mapping[str, Any]) -> int | None:
    """Return the tokens of prompt and answer that llama.cpp's /props gives; None if none."""
    default = props.get("default_generation_settings")
    return _size(default.get("n_ctx")) if isinstance(default, dict) else None


def rows_of(listed: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The models in a list."""
    rows = listed.get("data")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _name(row: Mapping[str, Any]) -> str:
    """What a row calls its model; '' for what no flag can hold."""
    name = row.get("id")
    if not isinstance(name, str) or len(name) > LONGEST_NAME:
        return ""
    return name if printable(name, line=True) == name else ""


def context_in(row: Mapping[str, Any]) -> int | None:
    """Return the tokens of prompt and answer that a list of models gives one; None if none."""
    return next((size for field in _CONTEXTS if (size := _size(row.get(field)))), None)


def _size(value: object) -> int | None:
    """A number of tokens; None for any other value."""
    return clean_count(value) or None


def wait_for(base_url: str, wait_s: float, sent: Sent) -> None:
    """Return when a server answers anything. Raises NeedlemapError if no connection can be
    made in that time, and for an invalid address."""
    check_address(base_url)
    until_s = monotonic() + wait_s
    while True:
        try:
            get(base_url.rstrip("/"), "/models", sent)
            return
        except Unmeasured as failure:
            left_s = until_s - monotonic()
            if not failure.unreached:
                return
            if left_s <= 0:
                raise NeedlemapError(unreached_words(failure)) from None
            pause(min(_LOOK_S, left_s), f"before {base_url} answered")


def cache_tokens(base_url: str, sent: Sent) -> int | None:
    """Tokens of prompts that a server says it caches: SGLang, vLLM's metrics, llama.cpp; None
    where it says nothing."""
    root = VERSIONED.sub("", base_url.rstrip("/"))
    try:
        told = _size(get(root, "/get_server_info", sent)[1].get("max_total_num_tokens"))
        return told or _counted_blocks(root, sent) or _counted_slots(root, sent)
    except Unmeasured:
        return None


def _counted_slots(root: str, sent: Sent) -> int | None:
    """Of llama.cpp: each slot has a context of its own."""
    itself = get(root, "/props", sent)[1]
    each = own_context(itself)
    slots = _size(itself.get("total_slots"))
    return each * slots if each and slots else None


def _counted_blocks(root: str, sent: Sent) -> int | None:
    """Of vLLM: blocks times their size, as its metrics have them."""
    door = SyncJsonClient(root, sent.headers(), sent.key_env)
    try:
        reply = door.ask("GET", "/metrics", b"", _LONGEST_S, _MOST_BYTES, _DO)
    finally:
        door.close()
    line = _CACHE_CONFIG.search(reply.text)
    found = dict(_LABEL.findall(line[1])) if line and reply.status == 200 else {}
    sizes = [found.get(name, "") for name in ("num_gpu_blocks", "block_size")]
    if not all(size.isdecimal() and len(size) < 12 for size in sizes):
        return None
    return _size(int(sizes[0]) * int(sizes[1]))
