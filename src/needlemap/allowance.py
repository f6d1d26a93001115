"""What headers say of a server's limits: how many requests and tokens it still takes, until
when, and how long it asks us to wait.

OpenAI's names (`x-ratelimit-limit-requests`, ... : vLLM gateways, Groq, Azure, LiteLLM send
the same) and Anthropic's (`anthropic-ratelimit-requests-limit`, ...). Nothing is waited for
here: see `asking/pacer.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from time import time

LIMIT_HEADERS = (
    "x-ratelimit-{part}-{kind}",
)  # part: limit, remaining, reset; kind: requests, tokens
_HEADER = 64  # characters of a header that are read as a number or a time
_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Quota:
    """One limit. limit: what a full allowance holds. left: what the server had left, below 0
    when overdrawn.

    full_in_s: seconds until it is full again, None where the server does not say.
    """

    limit: float
    left: float
    full_in_s: float | None = None


@dataclass(frozen=True, slots=True)
class Allowance:
    """A server's limits on requests and on tokens, None where it tells of none."""

    requests: Quota | None = None
    tokens: Quota | None = None


def read_allowance(
    headers: Mapping[str, str],
    now_s: float | None = None,
    names: Sequence[str] = LIMIT_HEADERS,
) -> Allowance | None:
    """A server's limits by its headers; None where they name none. The headers are read once,
    since a client's own mapping decodes them at each look.

    now_s: the time in seconds since 1970; the present if not given. names: of the headers.

    >>> said = {"limit": "8000", "remaining": "7927", "reset": "547ms"}
    >>> read_allowance({f"x-ratelimit-{part}-tokens": text for part, text in said.items()}).tokens
    Quota(limit=8000.0, left=7927.0, full_in_s=0.547)
    """
    said = {name.lower(): value for name, value in headers.items() if "ratelimit" in name.lower()}
    now = time() if now_s is None else now_s
    requests, tokens = (
        next(_quotas(said, kind, now, names), None) for kind in ("requests", "tokens")
    )
    return Allowance(requests, tokens) if requests or tokens else None


def retry_after_s(headers: Mapping[str, str], now_s: float | None = None) -> float | None:
    """How long a server asks us to wait, in seconds: `retry-after-ms`, `retry-after` in
    seconds or as a date. None also for no time at all, as where a clock goes wrong: it would
    be asked again and again at once.

    >>> (
    ...     retry_after_s({"retry-after-ms": "1500"}),
    ...     retry_after_s({"retry-after": "3"}),
    ...     retry_after_s({}),
    ... )
    (1.5, 3.0, None)
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None and milliseconds > 0:
        return milliseconds / 1000
    return seconds(headers.get("retry-after"), time() if now_s is None else now_s) or None


_UNIT = r"(?:ms|milliseconds?|h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?)(?![a-z])"
_SPOKEN = re.compile(
    r"(?:try(?:ing)? again|retry(?:ing)?|wait(?:ing)?|resets?|available)\b[^.\d]{0,40}?"
    rf"(?P<time>(?:\d{{1,9}}(?:\.\d{{1,9}})?\s?{_UNIT}[\s,]{{0,2}}(?:and )?){{1,4}})",
    re.IGNORECASE,
)
_SPOKEN_PART = re.compile(rf"(\d{{1,9}}(?:\.\d{{1,9}})?)\s?({_UNIT})", re.IGNORECASE)
# Fields of a refusal's body: Gemini's `RetryInfo`, and what gateways call it.
_FIELD = re.compile(
    r'"retry[_-]?(?:delay|after)(?P<unit>[_-]?(?:ms|milliseconds?|s|secs?|seconds?|in))?"\s?:\s?'
    r'(?:\{\s?"seconds"\s?:\s?)?"?(?P<number>\d{1,12}(?:\.\d{1,9})?)(?P<suffix>ms|s)?',
    re.IGNORECASE,
)
_RESETS = ("ratelimit-reset", "x-ratelimit-reset", "x-rate-limit-reset", "x-ratelimit-reset-after")
_RESET_FIELD = re.compile(
    r'"(?:x-)?rate-?limit-reset"\s?:\s?"?(\d{1,15}(?:\.\d{1,9})?)', re.IGNORECASE
)
_STANDARD_RESET = re.compile(r"\b(?:t|reset)=(\d{1,9})")
_EPOCH_S, _EPOCH_MS = 1e8, 1e11  # larger numbers are a time, in seconds or in milliseconds


def asked_wait_s(headers: Mapping[str, str], body: str, now_s: float | None = None) -> float | None:
    """How long a server that limits a rate asks us to wait, in seconds: by its headers, its words,
    or the time at which its limit is full again. None where it says nothing.

    >>> (
    ...     asked_wait_s({}, "Please try again in 1m5.2s."),
    ...     asked_wait_s({}, '{"retryDelay": "8s"}'),
    ...     asked_wait_s({"x-ratelimit-reset": "1700000005000"}, "", 1_700_000_000),
    ... )
    (65.2, 8.0, 5.0)
    """
    now = time() if now_s is None else now_s
    found = retry_after_s(headers, now) or _spoken_s(body)
    if found:
        return found
    said = {name.lower(): value for name, value in headers.items() if "limit" in name.lower()}
    resets = [said.get(name) for name in _RESETS]
    if standard := _STANDARD_RESET.search(said.get("ratelimit", "")[:_HEADER]):
        resets.append(standard[1])
    if field := _RESET_FIELD.search(body):
        resets.append(field[1])
    return next(filter(None, (_until_s(reset, now) for reset in resets)), None)


def _spoken_s(body: str) -> float | None:
    """The wait that a refusal's body names."""
    if field := _FIELD.search(body):
        unit = (field["suffix"] or (field["unit"] or "s").strip("_-")).lower()
        return float(field["number"]) * (0.001 if unit.startswith("m") else 1.0)
    if spoken := _SPOKEN.search(body):
        parts = _SPOKEN_PART.findall(spoken["time"])
        return sum(float(number) * _unit_s(unit.lower()) for number, unit in parts)
    return None


def _unit_s(unit: str) -> float:
    """Seconds of a unit's name."""
    if unit.startswith(("ms", "milli")):
        return 0.001
    return _UNITS_S[unit[0]]


def _until_s(reset: str | None, now_s: float) -> float | None:
    """Seconds until a limit is full again: given so, or as a time, in milliseconds too."""
    number = _number(reset)
    if number is None or number < _EPOCH_S:
        return seconds(reset, now_s)
    return max(0.0, (number / 1000 if number > _EPOCH_MS else number) - now_s)


def seconds(text: str | None, now_s: float) -> float | None:
    """A duration as '1h2m3.5s', '547ms' or plain seconds, or the time until a date; None for
    anything else.

    >>> (
    ...     seconds("6m0s", 0),
    ...     seconds("64", 0),
    ...     seconds("1970-01-01T00:01:00Z", 30),
    ...     seconds("soon", 0),
    ... )
    (360.0, 64.0, 30.0, None)
    """
    if not text:
        return None
    text = text[:_HEADER]
    if _PARTS.sub("", text) == "":
        return sum(float(number) * _UNITS_S[unit] for number, unit in _PARTS.findall(text))
    plain = _number(text)
    if plain is not None:
        return max(0.0, plain)
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        with suppress(ValueError, TypeError, OverflowError):
            return max(0.0, read(text).timestamp() - now_s)
    return None


def _quotas(
    headers: Mapping[str, str], kind: str, now_s: float, names: Sequence[str]
) -> Iterator[Quota]:
    for name in names:
        parts = ("limit", "remaining", "reset")
        limit, left, reset = (name.format(kind=kind, part=part) for part in parts)
        most, rest = _number(headers.get(limit)), _number(headers.get(left))
        if most is not None and rest is not None and most > 0:
            yield Quota(most, rest, seconds(headers.get(reset), now_s))


def _number(text: str | None) -> float | None:
    try:
        number = float((text or "")[:_HEADER])
    except ValueError:
        return None
    return number if math.isfinite(number) else None
