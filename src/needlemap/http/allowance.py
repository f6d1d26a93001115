"""What a server's headers say of its rate limits: how many requests and tokens it still takes, until when.

OpenAI's names (`x-ratelimit-limit-requests`, ... : vLLM gateways, Groq, Azure, LiteLLM send the same) and
Anthropic's (`anthropic-ratelimit-requests-limit`, ...). Nothing is waited for here: see `asking/pacer.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from time import time

_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Quota:
    """One limit. limit: what a full allowance holds. left: what the server had left, below 0 when overdrawn.

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


def allowance(headers: Mapping[str, str], now_s: float | None = None) -> Allowance | None:
    """What headers say; None for nothing. They are read once: a client's own mapping decodes at each look.

    >>> allowance({"x-ratelimit-limit-tokens": "8000", "x-ratelimit-remaining-tokens": "7927",
    ...            "x-ratelimit-reset-tokens": "547ms"}).tokens
    Quota(limit=8000.0, left=7927.0, full_in_s=0.547)
    """
    said = {name.lower(): value for name, value in headers.items() if "ratelimit" in name.lower()}
    now = time() if now_s is None else now_s
    requests, tokens = (next(_quotas(said, kind, now), None) for kind in ("requests", "tokens"))
    return Allowance(requests, tokens) if requests or tokens else None


def seconds(text: str | None, now_s: float) -> float | None:
    """A duration as '1h2m3.5s', '547ms' or plain seconds, or the time until a date; None for anything else.

    >>> seconds("6m0s", 0), seconds("64", 0), seconds("1970-01-01T00:01:00Z", 30), seconds("soon", 0)
    (360.0, 64.0, 30.0, None)
    """
    if not text:
        return None
    if _PARTS.sub("", text) == "":
        return sum(float(number) * _UNITS_S[unit] for number, unit in _PARTS.findall(text))
    plain = _number(text)
    if plain is not None:
        return max(0.0, plain)
    try:
        return max(0.0, datetime.fromisoformat(text).timestamp() - now_s)
    except (ValueError, OverflowError):
        return None


def _quotas(headers: Mapping[str, str], kind: str, now_s: float) -> Iterator[Quota]:
    for limit, left, reset in (
        (f"x-ratelimit-limit-{kind}", f"x-ratelimit-remaining-{kind}", f"x-ratelimit-reset-{kind}"),
        tuple(f"anthropic-ratelimit-{kind}-{part}" for part in ("limit", "remaining", "reset")),
        tuple(f"anthropic-ratelimit-input-{kind}-{part}" for part in ("limit", "remaining", "reset")),
    ):
        most, rest = _number(headers.get(limit)), _number(headers.get(left))
        if most is not None and rest is not None and most > 0:
            yield Quota(most, rest, seconds(headers.get(reset), now_s))


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None
