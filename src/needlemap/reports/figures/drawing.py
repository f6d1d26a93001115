"""A picture as SVG, PNG and PDF."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from zlib import crc32

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.extras import install_line
from needlemap.files import write_report
from needlemap.reports.figures.shapes import (
    FONT,
    HATCH,
    HATCHED,
    ON_SCREEN,
    PRINT_PPI,
    SCREEN_PPI,
    number,
    rect,
)
from needlemap.text import printable

FIGURES = (".png", ".svg", ".pdf")
# All that a report can be.
KINDS = (*FIGURES, ".html", ".md", ".csv", ".parquet")
_FONTS = [
    str(Path(__file__).with_name("fonts") / f"LiberationSans-{style}.ttf")
    for style in ("Regular", "Bold")
]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture.

    Attributes:
        parts: Its elements.
        width, height: Its size in the points that these are in.
        printed: Whether a point is 1/72 inch; on a screen it is `ON_SCREEN` pixels.
    """

    parts: tuple[str, ...]
    width: float
    height: float
    printed: bool = False

    @property
    def svg(self) -> str:
        """Return the picture as an SVG file. Plain numbers in it are pixels, 96 to the inch."""
        return self._svg("pt", 1.0) if self.printed else self._svg("", ON_SCREEN)

    def inline(self, words: str) -> str:
        """Return the picture as a part of a page.

        The page sets its size, and its colours on a dark ground (`drawn` in the style sheet).
        words: what it shows, for people who cannot see it; '' if that stands next to it.
        """
        spoken = f'role="img" aria-label="{escape(printable(words))}"' if words else ""
        size = f'viewBox="0 0 {number(self.width)} {number(self.height)}"'
        start = f'<svg xmlns="http://www.w3.org/2000/svg" class="drawn" {size} {spoken}'
        hatch = HATCH if any(HATCHED in part for part in self.parts) else ""
        return "".join([f'{start} font-family="{FONT}">', hatch, *self.parts, "</svg>"])

    @property
    def png(self) -> bytes:
        """Return the picture as a PNG file that states its dots to the inch."""
        # Late, because few commands draw.
        import resvg_py

        scale, ppi = (1.0, PRINT_PPI) if self.printed else (ON_SCREEN, SCREEN_PPI)
        # The size is in the SVG: the converter's own zoom rounds to whole points first.
        png = resvg_py.svg_to_bytes(
            svg_string=self._svg("", scale * ppi / 72), background="white", font_files=_FONTS
        )
        return _with_ppi(png, ppi)

    @property
    def pdf(self) -> bytes:
        """Return the picture as a PDF file with its fonts.

        Raises NeedlemapError without vl-convert.
        """
        try:
            import vl_convert
        except ImportError:
            raise NeedlemapError(
                f"A .pdf file needs vl-convert. Run: {install_line('pdf')}"
            ) from None

        return bytes(vl_convert.svg_to_pdf(self._svg("", 1.0 if self.printed else ON_SCREEN)))

    def _svg(self, unit: str, scale: float) -> str:
        """Return the picture with its size as so many times its points in a unit.

        The converter takes plain numbers for points.
        """
        width, height = number(self.width), number(self.height)
        size = (
            f'width="{number(self.width * scale)}{unit}" '
            f'height="{number(self.height * scale)}{unit}"'
        )
        start = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}"'
        ground = rect(0, 0, self.width, self.height, "white")
        return "\n".join([f'{start} font-family="{FONT}">', HATCH, ground, *self.parts, "</svg>"])

    def as_file(self, suffix: str) -> bytes:
        """Return a file's content. Raises SettingsError for an unknown suffix."""
        kind = suffix.lower()
        if kind not in FIGURES:
            raise SettingsError(
                f"Cannot write a map as '{suffix}'. Give a name that ends in {', '.join(KINDS)}."
            )
        if kind == ".svg":
            return self.svg.encode()
        return self.png if kind == ".png" else self.pdf

    def save(self, path: Path | str) -> Path:
        """Write the picture in the format that the suffix names, and make its folders.

        If the suffix names no format, SettingsError is raised.
        """
        return write_report(Path(path), self.as_file(Path(path).suffix))

    def with_text(self, words: str) -> tuple[dict[str, object], dict[str, object]]:
        """Return what a notebook shows, which needs no network, and what a plain console shows."""
        scale = 96 / 72 if self.printed else ON_SCREEN
        size = {"width": round(self.width * scale), "height": round(self.height * scale)}
        formats: dict[str, object] = {
            "image/svg+xml": self.svg,
            "image/png": self.png,
            "text/plain": words,
        }
        return formats, {"image/png": size}

    def __repr__(self) -> str:
        return f"Drawing({self.width:g} x {self.height:g} points)"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Any:
        return self.with_text(repr(self))


def _with_ppi(png: bytes, ppi: int) -> bytes:
    """Return the same PNG with its dots to the inch stated."""
    dots_per_metre = round(ppi / 0.0254)
    chunk = b"pHYs" + struct.pack(">IIB", dots_per_metre, dots_per_metre, 1)
    framed_chunk = struct.pack(">I", 9) + chunk + struct.pack(">I", crc32(chunk))
    # The signature and the first chunk, which has one size.
    head, tail = png[:33], png[33:]
    return head + framed_chunk + tail
