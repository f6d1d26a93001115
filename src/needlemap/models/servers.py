"""Servers of models: an answer made of a reply's JSON object, and what a server tells of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from needlemap.errors import Failure, NeedlemapError, SettingsError, Spent, Unmeasured
from needlemap.http import (
    VERSIONED,
    Door,
    WaitingDoor,
    bearer,
    check_address,
    custom_headers,
    faults,
    key_of,
)
from needlemap.models import Answer, Model, tokens

if TYPE_CHECKING:
    from needlemap.http import Reader

RESERVED = (
    "model",
    "messages",
    "prompt",
    "system",
    "stream",
    "n",
)  # asking differently is another setting
_KEY = "OPENAI_API_KEY"
_TOLD_S, _TOLD_BYTES = 10.0, 4_000_000  # for what a server tells of itself


class ServedModel(Model):
    """A model behind a provider's API, or behind a server that speaks as it does. Replies are not
    streamed.

    host: the provider's own. variables: how the names of its variables in the environment begin.
    """

    host = variables = ""

    def __init__(self, name: str, base_url: str, key_env: str, version: str = "") -> None:
        self.name = name
        key = key_of(key_env, base_url, self.host, required=key_env != f"{self.variables}_API_KEY")
        sent = {header: value for header, value in self.headers(key).items() if value}
        sent |= custom_headers(f"{self.variables}_CUSTOM_HEADERS")
        self._server = Door(base_url, sent, version)

    @property
    def base_url(self) -> str:
        """Where it is asked; with what the address lacked as soon as the server turns out to want
        that."""
        return self._server.base_url

    def headers(self, key: str) -> dict[str, str]:
        """What goes with each request, by the names of the provider's own client. Raises
        SettingsError."""
        raise NotImplementedError

    async def close(self) -> None:
        """Release connections."""
        await self._server.close()


def understood(read: Reader, body: dict[str, Any], took_s: float) -> Answer:
    """The answer in a reply by `read`. Raises Unmeasured, with what the server says that it
    took."""
    try:
        return read(body, took_s)
    except Unmeasured as failure:
        if failure.failure is Failure.UNREADABLE:
            failure.spent = spent(body)
        raise
    except Exception as error:  # whatever a reply makes of our reading is the reply's fault
        odd = faults.unreadable("The reply cannot be read", f"{type(error).__name__}: {error}")
        odd.spent = spent(body)
        raise odd from None


def spent(body: Mapping[str, Any]) -> Spent:
    """What a reply says that it took, in either wire format."""
    usage = body.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    sent = count(usage, "prompt_tokens")
    return Spent(
        sent_tokens(usage) if sent is None else sent,
        next(
            (
                found
                for name in ("completion_tokens", "output_tokens")
                if (found := count(usage, name))
            ),
            0,
        ),
    )


def sent_tokens(usage: Mapping[str, Any]) -> int | None:
    """The prompt's tokens in Anthropic's report, which counts those of its cache apart."""
    fresh, *cached = (
        count(usage, f"{name}input_tokens") for name in ("", "cache_read_", "cache_creation_")
    )
    return None if fresh is None else fresh + sum(part or 0 for part in cached)


def count(usage: Mapping[str, Any], *path: str) -> int | None:
    """A token count at a path of a usage report, or None where the provider gives none."""
    value: Any = usage
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return tokens(value)


def texts_of(parts: Any, field: str = "text") -> list[str]:
    """The texts of an answer's parts; parts without one have none."""
    return [
        part[field] for part in parts if isinstance(part, dict) and isinstance(part.get(field), str)
    ]


def check_request(request: Mapping[str, Any]) -> None:
    """Raises SettingsError for request fields that would change what is asked behind the record's
    back."""
    for field in RESERVED:
        if field in request:
            raise SettingsError(
                f"Request field '{field}' cannot be set: needlemap sets it. Remove it from "
                f"'request'."
            )


def context_told(base_url: str, model: str) -> int | None:
    """Tokens of prompt and answer that a server says a model takes: in its list of models (vLLM,
    SGLang), or of itself (llama.cpp); None where it says nothing."""
    where = base_url.rstrip("/")
    for row in _rows(_told(where, "/models")[1]):
        if row.get("id") == model and (found := tokens(row.get("max_model_len"))):
            return found
    itself = _told(VERSIONED.sub("", where), "/props")[1].get("default_generation_settings")
    return tokens(itself.get("n_ctx")) or None if isinstance(itself, dict) else None


def served_model(base_url: str) -> str:
    """The name of the first model that a server lists. Raises NeedlemapError where it lists
    none."""
    check_address(base_url)
    status, listed = _told(base_url.rstrip("/"), "/models")
    name = next((row.get("id") for row in _rows(listed)), None)
    if isinstance(name, str) and name:
        return name
    raise NeedlemapError(
        f"{base_url} lists no model (status {status or 'none'}). Name it: openai/NAME."
    )


def is_up(url: str) -> bool:
    """Whether a server lists its models, and is healthy where it says anything of that."""
    root = url.removesuffix("/v1")
    return _told(url, "/models")[0] == 200 and _told(root, "/health")[0] in (200, 404)


def _rows(listed: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The models in a list."""
    rows = listed.get("data")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _told(server: str, path: str) -> tuple[int, dict[str, Any]]:
    """A reply's status, 0 where nobody answers, and its JSON object, an empty one where it has
    none."""
    door, status = WaitingDoor(server, bearer(_KEY)), 0
    try:
        reply = door.ask("GET", path, b"", _TOLD_S, _TOLD_BYTES)
        status = reply.status
        return status, door.object_in(reply, server)
    except Unmeasured:
        return status, {}
    finally:
        door.close()
