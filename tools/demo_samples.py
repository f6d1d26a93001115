"""What `demo/retriever` is trained on: sequences of token ids, and how much each token is worth
learning.

The facts, the question and the frame are needlemap's own defaults; needles lie and are glued as
`placement.PromptBuilder` does it. Only drawing samples is here; see train_demo_model.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from needlemap.prompts.templates import load_template
from needlemap.settings.reading import DEFAULT_ITEMS
from needlemap.text.tokens import Cuts
from needlemap.tokenizers import load

ITEM = DEFAULT_ITEMS["english"]
OTHER_CITIES = """
    Accra Amman Athens Baghdad Bangkok Beijing Berlin Bogota Boston Brussels Bucharest Budapest Calgary
    Chicago Dallas Delhi Denver Dhaka Dublin Geneva Havana Helsinki Istanbul Jakarta Karachi Kiev Lagos
    Lisbon London
    Madrid Manila Milan Montreal Moscow Mumbai Nairobi Naples Paris Prague Rome Santiago Seattle Seoul Sofia
    Stockholm Sydney Taipei Tallinn Tokyo Toronto Venice Vienna Vilnius Warsaw Zagreb Zurich
"""  # noqa: E501
CITIES = [*ITEM["draw"]["city"], *OTHER_CITIES.split()]
OTHER_KEYS = (
    0.25  # share of samples whose keys are any words, so that not cities alone are looked up
)
ASKING = (
    0.75  # share of prompts among the samples of form 'prompt'; the others repeat their needles
)
LITTLE = 0.05  # the weight of plain text
SENTENCES = ("full", "prompt")  # the forms with whole sentences as needles

Row = tuple[list[int], list[float]]  # token ids and weights


@dataclass(frozen=True)
class Stage:
    """A step of the curriculum: `steps` batches of `batch` sequences of one of `tokens` (more of
    short ones).

    form: 'copy', 'glue', 'pair', 'full', 'prompt'; needles: the most in one sequence; share: of
    the sequences that hold needles, the others are text alone.
    """

    form: str
    tokens: tuple[int, ...]
    batch: int
    steps: int
    needles: int = 0
    share: float = 1.0


@dataclass(frozen=True)
class Fact:
    """What a needle says, as token ids."""

    key: list[int]
    number: list[int]


def train_tokenizer(texts: Sequence[str], vocabulary: int) -> Tokenizer:
    """Byte-level BPE, digits one by one, with each city as one token."""
    made = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    made.decoder = decoders.ByteLevel()
    _, around = load_template("text-en").parts[0].around(ITEM["question"])
    shown = [f" {ITEM['needle']}{around}".format(city=city, number=10) for city in CITIES]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([*texts, *shown * len(texts)], trainer)
    return made


class Samples:
    """Draws sequences. Weights: 1 for what must be looked up (the key and the digits of an answer
    or of a repeated needle; 3 for the first digit, which alone needs the key), a little for the
    rest, 0 for what nobody can know."""

    def __init__(self, path: Path, texts: Sequence[str], seed: int) -> None:
        self.random, self._tokenizer = np.random.default_rng(seed), load(str(path))
        self._encoded: dict[str, list[int]] = {}
        self.text = self._tokenizer.index("".join(f"{text}\n\n" for text in texts).encode())
        self._sentence = Cuts.of(self.text).sentence
        self._sentences = np.flatnonzero(self._sentence == np.arange(len(self._sentence)))
        ends = np.cumsum([len(f"{text}\n\n".encode()) for text in texts])[:-1]
        self._documents = np.append(0, np.searchsorted(self.text.offsets, ends))
        vocabulary = Tokenizer.from_file(str(path))
        self._vocabulary = vocabulary.get_vocab_size()
        words = enumerate(vocabulary.decode([number]) for number in range(self._vocabulary))
        self._words = [[number] for number, word in words if _is_word(word)]
        self._cities = [self.encode(f" {city}") for city in CITIES]
        self._digits = [self.encode(str(digit))[0] for digit in range(10)]
        self._before, _, self._behind = ITEM["needle"].partition(" {city}")
        self._behind = self._behind.removesuffix("{number}.")
        _, behind = load_template("text-en").parts[0].around("\0")
        heading, _, between = (behind or "").partition("\0")
        asked, _, close = ITEM["question"].partition(" {city}")
        heading, _, label = heading.rpartition("\n")
        self._heading = self.encode(f"{heading}\n")
        self._ask, self._close = self.encode(label + asked), self.encode(close + between)

    def encode(self, text: str) -> list[int]:
        """Token ids of a short text."""
        if text not in self._encoded:
            self._encoded[text] = self._tokenizer.index(text.encode()).ids.tolist()
        return self._encoded[text]

    def batch(self, stage: Stage) -> tuple[list[list[int]], list[list[float]]]:
        """Token ids and weights, (batch, tokens) each."""
        tokens = int(self.random.choice(stage.tokens))
        size = stage.batch * max(stage.tokens) // tokens
        rows = [self.sample(stage, tokens) for _ in range(size)]
        return [ids for ids, _ in rows], [weights for _, weights in rows]

    def sample(self, stage: Stage, tokens: int) -> Row:
        """One sequence of that many tokens."""
        if stage.form == "copy":
            return self._copied(tokens)
        if stage.share < 1 and self.random.random() >= stage.share:
            return self._plain(tokens)
        prompting = stage.form == "prompt"
        most = max(1, min(stage.needles, tokens // 40)) if prompting else stage.needles
        facts = self._facts(
            1 if self.random.random() < 0.2 else int(self.random.integers(1, most + 1))
        )
        asking = prompting and bool(self.random.random() < ASKING)
        count = int(self.random.integers(1, 4))
        room = tokens - sum(
            len(turn) for turn, _ in islice(self._turns(facts, stage.form, asking), count)
        )
        ids, weights = self._context(facts, stage.form, max(0, room))
        turns = self._turns(facts, stage.form, asking)
        while len(ids) < tokens:
            turn, their = next(turns)
            ids, weights = ids + turn, weights + their
        return ids[:tokens], weights[:tokens]

    def _plain(self, tokens: int) -> Row:
        """Text alone."""
        start = self._start(tokens)
        return self.text.ids[start : start + tokens].tolist(), [LITTLE] * tokens

    def _copied(self, tokens: int) -> Row:
        """Random tokens, and the same again and again."""
        size = int(self.random.integers(4, tokens // 2 + 1))
        once = self.random.integers(0, self._vocabulary, size).tolist()
        return (once * (tokens // size + 1))[:tokens], ([0.0] * size + [1.0] * tokens)[:tokens]

    def _facts(self, count: int) -> list[Fact]:
        """Facts with different keys."""
        pool = self._words if self.random.random() < OTHER_KEYS else self._cities
        keys = self.random.choice(len(pool), count, replace=False)
        low, _, high = ITEM["draw"]["number"].partition(":")
        numbers = self.random.integers(int(low), int(high) + 1, count)
        digits = [[self._digits[int(digit)] for digit in str(number)] for number in numbers]
        return [Fact(pool[key], number) for key, number in zip(keys, digits, strict=True)]

    def _needle(self, fact: Fact, form: str, lead: str = " ") -> list[int]:
        before = self.encode(lead + self._before) if form in SENTENCES else []
        return [*before, *fact.key, *self._link(form), *fact.number, *self.encode(".")]

    def _link(self, form: str) -> list[int]:
        """What stands between key and number: nothing, a space, or ' is '."""
        link = self.encode(self._behind)
        return {"glue": [], "pair": link[-1:]}.get(form, link)

    def _recalled(self, fact: Fact, form: str, asked: bool) -> Row:
        """A needle that was read before. asked: its key too can be known."""
        ids = self._needle(fact, form)
        digits, link = len(fact.number), len(self._link(form))
        number = len(ids) - 1 - digits
        weights = [0.1] * len(ids)
        weights[number : number + digits] = [3.0] + [1.0] * (digits - 1)
        key = number - link - len(fact.key)
        weights[key : key + len(fact.key)] = [1.0 if asked else 0.0] * len(fact.key)
        return ids, weights

    def _turns(self, facts: Sequence[Fact], form: str, asking: bool) -> Iterator[Row]:
        """Without end: repeated needles, or questions with their answers, the first under the
        heading."""
        heading, line = self._heading, self.encode("\n")
        while True:
            fact = facts[int(self.random.integers(0, len(facts)))]
            ids, weights = self._recalled(fact, form, asking)
            if asking:
                question = [*heading, *self._ask, *fact.key, *self._close]
                ids, weights = (
                    question + ids + line,
                    [0.0] * len(question) + weights + [0.5] * len(line),
                )
            yield ids, weights
            heading = []

    def _context(self, facts: Sequence[Fact], form: str, tokens: int) -> Row:
        """About that many tokens of text with the needles in it."""
        size = max(0, tokens - sum(len(self._needle(fact, form)) + 1 for fact in facts))
        start = self._start(size)
        ids: list[int] = []
        weights: list[float] = []
        at, spaced = start, True
        for fact, place in zip(facts, self._places(size, len(facts)), strict=True):
            stop = start + place if place == size else max(at, int(self._sentence[start + place]))
            ids += self.text.ids[at:stop].tolist()
            weights += [LITTLE] * (stop - at)
            spaced = self._space(stop, -1) if stop > at else spaced
            needle = self._needle(fact, form, "" if spaced else " ")
            spaced = place < size and not self._space(stop, 0)
            needle += self.encode(" ") if spaced else []
            ids += needle
            weights += [0.0 if token in fact.key + fact.number else LITTLE for token in needle]
            at = stop
        rest = self.text.ids[at : start + size].tolist()
        return ids + rest, weights + [LITTLE] * len(rest)

    def _start(self, size: int) -> int:
        """Where a text of that many tokens begins: at a document or at a sentence."""
        starts = self._documents if self.random.random() < 0.5 else self._sentences
        return int(self.random.choice(starts[starts < len(self.text) - size - 1]))

    def _places(self, size: int, count: int) -> list[int]:
        """Where needles are meant to be, in order; the last one often at the very end."""
        places = np.sort(self.random.integers(0, size + 1, count))
        if self.random.random() < 0.3:
            places[-1] = size
        return [int(place) for place in places]

    def _space(self, token: int, shift: int) -> bool:
        """Whether white space stands `shift` bytes after the cut before a token."""
        return chr(self.text.data[int(self.text.offsets[token]) + shift]).isspace()


def _is_word(text: str) -> bool:
    return text[:1] == " " and len(text) > 3 and text[1:].isalpha()
