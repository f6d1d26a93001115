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
        "all answers by time, length, depth, haystack, turn, residue and way: 64 consecutive "
        "lengths behind a cached prefix; a fact at sixteen consecutive tokens around the last end "
        "of a block near the prompt's"
    )
    sees = (
        "a server that dies or changes during the check, bursts, one bad replica of many, one "
        "length or place in two to 64 that is computed wrong, a depth or a band of lengths that is "
        "lost"
    )
    cannot = "what is lost evenly; whether the model or the server loses a depth"
    excludes = "a loss at one depth"
    share = 0.26
    must = True

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Facts at all depths, at consecutive lengths; the last one at consecutive places too."""
        return haystack.cold, *haystack.questions, *haystack.edges

    def helps(self, row: AtSize) -> bool:
        """Never: a group that stands together once is not undone by further haystacks."""
        return False

    def judge(self, layout: Geometry, answers: Answers, look: int) -> Finding:
        """Each size with the groups that hold some of its lost prompts; the shortest prompts
        count at the first size."""
        groups = groups_in(answers)
        level = self.level(look, 1)
        least = layout.sizes[0]
        by_size = defaultdict[int, list[Group]](list)
        for group in groups:
            for size in sizes_of(group, least):
                by_size[size].append(group)
        counts = defaultdict[int, list[int]](lambda: [0, 0])
        places = defaultdict[int, dict[object, list[int]]](dict)
        for prompt in prompts_of(answers):
            size = prompt.ask.size
            for row in (
                counts[max(size, least)],
                places[size].setdefault(prompt.place_bin, [0, 0]),
            ):
                row[0] += 1
                row[1] += prompt.wrong
        rows = [
            at_size(size, least, by_size[size], level, counts[size], places[size].values())
            for size in layout.sizes
        ]
        known = {
            issue: None
            for partition in PARTITIONS
            if partition.name in {group.partition for group in groups}
            for issue in partition.known
        }
        return replace(self.whole(rows), known=tuple(known))

    def in_words(self, rows: Sequence[AtSize]) -> str:
        """Each group once; without any, what was looked at."""
        said = dict.fromkeys(
            part for row in rows if row.state in (FAIL, SUSPECT) for part in row.said.split("; ")
        )
        if said:
            return "; ".join(said)
        return super().in_words(rows)


def at_size(
    size: int,
    least: int,
    groups: Sequence[Group],
    level: float,
    count: Sequence[int],
    places: Iterable[Sequence[int]],
) -> AtSize:
    """Return the row of one size. least: the size at which the shortest prompts count. count,
    places: prompts and lost prompts, in all and by fact."""
    n, lost = count
    if not n:
        return AtSize(size, NOT_ENOUGH_DATA, said=NOTHING)
    sure = [group for group in groups if group.sure_p <= level * SHARES[group.partition]]
    shown = sure or groups
    told = [rate(missed, of) for of, missed in places if of >= LEAST]
    upper = max((effect.high for effect in told if effect), default=1.0)
    passes = n >= LEAST and 2 * lost < n and not groups
    return AtSize(
        size,
        row_word(fails=bool(sure), passes=passes, points=bool(groups)),
        n,
        lost,
        0,
        rate(lost, n),
        100 * upper,
        min((group.p for group in groups), default=None),
        "; ".join(group.sentence for group in groups)
        or f"{lost} of {n} prompts lost, spread over all",
        smallest(
            reply
            for group in shown[:1]
            for prompt in group.lost
            for reply in prompt.replies
            if not reply.right and max(reply.ask.size, least) == size
        ),
    )


def sizes_of(group: Group, least: int) -> set[int]:
    """Return the sizes at which a group loses half as often as at all of them, or more. least: the
    one at which the shortest prompts count."""
    counts = defaultdict[int, list[int]](lambda: [0, 0])
    for prompt in group.prompts:
        row = counts[max(prompt.ask.size, least)]
        row[0] += 1
        row[1] += prompt.wrong
    usual = len(group.lost) / len(group.prompts)
    return {size for size, (n, lost) in counts.items() if 2 * lost >= usual * n}
