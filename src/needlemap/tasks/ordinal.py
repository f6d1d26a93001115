"""One of several replies to the same request, by its number: multi-round co-reference.

After MRCR (Vodrahalli et al. 2024, arXiv 2409.12640) and OpenAI's and Google's sets of that name. All wording
is our own. The conversation is one text, not messages with roles: what a turn's marks cost is not known of a
server's model, so that no length would be exact, and base models have none.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random
from string import ascii_letters, digits
from typing import Literal

from needlemap.errors import SettingsError
from needlemap.prompts.placement import Needle
from needlemap.scorers.base import Reference
from needlemap.settings.registry import Checked
from needlemap.tasks.base import Background, Draw, Item, Scope
from needlemap.tasks.transcript import Request, Transcript, exchange, reply, request, said

_PROLOGUE = "A conversation between a user and an assistant.\n\n"
_QUESTION = (
    'In the conversation the user asked several times: "{request}" Take the replies to exactly this request '
    "in the order in which they stand, and repeat number {number} of them word for word. Begin your answer "
    "with the code {code}, then give that reply and nothing else."
)


class Ordinal(metaclass=Checked):
    """The same request several times among similar ones, a reply to each; one reply is asked for by number.

    requests: how often the request stands there. sentences: of each reply. code: characters of the random
    code that the answer must begin with. fresh: how often the asked reply is drawn, as for `magic`; the other
    replies to the request are drawn for each length at most.
    """

    name = "ordinal"
    scorer = "verbatim"
    dial = tuple({"requests": requests} for requests in (2, 4, 8))

    def __init__(
        self,
        *,
        requests: int = 4,
        sentences: int = 8,
        code: int = 10,
        fresh: Scope = "trial",
        language: Literal["english"] = "english",
    ) -> None:
        if requests < 2 or sentences < 2 or code < 4:
            raise SettingsError(
                f"Options of ordinal: requests are 2 or more, sentences 2 or more, code 4 or more; got "
                f"{requests}, {sentences} and {code}."
            )
        self._requests, self._sentences, self._code, self._fresh = requests, sentences, code, fresh

    def background(self, repeat: int, seed: int) -> Background:
        """The conversation around the asked requests."""
        source = f"{seed}:{repeat}"
        return Background(Transcript(_asked(repeat, seed), self._sentences, source), "paragraph")

    def item(self, draw: Draw) -> Item:
        """The exchanges of the request; that of the cell's depth is asked for, whichever number it is."""
        wanted = _asked(draw.repeat, draw.seed)
        hidden = self._hidden(wanted, draw)
        ordered = sorted(hidden, key=lambda one: one[0])
        number, text = 1 + ordered.index(hidden[0]), hidden[0][1]
        code = self._drawn_code(draw.random("ordinal code"), draw)
        question = _QUESTION.format(request=said(wanted), number=number, code=code)
        texts = tuple(one for _, one in ordered)
        return Item(
            tuple(
                Needle(exchange(wanted, one), depth, still=place > 0)
                for place, (depth, one) in enumerate(hidden)
            ),
            question,
            Reference(f"{code}\n{text}", (text,), exchange(wanted, text).strip(), question, choices=texts),
            prologue=_PROLOGUE,
            answer_prefix=code,
            unique=(code, *texts),
        )

    def _hidden(self, wanted: Request, draw: Draw) -> list[tuple[float, str]]:
        """Depth and reply of each request, the asked one first."""
        beside: Scope = "repeat" if self._fresh == "repeat" else "length"
        others, own, taken = (
            draw.random("ordinal beside", beside),
            draw.random("ordinal", self._fresh),
            set[str](),
        )
        rest = [
            (others.random(), self._reply(wanted, others, taken, draw)) for _ in range(self._requests - 1)
        ]
        return [(draw.cell.depth, self._reply(wanted, own, taken, draw)), *rest]

    def _reply(self, wanted: Request, random: Random, taken: set[str], draw: Draw) -> str:
        """A reply that stands nowhere else."""
        text = _written(wanted, self._sentences, random.getrandbits(64))
        while text in taken or draw.holds(text):
            text = _written(wanted, self._sentences, random.getrandbits(64))
        taken.add(text)
        return text

    def _drawn_code(self, random: Random, draw: Draw) -> str:
        code = "".join(random.choices(ascii_letters + digits, k=self._code))
        return self._drawn_code(random, draw) if draw.holds(code) else code


@lru_cache(maxsize=1024)
def _written(wanted: Request, sentences: int, number: int) -> str:
    """A reply, by its number; those beside the asked one are the same at all depths of a length."""
    return reply(wanted, sentences, Random(number))


def _asked(repeat: int, seed: int) -> Request:
    """The request of a repeat."""
    return request(Random(f"ordinal:{seed}:{repeat}"))
