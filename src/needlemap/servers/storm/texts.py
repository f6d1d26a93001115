"""The prompts of acts: their texts, the facts in them, and the questions.

All texts are cut from one haystack, each behind a first line of its own. Facts have the words of
the settings; their secrets hold twelve characters or more, so that by chance no two are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from random import Random

from needlemap.errors import SettingsError
from needlemap.grid import Cell
from needlemap.haystacks import assemble
from needlemap.prompts import TEXT
from needlemap.prompts.templates import fill
from needlemap.servers.apart import drawn_apart
from needlemap.servers.check.owners import LONG_SECRET
from needlemap.servers.storm.act import FACTS, Act, Fact, Path, Piece, Stream, Turn
from needlemap.servers.storm.operation import RANKS
from needlemap.tasks import Item, ReadyPrompt, Reference
from needlemap.tasks.single import drawn
from needlemap.trials import Trial
from needlemap.trials.build import whole_prompt
from needlemap.trials.resolve import Resolved

LINE = 10  # digits of a stream's first line
POOL = 4  # times the longest prompt that the haystack of all texts has
MOST_POOL = 400_000  # tokens of it
_PAD = " and"  # one token of nearly every vocabulary
_OCTAVES = tuple(2**power for power in range(6, 31))
Answer = Callable[[Path], str | None]


@dataclass(frozen=True, slots=True)
class FactText:
    """A fact as it stands in a text. secret: what a right answer to its question holds."""

    text: str
    question: str
    secret: str


@dataclass(eq=False)
class Texts:
    """Makes prompts. resolved: the settings of all acts. framing: tokens that the server counts
    beside ours."""

    resolved: Resolved
    seed: int
    max_length: int
    framing: int = 0
    pool: str = field(default="", init=False)
    _letters: float = field(default=4.0, init=False)

    def __post_init__(self) -> None:
        tokens = min(MOST_POOL, POOL * self.max_length)
        made = assemble(
            self.resolved.source,
            self.resolved.tokenizer,
            tokens,
            order="shuffled",
            seed=self.seed,
            repeat_allowed=True,
        )
        self.pool = bytes(made.text.data).decode("utf-8", "ignore")
        self._letters = len(self.pool) / max(1, len(made.text))
        self.fact_text = lru_cache(maxsize=50_000)(self._fact_text)
        self._keys = lru_cache(maxsize=1_000)(self._drawn_keys)
        self.stream_text = lru_cache(maxsize=64)(self._stream_text)
        first = Stream(0, 0, 0, 400)
        shortest = min(len(self.fact_text(0, Fact(first, at)).secret) for at in range(FACTS))
        if shortest < LONG_SECRET:
            raise SettingsError(
                f"A storm tells secrets apart by {LONG_SECRET} characters: give --keywords and "
                "--draw whose values have as many."
            )

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return self.resolved.tokenizer.count(text.encode())

    def _drawn_keys(self, number: int, family: int) -> list[dict[str, str]]:
        """What the facts of one family are about: as many as one prompt may hold."""
        settings = self.resolved.settings
        repeat = 1_000 * number + family
        return drawn_apart(settings.draw or {}, repeat, self.seed, RANKS * FACTS, settings.question)

    def _fact_text(self, number: int, fact: Fact) -> FactText:
        settings, stream = self.resolved.settings, fact.stream
        keys = self._keys(number, stream.family)[stream.rank * FACTS + fact.number]
        place = f"{number}:{stream.number}:{fact.number}"
        unique = int(sha256(f"{self.seed}:{place}".encode()).hexdigest()[:12], 16)
        fresh = drawn(settings.draw or {}, unique, self.seed)
        asked = {name for name in keys if "{" + name + "}" in settings.question}
        values = {name: keys[name] if name in asked else fresh[name] for name in keys}
        words = [fill(word, values, "keywords") for word in settings.keywords]
        return FactText(
            fill(settings.needle, values, "needle"),
            fill(settings.question, values, "question"),
            max(words, key=len),
        )

    def _stream_text(self, number: int, stream: Stream) -> str:
        """A whole text: its first line, haystack, and facts where they belong."""
        random = Random(f"{self.seed}:{number}:{stream.number}")
        line = f"{random.randrange(10**LINE):0{LINE}}\n"
        facts = [f"\n{self.fact_text(number, Fact(stream, fact)).text}\n" for fact in range(FACTS)]
        size = max(0, round(stream.tokens * self._letters) - sum(map(len, facts)) - len(line))
        start = random.randrange(max(1, len(self.pool) - size))
        start = self.pool.find(" ", start) + 1
        parts, at = [line], start
        for fact, place in zip(facts, stream.places, strict=True):
            end = start + round(place / stream.tokens * size)
            end = max(at, self.pool.find(" ", end) + 1 if place else at)
            parts += [self.pool[at:end], fact]
            at = end
        parts.append(self.pool[at : max(at, start + size)])
        return "".join(parts)

    def piece_text(self, number: int, piece: Piece) -> str:
        """The first tokens of a text; a fact that it is to hold is there whole."""
        whole = self.stream_text(number, piece.stream)
        cut = self._beginning(number, piece) if piece.tokens < piece.stream.tokens else whole
        held = piece.stream.facts_within(piece.tokens)
        for fact in range(FACTS):
            text = self.fact_text(number, Fact(piece.stream, fact)).text
            if fact in held and text not in cut:
                cut = f"{cut}\n{text}\n"
            elif fact not in held and text in cut:
                cut = cut[: cut.index(text)]
        return cut

    def _beginning(self, number: int, piece: Piece) -> str:
        text = self.resolved.tokenizer.index(self.stream_text(number, piece.stream).encode())
        stop = min(piece.tokens, len(text))
        return bytes(text.span(0, stop).data).decode("utf-8", "ignore")

    def messages(
        self, number: int, path: Path, answers: Answer, salt: str
    ) -> list[tuple[str, str]]:
        """A conversation: user turns, and between them what the model said to them."""
        rows = list[tuple[str, str]]()
        for end, turn in enumerate(path, 1):
            for part in self.resolved.template.parts:
                before, after = part.around(self.question(number, turn))
                if after is None:
                    rows += [(part.role, before)] if end == 1 else []
                    continue
                text = "".join(self.piece_text(number, piece) for piece in turn.pieces)
                text = f"{salt}{text[len(salt) :]}" if end == 1 else text  # of as many tokens
                rows.append((part.role, f"{before}{text}{after}"))
            if end < len(path):
                answer = answers(path[:end])
                rows.append(("assistant", answer or self.right(number, turn)))
        total = path[-1].total
        return rows if total is None or len(path) > 1 else self._padded(rows, number, path, total)

    def question(self, number: int, turn: Turn) -> str:
        """What a turn asks, in the order of its facts."""
        return " ".join(self.fact_text(number, fact).question for fact in turn.asked)

    def right(self, number: int, turn: Turn) -> str:
        """A right answer."""
        return " ".join(f"{self.fact_text(number, fact).secret}." for fact in turn.asked)

    def secrets(self, number: int, act: Act) -> tuple[str, ...]:
        """What a right answer holds, in its order."""
        return tuple(self.fact_text(number, fact).secret for fact in act.asked_facts)

    def hidden(self, number: int, act: Act) -> set[str]:
        """All secrets of a prompt."""
        return {
            self.fact_text(number, Fact(piece.stream, fact)).secret
            for piece in act.streams
            for fact in piece.stream.facts_within(piece.tokens)
        }

    def trial(self, number: int, act: Act, repeat: int, answers: Answer) -> Trial:
        """The prompt of an act, as long as it is to be where that is said."""
        rows = self.messages(number, act.path, answers, act.salt)
        if not self.resolved.traits.chat:
            rows = [(TEXT, _as_text(rows))]
        secrets = self.secrets(number, act)
        question = self.question(number, act.path[-1])
        item = Item((), question, Reference(secrets[0], secrets, "", question))
        prompt = whole_prompt(
            ReadyPrompt(tuple(rows), item, None),
            self.resolved.traits,
            self.resolved.tokenizer.index,
            feeder=self.resolved.feeder,
        )
        length = next(size for size in _OCTAVES if prompt.tokens <= size)
        return Trial.of(self.resolved.keys, Cell(length, 0.0), repeat, item, prompt)

    def _padded(
        self, rows: Sequence[tuple[str, str]], number: int, path: Path, total: int
    ) -> list[tuple[str, str]]:
        """The same with words before its question, so that the server counts the wanted
        tokens; as it is where it is longer already."""
        role, text = rows[-1]
        at = text.rfind(self.question(number, path[-1]))
        others = sum(self.count(text) for _, text in rows[:-1])
        made, pad = text, 0
        for _ in range(3):
            missing = total - self.framing - others - self.count(made)
            if missing == 0 or pad + missing < 0:
                break
            pad += missing
            made = f"{text[:at]}{_PAD * pad}\n{text[at:]}"
        return [*rows[:-1], (role, made)]


def _as_text(rows: Sequence[tuple[str, str]]) -> str:
    """A conversation as one text, for base models."""
    return "\n\n".join(text for _, text in rows)
