"""Needles that share no content word with their question: facts, overlap, distractors, names."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from importlib.resources import files
from itertools import pairwise
from typing import Any

import pytest
import yaml

from needlemap.errors import SettingsError
from needlemap.grid import Cell
from needlemap.haystacks.generated import Scene, rules_of
from needlemap.models.baseline import Sentences, rank, terms
from needlemap.settings.reading import configure
from needlemap.suites.latent import APART, ORDERS, Association, Latent, knowledge
from needlemap.suites.lexicon import lexicon
from needlemap.tasks import Draw
from needlemap.trials import Trial
from needlemap.trials.build import prepare

LANGUAGES = ("english", "chinese")
every_language = pytest.mark.parametrize("language", LANGUAGES)
DRAW = Draw(Cell(4000, 0.4), 1, 2)

# Words that say nothing of their own: every English text holds them.
FUNCTION = {
    *(
        "a",
        "about",
        "an",
        "and",
        "any",
        "are",
        "as",
        "at",
        "be",
        "been",
        "but",
        "by",
        "did",
        "do",
        "does",
        "for",
    ),
    *(
        "from",
        "had",
        "has",
        "have",
        "he",
        "her",
        "him",
        "his",
        "if",
        "in",
        "into",
        "is",
        "it",
        "its",
        "not",
        "of",
    ),
    *(
        "off",
        "on",
        "one",
        "only",
        "or",
        "out",
        "s",
        "she",
        "some",
        "something",
        "that",
        "the",
        "their",
        "them",
    ),
    *(
        "then",
        "there",
        "they",
        "this",
        "those",
        "to",
        "up",
        "was",
        "were",
        "what",
        "when",
        "where",
        "which",
    ),
    *("who", "whom", "whose", "will", "with", "without"),
}
ENDINGS = re.compile(r"(ings?|ers?|ed|es|s|e|ly)$")
HAN = re.compile("[\u3400-\u9fff]")
SMALL = set("的了在是谁一上下里中有个把被就不而与和到为这那之人")


def stems(text: str) -> set[str]:
    """Content words without their usual endings."""
    found = set(re.findall(r"[^\W\d_]+|\d+", text.lower())) - FUNCTION
    return {ENDINGS.sub("", word) if len(word) > 4 else word for word in found}


def alike(one: str, other: str) -> bool:
    """Whether two stems may be one word's: equal, or one the beginning of the other."""
    short, long = sorted((one, other), key=len)
    return short == long or (len(short) >= 4 and long.startswith(short))


def overlap(needle: str, question: str) -> set[str]:
    """Content words of a needle that the question has too."""
    return {one for one in stems(needle) for other in stems(question) if alike(one, other)}


def han(text: str) -> set[str]:
    return set(HAN.findall(text)) - SMALL


def pairs(text: str) -> set[str]:
    """Neighbouring characters of a text in Chinese, marks left out."""
    runs = re.findall("[\u3400-\u9fff]+", text)
    return {"".join(pair) for run in runs for pair in pairwise(run)}


def questions(language: str) -> dict[tuple[str, int, str], str]:
    """Every question as it is asked, with what the task adds."""
    asked = {}
    for absent in (0.0, 1.0):
        task = Latent(language=language, absent=absent)
        added = task.item(DRAW).question.partition("?" if language == "english" else "？")[2]
        for each in knowledge(language).associations:
            asked[each.anchor, each.hops, str(absent)] = each.question + added
    return asked


def trials(**given: Any) -> tuple[Trial, ...]:
    small = {"task": "latent", "lengths": [2000], "depths": "0:100:11", "max_answer_tokens": 32}
    return prepare(configure(None, small | given)).trials


@every_language
def test_there_are_enough_facts_of_many_kinds_over_one_and_two_hops(language):
    facts = knowledge(language).associations
    kinds = Counter(each.relation for each in facts)
    assert len({(each.relation, each.anchor) for each in facts}) >= 60
    assert len(kinds) >= 8
    assert min(kinds.values()) >= 6
    assert min(Counter(each.hops for each in facts).values()) >= 40
    assert {order for each in facts for order in each.needles} == set(ORDERS)


@every_language
def test_the_name_comes_first_or_the_fact_does(language):
    for each in knowledge(language).associations:
        places = {
            order: (text.index("{name}"), text.index(each.anchor))
            for order, text in each.needles.items()
        }
        assert places["direct"][0] < places["direct"][1]
        assert places["inverted"][0] > places["inverted"][1]


@every_language
def test_no_two_anchors_of_a_kind_lead_to_the_same_target(language):
    """Else a distractor would be a second right answer, and a near miss an answer."""
    rows: dict[tuple[str, str], set[str]] = defaultdict(set)
    for each in knowledge(language).associations:
        rows[each.relation, each.target].add(each.anchor)
    assert not [row for row, anchors in rows.items() if len(anchors) > 1]


@every_language
def test_where_one_kind_of_fact_could_answer_anothers_question_they_share_no_target(language):
    """Who paid a taxi, or bought something, in a country has been there."""
    found = {
        relation: {
            each.target for each in knowledge(language).associations if each.relation == relation
        }
        for relation in ("places", "fares")
    }
    assert not found["places"] & found["fares"]


# By language: cities that the generated prose names, by country and what most people speak there;
# of a fact, by its anchor, the country or language that would answer one of its questions; and in
# which of the countries whose capitals are asked about an animal lives in the wild.
KNOWN = yaml.safe_load("""
english:
  cities:
    Portugal Portuguese: [Lisbon, Porto, Coimbra]
    Britain English: [Leeds, Bristol, Cardiff]
    Ireland English: [Cork, Dublin, Galway]
    Italy Italian: [Modena, Verona, Turin, Trieste]
    Netherlands Dutch: [Leiden, Delft, Utrecht]
    Norway Norwegian: [Bergen, Oslo]
    Estonia Estonian: [Tallinn, Tartu]
    Croatia Croatian: [Zagreb]
    Latvia Latvian: [Riga]
    Lithuania Lithuanian: [Kaunas]
    Sweden Swedish: [Malmo]
  lands:
    {the Acropolis: Greece, the Taj Mahal: India, Saint Basil's Cathedral: Russia,
     Bondi Beach: Australia, the statue of Christ the Redeemer: Brazil, the Forbidden City: China,
     the Hagia Sophia: Turkey, the Brooklyn Bridge: America, the Great Sphinx: Egypt,
     the Burj Khalifa: Emirates, the statue of the Little Mermaid: Denmark, konnichiwa: Japanese,
     namaste: Hindi, merhaba: Turkish, xin chào: Vietnamese, annyeong haseyo: Korean, kalimera: Greek,
     buenos días: Spanish, guten Morgen: German, bonjour: French, jambo: Swahili, baht: Thailand,
     forints: Hungary, zlotys: Poland, hryvnias: Ukraine, yen: Japan, naira: Nigeria, birr: Ethiopia,
     ringgit: Malaysia, Vietnamese dong: Vietnam, tugriks: Mongolia, Hamlet: Stratford-upon-Avon,
     War and Peace: Russia, Don Quixote: Spain, Things Fall Apart: Nigeria,
     One Hundred Years of Solitude: Colombia, The Divine Comedy: Florence,
     Faust: Frankfurt, Les Misérables: France, The Old Man and the Sea: America,
     The Metamorphosis: Prague, Pride and Prejudice: nowhere, the bagpipes: Scotland, the sitar: India,
     the balalaika: Russia, the didgeridoo: Australia, the ukulele: Hawaii, the shamisen: Japan,
     the alphorn: Switzerland, the erhu: China, the kantele: Finland}
  animals:
    {a kangaroo: Canberra, a giant panda: Beijing, a kiwi: Wellington,
     a ring-tailed lemur: Antananarivo, a giraffe: no, a hummingbird: no, a llama: no, a skunk: no,
     a lion: no, a sloth: no, a polar bear: no}
chinese:
  cities:
    中国 汉语: [苏州, 杭州, 成都, 西安, 昆明, 泉州, 扬州, 长沙, 青岛, 大连, 桂林, 洛阳, 开封, 绍兴,
            无锡, 厦门, 南昌, 合肥, 济南, 贵阳, 兰州, 福州, 宁波, 徐州]
  lands:
    {帕特农神庙: 希腊, 泰姬陵: 印度, 圣瓦西里大教堂: 俄罗斯, 救世基督像: 巴西,
     邦迪海滩: 澳大利亚, 圣索菲亚大教堂: 土耳其, 自由女神像: 美国, 狮身人面像: 埃及, 哈利法塔: 阿联酋,
     小美人鱼雕像: 丹麦, 埃菲尔铁塔: 法国, 大本钟: 英国, 斗兽场: 意大利, こんにちは: 日语, Bonjour: 法语,
     Guten Morgen: 德语, Buenos días: 西班牙语, 안녕하세요: 韩语, Xin chào: 越南语, Merhaba: 土耳其语,
     Kaliméra: 希腊语, Здравствуйте: 俄语, Namaste: 印地语, 泰铢: 泰国, 福林: 匈牙利, 兹罗提: 波兰,
     格里夫纳: 乌克兰, 日元: 日本, 奈拉: 尼日利亚, 比尔: 埃塞俄比亚, 林吉特: 马来西亚, 越南盾: 越南,
     图格里克: 蒙古国, 哈姆雷特: 无, 战争与和平: 俄国, 堂吉诃德: 西班牙, 百年孤独: 哥伦比亚,
     傲慢与偏见: 无, 神曲: 佛罗伦萨, 浮士德: 法兰克福, 悲惨世界: 法国, 老人与海: 美国, 红楼梦: 无,
     骆驼祥子: 北京, 风笛: 苏格兰, 西塔琴: 印度, 巴拉莱卡琴: 俄罗斯, 迪吉里杜管: 澳大利亚,
     尤克里里: 夏威夷, 三味线: 日本, 阿尔卑斯长号: 瑞士, 坎特勒琴: 芬兰, 伽倻琴: 韩国}
  animals:
    {袋鼠: 堪培拉, 环尾狐猴: 塔那那利佛, 大熊猫: 无, 长颈鹿: 无, 犀牛: 无, 大象: 无, 北极熊: 无, 猎豹: 无,
     河狸: 无, 刺猬: 无}
""")  # noqa: E501


@every_language
def test_no_place_in_the_generated_prose_answers_a_question(language):
    """A man from Kyoto knew some Japanese, and one from Krakow had surely taken a cab in Poland.

    Whoever adds a city, or a fact about a country or language, has to say here which it is.
    """
    cities, lands = KNOWN[language]["cities"], KNOWN[language]["lands"]
    named = {line(Scene(lambda: 0.0)) for line in rules_of(language)["city"].lines}
    assert sorted(named) == sorted(city for there in cities.values() for city in there)
    facts = knowledge(language).associations
    about = {"places", "greetings", "fares", "books", "instruments"}
    assert set(lands) == {each.anchor for each in facts if each.relation in about}
    spoken = {word for where in cities for word in where.split()}
    assert not [(anchor, land) for anchor, land in lands.items() if land in spoken]
    assert not [city for city in named for each in facts if city in each.watch]


@every_language
def test_an_animal_of_a_country_that_is_asked_about_is_the_only_one_from_there(language):
    """A chameleon may well come from Madagascar, an elephant from China, a camel from Australia."""
    facts = [each for each in knowledge(language).associations if each.relation == "animals"]
    homes = KNOWN[language]["animals"]
    assert {each.anchor for each in facts} == set(homes)
    asked = [each for each in facts if each.hops == 2]
    assert [[animal for animal in homes if homes[animal] == each.target] for each in asked] == [
        [each.anchor] for each in asked
    ]


@every_language
def test_a_haystack_that_holds_any_step_of_a_fact_has_something_to_say_about_it(language):
    """One that speaks of Thailand might answer who took a cab in the country whose capital is
    Bangkok."""
    facts = knowledge(language).associations
    for each in facts:
        steps = {
            one.target
            for one in facts
            if (one.relation, one.anchor) == (each.relation, each.anchor)
        }
        assert {each.anchor, *steps} <= set(each.watch) or each.relation in ("moons", "dates")
    watched = {each.anchor: set(each.watch) for each in facts}
    if language == "english":
        assert watched["baht"] == {"baht", "Thailand", "Bangkok"}
        assert watched["konnichiwa"] == {"konnichiwa", "Japanese", "Tokyo", "Japan"}
        assert {"Australia", "Canberra"} < watched["a kangaroo"]


@every_language
def test_a_step_that_no_question_names_is_one_of_a_fact(language):
    """A misspelt anchor there would be watched for nobody."""
    through = lexicon("latent", language)["through"]
    assert set(through) <= {each.anchor for each in knowledge(language).associations}


def test_no_needle_shares_a_content_word_with_its_question_in_english():
    asked = questions("english")
    shared = {
        (each.anchor, each.target, order): overlap(
            text.replace("{name}", ""), asked[each.anchor, each.hops, absent]
        )
        for each in knowledge("english").associations
        for order, text in each.needles.items()
        for absent in ("0.0", "1.0")
    }
    assert {fact: words for fact, words in shared.items() if words} == {}


def test_no_needle_shares_a_character_of_meaning_with_its_question_in_chinese():
    """Neither a character, but for those of grammar, nor any two in a row."""
    asked = questions("chinese")
    for each in knowledge("chinese").associations:
        for text in each.needles.values():
            for absent in ("0.0", "1.0"):
                needle, question = text.replace("{name}", ""), asked[each.anchor, each.hops, absent]
                shared = (
                    (han(needle) & han(question))
                    | (pairs(needle) & pairs(question))
                    | overlap(
                        re.sub("[\u3400-\u9fff]+", " ", needle),
                        re.sub("[\u3400-\u9fff]+", " ", question),
                    )
                )
                assert not shared, (needle, question)


def test_the_overlap_check_finds_what_it_should():
    assert overlap("Ann paints houses.", "Who painted the house?") == {"paint", "hous"}
    assert overlap("It was in Russia.", "Who is Russian?") == {"russia"}
    assert not overlap("The cat sat.", "Who is the dog?")
    assert han("他去过埃及") & han("埃塞俄比亚") == {"埃"}


@every_language
def test_names_are_in_no_question_and_in_no_grammar_of_the_generated_prose(language):
    names = knowledge(language).names
    grammar = files("needlemap.haystacks").joinpath("data", f"{language}.txt").read_text("utf-8")
    said = (
        grammar
        + "".join(questions(language).values())
        + "".join(
            text for each in knowledge(language).associations for text in each.needles.values()
        )
    )
    assert len(set(names)) == len(names) >= 40
    assert not [name for name in names if name.lower() in said.lower()]
    assert not [(a, b) for a in names for b in names if a != b and a in b]


def test_the_item_holds_the_fact_and_asks_for_the_person():
    item = Latent(hops=2, order="direct").item(DRAW)
    (needle,), (name,) = item.needles, item.reference.keywords
    (fact,) = [
        each
        for each in knowledge("english").associations
        if each.hops == 2 and each.needles["direct"].replace("{name}", name) == needle.text
    ]
    assert item.question == f"{fact.question} Answer with the name alone."
    assert item.reference.answer == name
    assert name not in item.reference.decoys
    assert len(item.reference.decoys) == len(knowledge("english").names) - 1
    assert item.answer_prefix == "The name is"
    assert needle.depth == DRAW.cell.depth


def asked_facts(rows: tuple[Trial, ...]) -> list[str]:
    return [trial.item.question for trial in rows]


def test_all_lengths_ask_the_same_facts_about_other_people():
    """So that what length does is not mixed up with which facts were drawn."""
    short, longer = trials(lengths=[900]), trials(lengths=[3000])
    assert asked_facts(short) == asked_facts(longer)
    assert [t.item.reference.answer for t in short] != [t.item.reference.answer for t in longer]
    assert len(set(asked_facts(short))) >= 8
    assert asked_facts(trials(seed=1)) != asked_facts(trials())


@pytest.mark.parametrize(("fresh", "count"), [("length", 2), ("repeat", 1)])
def test_fresh_says_how_often_the_fact_is_drawn(fresh, count):
    rows = trials(lengths=[900, 1500], task_options={"fresh": fresh})
    assert len({trial.item.needles[0].text for trial in rows}) == count


@every_language
def test_distractors_are_of_the_same_kind_about_others_and_far_away(language):
    options = {"distractors": 2}
    rows = trials(language=language, task_options=options, lengths=[4000], repeats=3)
    facts = knowledge(language).associations
    for trial in rows:
        first, *others = trial.prompt.needles
        assert len(others) == 2
        assert all(abs(other.realised - first.realised) >= APART for other in others)
        kinds = {kind_of(needle.text, facts) for needle in trial.item.needles}
        assert len(kinds) == 1
        assert len({needle.text for needle in trial.item.needles}) == 3


def test_all_facts_of_a_prompt_are_about_different_things():
    anchors = {
        needle: each.anchor
        for each in knowledge("english").associations
        for needle in each.needles.values()
    }
    task = Latent(distractors=4, order="direct")
    for repeat in range(100):
        item = task.item(Draw(Cell(4000, 0.4), repeat))
        names = [
            next(one for one in knowledge("english").names if one in n.text) for n in item.needles
        ]
        texts = [n.text.replace(one, "{name}") for n, one in zip(item.needles, names, strict=True)]
        assert len(set(names)) == len({anchors[text] for text in texts}) == 5


@every_language
@pytest.mark.parametrize("hops", [0, 1, 2])
def test_only_kinds_with_facts_enough_are_drawn(language, hops):
    """A kind of three facts has no four distractors, and no near miss beside them."""
    task = Latent(language=language, hops=hops, distractors=4, absent=1, near=1)
    for repeat in range(200):
        assert len(task.item(Draw(Cell(4000, 0.4), repeat)).needles) == 5


def kind_of(text: str, facts: tuple[Association, ...]) -> str:
    return next(
        each.relation
        for each in facts
        for needle in each.needles.values()
        if re.fullmatch(re.escape(needle).replace(r"\{name\}", ".+"), text)
    )


def test_a_distractor_stays_where_it_is_at_neighbouring_depths():
    task = Latent(distractors=1, fresh="length")
    depths = [task.item(Draw(Cell(4000, depth / 50), 0, 0)).needles[1].depth for depth in range(51)]
    assert len(set(depths)) <= 4


def test_facts_and_names_that_the_haystack_knows_are_not_drawn():
    held = Latent().item(DRAW).reference.answer
    assert Latent().item(Draw(DRAW.cell, 1, 2, lambda text: text == held)).reference.answer != held
    with pytest.raises(SettingsError, match="something to say about every fact"):
        Latent().item(Draw(DRAW.cell, holds=bool))
    with pytest.raises(SettingsError, match="holds nearly all names"):
        Latent().item(Draw(DRAW.cell, holds=lambda text: text in knowledge("english").names))


@every_language
@pytest.mark.parametrize("order", ORDERS)
def test_bm25_ranks_the_needle_as_it_would_any_sentence(language, order):
    """Hardly ever first, and in the mean not among the best quarter of the sentences (ties count
    half)."""
    rows = trials(language=language, repeats=5, lengths=[2000], task_options={"order": order})
    first, ranks = 0, []
    for trial in rows:
        sentences = Sentences.of(trial.prompt.context_text.lower())
        scores, name = (
            rank(sentences, terms(trial.item.question)),
            trial.item.reference.answer.lower(),
        )
        place = next(place for place in range(len(sentences)) if name in sentences[place])
        first += bool(scores[place] == scores.max() > 0)
        ranks.append(float((scores > scores[place]).mean() + (scores == scores[place]).mean() / 2))
    assert first <= 0.05 * len(ranks)
    assert sum(ranks) / len(ranks) > 0.25


@every_language
def test_the_bm25_baseline_fails(language, tmp_path):
    from needlemap import run

    done = run(
        out=tmp_path / "r",
        model="baseline/bm25",
        task="latent",
        language=language,
        lengths=[1000, 2000],
        depths="0:100:11",
        repeats=3,
        max_answer_tokens=32,
        quiet=True,
    )
    assert done.map().overall < 0.05


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hops": 3}, "Option 'hops' of Latent"),
        ({"order": "backward"}, "Option 'order' of Latent"),
        ({"distractors": 9}, "'distractors' of Latent must be at least 0 and at most 4, got 9"),
        ({"distractor": 1}, r"Did you mean 'distractors'\?"),
        ({"absent": 2}, "'absent' is a share in 0..1, got 2"),
    ],
)
def test_what_cannot_be_is_said(options, words):
    with pytest.raises(SettingsError, match=words):
        Latent(**options)
