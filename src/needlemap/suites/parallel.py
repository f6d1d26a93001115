"""Hide one needle at each of several named depths, and ask for all of them in one question.

One prompt gives a score by depth (after NeedleBench's multi-needle retrieval, arXiv 2407.11963;
wording is our own).

    at 0 %    Keep in mind that the number assigned to red-fox is 4711203.
    at 50 %   Keep in mind that the number assigned to sad-dog is 9930182.
    Which numbers does the text say are assigned to sad-dog and red-fox?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from needlemap.errors import SettingsError
from needlemap.tasks import Draw, Item, Language, Needle, OneOrMore, Reference, Task
from needlemap.tasks.values import Values, wording


@dataclass(kw_only=True, eq=False)
class Parallel(Task):
    """Keys with values in prose, one at each depth of `at`; all values are asked for.

    at: percent, ascending. digits: of the values. Keys stand in the question in an order of their
    own. The report says what was found at each depth, by `scorer.why` and the needles' depths. All
    is drawn anew for each repeat, the same for its lengths.
    """

    name = "parallel"
    scorer = "recall"

    at: Sequence[float] = (0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
    digits: OneOrMore = 7
    language: Language = "english"

    def __post_init__(self) -> None:
        if len(self.at) < 2 or any(not 0 <= depth <= 100 for depth in self.at):
            raise SettingsError("Option 'at' of parallel must list two or more depths, 0 to 100.")
        if sorted(set(self.at)) != list(self.at):
            raise SettingsError("Option 'at' of parallel must list depths in ascending order.")
        self._keys = Values("word", 0, language=self.language)
        self._values = Values("number", self.digits)

    @property
    def depthless(self) -> bool:
        """Return True: each prompt has all depths."""
        return True

    def item(self, draw: Draw) -> Item:
        """Return a needle at each depth. The answer has their values, in the depths' order."""
        random = draw.random("parallel", "repeat")
        taken = set[str]()
        words = self._words()
        keys = [self._keys.fresh(random, taken, holds=draw.holds) for _ in self.at]
        values = [self._values.fresh(random, taken, holds=draw.holds) for _ in self.at]
        texts = []
        needles = []
        for key, value, depth in zip(keys, values, self.at, strict=True):
            text = words["needle"].format(key=key, value=value)
            texts.append(text)
            needles.append(Needle(text, depth / 100, still=True))

        shuffled = random.sample(keys, len(keys))
        first_keys = words["comma"].join(shuffled[:-1])
        listed = words["last"].join([first_keys, shuffled[-1]])
        question = words["several"].format(keys=listed)
        return Item(
            tuple(needles),
            question,
            reference=Reference(
                words["comma"].join(values),
                tuple(values),
                needle="\n".join(texts),
                question=question,
            ),
            answer_prefix=words["begun_several"].format(keys=listed),
        )

    def _words(self) -> dict[str, str]:
        """Return the wording of `magic` for numbers."""
        words = wording("magic", self.language)
        kind, kinds = words["kinds"]["number"]
        texts = {name: text for name, text in words.items() if isinstance(text, str)}
        return {
            name: text.replace("{kind}", kind).replace("{kinds}", kinds)
            for name, text in texts.items()
        }
