"""Folders of documents, in the order of their paths, and what a path means."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from needlemap.errors import HaystackError
from needlemap.haystacks import assemble, folder, readers
from needlemap.haystacks.folder import Folder, JsonLines, TextFiles
from needlemap.haystacks.readers import read_bytes
from needlemap.settings.reading import configure
from needlemap.tokenizers import load


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8", newline="")


def put(folder: Path, files: dict[str, str | bytes]) -> str:
    """A folder with these files in it, by path."""
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(folder)


def names(source: Folder | TextFiles) -> list[str]:
    return [document.name for document in source.documents()]


# One's own documents


def test_a_folder_is_read_with_its_subfolders_in_the_order_of_paths(tmp_path):
    found = Folder(
        put(tmp_path, {"b.txt": "2", "a/z.md": "1", "B.rst": "0", "文.TXT": "4", "a10.py": "3"})
    )
    assert names(found) == ["B.rst", "a/z.md", "a10.py", "b.txt", "文.TXT"]
    assert (found.name, found.endless, found.parts) == (f"folder/{tmp_path.name}", False, 5)
    assert [document.text for document in found.documents(3)] == ["2", "4"]


def test_one_document_is_a_haystack_too(tmp_path):
    put(tmp_path, {"a.md": "One.", "b.md": "Two."})
    assert [document.text for document in Folder(str(tmp_path / "a.md")).documents()] == ["One."]
    assert "holds 1 documents, 4 bytes (1 .md)" in Folder(str(tmp_path / "a.md")).notes()[0]


def test_hidden_files_and_folders_of_dependencies_are_not_read(tmp_path):
    unread = (
        ".a.md",
        ".git/b.md",
        "node_modules/c.js",
        "x/__pycache__/d.py",
        "env/lib/e.py",
        "dist/f.md",
    )
    put(tmp_path, dict.fromkeys((*unread, "env/pyvenv.cfg", "ours/env.md", "builder.md"), "text"))
    found = Folder(str(tmp_path))
    assert names(found) == ["builder.md", "ours/env.md"]
    for words in (
        "2 hidden",
        "node_modules/ (dependencies",
        "env/ (dependencies",
        "dist/ (dependencies",
    ):
        assert words in found.notes()[1]


@pytest.mark.parametrize(
    "name",
    [
        *(
            "prod.env",
            "server.pem",
            "id_rsa",
            "id_ed25519.txt",
            "aws_credentials.md",
            "Credentials.txt",
            "x.key",
        ),
        *(
            "api_key.txt",
            "api-keys.md",
            "secrets.txt",
            "passwords.md",
            "service-account.txt",
            "private_key.txt",
        ),
    ],
)
def test_what_a_name_says_to_be_a_key_is_not_read(tmp_path, name):
    found = Folder(put(tmp_path, {"a.md": "text", f"sub/{name}": "hush"}))
    assert names(found) == ["a.md"]
    assert f"sub/{name} (its name says that it holds a key)" in found.notes()[1]


@pytest.mark.parametrize(
    "name", ["secretary.txt", "tokens.md", "keyboard.txt", "environment.md", "pemberley.txt"]
)
def test_other_names_are_read(tmp_path, name):
    assert names(Folder(put(tmp_path, {name: "text"}))) == [name]


def test_links_are_followed_inside_the_folder_only(tmp_path):
    put(tmp_path, {"in/a.md": "text", "out/b.md": "hush", "in/.env": "hush"})
    for name, target in {
        "c": "a.md",
        "d": "../out/b.md",
        "e": "/etc/passwd",
        "f": ".env",
        "g": "none",
    }.items():
        (tmp_path / "in" / f"{name}.md").symlink_to(target)
    (tmp_path / "in" / "folder").symlink_to("../out")
    (tmp_path / "in" / "loop").symlink_to(".")
    found = Folder(str(tmp_path / "in"))
    assert names(found) == ["a.md", "c.md"]
    told = found.notes()[1]
    assert "d.md (a link that leaves the folder), e.md (a link that leaves the folder)" in told
    assert "folder/ (a link to a folder)" in told
    assert "f.md (a link to a file whose name says that it holds a key)" in told
    assert "g.md (a link to nothing)" in told
    (tmp_path / "here").symlink_to("in")
    assert names(Folder(str(tmp_path / "here"))) == ["a.md", "c.md"]


def test_what_is_no_plain_file_is_not_opened(tmp_path):
    put(tmp_path, {"a.md": "text"})
    os.mkfifo(tmp_path / "b.md")
    assert names(Folder(str(tmp_path))) == ["a.md"]
    with pytest.raises(HaystackError, match=r"b\.md' is no document that can be read"):
        Folder(str(tmp_path / "b.md"))


def forbid(monkeypatch: pytest.MonkeyPatch, forbidden: Path) -> None:
    """Let a folder be one without permission, also for a test that runs as root."""
    real = os.scandir

    def scandir(path: Any) -> Any:
        if Path(path) == forbidden:
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)


@pytest.mark.parametrize("kind", [Folder, TextFiles, JsonLines])
def test_no_permission_is_not_empty(tmp_path, monkeypatch, kind):
    """A folder with mode 000 was said to hold no *.txt file."""
    forbid(monkeypatch, tmp_path)
    with pytest.raises(HaystackError, match=r"No permission to read '.*'\. Type: ls -ld"):
        kind(str(tmp_path))


def test_a_subfolder_without_permission_is_named(tmp_path, monkeypatch):
    put(tmp_path, {"a.md": "text", "b/c.md": "text"})
    forbid(monkeypatch, tmp_path / "b")
    found = Folder(str(tmp_path))
    assert (names(found), found.notes()[1]) == (["a.md"], "not read: b/ (no permission)")


def test_a_file_without_permission_is_named(tmp_path, monkeypatch):
    put(tmp_path, {"a.pdf": "text", "b.md": "text", "c.md": "text"})
    real = Path.read_bytes

    def read(self: Path) -> bytes:
        if self.name in ("a.pdf", "c.md"):
            raise PermissionError(13, "Permission denied")
        return real(self)

    monkeypatch.setattr(Path, "read_bytes", read)
    found = Folder(str(tmp_path))
    assert (names(found), found.notes()[1]) == (
        ["b.md"],
        "not read: a.pdf (no permission), c.md (no permission)",
    )


def test_texts_are_utf_8_or_marked_utf_16(tmp_path):
    marked = {
        "a.txt": "\ufeffé".encode(),
        "b.txt": "é".encode("utf-16"),
        "c.txt": b"\xfe\xff\x00\xe9",
    }
    found = Folder(put(tmp_path, marked | {"d.md": "é\r\né\ré"}))
    assert [document.text for document in found.documents()] == ["é", "é", "é", "é\né\né"]


@pytest.mark.parametrize(
    ("raw", "where"), [(b"caf\xe9", "UTF-8: bad byte 0xe9 at offset 3"), (b"\xff\xfea", "UTF-16")]
)
def test_another_encoding_is_refused_by_name_with_what_to_type(tmp_path, raw, where):
    found = Folder(put(tmp_path, {"sub/a.txt": raw}))
    with pytest.raises(
        HaystackError, match=rf"sub/a\.txt' is not {where}.*iconv -f latin1 -t utf-8"
    ):
        names(found)


def test_json_lines_in_a_folder_are_documents_and_other_ones_are_named(tmp_path):
    lines = '{"text": "one"}\n\n{"text": "two"}\n'
    found = Folder(
        put(tmp_path, {"a.jsonl": lines, "b.jsonl": '{"text": "x"}\n{"note": "y"}', "c.md": "z"})
    )
    assert names(found) == ["a.jsonl:1", "a.jsonl:3", "c.md"]
    assert found.notes()[1] == "not read: b.jsonl (line 2: no text in field 'text')"


def test_what_is_hardly_text_is_left_out_once_and_said(tmp_path, monkeypatch):
    """A sparse file reads as NULs, of which each is a token."""
    files = {"disk.txt": b"\0" * 99 + b"a", "wide.txt": "no mark".encode("utf-16-le")}
    source = Folder(put(tmp_path, {**files, "note.txt": b"A page.\0 Another.\n"}))
    assert names(source) == ["note.txt"]
    assert source.notes()[1] == (
        "not read: disk.txt (99 of its 100 characters are NUL: it is not text), "
        "wide.txt (7 of its 14 characters are NUL: it is not text)"
    )
    opened: list[str] = []
    monkeypatch.setattr(
        folder, "read_bytes", lambda file: opened.append(file.name) or read_bytes(file)
    )
    assert names(source) == ["note.txt"]
    assert opened == ["note.txt"]


@pytest.mark.parametrize("kind", [TextFiles, JsonLines])
def test_elsewhere_what_is_hardly_text_is_an_error(tmp_path, kind):
    path = put(tmp_path, {"a.txt": b"\0" * 100, "a.jsonl": b"\0" * 100})
    with pytest.raises(HaystackError, match="100 of its 100 characters are NUL: it is not text"):
        list(kind(path).documents())


def test_which_files_are_read_is_told_with_their_bytes(tmp_path):
    found = Folder(
        put(tmp_path, {"a.md": "1234", "b/c.py": "12", "d.md": "123", "e.png": "", "f.zip": ""})
    )
    assert len(found.part(0)) == len(found.part(1)) == 1
    assert found.notes() == [
        f"'{tmp_path}' holds 3 documents, 9 bytes (2 .md, 1 .py); 2 are read, 6 bytes: a.md, "
        f"b/c.py",
        "not read: 2 of other kinds (1 .png, 1 .zip)",
    ]


def test_names_of_files_never_reach_a_terminal_as_they_are(tmp_path):
    put(tmp_path, {"a\x1b[2J.md": "text"})
    (tmp_path / os.fsdecode(b"\xff.md")).write_text("text")
    found = Folder(str(tmp_path))
    assert len(names(found)) == 2
    assert "\x1b" not in found.notes()[0]
    found.notes()[0].encode()


def test_a_folder_without_documents_says_what_it_holds(tmp_path):
    with pytest.raises(
        HaystackError, match=r"holds no document that can be read\. Readable: \.txt .*source code"
    ):
        Folder(str(tmp_path))
    put(tmp_path, {"a.png": "", ".b.md": "text", "x.pem": "hush", "empty.md": ""})
    with pytest.raises(
        HaystackError,
        match=r"It holds x\.pem \(its name .*1 hidden, 1 empty, 1 of other kinds \(1 \.png\)",
    ):
        Folder(str(tmp_path))


def test_what_is_not_there_is_an_error_at_once(tmp_path):
    with pytest.raises(HaystackError, match=r"No file or folder at '.*nowhere'.*--haystack-path"):
        Folder(str(tmp_path / "nowhere"))
    with pytest.raises(
        HaystackError, match="on the Hugging Face hub: --haystack hub --haystack-path Some/Set"
    ):
        Folder("Some/Set")
    with pytest.raises(HaystackError, match=r"a\.docx' is no document that can be read"):
        Folder(put(tmp_path, {"a.docx": "x"}) + "/a.docx")


def test_ten_thousand_small_files_are_looked_at_and_few_are_read(tmp_path, monkeypatch):
    put(
        tmp_path,
        {f"{number % 20}/{number}.md": f"Number {number} is here.\n" * 3 for number in range(2000)},
    )
    read: list[Path] = []
    monkeypatch.setattr(folder, "read_bytes", lambda file: read.append(file) or read_bytes(file))
    assemble(Folder(str(tmp_path)), load("cl100k_base"), 1000, order="shuffled", seed=1)
    assert 20 < len(read) < 200


def test_files_are_shuffled_as_their_texts_would_be(tmp_path):
    """So that the records of earlier runs over *.txt are found again."""
    write(tmp_path, **{f"n{number:02}": f"Number {number} is here." for number in range(30)})
    texts = [
        assemble(kind(str(tmp_path)), load("cl100k_base"), 100, order=order, repeat=3).text.data
        for kind in (Folder, TextFiles)
        for order in ("shuffled", "cumulative", "listed")
    ]
    assert texts[:3] == texts[3:]


def test_where_nothing_could_be_read_it_is_said(tmp_path):
    put(tmp_path, {"a.pdf": "no pdf"})
    with pytest.raises(
        HaystackError, match=r"holds no text\. Not read: a\.pdf \(no PDF that can be read"
    ):
        assemble(Folder(str(tmp_path)), load("cl100k_base"), 10)


def test_a_missing_reader_says_what_to_install(tmp_path, monkeypatch):
    put(tmp_path, {"a.pdf": "x", "b.html": "x", "c.md": "x"})
    monkeypatch.setattr(readers, "find_spec", lambda _name: None)
    with pytest.raises(
        HaystackError,
        match=r"holds HTML and PDF files\. Run: .* 'inscriptis>=2\.6' 'pypdf>=5'",
    ):
        Folder(str(tmp_path))


def test_run_plan_and_prompts_tell_what_was_read_and_the_run_keeps_it(typed):
    put(
        typed.folder / "notes",
        {"a.md": "The tide table hangs by the door. " * 100, "x.pem": "hush"},
    )
    flags = (
        "--model",
        "baseline/bm25",
        "--haystack-path",
        "notes",
        "--lengths",
        "500",
        "--depths",
        "50",
    )
    lines = [
        "'notes' holds 1 documents, 3,400 bytes (1 .md); 1 are read, 3,400 bytes: a.md",
        "not read: x.pem (its name says that it holds a key)",
    ]
    for command in (("plan",), ("plan", "--json"), ("prompts",), ("run", "-o", "r")):
        ended = typed(*command, *flags)
        if "--json" in command:
            assert json.loads(ended.stdout)["notes"][:2] == lines
        else:
            shown = ended.stdout if command == ("plan",) else ended.stderr
            assert all(f"note: {line}\n" in shown for line in lines)
    assert json.loads((typed.folder / "r" / "run.json").read_text())["notes"] == lines


# The older tool's folder: *.txt alone


def test_files_come_by_name_whatever_the_file_system_says(tmp_path):
    write(tmp_path, b="two", a10="ten", a2="second", B="upper", 文="last")
    assert names(TextFiles(str(tmp_path))) == ["B.txt", "a10.txt", "a2.txt", "b.txt", "文.txt"]


def test_only_visible_text_files_count(tmp_path):
    """macOS leaves '._a.txt', which is no UTF-8, beside a.txt on foreign file systems."""
    write(tmp_path, a="one", empty="", key="one")
    (tmp_path / "._a.txt").write_bytes(b"\x00\x05\x16\x07\xff")
    put(tmp_path, {"notes.md": "notes", "sub/b.txt": "two", "secrets.txt": "theirs"})
    (tmp_path / "old.txt").mkdir()
    assert names(TextFiles(str(tmp_path))) == ["a.txt", "key.txt", "secrets.txt"]


def test_a_mark_at_the_beginning_is_text_there(tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeffone\r\ntwo\rthree\n".encode())
    assert next(TextFiles(str(tmp_path)).documents()).text == "\ufeffone\ntwo\nthree\n"


def test_bad_bytes_name_file_and_offset(tmp_path):
    (tmp_path / "a.txt").write_bytes("für ".encode() + b"caf\xe9")
    with pytest.raises(
        HaystackError, match=r"a\.txt' is not UTF-8: bad byte 0xe9 at offset 8\. .*iconv"
    ):
        names(TextFiles(str(tmp_path)))


def test_a_missing_or_empty_folder_is_an_error_at_once(tmp_path):
    with pytest.raises(HaystackError, match=r"No folder at '.*nowhere'.*--haystack-path"):
        TextFiles(str(tmp_path / "nowhere"))
    with pytest.raises(HaystackError, match=r"holds no \*\.txt file"):
        TextFiles(str(tmp_path))


@pytest.mark.parametrize("kind", [Folder, TextFiles])
def test_the_home_folder_may_be_written_short(tmp_path, monkeypatch, kind):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "texts").mkdir()
    write(tmp_path / "texts", a="one")
    assert next(kind("~/texts").documents()).text == "one"


def test_the_presets_of_the_older_tool_keep_it():
    assert configure("needlehaystack", {"haystack_path": "essays"}).haystack == "txt"
    assert configure(None, {"haystack_dir": "essays"}).haystack == "txt"


# What a path means


@pytest.mark.parametrize(
    ("name", "meant"),
    [("notes", "folder"), ("x.jsonl", "jsonl"), ("X.NDJSON", "jsonl"), ("a.txt", "folder")],
)
def test_a_path_says_what_it_is(name, meant):
    """--haystack-path without --haystack was ignored in silence, and generated prose was
    measured."""
    made = configure(None, {"haystack_path": name})
    assert (made.haystack, made.haystack_path) == (meant, name)


def test_a_path_stays_with_the_source_that_a_preset_names(tmp_path):
    assert configure("cdme-8k", {"haystack_path": "Some/Set"}).haystack == "hub"
    assert configure("cdme-8k", {"haystack_path": str(tmp_path)}).haystack == "jsonl"
    assert configure("bm25", {"haystack_path": str(tmp_path)}).haystack == "folder"
    assert configure("bm25", {"haystack": "jsonl", "haystack_path": "a.txt"}).haystack == "jsonl"


@pytest.mark.parametrize(
    ("files", "meant"),
    [
        (["a.jsonl", "b.jsonl", ".hidden.md", "README", "x.png"], "jsonl"),
        (["a.jsonl", "b.md"], "folder"),
        (["a.jsonl", "sub/b.jsonl"], "folder"),
        (["a.png"], "folder"),
    ],
)
def test_a_folder_of_json_lines_alone_is_json_lines(tmp_path, files, meant):
    put(tmp_path, dict.fromkeys(files, "x"))
    assert configure(None, {"haystack_path": str(tmp_path)}).haystack == meant


def test_a_path_that_is_not_there_is_an_error(typed):
    wrong = typed("run", "--model", "baseline/bm25", "--haystack-path", "/does/not/exist", code=2)
    assert "/does/not/exist'" in wrong.stderr
    assert not (typed.folder / "runs").exists()


def test_the_families_of_a_suite_tell_it_once(typed):
    put(typed.folder / "notes", {"a.md": "The tide table hangs by the door. " * 100})
    families = "families: {a: {task: magic}, b: {task: magic, seed: 1}}"
    put(typed.folder, {"mine.yaml": f"settings: {{lengths: [500], depths: [50]}}\n{families}\n"})
    for command in ("plan", "prompts"):
        ended = typed(
            command, "suite:mine.yaml", "--model", "baseline/bm25", "--haystack-path", "notes"
        )
        told = ended.stdout if command == "plan" else ended.stderr
        assert told.count("1 are read, 3,400 bytes: a.md") == 1
