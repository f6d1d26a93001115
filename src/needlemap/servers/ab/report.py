"""Report what an `ab` found: verdict, families, map, log-probabilities, worst prompts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from needlemap.grid import percent
from needlemap.models import LogprobSource
from needlemap.reports.labels import score_label
from needlemap.reports.loss import loss_json, overrun_notes, verdict_of, warnings_of
from needlemap.reports.report import (
    COUNT,
    DEPTH,
    LENGTH,
    LOSS,
    NATS,
    SCORE,
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
from needlemap.stats.judging import PairedLoss
from needlemap.stats.looks import Scope
from needlemap.stats.pairs import FirstDifference, Token
from needlemap.stats.verdicts import FAIL, SUSPECT
from needlemap.text import counted

if TYPE_CHECKING:
    from needlemap.records.loaded import Loaded

T = TypeVar("T", str, int)
WAYS: Mapping[LogprobSource, str] = {
    "generated": (
        "of each answer as it was written, to the first other token, with the runner-up there"
    ),
    "walk": "of the whole answer, given behind its prompt",
    "echo": "of the whole answer, by the server's log-probabilities of a prompt that holds it",
    "steps": "of the whole answer, which the server is made to say token by token",
    "prompt": "of the answer's last token, behind a prompt that holds the rest of it",
}
FAMILIES = (
    Column("family", "family"),
    Column("pairs", "pairs", COUNT),
    Column("missing", "missing", COUNT),
    Column("reference", "reference", SCORE),
    Column("other", "other", SCORE),
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
    Column("missing", "missing", COUNT),
    Column("loss", "loss", LOSS),
    Column("nats", "nats", NATS),
)
WORST = (Column("depth", unit=DEPTH), Column("nats", unit=NATS))
# Fields of `LogprobShift` that the JSON document has.
SHIFT_FIELDS = (
    "n",
    "again_n",
    "usual",
    "beyond",
    "again_beyond",
    "median",
    "again_median",
    "mean",
)


@dataclass(frozen=True, slots=True)
class AbFinding:
    """The prompts of two arms, and what was found.

    Attributes:
        path: The ab's folder.
        names: The names of the reference and the other arm.
        trials: The prompts with their records.
        arms: The loss.
        tripwire: How far log-probabilities moved; None without them.
        most: The most pairs that it may ask; 0 if that is not known.
        stops: Whether it stops as soon as a verdict is decided.
    """

    path: Path
    names: tuple[str, str]
    trials: Sequence[ArmTrial]
    arms: ArmsLoss
    tripwire: LogprobShift | None
    most: int
    stops: bool

    @property
    def saved_pairs(self) -> int:
        """Return the number of pairs that were not sent because the verdict came early.

        If the ab does not stop at a verdict, or has none yet, the number is 0.
        """
        if not self.stops or not self.arms.loss.is_decided:
            return 0
        return max(0, self.most - self.arms.prompts)

    @property
    def sent(self) -> list[ArmTrial]:
        """Return the prompts that both arms were sent."""
        return [trial for trial in self.trials if trial.is_complete]

    def report(self) -> Report:
        """Return the report."""
        loss, (reference, other) = self.arms.loss, self.names
        verdict = verdict_of(loss, self.names)
        return Report(
            "ab",
            f"{other} against {reference}",
            (
                Fact("ab", str(self.path)),
                *keyed(loss_json(loss)),
                Fact("arms", list(self.names)),
                *self._glance(),
                Table("families", FAMILIES, tuple(self._families())),
                Table("map", CELLS, tuple(self._cells()), folded="Where answers changed"),
                *self._worst_parts(),
                *self._facts(),
            ),
            verdict,
            (Claim(f"{other} against {reference}", verdict.word),),
            tuple(self._curves()) if verdict.word in (FAIL, SUSPECT) else (),
        )

    def _glance(self) -> Iterator[Fact]:
        """Yield both arms' scores, and what changed between them, for the page's head."""
        loss = self.arms.loss
        if not loss.n:
            return
        for name, score in zip(self.names, (loss.first, loss.second), strict=True):
            yield Fact(value=f"{score_label(score)} %", head=name, note="mean of the pairs")
        note = f"{loss.gained} gained, of {counted(loss.n, 'pair')}"
        yield Fact(value=f"{loss.lost} lost", head="Changed", note=note)

    def _curves(self) -> Iterator[Line]:
        """Yield the mean scores of each arm by length."""
        losses = self._losses(lambda trial: trial.place[1])
        lengths = sorted(losses)
        reference, other = self.names
        yield Line(reference, {length: _point(losses[length].first) for length in lengths})
        yield Line(other, {length: _point(losses[length].second) for length in lengths})

    def _losses(self, group: Callable[[ArmTrial], T]) -> dict[T, PairedLoss]:
        """Return the loss of each group of prompts, as if there were no others."""
        groups: dict[T, list[ArmTrial]] = {}
        for trial in self.sent:
            groups.setdefault(group(trial), []).append(trial)
        margin = self.arms.loss.margin
        return {key: judge_arms(trials, margin).loss for key, trials in groups.items()}

    def _facts(self) -> Iterator[Fact]:
        """Yield the facts that the verdict rests on."""
        arms, loss = self.arms, self.arms.loss
        has_answer = any(trial.scores != (None, None) for trial in self.sent)
        yield Fact(said=self._means_line() if has_answer else "nothing was answered")
        yield Fact("saved", self.saved_pairs)
        yield Fact("failed", dict(zip(reversed(self.names), arms.failed, strict=True)))
        yield Fact("haystacks", loss.new.n if loss.new else 0)
        yield Fact("saturated", loss.saturated)

        saved_words = f", {self.saved_pairs:,} saved by the verdict" if self.stops else ""
        sentence = f"asked {arms.prompts:,} of at most {self.most:,} pairs{saved_words}"
        yield Fact("asked", arms.prompts, sentence if self.most and has_answer else "")

        if not has_answer:
            yield Fact("drift")
            yield Fact("log_probabilities")
            return
        yield self._drift()
        for line in [*warnings_of(loss), *overrun_notes(arms.ran_on, self.names)]:
            yield Fact(said=line)
        yield self._nats()

    def _means_line(self) -> str:
        """Return the line of the pairs: both means, lost, gained and unanswered prompts."""
        reference, other = self.names
        loss = self.arms.loss
        failed = [
            f"{name} failed to answer {count}"
            for name, count in zip((other, reference), self.arms.failed, strict=True)
            if count
        ]
        means = (
            f"{counted(loss.n, 'pair')} of {counted(loss.new.n if loss.new else 0, 'haystack')}: "
            f"{reference} {score_label(loss.first)} %, {other} {score_label(loss.second)} %, "
            f"{loss.lost} lost, {loss.gained} gained"
        )
        return "; ".join([means if loss.n else "no pair was answered by both", *failed])

    def _drift(self) -> Fact:
        """Return the change of the loss during the ab."""
        drift = self.arms.drift
        if drift is None:
            return Fact("drift")
        # Adding 0.0 makes a negative zero positive.
        first_points = f"{100 * drift.first_loss + 0.0:.1f}"
        last_points = f"{100 * drift.last_loss + 0.0:.1f}"
        sentence = (
            "warning: changed while it was asked: the first third of the haystacks lost "
            f"{first_points} points, the last third {last_points}"
        )
        value = {"first_third": drift.first_loss, "last_third": drift.last_loss}
        return Fact("drift", value, sentence)

    def _nats(self) -> Fact:
        """Return how far log-probabilities moved."""
        key, shift = "log_probabilities", self.tripwire
        if shift is None:
            return Fact(
                key, said="log-probabilities: none that both arms tell; --weigh asks for them"
            )

        ways = list(dict.fromkeys(way for trial in self.trials if (way := trial.way) is not None))
        word = "moved: look at the worst prompts" if shift.tripped else "not moved"
        sentence = (
            f"log-probabilities: {word}; {shift.beyond} of {shift.n} answers move by over "
            f"{shift.usual:.2g} nats a token, which {shift.again_beyond} of {shift.again_n} do "
            f"when {self.names[0]} is asked again; median {shift.median:.2g} against "
            f"{shift.again_median:.2g} ({'; '.join(WAYS[way] for way in ways)})"
        )
        value = {name: NATS.plain(getattr(shift, name)) for name in SHIFT_FIELDS}
        return Fact(key, {"tripped": shift.tripped, **value, "ways": ways}, sentence)

    def _families(self) -> Iterator[Row]:
        """Yield one row per family, with the numbers of a comparison of this family alone.

        p is adjusted for the other families (Holm 1979).
        """
        missing = Counter(trial.family for trial in self.sent if not trial.is_pair)
        losses = self._losses(lambda trial: trial.family)
        ps = [loss.p for loss in losses.values() if loss.p is not None]
        adjusted = iter(holm(ps))
        for name, loss in losses.items():
            # One family has the loss of the verdict, which counts looks.
            shown = loss if len(losses) > 1 else self.arms.loss
            values = {
                "family": name,
                "reference": loss.first,
                "other": loss.second,
                "loss": shown.loss.value if shown.loss else None,
                "pairs": loss.n,
                "missing": missing[name],
                "lost": loss.lost,
                "gained": loss.gained,
                "p": None if loss.p is None else next(adjusted),
            }
            yield Row(values, to=self._run_of(name))

    def _cells(self) -> Iterator[Row]:
        """Yield one row per cell, in points and nats a token; the text shows changed cells."""
        is_tripped = self.tripwire is not None and self.tripwire.tripped
        for (family, length, depth), change in changes_by_cell(self.trials).items():
            values = {
                "family": family,
                "length": length,
                "depth": depth,
                "pairs": change.n,
                "missing": change.missing,
                "loss": change.loss,
                "nats": change.nats,
            }
            has_moved = is_tripped and change.nats is not None
            has_changed = change.lost or change.gained or change.missing or has_moved
            yield Row(values, to=self._run_of(family), shown=bool(has_changed))

    def _run_of(self, family: str) -> str:
        """Return the folder of the other arm's family."""
        return f"{self.names[1]}-{family}"

    def _worst_parts(self) -> tuple[Table, Fact]:
        """Return the table of the worst prompts, and the command that replays the first of them.

        The text shows one prompt per family and length, with the number of further ones.
        """
        shift = self.tripwire
        usual = shift.usual if shift is not None and shift.tripped else inf
        worst = worst_of(self.trials, usual)
        counts = Counter((trial.family, trial.place[1]) for trial in worst)
        shown_kinds = set[tuple[str, int]]()
        rows = []
        for trial in worst:
            kind = trial.family, trial.place[1]
            text = self._worst_text(trial, counts[kind] - 1)
            rows.append(Row(self._worst_values(trial), (text,), shown=kind not in shown_kinds))
            shown_kinds.add(kind)

        replay = f"needlemap replay {self.path} --worst --arm {self.names[1]}" if rows else ""
        table = Table(
            "worst",
            WORST,
            tuple(rows),
            "the worst prompts, of those that changed:",
            after=f"see the first: {replay}",
            folded="The worst prompts",
        )
        return table, Fact("replay", replay)

    def _worst_text(self, trial: ArmTrial, more: int) -> str:
        """Return the lines of a prompt: its place, its scores, and where both answers differ.

        more: the number of other worst prompts of the same family and length.
        """
        repeat, length, depth = trial.place
        place = f"{trial.family}, {length:,} tokens, depth {percent(depth):g}, repeat {repeat}"
        scores = " to ".join(score_label(score) for score in trial.scores)
        nats = "" if trial.nats is None else f", {trial.nats:+.2g} nats a token"
        lines = [f"{place}: {scores}{nats}"]
        if trial.difference is not None:
            lines.append(f"  {self._difference_words(trial, trial.difference)}")
        if more:
            lines.append(f"  {more} more of the worst: {trial.family} at {length:,} tokens")
        return "\n".join(lines)

    def _difference_words(self, trial: ArmTrial, difference: FirstDifference) -> str:
        """Return where two answers differ first, and the text of each there."""
        reference, other = self.names
        if difference.token is None:
            place = "from the first character on"
            if difference.before:
                place = f"behind {difference.before!r}"
            return f"{place}: {reference} {difference.first!r}, {other} {difference.second!r}"

        place = f"token {difference.token + 1}"
        position = trial.tokens_before_difference
        if position is not None:
            blocks = ", ".join(f"{position % size} mod {size}" for size in BLOCKS)
            place += f", position {position:,} ({blocks})"
        return (
            f"{place}: {reference} {_choices(difference.first_token)}, "
            f"{other} {_choices(difference.second_token)}"
        )

    def _worst_values(self, trial: ArmTrial) -> dict[str, Any]:
        """Return the values of a prompt in the JSON document."""
        repeat, length, depth = trial.place
        values: dict[str, Any] = {
            "family": trial.family,
            "length": length,
            "depth": depth,
            "repeat": repeat,
            "scores": list(trial.scores),
            "nats": trial.nats,
        }
        difference, position = trial.difference, trial.tokens_before_difference
        if difference is None:
            return values

        reference, other = self.names
        values["before"] = difference.before
        values[reference] = difference.first
        values[other] = difference.second
        values["token"] = difference.token
        values[f"{reference}_choices"] = _choice_values(difference.first_token)
        values[f"{other}_choices"] = _choice_values(difference.second_token)
        values["position"] = position
        values["modulo"] = {}
        if position is not None:
            values["modulo"] = {str(size): position % size for size in BLOCKS}
        return values


def ab_report(
    path: Path,
    names: tuple[str, str],
    trials: Sequence[ArmTrial],
    margin: float,
    most: int = 0,
    *,
    stops: bool = False,
    wanted: Scope = "these",
) -> Report:
    """Return the report of an ab.

    margin: the largest loss that is accepted, in points. most, stops: those of `AbFinding`.
    wanted: the scope that the verdict is to hold for.
    """
    finding = AbFinding(
        path,
        names,
        trials=trials,
        arms=judge_arms(trials, margin / 100, wanted=wanted, stops=stops),
        tripwire=tripwire(trials),
        most=most,
        stops=stops,
    )
    return finding.report()


def read_ab_report(path: Path, runs: Mapping[str, Loaded | None]) -> Report:
    """Return the report of an ab in a folder, made of its records.

    runs: the ab's families by name. Raises NeedlemapError if the folder has no valid ab.json.
    """
    file = read_ab(path)
    reference, other = (arm.name for arm in file.arms)
    records = {name: run.records for name, run in runs.items() if run is not None}
    kinds = [(arm, kind) for kind in ("", WEIGHED) for arm in (reference, other, AGAIN)]
    families = {
        family: [records.get(f"{arm}-{family}{kind}", ()) for arm, kind in kinds]
        for family in file.families
    }
    return ab_report(
        path,
        (reference, other),
        trios(families),
        margin=file.margin,
        stops=file.until_decided,
        wanted=file.scope,
    )


def _choices(token: Token | None) -> str:
    """Return a token and the runner-up, with their log-probabilities."""
    if token is None:
        return "ends"
    text = repr(token.text)
    if token.nats is not None:
        text += f" {token.nats:.2f}"
    if token.other is None:
        return text
    return f"{text} (then {token.other!r} {token.other_nats:.2f})"


def _choice_values(token: Token | None) -> list[list[str | float | None]] | None:
    """Return a token and the runner-up, with their log-probabilities, for the JSON document."""
    if token is None:
        return None
    return [[token.text, token.nats], [token.other, token.other_nats]]


def _point(mean: float | None) -> Mean | None:
    """Return a mean as a point of a curve, or None if there is none."""
    return None if mean is None else Mean(mean, None, None)
