"""`--env-file FILE`: keys and addresses from a file that the user names, with any command."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import Any

import pytest

from needlemap.env_file import read_env_file
from needlemap.errors import SettingsError

RUN = (
    "run",
    "--model",
    "openai/m",
    "--lengths",
    "400",
    "--depths",
    "50",
    "--max-answer-tokens",
    30,
)


@pytest.mark.parametrize("flag", [("--env-file", ".env"), ("--env-file=.env",)])
def test_key_and_address_come_from_the_file_wherever_the_flag_is_typed(
    flag: tuple[str, ...], needlemap: Any, wire: Any
) -> None:
    (needlemap.folder / ".env").write_text(
        "# mine\nexport OPENAI_API_KEY='of-the-file'  # a remark\n"
        f"OPENAI_BASE_URL={wire.base_url}\n"
    )
    before = dict(os.environ)
    needlemap(*flag, *RUN, "-o", "first")
    needlemap(*RUN, "-o", "second", *flag)
    sent = {request["key_sha256"] for request in wire.log()}
    assert sent == {sha256(b"of-the-file").hexdigest()}
    assert dict(os.environ) == before
    kept = [file.read_bytes() for file in needlemap.folder.glob("first/*") if file.is_file()]
    assert not any(b"of-the-file" in text for text in kept)


def test_a_file_that_is_not_named_is_not_read(needlemap: Any, wire: Any) -> None:
    (needlemap.folder / ".env").write_text(f"OPENAI_BASE_URL={wire.base_url}\n")
    ended = needlemap(*RUN, "--tokenizer", "qwen3", "-o", "r", code=2)
    assert "No key for api.openai.com" in ended.stderr


def test_what_the_environment_has_stays(tmp_path: Any, monkeypatch: Any) -> None:
    from needlemap.env_file import use_env_file

    monkeypatch.setenv("OPENAI_API_KEY", "of-the-shell")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    (tmp_path / "e").write_text('OPENAI_API_KEY=other\nOPENAI_BASE_URL="http://a b"\n')
    use_env_file(tmp_path / "e")
    assert os.environ["OPENAI_API_KEY"] == "of-the-shell"
    assert os.environ.pop("OPENAI_BASE_URL") == "http://a b"


def test_a_wrong_line_is_named_and_not_shown(tmp_path: Any) -> None:
    (tmp_path / "e").write_text("A=1\nsk-secret\n")
    with pytest.raises(SettingsError, match="line 2 is not NAME=VALUE") as wrong:
        read_env_file(tmp_path / "e")
    assert "secret" not in str(wrong.value)
    with pytest.raises(SettingsError, match="No file at"):
        read_env_file(tmp_path / "none")
