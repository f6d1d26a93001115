"""What the tasks of keys and values say, in words of ours. Anyone's own: tasks `single` and `multi`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wording:
    """Texts with {key}, {keys}, {value}, {kind} (of value) and {kinds}.

    one, several: the question for one value and for more; begun, begun_several: how its answer begins. noise:
    sentences that say nothing. comma, last: what stands between keys.
    """

    needle: str
    one: str
    several: str
    begun: str
    begun_several: str
    noise: str
    kinds: dict[str, tuple[str, str]]
    comma: str
    last: str

    def naming(self, value: str, text: str) -> str:
        """A text in which the kind of value is named.

        >>> ENGLISH.naming("uuid", "The {kinds} assigned to {keys} are")
        'The UUIDs assigned to {keys} are'
        """
        kind, kinds = self.kinds[value]
        return text.replace("{kind}", kind).replace("{kinds}", kinds)

    def listed(self, words: list[str]) -> str:
        """Words as a sentence lists them.

        >>> ENGLISH.listed(["a", "b", "c"])
        'a, b and c'
        """
        return self.last.join([*[self.comma.join(words[:-1])][: len(words) - 1], words[-1]])


ENGLISH = Wording(
    needle="Keep in mind that the {kind} assigned to {key} is {value}.",
    one="Which {kind} does the text say is assigned to {keys}? Answer with that {kind} alone.",
    several="Which {kinds} does the text say are assigned to {keys}? List every one of them.",
    begun="The {kind} assigned to {keys} is",
    begun_several="The {kinds} assigned to {keys} are",
    noise="The kettle is warm. The street is long. The window is shut. Round we walk. Nobody is in a hurry.",
    kinds={"word": ("word", "words"), "number": ("number", "numbers"), "uuid": ("UUID", "UUIDs")},
    comma=", ",
    last=" and ",
)
CHINESE = Wording(
    needle="请记住，{key}对应的{kind}是{value}。",
    one="文中说{keys}对应的{kind}是什么？只回答这个{kind}。",
    several="文中说{keys}对应的{kind}有哪些？请全部列出。",
    begun="{keys}对应的{kind}是",
    begun_several="{keys}对应的{kind}有",
    noise="水壶还热着。街道很长。窗户关着。我们绕着走。谁也不着急。",
    kinds={"word": ("词语", "词语"), "number": ("数字", "数字"), "uuid": ("UUID", "UUID")},
    comma="、",
    last="和",
)
WORDINGS = {"english": ENGLISH, "chinese": CHINESE}

KEY_VALUE = {  # question, beginning of its answer
    "english": (
        'Which value does the JSON object hold under the key "{key}"? Answer with that value alone.',
        'Under the key "{key}" it holds',
    ),
    "chinese": ("JSON 对象中，键“{key}”对应的值是什么？只回答这个值。", "键“{key}”对应的值是"),
}
PASS_KEY = {  # needle, question, beginning of its answer
    "english": (
        "There is one pass key in here, and it is {value}. Write it down: {value}.",
        "What is the pass key in the text? Answer with the number alone.",
        "The pass key is",
    ),
    "chinese": (
        "这里只有一个通行码，就是{value}。记下来：{value}。",
        "文中的通行码是什么？只回答数字。",
        "通行码是",
    ),
}


def solved(text: str, question: str, answer: str, *, headed: str = "", begun: str = "") -> str:
    """An example that stands before what is asked about: a text of its own, a question, and its answer.

    >>> solved("Ann swims.", "Who swims?", "Ann", headed="An example:\\n", begun="Answer: ")
    'An example:\\nAnn swims.\\nWho swims?\\nAnswer: Ann\\n\\n'
    """
    return f"{headed}{text}\n{question}\n{begun}{answer}\n\n"
