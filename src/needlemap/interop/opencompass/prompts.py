"""The dynamic data sets: one cell's prompts, as `CDMEDataset.load` makes them, single needle or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from needlemap.errors import SettingsError
from needlemap.interop.opencompass.lines import read, utf8
from needlemap.interop.opencompass.placement import chain, check_depth, context
from needlemap.interop.opencompass.wording import Wording
from needlemap.tokenizers.catalogue import load as load_tokenizer


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
    """Rows {"prompt", "answer"} of one cell: files in the order of file_list, each with all its repeats.

    path: the folder. length, length_buffer: tokens; the context has length - length_buffer of them before
    it is decoded. depth, diff: percent. language: 'Chinese' or 'English'. Give `needle`, or `needles` with
    `diff`, `answer` and `keyword` (the rows' answer is then 'answer*keyword'). template: {"prompt", "guide",
    "guide_marker"}; None takes our own words. Raises HaystackError, SettingsError, VocabularyMissing.
    """
    check_depth(depth)
    hidden, expected = _hidden(needle, needles, diff, answer, keyword)
    question, wording = _asked(retrieval_question, template, language, guide)
    tokenizer = load_tokenizer(tokenizer_model)
    texts = [tokenizer.index(utf8(text)) for text in hidden]
    sizes = [len(text) for text in texts]
    target = length - length_buffer - sum(sizes)
    rows = []
    for file in file_list:
        lines = read(Path(path) / file, tokenizer)
        for repeat in range(num_repeats_per_file):
            background = lines.background(repeat, num_repeats_per_file, target)
            points = chain(len(background), depth, diff or 0, sizes)
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
        raise SettingsError("Several needles need 'diff' (percent between them), 'answer' and 'keyword'.")
    check_depth(diff, "diff")
    return needles or (), f"{answer}*{keyword}"


def _asked(
    question: str | None, template: Mapping[str, str] | None, language: str, guide: bool
) -> tuple[str, Wording]:
    if question is None:
        raise SettingsError("'retrieval_question' is missing.")
    wording = Wording.of(template, language)
    return (wording.asked(question) if guide else question), wording
