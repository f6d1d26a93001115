"""`needlemap check` of real servers: honest ones pass, and what was set wrong on purpose is
named."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.timeout(900)
TRAINED = 256  # tokens within which the model finds every needle
SMALL = ("--max-length", "256", "--load", "4", "--json", "-o", "c")


WINDOW = ("--probe", "length", "--probe", "window", "--require", "length,window")


def verdicts(asking, served, *flags, code=0):
    ended = asking("check", served, "--tokenizer", asking.checkpoint, *SMALL, *flags, code=code)
    return {each["probe"]: each for each in json.loads(ended.stdout)["probes"]}


def states(found):
    return {name: each["state"] for name, each in found.items()}


@pytest.mark.parametrize("slots", [1, pytest.param(4, marks=pytest.mark.long)])
def test_an_honest_server_passes_every_probe(llama, asking, slots):
    found = verdicts(asking, llama(slots))
    assert set(states(found).values()) <= {"PASS", "not applicable"}, found


@pytest.mark.long
@pytest.mark.parametrize(
    "wrong",
    [
        ("--cache-type-k", "q4_0", "--cache-type-v", "q4_0", "--flash-attn", "on"),
        ("--rope-freq-base", "500000"),
    ],
    ids=["four-bit-cache", "rotary-base"],
)
def test_what_is_wrong_in_every_way_is_seen_beside_the_same_weights(llama, asking, wrong):
    pytest.importorskip("torch", reason="needs torch: python3 -m pip install '.[hf]'")
    beside = (
        "--reference",
        f"hf/{asking.checkpoint}",
        "--probe",
        "reference",
        "--require",
        "reference",
    )
    found = verdicts(asking, llama(1, 2048, *wrong), *beside, code=1)
    assert states(found) == {"reference": "FAIL"}
    print(found["reference"]["said"])


@pytest.mark.long
def test_an_honest_server_is_as_its_weights_are_elsewhere(llama, asking):
    pytest.importorskip("torch", reason="needs torch: python3 -m pip install '.[hf]'")
    beside = (
        "--reference",
        f"hf/{asking.checkpoint}",
        "--probe",
        "reference",
        "--require",
        "reference",
    )
    found = verdicts(asking, llama(), *beside)
    assert states(found) == {"reference": "PASS"}
    print(found["reference"]["said"])


@pytest.mark.long
def test_an_honest_server_without_log_probabilities_passes_what_it_can_be_asked(
    transformers_serve, asking
):
    found = verdicts(asking, transformers_serve)
    assert set(states(found).values()) <= {"PASS", "not applicable"}, found
    assert found["ways"]["state"] == "not applicable"


@pytest.mark.long
def test_a_context_smaller_than_promised_is_seen_without_a_reference(llama, asking):
    found = verdicts(asking, llama(1, TRAINED), *WINDOW, "--max-length", "512", code=1)
    assert states(found)["window"] == "FAIL"
    assert "are refused: less than promised" in found["window"]["said"]


@pytest.mark.long
def test_the_last_tokens_of_a_context_are_asked_and_one_beyond_is_refused(llama, asking, needlemap):
    found = verdicts(asking, llama(1, TRAINED), *WINDOW)
    assert states(found)["window"] == "PASS"
    last = needlemap.records(f"c/window-{TRAINED}")
    assert {row["prompt_tokens"] for row in last} == {TRAINED - 20 - n for n in range(8)}
    (beyond,) = needlemap.records(f"c/beyond-{TRAINED}")
    assert beyond["failure"] == "prompt too long"
