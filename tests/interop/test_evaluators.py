"""The needlehaystack family's testers: their calls, their files, against a real server process."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from needlemap.errors import HaystackError, NeedlemapError, SettingsError
from needlemap.interop.needlehaystack import AnthropicEvaluator, OpenAIEvaluator, context
from needlemap.interop.needlehaystack.session import Worker

KEY = "sk-very-secret-0123456789"
NEEDLE = "\nThe best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny day.\n"
SEED_KEYS = {
    "model",
    "context_length",
    "depth_percent",
    "version",
    "needle",
    "model_response",
    "score",
    "test_duration_seconds",
    "test_timestamp_utc",
    "file_name",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a haystack in it, and no keys in the environment."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    essays = tmp_path / "essays"
    essays.mkdir()
    text = "".join(f"In year {number} somebody wrote an essay about work. " for number in range(200))
    (essays / "a.txt").write_text(text, encoding="utf-8")
    return tmp_path


def built(wire: Any, kind: Any = OpenAIEvaluator, **change: Any) -> Any:
    settings: dict[str, Any] = {
        "model_name": "org/test-1.5",
        "haystack_dir": "essays",
        "context_lengths": [400, 600],
        "document_depth_percents": [0, 50.5],
        "evaluation_method": "substring_match",
        "base_url": wire.root if kind is AnthropicEvaluator else wire.base_url,
        "print_ongoing_status": False,
    }
    return kind(**settings | change)


def saved() -> dict[str, Any]:
    return {file.name: json.loads(file.read_text(encoding="utf-8")) for file in Path("results").iterdir()}


def prompts(wire: Any) -> list[dict[str, Any]]:
    return [asked["body"] for asked in wire.log()]


@pytest.mark.parametrize("kind", [OpenAIEvaluator, AnthropicEvaluator])
def test_results_and_contexts_are_written_as_the_originals_write_them(wire: Any, kind: Any) -> None:
    """A slash in the model's name ended their run after the first paid answer."""
    test = built(wire, kind)
    test.start_test()
    files = saved()
    name = "org_test-1_5_len_600_depth_5050"
    assert sorted(files) == sorted(
        f"org_test-1_5_len_{length}_depth_{depth}_results.json"
        for length in (400, 600)
        for depth in (0, 5050)
    )
    row = files[f"{name}_results.json"]
    assert set(row) == SEED_KEYS
    assert (row["model"], row["context_length"], row["depth_percent"]) == ("org/test-1.5", 600, 50.5)
    assert (row["version"], row["needle"], row["file_name"], row["score"]) == (1, NEEDLE, name, 1)
    assert row["test_timestamp_utc"].endswith("+0000")
    assert row["test_duration_seconds"] > 0
    text = Path("contexts", f"{name}_context.txt").read_bytes().decode()
    assert text == context("essays", 600, 50.5, NEEDLE)
    assert test.get_results() == [files[f"{row['file_name']}_results.json"] for row in test.get_results()]


def test_the_model_reads_the_context_and_then_the_question(wire: Any) -> None:
    built(wire, context_lengths=[400], document_depth_percents=[50]).start_test()
    (asked,) = prompts(wire)
    user = asked["messages"][-1]["content"]
    assert context("essays", 400, 50, NEEDLE) in user
    assert user.endswith("What is the best thing to do in San Francisco?")
    assert (asked["temperature"], asked["model"]) == (0, "org/test-1.5")


def test_cells_with_a_result_are_not_asked_again(wire: Any) -> None:
    built(wire).start_test()
    Path("results", "org_test-1_5_len_400_depth_0_results.json").unlink()
    wire.reset()
    again = built(wire)
    again.start_test()
    assert len(wire.log()) == 1
    assert len(again.get_results()) == 4


def test_another_version_is_asked_anew_beside_the_first(wire: Any) -> None:
    """The original overwrites version 1, and then asks that again."""
    cell = {"context_lengths": [400], "document_depth_percents": [0]}
    for version in (1, 2, 1, 2):
        built(wire, results_version=version, **cell).start_test()
    assert sorted(saved()) == [
        "org_test-1_5_len_400_depth_0_results.json",
        "org_test-1_5_len_400_depth_0_results_2.json",
    ]
    assert len(wire.log()) == 2


def test_results_of_another_needle_are_not_taken_for_this_ones(wire: Any) -> None:
    """The original takes every cell for done."""
    built(wire).start_test()
    other = "The best thing to do in San Francisco is a sandwich in Dolores Park. "
    with pytest.raises(SettingsError, match="another needle"):
        built(wire, needle=other).start_test()


def test_an_unreadable_result_is_left_out_with_a_warning(wire: Any) -> None:
    """The original could not be started again."""
    Path("results").mkdir()
    Path("results", "torn.json").write_text('{"model": "or', encoding="utf-8")
    Path("results", "foreign.json").write_text("[1]", encoding="utf-8")
    test = built(wire)
    with pytest.warns(UserWarning, match=r"torn\.json"):
        test.start_test()
    assert len(test.get_results()) == 4


def test_nothing_is_written_if_nothing_is_to_be_saved(wire: Any, folder: Path) -> None:
    test = built(wire, save_results=False, save_contexts=False)
    test.start_test()
    assert [entry.name for entry in folder.iterdir()] == ["essays"]
    assert {row["score"] for row in test.get_results()} == {1}


def test_it_works_inside_a_running_event_loop(wire: Any) -> None:
    """As in Jupyter, where the original fails."""
    test = built(wire)
    asyncio.run(_start(test))
    assert len(test.get_results()) == 4


async def _start(test: Any) -> None:
    test.start_test()


def test_errors_come_out_of_a_running_event_loop(wire: Any) -> None:
    with pytest.raises(HaystackError, match="is no folder"):
        asyncio.run(_start(built(wire, haystack_dir="missing")))


def test_an_interrupted_notebook_cell_stops_the_test_behind_it() -> None:
    """A worker left alone would go on asking, and paying."""
    worker = Worker(asyncio.sleep(60))
    worker.start()
    worker.stop()
    assert not worker.is_alive()
    assert isinstance(worker.raised, asyncio.CancelledError)


def test_one_failure_ends_no_other_cell(wire: Any) -> None:
    """The original dies of the first."""
    wire.schedule("400")
    test = built(wire)
    with pytest.raises(NeedlemapError, match="1 of 4 cells could not be measured"):
        test.start_test()
    assert len(saved()) == 3
    test.start_test()
    assert len(saved()) == len(test.get_results()) == 4


def test_a_passing_failure_is_asked_again(wire: Any) -> None:
    wire.schedule("429:0.01", "503")
    built(wire).start_test()
    assert len(saved()) == 4
    assert len(wire.log()) == 6


def test_a_refused_key_ends_the_test_at_once(wire: Any) -> None:
    wire.schedule("401", cycle=True)
    with pytest.raises(NeedlemapError, match="401"):
        built(wire).start_test()
    assert len(wire.log()) == 1


def test_the_judge_scores_from_one_to_ten(wire: Any, wires: Any) -> None:
    judge = wires("--answer", "Score: 7")
    for kind in (OpenAIEvaluator, AnthropicEvaluator):
        test = built(wire, kind, evaluation_method="gpt4", judge_base_url=judge.base_url, save_results=False)
        test.start_test()
        assert [row["score"] for row in test.get_results()] == [7] * 4
    assert {asked["model"] for asked in prompts(judge)} == {"gpt-4"}


def test_keys_are_used_and_kept_nowhere(wire: Any, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = dict(os.environ)
    for kind, name in ((OpenAIEvaluator, "openai_api_key"), (AnthropicEvaluator, "anthropic_api_key")):
        test = built(
            wire, kind, print_ongoing_status=True, **{name: KEY}, save_results=kind is OpenAIEvaluator
        )
        test.start_test()
        assert KEY not in repr(test)
    assert all(asked["had_key"] for asked in wire.log())
    assert dict(os.environ) == before
    assert KEY not in capsys.readouterr().out
    assert not any(KEY.encode() in file.read_bytes() for file in folder.rglob("*") if file.is_file())


def test_a_lent_key_is_gone_even_after_an_error() -> None:
    before = dict(os.environ)
    with pytest.raises(SettingsError, match="no base URL"):
        OpenAIEvaluator(model_name="gpt-4", openai_api_key=KEY, base_url="nowhere")
    assert dict(os.environ) == before


def test_status_is_printed_if_asked_for(wire: Any, capsys: pytest.CaptureFixture[str]) -> None:
    built(wire, print_ongoing_status=True).start_test()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert "2 lengths by 2 depths, 0 cells done before, 4 to ask" in lines[0]


def test_defaults_are_the_forks() -> None:
    test = OpenAIEvaluator(model_name="gpt-4-1106-preview", openai_api_key=KEY)
    assert (len(test.cells), test.lengths[-1], test.depths[:3]) == (1225, 200_000, [0, 3, 6])
    assert (test.needle, test.tokenizer_name, test.judge_model) == (NEEDLE, "cl100k_base", "openai/gpt-4")


def test_cells_that_occur_twice_are_asked_once(wire: Any) -> None:
    test = built(wire, document_depth_percents=None, document_depth_percent_intervals=200)
    assert len(test.cells) == 2 * 101


def test_concurrent_requests_give_the_same_results(wire: Any) -> None:
    test = built(wire, num_concurrent_requests=4, seconds_to_sleep_between_completions=0.01)
    test.start_test()
    assert sorted(row["score"] for row in test.get_results()) == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"modelname": "x"}, "Did you mean 'model_name'"),
        ({"context_length": [1]}, "Did you mean 'context_lengths'"),
        ({"model_name": ""}, "model_name is missing"),
        ({"evaluation_method": "gpt5"}, "evaluation_method"),
        ({"document_depth_percents": [101]}, "0..100"),
        ({"document_depth_percents": [0.561, 0.562]}, "share a result file"),
        ({"document_depth_percents": None, "document_depth_percent_interval_type": None}, "interval type"),
        ({"context_lengths": [210]}, "leaves no room"),
        ({"substr_validation_words": ["bagel"]}, "bagel"),
        ({"substr_validation_words": []}, "lacks: any"),
        ({"num_concurrent_requests": 0}, "at least 1"),
        ({"seconds_to_sleep_between_completions": -1}, "negative"),
        ({"base_url": "localhost"}, "no base URL"),
    ],
)
def test_what_cannot_work_is_said_before_the_first_call(
    wire: Any, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(SettingsError, match=words):
        built(wire, **change)


def test_a_missing_key_is_said_before_the_first_call() -> None:
    with pytest.raises(SettingsError, match="OPENAI_API_KEY"):
        OpenAIEvaluator(model_name="gpt-4")
    with pytest.raises(SettingsError, match="ANTHROPIC_API_KEY"):
        AnthropicEvaluator(model_name="claude-2.1")
