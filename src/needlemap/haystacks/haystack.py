"""Assemble documents into one tokenised text: ordered, joined, and only as much as is needed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count
from random import Random
from typing import Any

from needlemap.errors import HaystackError
from needlemap.haystacks.source import Document, Source
from needlemap.text.tokens import Cuts, Tokenizer, TokenText, join

_STOPPED = re.compile(r"""[.!?]["')\]]?$|[。！？…][”’」』）]?$""")
# White space after a stop; nothing after a Chinese one; line breaks. A run of spaces is matched
# from its start only: from each of its places, a run of megabytes took hours.
_BETWEEN = re.compile(
    r"""((?<!\s)\s*\n\s*|(?<=[.!?])\s+|(?<=[.!?]["')\]])\s+"""
    r"""|(?<=[。！？…])(?![。！？…”’」』）])\s*|(?<=[。！？…][”’」』）])\s*)"""
)
# Tokens to read in addition, so that the last ones needed are not those of a cut text.
_SPARE = 64
# Documents between the repeats of an endless source.
_APART = 1_000_000
# Bytes of a token, on average.
_LONGEST_TOKEN = 1000
# A first guess. More is read while it is not enough.
_BYTES_A_TOKEN = 4.5
# Characters of a document that are tokenised at once, however few are needed: all of a book, which
# has words, but little of a text without words. One word takes some vocabularies 200 times its size
# in memory, and seconds a megabyte.
_AT_ONCE = 4 << 20
_AT_ONCE_WORDLESS = 1 << 20
# Characters that separate words, or between which tokens may be counted apart.
_SEPARATORS = " \n，。；："
# Characters of a word, on average.
_LONGEST_WORD = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Haystack:
    """Documents as one tokenised text.

    Attributes:
        name: The name of its source.
        text: The text.
        cuts: Where the text may be cut.
        sha256: Hash of its bytes.
        repeated_from: The token from which documents are repeated; None if none is.
        ended: Whether its source had fewer tokens than were needed.
    """

    name: str
    text: TokenText
    cuts: Cuts
    sha256: str
    repeated_from: int | None = None
    ended: bool = False

    def broken_off(self, stop: int) -> bool:
        """Return True if its first `stop` tokens end inside a sentence or line."""
        rest = bytes(self.text.span(int(self.cuts.sentence[stop]), stop).data).rstrip(b" \t")
        return bool(rest) and not rest.endswith(b"\n")


def assemble(
    source: Source,
    tokenizer: Tokenizer,
    tokens_needed: int,
    *,
    order: str = "listed",
    joined: str = "paragraphs",
    seed: int = 0,
    repeat: int = 0,
    repeat_allowed: bool = False,
    may_end: bool = False,
    unit: str = "sentence",
    bytes_a_token: float = _BYTES_A_TOKEN,
    shuffle: str = "none",
) -> Haystack:
    """Return at least `tokens_needed` tokens of a source's documents, or fewer if it may end.

    Args:
        source: Has the documents.
        tokenizer: Makes the tokens.
        tokens_needed: How many are needed.
        order: 'listed'; 'shuffled' by seed and repeat; or 'cumulative': each repeat shuffles the
            order of the one before (OpenCompass).
        joined: 'paragraphs' (trimmed, with a blank line between), 'text' (nothing between) or
            'tokens' (nothing between, each document tokenised alone, as OpenCompass does).
        seed: Fixes the order, together with the repeat.
        repeat: The number of the repeat.
        repeat_allowed: Whether documents are repeated if the source is too short.
        may_end: Whether a source that is too short may have fewer tokens.
        unit: What a needle may not split: a name in `tokens.UNITS`.
        bytes_a_token: A first guess of how much to read.
        shuffle: 'sentences' shuffles those of each document, by seed and repeat.

    Raises HaystackError if the source is empty, or too short with neither `repeat_allowed` nor
    `may_end`.
    """
    documents = _arranged(source, order, seed=seed, repeat=repeat, shuffle=shuffle)
    text = _text(documents, tokenizer, tokens_needed, joined=joined, guess=bytes_a_token)
    repeated_from = None
    if len(text) < tokens_needed:
        if not len(text):
            raise HaystackError(f"Haystack '{source.name}' holds no text.{_left_out(source)}")
        if not repeat_allowed and not may_end:
            raise HaystackError(
                f"Haystack '{source.name}' has {len(text):,} tokens of '{tokenizer.name}', the "
                f"longest prompt needs {tokens_needed:,}. Add text, use shorter lengths, or allow "
                f"repeating it with --haystack-repeat.{_left_out(source)}"
            )
        if repeat_allowed:
            repeated_from = len(text)
            endless = (
                document
                for _ in count()
                for document in _arranged(source, order, seed=seed, repeat=repeat, shuffle=shuffle)
            )
            text = _text(endless, tokenizer, tokens_needed, joined=joined, guess=bytes_a_token)
    return Haystack(
        name=source.name,
        text=text,
        cuts=Cuts.of(text, unit),
        sha256=hashlib.sha256(text.data).hexdigest(),
        repeated_from=repeated_from,
        ended=len(text) < tokens_needed,
    )


def _left_out(source: Source) -> str:
    """Return what a source of files did not read, as sentences for an error."""
    lines = source.notes()[1:]
    return "".join(f" {line[:1].upper()}{line[1:]}." for line in lines)


def _arranged(
    source: Source, order: str, seed: int, repeat: int, shuffle: str
) -> Iterator[Document]:
    """Return the documents in their order, with the sentences of each in theirs."""
    documents = _ordered(source, order, seed=seed, repeat=repeat)
    if shuffle == "none":
        return documents
    prefix = f"sentences:{seed}:{repeat}"
    return (
        Document(
            document.name,
            shuffled_sentences(document.text, Random(f"{prefix}:{document.name}")),
        )
        for document in documents
    )


def shuffled_sentences(text: str, random: Random) -> str:
    """Return a text with its sentences shuffled.

    Breaks of lines and paragraphs stay where they were. So does a line without a stop, e.g. a
    title.

    >>> shuffled_sentences("A title\\n\\nAnn swims. Bob (7) runs.\\n\\nEve sings!", Random(1))
    'A title\\n\\nAnn swims. Eve sings!\\n\\nBob (7) runs.'
    """
    # A sentence, what separates it from the next one, a sentence, and so on.
    parts = _BETWEEN.split(text)
    places = [place for place in range(0, len(parts), 2) if _STOPPED.search(parts[place])]
    sentences = random.sample([parts[place] for place in places], len(places))
    for place, sentence in zip(places, sentences, strict=True):
        parts[place] = sentence
    return "".join(parts)


def _ordered(source: Source, order: str, seed: int, repeat: int) -> Iterator[Document]:
    if order == "listed":
        return source.documents()
    if source.endless:
        return source.documents(repeat * _APART)
    if source.parts is not None:
        numbers = shuffled(list(range(source.parts)), order, seed=seed, repeat=repeat)
        return chain.from_iterable(map(source.part, numbers))
    return iter(shuffled(list(source.documents()), order, seed=seed, repeat=repeat))


def shuffled(listed: list[Any], order: str, seed: int, repeat: int) -> list[Any]:
    """Shuffle documents, or the numbers of a source's parts, in place, and return them.

    order: 'shuffled', or 'cumulative': repeat k shuffles the order of repeat k - 1, with seed k.

    >>> shuffled([0, 1, 2], "cumulative", 0, 0), shuffled([0, 1, 2], "cumulative", 0, 1)
    ([0, 2, 1], [2, 1, 0])
    """
    if order == "shuffled":
        Random(f"{seed}:{repeat}").shuffle(listed)
    else:
        for counter in range(repeat + 1):
            Random(counter).shuffle(listed)
    return listed


def bytes_a_token(source: Source, tokenizer: Tokenizer) -> float:
    """Return how many bytes a token of a source has in its first document."""
    data = next(source.documents()).text.encode()
    return len(data) / max(1, tokenizer.count(data))


def _text(
    documents: Iterator[Document],
    tokenizer: Tokenizer,
    tokens_needed: int,
    joined: str,
    guess: float,
) -> TokenText:
    if joined == "tokens":
        return _token_by_token(documents, tokenizer, tokens_needed)
    tokens_needed += _SPARE
    target_bytes = tokens_needed * guess
    pieces: list[bytes] = []
    size = 0
    parts = (part for document in documents for part in _document_parts(document, joined))
    while True:
        for part in parts:
            pieces.append(part.encode())
            size += len(pieces[-1])
            if size >= target_bytes:
                break
        text = tokenizer.index(b"".join(pieces))
        if len(text) >= tokens_needed or size < target_bytes:
            return text
        _refuse_losing(tokenizer, size, tokens=len(text))
        target_bytes *= 1.3


def _refuse_losing(tokenizer: Tokenizer, size: int, tokens: int) -> None:
    """Raise HaystackError if a vocabulary drops nearly all of a text, so that no text is enough.

    size: the bytes that were read. tokens: how many tokens they have.
    """
    if size > _LONGEST_TOKEN * (tokens + 1):
        raise HaystackError(
            f"'{tokenizer.name}' makes {tokens:,} tokens of {size:,} bytes: it has none for most "
            f"of them. Give the --tokenizer, or the model's tokenizer.json, that the text is "
            f"written for."
        )


def _token_by_token(
    documents: Iterator[Document], tokenizer: Tokenizer, tokens_needed: int
) -> TokenText:
    """Return the tokens of documents, each tokenised by itself, until there are enough."""
    texts = []
    tokens = 0
    size = 0
    for document in documents:
        text, document_bytes = _tokenise_start(document, tokenizer, tokens_needed - tokens)
        texts.append(text)
        tokens += len(text)
        _refuse_losing(tokenizer, size, tokens=tokens)
        size += document_bytes
        if tokens >= tokens_needed:
            break
    return join(texts)


def _tokenise_start(
    document: Document, tokenizer: Tokenizer, tokens_needed: int
) -> tuple[TokenText, int]:
    """Return the start of a document as tokens, and how many bytes of it were read.

    The start has the tokens that are needed, or is the whole document.
    """
    text = join(())
    pieces: list[bytes] = []
    size = 0
    # All that was read is tokenised anew each time, so the size doubles from one time to the next.
    next_size = 0
    for part, is_last in _parts(document.text):
        pieces.append(part.encode())
        size += len(pieces[-1])
        if not is_last and size < next_size:
            continue

        text = tokenizer.index(b"".join(pieces))
        next_size = 2 * size
        if len(text) >= tokens_needed + _SPARE:
            break
    return text, size


def _document_parts(document: Document, joined: str) -> Iterator[str]:
    """Yield a document as it is joined: a paragraph ends with a blank line, unless it is empty."""
    if joined != "paragraphs":
        for part, _ in _parts(document.text):
            yield part
        return
    for part, is_last in _parts(document.text.strip()):
        if is_last and part:
            yield f"{part}\n\n"
        else:
            yield part


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """Yield a text in parts that are long enough for most runs, each with whether it is the last.

    An empty text is one empty part.
    """
    stop = 0
    while not stop or stop < len(text):
        start = stop
        stop += _AT_ONCE_WORDLESS
        while stop < min(len(text), start + _AT_ONCE) and _has_words(text, stop):
            stop += _AT_ONCE_WORDLESS
        yield text[start:stop], stop >= len(text)


def _has_words(text: str, start: int) -> bool:
    """Return True if a text has words from a place on, so that no vocabulary takes it for one."""
    stop = min(len(text), start + _AT_ONCE_WORDLESS)
    separators = sum(text.count(sign, start, stop) for sign in _SEPARATORS)
    return separators * _LONGEST_WORD >= stop - start
