"""A figure on disk: the heat map as PNG, SVG, PDF or a page that needs no network, or the table as CSV."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from needlemap.errors import SettingsError
from needlemap.maps.map import Map
from needlemap.reports.table import cells_csv

STAND_IN = "\uf8fe"  # a private letter for '<' while vl-convert writes the page
PNG_SCALE = 2.0  # pixels per point: sharp at a column's width


def write_figure(map: Map, path: Path | str, *, title: str | None = None, palette: str = "amber") -> Path:
    """Write the map in the format that the suffix names; folders are made. Raises SettingsError."""
    target = Path(path)
    content = figure_bytes(map, target.suffix, title=title, palette=palette)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return target


def figure_bytes(map: Map, suffix: str, *, title: str | None = None, palette: str = "amber") -> bytes:
    """The file's content. suffix: .png, .svg, .pdf, .html or .csv. Raises SettingsError for any other."""
    kind = suffix.lower().lstrip(".")
    if kind == "csv":
        return cells_csv(map).encode()
    if kind not in DRAWERS:
        raise SettingsError(f"Cannot write a map as '{suffix}'. Give a name that ends in {', '.join(KINDS)}.")
    from needlemap.reports.chart import heat_map  # late: Altair takes a while to import

    return DRAWERS[kind](heat_map(map, title=title, palette=palette).to_dict())


def _png(spec: dict[str, Any]) -> bytes:
    import vl_convert

    return bytes(vl_convert.vegalite_to_png(spec, scale=PNG_SCALE))


def _svg(spec: dict[str, Any]) -> bytes:
    import vl_convert

    return str(vl_convert.vegalite_to_svg(spec)).encode()


def _pdf(spec: dict[str, Any]) -> bytes:
    import vl_convert

    return bytes(vl_convert.vegalite_to_pdf(spec))


def _html(spec: dict[str, Any]) -> bytes:
    """A page with Vega inside, whose menu saves the figure and sends it to no online editor.

    vl-convert writes names into a script as they are: '<' is kept out of it.
    """
    import vl_convert

    offline = {
        "embedOptions": {"actions": {"export": True, "source": False, "compiled": False, "editor": False}}
    }
    guarded = json.dumps({**spec, "usermeta": offline}, ensure_ascii=False).replace("<", STAND_IN)
    page = str(vl_convert.vegalite_to_html(guarded, bundle=True))
    return page.replace(STAND_IN, "\\u003c").encode()


DRAWERS: dict[str, Callable[[dict[str, Any]], bytes]] = {"png": _png, "svg": _svg, "pdf": _pdf, "html": _html}
KINDS = (".png", ".svg", ".pdf", ".html", ".csv")
