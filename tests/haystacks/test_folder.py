"""A folder of text files, in the order of their names."""

from __future__ import annotations

import pytest

from needlemap.configure import configure
from needlemap.errors import HaystackError
from needlemap.haystacks.folder import Folder


def write(folder, **texts: str) -> None:
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8", newline="")


def test_files_come_by_name_whatever_the_file_system_says(tmp_path):
    write(tmp_path, b="two", a10="ten", a2="second", B="upper", 文="last")
    found = list(Folder(str(tmp_path)).documents())
    assert [document.name for document in found] == ["B.txt", "a10.txt", "a2.txt", "b.txt", "文.txt"]
    assert found[0].text == "upper"


def test_documents_can_be_read_again_and_from_a_number_on(tmp_path):
    write(tmp_path, a="one", b="two", c="three")
    folder = Folder(str(tmp_path))
    assert [document.text for document in folder.documents(1)] == ["two", "three"]
    assert len(list(folder.documents())) == 3
    assert folder.name == f"folder/{tmp_path.name}"
    assert not folder.endless


def test_only_visible_text_files_count(tmp_path):
    """macOS leaves '._a.txt', which is no UTF-8, beside a.txt on foreign file systems."""
    write(tmp_path, a="one", empty="")
    (tmp_path / "._a.txt").write_bytes(b"\x00\x05\x16\x07\xff")
    (tmp_path / "notes.md").write_text("notes")
    (tmp_path / "old.txt").mkdir()
    assert [document.name for document in Folder(str(tmp_path)).documents()] == ["a.txt"]


def test_line_ends_are_the_same_on_every_machine(tmp_path):
    write(tmp_path, a="one\r\ntwo\rthree\n")
    assert next(Folder(str(tmp_path)).documents()).text == "one\ntwo\nthree\n"


def test_bad_bytes_name_file_and_offset(tmp_path):
    (tmp_path / "a.txt").write_bytes("für ".encode() + b"caf\xe9")
    with pytest.raises(HaystackError, match=r"a\.txt' is not UTF-8: bad byte 0xe9 at offset 8\. .*iconv"):
        list(Folder(str(tmp_path)).documents())


def test_a_missing_or_empty_folder_is_an_error_at_once(tmp_path):
    with pytest.raises(HaystackError, match=r"No folder at '.*nowhere'.*--haystack-path"):
        Folder(str(tmp_path / "nowhere"))
    with pytest.raises(HaystackError, match=r"holds no \*\.txt file"):
        Folder(str(tmp_path))


def test_another_pattern(tmp_path):
    (tmp_path / "a.md").write_text("one")
    assert [document.name for document in Folder(str(tmp_path), pattern="*.md").documents()] == ["a.md"]


def test_the_home_folder_may_be_written_short(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "texts").mkdir()
    write(tmp_path / "texts", a="one")
    assert next(Folder("~/texts").documents()).text == "one"


# What a path means


@pytest.mark.parametrize(
    ("name", "meant"), [("notes", "folder"), ("x.jsonl", "jsonl"), ("X.NDJSON", "jsonl"), ("a.txt", "folder")]
)
def test_a_path_says_what_it_is(name, meant):
    """--haystack-path without --haystack was ignored in silence, and generated prose was measured."""
    made = configure(None, {"haystack_path": name})
    assert (made.haystack, made.haystack_path) == (meant, name)


def test_a_path_stays_with_the_source_that_a_preset_names(tmp_path):
    assert configure("cdme-8k", {"haystack_path": "Some/Set"}).haystack == "hub"
    assert configure("cdme-8k", {"haystack_path": str(tmp_path)}).haystack == "jsonl"
    assert configure("bm25", {"haystack_path": str(tmp_path)}).haystack == "folder"
    assert configure("bm25", {"haystack": "jsonl", "haystack_path": "a.txt"}).haystack == "jsonl"


def test_a_path_that_is_not_there_is_an_error(typed):
    wrong = typed("run", "--model", "baseline/bm25", "--haystack-path", "/does/not/exist", code=2)
    assert "/does/not/exist'" in wrong.stderr
    assert not (typed.folder / "runs").exists()
