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

from needlemap.allowance import retry_after_s
from needlemap.errors import Failure, Spent, Unmeasured
from needlemap.secrets import scrub

READ = 10_000  # characters of a body that are looked at for words
_PLACE = 2_000  # characters of an address that a redirect leads to
_OUTAGE = (502, 503, 504, 521, 522, 523, 529)  # nobody is there, or too busy: it may come back
_FILTERABLE = (Failure.REJECTED, Failure.UNAUTHORISED)  # what a filter's refusal may look like
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

# A content filter's words in a refusal, in fields that hold a word each or in a message.
FILTERED = re.compile(
    r'"content_filter"|ResponsibleAIPolicyViolation'  # Azure, Moonshot
    r'|"content_policy_violation"|content filtering policy'  # OpenAI, Anthropic
    r"|data_inspection_failed|DataInspectionFailed|Content Exists Risk"  # Qwen, DeepSeek
    r'|"flagged_input"|ContentPolicyViolationError'  # OpenRouter, LiteLLM
)

_PAGE = re.compile(r"\s*<(!doctype html|html|head|body)\b", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]{0,100}>([^<]{1,200})", re.IGNORECASE)


def from_status(
    status: int, body: str, headers: Mapping[str, str], *, server: str = "The server"
) -> Unmeasured:
    """What a refused request means. body: the response's text, JSON or not."""
    words = _redirect_target(headers) if 300 <= status < 400 else message_of(body)
    body = body[:READ]
    failure = _failure(status, body)
    if failure is Failure.RATE_LIMITED:
        transient = not NEVER_ENOUGH.search(body)
    else:
        transient = failure is not Failure.TOO_LONG and (status in (408, 409) or status >= 500)
    said = scrub(f"{server} answered {status}: {words or 'nothing'}")
    refused = Unmeasured(failure, said, transient=transient, retry_after_s=retry_after_s(headers))
    refused.status, refused.outage = status, failure is Failure.SERVER and status in _OUTAGE
    refused.spent = Spent() if status in _COMPUTED else None
    refused.filtered = failure in _FILTERABLE and bool(FILTERED.search(body))
    return refused


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


def message_of(body: str) -> str:
    """The words in an error's body, wherever a server puts them; of a page its title, of other
    text all.

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
        return _page_title(body[:READ]) or body[:READ]
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
