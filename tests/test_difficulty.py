"""How hard a task is: dials, and the file that freezes a step of one."""

from __future__ import annotations

import pytest

from needlemap.asking.difficulty import (
    Difficulty,
    TuningReference,
    at_step,
    chosen_step,
    dial_of,
    read_difficulty,
)
from needlemap.errors import SettingsError
from needlemap.registry import find, installed
from needlemap.settings.reading import configure
from needlemap.tasks import make_task

DIALLED = sorted(name for name in installed("tasks") if find("tasks", name).dial)


def test_every_family_of_ours_has_a_dial_but_those_of_the_users_own_texts():
    ours = {name for name, point in installed("tasks").items() if point.dist.name == "needlemap"}
    assert ours - set(DIALLED) == {"single", "multi", "published", "apart"}


@pytest.mark.parametrize("name", DIALLED)
def test_a_dial_has_steps_that_differ_and_that_the_task_takes(name):
    dial = dial_of(name)
    assert len(dial) >= 2
    assert all(one != other for place, one in enumerate(dial) for other in dial[:place])
    settings = configure(None, {"task": name})
    for options in dial:
        make_task(at_step(settings, options))


def test_a_task_without_a_dial_names_those_that_have_one():
    with pytest.raises(SettingsError, match=r"Task 'single' has no dial.*kv.*multikey"):
        dial_of("single")


def test_the_step_is_the_first_hard_enough_or_the_nearest():
    assert chosen_step([1.0, 0.97, 0.9]) == 2
    assert chosen_step([1.0, 0.96, 0.1]) == 1  # 1 point above 95 is nearer than 50 below 60
    assert chosen_step([1.0, 0.55]) == 1
    assert chosen_step([0.1]) == 0
    assert chosen_step([1.0, 1.0, 1.0]) == 2


def frozen(**options: object) -> Difficulty:
    return Difficulty(
        task="multikey", task_options=options, reference=TuningReference(model="a/b", score=80, n=9)
    )


def test_a_file_is_read_as_it_was_written(tmp_path):
    file = tmp_path / "d.yaml"
    file.write_text(frozen(keys=8).text())
    assert read_difficulty(file) == frozen(keys=8)


def test_its_options_stand_over_the_presets():
    settings = configure("ruler-niah-multikey-2")
    options = frozen(haystack="needles", keys=4).applied(settings).task_options
    assert options == {"haystack": "needles", "key": "word", "value": "number", "keys": 4}
    with pytest.raises(SettingsError, match="is of task 'multikey', the run's is 'kv'"):
        frozen(keys=8).applied(configure("kv-json"))


@pytest.mark.parametrize("text", ["", "[", "task: kv", "{task: kv, task_options: 3}", "\x00"])
def test_any_other_file_is_refused(tmp_path, text):
    file = tmp_path / "d.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError, match="is no difficulty"):
        read_difficulty(file)
    with pytest.raises(SettingsError, match="No file at"):
        read_difficulty(tmp_path / "nowhere.yaml")
