"""Whether a server is asked to stream: as the user typed it, or as the server turns out to want."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from needlemap.errors import Failure, Unmeasured
from needlemap.models.model import Decoding

# Words for it: "This model only support stream mode", "Stream must be set to true",
# "parameter.enable_thinking must be set to false for non-streaming calls", "仅支持流式".
_STREAM = r"(?<![a-z])stream(ing|ed|s)?(?![a-z])"
ONLY_STREAMS = re.compile(
    rf"\bonly\b.{{0,60}}{_STREAM}|{_STREAM}.{{0,20}}\bonly\b"
    rf"|{_STREAM}.{{0,60}}(\bmust\b|\brequired?\b|\bshould be\b|\bmandatory\b|\bneeds? to\b)"
    rf"|(\bmust\b|\brequires?\b|\bplease\b|\bneeds? to\b|\bhave to\b).{{0,60}}{_STREAM}"
    rf"|\b(non|not|un|without|disabl\w+)[ _-]?{_STREAM}"
    rf"|{_STREAM}\W{{0,5}}false.{{0,60}}(not |un|in)(allowed|supported|valid|available)"
    r"|[只仅].{0,12}(流式|stream)|非流式|必须.{0,12}(流式|stream)|(流式|stream).{0,12}必须",
    re.IGNORECASE | re.DOTALL,
)
_USAGE_REFUSED = re.compile(r"stream[_ ]options|include_usage", re.IGNORECASE)
_REFUSALS = (Failure.REJECTED, Failure.SERVER, Failure.UNREADABLE, Failure.UNAUTHORISED)


class Streaming:
    """What is known of a server's streams.

    usage_field: requests a report of tokens at a stream's end, from servers that send none by
    themselves.
    """

    def __init__(self, usage_field: Mapping[str, Any]) -> None:
        self._usage_field = usage_field
        # Whether the server wants to stream.
        self.is_wanted = False

    def fields(self, decoding: Decoding) -> dict[str, Any]:
        """Return the fields of a request that has its reply streamed, or {} if it has not."""
        if decoding.stream or self.is_wanted:
            return {"stream": True, **self._usage_field}
        return {}

    def learn(self, fields: Mapping[str, Any], refusal: Unmeasured) -> bool:
        """Note what the refusal of a request shows, and return True if the next one differs.

        fields: the fields of the request that was refused.
        """
        if refusal.failure not in _REFUSALS:
            return False
        words = str(refusal)
        if not fields:
            self.is_wanted |= bool(ONLY_STREAMS.search(words))
            return self.is_wanted
        if _USAGE_REFUSED.search(words):
            self._usage_field = {}
        return len(fields) > 1 + len(self._usage_field)
