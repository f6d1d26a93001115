"""What a refusal means: servers' words become values.

A status, headers and words become one `Unmeasured`, which says whether asking again is worth
it, and for how long the server asked us to wait (`allowance.py`). Nothing is waited for here:
see `asking/pacer.py`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from socket import gaierror
from typing import Any
from urllib.parse import urlsplit

from needlemap.allowance import asked_wait_s, retry_after_s
from needlemap.errors import Failure, Spent, Unmeasured
from needlemap.http.wording import (
    READ,
    USED_UP,
    error_in,
    is_larger_than_limit,
    kind_of,
    limit_a_minute,
    message_of,
    page_title,
    spelt,
    status_in,
)
from needlemap.secrets import scrub

# Characters of an address that a redirect leads to.
_PLACE = 2_000
# Nobody is there, or too busy: it may come back.
_OUTAGE = (502, 503, 504, 521, 522, 523, 529)
# What a filter's refusal may look like.
_FILTERABLE = (Failure.REJECTED, Failure.UNAUTHORISED)
# Given up by a gateway while the server behind it went on computing.
_COMPUTED = (408, 504, 524)

# A content filter's words in a refusal, in fields that hold a word each or in a message.
FILTERED = re.compile(
    r'"content_filter"|ResponsibleAIPolicyViolation'  # Azure, Moonshot
    r'|"content_policy_violation"|content filtering policy'  # OpenAI, Anthropic
    r"|data_inspection_failed|DataInspectionFailed|Content Exists Risk"  # Qwen, DeepSeek
    r'|"flagged_input"|ContentPolicyViolationError'  # OpenRouter, LiteLLM
)

_OF_A_PROXY = (
    "(It is a limit on the size of a request's body, not the model's: raise it where it is set, in "
    "nginx as client_max_body_size.)"
)


def from_status(
    status: int, body: str, headers: Mapping[str, str], *, server: str = "The server"
) -> Unmeasured:
    """Return what a refused request means. body: the response's text, JSON or not."""
    words = _redirect_target(headers) if 300 <= status < 400 else message_of(body)
    return _refusal(status, words, spelt(body), headers, f"{server} answered {status}")


def failure_in_reply(reply: Mapping[str, Any], server: str) -> Unmeasured | None:
    """Return the failure that a reply of status 200 reports, or None if it reports no error.

    Gateways report errors of the server behind them in this way. Some providers report their own
    errors so.
    """
    error = error_in(reply)
    if error is None:
        return None
    body = json.dumps(reply, ensure_ascii=False)
    status, words = status_in(error, reply), message_of(body)
    if not status and kind_of(200, body[:READ], words) is Failure.REJECTED:
        failure = unreadable("The reply is an error", words, transient=True)
        failure.filtered = bool(FILTERED.search(body[:READ]))
        return failure
    sentence = f"{server} answered {status or '200, with an error'}"
    return _refusal(status or 200, words, body[:READ], {}, sentence)


def _refusal(
    status: int, words: str, body: str, headers: Mapping[str, str], sentence: str
) -> Unmeasured:
    """Return the failure of a refused request.

    words: the refusal's message. body: as much of the reply's body as is read. sentence: what the
    failure's text starts with.
    """
    failure = kind_of(status, body, words)
    is_limited = failure is Failure.RATE_LIMITED
    is_used_up = is_limited and bool(USED_UP.search(body))
    is_too_large = is_limited and is_larger_than_limit(body)
    is_proxys_limit = failure is Failure.REJECTED and status == 413
    if is_limited:
        transient = not (is_used_up or is_too_large)
    else:
        transient = failure is not Failure.TOO_LONG and (status in (408, 409) or status >= 500)
    text = f"{sentence}: {words or 'nothing'}"
    if is_proxys_limit:
        text = f"{text} {_OF_A_PROXY}"
    refusal = Unmeasured(
        failure,
        scrub(text),
        transient=transient,
        retry_after_s=asked_wait_s(headers, body) if is_limited else retry_after_s(headers),
    )
    refusal.status = status
    refusal.outage = failure is Failure.SERVER and status in _OUTAGE
    refusal.spent = Spent() if status in _COMPUTED else None
    refusal.filtered = failure in _FILTERABLE and bool(FILTERED.search(body))
    refusal.hopeless = is_used_up
    refusal.limit_tokens = limit_a_minute(body) if is_limited else None
    refusal.misplaced = status == 404
    return refusal


def page_failure(text: str, server: str) -> Unmeasured | None:
    """Return the failure of a request that was answered with a page, or None for other text.

    No API is at such an address.
    """
    page = page_title(text[:READ])
    if not page:
        return None
    failure = unreadable(f"{server} answered with {page} in place of JSON", "Is --base-url right?")
    failure.misplaced = True
    return failure


def _redirect_target(headers: Mapping[str, str]) -> str:
    """Return where a redirect leads, without what may be a key."""
    location = headers.get("location") or headers.get("Location") or ""
    try:
        target = urlsplit(location[:_PLACE])._replace(query="", fragment="").geturl()
    except ValueError:
        target = ""
    return (
        f"it sends us on to {target or 'nowhere'}, and redirects are not followed. Is --base-url "
        f"right?"
    )


def unreadable(problem: str, body: str, *, transient: bool = False) -> Unmeasured:
    """Return the failure of a reply that holds no answer.

    transient: whether it was cut short rather than wrong.
    """
    text = scrub(f"{problem}: {body or 'nothing'}")
    return _as_sent(Unmeasured(Failure.UNREADABLE, text, transient=transient))


def timeout_failure(timeout_s: float, by: str = " (setting: timeout_s)") -> Unmeasured:
    """Return the failure of an attempt without an answer in the time allowed for it."""
    words = f"No answer within {round(timeout_s, 1):g} s{by}."
    return _as_sent(Unmeasured(Failure.TIMED_OUT, words, transient=True))


def _as_sent(failure: Unmeasured) -> Unmeasured:
    """Return a failure, marked as that of a request that was sent and may be billed."""
    failure.spent = Spent()
    return failure


def no_answer_failure(server: str, waited_s: float) -> Unmeasured:
    """Return the failure of a connection that no server accepted."""
    text = scrub(f"No connection to {server}: it did not answer for {waited_s:g} s")
    failure = Unmeasured(Failure.CONNECTION, text, transient=True)
    failure.outage = failure.unreached = True
    return failure


def connection_failure(error: BaseException, server: str, *, sent: bool = True) -> Unmeasured:
    """Return the failure of a connection that broke, or that could not be made.

    sent: whether the request was sent before the connection broke.
    """
    # Imported late, because `--help` does not need it.
    import ssl

    causes = list(_causes(error))
    reason = next(filter(None, map(_words, causes)), type(error).__name__)
    failure = Unmeasured(
        Failure.CONNECTION, scrub(f"No connection to {server}: {reason}"), transient=True
    )
    failure.outage = not sent and not any(
        isinstance(cause, gaierror | ssl.SSLError) for cause in causes
    )
    failure.unreached = not sent
    return _as_sent(failure) if sent else failure


def unreached_words(failure: Unmeasured) -> str:
    """Return what to type if no connection could ever be made."""
    return (
        f"{str(failure).rstrip('.')}. Start the server or correct its address (--base-url, or "
        f"--arm of ab); to wait for one that is starting, add --wait 5m"
    )


def _words(error: BaseException) -> str:
    if isinstance(error, gaierror):
        return str(error.strerror)
    has_number = isinstance(error, OSError) and error.errno is not None and error.errno > 0
    return os.strerror(error.errno) if has_number else str(error).strip()  # type: ignore[attr-defined]


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those behind it, the one that came first at the front."""
    cause = error.__cause__ or error.__context__
    if cause is not None:
        yield from _causes(cause)
    yield error
