"""What a gate that may be looked at any time says of two runs, as text and as JSON.

`needlemap compare --sequential` prints it, and `needlemap run --until` at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import Any

from needlemap.maps.cube import by_place
from needlemap.maps.difference import CEILING
from needlemap.maps.sequential import (
    FARTHEST,
    NO_WORSE_ALPHA,
    WORSE_ALPHA,
    Gate,
    Haystacks,
    gate_pairs,
    of_haystacks,
    whole_haystacks,
)
from needlemap.records.loaded import Loaded, one_haystack
from needlemap.reports.labels import score_label
from needlemap.text.printable import counted

_MOST_ODDS = 1e6


@dataclass(frozen=True, slots=True)
class Sequential:
    """gate: of the pairs. second: B's mean, a missing answer being wrong. haystacks: what the whole ones say
    of new ones."""

    gate: Gate
    second: float
    haystacks: Haystacks

    @property
    def word(self) -> str:
        """'no worse than 2 points', 'worse' or 'undecided'."""
        return f"no worse than {self._margin}" if self.gate.word == "no worse" else self.gate.word

    @property
    def text(self) -> str:
        """All lines; the verdict last."""
        gate, found = self.gate, self.haystacks
        missing = f" ({gate.missing} of them not measured, counted as wrong)" if gate.missing else ""
        passed, failed = f"no worse than {self._margin}", "worse"
        wide = len(passed)
        lines = [
            f"{counted(gate.n, 'pair')} in the order of the plan, judged after each",
            f"A {score_label(gate.total / max(1, gate.n))}, B {score_label(self.second)}; "
            f"B lost {gate.lost}, gained {gate.gained}{missing}",
            f"{failed:<{wide}}  {_odds(gate.worse)} to 1; said from {1 / WORSE_ALPHA:.0f} to 1 on",
            f"{passed}  {_odds(gate.no_worse)} to 1; said from {1 / NO_WORSE_ALPHA:.0f} to 1 on",
            f"of new haystacks: {found.word} after {counted(found.n, 'whole haystack')}{_cost(found)}",
        ]
        if gate.floored:
            lines.append(
                "warning: the reference is at the floor: nothing could be lost, so nothing is proved"
            )
        elif gate.total >= CEILING * gate.n:
            lines.append("warning: the reference is at the ceiling: trials so easy show only gross losses")
        return "\n".join([*lines, f"verdict: {self.verdict}"])

    @property
    def verdict(self) -> str:
        """The word, and when it was decided or what it would take."""
        gate = self.gate
        if gate.after is not None:
            after = counted(gate.after, "pair")
            return f"{self.word} (decided after {after}; holds however often it was looked at)"
        more = gate.more()
        often = (
            f"about {more:,} more pairs decide with even odds"
            if more
            else f"{FARTHEST:,} more pairs may not decide"
        )
        return f"undecided (margin {self._margin}; {often})"

    @property
    def code(self) -> int:
        """The exit code of who asked for a verdict: 0 no worse, 1 worse, 4 undecided."""
        return {"no worse": 0, "worse": 1, "undecided": 4}[self.gate.word]

    def plain(self) -> dict[str, Any]:
        """The same for programs; bets as what they turned 1 into."""
        gate, found = self.gate, self.haystacks
        return {
            "verdict": self.word,
            "margin": round(100 * gate.margin, 6),
            "pairs": gate.n,
            "decided_after": gate.after,
            "more_pairs": gate.more() if gate.after is None else None,
            "lost": gate.lost,
            "gained": gate.gained,
            "missing": gate.missing,
            "bet_worse": _won(gate.worse),
            "bet_no_worse": _won(gate.no_worse),
            "new_haystacks": {
                "verdict": found.word,
                "haystacks": found.n,
                "bet_no_worse": _won(found.bet),
                "more_haystacks": found.more,
            },
        }

    @property
    def _margin(self) -> str:
        return f"{100 * self.gate.margin:.6g} points"


def judge_runs(runs: Sequence[tuple[Loaded, Loaded]], margin: float) -> Sequential:
    """What the pairs of two runs' families say, in the order of a gate. margin: a share."""
    families = [(by_place(first.prompts), by_place(second.prompts)) for first, second in runs]
    pairs, gate = gate_pairs(families), Gate(margin)
    for pair in pairs:
        gate.add(pair.first, pair.second)
    one = any(one_haystack(first.about) or "imported" in first.about for first, _ in runs)
    means = [] if one else whole_haystacks(families, pairs)
    second = sum(pair.second or 0.0 for pair in pairs) / max(1, len(pairs))
    return Sequential(gate, second, of_haystacks(means, margin))


def _cost(found: Haystacks) -> str:
    """What it takes to tell of new haystacks."""
    if found.word != "undecided":
        return ""
    more = f"about {found.more:,} more if these go on so" if found.more else f"{FARTHEST:,} more may not tell"
    return f" ({more}; `no worse` takes {found.least:,} at least, as each is one bet)"


def _won(log: float) -> float:
    return round(exp(min(log, 600)), 6)


def _odds(log: float) -> str:
    won = exp(min(log, 600))
    return f"over {_MOST_ODDS:,.0f}" if won > _MOST_ODDS else f"{won:,.0f}" if won >= 10 else f"{won:.2g}"
