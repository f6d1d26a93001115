"""tests/scorers/corpus.json: answers of many kinds with the score that each scorer gives them.

python tools/scorer_corpus.py      rewrites it, but not where a score moved and its rule's number
did not

tests/scorers/test_base.py compares. Whoever changes a rule raises its number, and runs this.
"""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from needlemap.errors import SettingsError
from needlemap.models import Answer, Forced, judge
from needlemap.registry import find
from needlemap.scorers import rule_of
from needlemap.tasks import Reference

FILE = Path(__file__).parent.parent / "tests" / "scorers" / "corpus.json"
DIGITS = 6  # of a share
SHARED = 4  # one in so many of the answers that are of no reference goes to each
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "substring": ("substring", {}),
    "substring, anywhere": ("substring", {"anywhere": True}),
    "exact": ("exact", {}),
    "exact, ignoring": ("exact", {"ignore_case": True, "ignore_whitespace": True}),
    "first": ("first", {}),
    "first, chain": ("first", {"chain": True}),
    "recall": ("recall", {}),
    "recall, ruler": ("recall", {"rule": "ruler"}),
    "f1": ("f1", {}),
    "f1, item": ("f1", {"item": "[a-z]{3}[0-9]{2}"}),
    "verbatim": ("verbatim", {}),
    "verbatim, bare": ("verbatim", {"bare": True}),
    "label": ("label", {}),
    "boxed": ("boxed", {}),
    "only": ("only", {}),
    "choice": ("choice", {}),
    "alternatives": ("alternatives", {}),
    "alternatives, ruler": ("alternatives", {"rule": "ruler"}),
    "levenshtein": ("levenshtein", {}),
    "levenshtein, trim": ("levenshtein", {"trim": True}),
    "keyword": ("keyword", {}),
    "set": ("set", {}),
    "judge": ("judge", {}),
    "logprob": ("logprob", {}),
    "recovery": ("recovery", {}),
}
_POEM = "The tide came in at four and took the chairs,\nthe lanterns and the letter on the stairs."
_OTHER = "A train of nineteen wagons left the pit,\nand every wagon had a lamp in it."

REFERENCES = {
    "number": Reference(
        "The code of the mill is 48213.", ("48213",), "The code of the mill is 48213.", "Code?"
    ),
    "big number": Reference(
        "8540898", ("8540898",), "", "What is the number of lake-road?", ("8540899", "111")
    ),
    "number, zh": Reference(
        "磨坊的密码是48213。", ("48213",), "磨坊的密码是48213。", "磨坊的密码是多少？"
    ),
    "place, zh": Reference(
        "旧灯塔", ("旧灯塔",), "信藏在旧灯塔。", "信藏在哪里？", ("大厅", "谷仓")
    ),
    "compound": Reference(
        "red-fox", ("red-fox",), "", "Which animal swims?", ("sad-dog", "shy-cat")
    ),
    "words apart": Reference(
        "Anna has a red kite.", ("red kite",), "Anna has a red kite.", "What has Anna?"
    ),
    "three kites": Reference(
        "red kite, blue kite and green kite",
        ("red kite", "blue kite", "green kite"),
        "Anna has a red kite. Bob has a blue kite. Cleo has a green kite.",
        "Which kites are there?",
    ),
    "list": Reference(
        "fig, plum, pear", ("fig", "plum", "pear"), "", "Which fruits come most often?"
    ),
    "list with decoys": Reference(
        "fig, plum", ("fig", "plum"), "", "Which two words come most often?", ("oak", "elm", "ash")
    ),
    "names": Reference(
        "abc12, xyz34",
        ("abc12", "xyz34"),
        "",
        "Which names have 7?",
        ("qrs56",),
        like="[a-z]{3}[0-9]{2}",
    ),
    "chain": Reference(
        "amber", ("amber",), "birch -> cedar -> amber", "What is birch in the end?", ("cedar",)
    ),
    "label": Reference("hall", ("hall",), "", "Where is Ann?", ("barn", "dairy", "attic")),
    "label, zh": Reference("大厅", ("大厅",), "", "安在哪里？", ("谷仓", "阁楼")),
    "none": Reference(
        "none",
        (),
        "",
        "Which value has slow-owl?",
        ("4711", "4712"),
        none="none",
        like="[0-9]{4}",
        owners=("red-fox", "sad-dog"),
    ),
    "none, zh": Reference(
        "无", (), "", "慢鸟的值是多少？", ("4711",), none="无", like="[0-9]{4}", owners=("红狐",)
    ),
    "some": Reference("4711", ("4711",), "", "Which value has red-fox?", ("4712",), none="none"),
    "generations": Reference("4", (), "", "How many generations is Ada above Bo?"),
    "person": Reference("Ada Brook", ("Ada Brook",), "", "Who is the eldest?"),
    "uuid": Reference(
        "50aea17b-4dd2-4c1f-9a43-7d1c2b3a4e5f", ("50aea17b-4dd2-4c1f-9a43-7d1c2b3a4e5f",), "", "Id?"
    ),
    "letter": Reference("B", (), "", "Which is right?"),
    "poem": Reference(
        f"x7Kq{_POEM}", (_POEM,), "", "Repeat the first poem.", choices=(_POEM, _OTHER)
    ),
    "sandwich": Reference(
        "Eat a sandwich and sit in Dolores Park.",
        ("sandwich", "Dolores"),
        "Eat a sandwich.",
        "What to do?",
    ),
}
# {0}: the reference's answer; {1}: its key words, joined by a comma; {2}: its first key word, or
# its answer.
FRAMES = (
    "{0}",
    "{0}.",
    " {0} \n",
    "**{0}**",
    '"{0}"',
    "Answer: {0}",
    "The answer is {0}.",
    "{1}",
    "{1}.",
    "**{1}**",
    "`{2}`",
    "It is {2}.",
    "It is {2}, I think.",
    "It is not {2}.",
    "{2}? No.",
    "Sure! {2}",
    "1. {2}",
    "- {2}\n- oak",
    "\\boxed{{{2}}}",
    "So the box is \\boxed{{\\text{{{0}}}}}.",
    "none; or {2}",
    "{2} or 4712",
    "{2}, sad-dog",
    "答案是{2}。",
    "不是{2}。",
    "{2}，不过我不确定。",
    "根据文本，{1}。",
    "x{2}y",
    "{2}{2}",
    "I would say {2} (barn, elm).",
    "x7Kq{2}",
    "x7Kq\n\n{2}",
    "**x7Kq** {2}",
    "x7Kr{2}",
    "{1}\n{1}",
    "Final Answer: [{1}]",
)
FREE = (
    "",
    " ",
    "none",
    "None.",
    "无",
    "文中没有提到。",
    "The text does not say.",
    "The text does not say, but it is 4711.",
    "I don't know.",
    "4711",
    "4712",
    "48 213",
    "48,213",
    "４８２１３",
    "148213",
    "48213.5",
    "Code 482134.",
    "8,540,898",
    "8540899",
    "the red fox",
    "Red_Fox",
    "red foxes",
    "infra-red-fox",
    "a red\nkite",
    "a **red** kite",
    "red-kite",
    "Red kites, blue kites and green kites",
    "a red kite and a blue kite",
    "red, blue and green",
    "fig plum pear",
    "1. fig\n2. plum\n3. pear",
    "fig (30), plum (29), oak (3)",
    "Fig and plum come most often.",
    "pear, plum, fig",
    "abc12, xyz34, qrs56",
    "names: ABC 12 and xyz34",
    "birch -> cedar -> amber",
    "cedar",
    "Cedar, then amber.",
    "She is in the hall.",
    "In the barn, not the hall.",
    "First the barn. So she is in the hall.",
    "hall or barn",
    "她在大厅。",
    "不在大厅，在谷仓。",
    "信在旧灯塔里。",
    "四代",
    "four generations",
    "\\boxed{four}",
    "\\boxed{4 or 5}",
    "\\boxed{}",
    "\\boxed{Ada Brook}",
    "Ada",
    "Brook, Ada",
    "50AEA17B4DD24C1F9A437D1C2B3A4E5F",
    "50aea17b-4dd2",
    "B",
    "(B)",
    "The correct answer is (B).",
    "The correct answer is (C).",
    "A or B",
    "Not (B).",
    "b)",
    "答案是B",
    "Only red-fox has 4711.",
    "Score: 7",
    "Score: 10",
    "[[3]]",
    "评分：5",
    "11",
    "7.5",
    "sandwiches in dolores park",
    "DOLORES",
    "Nothing; sad-dog has 4712.",
    "It has 4713.",
    "I cannot help with that.",
)


def answers() -> list[tuple[str, str]]:
    """All answers, each with the name of its reference: those made of it, and a quarter of the
    others."""
    rows = []
    for at, (name, reference) in enumerate(REFERENCES.items()):
        words = reference.keywords or (reference.answer,)
        framed = [frame.format(reference.answer, ", ".join(words), words[0]) for frame in FRAMES]
        rows += [(name, text) for text in dict.fromkeys((*framed, *FREE[at % SHARED :: SHARED]))]
    return rows


@cache
def made(variant: str) -> Any:
    """The scorer of a variant."""
    name, options = VARIANTS[variant]
    return find("scorers", name)(**options)


async def share(variant: str, answer: str, reference: Reference) -> float | None:
    """What a scorer gives; None where it has no score for such a task or answer."""
    name, _ = VARIANTS[variant]
    scorer = made(variant)
    if name in ("logprob", "recovery"):
        nats = tuple(-len(word) / 10 for word in answer.split()) or (-1.0,)
        alone, without = (
            Answer("", forced=Forced((each,) * len(nats), greedy=False)) for each in (0.0, -2.0)
        )
        given = Answer(
            "", forced=Forced(nats, greedy=False), beside={"bare": without, "oracle": alone}
        )
        return round(float(scorer.weigh(given, reference).share), DIGITS)
    if name == "judge":
        native = judge.verdict(answer)
        return None if native is None else round((native - 1) / 9, DIGITS)
    try:
        return round(float((await scorer.score(answer, reference)).share), DIGITS)
    except SettingsError:
        return None


async def scored(rows: Sequence[Sequence[str]], references: Mapping[str, Reference]) -> list[str]:
    """The shares of all variants, answer by answer, in a line; - for None."""
    found = [
        [await share(variant, text, references[name]) for variant in VARIANTS]
        for name, text, *_ in rows
    ]
    return [" ".join("-" if each is None else f"{each:g}" for each in row) for row in found]


def rules() -> dict[str, int]:
    """The number of each scorer's rule."""
    return {name: rule_of(find("scorers", name)) for name, _ in VARIANTS.values()}


def corpus() -> dict[str, Any]:
    """What the file holds."""
    rows = answers()
    shares = asyncio.run(scored(rows, REFERENCES))
    return {
        "rules": rules(),
        "judge": judge.question("an answer", REFERENCES["number"]).sha256,
        "variants": list(VARIANTS),
        "references": {name: asdict(reference) for name, reference in REFERENCES.items()},
        "answers": [[*row, each] for row, each in zip(rows, shares, strict=True)],
    }


def moved(frozen: Mapping[str, Any]) -> dict[str, list[str]]:
    """By scorer whose rule has the number that it had: answers that it scores otherwise now."""
    references = {name: Reference(**fields) for name, fields in frozen["references"].items()}
    now = asyncio.run(scored(frozen["answers"], references))
    same = {name for name, rule in rules().items() if frozen["rules"].get(name) == rule}
    found: dict[str, list[str]] = {}
    for (_, text, before), after in zip(frozen["answers"], now, strict=True):
        was, is_ = dict(zip(frozen["variants"], before.split(), strict=True)), after.split()
        for variant, share_now in zip(VARIANTS, is_, strict=True):
            name = VARIANTS[variant][0]
            if name in same and was.get(variant, share_now) != share_now:
                found.setdefault(name, []).append(
                    f"{text!r} ({variant}): {was[variant]} -> {share_now}"
                )
    if (
        "judge" in same
        and judge.question("an answer", references["number"]).sha256 != frozen["judge"]
    ):
        found["judge"] = ["what the judge is asked changed"]
    return found


def text_of(made: Mapping[str, Any]) -> str:
    """The file: an answer a line."""
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in made["answers"])
    head = json.dumps({**made, "answers": []}, ensure_ascii=False, indent=1)
    return head.removesuffix("[]\n}") + f"[\n{lines}\n]}}\n"


def main() -> None:
    """Rewrite the file, unless that would hide a score that moved in silence."""
    if FILE.exists() and (found := moved(json.loads(FILE.read_text("utf-8")))):
        shown = "\n".join(
            f"{name}: {len(rows)} moved, first {rows[0]}" for name, rows in found.items()
        )
        sys.exit(f"{shown}\nRaise the number `rule` of these scorers, then run this again.")
    FILE.write_text(text_of(corpus()), encoding="utf-8")


if __name__ == "__main__":
    main()
