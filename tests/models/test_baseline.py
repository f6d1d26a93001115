"""The retrieval floor."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from pathlib import Path
from time import process_time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from needlemap.errors import SettingsError, Unmeasured
from needlemap.models import Answer, Decoding
from needlemap.models.baseline import (
    ENDS,
    K1,
    B,
    Baseline,
    Sentences,
    best_sentence,
    last_tokens,
    rank,
    terms,
)
from needlemap.prompts import Message, Prompt
from needlemap.text.tokens import TokenText

NEEDLE = (
    "The best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny "
    "day."
)
QUESTION = "What is the best thing to do in San Francisco?"


def byte_tokens(text: str) -> TokenText:
    data = text.encode()
    return TokenText(data, np.frombuffer(data, np.uint8).astype(np.int32), np.arange(len(data) + 1))


def prompt(*parts: str, question: str = QUESTION) -> Prompt:
    spans = tuple(byte_tokens(part).span() for part in ("Read. ", *parts, f"\n\n{question}"))
    return Prompt(
        (Message("user", spans),), question, (0, 1, len(spans) - 1), tokens=sum(map(len, spans))
    )


def ask(model: Baseline, asked: Prompt) -> Answer:
    return asyncio.run(model.answer(asked, Decoding()))


def test_it_finds_the_needle():
    asked = prompt("Dogs bark. ", NEEDLE, " The sky is blue. Thing of the best.")
    answer = ask(Baseline("bm25"), asked)
    assert answer.text == NEEDLE
    assert (answer.finish, answer.prompt_tokens) == ("stop", asked.tokens)
    assert answer.latency_s > 0


def test_it_finds_a_chinese_needle():
    needle = "小明最喜欢的实习的地点就是上海人工智能实验室。"
    asked = prompt(
        "今天天气很好。",
        needle,
        "我们讨论了人工智能的发展。",
        question="小明最喜欢的实习地点是哪里？",
    )
    assert ask(Baseline("bm25"), asked).text == needle


def test_it_reads_the_context_not_the_question():
    assert ask(Baseline("bm25"), prompt("Dogs bark. Cats do sleep.")).text == "Cats do sleep."


def test_a_window_hides_what_lies_before_it():
    filler = "Dogs bark. " * 20
    assert (
        ask(Baseline("bm25", window=len(NEEDLE) + len(filler)), prompt(filler, NEEDLE, filler)).text
        == NEEDLE
    )
    assert ask(Baseline("bm25", window=len(filler)), prompt(filler, NEEDLE, filler)).text == ""


def test_the_last_tokens_of_spans_are_exact():
    spans = [byte_tokens("abc").span(), byte_tokens("defgh").span(1, 4)]
    assert [bytes(span.data) for span in last_tokens(spans, 4)] == [b"c", b"efg"]
    assert [bytes(span.data) for span in last_tokens(spans, 99)] == [b"abc", b"efg"]


def test_nothing_found_is_an_empty_answer():
    assert ask(Baseline("bm25"), prompt("Nobody knows.", question="Xyzzy?")).text == ""


def test_the_earliest_sentence_wins_a_tie():
    assert best_sentence("Jack is tall. Jack is wide.", "Who is Jack?") == "Jack is tall."


def test_short_fragments_beat_a_needle_unless_length_is_ignored():
    filler = "Best of all is the thing that dogs do in order to bark. "
    text = f"{filler * 50}San Francisco. {NEEDLE}"
    assert best_sentence(text, QUESTION) == "San Francisco."
    assert best_sentence(text, QUESTION, b=0.0) == NEEDLE


def slow_scores(text: str, question: str) -> list[float]:
    """BM25 as a textbook writes it, sentence by sentence."""
    sentences = [part for part in re.split(f"(?<=[{re.escape(ENDS)}])", text.lower()) if part]
    documents = [Counter(all_terms(sentence)) for sentence in sentences]
    mean = sum(map(Counter.total, documents)) / len(documents)
    scores = [0.0] * len(documents)
    for term in terms(question):
        holding = sum(term in document for document in documents)
        idf = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
        for index, document in enumerate(documents):
            often = document[term]
            length = document.total() / mean if mean else 0
            scores[index] += idf * often * (K1 + 1) / (often + K1 * (1 - B + B * length))
    return scores


def all_terms(sentence: str) -> list[str]:
    found: list[str] = []
    for run in re.findall(r"[\u4e00-\u9fff]+|[^\W_\u4e00-\u9fff]+", sentence):
        pairs = len(run) > 1 and "\u4e00" <= run[0] <= "\u9fff"
        found += [run[i : i + 2] for i in range(len(run) - 1)] if pairs else [run]
    return found


@given(
    st.text(alphabet="abB 人工智.。?_'é9\n", min_size=1, max_size=80),
    st.text(alphabet="abB 人工智é9", min_size=1, max_size=10),
)
def test_the_fast_way_equals_the_textbooks(text, question):
    np.testing.assert_allclose(
        rank(Sentences.of(text.lower()), terms(question)), slow_scores(text, question), atol=1e-9
    )


@given(st.text(max_size=200))
def test_sentences_tile_any_text(text):
    sentences = Sentences.of(text)
    starts = [0, *sentences.stops[:-1]]
    assert "".join(text[i:j] for i, j in zip(starts, sentences.stops, strict=False)) == text


def test_a_letter_that_grows_when_lower_cased_moves_nothing():
    assert best_sentence("İİİİ and İ. Jack is here. Bye.", "Who is Jack?") == "Jack is here."


def test_half_a_megabyte_takes_less_than_60_ms_of_a_core(shared: Path):
    essays = "".join(
        path.read_text() for path in sorted((shared / "data" / "PaulGrahamEssays").glob("*.txt"))
    )
    text = f"{essays[:250_000]}. {NEEDLE} {essays[250_000:500_000]}"
    best_sentence(text, QUESTION)
    times = []
    for _ in range(3):
        start = process_time()
        assert best_sentence(text, QUESTION, b=0.0) == NEEDLE
        times.append(process_time() - start)
    assert min(times) < 0.06


def test_random_draws_a_sentence_that_the_prompt_decides():
    asked = prompt("One. Two. Three. ... \n\n Four.")
    drawn = {ask(Baseline("random"), asked).text for _ in range(3)}
    assert len(drawn) == 1
    assert drawn <= {"One.", "Two.", "Three.", "Four."}
    many = {
        ask(Baseline("random"), prompt("One. Two. Three. Four.", question=f"{n}?")).text
        for n in range(40)
    }
    assert many == {"One.", "Two.", "Three.", "Four."}


def test_a_prompt_without_context_cannot_be_measured():
    with pytest.raises(Unmeasured, match="needs a prompt with a context"):
        ask(Baseline("bm25"), Prompt.plain([("user", "Who?")]))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bm52", {}, "Did you mean 'bm25'"),
        ("bm25", {"window": 0}, "at least 1 token"),
        ("bm25", {"windw": 5}, "Did you mean 'window'"),
        ("bm25", {"b": 2}, "must lie in 0..1"),
    ],
)
def test_mistakes_say_what_is_allowed(name, options, message):
    with pytest.raises(SettingsError, match=message):
        Baseline(name, **options)
