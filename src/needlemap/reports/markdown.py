"""A report as Markdown: maps as tables, of two runs what changed, and the figure as an SVG beside it.

For what shows Markdown and no picture of ours, as a job's summary in CI does. It holds no verdict: that is
what `ab`, `check` and `compare` print.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from needlemap.files import write_report
from needlemap.reports.labels import depth_labels, length_labels, overall_label, points, score_label
from needlemap.text import printable

if TYPE_CHECKING:
    from needlemap.maps import Cell
    from needlemap.reports.figures.canvas import Drawing
    from needlemap.reports.figures.figure import Figure

SUFFIX = ".md"
_MARKS = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_{}[]<>()#+-!|~$"})


def write_markdown(figure: Figure, drawing: Drawing, out: Path) -> Path:
    """The file, and its picture under the same name."""
    picture = drawing.save(out.with_suffix(".svg"))
    return write_report(out, markdown(figure, picture.name).encode())


def markdown(figure: Figure, picture: str) -> str:
    """All of it. picture: the file that the figure is in."""
    parts = [f"![{_plain(figure.title or 'The map')}]({_address(picture)})"]
    if figure.comparison is not None:
        changes = {(cell.length_tokens, cell.depth): points(cell.change) for cell in figure.comparison.cells}
        first, second = (_plain(run.map.model) for run in figure.runs)
        parts += [f"**{second} less {first}**, in points", _table(changes)]
    for run in figure.runs:
        scores = {(cell.length_tokens, cell.depth): score_label(cell.score) for cell in run.map.cells}
        about = f"**{_plain(run.map.model)}**, {_plain(run.map.task)}: {_plain(overall_label(run.map))}"
        parts += [about, _table(scores)]
    return "\n\n".join(parts) + "\n"


def _table(cells: Mapping[Cell, str]) -> str:
    """Lengths across, depths down; empty where a depth has no cell of a length."""
    lengths, depths = (sorted({cell[axis] for cell in cells}) for axis in (0, 1))
    across = length_labels([int(length) for length in lengths])
    down = depth_labels(depths)
    rows = [["", *across.values()], ["---:"] * (len(lengths) + 1)]
    rows += [[down[depth], *(cells.get((int(n), depth), "") for n in lengths)] for depth in depths]
    return "\n".join(_row(row) for row in rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """A text, which may be a stranger's, as Markdown that means nothing else."""
    return printable(text, line=True).translate(_MARKS)


def _address(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-._" else "%20" for letter in name)
