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
from needlemap.servers.check.ask import BESIDE, CONVERSATION, Answers, Ask, Key, prefill_of
from needlemap.servers.check.haystack import (
    LATER,
    LATER_ASK,
    REWIND,
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
    pass

TOTAL = "total"
# A probe that only one model has answers for.
LONG_ANSWERS = "decode"
# Probes of a check that only looks for a total loss.
QUICK = TOTAL, "mates"
# A whole check may compute this many times the tokens of its first round. With the default settings
# these are less than 10 million tokens for a check to 128k, or 11 with log-probabilities, as
# docs/check.md says.
WHOLE_CHECK_FACTOR = 1.79
# Tokens of a cache's last block, which a server computes again.
_LAST_BLOCK = 16
# Tokens of one fact, about.
_FACT = 15


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of some prompts.

    Attributes:
        prompts: The number of prompts.
        sent: The tokens that are sent.
        computed: The tokens that a server computes if it caches prefixes.
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
    """The asks of a check, and their order.

    Attributes:
        all_probes: All installed probes, by name.
        probes: The probes that ask.
        lacking: By name, what the chosen probes that do not ask lack.

    Raises SettingsError for an unknown probe.
    """

    def __init__(self, options: Options, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.all_probes: Mapping[str, Probe] = probes()
        for name in options.probes:
            if name not in self.all_probes:
                raise SettingsError(
                    f"Unknown probe '{name}'. {did_you_mean(name, self.all_probes)}"
                )

        if options.quick:
            names: Collection[str] = QUICK
        else:
            excluded_names = {TOTAL} if options.copies else {TOTAL, LONG_ANSWERS}
            names = options.probes or set(self.all_probes) - excluded_names
        chosen = {name: probe for name, probe in self.all_probes.items() if name in names}

        needs = {name: probe.needs(self) for name, probe in chosen.items()}
        self.lacking = {name: need for name, need in needs.items() if need}
        self.probes: Mapping[str, Probe] = {
            name: probe for name, probe in chosen.items() if name not in self.lacking
        }
        self._walk: Iterator[AskBatch] | None = None
        # The answers by which the walk chooses its batches.
        self._walk_answers: Answers | None = None

    def next_batch(self, answers: Answers) -> AskBatch | None:
        """Return the batch that is sent next, or None if nothing is left to send."""
        if self._walk is None or self._walk_answers is not answers:
            self._walk = self._batches(answers)
            self._walk_answers = answers
        return next(self._walk, None)

    def _batches(self, answers: Answers) -> Iterator[AskBatch]:
        """Yield all batches of a check, in the order in which they are sent."""
        for haystack in self.first_round:
            for batch in unsent_batches(haystack.batches, answers):
                yield from self._for_this_model(batch, answers)
        if self.options.quick:
            return

        if self.options.logprobs or self.finds_little(answers):
            yield from unsent_batches(self.late_batches, answers)
            if self.prefills:
                yield from unsent_batches(prefill_batches(self, answers), answers)

        budget = FurtherTokens(self)
        most = self.token_limit - self.first_round_cost.computed
        if self.finds_little(answers):
            yield from self._repeated_losses(answers, budget, most, [self.probes[WAYS]])
            return

        # Half of the budget is left for further haystacks.
        yield from self._repeated_losses(answers, budget, most // 2)
        other_way, more = self._further_haystacks(answers)
        yield from self._affordable(other_way, answers, budget)
        if other_way:
            yield from self._repeated_losses(answers, budget, most)
        yield from self._affordable(more, answers, budget)
        yield from self._repeated_losses(answers, budget, most)

    def _for_this_model(self, batch: AskBatch, answers: Answers) -> Iterator[AskBatch]:
        """Yield a batch; if the model finds little, without the asks that need a right answer."""
        if not self.finds_little(answers):
            yield batch
            return
        ways = {*self.probes[WAYS].ways(self), "crowd", "short", "short-again"}
        asks = tuple(ask for ask in batch.asks if ask.way in ways)
        if asks:
            yield replace(batch, asks=asks)

    @cached_property
    def late_batches(self) -> Sequence[AskBatch]:
        """Return the batches that follow the first round, if a probe asks for them."""
        if not any(probe.asks_later for probe in self.probes.values()):
            return []
        return list(later_batches(self))

    @property
    def prefills(self) -> bool:
        """Return True if answers are sent as prompts: a probe asks for it, and the back end can."""
        options = self.options
        return bool(self.late_batches) and options.logprobs and options.prefills

    def batch_after(self, batch: AskBatch) -> AskBatch | None:
        """Return the batch that follows another one whatever the answers are.

        If the answers decide, the result is None. Only the first round has a fixed order.
        """
        return self._batch_after_key.get(batch.asks[-1].key)

    @cached_property
    def _batch_after_key(self) -> Mapping[Key, AskBatch]:
        """Return the batches of the first round, by the key of the last ask before each."""
        batches = [batch for haystack in self.first_round for batch in haystack.batches]
        return {batch.asks[-1].key: following for batch, following in pairwise(batches)}

    def _affordable(
        self, haystacks: Iterable[CheckHaystack], answers: Answers, budget: FurtherTokens
    ) -> Iterator[AskBatch]:
        """Yield the batches of as many haystacks as the budget pays for."""
        for haystack in haystacks:
            asks = (ask for batch in haystack.batches for ask in batch.asks)
            if not budget.pays(asks, self.token_limit - self.first_round_cost.computed):
                return
            yield from unsent_batches(haystack.batches, answers)

    @cached_property
    def token_limit(self) -> int:
        """Return how many tokens a whole check may let a server that caches prefixes compute.

        The first round counts too. Further prompts that would exceed the limit are not sent.
        """
        return round(WHOLE_CHECK_FACTOR * self.first_round_cost.computed)

    def _repeated_losses(
        self,
        answers: Answers,
        budget: FurtherTokens,
        most: int,
        probes: Sequence[Probe] = (),
    ) -> Iterator[AskBatch]:
        """Yield the repeats of lost pairs that were not sent yet, as far as the budget pays.

        The pairs of sizes that do not pass come first.

        most: the tokens that a server may compute after the first round. probes: the probes whose
            pairs are repeated; () for all.
        """
        rows = [
            (row.state == PASS, probe, row.size)
            for probe in probes or self.probes.values()
            if type(probe).again is not Probe.again
            for row in probe.judge(self, answers, look=1).sizes
        ]
        for _, probe, size in sorted(rows, key=lambda row: row[0]):
            for groups in probe.again(self, answers, size):
                asks = [ask for group in groups for ask in group]
                if budget.pays(asks, most):
                    yield from unsent_batches(map(_batch_of, groups), answers)

    def _further_haystacks(
        self, answers: Answers
    ) -> tuple[list[CheckHaystack], Iterator[CheckHaystack]]:
        """Return the haystacks to ask about in another way, and new ones.

        New haystacks are of the sizes at which a row is undecided and more of them may decide it.
        """
        first_answers = Answers(reply for reply in answers.by_key.values() if reply.ask.round == 1)
        asking: dict[int, list[Probe]] = {}
        further = list[CheckHaystack]()
        for probe in self.probes.values():
            finding = probe.judge(self, first_answers, look=1)
            if not finding.is_open or not probe.decides:
                continue
            for row in finding.sizes:
                if row.is_open and probe.helps(row):
                    asking.setdefault(row.size, []).append(probe)
                further += probe.further(self, first_answers, row)
        return further, self._more(asking)

    def _more(self, asking: Mapping[int, Sequence[Probe]]) -> Iterator[CheckHaystack]:
        """Yield the second set of haystacks.

        asking: by size, the probes that ask.
        """
        for part in range(ROUNDS):
            for size, count in zip(self.sizes, self.amount.more_haystacks, strict=True):
                if size in asking and part < count:
                    number = self.count(size) + part
                    yield CheckHaystack(self, size, number, round=2, probes=tuple(asking[size]))

    def cells(self) -> Iterator[Ask]:
        """Yield all asks of the first round, and those that may follow it in the same families."""
        for haystack in self.first_round:
            for batch in haystack.batches:
                yield from batch.asks
        if self.options.logprobs:
            for batch in self.late_batches:
                yield from batch.asks
        if self.prefills:
            # An answer's first token and its last, whatever its length.
            for haystack in late_haystacks(self):
                yield prefill_of(haystack.cold, 1, is_last=False)
                yield prefill_of(haystack.cold, self.options.answer_tokens, is_last=True)

    def cost(self, asks: Iterable[Ask]) -> Cost:
        """Return the cost of some asks.

        Of the asks about one haystack, the first is computed whole, and the others only after the
        tokens that they share with it.
        """
        total = Cost(prompts=0, sent=0, computed=0)
        computed_haystacks = set[object]()
        for ask in asks:
            if ask.way.startswith(BESIDE):
                continue
            computed = sent = self._sent(ask)
            is_later = ask.way in (LATER, LATER_ASK)
            if ask.haystack in computed_haystacks and not is_later and not ask.position:
                computed = min(sent, self.uncached_tokens(ask))
            computed_haystacks.add(ask.haystack)
            total += Cost(prompts=1, sent=sent, computed=computed)
        return total

    def _sent(self, ask: Ask) -> int:
        """Return the tokens that are sent for an ask."""
        return ask.length - self.options.answer_tokens + ask.position

    def uncached_tokens(self, ask: Ask) -> int:
        """Return how many tokens of a prompt a server computes if it holds the haystack."""
        is_repeated = ask.state == "warm" and ask.way in ("warm", "again", REWIND, "short-again")
        if is_repeated or ask.way == "loaded":
            return _LAST_BLOCK
        if ask.way.startswith(CONVERSATION):
            return ask.length - self.haystack(ask).cold.length
        if ask.way.startswith("stepped"):
            return ask.length - self.haystack(ask).longest // 2
        facts = _FACT * ask.facts
        question = max(16, self.options.around - self.options.answer_tokens - facts)
        anchor = self.spread(ask.size, ask.repeat).anchor
        place = anchor if ask.place is None else ask.place
        return anchor - place + self.comb // 2 + question + _FACT

    @cached_property
    def first_round_cost(self) -> Cost:
        """Return the cost of the first round."""
        return self.cost(self.cells())

    @cached_property
    def highest_cost(self) -> Cost:
        """Return the cost of a check of which every size has a second round."""
        deciding = tuple(probe for probe in self.probes.values() if probe.decides)
        haystacks = self._more(dict.fromkeys(self.sizes, deciding))
        return self.first_round_cost + self.cost(
            ask for haystack in haystacks for batch in haystack.batches for ask in batch.asks
        )


@dataclass
class FurtherTokens:
    """The budget of tokens that a server computes after the first round.

    Attributes:
        schedule: The schedule of the check.
        spent: The tokens so far.
        paid: The keys of the asks that were paid for, and their haystacks.
    """

    schedule: Schedule
    spent: int = 0
    paid: set[object] = field(default_factory=set)

    def pays(self, asks: Iterable[Ask], most: int) -> bool:
        """Pay for some asks, and return True if the sum does not exceed `most` tokens.

        If it would exceed them, nothing is paid.
        """
        new_keys = set[object]()
        cost = 0
        for ask in asks:
            if ask.key in self.paid or ask.way.startswith(BESIDE):
                continue
            sent = ask.length - self.schedule.options.answer_tokens + ask.position
            is_new = ask.haystack not in new_keys | self.paid
            is_computed_whole = is_new and bool(ask.salt or ask.round > 1)
            if is_computed_whole or ask.position:
                cost += sent
            else:
                cost += min(sent, self.schedule.uncached_tokens(ask))
            new_keys |= {ask.key, ask.haystack}

        if self.spent + cost > most:
            return False
        self.spent += cost
        self.paid |= new_keys
        return True


def unsent_batches(batches: Iterable[AskBatch], answers: Answers) -> Iterator[AskBatch]:
    """Yield batches without the asks that were sent."""
    for batch in batches:
        asks = tuple(ask for ask in batch.asks if ask.key not in answers.tried)
        if asks:
            yield replace(batch, asks=asks)


def _batch_of(group: Sequence[Ask]) -> AskBatch:
    """Return prompts as a batch, sent at the same time if all of them are to be under load."""
    return AskBatch(tuple(group), together=all(ask.state == "loaded" for ask in group))
