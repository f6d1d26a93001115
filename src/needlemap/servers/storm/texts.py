"""Make the prompts of acts: their texts, the facts in them, and the questions.

All texts are cut from one haystack, each after a first line of its own. Facts have the words of the
settings. Their secrets hold twelve characters or more, so that by chance no two are equal.
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

# Digits of a stream's first line.
LINE = 10
# Times the longest prompt that the haystack of all texts has; and its tokens, at most.
POOL = 4
MOST_POOL = 400_000
# One token of nearly every vocabulary.
_PAD = " and"
# Times that a prompt is padded: the pad's own seams may move the count.
_PADDINGS = 3
_OCTAVES = tuple(2**power for power in range(6, 31))
Answer = Callable[[Path], str | None]


@dataclass(frozen=True, slots=True)
class FactText:
    """A fact as it stands in a text.

    Attributes:
        text: The sentence.
        question: The question for it.
        secret: What a right answer to the question holds.
    """

    text: str
    question: str
    secret: str


@dataclass(eq=False)
class Texts:
    """Makes the prompts of a storm.

    Attributes:
        resolved: The settings of all acts.
        seed: The seed of the storm.
        max_length: Tokens of the longest prompt.
        framing: Tokens that the server counts in addition to ours.
        pool: The haystack from which all texts are cut.
    """

    resolved: Resolved
    seed: int
    max_length: int
    framing: int = 0
    pool: str = field(default="", init=False)
    _letters: float = field(default=4.0, init=False)

    def __post_init__(self) -> None:
        tokens = min(MOST_POOL, POOL * self.max_length)
        haystack = assemble(
            self.resolved.source,
            self.resolved.tokenizer,
            tokens,
            order="shuffled",
            seed=self.seed,
            repeat_allowed=True,
        )
        self.pool = bytes(haystack.text.data).decode("utf-8", "ignore")
        # Characters of a token, in the mean.
        self._letters = len(self.pool) / max(1, len(haystack.text))
        self.fact_text = lru_cache(maxsize=50_000)(self._fact_text)
        self._keys = lru_cache(maxsize=1_000)(self._draw_keys)
        self.stream_text = lru_cache(maxsize=64)(self._stream_text)
        sample = Stream(0, 0, 0, 400)
        secrets = [self.fact_text(0, Fact(sample, fact)).secret for fact in range(FACTS)]
        shortest = min(map(len, secrets))
        if shortest < LONG_SECRET:
            raise SettingsError(
                f"A storm tells secrets apart by {LONG_SECRET} characters: give --keywords and "
                "--draw whose values have as many."
            )

    def count(self, text: str) -> int:
        """Return the tokens of a text."""
        return self.resolved.tokenizer.count(text.encode())

    def _draw_keys(self, number: int, family: int) -> list[dict[str, str]]:
        """Draw the subjects of one family's facts, as many as one prompt may hold."""
        settings = self.resolved.settings
        repeat = 1_000 * number + family
        return drawn_apart(
            settings.draw or {},
            repeat,
            seed=self.seed,
            count=RANKS * FACTS,
            question=settings.question,
        )

    def _fact_text(self, number: int, fact: Fact) -> FactText:
        """Return the text of a fact. Its question is one of its family's; its answer is unique."""
        settings, stream = self.resolved.settings, fact.stream
        keys = self._keys(number, stream.family)[stream.rank * FACTS + fact.number]
        place = f"{number}:{stream.number}:{fact.number}"
        unique = int(sha256(f"{self.seed}:{place}".encode()).hexdigest()[:12], 16)
        own_values = drawn(settings.draw or {}, unique, self.seed)
        values = {}
        for name, key in keys.items():
            is_in_question = f"{{{name}}}" in settings.question
            values[name] = key if is_in_question else own_values[name]
        words = [fill(word, values, "keywords") for word in settings.keywords]
        return FactText(
            text=fill(settings.needle, values, "needle"),
            question=fill(settings.question, values, "question"),
            secret=max(words, key=len),
        )

    def _stream_text(self, number: int, stream: Stream) -> str:
        """Return a whole text: a first line, then a haystack with the facts in their places."""
        random = Random(f"{self.seed}:{number}:{stream.number}")
        line = f"{random.randrange(10**LINE):0{LINE}}\n"
        facts = [f"\n{self.fact_text(number, Fact(stream, fact)).text}\n" for fact in range(FACTS)]
        size = max(0, round(stream.tokens * self._letters) - sum(map(len, facts)) - len(line))
        start = random.randrange(max(1, len(self.pool) - size))
        start = self.pool.find(" ", start) + 1
        parts = [line]
        position = start
        for fact, place in zip(facts, stream.places, strict=True):
            end = position
            if place:
                # After a space, so that no word is cut.
                target = start + round(place / stream.tokens * size)
                end = max(position, self.pool.find(" ", target) + 1)
            parts += [self.pool[position:end], fact]
            position = end
        parts.append(self.pool[position : max(position, start + size)])
        return "".join(parts)

    def piece_text(self, number: int, piece: Piece) -> str:
        """Return the first tokens of a text, with each of its facts either whole or left out."""
        text = self.stream_text(number, piece.stream)
        if piece.tokens < piece.stream.tokens:
            text = self._first_tokens(number, piece)
        facts = piece.stream.facts_within(piece.tokens)
        for fact in range(FACTS):
            sentence = self.fact_text(number, Fact(piece.stream, fact)).text
            if fact in facts and sentence not in text:
                text = f"{text}\n{sentence}\n"
            elif fact not in facts and sentence in text:
                text = text[: text.index(sentence)]
        return text

    def _first_tokens(self, number: int, piece: Piece) -> str:
        text = self.resolved.tokenizer.index(self.stream_text(number, piece.stream).encode())
        stop = min(piece.tokens, len(text))
        return bytes(text.span(0, stop).data).decode("utf-8", "ignore")

    def messages(
        self, number: int, path: Path, answers: Answer, salt: str
    ) -> list[tuple[str, str]]:
        """Return a conversation: user turns, and between them the model's answers.

        answers: returns the model's answer to a conversation. If it returns None, a right answer
        stands there. salt: another first line; '' for the text's own.
        """
        rows = list[tuple[str, str]]()
        for end, turn in enumerate(path, 1):
            for part in self.resolved.template.parts:
                before, after = part.around(self.question(number, turn))
                if after is None:
                    # A part without a question, such as a system message, comes once.
                    if end == 1:
                        rows.append((part.role, before))
                    continue
                text = "".join(self.piece_text(number, piece) for piece in turn.pieces)
                if end == 1:
                    # It replaces as many characters, so that the prompt has as many tokens.
                    text = f"{salt}{text[len(salt) :]}"
                rows.append((part.role, f"{before}{text}{after}"))
            if end < len(path):
                answer = answers(path[:end])
                rows.append(("assistant", answer or self.right_answer(number, turn)))
        total = path[-1].total
        if total is None or len(path) > 1:
            return rows
        return self._pad_conversation(rows, number, path, total)

    def question(self, number: int, turn: Turn) -> str:
        """Return the questions of a turn, in the order of its facts."""
        return " ".join(self.fact_text(number, fact).question for fact in turn.facts)

    def right_answer(self, number: int, turn: Turn) -> str:
        """Return a right answer to a turn."""
        return " ".join(f"{self.fact_text(number, fact).secret}." for fact in turn.facts)

    def secrets(self, number: int, act: Act) -> tuple[str, ...]:
        """Return the secrets that a right answer to a request holds, in their order."""
        return tuple(self.fact_text(number, fact).secret for fact in act.asked_facts)

    def all_secrets(self, number: int, act: Act) -> set[str]:
        """Return all secrets that a prompt holds."""
        return {
            self.fact_text(number, Fact(piece.stream, fact)).secret
            for piece in act.pieces
            for fact in piece.stream.facts_within(piece.tokens)
        }

    def trial(self, number: int, act: Act, repeat: int, answers: Answer) -> Trial:
        """Return the prompt of a request. If its turn has a total, it has that many tokens."""
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

    def _pad_conversation(
        self, rows: Sequence[tuple[str, str]], number: int, path: Path, total: int
    ) -> list[tuple[str, str]]:
        """Return a conversation padded before its question, so that the server counts `total`.

        A conversation that is longer is returned unchanged.
        """
        role, text = rows[-1]
        question = text.rfind(self.question(number, path[-1]))
        other_tokens = sum(self.count(text) for _, text in rows[:-1])
        padded = text
        pads = 0
        for _ in range(_PADDINGS):
            missing = total - self.framing - other_tokens - self.count(padded)
            if missing == 0 or pads + missing < 0:
                break
            pads += missing
            padded = f"{text[:question]}{_PAD * pads}\n{text[question:]}"
        return [*rows[:-1], (role, padded)]


def _as_text(rows: Sequence[tuple[str, str]]) -> str:
    """Return a conversation as one text, for base models."""
    return "\n\n".join(text for _, text in rows)
