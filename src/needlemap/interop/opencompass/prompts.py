"""The dynamic data sets: one cell's prompts, as `CDMEDataset.load` makes them, single needle
or several.

A haystack file is JSON Lines, each tokenised by itself, reshuffled per repeat; it is read and
tokenised once for all cells asked of it. Needles stand at token positions, inside a character
if one stands there. The original's wording is not part of needlemap: pass it as `template`, of
{context} and {question}, to compare byte for byte.
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
    """A file's lines in file order, each tokenised by itself."""

    texts: tuple[TokenText, ...]

    def background(self, repeat: int, target: int) -> Span:
        """The first `target` tokens of the lines in the order of a repeat (fewer where the
        file is short).

        A target of 0 or below takes that many off the end of the first line, as the original's
        slice does.
        """
        if target <= 0:
            first = _in_order(self, repeat)[0]
            return first.span(0, max(0, len(first) + target) if target else 0)
        text = _opening(self, repeat, 1 << (target - 1).bit_length())
        return text.span(0, min(target, len(text)))


def read(path: Path, tokenizer: Tokenizer) -> TokenLines:
    """The file's lines, from memory if neither file nor tokenizer changed. Raises
    HaystackError."""
    try:
        status = path.stat()
    except OSError as error:
        raise HaystackError(
            f"No haystack file at '{path}': {error.strerror}. Check path and file_list."
        ) from None
    return _tokenised(path, status.st_mtime_ns, status.st_size, Keyed.of(tokenizer))


@lru_cache(maxsize=8)
def _tokenised(path: Path, mtime_ns: int, size: int, by: Keyed) -> TokenLines:  # noqa: ARG001 - the key
    text = read_text(path, marks=False)
    if not text:
        raise HaystackError(f"Haystack file '{path}' is empty.")
    lines = enumerate(text.removesuffix("\n").split("\n"), 1)
    texts = tuple(
        by.tokenizer.index(line_text(line, path, number).encode()) for number, line in lines
    )
    return TokenLines(texts)


def _in_order(lines: TokenLines, repeat: int) -> list[TokenText]:
    """The lines in the order of a repeat."""
    return shuffled(list(lines.texts), "cumulative", 0, repeat)


@lru_cache(maxsize=32)
def _opening(lines: TokenLines, repeat: int, tokens: int) -> TokenText:
    """The lines of a repeat, joined, until there are at least so many tokens (or no more
    lines).

    Asked for powers of two only, so that neighbouring lengths share one and few are kept.
    """
    taken, total = [], 0
    for text in _in_order(lines, repeat):
        taken.append(text)
        total += len(taken[-1])
        if total >= tokens:
            break
    return join(taken)


def context(background: Span, points: Sequence[int], needles: Sequence[TokenText]) -> str:
    """The background with the needles at ascending points. Bytes of a split character become
    U+FFFD."""
    text, start = background.text, background.start
    cuts = [start, *(start + point for point in points), background.stop]
    pieces = [Span(text, begin, end) for begin, end in pairwise(cuts)]
    spans = [pieces[0]]
    for needle, piece in zip(needles, pieces[1:], strict=True):
        spans += [needle.span(), piece]
    return b"".join([span.data for span in spans]).decode("utf-8", errors="replace")


def check_depth(depth: float, name: str = "depth") -> None:
    """Raises SettingsError for a depth outside 0..100, which the original takes for a place
    from the end."""
    if not 0 <= depth <= 100:
        raise SettingsError(f"{name} must lie in 0..100 (percent), got {depth}.")


LANGUAGES = {"Chinese": "chat-zh", "English": "chat-en"}
_PLACE = re.compile(r"\{(context|question)\}")


@dataclass(frozen=True, slots=True)
class Wording:
    """prompt: text with {context} and {question}, or a list of texts that hold them together:
    a slip of the original's sent one, as Python writes it. guide: a sentence for before
    guide_marker in the question.

    guided_suffix: what the first version appends to the question instead.
    """

    prompt: str | Sequence[str]
    guide: str = ""
    guide_marker: str = ""
    guided_suffix: str = ""

    @classmethod
    def of(cls, template: Mapping[str, Any] | None, language: str) -> Wording:
        """The template given, else our own words in that language. Raises SettingsError."""
        if language not in LANGUAGES:
            raise SettingsError(
                f"Unknown language '{language}'. {did_you_mean(language, LANGUAGES)}"
            )
        if template is None:
            return _own(language)
        for key in template:
            if key not in (known := [field.name for field in fields(cls)]):
                raise SettingsError(f"Unknown template key '{key}'. {did_you_mean(key, known)}")
        places = sorted(_PLACE.findall("".join(template.get("prompt", ""))))
        if places != ["context", "question"]:
            raise SettingsError(
                "The template's 'prompt' must hold {context} once and {question} once."
            )
        return cls(**template)

    def with_guide(self, question: str) -> str:
        """The question with the guide before the marker, up to a second marker. Raises
        SettingsError."""
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
        """The prompt. Nothing inside context or question is taken for a placeholder."""
        values = {"context": context, "question": question}
        if isinstance(self.prompt, str):
            return _filled(self.prompt, values)
        return str([_filled(text, values) for text in self.prompt])


def _filled(text: str, values: Mapping[str, str]) -> str:
    parts = _PLACE.split(text)
    return "".join(values[part] if index % 2 else part for index, part in enumerate(parts))


def _own(language: str) -> Wording:
    """needlemap's chat template as one text."""
    template = load_template(LANGUAGES[language])
    prompt = "\n\n".join(part.filled("{context}", "{question}") for part in template.parts)
    return Wording(prompt, template.guide, guided_suffix=guided("", template.guide))


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
    """Rows {"prompt", "answer"} of one cell: files in the order of file_list, each with all
    its repeats.

    path: the folder. length, length_buffer: tokens; the context has length - length_buffer of
    them before it is decoded. depth, diff: percent. language: 'Chinese' or 'English'. Give
    `needle`, or `needles` with `diff`, `answer` and `keyword` (the rows' answer is then
    'answer*keyword'). template: {"prompt", "guide", "guide_marker"}; None takes our own words.
    Raises HaystackError, SettingsError, VocabularyMissing.
    """
    check_depth(depth)
    hidden, expected = _hidden(needle, needles, diff, answer, keyword)
    question, wording = _guided_question(retrieval_question, template, language, guide)
    tokenizer = load_tokenizer(tokenizer_model)
    texts = [tokenizer.index(whole_characters(text).encode()) for text in hidden]
    sizes = [len(text) for text in texts]
    target = length - length_buffer - sum(sizes)
    rows = []
    for file in file_list:
        lines = read(Path(path) / file, tokenizer)
        for repeat in range(num_repeats_per_file):
            background = lines.background(repeat, target)
            points = chained_positions(depth / 100, sizes, len(background), (diff or 0) / 100)
            prompt = wording.filled(context(background, points, texts), question)
            rows.append({"prompt": prompt, "answer": expected})
    return rows


def _hidden(
    needle: str | None,
    needles: Sequence[str] | None,
    diff: float | None,
    answer: str | None,
    keyword: str | None,
) -> tuple[Sequence[str], str]:
    """The needles and the rows' answer: a single needle is its own answer."""
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


def _guided_question(
    question: str | None, template: Mapping[str, str] | None, language: str, guide: bool
) -> tuple[str, Wording]:
    if question is None:
        raise SettingsError("'retrieval_question' is missing.")
    wording = Wording.of(template, language)
    return (wording.with_guide(question) if guide else question), wording
