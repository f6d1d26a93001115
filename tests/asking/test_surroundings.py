"""A needle in its surroundings: letter for letter what the prompt's context holds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from needlemap.asking.recording import LETTERS, needle_records
from needlemap.prompts import Message, PlacedNeedle, Prompt
from needlemap.settings.reading import configure
from needlemap.text.tokens import TokenText
from needlemap.trials.build import prepare

NEEDLES = ["The code of Oslo is 51328.", "利马的密码是99332。", "🙂 is the sign of Perth."]
RUNS: dict[str, dict[str, Any]] = {
    "english": {},
    "chinese": {"language": "chinese"},
    "many needles near each other": {
        "task": "multi",
        "needles": NEEDLES,
        "question": "Which codes?",
        "answer": "51328",
        "keywords": ["51328"],
        "diff": 1,
    },
    "cut as OpenCompass does, inside characters": {"language": "chinese", "placement": "token"},
    "cut as needlehaystack does": {"placement": "period"},
    "bins": {"mode": "bins"},
}
texts = st.text(st.sampled_from("ab .\n。库é🙂\u0301"), max_size=700)
needles = st.text(st.sampled_from("xy 针🙃"), min_size=1, max_size=20).filter(
    lambda text: not text.endswith(" ")
)


@pytest.mark.parametrize("given", RUNS.values(), ids=RUNS)
def test_before_text_and_after_are_a_slice_of_the_context(given):
    grid = {"lengths": [600, 3000], "depths": [0, 1, 37, 50, 99, 100], "max_answer_tokens": 40}
    for trial in prepare(configure(None, grid | given)).trials:
        context = trial.prompt.context_text
        data = b"".join(bytes(span.data) for span in trial.prompt.context_spans)
        kept = needle_records(trial.prompt, [needle.text for needle in trial.item.needles])
        for needle, meant in zip(kept, trial.item.needles, strict=True):
            assert needle.text == meant.text
            at = len(data[: needle.byte].decode("utf-8", "replace"))
            end = at + len(needle.text)
            assert context[at:end] == needle.text
            assert needle.before == context[max(0, at - LETTERS) : at]
            assert needle.after == context[end : end + LETTERS]


@given(st.lists(st.tuples(texts, needles), min_size=1, max_size=4), texts)
def test_windows_hold_whole_characters_of_any_script(parts, last):
    prompt = made(parts, last)
    context = prompt.context_text
    at = 0
    found = needle_records(prompt, [needle for _, needle in parts])
    for (before, needle), seen in zip(parts, found, strict=True):
        at += len(before)
        end = at + len(needle)
        assert (seen.before, seen.text) == (context[max(0, at - LETTERS) : at], needle)
        assert seen.after == context[end : end + LETTERS]
        at = end


def test_a_blank_put_behind_a_needle_belongs_to_what_follows():
    spans = [TokenText.opaque(text.encode()).span() for text in ("One.", " A fact. ", "Two.")]
    prompt = Prompt(
        (Message("user", tuple(spans)),), context=(0, 0, 3), needles=(PlacedNeedle(0.5, 0.5, 5),)
    )
    (seen,) = needle_records(prompt, ["A fact."])
    assert (seen.before, seen.text, seen.after) == ("One. ", "A fact.", " Two.")


def made(parts: list[tuple[str, str]], last: str) -> Prompt:
    """A prompt of these pieces of haystack, each with a needle behind it, and a last piece."""
    spans, placed, at = [], [], 0
    for before, needle in parts:
        at += len(before.encode())
        placed.append(PlacedNeedle(0.5, 0.5, at))
        spans += [TokenText.opaque(text.encode()).span() for text in (before, needle)]
        at += len(needle.encode())
    spans.append(TokenText.opaque(last.encode()).span())
    return Prompt(
        (Message("user", tuple(spans)),), context=(0, 0, len(spans)), needles=tuple(placed)
    )
