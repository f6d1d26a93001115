"""What a check asks next. Pure: the same options, seed and replies give the same batch.

All probes share one set of haystacks of three sizes. The first prompt of each is cold; all others
begin with the same tokens, so that a server that caches prefixes computes little more. What one
haystack is asked stands together, in a random order. A round is a few whole haystacks of every
size, so that a check that is stopped early knows a little of each. Pairs that were lost are asked
again. Sizes at which a row is undecided have a second set of haystacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from needlemap.errors import SettingsError, did_you_mean
from needlemap.servers.check.ask import BESIDE, Answers, Ask, Key
from needlemap.servers.check.haystack import ROUNDS, AskBatch, CheckHaystack, Geometry, Options
from needlemap.servers.check.probe import Probe, probes
from needlemap.stats.verdicts import PASS

if TYPE_CHECKING:
    from needlemap.servers.check.finding import Finding

TOTAL = "total"
QUICK = TOTAL, "mates"  # probes of a check that only looks for a total loss
LIMIT = 1.79  # times what the first round computes, which a check may in all


@dataclass(frozen=True, slots=True)
class Cost:
    """What asking takes: prompts; tokens sent; tokens computed by a server that caches prefixes."""

    prompts: int
    sent: int
    computed: int

    def __add__(self, other: Cost) -> Cost:
        """Both together."""
        return Cost(
            self.prompts + other.prompts,
            self.sent + other.sent,
            self.computed + other.computed,
        )


class Schedule(Geometry):
    """The asks of a check, and which of them come next. Raises SettingsError for an unknown
    probe."""

    def __init__(self, options: Options, seed: int = 0) -> None:
        super().__init__(options, seed)
        known = probes()
        for name in options.probes:
            if name not in known:
                raise SettingsError(f"Unknown probe '{name}'. {did_you_mean(name, known)}")
        self.every: Mapping[str, Probe] = known
        named = QUICK if options.quick else options.probes or set(known) - {TOTAL}
        wanted = {name: probe for name, probe in known.items() if name in named}
        self.lacking = {name: why for name, probe in wanted.items() if (why := probe.needs(self))}
        self.probes: Mapping[str, Probe] = {
            name: probe for name, probe in wanted.items() if name not in self.lacking
        }
        self._walk: Iterator[AskBatch] | None = None
        self._walked: Answers | None = None

    def next(self, answers: Answers) -> AskBatch | None:
        """What is asked next; None where nothing is left."""
        if self._walk is None or self._walked is not answers:
            self._walked, self._walk = answers, self._batches(answers)
        return next(self._walk, None)

    def _batches(self, answers: Answers) -> Iterator[AskBatch]:
        """All that is asked, one behind the other."""
        for haystack in self.first:
            yield from left_of(haystack.batches, answers)
        if self.options.quick:
            return
        purse = Purse(self)
        left = self.limit - self.whole.computed
        yield from self._lost(answers, purse, left // 2)
        further, more = self._undecided(answers)
        yield from self._fitting(further, answers, purse)
        if further:
            yield from self._lost(answers, purse, left)
        yield from self._fitting(more, answers, purse)
        yield from self._lost(answers, purse, left)

    def batch_behind(self, batch: AskBatch) -> AskBatch | None:
        """What is asked behind a batch, whatever comes of it; None where that is not known: the
        first round alone has an order of its own."""
        return self._behind.get(batch.asks[-1].key)

    @cached_property
    def _behind(self) -> Mapping[Key, AskBatch]:
        """By the key of a batch's last ask."""
        first = [batch for haystack in self.first for batch in haystack.batches]
        return {before.asks[-1].key: behind for before, behind in pairwise(first)}

    def _fitting(
        self, haystacks: Iterable[CheckHaystack], answers: Answers, purse: Purse
    ) -> Iterator[AskBatch]:
        """As many of the haystacks as fit."""
        for haystack in haystacks:
            asks = (ask for batch in haystack.batches for ask in batch.asks)
            if not purse.pays(asks, self.limit - self.whole.computed):
                return
            yield from left_of(haystack.batches, answers)

    @cached_property
    def limit(self) -> int:
        """Tokens that a whole check may have a server compute that caches prefixes: 10 million
        to 128k."""
        return round(LIMIT * self.whole.computed)

    def _lost(self, answers: Answers, purse: Purse, most: int) -> Iterator[AskBatch]:
        """Lost pairs that were not asked again yet, as far as they fit; first those of sizes
        that do not pass. most: tokens that a server may compute beside the first round."""
        rows = [
            (row.state == PASS, probe, row.size)
            for probe in self.probes.values()
            if type(probe).again is not Probe.again
            for row in self.judged(probe, answers, 1).sizes
        ]
        for _, probe, size in sorted(rows, key=lambda row: row[0]):
            for groups in probe.again(self, answers, size):
                if purse.pays((ask for group in groups for ask in group), most):
                    batches = (
                        AskBatch(tuple(group), together=all(a.state == "loaded" for a in group))
                        for group in groups
                    )
                    yield from left_of(batches, answers)

    def _undecided(self, answers: Answers) -> tuple[list[CheckHaystack], Iterator[CheckHaystack]]:
        """Haystacks that are asked in another way, and further ones, of the sizes at which a
        row is undecided and these would tell."""
        before = Answers(each for each in answers.by_key.values() if each.ask.round == 1)
        wanted: dict[int, list[Probe]] = {}
        extra = list[CheckHaystack]()
        for probe in self.probes.values():
            finding = self.judged(probe, before, 1)
            if not finding.is_open or not probe.decides:
                continue
            for row in finding.sizes:
                if row.is_open and probe.helps(row):
                    wanted.setdefault(row.size, []).append(probe)
                extra += probe.further(self, before, row)
        return extra, self._more(wanted)

    def _more(self, wanted: Mapping[int, Sequence[Probe]]) -> Iterator[CheckHaystack]:
        """The second set of haystacks, by size the probes that ask."""
        for part in range(ROUNDS):
            for size, most in zip(self.sizes, self.amount.more, strict=True):
                if size in wanted and part < most:
                    yield CheckHaystack(self, size, self.count(size) + part, 2, tuple(wanted[size]))

    def judged(self, probe: Probe, answers: Answers, look: int) -> Finding:
        """What a probe makes of the answers."""
        return probe.judge(self, answers, look)

    def cells(self) -> Iterator[Ask]:
        """All asks that there may be, second round included, so that their families are
        known."""
        for haystack in self.first:
            for batch in haystack.batches:
                yield from batch.asks

    def cost(self, asks: Iterable[Ask]) -> Cost:
        """What some asks take, by the tokens that they share with the first of their
        haystack."""
        total, seen = Cost(0, 0, 0), set[object]()
        for ask in asks:
            if ask.way.startswith(BESIDE):
                continue
            sent = ask.length - self.options.answer_tokens
            computed = sent
            if ask.haystack in seen:
                computed = min(sent, self.behind(ask))
            seen.add(ask.haystack)
            total += Cost(1, sent, computed)
        return total

    def behind(self, ask: Ask) -> int:
        """Tokens that a server computes behind what it holds of the haystack."""
        question = max(16, self.options.around - self.options.answer_tokens - 15 * ask.facts)
        if ask.state == "warm" and ask.way in ("warm", "again", "short-again"):
            return 16  # the last block
        if ask.way == "loaded":
            return 16
        if ask.way.startswith("stepped"):
            return ask.length - self.haystack(ask).longest // 2
        anchor = self.spread(ask.size, ask.repeat).anchor
        place = ask.place if ask.place is not None else anchor
        return anchor - place + self.comb // 2 + question + 15

    @cached_property
    def whole(self) -> Cost:
        """What the first round takes."""
        return self.cost(self.cells())

    @cached_property
    def most(self) -> Cost:
        """What it takes where every size has a second round."""
        wanted = tuple(probe for probe in self.probes.values() if probe.decides)
        more = self._more(dict.fromkeys(self.sizes, wanted))
        return self.whole + self.cost(
            ask for each in more for batch in each.batches for ask in batch.asks
        )


@dataclass
class Purse:
    """What a server computes beside the first round. spent: tokens so far. made: asks that were
    paid for, and their haystacks."""

    schedule: Schedule
    spent: int = 0
    made: set[object] = field(default_factory=set)

    def pays(self, asks: Iterable[Ask], most: int) -> bool:
        """Count some asks, unless that makes more than `most`."""
        made, cost = set[object](), 0
        for ask in asks:
            if ask.key in self.made or ask.way.startswith(BESIDE):
                continue
            first = (ask.salt or ask.round > 1) and ask.haystack not in made | self.made
            sent = ask.length - self.schedule.options.answer_tokens
            cost += sent if first else min(sent, self.schedule.behind(ask))
            made |= {ask.key, ask.haystack}
        if self.spent + cost > most:
            return False
        self.spent += cost
        self.made |= made
        return True


def left_of(batches: Iterable[AskBatch], answers: Answers) -> Iterator[AskBatch]:
    """Batches without what was asked."""
    for batch in batches:
        asks = tuple(ask for ask in batch.asks if ask.key not in answers.tried)
        if asks:
            yield replace(batch, asks=asks)
