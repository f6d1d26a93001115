"""Figures on disk."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from needlemap.errors import SettingsError
from needlemap.maps.map import Map
from needlemap.reports.figure import figure_bytes, write_figure


def test_png_is_a_picture_of_a_sensible_size(mixed: Map, tmp_path: Path) -> None:
    content = write_figure(mixed, tmp_path / "new" / "map.png").read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", content[16:24])
    assert 900 < width < 2000
    assert 500 < height < 1400


def test_svg_is_xml_with_the_title_and_hatched_cells(mixed: Map) -> None:
    content = figure_bytes(mixed, ".svg")
    assert ElementTree.fromstring(content).tag == "{http://www.w3.org/2000/svg}svg"
    assert b"linearGradient" in content
    assert "1k–128k tokens".encode() in content


def test_pdf_is_a_pdf(mixed: Map) -> None:
    assert figure_bytes(mixed, ".PDF")[:5] == b"%PDF-"


def test_html_needs_no_network(mixed: Map) -> None:
    page = figure_bytes(mixed, ".html").decode()
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)
    assert not re.search(r"""(import|from)\s*\(?["']https?:""", page)
    assert "a-model" in page


def test_a_name_cannot_break_out_of_the_page(mixed: Map) -> None:
    """vl-convert writes names into a script as they are."""
    page = figure_bytes(replace(mixed, model="x</script><script>alert(1)</script>"), ".html").decode()
    assert "<script>alert" not in page
    assert r"x\u003c/script>" in page


def test_chinese_names_stay_text_in_svg(make_map: Any, make_cell: Any) -> None:
    content = figure_bytes(make_map([make_cell(1000, 0.0, 1.0)], model="书生", task="单针"), ".svg").decode()
    assert "书生 · 单针" in content


def test_no_cell_measured_is_still_a_picture(make_map: Any, make_cell: Any) -> None:
    assert figure_bytes(make_map([make_cell(1000, 0.0, None, missing=1)]), ".svg")


def test_csv_goes_through_the_same_door(mixed: Map) -> None:
    assert figure_bytes(mixed, ".csv").startswith(b"length_tokens,depth_percent")


def test_an_unknown_suffix_lists_the_known_ones(mixed: Map, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"'\.bmp'.*png, \.svg, \.pdf, \.html, \.csv"):
        write_figure(mixed, tmp_path / "map.bmp")
    assert not list(tmp_path.iterdir())


def test_the_pages_menu_sends_nothing_to_an_online_editor(mixed):
    page = figure_bytes(mixed, ".html").decode()
    assert '"editor": false' in page or '"editor":false' in page
