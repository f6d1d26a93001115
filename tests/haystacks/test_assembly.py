"""From documents to one tokenised haystack: their order, their joints, and how much of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

import pytest

from needlemap.errors import HaystackError
from needlemap.haystacks import Document, Haystack, Source, assemble
from needlemap.haystacks.generated import Generated
from needlemap.tokenizers import load

TOKENIZER = load("cl100k_base")
NUMBERS = [f"Document {number} is short." for number in range(12)]


@dataclass(frozen=True)
class Listed(Source):
    """A source of these texts."""

    texts: Sequence[str]
    name: str = "listed"
    endless: bool = False

    def documents(self, first: int = 0) -> Iterator[Document]:
        return iter([Document(f"{place}", text) for place, text in enumerate(self.texts)][first:])


def text(haystack: Haystack) -> str:
    return haystack.text.data.decode()


def order(count: int, **options) -> list[int]:
    """Which of `count` documents stand in the haystack, in order."""
    source = Listed([f"{number:03}" for number in range(count)])
    made = text(assemble(source, TOKENIZER, count, joined="tokens", **options))
    return [int(made[place : place + 3]) for place in range(0, len(made), 3)][:count]


@pytest.mark.parametrize(
    ("joined", "whole"),
    [("paragraphs", "One.\n\nTwo.\n\n"), ("text", " One.\n Two.\n"), ("tokens", " One.\n Two.\n")],
)
def test_documents_are_joined_as_asked(joined, whole):
    assert text(assemble(Listed([" One.\n", " Two.\n"]), TOKENIZER, 4, joined=joined)) == whole


def test_documents_of_white_space_make_no_paragraph():
    assert text(assemble(Listed([" \n", "One.", "\n"]), TOKENIZER, 2)) == "One.\n\n"


def test_joined_as_tokens_nothing_merges_across_documents():
    """'.\\n' is one token, '.' and '\\n' of two documents stay two (as OpenCompass makes them)."""
    texts = ["One.", "\nTwo."]
    alone = sum(TOKENIZER.count(part.encode()) for part in texts)
    assert len(assemble(Listed(texts), TOKENIZER, 4, joined="tokens").text) == alone
    assert len(assemble(Listed(texts), TOKENIZER, 4, joined="text").text) == alone - 1


@pytest.mark.parametrize("joined", ["paragraphs", "text", "tokens"])
@pytest.mark.parametrize("needed", [1, 100, 5000])
def test_there_are_as_many_tokens_as_needed_and_not_the_whole_source(joined, needed):
    haystack = assemble(Generated(language="chinese"), TOKENIZER, needed, joined=joined)
    assert needed <= len(haystack.text) < needed + 6000
    if joined != "tokens":
        assert len(haystack.text) == TOKENIZER.count(haystack.text.data)
    assert haystack.sha256 == sha256(haystack.text.data).hexdigest()
    assert (haystack.name, haystack.repeated_from) == ("generated/chinese", None)


def test_more_tokens_leave_the_beginning_as_it_is():
    short, long = (
        assemble(Generated(), TOKENIZER, needed, order="shuffled", repeat=3).text
        for needed in (2000, 9000)
    )
    assert long.ids[:2000].tolist() == short.ids[:2000].tolist()


def test_listed_is_the_sources_own_order():
    assert order(40) == list(range(40))


def test_shuffled_differs_by_repeat_and_seed_and_is_the_same_again():
    orders = [
        order(40, order="shuffled", seed=seed, repeat=repeat)
        for seed in (0, 1)
        for repeat in (0, 1)
    ]
    assert all(sorted(found) == list(range(40)) for found in orders)
    assert len({tuple(found) for found in orders}) == 4
    assert order(40, order="shuffled", seed=1, repeat=1) == orders[3]


def test_cumulative_is_opencompasss(shared):
    file = shared / "vectors" / "opencompass" / "python_rng.json"
    known = json.loads(file.read_text(encoding="utf-8"))["cumulative_shuffles"]
    for count in ("5", "12", "36"):
        for repeat, wanted in enumerate(known[count]):
            assert order(int(count), order="cumulative", repeat=repeat) == wanted


@pytest.mark.parametrize("kind", ["shuffled", "cumulative"])
def test_a_source_without_end_gives_other_documents_to_each_repeat(kind):
    source = Generated()
    texts = {
        text(assemble(source, TOKENIZER, 500, order=kind, repeat=repeat)) for repeat in range(3)
    }
    assert len(texts) == 3


def test_a_source_that_is_too_short_is_an_error_that_says_what_to_do():
    size = TOKENIZER.count("\n\n".join([*NUMBERS, ""]).encode())
    with pytest.raises(HaystackError) as caught:
        assemble(Listed(NUMBERS), TOKENIZER, 1000)
    assert str(caught.value) == (
        f"Haystack 'listed' has {size} tokens of 'cl100k_base', the longest prompt needs 1,000. "
        f"Add text, use shorter lengths, or allow repeating it with --haystack-repeat."
    )
    assert len(assemble(Listed(NUMBERS), TOKENIZER, size).text) == size


@pytest.mark.parametrize("joined", ["paragraphs", "text", "tokens"])
def test_a_short_source_is_repeated_only_if_allowed_and_says_from_where(joined):
    haystack = assemble(Listed(NUMBERS), TOKENIZER, 1000, repeat_allowed=True, joined=joined)
    assert len(haystack.text) >= 1000
    assert text(haystack).count("Document 3 is short.") > 5
    again = bytes(haystack.text.span(haystack.repeated_from).data).decode()
    assert again.lstrip().startswith("Document 0") or again.startswith(" 0 is short")
    assert text(haystack).count("Document 11") >= 1


@pytest.mark.parametrize("texts", [[], [""], ["  \n", "\n"]])
@pytest.mark.parametrize("allowed", [False, True])
def test_an_empty_source_is_an_error_at_once(texts, allowed):
    with pytest.raises(HaystackError, match="Haystack 'listed' holds no text"):
        assemble(Listed(texts), TOKENIZER, 10, repeat_allowed=allowed)


ENGLISH = Listed(['A title\n\nAnn swims. Bob runs!\n\nEve said: "I sing." Max is 3.5 tall. Who?'])
CHINESE = Listed(["标题\n\n安娜游泳。鲍勃跑步！“我唱歌。”马克斯呢？\n\n完了。"])


@pytest.mark.parametrize(
    ("source", "sentences"),
    [
        (
            ENGLISH,
            ["Ann swims.", "Bob runs!", 'Eve said: "I sing."', "Max is 3.5 tall.", "Who?"],
        ),
        (CHINESE, ["安娜游泳。", "鲍勃跑步！", "“我唱歌。”", "马克斯呢？", "完了。"]),
    ],
)
def test_shuffled_sentences_are_the_same_ones_in_another_order(source, sentences):
    texts = {
        assemble(source, TOKENIZER, 10, shuffle="sentences", repeat=repeat).text.data.decode()
        for repeat in range(20)
    }
    assert len(texts) > 10
    for text in texts:
        title, *paragraphs = text.rstrip().split("\n\n")
        assert title == source.texts[0].split("\n\n")[0]
        assert len(paragraphs) == 2
        assert all(text.count(sentence) == 1 for sentence in sentences)
        assert len(text) == len(source.texts[0]) + 2


def test_a_longer_haystack_begins_with_the_same_shuffled_sentences():
    short, long = (
        assemble(Generated(seed=4), TOKENIZER, tokens, shuffle="sentences").text.data
        for tokens in (2000, 9000)
    )
    assert long.startswith(short)
    assert assemble(Generated(seed=4), TOKENIZER, 2000).text.data != short


# Long documents


@pytest.mark.parametrize(
    "document",
    [
        "x" * (5 << 20),
        "0" * (5 << 20),
        "\N{GRINNING FACE}" * (5 << 20),
    ],
)
@pytest.mark.parametrize("joined", ["paragraphs", "text", "tokens"])
def test_of_a_document_without_words_little_more_is_tokenised_than_is_needed(joined, document):
    """One word of 120 MB took 3 GB, and more than 150 s."""
    made = assemble(Listed([document]), TOKENIZER, 1000, joined=joined)
    assert len(made.text) >= 1000
    assert len(text(made)) <= 1 << 20
    assert document.startswith(text(made))


def test_a_book_is_tokenised_whole_and_a_library_in_parts():
    book = "The fox runs. " * (3 << 16)
    assert text(assemble(Listed([book]), TOKENIZER, 1000)) == f"{book.strip()}\n\n"
    library = book * 4
    made = text(assemble(Listed([library]), TOKENIZER, 1000))
    assert library.startswith(made)
    assert len(made) == 4 << 20


@pytest.mark.parametrize("joined", ["paragraphs", "tokens"])
@pytest.mark.parametrize("document", ["x" * (5 << 20), "The fox runs. " * (10 << 16)])
def test_all_of_a_long_document_is_there_where_it_is_needed(joined, document):
    made = assemble(Listed([document]), TOKENIZER, 10**9, joined=joined, may_end=True)
    assert text(made).strip() == document.strip()
    whole = TOKENIZER.index(made.text.data)
    assert (made.text.ids == whole.ids).all()


def test_sentences_are_told_apart_at_once_however_many_blanks_part_them():
    document = f"One.{' ' * 1_000_000}x{' ' * 1_000_000}y\n\nTwo."
    made = assemble(Listed([document]), TOKENIZER, 3, may_end=True, shuffle="sentences")
    assert len(text(made)) == len(document) + 2
