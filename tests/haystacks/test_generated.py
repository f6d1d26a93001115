"""The `generated` haystack: the same for everyone, never the same twice, and never gives a needle
away."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from importlib.resources import files
from itertools import islice

import pytest
import quicktok

from needlemap.errors import SettingsError
from needlemap.haystacks.generated import Generated, Scene, grammar, rules_of

BOTH = pytest.mark.parametrize("language", ["english", "chinese"])
FORBIDDEN = (
    *(
        "san francisco",
        "dolores",
        "sandwich",
        "magic",
        "giostra",
        "jack",
        "florence",
        "pizza",
        "fig",
    ),
    *("prosciutto", "goat cheese", "emerald", "stardust", "polaris", "orion", "secret ingredient"),
    *(
        "小明",
        "上海",
        "人工智能",
        "实验室",
        "实习",
        "佛罗伦萨",
        "披萨",
        "三明治",
        "旧金山",
        "翡翠",
        "星尘",
        "魔法",
    ),
)


@cache
def texts(language: str, n: int = 200) -> tuple[str, ...]:
    return tuple(document.text for document in islice(Generated(language=language).documents(), n))


@cache
def sentences(language: str) -> tuple[str, ...]:
    found = re.findall(r"[^.?!。？！\n]+[.?!。？！]+[\"”]?", "\n".join(texts(language)))
    return tuple(sentence.strip() for sentence in found)


def skeleton(sentence: str) -> str:
    """A sentence without its names and numbers."""
    return re.sub(r"\d+|\b[A-Z]\w+", "_", sentence)


@BOTH
def test_a_document_needs_none_before_it(language: str) -> None:
    assert Generated(language=language).document(7).text == texts(language)[7]


@BOTH
def test_another_seed_is_another_text(language: str) -> None:
    assert Generated(language=language, seed=1).document(0).text != texts(language)[0]


@BOTH
def test_no_document_is_repeated(language: str) -> None:
    assert len(set(texts(language))) == len(texts(language))


@BOTH
def test_200_documents_hold_200_000_tokens(language: str) -> None:
    assert quicktok.get_encoding("cl100k_base").count("\n\n".join(texts(language))) > 200_000


@BOTH
def test_fewer_than_one_sentence_in_a_hundred_is_repeated(language: str) -> None:
    assert len(set(sentences(language))) > 0.99 * len(sentences(language))


@BOTH
def test_documents_are_a_few_pages_long(language: str) -> None:
    sizes = [len(text.split()) if language == "english" else len(text) for text in texts(language)]
    low, high = (400, 1500) if language == "english" else (800, 3300)
    assert low <= min(sizes) <= max(sizes) <= high


@BOTH
def test_paragraphs_are_parted_by_one_blank_line(language: str) -> None:
    for text in texts(language):
        assert text == text.strip()
        assert all(
            part == part.strip() and part and "\n" not in part for part in text.split("\n\n")
        )


@BOTH
def test_words_of_well_known_needles_are_absent(language: str) -> None:
    source = (
        files("needlemap.haystacks").joinpath("data", f"{language}.txt").read_text("utf-8").lower()
    )
    everything = source + "\n".join(texts(language)).lower()
    assert [word for word in FORBIDDEN if re.search(rf"(?<![a-z]){word}", everything)] == []


@BOTH
def test_most_sentences_are_concrete(language: str) -> None:
    names = (
        r"\d|\w [A-Z][a-z]"
        if language == "english"
        else r"\d|[桥镇湾渡坪里乡村浦坞口滩岭洲庄集街巷路]|两|三|四|五"
    )
    assert sum(bool(re.search(names, sentence)) for sentence in sentences(language)) > 0.7 * len(
        sentences(language)
    )


def test_english_has_thousands_of_sentence_skeletons() -> None:
    assert len({skeleton(sentence) for sentence in sentences("english")}) > 3_000


@BOTH
def test_sentence_lengths_vary(language: str) -> None:
    sizes = sorted(len(sentence) for sentence in sentences(language))
    assert sizes[len(sizes) // 10] * 2 < sizes[-len(sizes) // 10]


@BOTH
def test_sentences_end_in_more_than_one_way(language: str) -> None:
    ends = Counter(re.sub(r"[\"”]", "", sentence)[-1] for sentence in sentences(language))
    asked = ends["?"] + ends["？"]
    assert 0.01 < asked / len(sentences(language)) < 0.2


@BOTH
def test_bare_four_digit_numbers_are_years_only(language: str) -> None:
    """A needle such as "the number for Berlin is 4817" is then never in the haystack already."""
    numbers = {
        int(number)
        for number in re.findall(r"(?<![\d,])\d{4,}(?![\d,])", "\n".join(texts(language)))
    }
    assert 1700 < min(numbers) <= max(numbers) < 2030


def test_chinese_is_written_in_chinese() -> None:
    text = "".join(texts("chinese")).replace("\n", "")
    chinese = re.findall(r"[\u4e00-\u9fff\d，。？！、：；“”（）]", text)
    assert len(chinese) >= 0.999 * len(text)


def test_english_articles_agree() -> None:
    assert re.findall(r"\ba [aeio]\w+|\ban [^aeiouh8\W]\w+", "\n".join(texts("english"))) == []


def test_english_parts_fit_together() -> None:
    """Not "by the a quarter past nine train", "written1,050 words", "at six six days before", as
    once."""
    said = "\n".join(texts("english", 800))
    assert re.findall(r"\b(?:the|an?) (?:the|an?) ", said) == []
    assert re.findall(r"[a-z]\d", said) == []
    assert re.findall(r"\b(\w+) \1\b", said) == []


def test_food_of_which_there_is_more_than_one_is_no_singular() -> None:
    said = "\n".join(texts("english", 800))
    many = (
        "pancakes with lemon|fried eggs|plum dumplings|buttered noodles|poppy seed rolls|fish cakes"
    )
    assert (
        re.findall(
            rf"(?:{many}) (?:that )?(?:is|was|has)\b|\b[Tt]here (?:is|was) \w* ?(?:{many})", said
        )
        == []
    )


@BOTH
def test_every_line_of_the_grammar_can_be_written(language: str) -> None:
    rules, scene = rules_of(language), Scene(lambda: 0.5)
    scene.kept.update(number="1", day="2", next="May")
    for first in ("document", "bakery.subject", "swap"):
        rules[first](scene)
    for rule in rules.values():
        assert all(isinstance(line(scene), str) for line in rule.lines), rule.name


@pytest.mark.parametrize(
    ("spelling", "name"), [("EN", "english"), ("English", "english"), ("zh", "chinese")]
)
def test_languages_have_short_names(spelling: str, name: str) -> None:
    assert Generated(language=spelling).name == f"generated/{name}"


def test_an_unknown_language_is_named_with_the_nearest_known() -> None:
    with pytest.raises(SettingsError, match=r"does not write 'Chinees'. Did you mean 'chinese'"):
        Generated(language="Chinees")


def test_it_never_ends() -> None:
    assert Generated.endless


@pytest.mark.parametrize(
    ("template", "written"),
    [
        ("{fruit}", "apple"),
        ("{a:fruit} and {^fruit}", "an apple and Apple"),
        ("[one|two|three]", "two"),
        ("x[|]y", "xy"),
        ("{k=fruit} {k}", "apple apple"),
        ("{k:=a b} {k}", "a b a b"),
        ("{#3-5} {#100-900/50} {#,1000-3000}", "4 500 2,000"),
    ],
)
def test_template_notation(template: str, written: str) -> None:
    rules = grammar(f"== fruit;\napple\n\n== line\n{template}\n")
    assert rules["line"](Scene(lambda: 0.5)) == written


@pytest.mark.parametrize("broken", ["[one|two", "one] two"])
def test_an_unclosed_bracket_is_an_error(broken: str) -> None:
    with pytest.raises(ValueError, match="Unbalanced brackets in the template"):
        grammar(f"== line\n{broken}\n")
