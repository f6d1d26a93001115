"""`needlemap list`: what is installed here."""

from __future__ import annotations

import pytest

from needlemap.commands.plan import KINDS, list_command
from needlemap.errors import SettingsError


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("presets", "cdme-8k "),
        ("suites", "suite:ruler-niah "),
        ("templates", "chat-en "),
        ("tokenizers", "cl100k_base "),
        ("models", "openai "),
        ("tasks", "multi "),
        ("scorers", "levenshtein "),
        ("haystacks", "generated "),
    ],
)
def test_every_name_stands_on_a_line_of_its_own_with_a_word_on_it(capsys, kind, row):
    list_command(kind)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(row) for line in lines)
    assert all(len(line.split(maxsplit=1)) == 2 for line in lines)


def test_an_unknown_kind_is_an_error_that_names_all():
    with pytest.raises(SettingsError, match=f"Did you mean 'scorers'.*{sorted(KINDS)[0]}"):
        list_command("scorer")


def test_the_command_prints_it(needlemap):
    assert "cdme-8k" in needlemap("list", "presets").stdout
