"""Build one cell's prompts as `CDMEDataset.load` does, with one needle or several.

A haystack file is JSON Lines. Each line is tokenised by itself, and each repeat shuffles the lines
anew. A file is read and tokenised once for all its cells. Needles go to token positions, which can
be inside a character. The original's wording is not part of needlemap: to compare byte for byte,
pass it as `template`, with {context} and {question}.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from needlemap.errors import HaystackError, SettingsError, did_you_mean
from needlemap.haystacks import shuffled
from needlemap.haystacks.folder import line_text
from needlemap.haystacks.readers import read_text
from needlemap.interop.formulas import chained_positions
from needlemap.prompts.templates import guided, load_template
from needlemap.text import whole_characters
from needlemap.text.tokens import Span, Tokenizer, TokenText, join
from needlemap.tokenizers import Keyed
from needlemap.tokenizers import load as load_tokenizer


@dataclass(frozen=True, slots=True, eq=False)
class TokenLines:
    """The lines of a file in file order, each tokenised by itself."""

    texts: tuple[TokenText, ...]

    def background(self, repeat: int, target: int) -> Span:
        """Return the first `target` tokens of the lines in the order of a repeat.

        If the file is short, they are fewer. A target below 0 takes that many off the end of the
        first line, as the original's slice does.
        """
        if target > 0:
            # Only powers of two, so that neighbouring lengths share one text and few are kept.
            text = _opening(self, repeat, tokens=1 << (target - 1).bit_length())
            return text.span(0, min(target, len(text)))

        first = _in_order(self, repeat)[0]
        if target == 0:
            return first.span(0, 0)
        return first.span(0, max(0, len(first) + target))


def read(path: Path, tokenizer: Tokenizer) -> TokenLines:
    """Return a file's lines, from memory if neither file nor tokenizer changed.

    Raises HaystackError.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise HaystackError(
            f"No haystack file at '{path}': {error.strerror}. Check path and file_list."
        ) from None
    return _tokenised(
        path,
        status.st_mtime_ns,
        size=status.st_size,
        keyed=Keyed.of(tokenizer),
    )


# The time and the size are part of the cache's key, so that a changed file is read again.
@lru_cache(maxsize=8)
def _tokenised(path: Path, mtime_ns: int, size: int, keyed: Keyed) -> TokenLines:  # noqa: ARG001
    text = read_text(path, marks=False)
    if not text:
        raise HaystackError(f"Haystack file '{path}' is empty.")

    lines = enumerate(text.removesuffix("\n").split("\n"), 1)
    texts = tuple(
        keyed.tokenizer.index(line_text(line, path, number).encode()) for number, line in lines
    )
    return TokenLines(texts)


def _in_order(lines: TokenLines, repeat: int) -> list[TokenText]:
    """Return the lines in the order of a repeat."""
    return shuffled(list(lines.texts), "cumulative", 0, repeat)


@lru_cache(maxsize=32)
def _opening(lines: TokenLines, repeat: int, tokens: int) -> TokenText:
    """Return the first lines of a repeat, joined, with at least so many tokens if there are."""
    texts: list[TokenText] = []
    total = 0
    for text in _in_order(lines, repeat):
        texts.append(text)
        total += len(text)
        if total >= tokens:
            break
    return join(texts)


def context(background: Span, points: Sequence[int], needles: Sequence[TokenText]) -> str:
    """Return the background with the needles as text.

    points: the token before which each needle goes, ascending. Bytes of a character that a needle
    splits become U+FFFD.
    """
    start = background.start
    cuts = [start, *(start + point for point in points), background.stop]
    pieces = [Span(background.text, begin, end) for begin, end in pairwise(cuts)]
    spans = [pieces[0]]
    for needle, piece in zip(needles, pieces[1:], strict=True):
        spans += [needle.span(), piece]
    return b"".join([span.data for span in spans]).decode("utf-8", errors="replace")


def check_depth(depth: float, name: str = "depth") -> None:
    """Raise SettingsError for a depth outside 0..100.

    The original takes such a depth for a position from the end.
    """
    if not 0 <= depth <= 100:
        raise SettingsError(f"{name} must lie in 0..100 (percent), got {depth}.")


LANGUAGES = {"Chinese": "chat-zh", "English": "chat-en"}
_PLACE = re.compile(r"\{(context|question)\}")


@dataclass(frozen=True, slots=True)
class Wording:
    """The words around haystack and question.

    Attributes:
        prompt: Text with {context} and {question}, or a list of texts that together hold both. By
            mistake the original sent such a list, as Python writes it.
        guide: A sentence that goes before `guide_marker` in the question.
        guide_marker: Text of the question.
        guided_suffix: What the first version appends to the question instead of a guide.
    """

    prompt: str | Sequence[str]
    guide: str = ""
    guide_marker: str = ""
    guided_suffix: str = ""

    @classmethod
    def of(cls, template: Mapping[str, Any] | None, language: str) -> Wording:
        """Return the given template, or if None our own words in that language.

        Raises SettingsError.
        """
        if language not in LANGUAGES:
            raise SettingsError(
                f"Unknown language '{language}'. {did_you_mean(language, LANGUAGES)}"
            )
        if template is None:
            return _own_wording(language)
        keys = [field.name for field in fields(cls)]
        for key in template:
            if key not in keys:
                raise SettingsError(f"Unknown template key '{key}'. {did_you_mean(key, keys)}")
        places = sorted(_PLACE.findall("".join(template.get("prompt", ""))))
        if places != ["context", "question"]:
            raise SettingsError(
                "The template's 'prompt' must hold {context} once and {question} once."
            )
        return cls(**template)

    def with_guide(self, question: str) -> str:
        """Return the question with the guide before the marker, up to a second marker.

        Raises SettingsError.
        """
        if not self.guide:
            raise SettingsError(
                "guide is on, but the template has no 'guide'. Add one, or pass guide=False."
            )
        if self.guide_marker not in question:
            raise SettingsError(
                f"The question does not hold the guide marker '{self.guide_marker}'. "
                "Add it to the question, change 'guide_marker', or pass guide=False."
            )
        return guided(question, self.guide, self.guide_marker)

    def filled(self, context: str, question: str) -> str:
        """Return the prompt. Placeholders inside context or question are left as they are."""
        values = {"context": context, "question": question}
        if isinstance(self.prompt, str):
            return _fill(self.prompt, values)
        return str([_fill(text, values) for text in self.prompt])


def _fill(text: str, values: Mapping[str, str]) -> str:
    # Every second part is the name of a placeholder.
    parts = _PLACE.split(text)
    parts[1::2] = [values[name] for name in parts[1::2]]
    return "".join(parts)


def _own_wording(language: str) -> Wording:
    """Return needlemap's chat template as one text."""
    template = load_template(LANGUAGES[language])
    return Wording(
        prompt="\n\n".join(part.filled("{context}", "{question}") for part in template.parts),
        guide=template.guide,
        guided_suffix=guided("", template.guide),
    )


def load(
    path: str | Path,
    length: int,
    depth: float,
    tokenizer_model: str,
    file_list: Sequence[str],
    num_repeats_per_file: int,
    length_buffer: int,
    guide: bool,
    language: str,
    needle: str | None = None,
    retrieval_question: str | None = None,
    needles: Sequence[str] | None = None,
    diff: float | None = None,
    answer: str | None = None,
    keyword: str | None = None,
    template: Mapping[str, str] | None = None,
) -> list[dict[str, str]]:
    """Return rows {"prompt", "answer"} of one cell.

    Files come in the order of file_list, each with all its repeats. Give `needle`, or `needles`
    with `diff`, `answer` and `keyword` (the rows' answer is then 'answer*keyword').

    path: the folder. length, length_buffer: tokens; the context has length - length_buffer of
    them before it is decoded. depth, diff: percent. language: 'Chinese' or 'English'. template:
    {"prompt", "guide", "guide_marker"}, or None for our own words. Raises HaystackError,
    SettingsError, VocabularyMissing.
    """
    check_depth(depth)
    texts, row_answer = _needles_and_answer(
        needle, needles, diff=diff, answer=answer, keyword=keyword
    )
    if retrieval_question is None:
        raise SettingsError("'retrieval_question' is missing.")
    wording = Wording.of(template, language)
    question = wording.with_guide(retrieval_question) if guide else retrieval_question
    tokenizer = load_tokenizer(tokenizer_model)
    needle_texts = [tokenizer.index(whole_characters(text).encode()) for text in texts]
    needle_tokens = [len(text) for text in needle_texts]
    target = length - length_buffer - sum(needle_tokens)

    rows = []
    for file in file_list:
        lines = read(Path(path) / file, tokenizer)
        for repeat in range(num_repeats_per_file):
            background = lines.background(repeat, target)
            points = chained_positions(
                depth / 100,
                needle_tokens,
                haystack_tokens=len(background),
                step=(diff or 0) / 100,
            )
            prompt = wording.filled(context(background, points, needle_texts), question)
            rows.append({"prompt": prompt, "answer": row_answer})
    return rows


def _needles_and_answer(
    needle: str | None,
    needles: Sequence[str] | None,
    *,
    diff: float | None,
    answer: str | None,
    keyword: str | None,
) -> tuple[Sequence[str], str]:
    """Return the needles and the rows' answer: a single needle is its own answer."""
    if (needle is None) == (not needles):
        raise SettingsError("Give either 'needle' or 'needles', one of the two.")
    if needle is not None:
        return [needle], needle
    if diff is None or answer is None or keyword is None:
        raise SettingsError(
            "Several needles need 'diff' (percent between them), 'answer' and 'keyword'."
        )
    check_depth(diff, "diff")
    return needles or (), f"{answer}*{keyword}"
