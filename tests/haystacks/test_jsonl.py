"""JSON Lines: one document a line, broken lines named by file and number."""

from __future__ import annotations

import json

import pytest

from needlemap.errors import HaystackError
from needlemap.haystacks.folder import JsonLines


def write(file, *lines: str) -> str:
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(file)


def texts(path: str, **options) -> list[str]:
    return [document.text for document in JsonLines(path, **options).documents()]


def line(text: str) -> str:
    return json.dumps({"text": text}, ensure_ascii=False)


def test_lines_come_in_their_order_with_names(tmp_path):
    path = write(tmp_path / "a.jsonl", line("one"), "", line("二"), "  ")
    assert [(document.name, document.text) for document in JsonLines(path).documents()] == [
        ("a.jsonl:1", "one"),
        ("a.jsonl:3", "二"),
    ]
    assert [document.text for document in JsonLines(path).documents(1)] == ["二"]


def test_a_folders_files_come_by_name_or_as_listed(tmp_path):
    for name in ("b", "a", "c"):
        write(tmp_path / f"{name}.jsonl", line(name))
    write(tmp_path / ".hidden.jsonl", "not json")
    assert texts(str(tmp_path)) == ["a", "b", "c"]
    assert texts(str(tmp_path), file_list=["c.jsonl", "a.jsonl"]) == ["c", "a"]


def test_a_string_may_hold_other_line_separators(tmp_path):
    """Python's splitlines would cut the line in pieces at U+2028, U+0085 and \\x1c."""
    odd = "one\u2028two\u2029three\u0085four"
    assert texts(write(tmp_path / "a.jsonl", line(odd), line("last"))) == [odd, "last"]


def test_half_a_surrogate_pair_becomes_the_replacement_character(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "a\\ud83d b \\ud83d\\ude42"}')
    assert texts(path) == ["a\ufffd b 🙂"]


def test_a_mark_at_the_beginning_of_a_file_is_no_part_of_its_first_line(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + line("one").encode())
    assert texts(str(tmp_path / "a.jsonl")) == ["one"]


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ('{"text": "x"', r"a\.jsonl, line 3: not JSON \(.* at column 13\)"),
        ('["x"]', r"a\.jsonl, line 3: no text in field 'text'"),
        ('{"txt": "x"}', r"a\.jsonl, line 3: no text in field 'text'"),
        (
            '{"body": "x", "id": "y"}',
            r"line 3: no text in field 'text'\. Is it 'body'\? Type: jq -c '{text: .body}' '",
        ),
        ('{"text": ' + "9" * 5000 + "}", r"a\.jsonl, line 3: no JSON that can be read"),
        ("[" * 200_000, r"a\.jsonl, line 3: no JSON that can be read"),
        ('{"text": 7}', r"a\.jsonl, line 3: no text in field 'text'"),
    ],
)
def test_a_broken_line_is_named(tmp_path, broken, words):
    path = write(tmp_path / "a.jsonl", line("one"), "", broken)
    with pytest.raises(HaystackError, match=words):
        texts(path)


def test_bad_bytes_name_file_and_offset(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "\xff"}')
    with pytest.raises(HaystackError, match=r"a\.jsonl' is not UTF-8: bad byte 0xff at offset 10"):
        texts(str(tmp_path / "a.jsonl"))


def test_what_is_not_there_is_an_error_at_once(tmp_path):
    with pytest.raises(HaystackError, match="No file or folder at"):
        JsonLines(str(tmp_path / "nowhere.jsonl"))
    with pytest.raises(HaystackError, match=r"holds no \.jsonl file"):
        JsonLines(str(tmp_path))
    write(tmp_path / "zh_tech.jsonl", line("x"))
    with pytest.raises(
        HaystackError, match=r"lacks zh_finance.jsonl \(file_list\). It holds: zh_tech.jsonl\."
    ):
        JsonLines(str(tmp_path), file_list=["zh_finance.jsonl", "zh_tech.jsonl"])
