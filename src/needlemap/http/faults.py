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

_PLACE = 2_000  # characters of an address that a redirect leads to
_OUTAGE = (502, 503, 504, 521, 522, 523, 529)  # nobody is there, or too busy: it may come back
_FILTERABLE = (Failure.REJECTED, Failure.UNAUTHORISED)  # what a filter's refusal may look like
_COMPUTED = (408, 504, 524)  # given up by a gateway while the server behind it went on computing

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
    """What a refused request means. body: the response's text, JSON or not."""
    words = _redirect_target(headers) if 300 <= status < 400 else message_of(body)
    return _refused(status, words, spelt(body), headers, f"{server} answered {status}")


def from_reply(reply: Mapping[str, Any], server: str) -> Unmeasured | None:
    """What a reply of status 200 means that holds an error, as gateways report one of the server
    behind them, and some providers their own; None for any other."""
    error = error_in(reply)
    if error is None:
        return None
    body = json.dumps(reply, ensure_ascii=False)
    status, words = status_in(error, reply), message_of(body)
    if not status and kind_of(200, body[:READ], words) is Failure.REJECTED:
        failed = unreadable("The reply is an error", words, transient=True)
        failed.filtered = bool(FILTERED.search(body[:READ]))
        return failed
    said = f"{server} answered {status or '200, with an error'}"
    return _refused(status or 200, words, body[:READ], {}, said)


def _refused(
    status: int, words: str, body: str, headers: Mapping[str, str], said: str
) -> Unmeasured:
    """A refusal by its status, its message, and as much of its body as is read."""
    failure = kind_of(status, body, words)
    limited = failure is Failure.RATE_LIMITED
    used_up = limited and bool(USED_UP.search(body))
    larger = limited and is_larger_than_limit(body)
    proxys = failure is Failure.REJECTED and status == 413
    if limited:
        transient = not (used_up or larger)
    else:
        transient = failure is not Failure.TOO_LONG and (status in (408, 409) or status >= 500)
    refused = Unmeasured(
        failure,
        scrub(f"{said}: {words or 'nothing'}{f' {_OF_A_PROXY}' if proxys else ''}"),
        transient=transient,
        retry_after_s=asked_wait_s(headers, body) if limited else retry_after_s(headers),
    )
    refused.status, refused.outage = status, failure is Failure.SERVER and status in _OUTAGE
    refused.spent = Spent() if status in _COMPUTED else None
    refused.filtered = failure in _FILTERABLE and bool(FILTERED.search(body))
    refused.hopeless = used_up
    refused.limit_tokens = limit_a_minute(body) if limited else None
    refused.misplaced = status == 404
    return refused


def page_instead(text: str, server: str) -> Unmeasured | None:
    """What it means that a page came where JSON was asked for: no API stands at that address. None
    for other text."""
    page = page_title(text[:READ])
    if not page:
        return None
    failed = unreadable(f"{server} answered with {page} in place of JSON", "Is --base-url right?")
    failed.misplaced = True
    return failed


def _redirect_target(headers: Mapping[str, str]) -> str:
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


def unreadable(problem: str, body: str, *, transient: bool = False) -> Unmeasured:
    """A reply that holds no answer. transient: when it was cut short rather than wrong."""
    return _sent(
        Unmeasured(
            Failure.UNREADABLE, scrub(f"{problem}: {body or 'nothing'}"), transient=transient
        )
    )


def timed_out(timeout_s: float, by: str = " (setting: timeout_s)") -> Unmeasured:
    """No answer within the time allowed for one attempt."""
    words = f"No answer within {round(timeout_s, 1):g} s{by}."
    return _sent(Unmeasured(Failure.TIMED_OUT, words, transient=True))


def _sent(failure: Unmeasured) -> Unmeasured:
    """A failure of a request that was sent, and may be billed."""
    failure.spent = Spent()
    return failure


def unanswered(server: str, waited_s: float) -> Unmeasured:
    """Nobody took the connection."""
    text = scrub(f"No connection to {server}: it did not answer for {waited_s:g} s")
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
        f"{str(failure).rstrip('.')}. Start the server or correct its address (--base-url, or "
        f"--arm of ab); to wait for one that is starting, add --wait 5m"
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
