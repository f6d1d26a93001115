"""NeedleBench's prompts, byte for byte: single needle, parallel needles, reasoning
(OpenCompass, March 2024 to today, versions 1 and 2). Its ancestral trace is in `ancestry`.

Its data are the user's files: haystacks, needles.jsonl, names.json,
multi_needle_reasoning_*.json. Its wording is not here: pass `template`. Its habits are kept:
characters are split at cuts, a length below its reserve leaves an empty haystack, of several
needles that are to be joined the lengths count twice, and version 1's Chinese prompts with the
question first are Python's writing of a list of two texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from needlemap.text.tokens import Span, Tokenizer
from needlemap.tokenizers import load as load_tokenizer
from needlemap.untrusted import read_json

_BLANK = "________"  # what a question's form leaves open
Row = dict[str, str]


@dataclass(frozen=True, slots=True)
class HiddenFacts:
    """What a repeat hides and asks: needles in their order, the question, and the stored
    answer. last: of a line of descent, whom the prompt's notes name too."""

    needles: Sequence[str]
    question: str
    answer: str
    last: str = ""


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
    """Rows {"prompt", "answer"} of one cell. The parameters are `load`'s.

    template: {"prompt"}, a text or the list that the original had, and, for a guide, {"guide",
    "guide_marker"}. guide: None in version 2;
    of version 1 True, or False for base models, whose prompt ends where the answer begins.
    seeded: False as in March 2024, where the needle was drawn from what the shuffle left.
    """
    wording, entries = Wording.of(template, language), _entries(path, needle_file_name, language)

    def hide(repeat: int, lines: TokenLines) -> HiddenFacts:
        random = Random(repeat)
        if not seeded:
            random.shuffle([*range(len(lines.texts))])
        entry = random.choice(entries)
        needle, question = f"\n{entry['needle']}\n", entry["retrieval_question"]
        if guide is not None:
            question = wording.with_guide(question)
        if guide is False:
            question = _open(question, wording.guide_marker)
        return HiddenFacts([needle], question, f"{needle}*{entry['arg2']}")

    data = _Data(path, tokenizer_model, file_list, num_repeats_per_file, length - length_buffer)
    return data.rows(
        wording, hide, lambda size, sizes: chained_positions(depth / 100, sizes, size, 0), depth
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
    """Rows of one length, a needle at each depth. The stored answer is
    'word*word#depth*depth'.

    template: {"prompt", "form"}, the form of the answer with {forms}, and for a guide as
    above. seed: of the choice of needles, which the original does not seed. Raises
    SettingsError where there are fewer needles than depths.
    """
    known = dict(template)
    form, wording = known.pop("form", "{forms}"), Wording.of(known, language)
    entries = _entries(path, needle_file_name)
    Random(seed).shuffle(entries)
    chosen = _different([each for each in entries if each["language"] == language], len(depths))
    end, stop = ("？", "。") if language == "Chinese" else ("?", ".")

    def hide(repeat: int, _lines: TokenLines) -> HiddenFacts:
        mine = [*chosen]
        Random(repeat).shuffle(mine)
        asked = [each["retrieval_question"] for each in mine]
        question = "、".join(each.split(end)[0] + end for each in asked)
        forms = "、".join(each.split("'")[1].split(stop)[0] for each in asked)
        question += form.replace("{forms}", forms)
        words, places = ("*".join(map(str, each)) for each in ([e["arg2"] for e in mine], depths))
        needles = [f"\n{each['needle']}\n" for each in mine]
        asks = wording.with_guide(question) if guide else question
        return HiddenFacts(needles, asks, f"{words}#{places}")

    def points(size: int, _sizes: Sequence[int]) -> Sequence[int]:
        return [int(size * (depth / 100)) for depth in depths]

    data = _Data(path, tokenizer_model, file_list, num_repeats_per_file, length - length_buffer)
    return data.rows(wording, hide, points, *depths)


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
    """Rows of one cell, with needles that are to be joined, `diff` percent apart.

    needle_file_name: version 1's file of derivations, or version 2's of names. template:
    {"prompt"} and of version 1 {"guided_suffix"}; of version 2 {"question"} with
    {last_person}, {"sentences"} with {A}, {B} and {relationship}, and {"terms"}.
    """
    known = dict(template)
    asked, sentences, _ = (known.pop(key, ()) for key in ("question", "sentences", "terms"))
    wording, content = Wording.of(known, language), json_of(path, needle_file_name)

    def derive(repeat: int, _lines: TokenLines) -> HiddenFacts:
        mine = [each for each in content if each["derivation_count"] == num_needles]
        entry = Random(repeat).choice(mine)
        needles = [f"\n{each}\n" for each in entry["derivations"]]
        suffix = wording.guided_suffix if guide else ""
        answer = f"{entry['answer']}*{entry['answer']}"
        return HiddenFacts(needles, entry["question"] + suffix, answer)

    def descend(repeat: int, _lines: TokenLines) -> HiddenFacts:
        random = Random(repeat)
        people = random.sample(content[language].split(","), num_needles + 1)
        needles = []
        for elder, younger in pairwise(people):
            told, _ = fact(random, template, elder, younger)
            needles.append(f"\n{told}\n")
        random.shuffle(needles)
        question = asked.replace("{last_person}", people[-1])
        return HiddenFacts(needles, question, people[0], people[-1])

    data = _Data(path, tokenizer_model, file_list, num_repeats_per_file, length - length_buffer)
    hide = descend if sentences else derive

    def places(size: int, sizes: Sequence[int]) -> list[int]:
        return chained_positions(depth / 100, sizes, size, diff / 100)

    return data.rows(wording, hide, places, depth, diff)


@dataclass(frozen=True, slots=True)
class _Data:
    """What the three have in common. room: tokens of haystack and needles together."""

    path: str | Path
    tokenizer_model: str
    file_list: Sequence[str]
    repeats: int
    room: int

    def rows(
        self,
        wording: Wording,
        hide: Callable[[int, TokenLines], HiddenFacts],
        points: Callable[[int, Sequence[int]], Sequence[int]],
        *percents: float,
    ) -> list[Row]:
        """Files in the order of the list, each with all its repeats. points: haystack tokens
        before each needle, of a haystack and needles of so many. Raises NeedlemapError."""
        for percent in percents:
            check_depth(percent)
        tokenizer = load_tokenizer(self.tokenizer_model)
        return [*self._rows(tokenizer, wording, hide, points)]

    def _rows(
        self,
        tokenizer: Tokenizer,
        wording: Wording,
        hide: Callable[[int, TokenLines], HiddenFacts],
        points: Callable[[int, Sequence[int]], Sequence[int]],
    ) -> Iterator[Row]:
        for file in self.file_list:
            lines = read(Path(self.path) / file, tokenizer)
            for repeat in range(self.repeats):
                hidden = hide(repeat, lines)
                needles = [
                    tokenizer.index(whole_characters(text).encode()) for text in hidden.needles
                ]
                sizes = [len(needle) for needle in needles]
                background: Span = lines.background(repeat, max(0, self.room - sum(sizes)))
                text = context(background, points(len(background), sizes), needles)
                prompt = wording.filled(text, hidden.question)
                if hidden.last:
                    prompt = prompt.replace("{last_person}", hidden.last)
                yield {"prompt": prompt, "answer": hidden.answer}


def _open(question: str, marker: str) -> str:
    """A question for base models: without the demand for a form, and up to the form's blank.

    >>> _open("What is X? Say so: 'X is ________.'", "Say so:")
    'What is X? X is '
    """
    for quote in (f"{marker} '", f"{marker}'"):
        question = question.replace(quote, "")
    return question[: question.rindex(_BLANK)]


def _different(entries: Sequence[Mapping[str, str]], count: int) -> list[Mapping[str, str]]:
    """The first so many that share neither place nor word. Raises SettingsError for fewer."""
    places, words, found = set[str](), set[str](), list[Mapping[str, str]]()
    for each in entries:
        if each["arg1"] not in places and each["arg2"] not in words and len(found) < count:
            places.add(each["arg1"])
            words.add(each["arg2"])
            found.append(each)
    if len(found) < count:
        raise SettingsError(f"{count} depths need as many different needles, the file has fewer.")
    return found


def _entries(path: str | Path, name: str, language: str = "") -> list[dict[str, str]]:
    """Needles of a JSON Lines file, of one language where it is given. Raises
    HaystackError."""
    lines = text_of(path, name).split("\n")
    try:
        found = [read_json(line) for line in lines if line.strip()]
        return [each for each in found if language in ("", each["language"])]
    except (ValueError, KeyError, TypeError) as error:
        raise HaystackError(f"'{Path(path) / name}' is no file of needles ({error}).") from None
