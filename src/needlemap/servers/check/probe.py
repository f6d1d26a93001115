"""The base classes of probes. A probe sends prompts in some ways and judges the answers by size.

All that is known of a probe stands in its class: an addition is one file with one class, named in
the entry point group `needlemap.probes`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from needlemap.errors import SettingsError
from needlemap.grid import short_size
from needlemap.registry import find_kind, installed
from needlemap.servers.check.ask import Answers, Reply
from needlemap.servers.check.effects import ALPHA, net_loss, rounded_up
from needlemap.servers.check.finding import AtSize, Finding, KnownIssue, Worst
from needlemap.stats.exact import binomial_tail, lost_by_chance
from needlemap.stats.verdicts import FAIL, NOT_ENOUGH_DATA, PASS, SUSPECT, combined_word, row_word

if TYPE_CHECKING:
    from needlemap.servers.check.ask import Ask, Key
    from needlemap.servers.check.haystack import CheckHaystack, Geometry

NOTHING = "nothing was asked"
# No size passes with fewer answers or pairs.
LEAST = 6
# The share of its facts that the gauge may miss. Up to its length it missed fewer.
KNOWN_MISS_RATE = 0.01
# The net loss without noise that a pass of a paired probe rules out.
LOSS = 0.25
# How often a lost pair is sent again, in both ways.
TIMES = 3
# The share of alpha of a probe that names none.
DEFAULT_SHARE = 0.01
_COUNTED = re.compile(r"(?P<count>\d+ of \d+) ?(?P<words>.*)")

Pair = tuple[Reply, Reply]
Groups: TypeAlias = "Sequence[Sequence[Ask]]"


class Probe:
    """One thing that `check` tries on a server.

    name: in the table, and of --probe.
    asked: how it asks, in words.
    sees, cannot: the faults that it sees, and those that it does not.
    excludes: what a pass rules out.
    share: its part of alpha, so that a further probe does not change its levels.
    must: True if exit 0 needs it.
    decides: False if the exit code does not depend on it.
    known: public faults that look like a failure of it.
    order: its place in the table.
    uses_shortest: True if it compares with the shortest prompts.
    crowds: True if every second haystack's first prompt is to be computed next to others.
    tosses: True if it asks the gauge a question with several right answers.
    asks_later: True if first prompts are to be sent once more after all others.
    shows_pass: True if the report has its sentence of a pass too: the counts do not say enough.
    """

    name: ClassVar[str]
    asked: ClassVar[str]
    sees: ClassVar[str]
    cannot: ClassVar[str]
    excludes: ClassVar[str] = ""
    share: ClassVar[float] = DEFAULT_SHARE
    must: ClassVar[bool] = False
    decides: ClassVar[bool] = True
    known: ClassVar[tuple[KnownIssue, ...]] = ()
    order: ClassVar[int] = 100
    uses_shortest: ClassVar[bool] = False
    crowds: ClassVar[bool] = False
    tosses: ClassVar[bool] = False
    asks_later: ClassVar[bool] = False
    shows_pass: ClassVar[bool] = False

    def needs(self, layout: Geometry) -> str:
        """Return what a check lacks for this probe, in words, or '' if it applies."""
        return ""

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Return its prompts about one haystack."""
        return ()

    def ways(self, layout: Geometry) -> set[str]:
        """Return the ways in which it asks."""
        ways = {ask.way for ask in self.asks(layout.first_round[-1])}
        if self.uses_shortest:
            ways |= {"short", "short-again"}
        return ways

    def again(self, layout: Geometry, answers: Answers, size: int) -> Iterable[Groups]:
        """Return the prompts that are sent again before the answers are judged, pair by pair.

        The prompts of each group of a pair are sent together.
        """
        return ()

    def at(self, answers: Answers, size: int, level: float) -> AtSize:
        """Return the row of one size.

        level: the alpha of this size at this look.
        """
        raise NotImplementedError

    def helps(self, row: AtSize) -> bool:
        """Return True if further haystacks may decide an undecided row.

        If half or more is lost, further haystacks would not make it pass.
        """
        return row.n > 0 and 2 * row.lost < row.n

    def further(self, layout: Geometry, answers: Answers, row: AtSize) -> Sequence[CheckHaystack]:
        """Return the haystacks to ask about in another way if a row is undecided."""
        return ()

    def rests_on_right_answers(self, row: AtSize) -> bool:
        """Return True if a row's word depends on nothing but which answers are right.

        Beside an earlier check such a row may pass for the change only. A leak, a move of
        log-probabilities or a wrong count does not show in right answers, so it never may.
        """
        return False

    def absent(self, layout: Geometry, answers: Answers) -> str:
        """Return why the answers cannot be judged, or '' if they can."""
        return ""

    def judge(self, layout: Geometry, answers: Answers, look: int) -> Finding:
        """Return the finding of all sizes."""
        absent = self.absent(layout, answers)
        if absent:
            return Finding.not_applicable(self.name, absent, decides=self.decides)

        level = self.level(look, len(layout.sizes))
        return self.whole([self.row(layout, answers, size, level) for size in layout.sizes])

    def row(self, layout: Geometry, answers: Answers, size: int, level: float) -> AtSize:
        """Return the row of one size.

        A probe whose rows depend on the options of the check overrides this in place of `at`.
        """
        return self.at(answers, size, level)

    def level(self, look: int, sizes: int) -> float:
        """Return the alpha of one size at one look, of which the first has number 1.

        The looks share the alpha of the probe, however many there will be: the sum of
        1 / (look * (look + 1)) is 1.
        """
        return ALPHA * self.share / (sizes * look * (look + 1))

    def whole(self, rows: Sequence[AtSize], accepted: Sequence[int] = ()) -> Finding:
        """Return the finding of all rows together.

        accepted: the sizes that do not count.
        """
        counted_rows = [row for row in rows if row.size not in accepted]
        state = combined_word([row.state for row in counted_rows] or [PASS])

        shown_rows = [row for row in counted_rows if row.state == FAIL]
        if not shown_rows:
            shown_rows = [row for row in counted_rows if row.worst] or [rows[0]]
        effect = shown_rows[0].effect
        if effect is None:
            effect = next((row.effect for row in rows if row.effect), None)
        worst = next((row.worst for row in shown_rows if row.worst), None)
        looks_wrong = state == FAIL or (state == SUSPECT and worst is not None)

        longest_pass = longest_passing_size(counted_rows)
        uppers = [row.upper for row in counted_rows if row.state == PASS and row.upper is not None]
        excludes = ""
        if longest_pass is not None and uppers:
            excludes = self.excluded(max(uppers))
        return Finding(
            probe=self.name,
            state=state,
            n=sum(row.n for row in rows),
            said=self.in_words(rows),
            effect=effect,
            p=shown_rows[0].p,
            worst=worst,
            known=self.known if looks_wrong else (),
            sizes=tuple(rows),
            passes_to=longest_pass,
            excludes=excludes,
            decides=self.decides,
            accepted=tuple(accepted),
        )

    def excluded(self, upper: float) -> str:
        """Return the loss that a pass rules out, in words.

        upper: the highest upper end of the rows' intervals, in points.
        """
        return f"{rounded_up(max(0.0, upper) / 100)} points"

    def in_words(self, rows: Sequence[AtSize]) -> str:
        """Return the sentences of all sizes, with the words that all share only once."""
        matches = [_COUNTED.fullmatch(row.said) for row in rows]
        endings = {match["words"] for match in matches if match}
        if all(matches) and len(endings) == 1:
            counts = " · ".join(match["count"] for match in matches if match)
            return f"{counts} {endings.pop()}".rstrip()
        return " · ".join(f"{short_size(row.size)}: {row.said}" for row in rows)


def longest_passing_size(rows: Iterable[AtSize]) -> int | None:
    """Return the longest size up to which all rows pass, or None if the first does not."""
    longest = None
    for row in rows:
        if row.state != PASS:
            break
        longest = row.size
    return longest


@cache
def probes() -> Mapping[str, Probe]:
    """Return the installed probes by name, in the order of the table.

    Raises SettingsError if their shares of alpha are more than 1.
    """
    installed_probes = [find_kind("probes", name, Probe)() for name in installed("probes")]
    installed_probes.sort(key=lambda probe: (probe.order, probe.name))
    # The shares are decimals, whose sum is rounded.
    if sum(probe.share for probe in installed_probes) > 1 + 1e-9:
        raise SettingsError(
            "The installed probes share more than all of alpha. Leave a plug-in out, or give its "
            "class a smaller share."
        )
    return {probe.name: probe for probe in installed_probes}


class Paired(Probe):
    """Two ways of asking the same: the null is that as much is gained as lost. An honest engine's
    cached, batched and chunked kernels tip ties, the same way each time.

    A size passes if the upper end of the 95 % interval of its net loss is below 25 points. It fails
    if the exact test of haystacks lost against haystacks gained says so; pairs that were lost only
    now and then, in both ways, count in neither. The interval that is shown counts all pairs: only
    lost ones are sent again, so that without some of them it would be too low. A lost pair that was
    not asked again counts as lost.
    """

    excludes = "a net loss of so many points, of the pairs that either way finds"
    lost_in: ClassVar[str] = "lost"

    def rests_on_right_answers(self, row: AtSize) -> bool:
        """Return True: pairs are compared by which of their answers are right."""
        return True

    def pairs(self, answers: Answers, size: int) -> list[Pair]:
        """Return the answers of the first way and of the second to the same prompts."""
        raise NotImplementedError

    def again(self, layout: Geometry, answers: Answers, size: int) -> Iterable[Groups]:
        """Yield each lost pair three times, until the losses are too many for a pass."""
        yield from self.asked_again(layout, answers, self.pairs(answers, size))

    def asked_again(
        self, layout: Geometry, answers: Answers, pairs: Sequence[Pair]
    ) -> Iterable[Groups]:
        """Yield each lost pair of some pairs three times, until too many are lost for a pass."""
        found_pairs = [(first, second) for first, second in pairs if first.right or second.right]
        haystacks = {second.ask.repeat for _, second in found_pairs}
        losses_left = fewest_losses_that_matter(len(haystacks))
        sizes = {second.ask.size for _, second in found_pairs}
        lost_keys = keys_of_lost_pairs(layout, answers, sizes)

        for pair in lost_of(found_pairs):
            groups: list[Sequence[Ask]] = []
            for number in range(1, TIMES + 1):
                groups += self.copies(
                    layout,
                    answers,
                    pair=pair,
                    lost=lost_keys,
                    number=number,
                )
            yield groups

            # The answers are there once the caller asks for the next pair.
            if not self.is_noise(answers, pair):
                losses_left -= 1
            if not losses_left:
                return

    def copies(
        self, layout: Geometry, answers: Answers, pair: Pair, lost: Set[Key], number: int
    ) -> Groups:
        """Return copies of the prompts about a pair's haystacks that any probe lost.

        lost: the keys of those prompts. number: the number of the copies.
        """
        return [
            group
            for haystack in dict.fromkeys(reply.ask.haystack for reply in pair)
            for group in copies_of_lost(layout, answers.about(haystack), lost, number)
        ]

    def pair_again(self, pair: Pair, number: int) -> tuple[Ask, Ask]:
        """Return copies of the two prompts of a pair.

        number: the number of the copies.
        """
        first, second = pair
        return copy_of(first.ask, number), copy_of(second.ask, number)

    def repeated(self, answers: Answers, pair: Pair) -> list[Pair]:
        """Return the answers to the copies of a pair, copy by copy."""
        repeats = []
        for number in range(1, TIMES + 1):
            first_ask, second_ask = self.pair_again(pair, number)
            first = answers.by_key.get(first_ask.key)
            second = answers.by_key.get(second_ask.key)
            if first and second and first.measured and second.measured:
                repeats.append((first, second))
        return repeats

    def is_noise(self, answers: Answers, pair: Pair) -> bool:
        """Return True if the copies of a lost pair were answered without a net loss."""
        repeats = self.repeated(answers, pair)
        net_losses = sum(first.right - second.right for first, second in repeats)
        return bool(repeats) and net_losses <= 0

    def helps(self, row: AtSize) -> bool:
        """Return False if neither way finds anything."""
        return row.n > 0

    def at(self, answers: Answers, size: int, level: float) -> AtSize:
        """Return the row of one size, by Tango's interval and the exact test of haystacks."""
        return self.compared(answers, size, level, self.pairs(answers, size))

    def compared(
        self,
        answers: Answers,
        size: int,
        level: float,
        all_pairs: Sequence[Pair],
        miss_rate: float | None = None,
    ) -> AtSize:
        """Return the row of some pairs of one size.

        level: the alpha of these pairs at this look. miss_rate: the share of haystacks that the
            server of a known model may lose. If it is None, a sound server may lose as many
            haystacks as it gains.
        """
        if not all_pairs:
            return AtSize(size, NOT_ENOUGH_DATA, said=NOTHING)

        pairs = [(first, second) for first, second in all_pairs if first.right or second.right]
        lost = lost_of(pairs)
        gained = gained_of(pairs)
        sure = [pair for pair in lost if self.is_sure(answers, pair)]
        noise = [pair for pair in lost if self.is_noise(answers, pair)]
        not_repeated = sum(not self.repeated(answers, pair) for pair in lost)
        haystacks = len({second.ask.repeat for _, second in pairs})

        def tail(losing: int, gaining: int) -> float:
            if miss_rate is None:
                return lost_by_chance(losing, gaining)
            return binomial_tail(losing, haystacks, miss_rate)

        losing, gaining = haystack_counts(lost, gained, noise)
        p = tail(losing, gaining)
        # Noise hits both ways alike. So many losses in one way only are not noise, whatever the
        # repeats bring.
        losing, gaining = haystack_counts(lost, gained, noise=())
        is_passing_fault = p > level >= tail(losing, gaining)

        effect = net_loss(*by_haystack(pairs))
        without_noise = net_loss(*by_haystack([pair for pair in pairs if pair not in noise]))
        worst = min(sure or lost, key=by_length, default=None)
        fails = p <= level and bool(lost)
        passes = without_noise is not None and without_noise.high < LOSS
        passes = passes and len(pairs) >= LEAST and not is_passing_fault
        points = is_passing_fault or bool(sure) or len(lost) - len(noise) > len(gained)

        sentence = f"{len(lost)} of {len(pairs)} {self.lost_in}"
        if gained:
            sentence += f", {len(gained)} gained"
        if noise:
            kind = "found when asked again" if is_passing_fault else "noise"
            sentence += f", {len(noise)} of them {kind}"
        if not_repeated and not_repeated < len(lost):
            sentence += f", {not_repeated} not asked again"
        if not pairs:
            sentence = f"none of {len(all_pairs)} found in either way"
        elif lost and not fails and not passes and not is_passing_fault:
            fewest = fewest_losses_that_fail(level, lambda losses: tail(losses, 0))
            sentence += f" (fails from {max(fewest, len(lost) + 1)} on)"

        return AtSize(
            size=size,
            state=row_word(fails=fails, passes=passes, points=points),
            n=len(pairs),
            lost=len(lost),
            gained=len(gained),
            effect=effect,
            upper=100 * effect.high if effect else None,
            p=p,
            said=sentence,
            worst=Worst.of(worst[1]) if worst else None,
            suspects=tuple(Worst.of(second) for _, second in sure),
            noise=len(noise),
            left=not_repeated,
        )

    def is_sure(self, answers: Answers, pair: Pair) -> bool:
        """Return True if each copy of a lost pair was lost in the second way only."""
        repeats = self.repeated(answers, pair)
        return bool(repeats) and len(lost_of(repeats)) == len(repeats)


def lost_of(pairs: Iterable[Pair]) -> list[Pair]:
    """Return the pairs that are right in the first way and wrong in the second."""
    return [(first, second) for first, second in pairs if first.right and not second.right]


def gained_of(pairs: Iterable[Pair]) -> list[Pair]:
    """Return the pairs that are wrong in the first way and right in the second."""
    return [(first, second) for first, second in pairs if second.right and not first.right]


def keys_of_lost_pairs(layout: Geometry, answers: Answers, sizes: Iterable[int]) -> Set[Key]:
    """Return the keys of the prompts of lost pairs: of all paired probes, at the given sizes."""
    paired_probes = [probe for probe in layout.probes.values() if isinstance(probe, Paired)]
    pairs = (
        pair for size in sizes for probe in paired_probes for pair in probe.pairs(answers, size)
    )
    return {reply.ask.key for pair in lost_of(pairs) for reply in pair}


def copies_of_lost(
    layout: Geometry, asks: Sequence[Ask], lost: Set[Key], number: int
) -> Iterable[Sequence[Ask]]:
    """Yield copies of the asks about one haystack that were lost, in groups that are sent together.

    The copies have a first line that no cache holds. To make a server hold and compute as much of
    each prompt as before, the first prompt is sent again too; each lost prompt follows the prompt
    that it followed; and prompts that were sent at the same time are sent so again, with new
    prompts as a crowd.

    Args:
        layout: The geometry of the check.
        asks: The asks about the haystack, in their order.
        lost: The keys of the asks that any probe lost.
        number: The number of the copies.
    """
    wave_keys = {ask.key for ask in asks if ask.way == "loaded"}
    after_wave_keys = {ask.key for ask in asks if ask.way in ("after", "again")}
    # If a prompt of the wave or after it was lost, the whole wave is sent again.
    copied_keys = lost | wave_keys if (wave_keys | after_wave_keys) & lost else lost

    # The first ask, the asks to copy, and the ask before each of them.
    precedes_copied = [ask.key in copied_keys for ask in asks[1:]] + [False]
    copied_asks = [
        ask
        for index, ask in enumerate(asks)
        if index == 0 or ask.key in copied_keys or precedes_copied[index]
    ]

    crowd_way = "crowded" if any(ask.way == "crowded" for ask in asks) else "loaded"
    for way, group in groupby(copied_asks, key=lambda ask: ask.state == "loaded" and ask.way):
        copies = [copy_of(ask, number) for ask in group]
        if way == crowd_way:
            copies += crowd_of(layout, asks[0], number)
        yield copies


def crowd_of(layout: Geometry, ask: Ask, number: int) -> list[Ask]:
    """Return new prompts to send at the same time as copies of the prompts about a haystack.

    They are as short as can be, plus their first line: in a vocabulary of letters, it is as long as
    all that the shortest prompts have to spare.

    number: the number of the copies.
    """
    return [roomy_copy_of(crowd_ask, number) for crowd_ask in layout.haystack(ask).crowd]


def roomy_copy_of(ask: Ask, number: int) -> Ask:
    """Return a copy of one of the shortest prompts, which has room for its first line."""
    copy = copy_of(ask, number)
    return replace(copy, length=copy.length + len(copy.salt) + 1)


def copy_of(ask: Ask, number: int) -> Ask:
    """Return a copy of a prompt with a first line of its own, which replaces that of the prompt.

    number: the number of the copy.
    """
    salt = f"{ask.salt or 'again'} {number}"
    return replace(ask, way=f"{ask.way}-again{number}", salt=salt)


@cache
def fewest_losses_that_matter(haystacks: int) -> int:
    """Return how many lost pairs, each of another haystack, keep a size from passing.

    >>> fewest_losses_that_matter(24), fewest_losses_that_matter(48)
    (2, 7)
    """
    lost = 1
    while lost < haystacks:
        effect = net_loss(lost, 0, haystacks)
        if effect is None or effect.high >= LOSS:
            break
        lost += 1
    return lost


def fewest_losses_that_fail(level: float, tail: Callable[[int], float]) -> int:
    """Return how many pairs must be lost, and none gained, for a fail.

    tail: returns the chance of so many losses.
    """
    losses = 1
    while tail(losses) > level:
        losses += 1
    return losses


def haystack_counts(
    lost: Iterable[Pair], gained: Iterable[Pair], noise: Sequence[Pair]
) -> tuple[int, int]:
    """Return how many haystacks lost more pairs than they gained, and how many gained more.

    noise: the lost pairs that do not count.
    """
    net_losses: Counter[int] = Counter()
    for pair in lost:
        if pair not in noise:
            net_losses[pair[1].ask.repeat] += 1
    for pair in gained:
        net_losses[pair[1].ask.repeat] -= 1

    losing = sum(net > 0 for net in net_losses.values())
    gaining = sum(net < 0 for net in net_losses.values())
    return losing, gaining


def by_haystack(pairs: Iterable[Pair]) -> tuple[float, float, float]:
    """Return the sums of the haystacks' shares of lost and gained pairs, and their number.

    A haystack counts once, however many pairs are about it.
    """
    pairs_about: dict[int, list[Pair]] = {}
    for first, second in pairs:
        pairs_about.setdefault(second.ask.repeat, []).append((first, second))

    lost = 0.0
    gained = 0.0
    for haystack_pairs in pairs_about.values():
        n = len(haystack_pairs)
        lost += len(lost_of(haystack_pairs)) / n
        gained += len(gained_of(haystack_pairs)) / n
    return lost, gained, float(len(pairs_about))


def by_length(pair: Pair) -> tuple[int, float, int]:
    """Return the sort key of a pair: the shortest prompt first."""
    ask = pair[1].ask
    return ask.length, ask.depth, ask.repeat


def smallest(replies: Iterable[Reply]) -> Worst | None:
    """Return the place of the shortest of some prompts, or None if there are none."""
    shortest = min(replies, key=lambda reply: by_length((reply, reply)), default=None)
    return Worst.of(shortest) if shortest else None
