"""Two runs, paired prompt by prompt: their scores, which of their answers differ, and where
these first do.

Not by key: a trial's key names the model, which is what two runs may differ in. The same
prompt is one of the same bytes, or one that both models see as the same token ids. Scores say
little of a model that is always wrong, and every fault of an engine shows in the answers of
one with random weights. Text decides: tokens only say more of the place, where both runs kept
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import fsum
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from needlemap.finishes import Ending, ending_of
from needlemap.stats import Array, AskedPrompt, Cube, Place, asks_same, make_cube
from needlemap.stats.rows import JudgedPrompt, Rows

if TYPE_CHECKING:
    from needlemap.models import Logprobs
    from needlemap.records.record import Record

T = TypeVar("T", int, float)
CUT = 50  # changed answers that are cut into tokens where none were kept: a millisecond a long one
AROUND = 40  # characters shown on either side of a difference
WEIGHS = ("logprob", "recovery")  # scorers that give a model its answer: nothing is said then


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an answer: its text, its log-probability in nats, and the likeliest other
    in its place. None if it was not kept."""

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
    """Where two answers part. character: how many they share. before: the last of these;
    first, second: how each goes on, '' where it ends. token: the number of the first other
    token, from 0; first_token, second_token: those, None at an answer's end. Without tokens of
    both, token is None."""

    character: int
    before: str
    first: str
    second: str
    token: int | None = None
    first_token: Token | None = None
    second_token: Token | None = None


@dataclass(frozen=True, slots=True)
class ChangedAnswer:
    """One prompt that two runs answered otherwise. difference: None where the second gave no
    answer. question: what was asked, which tells samples of logs apart."""

    place: Place
    difference: FirstDifference | None
    question: str = ""


@dataclass(frozen=True, slots=True)
class NatsChange:
    """How much likelier the second run found the same answers, in nats a token: of n pairs the
    mean, and the largest change either way with its place."""

    n: int
    mean: float
    largest: float
    place: Place


@dataclass(frozen=True, slots=True)
class AnswerPairs:
    """The answers of two runs to the same prompts: n pairs of which the first run has an
    answer. changed: in the order in which the second run was asked. places: of all pairs.
    nats: of answers that are the same, None where no two records keep log-probabilities of
    one."""

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
        found = Counter(axis(place) for place in self.places)
        changed = Counter(axis(place) for place in {each.place for each in self.changed})
        return {at: (found[at], changed[at]) for at in sorted(found)}


def first_difference(
    first: str, second: str, tokens: tuple[Sequence[Token], Sequence[Token]] = ((), ())
) -> FirstDifference | None:
    """Where two answers first differ; None where they are the same. tokens: of each, where
    both are known.

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
    here = (
        one[number] if number < len(one) else None,
        other[number] if number < len(other) else None,
    )
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
    """The answers of two runs to the same prompts. asked: the second run's records, in the
    order asked. cut: a text into tokens, for the first answers whose own were not kept.

    A prompt that several cells share makes one pair, at its first place; of one that was asked
    again the first answer counts.
    """
    order = {record.key: at for at, record in enumerate(asked)}
    met = [(one.places[0], one.record, other.record) for one, other in _met(first, second)]
    pairs = [
        (place, one, other) for place, one, other in met if one is not None and other is not None
    ]
    rows = sorted(pairs, key=lambda row: (order.get(row[2].key, len(order)), row[0]))
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
    tokens: tuple[Sequence[Token], Sequence[Token]] = (
        tokens_of(one.logprobs),
        tokens_of(other.logprobs),
    )
    if cut is not None and not all(tokens):
        tokens = cut(texts[0]), cut(texts[1])
    return first_difference(*texts, tokens)


def _is_weighed(record: Record) -> bool:
    """Whether the model was given the answer, and only how likely it is was measured."""
    return record.scorer is not None and record.scorer.name in WEIGHS


def nats_change(rows: Iterable[tuple[Place, Record, Record]]) -> NatsChange | None:
    """How much likelier the same answers became, of places with both runs' records; None
    without any."""
    found = [
        (change, place) for place, one, other in rows if (change := _nats(one, other)) is not None
    ]
    if not found:
        return None
    largest, place = max(found, key=lambda each: abs(each[0]))
    return NatsChange(len(found), sum(change for change, _ in found) / len(found), largest, place)


def _nats(one: Record, other: Record) -> float | None:
    """second - first of the mean log-probability of one answer's tokens; None if the answers
    or their tokens differ, or if none were kept."""
    if one.logprobs and other.logprobs and (count := _tokens_alike(one, other)):
        first, second = one.logprobs.nats[:count], other.logprobs.nats[:count]
        return (fsum(second) - fsum(first)) / count
    if not (_is_weighed(one) and _is_weighed(other)):
        return None
    left, right = _native(one), _native(other)
    alike = _tokens_weighed(one) == _tokens_weighed(other)
    return right - left if alike and left is not None and right is not None else None


def _tokens_alike(one: Record, other: Record) -> int:
    """How many tokens hold the answer of both, 0 if they differ. The token that stops it is
    left out: hf keeps one, llama.cpp does not."""
    assert one.logprobs is not None
    assert other.logprobs is not None
    left, right = one.logprobs.tokens, other.logprobs.tokens
    if one.answer == other.answer and one.answer is not None:
        answer = one.answer.strip()
        for count in range(1, shared(left, right) + 1):
            if "".join(left[:count]).strip() == answer:
                return count
    # Tokens that do not spell the answer, as bytes of one letter: all of them, if they are alike.
    return len(left) if left == right else 0


def _native(record: Record) -> float | None:
    value = record.scorer.native if record.scorer else None
    return value if isinstance(value, int | float) else None


def _tokens_weighed(record: Record) -> object:
    """How many tokens the answer had that was weighed."""
    why: Mapping[str, object] = record.scorer.why if record.scorer else {}
    return why.get("tokens")


@dataclass(frozen=True, slots=True)
class Pairs:
    """Two cubes with the same axes, of the trials that both runs were to make.

    A prompt that several cells share makes one pair, at the place of the first, of its mean
    scores. only_first, only_second: prompts of one run alone. unlike: places where the two
    asked something else. graded: whether any answer scored between wrong and right.
    counted: False where scores are means of an unknown number of answers. failed: prompts that
    first and second asked, of which no answer could be measured. answers: which of them
    differ, where somebody looked. tried: (repeats, lengths, depths), what both were sent;
    None for all. measured: when the first and the last answer of both came. ran_on: answers of
    first and second that did not stop where the other's did, and so count as wrong.
    """

    first: Cube
    second: Cube
    only_first: int
    only_second: int
    unlike: tuple[Place, ...]
    graded: bool
    counted: bool
    failed: tuple[int, int] = (0, 0)
    answers: AnswerPairs | None = None
    tried: NDArray[np.bool_] | None = None
    measured: tuple[str, str] = ("", "")
    ran_on: tuple[int, int] = (0, 0)

    @property
    def unanswered(self) -> int:
        """Pairs that first has a score of, and second has not: it failed, or was not asked
        yet."""
        return int((self.first.known & ~self.second.known).sum())

    @property
    def lost(self) -> Array:
        """The scores of second, with 0 where it has none and first has."""
        return np.where(self.first.known & ~self.second.known, 0.0, self.second.scores)

    @property
    def differences(self) -> Array:
        """second - first: (repeats, lengths, depths), NaN where either has no score."""
        return self.second.scores - self.first.scores

    @property
    def spread(self) -> Array:
        """The same with each pair in every cell of its prompt, for statements on cells."""
        return self.second.spread - self.first.spread

    @property
    def n(self) -> int:
        """Pairs with both scores."""
        return int((self.first.known & self.second.known).sum())

    @property
    def dropped(self) -> int:
        """Pairs that both were sent, and at least one has no score of."""
        sent = self.first.asked if self.tried is None else self.first.asked & self.tried
        return int((sent & ~(self.first.known & self.second.known)).sum())


def pair_up(
    first: Sequence[AskedPrompt], second: Sequence[AskedPrompt], *, one_haystack: bool = False
) -> Pairs:
    """Pair the prompts of two runs, asked or still to be asked."""
    found = [stopped(*both) for both in _met(first, second)]
    ran_on = sum(ran[0] for _, _, ran in found), sum(ran[1] for _, _, ran in found)
    met = [(one, other) for one, other, _ in found]
    tried = [both for both in met if all(prompt.records for prompt in both)]
    unlike = (one.places for one, other in tried if not is_same(one.records[0], other.records[0]))
    records = [record for both in tried for prompt in both for record in prompt.records]
    alike = one_haystack or (bool(records) and all(record.prompt is None for record in records))
    cells = [place for one, _ in met for place in one.cells.values()]
    sides = ([both[side] for both in met] for side in (0, 1))
    left, right = (replace(make_cube(side, at=cells), one_haystack=alike) for side in sides)
    common = set(chain.from_iterable(one.places for one, _ in met))
    alone = [sum(common.isdisjoint(each.places) for each in prompts) for prompts in (first, second)]
    failed = (
        sum(one.score is None for one, _ in tried),
        sum(other.score is None for _, other in tried),
    )
    graded = any(record.score not in (None, 0, 1) for record in records)
    counted = not any(record.scorer is not None and record.scorer.mean for record in records)
    told = tuple(sorted(chain.from_iterable(unlike))), graded, counted, failed
    asked = np.zeros(left.asked.shape, dtype=bool)
    for one, other in met:
        repeat, length, depth = one.places[0]
        at = left.repeats.index(repeat), left.lengths.index(length), left.depths.index(depth)
        asked[at] = bool(one.records) and bool(other.records)
    moments = sorted(record.finished_at for record in records if record.finished_at)
    measured = (moments[0], moments[-1]) if moments else ("", "")
    pairs = Pairs(left, right, alone[0], alone[1], *told)
    return replace(pairs, tried=asked, measured=measured, ran_on=ran_on)


def stopped(
    first: AskedPrompt, second: AskedPrompt
) -> tuple[AskedPrompt, AskedPrompt, tuple[bool, bool]]:
    """Both prompts, and which answer did not stop where the other's did: that one is wrong."""
    one, other = (_runs_on(each.record) for each in (first, second))
    if one == other or first.score is None or second.score is None:
        return first, second, (False, False)
    if one:
        return _wrong(first), second, (True, False)
    return first, _wrong(second), (False, True)


def scores_of(first: Record | None, second: Record | None) -> tuple[float | None, float | None]:
    """The scores of two answers to one prompt, None of one that is missing. An answer that
    does not stop where the other does is wrong."""
    one, other = (None if each is None else each.score for each in (first, second))
    if one is None or other is None:
        return one, other
    ran = _runs_on(first), _runs_on(second)
    return (0.0 if ran == (True, False) else one), (0.0 if ran == (False, True) else other)


def _runs_on(record: Record | None) -> bool:
    return record is not None and ending_of(record.finish) is Ending.CUT


def _wrong(prompt: AskedPrompt) -> AskedPrompt:
    return replace(
        prompt,
        records=tuple(
            each.model_copy(update={"score": 0.0}) if _runs_on(each) and each.scored else each
            for each in prompt.records
        ),
    )


def rows_of(families: Mapping[str, Pairs]) -> Rows:
    """The pairs of several families as a verdict takes them: what both were sent, or one has
    scored. Repeats of one number are one haystack in all families; samples of a log are one
    each."""
    found = list[JudgedPrompt]()
    for name, pairs in families.items():
        for place, one, other, tried in _scores(pairs):
            if one is other is None and not tried:
                continue
            alone = pairs.first.lengths == (0,)
            shared = pairs.first.repeats[0] if pairs.first.one_haystack else place[0]
            found.append(
                JudgedPrompt(name, place, len(found) if alone else shared, one, other, tried)
            )
    return Rows.of(found)


def _scores(pairs: Pairs) -> Iterator[tuple[Place, float | None, float | None, bool]]:
    cube = pairs.first
    tried = cube.asked if pairs.tried is None else pairs.tried
    for at in np.argwhere(cube.asked).tolist():
        place = cube.repeats[at[0]], cube.lengths[at[1]], cube.depths[at[2]]
        one, other = (float(each.scores[tuple(at)]) for each in (cube, pairs.second))
        known = bool(tried[tuple(at)])
        yield place, None if one != one else one, None if other != other else other, known


def _met(
    first: Iterable[AskedPrompt], second: Iterable[AskedPrompt]
) -> list[tuple[AskedPrompt, AskedPrompt]]:
    """The prompts that two runs have at the same places, each at these places alone."""
    left, right = (
        {place: each for each in prompts for place in each.places} for prompts in (first, second)
    )
    groups: dict[tuple[int, int], list[Place]] = {}
    for place in sorted(left.keys() & right.keys()):
        groups.setdefault((id(left[place]), id(right[place])), []).append(place)
    found = ((left[places[0]], right[places[0]], tuple(places)) for places in groups.values())
    return [
        (replace(one, places=places), replace(other, places=places)) for one, other, places in found
    ]


def is_same(first: Record, second: Record) -> bool:
    """Whether two records asked the same and held the same for right, as far as both say what
    that was.

    The same is asked by the same bytes, by what both models see as the same token ids, or, of
    imported results, whose prompts are not known, by the same question for the same answer.
    """
    digests = {first.reference_sha256, second.reference_sha256} - {""}
    if first.task != second.task or len(digests) > 1:
        return False
    one, other = first.prompt, second.prompt
    if one is None or other is None:
        return one is other and (first.question, first.reference) == (
            second.question,
            second.reference,
        )
    return asks_same(one, other)
