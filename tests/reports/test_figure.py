"""Figures on disk: formats, exact widths, letters that are there."""

from __future__ import annotations

import io
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from needlemap.errors import NeedlemapError, SettingsError
from needlemap.extras import install_line
from needlemap.reports import figures, parse_width
from needlemap.reports.figures.drawing import FIGURES, Drawing
from needlemap.reports.figures.figure import Figure, Shown, draw
from needlemap.reports.figures.shapes import TEXT, TITLE, text, text_width
from needlemap.stats.means import Map

SVG = "{http://www.w3.org/2000/svg}"


def one(map: Map, title: str | None = None) -> Figure:
    return Figure((Shown(map, title),))


def png_size(content: bytes) -> tuple[int, int, int]:
    """Width and height in pixels, and pixels per metre as the file says them."""
    width, height = struct.unpack(">II", content[16:24])
    at = content.index(b"pHYs")
    across, down, unit = struct.unpack(">IIB", content[at + 4 : at + 13])
    assert (across, unit) == (down, 1)
    return width, height, across


def page(content: bytes) -> Any:
    pypdf = pytest.importorskip("pypdf", reason="pip install '.[test]'")
    (only,) = pypdf.PdfReader(io.BytesIO(content)).pages
    return only


def test_png_is_a_picture_for_screens(mixed: Map, tmp_path: Path) -> None:
    content = draw(one(mixed)).save(tmp_path / "new" / "map.png").read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, _ = png_size(content)
    assert 900 < width < 2000
    assert 500 < height < 1400


@pytest.mark.parametrize("width", ["3.25in", "8.4cm", "page"])
@pytest.mark.parametrize("shape", [(2, 3), (15, 11), (35, 35)])
def test_a_pdf_is_exactly_as_wide_as_asked_with_its_fonts_in_it(
    make_grid: Any, width: str, shape: tuple[int, int]
) -> None:
    found = page(draw(one(make_grid(*shape)), parse_width(width)).as_file(".pdf"))
    assert float(found.mediabox.width) == pytest.approx(parse_width(width), abs=0.01)
    assert found.get("/UserUnit", 1) == 1
    fonts = [font.get_object() for font in found["/Resources"]["/Font"].values()]
    assert fonts
    for font in fonts:
        (inner,) = font["/DescendantFonts"]
        assert {"/FontFile2", "/FontFile3"} & set(
            inner.get_object()["/FontDescriptor"].get_object()
        )


def test_a_printed_png_has_360_dots_to_the_inch_and_says_so(mixed: Map) -> None:
    width, _, per_metre = png_size(draw(one(mixed), parse_width("3.25in")).as_file(".png"))
    assert width == 3.25 * 360
    assert per_metre == round(360 / 0.0254)


def test_a_printed_svg_has_its_size_in_points(mixed: Map) -> None:
    root = ElementTree.fromstring(draw(one(mixed), parse_width("8.4cm")).as_file(".svg"))
    assert float(root.attrib["width"].removesuffix("pt")) == pytest.approx(238.11, abs=0.01)
    assert root.attrib["height"].endswith("pt")


@pytest.mark.parametrize("shape", [(2, 3), (35, 35)])
def test_printed_letters_are_7_and_8_points_and_none_lies_on_another(
    make_grid: Any, shape: tuple[int, int]
) -> None:
    root = ElementTree.fromstring(draw(one(make_grid(*shape)), 234.0).as_file(".svg"))
    left, _, wide, high = map(float, root.attrib["viewBox"].split())
    assert (
        float(root.attrib["width"].removesuffix("pt")) == wide
    )  # drawn at its size, not scaled down
    sizes = {text.attrib["font-size"] for text in root.iter(f"{SVG}text")}
    assert sizes <= {f"{TITLE:g}", f"{TEXT:g}"}
    boxes = [box for box in labels(root) if box]
    assert all(left <= box[0] and box[2] <= left + wide and box[3] <= high for box in boxes)
    assert not [(a, b) for a in boxes for b in boxes if a < b and overlap(a, b)]


Box = tuple[float, float, float, float]


def labels(root: ElementTree.Element) -> list[Box]:
    """Where each level text is, by 0.52 of its size a letter: left, top, right, bottom."""
    found: list[Box] = []
    walk(root, 0.0, 0.0, found)
    return found


def walk(element: ElementTree.Element, x: float, y: float, found: list[Box]) -> None:
    moved = element.attrib.get("transform", "")
    if "rotate" in moved:
        return
    if moved.startswith("translate("):
        across, down = moved[10:-1].split()
        x, y = x + float(across), y + float(down)
    if element.tag == f"{SVG}text" and (element.text or "").strip():
        size = float(element.attrib["font-size"])
        wide = 0.52 * size * len(element.text or "")
        x, y = x + float(element.attrib["x"]), y + float(element.attrib["y"])
        start = {"end": x - wide, "middle": x - wide / 2}.get(
            element.attrib.get("text-anchor", ""), x
        )
        found.append((start, y - 0.75 * size, start + wide, y))
    for child in element:
        walk(child, x, y, found)


def overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def test_svg_is_xml_with_the_title_and_hatched_cells(mixed: Map) -> None:
    content = draw(one(mixed)).as_file(".svg")
    assert ElementTree.fromstring(content).tag == f"{SVG}svg"
    assert b"url(#hatch)" in content
    assert "1k–128k tokens".encode() in content


@pytest.mark.parametrize("width", [None, 234.0])
def test_a_name_is_text_whatever_is_in_it(
    make_map: Any, make_cell: Any, width: float | None
) -> None:
    name = '</text><script>alert(1)</script> & "x" {{datum}}'
    content = (
        draw(one(make_map([make_cell(1000, 0.0, 1.0)], model=name)), width).as_file(".svg").decode()
    )
    root = ElementTree.fromstring(content)
    assert not list(root.iter(f"{SVG}script"))
    said = " ".join("".join(text.itertext()) for text in root.iter(f"{SVG}text"))
    assert "<script>alert(1)</script>" in said
    assert "{{datum}}" in said


def test_chinese_names_stay_text_in_svg(make_map: Any, make_cell: Any) -> None:
    map = make_map([make_cell(1000, 0.0, 1.0)], model="书生", task="单针")
    assert "书生 · 单针" in draw(one(map)).as_file(".svg").decode()


@pytest.mark.parametrize("length", [40, 400])
def test_a_long_chinese_name_is_wrapped_into_the_width(
    make_map: Any, make_cell: Any, length: int
) -> None:
    map = make_map([make_cell(1000, 0.0, 1.0)], model="浦" * length)
    found = page(draw(one(map), 234.0).as_file(".pdf"))
    assert float(found.mediabox.width) == 234
    assert 'viewBox="0 0 234 ' in draw(one(map), 234.0).as_file(".svg").decode()


def test_no_cell_measured_is_still_a_picture(make_map: Any, make_cell: Any) -> None:
    nothing = one(make_map([make_cell(1000, 0.0, None, missing=1)]))
    assert draw(nothing).as_file(".svg")
    assert draw(nothing, 234.0).as_file(".pdf")


def test_an_unknown_suffix_lists_the_known_ones(mixed: Map, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"'\.bmp'.*png, \.svg, \.pdf"):
        draw(one(mixed)).save(tmp_path / "map.bmp")
    assert not list(tmp_path.iterdir())


def test_all_formats_have_one_font(mixed: Map) -> None:
    svg = draw(one(mixed)).as_file(".svg").decode()
    assert set(re.findall(r'font-family="([\w ]+)', svg)) == {"Liberation Sans"}
    fonts = page(draw(one(mixed)).as_file(".pdf"))["/Resources"]["/Font"].values()
    assert all("LiberationSans" in font.get_object()["/BaseFont"] for font in fonts)


@pytest.mark.parametrize(
    "words", ["openai/gpt-4o-mini · 1k–128k tokens", "92.5 % [83.1, 97.0] WAVy @~|", "fit jill"]
)
@pytest.mark.parametrize("bold", [False, True])
def test_a_texts_width_is_what_the_font_makes_of_it(words: str, bold: bool) -> None:
    """Measured on a picture: the last dark column."""
    width, end = ink_end(Drawing((text(0, 20, words, 20, bold=bold),), 800, 30, printed=True).png)
    assert (
        0.9 * text_width(words, 20, bold=bold)
        < 800 * end / width
        < 1.05 * text_width(words, 20, bold=bold) + 1
    )


def ink_end(png: bytes) -> tuple[int, int]:
    """The width of a picture and its last column that is not white, in pixels."""
    image = pytest.importorskip("PIL.Image", reason="pip install '.[test]'")
    shown = image.open(io.BytesIO(png)).convert("L")
    _, _, end, _ = shown.point(lambda grey: 255 * (grey < 128)).getbbox()
    return shown.width, end


def test_a_png_has_its_letters_on_a_machine_without_fonts(tmp_path: Path) -> None:
    """The font is in the package: the same picture with and without fonts of the system."""
    parts = (text(0, 20, "92.5 % of 1k–128k", 20), text(0, 50, "A", 20, bold=True))
    code = (
        "from pathlib import Path; from needlemap.reports.figures.drawing import Drawing\n"
        f"Path('bare.png').write_bytes(Drawing({parts!r}, 300, 60).png)"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "FONTCONFIG_FILE": os.devnull, "HOME": str(tmp_path)},
        check=True,
    )
    png = Drawing(parts, 300, 60).png
    assert (tmp_path / "bare.png").read_bytes() == png
    assert ink_end(png)[1] > 400


@pytest.mark.parametrize("kind", FIGURES)
@pytest.mark.parametrize("odd", ["\0", "\x1b[2J", "\ufffe", "\uffff", "\udcff", "\U0010ffff"])
def test_a_strangers_text_of_any_characters_is_drawn(odd: str, kind: str) -> None:
    drawing = Drawing((text(0, 9, f"a{odd}b"),), 300, 20)
    assert drawing.as_file(kind)
    assert "".join(ElementTree.fromstring(drawing.svg).itertext()).strip().startswith("a")


def test_the_fonts_have_their_licence_beside_them() -> None:
    folder = Path(figures.__file__).with_name("fonts")
    names = [path.name for path in sorted(folder.iterdir())]
    assert names == ["LICENSE", "LiberationSans-Bold.ttf", "LiberationSans-Regular.ttf"]
    assert "SIL OPEN FONT LICENSE Version 1.1" in (folder / "LICENSE").read_text("utf-8")


def test_without_vl_convert_a_pdf_names_the_line_to_type(
    mixed: Map, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(NeedlemapError) as error:
        draw(one(mixed)).save(tmp_path / "map.pdf")
    assert str(error.value) == f"A .pdf file needs vl-convert. Run: {install_line('pdf')}"
    assert not list(tmp_path.iterdir())
    assert draw(one(mixed)).as_file(".png")
