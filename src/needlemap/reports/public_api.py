"""Runs and comparisons for Python: what `report` and `compare` print, as values, tables and
pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from needlemap.asking import Outcome
from needlemap.asking.until import Goal
from needlemap.errors import NeedlemapError
from needlemap.files import is_run_folder
from needlemap.records.families import families_of
from needlemap.records.folder import RunFolder
from needlemap.records.loaded import Loaded, load_run
from needlemap.records.record import Record
from needlemap.reports import points_wide
from needlemap.reports.answer_diff import answers_counts
from needlemap.reports.comparison import answers_text, comparison_report
from needlemap.reports.figures.curves import draw_families
from needlemap.reports.figures.drawing import Drawing
from needlemap.reports.figures.figure import draw, figure_of
from needlemap.reports.goals import until_report
from needlemap.reports.kept import finding_report
from needlemap.reports.labels import length_range, overall_label
from needlemap.reports.loss import warnings_of
from needlemap.reports.page.summary import write_page
from needlemap.reports.pairing import Names
from needlemap.reports.renderers.frame import to_pandas
from needlemap.reports.renderers.json import to_json
from needlemap.reports.renderers.text import to_text
from needlemap.reports.report import Report
from needlemap.reports.run_report import runs_below
from needlemap.reports.seek_report import effective_of, length_line, seek_result_of, seeks
from needlemap.reports.suite_report import models_report, suite_report
from needlemap.reports.summary import means_of, read_families, scores_of
from needlemap.reports.table import cells_table, is_table, write_table
from needlemap.stats.comparison import Comparison
from needlemap.stats.effective import Effective, Mean, parse_rule, published_length
from needlemap.stats.intervals import ClusterMean
from needlemap.stats.means import Map, margin_frame
from needlemap.stats.seek import Sought
from needlemap.stats.table_schema import trial_frame, value_frame
from needlemap.stats.verdicts import Verdict, exit_code
from needlemap.text import printable


@dataclass(frozen=True)
class Run:
    """A run's folder.

    It is read at each call, so a run that continues elsewhere shows what it has. outcomes: how the
    asking of each family ended, '' being the name of a run's only one; of none that had nothing
    left to ask. None if nothing was to be asked (`load`).
    """

    path: Path
    outcomes: Mapping[str, Outcome] | None = None

    @property
    def outcome(self) -> Outcome | None:
        """Return how the run of all families ended, or None if nothing was to be sent."""
        return None if self.outcomes is None else sum(self.outcomes.values(), Outcome())

    @property
    def families(self) -> dict[str, Run]:
        """Return the families that were started, each a run like any other.

        A run with one family is itself, under ''.
        """
        families = families_of(self.path)
        if families.is_plain:
            return {"": self}
        outcomes = {name: {"": outcome} for name, outcome in (self.outcomes or {}).items()}
        return {
            name: Run(families.folder(name), outcomes.get(name)) for name in families.started_names
        }

    @property
    def models(self) -> dict[str, Run]:
        """Return the runs in a folder of several models, by their folders' names.

        A run of one model is itself, under ''.
        """
        if is_run_folder(self.path):
            return {"": self}
        runs = {}
        for path in runs_below(self.path, 1):
            outcomes: dict[str, Outcome] = {}
            for name, outcome in (self.outcomes or {}).items():
                model, _, family = name.partition("/")
                if model == path.name:
                    outcomes[family] = outcome
            runs[path.name] = Run(path, None if self.outcomes is None else outcomes)
        return runs

    def about(self) -> dict[str, Any]:
        """Return the content of run.json: settings, versions, hashes.

        If the run has several families, NeedlemapError is raised.
        """
        return RunFolder(self._only()).about().document()

    def map(self) -> Map:
        """Return the map of the run: mean score, n and interval of each cell.

        If the run has several families, NeedlemapError is raised.
        """
        return load_run(self._only()).map

    @property
    def sought(self) -> Sought | None:
        """Return the result of a run that seeks, or None if it does not seek.

        It has point, low and high in tokens, crawls, and the haystacks that were sent. If the run
        has several families, NeedlemapError is raised.
        """
        return seek_result_of(load_run(self._only()))

    @property
    def verdict(self) -> Verdict | None:
        """Return the verdict of a run's `until`, or None if the run has no `until`.

        It has word, claim, evidence, scope and next. If the run has several families, or if the
        reference is gone, NeedlemapError is raised.
        """
        run = load_run(self._only())
        if not run.about.named.until:
            return None
        goal = Goal.of(run.about.named.until, run.about.named.scope)
        return until_report(load_run(goal.path), run, goal.margin, goal.scope).verdict

    def scores(self) -> dict[str, dict[int, float | None]]:
        """Return for each family its scores by length, which are None if nothing was measured."""
        return {name: run.map.by_length for name, run in self._read().items() if run is not None}

    def means(self) -> dict[int, ClusterMean | Mean]:
        """Return the score of all families by length, for lengths at which each has one.

        It has score, low and high, as the terminal shows them: the mean of families, or the last
        score that the suite names. If the run seeks, NeedlemapError is raised, since its lengths
        are sampled unevenly.
        """
        runs_by_family = self._read()
        if _seeks_any(runs_by_family):
            raise NeedlemapError(f"'{self.path}' seeks a length, so it has no means. Take .sought")
        return dict(means_of(families_of(self._one_model()), runs_by_family))

    def effective(self, rule: str = "absolute:85") -> Effective | None:
        """Return the effective length by a rule of docs/statistics.md, with an interval.

        If there is no mean, it is None. If the rule is unknown, SettingsError is raised. A run that
        seeks has the length that it sought, e.g. `absolute:85` of `seek=85`. If the rule is another
        one, or if such a run has several families, NeedlemapError is raised.
        """
        parsed_rule = parse_rule(rule)
        runs_by_family = self._read()
        if not _seeks_any(runs_by_family):
            families = families_of(self._one_model())
            return scores_of(families, runs_by_family).effective(parsed_rule)

        sought = self.sought
        if sought is None:
            return None
        effective = effective_of(sought, parsed_rule)
        if effective is None:
            raise NeedlemapError(
                f"'{self.path}' sought the length at {100 * sought.threshold:g} %, so it has none "
                f"by '{rule}'. Take .sought"
            )
        return effective

    def published_length(self) -> float | None:
        """Return RULER's effective length: the largest length in tokens whose mean exceeds 85.6.

        It is infinite if that is the longest tested length, 0 if there is no such length, and None
        if there is no mean. If the run seeks, NeedlemapError is raised.
        """
        return published_length(self.means())

    def records(self) -> list[Record]:
        """Return one record for each trial of all families.

        It is the last record that was scored or, if none was scored, the last.
        """
        return [
            record for run in self._read().values() if run is not None for record in run.records
        ]

    def cells(self) -> Any:
        """Return a frame with one row a cell of every model and family: score, n, low and high in
        percent, and the other columns of the CSV. Raises NeedlemapError when pandas is not
        installed."""
        table = cells_table([load_run(folder) for folder in self._folders()])
        return value_frame(table.columns, table.rows)

    def to_pandas(self) -> Any:
        """Return a frame with a row for each trial, and the columns of the CSV.

        If the run has several families, it has a row for each family and length: family,
        length_tokens, score, n, low, high, in percent. If pandas is not installed, NeedlemapError
        is raised.
        """
        if families_of(self.path).is_plain:
            return trial_frame(self.records())
        return margin_frame(
            {name: run.map for name, run in self._read().items() if run is not None}
        )

    @property
    def text(self) -> str:
        """Return the table that `needlemap report` prints, or a line for a single map.

        There is a table for several models or families. A check, an ab and a storm have their
        report.
        """
        if len(self.models) > 1:
            return to_text(models_report([run.path for run in self.models.values()]))
        families = families_of(self.path)
        if not families.is_plain:
            runs_by_family = self._read()
            report = finding_report(families, runs_by_family)
            return to_text(report or suite_report(families, runs_by_family))
        map, sought = self.map(), self.sought
        if sought is not None:
            return f"Run('{self.path}': {map.model}, {map.task}, {length_line(sought)})"
        summary = f"{map.model}, {map.task}, {length_range(map.lengths)}, {overall_label(map)}"
        return f"Run('{self.path}': {summary})"

    def plot(
        self,
        *,
        title: str | None = None,
        palette: str | None = None,
        width: str | None = None,
        style: str | None = None,
        curves: bool = False,
    ) -> Drawing:
        """Return the map as a picture, or the maps of all families.

        width: for a paper, e.g. '3.25in' or 'column'. style: 'opencompass' or 'needlehaystack', as
        that tool draws it. curves: scores by length instead, a line a model or a family.
        """
        runs = [load_run(path) for path in self._folders()]
        if curves and not any(map(seeks, runs)):
            return curves_of([self], title=title, width=width)
        figure = figure_of(runs, title=title, palette=palette, style=style)
        return draw(figure, points_wide(width))

    def save(
        self,
        path: str | Path,
        *,
        title: str | None = None,
        palette: str | None = None,
        width: str | None = None,
        style: str | None = None,
        curves: bool = False,
    ) -> Path:
        """Write the maps (.png, .svg, .pdf), the page (.html) or the cells (.csv, .parquet).

        The suffix decides. width, style, curves: of a figure, as `plot` takes them. Raises
        SettingsError for any other suffix.
        """
        if Path(path).suffix.lower() == ".html":
            pages = [run.path for run in self.models.values()]
            return write_page(pages, path, title=title, palette=palette)
        if is_table(path):
            return write_table([load_run(run) for run in self._folders()], path)
        look = {"title": title, "palette": palette, "width": width, "style": style}
        return self.plot(**look, curves=curves).save(path)

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Any:
        """Return what a notebook shows: the picture and the text."""
        return self.plot().with_text(self.text)

    def _only(self) -> Path:
        """Return the folder of a run, or raise NeedlemapError if it has several families."""
        families = families_of(self._one_model())
        if not families.is_plain:
            raise NeedlemapError(
                f"'{self.path}' has several families. Take one of them: "
                f".families[{families.names[0]!r}]"
            )
        return self.path

    def _one_model(self) -> Path:
        """Return the folder of a run, or raise NeedlemapError if it has several models."""
        names = list(self.models)
        if len(names) > 1:
            raise NeedlemapError(
                f"'{self.path}' has several models. Take one of them: .models[{names[0]!r}]"
            )
        return self.path

    def _folders(self) -> list[Path]:
        """Return the folders of all families of all models."""
        return [folder for run in self.models.values() for folder in families_of(run.path).folders]

    def _read(self) -> dict[str, Loaded | None]:
        return read_families(families_of(self._one_model()))


def _seeks_any(runs_by_family: Mapping[str, Loaded | None]) -> bool:
    return any(seeks(run) for run in runs_by_family.values() if run is not None)


def curves_of(runs: Sequence[Run], *, title: str | None, width: str | None) -> Drawing:
    """Draw scores by length, with a line for each model or, for suites, for each family."""
    families = [families_of(model.path) for run in runs for model in run.models.values()]
    return draw_families(families, title=title, width=points_wide(width))


@dataclass(frozen=True)
class Compared:
    """B against A, on the trials that both scored.

    Scores are in percent, losses in points; positive is worse. Of runs with several families
    verdict, loss, interval and p are of the mean over families, each counting the same. runs: A's
    and B's families, in turn.
    """

    comparison: Comparison
    names: Names
    runs: tuple[Loaded, ...]

    @property
    def verdict(self) -> Verdict | None:
        """Return the verdict at the margin, or None if there is no margin.

        It has word, claim, evidence, scope and next.
        """
        return self._report.verdict

    @property
    def code(self) -> int:
        """Return the exit code of the verdict, or 0 if there is no verdict."""
        return exit_code(self.verdict.word) if self.verdict else 0

    @property
    def sentence(self) -> str:
        """Return the last line of `needlemap compare`: the verdict, or the loss."""
        return self._report.last_line

    @property
    def warning(self) -> str:
        """Return why the comparison proves little, or '' if it does not prove little."""
        return " ".join(warnings_of(self.comparison.paired)).removeprefix("warning: ")

    @property
    def loss(self) -> float | None:
        """Return A - B, or None if no pair has both scores or scores are not counted."""
        loss = self.comparison.paired.loss
        return None if loss is None else 100 * loss.value

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the interval of the loss, as the verdict has it."""
        loss = self.comparison.paired.loss
        return None if loss is None else (100 * loss.low, 100 * loss.high)

    @property
    def p(self) -> float | None:
        """Return the p of no difference, or None if `loss` is None.

        Exact McNemar for pass and fail, sign flips for graded scores.
        """
        return self.comparison.p

    @property
    def n(self) -> int:
        """Return the number of pairs."""
        return self.comparison.overall.n

    @property
    def lengths(self) -> list[dict[str, Any]]:
        """Return the results at each length, or [] if the runs have several families.

        A row has, among other keys, length_tokens, score_a, score_b, loss, low, high, n, p and
        p_holm.
        """
        return self._rows() if self.comparison.only else []

    @property
    def families(self) -> list[dict[str, Any]]:
        """Return the results of each family, or [] if the runs have one family.

        A row has, among other keys, family, word, score_a, score_b, loss, low, high, n, p and
        p_holm. A comparison without a margin has no word.
        """
        return [] if self.comparison.only else self._rows()

    def _rows(self) -> list[dict[str, Any]]:
        # The first table is that by length or, of several families, that by family.
        return self._report.all_tables[0].plain()

    @property
    def _report(self) -> Report:
        return comparison_report(self.comparison, self.names)

    @property
    def answers(self) -> dict[str, int]:
        """Return the counts of pairs: n, identical, differing, and unanswered by B.

        `answers_text` and JSON list them.
        """
        return answers_counts(self.comparison.answers)

    @property
    def answers_text(self) -> str:
        """Return the lines of `needlemap compare --answers` on the answers that differ."""
        return printable("\n".join(answers_text(self.comparison, with_list=True)))

    @property
    def text(self) -> str:
        """Return what `needlemap compare` prints."""
        return to_text(self._report)

    def to_json(self) -> dict[str, Any]:
        """Return what `needlemap compare --answers --json` prints.

        It has every family, length, cell and changed answer.
        """
        return to_json(comparison_report(self.comparison, self.names, answers=True))

    def to_pandas(self) -> Any:
        """Return a frame with a row for each length or, if there are several, for each family.

        If pandas is not installed, NeedlemapError is raised.
        """
        return to_pandas(self._report)

    def plot(
        self, *, title: str | None = None, palette: str | None = None, width: str | None = None
    ) -> Drawing:
        """Return all maps; of runs with one family that of the difference too.

        width: as --width takes it. Raises SettingsError.
        """
        return draw(figure_of(self.runs, title=title, palette=palette), points_wide(width))

    def save(
        self,
        path: str | Path,
        *,
        title: str | None = None,
        palette: str | None = None,
        width: str | None = None,
    ) -> Path:
        """Write these maps as .png, .svg or .pdf.

        width: as --width takes it. Raises SettingsError.
        """
        return self.plot(title=title, palette=palette, width=width).save(path)

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Any:
        """Return what a notebook shows: the picture and the text."""
        return self.plot().with_text(self.text)
