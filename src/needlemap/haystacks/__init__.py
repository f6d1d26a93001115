"""Read background text from sources, and assemble documents into one tokenised haystack.

A source has named documents in a fixed order. This file reads none itself. A haystack also depends
on the order of documents, how they are joined, and how much is needed: only as much is read and
tokenised as the longest prompt needs.
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
