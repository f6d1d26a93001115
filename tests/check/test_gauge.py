"""A check of an engine that has the gauge: settings settle themselves, what is lost is the engine's
fault, and the reference is this package's own engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from needlemap.check import asking
from needlemap.check.ask import Ask, Reply
from needlemap.check.asking import Check, CheckOptions, ProbesOnSchedule
from needlemap.check.beside import counted_apart
from needlemap.check.coarse import ALIKE, explained
from needlemap.check.gauge import (
    MOVES,
    ab_settings,
    arms_of_the_gauge,
    beside_the_gauge,
    named_gauge,
    with_reference,
)
from needlemap.check.haystack import Options
from needlemap.check.judge import Verdict
from needlemap.check.probe import LEAST
from needlemap.errors import SettingsError
from needlemap.models.gauge import DATA, REFERENCE, holds_tokens, write_checkpoint
from needlemap.models.gauge_cache import CoarseEngine
from needlemap.models.gauge_model import NAME, GaugeModel
from needlemap.models.walk import Engine
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


def test_a_template_of_ones_own_has_no_free_reference() -> None:
    """A chat server put it into its own template: margins moved by .2 nats, and it was blamed."""
    flags = {"model": "openai/gauge", "template": "text-en"}
    made, said = beside_the_gauge(CheckOptions(flags))
    assert (made.reference, made.options.moves) == ("", ())
    assert "no reference beside a --template" in said
    asked = CheckOptions(flags, reference=REFERENCE)
    assert beside_the_gauge(asked)[0].reference == REFERENCE
    plain = CheckOptions({**flags, "model_options": {"api": "completions"}})
    assert beside_the_gauge(plain)[0].reference == REFERENCE


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
    said = found["findings"][0]["said"]
    assert ("as float32 may (to 2e-05)" in said) == (not code)


@pytest.fixture
def one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks draw no seed: what a cache of 4 bits moves differs from one to the next."""
    monkeypatch.setattr(asking, "randbits", lambda _bits: 7)


def checked(folder: Path, engine: Engine | None = None, *, exact: bool = False) -> Verdict:
    """A check of the gauge in this process beside its reference, with another engine."""
    options = Options(256, probes=("reference",), require=("reference",), exact=exact)
    asked, _ = beside_the_gauge(CheckOptions({"model": REFERENCE}, options), wanted=True)
    check = Check.of(asked, folder)
    probes = ProbesOnSchedule(check, make=lambda _: GaugeModel(NAME, engine))
    return asyncio.run(probes.run())


@pytest.mark.usefixtures("one_seed")
def test_a_coarse_cache_is_a_choice_unless_it_was_said_to_be_exact(tmp_path: Path) -> None:
    """A cache of 4 bits moves every margin by a nat and loses no answer. It was called a fault."""
    verdict = checked(tmp_path, CoarseEngine("q4_0"))
    (found,) = verdict.findings
    assert (verdict.code, found.state, found.points) == (5, "undecided", True)
    assert found.said.startswith(f"{found.sizes[0].size}: cache coarser, as q4_0: margins move by ")
    assert "] nats" in found.said
    exact = checked(tmp_path, CoarseEngine("q4_0"), exact=True)  # of the same answers
    assert (exact.code, exact.findings[0].state) == (1, "fail")


def test_margins_that_all_move_alike_are_no_coarse_cache() -> None:
    """Values 1.05 times as large move all margins by a nat, as a cache of 4 bits does in the mean;
    what is computed with that cache is not like it."""
    cache = np.array([-1.3, -0.7, -1.5, -0.9])
    values = np.array([-1.01, -1.0, -1.0, -1.01])
    assert explained(values, cache) < ALIKE < explained(cache + 0.05 * values, cache)


def test_thresholds_grow_by_data_type() -> None:
    limits = [most for _, most in MOVES]
    assert limits == sorted(limits)


def test_a_template_that_adds_tokens_is_named() -> None:
    pairs = [(reply_of(at, tokens=100), reply_of(at, tokens=109)) for at in range(LEAST)]
    assert counted_apart(pairs).endswith(
        "109 tokens where the model has 100: another chat template"
    )
    assert counted_apart([(one, one) for one, _ in pairs]) == ""
    assert counted_apart(pairs[1:]) == ""


def reply_of(number: int, tokens: int) -> Reply:
    return Reply(Ask("cold", 200, 200, 0.5, number), prompt_tokens=tokens)


def test_kv_exact_is_of_the_gauge_alone(needlemap: Callable[..., object]) -> None:
    ended = needlemap("check", "--model", "demo/retriever", "--kv", "exact", "--plan", code=2)
    assert "--kv exact judges a server of needlemap's gauge" in str(getattr(ended, "stderr", ""))
