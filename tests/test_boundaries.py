"""Where a text may be cut: between characters, at sentence ends in any script, and where counts add
up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from needlemap.haystacks.generated import Generated
from needlemap.text.tokens import Cuts, Tokenizer, TokenText
from needlemap.tokenizers import load

BUNDLED = ("cl100k_base", "o200k_base", "llama3", "qwen3")


def bytewise(text: str) -> TokenText:
    """A token for each byte: every cut there could be."""
    data = text.encode()
    return TokenText(data, np.zeros(len(data), np.int32), np.arange(len(data) + 1, dtype=np.int64))


def places(cuts: np.ndarray) -> set[int]:
    return {int(place) for place in np.unique(cuts)}


def marked(text: str, cuts: np.ndarray) -> str:
    """The text with a | at each cut but its ends."""
    data = text.encode()
    inner = sorted(places(cuts) - {0, len(data)})
    return b"|".join(
        data[start:stop] for start, stop in zip([0, *inner], [*inner, len(data)], strict=True)
    ).decode()


@pytest.mark.parametrize("text", ["plain", "naïve", "上海", "🙂 and e\u0301", ""])
def test_no_cut_falls_inside_a_character(text):
    data = text.encode()
    ends = set(np.cumsum([0, *(len(letter.encode()) for letter in text)]).tolist())
    assert places(Cuts.of(bytewise(text)).character) == ends
    assert len(Cuts.of(bytewise(text)).character) == len(data) + 1


@pytest.mark.parametrize(
    "text",
    [
        "One.| Two!| Three?| Four",
        'He said "Stop."| She did.|',
        "Version 3.5 is out.| See a.b for (more.)| Then",
        "今天下雨。|明天呢？|好！|",
        "他说：“走吧。”|我们走。|",
        "「走吧！」|他说。|",
        "真的？！|真的……|好",
        "（见上文。）|下一句",
        "A title\n\n|A paragraph without a stop\n|Another",
        "He said “Stop.”| She did",
        "No sentence ends here",
        "没有句号的一段话",
    ],
)
def test_a_sentence_ends_in_any_script_behind_its_closing_marks(text):
    plain = text.replace("|", "")
    assert marked(plain, Cuts.of(bytewise(plain)).sentence) == text.removesuffix("|")


def test_a_stop_and_its_quotation_mark_may_be_one_token():
    text = TokenText("走。”他".encode(), np.zeros(3, np.int32), np.array([0, 3, 9, 12], np.int64))
    assert Cuts.of(text).sentence.tolist() == [0, 0, 2, 2]


def test_each_index_knows_the_nearest_cut_before_and_after():
    cuts = Cuts.of(bytewise("ab cd"))
    assert cuts.safe_before.tolist() == [0, 0, 2, 2, 2, 2]
    assert cuts.safe_after.tolist() == [2, 2, 2, 5, 5, 5]


def test_each_index_knows_the_sentence_end_behind_it():
    cuts = Cuts.of(bytewise("One. Two. 3"))
    assert marked("One. Two. 3", cuts.sentence) == "One.| Two.| 3"
    assert cuts.sentence_after(np.arange(12)).tolist() == [4, 4, 4, 4, 9, 9, 9, 9, 9, 11, 11, 11]


def ending(*ends: int, words: int = 5) -> Cuts:
    """A text whose sentences end there, and whose words are of so many tokens each."""
    at = np.arange(ends[-1] + 1, dtype=np.int32)
    return Cuts(at, np.maximum.accumulate(np.where(np.isin(at, ends), at, 0)), at - at % words, at)


@pytest.mark.parametrize(
    ("wanted", "size", "expected"),
    [
        pytest.param(30, 850, 30, id="at an end"),
        pytest.param(29, 850, 0, id="the beginning is one"),
        pytest.param(80, 850, 30, id="50 tokens back"),
        pytest.param(81, 850, 130, id="on, where the one behind it is nearer"),
        pytest.param(330, 1500, 260, id="a twentieth of a longer text back"),
        pytest.param(311, 850, 310, id="between two words where no sentence ends for 500 tokens"),
        pytest.param(750, 850, 750, id="even shortly before one does"),
        pytest.param(761, 850, 760, id="behind it"),
    ],
)
def test_a_needle_goes_to_a_sentence_end_near_the_wanted_position(wanted, size, expected):
    assert ending(30, 130, 170, 260, 760, 850).insertion_point(wanted, size) == expected


@pytest.mark.parametrize(
    ("wanted", "size", "expected"), [(150, 400, 0), (201, 400, 400), (150, 160, 400)]
)
def test_of_a_long_sentence_it_goes_to_the_nearer_end_the_used_tokens_end_being_one(
    wanted, size, expected
):
    assert ending(400).insertion_point(wanted, size) == expected


def test_without_sentence_and_word_ends_it_goes_between_two_characters():
    assert ending(3000, words=1000).insertion_point(502, 900) == 502


@given(st.lists(st.integers(1, 900), min_size=1, max_size=9, unique=True), st.integers(1, 900))
def test_a_deeper_needle_never_stands_before_a_shallower_one(ends, size):
    cuts = ending(*sorted(ends), max(ends) + 900)
    places = [min(cuts.insertion_point(wanted, size), size) for wanted in range(size)]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "text",
    [
        "a| word| and| another",
        "two  spaces",
        "a| line.\n|Next| line",
        "a| line.\n\nNext| paragraph",
        "一行\n下一行",
        "line\n|下一行",
        "上海|，北京|。",
        '"a",\n|"b"',
        "in 3| days| time",
    ],
)
def test_safe_cuts_are_the_measured_kinds_only(text):
    plain = text.replace("|", "")
    cuts = Cuts.of(bytewise(plain))
    assert marked(plain, cuts.safe_before) == text.removesuffix("|")


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        ("line", "one\n|two. Three\n\n|four"),
        ("paragraph", "one\ntwo. Three\n\n|four\nfive\n\n\n|six"),
    ],
)
def test_lines_and_paragraphs_end_behind_their_breaks(unit, text):
    plain = text.replace("|", "")
    assert marked(plain, Cuts.of(bytewise(plain), unit).sentence) == text


@pytest.mark.parametrize("name", BUNDLED)
def test_counts_add_up_before_the_quotation_marks_of_a_json_object(name):
    """Without safe cuts in it each prompt would be tokenised whole."""
    tokenizer = load(name)
    text = tokenizer.index("".join(f'"k{n:x}": "v{n * n}",\n' for n in range(400)).encode())
    safe = [place for place in sorted(places(Cuts.of(text).safe_before)) if 0 < place < len(text)]
    assert len(safe) > 390
    for place in safe[::7]:
        assert tokenizer.count(bytes(text.span(0, place).data)) == place
        assert tokenizer.count_inside(bytes(text.span(place).data)) == len(text) - place


@pytest.mark.parametrize("name", BUNDLED)
@pytest.mark.parametrize("language", ["english", "chinese"])
def test_counts_add_up_at_every_safe_cut(name, language):
    tokenizer = load(name)
    text = tokenizer.index(Generated(language=language, seed=5).document(0).text.encode())
    cuts = Cuts.of(text)
    safe = [place for place in sorted(places(cuts.safe_before)) if 0 < place < len(text)]
    assert len(safe) > 50
    for place in safe:
        left, right = bytes(text.span(0, place).data), bytes(text.span(place).data)
        assert tokenizer.count(left) == place
        assert tokenizer.count_inside(right) == len(text) - place


@pytest.mark.parametrize("piece", [" word", "Word", "词语", "，词语"])
def test_a_piece_is_counted_behind_what_may_stand_before_it(piece):
    """A tokenizer that puts a space before every text, and counts words."""

    class Spaced(Tokenizer):
        additive = False

        def count(self, data: bytes) -> int:
            seen.append(data.decode())
            return len(data.decode().split())

    seen: list[str] = []
    Spaced().count_inside(piece.encode())
    whole, before = seen
    assert whole == before + piece
    plain = TokenText(
        whole.encode(),
        np.zeros(2, np.int32),
        np.array([0, len(before.encode()), len(whole.encode())]),
    )
    assert Cuts.of(plain).safe_before.tolist()[1] == 1
