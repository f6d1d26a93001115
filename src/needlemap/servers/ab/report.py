"""What an `ab` found, as a report: verdict, families, map, log-probabilities, worst
prompts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from needlemap.grid import percent
from needlemap.models import LogprobSource
from needlemap.reports.labels import score_label
from needlemap.reports.loss import loss_json, verdict_of, warnings_of
from needlemap.reports.report import (
    COUNT,
    DEPTH,
    LENGTH,
    LOSS,
    NATS,
    PERCENT,
    Claim,
    Column,
    Fact,
    Line,
    P,
    Report,
    Row,
    Table,
    keyed,
)
from needlemap.servers.ab.arms import (
    BLOCKS,
    ArmsLoss,
    ArmTrial,
    FamilyChange,
    LogprobShift,
    changes_by_cell,
    judge_arms,
    trios,
    tripwire,
    worst_of,
)
from needlemap.servers.ab.file import AGAIN, WEIGHED, read_ab
from needlemap.stats.difference import holm
from needlemap.stats.effective import Mean
from needlemap.stats.looks import Scope
from needlemap.stats.pairs import FirstDifference, Token
from needlemap.stats.verdicts import FAIL, SUSPECT
from needlemap.text import counted

if TYPE_CHECKING:
    from needlemap.records.loaded import Loaded

WAYS: Mapping[LogprobSource, str] = {
    "generated": (
        "of each answer as it was written, to the first other token, with the runner-up there"
    ),
    "walk": "of the whole answer, given behind its prompt",
    "echo": "of the whole answer, by the server's log-probabilities of a prompt that holds it",
    "steps": "of the whole answer, which the server is made to say token by token",
}
FAMILIES = (
    Column("family", "family"),
    Column("pairs", "pairs", COUNT),
    Column("reference", "reference", PERCENT),
    Column("other", "other", PERCENT),
    Column("loss", "loss", LOSS),
    Column("lost", "lost", COUNT),
    Column("gained", "gained", COUNT),
    Column("p", "p", P),
)
CELLS = (
    Column("family", "family"),
    Column("length", "length", LENGTH),
    Column("depth", "depth", DEPTH),
    Column("pairs", "pairs", COUNT),
    Column("loss", "loss", LOSS),
    Column("nats", "nats", NATS),
)
WORST = (Column("depth", unit=DEPTH), Column("nats", unit=NATS))


@dataclass(frozen=True, slots=True)
class ArmsFound:
    """What was asked of two arms. names: of the reference and the other. path: the ab's
    folder. most: pairs that it may ask, 0 where that is not known; stops: whether a verdict
    ends it before."""

    path: Path
    names: tuple[str, str]
    found: Sequence[ArmTrial]
    arms: ArmsLoss
    tripwire: LogprobShift | None
    most: int
    stops: bool

    @property
    def saved(self) -> int:
        """Pairs that a verdict made needless, where it ends the asking."""
        ended = self.stops and self.arms.judged.is_decided
        return max(0, self.most - self.arms.prompts) if ended else 0

    @property
    def pairs(self) -> list[ArmTrial]:
        """What both arms answered."""
        return [each for each in self.found if each.is_pair]

    def report(self) -> Report:
        """The report."""
        judged, (first, second) = self.arms.judged, self.names
        verdict = verdict_of(judged, self.names)
        return Report(
            "ab",
            f"{second} against {first}",
            (
                Fact("ab", str(self.path)),
                *keyed(loss_json(judged)),
                Fact("arms", list(self.names)),
                *self._glance(),
                Table("families", FAMILIES, tuple(self._families())),
                Table("map", CELLS, tuple(self._cells()), folded="Where answers changed"),
                *self._worst(),
                *self._facts(),
            ),
            verdict,
            (Claim(f"{second} against {first}", verdict.word),),
            tuple(self._curves()) if verdict.word in (FAIL, SUSPECT) else (),
        )

    def _glance(self) -> Iterator[Fact]:
        """Both arms' scores, and what changed between them, for the page's head."""
        if not self.pairs:
            return
        totals = FamilyChange.of(self.pairs)
        for name, score in zip(self.names, (totals.first, totals.second), strict=True):
            yield Fact(value=f"{score_label(score)} %", head=name, note="mean of all pairs")
        note = f"{totals.gained} gained, of {counted(len(self.pairs), 'pair')}"
        yield Fact(value=f"{totals.lost} lost", head="Changed", note=note)

    def _curves(self) -> Iterator[Line]:
        """What each arm finds at each length."""
        lengths = sorted({each.place[1] for each in self.pairs})
        found = {
            n: FamilyChange.of([each for each in self.pairs if each.place[1] == n]) for n in lengths
        }
        first, second = self.names
        yield Line(first, {n: Mean(each.first, None, None) for n, each in found.items()})
        yield Line(second, {n: Mean(each.second, None, None) for n, each in found.items()})

    def _facts(self) -> Iterator[Fact]:
        """What the verdict rests on."""
        arms, judged, pairs = self.arms, self.arms.judged, self.pairs
        lost = sum(each.lost > 0 for each in pairs)
        gained = sum(each.lost < 0 for each in pairs)
        yield Fact("pairs", len(pairs), self._means_line() if pairs else "nothing was answered")
        yield from keyed({"lost": lost, "gained": gained, "saved": self.saved})
        yield Fact("failed", dict(zip(reversed(self.names), arms.failed, strict=True)))
        yield Fact("haystacks", judged.new.n if judged.new else 0)
        yield Fact("saturated", judged.saturated)
        saved = f", {self.saved:,} saved by the verdict" if self.stops else ""
        most = f"asked {arms.prompts:,} of at most {self.most:,} pairs{saved}"
        yield Fact("asked", arms.prompts, most if self.most and pairs else "")
        yield self._drift() if pairs else Fact("drift")
        yield from (Fact(said=line, warns=True) for line in warnings_of(judged) if pairs)
        yield self._nats() if pairs else Fact("log_probabilities")

    def _means_line(self) -> str:
        """Pairs, both means, what was lost and gained, and what was not answered."""
        first, second = self.names
        totals, new = FamilyChange.of(self.pairs), self.arms.judged.new
        failed = [
            f"{name} failed to answer {count} (counted as wrong in this line and the tables)"
            for name, count in zip((second, first), self.arms.failed, strict=True)
            if count
        ]
        means = (
            f"{counted(len(self.pairs), 'pair')} of {counted(new.n if new else 0, 'haystack')}: "
            f"{first} {score_label(totals.first)} %, {second} {score_label(totals.second)} %, "
            f"{totals.lost} lost, {totals.gained} gained"
        )
        return "; ".join([means, *failed])

    def _drift(self) -> Fact:
        """A change while it was asked."""
        drift = self.arms.drift
        if drift is None:
            return Fact("drift")
        first, last = (f"{100 * loss + 0.0:.1f}" for loss in (drift.first, drift.last))
        said = (
            f"warning: changed while it was asked: the first third of the haystacks lost {first} "
            f"points, the last third {last}"
        )
        value = {"first_third": drift.first, "last_third": drift.last}
        return Fact("drift", value, said, warns=True)

    def _nats(self) -> Fact:
        """How far log-probabilities moved."""
        wire, key = self.tripwire, "log_probabilities"
        if wire is None:
            return Fact(
                key, said="log-probabilities: none that both arms tell; --weigh asks for them"
            )
        ways = list(dict.fromkeys(way for each in self.found if (way := each.way) is not None))
        moved = (
            f"{wire.beyond} of {wire.n} answers move by over {wire.usual:.2g} nats a token, which "
            f"{wire.again_beyond} of {wire.again_n} do when {self.names[0]} is asked again; median "
            f"{wire.median:.2g} against {wire.again_median:.2g}"
        )
        word = "moved: look at the worst prompts" if wire.tripped else "not moved"
        how = "; ".join(WAYS[way] for way in ways)
        kept = ("n", "again_n", "usual", "beyond", "again_beyond", "median", "again_median", "mean")
        value = {name: NATS.plain(getattr(wire, name)) for name in kept}
        said = f"log-probabilities: {word}; {moved} ({how})"
        return Fact(key, {"tripped": wire.tripped, **value, "ways": ways}, said)

    def _families(self) -> Iterator[Row]:
        """A row a family. p is as it is beside the other families' (Holm 1979). The loss of a
        single one is the verdict's."""
        shown = bool(self.arms.judged.n)
        by_family: dict[str, list[ArmTrial]] = {}
        for each in self.pairs:
            by_family.setdefault(each.family, []).append(each)
        changes = {name: FamilyChange.of(own) for name, own in by_family.items()}
        adjusted = holm([change.p for change in changes.values()])
        for (name, change), p in zip(changes.items(), adjusted, strict=True):
            values = {"family": name, "reference": change.first, "other": change.second}
            loss = change.first - change.second if len(changes) > 1 else None
            values |= {"loss": loss, "pairs": change.n}
            values |= {"lost": change.lost, "gained": change.gained, "p": p}
            yield Row(values, to=self._run_of(name), shown=shown)

    def _cells(self) -> Iterator[Row]:
        """A row a cell, in points and in nats a token; people see those that changed."""
        tripped = self.tripwire is not None and self.tripwire.tripped
        for (family, length, depth), (change, nats) in changes_by_cell(self.found).items():
            values = {"family": family, "length": length, "depth": depth, "pairs": change.n}
            values |= {"loss": change.first - change.second, "nats": nats}
            moved = bool(change.lost or change.gained or (tripped and nats is not None))
            shown = bool(self.arms.judged.n) and moved
            yield Row(values, to=self._run_of(family), shown=shown)

    def _run_of(self, family: str) -> str:
        """The other arm's family."""
        return f"{self.names[1]}-{family}"

    def _worst(self) -> tuple[Table, Fact]:
        """The prompts that show most, and the command that shows the first of them again.
        People see one of a family and length, with the number of those like it."""
        wire = self.tripwire
        usual = wire.usual if wire is not None and wire.tripped else inf
        worst = worst_of(self.found, usual)
        like = Counter((trio.family, trio.place[1]) for trio in worst)
        seen = set[tuple[str, int]]()
        rows = tuple[Row, ...]()
        for trio in worst:
            at = trio.family, trio.place[1]
            text = self._lines(trio, like[at] - 1)
            rows += (Row(self._worst_values(trio), (text,), shown=at not in seen),)
            seen.add(at)
        again = f"needlemap replay {self.path} --worst --arm {self.names[1]}" if rows else ""
        said, folded = "the worst prompts, of those that changed:", "The worst prompts"
        table = Table("worst", WORST, rows, said, f"see the first: {again}", folded)
        return table, Fact("replay", again)

    def _lines(self, trio: ArmTrial, more: int) -> str:
        """Where a prompt is and what was lost, and what both arms say where they part. more:
        of the worst prompts, those of the same family and length."""
        repeat, length, depth = trio.place
        place = f"{trio.family}, {length:,} tokens, depth {percent(depth):g}, repeat {repeat}"
        scores = " to ".join(score_label(score) for score in trio.scores)
        nats = "" if trio.nats is None else f", {trio.nats:+.2g} nats a token"
        lines = [f"{place}: {scores}{nats}"]
        if trio.difference is not None:
            lines.append(f"  {self._parting(trio, trio.difference)}")
        if more:
            lines.append(f"  {more} more of the worst: {trio.family} at {length:,} tokens")
        return "\n".join(lines)

    def _parting(self, trio: ArmTrial, found: FirstDifference) -> str:
        first, second = self.names
        if found.token is None:
            where = f"behind {found.before!r}" if found.before else "from the first character on"
            return f"{where}: {first} {found.first!r}, {second} {found.second!r}"
        said = f"{first} {_choices(found.first_token)}, {second} {_choices(found.second_token)}"
        place = trio.position
        blocks = "" if place is None else ", ".join(f"{place % size} mod {size}" for size in BLOCKS)
        at = "" if place is None else f", position {place:,} ({blocks})"
        return f"token {found.token + 1}{at}: {said}"

    def _worst_values(self, trio: ArmTrial) -> dict[str, Any]:
        """A prompt for programs."""
        repeat, length, depth = trio.place
        found, position = trio.difference, trio.position
        at = {"family": trio.family, "length": length, "depth": depth, "repeat": repeat}
        row = at | {"scores": list(trio.scores), "nats": trio.nats}
        if found is None:
            return row
        first, second = self.names
        row |= {"before": found.before, first: found.first, second: found.second}
        row["token"] = found.token
        for name, token in ((first, found.first_token), (second, found.second_token)):
            row[f"{name}_choices"] = token and [
                [token.text, token.nats],
                [token.other, token.other_nats],
            ]
        row["position"] = position
        row["modulo"] = {} if position is None else {str(size): position % size for size in BLOCKS}
        return row


def ab_report(
    path: Path,
    names: tuple[str, str],
    found: Sequence[ArmTrial],
    margin: float,
    most: int = 0,
    *,
    stops: bool = False,
    wanted: Scope = "these",
) -> Report:
    """The report of what was asked. margin: in points. most, stops: as `ArmsFound` has them.
    wanted: the scope that the verdict is to hold for."""
    arms = judge_arms(found, margin / 100, wanted=wanted, stops=stops)
    asked = ArmsFound(path, names, found, arms, tripwire(found), most, stops)
    return asked.report()


def read_ab_report(path: Path, read: Mapping[str, Loaded | None]) -> Report:
    """The report of an ab by its records. read: its families by name. Raises
    NeedlemapError."""
    file = read_ab(path)
    first, second = (arm.name for arm in file.arms)
    records = {name: run.records for name, run in read.items() if run is not None}
    kinds = [(arm, kind) for kind in ("", WEIGHED) for arm in (first, second, AGAIN)]
    families = {
        family: [records.get(f"{arm}-{family}{kind}", ()) for arm, kind in kinds]
        for family in file.families
    }
    found, names = trios(families), (first, second)
    decided, wanted = file.until_decided, file.scope
    return ab_report(path, names, found, file.margin, stops=decided, wanted=wanted)


def _choices(token: Token | None) -> str:
    """A token and the runner-up, with their log-probabilities."""
    if token is None:
        return "ends"
    own = repr(token.text) if token.nats is None else f"{token.text!r} {token.nats:.2f}"
    return own if token.other is None else f"{own} (then {token.other!r} {token.other_nats:.2f})"
