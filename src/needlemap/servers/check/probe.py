"""What a probe is. It asks a haystack in some ways and judges the answers size by size.

All that is known of a probe stands in its class: an addition is one file with one class, named in
the entry point group `needlemap.probes`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from needlemap.errors import SettingsError
from needlemap.grid import short_size
from needlemap.registry import find_kind, installed
from needlemap.servers.check.ask import Answers, Reply
from needlemap.servers.check.effects import ALPHA, net_loss
from needlemap.servers.check.finding import AtSize, Finding, KnownIssue, Worst
from needlemap.stats.exact import binomial_tail, lost_by_chance
from needlemap.stats.verdicts import FAIL, NOT_ENOUGH_DATA, PASS, SUSPECT, combined_word, row_word

if TYPE_CHECKING:
    from needlemap.servers.check.ask import Ask, Key
    from needlemap.servers.check.haystack import CheckHaystack, Geometry

NOTHING = "nothing was asked"
LEAST = 6  # answers or pairs without which no size passes
HELD = 0.01  # of its facts that the gauge may miss; fewer were, up to its length
LOSS = 0.25  # net loss that a pass of a paired probe excludes
TIMES = 3  # how often a lost pair is asked again, in both ways
_COUNTED = re.compile(r"(?P<count>\d+ of \d+) ?(?P<words>.*)")
OTHERS = 0.01  # share of alpha of a probe that names none

Pair = tuple[Reply, Reply]
Groups: TypeAlias = "Sequence[Sequence[Ask]]"


class Probe:
    """One thing that `check` tries on a server.

    name: in the table, and of --probe. sees, cannot: what it can tell and what not; asked: how it
    asks, in words. excludes: what a pass rules out. share: of alpha, so that another probe changes
    no level of this one. must: whether exit 0 needs it. decides: whether the exit code hears of it.
    known: public faults that look like its failing. order: its place in the table.
    uses_shortest: whether the shortest prompts are its yardstick. crowds: whether it wants every
    second haystack's first prompt computed beside others. tosses: whether it asks the gauge a
    question with several right answers.
    """

    name: ClassVar[str]
    asked: ClassVar[str]
    sees: ClassVar[str]
    cannot: ClassVar[str]
    excludes: ClassVar[str] = ""
    share: ClassVar[float] = OTHERS
    must: ClassVar[bool] = False
    decides: ClassVar[bool] = True
    known: ClassVar[tuple[KnownIssue, ...]] = ()
    order: ClassVar[int] = 100
    uses_shortest: ClassVar[bool] = False
    crowds: ClassVar[bool] = False
    tosses: ClassVar[bool] = False

    def needs(self, layout: Geometry) -> str:
        """What a check lacks for this probe, in words; '' where it applies."""
        return ""

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """What it asks about one haystack."""
        return ()

    def ways(self, layout: Geometry) -> set[str]:
        """The ways in which it asks."""
        found = {ask.way for ask in self.asks(layout.first[-1])}
        return found | ({"short", "short-again"} if self.uses_shortest else set())

    def again(self, layout: Geometry, answers: Answers, size: int) -> Iterable[Groups]:
        """What is asked again before anything is said, pair by pair; each group of a pair's asks
        stands together."""
        return ()

    def at(self, answers: Answers, size: int, level: float) -> AtSize:
        """What the answers at one size come to. level: the alpha of this size at this look."""
        raise NotImplementedError

    def helps(self, row: AtSize) -> bool:
        """Whether further haystacks may decide a row that is undecided: not where most is lost."""
        return row.n > 0 and 2 * row.lost < row.n

    def further(self, layout: Geometry, answers: Answers, row: AtSize) -> Sequence[CheckHaystack]:
        """Haystacks that are asked in another way where a row is undecided."""
        return ()

    def absent(self, layout: Geometry, answers: Answers) -> str:
        """Why the answers cannot tell anything; '' where they can."""
        return ""

    def judge(self, layout: Geometry, answers: Answers, look: int) -> Finding:
        """What all sizes come to."""
        why = self.absent(layout, answers)
        if why:
            return Finding(self.name, "not applicable", 0, why, decides=self.decides)
        level = self.level(look, len(layout.sizes))
        return self.whole([self.row(layout, answers, size, level) for size in layout.sizes])

    def row(self, layout: Geometry, answers: Answers, size: int, level: float) -> AtSize:
        """The same for a probe that heeds what is known of the model."""
        return self.at(answers, size, level)

    def level(self, look: int, sizes: int) -> float:
        """The alpha of one size at one look, the first being 1: all looks that there may ever be
        share what the probe has."""
        return ALPHA * self.share / (sizes * look * (look + 1))

    def whole(self, rows: Sequence[AtSize], accepted: Sequence[int] = ()) -> Finding:
        """What the sizes come to together. accepted: sizes that were taken out by name."""
        counted = [row for row in rows if row.size not in accepted]
        failed = [row for row in counted if row.state == FAIL]
        passed = passes_to(counted)
        state = combined_word([row.state for row in counted] or [PASS])
        shown = failed or [row for row in counted if row.worst] or [rows[0]]
        worst = next((row.worst for row in shown if row.worst), None)
        held = [r.upper for r in counted if r.state == PASS and r.upper is not None]
        return Finding(
            self.name,
            state,
            sum(row.n for row in rows),
            self.in_words(rows),
            shown[0].effect or next((row.effect for row in rows if row.effect), None),
            shown[0].p,
            worst,
            self.known if state == FAIL or (state == SUSPECT and worst) else (),
            tuple(rows),
            passed,
            self.excluded(max(held)) if passed is not None and held else "",
            self.decides,
            tuple(accepted),
        )

    def excluded(self, upper: float) -> str:
        """What a pass rules out, in words. upper: points."""
        return f"{upper:.0f} points"

    def in_words(self, rows: Sequence[AtSize]) -> str:
        """What was found at each size, the words that all share once."""
        parts = [_COUNTED.fullmatch(row.said) for row in rows]
        shared = {part["words"] for part in parts if part}
        if all(parts) and len(shared) == 1:
            counts = " · ".join(part["count"] for part in parts if part)
            return f"{counts} {shared.pop()}".rstrip()
        return " · ".join(f"{short_size(row.size)}: {row.said}" for row in rows)


def passes_to(rows: Iterable[AtSize]) -> int | None:
    """The longest size up to which all pass."""
    found = None
    for row in rows:
        if row.state != PASS:
            break
        found = row.size
    return found


@cache
def probes() -> Mapping[str, Probe]:
    """All that are installed, by name, in the order of the table. Raises SettingsError where their
    shares of alpha are more than one."""
    made = [find_kind("probes", name, Probe)() for name in installed("probes")]
    made.sort(key=lambda probe: (probe.order, probe.name))
    if sum(probe.share for probe in made) > 1 + 1e-9:
        raise SettingsError(
            "The installed probes share more than all of alpha. Leave a plug-in out, or give its "
            "class a smaller share."
        )
    return {probe.name: probe for probe in made}


class Paired(Probe):
    """Two ways of asking the same: the null is that as much is gained as lost. An honest engine's
    cached, batched and chunked kernels tip ties, the same way each time.

    A size passes if the upper end of the 95 % interval of its net loss is below 25 points. It fails
    if the exact test of haystacks lost against haystacks gained says so; pairs that were lost only
    now and then, in both ways, do not count there. A lost pair that was not asked again counts as
    lost.
    """

    excludes = "a net loss of so many points, of the pairs that either way finds"
    lost_in: ClassVar[str] = "lost"

    def pairs(self, answers: Answers, size: int) -> list[Pair]:
        """Answers of the first way and of the second to the same."""
        raise NotImplementedError

    def again(self, layout: Geometry, answers: Answers, size: int) -> Iterable[Groups]:
        """Each lost pair three times, until so many are no noise that the size cannot pass."""
        yield from self.asked_again(layout, answers, self.pairs(answers, size))

    def asked_again(
        self, layout: Geometry, answers: Answers, pairs: Sequence[Pair]
    ) -> Iterable[Groups]:
        """The same for some of the pairs."""
        found = [pair for pair in pairs if pair[0].right or pair[1].right]
        left = least_to_matter(len({other.ask.repeat for _, other in found}))
        anywhere = lost_by_any(layout, answers, {other.ask.size for _, other in found})
        for pair in lost_of(found):
            groups = (
                self.copies(layout, answers, pair, anywhere, at) for at in range(1, TIMES + 1)
            )
            yield [group for each in groups for group in each]
            left -= not self.is_noise(answers, pair)
            if not left:
                return

    def copies(
        self, layout: Geometry, answers: Answers, pair: Pair, lost: Set[Key], number: int
    ) -> Groups:
        """The pair's haystacks once more, as far as any probe lost something there."""
        return [
            group
            for haystack in dict.fromkeys(reply.ask.haystack for reply in pair)
            for group in once_more(layout, answers.about(haystack), lost, number)
        ]

    def pair_again(self, pair: Pair, number: int) -> tuple[Ask, Ask]:
        """The two prompts of a pair once more."""
        one, other = (copy_of(reply.ask, number) for reply in pair)
        return one, other

    def repeated(self, answers: Answers, pair: Pair) -> list[Pair]:
        """The same pair, asked again."""
        found = []
        for number in range(1, TIMES + 1):
            asks = self.pair_again(pair, number)
            one, other = (answers.by_key.get(ask.key) for ask in asks)
            if one and other and one.measured and other.measured:
                found.append((one, other))
        return found

    def is_noise(self, answers: Answers, pair: Pair) -> bool:
        """Whether a lost pair was asked again and the second way was no worse than the first."""
        more = self.repeated(answers, pair)
        lost = sum(one.right - other.right for one, other in more)
        return bool(more) and lost <= 0

    def helps(self, row: AtSize) -> bool:
        """Not where neither way finds anything."""
        return row.n > 0

    def at(self, answers: Answers, size: int, level: float) -> AtSize:
        """Tango's interval of the net loss; the exact test is of haystacks."""
        return self.compared(answers, size, level, self.pairs(answers, size))

    def compared(
        self,
        answers: Answers,
        size: int,
        level: float,
        every: Sequence[Pair],
        usual: float | None = None,
    ) -> AtSize:
        """What some pairs of one size come to. usual: the share that a known model's server
        may lose, and then nothing is gained; None: as much may be lost as is gained."""
        pairs = [(one, other) for one, other in every if one.right or other.right]
        if not every:
            return AtSize(size, NOT_ENOUGH_DATA, said=NOTHING)
        lost = lost_of(pairs)
        gained = [pair for pair in pairs if pair[1].right and not pair[0].right]
        sure = [pair for pair in lost if self.is_sure(answers, pair)]
        noise = [pair for pair in lost if self.is_noise(answers, pair)]
        left = sum(not self.repeated(answers, pair) for pair in lost)
        haystacks = len({other.ask.repeat for _, other in pairs})

        def tail(less: int, more: int) -> float:
            return (
                lost_by_chance(less, more)
                if usual is None
                else binomial_tail(less, haystacks, usual)
            )

        p = tail(*haystacks_apart(lost, gained, noise))
        # Noise takes from both ways alike: so many in one way are none, whatever comes later.
        passing = p > level >= tail(*haystacks_apart(lost, gained, ()))
        effect = net_loss(*by_haystack([pair for pair in pairs if pair not in noise]))
        upper = 100 * effect.high if effect else None
        worst = min(sure or lost, key=by_length, default=None)
        fails = p <= level and bool(lost)
        passes = len(pairs) >= LEAST and upper is not None and upper < 100 * LOSS
        passes = passes and not passing
        points = passing or bool(sure) or len(lost) - len(noise) > len(gained)
        said = f"{len(lost)} of {len(pairs)} {self.lost_in}"
        if gained:
            said += f", {len(gained)} gained"
        if noise:
            said += f", {len(noise)} of them {'found when asked again' if passing else 'noise'}"
        if left and left < len(lost):
            said += f", {left} not asked again"
        if not pairs:
            said = f"none of {len(every)} found in either way"
        elif lost and not fails and not passes and not passing:
            least = least_lost(level, lambda lost: tail(lost, 0))
            said += f" (fails from {max(least, len(lost) + 1)} on)"
        return AtSize(
            size,
            row_word(fails=fails, passes=passes, points=points),
            len(pairs),
            len(lost),
            len(gained),
            effect,
            upper,
            p,
            said,
            Worst.of(worst[1]) if worst else None,
            tuple(Worst.of(pair[1]) for pair in sure),
            len(noise),
            left,
        )

    def is_sure(self, answers: Answers, pair: Pair) -> bool:
        """Whether a lost pair was lost again each time, in the second way only."""
        more = self.repeated(answers, pair)
        return bool(more) and all(one.right and not other.right for one, other in more)


def lost_of(pairs: Iterable[Pair]) -> list[Pair]:
    """Pairs of which the second is lost."""
    return [pair for pair in pairs if pair[0].right and not pair[1].right]


def lost_by_any(layout: Geometry, answers: Answers, sizes: Iterable[int]) -> Set[Key]:
    """Both prompts of every pair that any probe lost at some sizes."""
    paired = [probe for probe in layout.probes.values() if isinstance(probe, Paired)]
    found = (pair for size in sizes for probe in paired for pair in probe.pairs(answers, size))
    return {reply.ask.key for pair in lost_of(found) for reply in pair}


def once_more(
    layout: Geometry, asks: Sequence[Ask], lost: Set[Key], number: int
) -> Iterable[Sequence[Ask]]:
    """Those asks about one haystack that were lost, once more behind a first line that no cache
    holds. The first prompt is computed again; each other stands behind the prompt that it stood
    behind; as many others, and fresh ones, are asked at the same time. What a server holds of a
    prompt, and how much it computes of it, is so the same."""
    loaded = {ask.key for ask in asks if ask.way == "loaded"}
    behind = {ask.key for ask in asks if ask.way in ("after", "again")}  # of a wave
    wanted = lost | loaded if (loaded | behind) & lost else lost
    before = [ask.key in wanted for ask in asks[1:]] + [False]
    kept = [ask for at, ask in enumerate(asks) if not at or ask.key in wanted or before[at]]
    beside = "crowded" if any(ask.way == "crowded" for ask in asks) else "loaded"
    for way, group in groupby(kept, key=lambda ask: ask.state == "loaded" and ask.way):
        made = [copy_of(ask, number) for ask in group]
        yield [*made, *crowd_of(layout, asks[0], number)] if way == beside else made


def crowd_of(layout: Geometry, ask: Ask, number: int) -> list[Ask]:
    """Fresh prompts beside what is asked again about a haystack."""
    return [copy_of(each, number) for each in layout.haystack(ask).crowd]


def copy_of(ask: Ask, number: int) -> Ask:
    """A prompt behind a first line of its own; what begins with one begins with another one."""
    salt = f"{ask.salt or 'again'} {number}"
    return replace(ask, way=f"{ask.way}-again{number}", salt=salt)


@cache
def least_to_matter(haystacks: int) -> int:
    """How many lost pairs, of a haystack each, keep a size from passing.

    >>> least_to_matter(24), least_to_matter(48)
    (2, 7)
    """
    lost = 1
    while lost < haystacks and (e := net_loss(lost, 0, haystacks)) and e.high < LOSS:
        lost += 1
    return lost


def least_lost(level: float, tail: Callable[[int], float]) -> int:
    """How many pairs must be lost, and none gained, for a fail. tail: the chance of so
    many."""
    least = 1
    while tail(least) > level:
        least += 1
    return least


def haystacks_apart(
    lost: Iterable[Pair], gained: Iterable[Pair], noise: Sequence[Pair]
) -> tuple[int, int]:
    """On how many haystacks more is lost than gained, and on how many less."""
    nets: dict[object, int] = {}
    for pair in lost:
        if pair not in noise:
            at = pair[1].ask.repeat
            nets[at] = nets.get(at, 0) + 1
    for pair in gained:
        at = pair[1].ask.repeat
        nets[at] = nets.get(at, 0) - 1
    return sum(net > 0 for net in nets.values()), sum(net < 0 for net in nets.values())


def by_haystack(pairs: Iterable[Pair]) -> tuple[float, float, float]:
    """Haystacks' shares of lost and of gained pairs, summed, and the number of haystacks: what
    stands on one haystack counts once."""
    at: dict[object, list[int]] = {}
    for one, other in pairs:
        row = at.setdefault(other.ask.repeat, [0, 0, 0])
        row[0] += one.right and not other.right
        row[1] += other.right and not one.right
        row[2] += 1
    lost = sum(row[0] / row[2] for row in at.values())
    gained = sum(row[1] / row[2] for row in at.values())
    return lost, gained, float(len(at))


def by_length(pair: Pair) -> tuple[int, float, int]:
    """The shortest first."""
    ask = pair[1].ask
    return ask.length, ask.depth, ask.repeat


def smallest(replies: Iterable[Reply]) -> Worst | None:
    """The place of the shortest of some prompts."""
    least = min(replies, key=lambda each: by_length((each, each)), default=None)
    return Worst.of(least) if least else None
