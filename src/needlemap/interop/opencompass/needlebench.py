"""Make NeedleBench's prompts, byte for byte: single needle, parallel needles, reasoning
(OpenCompass, March 2024 to today, versions 1 and 2). Its ancestral trace is in `ancestry`.

The data are the user's files: haystacks, needles.jsonl, names.json,
multi_needle_reasoning_*.json. The original's wording is not here: pass `template`. Its habits are
kept: characters are split at cuts; if a length is below its reserve, the haystack is empty; the
lengths of needles that are to be joined count twice; and a Chinese prompt of version 1 with the
question first is a list of two texts, as Python prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from needlemap.errors import HaystackError, SettingsError
from needlemap.interop.formulas import chained_positions
from needlemap.interop.opencompass.ancestry import fact
from needlemap.interop.opencompass.data import json_of, text_of
from needlemap.interop.opencompass.prompts import (
    TokenLines,
    Wording,
    check_depth,
    context,
    read,
)
from needlemap.text import whole_characters
from needlemap.tokenizers import load as load_tokenizer
from needlemap.untrusted import read_json

# The part of a question's form that the answer fills in.
_BLANK = "________"
Row = dict[str, str]


@dataclass(frozen=True, slots=True)
class HiddenFacts:
    """What a repeat hides, and what it asks for.

    Attributes:
        needles: In the order of the text.
        question: As the prompt has it.
        answer: As the row stores it.
        last_person: The youngest of a line of descent, whom the prompt's notes name too; else ''.
    """

    needles: Sequence[str]
    question: str
    answer: str
    last_person: str = ""


def load_single(
    path: str | Path,
    length: int,
    depth: float,
    tokenizer_model: str,
    file_list: Sequence[str],
    num_repeats_per_file: int,
    length_buffer: int,
    language: str,
    template: Mapping[str, Any],
    needle_file_name: str = "needles.jsonl",
    guide: bool | None = None,
    seeded: bool = True,
) -> list[Row]:
    """Return the rows {"prompt", "answer"} of one cell. The parameters are `load`'s.

    template: {"prompt"}, a text or the list that the original had, and for a guide {"guide",
    "guide_marker"}. guide: None in version 2; in version 1 True, or False for base models, whose
    prompt ends where the answer starts. seeded: False as in March 2024, when a shuffle came before
    the draw of the needle. Raises HaystackError, SettingsError, VocabularyMissing.
    """
    wording = Wording.of(template, language)
    entries = _entries(path, needle_file_name, language)

    def hide(repeat: int, lines: TokenLines) -> HiddenFacts:
        random = Random(repeat)
        if not seeded:
            # The original shuffled its haystack by the same random numbers.
            random.shuffle([*range(len(lines.texts))])
        entry = random.choice(entries)
        needle = f"\n{entry['needle']}\n"
        question = entry["retrieval_question"]
        if guide is not None:
            question = wording.with_guide(question)
        if guide is False:
            question = _open(question, wording.guide_marker)
        return HiddenFacts([needle], question, answer=f"{needle}*{entry['arg2']}")

    def positions(haystack_tokens: int, needle_tokens: Sequence[int]) -> list[int]:
        return chained_positions(depth / 100, needle_tokens, haystack_tokens, step=0)

    return _rows(
        path,
        tokenizer_model,
        file_list=file_list,
        repeats=num_repeats_per_file,
        room_tokens=length - length_buffer,
        wording=wording,
        hide=hide,
        positions=positions,
        percents=[depth],
    )


def load_parallel(
    path: str | Path,
    length: int,
    depths: Sequence[float],
    tokenizer_model: str,
    file_list: Sequence[str],
    num_repeats_per_file: int,
    length_buffer: int,
    language: str,
    template: Mapping[str, str],
    seed: int,
    needle_file_name: str = "needles.jsonl",
    guide: bool = False,
) -> list[Row]:
    """Return the rows of one length, a needle at each depth.

    The stored answer is 'word*word#depth*depth'. template: {"prompt", "form"}, the form of the
    answer with {forms}, and for a guide the keys of `load_single`. seed: of the choice of needles,
    which the original does not seed. Raises HaystackError, VocabularyMissing, and SettingsError if
    there are fewer needles than depths.
    """
    prompt_template = dict(template)
    form = prompt_template.pop("form", "{forms}")
    wording = Wording.of(prompt_template, language)
    all_entries = _entries(path, needle_file_name)
    # As in the original, the shuffle comes before the choice of a language.
    Random(seed).shuffle(all_entries)
    entries = _different(
        [entry for entry in all_entries if entry["language"] == language], len(depths)
    )
    question_end, sentence_end = ("？", "。") if language == "Chinese" else ("?", ".")

    def hide(repeat: int, _lines: TokenLines) -> HiddenFacts:
        shuffled = [*entries]
        Random(repeat).shuffle(shuffled)
        questions = [entry["retrieval_question"] for entry in shuffled]
        question = "、".join(text.split(question_end)[0] + question_end for text in questions)
        forms = "、".join(text.split("'")[1].split(sentence_end)[0] for text in questions)
        question += form.replace("{forms}", forms)
        words = "*".join(str(entry["arg2"]) for entry in shuffled)
        percents = "*".join(str(depth) for depth in depths)
        needles = [f"\n{entry['needle']}\n" for entry in shuffled]
        if guide:
            question = wording.with_guide(question)
        return HiddenFacts(needles, question, answer=f"{words}#{percents}")

    def positions(haystack_tokens: int, _needle_tokens: Sequence[int]) -> list[int]:
        return [int(haystack_tokens * (depth / 100)) for depth in depths]

    return _rows(
        path,
        tokenizer_model,
        file_list=file_list,
        repeats=num_repeats_per_file,
        room_tokens=length - length_buffer,
        wording=wording,
        hide=hide,
        positions=positions,
        percents=depths,
    )


def load_reasoning(
    path: str | Path,
    length: int,
    depth: float,
    tokenizer_model: str,
    file_list: Sequence[str],
    num_repeats_per_file: int,
    length_buffer: int,
    language: str,
    template: Mapping[str, Any],
    num_needles: int,
    diff: float,
    needle_file_name: str,
    guide: bool = False,
) -> list[Row]:
    """Return the rows of one cell, with needles that are to be joined.

    diff: the distance between two needles in percent. needle_file_name: version 1's file of
    derivations, or version 2's file of names. template: {"prompt"}; in version 1 also
    {"guided_suffix"}; in version 2 also {"question"} with {last_person}, {"sentences"} with {A},
    {B} and {relationship}, and {"terms"}. Raises HaystackError, SettingsError, VocabularyMissing.
    """
    prompt_template = dict(template)
    question_form = prompt_template.pop("question", None)
    sentences = prompt_template.pop("sentences", None)
    prompt_template.pop("terms", None)
    wording = Wording.of(prompt_template, language)
    content = json_of(path, needle_file_name)

    def derive(repeat: int, _lines: TokenLines) -> HiddenFacts:
        entries = [entry for entry in content if entry["derivation_count"] == num_needles]
        entry = Random(repeat).choice(entries)
        needles = [f"\n{derivation}\n" for derivation in entry["derivations"]]
        suffix = wording.guided_suffix if guide else ""
        answer = f"{entry['answer']}*{entry['answer']}"
        return HiddenFacts(needles, entry["question"] + suffix, answer=answer)

    def descend(repeat: int, _lines: TokenLines) -> HiddenFacts:
        random = Random(repeat)
        people = random.sample(content[language].split(","), num_needles + 1)
        needles = []
        for elder, younger in pairwise(people):
            sentence, _ = fact(random, template, elder=elder, younger=younger)
            needles.append(f"\n{sentence}\n")
        random.shuffle(needles)
        question = question_form.replace("{last_person}", people[-1])
        return HiddenFacts(needles, question, answer=people[0], last_person=people[-1])

    def positions(haystack_tokens: int, needle_tokens: Sequence[int]) -> list[int]:
        return chained_positions(depth / 100, needle_tokens, haystack_tokens, step=diff / 100)

    return _rows(
        path,
        tokenizer_model,
        file_list=file_list,
        repeats=num_repeats_per_file,
        room_tokens=length - length_buffer,
        wording=wording,
        hide=descend if sentences else derive,
        positions=positions,
        percents=[depth, diff],
    )


def _rows(
    path: str | Path,
    tokenizer_model: str,
    *,
    file_list: Sequence[str],
    repeats: int,
    room_tokens: int,
    wording: Wording,
    hide: Callable[[int, TokenLines], HiddenFacts],
    positions: Callable[[int, Sequence[int]], Sequence[int]],
    percents: Sequence[float],
) -> list[Row]:
    """Return the rows of the haystack files in the order of the list, each with all its repeats.

    room_tokens: the tokens of haystack and needles together. hide: returns the facts of a repeat.
    positions: returns how many haystack tokens stand before each needle, from the tokens of the
    haystack and of each needle. percents: depths and distances, which are checked first. Raises
    HaystackError, SettingsError, VocabularyMissing.
    """
    for percent in percents:
        check_depth(percent)

    tokenizer = load_tokenizer(tokenizer_model)
    rows = list[Row]()
    for file in file_list:
        lines = read(Path(path) / file, tokenizer)
        for repeat in range(repeats):
            facts = hide(repeat, lines)
            needles = [tokenizer.index(whole_characters(text).encode()) for text in facts.needles]
            sizes = [len(needle) for needle in needles]

            background = lines.background(repeat, max(0, room_tokens - sum(sizes)))
            text = context(background, positions(len(background), sizes), needles=needles)
            prompt = wording.filled(text, facts.question)
            if facts.last_person:
                prompt = prompt.replace("{last_person}", facts.last_person)
            rows.append({"prompt": prompt, "answer": facts.answer})
    return rows


def _open(question: str, marker: str) -> str:
    """Return a question for base models: without the demand for a form, and up to its blank.

    >>> _open("What is X? Say so: 'X is ________.'", "Say so:")
    'What is X? X is '
    """
    for quote in (f"{marker} '", f"{marker}'"):
        question = question.replace(quote, "")
    return question[: question.rindex(_BLANK)]


def _different(entries: Sequence[Mapping[str, str]], count: int) -> list[Mapping[str, str]]:
    """Return the first `count` entries that share neither place nor word.

    Raises SettingsError if there are fewer.
    """
    places = set[str]()
    words = set[str]()
    chosen = list[Mapping[str, str]]()
    for entry in entries:
        is_new = entry["arg1"] not in places and entry["arg2"] not in words
        if is_new and len(chosen) < count:
            places.add(entry["arg1"])
            words.add(entry["arg2"])
            chosen.append(entry)
    if len(chosen) < count:
        raise SettingsError(f"{count} depths need as many different needles, the file has fewer.")
    return chosen


def _entries(path: str | Path, name: str, language: str = "") -> list[dict[str, str]]:
    """Return the needles of a JSON Lines file.

    Raises HaystackError if the file cannot be read or does not hold needles.

    language: return only those of this language; '' for all.
    """
    lines = text_of(path, name).split("\n")
    try:
        entries = [read_json(line) for line in lines if line.strip()]
        # The field is read for all languages too: a line without it is not a needle.
        return [entry for entry in entries if language in ("", entry["language"])]
    except (ValueError, KeyError, TypeError) as error:
        raise HaystackError(f"'{Path(path) / name}' is no file of needles ({error}).") from None
