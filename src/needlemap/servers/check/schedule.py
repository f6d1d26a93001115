"""Choose what a check asks next.

Pure: the same options, seed and replies give the same batch. All probes share one set of haystacks
of three sizes. The first prompt of each is cold; all others start with the same tokens, so that a
server that caches prefixes computes little more. What is asked about one haystack stands together,
in a random order. A round is a few whole haystacks of every size, so that a check that is stopped
early knows a little of each. Pairs that were lost are sent again. Sizes at which a row is undecided
have a second set of haystacks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from needlemap.errors import SettingsError, did_you_mean
from needlemap.servers.check.ask import BESIDE, Answers, Ask, Key, prefill_of
from needlemap.servers.check.haystack import (
    LATER,
    LATER_ASK,
    ROUNDS,
    WAYS,
    AskBatch,
    CheckHaystack,
    Geometry,
    Options,
    late_haystacks,
    later_batches,
    prefill_batches,
)
from needlemap.servers.check.probe import Probe, probes
from needlemap.stats.verdicts import PASS

if TYPE_CHECKING:
    from needlemap.servers.check.finding import Finding

TOTAL = "total"
# A probe that only one model has answers for.
LONG_ANSWERS = "decode"
# Probes of a check that only looks for a total loss.
QUICK = TOTAL, "mates"
# Times what the first round computes that a check may compute in all.
LIMIT = 1.79
# Tokens of a cache's last block, which a server computes again.
_LAST_BLOCK = 16
# Tokens of one fact, about.
_FACT = 15


@dataclass(frozen=True, slots=True)
class Cost:
    """What prompts cost.

    Attributes:
        prompts: Their number.
        sent: Tokens that are sent.
        computed: Tokens that a server computes that caches prefixes.
    """

    prompts: int
    sent: int
    computed: int

    def __add__(self, other: Cost) -> Cost:
        """Return the cost of both together."""
        return Cost(
            prompts=self.prompts + other.prompts,
            sent=self.sent + other.sent,
            computed=self.computed + other.computed,
        )


class Schedule(Geometry):
    """The asks of a check, and which of them come next.

    Attributes:
        every: All probes that there are, by name.
        probes: Those that ask.
        lacking: What the others need, by name.

    Raises SettingsError for an unknown probe.
    """

    def __init__(self, options: Options, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.every: Mapping[str, Probe] = probes()
        for name in options.probes:
            if name not in self.every:
                raise SettingsError(f"Unknown probe '{name}'. {did_you_mean(name, self.every)}")
        if options.quick:
            names: Collection[str] = QUICK
        else:
            apart = {TOTAL} if options.copies else {TOTAL, LONG_ANSWERS}
            names = options.probes or set(self.every) - apart
        wanted = {name: probe for name, probe in self.every.items() if name in names}
        needs = {name: probe.needs(self) for name, probe in wanted.items()}
        self.lacking = {name: need for name, need in needs.items() if need}
        self.probes: Mapping[str, Probe] = {
            name: probe for name, probe in wanted.items() if name not in self.lacking
        }
        self._walk: Iterator[AskBatch] | None = None
        self._walked: Answers | None = None

    def next(self, answers: Answers) -> AskBatch | None:
        """Return what is asked next, or None if nothing is left."""
        if self._walk is None or self._walked is not answers:
            self._walk = self._batches(answers)
            self._walked = answers
        return next(self._walk, None)

    def _batches(self, answers: Answers) -> Iterator[AskBatch]:
        """Yield all that is asked, in its order."""
        for haystack in self.first_round:
            for batch in left_of(haystack.batches, answers):
                yield from self._for_this_model(batch, answers)
        if self.options.quick:
            return
        if self.options.logprobs or self.finds_little(answers):
            yield from left_of(self.later, answers)
            if self.prefills:
                yield from left_of(prefill_batches(self, answers), answers)
        budget = FurtherTokens(self)
        most = self.limit - self.whole.computed
        if self.finds_little(answers):
            yield from self._lost(answers, budget, most, [self.probes[WAYS]])
            return
        yield from self._lost(answers, budget, most // 2)
        further, more = self._undecided(answers)
        yield from self._fitting(further, answers, budget)
        if further:
            yield from self._lost(answers, budget, most)
        yield from self._fitting(more, answers, budget)
        yield from self._lost(answers, budget, most)

    def _for_this_model(self, batch: AskBatch, answers: Answers) -> Iterator[AskBatch]:
        """Yield a batch; if the model finds little, without what needs a right answer."""
        if not self.finds_little(answers):
            yield batch
            return
        ways = {*self.probes[WAYS].ways(self), "crowd", "short", "short-again"}
        asks = tuple(ask for ask in batch.asks if ask.way in ways)
        if asks:
            yield replace(batch, asks=asks)

    @cached_property
    def later(self) -> Sequence[AskBatch]:
        """Return what is asked after the first round, if a probe asks for it."""
        if not any(probe.asks_later for probe in self.probes.values()):
            return []
        return list(later_batches(self))

    @property
    def prefills(self) -> bool:
        """Return True if answers are sent as prompts: a probe asks for it, and the back end can."""
        options = self.options
        return bool(self.later) and options.logprobs and options.prefills

    def batch_behind(self, batch: AskBatch) -> AskBatch | None:
        """Return what is asked after a batch, whatever comes of it; None if that is not known.

        It is known in the first round alone, which has an order of its own.
        """
        return self._next_batch.get(batch.asks[-1].key)

    @cached_property
    def _next_batch(self) -> Mapping[Key, AskBatch]:
        """Return the next batch of the first round, by the key of a batch's last ask."""
        batches = [batch for haystack in self.first_round for batch in haystack.batches]
        return {batch.asks[-1].key: following for batch, following in pairwise(batches)}

    def _fitting(
        self, haystacks: Iterable[CheckHaystack], answers: Answers, budget: FurtherTokens
    ) -> Iterator[AskBatch]:
        """Yield as many of the haystacks as fit into the budget."""
        for haystack in haystacks:
            asks = (ask for batch in haystack.batches for ask in batch.asks)
            if not budget.pays(asks, self.limit - self.whole.computed):
                return
            yield from left_of(haystack.batches, answers)

    @cached_property
    def limit(self) -> int:
        """Return the tokens that a server that caches prefixes may compute in a whole check.

        To 128k they are 10 million.
        """
        return round(LIMIT * self.whole.computed)

    def _lost(
        self,
        answers: Answers,
        budget: FurtherTokens,
        most: int,
        wanted: Sequence[Probe] = (),
    ) -> Iterator[AskBatch]:
        """Yield lost pairs that were not sent again yet, as far as they fit.

        Those of sizes that do not pass come first. most: tokens that a server may compute after
        the first round. wanted: the probes that ask; () for all.
        """
        rows = [
            (row.state == PASS, probe, row.size)
            for probe in wanted or self.probes.values()
            if type(probe).again is not Probe.again
            for row in self.judged(probe, answers, 1).sizes
        ]
        for _, probe, size in sorted(rows, key=lambda row: row[0]):
            for groups in probe.again(self, answers, size):
                asks = [ask for group in groups for ask in group]
                if budget.pays(asks, most):
                    yield from left_of(map(_batch_of, groups), answers)

    def _undecided(self, answers: Answers) -> tuple[list[CheckHaystack], Iterator[CheckHaystack]]:
        """Return haystacks that are asked in another way, and further ones.

        They are of the sizes at which a row is undecided and more of them would decide it.
        """
        first_answers = Answers(reply for reply in answers.by_key.values() if reply.ask.round == 1)
        asking: dict[int, list[Probe]] = {}
        further = list[CheckHaystack]()
        for probe in self.probes.values():
            finding = self.judged(probe, first_answers, 1)
            if not finding.is_open or not probe.decides:
                continue
            for row in finding.sizes:
                if row.is_open and probe.helps(row):
                    asking.setdefault(row.size, []).append(probe)
                further += probe.further(self, first_answers, row)
        return further, self._more(asking)

    def _more(self, asking: Mapping[int, Sequence[Probe]]) -> Iterator[CheckHaystack]:
        """Yield the second set of haystacks. asking: by size, the probes that ask."""
        for part in range(ROUNDS):
            for size, count in zip(self.sizes, self.amount.more_haystacks, strict=True):
                if size in asking and part < count:
                    number = self.count(size) + part
                    yield CheckHaystack(self, size, number, round=2, probes=tuple(asking[size]))

    def judged(self, probe: Probe, answers: Answers, look: int) -> Finding:
        """Return what a probe makes of the answers."""
        return probe.judge(self, answers, look)

    def cells(self) -> Iterator[Ask]:
        """Yield all asks of the first round, and those that may follow it in the same families."""
        for haystack in self.first_round:
            for batch in haystack.batches:
                yield from batch.asks
        if self.options.logprobs:
            for batch in self.later:
                yield from batch.asks
        if self.prefills:
            # An answer's first token and its last, whatever its length.
            for haystack in late_haystacks(self):
                yield prefill_of(haystack.cold, 1, is_last=False)
                yield prefill_of(haystack.cold, self.options.answer_tokens, is_last=True)

    def cost(self, asks: Iterable[Ask]) -> Cost:
        """Return what some asks cost, by the tokens that they share with the first of their
        haystack."""
        total = Cost(prompts=0, sent=0, computed=0)
        computed_haystacks = set[object]()
        for ask in asks:
            if ask.way.startswith(BESIDE):
                continue
            computed = sent = self._sent(ask)
            is_later = ask.way in (LATER, LATER_ASK)
            if ask.haystack in computed_haystacks and not is_later and not ask.position:
                computed = min(sent, self.behind(ask))
            computed_haystacks.add(ask.haystack)
            total += Cost(prompts=1, sent=sent, computed=computed)
        return total

    def _sent(self, ask: Ask) -> int:
        """Return the tokens that are sent for an ask."""
        return ask.length - self.options.answer_tokens + ask.position

    def behind(self, ask: Ask) -> int:
        """Return the tokens that a server computes after what it holds of the haystack."""
        is_repeated = ask.state == "warm" and ask.way in ("warm", "again", "short-again")
        if is_repeated or ask.way == "loaded":
            return _LAST_BLOCK
        if ask.way.startswith("stepped"):
            return ask.length - self.haystack(ask).longest // 2
        facts = _FACT * ask.facts
        question = max(16, self.options.around - self.options.answer_tokens - facts)
        anchor = self.spread(ask.size, ask.repeat).anchor
        place = anchor if ask.place is None else ask.place
        return anchor - place + self.comb // 2 + question + _FACT

    @cached_property
    def whole(self) -> Cost:
        """Return what the first round costs."""
        return self.cost(self.cells())

    @cached_property
    def most(self) -> Cost:
        """Return what a check costs if every size has a second round."""
        deciding = tuple(probe for probe in self.probes.values() if probe.decides)
        haystacks = self._more(dict.fromkeys(self.sizes, deciding))
        return self.whole + self.cost(
            ask for haystack in haystacks for batch in haystack.batches for ask in batch.asks
        )


@dataclass
class FurtherTokens:
    """What a server computes after the first round.

    Attributes:
        schedule: The schedule of the check.
        spent: Tokens so far.
        counted: Asks that were counted, and their haystacks.
    """

    schedule: Schedule
    spent: int = 0
    counted: set[object] = field(default_factory=set)

    def pays(self, asks: Iterable[Ask], most: int) -> bool:
        """Count some asks, and return True, unless that makes more than `most`."""
        counted = set[object]()
        cost = 0
        for ask in asks:
            if ask.key in self.counted or ask.way.startswith(BESIDE):
                continue
            sent = ask.length - self.schedule.options.answer_tokens + ask.position
            is_new = ask.haystack not in counted | self.counted
            is_computed_whole = is_new and bool(ask.salt or ask.round > 1)
            if is_computed_whole or ask.position:
                cost += sent
            else:
                cost += min(sent, self.schedule.behind(ask))
            counted |= {ask.key, ask.haystack}
        if self.spent + cost > most:
            return False
        self.spent += cost
        self.counted |= counted
        return True


def left_of(batches: Iterable[AskBatch], answers: Answers) -> Iterator[AskBatch]:
    """Yield batches without what was sent."""
    for batch in batches:
        asks = tuple(ask for ask in batch.asks if ask.key not in answers.tried)
        if asks:
            yield replace(batch, asks=asks)


def _batch_of(group: Sequence[Ask]) -> AskBatch:
    """Return prompts as a batch, sent at a time if all are to be under load."""
    return AskBatch(tuple(group), together=all(ask.state == "loaded" for ask in group))
