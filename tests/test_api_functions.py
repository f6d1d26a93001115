"""A function is a model and a scorer, and a run can be awaited: what Python's callers may hand
over."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import needlemap
from needlemap.errors import NeedlemapError, SettingsError
from needlemap.plugins import Score
from needlemap.records.record import Record

SMALL: dict[str, Any] = {
    "lengths": "500",
    "depths": "0,100",
    "max_answer_tokens": 40,
    "quiet": True,
}


def answer(_messages: list[dict[str, str]]) -> str:
    return "I do not know."


async def slow_answer(_messages: list[dict[str, str]]) -> str:
    await asyncio.sleep(0.2)
    return "I do not know."


def polite(text: str, reference: Any) -> bool:
    assert reference.question
    return "do not know" in text


def records(folder: Path) -> list[Record]:
    return needlemap.load(folder).records()


@pytest.mark.parametrize("model", [answer, slow_answer])
def test_a_function_is_a_model_by_its_module_and_name(tmp_path, model):
    run = needlemap.run(model=model, out=tmp_path / "r", **SMALL)
    assert run.map().overall == 0
    assert {record.model for record in run.records()} == {f"python/{__name__}:{model.__name__}"}


def test_a_function_that_no_import_finds_is_asked_too(tmp_path):
    said = "The locker code is 12345."
    run = needlemap.run(model=lambda _: said, out=tmp_path / "r", **SMALL)
    assert {record.answer for record in run.records()} == {said}


def test_one_that_is_written_otherwise_is_another_model(tmp_path):
    needlemap.run(model=lambda _: "one", out=tmp_path / "r", **SMALL)
    with pytest.raises(NeedlemapError, match=r"holds answers to other prompts.*weights"):
        needlemap.run(model=lambda _: "two", out=tmp_path / "r", **SMALL)


def test_one_without_source_goes_by_its_code(tmp_path):
    made: dict[str, Any] = {}
    for text in ("one", "two"):
        exec(f"def f(messages): return {text!r}", made)
        made[text] = needlemap.run(model=made["f"], out=tmp_path / text, **SMALL).records()[0]
    assert made["one"].key != made["two"].key


@pytest.mark.parametrize(
    ("scorer", "share"),
    [
        (polite, 1),
        (lambda *_: 0.25, 0.25),
        (lambda *_: Score(0.5, 5, {"why": "half"}), 0.5),
    ],
)
def test_a_function_is_a_scorer_and_returns_a_share_a_bool_or_a_score(tmp_path, scorer, share):
    run = needlemap.run(model=answer, scorer=scorer, out=tmp_path / "r", **SMALL)
    assert run.map().overall == share
    found = run.records()[0].scorer
    assert found.name == f"python/{__name__}:{scorer.__qualname__}"
    assert len(found.options["source"]) == 16


def test_an_async_scorer_is_awaited(tmp_path):
    async def judged(_answer: str, _reference: Any) -> float:
        await asyncio.sleep(0)
        return 1.0

    assert (
        needlemap.run(model=answer, scorer=judged, out=tmp_path / "r", **SMALL).map().overall == 1
    )


@pytest.mark.parametrize(
    ("scorer", "said"),
    [
        (lambda *_: "good", "must return a number in [0, 1] or a Score, it returned 'good'"),
        (lambda *_: 7, "a score's share lies in [0, 1], got 7.0"),
        (lambda *_: 1 / 0, "division by zero"),
    ],
)
def test_a_scorer_that_returns_no_score_is_a_trial_s_failure_in_words(tmp_path, scorer, said):
    run = needlemap.run(model=answer, scorer=scorer, out=tmp_path / "r", **SMALL)
    assert run.map().overall is None
    assert run.outcome.failures == {"scorer raised": 2}
    assert all(said in record.error for record in run.records())


def test_the_command_line_takes_a_scorer_by_its_name(needlemap):
    (needlemap.folder / "mine.py").write_text("def half(answer, reference):\n    return 0.5\n")
    grid = ("--lengths", "1k", "--depths", "0,100", "--quiet")
    ended = needlemap("run", "bm25", *grid, "--scorer", "python/mine:half", "-o", "r", "--json")
    assert json.loads(ended.stdout)["runs"][0]["overall"]["score"] == 50
    needlemap("run", "bm25", *grid, "-o", "s")
    assert "50.0" in needlemap("score", "s", "--scorer", "python/mine:half").stdout
    assert (
        "No module 'nowhere' here"
        in needlemap("score", "s", "--scorer", "python/nowhere:f", code=2).stderr
    )


def test_what_a_stranger_s_run_names_as_its_scorer_is_not_run(needlemap):
    grid = ("--lengths", "1k", "--depths", "0", "--quiet")
    needlemap("run", "bm25", *grid, "-o", "r")
    (needlemap.folder / "trap.py").write_text("open('sprung', 'w')\ndef f(a, r):\n    return 1\n")
    file = needlemap.folder / "r" / "run.json"
    about = json.loads(file.read_text())
    file.write_text(
        json.dumps(about | {"scorer": {"name": "python/trap:f", "options": {}, "rule": 1}})
    )
    for command in (
        ("report", "r"),
        ("report", "r", "--json"),
        ("list", "runs", "."),
        ("compare", "r", "r"),
    ):
        needlemap(*command, code=None)
    assert not (needlemap.folder / "sprung").exists()


def test_several_models_are_one_run_with_a_run_each(tmp_path):
    both = needlemap.run(model=["baseline/bm25", answer], out=tmp_path / "m", **SMALL)
    assert list(both.models) == ["baseline-bm25", f"python-{__name__}-answer".replace(".", ".")]
    assert both.models["baseline-bm25"].map().overall == 1
    assert both.outcome.scored == 4
    assert both.models["baseline-bm25"].outcome.scored == 2
    assert str(both).splitlines()[0].split() == ["model", "500", "all"]
    assert needlemap.load(tmp_path / "m").models.keys() == both.models.keys()
    assert both.save(tmp_path / "all.csv").read_text().count("\n") == 5
    with pytest.raises(
        NeedlemapError, match=r"has several models. Take one of them: .models\['baseline-bm25'\]"
    ):
        both.map()


def test_one_of_several_models_that_fails_leaves_the_others_to_be_asked(tmp_path, wire):
    """Its error ended the call, and the models after it were never asked."""
    served = {"model": "openai/m", "base_url": wire.base_url, "tokenizer": "cl100k_base"}
    several = {"model": [served, "baseline/bm25"], "out": tmp_path / "m", **SMALL}
    wire.schedule("401", cycle=True)
    with pytest.raises(NeedlemapError, match=r"^1 of 2 models failed.*\nModel 'openai/m': Stopped"):
        needlemap.run(**several)
    assert needlemap.load(tmp_path / "m").models["baseline-bm25"].map().overall == 1
    wire.schedule()
    assert needlemap.run(**several).models["openai-m"].outcome.scored == 2


def test_a_plan_of_several_has_each_and_the_sum():
    plan = needlemap.make_plan(
        model=["openai/gpt-4o", "openai/gpt-4o-mini"], lengths="1k", depths="0,100"
    )
    assert [each["model"] for each in plan["models"]] == ["openai/gpt-4o", "openai/gpt-4o-mini"]
    assert plan["total"]["prompts"] == 4


def test_two_functions_of_one_name_are_refused(tmp_path):
    twins = [lambda _: "a", lambda _: "b"]
    with pytest.raises(SettingsError, match="Two functions have one name"):
        needlemap.run(model=twins, out=tmp_path / "m", **SMALL)


def test_a_run_is_awaited_while_the_loop_goes_on(tmp_path):
    async def measured() -> tuple[Any, int]:
        ticks, done = (
            0,
            asyncio.ensure_future(
                needlemap.arun(
                    model=slow_answer, out=tmp_path / "r", **{**SMALL, "lengths": "500,600"}
                )
            ),
        )
        while not done.done():
            await asyncio.sleep(0.01)
            ticks += 1
        return await done, ticks

    run, ticks = asyncio.run(measured())
    assert run.map().n == 4
    assert ticks > 10


def test_one_that_is_cancelled_keeps_what_was_scored_and_goes_on(tmp_path):
    wanted = {**SMALL, "concurrency": 1, "depths": "0,20,40,60,80,100"}

    async def cancelled() -> None:
        run = asyncio.ensure_future(needlemap.arun(model=slow_answer, out=tmp_path / "r", **wanted))
        while not (tmp_path / "r" / "run.json").exists() or not records(tmp_path / "r"):
            await asyncio.sleep(0.02)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(cancelled())
    kept = len(records(tmp_path / "r"))
    assert 0 < kept < 6
    assert needlemap.run(model=slow_answer, out=tmp_path / "r", **wanted).outcome.scored == 6 - kept


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"temprature": 1},
            "Unknown setting 'temprature' in the call. Did you mean 'temperature'?",
        ),
        (
            {"model": "baseline/bm25", "temperature": 1.0},
            "Nothing reads temperature here: it needs a model of",
        ),
        ({"model": 7}, "Setting 'model' in the call: must be a string, got 7."),
    ],
)
def test_what_is_wrong_is_told_without_a_command_line(tmp_path, settings, said):
    with pytest.raises(NeedlemapError) as raised:
        needlemap.run(out=tmp_path / "r", **settings)
    assert said in str(raised.value)
    assert "--" not in str(raised.value)


def test_what_one_model_leaves_of_a_limit_the_others_get_in_python_too(tmp_path):
    """Only the command asked a model again that its part of the limit had stopped."""
    given = {"depths": "0,100", "canary": False, "closed_book": False, "quiet": True}
    known = tmp_path / "m" / "baseline-random"
    needlemap.run(model="baseline/random", out=known, lengths="1k", **given)
    both = ["baseline/bm25", "baseline/random"]
    grid = given | {"lengths": "1k,2k", "limit_tokens": 11_000}
    run = needlemap.run(model=both, out=tmp_path / "m", **grid)
    assert [each.map().n for each in run.models.values()] == [4, 4]
