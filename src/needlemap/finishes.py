"""Why an answer ended: the words that servers have for it, and what each means for a trial.

A model may stop, use its budget up, refuse, or call a tool: that is its answer, which is scored. A
content filter may withhold it: scored too, and counted next to the mean. A server that broke the
answer off has measured nothing, nor has a context window that was full before the answer's budget
was. A word that nobody knows is reported; its answer is scored if there is a text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from needlemap.errors import Failure, Spent, Unmeasured
from needlemap.secrets import scrub

_SHOWN = 200  # characters of a finish reason, and of what a broken answer said before
_NAMED = 3  # unknown ones in a line
_FULL = (
    "The context window was full before the answer ended: use shorter --lengths, or a smaller "
    "--max-answer-tokens"
)
CONTENT_FILTER = "content_filter"  # OpenAI's word
UNTOLD = "null"  # the word of a reply whose field for it is there and empty


class Ending(StrEnum):
    """Kinds of ends."""

    WHOLE = "whole"
    CUT = "cut by budget"
    WINDOW = "cut by context window"
    FILTERED = "filtered"
    REFUSED = "refused"
    TOOL_CALL = "tool call"
    BROKEN = "broken off"


# As providers, gateways and engines spell them. Upper case, blanks and marks do not count, nor does
# `FinishReason.` before a word.
_WORDS = {
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


def _plain(word: str) -> str:
    """A word without its case, marks and prefix."""
    return _PREFIX.sub("", _MARKS.sub("", word[:_SHOWN].casefold()))


ENDINGS = {_plain(word): ending for ending, words in _WORDS.items() for word in words.split()}


def pattern_of(*endings: Ending) -> str:
    """A pattern that finds the words of some ends in a word without its case and marks: for a
    script that stands alone."""
    words = [word for word, ending in ENDINGS.items() if ending in endings]
    parts = [_PARTS[ending] for ending in endings if ending in _PARTS]
    return "|".join([f"^(?:{'|'.join(words)})$", *parts])


def ending_of(finish: str | None) -> Ending | None:
    """What a finish reason means; None for one that is not known, or where none was given.

    >>> ending_of("FinishReason.MAX_TOKENS"), ending_of("content-filter"), ending_of("Aborted")
    (<Ending.CUT: 'cut by budget'>, <Ending.FILTERED: 'filtered'>, <Ending.BROKEN: 'broken off'>)
    >>> ending_of("eol"), ending_of(None)
    (None, None)
    """
    if finish is None:
        return None
    word = _plain(finish)
    if word in ENDINGS:
        return ENDINGS[word]
    return next((ending for ending, parts in _PARTS.items() if re.search(parts, word)), None)


def finish_of(told: object) -> str:
    """The finish reason in a reply's field. It may be an object that has a type, as engines send
    it; one that is there and empty says that the answer was not finished. Any other value is a
    word that nobody knows.

    >>> finish_of({"type": "abort"}), finish_of(""), finish_of({"reason": "error"}), finish_of(3)
    ('abort', 'null', "{'reason': 'error'}", '3')
    """
    if isinstance(told, dict):
        told = told.get("type", told)
    if told is None or told == "":
        return UNTOLD
    return told if isinstance(told, str) else str(told)[:_SHOWN]


def is_unknown(finish: str | None) -> bool:
    """Whether a finish reason is given and in no table."""
    return bool(finish) and ending_of(finish) is None


def list_unknown(finishes: Iterable[str | None]) -> list[str]:
    """A line on the finish reasons among some answers' that are in no table; none where all are
    known.

    >>> list_unknown(["stop", "eol", None, "eol"])
    ["warning: finish reasons that are not known, of answers that are scored: 'eol' (2)"]
    """
    found = Counter(finish for finish in finishes if finish and is_unknown(finish))
    if not found:
        return []
    named = [f"{word[:_SHOWN]!r} ({count:,})" for word, count in found.most_common(_NAMED)]
    words = ", ".join(named) + (", ..." if len(found) > _NAMED else "")
    return [f"warning: finish reasons that are not known, of answers that are scored: {words}"]


def check_finish(finish: str | None, text: str, why: str = "", remedy: str = "") -> None:
    """Raises Unmeasured for an answer that its model did not end. text: what it said. why: the
    server's own words for an error. remedy: what to type if it is a whole answer all the same."""
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
    said: str, word: str | None, text: str, why: str = "", *, transient: bool
) -> Unmeasured:
    """A request that was sent, and may be billed."""
    reason = f" (finish reason {word[:_SHOWN]!r})" if word else ""
    words = f": {why}" if why else ""
    begun = f". Its text so far: {text[:_SHOWN]!r}" if text.strip() else ""
    failure = Unmeasured(
        Failure.SERVER, scrub(f"{said}{reason}{words}{begun}"), transient=transient
    )
    failure.spent = Spent()
    return failure
