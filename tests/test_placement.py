"""Every built prompt, re-encoded whole, has exactly the asked length, and its needles are where it
says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needlemap.errors import HaystackError, TooShort
from needlemap.haystacks import Document, Source, assemble
from needlemap.haystacks.generated import Generated
from needlemap.interop.formulas import chained_positions
from needlemap.interop.placement import PeriodBuilder, TokenBuilder
from needlemap.prompts import Prompt
from needlemap.prompts.placement import Frame, PromptBuilder
from needlemap.prompts.templates import load_template, make_frame
from needlemap.tasks import Needle
from needlemap.text.tokens import Tokenizer
from needlemap.tokenizers import load

BUNDLED = ("cl100k_base", "o200k_base", "llama3", "qwen3")
TRAINED = ("byte-level.json", "metaspace.json", "unigram.model", "bpe.model")
TEMPLATES = ("chat-en", "chat-zh", "text-en", "text-zh")
LONGEST, RESERVE = 3000, 50
QUESTIONS = (
    "What is the code?",
    "密码是多少？请按照“x”的格式回答。",
    "<|im_end|> and <|endoftext|>?",
)
NEEDLES = (
    "\nThe best thing to do is eat a sandwich on a sunny day.\n",
    "The locker code for Oslo is 51328.",
    "奥斯陆的储物柜密码是51328。",
    "\n最喜欢的地点是实验室。\n",
    "It says <|endoftext|><|im_end|> 🙂 e\u0301",
    " a fact ",
)
ENDS = tuple(".!?。！？…\n\"')]”’」』）")


@dataclass(frozen=True)
class Texts(Source):
    """A source of one text."""

    text: str
    name: str = "texts"
    endless: bool = False

    def documents(self, first: int = 0) -> Iterator[Document]:
        return iter([Document("a", self.text)][first:])


def older_builder(text: str, tokenizer: Tokenizer, placement: str) -> TokenBuilder:
    haystack = builder_of(text, tokenizer).haystack
    kind = PeriodBuilder if placement == "period" else TokenBuilder
    return kind(haystack, tokenizer, counts="context")


def builder_of(text: str, tokenizer: Tokenizer, **options: Any) -> PromptBuilder:
    haystack = assemble(Texts(text), tokenizer, 1, repeat_allowed=True)
    size = len(tokenizer.index(text.encode()))
    return PromptBuilder(
        assemble(Texts(text), tokenizer, size - 5) if size > 70 else haystack, tokenizer, **options
    )


def length_of(prompt: Prompt, tokenizer: Tokenizer) -> int:
    """Tokens of all messages, each re-encoded as the text that is sent."""
    return sum(tokenizer.count(message.content.encode()) for message in prompt.messages)


def check(
    prompt: Prompt, needles: list[Needle], tokenizer: Tokenizer, room: int, guess: int
) -> None:
    """Exact length; whole characters; needles in order, where they are said to be, near their
    depths."""
    assert (length_of(prompt, tokenizer), prompt.tokens, prompt.off_by) == (room, room, 0)
    assert "\ufffd" not in "".join(message.content for message in prompt.messages)
    context = prompt.context_text.encode()
    for needle, placed in zip(needles, prompt.needles, strict=True):
        text = normalize("NFC", needle.text) if tokenizer.name == "qwen3" else needle.text
        assert context[placed.byte :].startswith(text.encode())
        assert placed.meant == needle.depth
        off = abs(placed.realised * prompt.haystack_tokens - needle.depth * guess)
        assert off <= 4 * max(50, guess // 20) + 9  # half of the longest sentence
    assert all(one.byte < other.byte for one, other in pairwise(prompt.needles))
    assert all(
        place / prompt.haystack_tokens == needle.realised
        for place, needle in zip(prompt.positions, prompt.needles, strict=True)
    )


@pytest.fixture(scope="module", params=[*BUNDLED, *TRAINED])
def tokenizer(request, vocabularies) -> Tokenizer:
    return load(str(vocabularies / request.param) if "." in request.param else request.param)


@cache
def prose(tokenizer: Tokenizer, language: str) -> PromptBuilder:
    haystack = assemble(
        Generated(language=language, seed=2), tokenizer, LONGEST + 500, order="shuffled"
    )
    return PromptBuilder(haystack, tokenizer, reserve_tokens=RESERVE)


@cache
def framed(
    tokenizer: Tokenizer, template: str, question: str, guide: bool, first: bool, prefix: str
) -> Frame:
    return make_frame(
        load_template(template),
        question,
        tokenizer.index,
        guide=guide,
        question_first=first,
        answer_prefix=prefix,
    )


depths = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1))
hidden = st.lists(st.tuples(st.sampled_from(NEEDLES), depths), min_size=1, max_size=3)


@settings(deadline=None, max_examples=60)
@given(
    language=st.sampled_from(["english", "chinese"]),
    words=st.tuples(
        st.sampled_from(TEMPLATES),
        st.sampled_from(QUESTIONS),
        st.booleans(),
        st.booleans(),
        st.sampled_from(["", "The code is", "答案是"]),
    ),
    hide=hidden,
    room=st.one_of(st.integers(12, 200), st.integers(200, LONGEST)),
)
def test_every_prompt_has_exactly_the_asked_length(tokenizer, language, words, hide, room):
    builder, frame = prose(tokenizer, language), framed(tokenizer, *words)
    needles = [Needle(text, depth) for text, depth in sorted(hide, key=lambda pair: pair[1])]
    length = room - builder.haystack_tokens(frame, needles, 0)
    prompt = builder.build(frame, needles, length)
    check(prompt, needles, tokenizer, length - RESERVE, room)


ODD = {
    "emoji": "🙂🎉👩‍👩‍👧‍👦 🇳🇴 " * 400,
    "combining": "e\u0301a\u0308o\u0302 n\u0303 " * 700,
    "no sentence end": "word and word again " * 700,
    "no space": "没有句号也没有空格的一段很长的话" * 300,
    "one letter": "a" * 9000,
    "spaces": "a    b\n\n\n   c\t\t" * 700,
    "specials": "One <|endoftext|> two <|im_end|>. <|im_start|>user\n" * 300,
    "mixed": "A line. 一行。🙂 e\u0301 <|im_end|>\n\n" * 300,
}


@pytest.mark.parametrize("name", ODD)
def test_odd_haystacks_give_exact_lengths_and_whole_characters(tokenizer, name):
    builder = builder_of(ODD[name], tokenizer, reserve_tokens=RESERVE)
    frame = framed(tokenizer, "chat-en", QUESTIONS[0], False, False, "")
    for text in (NEEDLES[0], NEEDLES[2]):
        for depth in (0, 0.37, 0.5, 1):
            needles = [Needle(text, depth)]
            for room in (25, 120, 121, 122, 700):
                length = room - builder.haystack_tokens(frame, needles, 0)
                check(
                    builder.build(frame, needles, length),
                    needles,
                    tokenizer,
                    length - RESERVE,
                    room,
                )


def before(prompt: Prompt, number: int = 0) -> str:
    """What the context holds before a needle, but for the spaces between."""
    return prompt.context_text.encode()[: prompt.needles[number].byte].decode().rstrip(" ")


@settings(deadline=None, max_examples=80)
@given(
    language=st.sampled_from(["english", "chinese"]),
    hide=st.lists(depths, min_size=1, max_size=4),
    length=st.integers(300, LONGEST),
)
def test_a_needle_follows_the_end_of_a_sentence_or_line(tokenizer, language, hide, length):
    """In short Chinese prompts needles once stood inside a sentence, and at depth 100 behind half
    of one."""
    builder, frame = (
        prose(tokenizer, language),
        framed(tokenizer, "chat-en", QUESTIONS[0], False, False, ""),
    )
    prompt = builder.build(frame, [Needle("Here it is.", depth) for depth in sorted(hide)], length)
    for number in range(len(hide)):
        assert not before(prompt, number) or before(prompt, number).endswith(ENDS)
    assert length_of(prompt, tokenizer) == length - RESERVE


@pytest.mark.parametrize("language", ["english", "chinese"])
@pytest.mark.parametrize("name", BUNDLED)
def test_where_a_sentence_ends_within_a_twentieth_it_is_one_before_the_depth(name, language):
    tokenizer = load(name)
    builder, frame = (
        prose(tokenizer, language),
        framed(tokenizer, "chat-en", QUESTIONS[0], False, False, ""),
    )
    for percent in range(0, 101, 3):
        prompt = builder.build(frame, [Needle("The fact.", percent / 100)], LONGEST)
        assert before(prompt) == "" or before(prompt).endswith(ENDS)
        assert percent / 100 - 0.05 < prompt.needles[0].realised <= percent / 100 + 0.001


@pytest.mark.parametrize(
    ("depth", "expected"), [(0.1, 0), (0.35, 0), (0.4, 80), (0.9, 80), (0.97, 140), (1, 140)]
)
def test_in_a_long_sentence_it_goes_to_the_nearer_end_and_in_one_that_is_cut_to_the_haystacks(
    depth, expected
):
    """Sentences of 80 tokens, in a haystack of 140: the end of the second lies behind it."""
    tokenizer = load("cl100k_base")
    haystack = assemble(
        Texts("one" + " two" * 78 + ".\n" + f"one{' two' * 78}. " * 9), tokenizer, 300
    )
    assert haystack.cuts.ends()[:2].tolist() == [80, 160]
    frame = framed(tokenizer, "text-en", QUESTIONS[0], False, False, "")
    builder, hidden = PromptBuilder(haystack, tokenizer), [Needle("Here.", depth)]
    prompt = builder.build(frame, hidden, 140 - builder.haystack_tokens(frame, hidden, 0))
    assert abs(prompt.haystack_tokens - 140) <= 2
    assert min(prompt.positions[0], 139) == min(expected, 139)


@pytest.mark.parametrize(
    ("language", "text"), [("english", "Here."), ("chinese", "在这里。"), ("english", "\nHere.\n")]
)
def test_a_needle_at_the_end_of_a_cut_sentence_follows_a_mark_of_it(language, text):
    tokenizer = load("cl100k_base")
    builder, frame = (
        prose(tokenizer, language),
        framed(tokenizer, "text-en", QUESTIONS[0], False, False, ""),
    )
    cut = 0
    for length in range(500, 560):
        prompt = builder.build(frame, [Needle(text, 1), Needle(text, 1)], length)
        haystack = bytes(builder.haystack.text.span(0, prompt.haystack_tokens).data).decode()
        finished = haystack.rstrip(" ").endswith(ENDS)
        hidden = prompt.context_text.removeprefix(haystack).removesuffix(prompt.pad)
        assert hidden.replace(" ", "") == ("" if finished else "…") + 2 * text
        assert prompt.needles[0].realised == prompt.needles[1].realised == 1
        assert length_of(prompt, tokenizer) == length - RESERVE
        cut += not finished
    assert 20 < cut < 60


def test_an_end_that_no_needle_follows_stays_as_it_is():
    tokenizer = load("cl100k_base")
    builder, frame = (
        prose(tokenizer, "english"),
        framed(tokenizer, "text-en", "Which?", False, False, ""),
    )
    for length in range(500, 530):
        assert "…" not in builder.build(frame, [Needle("Here.", 0.5)], length).context_text


def test_a_haystack_that_ends_with_a_sentence_or_line_gets_no_mark():
    tokenizer = load("cl100k_base")
    frame = framed(tokenizer, "text-en", QUESTIONS[0], False, False, "")
    for text in (
        "It is here. " * 90,
        "a line\n" * 90,
        "A title\n\n" * 90,
        "他来了。" * 90,
        "“走！”" * 90,
    ):
        builder = builder_of(text, tokenizer)
        for length in range(200, 216):
            prompt = builder.build(frame, [Needle("\nHere.\n", 1)], length)
            cut = before(prompt).endswith("…")
            assert cut != before(prompt).removesuffix("…").endswith(ENDS)


def test_depth_0_is_the_beginning_and_depth_100_the_end():
    builder = prose(load("cl100k_base"), "english")
    frame = framed(load("cl100k_base"), "text-en", QUESTIONS[0], False, False, "")
    first, last = (builder.build(frame, [Needle("\nHere.\n", depth)], 500) for depth in (0, 1))
    assert (first.context_text.index("\nHere.\n"), first.needles[0].realised) == (0, 0)
    assert last.needles[0].realised == 1
    assert last.context_text.removesuffix(last.pad).endswith("\nHere.\n")


def test_a_needle_gets_spaces_where_words_would_touch():
    builder = builder_of("It is here. " * 90, load("cl100k_base"))
    frame = framed(load("cl100k_base"), "text-en", QUESTIONS[0], False, False, "")
    text = builder.build(frame, [Needle("Hidden.", 0.5), Needle("Found.", 0.5)], 300).context_text
    assert "It is here. Hidden. Found. It is here." in text
    text = builder.build(frame, [Needle("\nHidden.\n", 0.5)], 300).context_text
    assert "It is here.\nHidden.\n It is here." in text
    text = builder.build(frame, [Needle("Hidden.", 0)], 300).context_text
    assert text.startswith("Hidden. It is here.")


def test_chinese_needs_no_spaces():
    builder = builder_of("今天下雨了。明天也会下雨。" * 60, load("o200k_base"))
    frame = framed(load("o200k_base"), "text-zh", QUESTIONS[1], False, False, "")
    assert "。密码是一。" in builder.build(frame, [Needle("密码是一。", 0.5)], 400).context_text


@pytest.mark.parametrize("text", NEEDLES[:3])
@pytest.mark.parametrize("depth", [0, 0.4, 1])
@pytest.mark.parametrize("name", BUNDLED)
def test_a_length_that_is_too_short_is_told_the_least_one_which_then_works(name, depth, text):
    tokenizer = load(name)
    for language, template in (("english", "chat-en"), ("chinese", "text-zh")):
        builder = prose(tokenizer, language)
        frame = framed(tokenizer, template, QUESTIONS[0], False, False, "")
        needles = [Needle(text, depth)]
        with pytest.raises(TooShort, match=r"Use lengths of \d+ or more") as caught:
            builder.build(frame, needles, 60)
        least = int(re.search(r"lengths of (\d+)", str(caught.value))[1])
        for length in range(least, least + 20):
            assert length_of(builder.build(frame, needles, length), tokenizer) == length - RESERVE
        with pytest.raises(TooShort, match=f"lengths of {least} or"):
            builder.build(frame, needles, least - 1)


def test_a_length_below_the_reserve_is_too_short():
    frame = framed(load("cl100k_base"), "text-en", QUESTIONS[0], False, False, "")
    with pytest.raises(TooShort, match="50 tokens are reserved"):
        prose(load("cl100k_base"), "english").build(frame, [Needle("x", 0)], RESERVE)


def test_a_length_beyond_the_haystack_is_an_error():
    frame = framed(load("cl100k_base"), "text-en", QUESTIONS[0], False, False, "")
    with pytest.raises(HaystackError, match=r"Haystack 'generated/english' has .* needs"):
        prose(load("cl100k_base"), "english").build(frame, [Needle("x", 0)], 100_000)


def test_needles_stand_by_depth_and_are_listed_as_they_came():
    tokenizer = load("cl100k_base")
    frame = framed(tokenizer, "text-en", QUESTIONS[0], False, False, "")
    hidden = [Needle("Middle.", 0.5), Needle("Last.", 0.9), Needle("First.", 0.1)]
    prompt = prose(tokenizer, "english").build(frame, hidden, 900)
    context = prompt.context_text.encode()
    for needle, placed in zip(hidden, prompt.needles, strict=True):
        assert placed.meant == needle.depth
        assert context[placed.byte :].startswith(needle.text.encode())
    assert prompt.positions[2] < prompt.positions[0] < prompt.positions[1]
    chosen = prose(tokenizer, "english").build(frame, hidden, 900, prompt.positions[0] + 40)
    assert (
        chosen.positions[0] == prompt.positions[0] + 40
    )  # the first of the list, not the first in the text


def test_a_prompt_without_needles_has_its_length_too():
    tokenizer = load("cl100k_base")
    frame = framed(tokenizer, "chat-en", QUESTIONS[0], False, False, "")
    prompt = prose(tokenizer, "english").build(frame, [], 900)
    assert (prompt.tokens, prompt.needles) == (900 - RESERVE, ())


@pytest.mark.parametrize("unit", ["line", "paragraph"])
@pytest.mark.parametrize("name", ["cl100k_base", "llama3"])
def test_a_haystack_of_units_is_never_split_inside_one_and_fills_the_length_as_far_as_they_go(
    unit, name
):
    tokenizer, gap = load(name), "\n" if unit == "line" else "\n\n"
    rows = [f'"row {number}": "{"x" * (number % 37)} end",{gap}' for number in range(400)]
    haystack = assemble(
        Texts("".join(rows)), tokenizer, 1, unit=unit, repeat_allowed=True, joined="text"
    )
    builder = PromptBuilder(haystack, tokenizer, units=True, reserve_tokens=RESERVE)
    frame, size = framed(tokenizer, "chat-en", QUESTIONS[0], False, False, ""), len(haystack.text)
    for length in range(300, min(1200, size), 41):
        for depth in (0.0, 0.37, 0.5, 1.0):
            prompt = builder.build(frame, [Needle(f"needle{gap}", depth)], length)
            kept = prompt.context_text.replace(f"needle{gap}", "")
            assert "".join(rows).startswith(kept)
            assert kept.endswith(gap)
            assert (gap + prompt.context_text).count(f"{gap}needle{gap}") == 1
            whole = length_of(prompt, tokenizer)
            following = rows[kept.count(gap)]
            assert whole == prompt.tokens <= length - RESERVE
            assert whole + tokenizer.count(following.encode()) > length - RESERVE - 3


def test_a_length_without_room_for_one_unit_says_how_much_it_takes():
    tokenizer = load("cl100k_base")
    haystack = assemble(
        Texts("one line of words here\n" * 90), tokenizer, 1, unit="line", joined="text"
    )
    builder = PromptBuilder(haystack, tokenizer, units=True, reserve_tokens=10)
    frame = framed(tokenizer, "chat-en", QUESTIONS[0], False, False, "")
    with pytest.raises(TooShort) as raised:
        builder.build(frame, [Needle("x\n", 0.5)], 40)
    least = int(re.search(r"lengths of (\d+) or more", str(raised.value))[1])
    assert builder.build(frame, [Needle("x\n", 0.5)], least).haystack_tokens > 0


def test_a_haystack_that_ends_is_asked_whole_or_not_at_all():
    """A puzzle whose every line is needed must not lose one without a word."""
    tokenizer, rows = load("cl100k_base"), [f"fact number {number}\n" for number in range(30)]
    haystack = assemble(Texts("".join(rows)), tokenizer, 1, unit="line", joined="text")
    builder = PromptBuilder(haystack, tokenizer, units=True, reserve_tokens=10, ends=True)
    frame, needle = (
        framed(tokenizer, "chat-en", QUESTIONS[0], False, False, ""),
        Needle("needle\n", 0.5),
    )
    for length in (400, 4000):
        prompt = builder.build(frame, [needle], length)
        assert prompt.context_text == "".join([*rows[:15], "needle\n", *rows[15:]])
        assert length_of(prompt, tokenizer) == prompt.tokens <= length - 10
    assert builder.haystack_tokens(frame, [needle], 4000) == len(haystack.text)
    with pytest.raises(TooShort, match="leaves no room for its haystack") as raised:
        builder.build(frame, [needle], 120)
    least = int(re.search(r"lengths of (\d+) or more", str(raised.value))[1])
    assert builder.build(frame, [needle], least).haystack_tokens == len(haystack.text)


def test_a_chosen_position_moves_the_needles_behind_it_and_loses_no_text():
    tokenizer = load("cl100k_base")
    builder = prose(tokenizer, "english")
    frame = framed(tokenizer, "text-en", QUESTIONS[0], False, False, "")
    place = int(builder.haystack.cuts.sentence[400])
    prompt = builder.build(frame, [Needle("\nOne.\n", 0.1), Needle("\nTwo.\n", 0.2)], 1000, place)
    first, second = prompt.positions
    assert first == place
    assert (second - first) / prompt.haystack_tokens == pytest.approx(0.1, abs=0.05)
    plain = (
        prompt.context_text.replace("\nOne.\n", "").replace("\nTwo.\n", "").removesuffix(prompt.pad)
    )
    assert plain.encode() == bytes(builder.haystack.text.span(0, prompt.haystack_tokens).data)
    assert length_of(prompt, tokenizer) == 1000 - RESERVE


moving = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=2, max_size=6)


@settings(deadline=None, max_examples=80)
@given(hide=moving, unit=st.booleans(), share=st.floats(0, 1))
def test_needles_that_move_along_and_those_that_stay_never_cross_nor_double_the_text(
    hide, unit, share
):
    tokenizer = load("cl100k_base")
    builder = lined(tokenizer) if unit else prose(tokenizer, "english")
    frame = framed(tokenizer, "text-en", QUESTIONS[0], False, False, "")
    needles = [Needle(f"\nNumber {n}.\n", *row) for n, row in enumerate(hide)]
    stop = builder.build(frame, needles, 1000).haystack_tokens
    place = int(builder.haystack.cuts.sentence[int(share * stop)])
    prompt = builder.build(frame, needles, 1000, place)
    order = sorted(range(len(needles)), key=lambda n: needles[n].depth)
    assert [prompt.positions[n] for n in order] == sorted(prompt.positions)
    plain = prompt.context_text.removesuffix(prompt.pad).replace("…", "")
    for needle, placed in zip(needles, prompt.needles, strict=True):
        assert prompt.context_text.encode()[placed.byte :].startswith(needle.text.encode())
        assert plain.count(needle.text) == 1
        plain = plain.replace(needle.text, "")
    assert plain.encode() == bytes(builder.haystack.text.span(0, prompt.haystack_tokens).data)
    assert length_of(prompt, tokenizer) == prompt.tokens <= 1000 - RESERVE


@cache
def lined(tokenizer: Tokenizer) -> PromptBuilder:
    rows = "".join(f"row {number} of the list\n" for number in range(400))
    haystack = assemble(Texts(rows), tokenizer, 1, unit="line", joined="text")
    return PromptBuilder(haystack, tokenizer, units=True, reserve_tokens=RESERVE)


def test_prompts_sent_as_ids_have_as_many_as_asked():
    tokenizer = load("cl100k_base")
    haystack = assemble(Generated(language="chinese"), tokenizer, 900)
    builder = PromptBuilder(haystack, tokenizer, reserve_tokens=10, ids=True)
    frame = framed(tokenizer, "text-zh", QUESTIONS[1], False, False, "")
    for length in range(150, 900, 7):
        for depth in (0.5, 1):
            prompt = builder.build(frame, [Needle(NEEDLES[2], depth)], length)
            assert (len(prompt.ids), prompt.off_by) == (length - 10, 0)


def test_a_length_may_count_the_context_alone():
    tokenizer = load("o200k_base")
    builder = PromptBuilder(
        prose(tokenizer, "english").haystack, tokenizer, counts="context", reserve_tokens=7
    )
    frame = framed(tokenizer, "chat-en", QUESTIONS[0], False, False, "")
    prompt = builder.build(frame, [Needle(NEEDLES[0], 0.5)], 500)
    assert tokenizer.count(prompt.context_text.encode()) == 493
    assert prompt.tokens == length_of(prompt, tokenizer) > 493


def test_the_same_arguments_give_the_same_bytes_whatever_was_built_before():
    tokenizer = load("cl100k_base")
    frame = framed(tokenizer, "chat-en", QUESTIONS[0], False, False, "")
    fresh = PromptBuilder(prose(tokenizer, "english").haystack, tokenizer, reserve_tokens=RESERVE)
    for depth in (0.1, 0.9):
        prose(tokenizer, "english").build(frame, [Needle(NEEDLES[1], depth)], 700)
    one, other = (
        made.build(frame, [Needle(NEEDLES[0], 0.5)], 800)
        for made in (fresh, prose(tokenizer, "english"))
    )
    assert one.sha256 == other.sha256


# The older tools' ways


@pytest.mark.parametrize("depth", [0, 0.29, 0.5, 1])
def test_token_placement_cuts_where_the_number_says(depth):
    tokenizer = load("cl100k_base")
    builder = TokenBuilder(prose(tokenizer, "chinese").haystack, tokenizer, counts="context")
    frame = framed(tokenizer, "chat-zh", QUESTIONS[1], False, False, "")
    prompt = builder.build(frame, [Needle("\n事实。\n", depth)], 500)
    size = 500 - len(tokenizer.index("\n事实。\n".encode()))
    assert (prompt.haystack_tokens, prompt.positions) == (size, (int(size * depth),))
    assert (
        len(prompt.ids)
        - sum(len(span) for span in (*frame.before, *frame.after))
        - frame.outside_tokens
        == 500
    )


def test_token_placement_may_split_a_character_as_the_original_does():
    tokenizer = load("cl100k_base")
    builder = older_builder("翱翔" * 200, tokenizer, "token")
    frame = framed(tokenizer, "chat-zh", QUESTIONS[1], False, False, "")
    texts = [
        builder.build(frame, [Needle("针", 0.5)], length).context_text for length in range(50, 60)
    ]
    assert any("\ufffd" in text for text in texts)


@given(
    depth=st.integers(0, 100),
    diff=st.integers(0, 60),
    length=st.integers(200, 2000),
    texts=st.lists(st.sampled_from(NEEDLES), min_size=2, max_size=4),
)
@settings(deadline=None, max_examples=60)
def test_the_chain_as_coded_is_opencompasss(depth, diff, length, texts):
    tokenizer = load("cl100k_base")
    builder = TokenBuilder(
        prose(tokenizer, "chinese").haystack,
        tokenizer,
        counts="context",
        chained=diff / 100,
    )
    frame = framed(tokenizer, "chat-zh", QUESTIONS[1], False, False, "")
    sizes = [len(tokenizer.index(text.encode())) for text in texts]
    needles = [
        Needle(text, min(1, depth / 100 + place * diff / 100)) for place, text in enumerate(texts)
    ]
    prompt = builder.build(frame, needles, length)
    haystack_tokens = length - sum(sizes)
    places = chained_positions(depth / 100, sizes, haystack_tokens, diff / 100)
    assert prompt.positions == tuple(places)


def test_period_placement_goes_back_to_a_bare_full_stop():
    tokenizer = load("cl100k_base")
    builder = older_builder("One is here. Two is there! " * 60, tokenizer, "period")
    frame = framed(tokenizer, "chat-en", QUESTIONS[0], False, False, "")
    for depth in (0.2, 0.5, 0.9):
        prompt = builder.build(frame, [Needle("\nHidden.\n", depth)], 300)
        assert "here.\nHidden.\n Two" in prompt.context_text
    assert builder.build(frame, [Needle("\nHidden.\n", 1)], 300).context_text.endswith(
        "\nHidden.\n"
    )


def test_period_placement_without_a_full_stop_goes_to_the_beginning():
    tokenizer = load("cl100k_base")
    builder = older_builder("word " * 400, tokenizer, "period")
    frame = framed(tokenizer, "chat-en", QUESTIONS[0], False, False, "")
    assert builder.build(frame, [Needle("\nHidden.\n", 0.5)], 300).positions == (0,)
