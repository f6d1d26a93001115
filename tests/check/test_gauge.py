"""A check of an engine that has the gauge: settings settle themselves, what is lost is the engine's
fault, and the reference is this package's own engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from needlemap.check.asking import CheckOptions
from needlemap.check.gauge import (
    ab_settings,
    arms_of_the_gauge,
    beside_the_gauge,
    named_gauge,
    with_reference,
)
from needlemap.check.haystack import Options
from needlemap.errors import SettingsError
from needlemap.models.gauge import DATA, holds_tokens, write_checkpoint
from needlemap.records.ab import Arm

HOLDS = holds_tokens()


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("openai/gauge", True),
        ("openai//srv/models/gauge", True),
        ("hf/./gauge", True),
        ("openai/gauge.gguf", True),
        ("openai/gauge:latest", True),
        ("openai/gauges", False),
        ("openai/gauge/other", False),
    ],
)
def test_it_is_known_by_the_names_that_engines_make_of_its_folder(model: str, known: bool) -> None:
    assert named_gauge(model) is known
    assert (beside_the_gauge(CheckOptions({"model": model}))[0].reference != "") is known


def test_its_tokenizer_lengths_and_reference_are_settled() -> None:
    made, said = beside_the_gauge(CheckOptions({"model": "openai/gauge"}))
    assert made.flags["tokenizer"] == str(DATA)
    assert (made.reference, made.options.max_length) == ("gauge/numpy", HOLDS)
    assert made.options.holds == HOLDS
    assert said.endswith("For another model: --no-gauge")


def test_what_was_typed_stays() -> None:
    flags = {"model": "openai/gauge", "tokenizer": "cl100k_base"}
    options = Options(max_length=1_000, promised=True)
    made, _ = beside_the_gauge(CheckOptions(flags, options, reference="hf/./m"))
    assert made.flags["tokenizer"] == "cl100k_base"
    assert (made.reference, made.options.max_length) == ("hf/./m", 1_000)


@pytest.mark.parametrize("name", ["needle", "template", "haystack", "temperature"])
def test_with_a_needle_of_ones_own_nothing_is_known_of_what_it_finds(name: str) -> None:
    made, _ = beside_the_gauge(CheckOptions({"model": "openai/gauge", name: "x"}))
    assert made.options.holds == 0


def test_a_flag_decides_before_the_name() -> None:
    asked = CheckOptions({"model": "openai/gauge"})
    assert beside_the_gauge(asked, wanted=False) == (asked, "")
    assert beside_the_gauge(replace(asked, flags={"model": "openai/x"}), wanted=True)[0].reference


def test_an_ab_of_one_arm_gets_the_packages_own_gauge_before_it() -> None:
    served = Arm("mine", "openai/gauge", "http://127.0.0.1:1/v1")
    arms = with_reference([served])
    assert [arm.model for arm in arms] == ["gauge/numpy", "openai/gauge"]
    assert arms_of_the_gauge(arms)
    with pytest.raises(SettingsError, match="is not named so: --gauge"):
        arms_of_the_gauge([arms[0], replace(served, model="openai/m")])
    assert arms_of_the_gauge([arms[0], replace(served, model="openai/m")], wanted=True)
    assert ab_settings({"depths": "50"})["depths"] == "50"


def changed(folder: Path, **config: object) -> Path:
    """The gauge for transformers, told to compute something else."""
    path = write_checkpoint(folder) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return folder


@pytest.mark.parametrize(
    ("rotary", "code"),
    [
        ({"rope_theta": 1e12, "rope_type": "default"}, 0),
        ({"rope_theta": 2e12, "rope_type": "default"}, 1),
    ],
    ids=["as it is", "twice the base"],
)
def test_wrong_rotary_positions_are_found_without_a_second_model(
    needlemap: Callable[..., object], tmp_path: Path, rotary: dict[str, object], code: int
) -> None:
    pytest.importorskip("torch")
    folder = changed(tmp_path / "gauge", rope_parameters=rotary)
    probes = ("--probe", "reference", "--require", "reference")
    sizes = ("--max-length", "256", "--load", "2", "--model-options", "dtype=float32")
    needlemap("check", "--model", f"hf/{folder}", *probes, *sizes, "-o", "c", code=code)
    found = json.loads((tmp_path / "c" / "check.json").read_text())
    state = {each["probe"]: each["state"] for each in found["findings"]}
    assert state["reference"] == ("fail" if code else "pass")
    assert found["reference"] == "gauge/numpy"
