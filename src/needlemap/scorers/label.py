"""Whether the first sentence of an answer names exactly one of a few possible labels, and the right one.

Labels are found whole, so that 'no' is not in 'know'; those that the question names do not count, as an
answer may repeat them. Reads no 'not'.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from needlemap.errors import SettingsError
from needlemap.options import Checked
from needlemap.scorers.base import Reference, Score
from needlemap.scorers.matching import named, plain

_END = re.compile(r"[.!?](?=\s|$)|[。！？]|\n")
_HEADING = (":", "：")


class Label(metaclass=Checked):
    """The labels are the answer and the decoys. why: the sentence, and the labels that it names."""

    name = "label"
    scale = (0.0, 1.0)

    def __init__(self) -> None:
        self.options: Mapping[str, Any] = {}

    async def score(self, answer: str, reference: Reference) -> Score:
        """Raises SettingsError if the task says of no wrong label."""
        if not reference.decoys:
            raise SettingsError(
                "Scorer 'label' needs a task that says which other labels there are. Type: --scorer substring"
            )
        said, asked = plain(first_sentence(answer)), plain(reference.question)
        labels = [plain(text) for text in (reference.answer, *reference.decoys)]
        found = [label for label in dict.fromkeys(labels) if named(said, label) and not named(asked, label)]
        right = float(found == labels[:1])
        return Score(right, right, {"sentence": said, "labels": found})


def first_sentence(text: str) -> str:
    """The first sentence or line that is not blank; a line that ends with a colon is a heading.

    >>> first_sentence(" In the hall. Or the barn?"), first_sentence("答案：\\n大厅。谷仓。")
    ('In the hall', '大厅')
    """
    pieces = (piece.strip() for piece in _END.split(text))
    return next((piece for piece in pieces if piece and not piece.endswith(_HEADING)), "")
