"""The probe of all answers: do wrong ones stand together?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from needlemap.servers.check.ask import Answers, Ask
from needlemap.servers.check.effects import rate
from needlemap.servers.check.finding import AtSize, Finding
from needlemap.servers.check.haystack import CheckHaystack, Geometry
from needlemap.servers.check.partitions import PARTITIONS, Group, groups_in, prompts_of
from needlemap.servers.check.probe import LEAST, NOTHING, Probe, smallest
from needlemap.stats.verdicts import FAIL, NOT_ENOUGH_DATA, SUSPECT, row_word

SHARES = {partition.name: partition.share for partition in PARTITIONS}


class Pattern(Probe):
    """Are wrong answers spread over the check, or do they stand together?

    What stands together in time is no model's: prompts of all lengths and depths are sent in
    turns, in a drawn order. Nor is what stands at one residue of the tokens. What stands together
    by depth, length or haystack may be a model's too, and is said without a fail.
    """

    name = "pattern"
    order = 5
    asked = (
        "64 consecutive lengths behind a cached prefix; a fact at sixteen consecutive "
        "tokens around a block's end. Groups all answers by time, length, depth, "
        "haystack and residue"
    )
    sees = (
        "a server that dies or changes during the check, bursts, one bad replica of "
        "many, one length or place in two to 64, a lost depth or band of lengths"
    )
    cannot = "what is lost evenly"
    excludes = "a loss at one depth"
    share = 0.26
    must = True

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Return facts at all depths and consecutive lengths, and one at consecutive places."""
        return haystack.cold, *haystack.questions, *haystack.edges

    def rests_on_right_answers(self, row: AtSize) -> bool:
        """Return True: lost prompts are grouped."""
        return True

    def helps(self, row: AtSize) -> bool:
        """Return False: further haystacks do not undo a group that stands together."""
        return False

    def judge(self, layout: Geometry, answers: Answers, look: int) -> Finding:
        """Return the finding of all sizes, each with the groups that hold its lost prompts.

        The shortest prompts count at the first size.
        """
        groups = groups_in(answers)
        level = self.level(look, 1)
        smallest_size = layout.sizes[0]
        groups_at = defaultdict[int, list[Group]](list)
        for group in groups:
            for size in sizes_of(group, smallest_size):
                groups_at[size].append(group)

        # Each count is a list of two: prompts, and lost prompts.
        counts = defaultdict[int, list[int]](lambda: [0, 0])
        places = defaultdict[int, dict[object, list[int]]](dict)
        for prompt in prompts_of(answers):
            size = prompt.ask.size
            place_counts = places[size].setdefault(prompt.place_bin, [0, 0])
            for count in (counts[max(size, smallest_size)], place_counts):
                count[0] += 1
                count[1] += prompt.is_lost

        rows = [
            at_size(
                size=size,
                smallest_size=smallest_size,
                groups=groups_at[size],
                level=level,
                count=counts[size],
                places=places[size].values(),
            )
            for size in layout.sizes
        ]
        names = {group.partition for group in groups}
        issues = [
            issue
            for partition in PARTITIONS
            if partition.name in names
            for issue in partition.known
        ]
        return replace(self.whole(rows), known=tuple(dict.fromkeys(issues)))

    def in_words(self, rows: Sequence[AtSize]) -> str:
        """Return each group once, or the counts of all sizes if there is no group."""
        sentences = [
            sentence
            for row in rows
            if row.state in (FAIL, SUSPECT)
            for sentence in row.said.split("; ")
        ]
        if sentences:
            return "; ".join(dict.fromkeys(sentences))
        return super().in_words(rows)


def at_size(
    size: int,
    smallest_size: int,
    groups: Sequence[Group],
    level: float,
    count: Sequence[int],
    places: Iterable[Sequence[int]],
) -> AtSize:
    """Return the row of one size.

    smallest_size: the size at which the shortest prompts count.
    groups: the groups that hold lost prompts of the size.
    level: the probe's alpha at this look.
    count, places: prompts and lost prompts, in all and by the place of the fact.
    """
    n, lost = count
    if not n:
        return AtSize(size, NOT_ENOUGH_DATA, said=NOTHING)

    sure = [group for group in groups if group.sure_p <= level * SHARES[group.partition]]
    place_rates = [rate(place_lost, place_n) for place_n, place_lost in places if place_n >= LEAST]
    upper = max((effect.high for effect in place_rates if effect), default=1.0)
    passes = n >= LEAST and 2 * lost < n and not groups
    if groups:
        said = "; ".join(group.sentence for group in groups)
    else:
        said = f"{lost} of {n} prompts lost, spread over all"
    # The worst trial is one of the first group, of a sure one if there is any.
    wrong = [
        reply
        for group in (sure or groups)[:1]
        for prompt in group.lost_prompts
        for reply in prompt.replies
        if not reply.right and max(reply.ask.size, smallest_size) == size
    ]
    return AtSize(
        size=size,
        state=row_word(fails=bool(sure), passes=passes, points=bool(groups)),
        n=n,
        lost=lost,
        effect=rate(lost, n),
        upper=100 * upper,
        p=min((group.p for group in groups), default=None),
        said=said,
        worst=smallest(wrong),
    )


def sizes_of(group: Group, smallest_size: int) -> set[int]:
    """Return the sizes at which a group loses at least half as often as at all sizes together.

    smallest_size: the size at which the shortest prompts count.
    """
    counts = defaultdict[int, list[int]](lambda: [0, 0])
    for prompt in group.prompts:
        count = counts[max(prompt.ask.size, smallest_size)]
        count[0] += 1
        count[1] += prompt.is_lost
    loss_rate = len(group.lost_prompts) / len(group.prompts)
    return {size for size, (n, lost) in counts.items() if 2 * lost >= loss_rate * n}
