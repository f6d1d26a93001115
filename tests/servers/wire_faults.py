"""What can go wrong, by name. A fault is `name` or `name:argument`.

STATUS below and `too_long.json` (`too-long:vllm`, as each server words it) name the refusals.
Others: ok, above:WORDS:FAULT (for longer prompts alone), slow:SECONDS, say:TEXT, raw:BODY (sent as
it is), reply:JSON (see `wire.made`),
half-character (in the answer), large:BYTES (of answer), reset, down:SECONDS (reset, and nobody can
connect), cut, invalid-json, wrong-length:BYTES (more or fewer than are sent), wrong-shape, array,
empty-choices, null-content, no-usage, empty-answer, refusal, filtered, thinking (cut off before the
first word), unwritten
(LMDeploy's refusal), echo:STATUS (all headers said back), spell:STATUS (in many spellings),
error-200:STATUS
(an error in a reply of status 200, as gateways send them), and the ways to think of
`wire_dialects.STYLES`. `without-logprobs:FAULT` is for requests that ask for them.
`wants:max_completion_tokens` refuses a request whose budget stands in the other field.
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from email.utils import formatdate
from pathlib import Path
from time import time
from typing import Any

NAMED = re.compile(r"fault-(?P<fault>.+?)(?:x(?P<times>\d+))?")

STATUS: dict[str, tuple[int, str, str]] = {
    "429": (429, "rate_limit_error", "Rate limit reached for requests. Please try again."),
    "429-after": (429, "rate_limit_error", "Rate limit reached for tokens."),
    "429-ms": (429, "rate_limit_error", "Rate limit reached for tokens."),
    "429-date": (429, "rate_limit_error", "Rate limit reached for tokens."),
    "429-quota": (429, "insufficient_quota", "You exceeded your current quota."),
    "429-large": (
        429,
        "tokens",
        "Request too large for gpt-4 on tokens per min: Limit 10000, Requested 20000.",
    ),
    "500": (500, "server_error", "The server had an error while processing your request."),
    "500-memory": (500, "server_error", "CUDA out of memory. Tried to allocate 20.00 GiB."),
    "503": (503, "server_error", "Loading model"),
    "529": (529, "overloaded_error", "Overloaded"),
    "408": (408, "timeout", "Request timed out at the gateway."),
    "409": (409, "conflict", "The resource is locked."),
    "401": (
        401,
        "invalid_api_key",
        "Incorrect API key provided: {key}. Find yours at the dashboard.",
    ),
    "403": (403, "permission_error", "You are not allowed to use this model."),
    "404": (404, "model_not_found", "The model `{model}` does not exist."),
    "400": (400, "invalid_request_error", "Unsupported value: 'temperature' does not support 0."),
}
TOO_LONG = json.loads((Path(__file__).parent / "too_long.json").read_text(encoding="utf-8"))


class Schedule:
    """Which fault the next request meets: by its model's name (`fault-429x2`: twice), else in
    turn."""

    def __init__(self, faults: list[str] | None = None, cycle: bool = False) -> None:
        self.faults, self.cycle = deque(faults or []), cycle
        self.met: Counter[str] = Counter()

    def next(self, model: str, prompt_words: int = 0) -> str:
        """The next fault; 'ok' when none is left."""
        named = NAMED.fullmatch(model)
        if named:
            self.met[model] += 1
            over = named["times"] is not None and self.met[model] > int(named["times"])
            return "ok" if over else named["fault"]
        if model.startswith("say-"):
            return f"say:{model[4:]}"
        if not self.faults:
            return "ok"
        fault = self.faults.popleft()
        if self.cycle:
            self.faults.append(fault)
        if fault.startswith("above:"):
            _, most, longer = fault.split(":", 2)
            return longer if prompt_words > int(most) else "ok"
        return fault


def refusal(fault: str, model: str, key: str) -> tuple[int, Any, dict[str, str]] | None:
    """(status, body, headers) of a fault that refuses a request, or None."""
    name, _, argument = fault.partition(":")
    if name == "too-long":
        return TOO_LONG[argument]["status"], TOO_LONG[argument]["body"], {}
    if name == "unwanted":
        other = "max_completion_tokens" if argument == "max_tokens" else "max_tokens"
        said = (
            f"Unsupported parameter: '{argument}' is not supported with this model. Use '{other}' "
            f"instead."
        )
        return (
            400,
            {"error": {"message": said, "type": "invalid_request_error", "param": argument}},
            {},
        )
    if name not in STATUS:
        return None
    status, kind, message = STATUS[name]
    said = {"message": message.format(key=key, model=model), "type": kind, "code": kind}
    return status, {"type": "error", "error": said}, _headers(name, argument)


def _headers(name: str, argument: str) -> dict[str, str]:
    if name == "429-ms":
        return {"retry-after-ms": argument}
    if name == "429-date":
        return {"retry-after": formatdate(time() + float(argument), usegmt=True)}
    return {"retry-after": argument} if argument else {}
