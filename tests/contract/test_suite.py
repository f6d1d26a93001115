"""The suite of all families asked of a real transformer at 1.1k and 2k tokens, as in a user's
hands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from needlemap.records.folder import RunFolder
from needlemap.settings.suites import load_suite

pytest.importorskip("torch", reason="needs torch: python3 -m pip install '.[hf]'")


@pytest.mark.parametrize("chat", [True, False])
def test_every_family_is_measured_and_one_cache_serves_them_all(
    chat: bool, folders: Callable[..., Path], typed, tmp_path: Path
):
    """Nothing but its wording: a model of random weights knows no answer."""
    folder = folders("llama", chat=chat)
    flags = (
        "--model",
        f"hf/{folder}",
        "--model-options",
        "device=cpu",
        "--model-options",
        "dtype=float32",
    )
    ended = typed(
        "run",
        "suite:smoke",
        *flags,
        "--lengths",
        "1100,2000",  # the vocabulary is small: what 'questions' places takes 930 tokens
        "--max-answer-tokens",
        8,
        "-o",
        "s",
        "--quiet",
    )
    families = load_suite("smoke").families
    rows = {line.split()[0]: line.split()[1:] for line in ended.stdout.splitlines() if line.strip()}
    for family in families:
        records = list(RunFolder(tmp_path / "s" / family).records())
        assert {record.length_tokens for record in records} == {1100, 2000}
        assert all(
            record.scored and record.prompt_tokens == record.prompt.tokens for record in records
        )
        assert all(record.prompt_tokens <= record.length_tokens - 8 for record in records)
        assert int(rows[family][-1]) == len({record.prompt.sha256 for record in records})
    assert rows["family"][:2] == ["1.1k", "2k"]
    assert len(rows["mean"]) == 4
    asked = [
        record for family in families for record in RunFolder(tmp_path / "s" / family).records()
    ]
    assert all(
        record.cached_tokens >= record.shared_tokens for record in asked
    )  # of the family before it, too


def test_a_family_in_a_suite_is_answered_as_alone(
    folders: Callable[..., Path], typed, tmp_path: Path
):
    """The model and its cache stay from one family to the next."""
    (tmp_path / "two.yaml").write_text(
        "settings: {lengths: [600, 900], depths: [0, 50, 100], max_answer_tokens: 8}\n"
        "families: {one: {task: magic}, two: {task: kv, task_options: {uuid_digits: 8}}}\n"
    )
    flags = ("--model", f"hf/{folders('llama')}", "--model-options", "device=cpu", "--quiet")
    typed("run", "suite:two.yaml", *flags, "-o", "s")
    alone = (
        "--task",
        "kv",
        "--task-options",
        "uuid_digits=8",
        "--lengths",
        "600,900",
        "--depths",
        "0,50,100",
    )
    typed("run", *alone, *flags, "--max-answer-tokens", 8, "-o", "r")
    together, apart = (
        {record.key: record.answer for record in RunFolder(tmp_path / name).records()}
        for name in ("s/two", "r")
    )
    assert together == apart
    assert len(together) == 6


def test_the_baseline_is_measured_on_every_family_too(typed, tmp_path: Path):
    typed("run", "suite:smoke", "-o", "s", "--quiet")
    for family in load_suite("smoke").families:
        records = list(RunFolder(tmp_path / "s" / family).records())
        assert {record.length_tokens for record in records} == {1000, 2000}
        assert all(record.scored for record in records)
