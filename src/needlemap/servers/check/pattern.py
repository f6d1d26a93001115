"""The probe of all answers: do wrong ones stand together?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from needlemap.grid import short_size
from needlemap.servers.check.ask import Answers, Ask
from needlemap.servers.check.exact import rate
from needlemap.servers.check.finding import AtSize, Finding, issue
from needlemap.servers.check.haystack import CheckHaystack, Geometry
from needlemap.servers.check.partitions import PARTITIONS, Group, groups_in, prompts_of
from needlemap.servers.check.probe import LEAST, NOTHING, Probe, smallest
from needlemap.stats.verdicts import FAIL, NOT_ENOUGH_DATA, SUSPECT, row_word

LEAST_FOUND = 0.5  # below it nothing is shown about the server
SHARES = {partition.name: partition.share for partition in PARTITIONS}


class Pattern(Probe):
    """Are wrong answers spread over the check, or do they stand together?

    What stands together in time is no model's: prompts of all lengths and depths are sent in
    turns, in a drawn order. What stands together by depth, length or haystack may be a model's
    too, and is said without a fail.
    """

    name = "pattern"
    order = 5
    asked = (
        "nothing of its own: all answers by time, length, depth, haystack, turn, residue and way"
    )
    sees = (
        "a server that dies or changes during the check, bursts, one bad replica of many, a depth "
        "or a band of lengths that is lost"
    )
    cannot = "what is lost evenly; whether the model or the server loses a depth"
    excludes = "a loss at one depth"
    share = 0.08
    must = True
    known = (
        issue(
            "ml-explore/mlx-lm#1454",
            "attention that sees the last tokens only",
            "the model's sliding-window settings, layer by layer",
        ),
        issue(
            "sgl-project/sglang#4823",
            "a sliding window on the wrong layers",
            "another attention back end",
        ),
    )

    def asks(self, haystack: CheckHaystack) -> Iterable[Ask]:
        """Facts at all depths."""
        return haystack.cold, *haystack.questions

    def helps(self, row: AtSize) -> bool:
        """Never: a group that stands together once is not undone by further haystacks."""
        return False

    def judge(self, layout: Geometry, answers: Answers, look: int) -> Finding:
        """Each size with the groups that hold some of its lost prompts; the shortest prompts
        count at the first size."""
        groups = groups_in(answers)
        level = self.level(look, 1)
        by_size = defaultdict[int, list[Group]](list)
        for group in groups:
            sizes = {prompt.ask.size for prompt in group.lost}
            for size in {max(size, layout.sizes[0]) for size in sizes}:
                by_size[size].append(group)
        counts = defaultdict[int, list[int]](lambda: [0, 0])
        places = defaultdict[int, dict[object, list[int]]](dict)
        for prompt in prompts_of(answers):
            size = prompt.ask.size
            for row in (
                counts[max(size, layout.sizes[0])],
                places[size].setdefault(prompt.place_bin, [0, 0]),
            ):
                row[0] += 1
                row[1] += prompt.wrong
        rows = [
            at_size(size, by_size[size], level, counts[size], places[size].values())
            for size in layout.sizes
        ]
        return self.whole(rows)

    def in_words(self, rows: Sequence[AtSize]) -> str:
        """Each group once; without any, what was looked at."""
        said = dict.fromkeys(
            part for row in rows if row.state in (FAIL, SUSPECT) for part in row.said.split("; ")
        )
        if said:
            return "; ".join(said)
        return " · ".join(f"{short_size(row.size)} {row.said}" for row in rows)

    def excluded(self, upper: float) -> str:
        """Of all depths the one with the fewest prompts."""
        return f"{upper:.0f} points at one depth"


def at_size(
    size: int,
    groups: Sequence[Group],
    level: float,
    count: Sequence[int],
    places: Iterable[Sequence[int]],
) -> AtSize:
    """Return the row of one size. count, places: prompts and lost prompts, in all and by fact."""
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
        or f"{lost} of {n} prompts lost, not together",
        smallest(
            reply
            for group in shown[:1]
            for prompt in group.lost
            for reply in prompt.replies
            if not reply.right
        ),
    )
