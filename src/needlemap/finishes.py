"""Decide what the end of an answer means for a trial, by the words that servers have for it.

A model may stop, use up its budget, refuse, or call a tool: that is its answer, which is scored. A
content filter may withhold it: that is scored too, and counted next to the mean. A server that
broke the answer off has measured nothing. Nor has a context window that was full before the
answer's budget was. A word that is not known is reported, and its answer is scored if there is a
text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from needlemap.errors import Failure, Spent, Unmeasured
from needlemap.secrets import scrub

# Characters of a finish reason, and of the text of a broken answer.
_MOST_SHOWN = 200
# Finish reasons in a warning about those that are not known.
_NAMED = 3
_FULL = (
    "The context window was full before the answer ended: use shorter --lengths, or a smaller "
    "--max-answer-tokens"
)
# OpenAI's word.
CONTENT_FILTER = "content_filter"
# The word for a reply whose field is there and empty.
UNTOLD = "null"


class Ending(StrEnum):
    """Kinds of ends."""

    WHOLE = "whole"
    CUT = "cut by budget"
    WINDOW = "cut by context window"
    FILTERED = "filtered"
    REFUSED = "refused"
    TOOL_CALL = "tool call"
    BROKEN = "broken off"


# As providers, gateways and engines spell them. Case, blanks and marks are ignored, and so is
# `FinishReason.` before a word.
_SPELLINGS = {
    Ending.WHOLE: "stop stopped end end_turn stop_sequence stop_word eos eos_token end_of_text "
    "endoftext complete completed done finish finished normal success",
    Ending.CUT: "length max_length limit max_tokens max_new_tokens max_output_tokens "
    "max_completion_tokens token_limit",
    Ending.WINDOW: "model_context_window_exceeded model_length",
    Ending.FILTERED: "content_filter content_filtered safety image_safety recitation blocklist "
    "prohibited_content spii language sensitive model_armor guardrail_intervened error_toxic "
    "moderation flagged",
    Ending.REFUSED: "refusal refused",
    Ending.TOOL_CALL: "tool_call tool_calls tool_use function_call malformed_function_call "
    "unexpected_tool_call too_many_tool_calls malformed_tool_use",
    Ending.BROKEN: "null none error abort aborted cancel canceled cancelled timeout timed_out "
    "time_limit engine_error network_error server_error internal_error error_limit user_cancel "
    "insufficient_system_resource insufficient_system_resources failed failure incomplete "
    "interrupted disconnected overloaded unavailable killed preempted unload not_finished "
    "in_progress pause_turn malformed_model_output",
}
# Parts of words that are not in the table: `upstream_timeout`, `content_filter: RECITATION`.
_PARTS = {
    Ending.FILTERED: r"filter|safety|guardrail|prohibited|blocked",
    Ending.REFUSED: r"refus",
    Ending.TOOL_CALL: r"toolcall|tooluse|functioncall",
    Ending.WINDOW: r"contextwindow|contextlength",
    Ending.CUT: r"maxtoken|max\w*tokens|tokenlimit",
    Ending.BROKEN: r"error|abort|cancel|timeout|timedout|fail|overload|unavailable|insufficient"
    r"|interrupt|disconnect",
}
_MARKS = re.compile(r"[\W_]+")
_PREFIX = re.compile(r"^(finish|stop)reason(?=.)")


def _bare_word(word: str) -> str:
    """Return a word without its case, marks and prefix."""
    return _PREFIX.sub("", _MARKS.sub("", word[:_MOST_SHOWN].casefold()))


ENDINGS = {
    _bare_word(word): ending for ending, words in _SPELLINGS.items() for word in words.split()
}


def pattern_of(*endings: Ending) -> str:
    """Return a pattern that finds the words of some ends, for a script that stands alone.

    The script must take case and marks off a word before it tries the pattern.
    """
    words = [word for word, ending in ENDINGS.items() if ending in endings]
    parts = [_PARTS[ending] for ending in endings if ending in _PARTS]
    return "|".join([f"^(?:{'|'.join(words)})$", *parts])


def ending_of(finish: str | None) -> Ending | None:
    """Return what a finish reason means, or None if it is not known, or if none is given.

    >>> ending_of("FinishReason.MAX_TOKENS"), ending_of("content-filter"), ending_of("Aborted")
    (<Ending.CUT: 'cut by budget'>, <Ending.FILTERED: 'filtered'>, <Ending.BROKEN: 'broken off'>)
    >>> ending_of("eol"), ending_of(None)
    (None, None)
    """
    if finish is None:
        return None
    # Most are spelled as the table has them.
    if finish in ENDINGS:
        return ENDINGS[finish]
    word = _bare_word(finish)
    if word in ENDINGS:
        return ENDINGS[word]
    return next((ending for ending, parts in _PARTS.items() if re.search(parts, word)), None)


def finish_of(value: object) -> str:
    """Return the finish reason of a reply's field.

    The field may be an object with a type, as engines send it. If it is there and empty, the answer
    was not finished. Any other value is a word that is not known.

    >>> finish_of({"type": "abort"}), finish_of(""), finish_of({"reason": "error"}), finish_of(3)
    ('abort', 'null', "{'reason': 'error'}", '3')
    """
    if isinstance(value, dict):
        value = value.get("type", value)
    if value is None or value == "":
        return UNTOLD
    return value if isinstance(value, str) else str(value)[:_MOST_SHOWN]


def is_unknown(finish: str | None) -> bool:
    """Return True if a finish reason is given and in no table."""
    return bool(finish) and ending_of(finish) is None


def list_unknown(finishes: Iterable[str | None]) -> list[str]:
    """Return a line on the finish reasons that are in no table, or none if all are known.

    >>> list_unknown(["stop", "eol", None, "eol"])
    ["warning: finish reasons that are not known, of answers that are scored: 'eol' (2)"]
    """
    counts = Counter(filter(None, finishes))
    unknown = Counter({word: count for word, count in counts.items() if is_unknown(word)})
    if not unknown:
        return []
    names = [f"{word[:_MOST_SHOWN]!r} ({count:,})" for word, count in unknown.most_common(_NAMED)]
    words = ", ".join(names)
    if len(unknown) > _NAMED:
        words = f"{words}, ..."
    return [f"warning: finish reasons that are not known, of answers that are scored: {words}"]


def check_finish(finish: str | None, text: str, why: str = "", remedy: str = "") -> None:
    """Raise Unmeasured for an answer that its model did not end.

    text: the answer. why: the server's own words for an error. remedy: what to type if it is a
    whole answer all the same.
    """
    ending = ending_of(finish)
    if why or ending is Ending.BROKEN:
        broken = _unfinished("The server broke the answer off", finish, text, why, transient=True)
        if remedy and not why:
            broken.args = (f"{broken}. {remedy}",)
        raise broken
    if ending is Ending.WINDOW:
        # It would end so again.
        raise _unfinished(_FULL, finish, text, transient=False)
    if is_unknown(finish) and not text.strip():
        raise _unfinished("The answer is empty, and why is not known", finish, text, transient=True)


def _unfinished(
    what: str, word: str | None, text: str, why: str = "", *, transient: bool
) -> Unmeasured:
    """Return the error for a request that was sent, and may be billed."""
    reason = f" (finish reason {word[:_MOST_SHOWN]!r})" if word else ""
    words = f": {why}" if why else ""
    start = f". Its text so far: {text[:_MOST_SHOWN]!r}" if text.strip() else ""
    message = scrub(f"{what}{reason}{words}{start}")
    failure = Unmeasured(Failure.SERVER, message, transient=transient)
    failure.spent = Spent()
    return failure
