"""What servers say when they refuse, and what kind of failure it is.

Each provider has words of its own, and new ones every year. So a few phrases that name no numbers
are listed here, and the rest goes by rules: a prompt is too long where a word of length and a word
of excess stand with two numbers, and a limit over time is one whatever its status.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from needlemap.errors import Failure
from needlemap.untrusted import read_json

# Characters of a body that are searched for words.
READ = 10_000
# Levels of an error in an error in an error ...
_LEVELS = 5

# What servers say when a prompt does not fit, and name no numbers, or not two. LMDeploy says
# nothing: see `models/openai.py`.
TOO_LONG = re.compile(
    # OpenAI
    r"context_length_e(xceeded|rror)|context length is|exceeds the context window|tokens exceed "
    r"the configured limit"
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
    r"|context window exceeds limit|greater than the context length|too large for model with"
    # Z.ai, Bedrock
    r"|tokens in request more than max|input tokens exceeded|too many (input|prompt|context) tokens"
    r"|tokens? (limit|count)[^.\n]{0,20}exceed|exceed(s|ed|ing)?[^.\n]{0,20}\btokens? (limit|count)"
    r"|\b(text|request|query|document) (is )?too long"
    # Whoever says what is too long.
    r"|\b(prompts?|inputs?|contexts?|messages|conversation|context (window|length|size))\b"
    r"(?! (should|must) be)[^.\n]{0,40}(\btoo (long|large)\b|\boverflow|exceed(s|ed|ing)?\b"
    r"[^.\n]{0,20}(length|token|size|window|max|context))"
    r"|exceed(s|ed|ing)? (the )?(model'?s? )?(max(imum)?[ _])?(context|prompt|input|sequence)[ _]"
    r"(length|size|window|limit|tokens?)|context[ _]?(length|window|size|limit)[ _]?(is )?exceeded"
    r"|\b(length|size) of (the |your )?(prompt|input|context|messages)\b[^.\n]{0,20}exceed"
    r"|\b(request|prompt|input)\b[^.\n]{0,20}exceed(s|ed|ing)? the max(imum)? number of tokens"
    r"|\bfit (the prompt )?(in(to)? |within )?(the |this |its )?(model'?s? )?(max(imum)? )?context"
    # In Chinese.
    r"|(输入|上下文|提示词|文本|内容|prompt)[^。\n]{0,20}(超过|超出|超限|过长|太长)"
    r"|(超过|超出)[^。\n]{0,12}(上下文|长度|token)",
    re.IGNORECASE,
)
# Of those that name both numbers: a word of length, and a word of excess.
_LENGTH = re.compile(
    r"token|context|length|\blong(er)?\b|prompt|sequence len|window|n_ctx|max_?(seq|model|pos)",
    re.IGNORECASE,
)
_EXCESS = re.compile(
    r"exceed|too (long|large|many|big)|longer|larger|greater|bigger|more than|less than|fewer than"
    r"|at most|up to|\bover\b|overflow|\bpast\b|\bonly\b|surpass|above|beyond|limit|not enough"
    r"|insufficient|out of range|reduce|shorten|shorter|maximum|\bmax\b|max_?(len|input|seq|model)"
    r"|\b(takes|accepts|allow(s|ed))\b|cannot|can't|must be"
    r"|(does not|doesn't) fit|\d ?[<>]=? ?\d|超|最大|最多",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"(?<![\w.-])\d[\d,_]{0,20}(?:\.\d{1,9})?[km]?(?!\w|-(?!token))", re.IGNORECASE
)
# Other fields have limits too. They are meant unless the prompt is named.
_OTHER_LIMIT = re.compile(
    r"max_?(completion|output|new)?_?tokens|max(imum)?[ _]output|(completion|output) tokens"
    r"|budget|temperature|top_?(p|k)\b|logprob|penalty|\bseed\b|\bstop\b|stop_?sequences?"
    r"|\bimages?\b|\bfiles?\b|\btools?\b|\buser\b|metadata|\bn\b|\bheaders?\b|\bUR[IL]\b|batch",
    re.IGNORECASE,
)
_PROMPT = re.compile(
    r"prompt|input[_ ](tokens?|length|sequence|text|is)\b|inputs\b|context|messages|conversation"
    r"|sequence len|n_ctx|max_?(seq|model)",
    re.IGNORECASE,
)
_PROMPT_PARAMETER = re.compile(r"(body[.,])?(messages|prompt|input|contents?|system|max_)")
_TOO_LONG_BY_NUMBERS = (200, 400, 413, 422, 500)

OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemoryError", re.IGNORECASE)
# A limit over time; servers do not always say 429.
THROTTLED = re.compile(
    r"rate[ _-]?limit|\b(TPM|RPM|TPD|RPD|ITPM|OTPM|QPM|QPS)\b"
    r"|\b(tokens|requests|queries) (per|/|a) ?(minute|min|day|hour|second)|throttl"
    r"|too ?many ?requests|please (wait before|slow down)|capacity_exceeded|RESOURCE_EXHAUSTED"
    r"|(调用|请求)(频率|过于频繁|过多)|限流",
    re.IGNORECASE,
)
_MAY_THROTTLE = (200, 400, 413, 422, 424, 500)
# Groq says 498 if it has no capacity left.
_RATE_LIMITED = (429, 498)
# A quota that waiting does not refill.
USED_UP = re.compile(
    r"insufficient[_ ]?(quota|balance|credit|funds)|credit balance|per[-_ ]?day|daily"
    r"|\b(TPD|RPD)\b|per 24 ?h|\b(per|a|this|your)[-_ ]?(month|week)\b|monthly|weekly"
    r"|out of credits|余额不足|欠费",
    re.IGNORECASE,
)
# A request that is larger than a whole minute's allowance, or whose length wants another plan.
_TOO_LARGE = re.compile(
    r"request too large|extra usage is required|long[ -]context[^.]{0,60}(required|not (available"
    r"|enabled|supported)|beta|tier|credits)|larger than (the|your) (rate )?limit",
    re.IGNORECASE,
)
_ASKED_OF = re.compile(
    r"Limit:? ?([\d,]{1,20})\b.{0,80}?Requested:? ?([\d,]{1,20})\b", re.IGNORECASE
)
_A_MINUTE = re.compile(r"\b([\d,]{1,20}) (?:input |prompt )?tokens (?:per|/|a) ?min", re.IGNORECASE)
_OF_TOKENS = re.compile(r"token|context|prompt|\blong\b", re.IGNORECASE)

# A letter as JSON escapes it, but for those of ASCII, which may be a quotation mark.
_ESCAPED = re.compile(r"\\u(?!00[0-7])([0-9a-f]{4})", re.IGNORECASE)
_PAGE = re.compile(r"\s*<(!doctype html|html|head|body)\b", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]{0,100}>([^<]{1,200})", re.IGNORECASE)


def kind_of(status: int, body: str, words: str) -> Failure:
    """Return the kind of failure that a refusal is. words: its message, of the body."""
    if status in (401, 403):
        return Failure.UNAUTHORISED
    no_memory = OUT_OF_MEMORY.search(body)
    is_throttled = status in _MAY_THROTTLE and not no_memory and THROTTLED.search(body)
    if status in _RATE_LIMITED or is_throttled:
        return Failure.RATE_LIMITED
    if status != 404 and _is_too_long(status, body, words):
        return Failure.TOO_LONG
    if status >= 500:
        return Failure.MEMORY if no_memory else Failure.SERVER
    return {408: Failure.TIMED_OUT, 409: Failure.SERVER}.get(status, Failure.REJECTED)


def _is_too_long(status: int, body: str, words: str) -> bool:
    """Return True if the prompt does not fit.

    A server says so in a phrase of its own, or words of length and of excess stand with two numbers
    and are about no other field of the request.
    """
    # A proxy's limit, which counts bytes.
    if status == 413 and not _OF_TOKENS.search(words) and not TOO_LONG.search(body):
        return False
    if TOO_LONG.search(body):
        return True
    if status not in _TOO_LONG_BY_NUMBERS or OUT_OF_MEMORY.search(body):
        return False
    is_other = _OTHER_LIMIT.search(words) or not _PROMPT_PARAMETER.match(
        _parameter(body) or "prompt"
    )
    if is_other and not _PROMPT.search(words):
        return False
    numbers = {number.strip(",._") for number in _NUMBER.findall(words)}
    return len(numbers) > 1 and bool(_LENGTH.search(words) and _EXCESS.search(words))


def _parameter(body: str) -> str:
    """Return the field of the request that an error names, or '' for none."""
    value = _json_in(body)
    value = value[0] if isinstance(value, list) and value else value
    error = value.get("error", value) if isinstance(value, dict) else None
    parameter = error.get("param") if isinstance(error, dict) else None
    return parameter if isinstance(parameter, str) else ""


def is_larger_than_limit(body: str) -> bool:
    """Return True if a request is larger than all of a limit over time, so that it never passes.

    >>> is_larger_than_limit("on tokens per minute (TPM): Limit 2000, Requested 3203")
    True
    >>> is_larger_than_limit("on tokens per minute (TPM): Limit 2000, Used 1900, Requested 203")
    False
    """
    match = _ASKED_OF.search(body)
    if match is not None:
        limit, requested = (int(digits.replace(",", "") or 0) for digits in match.groups())
        if requested > limit:
            return True
    return bool(_TOO_LARGE.search(body))


def limit_a_minute(body: str) -> float | None:
    """Return the tokens a minute that a refusal names, or None.

    >>> limit_a_minute("the rate limit of your organization of 2,000 input tokens per minute")
    2000.0
    """
    match = _A_MINUTE.search(body)
    digits = match[1].replace(",", "") if match else ""
    return float(digits) if digits else None


# Where a server puts its words, and the code that says that they are an error's.
_WORDS = (
    *("error", "errors", "base_resp", "message", "detail", "msg", "error_msg", "error_message"),
    *("status_msg", "errmsg", "description", "reason"),
)
_CODES = ("code", "error_code", "errcode", "status_code", "statusCode", "status")
_FINE = (None, "", 0, "0", 200, "200", "ok", "OK", "success", "Success", "SUCCESS", False, True)
_ANSWERS = ("choices", "content", "output", "data")
_STATUS = re.compile(r"[45]\d\d")


def error_in(reply: Mapping[str, Any]) -> Any:
    """Return the part of a reply of status 200 that is an error, or None if none is."""
    if reply.get("error"):
        return reply["error"]
    # MiniMax's place for it.
    base_response = reply.get("base_resp")
    if isinstance(base_response, dict) and base_response.get("status_code") not in _FINE:
        return base_response
    if any(reply.get(name) for name in _ANSWERS):
        return None
    has_code = any(_is_code(reply.get(name)) for name in _CODES) or reply.get("object") == "error"
    has_words = any(isinstance(reply.get(name), str | list) and reply[name] for name in _WORDS)
    return reply if has_words and (has_code or reply.get("success") is False) else None


def _is_code(value: object) -> bool:
    return isinstance(value, str | int) and value not in _FINE


def status_in(error: Any, reply: Mapping[str, Any]) -> int:
    """Return the status that an error's own fields name, or 0 for none."""
    for part in (error, reply):
        if not isinstance(part, dict):
            continue
        for name in _CODES:
            status = part.get(name)
            if isinstance(status, str) and _STATUS.fullmatch(status):
                status = int(status)
            if isinstance(status, int) and 400 <= status < 600:
                return status
    return 0


def spelt(body: str) -> str:
    """Return the part of a body that is read for words, with its letters as they are.

    Many servers escape all letters but those of ASCII.

    >>> spelt(r'{"message": "\\u8f93\\u5165\\u8fc7\\u957f", "is": "\\u0022"}')
    '{"message": "输入过长", "is": "\\\\u0022"}'
    """
    return _ESCAPED.sub(lambda letter: chr(int(letter[1], 16)), body[:READ])


def message_of(body: str) -> str:
    """Return the words in an error's body, wherever a server puts them.

    Of a page it is the title, of other text all.

    >>> (
    ...     message_of('{"error": {"message": "no"}}'),
    ...     message_of('[{"error": {"message": "no"}}]'),
    ...     message_of("no"),
    ...     message_of("<html><title>No</title>"),
    ... )
    ('no', 'no', 'no', "an HTML page, 'No'")
    """
    value = _json_in(body)
    if value is None:
        return page_title(body[:READ]) or body[:READ]
    return _words_in(value, _LEVELS) or json.dumps(value, ensure_ascii=False)


def _json_in(body: str) -> Any:
    try:
        return read_json(body)
    except ValueError:
        return None


def _words_in(value: Any, levels: int) -> str:
    """Return the words of an error's JSON, '' for none.

    Those of the server behind a gateway are included.
    """
    if isinstance(value, list):
        error = value[0] if len(value) == 1 and isinstance(value[0], dict) else {}
        return _words_in(error, levels) if {"error", "message"} & set(error) else ""
    if not isinstance(value, dict) or not levels:
        return value if isinstance(value, str) else ""
    inner = next((value[name] for name in _WORDS if value.get(name)), None)
    words = _words_in(inner, levels - 1)
    if not words and inner is not None:
        words = json.dumps(inner, ensure_ascii=False)
    metadata = value.get("metadata")
    # OpenRouter's place for it.
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if raw:
        reason = message_of(raw) if isinstance(raw, str) else _words_in(raw, levels - 1)
        reason = reason or json.dumps(raw, ensure_ascii=False)
        words = f"{words}: {reason}" if words else reason
    return words


def page_title(text: str) -> str:
    """Return what an HTML page calls itself, or '' for other text."""
    if not _PAGE.match(text):
        return ""
    title = _TITLE.search(text)
    return f"an HTML page, {' '.join(title[1].split())!r}" if title else "an HTML page"
