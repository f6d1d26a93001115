"""Pair two runs prompt by prompt: their scores, and where their answers first differ.

Pairs are not made by key: a trial's key names the model, which is what two runs may differ in. The
same prompt is one of the same bytes, or one that both models see as the same token ids. Scores say
little of a model that is always wrong, and every fault of an engine shows in the answers of one
with random weights. Text decides: tokens only say more of the place, where both runs kept them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, isnan
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
# Changed answers that are cut into tokens where none were kept: a long one takes a millisecond.
CUT = 50
# Characters shown on either side of a difference.
AROUND = 40
# Scorers that give a model its answer, so that it says nothing.
WEIGHS = ("logprob", "recovery")


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an answer.

    Attributes:
        text: as it stands in the answer.
        nats: its log-probability; None if it was not kept.
        other: the likeliest other token in its place; None if it was not kept.
        other_nats: the log-probability of that.
    """

    text: str
    nats: float | None = None
    other: str | None = None
    other_nats: float | None = None

    @property
    def lead(self) -> float | None:
        """Return by how many nats it was likelier than the other token: near 0 is a tie.

        If either is not known, None is returned.
        """
        if self.nats is None or self.other_nats is None:
            return None
        return self.nats - self.other_nats


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """Where two answers part.

    Attributes:
        character: how many characters they share.
        before: the last of these.
        first, second: how each goes on; empty where it ends.
        token: the number of the first other token, from 0; None without tokens of both.
        first_token, second_token: these tokens; None at an answer's end.
    """

    character: int
    before: str
    first: str
    second: str
    token: int | None = None
    first_token: Token | None = None
    second_token: Token | None = None


@dataclass(frozen=True, slots=True)
class ChangedAnswer:
    """One prompt that two runs answered otherwise.

    Attributes:
        place: of the prompt.
        difference: where the answers part; None where the second run gave none.
        question: what was asked, which tells samples of logs apart.
    """

    place: Place
    difference: FirstDifference | None
    question: str = ""


@dataclass(frozen=True, slots=True)
class NatsChange:
    """How much likelier the second run found the same answers, in nats a token.

    Attributes:
        n: pairs.
        mean: of their changes.
        largest: the largest change either way.
        place: of that.
    """

    n: int
    mean: float
    largest: float
    place: Place


@dataclass(frozen=True, slots=True)
class AnswerPairs:
    """The answers of two runs to the same prompts.

    Attributes:
        n: pairs of which the first run has an answer.
        changed: those that differ, in the order in which the second run was asked.
        places: of all pairs.
        nats: of answers that are the same; None where no two records keep log-probabilities of
            one.
        only_second: prompts that the second run alone answered.
        unsent: prompts that one of the runs was sent, and the other was not yet.
    """

    n: int
    changed: tuple[ChangedAnswer, ...]
    places: tuple[Place, ...]
    nats: NatsChange | None = None
    only_second: int = 0
    unsent: int = 0

    @property
    def differing(self) -> int:
        """Return the number of answers that differ or that the second run did not give."""
        return len(self.changed)

    @property
    def unanswered(self) -> int:
        """Return the number of pairs that the second run did not answer."""
        return sum(change.difference is None for change in self.changed)

    @property
    def share(self) -> float:
        """Return the share of pairs that differ, or 0 if there are no pairs."""
        return self.differing / self.n if self.n else 0.0

    @property
    def by_length(self) -> dict[int, tuple[int, int]]:
        """Return the number of pairs, and of those that differ, by length in tokens."""
        return self._counted(lambda place: place[1])

    @property
    def by_depth(self) -> dict[float, tuple[int, int]]:
        """Return the number of pairs, and of those that differ, by depth as a share."""
        return self._counted(lambda place: place[2])

    def _counted(self, axis: Callable[[Place], T]) -> dict[T, tuple[int, int]]:
        counts = Counter(axis(place) for place in self.places)
        changed_counts = Counter(axis(place) for place in {change.place for change in self.changed})
        return {value: (counts[value], changed_counts[value]) for value in sorted(counts)}


def first_difference(
    first: str, second: str, tokens: tuple[Sequence[Token], Sequence[Token]] = ((), ())
) -> FirstDifference | None:
    """Return the place at which two answers first differ, or None if they are the same.

    tokens: of both answers, if they are known.

    >>> difference = first_difference("It is 4711.", "It is 4171.")
    >>> difference.character, difference.before, difference.first, difference.second
    (7, 'It is 4', '711.', '171.')
    """
    if first == second:
        return None
    character = shared_prefix(first, second)
    difference = FirstDifference(
        character=character,
        before=first[max(0, character - AROUND) : character],
        first=first[character : character + AROUND],
        second=second[character : character + AROUND],
    )
    first_tokens, second_tokens = tokens
    number = shared_prefix(
        [token.text for token in first_tokens], [token.text for token in second_tokens]
    )
    if not first_tokens or not second_tokens or number == len(first_tokens) == len(second_tokens):
        return difference
    return replace(
        difference,
        token=number,
        first_token=first_tokens[number] if number < len(first_tokens) else None,
        second_token=second_tokens[number] if number < len(second_tokens) else None,
    )


def shared_prefix(first: Sequence[object], second: Sequence[object]) -> int:
    """Return the number of characters or tokens at the start that two sequences share.

    >>> shared_prefix("abcd", "abef"), shared_prefix("ab", "ab"), shared_prefix([1, 2], [])
    (2, 2, 0)
    """
    for index, (item, other_item) in enumerate(zip(first, second, strict=False)):
        if item != other_item:
            return index
    return min(len(first), len(second))


def tokens_of(logprobs: Logprobs | None) -> tuple[Token, ...]:
    """Return the tokens of an answer, as a record keeps them, or none if it keeps none."""
    if logprobs is None:
        return ()
    return tuple(map(Token, logprobs.tokens, logprobs.nats, logprobs.others, logprobs.other_nats))


def leads_of(logprobs: Logprobs) -> tuple[float | None, ...]:
    """Return by how many nats each token of an answer is likelier than its runner-up.

    The lead of a token without a runner-up is None: its log-probability alone is not a lead.
    """
    return tuple(token.lead for token in tokens_of(logprobs))


def pair_answers(
    first: Iterable[AskedPrompt],
    second: Iterable[AskedPrompt],
    asked: Sequence[Record],
    cut: Callable[[str], Sequence[Token]] | None = None,
) -> AnswerPairs:
    """Pair the answers of two runs to the same prompts.

    If several cells share a prompt, it makes one pair, at its first place. If a prompt was sent
    again, its first answer counts.

    Args:
        first, second: the prompts of the two runs.
        asked: the second run's records, in the order in which they were asked.
        cut: cuts a text into tokens, for the first answers whose own were not kept.
    """
    order = {record.key: index for index, record in enumerate(asked)}
    pairs: list[tuple[Place, Record, Record]] = []
    unsent = 0
    for prompt, other_prompt in _prompt_pairs(first, second):
        record, other_record = prompt.record, other_prompt.record
        if record is not None and other_record is not None:
            pairs.append((prompt.places[0], record, other_record))
        elif record is not None or other_record is not None:
            unsent += 1
    pairs.sort(key=lambda pair: (order.get(pair[2].key, len(order)), pair[0]))

    answered_pairs = [
        pair for pair in pairs if pair[1].answer is not None and not _is_weighed(pair[1])
    ]
    changed_answers: list[ChangedAnswer] = []
    for place, record, other_record in answered_pairs:
        if record.answer != other_record.answer:
            difference = _difference(
                record, other_record, cut if len(changed_answers) < CUT else None
            )
            changed_answers.append(ChangedAnswer(place, difference, record.question))
    return AnswerPairs(
        n=len(answered_pairs),
        changed=tuple(changed_answers),
        places=tuple(place for place, _, _ in answered_pairs),
        nats=nats_change(pairs),
        only_second=sum(
            record.answer is None and other_record.answer is not None
            for _, record, other_record in pairs
            if not _is_weighed(other_record)
        ),
        unsent=unsent,
    )


def _difference(
    record: Record, other_record: Record, cut: Callable[[str], Sequence[Token]] | None
) -> FirstDifference | None:
    """Return the place at which two answers differ, or None if there is no second answer."""
    if other_record.answer is None:
        return None
    first, second = record.answer or "", other_record.answer
    first_tokens: Sequence[Token] = tokens_of(record.logprobs)
    second_tokens: Sequence[Token] = tokens_of(other_record.logprobs)
    if cut is not None and not (first_tokens and second_tokens):
        first_tokens, second_tokens = cut(first), cut(second)
    return first_difference(first, second, (first_tokens, second_tokens))


def _is_weighed(record: Record) -> bool:
    """Return True if the model was given the answer, and only its likelihood was measured."""
    return record.scorer is not None and record.scorer.name in WEIGHS


def nats_change(pairs: Iterable[tuple[Place, Record, Record]]) -> NatsChange | None:
    """Return how much likelier the same answers became, or None if no pair shows it.

    pairs: a place with the records of both runs each.
    """
    changes: list[tuple[float, Place]] = []
    for place, record, other_record in pairs:
        change = _nats(record, other_record)
        if change is not None:
            changes.append((change, place))
    if not changes:
        return None
    largest_change, place = max(changes, key=lambda change: abs(change[0]))
    return NatsChange(
        n=len(changes),
        mean=sum(change for change, _ in changes) / len(changes),
        largest=largest_change,
        place=place,
    )


def _nats(record: Record, other_record: Record) -> float | None:
    """Return second - first of the mean log-probability of one answer's tokens.

    If the answers or their tokens differ, or if none were kept, None is returned.
    """
    if record.logprobs and other_record.logprobs:
        count = _tokens_alike(
            record.answer, other_record.answer, record.logprobs, other_record.logprobs
        )
        if count:
            first = fsum(record.logprobs.nats[:count])
            second = fsum(other_record.logprobs.nats[:count])
            return (second - first) / count
    if not (_is_weighed(record) and _is_weighed(other_record)):
        return None
    if _tokens_weighed(record) != _tokens_weighed(other_record):
        return None
    native, other_native = _native_score(record), _native_score(other_record)
    if native is None or other_native is None:
        return None
    return other_native - native


def _tokens_alike(
    answer: str | None, other: str | None, logprobs: Logprobs, other_logprobs: Logprobs
) -> int:
    """Return the number of tokens that hold the answer of both runs, or 0 if answers differ.

    The token that stops it is left out: hf keeps one, llama.cpp does not.
    """
    tokens, other_tokens = logprobs.tokens, other_logprobs.tokens
    if answer is not None and answer == other:
        for count in range(1, shared_prefix(tokens, other_tokens) + 1):
            if "".join(tokens[:count]).strip() == answer.strip():
                return count
    # Tokens that do not spell the answer, as bytes of one letter: all of them, if they are alike.
    return len(tokens) if tokens == other_tokens else 0


def _native_score(record: Record) -> float | None:
    value = record.scorer.native if record.scorer else None
    return value if isinstance(value, int | float) else None


def _tokens_weighed(record: Record) -> object:
    """Return the number of tokens of an answer whose likelihood was measured."""
    why: Mapping[str, object] = record.scorer.why if record.scorer else {}
    return why.get("tokens")


@dataclass(frozen=True, slots=True)
class Pairs:
    """Two cubes with the same axes, of the trials that both runs were to make.

    A prompt that several cells share makes one pair, at the place of the first, of its mean
    scores.

    Attributes:
        first, second: the scores of either run.
        only_first, only_second: prompts of one run alone.
        unlike: places where the two asked something else.
        graded: whether any answer scored between wrong and right.
        counted: False where scores are means of an unknown number of answers.
        answers: which of them differ, where they were compared.
        tried: (repeats, lengths, depths), what both were sent; None for all.
        measured: when the first and the last answer of both came.
        ran_on: answers of first and second that did not stop where the other's did, and so
            count as wrong.
    """

    first: Cube
    second: Cube
    only_first: int
    only_second: int
    unlike: tuple[Place, ...]
    graded: bool
    counted: bool
    answers: AnswerPairs | None = None
    tried: NDArray[np.bool_] | None = None
    measured: tuple[str, str] = ("", "")
    ran_on: tuple[int, int] = (0, 0)

    @property
    def unanswered(self) -> int:
        """Return the number of pairs that were sent to both, and that only the first answered."""
        return int((self._was_sent & self.first.known & ~self.second.known).sum())

    @property
    def differences(self) -> Array:
        """Return second - first, (repeats, lengths, depths). If a score is missing, it is NaN."""
        return self.second.scores - self.first.scores

    @property
    def spread(self) -> Array:
        """Return `differences` with each pair in every cell of its prompt, to describe cells."""
        return self.second.spread - self.first.spread

    @property
    def n(self) -> int:
        """Return the number of pairs with both scores."""
        return int((self.first.known & self.second.known).sum())

    @property
    def dropped(self) -> int:
        """Return the number of pairs that were sent to both and lack a score."""
        return int((self._was_sent & ~(self.first.known & self.second.known)).sum())

    @property
    def _was_sent(self) -> NDArray[np.bool_]:
        return self.first.asked if self.tried is None else self.first.asked & self.tried


def pair_up(
    first: Sequence[AskedPrompt], second: Sequence[AskedPrompt], *, one_haystack: bool = False
) -> Pairs:
    """Pair the prompts of two runs, also those that are still to be sent."""
    met: list[tuple[AskedPrompt, AskedPrompt]] = []
    first_ran_on = second_ran_on = 0
    for prompt, other in _prompt_pairs(first, second):
        ran_on, other_ran_on = overruns(prompt.record, other.record)
        met.append(
            (
                _mark_wrong(prompt) if ran_on else prompt,
                _mark_wrong(other) if other_ran_on else other,
            )
        )
        first_ran_on += ran_on
        second_ran_on += other_ran_on

    tried_pairs = [(prompt, other) for prompt, other in met if prompt.records and other.records]
    unlike: list[Place] = []
    for prompt, other in tried_pairs:
        if not is_same(prompt.records[0], other.records[0]):
            unlike.extend(prompt.places)
    records = [record for pair in tried_pairs for prompt in pair for record in prompt.records]
    moments = sorted(record.finished_at for record in records if record.finished_at)
    is_imported = bool(records) and all(record.prompt is None for record in records)
    shares_haystack = one_haystack or is_imported

    cells = [place for prompt, _ in met for place in prompt.cells.values()]
    first_cube = make_cube([prompt for prompt, _ in met], at=cells)
    second_cube = make_cube([other for _, other in met], at=cells)
    tried_places = np.zeros(first_cube.asked.shape, dtype=bool)
    for prompt, _ in tried_pairs:
        repeat, length, depth = prompt.places[0]
        row = first_cube.repeats.index(repeat)
        column = first_cube.lengths.index(length)
        layer = first_cube.depths.index(depth)
        tried_places[row, column, layer] = True

    common_places = {place for prompt, _ in met for place in prompt.places}
    return Pairs(
        first=replace(first_cube, one_haystack=shares_haystack),
        second=replace(second_cube, one_haystack=shares_haystack),
        only_first=sum(common_places.isdisjoint(prompt.places) for prompt in first),
        only_second=sum(common_places.isdisjoint(prompt.places) for prompt in second),
        unlike=tuple(sorted(unlike)),
        graded=any(record.score not in (None, 0, 1) for record in records),
        counted=not any(record.scorer is not None and record.scorer.mean for record in records),
        tried=tried_places,
        measured=(moments[0], moments[-1]) if moments else ("", ""),
        ran_on=(first_ran_on, second_ran_on),
    )


def overruns(first: Record | None, second: Record | None) -> tuple[bool, bool]:
    """Return for each of two answers to one prompt True if it alone ran on to the token limit.

    Such an answer counts as wrong. Unless both answers are scored, none is.
    """
    if first is None or second is None or not (first.scored and second.scored):
        return False, False
    first_runs_on, second_runs_on = _runs_on(first), _runs_on(second)
    return first_runs_on and not second_runs_on, second_runs_on and not first_runs_on


def scores_of(first: Record | None, second: Record | None) -> tuple[float | None, float | None]:
    """Return the scores of two answers to one prompt. The score of a missing answer is None.

    If only one of the answers ran on to the token limit, its score is 0.
    """
    first_ran_on, second_ran_on = overruns(first, second)
    score = None if first is None else first.score
    other_score = None if second is None else second.score
    return (0.0 if first_ran_on else score), (0.0 if second_ran_on else other_score)


def _runs_on(record: Record) -> bool:
    return ending_of(record.finish) is Ending.CUT


def _mark_wrong(prompt: AskedPrompt) -> AskedPrompt:
    records = []
    for record in prompt.records:
        if record.scored and _runs_on(record):
            record = record.model_copy(update={"score": 0.0})
        records.append(record)
    return replace(prompt, records=tuple(records))


def rows_of(families: Mapping[str, Pairs]) -> Rows:
    """Return the pairs of several families as rows for a verdict.

    A pair is included if it was sent to both runs, or if one of them scored it. Repeats of one
    number share a haystack in all families. Each sample of a log is a haystack of its own.
    """
    prompts: list[JudgedPrompt] = []
    for family, pairs in families.items():
        is_log = pairs.first.lengths == (0,)
        tried = pairs.first.asked if pairs.tried is None else pairs.tried
        for row, column, layer in np.argwhere(pairs.first.asked).tolist():
            slot = row, column, layer
            first, second = _score(pairs.first, slot), _score(pairs.second, slot)
            if first is None and second is None and not tried[slot]:
                continue
            repeat = pairs.first.repeats[row]
            haystack = pairs.first.repeats[0] if pairs.first.one_haystack else repeat
            prompts.append(
                JudgedPrompt(
                    family=family,
                    place=(repeat, pairs.first.lengths[column], pairs.first.depths[layer]),
                    haystack=len(prompts) if is_log else haystack,
                    first=first,
                    second=second,
                    tried=bool(tried[slot]),
                )
            )
    return Rows.of(prompts)


def _score(cube: Cube, slot: tuple[int, int, int]) -> float | None:
    score = float(cube.scores[slot])
    return None if isnan(score) else score


def _prompt_pairs(
    first: Iterable[AskedPrompt], second: Iterable[AskedPrompt]
) -> list[tuple[AskedPrompt, AskedPrompt]]:
    """Return pairs of prompts that two runs have at the same places, with only these places."""
    first_prompts = {place: prompt for prompt in first for place in prompt.places}
    second_prompts = {place: prompt for prompt in second for place in prompt.places}
    groups: dict[tuple[int, int], list[Place]] = {}
    for place in sorted(first_prompts.keys() & second_prompts.keys()):
        pair = id(first_prompts[place]), id(second_prompts[place])
        groups.setdefault(pair, []).append(place)
    return [
        (
            replace(first_prompts[places[0]], places=tuple(places)),
            replace(second_prompts[places[0]], places=tuple(places)),
        )
        for places in groups.values()
    ]


def is_same(first: Record, second: Record) -> bool:
    """Return True if two records are of the same prompt and of the same right answer.

    Right answers are compared if both records have their hash. Prompts are the same if they have
    the same bytes, or the same token ids to both models. If results were imported, their prompts
    are not known, so the question and the right answer must be the same.
    """
    digests = {first.reference_sha256, second.reference_sha256} - {""}
    if first.task != second.task or len(digests) > 1:
        return False
    if first.prompt is None and second.prompt is None:
        return (first.question, first.reference) == (second.question, second.reference)
    if first.prompt is None:
        return False
    return asks_same(first.prompt, second.prompt)
