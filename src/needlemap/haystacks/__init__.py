"""Sources of background text, and how documents become one tokenised haystack.

A source has named documents in a fixed order; this file reads none itself. A haystack is their
order, how they are joined, how much is needed: only as much is read and tokenised as the longest
prompt needs.
"""

from needlemap.haystacks.haystack import Haystack, assemble, bytes_a_token, shuffled
from needlemap.haystacks.source import Document, Source, Stream

__all__ = [
    "Document",
    "Haystack",
    "Source",
    "Stream",
    "assemble",
    "bytes_a_token",
    "shuffled",
]
