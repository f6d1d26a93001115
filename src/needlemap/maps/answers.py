"""Where two answers to one prompt first differ, and which answers of two runs do.

Scores say little of a model that is always wrong, and every fault of an engine shows in the answers of one
with random weights. Text decides: tokens only say more of the place, where both runs kept them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from needlemap.maps import AskedPrompt, Place, by_place

if TYPE_CHECKING:
    from needlemap.models import Logprobs
    from needlemap.records.record import Record

T = TypeVar("T", int, float)
CUT = 50  # changed answers that are cut into tokens where none were kept: a millisecond a long one
AROUND = 40  # characters shown on either side of a difference
WEIGHS = "logprob"  # the scorer that gives a model its answer: nothing is said then


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an answer: its text, its log-probability in nats, and the likeliest other in its place.
    None where nobody kept it."""

    text: str
    nats: float | None = None
    other: str | None = None
    other_nats: float | None = None

    @property
    def lead(self) -> float | None:
        """Nats by which it was likelier than the other one: near 0 is a tie, 3 is none."""
        known = self.nats is not None and self.other_nats is not None
        return self.nats - self.other_nats if known else None  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """Where two answers part. character: how many they share. before: the last of these; first, second: how
    each goes on, '' where it ends. token: the number of the first other token, from 0; first_token,
    second_token: those, None at an answer's end. Without tokens of both, token is None."""

    character: int
    before: str
    first: str
    second: str
    token: int | None = None
    first_token: Token | None = None
    second_token: Token | None = None


@dataclass(frozen=True, slots=True)
class ChangedAnswer:
    """One prompt that two runs answered otherwise. difference: None where the second gave no answer.
    question: what was asked, which tells samples of logs apart."""

    place: Place
    difference: FirstDifference | None
    question: str = ""


@dataclass(frozen=True, slots=True)
class NatsChange:
    """How much likelier the second run found the same answers, in nats a token: of n pairs the mean, and the
    largest change either way with its place."""

    n: int
    mean: float
    largest: float
    place: Place


@dataclass(frozen=True, slots=True)
class AnswerPairs:
    """The answers of two runs to the same prompts: n pairs of which the first run has an answer. changed: in
    the order in which the second run was asked. places: of all pairs. nats: of answers that are the same,
    None where no two records keep log-probabilities of one."""

    n: int
    changed: tuple[ChangedAnswer, ...]
    places: tuple[Place, ...]
    nats: NatsChange | None = None

    @property
    def differing(self) -> int:
        """Pairs whose answers differ, or that the second run did not answer."""
        return len(self.changed)

    @property
    def unanswered(self) -> int:
        """Pairs that the second run did not answer."""
        return sum(each.difference is None for each in self.changed)

    @property
    def share(self) -> float:
        """The share of pairs that differ; 0 without pairs."""
        return self.differing / self.n if self.n else 0.0

    @property
    def by_length(self) -> dict[int, tuple[int, int]]:
        """By length in tokens: pairs, and how many of them differ."""
        return self._counted(lambda place: place[1])

    @property
    def by_depth(self) -> dict[float, tuple[int, int]]:
        """By depth as a share: pairs, and how many of them differ."""
        return self._counted(lambda place: place[2])

    def _counted(self, axis: Callable[[Place], T]) -> dict[T, tuple[int, int]]:
        changed = {each.place for each in self.changed}
        found = defaultdict[T, list[bool]](list)
        for place in self.places:
            found[axis(place)].append(place in changed)
        return {at: (len(found[at]), sum(found[at])) for at in sorted(found)}


def first_difference(
    first: str, second: str, tokens: tuple[Sequence[Token], Sequence[Token]] = ((), ())
) -> FirstDifference | None:
    """Where two answers first differ; None where they are the same. tokens: of each, where both are known.

    >>> found = first_difference("It is 4711.", "It is 4171.")
    >>> found.character, found.before, found.first, found.second
    (7, 'It is 4', '711.', '171.')
    """
    if first == second:
        return None
    at = shared(first, second)
    around = first[max(0, at - AROUND) : at], first[at : at + AROUND], second[at : at + AROUND]
    one, other = tokens
    number = shared([token.text for token in one], [token.text for token in other])
    if not one or not other or number == len(one) == len(other):
        return FirstDifference(at, *around)
    here = one[number] if number < len(one) else None, other[number] if number < len(other) else None
    return FirstDifference(at, *around, number, *here)


def shared(first: Sequence[object], second: Sequence[object]) -> int:
    """How many characters or tokens two begin with alike.

    >>> shared("abcd", "abef"), shared("ab", "ab"), shared([1, 2], [])
    (2, 2, 0)
    """
    ends = (at for at, (one, other) in enumerate(zip(first, second, strict=False)) if one != other)
    return next(ends, min(len(first), len(second)))


def tokens_of(logprobs: Logprobs | None) -> tuple[Token, ...]:
    """The tokens of an answer, as a record keeps them; none without."""
    if logprobs is None:
        return ()
    columns = logprobs.tokens, logprobs.nats, logprobs.others, logprobs.other_nats
    return tuple(map(Token, *columns))


def pair_answers(
    first: Iterable[AskedPrompt],
    second: Iterable[AskedPrompt],
    asked: Sequence[Record],
    cut: Callable[[str], Sequence[Token]] | None = None,
) -> AnswerPairs:
    """The answers of two runs to the same prompts. asked: the second run's records, in the order asked. cut:
    a text into tokens, for the first answers whose own were not kept.

    A prompt that several cells share makes one pair, at its first place; of one that was asked again the
    first answer counts.
    """
    left, right = by_place(first), by_place(second)
    order = {record.key: at for at, record in enumerate(asked)}
    pairs = {
        (left[place].key, right[place].key): (place, left[place], right[place])
        for place in sorted(left.keys() & right.keys(), reverse=True)
    }
    rows = sorted(pairs.values(), key=lambda row: (order.get(row[2].key, len(order)), row[0]))
    said = [row for row in rows if row[1].answer is not None and not _is_weighed(row[1])]
    unlike = [row for row in said if row[1].answer != row[2].answer]
    changed = [
        ChangedAnswer(place, _difference(one, other, cut if at < CUT else None), one.question)
        for at, (place, one, other) in enumerate(unlike)
    ]
    return AnswerPairs(len(said), tuple(changed), tuple(row[0] for row in said), nats_change(rows))


def _difference(
    one: Record, other: Record, cut: Callable[[str], Sequence[Token]] | None
) -> FirstDifference | None:
    """Where two answers part; None where the second is none."""
    if other.answer is None:
        return None
    texts = one.answer or "", other.answer or ""
    tokens: tuple[Sequence[Token], Sequence[Token]] = tokens_of(one.logprobs), tokens_of(other.logprobs)
    if cut is not None and not all(tokens):
        tokens = cut(texts[0]), cut(texts[1])
    return first_difference(*texts, tokens)


def _is_weighed(record: Record) -> bool:
    """Whether the model was given the answer, and only how likely it is was measured."""
    return record.scorer is not None and record.scorer.name == WEIGHS


def nats_change(rows: Iterable[tuple[Place, Record, Record]]) -> NatsChange | None:
    """How much likelier the same answers became, of places with both runs' records; None without any."""
    found = [(change, place) for place, one, other in rows if (change := _nats(one, other)) is not None]
    if not found:
        return None
    largest, place = max(found, key=lambda each: abs(each[0]))
    return NatsChange(len(found), sum(change for change, _ in found) / len(found), largest, place)


def _nats(one: Record, other: Record) -> float | None:
    """second - first of the mean log-probability of one answer's tokens; None where it is another answer, or
    in other tokens, or nobody kept any."""
    if one.logprobs and other.logprobs and one.logprobs.tokens == other.logprobs.tokens:
        return other.logprobs.mean - one.logprobs.mean
    if not (_is_weighed(one) and _is_weighed(other)):
        return None
    left, right = _native(one), _native(other)
    alike = _tokens_weighed(one) == _tokens_weighed(other)
    return right - left if alike and left is not None and right is not None else None


def _native(record: Record) -> float | None:
    value = record.scorer.native if record.scorer else None
    return value if isinstance(value, int | float) else None


def _tokens_weighed(record: Record) -> object:
    """How many tokens the answer had that was weighed."""
    why: Mapping[str, object] = record.scorer.why if record.scorer else {}
    return why.get("tokens")
