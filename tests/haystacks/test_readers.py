"""HTML and PDF as text, by a process that a hostile document cannot hold."""

from __future__ import annotations

import io
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest
from pypdf import PdfWriter

from needlemap.errors import HaystackError
from needlemap.haystacks import readers
from needlemap.haystacks.readers import Process, Unreadable, converted

PAGE = """<?xml version="1.0" encoding="latin1"?><!doctype html><html><head><title>T</title>
<meta charset="latin1"><style>p {color: red}</style><script src="http://127.0.0.1:9/x.js">alert(1)</script>
</head><body><h1>Grüße &amp; more</h1><p>One <b>w</b>ord.<br>A line.</p><noscript>none</noscript>
<img src="http://127.0.0.1:9/x.png"><ul><li>first<li>second</ul><pre>x
  y</pre></body></html>"""


def pdf(*pages: str, password: str = "") -> bytes:
    """A PDF with a line of text on each page."""
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer = PdfWriter()
    for text in pages:
        page = writer.add_blank_page(300, 300)
        stream = DecodedStreamObject()
        stream.set_data(f"BT /F1 12 Tf 10 100 Td ({text}) Tj ET".encode())
        font = {NameObject(f"/{key}"): NameObject(f"/{value}") for key, value in FONT.items()}
        fonts = DictionaryObject({NameObject("/F1"): DictionaryObject(font)})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        page[NameObject("/Contents")] = stream
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    made = io.BytesIO()
    writer.write(made)
    return made.getvalue()


FONT = {"Type": "Font", "Subtype": "Type1", "BaseFont": "Helvetica"}


@pytest.fixture
def process():
    made = Process()
    yield made
    made.close()


def test_a_page_is_what_it_shows(process):
    said = process.text("html", PAGE.encode()).decode()
    assert " ".join(said.split()) == "Grüße & more One word. A line. * first * second x y"
    assert "more\n\nOne word.\nA line.\n" in said
    assert "x\n  y" in said


def test_a_pdf_is_its_pages(process):
    assert (
        process.text("pdf", pdf("One sentence.", "Another one."))
        == b"One sentence.\n\nAnother one."
    )


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        ("pdf", b"no pdf", "no PDF that can be read"),
        ("pdf", pdf("One.", password="secret"), "no PDF that can be read: it is encrypted"),
        ("html", b"<div>" * 200_000 + b"x", "no HTML that can be read: maximum recursion"),
    ],
)
def test_a_document_that_cannot_be_read_says_why_and_the_next_one_is_read(
    process, kind, data, words
):
    with pytest.raises(Unreadable, match=words):
        process.text(kind, data)
    assert process.text("html", b"<p>Next.") == b"Next."


def test_deep_and_long_pages_are_read_whole(process):
    """The parser's usual bounds cut what lies 256 tags deep, or is longer than 10 MB, without a
    word."""
    assert process.text("html", b"<div>" * 400 + b"deep") == b"deep"
    assert len(process.text("html", b"<p>" + b"long " * 2_200_000)) == 10_999_999


def test_what_takes_too_long_is_ended_and_the_next_one_is_read():
    slow = Process(wait_s=0.4)
    begun = time.monotonic()
    with pytest.raises(Unreadable, match="takes more than 30 s or 1 GB to read"):
        slow.text("html", b"<p>x<b>y</b>" * 1_000_000)
    assert time.monotonic() - begun < 60
    slow.close()


def test_the_reader_has_its_time_memory_and_files_bounded(tmp_path):
    code = f"""
import sys
sys.path.insert(0, {str(Path(readers.__file__).parent)!r})
import readers, resource
readers.limit_memory()
readers.limit_time()
print(resource.getrlimit(resource.RLIMIT_CPU)[0])
for what in (lambda: bytearray(2 << 30), lambda: open({str(tmp_path / "x")!r}, "w").write("x" * 9)):
    try:
        print(len(what()))
    except (MemoryError, OSError) as error:
        print(type(error).__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    seconds, *rest = done.stdout.split()
    assert 29 <= int(seconds) <= 60
    assert rest[0] == "MemoryError"
    assert not (tmp_path / "x").exists() or not (tmp_path / "x").read_text()


def test_the_reader_sees_no_secret_of_the_environment(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    made = Process()
    made.text("html", b"<p>x")
    environment = Path(f"/proc/{made._running.pid}/environ").read_bytes()
    made.close()
    assert b"sk-secret" not in environment


def test_a_document_is_converted_once_until_it_changes(tmp_path, monkeypatch):
    asked: list[str] = []

    class Counting:
        def text(self, kind: str, data: bytes) -> bytes:
            asked.append(kind)
            return data

    monkeypatch.setattr(readers, "_process", Counting)
    file = tmp_path / "a.html"
    file.write_text("<p>One.")
    assert converted(file, "html") == converted(file, "html") == "<p>One."
    file.write_text("<p>Another.")
    assert converted(file, "html") == "<p>Another."
    assert len(asked) == 2


def test_html_in_another_encoding_is_refused_by_name(tmp_path):
    (tmp_path / "a.html").write_bytes(b"<p>caf\xe9")
    with pytest.raises(HaystackError, match=r"a\.html' is not UTF-8: bad byte 0xe9 at offset 6"):
        converted(tmp_path / "a.html", "html")


def test_a_file_of_a_quarter_of_a_gigabyte_is_left_out(tmp_path):
    with (tmp_path / "a.pdf").open("wb") as file:
        file.truncate(300 << 20)
    with pytest.raises(Unreadable, match="larger than 256 MB"):
        converted(tmp_path / "a.pdf", "pdf")


def test_a_document_without_text_says_so(tmp_path):
    (tmp_path / "a.pdf").write_bytes(pdf(""))
    with pytest.raises(Unreadable, match="no text in it"):
        converted(tmp_path / "a.pdf", "pdf")


def test_a_page_whose_text_is_packed_beyond_all_measure_is_no_empty_page(process):
    """The reader passes over what is drawn from elsewhere and cannot be unpacked: that read as 'no
    text'."""
    with pytest.raises(Unreadable, match=r"no PDF that can be read: .*XForm"):
        process.text(
            "pdf", drawn(zlib.compress(b"BT /F1 9 Tf (A fact.) Tj ET " + b" " * 100_000_000))
        )
    assert process.text("pdf", drawn(zlib.compress(b"BT /F1 9 Tf (A fact.) Tj ET "))) == b"A fact."


def drawn(packed: bytes) -> bytes:
    """A PDF of one page that draws a form, whose stream is packed."""
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject, StreamObject

    writer = PdfWriter()
    page, form = writer.add_blank_page(200, 200), StreamObject()
    font = DictionaryObject(
        {NameObject(f"/{key}"): NameObject(f"/{value}") for key, value in FONT.items()}
    )
    fonts = DictionaryObject({NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})})
    form._data = packed
    form.update(
        {
            NameObject("/Subtype"): NameObject("/Form"),
            NameObject("/Filter"): NameObject("/FlateDecode"),
        }
    )
    form[NameObject("/Resources")] = fonts
    content = DecodedStreamObject()
    content.set_data(b"/X1 Do")
    forms = DictionaryObject({NameObject("/X1"): writer._add_object(form)})
    page[NameObject("/Contents")] = writer._add_object(content)
    page[NameObject("/Resources")] = DictionaryObject({NameObject("/XObject"): forms})
    with io.BytesIO() as file:
        writer.write(file)
        return file.getvalue()
