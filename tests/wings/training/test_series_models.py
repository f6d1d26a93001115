"""A series: checkpoints of one training, named together."""

from __future__ import annotations

import json

import pytest

from needlemap.errors import SettingsError
from needlemap.settings.reading import configure
from needlemap.settings.series import step_of
from needlemap.settings.suites import choose, choose_each

GIVEN = {"tokenizer": "cl100k_base", "lengths": "1k"}


def checkpoint(folder, state=None):
    """A checkpoint's folder, as far as a series reads it."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    if state is not None:
        (folder / "trainer_state.json").write_text(state)
    return folder


@pytest.fixture
def training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for step in (1000, 200, 90):
        checkpoint(tmp_path / f"run/step-{step}")
    (tmp_path / "run/step-notes.txt").write_text("no checkpoint")
    return tmp_path


def chosen(model="hf/run/step-*", **more):
    each = choose_each(None, {**GIVEN, "model": model, **more})
    return {name: (one.first.model, one.first.step) for name, one in each.items()}


@pytest.mark.usefixtures("training")
def test_it_is_a_model_a_folder_in_the_order_of_their_steps():
    assert chosen() == {
        f"hf-run-step-{step}": (f"hf/run/step-{step}", step) for step in (90, 200, 1000)
    }


def test_a_trainers_state_says_the_step_whatever_the_folder_is_called(training):
    for name, step in (("best", 700), ("last", 1200)):
        checkpoint(training / f"other/{name}", json.dumps({"global_step": step}))
    checkpoint(training / "other/checkpoint-1", json.dumps({"global_step": 900}))
    assert [step for _, step in chosen("hf/other/*").values()] == [700, 900, 1200]


@pytest.mark.parametrize(
    "state", ["", "[]", "{", '{"global_step": "9"}', '{"global_step": -1}', "[" * 100_000]
)
def test_a_state_that_says_no_step_leaves_it_to_the_name(tmp_path, state):
    assert step_of(str(checkpoint(tmp_path / "v2-step-30", state))) == 30
    assert step_of(str(checkpoint(tmp_path / "best", state))) is None


def test_where_a_step_is_unknown_names_decide_with_numbers_by_size(training):
    for name in ("b", "a10", "a9"):
        checkpoint(training / f"other/{name}")
    assert [model for model, _ in chosen("hf/other/*").values()] == [
        "hf/other/a9",
        "hf/other/a10",
        "hf/other/b",
    ]


@pytest.mark.usefixtures("training")
def test_one_checkpoint_has_a_folder_too_so_that_the_next_is_asked_beside_it():
    assert list(chosen("hf/run/step-9*")) == ["hf-run-step-90"]


def test_a_series_stands_beside_other_models_and_in_yaml(training):
    both = ["hf/run/step-*", "baseline/bm25"]
    assert [model for model, _ in chosen(both).values()][-2:] == [
        "hf/run/step-1000",
        "baseline/bm25",
    ]
    (training / "grid.yaml").write_text("model: hf/run/step-*\nlengths: 1k\n")
    each = choose_each("grid.yaml", {"tokenizer": "cl100k_base"})
    assert [one.first.step for one in each.values()] == [90, 200, 1000]


@pytest.mark.usefixtures("training")
def test_all_are_asked_the_same():
    each = choose_each(None, {**GIVEN, "model": "hf/run/step-*", "seed": 5})
    own = {"model", "step"}
    same = [one.first.model_dump(exclude=own) for one in each.values()]
    assert same == [same[0]] * 3


@pytest.mark.usefixtures("training")
def test_a_series_that_matches_nothing_says_what_is_there_and_what_to_type():
    with pytest.raises(SettingsError) as refused:
        chosen("hf/run/steps-*")
    assert str(refused.value) == (
        "No folder matches 'run/steps-*'. There are: run/step-1000, run/step-200, run/step-90. "
        "Give the pattern of a training's checkpoints in quotes, as --model "
        "'hf/FOLDER/checkpoint-*'."
    )


@pytest.mark.usefixtures("training")
def test_what_takes_one_model_says_so():
    with pytest.raises(SettingsError, match="3 models are named, and this takes one"):
        choose(None, {**GIVEN, "model": "hf/run/step-*"})
    with pytest.raises(SettingsError, match=r"\(hf/run/step-\*\), and this takes one"):
        configure(None, {**GIVEN, "model": "hf/run/step-*"})


@pytest.mark.usefixtures("training")
def test_a_step_may_be_typed():
    assert choose(None, {**GIVEN, "model": "hf/run/step-90", "step": 91}).first.step == 91
