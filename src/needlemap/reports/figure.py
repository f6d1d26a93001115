"""A figure on disk: heat maps as PNG, SVG or PDF, as large as a screen likes them or at a given width."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from needlemap.errors import SettingsError
from needlemap.files import write_report
from needlemap.maps.comparison import Comparison
from needlemap.maps.map import Map
from needlemap.printable import printable

SCREEN_PPI, PRINT_PPI = 144, 360  # whole pixels to a point: two, and five
TRIES = 8  # to come to a width: letters that are wider than they are taken to be need some
_ROOT = re.compile(r'width="([\d.]+)" height="([\d.]+)" viewBox="[^"]*"><rect width="[\d.]+" height="[\d.]+"')


@dataclass(frozen=True, slots=True)
class Shown:
    """One run in a figure. title: over its map, None for the one made of model, task and lengths."""

    map: Map
    title: str | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """Runs in their order, and of two runs the comparison, if it is to be shown.

    title: over several maps. palette: of the scores.
    """

    runs: tuple[Shown, ...]
    comparison: Comparison | None = None
    title: str | None = None
    palette: str = "amber"

    @property
    def count(self) -> int:
        """How many panels."""
        return len(self.runs) + (self.comparison is not None)


@dataclass(frozen=True, slots=True)
class Drawing:
    """An SVG picture and its size in points. printed: whether its size is physical."""

    svg: str
    width: float
    height: float
    printed: bool = False


def write_figure(figure: Figure, path: Path | str, *, width: float | None = None) -> Path:
    """Write the figure in the format that the suffix names; folders are made. Raises SettingsError.

    width: of the whole figure in points, which it gets exactly; None for a screen's.
    """
    target = Path(path)
    content = figure_bytes(figure, target.suffix, width=width)
    return write_report(target, content)


def figure_bytes(figure: Figure, suffix: str, *, width: float | None = None) -> bytes:
    """The file's content. suffix: .png, .svg or .pdf. Raises SettingsError for any other."""
    kind = suffix.lower().lstrip(".")
    if kind not in WRITERS:
        raise SettingsError(f"Cannot write a map as '{suffix}'. Give a name that ends in {', '.join(KINDS)}.")
    return WRITERS[kind](drawn(figure, width))


def drawn(figure: Figure, width: float | None = None) -> Drawing:
    """The figure as SVG. A width leaves the maps what letters and axes beside them do not take."""
    from needlemap.reports.panels import across, figure_chart  # late: Altair takes a while to import

    if width is None:
        return _rendered(figure_chart(figure))
    side_by_side = across(figure, width)
    each = 0.75 * width / side_by_side
    found = _rendered(figure_chart(figure, width, each))
    for _ in range(TRIES):
        each += (width - found.width) / side_by_side
        found = _rendered(figure_chart(figure, width, each))
        if found.width <= width:
            break
    return _exactly(found, width)


def _rendered(spec: dict[str, object]) -> Drawing:
    import vl_convert

    svg = str(vl_convert.vegalite_to_svg(_drawable(spec)))
    found = _ROOT.search(svg)
    if found is None:
        raise RuntimeError(f"vl-convert begins a picture in another way than it did: {svg[:300]}")
    return Drawing(svg, float(found[1]), float(found[2]))


def _drawable(part: Any) -> Any:
    """A specification whose texts, which may be a stranger's, hold no control codes: one of them (NUL) ends
    the whole process in the library that draws."""
    if isinstance(part, str):
        return printable(part)
    if isinstance(part, dict):
        return {name: _drawable(value) for name, value in part.items()}
    return [_drawable(value) for value in part] if isinstance(part, list | tuple) else part


def _exactly(drawing: Drawing, width: float) -> Drawing:
    """The picture in the middle of a page of that width; made smaller in the odd case that it is wider."""
    shown = max(width, drawing.width)
    height = drawing.height * width / shown
    side, box = (shown - drawing.width) / 2, f'width="{shown:g}" height="{drawing.height:g}"'
    root = (
        f'width="{width:g}" height="{height:g}" viewBox="{-side:g} 0 {shown:g} {drawing.height:g}">'
        f'<rect x="{-side:g}" {box}'
    )
    return Drawing(_ROOT.sub(root, drawing.svg, count=1), width, height, printed=True)


def _png(drawing: Drawing) -> bytes:
    import vl_convert

    ppi = PRINT_PPI if drawing.printed else SCREEN_PPI
    return bytes(vl_convert.svg_to_png(drawing.svg, ppi=ppi))


def _svg(drawing: Drawing) -> bytes:
    """With its size in points where that is meant; plain numbers are pixels, 96 to the inch."""
    if not drawing.printed:
        return drawing.svg.encode()
    size = f'width="{drawing.width:g}" height="{drawing.height:g}"'
    return drawing.svg.replace(size, f'width="{drawing.width:g}pt" height="{drawing.height:g}pt"', 1).encode()


def _pdf(drawing: Drawing) -> bytes:
    import vl_convert

    return bytes(vl_convert.svg_to_pdf(drawing.svg))


WRITERS: dict[str, Callable[[Drawing], bytes]] = {"png": _png, "svg": _svg, "pdf": _pdf}
FIGURES = tuple(f".{kind}" for kind in WRITERS)
KINDS = (*FIGURES, ".html", ".csv", ".parquet")  # all that a report can be
