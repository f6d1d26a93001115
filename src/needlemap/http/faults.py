"""What a refusal means, and what headers say of rate limits: servers' words become values.

A status, headers and words become one `Unmeasured`, which says whether asking again is worth it,
and for how long the server asked us to wait. Nothing is waited for here: see `asking/pacer.py`.

Rate limits are how many requests and tokens a server still takes, until when. OpenAI's names
(`x-ratelimit-limit-requests`, ... : vLLM gateways, Groq, Azure, LiteLLM send the same) and
Anthropic's
(`anthropic-ratelimit-requests-limit`, ...).
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from socket import gaierror
from time import time
from typing import Any
from urllib.parse import urlsplit

from needlemap.errors import Failure, Spent, Unmeasured
from needlemap.secrets import scrub

LIMIT_HEADERS = (
    "x-ratelimit-{part}-{kind}",
)  # part: limit, remaining, reset; kind: requests, tokens
_READ = 10_000  # characters of a body that are looked at for words
_HEADER = 64  # characters of a header that are read as a number or a time
_PLACE = 2_000  # characters of an address that a redirect leads to
_OUTAGE = (502, 503, 504, 521, 522, 523, 529)  # nobody is there, or too busy: it may come back
_COMPUTED = (408, 504, 524)  # given up by a gateway while the server behind it went on computing

# What servers say when a prompt does not fit. LMDeploy says nothing: see `openai.py`.
TOO_LONG = re.compile(
    # OpenAI
    r"context_length_exceeded|context length is|exceeds the context window|tokens exceed the "
    r"configured limit"
    r"|max(imum)? (context|model) length|is longer than the maximum model"  # vLLM
    r"|longer than the model's context|token count exceeds the model"  # SGLang
    # llama.cpp
    r"|exceeds? the available context size|exceed_context_size|context size has been exceeded"
    r"|`inputs` (must have less than|tokens \+ `max_new_tokens` must be)"  # TGI
    # LMDeploy
    r"|input length exceed|input_length_error|exceeds? (the )?session_len|session max length"
    r"|prompt is too long|`max_tokens` exceed context limit|request_too_large"  # Anthropic
    # Gemini, Bedrock, xAI
    r"|input token count .{0,200}exceeds|input is too long|maximum prompt length is"
    # Qwen, Groq, Kimi
    r"|range of input length should be|reduce the length of the|exceeded model token"
    # MiniMax, LM Studio, Mistral
    r"|context window exceeds limit|greater than the context length|too large for model with",
    re.IGNORECASE,
)
OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemoryError", re.IGNORECASE)
# A quota that waiting does not refill, or a request larger than a whole minute's allowance.
NEVER_ENOUGH = re.compile(r"insufficient_quota|request too large|credit balance", re.IGNORECASE)

_PAGE = re.compile(r"\s*<(!doctype html|html|head|body)\b", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]{0,100}>([^<]{1,200})", re.IGNORECASE)
_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def from_status(
    status: int, body: str, headers: Mapping[str, str], *, server: str = "The server"
) -> Unmeasured:
    """What a refused request means. body: the response's text, JSON or not."""
    words = _wanted(headers) if 300 <= status < 400 else message_of(body)
    body = body[:_READ]
    failure = _failure(status, body)
    if failure is Failure.RATE_LIMITED:
        transient = not NEVER_ENOUGH.search(body)
    else:
        transient = failure is not Failure.TOO_LONG and (status in (408, 409) or status >= 500)
    said = scrub(f"{server} answered {status}: {words or 'nothing'}")
    refused = Unmeasured(failure, said, transient=transient, retry_after_s=retry_after_s(headers))
    refused.status, refused.outage = status, failure is Failure.SERVER and status in _OUTAGE
    refused.spent = Spent() if status in _COMPUTED else None
    return refused


def _wanted(headers: Mapping[str, str]) -> str:
    """Where a redirect leads, without what may be a key."""
    try:
        place = (
            urlsplit((headers.get("location") or headers.get("Location") or "")[:_PLACE])
            ._replace(query="", fragment="")
            .geturl()
        )
    except ValueError:
        place = ""
    return (
        f"it sends us on to {place or 'nowhere'}, and redirects are not followed. Is --base-url "
        f"right?"
    )


def _failure(status: int, body: str) -> Failure:
    if status in (401, 403):
        return Failure.UNAUTHORISED
    if status == 429:
        return Failure.RATE_LIMITED
    if status == 413 or TOO_LONG.search(body):
        return Failure.TOO_LONG
    if status >= 500:
        return Failure.MEMORY if OUT_OF_MEMORY.search(body) else Failure.SERVER
    return {408: Failure.TIMED_OUT, 409: Failure.SERVER}.get(status, Failure.REJECTED)


def unreadable(problem: str, body: str, *, transient: bool = False) -> Unmeasured:
    """A reply that holds no answer. transient: when it was cut short rather than wrong."""
    return _sent(
        Unmeasured(
            Failure.UNREADABLE, scrub(f"{problem}: {body or 'nothing'}"), transient=transient
        )
    )


def timed_out(timeout_s: float) -> Unmeasured:
    """No answer within the time allowed for one attempt."""
    words = f"No answer within {round(timeout_s, 1):g} s (setting: timeout_s)."
    return _sent(Unmeasured(Failure.TIMED_OUT, words, transient=True))


def _sent(failure: Unmeasured) -> Unmeasured:
    """A failure of a request that was sent, and may be billed."""
    failure.spent = Spent()
    return failure


def unanswered(server: str, waited_s: float) -> Unmeasured:
    """Nobody took the connection."""
    text = scrub(f"No connection to {server}: nobody answered for {waited_s:g} s")
    failure = Unmeasured(Failure.CONNECTION, text, transient=True)
    failure.outage = failure.unreached = True
    return failure


def lost(error: BaseException, server: str, *, sent: bool = True) -> Unmeasured:
    """The connection broke, or (sent False) could not be made."""
    import ssl  # late: not for those who only ask for help

    causes = list(_causes(error))
    why = next(filter(None, map(_words, causes)), type(error).__name__)
    failure = Unmeasured(
        Failure.CONNECTION, scrub(f"No connection to {server}: {why}"), transient=True
    )
    failure.outage = not sent and not any(
        isinstance(each, gaierror | ssl.SSLError) for each in causes
    )
    failure.unreached = not sent
    return _sent(failure) if sent else failure


def unreached_words(failure: Unmeasured) -> str:
    """What to type where no connection could ever be made."""
    return (
        f"{str(failure).rstrip('.')}. Start the server or correct its address (--base-url); to "
        f"wait for one that is starting, add --wait 5m"
    )


def _words(error: BaseException) -> str:
    if isinstance(error, gaierror):
        return str(error.strerror)
    known = isinstance(error, OSError) and error.errno is not None and error.errno > 0
    return os.strerror(error.errno) if known else str(error).strip()  # type: ignore[attr-defined]


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An exception and those behind it, the one that came first at the front."""
    behind = error.__cause__ or error.__context__
    if behind is not None:
        yield from _causes(behind)
    yield error


def retry_after_s(headers: Mapping[str, str], now_s: float | None = None) -> float | None:
    """How long a server asks us to wait, in seconds: `retry-after-ms`, `retry-after` in seconds or
    as a date. None also for no time at all, as where a clock goes wrong: it would be asked again
    and again at once.

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


def _number(text: str | None) -> float | None:
    try:
        number = float((text or "")[:_HEADER])
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def message_of(body: str) -> str:
    """The words in an error's body, wherever a server puts them; of a page its title, of other text
    all.

    >>> (
    ...     message_of('{"error": {"message": "no"}}'),
    ...     message_of("no"),
    ...     message_of("<html><title>No</title>"),
    ... )
    ('no', 'no', "an HTML page, 'No'")
    """
    try:
        said: Any = json.loads(body)
    except (ValueError, RecursionError):
        return _page_title(body[:_READ]) or body[:_READ]
    for name in ("error", "message", "detail"):
        if isinstance(said, dict) and said.get(name):
            said = said[name]
    return said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)


def _page_title(text: str) -> str:
    """What an HTML page calls itself; '' for other text."""
    if not _PAGE.match(text):
        return ""
    title = _TITLE.search(text)
    return f"an HTML page, {' '.join(title[1].split())!r}" if title else "an HTML page"


@dataclass(frozen=True, slots=True)
class Quota:
    """One limit. limit: what a full allowance holds. left: what the server had left, below 0 when
    overdrawn.

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


def allowance(
    headers: Mapping[str, str],
    now_s: float | None = None,
    names: Sequence[str] = LIMIT_HEADERS,
) -> Allowance | None:
    """What headers say; None for nothing. They are read once: a client's own mapping decodes at
    each look.

    >>> allowance({"x-ratelimit-limit-tokens": "8000", "x-ratelimit-remaining-tokens": "7927",
    ...            "x-ratelimit-reset-tokens": "547ms"}).tokens
    Quota(limit=8000.0, left=7927.0, full_in_s=0.547)
    """
    said = {name.lower(): value for name, value in headers.items() if "ratelimit" in name.lower()}
    now = time() if now_s is None else now_s
    requests, tokens = (
        next(_quotas(said, kind, now, names), None) for kind in ("requests", "tokens")
    )
    return Allowance(requests, tokens) if requests or tokens else None


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
