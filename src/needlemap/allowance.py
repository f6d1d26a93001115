"""Read a server's limits from its headers and errors.

They tell how many requests and tokens the server still takes, until when, and how long it asks us
to wait. The names of headers are OpenAI's (`x-ratelimit-limit-requests`, ...; vLLM gateways, Groq,
Azure and LiteLLM send the same) and Anthropic's (`anthropic-ratelimit-requests-limit`, ...).
Nothing is waited for here: see `asking/pacer.py`.
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

# part: limit, remaining, reset. kind: requests, tokens.
LIMIT_HEADERS = ("x-ratelimit-{part}-{kind}",)
# Characters of a header that are read as a number or a time.
_HEADER = 64
_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Quota:
    """One limit.

    Attributes:
        limit: How much a full allowance is.
        left: How much the server had left; below 0 if it is overdrawn.
        full_in_s: Seconds until it is full again; None if the server does not report that.
    """

    limit: float
    left: float
    full_in_s: float | None = None


@dataclass(frozen=True, slots=True)
class Allowance:
    """A server's limits.

    Attributes:
        requests: The limit on requests; None if the server reports none.
        tokens: The limit on tokens; None if the server reports none.
    """

    requests: Quota | None = None
    tokens: Quota | None = None


def read_allowance(
    headers: Mapping[str, str],
    now_s: float | None = None,
    names: Sequence[str] = LIMIT_HEADERS,
) -> Allowance | None:
    """Return a server's limits by its headers, or None if they name none.

    The headers are read once, because a client's own mapping decodes them each time.

    now_s: the time in seconds since 1970; by default the present. names: of the headers.

    >>> reported = {"limit": "8000", "remaining": "7927", "reset": "547ms"}
    >>> headers = {f"x-ratelimit-{part}-tokens": text for part, text in reported.items()}
    >>> read_allowance(headers).tokens
    Quota(limit=8000.0, left=7927.0, full_in_s=0.547)
    """
    limits = {name.lower(): value for name, value in headers.items() if "ratelimit" in name.lower()}
    now = time() if now_s is None else now_s
    requests = next(_quotas(limits, "requests", now_s=now, names=names), None)
    tokens = next(_quotas(limits, "tokens", now_s=now, names=names), None)
    if requests is None and tokens is None:
        return None
    return Allowance(requests=requests, tokens=tokens)


def retry_after_s(headers: Mapping[str, str], now_s: float | None = None) -> float | None:
    """Return how many seconds a server asks us to wait, by `retry-after-ms` or `retry-after`.

    `retry-after` is a number of seconds or a date. If there is neither header, the result is None.
    It is None for 0 seconds, too, for example if a clock is wrong: otherwise the request would be
    sent again and again without a pause.

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
# Larger numbers are a time since 1970: in seconds, in milliseconds.
_EPOCH_S = 1e8
_EPOCH_MS = 1e11


def asked_wait_s(headers: Mapping[str, str], body: str, now_s: float | None = None) -> float | None:
    """Return how many seconds a server that limits a rate asks us to wait.

    Its `retry-after` headers come first, then its words, then the time at which its limit is full
    again. If none of them names a wait, return None.

    >>> (
    ...     asked_wait_s({}, "Please try again in 1m5.2s."),
    ...     asked_wait_s({}, '{"retryDelay": "8s"}'),
    ...     asked_wait_s({"x-ratelimit-reset": "1700000005000"}, "", 1_700_000_000),
    ... )
    (65.2, 8.0, 5.0)
    """
    now = time() if now_s is None else now_s
    wait_s = retry_after_s(headers, now) or _spoken_s(body)
    if wait_s:
        return wait_s
    limits = {name.lower(): value for name, value in headers.items() if "limit" in name.lower()}
    resets = [limits.get(name) for name in _RESETS]
    standard = _STANDARD_RESET.search(limits.get("ratelimit", "")[:_HEADER])
    if standard:
        resets.append(standard[1])
    field = _RESET_FIELD.search(body)
    if field:
        resets.append(field[1])
    return next(filter(None, (_until_s(reset, now) for reset in resets)), None)


def _spoken_s(body: str) -> float | None:
    """Return the seconds that the body of a refusal asks to wait, or None if it names no wait.

    A field of JSON has precedence over a sentence.
    """
    field = _FIELD.search(body)
    if field:
        unit = (field["suffix"] or (field["unit"] or "s").strip("_-")).lower()
        # A field's unit is milliseconds or seconds, so an "m" is never that of minutes here.
        return float(field["number"]) * (0.001 if unit.startswith("m") else 1.0)

    sentence = _SPOKEN.search(body)
    if sentence:
        parts = _SPOKEN_PART.findall(sentence["time"])
        return sum(float(number) * _unit_s(unit.lower()) for number, unit in parts)
    return None


def _unit_s(unit: str) -> float:
    """Return the seconds of a unit, by its lower-case name."""
    # The other units differ in their first letter: of "ms" and "min" it is the same.
    if unit.startswith(("ms", "milli")):
        return 0.001
    return _UNITS_S[unit[0]]


def _until_s(reset: str | None, now_s: float) -> float | None:
    """Return the seconds until a limit is full again, or None if a server does not report it.

    reset: these seconds, or a time since 1970.
    """
    number = _number(reset)
    if number is None or number < _EPOCH_S:
        return seconds(reset, now_s)
    time_s = number / 1000 if number > _EPOCH_MS else number
    return max(0.0, time_s - now_s)


def seconds(text: str | None, now_s: float) -> float | None:
    """Return the seconds of a duration or until a date, or None for anything else.

    A duration is '1h2m3.5s', '547ms' or a plain number of seconds.

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
    """Yield the limits on one kind that headers report: 'requests' or 'tokens'."""
    for name in names:
        limit = _number(headers.get(name.format(kind=kind, part="limit")))
        remaining = _number(headers.get(name.format(kind=kind, part="remaining")))
        reset = headers.get(name.format(kind=kind, part="reset"))
        if limit is not None and remaining is not None and limit > 0:
            yield Quota(limit=limit, left=remaining, full_in_s=seconds(reset, now_s))


def _number(text: str | None) -> float | None:
    """Return the number that a header holds, or None for anything else."""
    try:
        number = float((text or "")[:_HEADER])
    except ValueError:
        return None
    return number if math.isfinite(number) else None
