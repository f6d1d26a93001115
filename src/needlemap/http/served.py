"""What a server says that it serves: its models and how long their contexts are.

One GET of `/models`, bounded in size and time, before anything is asked of a model. vLLM,
SGLang, LMDeploy, llama.cpp, `transformers serve` and the providers list their models there;
llama.cpp tells its context at `/props`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from shlex import quote
from time import monotonic
from typing import Any, NamedTuple

from needlemap.deadline import pause
from needlemap.errors import Failure, NeedlemapError, Unmeasured
from needlemap.http import VERSIONED, Sent, SyncJsonClient, check_address
from needlemap.http.compatible import join_address, served_model
from needlemap.http.faults import unreached_words
from needlemap.text import printable
from needlemap.untrusted import LONGEST_NAME, clean_count

# Models that an error names.
SHOWN = 20
# Of a reply.
_LONGEST_S, _MOST_BYTES = 10.0, 4_000_000
_DO = f"another --base-url, or the model's name (--model {served_model()})"
# Between two requests to a server that is starting.
_LOOK_S = 2.0
# llama.cpp's status while it loads its model.
_LOADING = 503
_CACHE_CONFIG = re.compile(r"^vllm:cache_config_info\{([^}\n]{1,4000})\}", re.MULTILINE)
_LABEL = re.compile(r'(\w{1,60})="([^"]{0,60})"')
# Fields with the tokens of prompt and answer: vLLM, SGLang and LMDeploy; OpenRouter; Groq; Mistral.
_CONTEXTS = ("max_model_len", "context_length", "context_window", "max_context_length")


@dataclass(frozen=True, slots=True)
class ServedModels:
    """The models that a server lists.

    Attributes:
        base_url: Its address, with the /v1 that the typed one lacked.
        names: Their names as the server spells them.
    """

    base_url: str
    names: tuple[str, ...]

    def words(self) -> str:
        """Return the models in one line that ends with what to type."""
        names = ", ".join(self.names[:SHOWN])
        hidden_count = len(self.names) - SHOWN
        more = f" and {hidden_count:,} more" if hidden_count > 0 else ""
        name = self.names[0] if len(self.names) == 1 else "NAME"
        return f"The server lists {names}{more}. Type: --model {quote(served_model(name))}"

    def only(self) -> str:
        """Return the one model. Raise NeedlemapError, with what to type, for none or several."""
        if not self.names:
            raise NeedlemapError(
                f"{self.base_url} lists no model. Name it: --model {served_model()}"
            )
        if len(self.names) > 1:
            lines = (f"\n  --model {quote(served_model(name))}" for name in self.names[:SHOWN])
            hidden_count = len(self.names) - SHOWN
            more = f"\n  and {hidden_count:,} more" if hidden_count > 0 else ""
            raise NeedlemapError(
                f"{self.base_url} serves {len(self.names):,} models. Type one of:"
                f"{''.join(lines)}{more}"
            )
        return self.names[0]


def list_models(
    base_url: str, sent: Sent, *, wait_s: float = 0.0, say: Callable[[str], object] = str
) -> ServedModels:
    """Return the models that a server lists; none if it has no list that can be read.

    wait_s: how long to wait for a server that is not reached yet or replies 503. say: called once
    while waiting. Raises NeedlemapError if no connection can be made, or if the key is refused.
    """
    check_address(base_url)
    deadline_s = monotonic() + wait_s
    has_said = False
    while True:
        try:
            return _request_list(base_url.rstrip("/"), sent)
        except Unmeasured as failure:
            is_starting = failure.unreached or failure.status == _LOADING
            left_s = deadline_s - monotonic()
            if not is_starting or left_s <= 0:
                raise _listing_error(failure) from None
            if not has_said:
                say(f"{str(failure).rstrip('.')}; waiting for it")
                has_said = True
            pause(min(_LOOK_S, left_s), f"before {base_url} answered")


def _listing_error(failure: Unmeasured) -> NeedlemapError:
    """Return the error for a server whose models are not known, with what to do."""
    if failure.status == _LOADING:
        return NeedlemapError(f"{str(failure).rstrip('.')}. To wait for it, add --wait 5m")
    words = unreached_words(failure) if failure.unreached else str(failure)
    if failure.failure is Failure.TIMED_OUT:
        words += f" Give {_DO}."
    return NeedlemapError(words)


def _request_list(base_url: str, sent: Sent) -> ServedModels:
    """Return the list of models by a single request.

    Raises Unmeasured if no server answers, or if it answers 401, 403 or 503.
    """
    address, _, body = models_at(base_url, sent)
    names = dict.fromkeys(name for row in _rows_of(body) if (name := _name(row)))
    return ServedModels(address, names=tuple(names))


def models_at(base_url: str, sent: Sent) -> tuple[str, int, dict[str, Any]]:
    """Return the address with the /v1 that it may lack, and the status and body of its `/models`.

    `get` returns the same of any path.
    """
    status, body = get(base_url, "/models", sent)
    if status == 404 and not VERSIONED.search(base_url):
        versioned_url = join_address(base_url, "/v1")
        versioned_status, versioned_body = get(versioned_url, "/models", sent)
        if versioned_status == 200:
            return versioned_url, versioned_status, versioned_body
    return base_url, status, body


def get(
    base_url: str, path: str, sent: Sent, body: bytes | None = None
) -> tuple[int, dict[str, Any]]:
    """Return a reply's status and its JSON object, {} if it has none.

    body: of a POST. Raises Unmeasured if no server answers, and for 401, 403 and 503.
    """
    client = SyncJsonClient(base_url, sent.headers(), sent.key_env)
    method = "GET" if body is None else "POST"
    try:
        reply = client.ask(method, path, body or b"", _LONGEST_S, _MOST_BYTES, _DO)
        if reply.status in (401, 403, _LOADING):
            client.check(reply, base_url)
        try:
            return reply.status, client.object_in(reply, base_url)
        except Unmeasured:
            return reply.status, {}
    except Unmeasured as failure:
        client.hide(failure)
        raise
    finally:
        client.close()


class ServerLimits(NamedTuple):
    """The limits that a server reports. A limit that it does not report is None.

    Attributes:
        context: The tokens of prompt and answer.
        slots: The prompts that llama.cpp computes at a time, each in a cache of its own.
    """

    context: int | None
    slots: int | None


def limits_in(listed: Mapping[str, Any], props: Mapping[str, Any], model: str) -> ServerLimits:
    """Return the limits for a model in a server's list of models and in llama.cpp's /props.

    vLLM, SGLang and most providers report the context in the list, llama.cpp in /props.
    """
    rows = _rows_of(listed)
    context = next((_context_in(row) for row in rows if row.get("id") == model), None)
    if not any(row.get("owned_by") == "llamacpp" for row in rows):
        return ServerLimits(context, None)
    # A router in front of several models speaks at /props for one of them only.
    if context is None and len(rows) == 1:
        context = _own_context(props)
    return ServerLimits(context, _size(props.get("total_slots")))


def limits_of(base_url: str, model: str, sent: Sent) -> ServerLimits:
    """Return the limits that a server reports for a model."""
    try:
        address, _, listed = models_at(base_url.rstrip("/"), sent)
    except Unmeasured:
        return ServerLimits(None, None)
    props: Mapping[str, Any] = {}
    with suppress(Unmeasured):
        _, props = get(VERSIONED.sub("", address), "/props", sent)
    return limits_in(listed, props, model)


def _own_context(props: Mapping[str, Any]) -> int | None:
    """Return the tokens of prompt and answer that llama.cpp's /props gives, or None if none."""
    default = props.get("default_generation_settings")
    return _size(default.get("n_ctx")) if isinstance(default, dict) else None


def _rows_of(listed: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the models in a list."""
    rows = listed.get("data")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _name(row: Mapping[str, Any]) -> str:
    """Return a row's name of its model, or '' for a name that no flag can hold."""
    name = row.get("id")
    if not isinstance(name, str) or len(name) > LONGEST_NAME:
        return ""
    return name if printable(name, line=True) == name else ""


def _context_in(row: Mapping[str, Any]) -> int | None:
    """Return the tokens of prompt and answer that a list of models gives one, or None if none."""
    return next((size for field in _CONTEXTS if (size := _size(row.get(field)))), None)


def _size(value: object) -> int | None:
    """Return a number of tokens, 1 or more, or None for any other value."""
    return clean_count(value) or None


def wait_for(base_url: str, wait_s: float, sent: Sent) -> None:
    """Return once a server answers, whatever it answers.

    Raises NeedlemapError if no connection can be made in that time, and for an invalid address.
    """
    check_address(base_url)
    deadline_s = monotonic() + wait_s
    while True:
        try:
            get(base_url.rstrip("/"), "/models", sent)
            return
        except Unmeasured as failure:
            left_s = deadline_s - monotonic()
            if not failure.unreached:
                return
            if left_s <= 0:
                raise NeedlemapError(unreached_words(failure)) from None
            pause(min(_LOOK_S, left_s), f"before {base_url} answered")


def cache_tokens(base_url: str, model: str, sent: Sent) -> int | None:
    """Return the tokens of prompts that a server can cache, or None if it does not report them.

    SGLang reports them, vLLM in its metrics, llama.cpp by slot.
    """
    root = VERSIONED.sub("", base_url.rstrip("/"))
    try:
        _, info = get(root, "/get_server_info", sent)
        return (
            _size(info.get("max_total_num_tokens"))
            or _block_tokens(root, sent)
            or _slot_tokens(base_url, model, sent)
        )
    except Unmeasured:
        return None


def _slot_tokens(base_url: str, model: str, sent: Sent) -> int | None:
    """Return llama.cpp's tokens: each slot has a context of its own."""
    context, slots = limits_of(base_url, model, sent)
    if context is None or slots is None:
        return None
    return context * slots


def _block_tokens(root: str, sent: Sent) -> int | None:
    """Return vLLM's tokens, from its metrics."""
    client = SyncJsonClient(root, sent.headers(), sent.key_env)
    try:
        reply = client.ask("GET", "/metrics", b"", _LONGEST_S, _MOST_BYTES, _DO)
    finally:
        client.close()

    return tokens_in_metrics(reply.text) if reply.status == 200 else None


def tokens_in_metrics(text: str) -> int | None:
    """Return the tokens that vLLM's metrics say it caches, or None if they do not.

    The number of blocks times their size is too many if layers of several kinds share them.

    >>> tokens_in_metrics('vllm:cache_config_info{num_gpu_blocks="400",block_size="32"} 1.0')
    12800
    >>> labels = 'num_gpu_blocks="400",block_size="32",kv_cache_size_tokens="6090"'
    >>> tokens_in_metrics(f"vllm:cache_config_info{{{labels}}} 1.0")
    6090
    """
    line = _CACHE_CONFIG.search(text)
    if line is None:
        return None
    labels = dict(_LABEL.findall(line[1]))
    tokens = _short_number(labels.get("kv_cache_size_tokens", ""))
    if tokens:
        return _size(tokens)
    blocks = _short_number(labels.get("num_gpu_blocks", ""))
    size = _short_number(labels.get("block_size", ""))
    return _size(blocks * size) if blocks and size else None


def _short_number(digits: str) -> int | None:
    """Return a number of less than twelve digits: one of thousands takes long to read."""
    return int(digits) if digits.isdecimal() and len(digits) < 12 else None
