"""What an `ab` found, in words and for programs: verdict, families, map, log-probabilities, worst
prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from needlemap.grid import percent
from needlemap.maps.arms import (
    BLOCKS,
    ArmsVerdict,
    FamilyChange,
    Trio,
    Tripwire,
    changes_by_cell,
    judge_arms,
    trios,
    tripwire,
    worst_of,
)
from needlemap.maps.difference import holm
from needlemap.maps.judging import Judgement, Scope
from needlemap.maps.pairs import FirstDifference, Token
from needlemap.models import Way
from needlemap.records.ab import AGAIN, WEIGHED, read_ab
from needlemap.reports.judgement import (
    judgement_json,
    verdict_line,
    verdict_sentence,
    warnings_of,
)
from needlemap.reports.labels import length_labels, p_label, points, score_label
from needlemap.secrets import hidden
from needlemap.text import counted

if TYPE_CHECKING:
    from needlemap.records.loaded import Loaded

WAYS: Mapping[Way, str] = {
    "generated": (
        "of each answer as it was written, to the first other token, with the runner-up there"
    ),
    "walk": "of the whole answer, given behind its prompt",
    "echo": "of the whole answer, by the server's log-probabilities of a prompt that holds it",
    "steps": "of the whole answer, which the server is made to say token by token",
}
ALL = "all families"
Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArmsReport:
    """All that is known of two arms. names: of the reference and the other. most: pairs that it may
    ask, 0 where nobody knows; stops: whether a verdict ends it before."""

    names: tuple[str, str]
    found: Sequence[Trio]
    arms: ArmsVerdict
    tripwire: Tripwire | None
    most: int
    stops: bool = False

    @classmethod
    def of(
        cls,
        names: tuple[str, str],
        found: Sequence[Trio],
        margin: float,
        most: int = 0,
        *,
        stops: bool = False,
        wanted: Scope = "these",
    ) -> ArmsReport:
        """From what was asked. margin: in points. wanted: the scope that the verdict is to hold
        for."""
        arms = judge_arms(found, margin / 100, wanted=wanted, stops=stops)
        return cls(names, found, arms, tripwire(found), most, stops)

    @property
    def judged(self) -> Judgement:
        """The verdict."""
        return self.arms.judged

    @property
    def verdict(self) -> str:
        """'fp8 against bf16: no worse than 2 points, on these prompts: ...', in one line."""
        first, second = self.names
        return f"{second} against {first}: {verdict_sentence(self.judged, self.names)}"

    @property
    def saved(self) -> int:
        """Pairs that a verdict made needless, where it ends the asking."""
        ended = self.stops and self.judged.word != "undecided"
        return max(0, self.most - self.arms.prompts) if ended else 0

    def code(self) -> int:
        """The exit code."""
        return self.judged.code

    def last_line(self, code: int) -> str:
        """The verdict and the exit code that the command ends with."""
        return verdict_line(self.judged, code, self.names)

    def lines(self) -> list[str]:
        """The verdict, and what it rests on."""
        return [f"verdict: {self.verdict}", *self.facts()]

    def facts(self) -> list[str]:
        """What the verdict rests on."""
        arms, judged = self.arms, self.judged
        first, second = self.names
        pairs = [each for each in self.found if each.is_pair]
        if not pairs:
            return ["nothing was answered"]
        totals = FamilyChange.of(pairs)
        failed = [
            f"{name} failed to answer {count} (counted as wrong in this line and the tables)"
            for name, count in zip((second, first), arms.failed, strict=True)
            if count
        ]
        seen = counted(judged.new.n if judged.new else 0, "haystack")
        return [
            "; ".join(
                [
                    f"{counted(len(pairs), 'pair')} of {seen}: {first} "
                    f"{score_label(totals.first)} %, {second} {score_label(totals.second)} %, "
                    f"{totals.lost} lost, {totals.gained} gained",
                    *failed,
                ]
            ),
            *self._saved_line(),
            *self._drift_line(),
            *warnings_of(judged),
            *self._nats_lines(),
        ]

    def _drift_line(self) -> list[str]:
        """A change while it was asked."""
        drift = self.arms.drift
        if drift is None:
            return []
        first, last = (f"{100 * loss + 0.0:.1f}" for loss in (drift.first, drift.last))
        return [
            f"warning: changed while it was asked: the first third of the haystacks lost {first} "
            f"points, the last third {last}"
        ]

    def _saved_line(self) -> list[str]:
        saved = f", {self.saved:,} saved by the verdict" if self.stops else ""
        return (
            [f"asked {self.arms.prompts:,} of at most {self.most:,} pairs{saved}"]
            if self.most
            else []
        )

    def _nats_lines(self) -> list[str]:
        wire = self.tripwire
        if wire is None:
            return ["log-probabilities: none that both arms tell; --weigh asks for them"]
        what = "; ".join(WAYS[way] for way in self._ways())
        told = (
            f"{wire.beyond} of {wire.n} answers move by over {wire.usual:.2g} nats a token, which "
            f"{wire.again_beyond} of {wire.again_n} do when {self.names[0]} is asked again; median "
            f"{wire.median:.2g} against {wire.again_median:.2g}"
        )
        word = "moved: look at the worst prompts" if wire.tripped else "not moved"
        return [f"log-probabilities: {word}; {told} ({what})"]

    def _ways(self) -> list[Way]:
        """How the log-probabilities of the other arm came about."""
        return list(dict.fromkeys(way for each in self.found if (way := each.way) is not None))

    def changes(self) -> dict[str, FamilyChange]:
        """What became of each family, and of all where they are several."""
        families = list(dict.fromkeys(each.family for each in self.found))
        pairs = [each for each in self.found if each.is_pair]
        found = {
            name: own
            for name in families
            if (own := [each for each in pairs if each.family == name])
        }
        if len(found) > 1:
            found[ALL] = pairs
        return {name: FamilyChange.of(own) for name, own in found.items()}

    def family_rows(self) -> list[Row]:
        """A row a family, and one of all: pairs, means, difference in points, lost, gained, p."""
        return [_family_row(name, change, p) for name, (change, p) in self._tested().items()]

    def _tested(self) -> dict[str, tuple[FamilyChange, float]]:
        """Families with p as it is beside the other families' (Holm 1979); that of all stands for
        itself."""
        changes = self.changes()
        own = {name: change.p for name, change in changes.items() if name != ALL}
        adjusted = dict(zip(own, holm(list(own.values())), strict=True))
        return {name: (change, adjusted.get(name, change.p)) for name, change in changes.items()}

    def cell_rows(self) -> list[Row]:
        """The difference map: a row a cell, in points and in nats a token."""
        cells = changes_by_cell(self.found)
        lengths = length_labels(sorted({length for _, length, _ in cells}))
        return [
            (
                family,
                lengths[length],
                f"{percent(depth):g}",
                f"{change.n:,}",
                points(change.second - change.first),
                "" if nats is None else f"{nats:+.2g}",
            )
            for (family, length, depth), (change, nats) in cells.items()
        ]

    def worst_lines(self) -> list[str]:
        """Two lines a prompt: where it is and what was lost, and what both arms say where they
        part."""
        found = []
        for trio in worst_of(self.found):
            repeat, length, depth = trio.place
            place = f"{trio.family}, {length:,} tokens, depth {percent(depth):g}, repeat {repeat}"
            scores = " to ".join(score_label(score) for score in trio.scores)
            nats = "" if trio.nats is None else f", {trio.nats:+.2g} nats a token"
            found.append(f"{place}: {scores}{nats}")
            if trio.difference is not None:
                found.append(f"  {self._parting(trio, trio.difference)}")
        return found

    def _parting(self, trio: Trio, found: FirstDifference) -> str:
        first, second = self.names
        if found.token is None:
            where = f"behind {found.before!r}" if found.before else "from the first character on"
            return f"{where}: {first} {found.first!r}, {second} {found.second!r}"
        said = f"{first} {_choices(found.first_token)}, {second} {_choices(found.second_token)}"
        place = trio.position
        blocks = "" if place is None else ", ".join(f"{place % size} mod {size}" for size in BLOCKS)
        at = "" if place is None else f", position {place:,} ({blocks})"
        return f"token {found.token + 1}{at}: {said}"

    def plain(self) -> dict[str, Any]:
        """The same for programs; scores and differences in points."""
        judged, wire = self.judged, self.tripwire
        drift = self.arms.drift
        lost = [each.lost for each in self.found if each.is_pair]
        return {
            **judgement_json(judged, self.names),
            "said": self.verdict,
            "arms": list(self.names),
            "pairs": len(lost),
            "asked": self.arms.prompts,
            "saved": self.saved,
            "lost": sum(each > 0 for each in lost),
            "gained": sum(each < 0 for each in lost),
            "failed": dict(zip(reversed(self.names), self.arms.failed, strict=True)),
            "haystacks": judged.new.n if judged.new else 0,
            "saturated": judged.saturated,
            "drift": drift and {"first_third": drift.first, "last_third": drift.last},
            "log_probabilities": None
            if wire is None
            else _wire_plain(wire) | {"ways": self._ways()},
            "families": [_family_plain(name, *found) for name, found in self._tested().items()],
            "map": [_cell_plain(at, *found) for at, found in changes_by_cell(self.found).items()],
            "worst": [_worst_plain(self.names, trio) for trio in worst_of(self.found)],
        }


def arms_report(path: Path, read: Mapping[str, Loaded | None]) -> ArmsReport:
    """What is known of an ab by its records. read: its families by name. Raises NeedlemapError."""
    file = read_ab(path)
    first, second = (arm.name for arm in file.arms)
    records = {name: run.records for name, run in read.items() if run is not None}
    kinds = [(arm, kind) for kind in ("", WEIGHED) for arm in (first, second, AGAIN)]
    families = {
        family: [records.get(f"{arm}-{family}{kind}", ()) for arm, kind in kinds]
        for family in file.families
    }
    decided, wanted = file.until_decided, file.scope
    return ArmsReport.of(
        (first, second), trios(families), file.margin, stops=decided, wanted=wanted
    )


def arms_sheet(
    path: Path, read: Mapping[str, Loaded | None], places: Mapping[str, int]
) -> dict[str, Any]:
    """What a page opens with: a row a family, then a row a cell. places: of the arms' families
    among its runs."""
    report = arms_report(path, read)
    wide, margin = report.family_rows(), f"margin {100 * report.judged.margin:g} points"
    rows: list[Row] = [(row[0], "all", "all", row[1], *row[4:7], "") for row in wide]
    rows += [(*row[:4], row[4], "", "", row[5]) for row in report.cell_rows()]
    head = ["Family", "Length", "Depth", "Pairs", "Points", "Lost", "Gained", "Nats a token"]
    return {
        "says": report.judged.word,
        "readings": [["Verdict", report.judged.word, margin, "main"]],
        "table": {"head": head, "rows": [_sheet_row(report.names[1], places, row) for row in rows]},
        "lines": [hidden(line) for line in (*report.lines(), *report.worst_lines())],
    }


def _sheet_row(arm: str, places: Mapping[str, int], row: Row) -> dict[str, Any]:
    """A row that leads to the other arm's family."""
    at = places.get(f"{arm}-{row[0]}")
    cells = [row[0], *([text, None] for text in row[1:])]
    return {"to": None if at is None else ["run", at], "line": None, "cells": cells}


FAMILY_HEAD = ("family", "pairs", "reference", "other", "points", "lost", "gained", "p")
CELL_HEAD = ("family", "length", "depth", "pairs", "points", "nats")


def _family_row(name: str, change: FamilyChange, p: float) -> Row:
    means = (
        score_label(change.first),
        score_label(change.second),
        points(change.second - change.first),
    )
    return (name, f"{change.n:,}", *means, str(change.lost), str(change.gained), p_label(p))


def _family_plain(name: str, change: FamilyChange, p: float) -> dict[str, Any]:
    first, second = (round(100 * share, 4) for share in (change.first, change.second))
    counts = {"pairs": change.n, "lost": change.lost, "gained": change.gained, "p": p}
    return {"family": name, "reference": first, "other": second, **counts}


def _choices(token: Token | None) -> str:
    """A token and the runner-up, with their log-probabilities."""
    if token is None:
        return "ends"
    own = repr(token.text) if token.nats is None else f"{token.text!r} {token.nats:.2f}"
    return own if token.other is None else f"{own} (then {token.other!r} {token.other_nats:.2f})"


def _wire_plain(wire: Tripwire) -> dict[str, Any]:
    names = ("n", "again_n", "usual", "beyond", "again_beyond", "median", "again_median", "mean")
    return {"tripped": wire.tripped, **{name: _rounded(getattr(wire, name)) for name in names}}


def _cell_plain(
    at: tuple[str, int, float], change: FamilyChange, nats: float | None
) -> dict[str, Any]:
    family, length, depth = at
    place: dict[str, Any] = {
        "family": family,
        "length": length,
        "depth": percent(depth),
        "pairs": change.n,
    }
    return place | {
        "points": round(100 * (change.second - change.first), 4),
        "nats": _rounded(nats),
    }


def _worst_plain(names: tuple[str, str], trio: Trio) -> dict[str, Any]:
    repeat, length, depth = trio.place
    found, position = trio.difference, trio.position
    at = {"family": trio.family, "length": length, "depth": percent(depth), "repeat": repeat}
    row = at | {"scores": list(trio.scores), "nats": _rounded(trio.nats)}
    if found is None:
        return row
    said = {
        "before": found.before,
        names[0]: found.first,
        names[1]: found.second,
        "token": found.token,
    }
    tokens = {
        f"{name}_choices": [[token.text, token.nats], [token.other, token.other_nats]]
        if token
        else None
        for name, token in zip(names, (found.first_token, found.second_token), strict=True)
    }
    modulo = {} if position is None else {str(size): position % size for size in BLOCKS}
    return row | said | tokens | {"position": position, "modulo": modulo}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
